//! Starts the processes of a plan, joined by ordinary pipes where the plan says so.

use super::gateways::{self, Gateways, GATEWAY};
use super::launch::Group;
use super::plan::{Plan, Process, Role, Sink, Source, OWN_VARIABLES};
use super::strays::Strays;
use crate::mpi::Settings;
use crate::open_files::make_room;
use rustix::pipe::{pipe_with, PipeFlags};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::Builder;

/// How to start.
pub struct Manner {
    /// Lead the output of the processes through the run, to put a prefix before each line.
    pub prefix: bool,
    /// Gateways that there are for its streams.
    pub gateways: Option<Gateways>,
    /// What MPI's launchers are told, by the numbers of their processes.
    launchers: HashMap<usize, Settings>,
}

impl Manner {
    /// How to start the processes of a plan. MPI's launchers are asked what they are of.
    ///
    /// # Errors
    /// A launcher is none that is known, or its MPI cannot use polyduct.
    pub fn of(plan: &Plan, prefix: bool, gateways: Option<Gateways>) -> Result<Manner, StartError> {
        let ask = |(i, process): (usize, &Process)| {
            let settings = Settings::find(process.command[0].as_ref(), &process.env);
            let settings = settings.map_err(io::Error::other);
            Ok((i, settings.or_cannot(|| format!("start {}", plan.describe(i)))?))
        };
        let all = plan.processes.iter().enumerate().filter(|(_, process)| process.role == Role::Launcher);
        Ok(Manner { prefix, gateways, launchers: all.map(ask).collect::<Result<_, _>>()? })
    }
}

/// A run whose processes have all started.
pub struct Started {
    pub group: Group,
    /// None for ranks, which are their launcher's.
    pub children: Vec<Option<Running>>,
    pub outputs: Vec<Output>,
    /// Where the ports' reports arrive.
    pub reports: OwnedFd,
    /// The end that the processes write to, by its path. Held here, or the other would seem ready for ever
    /// once the last of them has gone.
    _report_to: OwnedFd,
    /// After the group, whose end makes orphans.
    pub strays: Strays,
}

impl Started {
    /// The numbers of the children that are waited for one by one: those `alive`, and the keeper.
    pub fn waited_for(&self, alive: &[usize]) -> Vec<u32> {
        let keeper = self.group.id().as_raw_nonzero().get().unsigned_abs();
        let children = alive.iter().filter_map(|&i| self.children[i].as_ref());
        children.map(|running| running.child.id()).chain([keeper]).collect()
    }
}

/// A child of the run.
pub struct Running {
    pub child: Child,
    pub pidfd: OwnedFd,
}

/// A stream of text from a process.
pub struct Output {
    pub process: usize,
    pub is_stderr: bool,
    pub fd: OwnedFd,
}

/// A process or a file that could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}: {source}{}", hint(source))]
pub struct StartError {
    action: String,
    source: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match rustix::io::Errno::from_io_error(error) {
        Some(rustix::io::Errno::MFILE) => " (ulimit -n raises the limit of open files)",
        Some(rustix::io::Errno::AGAIN) => " (ulimit -u raises the limit of processes)",
        _ => "",
    }
}

/// Says what could not be done, and what helps.
pub trait OrCannot<T> {
    fn or_cannot(self, action: impl FnOnce() -> String) -> Result<T, StartError>;
}

impl<T, E: Into<io::Error>> OrCannot<T> for Result<T, E> {
    fn or_cannot(self, action: impl FnOnce() -> String) -> Result<T, StartError> {
        self.map_err(|e| StartError { action: action(), source: e.into() })
    }
}

/// The job that the names of pipes belong to.
pub const JOB: &str = "POLYDUCT_JOB";

struct Pipes {
    readers: Vec<Option<OwnedFd>>,
    writers: Vec<Option<OwnedFd>>,
}

/// Starts everything. If one thing fails, what had started is killed before the error is returned.
pub fn start(plan: &Plan, manner: &Manner) -> Result<Started, StartError> {
    let soft_limit = make_room_for_files(plan, manner);
    let mut pipes = Pipes { readers: Vec::new(), writers: Vec::new() };
    for _ in 0..plan.os_pipes {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).or_cannot(|| "make a pipe".into())?;
        pipes.readers.push(Some(reader));
        pipes.writers.push(Some(writer));
    }
    let (reports, report_to) = pipe_with(PipeFlags::CLOEXEC).or_cannot(|| "make a pipe".into())?;
    let report_path = format!("/proc/{}/fd/{}", std::process::id(), report_to.as_raw_fd());
    let strays = Strays::adopt().map_err(io::Error::other).or_cannot(|| "watch for orphans".into())?;
    let group = Group::start().or_cannot(|| "start the keeper of the run".into())?;
    let mut started =
        Started { group, children: Vec::new(), outputs: Vec::new(), reports, _report_to: report_to, strays };
    let inherited = std::env::var_os(JOB);
    if let Some(all) = &manner.gateways {
        let job = inherited.as_ref().map_or(plan.run.clone().into(), |job| job.to_string_lossy());
        gateways::start(all, &started.group, &job)?;
    }
    for (i, process) in plan.processes.iter().enumerate() {
        if process.launched_by.is_some() {
            started.children.push(None);
            continue;
        }
        let mut child = command(process, manner.launchers.get(&i), &started.group, manner, soft_limit)
            .and_then(|mut command| {
                connect(&mut command, process, &mut pipes, manner)?;
                // The names of pipes are this run's, unless somebody has said whose.
                if inherited.is_none() && !sets(process, JOB) {
                    command.env(JOB, &plan.run);
                }
                if let Some(all) = manner.gateways.as_ref().filter(|_| !sets(process, GATEWAY)) {
                    command.env(GATEWAY, &all.name);
                }
                if process.role != Role::Plain {
                    command.env("POLYDUCT_REPORT", &report_path);
                }
                spawn(&mut command)
            })
            .or_cannot(|| format!("start {}", plan.describe(i)))?;
        let pidfd = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pidfd, rustix::process::PidfdFlags::empty());
        let streams = (child.stdout.take(), child.stderr.take());
        let pidfd = match pidfd.or_cannot(|| format!("watch {}", plan.describe(i))) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        started.children.push(Some(Running { child, pidfd }));
        if let Some(out) = streams.0 {
            started.outputs.push(Output { process: i, is_stderr: false, fd: out.into() });
        }
        if let Some(err) = streams.1 {
            started.outputs.push(Output { process: i, is_stderr: true, fd: err.into() });
        }
    }
    Ok(started)
}

impl Drop for Started {
    fn drop(&mut self) {
        self.group.signal(rustix::process::Signal::KILL);
        for Running { child, .. } in self.children.iter_mut().flatten() {
            // One that left the group is still ours.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether its stage says what a variable is.
fn sets(process: &Process, variable: &str) -> bool {
    process.env.iter().any(|(name, _)| name == variable)
}

fn command(
    process: &Process,
    settings: Option<&Settings>,
    group: &Group,
    manner: &Manner,
    limit: Option<u64>,
) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("launch").args(["--parent", &std::process::id().to_string()]);
    if let Some(limit) = limit {
        command.args(["--open-files", &limit.to_string()]);
    }
    command.arg("--");
    for name in OWN_VARIABLES {
        command.env_remove(name);
    }
    match settings {
        Some(settings) => {
            command.args(settings.of_a_stage(&process.command));
            settings.apply(&mut command);
        }
        None => {
            command.args(&process.command);
        }
    }
    command.envs(process.env.iter().map(|(name, value)| (name, value)));
    command.process_group(group.id().as_raw_nonzero().get());
    if manner.prefix {
        command.stderr(Stdio::piped());
    }
    Ok(command)
}

fn connect(command: &mut Command, process: &Process, pipes: &mut Pipes, manner: &Manner) -> io::Result<()> {
    let closed = || io::Error::other("an end of a pipe was given out twice");
    match &process.stdin {
        Source::Null => command.stdin(Stdio::null()),
        // The run's processes are not the terminal's foreground group: reading it themselves would stop them.
        Source::Inherit if io::stdin().is_terminal() => command.stdin(Stdio::piped()),
        Source::Inherit => command.stdin(Stdio::inherit()),
        Source::File(path) => command.stdin(File::open(path)?),
        Source::Pipe(k) => command.stdin(pipes.readers[*k].take().ok_or_else(closed)?),
    };
    match &process.stdout {
        Sink::Log if manner.prefix => command.stdout(Stdio::piped()),
        Sink::Log | Sink::Result => command.stdout(Stdio::inherit()),
        Sink::File(path) => command.stdout(File::create(path)?),
        Sink::Pipe(k) => command.stdout(pipes.writers[*k].take().ok_or_else(closed)?),
    };
    Ok(())
}

fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // Ends with the run, or when the program has read enough.
        let feed = move || io::copy(&mut io::stdin().lock(), &mut input);
        if let Err(e) = Builder::new().spawn(feed) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(e);
        }
    }
    Ok(child)
}

/// Raises this process's own limit of open files if the run needs it. Gives the limit that was, for the
/// children.
fn make_room_for_files(plan: &Plan, manner: &Manner) -> Option<u64> {
    let each = if manner.prefix { 3 } else { 1 };
    let need = (plan.processes.len() * each + plan.os_pipes * 2 + 64) as u64;
    make_room(need)
}
