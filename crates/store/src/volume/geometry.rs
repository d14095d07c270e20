//! The geometry of a store: the unit that holds each block.
//!
//! The blocks of an object, its linear bytes in pieces of 4 KiB, fill chunks (the stripe unit), chunks fill
//! rows: `data` chunks, and `parity` chunks computed from them. A row has one chunk on each unit, and the
//! chunks move on by one unit from row to row, so that every unit has its share of the parity (nCUBE, section
//! 6: "the parity block moves from row to row").
//!
//! The blocks at one place in all chunks of a row are a *word*: the unit of coding. Whatever `parity` of its
//! blocks are lost, the others give them back.

use super::error::VolumeError;
use serde::{Deserialize, Serialize};

/// Bytes of a block: what has a checksum, and what is written at once.
pub const BLOCK: usize = 4096;
/// Most units of a store.
pub const MAX_UNITS: u32 = 128;
/// Longest chunk, in blocks: 1 GiB.
const MAX_CHUNK_BLOCKS: u32 = 1 << 18;

/// Blocks of a unit's file, at most: so that its byte, and that of its checksums, can be counted.
pub(super) const MAX_UNIT_BLOCKS: u64 = 1 << 40;

/// How a store is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    data: u32,
    parity: u32,
    chunk_blocks: u32,
}

/// Where a block of an object lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInRow {
    /// Its row.
    pub row: u64,
    /// Its chunk in the row: data first, then parity.
    pub chunk: u32,
    /// Its place in the chunk, in blocks.
    pub at: u32,
}

fn bad_chunk(found: u64) -> VolumeError {
    VolumeError::Geometry {
        what: "bytes of a stripe unit",
        found,
        expected: "a multiple of 4 KiB, up to 1 GiB",
    }
}

impl Geometry {
    /// `data` chunks of `chunk_bytes` and `parity` chunks in each row.
    ///
    /// # Errors
    /// [`VolumeError::Geometry`], naming what cannot be.
    pub fn new(data: u32, parity: u32, chunk_bytes: u64) -> Result<Geometry, VolumeError> {
        let chunk_blocks = u32::try_from(chunk_bytes / BLOCK as u64).unwrap_or(u32::MAX);
        let whole = chunk_bytes.is_multiple_of(BLOCK as u64);
        let geometry = Geometry { data, parity, chunk_blocks: if whole { chunk_blocks } else { 1 } };
        geometry.check()?;
        whole.then_some(geometry).ok_or_else(|| bad_chunk(chunk_bytes))
    }

    /// What was read from somewhere is checked before it is used.
    pub(super) fn check(self) -> Result<(), VolumeError> {
        let bad = |what, found, expected| Err(VolumeError::Geometry { what, found, expected });
        if self.data == 0 || self.data > MAX_UNITS {
            return bad("data units", self.data.into(), "1 to 128");
        }
        if self.parity > MAX_UNITS - self.data {
            return bad("parity units", self.parity.into(), "no more than 128 units in all");
        }
        if self.chunk_blocks == 0 || self.chunk_blocks > MAX_CHUNK_BLOCKS {
            return Err(bad_chunk(u64::from(self.chunk_blocks) * BLOCK as u64));
        }
        Ok(())
    }

    /// Data chunks of a row.
    pub fn data(self) -> u32 {
        self.data
    }

    /// Parity chunks of a row: so many units may be lost.
    pub fn parity(self) -> u32 {
        self.parity
    }

    /// Blocks of a chunk.
    pub fn chunk_blocks(self) -> u32 {
        self.chunk_blocks
    }

    /// Units, and chunks of a row.
    pub fn units(self) -> u32 {
        self.data + self.parity
    }

    /// Data blocks of a row.
    pub fn row_blocks(self) -> u64 {
        u64::from(self.data) * u64::from(self.chunk_blocks)
    }

    /// Where a block of an object lies.
    pub fn place(self, block: u64) -> BlockInRow {
        let chunk = block / u64::from(self.chunk_blocks);
        BlockInRow {
            row: chunk / u64::from(self.data),
            chunk: (chunk % u64::from(self.data)) as u32,
            at: (block % u64::from(self.chunk_blocks)) as u32,
        }
    }

    /// The unit of a row's chunk.
    pub fn unit(self, row: u64, chunk: u32) -> u32 {
        ((row % u64::from(self.units()) + u64::from(chunk)) % u64::from(self.units())) as u32
    }

    /// The chunk of a row that a unit has.
    pub fn chunk(self, row: u64, unit: u32) -> u32 {
        let units = u64::from(self.units());
        ((u64::from(unit) + units - row % units) % units) as u32
    }

    /// The place of a row's block in each unit's file, in blocks: `None` beyond what files can hold.
    pub fn unit_block(self, row: u64, at: u32) -> Option<u64> {
        let block = row.checked_mul(self.chunk_blocks.into())?.checked_add(at.into())?;
        (block < MAX_UNIT_BLOCKS).then_some(block)
    }

    /// Data blocks of an object, at most.
    pub(crate) fn most_blocks(self) -> u64 {
        MAX_UNIT_BLOCKS / u64::from(self.chunk_blocks) * self.row_blocks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_a_place_of_its_own_and_parity_moves() {
        for (data, parity, chunk) in [(1, 0, 1), (2, 1, 1), (4, 1, 3), (4, 2, 2), (3, 3, 1)] {
            let g = Geometry::new(data, parity, chunk * BLOCK as u64).unwrap();
            let mut seen = std::collections::HashSet::new();
            let rows = 2 * u64::from(g.units());
            for block in 0..rows * g.row_blocks() {
                let p = g.place(block);
                assert!(p.chunk < data && u64::from(p.at) < chunk);
                let unit = g.unit(p.row, p.chunk);
                assert_eq!(g.chunk(p.row, unit), p.chunk);
                assert!(seen.insert((unit, g.unit_block(p.row, p.at).unwrap())), "{block}");
            }
            for unit in 0..g.units() {
                let parities = (0..rows).filter(|&r| g.chunk(r, unit) >= data).count();
                assert_eq!(parities, 2 * parity as usize, "each unit has its share");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (data, parity, bytes, what) in [
            (0, 1, 4096, "data units"),
            (129, 0, 4096, "data units"),
            (100, 29, 4096, "parity units"),
            (u32::MAX, u32::MAX, 4096, "data units"),
            (4, 1, 0, "bytes of a stripe unit"),
            (4, 1, 5000, "bytes of a stripe unit"),
            (4, 1, 2 << 30, "bytes of a stripe unit"),
            (4, 1, u64::MAX, "bytes of a stripe unit"),
        ] {
            let error = Geometry::new(data, parity, bytes).unwrap_err();
            assert!(matches!(error, VolumeError::Geometry { what: w, .. } if w == what), "{error}");
        }
        assert_eq!(Geometry::new(4, 1, 4096).unwrap().unit_block(u64::MAX, 0), None);
    }
}
