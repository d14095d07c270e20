//! The records of a unit: its superblock, its log and its catalog.

use super::geometry::{Geometry, MAX_UNIT_BLOCKS};
use super::sealed::Kind;
use super::span::Cursor;
use super::sums::{stride, SUM};
use super::BLOCK;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The superblock's kind and version.
pub const SUPERBLOCK: Kind = *b"pd-unit\x03";
/// A log record's kind and version.
pub const RECORD: Kind = *b"pd-tell\x04";
/// A catalog's kind and version.
pub const CATALOG: Kind = *b"pd-name\x02";
/// The same of what is added to one.
pub const ADDITION: Kind = *b"pd-more\x01";
/// Numbers of objects are below this.
pub const MAX_OBJECTS: u64 = 1 << 48;
/// Nobody counts so far: epochs, transactions, writes of a superblock.
const MOST: u64 = 1 << 62;
/// Where one of these is so far no epoch begins any more: what it takes up to its end can still be read
/// again.
pub const LAST: u64 = MOST - (1 << 48);
/// The same of generations.
pub const LAST_GENERATION: u64 = u32::MAX as u64 - (1 << 16);
/// Epochs before it that a superblock names, at most.
pub const LINE: usize = 128;
/// Epochs before it of which catalogs have the marks, at most.
pub const HISTORY: usize = 1 << 12;
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

/// An epoch. Its count is higher than that of any other that its units know of. Its nonce is drawn at random
/// when it begins: of two copies of a unit each may begin one of the same count, and they are not the same
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch {
    /// Its number.
    pub count: u64,
    /// What tells it from others of this number.
    pub nonce: u64,
}

impl Epoch {
    /// What is drawn with it, as short as blocks have it.
    pub fn mark(self) -> u32 {
        (self.nonce >> 32 ^ self.nonce) as u32
    }
}

/// An epoch that went before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// It.
    pub epoch: Epoch,
    /// The lowest generation of what was written in it; 0 of one in which nothing was that counts.
    pub generation: u32,
}

impl std::fmt::Display for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{:016x}", self.count, self.nonce)
    }
}

/// What a superblock tells of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It is the one, or comes before it.
    Known,
    /// It is none that came before, though all of that time are known: it belongs to units that have gone on
    /// apart.
    Apart,
    /// It is older than what is still known.
    Unknown,
}

/// The identity of a unit, and since when it has taken part without a gap.
///
/// An epoch begins when a store is opened, and when a unit is lost while it is in use. It goes to all units
/// that take part before any serves in it; so one that shows an older epoch has missed something, unless the
/// new one never came to serve.
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
    /// The epoch.
    pub epoch: Epoch,
    /// Those that it follows, the newest first: all that may have been served, up to [`LINE`].
    pub line: Vec<Past>,
    /// The units that take part.
    pub members: Members,
    /// Units that are written to and not read, since they are being rebuilt.
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

impl Superblock {
    /// Whether such a one can have been written: with others nothing could be counted on.
    pub fn is_possible(&self) -> bool {
        let epochs = self.line.iter().map(|past| past.epoch.count);
        let mut counts = [self.seq, self.epoch.count, self.trimmed].into_iter().chain(epochs);
        counts.all(|n| n < MOST)
            && self.line.len() <= LINE
            && self.generation < u32::MAX
            && self.joining.is_none_or(|mark| mark.born <= MAX_OBJECTS)
    }

    /// The epoch that it follows.
    pub fn before(&self) -> Epoch {
        self.line.first().map_or(Epoch::default(), |past| past.epoch)
    }

    /// The last epoch that may have been served, as far as it says.
    pub fn served(&self) -> Epoch {
        if self.serving {
            self.epoch
        } else {
            self.before()
        }
    }

    /// What it tells of an epoch that may have been served.
    pub fn relation(&self, other: Epoch) -> Relation {
        let all = || self.line.iter().map(|past| past.epoch).chain([self.epoch]);
        let first = all().map(|epoch| epoch.count).min().unwrap_or(0);
        if other == Epoch::default() || all().any(|epoch| epoch == other) {
            Relation::Known
        } else if other.count >= first || self.line.len() < LINE {
            Relation::Apart
        } else {
            Relation::Unknown
        }
    }
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
    pub epoch: Epoch,
    /// Its number: they rise.
    pub tx: u64,
    /// What is changed.
    pub action: A,
}

impl Record {
    /// Whether such a one can have been written in a store that is cut so.
    pub fn is_possible(&self, geometry: Geometry) -> bool {
        self.tx < MOST
            && match &self.action {
                Action::Names(changes) => changes
                    .iter()
                    .filter_map(|(_, entry)| entry.as_ref())
                    .all(|entry| entry.is_possible(geometry)),
                Action::Blocks(patches) => patches
                    .iter()
                    .all(|(unit, patch)| *unit < geometry.units() && patch.is_possible(geometry)),
            }
    }
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

impl Patch {
    /// The block, and entries of its word.
    fn is_possible(&self, geometry: Geometry) -> bool {
        let Some((block, bytes)) = &self.block else { return false };
        let (each, entry) = (stride(geometry) as u64, SUM as u64);
        self.object < MAX_OBJECTS
            && *block < MAX_UNIT_BLOCKS
            && bytes.len() == BLOCK
            && self.sums.iter().all(|(at, sum)| at / each == *block && at % entry == 0 && sum.len() == SUM)
    }
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

impl Entry {
    /// Whether a store that is cut so can have it.
    fn is_possible(&self, geometry: Geometry) -> bool {
        self.object < MAX_OBJECTS && self.blocks <= geometry.most_blocks()
    }
}

/// All names as a unit has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    /// The store's own number.
    pub volume: [u8; 16],
    /// Whose it is.
    pub unit: u32,
    /// What all have alike.
    pub table: NameTable,
}

/// All names, as of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameTable {
    /// The last transaction that is in it.
    pub tx: u64,
    /// The next new object.
    pub next_object: u64,
    /// The names.
    pub names: BTreeMap<String, Entry>,
    /// Of the epochs before, up to [`HISTORY`], the lowest generation of what was written in each, and its
    /// mark.
    pub history: BTreeSet<(u32, u32)>,
}

impl NameTable {
    /// Whether such a one can have been written.
    pub fn is_possible(&self, geometry: Geometry) -> bool {
        self.tx < MOST
            && self.next_object <= MAX_OBJECTS
            && self.history.len() <= HISTORY
            && self.names.values().all(|entry| entry.is_possible(geometry))
    }
}

/// What became of names after a catalog was written: it stands behind that, and those that were added before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addition {
    /// The store's own number.
    pub volume: [u8; 16],
    /// Whose it is.
    pub unit: u32,
    /// The checksum of the catalog: others than that mean nothing.
    pub catalog: u32,
    /// What all have alike.
    pub changed: NameChanges,
}

/// What became of names since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameChanges {
    /// The last transaction that is in what stands before it.
    pub before: u64,
    /// The last that is in it.
    pub tx: u64,
    /// The next new object.
    pub next_object: u64,
    /// Names, and what they stand for from now on.
    pub changes: Vec<(String, Option<Entry>)>,
    /// What there is of the history since.
    pub history: Vec<(u32, u32)>,
}

impl NameChanges {
    /// Whether such a one can have been written.
    pub fn is_possible(&self, geometry: Geometry) -> bool {
        let entries = self.changes.iter().filter_map(|(_, entry)| entry.as_ref());
        self.tx < MOST
            && self.before <= self.tx
            && self.next_object <= MAX_OBJECTS
            && self.history.len() <= HISTORY
            && entries.into_iter().all(|entry| entry.is_possible(geometry))
    }

    /// Puts it into a catalog.
    pub fn apply(self, table: &mut NameTable) {
        (table.tx, table.next_object) = (self.tx, self.next_object);
        table.history.extend(self.history);
        for (name, entry) in self.changes {
            match entry {
                Some(entry) => drop(table.names.insert(name, entry)),
                None => drop(table.names.remove(&name)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_can_have_written_is_seen() {
        let geometry = Geometry::new(2, 1, 4096).unwrap();
        let epoch = |count| Epoch { count, nonce: u64::MAX };
        let good = some(vec![past(epoch(1))]);
        assert!(good.is_possible());
        let bad: [fn(&mut Superblock); 7] = [
            |s| s.seq = u64::MAX,
            |s| s.epoch.count = MOST,
            |s| s.line[0].epoch.count = MOST,
            |s| s.trimmed = MOST,
            |s| s.line = vec![Past::default(); LINE + 1],
            |s| s.generation = u32::MAX,
            |s| s.joining = Some(Mark { born: u64::MAX, ..Mark::default() }),
        ];
        for change in bad {
            let mut block = good.clone();
            change(&mut block);
            assert!(!block.is_possible(), "{block:?}");
        }
        let record = |tx, action| Record { volume: [1; 16], unit: 0, epoch: epoch(2), tx, action };
        let blocks = |unit, object, len| {
            let (block, sums) = (Some((9, vec![0; len])), vec![(9 * 36 + 24, vec![0; SUM])]);
            Action::Blocks(vec![(unit, Patch { object, block, sums })])
        };
        let patch = |block, at, len| {
            let (block, sums) = (Some((block, vec![0; BLOCK])), vec![(at, vec![0; len])]);
            Action::Blocks(vec![(0, Patch { object: 0, block, sums })])
        };
        let entry = |object| Entry { object, blocks: 1, about: Vec::new() };
        let names = |object| Action::Names(vec![("x".into(), Some(entry(object))), ("y".into(), None)]);
        for good in [blocks(2, 0, BLOCK), names(MAX_OBJECTS - 1)] {
            assert!(record(5, good.clone()).is_possible(geometry));
            assert!(!record(MOST, good).is_possible(geometry));
        }
        for bad in [blocks(3, 0, BLOCK), blocks(0, MAX_OBJECTS, BLOCK), blocks(0, 0, 10), names(u64::MAX)] {
            assert!(!record(5, bad).is_possible(geometry));
        }
        assert!(record(5, patch(MAX_UNIT_BLOCKS - 1, 36 * (MAX_UNIT_BLOCKS - 1), SUM)).is_possible(geometry));
        for (block, at, len) in [
            (MAX_UNIT_BLOCKS, 36 * MAX_UNIT_BLOCKS, SUM),
            (u64::MAX, 0, SUM),
            (9, 10 * 36, SUM),
            (9, 8 * 36, SUM),
            (9, u64::MAX - 11, SUM),
            (9, 9 * 36 + 4, SUM),
            (9, 9 * 36, 2 * SUM),
        ] {
            assert!(!record(5, patch(block, at, len)).is_possible(geometry), "{block}, {at}, {len}");
        }
        let long = |blocks| Entry { blocks, ..entry(0) }.is_possible(geometry);
        assert!(long(geometry.most_blocks()) && !long(geometry.most_blocks() + 1) && !long(u64::MAX));
        let catalog = |next_object, object| NameTable {
            next_object,
            names: [("x".to_owned(), entry(object))].into(),
            ..NameTable::default()
        };
        assert!(catalog(MAX_OBJECTS, 3).is_possible(geometry));
        assert!(!catalog(MAX_OBJECTS + 1, 3).is_possible(geometry));
        assert!(!catalog(4, u64::MAX).is_possible(geometry));
    }

    #[test]
    fn what_a_superblock_tells_of_epochs() {
        let epoch = |count| Epoch { count, nonce: 7 };
        let mut block = Superblock { epoch: epoch(9), ..some([8, 6, 5].map(|n| past(epoch(n))).into()) };
        for known in [9, 8, 6, 5].map(epoch).into_iter().chain([Epoch::default()]) {
            assert_eq!(block.relation(known), Relation::Known);
        }
        for apart in
            [epoch(10), epoch(7), Epoch { nonce: 8, ..epoch(9) }, Epoch { nonce: 8, ..epoch(5) }, epoch(4)]
        {
            assert_eq!(block.relation(apart), Relation::Apart, "{apart}");
        }
        assert_eq!((block.before(), block.served()), (epoch(8), epoch(9)));
        block.serving = false;
        assert_eq!(block.served(), epoch(8));
        block.line = (0..LINE as u64).rev().map(|i| past(epoch(10 + i))).collect();
        assert_eq!(
            (block.relation(epoch(4)), block.relation(epoch(8))),
            (Relation::Unknown, Relation::Unknown)
        );
        assert_eq!(block.relation(Epoch { nonce: 8, ..epoch(12) }), Relation::Apart);
        // It fits into its slot, however far it counts.
        let last = Epoch { count: MOST - 1, nonce: u64::MAX };
        block.line = vec![Past { epoch: last, generation: u32::MAX - 1 }; LINE];
        (block.members, block.joiners) = (Members(u128::MAX), Members(u128::MAX));
        (block.seq, block.trimmed) = (MOST - 1, MOST - 1);
        assert!(super::super::sealed::seal(SUPERBLOCK, &block).len() <= SLOT);
    }

    fn past(epoch: Epoch) -> Past {
        Past { epoch, generation: 1 }
    }

    fn some(line: Vec<Past>) -> Superblock {
        Superblock {
            volume: [1; 16],
            unit: 2,
            geometry: Geometry::new(2, 1, 4096).unwrap(),
            seq: 1,
            epoch: Epoch { count: 2, nonce: u64::MAX },
            line,
            members: Members(7),
            joiners: Members(0),
            joining: Some(Mark::default()),
            serving: true,
            generation: u32::MAX - 1,
            trimmed: MOST - 1,
        }
    }
}
