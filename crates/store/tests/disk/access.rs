//! Boxes of datasets, by single processes: any box, with and without lost units, and several at once.

use crate::rig::{byte, each, part, write, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_port::PortError;
use polyduct_store::disk::{split, Create, Slice, Store, StoreError, StoredArray};
use polyduct_store::volume::{VolumeError, BLOCK};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Numbers that look random, and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n.max(1)
    }

    fn range(&mut self, n: u64) -> Range<u64> {
        let (a, b) = (self.below(n + 1), self.below(n + 1));
        a.min(b)..a.max(b)
    }
}

/// All steps of a dataset as one array of bytes, and boxes of it taken element by element.
struct Oracle {
    dataset: Dataset,
    steps: u64,
    bytes: Vec<u8>,
}

/// A box of some steps.
struct Part {
    steps: Range<u64>,
    lo: Vec<u64>,
    hi: Vec<u64>,
}

impl Oracle {
    fn new(dataset: Dataset, steps: u64) -> Oracle {
        let bytes = (0..steps).flat_map(|step| part(&dataset, &all(&dataset), 0, 1, step)).collect();
        Oracle { dataset, steps, bytes }
    }

    fn any_box(&self, random: &mut Random) -> Part {
        let (lo, hi) =
            self.dataset.shape().iter().map(|&n| random.range(n)).map(|r| (r.start, r.end)).unzip();
        Part { steps: random.range(self.steps), lo, hi }
    }

    /// Where the bytes of a box are, in its order.
    fn places(&self, of: &Part) -> Vec<usize> {
        let (shape, elem) = (self.dataset.shape(), self.dataset.elem().len_bytes());
        let count: u64 = shape.iter().product();
        let mut places = Vec::new();
        for step in of.steps.clone() {
            for n in 0..count {
                let mut rest = n;
                let inside = (0..shape.len()).rev().all(|d| {
                    let i = rest % shape[d];
                    rest /= shape[d];
                    (of.lo[d]..of.hi[d]).contains(&i)
                });
                if inside {
                    places.extend((0..elem).map(|b| ((step * count + n) * elem + b) as usize));
                }
            }
        }
        places
    }

    fn check(&self, array: &StoredArray, of: &Part) {
        let expected: Vec<u8> = self.places(of).into_iter().map(|at| self.bytes[at]).collect();
        let mut got = vec![0xAA; expected.len()];
        array.read_box(of.steps.clone(), &of.lo, &of.hi, &mut got).unwrap();
        assert!(got == expected, "steps {:?}, {:?}..{:?}", of.steps, of.lo, of.hi);
    }

    /// Every so many-th index of each dimension, steps included.
    fn check_slices(&self, array: &StoredArray, random: &mut Random) {
        let mut slice = |n: u64| {
            let (start, step) = (random.below(n), 1 + random.below(4));
            Slice { start, count: n.saturating_sub(start).div_ceil(step), step }
        };
        let steps = slice(self.steps);
        let of: Vec<Slice> = self.dataset.shape().iter().map(|&n| slice(n)).collect();
        let part = self.whole();
        let is_in = |slice: &Slice, i: u64| i >= slice.start && (i - slice.start).is_multiple_of(slice.step);
        let chosen = |n: &usize| {
            let mut rest = *n as u64 / self.dataset.elem().len_bytes();
            let inside = of.iter().zip(self.dataset.shape()).rev().all(|(slice, extent)| {
                let i = rest % extent;
                rest /= extent;
                is_in(slice, i)
            });
            inside && is_in(&steps, rest)
        };
        let expected: Vec<u8> =
            self.places(&part).into_iter().filter(chosen).map(|at| self.bytes[at]).collect();
        let mut got = vec![0xAA; expected.len()];
        array.read(steps, &of, &mut got).unwrap();
        assert!(got == expected, "{steps:?} {of:?}");
    }

    fn whole(&self) -> Part {
        let shape = self.dataset.shape();
        Part { steps: 0..self.steps, lo: vec![0; shape.len()], hi: shape.to_vec() }
    }

    fn write(&mut self, array: &StoredArray, of: &Part, random: &mut Random) {
        let places = self.places(of);
        let bytes: Vec<u8> = places.iter().map(|_| random.below(256) as u8).collect();
        array.write_box(of.steps.clone(), &of.lo, &of.hi, &bytes).unwrap();
        places.iter().zip(bytes).for_each(|(&at, byte)| self.bytes[at] = byte);
    }
}

fn all(dataset: &Dataset) -> String {
    vec!["*"; dataset.shape().len()].join(",")
}

fn put(place: &Place, name: &str, dataset: &Dataset, append: bool, steps: Range<u64>) {
    for result in write(&place.0, name, dataset, &all(dataset), 1, append, steps) {
        result.unwrap();
    }
}

fn open(place: &Place, name: &str) -> StoredArray {
    StoredArray::open(&place.0, name).unwrap()
}

const CODES: [(u32, u32, u64); 5] = [(1, 0, 4096), (4, 0, 8192), (2, 1, 4096), (4, 2, 4096), (2, 1, 65536)];

#[test]
fn any_box_is_read_and_overwritten_with_and_without_lost_units() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for (data, parity, stripe) in CODES {
        let place = Place::store(data, parity, stripe);
        let sets: Vec<(String, Oracle)> =
            [(&[33, 700][..], ElemType::F32, 3), (&[50], ElemType::F64, 7), (&[9, 5, 40], ElemType::I16, 1)]
                .into_iter()
                .enumerate()
                .map(|(n, (shape, elem, steps))| {
                    let (name, dataset) = (format!("d/{n}"), Dataset::new(shape, elem).unwrap());
                    let first = steps.min(2);
                    put(&place, &name, &dataset, true, 0..first);
                    if steps > first {
                        put(&place, &name, &dataset, true, first..steps);
                    }
                    (name, Oracle::new(dataset, steps))
                })
                .collect();
        let mut away = Vec::new();
        let mut sets: Vec<_> = sets.into_iter().map(|(name, o)| (open(&place, &name), o, name)).collect();
        for lost in 0..=parity {
            if lost > 0 {
                // The arrays that are open know nothing of it, those that are opened do.
                away.push((lost - 1, place.lose(lost - 1)));
            }
            for (array, oracle, name) in &mut sets {
                for _ in 0..25 {
                    let of = oracle.any_box(&mut random);
                    oracle.check(array, &of);
                    oracle.check_slices(array, &mut random);
                }
                for _ in 0..3 {
                    let mut of = oracle.any_box(&mut random);
                    of.steps.end = of.steps.end.min(of.steps.start + 1);
                    if let [rows, ..] = &mut of.hi[..] {
                        *rows = (*rows).min(of.lo[0] + 3);
                    }
                    oracle.write(array, &of, &mut random);
                    oracle.check(array, &of);
                }
                *array = open(&place, name);
                oracle.check(array, &oracle.whole());
            }
        }
        // They come back, stale: nothing of them is taken for what it was.
        for (unit, path) in away {
            std::fs::rename(path, place.0.join(format!("unit{unit}"))).unwrap();
        }
        for (old, oracle, name) in &sets {
            for array in [old, &open(&place, name)] {
                oracle.check(array, &oracle.whole());
            }
        }
    }
}

#[test]
fn large_boxes_come_in_several_batches() {
    let place = Place::store(3, 1, 65536);
    let dataset = Dataset::new(&[3000, 2000], ElemType::F32).unwrap();
    put(&place, "large", &dataset, false, 0..1);
    let array = open(&place, "large");
    for (lo, hi) in [([0, 0], [3000, 2000]), ([17, 5], [2995, 1999]), ([0, 1023], [3000, 1025])] {
        let mut got = vec![0; ((hi[0] - lo[0]) * (hi[1] - lo[1]) * 4) as usize];
        array.read_box(0..1, &lo, &hi, &mut got).unwrap();
        let row = ((hi[1] - lo[1]) * 4) as usize;
        for (i, found) in (lo[0]..hi[0]).zip(got.chunks(row)) {
            let first = (i * 2000 + lo[1]) * 4;
            assert!(found.iter().zip(first..).all(|(&b, at)| b == byte(0, at)), "row {i}");
        }
    }
}

/// The data file of a unit's only object.
fn data_file(place: &Place, unit: u32) -> std::fs::File {
    let entries = std::fs::read_dir(place.0.join(format!("unit{unit}/objects"))).unwrap();
    let mut files = entries.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "data"));
    let path = files.next().unwrap();
    std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn flip(file: &std::fs::File, at: u64) {
    let mut one = [0];
    file.read_exact_at(&mut one, at).unwrap();
    file.write_all_at(&[one[0] ^ 4], at).unwrap();
}

#[test]
fn what_is_damaged_is_repaired_and_only_what_is_needed_is_read() {
    let dataset = Dataset::new(&[64 * BLOCK as u64], ElemType::U8).unwrap();
    let block = |n: u64| ([n * BLOCK as u64], [(n + 1) * BLOCK as u64]);
    let place = Place::store(2, 1, 4096);
    put(&place, "a", &dataset, false, 0..1);
    let array = open(&place, "a");
    let file = data_file(&place, 0);
    let content = || {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let before = content();
    for at in (0..before.len()).step_by(BLOCK) {
        flip(&file, (at + at / 7 % BLOCK) as u64);
    }
    let oracle = Oracle::new(dataset, 1);
    oracle.check(&array, &oracle.whole());
    let geometry = Store::open(&place.0).unwrap().geometry();
    for (row, (before, after)) in (0..).zip(before.chunks(BLOCK).zip(content().chunks(BLOCK))) {
        // Nobody wanted parity.
        let wanted = geometry.chunk(row, 0) < geometry.data();
        assert_eq!(before == after, wanted, "row {row}");
    }

    // Without parity damage is an error, of the blocks that have it and of no others.
    let mut got = vec![0; BLOCK];
    let place = Place::store(1, 0, 4096);
    put(&place, "a", &dataset, false, 0..1);
    let array = open(&place, "a");
    flip(&data_file(&place, 0), 5 * BLOCK as u64 + 100);
    for n in 0..64 {
        let (lo, hi) = block(n);
        let read = array.read_box(0..1, &lo, &hi, &mut got);
        match n {
            5 => assert!(
                matches!(
                    &read,
                    Err(StoreError::Volume { source: VolumeError::Damaged { block: 5, .. }, .. })
                ),
                "{read:?}"
            ),
            _ => assert!(read.is_ok() && got[0] == byte(0, lo[0]), "block {n}: {read:?}"),
        }
    }
}

#[test]
fn several_overwrite_at_once_and_readers_see_whole_blocks() {
    let place = Place::store(2, 1, 8192);
    let dataset = Dataset::new(&[6, 1000], ElemType::F64).unwrap();
    put(&place, "x", &dataset, false, 0..1);
    let before = part(&dataset, "*,*", 0, 1, 0);
    // Rows of two writers share blocks.
    let row = |writer: u32, turn: u64, i: u64| vec![0x80 | (writer as u8) << 5 | (turn * 6 + i) as u8; 8000];
    let (turns, writing) = (4, std::sync::atomic::AtomicU32::new(2));
    each(3, |unit| {
        let array = open(&place, "x");
        if unit < 2 {
            for turn in 0..turns {
                for i in (u64::from(unit)..6).step_by(2) {
                    array.write_box(0..1, &[i, 0], &[i + 1, 1000], &row(unit, turn, i)).unwrap();
                }
            }
            writing.fetch_sub(1, std::sync::atomic::Ordering::Release);
            return;
        }
        let mut over = false;
        while !over {
            over = writing.load(std::sync::atomic::Ordering::Acquire) == 0;
            let mut got = vec![0; before.len()];
            array.read_box(0..1, &[0, 0], &[6, 1000], &mut got).unwrap();
            for i in 0..6 {
                let writer = (i % 2) as u32;
                let mut last = 0;
                for (n, element) in got[i * 8000..(i + 1) * 8000].chunks(8).enumerate() {
                    let at = i * 8000 + n * 8;
                    let turn = (0..turns).find(|&turn| element == &row(writer, turn, i as u64)[..8]);
                    assert!(turn.is_some() || element == &before[at..at + 8], "row {i}, element {n}");
                    // A row is written from its beginning.
                    let age = turn.map_or(0, |turn| turn + 1);
                    assert!(n == 0 || at % BLOCK == 0 || age == last, "a block of row {i} is torn at {n}");
                    last = age;
                }
                assert!(!over || last == turns, "row {i} is old after it was written");
            }
        }
    });
}

#[test]
fn the_version_that_was_opened_stays_and_is_not_written_any_more() {
    let place = Place::store(2, 1, 4096);
    let dataset = Dataset::new(&[10_000], ElemType::U8).unwrap();
    put(&place, "a/b", &dataset, false, 0..2);
    let (old, other) = (open(&place, "a/b"), open(&place, "a/b"));
    other.write_box(1..2, &[5000], &[5003], &[1, 2, 3]).unwrap();
    let mut got = [0; 3];
    old.read_box(1..2, &[5000], &[5003], &mut got).unwrap();
    assert_eq!(got, [1, 2, 3], "what was told to be written is seen by all");

    let store = Store::open(&place.0).unwrap();
    store.rename("a", "c").unwrap();
    old.write_box(1..2, &[5000], &[5003], &[4, 5, 6]).unwrap();
    let attributes = old.change_attributes(|all| drop(all.insert("unit".into(), "K".into()))).unwrap();
    assert_eq!(open(&place, "c/b").meta().attributes, attributes);
    put(&place, "c/b", &dataset, false, 7..8);
    drop(store.own().unwrap());
    other.read_box(1..2, &[5000], &[5003], &mut got).unwrap();
    assert_eq!(got, [4, 5, 6]);
    let error = old.write_box(0..1, &[0], &[1], &[0]).unwrap_err();
    assert!(matches!(error, StoreError::NotThere { .. }), "{error}");
    assert!(old.change_attributes(|_| ()).is_err());
    assert_eq!(open(&place, "c/b").steps(), 1);
}

#[test]
fn boxes_that_are_not_there_are_errors_and_empty_ones_are_none() {
    let place = Place::store(2, 1, 4096);
    let dataset = Dataset::new(&[4, 6], ElemType::U8).unwrap();
    put(&place, "x", &dataset, false, 0..2);
    let array = open(&place, "x");
    for (steps, lo, hi, says) in [
        (0..3, &[0, 0][..], &[4, 6][..], "the range of steps is 0..3; expected a range within 0..2"),
        (0..1, &[0, 0], &[5, 6], "the range of a box in dimension 0 is 0..5"),
        (0..1, &[0, 4], &[4, 3], "the range of a box in dimension 1 is 4..3"),
        (0..1, &[0, 0], &[4, u64::MAX], "in dimension 1"),
        (0..1, &[0], &[4, 6], "the number of dimensions of a box is 1 and 2; expected 2"),
        (0..2, &[0, 0], &[4, 6], "the array has 24 bytes; it must have 48"),
    ] {
        let read = array.read_box(steps.clone(), lo, hi, &mut [0; 24]).unwrap_err().to_string();
        let written = array.write_box(steps, lo, hi, &[0; 24]).unwrap_err().to_string();
        assert!(read.contains(says) && read == written, "{read}");
    }
    for (steps, lo, hi) in [(1..1, [0, 0], [4, 6]), (2..2, [0, 0], [4, 6]), (0..2, [4, 0], [4, 6])] {
        array.read_box(steps.clone(), &lo, &hi, &mut []).unwrap();
        array.write_box(steps, &lo, &hi, &[]).unwrap();
    }
    let none = Dataset::new(&[0, 3], ElemType::F64).unwrap();
    put(&place, "none", &none, false, 0..2);
    open(&place, "none").read_box(0..2, &[0, 0], &[0, 3], &mut []).unwrap();
    for (dir, name) in [(place.0.clone(), "y"), (place.0.join("unit0/objects"), "x")] {
        let error = StoredArray::open(&dir, name).err().unwrap();
        match name {
            "y" => assert!(matches!(error, StoreError::NotThere { .. }), "{error}"),
            _ => assert!(matches!(error, StoreError::NoStore { .. }), "{error}"),
        }
    }
}

#[test]
fn what_a_lost_unit_still_shows_is_not_taken_for_what_is_there() {
    let mut random = Random(3);
    for (data, parity) in [(2, 1), (4, 2)] {
        for first in 0..data + parity {
            let place = Place::store(data, parity, 4096);
            let dataset = Dataset::new(&[30, 1000], ElemType::U8).unwrap();
            put(&place, "x", &dataset, false, 0..1);
            // It has the files open, so that for it the units are there as they were.
            let old = open(&place, "x");
            (0..parity).for_each(|n| drop(place.lose((first + n) % (data + parity))));
            let mut oracle = Oracle::new(dataset, 1);
            let whole = oracle.whole();
            oracle.write(&open(&place, "x"), &whole, &mut random);
            oracle.check(&old, &whole);
        }
    }
}

#[test]
fn reading_without_a_lost_unit_writes_nothing() {
    let place = Place::store(3, 1, 8192);
    let dataset = Dataset::new(&[300, 1000], ElemType::U8).unwrap();
    put(&place, "x", &dataset, false, 0..2);
    place.lose(1);
    let array = open(&place, "x");
    let superblocks =
        || [0, 2, 3].map(|u| std::fs::read(place.0.join(format!("unit{u}/superblock"))).unwrap());
    let before = superblocks();
    let oracle = Oracle::new(dataset, 2);
    oracle.check(&array, &oracle.whole());
    let mut random = Random(5);
    each(4, |_| oracle.check(&array, &oracle.whole()));
    (0..50).for_each(|_| oracle.check(&array, &oracle.any_box(&mut random)));
    assert!(superblocks() == before, "no epoch began");
}

#[test]
fn a_unit_tells_of_its_store_and_a_store_not_of_the_folder_where_it_lies() {
    let place = Place::new();
    let units = (0..3).map(|u| vec![format!("unit{u}").into()]).collect();
    let dir = place.0.join("s");
    Store::create(&dir, &Create { units, parity: 1, stripe: 4096 }).unwrap();
    for path in [&place.0, &place.0.join("x")] {
        assert!(matches!(Store::open(path), Err(StoreError::NoStore { .. })));
    }
    assert!(matches!(split(&place.0.join("x")), Err(StoreError::NoStore { .. })));
    assert!(!place.0.join("store.toml").exists());
    std::fs::remove_file(dir.join("store.toml")).unwrap();
    assert_eq!(split(&dir.join("a/b")).unwrap(), (dir.clone(), "a/b".into()));
    drop(Store::open(&dir).unwrap().own().unwrap());
    assert!(dir.join("store.toml").exists());
}

#[test]
fn an_interrupt_ends_a_long_write_between_blocks() {
    let place = Place::store(2, 1, 4096);
    let dataset = Dataset::new(&[20 * BLOCK as u64], ElemType::U8).unwrap();
    put(&place, "x", &dataset, false, 0..1);
    let mut store = Store::open(&place.0).unwrap();
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = asked.clone();
    store.interrupt =
        Some(std::sync::Arc::new(move || count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 5));
    let array = StoredArray::of(store, "x").unwrap();
    let all = vec![7; 20 * BLOCK];
    let error = array.write_box(0..1, &[0], &[20 * BLOCK as u64], &all).unwrap_err();
    assert!(matches!(error, StoreError::Port(PortError::Interrupted { .. })), "{error}");
    let mut got = vec![0; 20 * BLOCK];
    open(&place, "x").read_box(0..1, &[0], &[20 * BLOCK as u64], &mut got).unwrap();
    let new = got.chunks(BLOCK).take_while(|block| block.iter().all(|&b| b == 7)).count();
    assert!((1..20).contains(&new), "{new} blocks are new");
    assert!(got[new * BLOCK..] == part(&dataset, "*", 0, 1, 0)[new * BLOCK..]);
}

#[test]
fn what_the_logs_had_is_done_again_and_written_down() {
    let place = Place::store(2, 1, 4096);
    let dataset = Dataset::new(&[2048], ElemType::U8).unwrap();
    put(&place, "a", &dataset, false, 0..1);
    let said = || std::fs::read_to_string(place.0.join("events.log")).unwrap();
    let again = |n: u64| said().matches(&format!("were done again: {n}\n")).count();
    let array = open(&place, "a");
    for at in [0, 100] {
        array.write_box(0..1, &[at], &[at + 2], &[7, 8]).unwrap();
    }
    drop(array);
    // Each had its turn to the end, and that their changes still stand in the logs is nothing to tell.
    drop(Store::open(&place.0).unwrap().own().unwrap());
    assert_eq!(again(2), 0, "{}", said());
    // As if the last one had been killed in its turn.
    open(&place, "a").write_box(0..1, &[50], &[52], &[9, 9]).unwrap();
    let lock = std::fs::File::options().write(true).open(place.0.join("lock")).unwrap();
    lock.write_all_at(&[1], 16).unwrap();
    drop(Store::open(&place.0).unwrap().own().unwrap());
    assert_eq!(again(1), 1, "{}", said());
    let mut bytes = [0; 102];
    open(&place, "a").read_box(0..1, &[0], &[102], &mut bytes).unwrap();
    assert_eq!((bytes[..2].to_vec(), bytes[100..].to_vec()), (vec![7, 8], vec![7, 8]));
}
