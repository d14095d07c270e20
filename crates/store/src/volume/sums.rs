//! Checksums of blocks, apart from the blocks.
//!
//! An entry is 8 bytes: the CRC32C of the block, of where it belongs and of its generation, and the generation,
//! which is raised with each write. Zero stands for a block that was never written. Since the place is part of
//! it, a block that went to a wrong place is found out, and so is one of another store, object or unit, however
//! high its generation: it is nobody's.
//!
//! A unit has an entry for each block that it holds, and with a parity block the entries of all data blocks of its word too: so
//! a unit that said it had written a block and has not is found out, though what it has is right in itself.

use super::geometry::{Geometry, BLOCK};
use crate::crc::crc32c;

/// An entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// CRC32C.
    pub crc: u32,
    /// Zero: never written.
    pub generation: u32,
}

/// Bytes of an entry.
pub const SUM: usize = 8;

/// An object of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectId {
    /// The store's own number.
    pub store: [u8; 16],
    /// The object's, in the store.
    pub object: u64,
}

/// Where a block belongs.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    /// The object.
    pub of: ObjectId,
    /// The chunk in its row: with the block it names the unit.
    pub chunk: u32,
    /// The block in the unit's file.
    pub block: u64,
}

impl Sum {
    /// Of a block's new content.
    pub fn of(home: Home, generation: u32, block: &[u8; BLOCK]) -> Sum {
        let mut place = [0; 40];
        place[..16].copy_from_slice(&home.of.store);
        place[16..24].copy_from_slice(&home.of.object.to_le_bytes());
        place[24..32].copy_from_slice(&home.block.to_le_bytes());
        place[32..36].copy_from_slice(&home.chunk.to_le_bytes());
        place[36..].copy_from_slice(&generation.to_le_bytes());
        Sum { crc: crc32c(&[&place, block]), generation }
    }

    /// As it lies in the file.
    pub fn to_bytes(self) -> [u8; SUM] {
        (u64::from(self.generation) << 32 | u64::from(self.crc)).to_le_bytes()
    }

    /// Out of the file; missing bytes are zeros.
    pub fn from_bytes(bytes: &[u8]) -> Sum {
        let mut word = [0; SUM];
        let n = bytes.len().min(SUM);
        word[..n].copy_from_slice(&bytes[..n]);
        let word = u64::from_le_bytes(word);
        Sum { crc: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Bytes that a unit has for each of its blocks: its own entry, and room for those of a word's data.
pub fn stride(geometry: Geometry) -> usize {
    match geometry.parity() {
        0 => SUM,
        _ => SUM * (1 + geometry.data() as usize),
    }
}
