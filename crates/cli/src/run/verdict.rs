//! The supervision of a run as a state machine: deaths, ports, signals and time in; signals to send and the
//! verdict out.
//!
//! When one unit dies its peers notice at once and exit with errors of their own, so the processes that end
//! within moments of each other are one failure with one cause. The rules:
//!
//! 1. The first failure in time is the named one.
//! 2. A death by a signal that the run did not send wins over an error exit up to [`WINDOW`] before it: a
//!    killed process closes its sockets, which wakes its peers, a moment before the kernel reports its death.
//! 3. Once the run has begun to end its processes, how they end says nothing any more.
//! 4. A plain stage that dies of SIGPIPE has a reader that wants no more. As in the shell, that is no
//!    failure. The same holds for the parallel stages before a pump whose reader has gone: they are ended,
//!    quietly.
//! 5. Ports open when all that [meet](Plan::meeting) have come. A process that ends well without having
//!    opened its port is a failure while somebody waits there, for nobody can come in its place; where nobody
//!    waits it is none. A death or an error exit wins over it within [`WINDOW`].
//! 6. Where one rank of MPI's has failed, its launcher ends the others and fails: how they end says nothing.
//!    A launcher that ends takes with it those ranks that have not said how they ended; where it ends well and
//!    a rank has not even started, that is a failure.
//! 7. An output file that is not there, or is the old one, when all have ended well is a failure: whoever
//!    takes the file because the run succeeded would take stale data.

mod message;

use super::names::signal_name;
use super::plan::{Plan, Role, Sink};
use super::stats::{Mode, Port};
use message::ended;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
    /// Its launcher succeeded without it.
    Unstarted {
        process: usize,
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
    /// Its reader has gone, or another rank has failed before: how it ends does not matter.
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

    /// The numbers of the processes; 0 for a rank that has not started.
    pub fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.processes.iter().map(|p| p.pid)
    }

    /// Takes in that a rank has started.
    pub fn handle_rank(&mut self, process: usize, pid: u32) {
        self.processes[process].pid = pid;
    }

    /// True when every process has ended.
    pub fn is_finished(&self) -> bool {
        self.processes.iter().all(|p| p.end.is_some())
    }

    /// Takes in how far a process is with opening its input or its output. What a process said before it
    /// ended must come before its end.
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
        let mut seen = Vec::new();
        for &(process, end) in ends {
            self.handle_end(process, end, &mut seen);
        }
        let ends = seen;
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
        self.suspect_unstarted(now, &ends);
        self.suspect_absent(now);
        if self.is_finished() {
            self.suspect_unwritten(now);
            self.conclude_suspicion(now);
        }
    }

    /// Takes in the end of a process, and of what ends with it; `seen` gets those that had not ended before.
    fn handle_end(&mut self, process: usize, end: End, seen: &mut Vec<(usize, End)>) {
        if self.processes[process].end.is_some() {
            return;
        }
        self.processes[process].end = Some(end);
        seen.push((process, end));
        self.leave_meetings(process, end);
        self.excuse_writers_of(process, end);
        self.excuse_ranks_beside(process, end);
        if self.plan.processes[process].role == Role::Launcher {
            for rank in self.ranks_of(process) {
                self.handle_end(rank, end, seen);
            }
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

    /// The ranks that this process starts.
    fn ranks_of(&self, launcher: usize) -> Vec<usize> {
        let all = self.plan.processes.iter().enumerate();
        all.filter(|(_, p)| p.launched_by == Some(launcher)).map(|(i, _)| i).collect()
    }

    /// Rule 6.
    fn excuse_ranks_beside(&mut self, process: usize, end: End) {
        let spec = &self.plan.processes[process];
        let launcher = match spec.role {
            Role::Launcher => Some(process),
            _ => spec.launched_by,
        };
        let Some(launcher) = launcher.filter(|_| self.is_failure(process, end)) else { return };
        for other in self.ranks_of(launcher).into_iter().chain([launcher]) {
            self.processes[other].excused |= self.processes[other].end.is_none();
        }
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

    /// Rule 6, its end.
    fn suspect_unstarted(&mut self, now: Instant, ends: &[(usize, End)]) {
        let missing = ends.iter().find(|&&(process, end)| {
            let watched = &self.processes[process];
            self.plan.processes[process].launched_by.is_some()
                && (watched.pid, end, watched.excused) == (0, End::Exit(0), false)
        });
        if let (Phase::Running, Some(&(process, _))) = (&self.phase, missing) {
            self.suspect(now, Cause::Unstarted { process });
        }
    }

    /// Rule 7. Units that never opened their port explain it, if there are any.
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

    /// A writer may notice that its reader has gone, and fail, before the pump that says so has ended. And
    /// what one process did not open, a descendant of it may.
    fn clear_suspicion(&mut self) {
        let Phase::Suspicion { cause, until } = &self.phase else { return };
        let stands = match *cause {
            Cause::Failure { process, .. } => !self.processes[process].excused,
            Cause::Unopened { process, mode } => {
                let k = self.plan.meeting(process, mode);
                !self.processes[process].excused && k.is_some_and(|k| !self.meetings[k].open)
            }
            Cause::Unstarted { .. } | Cause::Unwritten | Cause::Signal(_) | Cause::Timeout(_) => true,
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
        // A rank that has not started is nobody.
        let others = self.processes.iter().filter(|p| p.ended_by_run && p.pid != 0).count();
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
            Cause::Unstarted { process } => {
                let who = self.plan.describe(*process);
                Some(format!("{who} was never started: its launcher ended without it{}", ended(others, "")))
            }
            Cause::Unwritten => Some(self.unwritten_message()),
        };
        let status = match cause {
            Cause::Signal(signal) => 128 + *signal,
            Cause::Timeout(_) => 124,
            Cause::Unopened { .. } | Cause::Unstarted { .. } | Cause::Unwritten => 1,
            Cause::Failure { end: End::Exit(code), .. } => *code,
            Cause::Failure { end: End::Signal(signal), .. } => 128 + *signal,
        };
        Verdict { status: u8::try_from(status).unwrap_or(u8::MAX), message }
    }
}

#[cfg(test)]
mod tests;
