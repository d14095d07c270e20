//! A store over many units: striping, parity, commit and recovery. No I/O: see [`units`].
//!
//! | module | idea |
//! |---|---|
//! | [`geometry`] | which unit holds which block |
//! | [`parity`], `inverse` | what is computed from a word's data, and back |
//! | [`sums`] | checksums, apart from the blocks |
//! | [`units`], `batch` | the seam: requests in batches; what the answers of units mean |
//! | [`rows`] | whole rows, encoded and decoded by whoever writes and reads them |
//! | `state`, `sealed`, `raw` | superblocks, log records, catalogs |
//! | `commit` | a change is agreed: in several logs before it counts |
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

mod batch;
mod catalog;
mod commit;
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
use served::Memory;
use state::Past;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use sums::{ObjectId, Stamp};
use units::{Cause, File, Request, UnitError, Units};

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
