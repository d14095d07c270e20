//! Blocks of an object that is in use are overwritten: in the logs first, then in their places.

use super::{next_block, next_bytes};
use crate::volume::error::VolumeError;
use crate::volume::geometry::{BlockInRow, BLOCK};
use crate::volume::parity::{encode_one, xor, Block};
use crate::volume::planted::Bug;
use crate::volume::state::{Action, Patch};
use crate::volume::sums::{stride, BlockPlace, Stamp, Sum, SUM};
use crate::volume::units::Units;
use crate::volume::Volume;
use std::collections::BTreeMap;

/// Blocks of data and parity that one change of the logs overwrites, at most.
const TOGETHER: usize = 256;
/// The blocks of a word that change, by chunk, and the entries that were known of the word before.
type Changed = (BTreeMap<u32, Block>, Vec<Sum>);

impl<U: Units> Volume<U> {
    /// Overwrites a block of an object that is in use. When this returns it survives any cut, and the loss of
    /// as many units as there is parity; until then it may be there or not, whole in any case. `nonce` is a
    /// number drawn at random.
    ///
    /// # Errors
    /// As [`read`](Volume::read) and [`commit`](Volume::commit).
    pub fn overwrite(
        &mut self,
        object: u64,
        block: u64,
        bytes: &[u8; BLOCK],
        nonce: u64,
    ) -> Result<(), VolumeError> {
        self.overwrite_run(object, block, bytes, nonce)
    }

    /// The same for blocks that follow each other, whole in `bytes`. Those of one chunk go with one change of
    /// the logs, as many as that takes.
    ///
    /// # Errors
    /// As [`overwrite`](Volume::overwrite); some of the blocks may be there then.
    pub fn overwrite_run(
        &mut self,
        object: u64,
        first: u64,
        bytes: &[u8],
        nonce: u64,
    ) -> Result<(), VolumeError> {
        let (blocks, _) = bytes.as_chunks::<BLOCK>();
        let most = (TOGETHER / (1 + self.geometry.parity() as usize)).max(1);
        let mut next = first;
        let mut rest = blocks;
        while !rest.is_empty() {
            // No two of a chunk are of one word.
            let left = self.geometry.chunk_blocks() - self.geometry.place(next).at;
            let (now, later) = rest.split_at(rest.len().min(left as usize).min(most));
            self.overwrite_in_chunk(object, next, now, nonce)?;
            next += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Overwrites blocks of a chunk that follow each other.
    fn overwrite_in_chunk(
        &mut self,
        object: u64,
        first: u64,
        blocks: &[[u8; BLOCK]],
        nonce: u64,
    ) -> Result<(), VolumeError> {
        self.mend(nonce)?;
        let mut patches = Vec::new();
        for (block, bytes) in (first..).zip(blocks) {
            patches.extend(self.patches(object, block, bytes)?);
        }
        let g = self.geometry;
        let place = g.place(first);
        let unit = g.unit(place.row, place.chunk);
        if self.has(Bug::PlaceFirst) {
            patches.iter().try_for_each(|(unit, patch)| self.put(*unit, vec![patch.clone()]))?;
        }
        let action = Action::Blocks(patches);
        self.agree(&action, unit, g.parity() as usize + 1, nonce)?;
        if let Action::Blocks(patches) = action {
            self.follow(patches)?;
        }
        self.mend_or_wait(nonce)
    }

    /// What is to be written where a block is overwritten: that block first, and then what is computed from
    /// it.
    fn patches(
        &mut self,
        object: u64,
        block: u64,
        bytes: &[u8; BLOCK],
    ) -> Result<Vec<(u32, Patch)>, VolumeError> {
        let g = self.geometry;
        let place = g.place(block);
        let home = self.home(object, place)?;
        let (changed, old) = match self.change(home, place, bytes)? {
            Some(changed) => changed,
            None => self.change_word(block, home, place, bytes)?,
        };
        let mut entries = old.clone();
        for (&c, block) in &changed {
            let after = self.generation.max(old[c as usize].generation.saturating_add(1));
            self.written = self.written.max(after);
            let stamp = Stamp { generation: after, ..self.stamp() };
            entries[c as usize] = self.sum(BlockPlace { chunk: c, ..home }, stamp, block);
        }
        let patch = |(c, bytes): (u32, Block)| {
            let lines = self.lines(c, &entries, &|other| other == place.chunk);
            let at = |to: usize| home.block * stride(g) as u64 + to as u64;
            let sums = lines.into_iter().map(|(to, sum)| (at(to), sum.to_bytes().to_vec())).collect();
            let bytes: Box<[u8]> = bytes;
            let block = Some((home.block, bytes.into_vec()));
            (g.unit(place.row, c), Patch { object, block, sums })
        };
        Ok(changed.into_iter().map(patch).collect())
    }

    /// What becomes of a word when one of its blocks is overwritten, from that block and the parity alone:
    /// the change is added to each parity block, which is right whatever the other data are. `None` where a
    /// unit is lost or something is not as it should be.
    fn change(
        &mut self,
        home: BlockPlace,
        place: BlockInRow,
        bytes: &[u8; BLOCK],
    ) -> Result<Option<Changed>, VolumeError> {
        let g = self.geometry;
        if self.lost().next().is_some() {
            return Ok(None);
        }
        let chunks: Vec<u32> = (0..g.units()).filter(|&c| c == place.chunk || c >= g.data()).collect();
        let batch = chunks.iter().flat_map(|&c| self.reads(home, place.row, c)).collect();
        let mut done = self.run(batch)?.into_iter();
        let mut old = vec![Sum::default(); g.units() as usize];
        let (mut changed, mut said) = (BTreeMap::new(), Vec::new());
        for &c in &chunks {
            let (Some(sums), Some(block)) = (next_bytes(&mut done), next_block(&mut done)) else {
                return Ok(None);
            };
            let entry = |i: usize| Sum::from_bytes(sums.get(i * SUM..).unwrap_or(&[]));
            let (own, copy) = (entry(0), entry(1 + place.chunk as usize));
            if !(1..sums.len() / SUM).all(|i| c < g.data() || self.counts(entry(i))) {
                return Ok(None);
            }
            if !self.fits(own, BlockPlace { chunk: c, ..home }, &block) {
                return Ok(None);
            }
            said.push(if c == place.chunk { own } else { copy });
            old[c as usize] = own;
            changed.insert(c, block);
        }
        let is_agreed = self.agreed(said.into_iter()).is_some();
        let Some(data) = changed.get_mut(&place.chunk).filter(|_| is_agreed) else { return Ok(None) };
        xor(&mut data[..], bytes);
        let change = std::mem::replace(data, Box::new(*bytes));
        for (c, parity) in (g.data()..).zip(encode_one(g, place.chunk, change)) {
            changed.entry(c).and_modify(|block| xor(&mut block[..], &parity[..]));
        }
        Ok(Some((changed, old)))
    }

    /// The same from all blocks of the word, which are made good on the way.
    fn change_word(
        &mut self,
        block: u64,
        home: BlockPlace,
        place: BlockInRow,
        bytes: &[u8; BLOCK],
    ) -> Result<Changed, VolumeError> {
        let g = self.geometry;
        let (mut old, repaired) = self.read_word(home.of.object, block, place)?;
        repaired.had_room()?;
        old.blocks.truncate(g.data() as usize);
        *old.blocks[place.chunk as usize] = *bytes;
        let word = (0..).zip(self.word(old.blocks));
        Ok((word.filter(|&(c, _)| c == place.chunk || c >= g.data()).collect(), old.sums))
    }
}
