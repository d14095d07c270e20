//! The manifest and its copies, of which some are outdated.

use crate::rig::{check, write, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_store::disk::{nonce, Create, Store, StoreError};
use std::path::PathBuf;

/// A store of 2+1 units with a dataset, whose unit 1 was in `b`, too, and is in `c` now.
fn moved_twice() -> (Place, Store, Dataset) {
    let place = Place::store(2, 1, 4096);
    let dataset = Dataset::new(&[40, 2500], ElemType::F32).unwrap();
    write(&place.0, "x", &dataset, "*,*", 1, false, 0..1).into_iter().for_each(|r| r.unwrap());
    let long_lived = Store::open(&place.0).unwrap();
    let mut store = Store::open(&place.0).unwrap();
    for (before, to) in [("unit1", "b"), ("b", "c")] {
        let copy = std::fs::read(place.0.join(before).join("store.toml")).unwrap();
        store.replace_in_use(1, vec![PathBuf::from(to)], false).unwrap();
        while !store.own().unwrap().rebuild(1, 1000, nonce()).unwrap().finished {}
        let left = place.0.join(before).join("store.toml");
        assert!(!left.exists(), "a directory that was given up has a copy");
        // As it is where that could not be removed.
        std::fs::write(left, copy).unwrap();
    }
    (place, long_lived, dataset)
}

#[test]
fn the_newest_copy_counts() {
    let (place, _, dataset) = moved_twice();
    // A unit that was away has an old copy, too.
    let old = std::fs::read(place.0.join("b/store.toml")).unwrap();
    std::fs::write(place.0.join("unit0/store.toml"), &old).unwrap();
    for damaged in [None, Some(&b"\xff\xfe"[..]), Some(b"version = 2")] {
        match damaged {
            None => std::fs::remove_file(place.0.join("store.toml")).unwrap(),
            Some(bytes) => std::fs::write(place.0.join("store.toml"), bytes).unwrap(),
        }
        let store = Store::open(&place.0).unwrap();
        assert_eq!(store.manifest().units[1], [PathBuf::from("c")]);
        assert_eq!(store.own().unwrap().lost().count(), 0);
        check(&place.0, "x", &dataset, "*,*", 1, 0..1).into_iter().for_each(|r| r.unwrap());
    }
    let store = Store::open(&place.0).unwrap();
    // The store's own is outdated: good copies are not written over.
    std::fs::write(place.0.join("store.toml"), &old).unwrap();
    let (mended, failed) = store.own().unwrap().mend_manifests();
    assert_eq!((mended, failed.len()), (2, 0));
    for dir in [".", "unit0", "c", "unit2"] {
        let text = std::fs::read_to_string(place.0.join(dir).join("store.toml")).unwrap();
        assert!(text.contains("serial = 2") && text.contains("\"c\""), "{dir}: {text}");
    }
}

/// A process that has had the store open for long finds what was changed meanwhile, with the manifest and
/// without.
#[test]
fn a_manifest_that_was_read_long_ago_is_not_gone_on_with() {
    let (place, long_lived, _) = moved_twice();
    let (own, aside) = (place.0.join("store.toml"), place.0.join("aside"));
    assert_eq!(long_lived.manifest().units[1], [PathBuf::from("unit1")]);
    std::fs::rename(&own, &aside).unwrap();
    assert_eq!(long_lived.own().unwrap().lost().count(), 0);
    std::fs::rename(&aside, &own).unwrap();
    assert_eq!(long_lived.own().unwrap().lost().count(), 0);
    // It comes back newer than it was.
    std::fs::rename(&own, &aside).unwrap();
    let mut store = Store::open(&place.0).unwrap();
    store.replace_in_use(1, vec![PathBuf::from("d")], false).unwrap();
    while !store.own().unwrap().rebuild(1, 1000, nonce()).unwrap().finished {}
    assert_eq!(long_lived.own().unwrap().lost().count(), 0);
    // What is no manifest because nobody can tell is an error, and nothing is guessed.
    std::fs::remove_file(&own).unwrap();
    std::os::unix::fs::symlink("store.toml", &own).unwrap();
    assert!(long_lived.disks().is_err());
}

/// Where only a unit of a store lies, there is no second door to it: each would have a lock of its own.
#[test]
fn a_directory_with_a_unit_of_a_store_elsewhere_is_no_store() {
    let (store, disks) = (Place::new(), [Place::new(), Place::new(), Place::new()]);
    for beside in [false, true] {
        let dir = store.0.join(format!("store{beside}"));
        let path = |disk: &Place| match beside {
            false => disk.0.join(format!("run{beside}")),
            true => PathBuf::from("../..").join(disk.0.file_name().unwrap()).join(format!("run{beside}")),
        };
        let units = disks.iter().map(|disk| vec![path(disk)]).collect();
        Store::create(&dir, &Create { units, parity: 1, stripe: 4096 }).unwrap();
        for disk in &disks {
            let found = Store::open(&disk.0).map(drop);
            assert!(matches!(found, Err(StoreError::NoStore { .. })), "{found:?}");
            let there = std::fs::read_dir(&disk.0).unwrap().flatten().map(|entry| entry.file_name());
            assert!(there.into_iter().all(|name| name.to_str().unwrap().starts_with("run")));
            let below = polyduct_store::disk::split(&disk.0.join("other/x"));
            assert!(matches!(below, Err(StoreError::NoStore { .. })), "{below:?}");
        }
        assert_eq!(Store::open(&dir).unwrap().own().unwrap().lost().count(), 0);
    }
}
