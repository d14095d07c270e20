//! Remembers the epoch that was served last, beside a store's units.
//!
//! Two openings of a store with less parity than data always have a unit in common, which tells the second of
//! the first. Where there is as much parity as data, or more (mirrors), two sets of units without a common
//! one can each serve: unit 1 is away and unit 0 serves, then unit 0 is away and unit 1 would serve what it
//! knows, and give up what was acknowledged meanwhile. So such a store remembers, in a place that is no
//! unit's ([`HOME`]):
//!
//! 1. an epoch that *begins*, before any unit knows of it: the next one is higher, whichever units begin it,
//!    and names it among those that nobody is to go on from;
//! 2. an epoch that was *served*, when the superblocks that say so are durable on all who take part, and
//!    before anything is acknowledged or read in it. Units of which the newest is older than that have missed
//!    something, and do not serve.
//!
//! A cut between the two leaves units that are newer than what is remembered, which does no harm: nothing was
//! acknowledged.

use super::error::{Side, VolumeError};
use super::planted::Bug;
use super::sealed::{seal, unseal, Kind};
use super::state::{Epoch, Members, Past, Relation, Superblock, LAST, LINE, SLOT};
use super::units::{Done, File, Request, Units, HOME};
use super::Volume;
use serde::{Deserialize, Serialize};

/// The record's kind and version.
const SERVED: Kind = *b"pd-last\x02";

/// In errors.
const WHAT: &str = "which epoch is served";

/// What is remembered, in the order in which it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Served {
    /// The store's own number.
    volume: [u8; 16],
    /// Raised with each write of it.
    seq: u64,
    /// Epochs that any units began since, the newest first, up to [`LINE`]: nothing was acknowledged in them.
    begun: Vec<Epoch>,
    /// The one that was served last; 0 before the first.
    epoch: Epoch,
    /// The units that took part in it.
    members: Members,
}

/// What is known of that while a store is open.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// As it was last written; `None` where nothing could be read.
    last: Option<Served>,
    /// The epoch that there is was not written down as served yet.
    owed: bool,
    /// What was wrong with it.
    damaged: Option<&'static str>,
    /// The epoch of the units that were there, and the one that was served since and is given up.
    given_up: Option<(u64, u64)>,
}

impl<U: Units> Volume<U> {
    /// What was wrong with what the store remembers of its epochs when this was opened, in words. It is
    /// written anew.
    pub fn forgotten(&self) -> Option<&'static str> {
        self.memory.damaged
    }

    /// If something newer was [given up](Volume::open_giving_up) when this was opened: the epoch of the units
    /// that were there, and the one that was served since.
    pub fn given_up(&self) -> Option<(u64, u64)> {
        self.memory.given_up
    }

    /// Whether units that have none in common can serve.
    fn remembers(&self) -> bool {
        self.geometry.parity() >= self.geometry.data() && !self.has(Bug::NothingRemembered)
    }

    /// Reads what is remembered. What is damaged is not known, and stops nobody; but of two records one says
    /// what the other would. With `give_up` it stops nobody either that nothing can be read.
    ///
    /// # Errors
    /// [`VolumeError::Home`]: what cannot be read may be there at the next try.
    pub(super) fn recall(&mut self, give_up: bool) -> Result<(), VolumeError> {
        if !self.remembers() {
            return Ok(());
        }
        let read = Request::Read { unit: HOME, file: File::Served, at: 0, len: 2 * SLOT };
        let bytes = match self.units.run(vec![read]).pop() {
            Some(Ok(Done::Bytes(bytes))) => bytes,
            Some(Err(error)) if !give_up => {
                return Err(VolumeError::Home { what: WHAT, why: error.reason });
            }
            _ => Vec::new(),
        };
        let mut bad = 0;
        for slot in bytes.chunks(SLOT) {
            match unseal::<Served>(SERVED, slot) {
                Some((record, _)) if record.volume == self.id && record.is_possible() => {
                    if self.memory.last.as_ref().is_none_or(|last| last.seq < record.seq) {
                        self.memory.last = Some(record);
                    }
                }
                // One that was never written is all zeros.
                _ => bad += u32::from(slot.iter().any(|&byte| byte != 0)),
            }
        }
        if let (Some(last), 1..) = (&mut self.memory.last, bad) {
            // The other may have said that what this one saw begin was served, and nobody knows by whom.
            if let Some(&begun) = last.begun.first() {
                (last.epoch, last.members) = (begun, Members::default());
                last.begun.clear();
            }
        }
        self.memory.damaged = match (&self.memory.last, bad) {
            (None, _) => {
                Some("the record of the epoch served last is missing or damaged, and is written anew")
            }
            (Some(_), 1..) => {
                Some("a copy of the record of the epoch served last could not be read, and is written anew")
            }
            _ => None,
        };
        Ok(())
    }

    /// Whether the newest units that are there have missed nothing that was served, and nobody else has gone
    /// on; or that is given up.
    pub(super) fn is_newest(&mut self, newest: &Superblock, give_up: bool) -> Result<(), VolumeError> {
        let Some(last) = &self.memory.last else { return Ok(()) };
        let (found, served) = (newest.epoch, last.epoch);
        let relation = newest.relation(served);
        // A unit that comes back with one of these epochs is stale.
        let after = 1.min(self.line.len());
        let nothing = |&epoch: &Epoch| Past { epoch, generation: 0 };
        let is_new = |begun: &&Epoch| self.line.iter().all(|past| past.epoch != **begun);
        let begun: Vec<Past> = last.begun.iter().filter(is_new).map(nothing).collect();
        self.line.splice(after..after, begun);
        self.line.truncate(LINE);
        if relation == Relation::Known || relation == Relation::Unknown && found.count >= served.count {
            return Ok(());
        }
        let of = |members: Members| (0..self.geometry.units()).filter(|&unit| members.has(unit)).collect();
        if give_up {
            // So is a unit with the epoch that was served: what goes on is what is there.
            self.line.insert(after, nothing(&served));
            self.line.truncate(LINE);
            self.memory.given_up = Some((found.count, served.count));
            return Ok(());
        }
        let had_part: Vec<u32> = of(last.members);
        if found.count < served.count {
            return Err(VolumeError::Outdated { found: found.count, served: served.count, had_part });
        }
        let here = Side { epoch: found, units: self.roll.read().collect() };
        Err(VolumeError::Forked(Box::new([here, Side { epoch: served, units: had_part }])))
    }

    /// The epoch that comes next: higher than any that was begun, by whichever units.
    pub(super) fn next_epoch(&self, nonce: u64) -> Epoch {
        let known = self.memory.last.iter().flat_map(|last| last.begun.iter().chain([&last.epoch]));
        Epoch { count: known.map(|epoch| epoch.count).fold(self.counted, u64::max) + 1, nonce }
    }

    /// An epoch is about to begin.
    pub(super) fn begins(&mut self, epoch: Epoch) -> Result<(), VolumeError> {
        if !self.remembers() {
            return Ok(());
        }
        let (served, members) =
            self.memory.last.as_ref().map_or(Default::default(), |last| (last.epoch, last.members));
        let (served, members) = match self.has(Bug::RememberedFirst) {
            true => (epoch, self.team().members),
            false => (served, members),
        };
        let mut begun = self.memory.last.as_ref().map_or(Vec::new(), |last| last.begun.clone());
        begun.insert(0, epoch);
        begun.truncate(LINE);
        self.write_down(begun, served, members)
    }

    /// All who take part know of the epoch: it is written down before anybody is told of anything in it. What
    /// could not be written is tried again before the next change.
    pub(super) fn serves(&mut self) -> Result<(), VolumeError> {
        self.memory.owed = self.remembers();
        self.settle_known()
    }

    /// Nothing is read or acknowledged in an epoch that is not written down.
    pub(super) fn settle_memory(&mut self) -> Result<(), VolumeError> {
        if self.memory.owed {
            self.write_down(Vec::new(), self.epoch, self.team().members)?;
            self.memory.owed = false;
        }
        Ok(())
    }

    fn write_down(&mut self, begun: Vec<Epoch>, epoch: Epoch, members: Members) -> Result<(), VolumeError> {
        let seq = self.memory.last.as_ref().map_or(0, |last| last.seq) + 1;
        let record = Served { volume: self.id, seq, begun, epoch, members };
        let (mut bytes, at) = (seal(SERVED, &record), seq % 2 * SLOT as u64);
        // What another slot may hold is nobody's where nothing was known. With all of it there is room for
        // what is written later.
        let at = match seq {
            1 => {
                bytes.splice(0..0, std::iter::repeat_n(0, SLOT));
                bytes.resize(2 * SLOT, 0);
                0
            }
            _ => at,
        };
        let file = File::Served;
        for request in [Request::Write { unit: HOME, file, at, bytes }, Request::Sync { unit: HOME, file }] {
            let done = self.units.run(vec![request]).pop();
            if let Some(Err(error)) = done {
                return Err(VolumeError::Home { what: WHAT, why: error.reason });
            }
        }
        self.memory.last = Some(record);
        Ok(())
    }
}

impl Served {
    /// Whether such a one can have been written.
    fn is_possible(&self) -> bool {
        self.seq < LAST && self.begun.iter().chain([&self.epoch]).all(|epoch| epoch.count < LAST)
    }
}
