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
//! | `catalog` | the names as a whole, and what is added to that |
//! | `open`, `replay`, `served` | recovery, and epochs; which was served last, where units that have none in common can serve |
//! | `span` | runs of words: read, checked and made good at once |
//! | [`scrub`] | all words checked, in steps |
//! | `rebuild` | a unit that comes back, or a new one in its place |
//!
//! The hole in RAID-5 is that data and parity of a word cannot be changed at once. It is closed in two ways:
//!
//! 1. Whole rows go to an object that nobody reads yet ([`rows`], [`Volume::settle`]), are synced, and become
//!    visible by one record in the log of every unit ([`Volume::commit`]). Nothing is written twice.
//! 2. A block of a dataset that is in use is overwritten ([`Volume::overwrite`]) by first writing the new
//!    data and parity blocks, as they are to be, into `parity` + 1 logs. When these are synced the change is
//!    agreed; only then it goes to its place.
//!
//! At [open](Volume::open), what stands in any log is done again: each log that has a change has all of it.
//! Then a new epoch begins, on all units, before any serves. So what stood only in the log of a unit that was
//! not there can never come back. A unit that missed an epoch is stale, and is not read. With as much parity
//! as data, or more, units that have none in common could each serve: such a store also remembers which epoch
//! was served last, and units that are all older do not serve.
//!
//! No clock tells which of two epochs is newer. Each has a count, and a nonce drawn at random; and each
//! superblock names those that its epoch follows. So of a unit that was copied, and has served on its own, it
//! is known that neither follows the other: the two are not mixed.
//!
//! A unit that is to come back is *joining* until all of it is rebuilt ([`Volume::replace`],
//! [`Volume::rebuild`]): it is written to like any other, and nothing of it is read.
//!
//! What was agreed survives the loss of any `parity` units, or as many damaged logs: `parity` + 1 logs have
//! it.

mod catalog;
mod decode;
pub mod epochs;
mod error;
pub mod geometry;
mod inverse;
mod open;
pub mod parity;
#[doc(hidden)]
pub mod planted;
mod raw;
mod rebuild;
mod replay;
mod roll;
pub mod rows;
pub mod scrub;
mod sealed;
mod served;
mod span;
mod state;
pub mod sums;
pub mod units;
mod words;

pub use error::{Side, VolumeError};
pub use geometry::{Geometry, BLOCK};
pub use scrub::Scrub;
pub use span::{Cursor, Progress};
pub(crate) use state::MAX_OBJECTS;
pub use state::{Entry, Epoch};
pub use words::Repair;

use planted::Bug;
use roll::Roll;
use sealed::seal;
use served::Memory;
use state::{Action, Past, Record, RECORD, SLOT};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use sums::{ObjectId, Stamp};
use units::{Cause, Done, File, Request, UnitError, Units};

/// Log bytes of a unit after which what they say is put in its place for good, and the log begins anew.
const LOG_LIMIT: u64 = 16 << 20;
/// Log bytes of a unit, at most, where there is no room for what it takes to begin it anew.
const LOG_MOST: u64 = 8 * LOG_LIMIT;
/// Bytes of all names and of what is known of them, and of those in one commit: half of what can be read
/// again.
const NAMES_LIMIT: u64 = 128 << 20;

/// What a batch came to, and what was in its way for want of room.
type Answers = (Vec<Option<Done>>, Option<UnitError>);

/// A store, open for one owner: it serialises all changes.
#[derive(Debug)]
pub struct Volume<U> {
    units: U,
    id: [u8; 16],
    geometry: Geometry,
    roll: Roll,
    epoch: Epoch,
    /// Those that the next one follows, the newest first: all that may have been served, up to
    /// [`LINE`](state::LINE).
    line: Vec<Past>,
    /// Of these, and of more that went before, when they began and their marks, as far as anything counts
    /// that was written in them.
    history: BTreeSet<(u32, u32)>,
    /// What was drawn for the epoch that began with the opening.
    drawn: u64,
    /// The highest count of an epoch that anybody may have begun.
    counted: u64,
    generation: u32,
    /// The highest generation that any block was given in this epoch.
    written: u32,
    /// The last transaction.
    tx: u64,
    names: BTreeMap<String, Entry>,
    next_object: u64,
    /// The transaction up to which catalogs have the names, and those that have changed since.
    catalogued: u64,
    renamed: BTreeSet<String>,
    /// Files with writes that were not synced.
    dirty: BTreeSet<(u32, File)>,
    repairs: Vec<Repair>,
    /// Changes of the logs that were done again when this was opened.
    replayed: u64,
    /// What was wrong with units when this was opened, and others made up for.
    unreadable: Vec<(u32, &'static str)>,
    memory: Memory,
    /// What the system refused this process: nothing more is done, as if it ended there.
    ended: Option<UnitError>,
    /// Why those who read without the protocol could not be told which units are not to be read.
    untold: Option<String>,
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

    /// What rows that are written now have with their blocks.
    pub fn stamp(&self) -> Stamp {
        Stamp { generation: self.generation, mark: self.epoch.mark() }
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch.count
    }

    /// A unit did not do what others than this volume asked of it: it is not used any more. What was written
    /// meanwhile lacks it.
    pub fn report(&mut self, error: UnitError) {
        if self.uses(error.unit) {
            self.fail(error);
        }
    }

    /// Whether a unit is joining: it is written to, and not read.
    pub fn is_joining(&self, unit: u32) -> bool {
        self.roll.is_joining(unit)
    }

    /// Whether a unit is used, be it as one that is joining.
    pub(crate) fn uses(&self, unit: u32) -> bool {
        self.roll.is_read(unit) || self.roll.is_joining(unit)
    }

    /// Others have written rows of this object, and wait for no answer any more: with the next
    /// [commit](Volume::commit) they are made durable. Units that `failed` them are not used any more; and
    /// those that are used and came too `late` to be written to get the rows from what the others have.
    ///
    /// # Errors
    /// [`VolumeError::Full`], [`VolumeError::Refused`]: not all is written, for want of that.
    /// [`VolumeError::Damaged`]: the others have not enough for those that came late. As
    /// [`commit`](Volume::commit).
    pub fn settle(
        &mut self,
        object: u64,
        rows: Range<u64>,
        failed: impl IntoIterator<Item = UnitError>,
        late: &[u32],
    ) -> Result<(), VolumeError> {
        for error in failed {
            match error.cause {
                Cause::Full => return Err(VolumeError::Full(error)),
                Cause::Caller(_) => return Err(VolumeError::Refused(error)),
                Cause::Disk if self.has(Bug::FailureIgnored) => {}
                Cause::Disk => self.report(error),
            }
        }
        self.complete(object, rows, late)?;
        let both = [(File::Data(object), Bug::BlocksNotSettled), (File::Sums(object), Bug::SumsNotSettled)];
        for (file, bug) in both {
            if !self.has(bug) {
                let units: Vec<u32> = self.team().all().collect();
                self.dirty.extend(units.into_iter().map(|unit| (unit, file)));
            }
        }
        Ok(())
    }

    /// Codes the rows of an object, for who writes and reads them without the protocol.
    pub fn rows(&self, object: u64) -> rows::Rows {
        let mut rows = rows::Rows::new(self.geometry, ObjectId { store: self.id, object }, self.stamp());
        rows.know(self.epochs().into());
        rows.plant(self.planted)
    }

    /// The epochs that are known, for who reads without the protocol.
    pub fn epochs(&self) -> epochs::Epochs {
        epochs::Epochs::of(&self.history)
    }

    /// Units that are not used, and why. Those that are joining are among them.
    pub fn lost(&self) -> impl Iterator<Item = (u32, &str)> {
        self.roll.lost()
    }

    /// Units that are used, and what was found wrong with them when this was opened, in words: others made up
    /// for it.
    pub fn unreadable(&self) -> &[(u32, &'static str)] {
        &self.unreadable
    }

    /// How many changes stood in the logs and were done again when this was opened.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// What was found damaged and made good, since this was last asked: up to 65,536 blocks.
    pub fn take_repairs(&mut self) -> Vec<Repair> {
        std::mem::take(&mut self.repairs)
    }

    /// The units, to look at.
    pub fn units(&self) -> &U {
        &self.units
    }

    /// What does the work, to be told where a lost unit has its files from now on. Of units that are in use
    /// it must not change that.
    pub fn units_mut(&mut self) -> &mut U {
        &mut self.units
    }

    /// A number for a new object, of which nothing is there, and which nobody reads until it is
    /// [committed](Volume::commit) under a name.
    ///
    /// # Errors
    /// [`VolumeError::Limit`] after 2⁴⁸; as [`open`](Volume::open), where units are lost meanwhile.
    pub fn new_object(&mut self) -> Result<u64, VolumeError> {
        self.new_object_among(&|_| false)
    }

    /// [`new_object`](Volume::new_object) where others may be at work on objects that have no name: those
    /// that are `in_use` keep their numbers.
    ///
    /// # Errors
    /// As [`new_object`](Volume::new_object).
    pub fn new_object_among(&mut self, in_use: &dyn Fn(u64) -> bool) -> Result<u64, VolumeError> {
        while in_use(self.next_object) {
            self.next_object += 1;
        }
        let object = self.next_object;
        if object >= MAX_OBJECTS {
            let what = "objects of a store, ever";
            return Err(VolumeError::Limit { what, found: object, limit: MAX_OBJECTS });
        }
        self.next_object += 1;
        // Of one that came to no name its unit may have files: openings look at one unit after the other.
        let remove = |unit| Request::Remove { unit, object };
        self.run(self.team().all().map(remove).collect())?;
        Ok(object)
    }

    /// Makes names stand for something else from now on, all at once, or for nothing any more. What was
    /// written to their objects before is durable first. When this returns it survives any cut, and the loss
    /// of as many units as there is parity. `nonce` is a number drawn at random, for an epoch that may begin.
    ///
    /// # Errors
    /// [`VolumeError::Full`] and [`VolumeError::Limit`], for 128 MiB of names and what is known of them:
    /// nothing has changed.
    /// [`VolumeError::Damaged`]: nothing has changed, and rows that were written to an object are lost, since units were
    /// replaced and lost meanwhile. [`VolumeError::TooManyLost`]: it may or may not be there at the next
    /// opening.
    pub fn commit(&mut self, changes: Vec<(String, Option<Entry>)>, nonce: u64) -> Result<(), VolumeError> {
        self.fits_in_catalog(&changes)?;
        self.catch_up(&changes)?;
        if !self.has(Bug::DataNotSynced) && !self.has(Bug::CommitFirst) {
            self.sync()?;
        }
        self.mend(nonce)?;
        let action = Action::Names(changes);
        self.agree(&action, 0, usize::MAX, nonce)?;
        if self.has(Bug::CommitFirst) {
            self.sync()?;
        }
        if let Action::Names(changes) = action {
            self.name(changes);
        }
        self.mend_or_wait(nonce)
    }

    /// A catalog that is too long to be read again must never be written. What the changes replace still
    /// counts.
    fn fits_in_catalog(&self, changes: &[(String, Option<Entry>)]) -> Result<(), VolumeError> {
        let bytes =
            |name: &str, entry: Option<&Entry>| 64 + (name.len() + entry.map_or(0, |e| e.about.len())) as u64;
        let new: u64 = changes.iter().map(|(name, entry)| bytes(name, entry.as_ref())).sum();
        let grows = changes.iter().any(|(_, entry)| entry.is_some());
        let old = || self.names.iter().map(|(name, entry)| bytes(name, Some(entry))).sum();
        let found = new + if grows { old() } else { 0 };
        let most = self.geometry.most_blocks();
        for entry in changes.iter().filter_map(|(_, entry)| entry.as_ref()) {
            let objects = ("objects of a store, ever", entry.object, MAX_OBJECTS - 1);
            for (what, found, limit) in [objects, ("blocks of an object", entry.blocks, most)] {
                if found > limit {
                    return Err(VolumeError::Limit { what, found, limit });
                }
            }
        }
        let what = "bytes of names and what is known of them";
        match found > NAMES_LIMIT {
            true => Err(VolumeError::Limit { what, found, limit: NAMES_LIMIT }),
            false => Ok(()),
        }
    }

    fn name(&mut self, changes: Vec<(String, Option<Entry>)>) {
        for (name, entry) in changes {
            self.renamed.insert(name.clone());
            match entry {
                Some(entry) => drop(self.names.insert(name, entry)),
                None => drop(self.names.remove(&name)),
            }
        }
    }

    /// Puts a change into the logs of so many units, from unit `first` on, and waits until it is there.
    fn agree(&mut self, action: &Action, first: u32, logs: usize, nonce: u64) -> Result<(), VolumeError> {
        let n = self.geometry.units();
        let in_turn = (0..n).map(|i| (first + i) % n).filter(|&u| self.roll.is_read(u));
        let logs = if self.has(Bug::OneLog) { 1 } else { logs };
        let members: Vec<u32> = in_turn.take(logs).collect();
        self.tx += 1;
        let (mut writes, mut starts) = (Vec::new(), Vec::new());
        for &unit in &members {
            let bytes = self.record(unit, self.tx, action);
            let at = self.roll[unit].log;
            self.roll[unit].log += bytes.len() as u64;
            starts.push((unit, at));
            writes.push(match self.has(Bug::LogNotSynced) {
                true => Request::Write { unit, file: File::Log, at, bytes },
                false => Request::Log { unit, at, bytes },
            });
        }
        let (done, full) = self.attempt(writes, true)?;
        if let Some(full) = full {
            let told = starts.into_iter().zip(done);
            self.take_back(told.map(|((unit, at), done)| (unit, at, done.is_some())))?;
            // Who was lost by that may have it still: before anybody is told, an epoch begins in which that
            // does not count. A unit that has no room for that either is lost, too.
            loop {
                match self.mend(nonce) {
                    Ok(()) => return Err(VolumeError::Full(full)),
                    Err(VolumeError::Full(error)) => self.fail(UnitError { cause: Cause::Disk, ..error }),
                    Err(other) => return Err(other),
                }
            }
        }
        match members.iter().any(|&u| self.roll.is_read(u)) {
            true => Ok(()),
            false => Err(self.too_many()),
        }
    }

    /// A change as it stands in the log of a unit.
    fn record(&self, unit: u32, tx: u64, action: &Action) -> Vec<u8> {
        let record = Record { volume: self.id, unit, epoch: self.epoch, tx, action };
        let mut bytes = seal(RECORD, &record);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    /// A change for which there was no room somewhere is taken out of the logs that have it, where it is
    /// durable already. A unit that cannot do that is lost. The change's number is not used again.
    fn take_back(&mut self, starts: impl Iterator<Item = (u32, u64, bool)>) -> Result<(), VolumeError> {
        let mut writes = Vec::new();
        for (unit, at, has_it) in starts {
            self.roll[unit].log = at;
            if has_it {
                writes.push(Request::Log { unit, at, bytes: vec![0; BLOCK] });
            }
        }
        self.run_or_lose(writes)
    }

    /// Makes durable what was written.
    fn sync(&mut self) -> Result<(), VolumeError> {
        let dirty = std::mem::take(&mut self.dirty);
        let syncs = dirty.into_iter().map(|(unit, file)| Request::Sync { unit, file }).collect();
        self.run(syncs).map(drop)
    }

    /// Where units were lost in this epoch, or a log is long: all that was agreed goes to its place, and a
    /// new epoch begins.
    fn mend(&mut self, nonce: u64) -> Result<(), VolumeError> {
        self.settle_known()?;
        let (longest, is_missed) = (self.roll.longest_log(), self.roll.is_missed());
        match (longest > LOG_LIMIT || is_missed).then(|| self.begin_epoch(nonce)) {
            // The logs can wait for room. What was agreed is in them, and nobody must be told otherwise.
            Some(Err(VolumeError::Full(_))) if !is_missed && longest < LOG_MOST => Ok(()),
            Some(begun) => begun,
            None => Ok(()),
        }
    }

    /// The same after a change was agreed, of which nobody must be told that nothing has changed: what has no
    /// room for it is for the next change to begin with. Until then the logs have all that a unit lacks which
    /// was lost and comes back.
    fn mend_or_wait(&mut self, nonce: u64) -> Result<(), VolumeError> {
        match self.mend(nonce) {
            Err(VolumeError::Full(_)) => Ok(()),
            mended => mended,
        }
    }

    /// Whether a request goes to its unit: of those that are joining nothing is read.
    fn reaches(&self, request: &Request) -> bool {
        let unit = request.unit();
        self.roll.is_read(unit) || self.is_joining(unit) && !request.reads()
    }

    /// A unit that failed is not used any more, and does not join any more.
    fn fail(&mut self, error: UnitError) {
        self.roll[error.unit].fail(error.reason);
        self.tell();
    }

    /// Tells those who read without the protocol which units are not read.
    fn tell(&mut self) {
        let not_read = self.lost().fold(0, |set, (unit, _)| set | 1 << unit);
        if !self.has(Bug::Untold) {
            self.untold = self.units.tell(not_read).err();
        }
    }

    /// What has to be known before anything is acknowledged is tried again where it could not be told or
    /// written down.
    fn settle_known(&mut self) -> Result<(), VolumeError> {
        if self.untold.is_some() {
            self.tell();
        }
        if let Some(why) = self.untold.clone() {
            let what = "which units are not to be read";
            return Err(VolumeError::Home { what, why });
        }
        self.settle_memory()
    }

    /// Tells those who read without the protocol that units have their files elsewhere.
    ///
    /// # Errors
    /// [`VolumeError::Home`].
    pub(crate) fn tell_anew(&mut self) -> Result<(), VolumeError> {
        self.tell();
        self.settle_known()
    }

    /// Does a batch, without what is for lost units. Units that fail are lost from here on; their answers are
    /// `None`, and so is what cannot be read of an object. A unit that is joining does not hold up the
    /// others: if it has no room it joins no more.
    ///
    /// # Errors
    /// [`VolumeError::Full`], [`VolumeError::Refused`].
    fn run(&mut self, batch: Vec<Request>) -> Result<Vec<Option<Done>>, VolumeError> {
        let (done, full) = self.attempt(batch, true)?;
        full.map_or(Ok(done), |error| Err(VolumeError::Full(error)))
    }

    /// Does a batch; a unit that has no room for it is lost, too.
    fn run_or_lose(&mut self, batch: Vec<Request>) -> Result<(), VolumeError> {
        self.attempt(batch, false).map(drop)
    }

    /// Nothing is done any more once the system has refused this process something.
    fn goes_on(&self) -> Result<(), VolumeError> {
        self.ended.clone().map_or(Ok(()), |error| Err(VolumeError::Refused(error)))
    }

    /// Does a batch, and says whether a unit that is used had no room for what it may refuse.
    fn attempt(&mut self, batch: Vec<Request>, refusals: bool) -> Result<Answers, VolumeError> {
        self.goes_on()?;
        let refuses = |r: &Request| {
            let writes = matches!(r, Request::Write { .. } | Request::Log { .. });
            refusals && writes && self.roll.is_read(r.unit())
        };
        let of_object = |r: &Request| match r {
            Request::Read { file, .. } | Request::ReadBack { file, .. } => {
                matches!(file, File::Data(_) | File::Sums(_))
            }
            _ => false,
        };
        let may: Vec<(bool, bool)> = batch.iter().map(|r| (refuses(r), of_object(r))).collect();
        let there: Vec<bool> = batch.iter().map(|r| self.reaches(r)).collect();
        let batch = batch.into_iter().zip(&there).filter(|(_, &there)| there).map(|(r, _)| r).collect();
        let mut answers = self.units.run(batch).into_iter();
        let (mut full, mut unread): (Option<UnitError>, BTreeMap<u32, UnitError>) = Default::default();
        let done = there.into_iter().zip(may).map(|(there, (may_refuse, may_lack))| {
            match there.then(|| answers.next()).flatten()? {
                Ok(done) => Some(done),
                Err(error) if matches!(error.cause, Cause::Caller(_)) => {
                    self.ended.get_or_insert(error);
                    None
                }
                Err(error) if error.cause == Cause::Full && may_refuse => {
                    full.get_or_insert(error);
                    None
                }
                Err(_) if self.has(Bug::FailureIgnored) => Some(Done::Yes),
                Err(error) if may_lack => {
                    unread.entry(error.unit).or_insert(error);
                    None
                }
                Err(error) => {
                    self.fail(error);
                    None
                }
            }
        });
        let done = done.collect();
        unread.into_values().for_each(|error| self.doubt(error));
        self.goes_on().map(|()| (done, full))
    }

    /// A unit could not read something of an object. Where it can still say who it is, that is like rot: it
    /// is made good, and who writes a sector anew can mostly read it again. Else the unit failed.
    fn doubt(&mut self, error: UnitError) {
        let unit = error.unit;
        let read = Request::Read { unit, file: File::Superblock, at: 0, len: 2 * SLOT };
        if !self.roll.is_read(unit) {
            return;
        }
        match self.units.run(vec![read]).pop() {
            Some(Err(refused)) if matches!(refused.cause, Cause::Caller(_)) => {
                self.ended.get_or_insert(refused);
            }
            Some(Err(_)) => self.fail(error),
            _ => {}
        }
    }

    /// Whether a bug is planted: never outside tests.
    #[inline]
    fn has(&self, bug: Bug) -> bool {
        planted::has(self.planted, bug)
    }

    fn too_many(&self) -> VolumeError {
        let lost: Vec<(u32, String)> = self.lost().map(|(unit, why)| (unit, why.to_owned())).collect();
        VolumeError::TooManyLost {
            missing: lost.len() as u32,
            units: self.geometry.units(),
            parity: self.geometry.parity(),
            lost,
            joining: self.roll.joining(),
        }
    }
}
