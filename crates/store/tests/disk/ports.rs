//! Datasets through the ports: any layouts, any codes, with and without lost units.

use crate::rig::{check, each, options, part, write, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_store::disk::{Store, StoreError, StoreReader, StoreWriter};
use polyduct_store::volume::Scrub;
use polyduct_store::Expect;

const CODES: [(u32, u32); 5] = [(1, 0), (4, 0), (2, 1), (4, 1), (4, 2)];

fn good(results: Vec<Result<(), StoreError>>) {
    results.into_iter().for_each(|r| r.unwrap());
}

#[test]
fn what_one_program_writes_another_reads_in_any_layout() {
    for (data, parity) in CODES {
        let place = Place::store(data, parity, 8192);
        for (n, (shape, elem, from, to)) in [
            (&[70, 90][..], ElemType::F64, ("block,*", 3), ("*,block", 2)),
            (&[64, 1024], ElemType::F32, ("*,*", 1), ("*,*", 1)),
            (&[5, 4, 3], ElemType::I16, ("cyclic,*,block", 4), ("block,block,*", 4)),
            (&[13, 1001], ElemType::U8, ("*,cyclic(7);order=F", 2), ("balanced,*", 5)),
            (&[1], ElemType::C128, ("*", 1), ("block", 3)),
            (&[0, 7], ElemType::U8, ("*,block", 2), ("*,block", 2)),
        ]
        .into_iter()
        .enumerate()
        {
            let dataset = Dataset::new(shape, elem).unwrap();
            let name = format!("folder/{n}");
            good(write(&place.0, &name, &dataset, from.0, from.1, false, 0..3));
            good(check(&place.0, &name, &dataset, to.0, to.1, 0..3));
        }
        assert_eq!(Store::open(&place.0).unwrap().datasets().unwrap().len(), 6);
    }
}

#[test]
fn steps_of_many_windows_come_whole() {
    let place = Place::store(3, 1, 64 << 10);
    let dataset = Dataset::new(&[700, 4003], ElemType::F64).unwrap();
    good(write(&place.0, "w", &dataset, "*,block", 3, false, 0..2));
    good(check(&place.0, "w", &dataset, "block,*", 2, 0..2));
    good(check(&place.0, "w", &dataset, "*,*", 1, 0..2));
    place.lose(2);
    good(check(&place.0, "w", &dataset, "*,block", 2, 0..2));
}

#[test]
fn steps_are_appended_and_readers_keep_the_version_that_they_opened() {
    let place = Place::store(2, 1, 8192);
    for (name, len) in [("small", 100), ("block", 4096), ("large", 40_000)] {
        let dataset = Dataset::new(&[len], ElemType::U8).unwrap();
        good(write(&place.0, name, &dataset, "block", 2, true, 0..3));
        let mut old = StoreReader::open(&place.0, name, "*", &Expect::default(), &options(0, 1)).unwrap();
        good(write(&place.0, name, &dataset, "block", 3, true, 3..4));
        good(write(&place.0, name, &dataset, "cyclic(64)", 2, true, 4..9));
        good(check(&place.0, name, &dataset, "block", 4, 0..9));
        let mut got = vec![0; old.local_len_bytes()];
        for step in 0..3 {
            assert_eq!(old.read(&mut got).unwrap(), Some(step));
            assert!(got == part(&dataset, "*", 0, 1, step));
        }
        assert_eq!(old.read(&mut got).unwrap(), None);
        // Written anew, and removed, while it is read.
        let mut old = StoreReader::open(&place.0, name, "*", &Expect::default(), &options(0, 1)).unwrap();
        good(write(&place.0, name, &dataset, "block", 1, false, 20..21));
        good(check(&place.0, name, &dataset, "*", 1, 20..21));
        let store = Store::open(&place.0).unwrap();
        store.remove(&[name], false).unwrap();
        drop(store.own().unwrap());
        assert_eq!(old.read(&mut got).unwrap(), Some(0));
        assert!(got == part(&dataset, "*", 0, 1, 0));
    }
}

/// Appended again and again, small steps lie in the blocks that follow those before them: what a store takes
/// grows with them.
#[test]
fn small_appends_fill_the_row_that_is_there() {
    for (data, parity) in [(2, 1), (4, 1), (2, 2), (1, 1), (3, 0)] {
        let place = Place::store(data, parity, 32 << 10);
        let per_row = u64::from(data) * 8;
        let dataset = Dataset::new(&[100], ElemType::U8).unwrap();
        let (mut steps, mut n) = (0, 0);
        while steps < 3 * per_row {
            let more = [1, 1, 2, 1, 5, per_row + 3][n % 6];
            let units = n as u32 % 3 + 1;
            good(write(&place.0, "x", &dataset, "block", units, true, steps..steps + more));
            (steps, n) = (steps + more, n + 1);
            good(check(&place.0, "x", &dataset, "block", 2, 0..steps));
        }
        let rows = steps.div_ceil(per_row);
        for unit in 0..data + parity {
            let len = std::fs::metadata(place.0.join(format!("unit{unit}/objects/0.data"))).unwrap().len();
            assert_eq!(len, rows * (32 << 10), "{data}+{parity}, unit {unit}: {steps} steps in {n} times");
        }
        let mut scrub = Scrub::default();
        let store = Store::open(&place.0).unwrap();
        while !store.own().unwrap().scrub(&mut scrub, 1000).unwrap().finished {}
        assert!(scrub.report().damaged == 0 && scrub.report().repaired.is_empty(), "{:?}", scrub.report());
        if parity > 0 {
            place.lose(0);
            good(check(&place.0, "x", &dataset, "block", 2, 0..steps));
            good(write(&place.0, "x", &dataset, "block", 2, true, steps..steps + 2));
            good(check(&place.0, "x", &dataset, "block", 2, 0..steps + 2));
        }
    }
}

#[test]
fn with_units_lost_everything_is_read_and_more_is_written() {
    for (data, parity) in [(2, 1), (4, 1), (4, 2)] {
        let place = Place::store(data, parity, 4096);
        let dataset = Dataset::new(&[50, 999], ElemType::F32).unwrap();
        good(write(&place.0, "a", &dataset, "block,*", 2, false, 0..2));
        for unit in 0..parity {
            place.lose(unit * 2);
        }
        good(check(&place.0, "a", &dataset, "*,block", 3, 0..2));
        good(write(&place.0, "b", &dataset, "*,block", 2, false, 2..4));
        good(check(&place.0, "b", &dataset, "block,*", 2, 2..4));
        // One more is one too many.
        place.lose(data + parity - 1);
        for result in check(&place.0, "a", &dataset, "*,block", 2, 0..2) {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("parity makes up for"), "{error}");
        }
    }
}

#[test]
fn units_that_disagree_and_names_that_are_taken_are_errors_for_all() {
    let place = Place::store(2, 1, 4096);
    let dataset = Dataset::new(&[64], ElemType::U8).unwrap();
    let other = Dataset::new(&[65], ElemType::U8).unwrap();
    let results = each(3, |unit| {
        let dataset = if unit == 2 { &other } else { &dataset };
        StoreWriter::open(&place.0, "x", dataset, "block", false, &options(unit, 3)).map(|_| ())
    });
    for result in &results {
        let error = result.as_ref().unwrap_err().to_string();
        assert!(error.contains("unit 2 says shape [65]; unit 0 says [64]"), "{error}");
    }
    good(write(&place.0, "a/b", &dataset, "block", 2, false, 0..1));
    for (name, says) in [
        ("a", "the dataset \"a/b\" is there already"),
        ("a/b/c", "the dataset \"a/b\" is there already"),
        ("../x", "a part of it is . or .."),
    ] {
        for result in write(&place.0, name, &dataset, "block", 2, false, 0..1) {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
    // Other numbers of steps.
    let results = each(2, |unit| {
        let mut out = StoreWriter::open(&place.0, "y", &dataset, "block", false, &options(unit, 2))?;
        out.write(&part(&dataset, "block", unit, 2, 0))?;
        if unit == 1 {
            return out.close().map(|_| ());
        }
        out.write(&part(&dataset, "block", unit, 2, 1)).and_then(|()| out.close().map(|_| ()))
    });
    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert_eq!(Store::open(&place.0).unwrap().datasets().unwrap().len(), 1);
    // Nothing is left of what did not come to its end.
    drop(Store::open(&place.0).unwrap().own().unwrap());
    let files = std::fs::read_dir(place.0.join("unit0/objects")).unwrap().count();
    assert_eq!(files, 2);
}

/// An opening that has nothing to make up for costs syncs of every unit.
#[test]
fn no_epoch_begins_when_a_writer_closes_that_nobody_disturbed() {
    let place = Place::store(2, 1, 4096);
    let dataset = Dataset::new(&[100], ElemType::U8).unwrap();
    let superblock = || std::fs::read(place.0.join("unit0/superblock")).unwrap();
    for step in 0..3 {
        let mut out = StoreWriter::open(&place.0, "x", &dataset, "*", true, &options(0, 1)).unwrap();
        let opened = superblock();
        out.write(&part(&dataset, "*", 0, 1, step)).unwrap();
        if step == 1 {
            drop(Store::open(&place.0).unwrap().own().unwrap());
        }
        out.close().unwrap();
        assert_eq!(superblock() == opened, step != 1, "step {step}");
    }
    check(&place.0, "x", &dataset, "*", 1, 0..3).into_iter().for_each(|done| done.unwrap());
}
