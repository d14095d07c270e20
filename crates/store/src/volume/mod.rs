//! A store over many units: striping, parity, commit and recovery. No I/O: see [`units`].
//!
//! | module | idea |
//! |---|---|
//! | [`geometry`] | which unit holds which block |
//! | [`parity`], `inverse` | what is computed from a word's data, and back |
//! | [`sums`] | checksums, apart from the blocks |
//! | [`units`] | the seam: requests in batches |
//! | [`rows`] | whole rows, encoded and decoded by whoever writes and reads them |
//! | `state`, `sealed`, `raw` | superblocks, log records, catalogs |
//! | `words`, `decode` | reading, repairing and writing blocks; what a damaged word was |
//! | `open` | recovery, and epochs |
//!
//! The hole in RAID-5 is that data and parity of a word cannot be changed at once. It is closed in two ways:
//!
//! 1. Whole rows go to an object that nobody reads yet ([`Volume::write_row`]), are synced, and become visible by one record in
//!    the log of every unit ([`Volume::commit`]). Nothing is written twice.
//! 2. A block of a dataset that is in use is overwritten ([`Volume::overwrite`]) by first writing the new data and parity blocks,
//!    as they are to be, into `parity` + 1 logs. When these are synced the change is agreed; only then it goes to its place.
//!
//! At [open](Volume::open), what stands in any log is done again: each log that has a change has all of it. Then a new epoch
//! begins, on all units, before any serves. So what stood only in the log of a unit that was not there can never come back. A
//! unit that missed an epoch is stale, and is not read.
//!
//! What was agreed survives the loss of any `parity` units, or as many damaged logs: `parity` + 1 logs have it.

mod decode;
mod error;
pub mod geometry;
mod inverse;
mod open;
pub mod parity;
#[cfg(feature = "planted")]
pub mod planted;
#[cfg(not(feature = "planted"))]
mod planted;
pub mod rows;
mod raw;
mod sealed;
mod state;
pub mod sums;
pub mod units;
mod words;

pub use error::VolumeError;
pub use geometry::{Geometry, BLOCK};
pub use state::Entry;
pub use words::Repair;

use planted::Bug;
use sealed::seal;
use state::{Action, Record, RECORD};
use std::collections::{BTreeMap, BTreeSet};
use units::{Done, File, Request, UnitError, Units};

/// Log bytes of a unit after which what they say is put in its place for good, and the log begins anew.
const LOG_LIMIT: u64 = 16 << 20;
/// Objects that a store ever has.
const MAX_OBJECTS: u64 = 1 << 48;

/// A store, open for one owner: it serialises all changes.
#[derive(Debug)]
pub struct Volume<U> {
    units: U,
    id: [u8; 16],
    geometry: Geometry,
    /// Why a unit is not used, if it is not.
    lost: Vec<Option<String>>,
    /// Of each unit: the number of its last superblock, and the bytes of its log.
    seq: Vec<u64>,
    log: Vec<u64>,
    /// The slot of its next catalog.
    catalog: Vec<u8>,
    epoch: u64,
    generation: u32,
    /// The last transaction.
    tx: u64,
    names: BTreeMap<String, Entry>,
    next_object: u64,
    /// Files with writes that were not synced.
    dirty: BTreeSet<(u32, File)>,
    repairs: Vec<Repair>,
    planted: Option<Bug>,
}

impl<U: Units> Volume<U> {
    /// How the store is cut.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// What is there, by name.
    pub fn names(&self) -> &BTreeMap<String, Entry> {
        &self.names
    }

    /// What rows that are written now have as their blocks' generation.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A unit did not do what others than this volume asked of it: it is not used any more. What was written meanwhile lacks it.
    pub fn fail(&mut self, unit: u32, why: &str) {
        if let Some(lost) = self.lost.get_mut(unit as usize) {
            lost.get_or_insert_with(|| why.to_owned());
        }
    }

    /// Others have written rows of this object: with the next [commit](Volume::commit) they are made durable.
    pub fn settle(&mut self, object: u64) {
        let files =
            self.used().into_iter().flat_map(|unit| [(unit, File::Data(object)), (unit, File::Sums(object))]);
        self.dirty.extend(files);
    }

    /// Units that are not used, and why.
    pub fn lost(&self) -> impl Iterator<Item = (u32, &str)> {
        (0..).zip(&self.lost).filter_map(|(unit, why)| Some((unit, why.as_deref()?)))
    }

    /// What was found damaged and made good, since this was last asked.
    pub fn take_repairs(&mut self) -> Vec<Repair> {
        std::mem::take(&mut self.repairs)
    }

    /// The units, to look at.
    pub fn units(&self) -> &U {
        &self.units
    }

    /// A number for a new object, which nobody reads until it is [committed](Volume::commit) under a name.
    ///
    /// # Errors
    /// [`VolumeError::Limit`] after 2⁴⁸.
    pub fn new_object(&mut self) -> Result<u64, VolumeError> {
        let object = self.next_object;
        if object >= MAX_OBJECTS {
            let what = "objects of a store, ever";
            return Err(VolumeError::Limit { what, found: object, limit: MAX_OBJECTS });
        }
        self.next_object += 1;
        Ok(object)
    }

    /// Makes names stand for something else from now on, all at once, or for nothing any more. What was written to their objects
    /// before is durable first. When this returns it survives any cut, and the loss of as many units as there is parity.
    /// `now` is the time in µs, which never goes back.
    ///
    /// # Errors
    /// [`VolumeError::Full`]: nothing has changed. [`VolumeError::TooManyLost`]: it may or may not be there at the next opening.
    pub fn commit(&mut self, changes: Vec<(String, Option<Entry>)>, now: u64) -> Result<(), VolumeError> {
        if !self.has(Bug::DataNotSynced) {
            self.sync()?;
        }
        self.mend(now)?;
        let all = self.lost.len();
        self.agree(Action::Names(changes.clone()), 0, all)?;
        self.name(changes);
        self.mend(now)
    }

    fn name(&mut self, changes: Vec<(String, Option<Entry>)>) {
        for (name, entry) in changes {
            match entry {
                Some(entry) => drop(self.names.insert(name, entry)),
                None => drop(self.names.remove(&name)),
            }
        }
    }

    /// Puts a change into the logs of so many units, from unit `first` on, and waits until it is there.
    fn agree(&mut self, action: Action, first: u32, logs: usize) -> Result<(), VolumeError> {
        let (volume, epoch, n) = (self.id, self.epoch, self.geometry.units());
        let in_turn = (0..n).map(|i| (first + i) % n).filter(|&u| self.lost[u as usize].is_none());
        let logs = if self.has(Bug::OneLog) { 1 } else { logs };
        let members: Vec<u32> = in_turn.take(logs).collect();
        self.tx += 1;
        let (mut writes, mut syncs, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        for &unit in &members {
            let bytes = seal(RECORD, &Record { volume, unit, epoch, tx: self.tx, action: action.clone() });
            let at = self.log[unit as usize];
            self.log[unit as usize] += bytes.len() as u64;
            starts.push((unit, at));
            writes.push(Request::Write { unit, file: File::Log, at, bytes });
            syncs.push(Request::Sync { unit, file: File::Log });
        }
        if let Err(full) = self.run(writes) {
            return self.take_back(&starts).and(Err(full));
        }
        if !self.has(Bug::LogNotSynced) {
            self.run(syncs)?;
        }
        match members.iter().any(|&u| self.lost[u as usize].is_none()) {
            true => Ok(()),
            false => Err(self.too_many()),
        }
    }

    /// A change for which there was no room somewhere is taken out of the logs that have it.
    fn take_back(&mut self, starts: &[(u32, u64)]) -> Result<(), VolumeError> {
        self.tx -= 1;
        let (mut writes, mut syncs) = (Vec::new(), Vec::new());
        for &(unit, at) in starts {
            self.log[unit as usize] = at;
            writes.push(Request::Write { unit, file: File::Log, at, bytes: vec![0; 8] });
            syncs.push(Request::Sync { unit, file: File::Log });
        }
        // Where there is no room for that either, there is nothing to take out.
        let _ = self.run(writes);
        self.run(syncs).map(drop)
    }

    /// Makes durable what was written.
    fn sync(&mut self) -> Result<(), VolumeError> {
        let dirty = std::mem::take(&mut self.dirty);
        let syncs = dirty.into_iter().map(|(unit, file)| Request::Sync { unit, file }).collect();
        self.run(syncs).map(drop)
    }

    /// Where units were lost in this epoch, or a log is long: all that was agreed goes to its place, and a new epoch begins.
    fn mend(&mut self, now: u64) -> Result<(), VolumeError> {
        let long = self.log.iter().any(|&bytes| bytes > LOG_LIMIT);
        // Lost units keep the log that they had when that was noticed.
        let news = self.lost.iter().zip(&self.log).any(|(lost, &log)| lost.is_some() && log != open::LEFT);
        if long || news {
            self.begin_epoch(now)?;
        }
        Ok(())
    }

    /// Units that are used.
    fn used(&self) -> Vec<u32> {
        (0..self.geometry.units()).filter(|&u| self.lost[u as usize].is_none()).collect()
    }

    /// Does a batch, without what is for lost units. Units that fail are lost from here on; their answers are `None`.
    ///
    /// # Errors
    /// [`VolumeError::Full`].
    fn run(&mut self, batch: Vec<Request>) -> Result<Vec<Option<Done>>, VolumeError> {
        let asked: Vec<bool> = batch.iter().map(|r| matches!(r, Request::Write { .. })).collect();
        let there: Vec<bool> = batch.iter().map(|r| self.lost[r.unit() as usize].is_none()).collect();
        let batch = batch.into_iter().zip(&there).filter(|(_, &there)| there).map(|(r, _)| r).collect();
        let mut answers = self.units.run(batch).into_iter();
        let mut full: Option<UnitError> = None;
        let done = there.into_iter().zip(asked).map(|(there, written)| {
            match there.then(|| answers.next()).flatten()? {
                Ok(done) => Some(done),
                Err(error) if error.full && written => {
                    full.get_or_insert(error);
                    None
                }
                Err(error) => {
                    self.lost[error.unit as usize].get_or_insert(error.reason);
                    None
                }
            }
        });
        let done = done.collect();
        full.map_or(Ok(done), |error| Err(VolumeError::Full(error)))
    }

    /// Whether a bug is planted: never outside tests.
    #[inline]
    fn has(&self, bug: Bug) -> bool {
        cfg!(feature = "planted") && self.planted == Some(bug)
    }

    fn too_many(&self) -> VolumeError {
        let why: Vec<String> = self.lost().map(|(unit, why)| format!("unit {unit}: {why}")).collect();
        VolumeError::TooManyLost {
            missing: why.len() as u32,
            units: self.geometry.units(),
            parity: self.geometry.parity(),
            why: why.join("; "),
        }
    }
}
