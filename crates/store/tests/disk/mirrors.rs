//! Stores of mirrors, whose units serve by turns.

use crate::rig::{check, write, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_store::disk::{Store, StoreError, StoredArray};
use polyduct_store::volume::VolumeError;
use std::path::Path;

fn dataset() -> Dataset {
    Dataset::new(&[8192], ElemType::U8).unwrap()
}

/// A store whose unit 0 has what unit 1 missed, and is away.
fn split() -> Place {
    let place = Place::store(1, 1, 4096);
    for result in write(&place.0, "x", &dataset(), "*", 1, false, 0..1) {
        result.unwrap();
    }
    let away = place.lose(1);
    StoredArray::open(&place.0, "x").unwrap().write_box(0..1, &[0], &[8192], &[7; 8192]).unwrap();
    place.lose(0);
    std::fs::rename(away, place.0.join("unit1")).unwrap();
    place
}

fn events(place: &Place) -> String {
    std::fs::read_to_string(place.0.join("events.log")).unwrap()
}

#[test]
fn a_mirror_that_missed_what_the_other_served_is_refused() {
    let place = split();
    for _ in 0..2 {
        let error = StoredArray::open(&place.0, "x").err().unwrap();
        let StoreError::Volume { source: VolumeError::Outdated { found, served, had_part }, .. } = &error
        else {
            panic!("{error}");
        };
        assert!(found < served && had_part == &[0], "{error}");
        assert!(events(&place).contains(&error.to_string()));
    }
    std::fs::rename(place.0.join("away0"), place.0.join("unit0")).unwrap();
    let (array, mut got) = (StoredArray::open(&place.0, "x").unwrap(), vec![0; 8192]);
    array.read_box(0..1, &[0], &[8192], &mut got).unwrap();
    assert_eq!(got, [7; 8192]);
}

#[test]
fn what_the_other_mirror_served_can_be_given_up_or_forgotten() {
    let place = split();
    let store = Store::open(&place.0).unwrap();
    let (found, served) = store.own_giving_up().unwrap().given_up().unwrap();
    let said = format!("what was written up to epoch {served} is given up");
    assert!(
        events(&place).contains(&said) && events(&place).contains(&found.to_string()),
        "{}",
        events(&place)
    );
    check(&place.0, "x", &dataset(), "*", 1, 0..1).into_iter().for_each(|r| r.unwrap());
    // The other one is stale now.
    std::fs::rename(place.0.join("away0"), place.0.join("unit0")).unwrap();
    assert!(Store::open(&place.0)
        .unwrap()
        .own()
        .unwrap()
        .lost()
        .any(|(unit, why)| unit == 0 && why.contains("stale")));
    check(&place.0, "x", &dataset(), "*", 1, 0..1).into_iter().for_each(|r| r.unwrap());

    let place = split();
    std::fs::remove_file(place.0.join("served")).unwrap();
    check(&place.0, "x", &dataset(), "*", 1, 0..1).into_iter().for_each(|r| r.unwrap());
    assert!(
        events(&place).contains("the record of the epoch served last is missing or damaged"),
        "{}",
        events(&place)
    );
    assert!(place.0.join("served").exists());
}

#[test]
fn with_less_parity_than_data_nothing_more_is_kept() {
    let place = Place::store(2, 1, 4096);
    write(&place.0, "x", &dataset(), "*", 1, false, 0..1).into_iter().for_each(|r| r.unwrap());
    assert!(!place.0.join("served").exists());
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

fn put(dir: &Path, byte: u8) {
    StoredArray::open(dir, "x").unwrap().write_box(0..1, &[0], &[8192], &[byte; 8192]).unwrap();
}

fn get(dir: &Path) -> Result<Vec<u8>, StoreError> {
    let mut got = vec![0; 8192];
    StoredArray::open(dir, "x")?.read_box(0..1, &[0], &[8192], &mut got)?;
    Ok(got)
}

/// A store is copied, and both serve; then one has a unit of the other. Nobody takes the one for the other,
/// and it is said which they are; who takes one side away has the other.
#[test]
fn a_copy_that_has_served_is_not_mixed_into_its_store() {
    for (ours, theirs) in [(1, 1), (1, 3), (3, 1)] {
        let (place, other) = (Place::store(1, 1, 4096), Place::new());
        write(&place.0, "x", &dataset(), "*", 1, false, 0..1).into_iter().for_each(|r| r.unwrap());
        copy(&place.0, &other.0);
        (0..ours).for_each(|_| put(&place.0, 7));
        (0..theirs).for_each(|_| put(&other.0, 9));
        let own = place.lose(1);
        copy(&other.0.join("unit1"), &place.0.join("unit1"));
        let error = get(&place.0).unwrap_err();
        let StoreError::Volume { source: VolumeError::Forked(sides), .. } = &error else { panic!("{error}") };
        let mut units = sides.each_ref().map(|side| side.units.clone());
        units.sort();
        assert_eq!(units, [[0], [1]], "{error}");
        assert!(events(&place).contains(&error.to_string()));
        // With the copy alone it is known that unit 0 has served.
        let away = place.lose(0);
        let error = get(&place.0).unwrap_err();
        let StoreError::Volume { source: VolumeError::Forked(_) | VolumeError::Outdated { .. }, .. } = &error
        else {
            panic!("{error}")
        };
        std::fs::rename(away, place.0.join("unit0")).unwrap();
        std::fs::remove_dir_all(place.0.join("unit1")).unwrap();
        assert_eq!(get(&place.0).unwrap(), [7; 8192]);
        std::fs::rename(own, place.0.join("unit1")).unwrap();
        assert_eq!(get(&place.0).unwrap(), [7; 8192]);
        assert_eq!(get(&other.0).unwrap(), [9; 8192]);
    }
}
