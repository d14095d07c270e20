//! Files of an object that are put back to what they were, or come from elsewhere, on real directories: by
//! port, array and scrub.

use crate::rig::{write, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_store::disk::{Store, StoreReader, StoredArray};
use polyduct_store::volume::{Scrub, BLOCK};
use polyduct_store::{Expect, Options};
use std::path::Path;

const LEN: usize = 2 * BLOCK;

fn own_twice(dir: &Path) {
    (0..2).for_each(|_| drop(Store::open(dir).unwrap().own().unwrap()));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let files = std::fs::read_dir(from).unwrap().map(Result::unwrap);
    for file in files.filter(|file| file.file_type().unwrap().is_file()) {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn is_right(dir: &Path, want: &[u8], case: &str) {
    let mut port = StoreReader::open(dir, "x", "*", &Expect::default(), &Options::default()).unwrap();
    let mut got = vec![0; LEN];
    assert_eq!(port.read(&mut got).unwrap(), Some(0));
    assert!(got == want, "{case}: a port");
    got.fill(0);
    StoredArray::open(dir, "x").unwrap().read_box(0..1, &[0], &[LEN as u64], &mut got).unwrap();
    assert!(got == want, "{case}: an array");
}

#[test]
fn as_many_old_units_as_parity_makes_up_for_are_made_good() {
    for (data, parity) in [(1, 1), (1, 2), (2, 2)] {
        let (place, units) = (Place::store(data, parity, BLOCK as u64), data + parity);
        let dir = &place.0;
        let objects = |unit: u32| dir.join(format!("unit{unit}/objects"));
        let dataset = Dataset::new(&[LEN as u64], ElemType::U8).unwrap();
        write(dir, "x", &dataset, "*", 1, false, 0..1).into_iter().for_each(|r| r.unwrap());
        own_twice(dir);
        (0..units).for_each(|unit| copy(&objects(unit), &dir.join(format!("old{unit}"))));
        let array = StoredArray::open(dir, "x").unwrap();
        array.write_box(0..1, &[20], &[24], &[7; 4]).unwrap();
        let mut want = vec![0; LEN];
        array.read_box(0..1, &[0], &[LEN as u64], &mut want).unwrap();
        assert_eq!(want[20..24], [7; 4]);
        drop(array);
        own_twice(dir);
        for set in (1_u32..1 << units).filter(|set| set.count_ones() <= parity) {
            let case = format!("{data}+{parity}, set {set:b}");
            let put_back = || {
                let old = (0..units).filter(|unit| set >> unit & 1 != 0);
                old.for_each(|unit| copy(&dir.join(format!("old{unit}")), &objects(unit)));
            };
            put_back();
            is_right(dir, &want, &case);
            put_back();
            let (store, mut scrub) = (Store::open(dir).unwrap(), Scrub::new());
            while !store.own().unwrap().scrub(&mut scrub, 3).unwrap().finished {}
            let report = scrub.report();
            assert!(
                report.damaged == 0 && report.repaired.keys().all(|unit| set >> unit & 1 != 0),
                "{case}: {report:?}"
            );
            is_right(dir, &want, &format!("{case}, scrubbed"));
        }
    }
}

/// The files of an object of one unit are those of another store, which has been written more often.
#[test]
fn files_of_another_store_are_found_and_made_good() {
    for (data, parity) in [(1, 1), (2, 1), (2, 2)] {
        let dataset = Dataset::new(&[LEN as u64], ElemType::U8).unwrap();
        let (ours, theirs) =
            (Place::store(data, parity, BLOCK as u64), Place::store(data, parity, BLOCK as u64));
        let objects = |of: &Place, unit: u32| of.0.join(format!("unit{unit}/objects"));
        for place in [&ours, &theirs] {
            write(&place.0, "x", &dataset, "*", 1, false, 0..1).into_iter().for_each(|r| r.unwrap());
        }
        let mut want = vec![0; LEN];
        StoredArray::open(&ours.0, "x").unwrap().read_box(0..1, &[0], &[LEN as u64], &mut want).unwrap();
        for _ in 0..3 {
            let array = StoredArray::open(&theirs.0, "x").unwrap();
            array.write_box(0..1, &[0], &[LEN as u64], &[9; LEN]).unwrap();
        }
        [&ours, &theirs].iter().for_each(|place| own_twice(&place.0));
        for unit in 0..data + parity {
            let case = format!("{data}+{parity}, unit {unit}");
            copy(&objects(&theirs, unit), &objects(&ours, unit));
            is_right(&ours.0, &want, &case);
            copy(&objects(&theirs, unit), &objects(&ours, unit));
            let (store, mut scrub) = (Store::open(&ours.0).unwrap(), Scrub::new());
            while !store.own().unwrap().scrub(&mut scrub, 3).unwrap().finished {}
            let report = scrub.report();
            assert!(report.damaged == 0 && report.repaired.keys().eq([&unit]), "{case}: {report:?}");
            is_right(&ours.0, &want, &format!("{case}, scrubbed"));
        }
    }
}

/// Writes so many steps of `x` to the store of two units at `dir`, and copies all of it.
fn fork_with_steps(steps: u64, dir: &Path, fork: &Path) {
    let dataset = Dataset::new(&[LEN as u64], ElemType::U8).unwrap();
    write(dir, "x", &dataset, "*", 1, false, 0..steps).into_iter().for_each(|r| r.unwrap());
    copy(dir, fork);
    for unit in ["unit0", "unit1"] {
        copy(&dir.join(unit), &fork.join(unit));
        copy(&dir.join(unit).join("objects"), &fork.join(unit).join("objects"));
    }
}

/// Without parity nothing but the epochs tells what a copy of the store wrote, which went on apart.
#[test]
fn what_a_copy_wrote_that_went_on_apart_is_not_read_where_nothing_contradicts_it() {
    let (place, other) = (Place::store(2, 0, BLOCK as u64), Place::new());
    let (dir, fork) = (&place.0, other.0.join("fork"));
    fork_with_steps(1, dir, &fork);
    StoredArray::open(&fork, "x").unwrap().write_box(0..1, &[0], &[LEN as u64], &[7; LEN]).unwrap();
    // This one goes on as long.
    (0..3).for_each(|_| own_twice(dir));
    is_right(&fork, &[7; LEN], "the copy by itself");
    for unit in ["unit0", "unit1"] {
        copy(&fork.join(unit).join("objects"), &dir.join(unit).join("objects"));
    }
    let mut got = vec![0; LEN];
    let mut port = StoreReader::open(dir, "x", "*", &Expect::default(), &Options::default()).unwrap();
    let error = port.read(&mut got).unwrap_err();
    assert!(error.to_string().contains("is damaged"), "{error}");
    let array = StoredArray::open(dir, "x").unwrap();
    let error = array.read_box(0..1, &[0], &[LEN as u64], &mut got).unwrap_err();
    assert!(error.to_string().contains("is damaged"), "{error}");
}

/// A reader that has a dataset open learns of newer epochs from the superblocks: those of the store count,
/// and those of a copy do not, however many there were.
#[test]
fn what_is_newer_than_a_reader_knows_is_the_stores_or_is_not_read() {
    let (place, other) = (Place::store(2, 0, BLOCK as u64), Place::new());
    let (dir, fork) = (&place.0, other.0.join("fork"));
    fork_with_steps(2, dir, &fork);
    let array = StoredArray::open(dir, "x").unwrap();
    let mut port = StoreReader::open(dir, "x", "*", &Expect::default(), &Options::default()).unwrap();
    let change = |dir: &Path, to: u8| {
        let array = StoredArray::open(dir, "x").unwrap();
        array.write_box(0..2, &[0], &[LEN as u64], &[to; 2 * LEN]).unwrap();
    };
    own_twice(dir);
    change(dir, 3);
    let mut got = vec![0; LEN];
    let read = |got: &mut [u8]| array.read_box(0..1, &[0], &[LEN as u64], got);
    read(&mut got).unwrap();
    assert_eq!(got, [3; LEN]);
    assert_eq!(port.read(&mut got).unwrap(), Some(0));
    assert_eq!(got, [3; LEN]);
    // Nothing is left in the logs from which it would be made good.
    own_twice(dir);
    (0..9).for_each(|_| own_twice(&fork));
    change(&fork, 7);
    for unit in ["unit0", "unit1"] {
        copy(&fork.join(unit).join("objects"), &dir.join(unit).join("objects"));
    }
    for error in [read(&mut got).unwrap_err(), port.read(&mut got).unwrap_err()] {
        assert!(error.to_string().contains("is damaged"), "{error}");
    }
}
