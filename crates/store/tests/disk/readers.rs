//! A reader that has a dataset open learns that a unit is not read any more, or again, whatever becomes of
//! the manifest.

use crate::rig::{options, write, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_store::disk::{nonce, Store, StoreError, StoreReader, StoredArray};
use polyduct_store::volume::units::{Cause, UnitError};
use polyduct_store::volume::BLOCK;
use polyduct_store::Expect;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const LEN: u64 = 2 * BLOCK as u64;

/// Of 2+1 units, whose row 0 has its parity on unit 2.
fn place() -> Place {
    let place = Place::store(2, 1, 4096);
    let dataset = Dataset::new(&[LEN], ElemType::U8).unwrap();
    write(&place.0, "x", &dataset, "*", 1, false, 0..1).into_iter().for_each(|r| r.unwrap());
    write(&place.0, "x", &dataset, "*", 1, true, 1..2).into_iter().for_each(|r| r.unwrap());
    place
}

fn read(array: &StoredArray) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![0; LEN as usize];
    array.read_box(0..1, &[0], &[LEN], &mut bytes).map(|()| bytes)
}

/// The owner loses unit 0, and writes the first block, which only that unit had.
fn overwrite_without_unit_0(store: &Store) {
    let mut owned = store.own().unwrap();
    owned.report(UnitError { unit: 0, reason: "it is lost".into(), cause: Cause::Disk });
    let (entry, _) = owned.find("x").unwrap();
    owned.overwrite(entry.object, 0, &[7; BLOCK], nonce()).unwrap();
}

#[test]
fn an_old_set_of_lost_units_is_not_gone_on_with_though_the_manifest_is_gone() {
    let place = place();
    let manifest = place.0.join("store.toml");
    let [readers, mut owners] = [(); 2].map(|()| Store::open(&place.0).unwrap());
    place.lose(2);
    std::fs::remove_file(&manifest).unwrap();
    let array = StoredArray::of(readers, "x").unwrap();
    let old = read(&array).unwrap();
    owners.replace(2, Some(vec!["new2".into()]), false).unwrap();
    while !owners.own().unwrap().rebuild(2, 100, nonce()).unwrap().finished {}
    std::fs::remove_file(&manifest).unwrap();
    // What it knows is that unit 2 is lost: nobody contradicts unit 0.
    overwrite_without_unit_0(&owners);
    let got = read(&array).unwrap();
    assert!(got[..BLOCK] == [7; BLOCK] && got[BLOCK..] == old[BLOCK..]);
}

#[test]
fn a_port_learns_it_too() {
    let place = place();
    let mut owners = Store::open(&place.0).unwrap();
    place.lose(2);
    let mut port = StoreReader::open(&place.0, "x", "*", &Expect::default(), &options(0, 1)).unwrap();
    let mut bytes = vec![0; LEN as usize];
    port.read(&mut bytes).unwrap();
    owners.replace(2, Some(vec!["new2".into()]), false).unwrap();
    while !owners.own().unwrap().rebuild(2, 100, nonce()).unwrap().finished {}
    // Step 1 is in row 1, of which unit 1 has the first block and unit 0 the parity.
    let mut owned = owners.own().unwrap();
    owned.report(UnitError { unit: 1, reason: "it is lost".into(), cause: Cause::Disk });
    let (entry, _) = owned.find("x").unwrap();
    owned.overwrite(entry.object, 2, &[7; BLOCK], nonce()).unwrap();
    drop(owned);
    port.read(&mut bytes).unwrap();
    assert!(bytes[..BLOCK] == [7; BLOCK], "it was told that it is written");
}

/// What is acknowledged is seen, also while the owner goes on: here nobody can be asked, and that is said.
#[test]
fn a_unit_that_is_lost_in_a_turn_is_not_read_from_then_on() {
    let place = place();
    let mut readers = Store::open(&place.0).unwrap();
    readers.timeout = Some(Duration::from_millis(20));
    let owners = Store::open(&place.0).unwrap();
    let array = StoredArray::of(readers, "x").unwrap();
    read(&array).unwrap();
    let mut owned = owners.own().unwrap();
    read(&array).unwrap();
    owned.report(UnitError { unit: 0, reason: "it is lost".into(), cause: Cause::Disk });
    let (entry, _) = owned.find("x").unwrap();
    owned.overwrite(entry.object, 0, &[7; BLOCK], nonce()).unwrap();
    assert!(matches!(read(&array), Err(StoreError::Busy { .. })));
    drop(owned);
    assert!(read(&array).unwrap()[..BLOCK] == [7; BLOCK]);
}

/// A process that has a turn does not stir up those that read, unless something has changed.
#[test]
fn the_number_stays_while_the_units_do() {
    let place = place();
    let number = || {
        let mut number = [0; 8];
        std::fs::File::open(place.0.join("lock")).unwrap().read_exact_at(&mut number, 24).unwrap();
        u64::from_le_bytes(number)
    };
    let first = number();
    for _ in 0..3 {
        // Its name is another, and its place is not.
        let store = Store::open(&place.0.join("../").join(place.0.file_name().unwrap())).unwrap();
        drop(store.own().unwrap());
        assert_eq!(number(), first);
    }
    place.lose(1);
    drop(Store::open(&place.0).unwrap().own().unwrap());
    let second = number();
    assert!(second > first);
    let mut store = Store::open(&place.0).unwrap();
    store.replace(1, None, false).unwrap();
    assert!(number() > second);
    let third = number();
    while !store.own().unwrap().rebuild(1, 100, nonce()).unwrap().finished {}
    assert!(number() > third);
    // A file of locks that is new tells nothing, and is told anew.
    let array = StoredArray::open(&place.0, "x").unwrap();
    read(&array).unwrap();
    std::fs::File::options().write(true).open(place.0.join("lock")).unwrap().set_len(0).unwrap();
    read(&array).unwrap();
    assert_eq!(number(), 1);
}
