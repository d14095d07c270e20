//! The seam between the protocol and the disks: requests, in batches.
//!
//! The protocol says what is to be done, a driver does it: on files, or on a simulated disk that forgets what
//! was not synced. What one batch asks for may be done in any order, or at once; the next batch follows when
//! all of it is done.

use serde::{Deserialize, Serialize};

/// The place of what a store keeps beside its units, named like one: of its requests only [`File::Served`] is
/// asked for.
pub const HOME: u32 = u32::MAX;

/// A file of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum File {
    /// The identity of the unit, and since when.
    Superblock,
    /// What was agreed and may not have reached its place.
    Log,
    /// The names and what they stand for, as of some moment: two, written in turn.
    Catalog(u8),
    /// The blocks of an object.
    Data(u64),
    /// Their checksums.
    Sums(u64),
    /// Which epoch was served last: of [`HOME`], which has no other file.
    Served,
}

/// What a unit is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Gives up to `len` bytes from `at` on: fewer at the end of the file, none where there is no file.
    Read {
        /// The unit.
        unit: u32,
        /// Its file.
        file: File,
        /// From where on.
        at: u64,
        /// Bytes.
        len: usize,
    },
    /// The same of what was made durable before: as the disk has it, and not the system's cache, where that
    /// can be.
    ReadBack {
        /// The unit.
        unit: u32,
        /// Its file.
        file: File,
        /// From where on.
        at: u64,
        /// Bytes.
        len: usize,
    },
    /// Writes; the file and what lies before it come to be.
    Write {
        /// The unit.
        unit: u32,
        /// Its file.
        file: File,
        /// From where on.
        at: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Writes to the log, whose blocks at `at` and after it may be any: durable when this is done.
    Log {
        /// The unit.
        unit: u32,
        /// From where on: whole blocks.
        at: u64,
        /// What: whole blocks.
        bytes: Vec<u8>,
    },
    /// All that was written to the file is durable when this is done, and so is that it is there.
    Sync {
        /// The unit.
        unit: u32,
        /// Its file.
        file: File,
    },
    /// The objects of which there are files.
    List {
        /// The unit.
        unit: u32,
    },
    /// Removes both files of an object, if they are there.
    Remove {
        /// The unit.
        unit: u32,
        /// The object.
        object: u64,
    },
}

impl Request {
    /// Whether it gives what a file has, and changes nothing.
    pub(super) fn reads(&self) -> bool {
        matches!(self, Request::Read { .. } | Request::ReadBack { .. })
    }

    /// Whose it is.
    pub fn unit(&self) -> u32 {
        match *self {
            Request::Read { unit, .. }
            | Request::ReadBack { unit, .. }
            | Request::Write { unit, .. }
            | Request::Log { unit, .. }
            | Request::Sync { unit, .. }
            | Request::List { unit }
            | Request::Remove { unit, .. } => unit,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// It is done.
    Yes,
    /// What was read.
    Bytes(Vec<u8>),
    /// The objects.
    Objects(Vec<u64>),
}

/// Why a unit did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unit {unit}: {reason}")]
pub struct UnitError {
    /// The unit.
    pub unit: u32,
    /// The system's words.
    pub reason: String,
    /// What it is for want of.
    pub cause: Cause,
}

/// What a unit did not do something for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The unit's own failing: it is not used any more. Of a sync that failed nobody knows what it left out,
    /// and to sync again would hide it. Only what cannot be read of an object is like rot.
    Disk,
    /// There was no room; what was there is as it was.
    Full,
    /// The system refused this process what it would have given another, or the same at another time:
    /// descriptors, memory, rights. The unit is as good as before; the caller goes no further, as if it ended
    /// here. The system's number.
    Caller(i32),
}

/// What does the work.
pub trait Units {
    /// Does all of a batch. The answers are in the order of the requests.
    fn run(&mut self, batch: Vec<Request>) -> Vec<Result<Done, UnitError>>;

    /// Tells those who read without the protocol which units are not to be read: bit u is unit u. They know
    /// when this returns, and before anything is acknowledged that those units lack. Where nobody reads so
    /// there is nothing to do.
    ///
    /// # Errors
    /// The system's words: nothing is acknowledged until it could be told.
    fn tell(&mut self, not_read: u128) -> Result<(), String> {
        let _ = not_read;
        Ok(())
    }
}
