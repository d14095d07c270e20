//! What a unit's superblock, its log and its catalog say.

use super::geometry::Geometry;
use super::sealed::Kind;
use super::span::Cursor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The superblock's kind and version.
pub const SUPERBLOCK: Kind = *b"pd-unit\x01";
/// A log record's kind and version.
pub const RECORD: Kind = *b"pd-tell\x02";
/// A catalog's kind and version.
pub const CATALOG: Kind = *b"pd-name\x01";
/// Bytes of a slot of the superblock file; there are two, written in turn.
pub const SLOT: usize = 4096;

/// A set of units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members(pub u128);

impl Members {
    /// Units 0 to `units` - 1, of which `used` says whether they belong.
    pub fn of(units: u32, used: impl Fn(u32) -> bool) -> Members {
        Members((0..units).filter(|&u| used(u)).fold(0, |set, u| set | 1 << u))
    }

    /// Whether a unit belongs.
    pub fn has(self, unit: u32) -> bool {
        unit < 128 && self.0 >> unit & 1 != 0
    }
}

/// Who a unit is, and since when it has taken part without a gap.
///
/// An epoch begins when a store is opened, and when a unit is lost while it is in use. It goes to all units that take part before
/// any serves in it; so one that shows an older epoch has missed something, unless the new one never came to serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superblock {
    /// The store's own number.
    pub volume: [u8; 16],
    /// The unit's.
    pub unit: u32,
    /// How the store is cut.
    pub geometry: Geometry,
    /// Raised with each write of it.
    pub seq: u64,
    /// The epoch, and the one before.
    pub epoch: u64,
    /// The epoch that it follows.
    pub before: u64,
    /// Who takes part.
    pub members: Members,
    /// Who is written to and not read: units that are being rebuilt.
    pub joiners: Members,
    /// How far that is, if this is one of them.
    pub joining: Option<Mark>,
    /// All of them know.
    pub serving: bool,
    /// Counts the epochs: what rows written in this one have as their blocks' generation.
    pub generation: u32,
    /// Transactions up to this one have reached their places on every unit.
    pub trimmed: u64,
}

/// How far a unit is rebuilt: what is behind the mark is durable on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The next word.
    pub at: Cursor,
    /// Objects from this number on were begun when the unit was joining already, and were written to it, too.
    pub born: u64,
    /// Words behind the mark that could not be rebuilt.
    pub damaged: u64,
}

/// A change, as one unit's log has it: all of it, so that any log that has it is enough.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record<A = Action> {
    /// Whose log it is.
    pub volume: [u8; 16],
    /// Whose log it is.
    pub unit: u32,
    /// In which epoch.
    pub epoch: u64,
    /// Its number: they rise.
    pub tx: u64,
    /// What is changed.
    pub action: A,
}

/// A change. All values are absolute, so it may be done again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Names and what they stand for from now on; without an entry it is forgotten.
    Names(Vec<(String, Option<Entry>)>),
    /// Blocks, each with its unit.
    Blocks(Vec<(u32, Patch)>),
}

/// A block and its checksums, as they are to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// The object.
    pub object: u64,
    /// The block in the unit's file, and its content.
    #[serde(with = "super::raw::placed")]
    pub block: Option<(u64, Vec<u8>)>,
    /// Where in the file of checksums, and what.
    pub sums: Vec<(u64, Vec<u8>)>,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its object.
    pub object: u64,
    /// Blocks of it that belong to the dataset.
    pub blocks: u64,
    /// What the layers above know of it.
    #[serde(with = "super::raw::plain")]
    pub about: Vec<u8>,
}

/// All names, as of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    /// The store's own number.
    pub volume: [u8; 16],
    /// Whose it is.
    pub unit: u32,
    /// The last transaction that is in it.
    pub tx: u64,
    /// The next new object.
    pub next_object: u64,
    /// The names.
    pub names: BTreeMap<String, Entry>,
}
