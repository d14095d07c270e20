//! Units that were cut short, or whose disks lost writes or made them elsewhere: found by whoever reads and
//! by a scrub, given right, and repaired.

use crate::rig::{part, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_store::disk::{nonce, Store, StoreReader, StoreWriter, StoredArray};
use polyduct_store::volume::{Scrub, BLOCK};
use polyduct_store::{Expect, Options};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

const BLOCKS: usize = 16;
const LEN: usize = BLOCKS * BLOCK;
/// Bytes of a store's entries for each of a unit's blocks.
const STRIDE: usize = 12 * (1 + DATA as usize);
const DATA: u32 = 2;
const UNITS: u32 = DATA + 1;

/// A store with a dataset, and what that has.
struct Used {
    place: Place,
    bytes: Vec<u8>,
}

/// The files of a unit, with their bytes.
type Files = BTreeMap<&'static str, Vec<u8>>;

impl Used {
    fn new() -> Used {
        let place = Place::store(DATA, 1, BLOCK as u64);
        let dataset = Dataset::new(&[LEN as u64], ElemType::U8).unwrap();
        let bytes = part(&dataset, "*", 0, 1, 0);
        let mut out = StoreWriter::open(&place.0, "x", &dataset, "*", false, &Options::default()).unwrap();
        out.write(&bytes).unwrap();
        out.close().unwrap();
        let mut used = Used { place, bytes };
        used.overwrite(3, 9);
        used
    }

    fn dir(&self) -> &Path {
        &self.place.0
    }

    /// Fills a block, so that it is in its place for good: no log says any more what it is to be.
    fn overwrite(&mut self, block: usize, byte: u8) {
        let range = block * BLOCK..(block + 1) * BLOCK;
        self.bytes[range.clone()].fill(byte);
        let array = StoredArray::open(self.dir(), "x").unwrap();
        let (lo, hi) = ([range.start as u64], [range.end as u64]);
        array.write_box(0..1, &lo, &hi, &self.bytes[range]).unwrap();
        // The next owner begins an epoch, and so does each after it.
        (0..2).for_each(|_| drop(Store::open(self.dir()).unwrap().own().unwrap()));
    }

    fn path(&self, unit: u32, file: &str) -> PathBuf {
        self.dir().join(format!("unit{unit}")).join(file)
    }

    /// What a unit has of the dataset.
    fn files(&self, unit: u32) -> Files {
        let read = |file: &'static str| (file, std::fs::read(self.path(unit, file)).unwrap());
        ["objects/0.data", "objects/0.sums"].map(read).into()
    }

    fn put(&self, unit: u32, files: &Files) {
        files.iter().for_each(|(file, bytes)| std::fs::write(self.path(unit, file), bytes).unwrap());
    }

    /// Both ways of reading give what was written.
    fn is_right(&self, case: &str) {
        let mut port =
            StoreReader::open(self.dir(), "x", "*", &Expect::default(), &Options::default()).unwrap();
        let mut bytes = vec![0; LEN];
        assert_eq!(port.read(&mut bytes).unwrap(), Some(0));
        assert!(bytes == self.bytes, "{case}: a port");
        self.array_is_right(case);
    }

    fn array_is_right(&self, case: &str) {
        let mut bytes = vec![0; LEN];
        let array = StoredArray::open(self.dir(), "x").unwrap();
        array.read_box(0..1, &[0], &[LEN as u64], &mut bytes).unwrap();
        assert!(bytes == self.bytes, "{case}: an array");
    }

    /// Checks all words; gives of each unit how many blocks were made good.
    fn scrub(&self) -> BTreeMap<u32, u64> {
        let store = Store::open(self.dir()).unwrap();
        let mut scrub = Scrub::new();
        while !store.own().unwrap().scrub(&mut scrub, 3).unwrap().finished {}
        assert_eq!(scrub.report().damaged, 0);
        scrub.report().repaired.clone()
    }

    /// A unit's files are not what they were. Whoever looks first, what was written is given, and a scrub
    /// makes `blocks` good.
    fn is_found(&self, unit: u32, right: &Files, wrong: &Files, blocks: u64, case: &str) {
        assert!(wrong != right, "{case}: else it shows nothing");
        self.put(unit, wrong);
        self.is_right(case);
        self.put(unit, wrong);
        self.array_is_right(case);
        self.put(unit, wrong);
        assert_eq!(self.scrub(), BTreeMap::from([(unit, blocks)]), "{case}");
        assert!(self.scrub().is_empty(), "{case}: it is found a second time");
        assert!(self.files(unit)["objects/0.data"] == right["objects/0.data"], "{case}: it is not as it was");
        // The repair is of use: another unit may be lost.
        let other = (unit + 1) % UNITS;
        let away = self.place.lose(other);
        self.is_right(&format!("{case}, and unit {other} lost"));
        std::fs::remove_dir_all(away).unwrap();
        self.bring_back(other, false);
    }

    /// Replaces a unit, and rebuilds it.
    fn bring_back(&self, unit: u32, force: bool) {
        let mut store = Store::open(self.dir()).unwrap();
        store.replace(unit, None, force).unwrap();
        while !store.own().unwrap().rebuild(unit, 100, nonce()).unwrap().finished {}
    }
}

#[test]
fn blocks_that_went_to_each_others_places_are_found() {
    let used = Used::new();
    for unit in 0..UNITS {
        // With the blocks their entries may have gone, too.
        for with_entries in [false, true] {
            let right = used.files(unit);
            let mut wrong = right.clone();
            let swap = |bytes: &mut Vec<u8>, each: usize| {
                let (one, other) = bytes.split_at_mut(3 * each);
                one[2 * each..].swap_with_slice(&mut other[..each]);
            };
            swap(wrong.get_mut("objects/0.data").unwrap(), BLOCK);
            if with_entries {
                swap(wrong.get_mut("objects/0.sums").unwrap(), STRIDE);
            }
            used.is_found(unit, &right, &wrong, 2, &format!("unit {unit}, entries {with_entries}"));
        }
    }
}

/// A block and its entry are what they were before: right in themselves.
#[test]
fn a_write_that_was_lost_is_found() {
    let mut used = Used::new();
    let mut byte = 100;
    let mut concerned = 0;
    // Words of which another unit has the parity each time.
    for block in [0, 2, 4] {
        byte += 1;
        let before: Vec<Files> = (0..UNITS).map(|unit| used.files(unit)).collect();
        used.overwrite(block, byte);
        for (unit, old) in (0..).zip(&before) {
            let right = used.files(unit);
            let mut wrong = right.clone();
            let word = block / DATA as usize;
            for (file, each) in [("objects/0.data", BLOCK), ("objects/0.sums", STRIDE)] {
                let range = word * each..(word + 1) * each;
                wrong.get_mut(file).unwrap()[range.clone()].copy_from_slice(&old[file][range]);
            }
            if wrong["objects/0.data"] == right["objects/0.data"] {
                continue;
            }
            concerned += 1;
            used.is_found(unit, &right, &wrong, 1, &format!("block {block}, unit {unit}"));
        }
    }
    assert_eq!(concerned, 6, "of each word a block of data and one of parity");
}

/// Any file of a unit ends too soon, or is empty.
#[test]
fn a_unit_that_was_cut_short_is_made_good() {
    let used = Used::new();
    let files = ["objects/0.data", "objects/0.sums", "superblock", "log", "catalog0", "catalog1"];
    for file in files {
        for part in [0, 1, 2] {
            let path = used.path(1, file);
            let len = std::fs::metadata(&path).unwrap().len();
            assert!(len > 0, "{file}");
            // Its end is missing, half of it, or all.
            let end = if file.ends_with("sums") { STRIDE as u64 } else { 1 };
            let left = [len - end, len / 2, 0][part];
            let cut = || File::options().write(true).open(&path).unwrap().set_len(left).unwrap();
            let case = format!("{file}, {left} of {len}");
            cut();
            used.is_right(&case);
            // The reader may have repaired it.
            cut();
            let repaired = used.scrub();
            assert!(file.starts_with("objects") == repaired.contains_key(&1), "{case}: {repaired:?}");
            let lost = Store::open(used.dir()).unwrap().own().unwrap().lost().any(|(unit, _)| unit == 1);
            assert!(!lost || !file.starts_with("objects"), "{case}");
            if lost {
                // Without a superblock nobody knows whose it is.
                used.bring_back(1, file == "superblock");
            }
            assert!(used.scrub().is_empty(), "{case}: not all was made good");
        }
        let away = used.place.lose(0);
        used.is_right(&format!("{file}, and unit 0 lost"));
        std::fs::remove_dir_all(away).unwrap();
        used.bring_back(0, false);
    }
}

/// Files beside the objects that no store has made are nobody's objects.
#[test]
fn stray_files_are_no_objects() {
    let used = Used::new();
    let stray = [
        "ffffffffffffffff.data",
        "1000000000000.sums",
        "+7.data",
        "0A.sums",
        "07.data",
        "a.data.old",
        "1.txt",
        ".data",
    ];
    for unit in 0..UNITS {
        for file in stray {
            std::fs::write(used.path(unit, "objects").join(file), b"not ours").unwrap();
        }
    }
    let dataset = Dataset::new(&[LEN as u64], ElemType::U8).unwrap();
    for name in ["y", "z"] {
        let mut out = StoreWriter::open(used.dir(), name, &dataset, "*", false, &Options::default()).unwrap();
        out.write(&used.bytes).unwrap();
        out.close().unwrap();
        used.is_right(name);
    }
    // Whatever brings a store into order leaves them alone.
    drop(Store::open(used.dir()).unwrap().own().unwrap());
    for unit in 0..UNITS {
        let is_there = |file: &&str| used.path(unit, "objects").join(file).exists();
        assert!(stray.iter().all(is_there), "unit {unit}");
        assert!(used.path(unit, "objects/2.data").exists(), "numbers go on as they were");
    }
}
