//! The logs of units, as they are written: past the system's cache where that can be, so that a sync has
//! nothing to look for, and several at once.

use super::disks::{broken, failed_with};
use super::manifest::errno;
use crate::volume::units::{Done, UnitError};
use polyduct_os::aligned::{Aligned, ALIGN};
use polyduct_os::ring::{Direction, Ring};
use polyduct_os::{clock, threads, Errno};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a new log.
const ROOM: u64 = 1 << 20;
/// Bytes that a log grows by at once, at most.
const STEP: u64 = 16 << 20;
/// Bytes of a record whose memory is kept for the next.
const SHORT: usize = 1 << 20;

/// A log that is written to.
#[derive(Debug)]
pub(super) struct Log {
    file: Arc<File>,
    direct: bool,
    /// Up to where it is known to have room.
    room: u64,
    /// What is written.
    bytes: Aligned,
}

impl Log {
    /// One that was opened past the system's cache, or not.
    pub(super) fn new(file: File, direct: bool) -> Log {
        Log { file: Arc::new(file), direct, room: 0, bytes: Aligned::default() }
    }

    /// Whether it is written past the system's cache.
    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Makes it longer before it is written to up to `end`, to twice its length or by [`STEP`]: where there
    /// are bytes already, a sync has nothing to tell of the file but these. Where there is no room for that
    /// it stays as short as it can, and the writing will say what is missing.
    pub(super) fn make_room(&mut self, end: u64) -> std::io::Result<()> {
        if end <= self.room {
            return Ok(());
        }
        // Of one that was cut off somewhere, the part that direct requests can follow.
        let before = self.file.metadata()?.len() / ALIGN as u64 * ALIGN as u64;
        self.room = before;
        if end <= before {
            return Ok(());
        }
        let mut zeros = Aligned::default();
        zeros
            .resize(ROOM as usize)
            .map_err(|_| std::io::Error::from_raw_os_error(Errno::NOMEM.raw_os_error()))?;
        let (mut len, to) = (before, end.max(before + before.clamp(ROOM, STEP)));
        while len < to {
            let some = &zeros.as_slice()[..(to - len).min(ROOM) as usize];
            if self.file.write_all_at(some, len).is_err() {
                return self.file.set_len(before);
            }
            len += some.len() as u64;
        }
        self.file.sync_all()?;
        self.room = len;
        Ok(())
    }

    /// The bytes, in memory for a direct request.
    fn take(&mut self, unit: u32, bytes: &[u8]) -> Result<Aligned, UnitError> {
        let mut memory = std::mem::take(&mut self.bytes);
        memory.resize(bytes.len()).map_err(|e| failed_with(unit, e.to_string(), Errno::NOMEM))?;
        memory.as_mut_slice().copy_from_slice(bytes);
        Ok(memory)
    }

    /// Memory for the next record, which is mostly short.
    fn keep(&mut self, memory: Aligned) {
        if memory.as_slice().len() <= SHORT {
            self.bytes = memory;
        }
    }

    /// Writes a record; it is durable when this is done.
    pub(super) fn write(&mut self, unit: u32, at: u64, bytes: &[u8]) -> Result<Done, UnitError> {
        let written = match self.direct {
            true => {
                let memory = self.take(unit, bytes)?;
                let written = self.file.write_all_at(memory.as_slice(), at);
                self.keep(memory);
                written
            }
            false => self.file.write_all_at(bytes, at),
        };
        written.map_err(|e| failed_with(unit, e.to_string(), errno(&e)))?;
        sync(unit, &self.file)
    }
}

fn sync(unit: u32, file: &File) -> Result<Done, UnitError> {
    file.sync_data().map_err(|e| broken(unit, &e))?;
    Ok(Done::Yes)
}

/// What comes for a log.
pub(super) struct Record<'a> {
    /// What the asker calls it.
    pub(super) number: usize,
    pub(super) unit: u32,
    pub(super) log: &'a mut Log,
    pub(super) at: u64,
    pub(super) bytes: &'a [u8],
}

/// What came of records.
pub(super) type Answers = Vec<(usize, Result<Done, UnitError>)>;

/// Writes records to as many logs at once, all of them direct; they are durable when this is done. Gives what
/// came of each, and how long the longest sync took. Where one is `slow`, all disks are at it at once; else
/// each follows while other writes are still on their way.
pub(super) fn write_all(ring: &mut Ring, mut records: Vec<Record<'_>>, slow: bool) -> (Answers, Duration) {
    let timed = |(number, unit, file): (usize, u32, Arc<File>)| {
        let start = clock::now();
        let done = sync(unit, &file);
        (number, done, clock::now().saturating_sub(start))
    };
    let (mut answers, mut synced, mut written) = (Vec::new(), Vec::new(), Vec::new());
    for (tag, r) in (0..).zip(&mut records) {
        match r.log.take(r.unit, r.bytes) {
            Ok(memory) => ring.ask(Direction::Write, r.log.file.clone(), memory, r.at, tag),
            Err(e) => answers.push((r.number, Err(e))),
        }
    }
    while let Some(done) = ring.next() {
        let Some(r) = records.get_mut(done.tag as usize) else { continue };
        r.log.keep(done.bytes);
        match done.moved {
            Ok(_) if slow => written.push((r.number, r.unit, r.log.file.clone())),
            Ok(_) => synced.push(timed((r.number, r.unit, r.log.file.clone()))),
            // It is not the disk that failed.
            Err(_) if ring.is_broken() => answers.push((r.number, r.log.write(r.unit, r.at, r.bytes))),
            Err(errno) => answers.push((r.number, Err(failed_with(r.unit, errno.to_string(), errno)))),
        }
    }
    synced.extend(threads::each(written.len(), written, timed));
    let longest = synced.iter().map(|&(.., took)| took).max().unwrap_or_default();
    answers.extend(synced.into_iter().map(|(number, done, _)| (number, done)));
    (answers, longest)
}
