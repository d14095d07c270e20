//! The supervision of a run as a state machine: deaths, signals and time in; signals to send and the verdict out.
//!
//! When one unit dies its peers notice at once and exit with errors of their own, so the processes that end
//! within moments of each other are one failure with one cause. The rules:
//!
//! 1. The first failure in time is the named one.
//! 2. A death by a signal that the run did not send wins over an error exit up to [`WINDOW`] before it: a killed
//!    process closes its sockets, which wakes its peers, a moment before the kernel reports its death.
//! 3. Once the run has begun to end its processes, how they end says nothing any more.
//! 4. A plain stage that dies of SIGPIPE has a reader that wants no more. As in the shell, that is no failure.
//!    The same holds for the parallel stages before a pump whose reader has gone: they are ended, quietly.

use super::names::signal_name;
use super::plan::{Plan, Role, Sink};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long an error exit waits for a death by signal that explains it.
pub const WINDOW: Duration = Duration::from_millis(40);

/// Exit status of `pump-out` when nobody reads its output any more; also what a shell gives for SIGPIPE.
pub const READER_GONE: i32 = 141;

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGPIPE: i32 = 13;
const SIGTERM: i32 = 15;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Exit(i32),
    Signal(i32),
}

/// Something that the driver must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send this signal to every process of the run, with their descendants.
    SignalAll(i32),
    /// Send SIGTERM to these processes.
    Terminate(Vec<usize>),
}

/// Why a run ends before its processes do.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cause {
    Failure { process: usize, end: End },
    Signal(i32),
    Timeout(Duration),
}

#[derive(Debug)]
enum Phase {
    Running,
    /// An error exit, and perhaps not the cause.
    Suspicion {
        process: usize,
        end: End,
        until: Instant,
    },
    /// SIGTERM is sent; SIGKILL follows.
    Ending {
        cause: Cause,
        kill_at: Instant,
    },
    /// SIGKILL is sent.
    Killing {
        cause: Cause,
    },
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The exit status of the command.
    pub status: u8,
    /// What to tell the user, if anything went wrong.
    pub message: Option<String>,
}

/// One process as the supervisor sees it.
#[derive(Debug, Clone)]
struct Watched {
    pid: u32,
    end: Option<End>,
    /// Had not ended by itself when the run was brought to its end.
    ended_by_run: bool,
    /// Its reader has gone: how it ends does not matter.
    excused: bool,
}

/// Decides what happens to a run.
pub struct Supervisor<'a> {
    plan: &'a Plan,
    grace: Duration,
    timeout: Option<(Duration, Instant)>,
    processes: Vec<Watched>,
    phase: Phase,
    actions: VecDeque<Action>,
}

impl<'a> Supervisor<'a> {
    /// Watches the processes of `plan`, which have started with these process numbers.
    pub fn new(
        plan: &'a Plan,
        pids: &[u32],
        grace: Duration,
        timeout: Option<Duration>,
        now: Instant,
    ) -> Self {
        let watch = |&pid| Watched { pid, end: None, ended_by_run: false, excused: false };
        Supervisor {
            plan,
            grace,
            timeout: timeout.and_then(|t| Some((t, now.checked_add(t)?))),
            processes: pids.iter().map(watch).collect(),
            phase: Phase::Running,
            actions: VecDeque::new(),
        }
    }

    /// How each process ended, where it has.
    pub fn ends(&self) -> impl Iterator<Item = Option<End>> + '_ {
        self.processes.iter().map(|p| p.end)
    }

    /// True when every process has ended.
    pub fn is_finished(&self) -> bool {
        self.processes.iter().all(|p| p.end.is_some())
    }

    /// Takes in processes that ended; all that are known to have ended by now, in one call.
    pub fn handle_ends(&mut self, now: Instant, ends: &[(usize, End)]) {
        for &(process, end) in ends {
            self.processes[process].end = Some(end);
            self.excuse_writers_of(process, end);
        }
        self.clear_suspicion();
        let failed = ends.iter().copied().filter(|&(process, end)| self.is_failure(process, end));
        // Within one call the order in time is not known: a signal explains more than an exit status.
        let worst = failed.min_by_key(|(_, end)| matches!(end, End::Exit(_)));
        match (&self.phase, worst) {
            (Phase::Running, Some((process, end @ End::Exit(_)))) => {
                self.phase = Phase::Suspicion { process, end, until: now + WINDOW };
            }
            (Phase::Running | Phase::Suspicion { .. }, Some((process, end @ End::Signal(_)))) => {
                self.end_all(now, Cause::Failure { process, end }, SIGTERM);
            }
            _ => {}
        }
        if self.is_finished() {
            self.conclude_suspicion(now);
        }
    }

    /// Takes in a signal that the command itself got.
    pub fn handle_signal(&mut self, now: Instant, signal: i32) {
        match &self.phase {
            Phase::Running | Phase::Suspicion { .. } => self.end_all(now, Cause::Signal(signal), signal),
            // Asked twice: no more patience.
            Phase::Ending { .. } => self.kill_all(),
            Phase::Killing { .. } => {}
        }
    }

    /// Takes in that time has passed.
    pub fn handle_time(&mut self, now: Instant) {
        match self.phase {
            Phase::Suspicion { until, .. } if now >= until => self.conclude_suspicion(now),
            Phase::Ending { kill_at, .. } if now >= kill_at => self.kill_all(),
            _ => {}
        }
        if let (Phase::Running | Phase::Suspicion { .. }, Some((timeout, at))) = (&self.phase, self.timeout) {
            if now >= at {
                self.end_all(now, Cause::Timeout(timeout), SIGTERM);
            }
        }
    }

    /// When [`Self::handle_time`] is due next.
    pub fn next_deadline(&self) -> Option<Instant> {
        let timeout = self.timeout.map(|(_, at)| at);
        match self.phase {
            Phase::Running => timeout,
            Phase::Suspicion { until, .. } => Some(timeout.map_or(until, |t| t.min(until))),
            Phase::Ending { kill_at, .. } => Some(kill_at),
            Phase::Killing { .. } => None,
        }
    }

    /// What the driver must do next, if anything.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn is_failure(&self, process: usize, end: End) -> bool {
        let spec = &self.plan.processes[process];
        // A pump into a port says in the same way that the port's readers are done.
        let feeds_a_pipe = matches!(spec.stdout, Sink::Pipe(_)) || spec.role == Role::PumpIn;
        match end {
            End::Exit(0) => false,
            _ if self.processes[process].excused => false,
            End::Signal(SIGPIPE) | End::Exit(READER_GONE) => !feeds_a_pipe,
            _ => true,
        }
    }

    /// Rule 4, its second half.
    fn excuse_writers_of(&mut self, process: usize, end: End) {
        let spec = &self.plan.processes[process];
        if spec.role != Role::PumpOut || end != End::Exit(READER_GONE) {
            return;
        }
        let mut alive = Vec::new();
        for (i, other) in self.plan.processes.iter().enumerate() {
            if other.stage < spec.stage {
                self.processes[i].excused = true;
                if self.processes[i].end.is_none() {
                    alive.push(i);
                }
            }
        }
        self.actions.push_back(Action::Terminate(alive));
    }

    /// A writer may notice that its reader has gone, and fail, before the pump that says so has ended.
    fn clear_suspicion(&mut self) {
        let Phase::Suspicion { process, until, .. } = self.phase else { return };
        if !self.processes[process].excused {
            return;
        }
        let others = (0..self.processes.len()).filter_map(|i| Some((i, self.processes[i].end?)));
        self.phase = match { others }.find(|&(i, end)| self.is_failure(i, end)) {
            Some((process, end)) => Phase::Suspicion { process, end, until },
            None => Phase::Running,
        };
    }

    fn conclude_suspicion(&mut self, now: Instant) {
        if let Phase::Suspicion { process, end, .. } = self.phase {
            self.end_all(now, Cause::Failure { process, end }, SIGTERM);
        }
    }

    fn end_all(&mut self, now: Instant, cause: Cause, signal: i32) {
        for process in &mut self.processes {
            // Those that failed a moment ago did so in the wake of the cause.
            process.ended_by_run = process.end.is_none_or(|e| e != End::Exit(0));
        }
        if let Cause::Failure { process, .. } = cause {
            self.processes[process].ended_by_run = false;
        }
        if !self.is_finished() {
            self.actions.push_back(Action::SignalAll(signal));
        }
        self.phase = Phase::Ending { cause, kill_at: now + self.grace };
    }

    fn kill_all(&mut self) {
        if let Phase::Ending { cause, .. } = &self.phase {
            self.phase = Phase::Killing { cause: cause.clone() };
            self.actions.push_back(Action::SignalAll(SIGKILL));
        }
    }

    /// The outcome, once every process has ended.
    pub fn verdict(&self) -> Verdict {
        let cause = match &self.phase {
            Phase::Running => return Verdict { status: 0, message: None },
            Phase::Suspicion { process, end, .. } => &Cause::Failure { process: *process, end: *end },
            Phase::Ending { cause, .. } | Phase::Killing { cause } => cause,
        };
        let others = self.processes.iter().filter(|p| p.ended_by_run).count();
        let message = match cause {
            Cause::Signal(signal) => {
                let name = signal_name(*signal);
                let verb = if *signal == SIGINT { "interrupted" } else { "told to end" };
                Some(format!("{verb} ({name}){}", ended(others, "")))
            }
            Cause::Timeout(after) => {
                Some(format!("still running after --timeout {after:?}{}", ended(others, "")))
            }
            Cause::Failure { process, end } => self.failure_message(*process, *end, others),
        };
        let status = match cause {
            Cause::Signal(signal) => 128 + *signal,
            Cause::Timeout(_) => 124,
            Cause::Failure { end: End::Exit(code), .. } => *code,
            Cause::Failure { end: End::Signal(signal), .. } => 128 + *signal,
        };
        Verdict { status: u8::try_from(status).unwrap_or(u8::MAX), message }
    }

    fn failure_message(&self, process: usize, end: End, others: usize) -> Option<String> {
        let pid = self.processes[process].pid;
        let what = match end {
            // Whoever read the run's own output wanted no more of it: nothing to report, as in the shell.
            End::Signal(SIGPIPE) | End::Exit(READER_GONE)
                if self.plan.processes[process].stdout == Sink::Result =>
            {
                return None;
            }
            End::Exit(code) => format!("exited with status {code}"),
            End::Signal(signal) => format!("was killed by {}", signal_name(signal)),
        };
        let who = self.plan.describe(process);
        Some(format!("{who} (pid {pid}) {what}{}", ended(others, "the other ")))
    }
}

fn ended(count: usize, which: &str) -> String {
    match count {
        0 => String::new(),
        1 => format!("; ended {which}1 process"),
        n => format!("; ended {which}{n} processes"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::pipeline::Pipeline;
    use super::super::plan::Site;
    use super::*;
    use std::path::Path;

    fn plan(text: &str) -> Plan {
        let site = Site { run: "r", polyduct: Path::new("/p"), directory: Path::new("/") };
        Plan::new(&Pipeline::parse(text).unwrap(), &site)
    }

    struct Case<'a> {
        s: Supervisor<'a>,
        start: Instant,
    }

    impl<'a> Case<'a> {
        fn new(plan: &'a Plan) -> Self {
            let pids: Vec<u32> = (0..plan.processes.len() as u32).map(|i| 100 + i).collect();
            let start = Instant::now();
            let grace = Duration::from_secs(2);
            Case { s: Supervisor::new(plan, &pids, grace, Some(Duration::from_secs(30)), start), start }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn ends(&mut self, ms: u64, ends: &[(usize, End)]) -> Option<Action> {
            let now = self.at(ms);
            self.s.handle_ends(now, ends);
            self.s.poll_action()
        }

        fn time(&mut self, ms: u64) -> Option<Action> {
            let now = self.at(ms);
            self.s.handle_time(now);
            self.s.poll_action()
        }

        fn message(&self) -> (u8, String) {
            let v = self.s.verdict();
            (v.status, v.message.unwrap_or_default())
        }
    }

    use End::*;

    #[test]
    fn success_is_silent() {
        let plan = plan("-n 2 a | b");
        let mut c = Case::new(&plan);
        let all: Vec<_> = (0..4).map(|i| (i, Exit(0))).collect();
        assert_eq!(c.ends(5, &all), None);
        assert!(c.s.is_finished());
        assert_eq!(c.message(), (0, String::new()));
    }

    #[test]
    fn a_signal_is_named_at_once() {
        let plan = plan("-n 4 a x | -n 3 b");
        let mut c = Case::new(&plan);
        assert_eq!(c.ends(5, &[(3, Signal(9))]), Some(Action::SignalAll(15)));
        assert_eq!(c.ends(6, &[(0, Exit(1)), (1, Exit(1)), (2, Signal(11))]), None);
        assert_eq!(c.time(1999), None);
        assert_eq!(c.time(2005), Some(Action::SignalAll(9)));
        c.ends(2006, &[(4, Signal(9)), (5, Signal(9)), (6, Signal(9))]);
        assert!(c.s.is_finished());
        let text = "stage 0 (a x) unit 3 (pid 103) was killed by SIGKILL; ended the other 6 processes";
        assert_eq!(c.message(), (137, text.into()));
    }

    #[test]
    fn an_exit_waits_for_the_signal_that_explains_it() {
        let plan = plan("-n 3 a");
        let mut c = Case::new(&plan);
        assert_eq!(c.ends(5, &[(0, Exit(1))]), None);
        assert_eq!(c.s.next_deadline(), Some(c.at(5) + WINDOW));
        assert_eq!(c.ends(9, &[(1, Exit(1)), (2, Signal(11))]), None, "all have ended: nobody to signal");
        assert!(c.s.is_finished());
        assert_eq!(
            c.message(),
            (139, "stage 0 (a) unit 2 (pid 102) was killed by SIGSEGV; ended the other 2 processes".into())
        );

        let mut c = Case::new(&plan);
        c.ends(5, &[(1, Exit(3))]);
        c.ends(7, &[(0, Exit(1))]);
        assert_eq!(c.time(5 + 40), Some(Action::SignalAll(15)));
        c.ends(50, &[(2, Signal(15))]);
        let text = "stage 0 (a) unit 1 (pid 101) exited with status 3; ended the other 2 processes";
        assert_eq!(c.message(), (3, text.into()));
    }

    #[test]
    fn a_last_success_ends_the_suspicion() {
        let plan = plan("-n 2 a | -n 1 b");
        let mut c = Case::new(&plan);
        c.ends(1, &[(0, Exit(1))]);
        c.ends(2, &[(1, Exit(1))]);
        c.ends(3, &[(2, Exit(0))]);
        let text = "stage 0 (a) unit 0 (pid 100) exited with status 1; ended the other 1 process";
        assert_eq!(c.message(), (1, text.into()));
    }

    #[test]
    fn those_that_had_finished_are_not_counted() {
        let plan = plan("-n 3 a");
        let mut c = Case::new(&plan);
        c.ends(1, &[(0, Exit(0))]);
        c.ends(2, &[(1, Signal(6))]);
        c.ends(3, &[(2, Signal(15))]);
        let text = "stage 0 (a) unit 1 (pid 101) was killed by SIGABRT; ended the other 1 process";
        assert_eq!(c.message(), (134, text.into()));
    }

    #[test]
    fn sigpipe_of_a_plain_stage_is_no_failure() {
        let plan = plan("yes | head");
        for end in [Signal(13), Exit(141)] {
            let mut c = Case::new(&plan);
            assert_eq!(c.ends(1, &[(0, end)]), None);
            c.ends(2, &[(1, Exit(0))]);
            assert_eq!(c.message(), (0, String::new()));
            let mut c = Case::new(&plan);
            c.ends(1, &[(0, Exit(0))]);
            c.ends(2, &[(1, end)]);
            assert_eq!(c.message(), (141, String::new()), "the status stands, the message does not");
        }
    }

    #[test]
    fn a_pump_without_reader_ends_the_stages_before_it() {
        let plan = plan("-n 2 a | head | cat");
        let mut c = Case::new(&plan);
        assert_eq!(c.ends(1, &[(2, Exit(READER_GONE))]), Some(Action::Terminate(vec![0, 1])));
        assert_eq!(c.ends(2, &[(0, Exit(1)), (1, Signal(15)), (3, Exit(0)), (4, Exit(0))]), None);
        assert_eq!(c.message(), (0, String::new()));

        // The writers fail first, the pump ends a moment later.
        let mut c = Case::new(&plan);
        assert_eq!(c.ends(1, &[(0, Exit(1)), (1, Exit(1)), (3, Exit(0))]), None);
        assert_eq!(c.ends(2, &[(2, Exit(READER_GONE))]), Some(Action::Terminate(vec![])));
        assert_eq!(c.time(60), None);
        c.ends(61, &[(4, Exit(0))]);
        assert_eq!(c.message(), (0, String::new()));
    }

    #[test]
    fn asked_twice_kills() {
        let plan = plan("-n 2 a");
        let mut c = Case::new(&plan);
        c.s.handle_signal(c.at(1), 2);
        assert_eq!(c.s.poll_action(), Some(Action::SignalAll(2)));
        c.s.handle_signal(c.at(2), 2);
        assert_eq!(c.s.poll_action(), Some(Action::SignalAll(9)));
        c.ends(3, &[(0, Signal(9)), (1, Signal(9))]);
        assert_eq!(c.message(), (130, "interrupted (SIGINT); ended 2 processes".into()));
    }

    #[test]
    fn timeout() {
        let plan = plan("-n 2 a");
        let mut c = Case::new(&plan);
        assert_eq!(c.s.next_deadline(), Some(c.at(30_000)));
        assert_eq!(c.time(29_999), None);
        assert_eq!(c.time(30_000), Some(Action::SignalAll(15)));
        c.ends(30_001, &[(0, Signal(15)), (1, Signal(15))]);
        assert_eq!(c.message(), (124, "still running after --timeout 30s; ended 2 processes".into()));
    }
}
