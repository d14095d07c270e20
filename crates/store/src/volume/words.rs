//! Words: read and checked block by block, and repaired.

mod overwrite;

use super::decode::{Decoded, Found};
use super::epochs::relation;
use super::error::VolumeError;
use super::geometry::{BlockInRow, BLOCK};
use super::parity::{encode, Block};
use super::planted::Bug;
use super::span::Cursor;
use super::state::{Patch, Relation};
use super::sums::{agreed, stride, BlockPlace, ObjectId, Stamp, Sum, SUM};
use super::units::{Cause, Done, File, Request, UnitError, Units};
use super::Volume;

/// A block that was damaged, and was made good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Whose.
    pub unit: u32,
    /// Of which object.
    pub object: u64,
    /// Which block of the unit's file.
    pub block: u64,
}

/// Repairs that are kept until they are asked for, at most.
const MAX_REPAIRS: usize = 1 << 16;

/// What became of a word of which some was damaged.
#[derive(Default)]
pub(super) struct Rewritten {
    /// The units whose blocks were written anew.
    pub written: Vec<u32>,
    /// Those whose could not be: they are used as before, and their blocks are as they were, or still
    /// damaged.
    pub failed: Vec<UnitError>,
}

impl Rewritten {
    /// Whether what was damaged is written anew, but for units that failed for another reason than want of
    /// room.
    fn had_room(self) -> Result<(), VolumeError> {
        self.failed
            .into_iter()
            .find(|error| error.cause == Cause::Full)
            .map_or(Ok(()), |error| Err(VolumeError::Full(error)))
    }
}

/// A word: its blocks and their checksums, as they should be.
pub(super) struct Word {
    pub blocks: Vec<Block>,
    pub sums: Vec<Sum>,
}

/// What the next request of a batch has read; `None` of a unit that is lost.
fn next_bytes(done: &mut impl Iterator<Item = Option<Done>>) -> Option<Vec<u8>> {
    match done.next().flatten() {
        Some(Done::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}

/// The same where that is a block.
fn next_block(done: &mut impl Iterator<Item = Option<Done>>) -> Option<Block> {
    next_bytes(done)?.into_boxed_slice().try_into().ok()
}

impl<U: Units> Volume<U> {
    pub(super) fn home(&self, object: u64, place: BlockInRow) -> Result<BlockPlace, VolumeError> {
        let block = self.geometry.unit_block(place.row, place.at);
        let limit = self.geometry.most_blocks();
        let what = "blocks of an object";
        let block = block.ok_or(VolumeError::Limit { what, found: place.row, limit })?;
        Ok(BlockPlace { of: ObjectId { store: self.id, object }, chunk: place.chunk, block })
    }

    /// A block of an object, checked. What is found damaged on the way is made good from the others.
    ///
    /// # Errors
    /// [`VolumeError::Damaged`]: more is damaged, or lost, than there is parity. Wrong bytes are never given.
    pub fn read(&mut self, object: u64, block: u64) -> Result<Block, VolumeError> {
        self.settle_known()?;
        let place = self.geometry.place(block);
        if let Some(block) = self.read_at_once(object, place)? {
            return Ok(block);
        }
        // A repair that cannot be made is left for later.
        let (mut word, _) = self.read_word(object, block, place)?;
        Ok(word.blocks.swap_remove(place.chunk as usize))
    }

    /// The block alone, if it is as all who have its checksum say.
    fn read_at_once(&mut self, object: u64, place: BlockInRow) -> Result<Option<Block>, VolumeError> {
        let g = self.geometry;
        let home = self.home(object, place)?;
        let unit = g.unit(place.row, place.chunk);
        let (file, at) = (File::Sums(object), home.block * stride(g) as u64);
        let mut batch = vec![
            Request::Read { unit, file: File::Data(object), at: home.block * BLOCK as u64, len: BLOCK },
            Request::Read { unit, file, at, len: SUM },
        ];
        let copy = at + (SUM * (1 + place.chunk as usize)) as u64;
        let others = (g.data()..g.units()).map(|c| g.unit(place.row, c)).filter(|&u| self.roll.is_read(u));
        batch.extend(others.map(|unit| Request::Read { unit, file, at: copy, len: SUM }));
        let mut done = self.run(batch)?.into_iter();
        let block = next_block(&mut done);
        // Of a unit that did not answer it is not known whether it has the same: none is no entry.
        let entries = done.map(|done| match done {
            Some(Done::Bytes(bytes)) => Sum::from_bytes(&bytes),
            _ => Sum::default(),
        });
        let agreed = self.agreed(entries);
        Ok(block.filter(|block| agreed.is_some_and(|sum| self.fits(sum, home, block))))
    }

    /// The entry of a data block, from those of its own unit and of parity.
    fn agreed(&self, entries: impl Iterator<Item = Sum>) -> Option<Sum> {
        let asked = if self.has(Bug::CopiesIgnored) { 1 } else { usize::MAX };
        agreed(entries.take(asked), |sum| self.counts(sum))
    }

    /// Asks the unit of a chunk for what it has of a word's entries, and for its block of it.
    fn reads(&self, home: BlockPlace, row: u64, chunk: u32) -> [Request; 2] {
        let g = self.geometry;
        let (unit, each) = (g.unit(row, chunk), stride(g));
        let (data, sums) = (File::Data(home.of.object), File::Sums(home.of.object));
        [
            Request::Read { unit, file: sums, at: home.block * each as u64, len: each },
            Request::Read { unit, file: data, at: home.block * BLOCK as u64, len: BLOCK },
        ]
    }

    /// All blocks of a word, from those of its data.
    fn word(&self, mut data: Vec<Block>) -> Vec<Block> {
        let parity = encode(self.geometry, &data.iter().map(|b| &**b).collect::<Vec<_>>());
        data.extend(parity);
        data
    }

    fn sum(&self, home: BlockPlace, stamp: Stamp, block: &[u8; BLOCK]) -> Sum {
        Sum::of(home.summed(self.planted), stamp, block)
    }

    /// Whether this is the block that the entry was made for, in an epoch of this store.
    fn fits(&self, sum: Sum, home: BlockPlace, block: &[u8; BLOCK]) -> bool {
        let ignored = self.has(Bug::ChecksumIgnored) && sum.generation != 0;
        self.counts(sum) && (ignored || sum.is_of(home.summed(self.planted), block))
    }

    /// Whether the epoch in which a block was written is one of this store's, as far as its history tells.
    fn whose(&self, sum: Sum) -> Relation {
        relation(&self.history, sum.stamp())
    }

    /// Whether an entry is not one of a copy that has gone on apart.
    fn counts(&self, sum: Sum) -> bool {
        sum.generation == 0 || self.trusts_forks() || self.whose(sum) != Relation::Apart
    }

    fn trusts_forks(&self) -> bool {
        self.has(Bug::ForkTrusted) || self.has(Bug::PlaceNotSummed)
    }

    /// What a unit has that was written apart is as if it could not be read.
    pub(super) fn forget_apart(&self, found: &mut Found) {
        let data = self.geometry.data() as usize;
        for c in 0..found.own.len() {
            let copies = c.checked_sub(data).and_then(|p| found.copies[p].as_deref()).unwrap_or_default();
            if !found.own[c].iter().chain(copies).all(|&sum| self.counts(sum)) {
                found.forget(self.geometry, c);
            }
        }
    }

    /// The entries of a new word's blocks.
    fn entries(&self, home: BlockPlace, word: &[Block]) -> Vec<Sum> {
        (0..)
            .zip(word)
            .map(|(chunk, block)| self.sum(BlockPlace { chunk, ..home }, self.stamp(), block))
            .collect()
    }

    /// What the unit of a chunk has of a word's entries, and where: its own, and with parity those of the
    /// data chunks that are `wanted`.
    pub(super) fn lines(
        &self,
        chunk: u32,
        entries: &[Sum],
        wanted: &dyn Fn(u32) -> bool,
    ) -> Vec<(usize, Sum)> {
        let mut lines = vec![(0, entries[chunk as usize])];
        if chunk >= self.geometry.data() {
            let data = (0..self.geometry.data()).filter(|&c| wanted(c));
            lines.extend(data.map(|c| (SUM * (1 + c as usize), entries[c as usize])));
        }
        lines
    }

    /// Asks all units for what they have of a word; where it was written just now, for what is durable of it.
    pub(super) fn find_word(&mut self, home: BlockPlace, row: u64, back: bool) -> Result<Found, VolumeError> {
        let g = self.geometry;
        let as_it_is = |request| match request {
            Request::Read { unit, file, at, len } if back => Request::ReadBack { unit, file, at, len },
            other => other,
        };
        let batch = (0..g.units()).flat_map(|chunk| self.reads(home, row, chunk)).map(as_it_is).collect();
        let mut done = self.run(batch)?.into_iter();
        let (data, units) = (g.data() as usize, g.units() as usize);
        let mut found = Found { blocks: Vec::new(), own: Vec::new(), copies: Vec::new() };
        for chunk in 0..units {
            let sums = next_bytes(&mut done);
            found.blocks.push(next_block(&mut done));
            let entry = |i: usize| sums.as_ref().map(|s| Sum::from_bytes(s.get(i * SUM..).unwrap_or(&[])));
            found.own.push(entry(0));
            if chunk >= data {
                found.copies.push((1..=data).map(entry).collect());
            }
        }
        self.forget_apart(&mut found);
        Ok(found)
    }

    /// The word that a block belongs to, as it should be. Blocks and entries that are not as they should be
    /// are written anew; what came of that is told apart.
    fn read_word(
        &mut self,
        object: u64,
        block: u64,
        place: BlockInRow,
    ) -> Result<(Word, Rewritten), VolumeError> {
        let home = self.home(object, place)?;
        let found = self.find_word(home, place.row, false)?;
        let (word, good) = self
            .check_word(home, &found)
            .map_err(|chunks| self.damaged(object, block, place.row, &chunks))?;
        let repaired = self.repair(place.row, &found, &good, &word, home, &[])?;
        self.note_kept(Cursor { object, block: home.block }, &repaired.written)?;
        Ok((word, repaired))
    }

    /// Notes of blocks of a word that were written anew those that the disks give back then.
    pub(super) fn note_kept(&mut self, word: Cursor, units: &[u32]) -> Result<(), VolumeError> {
        if units.is_empty() {
            return Ok(());
        }
        self.sync()?;
        let bad = self.not_made_good(word, units)?;
        let good: Vec<u32> = units.iter().copied().filter(|unit| !bad.contains(unit)).collect();
        self.note(word, &good);
        Ok(())
    }

    /// A block of a word of which these chunks, too many, are in doubt.
    pub(super) fn damaged(&self, object: u64, block: u64, row: u64, chunks: &[usize]) -> VolumeError {
        let mut doubtful: Vec<u32> = chunks.iter().map(|&c| self.geometry.unit(row, c as u32)).collect();
        doubtful.sort_unstable();
        VolumeError::Damaged { object, block, doubtful, parity: self.geometry.parity() }
    }

    /// A word from what was found of it, and which of its chunks were right. Or which are in doubt, where
    /// they are too many.
    pub(super) fn check_word(
        &self,
        home: BlockPlace,
        found: &Found,
    ) -> Result<(Word, Vec<bool>), Vec<usize>> {
        let g = self.geometry;
        let data = g.data() as usize;
        let of = |c: usize| BlockPlace { chunk: c as u32, ..home };
        let fits = |c, sum, block: &[u8; BLOCK]| self.fits(sum, of(c), block);
        let known = |sum| self.trusts_forks() || self.whose(sum) == Relation::Known;
        let decoded = match self.has(Bug::RottenParity) && found.blocks.iter().all(Option::is_some) {
            true => Ok(self.believe(home, found)),
            false => super::decode::decode(g, found, &fits, &known),
        };
        let (blocks, mut sums, good) = decoded?;
        for (c, block) in blocks.iter().enumerate().skip(data) {
            let now = found.own[c].filter(|&sum| self.fits(sum, of(c), block));
            sums.push(now.unwrap_or_else(|| self.sum(of(c), self.stamp(), block)));
        }
        Ok((Word { blocks, sums }, good))
    }

    /// What [`Bug::RottenParity`] makes of a word: parity and checksums of whatever the data are.
    fn believe(&self, home: BlockPlace, found: &Found) -> Decoded {
        let blocks =
            self.word(found.blocks.iter().flatten().take(self.geometry.data() as usize).cloned().collect());
        let fits = |c: usize, block| {
            found.own[c].is_some_and(|sum| self.fits(sum, BlockPlace { chunk: c as u32, ..home }, block))
        };
        let good: Vec<bool> = blocks.iter().enumerate().map(|(c, block)| fits(c, block)).collect();
        let mut sums = self.entries(home, &blocks);
        (0..good.len()).filter(|&c| good[c]).for_each(|c| sums[c] = found.own[c].unwrap_or_default());
        sums.truncate(self.geometry.data() as usize);
        (blocks, sums, good)
    }

    /// Notes that blocks of a word were damaged, and are made good.
    pub(super) fn note(&mut self, word: Cursor, units: &[u32]) {
        let room = MAX_REPAIRS.saturating_sub(self.repairs.len());
        let repair = |&unit: &u32| Repair { unit, object: word.object, block: word.block };
        self.repairs.extend(units.iter().take(room).map(repair));
    }

    /// The units that are read and do not have of a word what they should.
    pub(super) fn damaged_of(&self, row: u64, found: &Found, good: &[bool], word: &Word) -> Vec<u32> {
        let g = self.geometry;
        let wrong = |c: u32| found.own[c as usize] != Some(word.sums[c as usize]) || !good[c as usize];
        (0..g.units()).filter(|&unit| self.roll.is_read(unit) && wrong(g.chunk(row, unit))).collect()
    }

    /// Writes anew what is not as it should be; then a unit that joins gets its block of the word, too. A
    /// repair is nothing that anybody was told of: a unit that cannot make it is damaged as it was, and used
    /// like before. Units `but` are given their blocks otherwise.
    ///
    /// # Errors
    /// [`VolumeError::Refused`]. [`VolumeError::Full`] never comes of what is repaired.
    pub(super) fn repair(
        &mut self,
        row: u64,
        found: &Found,
        good: &[bool],
        word: &Word,
        home: BlockPlace,
        but: &[u32],
    ) -> Result<Rewritten, VolumeError> {
        let g = self.geometry;
        let mut damaged = self.damaged_of(row, found, good, word);
        damaged.retain(|unit| !but.contains(unit));
        let mut rewritten = Rewritten::default();
        for unit in (0..g.units()).filter(|_| !damaged.is_empty()) {
            let is_damaged = damaged.contains(&unit);
            if !is_damaged && !self.is_joining(unit) {
                continue;
            }
            let c = g.chunk(row, unit);
            let at = |to: usize| home.block * stride(g) as u64 + to as u64;
            let lines = self.lines(c, &word.sums, &|_| true).into_iter();
            let sums = lines.map(|(to, sum)| (at(to), sum.to_bytes().to_vec())).collect();
            let block = Some((home.block, word.blocks[c as usize].to_vec()));
            let patch = Patch { object: home.of.object, block, sums };
            if !is_damaged {
                self.put(unit, vec![patch])?;
                continue;
            }
            let mut done = match found.own[c as usize] {
                Some(_) => Vec::new(),
                None => {
                    let zeros = self.clear_sums(unit, home)?;
                    self.units.run(zeros)
                }
            };
            let writes = self.places(unit, vec![patch]);
            done.extend(self.units.run(writes));
            match done.into_iter().find_map(Result::err) {
                None => rewritten.written.push(unit),
                Some(error) if matches!(error.cause, Cause::Caller(_)) => {
                    self.ended.get_or_insert(error);
                    self.goes_on()?;
                }
                Some(error) => rewritten.failed.push(error),
            }
        }
        Ok(rewritten)
    }

    /// A part of what cannot be read cannot be written either: whole blocks of entries that nobody can read
    /// are zeros first.
    fn clear_sums(&mut self, unit: u32, home: BlockPlace) -> Result<Vec<Request>, VolumeError> {
        let (file, each, block) = (File::Sums(home.of.object), stride(self.geometry) as u64, BLOCK as u64);
        let blocks = home.block * each / block..((home.block + 1) * each).div_ceil(block);
        let read = |at: u64| Request::Read { unit, file, at: at * block, len: BLOCK };
        let done = self.run(blocks.clone().map(read).collect())?;
        let unread = blocks.zip(done).filter(|(_, done)| done.is_none());
        Ok(unread
            .map(|(at, _)| Request::Write { unit, file, at: at * block, bytes: vec![0; BLOCK] })
            .collect())
    }
}
