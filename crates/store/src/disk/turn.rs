//! Turns: one process at a time changes a store, and each knows who did so before it, and whether that one
//! came to its end.
//!
//! The lock in the store's directory excludes those who come by it. A copy of the manifest in another
//! directory leads to the same units, past that lock: so a turn holds a [`Share`] of some units, too. Nobody
//! waits for one while it holds another, and who holds any does not wait for a directory: nobody waits for
//! each other.

use super::disks::is_full;
use polyduct_os::dir::{self, Open};
use polyduct_os::lock::{hold, is_held, Hold};
use polyduct_os::{Errno, OsError};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The file of a unit, in its first directory.
pub(super) const TURN: &str = "turn";
/// Bytes of it: held by who has the turn, and by those who wait.
const HELD: u64 = 0;
const WAITED: u64 = 1;
/// Where it has the process of the last turn, behind the number.
const OF: u64 = 16;
/// Where the file of locks has a byte that is 1 until a turn has ended, and the process that has it.
const UNFINISHED: u64 = 16;
const HOLDER: u64 = 48;

/// The time from taking the lock of byte 0 to giving it back. The file of locks begins with who had the last
/// one: a number that was drawn for it, and a byte that is 1 until it has ended. It is for those who live;
/// what is there after a cut does not matter.
pub(super) struct StoreTurn {
    byte: InUse,
    /// The holder of this one.
    who: TurnHolder,
    /// What those before left undone is done.
    pub(super) ends_well: bool,
    /// Nothing is changed in it, and there may be others like it.
    pub(super) only_reads: bool,
}

/// Somebody who has turns, one after the other: a store that a process has open. After a fork there are two.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TurnHolder {
    number: [u8; 16],
    process: u32,
}

/// The holder of the turn before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// The same.
    Same,
    Another,
    /// One that did not come to its end.
    Unfinished,
}

impl TurnHolder {
    pub(super) fn number(&self) -> [u8; 16] {
        self.number
    }
}

impl StoreTurn {
    /// `byte` is byte 0; `last` had the last turn, as far as the caller knows. Says whether that is so.
    pub(super) fn begin(byte: InUse, last: Option<TurnHolder>) -> std::io::Result<(StoreTurn, Before)> {
        let process = std::process::id();
        // A file that is new is empty, and nobody is all zeros.
        let mut there = [0; 17];
        byte.lock.read_at(&mut there, 0)?;
        let [mut number @ .., unfinished] = there;
        if let Some(who) = last.filter(|last| *last == TurnHolder { number, process } && unfinished == 0) {
            byte.lock.write_all_at(&[1], UNFINISHED)?;
            return Ok((StoreTurn { byte, who, ends_well: false, only_reads: false }, Before::Same));
        }
        polyduct_message::link::key::random(&mut number).map_err(|e| std::io::Error::other(e.to_string()))?;
        let turn = StoreTurn {
            byte,
            who: TurnHolder { number, process },
            ends_well: unfinished == 0,
            only_reads: false,
        };
        there = [1; 17];
        there[..16].copy_from_slice(&number);
        turn.byte.lock.write_all_at(&process.to_le_bytes(), HOLDER)?;
        turn.byte.lock.write_all_at(&there, 0)?;
        Ok((turn, if unfinished == 1 { Before::Unfinished } else { Before::Another }))
    }

    /// One in which nothing is changed: it leaves no trace.
    pub(super) fn to_read(byte: InUse) -> StoreTurn {
        let who = TurnHolder { number: [0; 16], process: 0 };
        StoreTurn { byte, who, ends_well: false, only_reads: true }
    }

    pub(super) fn who(&self) -> TurnHolder {
        self.who
    }

    /// Whether a byte is held by anybody, this process included.
    pub(super) fn is_held(&self, byte: u64) -> Result<bool, OsError> {
        is_held(&self.byte.lock, byte)
    }
}

impl Drop for StoreTurn {
    fn drop(&mut self) {
        // Where it cannot be said, the next one believes that this one died.
        if self.ends_well {
            let _ = self.byte.lock.write_all_at(&[0], UNFINISHED);
        }
    }
}

/// The process that has the turn, as far as this file of locks tells.
pub(super) fn holder(lock: &File) -> Option<u32> {
    let mut unfinished = [0];
    lock.read_exact_at(&mut unfinished, UNFINISHED).ok()?;
    process_at(lock, HOLDER).filter(|_| unfinished == [1])
}

fn process_at(file: &File, at: u64) -> Option<u32> {
    let mut process = [0; 4];
    file.read_exact_at(&mut process, at).ok()?;
    Some(u32::from_le_bytes(process)).filter(|&process| process != 0)
}

/// A byte that is held: of an object that is in use, its files stay, with or without a name.
#[derive(Debug)]
pub(super) struct InUse {
    pub(super) lock: Arc<File>,
    pub(super) byte: u64,
}

/// Bytes of the file of checksums of an object, beyond what a file has: held, shared, by who writes it, and
/// by every unit of a program that appends to it; and alone by unit 0 of that. So those know of each other
/// who come by other directories.
pub(super) const BEING_WRITTEN: u64 = 1 << 60;
pub(super) const ALONG: u64 = BEING_WRITTEN + 1;
pub(super) const ALONE: u64 = BEING_WRITTEN + 2;

impl InUse {
    /// Holds a byte, if that can be. Where files cannot be locked, nothing is.
    pub(super) fn hold(lock: Arc<File>, byte: u64, how: Hold) -> Result<Option<InUse>, OsError> {
        match hold(&lock, byte, how) {
            Err(e) if cannot_lock(&e) => Ok(Some(InUse { lock, byte })),
            held => Ok(held?.then_some(InUse { lock, byte })),
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // Not only closed: a process that was forked meanwhile has the same description.
        let _ = hold(&self.lock, self.byte, Hold::Not);
    }
}

/// A unit's part of a turn: a byte of its file is held, which begins with the number of who had the last turn
/// that used it.
#[derive(Debug)]
pub(super) struct Share {
    file: File,
    held: bool,
    waits: bool,
    /// With others that only read.
    shared: bool,
}

impl Share {
    /// Of the unit whose first directory this is. Nothing is held yet.
    pub fn of(dir: BorrowedFd<'_>, shared: bool) -> Result<Share, OsError> {
        let how = if shared { Open::Read } else { Open::Make };
        let (file, _) = dir::open_beneath(dir, TURN, how, false)?;
        Ok(Share { file: file.into(), held: false, waits: false, shared })
    }

    /// The process that has it, if another has.
    pub fn holder(&self) -> Option<u32> {
        is_held(&self.file, HELD).unwrap_or(false).then(|| process_at(&self.file, OF)).flatten()
    }

    /// Whether somebody else waits for it.
    pub fn is_wanted(&self) -> bool {
        is_held(&self.file, WAITED).unwrap_or(false)
    }

    /// Takes it, if nobody has it. Where files cannot be locked that is left out.
    pub fn take(&mut self) -> Result<bool, OsError> {
        let how = if self.shared { Hold::Shared } else { Hold::Alone };
        self.held = match hold(&self.file, HELD, how) {
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

    /// The one with this number has a turn. Where there was nothing and is no room, nobody finds itself
    /// there.
    pub fn mark(&self, number: [u8; 16]) -> std::io::Result<()> {
        let done = self.file.write_all_at(&number, 0);
        // For people: it may be missing.
        let _ = self.file.write_all_at(&std::process::id().to_le_bytes(), OF);
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
