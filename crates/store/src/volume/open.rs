//! Opening a store: who takes part, what is done again, and the epoch that begins then.

use super::error::{Side, VolumeError};
use super::geometry::Geometry;
use super::planted::{self, Bug};
use super::roll::Roll;
use super::sealed::{seal, unseal};
use super::served::Memory;
use super::state::{
    Epoch, Past, Patch, Relation, Superblock, HISTORY, LAST, LAST_GENERATION, LINE, SLOT, SUPERBLOCK,
};
use super::units::{Done, File, Request, Units};
use super::Volume;
use std::collections::{BTreeMap, BTreeSet};

impl<U: Units> Volume<U> {
    /// Makes the units of a new store, with the number `id`. `nonce` is a number drawn at random.
    ///
    /// # Errors
    /// [`VolumeError::Limit`] where a unit is one already, [`VolumeError::TooManyLost`] where any does not
    /// work, and [`VolumeError::Full`].
    pub fn create(units: U, id: [u8; 16], geometry: Geometry, nonce: u64) -> Result<Volume<U>, VolumeError> {
        let mut volume = Volume::new(units, id, geometry);
        let there = volume.read_all(File::Superblock, 2 * SLOT)?;
        if let Some(unit) = there.iter().position(|bytes| bytes.as_ref().is_some_and(|b| !b.is_empty())) {
            let what = "superblocks in a unit that is to be new";
            return Err(VolumeError::Limit { what, found: unit as u64, limit: 0 });
        }
        volume.drawn = nonce;
        volume.begin_epoch(nonce)?;
        if volume.lost().count() > 0 {
            return Err(volume.too_many());
        }
        Ok(volume)
    }

    /// Opens a store, and brings it into order if its last owner did not close it. `nonce` is a number
    /// drawn at random, which tells the epoch that begins then from others.
    ///
    /// # Errors
    /// [`VolumeError::TooManyLost`], with what is the matter with each unit; [`VolumeError::Outdated`] where
    /// other units served later; [`VolumeError::Forked`] where copies of units served apart;
    /// [`VolumeError::Home`]; [`VolumeError::Full`].
    pub fn open(units: U, id: [u8; 16], geometry: Geometry, nonce: u64) -> Result<Volume<U>, VolumeError> {
        Volume::open_with(units, id, geometry, nonce, None)
    }

    /// The same with a bug in it, which does nothing but with the feature `planted`.
    #[doc(hidden)]
    pub fn open_with(
        units: U,
        id: [u8; 16],
        geometry: Geometry,
        nonce: u64,
        bug: Option<Bug>,
    ) -> Result<Volume<U>, VolumeError> {
        geometry.check()?;
        let volume = Volume { planted: bug, ..Volume::new(units, id, geometry) };
        volume.begin(nonce, &|_| false, false)
    }

    /// [`open`](Volume::open) where others may be at work on objects that have no name yet, or none any more:
    /// those that are `in_use` stay.
    ///
    /// # Errors
    /// As [`open`](Volume::open).
    pub fn open_among(
        units: U,
        id: [u8; 16],
        geometry: Geometry,
        nonce: u64,
        in_use: &dyn Fn(u64) -> bool,
    ) -> Result<Volume<U>, VolumeError> {
        geometry.check()?;
        Volume::new(units, id, geometry).begin(nonce, in_use, false)
    }

    /// [`open_among`](Volume::open_among) of units that are there, although others served later: what was
    /// acknowledged then is given up, and those are stale from now on. Where nothing is newer it is like any
    /// opening. [`given_up`](Volume::given_up) tells.
    ///
    /// # Errors
    /// As [`open`](Volume::open), but for [`VolumeError::Outdated`].
    pub fn open_giving_up(
        units: U,
        id: [u8; 16],
        geometry: Geometry,
        nonce: u64,
        in_use: &dyn Fn(u64) -> bool,
    ) -> Result<Volume<U>, VolumeError> {
        geometry.check()?;
        Volume::new(units, id, geometry).begin(nonce, in_use, true)
    }

    fn begin(
        mut self,
        nonce: u64,
        in_use: &dyn Fn(u64) -> bool,
        give_up: bool,
    ) -> Result<Volume<U>, VolumeError> {
        self.drawn = nonce;
        self.meet(give_up)?;
        if !self.has(Bug::NoEpoch) {
            self.begin_epoch(nonce)?;
        }
        self.forget_unnamed(in_use)?;
        self.forget_of_joiners(in_use)?;
        Ok(self)
    }

    /// Puts everything in its place, so that the next opening has nothing to do. A store that is not closed
    /// loses nothing.
    ///
    /// # Errors
    /// As [`commit`](Volume::commit).
    pub fn close(mut self, nonce: u64) -> Result<U, VolumeError> {
        self.begin_epoch(nonce)?;
        Ok(self.units)
    }

    fn new(units: U, id: [u8; 16], geometry: Geometry) -> Volume<U> {
        Volume {
            units,
            id,
            geometry,
            roll: Roll::new(geometry.units()),
            epoch: Epoch::default(),
            line: Vec::new(),
            history: BTreeSet::new(),
            written: 0,
            drawn: 0,
            counted: 0,
            generation: 0,
            tx: 0,
            names: BTreeMap::new(),
            next_object: 0,
            catalogued: 0,
            renamed: BTreeSet::new(),
            dirty: BTreeSet::new(),
            repairs: Vec::new(),
            replayed: 0,
            unreadable: Vec::new(),
            memory: Memory::default(),
            ended: None,
            untold: None,
            planted: planted::of_process(),
        }
    }

    /// The beginning of a file of every unit.
    pub(super) fn read_all(&mut self, file: File, len: usize) -> Result<Vec<Option<Vec<u8>>>, VolumeError> {
        let ask = |unit| Request::Read { unit, file, at: 0, len };
        let done = self.run((0..self.geometry.units()).map(ask).collect())?;
        Ok(done.into_iter().map(|d| if let Some(Done::Bytes(b)) = d { Some(b) } else { None }).collect())
    }

    pub(super) fn lose(&mut self, unit: u32, why: impl Into<String>) {
        self.roll[unit].lose(why.into());
    }

    /// Reads the superblocks: who belongs to this store, is who it is said to be, and has missed nothing.
    fn meet(&mut self, give_up: bool) -> Result<(), VolumeError> {
        self.recall(give_up)?;
        let mut found: Vec<Option<Superblock>> = Vec::new();
        for (unit, bytes) in (0..).zip(self.read_all(File::Superblock, 2 * SLOT)?) {
            let bytes = bytes.unwrap_or_default();
            let slots = bytes.chunks(SLOT).filter_map(|slot| {
                let block = unseal::<Superblock>(SUPERBLOCK, slot);
                // One that was never written is all zeros.
                if block.is_none() && slot.iter().any(|&byte| byte != 0) {
                    self.unreadable
                        .push((unit, "a copy of its superblock could not be read, and is written anew"));
                }
                block
            });
            let possible = slots.map(|(block, _)| block).filter(Superblock::is_possible);
            let newest = possible.max_by_key(|block| block.seq);
            match &newest {
                None => self.lose(unit, "it has no readable superblock"),
                Some(block) if block.volume != self.id => self.lose(unit, "it belongs to another store"),
                Some(block) if block.unit != unit => {
                    self.lose(unit, format!("it is unit {} of this store", block.unit));
                }
                Some(block) if block.geometry != self.geometry => {
                    self.lose(unit, "it was made for another number of units, or another stripe unit");
                }
                Some(block) => self.roll[unit].seq = block.seq,
            }
            found.push(newest.filter(|_| self.roll.is_read(unit)));
        }
        let blocks = || found.iter().flatten();
        let Some(newest) = blocks().max_by_key(|block| {
            let same = blocks().filter(|other| other.epoch == block.epoch).count();
            (block.served().count, block.epoch.count, block.serving, same)
        }) else {
            return Err(self.too_many());
        };
        let served = blocks().any(|block| block.epoch == newest.epoch && block.serving);
        let (mut never_served, mut apart) = (false, Vec::new());
        for block in blocks() {
            // A unit that was to take part in an epoch in which nobody came to serve has missed nothing.
            let part =
                newest.members.has(block.unit) || block.joining.is_some() && newest.joiners.has(block.unit);
            // Neither has who has the beginning of another such, which followed the same one.
            let another = !block.serving && block.before() == newest.before();
            let waits = !served && part && (block.epoch == newest.before() || another);
            let there = block.epoch == newest.epoch && (part || !served);
            never_served |= waits && !there && !self.has(Bug::BeforeUnserved);
            let bug = if block.joining.is_some() { Bug::StaleJoins } else { Bug::StaleRead };
            if !there && !waits && !self.has(bug) {
                let (its, ours) = (block.epoch, newest.epoch);
                let why = match newest.relation(block.served()) {
                    Relation::Apart => {
                        apart.push(block);
                        format!(
                            "it has gone on apart: in epoch {its}, which the others' {ours} does not follow"
                        )
                    }
                    _ if its == ours => format!("it is stale: it had no part in epoch {}", ours.count),
                    _ => format!("it is stale: it was last used in epoch {}, not {}", its.count, ours.count),
                };
                self.lose(block.unit, why);
            } else if let Some(mark) = block.joining.filter(|_| !self.has(Bug::JoiningRead)) {
                self.joins(block.unit, mark);
            }
        }
        self.is_one(newest, &apart)?;
        (self.epoch, self.generation) = (newest.epoch, newest.generation);
        // Units that are away may know of one more, which did not come to serve.
        self.counted = blocks().map(|block| block.epoch.count).max().unwrap_or(0) + 1;
        self.line = newest.line.clone();
        // All who were to serve would know of it, where some do not: then what comes next follows the one
        // before.
        if !never_served {
            self.follows(newest.epoch, newest.generation);
        }
        // A stale unit may know of a change that nobody was told of, and that is discarded: it must not be
        // waited for.
        let counts = |block: &&Superblock| self.uses(block.unit) || self.has(Bug::StaleCounts);
        self.tx = blocks().filter(counts).map(|block| block.trimmed).max().unwrap_or(0);
        if self.lost().count() > self.geometry.parity() as usize {
            return Err(self.too_many());
        }
        self.is_newest(newest, give_up)?;
        // Below, a log counts only in the epoch of its unit's superblock.
        let epochs =
            found.iter().map(|block| block.as_ref().map_or((Epoch::default(), 0), |b| (b.epoch, b.trimmed)));
        self.replay(&epochs.collect::<Vec<_>>())?;
        // Of a unit that is not used it is known why.
        let mut unreadable = std::mem::take(&mut self.unreadable);
        unreadable.retain(|&(unit, _)| self.uses(unit));
        self.unreadable = unreadable;
        Ok(())
    }

    /// What comes next follows this epoch, which may have been served.
    fn follows(&mut self, epoch: Epoch, generation: u32) {
        self.line.insert(0, Past { epoch, generation });
        self.remembers_mark(generation, epoch.mark());
        self.line.truncate(LINE);
    }

    pub(super) fn remembers_mark(&mut self, generation: u32, mark: u32) {
        if generation != 0 {
            self.history.insert((generation, mark));
        }
        while self.history.len() > HISTORY {
            self.history.pop_first();
        }
    }

    /// Whether it is clear who goes on with the store: those with the newest superblock are enough, and those
    /// that have gone on apart are not.
    fn is_one(&self, newest: &Superblock, apart: &[&Superblock]) -> Result<(), VolumeError> {
        let Some(other) = apart.iter().max_by_key(|block| (block.served().count, block.epoch.count)) else {
            return Ok(());
        };
        let with = apart.iter().filter(|block| other.relation(block.served()) == Relation::Known);
        let with: Vec<u32> = with.map(|block| block.unit).collect();
        let here: Vec<u32> = self.roll.read().filter(|unit| !with.contains(unit)).collect();
        let enough = self.geometry.data() as usize;
        match here.len() >= enough && with.len() < enough {
            true => Ok(()),
            false => {
                let (here, there) =
                    (Side { epoch: newest.epoch, units: here }, Side { epoch: other.epoch, units: with });
                Err(VolumeError::Forked(Box::new([here, there])))
            }
        }
    }

    /// Writes blocks and checksums to their places.
    pub(super) fn put(&mut self, unit: u32, patches: Vec<Patch>) -> Result<(), VolumeError> {
        let writes = self.places(unit, patches);
        self.run(writes).map(drop)
    }

    /// What was agreed goes to its places. That is no more to be refused: a unit without room for it is lost.
    pub(super) fn follow(&mut self, patches: Vec<(u32, Patch)>) -> Result<(), VolumeError> {
        let places = |(unit, patch)| self.places(unit, vec![patch]);
        let writes = patches.into_iter().flat_map(places).collect();
        self.run_or_lose(writes)
    }

    /// The writes of blocks and checksums to their places.
    pub(super) fn places(&mut self, unit: u32, patches: Vec<Patch>) -> Vec<Request> {
        let mut writes = Vec::new();
        if self.has(Bug::JoiningSkipped) && self.is_joining(unit) {
            return writes;
        }
        for patch in patches {
            if let Some((block, bytes)) = patch.block {
                let file = File::Data(patch.object);
                let at = block.saturating_mul(super::BLOCK as u64);
                writes.push(Request::Write { unit, file, at, bytes });
                self.dirty.insert((unit, file));
            }
            let file = File::Sums(patch.object);
            for (at, bytes) in patch.sums {
                writes.push(Request::Write { unit, file, at, bytes });
                self.dirty.insert((unit, file));
            }
        }
        writes
    }

    /// Puts all that was agreed in its place on all units that are used, and begins an epoch with those.
    /// Units that fail meanwhile are left behind.
    ///
    /// # Errors
    /// [`VolumeError::Limit`] where it was counted so far that what is written now could not be read again;
    /// [`VolumeError::Home`].
    pub(super) fn begin_epoch(&mut self, nonce: u64) -> Result<(), VolumeError> {
        loop {
            for (what, found, limit) in [
                ("epochs of a store", self.next_epoch(nonce).count - 1, LAST),
                ("changes of a store", self.tx, LAST),
                ("epochs of a store", self.generation.max(self.written).into(), LAST_GENERATION),
            ] {
                if found >= limit {
                    return Err(VolumeError::Limit { what, found, limit });
                }
            }
            if !self.has(Bug::TrimmedEarly) {
                self.sync()?;
            }
            if self.lost().count() > self.geometry.parity() as usize {
                return Err(self.too_many());
            }
            let team = self.team();
            if !self.has(Bug::EpochFirst) {
                self.write_catalogs(&team)?;
            }
            let epoch = self.next_epoch(nonce);
            self.begins(epoch)?;
            self.counted = epoch.count;
            let line = self.line.clone();
            // So a generation tells the epoch.
            let generation = self.generation.max(self.written) + 1;
            for serving in [false, true] {
                if serving {
                    self.follows(epoch, generation);
                }
                let (mut writes, mut syncs) = (Vec::new(), Vec::new());
                for unit in team.all() {
                    let seq = self.roll[unit].next_seq();
                    let block = Superblock {
                        volume: self.id,
                        unit,
                        geometry: self.geometry,
                        seq,
                        epoch,
                        line: line.clone(),
                        members: team.members,
                        joiners: team.joiners,
                        joining: team.joiners.has(unit).then(|| self.mark(unit)).flatten(),
                        serving,
                        generation,
                        trimmed: self.tx,
                    };
                    let at = seq % 2 * SLOT as u64;
                    writes.push(Request::Write {
                        unit,
                        file: File::Superblock,
                        at,
                        bytes: seal(SUPERBLOCK, &block),
                    });
                    syncs.push(Request::Sync { unit, file: File::Superblock });
                }
                // Where some know of the epoch and others do not, it cannot be given up any more.
                self.run_or_lose(writes)?;
                if !self.has(Bug::EpochNotSynced) {
                    self.run_or_lose(syncs)?;
                }
                if self.team() != team {
                    break;
                }
            }
            (self.epoch, self.generation) = (epoch, generation);
            if self.team() == team {
                if self.has(Bug::EpochFirst) {
                    self.write_catalogs(&team)?;
                }
                self.roll.begin();
                self.tell();
                return self.serves();
            }
        }
    }

    /// Removes the objects that no name stands for. They are looked for on one unit, another in each epoch,
    /// and where there are any there, on all: so an opening takes little longer the more objects there are,
    /// and what lies on a few units only is found by one of the next.
    fn forget_unnamed(&mut self, in_use: &dyn Fn(u64) -> bool) -> Result<(), VolumeError> {
        let named: BTreeSet<u64> = self.names.values().map(|entry| entry.object).collect();
        let read: Vec<u32> = self.roll.read().collect();
        let turn = (self.epoch.count % read.len().max(1) as u64) as usize;
        let (first, others) = (read.get(turn), read.iter().filter(|unit| read.get(turn) != Some(unit)));
        let found = self.unnamed_on(first.into_iter().copied(), &named, in_use)?;
        let more = match found.is_empty() {
            true => Vec::new(),
            false => self.unnamed_on(others.copied(), &named, in_use)?,
        };
        self.run(found.into_iter().chain(more).collect()).map(drop)
    }

    /// The removals of objects that have no name from these units.
    fn unnamed_on(
        &mut self,
        units: impl Iterator<Item = u32>,
        named: &BTreeSet<u64>,
        in_use: &dyn Fn(u64) -> bool,
    ) -> Result<Vec<Request>, VolumeError> {
        let units: Vec<u32> = units.collect();
        let there = self.run(units.iter().map(|&unit| Request::List { unit }).collect())?;
        let mut removals = Vec::new();
        for (unit, objects) in units.into_iter().zip(there) {
            let Some(Done::Objects(objects)) = objects else { continue };
            for object in objects.into_iter().filter(|object| !named.contains(object)) {
                match in_use(object) {
                    // Its number is not written down yet.
                    true => self.next_object = self.next_object.max(object.saturating_add(1)),
                    false => removals.push(Request::Remove { unit, object }),
                }
            }
        }
        Ok(removals)
    }
}
