//! Turns: one process at a time changes a store, and each knows who did so before it, and whether that one came to its end.

use polyduct_os::lock::{hold, Hold};
use std::fs::File;
use std::os::unix::fs::FileExt;

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
