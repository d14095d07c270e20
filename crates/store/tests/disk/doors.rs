//! A copy of the manifest in another directory is a second door to the same units, with a file of locks of
//! its own.

use crate::rig::{check, options, part, write, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_port::PortError;
use polyduct_store::disk::manifest::Manifest;
use polyduct_store::disk::{nonce, Store, StoreError, StoreWriter, StoredArray};
use polyduct_store::volume::BLOCK;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A store with two blocks, and two directories that lead to it.
fn doors(data: u32, parity: u32) -> (Place, PathBuf) {
    let place = Place::store(data, parity, 4096);
    let dataset = Dataset::new(&[2 * BLOCK as u64], ElemType::U8).unwrap();
    write(&place.0, "x", &dataset, "*", 1, false, 0..1).into_iter().for_each(|r| r.unwrap());
    let mut manifest = Manifest::read(&place.0).unwrap();
    manifest.units.iter_mut().flatten().for_each(|dir| *dir = place.0.join(&dir));
    let other = place.0.join("other");
    std::fs::create_dir(&other).unwrap();
    manifest.write(&other).unwrap();
    (place, other)
}

fn good(all: Vec<Result<(), StoreError>>) {
    all.into_iter().for_each(|done| done.unwrap());
}

fn array(dir: &Path) -> StoredArray {
    let mut store = Store::open(dir).unwrap();
    store.timeout = Some(Duration::from_secs(60));
    StoredArray::of(store, "x").unwrap()
}

#[test]
fn increments_through_both_doors_are_all_kept() {
    const TIMES: u64 = 150;
    for (data, parity) in [(2, 1), (4, 1), (1, 1), (2, 0)] {
        let (place, other) = doors(data, parity);
        std::thread::scope(|scope| {
            for (which, dir) in [(0, &place.0), (1, &other)] {
                scope.spawn(move || {
                    let array = array(dir);
                    for n in 1..=TIMES {
                        // Both counters are in one block, and the whole of it is written.
                        let at = 8 * which;
                        array.write_box(0..1, &[at], &[at + 8], &n.to_le_bytes()).unwrap();
                        let mut bytes = [0; 8];
                        array.read_box(0..1, &[at], &[at + 8], &mut bytes).unwrap();
                        assert_eq!(u64::from_le_bytes(bytes), n, "door {which}, {data}+{parity}");
                    }
                });
            }
        });
        for dir in [&place.0, &other] {
            let mut both = [0; 16];
            array(dir).read_box(0..1, &[0], &[16], &mut both).unwrap();
            assert_eq!(both[..8], TIMES.to_le_bytes());
            assert_eq!(both[8..], TIMES.to_le_bytes());
        }
    }
}

#[test]
fn one_counter_is_read_and_written_in_a_turn_of_either() {
    const TIMES: u64 = 30;
    let (place, other) = doors(2, 1);
    let zero = [0; 8];
    array(&place.0).write_box(0..1, &[0], &[8], &zero).unwrap();
    std::thread::scope(|scope| {
        for dir in [&place.0, &other] {
            scope.spawn(move || {
                let store = Store::open(dir).unwrap();
                for _ in 0..TIMES {
                    let mut owned = store.own().unwrap();
                    let (entry, _) = owned.find("x").unwrap();
                    let mut block = owned.read(entry.object, 0).unwrap();
                    let n = u64::from_le_bytes(block[..8].try_into().unwrap()) + 1;
                    block[..8].copy_from_slice(&n.to_le_bytes());
                    owned.overwrite(entry.object, 0, &block, nonce()).unwrap();
                }
            });
        }
    });
    let mut got = [0; 8];
    array(&other).read_box(0..1, &[0], &[8], &mut got).unwrap();
    assert_eq!(u64::from_le_bytes(got), 2 * TIMES);
}

#[test]
fn who_comes_by_the_other_door_waits_and_begins_anew() {
    let (place, other) = doors(2, 1);
    let [one, two] = [&place.0, &other].map(|dir| array(dir));
    let superblock = || std::fs::read(place.0.join("unit0/superblock")).unwrap();
    let put = |array: &StoredArray, byte| {
        array.write_box(0..1, &[0], &[9], &[byte; 9]).unwrap();
        superblock()
    };
    let first = put(&one, 1);
    assert!(put(&one, 2) == first, "no epoch begins");
    let second = put(&two, 3);
    assert!(second != first && put(&two, 4) == second);
    assert!(put(&one, 5) != second);
    // While one has the turn, the other is told so in time, or asked whether to go on.
    let held = Store::open(&place.0).unwrap();
    let owned = held.own().unwrap();
    let mut waits = Store::open(&other).unwrap();
    waits.timeout = Some(Duration::from_millis(20));
    assert!(
        matches!(waits.own(), Err(StoreError::Busy { waited, .. }) if waited >= Duration::from_millis(20))
    );
    waits.timeout = None;
    waits.interrupt = Some(std::sync::Arc::new(|| true));
    assert!(matches!(waits.own(), Err(StoreError::Port(PortError::Interrupted { .. }))));
    waits.interrupt = None;
    drop(owned);
    assert_eq!(waits.own().unwrap().lost().count(), 0);
}

/// An appender by either directory, while one by this one is at it, is refused until that is done: nothing it
/// was told of is lost.
#[test]
fn of_two_that_append_through_both_doors_one_does() {
    let dataset = Dataset::new(&[10_000], ElemType::U8).unwrap();
    let open = |dir: &Path| StoreWriter::open(dir, "y", &dataset, "*", true, &options(0, 1));
    for (data, parity) in [(2, 1), (1, 1), (2, 0)] {
        let (place, other) = doors(data, parity);
        good(write(&place.0, "y", &dataset, "*", 1, true, 0..1));
        let doors = [&place.0, &other];
        for step in 1..4 {
            let mut first = open(doors[step as usize % 2]).unwrap();
            first.write(&part(&dataset, "*", 0, 1, step)).unwrap();
            if step == 2 {
                // The same directory with another file of locks is another door, too.
                std::fs::remove_file(place.0.join("lock")).unwrap();
            }
            for dir in doors {
                let Err(error) = open(dir) else { panic!("both append, {data}+{parity}") };
                assert!(error.to_string().contains("another program that appends"), "{error}");
            }
            first.close().unwrap();
        }
        doors.into_iter().for_each(|dir| good(check(dir, "y", &dataset, "*", 1, 0..4)));
    }
}

/// Of two appenders who did not see each other, since the files by which they would have were put in the
/// place of others, the one who ends later is refused: the steps that the other was told of stay.
#[test]
fn who_appended_unseen_beside_another_is_refused_when_it_ends() {
    // One that fills rows, and one that shares them.
    for len in [40_000, 100] {
        let dataset = Dataset::new(&[len], ElemType::U8).unwrap();
        let place = Place::store(2, 1, 8192);
        good(write(&place.0, "y", &dataset, "*", 1, true, 0..1));
        let open = || StoreWriter::open(&place.0, "y", &dataset, "*", true, &options(0, 1)).unwrap();
        let mut first = open();
        first.write(&part(&dataset, "*", 0, 1, 7)).unwrap();
        std::fs::remove_file(place.0.join("lock")).unwrap();
        for unit in 0..3 {
            let sums = place.0.join(format!("unit{unit}/objects/0.sums"));
            let copy = sums.with_extension("copy");
            std::fs::copy(&sums, &copy).unwrap();
            std::fs::rename(&copy, &sums).unwrap();
        }
        let mut other = open();
        other.write(&part(&dataset, "*", 0, 1, 1)).unwrap();
        other.close().unwrap();
        let error = first.close().unwrap_err().to_string();
        assert!(
            error.contains("another program has appended, is 2")
                && error.contains("1, as when this one began"),
            "{error}"
        );
        good(check(&place.0, "y", &dataset, "*", 1, 0..2));
        good(write(&place.0, "y", &dataset, "*", 1, true, 2..4));
        good(check(&place.0, "y", &dataset, "*", 1, 0..4));
    }
}

/// What one writes is nobody's yet, and the other has a turn meanwhile.
#[test]
fn new_datasets_through_both_doors_are_both_there() {
    let dataset = Dataset::new(&[10_000], ElemType::U8).unwrap();
    let (place, other) = doors(2, 1);
    let open = |dir: &Path, name| StoreWriter::open(dir, name, &dataset, "*", false, &options(0, 1)).unwrap();
    let (mut a, mut b) = (open(&place.0, "a"), open(&other, "b"));
    for step in 0..2 {
        for port in [&mut a, &mut b] {
            port.write(&part(&dataset, "*", 0, 1, step)).unwrap();
        }
    }
    a.close().unwrap();
    b.close().unwrap();
    for name in ["a", "b"] {
        good(check(&other, name, &dataset, "*", 1, 0..2));
    }
    assert_eq!(Store::open(&other).unwrap().own().unwrap().lost().count(), 0);
}
