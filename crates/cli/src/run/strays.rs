//! Ends the strays of a run: processes that its programs started and let go, orphans and daemons among them.
//! Whatever group or session they went to, they become children of the run, which ends them when it ends.

use polyduct::host::process::{self, Kid, PidFd, ProcessId, Signal};
use polyduct::host::OsError;
use std::time::{Duration, Instant};

/// How long the kernel may take to end what is killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// The orphans of a run. Dropping it kills them, and their descendants; by then nothing else may be left of
/// the run.
pub struct Strays {
    /// Children that are none of the run: a shell that becomes the run has some, in `polyduct run ... > >(tee
    /// log)`.
    spared: Vec<ProcessId>,
    /// The process group of the run itself. The programs have another, so who is in it does not come from
    /// them.
    own_group: u32,
    /// Those that got a signal to end.
    told: Vec<ProcessId>,
}

impl Strays {
    /// Begins to adopt; to be called before the first process of the run starts.
    pub fn adopt() -> Result<Strays, OsError> {
        let spared = process::children()?.iter().map(|kid| kid.id).collect();
        process::adopt_orphans()?;
        let own_group = rustix::process::getpgrp().as_raw_nonzero().get().unsigned_abs();
        Ok(Strays { spared, own_group, told: Vec::new() })
    }

    /// Reaps those that have ended. `waited_for` are the children that somebody waits for.
    pub fn reap(&self, waited_for: &[u32]) {
        // The kernel names the same one until it is reaped: behind one that is waited for, the others wait
        // too.
        while let Some(pid) = process::exited_child().filter(|pid| !waited_for.contains(pid)) {
            process::reap(pid);
        }
    }

    /// Sends a signal to each that did not get one before, SIGKILL to all. Returns whether any is left.
    pub fn signal(&mut self, signal: Signal, waited_for: &[u32]) -> bool {
        let mut strays = self.list().unwrap_or_default();
        strays.retain(|kid| !waited_for.contains(&kid.id.pid));
        for &Kid { id, .. } in &strays {
            if signal == Signal::KILL || !self.told.contains(&id) {
                self.told.push(id);
                // One that is stopped notices nothing before it goes on. Failure is for the end to tell.
                let _ = send(id.pid, signal).and_then(|()| send(id.pid, Signal::CONT));
            }
        }
        !strays.is_empty()
    }

    fn list(&self) -> Result<Vec<Kid>, OsError> {
        let mut kids = process::children()?;
        kids.retain(|kid| kid.group != self.own_group && !self.spared.contains(&kid.id));
        Ok(kids)
    }

    /// Kills all. The death of one may bring its children here, so it looks again until there are none. Gives
    /// those that live on.
    fn end(&mut self) -> Result<Vec<u32>, OsError> {
        let until = Instant::now() + PATIENCE;
        let mut out_of_reach = Vec::new();
        loop {
            self.reap(&[]);
            // The usual case needs no look at all processes.
            if !process::has_children() {
                return Ok(out_of_reach);
            }
            let mut strays = self.list()?;
            strays.retain(|kid| !out_of_reach.contains(&kid.id.pid));
            if strays.is_empty() {
                return Ok(out_of_reach);
            }
            let mut dying = Vec::new();
            for Kid { id, .. } in strays {
                match send(id.pid, Signal::KILL) {
                    Ok(()) => dying.push(PidFd::open(id.pid)?),
                    // It has become another user's.
                    Err(_) => out_of_reach.push(id.pid),
                }
            }
            for process in dying {
                let left = until.saturating_duration_since(Instant::now());
                if !process.exited_within(left)? {
                    out_of_reach.push(process.pid());
                }
            }
            if Instant::now() >= until {
                return Ok(out_of_reach);
            }
        }
    }
}

impl Drop for Strays {
    fn drop(&mut self) {
        match self.end() {
            Ok(living) => living.iter().for_each(|pid| {
                crate::text::say!("polyduct: process {pid}, which the run left, cannot be ended")
            }),
            Err(error) => crate::text::say!("polyduct: cannot end what the run left: {error}"),
        }
    }
}

/// To a child only: its number is its own until it is reaped, which is done here.
fn send(pid: u32, signal: Signal) -> Result<(), OsError> {
    match PidFd::open(pid).and_then(|child| child.send_signal(signal)) {
        Err(OsError::PeerGone { .. }) => Ok(()),
        other => other,
    }
}
