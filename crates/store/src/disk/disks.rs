//! The units of a store as directories: the driver of the protocol in [`volume`](crate::volume).
//!
//! ```text
//! UNIT/store.toml            the manifest again
//! UNIT/superblock            who the unit is, twice
//! UNIT/log                   what was agreed and may not have reached its place
//! UNIT/catalog0, catalog1    the names, in turn
//! UNIT/objects/1f.data       blocks of object 31
//! UNIT/objects/1f.sums       their checksums
//! ```
//!
//! A unit may be a chain of directories: what a store needs of itself lies in the first, and each object in
//! the one that had most room when the object was made.

mod shadow;
mod shares;
mod unit;

pub use unit::read_up_to;
pub(super) use unit::sums_of;

use super::home::StoreDir;
use super::unit_logs::{self, Record};
use crate::volume::units::{Cause, Done, File as Named, Request, UnitError, Units, HOME};
use crate::volume::BLOCK;
use polyduct_os::ring::Ring;
use polyduct_os::{clock, threads, Errno, OsError};
use rustix::fs::Advice;
use shadow::Shadow;
use std::fs::File;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;
use unit::{name, Unit};

/// What a sync takes from which threads for the others are worth their start.
const SLOW: Duration = Duration::from_micros(150);

/// Why a unit could not be opened.
#[derive(Clone, Debug)]
struct Unopened {
    reason: String,
    cause: Cause,
}

impl Unopened {
    fn of(reason: &dyn std::fmt::Display, cause: Cause) -> Unopened {
        Unopened { reason: reason.to_string(), cause }
    }

    /// As what the unit answers.
    fn error(&self, unit: u32) -> UnitError {
        UnitError { unit, reason: self.reason.clone(), cause: self.cause }
    }
}

/// The units of a store.
#[derive(Debug)]
pub struct Disks {
    units: Vec<Result<Unit, Unopened>>,
    /// The store's own directory, for who changes the store.
    home: Option<StoreDir>,
    /// Whether the last sync was.
    slow: bool,
    /// For logs that are written at once.
    ring: LogRing,
    /// Where nothing is written to the units, what is to be there.
    shadow: Option<Shadow>,
}

/// For one change a ring takes longer to make than it saves.
#[derive(Debug)]
enum LogRing {
    Unused,
    Wanted,
    Made(Box<Ring>),
    Refused,
}

impl Disks {
    /// Opens the directories of each unit. One that cannot be opened is noted, and is an error when it is
    /// asked for something.
    pub fn open(units: &[Vec<PathBuf>]) -> Disks {
        Disks::of(units, false)
    }

    /// The same, to be read only: what is written to the units is known to these alone.
    pub(super) fn to_read(units: &[Vec<PathBuf>]) -> Disks {
        let mut disks = Disks { shadow: Some(Shadow::default()), ..Disks::of(units, false) };
        disks.units.iter_mut().flatten().for_each(|of| of.read_only = true);
        disks
    }

    /// The same, for a new store: what is not there of a directory is made.
    pub fn make(units: &[Vec<PathBuf>]) -> Disks {
        Disks::of(units, true)
    }

    fn of(units: &[Vec<PathBuf>], make: bool) -> Disks {
        let units = units.iter().map(|dirs| Unit::open(dirs, make)).collect();
        Disks { units, home: None, slow: false, ring: LogRing::Unused, shadow: None }
    }

    /// The same of a store in this directory.
    pub(super) fn at(self, home: StoreDir) -> Disks {
        Disks { home: Some(home), ..self }
    }

    /// Files and directories that are open.
    pub(super) fn files(&self) -> usize {
        self.units.iter().flatten().map(Unit::files).sum()
    }

    /// Where the units lie now, for those who read without the protocol.
    pub(super) fn moved(&mut self, places: [u8; 32]) {
        self.home.iter_mut().for_each(|home| home.moved(places));
    }

    /// A lost unit has its files in these directories from now on; what is not there of them is made.
    pub fn move_to(&mut self, unit: u32, dirs: &[PathBuf]) {
        if let Some(of) = self.units.get_mut(unit as usize) {
            *of = Unit::open(dirs, true);
        }
    }

    /// A file of a unit, opened to be written, and made if that is wanted; the data of objects go past the
    /// system's cache where that can be, which the second value says. For those who write and read rows of an
    /// object themselves.
    ///
    /// # Errors
    /// The system's words.
    pub fn rows(&self, unit: u32, file: Named, make: bool) -> Result<(File, bool), UnitError> {
        match self.units.get(unit as usize) {
            Some(Ok(of)) => {
                let found = of.place(file, make, matches!(file, Named::Data(_)));
                found.map_err(|e| failed(unit, &e))?.ok_or_else(|| lacks(unit, file))
            }
            Some(Err(unopened)) => Err(unopened.error(unit)),
            None => Err(lacks(unit, file)),
        }
    }

    /// Asks for what a batch reads before the first of it is waited for: then the disks work on all of it at
    /// once.
    fn read_ahead(&mut self, batch: &[Request]) {
        // Entries are mostly in memory, and the blocks that are read first are asked for by that.
        let blocks = |r: &&Request| matches!(r, Request::Read { len: BLOCK.., .. });
        let first = batch.iter().filter(blocks).min_by_key(|r| r.unit());
        for request in
            batch.iter().filter(blocks).filter(|r| !first.is_some_and(|first| std::ptr::eq(*r, first)))
        {
            let Request::Read { unit, file, at, len } = *request else { continue };
            let Some(len) = NonZeroU64::new(len as u64) else {
                continue;
            };
            let Some(Ok(of)) = self.units.get_mut(unit as usize) else { continue };
            if let Ok(Some(file)) = of.file(unit, file, false) {
                // A hint: what it does not do, the reading does.
                let _ = rustix::fs::fadvise(file, at, Some(len), Advice::WillNeed);
            }
        }
    }

    /// Writes several logs at once; `None` where the batch is something else, or there is no ring, or no
    /// direct way to a log.
    fn write_logs(&mut self, batch: &[Request]) -> Option<Vec<Result<Done, UnitError>>> {
        if batch.len() < 2 || !batch.iter().all(|r| matches!(r, Request::Log { .. })) {
            return None;
        }
        self.ring = match std::mem::replace(&mut self.ring, LogRing::Refused) {
            LogRing::Unused => LogRing::Wanted,
            LogRing::Wanted => Ring::new(self.units.len() as u32)
                .map_or(LogRing::Refused, |ring| LogRing::Made(Box::new(ring))),
            other => other,
        };
        let LogRing::Made(ring) = &mut self.ring else { return None };
        let mut answers: Vec<_> = batch.iter().map(|r| Err(lacks(r.unit(), Named::Log))).collect();
        let mut records = Vec::new();
        for (unit, of) in (0..).zip(&mut self.units) {
            // A batch has one record for each log.
            let Some(number) = batch.iter().position(|r| r.unit() == unit) else { continue };
            let Request::Log { at, ref bytes, .. } = batch[number] else { continue };
            let end = at.saturating_add(bytes.len() as u64);
            match of.as_mut().map_err(|unopened| unopened.error(unit)).and_then(|of| of.log(unit, end)) {
                Ok(log) => records.push(Record { number, unit, log, at, bytes }),
                Err(e) => answers[number] = Err(e),
            }
        }
        if !records.iter().all(|r| r.log.is_direct()) {
            // They would be written and synced one after the other.
            return None;
        }
        let (done, took) = unit_logs::write_all(ring, records, self.slow);
        done.into_iter().for_each(|(number, answer)| answers[number] = answer);
        if ring.is_broken() {
            self.ring = LogRing::Refused;
        }
        self.slow = took > SLOW;
        Some(answers)
    }
}

impl Units for Disks {
    fn run(&mut self, batch: Vec<Request>) -> Vec<Result<Done, UnitError>> {
        if self.shadow.is_some() {
            return batch.iter().map(|request| self.in_shadow(request)).collect();
        }
        if let Some(done) = self.write_logs(&batch) {
            return done;
        }
        if batch.first().is_some_and(|first| first.unit() == HOME) {
            let home = |r: &Request| match &mut self.home {
                Some(home) => home.one(r),
                None => Err(broken(HOME, &"the store's own directory is not known")),
            };
            return batch.iter().map(home).collect();
        }
        self.read_ahead(&batch);
        let syncs = |r: &&Request| matches!(r, Request::Sync { .. } | Request::Log { .. });
        let syncs = batch.iter().filter(syncs).count() > 1;
        let mut answers: Vec<Option<Result<Done, UnitError>>> = batch.iter().map(|_| None).collect();
        let mut lists: Vec<Vec<_>> = self.units.iter().map(|_| Vec::new()).collect();
        for (request, answer) in batch.iter().zip(&mut answers) {
            if let Some(list) = lists.get_mut(request.unit() as usize) {
                list.push((request, answer));
            }
        }
        let work = |(of, list): (&mut Result<Unit, Unopened>, Vec<(&Request, &mut Option<_>)>)| {
            for (request, answer) in list {
                let unit = request.unit();
                *answer = Some(match of {
                    Ok(of) => of.one(unit, request),
                    Err(unopened) => Err(unopened.error(unit)),
                });
            }
        };
        let busy = self.units.iter_mut().zip(lists).filter(|(_, list)| !list.is_empty());
        let timed = |job| {
            let start = syncs.then(clock::now);
            work(job);
            start.is_some_and(|start| clock::now().saturating_sub(start) > SLOW)
        };
        let mut jobs = busy.collect::<Vec<_>>().into_iter();
        // A sync that is done sooner than a thread comes is best followed by the next; else all disks work at
        // once.
        let slow = syncs && (self.slow || jobs.next().is_some_and(timed));
        let others = threads::each(if slow { jobs.len() } else { 1 }, jobs, timed);
        self.slow = if syncs { others.last().copied().unwrap_or(slow) } else { self.slow };
        let none = |r: &Request| Err(broken(r.unit(), &"there is no such unit"));
        batch.iter().zip(answers).map(|(r, answer)| answer.unwrap_or_else(|| none(r))).collect()
    }

    fn tell(&mut self, not_read: u128) -> Result<(), String> {
        self.home.as_ref().map_or(Ok(()), |home| home.tell(not_read)).map_err(|e| e.to_string())
    }
}

/// A unit is of no use, and not for want of room. Of a sync that failed, whatever the reason, nobody knows
/// what is on the disk.
pub(super) fn broken(unit: u32, why: &dyn std::fmt::Display) -> UnitError {
    UnitError { unit, reason: why.to_string(), cause: Cause::Disk }
}

fn lacks(unit: u32, file: Named) -> UnitError {
    broken(unit, &format_args!("it has no file {}", name(file).1))
}

fn failed(unit: u32, e: &OsError) -> UnitError {
    failed_with(unit, e.to_string(), errno_of(e))
}

/// What the system says, and for want of what.
pub(super) fn failed_with(unit: u32, reason: String, errno: Errno) -> UnitError {
    let reason = match errno {
        Errno::MFILE | Errno::NFILE if !reason.contains("ulimit -n") => {
            reason + " (`ulimit -n` raises the limit of open files)"
        }
        _ => reason,
    };
    UnitError { unit, reason, cause: cause_of(errno) }
}

fn errno_of(e: &OsError) -> Errno {
    match e {
        OsError::OutOfDescriptors { .. } => Errno::MFILE,
        OsError::NoMemory { .. } => Errno::NOMEM,
        e => e.errno().unwrap_or(Errno::IO),
    }
}

fn cause_of(errno: Errno) -> Cause {
    match errno {
        Errno::MFILE | Errno::NFILE | Errno::ACCESS | Errno::PERM | Errno::NOMEM => {
            Cause::Caller(errno.raw_os_error())
        }
        errno if is_full(errno) => Cause::Full,
        _ => Cause::Disk,
    }
}

/// There is no room.
pub(super) fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG)
}
