//! Turns: one process at a time changes a store, and each knows who did so before it, and whether that one came to its end.
//!
//! The lock in the store's directory excludes those who come by it. A copy of the manifest in another directory leads to the same
//! units, past that lock: so a turn holds a [`Share`] of some units, too. Nobody waits for one while it holds another, and who holds
//! any does not wait for a directory: nobody waits for each other.

use super::disks::is_full;
use polyduct_os::dir::{self, Open};
use polyduct_os::lock::{hold, is_held, Hold};
use polyduct_os::{Errno, OsError};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

/// The file of a unit, in its first directory.
pub(super) const TURN: &str = "turn";
/// Bytes of it: held by who has the turn, and by those who wait.
const HELD: u64 = 0;
const WAITED: u64 = 1;

/// The time from taking the lock of byte 0 to giving it back. The file of locks begins with who had the last one: a number that
/// was drawn for it, and a byte that is 1 until it has ended. It is for those who live; what is there after a cut does not
/// matter.
pub(super) struct Turn {
    byte: InUse,
    /// Who has this one.
    who: Who,
    /// What those before left undone is done.
    pub(super) ends_well: bool,
}

/// Somebody who has turns, one after the other: a store that a process has open. After a fork there are two.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Who {
    number: [u8; 16],
    process: u32,
}

/// Who had the turn before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// The same.
    Same,
    Another,
    /// One that did not come to its end.
    Unfinished,
}

impl Who {
    pub(super) fn number(&self) -> [u8; 16] {
        self.number
    }
}

impl Turn {
    /// `byte` is byte 0; `last` had the last turn, as far as the caller knows. Says whether that is so.
    pub(super) fn begin(byte: InUse, last: Option<Who>) -> std::io::Result<(Turn, Before)> {
        let process = std::process::id();
        // A file that is new is empty, and nobody is all zeros.
        let mut there = [0; 17];
        byte.lock.read_at(&mut there, 0)?;
        let [mut number @ .., unfinished] = there;
        if let Some(who) = last.filter(|last| *last == Who { number, process } && unfinished == 0) {
            byte.lock.write_all_at(&[1], 16)?;
            return Ok((Turn { byte, who, ends_well: false }, Before::Same));
        }
        polyduct_message::link::key::random(&mut number).map_err(|e| std::io::Error::other(e.to_string()))?;
        let turn = Turn { byte, who: Who { number, process }, ends_well: unfinished == 0 };
        there = [1; 17];
        there[..16].copy_from_slice(&number);
        turn.byte.lock.write_all_at(&there, 0)?;
        Ok((turn, if unfinished == 1 { Before::Unfinished } else { Before::Another }))
    }

    pub(super) fn who(&self) -> Who {
        self.who
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Where it cannot be said, the next one believes that this one died.
        if self.ends_well {
            let _ = self.byte.lock.write_all_at(&[0], 16);
        }
    }
}

/// A byte that is held: of an object that is in use, its files stay, with or without a name.
#[derive(Debug)]
pub(super) struct InUse {
    pub(super) lock: File,
    pub(super) byte: u64,
}

impl Drop for InUse {
    fn drop(&mut self) {
        // Not only closed: a process that was forked meanwhile has the same description.
        let _ = hold(&self.lock, self.byte, Hold::Not);
    }
}

/// A unit's part of a turn: a byte of its file is held, which begins with the number of who had the last turn that used it.
#[derive(Debug)]
pub(super) struct Share {
    file: File,
    held: bool,
    waits: bool,
}

impl Share {
    /// Of the unit whose first directory this is. Nothing is held yet.
    pub fn of(dir: BorrowedFd<'_>) -> Result<Share, OsError> {
        let (file, _) = dir::open_beneath(dir, TURN, Open::Make, false)?;
        Ok(Share { file: file.into(), held: false, waits: false })
    }

    /// Whether somebody else waits for it.
    pub fn is_wanted(&self) -> bool {
        is_held(&self.file, WAITED).unwrap_or(false)
    }

    /// Takes it, if nobody has it. Where files cannot be locked that is left out.
    pub fn take(&mut self) -> Result<bool, OsError> {
        self.held = match hold(&self.file, HELD, Hold::Alone) {
            Err(e) if cannot_lock(&e) => true,
            other => other?,
        };
        Ok(self.held)
    }

    /// Lets those know who have it that somebody waits, or that this one does not any more.
    pub fn wait(&mut self, waits: bool) {
        if self.waits != waits {
            let how = if waits { Hold::Shared } else { Hold::Not };
            self.waits = hold(&self.file, WAITED, how).is_ok() && waits;
        }
    }

    /// Is held no more.
    pub fn let_go(&mut self) {
        if std::mem::take(&mut self.held) {
            // Not only closed: a process that was forked meanwhile has the same description.
            let _ = hold(&self.file, HELD, Hold::Not);
        }
    }

    /// Whether the one with this number had the last turn.
    pub fn is_of(&self, number: [u8; 16]) -> bool {
        let mut there = [0; 16];
        self.file.read_exact_at(&mut there, 0).is_ok() && there == number
    }

    /// The one with this number has a turn. Where there was nothing and is no room, nobody finds itself there.
    pub fn mark(&self, number: [u8; 16]) -> std::io::Result<()> {
        let done = self.file.write_all_at(&number, 0);
        let nobody = || self.file.metadata().is_ok_and(|of| of.len() < number.len() as u64);
        match done {
            Err(e) if is_full(super::manifest::errno(&e)) && nobody() => Ok(()),
            done => done,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.wait(false);
        self.let_go();
    }
}

fn cannot_lock(e: &OsError) -> bool {
    matches!(e.errno(), Some(Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOLCK))
}
