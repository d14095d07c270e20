//! Checksums of blocks, apart from the blocks.
//!
//! An entry is 12 bytes: the CRC32C of the block, of where it belongs and of what follows; the generation,
//! which is raised with each write; and a mark of the epoch in which that was. A generation of zero stands
//! for a block that was never written. Since the place is part of it, a block that went to a wrong place is
//! found out, and so is one of another store, object or unit, however high its generation: it is nobody's.
//! The mark is drawn at random with its epoch: so what a copy of the store wrote that went on apart is told
//! from what this one did.
//!
//! A unit has an entry for each block that it holds, and with a parity block the entries of all data blocks
//! of its word too: so a unit that said it had written a block and has not is found out, though what it has
//! is right in itself.

use super::geometry::{Geometry, BLOCK};
use super::planted::{self, Bug};
use crate::crc::crc32c;
use serde::{Deserialize, Serialize};

/// An entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// CRC32C.
    pub crc: u32,
    /// Zero: never written.
    pub generation: u32,
    /// The [mark](super::Epoch::mark) of the epoch in which it was written.
    pub mark: u32,
}

/// When a block is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Higher than that of what was there before.
    pub generation: u32,
    /// The [mark](super::Epoch::mark) of the epoch.
    pub mark: u32,
}

impl From<u32> for Stamp {
    /// In no epoch: for measurements.
    fn from(generation: u32) -> Stamp {
        Stamp { generation, mark: 0 }
    }
}

/// Bytes of an entry.
pub const SUM: usize = 12;

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
pub struct BlockPlace {
    /// The object.
    pub of: ObjectId,
    /// The chunk in its row: with the block it names the unit.
    pub chunk: u32,
    /// The block in the unit's file.
    pub block: u64,
}

impl BlockPlace {
    /// As checksums have it, which with [`Bug::PlaceNotSummed`] say nothing of it.
    pub(super) fn summed(self, bug: Option<Bug>) -> BlockPlace {
        match planted::has(bug, Bug::PlaceNotSummed) {
            true => BlockPlace { of: ObjectId::default(), chunk: 0, block: 0 },
            false => self,
        }
    }
}

impl Sum {
    /// Of a block's new content.
    pub fn of(home: BlockPlace, stamp: Stamp, block: &[u8; BLOCK]) -> Sum {
        let Stamp { generation, mark } = stamp;
        let mut place = [0; 44];
        place[..16].copy_from_slice(&home.of.store);
        place[16..24].copy_from_slice(&home.of.object.to_le_bytes());
        place[24..32].copy_from_slice(&home.block.to_le_bytes());
        place[32..36].copy_from_slice(&home.chunk.to_le_bytes());
        place[36..40].copy_from_slice(&generation.to_le_bytes());
        place[40..].copy_from_slice(&mark.to_le_bytes());
        Sum { crc: crc32c(&[&place, block]), generation, mark }
    }

    /// Whether this is the block that the entry was made for. A block that was never written is nobody's. All
    /// who read blocks ask here, be it with the [`Volume`](super::Volume) or without.
    pub fn is_of(self, home: BlockPlace, block: &[u8; BLOCK]) -> bool {
        self.generation != 0 && Sum::of(home, self.stamp(), block) == self
    }

    /// When the block was written.
    pub fn stamp(self) -> Stamp {
        Stamp { generation: self.generation, mark: self.mark }
    }

    /// As it lies in the file.
    pub fn to_bytes(self) -> [u8; SUM] {
        let mut bytes = [0; SUM];
        bytes[..4].copy_from_slice(&self.crc.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..].copy_from_slice(&self.mark.to_le_bytes());
        bytes
    }

    /// Out of the file; missing bytes are zeros.
    pub fn from_bytes(bytes: &[u8]) -> Sum {
        let word = |from: usize| {
            let mut word = [0; 4];
            let some = bytes.get(from..).unwrap_or_default();
            let n = some.len().min(word.len());
            word[..n].copy_from_slice(&some[..n]);
            u32::from_le_bytes(word)
        };
        Sum { crc: word(0), generation: word(4), mark: word(8) }
    }
}

/// The entry of a data block: that which all have who have one, the block's own unit and those of the word's
/// parity, where somebody has one and it `counts`. A block that is read alone is right if it is
/// [of](Sum::is_of) this entry, and nowhere is it decided otherwise; where they speak against each other only
/// the whole word tells what it was.
pub fn agreed(entries: impl IntoIterator<Item = Sum>, counts: impl FnOnce(Sum) -> bool) -> Option<Sum> {
    let mut entries = entries.into_iter();
    let first = entries.next().filter(|sum| sum.generation != 0)?;
    (entries.all(|sum| sum == first) && counts(first)).then_some(first)
}

/// Bytes that a unit has for each of its blocks: its own entry, and room for those of a word's data.
pub fn stride(geometry: Geometry) -> usize {
    match geometry.parity() {
        0 => SUM,
        _ => SUM * (1 + geometry.data() as usize),
    }
}
