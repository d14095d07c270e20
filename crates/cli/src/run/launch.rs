//! The two helpers between the run and its processes, both hidden subcommands of this same binary.
//!
//! `launch` becomes the program itself: it asks the kernel to kill it when the run dies, and then executes
//! the command. `keeper` leads the process group of a run and outlives it: should the run be killed in a way
//! that it cannot notice, the keeper sees its pipe close and kills the group, descendants of any depth
//! included unless they have left it. Those that have are the run's own business: see
//! [`strays`](super::strays).

use crate::open_files::set_open_files;
use clap::Args;
use rustix::process::{Pid, Signal};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{atomic::AtomicBool, Arc};

/// Arguments of `polyduct launch`.
#[derive(Args)]
pub struct LaunchArgs {
    /// The process that must be alive and our parent.
    #[arg(long)]
    parent: u32,
    /// Limit of open files that the program shall have.
    #[arg(long)]
    open_files: Option<u64>,
    #[arg(last = true, required = true)]
    command: Vec<std::ffi::OsString>,
}

/// Executes the command; returns only if that failed.
pub fn launch(args: &LaunchArgs) -> u8 {
    let own = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let parent = rustix::process::getppid().map(|p| p.as_raw_nonzero().get().unsigned_abs());
    if own.is_err() || parent != Some(args.parent) {
        // The run died before the line above took effect.
        return 1;
    }
    if let Some(soft) = args.open_files {
        set_open_files(soft);
    }
    let error = Command::new(&args.command[0]).args(&args.command[1..]).exec();
    let not_found = error.kind() == io::ErrorKind::NotFound;
    let hint = if not_found { " (or the interpreter that its first line names)" } else { "" };
    crate::text::say!(
        "polyduct: cannot start {}: {error}{hint}",
        std::path::Path::new(&args.command[0]).display()
    );
    if not_found {
        127
    } else {
        126
    }
}

/// Body of `polyduct keeper`: waits for the end of its standard input, then kills its process group.
pub fn keeper() -> u8 {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        // A handler that only notes: what ends the group must not end its keeper.
        if signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).is_err() {
            return 1;
        }
    }
    let ready = io::stdout().write_all(b"k").and_then(|()| io::stdout().flush());
    let end = io::stdin().read_to_end(&mut Vec::new());
    if ready.is_ok() && end.is_ok() {
        let _ = rustix::process::kill_current_process_group(Signal::KILL);
    }
    1
}

/// The process group of a run, led by its keeper. Dropping it kills every process in it.
pub struct Group {
    keeper: Child,
    /// Closes when this process ends, however it ends.
    _alive: Option<ChildStdin>,
}

impl Group {
    /// Starts the keeper, and with it an empty group.
    pub fn start() -> io::Result<Group> {
        let mut keeper = Command::new(std::env::current_exe()?)
            .arg("keeper")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let alive = keeper.stdin.take();
        let ready = keeper.stdout.take();
        let group = Group { keeper, _alive: alive };
        if let Some(mut ready) = ready {
            ready.read_exact(&mut [0])?;
        }
        Ok(group)
    }

    /// The number of the group. It is this run's as long as the group lives: its leader is not reaped before.
    pub fn id(&self) -> Pid {
        Pid::from_child(&self.keeper)
    }

    /// Sends a signal to every process in the group.
    pub fn signal(&self, signal: Signal) {
        // The keeper is in the group until it is reaped, so this cannot hit others; a failure would mean
        // that nobody is left.
        let _ = rustix::process::kill_process_group(self.id(), signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.keeper.wait();
    }
}
