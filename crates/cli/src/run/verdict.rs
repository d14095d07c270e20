//! The supervision of a run as a state machine: deaths, ports, signals and time in; signals to send and the verdict out.
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
//! 5. Ports open when all that [meet](Plan::meeting) have come. A process that ends well without having opened its
//!    port is a failure while somebody waits there, for nobody can come in its place; where nobody waits it is none.
//!    A death or an error exit wins over it within [`WINDOW`].
//! 6. An output file that is not there, or is the old one, when all have ended well is a failure: whoever takes the file
//!    because the run succeeded would take stale data.

use super::names::signal_name;
use super::plan::{Plan, Role, Sink};
use super::stats::{Mode, Port};
use std::collections::VecDeque;
use std::path::Path;
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
    Failure {
        process: usize,
        end: End,
    },
    /// It succeeded, but for a port that it had to open.
    Unopened {
        process: usize,
        mode: Mode,
    },
    /// All succeeded, but [`Plan::file`] is not written.
    Unwritten,
    Signal(i32),
    Timeout(Duration),
}

#[derive(Debug)]
enum Phase {
    Running,
    /// An error exit or a port that nobody opens, and perhaps not the cause.
    Suspicion {
        cause: Cause,
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
    /// Its input and its output, as far as it has come with them.
    ports: [Option<Port>; 2],
}

/// Where processes wait for each other to open their ports.
#[derive(Debug, Clone, Default)]
struct Meeting {
    /// One port is open. None is before all are, so no one is missing.
    open: bool,
    /// Processes that wait here.
    waiting: usize,
    /// The first that ended well without having opened its port.
    absent: Option<(usize, Mode)>,
}

/// Decides what happens to a run.
pub struct Supervisor<'a> {
    plan: &'a Plan,
    grace: Duration,
    timeout: Option<(Duration, Instant)>,
    processes: Vec<Watched>,
    /// By the numbers that [`Plan::meeting`] gives.
    meetings: Vec<Meeting>,
    /// Somebody has written [`Plan::file`].
    file_written: bool,
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
        let watch =
            |&pid| Watched { pid, end: None, ended_by_run: false, excused: false, ports: [None, None] };
        Supervisor {
            plan,
            grace,
            timeout: timeout.and_then(|t| Some((t, now.checked_add(t)?))),
            processes: pids.iter().map(watch).collect(),
            meetings: vec![Meeting::default(); plan.links.len() + 1],
            file_written: false,
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

    /// Takes in how far a process is with opening its input or its output. What a process said before it ended must
    /// come before its end.
    pub fn handle_port(&mut self, now: Instant, process: usize, mode: Mode, port: Port) {
        let Some(k) = self.plan.meeting(process, mode) else { return };
        let (watched, meeting) = (&mut self.processes[process], &mut self.meetings[k]);
        let old = watched.ports[mode as usize];
        // A process may open its port more than once; one that has ended may have left descendants that do.
        if old == Some(Port::Opened) || (watched.end.is_some() && port != Port::Opened) {
            return;
        }
        watched.ports[mode as usize] = Some(port);
        if watched.end.is_none() {
            meeting.waiting += usize::from(port == Port::Opening);
            meeting.waiting -= usize::from(old == Some(Port::Opening));
        }
        meeting.open |= port == Port::Opened;
        self.clear_suspicion();
        self.suspect_absent(now);
    }

    /// Takes in that [`Plan::file`] is there and is new, whoever wrote it.
    pub fn handle_file(&mut self) {
        self.file_written = true;
    }

    /// Takes in processes that ended; all that are known to have ended by now, in one call.
    pub fn handle_ends(&mut self, now: Instant, ends: &[(usize, End)]) {
        for &(process, end) in ends {
            self.processes[process].end = Some(end);
            self.leave_meetings(process, end);
            self.excuse_writers_of(process, end);
        }
        self.clear_suspicion();
        let failed = ends.iter().copied().filter(|&(process, end)| self.is_failure(process, end));
        // Within one call the order in time is not known: a signal explains more than an exit status.
        let worst = failed.min_by_key(|(_, end)| matches!(end, End::Exit(_)));
        match (&self.phase, worst) {
            (
                Phase::Running | Phase::Suspicion { cause: Cause::Unopened { .. }, .. },
                Some((process, end @ End::Exit(_))),
            ) => self.suspect(now, Cause::Failure { process, end }),
            (Phase::Running | Phase::Suspicion { .. }, Some((process, end @ End::Signal(_)))) => {
                self.end_all(now, Cause::Failure { process, end }, SIGTERM);
            }
            _ => {}
        }
        self.suspect_absent(now);
        if self.is_finished() {
            self.suspect_unwritten(now);
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

    /// What rule 5 needs to know of an end.
    fn leave_meetings(&mut self, process: usize, end: End) {
        for mode in [Mode::Read, Mode::Write] {
            let Some(k) = self.plan.meeting(process, mode) else { continue };
            let port = self.processes[process].ports[mode as usize];
            self.meetings[k].waiting -= usize::from(port == Some(Port::Opening));
            if end == End::Exit(0) && port != Some(Port::Opened) {
                self.meetings[k].absent.get_or_insert((process, mode));
            }
        }
    }

    fn suspect(&mut self, now: Instant, cause: Cause) {
        self.phase = Phase::Suspicion { cause, until: now + WINDOW };
    }

    /// Rule 5.
    fn suspect_absent(&mut self, now: Instant) {
        let waits = |m: &&Meeting| !m.open && m.waiting > 0;
        let absent = self.meetings.iter().filter(waits).filter_map(|m| m.absent);
        let absent = { absent }.find(|&(process, _)| !self.processes[process].excused);
        if let (Phase::Running, Some((process, mode))) = (&self.phase, absent) {
            self.suspect(now, Cause::Unopened { process, mode });
        }
    }

    /// Rule 6. Units that never opened their port explain it, if there are any.
    fn suspect_unwritten(&mut self, now: Instant) {
        if self.plan.file.is_none() || self.file_written || !matches!(self.phase, Phase::Running) {
            return;
        }
        let unopened = self.meetings.last().filter(|m| !m.open).and_then(|m| m.absent);
        let cause = match unopened {
            Some((process, mode)) => Cause::Unopened { process, mode },
            None => Cause::Unwritten,
        };
        self.suspect(now, cause);
    }

    /// A writer may notice that its reader has gone, and fail, before the pump that says so has ended. And what one
    /// process did not open, a descendant of it may.
    fn clear_suspicion(&mut self) {
        let Phase::Suspicion { cause, until } = &self.phase else { return };
        let stands = match *cause {
            Cause::Failure { process, .. } => !self.processes[process].excused,
            Cause::Unopened { process, mode } => {
                let k = self.plan.meeting(process, mode);
                !self.processes[process].excused && k.is_some_and(|k| !self.meetings[k].open)
            }
            Cause::Unwritten | Cause::Signal(_) | Cause::Timeout(_) => true,
        };
        if stands {
            return;
        }
        let (until, others) = (*until, (0..self.processes.len()));
        let mut others = others.filter_map(|i| Some((i, self.processes[i].end?)));
        self.phase = match others.find(|&(i, end)| self.is_failure(i, end)) {
            Some((process, end)) => Phase::Suspicion { cause: Cause::Failure { process, end }, until },
            None => Phase::Running,
        };
    }

    fn conclude_suspicion(&mut self, now: Instant) {
        if let Phase::Suspicion { cause, .. } = &self.phase {
            let cause = cause.clone();
            self.end_all(now, cause, SIGTERM);
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
            Phase::Suspicion { cause, .. } | Phase::Ending { cause, .. } | Phase::Killing { cause } => cause,
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
            Cause::Unopened { process, mode } => Some(self.unopened_message(*process, *mode, others)),
            Cause::Unwritten => Some(self.unwritten_message()),
        };
        let status = match cause {
            Cause::Signal(signal) => 128 + *signal,
            Cause::Timeout(_) => 124,
            Cause::Unopened { .. } | Cause::Unwritten => 1,
            Cause::Failure { end: End::Exit(code), .. } => *code,
            Cause::Failure { end: End::Signal(signal), .. } => 128 + *signal,
        };
        Verdict { status: u8::try_from(status).unwrap_or(u8::MAX), message }
    }

    fn unopened_message(&self, process: usize, mode: Mode, others: usize) -> String {
        let who = self.plan.describe(process);
        let (pid, stage) = (self.processes[process].pid, self.plan.processes[process].stage);
        let (what, how) = match mode {
            Mode::Read => ("input", "reading"),
            Mode::Write => ("output", "writing"),
        };
        let ended = ended(others, "the other ");
        format!(
            "{who} (pid {pid}) ended without opening its {what}{ended}\n  \
             each unit of stage {stage} must open \"-\" for {how}; a plain Unix program is a stage without -n"
        )
    }

    fn unwritten_message(&self) -> String {
        let file = self.plan.file.as_deref().unwrap_or(Path::new("")).display();
        let stage = self.plan.processes.last().map_or(0, |p| p.stage);
        format!(
            "every process succeeded, but stage {stage} did not write {file}\n  \
             each of its units must write the same number of steps and close its port"
        )
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

        fn port(&mut self, ms: u64, process: usize, mode: Mode, port: Port) {
            let now = self.at(ms);
            self.s.handle_port(now, process, mode, port);
            assert_eq!(self.s.poll_action(), None);
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

    const BOTH: [Mode; 2] = [Mode::Read, Mode::Write];

    #[test]
    fn a_port_that_others_wait_for_must_be_opened() {
        // Who waits, with which port, and who ends without having opened which.
        for (pipeline, waits, asks, absent, lacks) in [
            ("-n 2 a | -n 2 b", 0, Mode::Write, 3, Mode::Read),
            ("-n 2 a | -n 2 b", 2, Mode::Read, 1, Mode::Write),
            ("-n 2 a | -n 2 b", 0, Mode::Write, 1, Mode::Write),
            ("a | -n 2 b", 1, Mode::Write, 2, Mode::Read),
            ("< f -n 2 a | b", 2, Mode::Read, 0, Mode::Write),
            ("-n 2 a > f", 0, Mode::Write, 1, Mode::Write),
        ] {
            let plan = plan(pipeline);
            for asks_first in [true, false] {
                let mut c = Case::new(&plan);
                if asks_first {
                    c.port(1, waits, asks, Port::Opening);
                    assert_eq!(c.ends(2, &[(absent, Exit(0))]), None);
                } else {
                    assert_eq!(c.ends(1, &[(absent, Exit(0))]), None);
                    assert_eq!(c.s.next_deadline(), Some(c.at(30_000)), "nobody waits yet");
                    c.port(2, waits, asks, Port::Opening);
                }
                assert_eq!(c.time(2 + 40), Some(Action::SignalAll(15)), "{pipeline}");
                let rest: Vec<_> = (0..plan.processes.len()).filter(|&i| i != absent).collect();
                c.ends(43, &rest.iter().map(|&i| (i, Signal(15))).collect::<Vec<_>>());
                let (status, message) = c.message();
                let what = if lacks == Mode::Read { "input" } else { "output" };
                let who = plan.describe(absent);
                let start = format!("{who} (pid {}) ended without opening its {what}; ended", 100 + absent);
                assert!(status == 1 && message.starts_with(&start), "{message}");
            }
        }
    }

    #[test]
    fn nobody_waits_where_nobody_asks_or_all_have_come() {
        let plan = plan("-n 2 a | -n 2 b");
        let all: Vec<_> = (0..4).map(|i| (i, Exit(0))).collect();
        // Programs that do not know of ports.
        let mut c = Case::new(&plan);
        assert_eq!(c.ends(1, &all[..3]), None);
        assert_eq!(c.s.next_deadline(), Some(c.at(30_000)));
        c.ends(2, &all[3..]);
        assert_eq!(c.message(), (0, String::new()));
        // One port is open, so all are, whether or not the news has come.
        let mut c = Case::new(&plan);
        (0..4).for_each(|i| c.port(1, i, BOTH[usize::from(i < 2)], Port::Opening));
        c.port(2, 0, Mode::Write, Port::Opened);
        c.ends(3, &all[1..]);
        c.ends(4, &all[..1]);
        assert_eq!(c.message(), (0, String::new()));
        // One that gave up waits no more, and one that ended neither; what opens no pipe of the run meets nobody.
        let mut c = Case::new(&plan);
        c.port(1, 0, Mode::Read, Port::Opening);
        c.port(1, 3, Mode::Write, Port::Opening);
        c.port(1, 0, Mode::Write, Port::Opening);
        c.port(1, 0, Mode::Write, Port::Failed);
        c.port(1, 1, Mode::Write, Port::Opening);
        c.ends(2, &all[1..3]);
        c.ends(3, &all[..1]);
        c.ends(3, &all[3..]);
        assert_eq!(c.message(), (0, String::new()));
    }

    #[test]
    fn real_failures_and_late_news_win_over_a_port_that_nobody_opened() {
        let plan = plan("-n 2 a | -n 2 b");
        let suspect = || {
            let mut c = Case::new(&plan);
            c.port(1, 0, Mode::Write, Port::Opening);
            assert_eq!(c.ends(2, &[(2, Exit(0))]), None);
            c
        };
        let mut c = suspect();
        c.ends(3, &[(3, Exit(7))]);
        assert_eq!(c.time(3 + 40), Some(Action::SignalAll(15)));
        c.ends(50, &[(0, Exit(1)), (1, Signal(15))]);
        assert!(c.message().0 == 7 && c.message().1.contains("unit 1 (pid 103) exited with status 7"));

        let mut c = suspect();
        assert_eq!(c.ends(3, &[(1, Signal(11))]), Some(Action::SignalAll(15)));
        c.ends(50, &[(0, Exit(1)), (3, Signal(15))]);
        assert_eq!(c.message().0, 139);

        // A descendant of the one that ended had opened in its name.
        let mut c = suspect();
        c.port(3, 0, Mode::Write, Port::Opened);
        assert_eq!(c.s.next_deadline(), Some(c.at(30_000)));
    }

    #[test]
    fn a_file_that_nobody_opens_must_come_all_the_same() {
        let plan = plan("-n 2 a > f");
        let all = [(1, Exit(0)), (0, Exit(0))];
        let mut c = Case::new(&plan);
        assert_eq!(c.ends(1, &all), None);
        let text = "stage 0 (a) unit 1 (pid 101) ended without opening its output\n";
        assert!(c.message().0 == 1 && c.message().1.starts_with(text), "{}", c.message().1);
        // A program may write the file that POLYDUCT_OUT names by itself.
        let mut c = Case::new(&plan);
        c.s.handle_file();
        c.ends(1, &all);
        assert_eq!(c.message(), (0, String::new()));
        let mut c = Case::new(&plan);
        c.ends(1, &[(1, Exit(0)), (0, Exit(2))]);
        assert_eq!(c.message().0, 2);
    }

    #[test]
    fn a_file_that_is_opened_must_be_written() {
        let plan = plan("-n 2 a > f");
        let all = [(1, Exit(0)), (0, Exit(0))];
        let opened = || {
            let mut c = Case::new(&plan);
            (0..2).for_each(|unit| c.port(1, unit, Mode::Write, Port::Opened));
            c
        };
        let mut c = opened();
        assert_eq!(c.ends(1, &all), None);
        let text = "every process succeeded, but stage 0 did not write /f\n";
        assert!(c.message().0 == 1 && c.message().1.starts_with(text), "{}", c.message().1);
        let mut c = opened();
        c.s.handle_file();
        c.ends(1, &all);
        assert_eq!(c.message(), (0, String::new()));
        // A failure that is known says more.
        let mut c = opened();
        c.ends(1, &[(1, Exit(120))]);
        c.ends(2, &[(0, Exit(0))]);
        assert_eq!(c.message().0, 120);
    }

    #[test]
    fn stages_before_a_pump_without_reader_need_not_open() {
        let plan = plan("-n 2 a | -n 1 b | head");
        let mut c = Case::new(&plan);
        c.port(1, 0, Mode::Write, Port::Opening);
        assert_eq!(c.ends(2, &[(3, Exit(READER_GONE))]), Some(Action::Terminate(vec![0, 1, 2])));
        c.ends(3, &[(2, Exit(0)), (4, Exit(0))]);
        c.ends(4, &[(0, Signal(15)), (1, Exit(0))]);
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
