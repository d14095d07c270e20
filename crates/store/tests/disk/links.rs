//! Files of a unit that are symbolic links to somewhere else: they are never followed, however right it looks
//! what lies there.

use crate::rig::{check, part, write, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_port::PortError;
use polyduct_store::disk::{nonce, Store, StoreError, StoredArray};
use polyduct_store::volume::{Scrub, VolumeError, BLOCK};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const LEN: u64 = 6 * BLOCK as u64;
/// What of a unit may be a link; the last is a directory.
const FILES: [&str; 7] =
    ["objects/0.data", "objects/0.sums", "log", "superblock", "catalog0", "catalog1", "objects"];

fn dataset() -> Dataset {
    Dataset::new(&[LEN], ElemType::U8).unwrap()
}

fn good(results: Vec<Result<(), StoreError>>) {
    results.into_iter().for_each(|r| r.unwrap());
}

/// All files beneath a directory, with their bytes.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(tree(&path)),
            false => drop(all.insert(path.clone(), std::fs::read(path).unwrap())),
        }
    }
    all
}

/// A store in use: each unit has all of its files.
fn store(data: u32, parity: u32) -> Place {
    let place = Place::store(data, parity, BLOCK as u64);
    good(write(&place.0, "x", &dataset(), "*", 1, false, 0..1));
    let array = StoredArray::open(&place.0, "x").unwrap();
    // What is there already: the logs come to be.
    array.write_box(0..1, &[0], &[LEN], &part(&dataset(), "*", 0, 1, 0)).unwrap();
    drop(Store::open(&place.0).unwrap().own().unwrap());
    place
}

/// Moves a file of unit 1 out of it, and leaves a link to it. Gives where it is.
fn link(place: &Place, file: &str) -> PathBuf {
    let (inside, outside) = (place.0.join("unit1").join(file), place.0.join("outside"));
    std::fs::create_dir(&outside).unwrap();
    let moved = outside.join(inside.file_name().unwrap());
    std::fs::rename(&inside, &moved).unwrap();
    symlink(&moved, inside).unwrap();
    outside
}

#[test]
fn a_link_is_not_followed_and_the_others_make_up_for_it() {
    for file in FILES {
        let place = store(2, 1);
        let outside = link(&place, file);
        let before = tree(&outside);
        assert!(before.values().any(|bytes| !bytes.is_empty()), "{file}: else it shows nothing");
        good(check(&place.0, "x", &dataset(), "block", 2, 0..1));
        let array = StoredArray::open(&place.0, "x").unwrap();
        let mut bytes = vec![0; LEN as usize];
        array.read_box(0..1, &[0], &[LEN], &mut bytes).unwrap();
        assert!(bytes == part(&dataset(), "*", 0, 1, 0), "{file}");
        let store = Store::open(&place.0).unwrap();
        {
            let mut owned = store.own().unwrap();
            let mut scrub = Scrub::new();
            while !owned.scrub(&mut scrub, 5).unwrap().finished {}
            // Else it is only asked for when something changes.
            let (entry, _) = owned.find("x").unwrap();
            for block in 0..3 {
                let same = owned.read(entry.object, block).unwrap();
                owned.overwrite(entry.object, block, &same, nonce()).unwrap();
            }
            let lost: Vec<u32> = owned.lost().map(|(unit, _)| unit).collect();
            assert_eq!(lost, [1], "{file}: the unit was used");
        }
        good(write(&place.0, "y", &dataset(), "block", 2, false, 1..2));
        store.rename("y", "z").unwrap();
        good(check(&place.0, "z", &dataset(), "*", 1, 1..2));
        assert!(tree(&outside) == before, "{file}: what lies elsewhere was written");
        comes_back(&place, file, &before);
    }
}

/// The unit is replaced where the link is, or that is refused; then elsewhere. The link's end stays as it
/// was.
fn comes_back(place: &Place, file: &str, before: &BTreeMap<PathBuf, Vec<u8>>) {
    let mut store = Store::open(&place.0).unwrap();
    if let Err(e) = store.replace(1, None, true) {
        assert!(e.to_string().contains("unit 1"), "{file}: {e}");
    }
    store.replace(1, Some(vec!["new1".into()]), false).unwrap();
    while !store.own().unwrap().rebuild(1, 100, nonce()).unwrap().finished {}
    let mut owned = store.own().unwrap();
    let mut scrub = Scrub::new();
    while !owned.scrub(&mut scrub, 100).unwrap().finished {}
    assert_eq!((owned.lost().count(), scrub.report().repaired.len(), scrub.report().damaged), (0, 0, 0));
    drop(owned);
    store.remove(&["x"], false).unwrap();
    drop(store.own().unwrap());
    assert!(tree(&place.0.join("outside")) == *before, "{file}: what lies elsewhere was touched");
}

/// Without parity nobody makes up for it: that is said, and nothing is read.
#[test]
fn a_link_where_nobody_makes_up_for_it_is_an_error() {
    for file in FILES {
        let place = store(2, 0);
        let outside = link(&place, file);
        let before = tree(&outside);
        let errors = check(&place.0, "x", &dataset(), "block", 2, 0..1);
        let opened = StoredArray::open(&place.0, "x").and_then(|array| {
            let written = array.write_box(0..1, &[0], &[LEN], &vec![7; LEN as usize]);
            written.and_then(|()| array.read_box(0..1, &[0], &[LEN], &mut vec![0; LEN as usize]))
        });
        for done in errors.into_iter().chain([opened]) {
            let error = done.unwrap_err();
            assert!(
                matches!(
                    &error,
                    StoreError::Volume {
                        source: VolumeError::TooManyLost { .. } | VolumeError::Damaged { .. },
                        ..
                    } | StoreError::Port(PortError::PeerAborted { .. })
                        | StoreError::Message { .. }
                ),
                "{file}: {error}"
            );
        }
        assert!(tree(&outside) == before, "{file}");
    }
}

/// Nor are links that lie where a new file is to be: their ends do not come to be.
#[test]
fn nothing_is_made_at_the_end_of_a_link() {
    for file in ["objects/1.data", "objects/1.sums", "catalog0", "catalog1", "log"] {
        let place = store(2, 1);
        let (inside, outside) = (place.0.join("unit1").join(file), place.0.join("outside"));
        let _ = std::fs::remove_file(&inside);
        symlink(&outside, &inside).unwrap();
        for (name, step) in [("y", 1), ("z", 2)] {
            good(write(&place.0, name, &dataset(), "block", 2, false, step..step + 1));
            good(check(&place.0, name, &dataset(), "*", 1, step..step + 1));
        }
        let array = StoredArray::open(&place.0, "x").unwrap();
        array.write_box(0..1, &[0], &[LEN], &part(&dataset(), "*", 0, 1, 3)).unwrap();
        good(check(&place.0, "x", &dataset(), "block", 2, 3..4));
        assert!(!outside.exists(), "{file}: it was made");
        let lost: Vec<u32> =
            Store::open(&place.0).unwrap().own().unwrap().lost().map(|(unit, _)| unit).collect();
        // The files of an object that no name stands for are removed, and so is such a link.
        assert_eq!(lost, if file.starts_with("objects") { vec![] } else { vec![1] }, "{file}");
    }
}

/// A link in place of the directory of objects of a new unit is no empty directory.
#[test]
fn no_store_is_made_through_a_link() {
    let place = Place::new();
    let outside = place.0.join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::create_dir_all(place.0.join("s/unit1")).unwrap();
    symlink(&outside, place.0.join("s/unit1/objects")).unwrap();
    let units = (0..3).map(|u| vec![format!("unit{u}").into()]).collect();
    let how = polyduct_store::disk::Create { units, parity: 1, stripe: BLOCK as u64 };
    let refused = Store::create(&place.0.join("s"), &how).err().unwrap();
    assert!(matches!(&refused, StoreError::Exists { what, .. } if what.contains("unit1")), "{refused}");
    assert!(tree(&outside).is_empty());
    let unit1 = std::fs::read_dir(place.0.join("s/unit1")).unwrap().count();
    assert_eq!(unit1, 1, "what was there stays, and nothing comes to it");
}
