//! Stores that lose units, manifests and blocks, and get them back.

use crate::rig::{check, each, options, part, write, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_store::disk::{nonce, Create, Store, StoreError, StoreReader, StoreWriter, StoredArray};
use polyduct_store::volume::Scrub;
use polyduct_store::Expect;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

fn good(results: Vec<Result<(), StoreError>>) {
    results.into_iter().for_each(|r| r.unwrap());
}

fn dataset() -> Dataset {
    Dataset::new(&[40, 2500], ElemType::F32).unwrap()
}

/// Rebuilds a unit in steps of `words`.
fn rebuild(store: &Store, unit: u32, words: u64) {
    while !store.own().unwrap().rebuild(unit, words, nonce()).unwrap().finished {}
}

fn flip(path: PathBuf, at: usize) {
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_lost_unit_is_replaced_and_rebuilt_while_the_store_is_in_use() {
    for (data, parity) in [(2, 1), (4, 2)] {
        let place = Place::store(data, parity, 8192);
        good(write(&place.0, "old", &dataset(), "block,*", 2, false, 0..2));
        place.lose(1);
        good(write(&place.0, "degraded", &dataset(), "block,*", 2, false, 2..3));
        let mut store = Store::open(&place.0).unwrap();
        store.replace(1, Some(vec![PathBuf::from("new1")]), false).unwrap();
        good(write(&place.0, "joining", &dataset(), "*,block", 3, false, 3..4));
        store.own().unwrap().rebuild(1, 5, nonce()).unwrap();
        good(check(&place.0, "old", &dataset(), "*,block", 2, 0..2));
        good(write(&place.0, "halfway", &dataset(), "*,block", 1, false, 4..5));
        rebuild(&store, 1, 7);
        assert_eq!(store.own().unwrap().lost().count(), 0);
        // Now another may be lost, and all is there.
        place.lose(0);
        for (name, steps) in [("old", 0..2), ("degraded", 2..3), ("joining", 3..4), ("halfway", 4..5)] {
            good(check(&place.0, name, &dataset(), "*,*", 1, steps));
        }
        assert!(std::fs::read_to_string(place.0.join("events.log")).unwrap().contains("unit 1 is joining"));
    }
}

#[test]
fn what_is_flipped_is_given_right_repaired_and_written_down() {
    let place = Place::store(3, 1, 4096);
    good(write(&place.0, "x", &dataset(), "block,*", 2, false, 0..1));
    let store = Store::open(&place.0).unwrap();
    for (unit, file, at) in [(0, "0.data", 5000), (1, "0.data", 0), (2, "0.sums", 49), (3, "0.data", 9000)] {
        flip(place.0.join(format!("unit{unit}/objects/{file}")), at);
        good(check(&place.0, "x", &dataset(), "*,block", 2, 0..1));
        let mut scrub = Scrub::default();
        while !store.own().unwrap().scrub(&mut scrub, 3).unwrap().finished {}
        assert_eq!(scrub.report().damaged, 0);
        let mut again = Scrub::default();
        while !store.own().unwrap().scrub(&mut again, 1000).unwrap().finished {}
        assert!(again.report().repaired.is_empty(), "{:?}", again.report());
    }
    let log = std::fs::read_to_string(place.0.join("events.log")).unwrap();
    assert!(log.matches("was damaged and is made good").count() >= 4, "{log}");
    // Two blocks of a word: more than parity makes up for. No wrong byte is given.
    flip(place.0.join("unit0/objects/0.data"), 100);
    flip(place.0.join("unit1/objects/0.data"), 100);
    let results = check(&place.0, "x", &dataset(), "*,block", 2, 0..1);
    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert!(results[0].as_ref().unwrap_err().to_string().contains("damaged"), "{results:?}");
}

/// Both units of the reading program meet damage, each in its own window: the one that repairs does not hold
/// up the other.
#[test]
fn units_that_both_have_to_repair_do_not_wait_for_each_other() {
    let place = Place::store(3, 1, 64 << 10);
    let dataset = Dataset::new(&[700, 2003], ElemType::F64).unwrap();
    good(write(&place.0, "x", &dataset, "block,*", 2, false, 0..1));
    for at in [100, 1_500_000] {
        flip(place.0.join("unit0/objects/0.data"), at);
    }
    good(check(&place.0, "x", &dataset, "*,block", 2, 0..1));
    let log = std::fs::read_to_string(place.0.join("events.log")).unwrap();
    assert_eq!(log.matches("was damaged and is made good").count(), 2, "{log}");
}

/// Unit 0 of a program is gone, unit 1 may still write: nobody else may append where it writes.
#[test]
fn nobody_appends_beside_what_is_left_of_a_program_that_does() {
    let place = Place::store(2, 1, 4096);
    good(write(&place.0, "x", &dataset(), "*,*", 1, false, 0..1));
    let append =
        |unit, units| StoreWriter::open(&place.0, "x", &dataset(), "block,*", true, &options(unit, units));
    let mut program = each(2, |unit| append(unit, 2).unwrap());
    let left = program.pop();
    program.pop().unwrap().abort();
    let refused = append(0, 1).err().unwrap();
    assert!(matches!(&refused, StoreError::Exists { what, .. } if what.contains("appends")), "{refused}");
    drop(left);
    let mut next = append(0, 1).unwrap();
    next.write(&part(&dataset(), "block,*", 0, 1, 1)).unwrap();
    next.close().unwrap();
    // Closed, it holds nobody up, though it is still there.
    append(0, 1).unwrap().abort();
    drop(next);
}

#[test]
fn what_is_appended_goes_along_when_the_dataset_is_renamed_and_is_refused_when_it_is_gone() {
    let place = Place::store(2, 1, 4096);
    good(write(&place.0, "x", &dataset(), "*,*", 1, false, 0..1));
    let store = Store::open(&place.0).unwrap();
    let append = || StoreWriter::open(&place.0, "x", &dataset(), "*,*", true, &options(0, 1)).unwrap();
    let step = |n| part(&dataset(), "*,*", 0, 1, n);
    let mut moved = append();
    moved.write(&step(1)).unwrap();
    store.rename("x", "y").unwrap();
    good(write(&place.0, "x", &dataset(), "*,*", 1, false, 0..1));
    moved.close().unwrap();
    good(check(&place.0, "y", &dataset(), "block,*", 2, 0..2));
    good(check(&place.0, "x", &dataset(), "block,*", 2, 0..1));
    let mut gone = append();
    gone.write(&step(1)).unwrap();
    store.remove(&["x"], false).unwrap();
    let error = gone.close().unwrap_err();
    assert!(
        matches!(error, StoreError::NotThere { .. }) && error.to_string().contains("to be appended to"),
        "{error}"
    );
    let mut fresh = append();
    fresh.write(&step(0)).unwrap();
    store.rename("y", "x").unwrap();
    assert!(matches!(fresh.close(), Err(StoreError::Exists { .. })), "somebody else made one");
    let step = step(2);
    let mut out = append();
    out.write(&step).unwrap();
    let named = serde_json::json!({"unit": "K"}).as_object().unwrap().clone();
    store.set_attributes("x", named.clone()).unwrap();
    out.close().unwrap();
    good(check(&place.0, "x", &dataset(), "block,*", 2, 0..3));
    assert_eq!(store.datasets().unwrap()["x"].attributes, named, "what others wrote down meanwhile stays");
}

/// A unit that is replaced while a program writes has none of its rows: it does not count as one that has
/// them.
#[test]
fn a_unit_replaced_during_a_write_gets_what_was_written() {
    for elsewhere in [false, true] {
        let place = Place::store(2, 1, 4096);
        let mut out = StoreWriter::open(&place.0, "x", &dataset(), "*,*", false, &options(0, 1)).unwrap();
        let old = place.lose(1);
        let mut store = Store::open(&place.0).unwrap();
        store.replace(1, elsewhere.then(|| vec![PathBuf::from("new1")]), false).unwrap();
        rebuild(&store, 1, 100);
        out.write(&part(&dataset(), "*,*", 0, 1, 0)).unwrap();
        out.close().unwrap();
        std::fs::remove_dir_all(old).unwrap();
        good(check(&place.0, "x", &dataset(), "block,*", 2, 0..1));
        place.lose(0);
        good(check(&place.0, "x", &dataset(), "block,*", 2, 0..1));
    }
}

/// Whether this process has a file in a directory open.
fn has_open(dir: &Path) -> bool {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|file| file.starts_with(dir))
}

/// Their old files may still be there, and agree with each other.
#[test]
fn an_open_array_reads_no_units_that_were_replaced_since() {
    let place = Place::store(2, 1, 4096);
    let table = Dataset::new(&[64, 1024], ElemType::F32).unwrap();
    good(write(&place.0, "x", &table, "*,*", 1, false, 0..1));
    good(write(&place.0, "x", &table, "*,*", 1, true, 1..2));
    let array = StoredArray::open(&place.0, "x").unwrap();
    let mut port = StoreReader::open(&place.0, "x", "*,*", &Expect::default(), &options(0, 1)).unwrap();
    let mut bytes = vec![0; 64 * 4096];
    port.read(&mut bytes).unwrap();
    assert!(bytes == part(&table, "*,*", 0, 1, 0));
    array.read_box(0..1, &[0, 0], &[64, 1024], &mut bytes).unwrap();
    assert!(bytes == part(&table, "*,*", 0, 1, 0));
    let mut store = Store::open(&place.0).unwrap();
    for unit in 0..3 {
        let old = place.lose(unit);
        store.replace(unit, Some(vec![format!("new{unit}").into()]), false).unwrap();
        rebuild(&store, unit, 100);
        assert!(has_open(&old), "else it shows nothing");
    }
    let written = vec![7; bytes.len()];
    let other = StoredArray::open(&place.0, "x").unwrap();
    for step in 0..2 {
        other.write_box(step..step + 1, &[0, 0], &[64, 1024], &written).unwrap();
        array.read_box(step..step + 1, &[0, 0], &[64, 1024], &mut bytes).unwrap();
        assert!(bytes == written, "it was told that they are written");
    }
    bytes.fill(0);
    port.read(&mut bytes).unwrap();
    assert!(bytes == written, "a port, too");
}

/// A thread that writes has the store, one that reads for the first time after a change needs it.
#[test]
fn threads_read_and_write_one_array_while_units_are_rebuilt() {
    let place = Place::store(2, 1, 4096);
    good(write(&place.0, "x", &dataset(), "*,*", 1, false, 0..1));
    let array = StoredArray::open(&place.0, "x").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        for row in 0..2 {
            let (array, done) = (&array, &done);
            s.spawn(move || {
                let mut n = 0u8;
                while !done.load(Ordering::Relaxed) {
                    n = n.wrapping_add(1);
                    let mut got = vec![0; 10_000];
                    array.write_box(0..1, &[row, 0], &[row + 1, 2500], &[n; 10_000]).unwrap();
                    array.read_box(0..1, &[row, 0], &[row + 1, 2500], &mut got).unwrap();
                    assert!(got == [n; 10_000], "row {row}");
                }
            });
        }
        let rebuilt = std::panic::catch_unwind(|| {
            let mut store = Store::open(&place.0).unwrap();
            for unit in [0, 1, 2] {
                place.lose(unit);
                store.replace(unit, None, false).unwrap();
                rebuild(&store, unit, 100);
            }
        });
        done.store(true, Ordering::Relaxed);
        rebuilt.unwrap();
    });
}

/// Nothing is opened anew while nobody else has a turn; and when somebody had one, nothing of before is gone
/// on with.
#[test]
fn a_turn_goes_on_where_the_last_one_ended_unless_another_had_one_between() {
    let place = Place::store(2, 1, 4096);
    good(write(&place.0, "x", &dataset(), "*,*", 1, false, 0..1));
    let [one, other] = [(); 2].map(|()| StoredArray::open(&place.0, "x").unwrap());
    let superblock = || std::fs::read(place.0.join("unit0/superblock")).unwrap();
    let put = |array: &StoredArray, row: u64| {
        array.write_box(0..1, &[row, 0], &[row + 1, 2500], &[row as u8; 10_000]).unwrap();
        superblock()
    };
    let first = put(&one, 1);
    assert!(put(&one, 2) == first, "no epoch begins");
    let second = put(&other, 3);
    assert!(second != first, "the other cannot know");
    assert!(put(&other, 4) == second);
    assert!(put(&one, 5) != second);
    // What each wrote is there, whichever unit is lost.
    for unit in 0..3 {
        let lost = place.lose(unit);
        let array = StoredArray::open(&place.0, "x").unwrap();
        for row in 1..6 {
            let mut got = vec![0; 10_000];
            array.read_box(0..1, &[row, 0], &[row + 1, 2500], &mut got).unwrap();
            assert!(got == [row as u8; 10_000], "row {row} without unit {unit}");
        }
        std::fs::remove_dir_all(lost).unwrap();
        let mut store = Store::open(&place.0).unwrap();
        store.replace(unit, None, false).unwrap();
        rebuild(&store, unit, 100);
    }
}

#[test]
fn an_open_array_uses_a_unit_that_is_whole_again() {
    let place = Place::store(2, 1, 4096);
    good(write(&place.0, "x", &dataset(), "*,*", 1, false, 0..1));
    place.lose(1);
    let array = StoredArray::open(&place.0, "x").unwrap();
    let mut bytes = vec![0; 40 * 2500 * 4];
    let mut store = Store::open(&place.0).unwrap();
    store.replace(1, Some(vec!["new1".into()]), false).unwrap();
    array.read_box(0..1, &[0, 0], &[40, 2500], &mut bytes).unwrap();
    assert!(!has_open(&place.0.join("new1")));
    rebuild(&store, 1, 100);
    array.read_box(0..1, &[0, 0], &[40, 2500], &mut bytes).unwrap();
    assert!(has_open(&place.0.join("new1")));
    assert!(bytes == part(&dataset(), "*,*", 0, 1, 0));
}

#[test]
fn a_manifest_that_is_gone_or_damaged_is_found_with_a_unit() {
    let place = Place::store(2, 1, 4096);
    good(write(&place.0, "x", &dataset(), "block,*", 1, false, 0..1));
    let path = place.0.join("store.toml");
    std::fs::remove_file(&path).unwrap();
    good(check(&place.0, "x", &dataset(), "*,*", 1, 0..1));
    flip(path.clone(), 80);
    good(check(&place.0, "x", &dataset(), "*,*", 1, 0..1));
    assert!(path.exists());
    // One that lies in the same directory is not meant.
    let other = Place::store(1, 0, 4096);
    let inside = place.0.join("inside");
    std::fs::rename(&other.0, &inside).unwrap();
    assert!(Store::open(&inside).is_ok());
    assert!(Store::open(inside.parent().unwrap()).is_ok());
    assert!(matches!(Store::open(other.0.parent().unwrap()), Err(StoreError::NoStore { .. })));
}

#[test]
fn swapped_foreign_and_stale_units_are_refused() {
    let place = Place::store(2, 1, 4096);
    let foreign = Place::store(2, 1, 4096);
    good(write(&place.0, "x", &dataset(), "block,*", 2, false, 0..1));
    let at = |unit: u32| place.0.join(format!("unit{unit}"));
    let why = || {
        let store = Store::open(&place.0).unwrap();
        let owned = store.own();
        owned.map(|o| o.lost().map(|(u, why)| format!("{u}: {why}")).collect::<Vec<_>>().join("; "))
    };
    let swap = |a: &PathBuf, b: &PathBuf| {
        let passing = place.0.join("passing");
        std::fs::rename(a, &passing).unwrap();
        std::fs::rename(b, a).unwrap();
        std::fs::rename(&passing, b).unwrap();
    };
    // Two swapped units are two lost ones: too many.
    swap(&at(0), &at(1));
    assert!(why().unwrap_err().to_string().contains("it is unit 1 of this store"));
    swap(&at(0), &at(1));
    swap(&at(2), &foreign.0.join("unit2"));
    assert_eq!(why().unwrap(), "2: it belongs to another store");
    let mut store = Store::open(&place.0).unwrap();
    let refused = store.replace(2, None, false).unwrap_err().to_string();
    assert!(refused.contains("belongs to another store"), "{refused}");
    // The unit itself comes back: by then it has missed an epoch.
    swap(&at(2), &foreign.0.join("unit2"));
    assert!(why().unwrap().contains("2: it is stale"));
    good(check(&place.0, "x", &dataset(), "*,block", 2, 0..1));
    store.replace(2, None, false).unwrap();
    rebuild(&store, 2, 100);
    assert_eq!(why().unwrap(), "");
    assert!(Store::open(&foreign.0).unwrap().own().is_ok());
}

#[test]
fn nothing_is_made_where_something_is_and_nothing_is_left_of_what_failed() {
    let place = Place::new();
    let create = |units: Vec<Vec<PathBuf>>, parity, stripe| {
        Store::create(&place.0.join("s"), &Create { units, parity, stripe })
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    let named = |names: &[&str]| names.iter().map(|n| vec![PathBuf::from(n)]).collect::<Vec<_>>();
    std::fs::create_dir_all(place.0.join("full/x")).unwrap();
    for (units, parity, stripe, says) in [
        (vec![vec![]], 0, 4096, "unit 0 has 0 directories"),
        (named(&["a", "b\0"]), 0, 4096, "is no path"),
        (named(&[""]), 0, 4096, "is no path"),
        (named(&[]), 0, 4096, "the number of units is 0; expected 1 to 128"),
        (named(&["a"]), 1, 4096, "(parity) is 1 of 1; expected at most 0, so that one is left for data"),
        (named(&["a", "b"]), 9, 4096, "(parity) is 9 of 2; expected at most 1"),
        (named(&["a", "b"]), 0, 1000, "multiple of 4 KiB"),
        (named(&["a", "a"]), 0, 4096, "named twice"),
        (named(&["a", "b/../a"]), 0, 4096, "named twice; expected one that nothing else uses"),
        (named(&["a", "../full"]), 0, 4096, "which is to be a new unit"),
        (named(&["a", "/proc/nothing"]), 0, 4096, "make the directory"),
    ] {
        let error = create(units, parity, stripe).unwrap_err();
        assert!(error.contains(says), "{error}");
        assert!(!place.0.join("s").exists(), "{says}");
    }
    create(named(&["a", "b"]), 1, 4096).unwrap();
    assert!(create(named(&["c", "d"]), 1, 4096).unwrap_err().contains("a store is there already"));
}

/// What a maker has left that died is removed only by who makes the same store, and only where nobody has
/// used it.
#[test]
fn what_another_maker_left_is_not_removed() {
    let place = Place::new();
    let dir = place.0.join("s");
    let make = || {
        let units = (0..2).map(|u| vec![format!("unit{u}").into()]).collect();
        Store::create(&dir, &Create { units, parity: 1, stripe: 4096 }).map(drop).map_err(|e| e.to_string())
    };
    let left = dir.join("unit0");
    let here = || std::fs::canonicalize(&dir).unwrap().display().to_string();
    for case in ["theirs", "not ours for certain", "used"] {
        std::fs::create_dir_all(left.join("objects")).unwrap();
        std::fs::write(left.join("superblock"), "x").unwrap();
        let mark = match case {
            "theirs" => here() + "2",
            "used" => here(),
            _ => "/".into(),
        };
        std::fs::write(left.join("making"), mark).unwrap();
        if case == "used" {
            std::fs::write(left.join("objects/0.data"), "x").unwrap();
        }
        assert!(make().unwrap_err().contains("which is to be a new unit"), "{case}");
        assert!(left.join("superblock").exists() && left.join("making").exists(), "{case}");
    }
    std::fs::remove_file(left.join("objects/0.data")).unwrap();
    // Its other unit's maker died while it wrote the mark.
    std::fs::create_dir_all(dir.join("unit1")).unwrap();
    std::fs::write(dir.join("unit1/making"), &here()[..3]).unwrap();
    make().unwrap();
    assert!(!left.join("making").exists());
    good(write(&dir, "x", &dataset(), "block,*", 2, false, 0..1));
    good(check(&dir, "x", &dataset(), "*,block", 2, 0..1));
}

/// The second to come is refused, and spoils nothing.
#[test]
fn of_two_that_make_a_store_at_once_one_does() {
    for _ in 0..50 {
        let place = Place::new();
        let dir = place.0.join("s");
        let how =
            Create { units: (0..3).map(|u| vec![format!("u{u}").into()]).collect(), parity: 1, stripe: 4096 };
        let start = std::sync::Barrier::new(2);
        let made: Vec<Result<(), String>> = std::thread::scope(|s| {
            let make = || {
                start.wait();
                Store::create(&dir, &how).map(drop).map_err(|e| e.to_string())
            };
            [s.spawn(make), s.spawn(make)].map(|t| t.join().unwrap()).into()
        });
        let refused: Vec<&String> = made.iter().filter_map(|m| m.as_ref().err()).collect();
        let [because] = refused[..] else { panic!("{made:?}") };
        let known = ["is there already", "another store that is being made"];
        assert!(known.iter().any(|k| because.contains(k)), "{because}");
        good(write(&dir, "x", &dataset(), "block,*", 2, false, 0..2));
        good(check(&dir, "x", &dataset(), "*,block", 2, 0..2));
    }
}

#[test]
fn a_unit_may_be_a_chain_of_directories() {
    let place = Place::new();
    let dir = place.0.join("s");
    let chain = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let units = vec![chain(&["a", "b"]), chain(&["c"]), chain(&["d", "e", "f"])];
    Store::create(&dir, &Create { units, parity: 1, stripe: 4096 }).unwrap();
    good(write(&dir, "x", &dataset(), "block,*", 2, false, 0..2));
    good(check(&dir, "x", &dataset(), "*,block", 2, 0..2));
    // An object that lies in a later directory of its chain is found there, too.
    for file in ["0.data", "0.sums"] {
        let objects = |unit: &str| dir.join(unit).join("objects").join(file);
        let here = ["d", "e", "f"].into_iter().find(|unit| objects(unit).exists()).unwrap();
        if here != "f" {
            std::fs::rename(objects(here), objects("f")).unwrap();
        }
    }
    good(check(&dir, "x", &dataset(), "*,block", 2, 0..2));
}

/// A manifest that names them could not be read again, or would make one directory two units.
#[test]
fn a_unit_is_not_replaced_by_what_ruins_the_store() {
    let place = Place::store(2, 1, 4096);
    good(write(&place.0, "x", &dataset(), "block,*", 2, false, 0..1));
    place.lose(2);
    std::os::unix::fs::symlink(place.0.join("unit0"), place.0.join("link")).unwrap();
    let many = vec!["many"; 65];
    let bad: [&[&str]; 9] = [
        &[],
        &[""],
        &["new", ""],
        &many,
        &["new", "new"],
        &["unit0"],
        &["link"],
        &["unit0/objects/new"],
        &["."],
    ];
    let mut store = Store::open(&place.0).unwrap();
    for dirs in bad {
        let with = dirs.iter().map(PathBuf::from).collect();
        let error = store.replace(2, Some(with), true).unwrap_err();
        assert!(matches!(error, StoreError::Manifest { .. } | StoreError::Bad { .. }), "{dirs:?}: {error}");
        good(check(&place.0, "x", &dataset(), "*,block", 2, 0..1));
    }
    store.replace(2, Some(vec!["new".into()]), false).unwrap();
    rebuild(&store, 2, 100);
    place.lose(0);
    good(check(&place.0, "x", &dataset(), "*,block", 2, 0..1));
}
