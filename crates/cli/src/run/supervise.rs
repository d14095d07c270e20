//! Drives the supervisor: waits for deaths, signals, reports and deadlines in one poll, and does what it
//! says.

use super::plan::{in_store, Plan};
use super::start::{Running, Started};
use super::stats::{Collector, RankState};
use super::verdict::{Action, End, Supervisor};
use crate::signals::is_ignored;
use polyduct::store::disk::{split, Store};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{getpgid, pidfd_send_signal, Pid, Signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::time::Instant;

/// The signals that this process got, as readable streams.
pub struct Signals {
    streams: Vec<(i32, UnixStream)>,
}

impl Signals {
    /// Begins to catch the signals that end a run, except those that whoever started us wants ignored
    /// (nohup), and the one that tells of the deaths of orphans.
    pub fn catch() -> io::Result<Signals> {
        let mut streams = Vec::new();
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCHLD] {
            // Where the deaths of children are ignored, nobody can wait for them.
            if signal != SIGCHLD && is_ignored(signal) {
                continue;
            }
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, writer)?;
            streams.push((signal, reader));
        }
        Ok(Signals { streams })
    }

    fn take(&mut self) -> Vec<i32> {
        let mut taken = Vec::new();
        for (signal, stream) in &mut self.streams {
            // Signals of one kind that come together count once, as they do in the kernel.
            if stream.read(&mut [0; 64]).is_ok_and(|n| n > 0) {
                taken.push(*signal);
            }
        }
        taken
    }
}

/// The file or dataset that a run is to write, as it was before.
pub struct OutputFile {
    before: Option<Stamp>,
}

/// What is another one after every write.
#[derive(PartialEq)]
enum Stamp {
    /// Device, inode, size and time of the last change, in seconds and nanoseconds.
    File(u64, u64, u64, i64, i64),
    /// The object, which is a new one for each dataset that is written anew, and how many steps it has.
    Dataset(u64, u64),
}

impl OutputFile {
    /// To be called before the first process starts.
    pub fn before(plan: &Plan) -> OutputFile {
        OutputFile { before: Self::stamp(plan) }
    }

    fn stamp(plan: &Plan) -> Option<Stamp> {
        let file = plan.file.as_ref()?;
        if let Some(path) = in_store(file) {
            let (store, name) = split(path).ok()?;
            let (entry, meta) = Store::open(&store).ok()?.own_to_read().ok()?.find(&name).ok()?;
            return Some(Stamp::Dataset(entry.object, meta.steps));
        }
        let m = file.metadata().ok()?;
        Some(Stamp::File(m.dev(), m.ino(), m.size(), m.ctime(), m.ctime_nsec()))
    }

    fn is_written(&self, plan: &Plan) -> bool {
        let now = Self::stamp(plan);
        now.is_some() && now != self.before
    }
}

/// Watches until every process has ended.
pub fn supervise(
    plan: &Plan,
    started: &mut Started,
    signals: &mut Signals,
    supervisor: &mut Supervisor,
    collector: &mut Collector,
    file: &OutputFile,
) -> io::Result<()> {
    // Those that are this process's own: what becomes of ranks, they tell.
    let mut alive: Vec<usize> =
        (0..plan.processes.len()).filter(|&i| started.children[i].is_some()).collect();
    let processes = plan.by_name();
    let mut told = None;
    loop {
        while let Some(action) = supervisor.poll_action() {
            carry_out(&action, started, &alive);
            if let Action::SignalAll(signal) = action {
                told = Signal::from_named_raw(signal);
            }
        }
        if supervisor.is_finished() {
            break;
        }
        wait(started, signals, &alive, supervisor.next_deadline())?;
        let mut ends = Vec::new();
        for &i in &alive {
            let Some(running) = &mut started.children[i] else { continue };
            if let Some(status) = running.child.try_wait()? {
                let end = match status.code() {
                    Some(code) => End::Exit(code),
                    None => End::Signal(status.signal().unwrap_or(0)),
                };
                ends.push((i, end));
            }
        }
        alive.retain(|i| ends.iter().all(|(ended, _)| ended != i));
        started.strays.reap(&started.waited_for(&alive));
        let now = Instant::now();
        // After the ends were seen, so that nothing that a process said before its end is missed, and before
        // they are judged.
        collector.read_from(&started.reports);
        for notice in collector.take_notices() {
            if let Some(&process) = processes.get(&(notice.program.as_str(), notice.unit)) {
                supervisor.handle_port(now, process, notice.mode, notice.port);
            }
        }
        // Before the end of the launcher, which comes of theirs.
        let mut ranks = Vec::new();
        for notice in collector.take_ranks() {
            let process = processes.get(&(notice.program.as_str(), notice.unit)).copied();
            let Some(process) = process.filter(|&i| plan.processes[i].launched_by.is_some()) else {
                continue;
            };
            match notice.rank {
                RankState::Started(pid) => supervisor.handle_rank(process, pid),
                RankState::Ended(end) => ranks.push((process, end)),
            }
        }
        ends.splice(0..0, ranks);
        if alive.is_empty() && file.is_written(plan) {
            supervisor.handle_file();
        }
        if !ends.is_empty() {
            supervisor.handle_ends(now, &ends);
        }
        for signal in signals.take() {
            match signal {
                SIGCHLD => {}
                SIGTSTP => pause(started),
                signal => supervisor.handle_signal(now, signal),
            }
        }
        supervisor.handle_time(now);
    }
    // What the stages left running in their group has nobody to work for.
    started.group.signal(Signal::KILL);
    if let (Some(signal), Some(kill_at)) = (told, supervisor.next_deadline()) {
        end_strays(started, signals, collector, signal, kill_at)?;
    }
    collector.read_from(&started.reports);
    Ok(())
}

/// Gives orphans what is left of the grace where the run was brought to its end. Where it ended by itself
/// they are killed at once, as what is left of the group is.
fn end_strays(
    started: &mut Started,
    signals: &mut Signals,
    collector: &mut Collector,
    signal: Signal,
    kill_at: Instant,
) -> io::Result<()> {
    let waited_for = started.waited_for(&[]);
    // Asked twice: no more patience.
    let asked = |signals: &mut Signals| signals.take().iter().any(|s| ![SIGCHLD, SIGTSTP].contains(s));
    while !asked(signals) && Instant::now() < kill_at {
        started.strays.reap(&waited_for);
        collector.read_from(&started.reports);
        if !started.strays.signal(signal, &waited_for) {
            break;
        }
        wait(started, signals, &[], Some(kill_at))?;
    }
    Ok(())
}

fn wait(started: &Started, signals: &Signals, alive: &[usize], deadline: Option<Instant>) -> io::Result<()> {
    let mut fds: Vec<PollFd> = signals
        .streams
        .iter()
        .map(|(_, stream)| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN))
        .collect();
    fds.push(PollFd::new(&started.reports, PollFlags::IN));
    let children = alive.iter().filter_map(|&i| started.children[i].as_ref());
    fds.extend(children.map(|running| PollFd::new(&running.pidfd, PollFlags::IN)));
    let timeout = deadline.map(|at| {
        let left = at.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs().min(i64::MAX as u64) as i64, tv_nsec: left.subsec_nanos().into() }
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn carry_out(action: &Action, started: &mut Started, alive: &[usize]) {
    match action {
        Action::SignalAll(number) => {
            let Some(signal) = Signal::from_named_raw(*number) else { return };
            started.group.signal(signal);
            for Running { child, pidfd } in alive.iter().filter_map(|&i| started.children[i].as_ref()) {
                // A program may have left the group, a login shell for instance.
                if getpgid(Some(Pid::from_child(child))) != Ok(started.group.id()) {
                    let _ = pidfd_send_signal(pidfd, signal);
                }
            }
            // One that is stopped notices nothing before it goes on.
            started.group.signal(Signal::CONT);
            let waited_for = started.waited_for(alive);
            started.strays.signal(signal, &waited_for);
        }
        Action::Terminate(processes) => {
            let chosen = processes.iter().filter(|i| alive.contains(i));
            for running in chosen.filter_map(|&i| started.children[i].as_ref()) {
                // Failure means that it has ended meanwhile.
                let _ = pidfd_send_signal(&running.pidfd, Signal::TERM);
            }
        }
    }
}

/// Ctrl-Z: the run stops as a whole, and goes on as a whole when the shell says so.
fn pause(started: &Started) {
    started.group.signal(Signal::STOP);
    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    started.group.signal(Signal::CONT);
}
