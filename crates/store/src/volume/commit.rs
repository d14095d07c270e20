//! Changes are agreed: each stands in the logs of several units before it counts, and logs that are long
//! begin anew.

use super::error::VolumeError;
use super::planted::Bug;
use super::sealed::seal;
use super::state::{Action, Entry, Record, MAX_OBJECTS, RECORD};
use super::units::{Cause, File, Request, UnitError, Units};
use super::{Volume, BLOCK};

/// Log bytes of a unit after which what they say is put in its place for good, and the log begins anew.
const LOG_LIMIT: u64 = 16 << 20;
/// Log bytes of a unit, at most, where there is no room for what it takes to begin it anew.
const LOG_MOST: u64 = 8 * LOG_LIMIT;
/// Bytes of all names and of what is known of them, and of those in one commit: half of what can be read
/// again.
const NAMES_LIMIT: u64 = 128 << 20;

impl<U: Units> Volume<U> {
    /// Makes names stand for something else from now on, all at once, or for nothing any more. What was
    /// written to their objects before is durable first. When this returns it survives any cut, and the loss
    /// of as many units as there is parity. `nonce` is a number drawn at random, for an epoch that may begin.
    ///
    /// # Errors
    /// [`VolumeError::Full`] and [`VolumeError::Limit`], for 128 MiB of names and what is known of them:
    /// nothing has changed.
    /// [`VolumeError::Damaged`]: nothing has changed, and rows that were written to an object are lost, since
    /// units were replaced and lost meanwhile. [`VolumeError::TooManyLost`]: it may or may not be there at
    /// the next opening.
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

    pub(super) fn name(&mut self, changes: Vec<(String, Option<Entry>)>) {
        for (name, entry) in changes {
            self.renamed.insert(name.clone());
            match entry {
                Some(entry) => drop(self.names.insert(name, entry)),
                None => drop(self.names.remove(&name)),
            }
        }
    }

    /// Puts a change into the logs of so many units, from unit `first` on, and waits until it is there.
    pub(super) fn agree(
        &mut self,
        action: &Action,
        first: u32,
        logs: usize,
        nonce: u64,
    ) -> Result<(), VolumeError> {
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
            // A unit that was lost by that may have it still: before anybody is told, an epoch begins in
            // which that does not count. A unit that has no room for that either is lost, too.
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
    pub(super) fn record(&self, unit: u32, tx: u64, action: &Action) -> Vec<u8> {
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
    pub(super) fn sync(&mut self) -> Result<(), VolumeError> {
        let dirty = std::mem::take(&mut self.dirty);
        let syncs = dirty.into_iter().map(|(unit, file)| Request::Sync { unit, file }).collect();
        self.run(syncs).map(drop)
    }

    /// Where units were lost in this epoch, or a log is long: all that was agreed goes to its place, and a
    /// new epoch begins.
    pub(super) fn mend(&mut self, nonce: u64) -> Result<(), VolumeError> {
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
    pub(super) fn mend_or_wait(&mut self, nonce: u64) -> Result<(), VolumeError> {
        match self.mend(nonce) {
            Err(VolumeError::Full(_)) => Ok(()),
            mended => mended,
        }
    }
}
