//! Replays the logs when a store is opened.

use super::error::VolumeError;
use super::planted::Bug;
use super::sealed::unseal;
use super::state::{Action, Epoch, Patch, Record, RECORD};
use super::sums::{stride, Sum};
use super::units::{File, Request, Units};
use super::Volume;
use std::collections::{BTreeMap, BTreeSet};

/// The most that is read of a log: far more than is ever written.
const LOG_READ: usize = 1 << 30;

/// What is to be written of a word: each place once.
type Places = BTreeMap<(u32, File, u64), Request>;

/// The log of a unit, as far as it counts.
struct Tail {
    unit: u32,
    /// Its last record, or the last that it knows to need none.
    last: u64,
    /// Its bytes.
    end: usize,
    /// What it tells.
    has: BTreeSet<u64>,
}

impl<U: Units> Volume<U> {
    /// Does again what stands in the logs, but for what one unit knows to have reached its place everywhere:
    /// of later changes to the same word some logs may be gone.
    pub(super) fn replay(&mut self, epochs: &[(Epoch, u64)]) -> Result<(), VolumeError> {
        let (mut told, mut tails): (BTreeMap<u64, Action>, _) = (BTreeMap::new(), Vec::new());
        let logs = self.read_all(File::Log, LOG_READ)?;
        for ((unit, bytes), &(epoch, trimmed)) in (0..).zip(logs).zip(epochs) {
            let bytes = bytes.unwrap_or_default();
            let mut tail = Tail { unit, last: trimmed, end: 0, has: BTreeSet::new() };
            while let Some((record, len)) =
                bytes.get(tail.end..).and_then(|rest| unseal::<Record>(RECORD, rest))
            {
                let of_this = record.volume == self.id && record.unit == unit;
                let possible = record.is_possible(self.geometry);
                if !of_this || !possible || record.epoch != epoch || record.tx <= tail.last {
                    break;
                }
                tail.last = record.tx;
                if tail.last > self.tx {
                    tail.has.insert(tail.last);
                    told.insert(tail.last, record.action);
                }
                tail.end += len.next_multiple_of(super::BLOCK);
            }
            // A unit that missed the last epoch has nothing of it, and one that joins keeps no log.
            let keeps = epoch == self.epoch && self.roll.is_read(unit);
            tails.extend(keeps.then_some(tail));
        }
        // Names are in all logs, and a block is at least in that of its own unit, which comes first.
        let has = |unit: u32, action: &Action| match action {
            Action::Names(_) => true,
            Action::Blocks(patches) => patches.first().is_some_and(|&(first, _)| first == unit),
        };
        let lacks = |tail: &&Tail| told.range(tail.last + 1..).any(|(_, action)| has(tail.unit, action));
        let behind = tails.iter().filter(lacks);
        self.unreadable.extend(
            behind.map(|tail| (tail.unit, "its log ends before those of others, which tell what it lacks")),
        );
        self.read_catalogs()?;
        if self.has(Bug::NothingReplayed) {
            return Ok(());
        }
        if !self.has(Bug::OneLogAgain) {
            self.spread(tails, &told)?;
        }
        let (named, mut words) = (self.tx, BTreeMap::new());
        for (tx, action) in told {
            self.tx = self.tx.max(tx);
            match action {
                Action::Names(changes) if tx > named => self.name(changes),
                Action::Names(_) => continue,
                Action::Blocks(patches) => self.gather(patches, &mut words),
            }
            self.replayed += 1;
        }
        // Word by word: so few are at any time between what they were and what they are to be.
        for places in words.into_values() {
            let places: Places = places;
            self.run_or_lose(places.into_values().collect())?;
        }
        // Numbers that were given out to what was not committed are used again: their files go at the end of
        // the opening.
        let highest = self.names.values().map(|entry| entry.object + 1).max().unwrap_or(0);
        self.next_object = self.next_object.max(highest);
        Ok(())
    }

    /// Sees to it that of each change of blocks that is told as many logs tell as did when it was agreed.
    /// Nobody may have been told of it, so that a cut left it in fewer. Where it has come to some of its
    /// places and not to others when the next cut comes, and the only log that has it is lost, its word is
    /// neither what it was nor what it is to be.
    ///
    /// A unit that has no room for that goes without.
    fn spread(&mut self, mut tails: Vec<Tail>, told: &BTreeMap<u64, Action>) -> Result<(), VolumeError> {
        let enough = self.geometry.parity() as usize + 1;
        let mut lacking = vec![Vec::new(); tails.len()];
        for (&tx, action) in told.iter().filter(|(_, action)| matches!(action, Action::Blocks(_))) {
            let there = tails.iter().filter(|tail| tail.has.contains(&tx)).count();
            // Numbers rise in a log.
            let lack = tails.iter_mut().zip(&mut lacking).filter(|(tail, _)| tail.last < tx);
            for (tail, bytes) in lack.take(enough.saturating_sub(there)) {
                tail.last = tx;
                bytes.extend(self.record(tail.unit, tx, action));
            }
        }
        let write = |(tail, bytes): (Tail, Vec<u8>)| {
            (!bytes.is_empty()).then_some(Request::Log { unit: tail.unit, at: tail.end as u64, bytes })
        };
        let writes = tails.into_iter().zip(lacking).filter_map(write).collect();
        self.attempt(writes, true).map(drop)
    }

    /// Adds what a change puts into the places of each word. The last counts: others may be reading, and what
    /// was overwritten must not be seen again.
    fn gather(&mut self, patches: Vec<(u32, Patch)>, words: &mut BTreeMap<(u64, u64), Places>) {
        let each = stride(self.geometry) as u64;
        let sums = patches.iter().flat_map(|(_, patch)| &patch.sums);
        let highest = sums.map(|(_, sum)| Sum::from_bytes(sum).generation).max().unwrap_or(0);
        self.written = self.written.max(highest);
        for write in patches.into_iter().flat_map(|(unit, patch)| self.places(unit, vec![patch])) {
            let Request::Write { unit, file, at, .. } = write else { continue };
            let word = match file {
                File::Data(object) => (object, at / super::BLOCK as u64),
                File::Sums(object) => (object, at / each),
                _ => continue,
            };
            words.entry(word).or_default().insert((unit, file, at), write);
        }
    }
}
