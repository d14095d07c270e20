//! Many datasets, made one after the other in a store that stays open.

use crate::rig::{options, Place};
use polyduct_layout::{Dataset, ElemType};
use polyduct_store::disk::{Store, StoreWriter, StoredArray};
use polyduct_store::volume::Entry;
use std::time::{Duration, Instant};

fn make(store: &Store, name: &str) -> Duration {
    let (dataset, start) = (Dataset::new(&[10], ElemType::U8).unwrap(), Instant::now());
    let mut out =
        StoreWriter::of(store.again().unwrap(), name, &dataset, "*", false, &options(0, 1)).unwrap();
    out.write(name.as_bytes()).unwrap();
    out.close().unwrap();
    start.elapsed()
}

fn name(n: u32) -> String {
    format!("d/{n:08}")
}

fn objects(place: &Place) -> usize {
    std::fs::read_dir(place.0.join("unit0/objects")).unwrap().count() / 2
}

/// Each takes as long as those before it: the middle one of fifty with four thousand there as that with four
/// hundred, or twice that. Those between are named together: to make each of them takes the disks a minute.
#[test]
fn the_four_thousandth_dataset_is_made_as_fast_as_the_four_hundredth() {
    let place = Place::store(2, 1, 4096);
    let store = Store::open(&place.0).unwrap();
    let middle = |range: std::ops::Range<u32>| {
        let mut took: Vec<Duration> = range.map(|n| make(&store, &name(n))).collect();
        took.sort_unstable();
        took[took.len() / 2]
    };
    let fill = |range: std::ops::Range<u32>| {
        let mut owned = store.own().unwrap();
        let (like, _) = owned.find(&name(0)).unwrap();
        let mut entry = |n| (name(n), Some(Entry { object: owned.new_object().unwrap(), ..like.clone() }));
        let changes = range.map(&mut entry).collect();
        owned.commit_names(changes).unwrap();
    };
    make(&store, &name(0));
    fill(1..350);
    let early = middle(350..400);
    fill(400..3950);
    let late = middle(3950..4000);
    println!("{early:?}, with 3,600 more {late:?}");
    assert!(late <= 2 * early, "{early:?}, with 3,600 more {late:?}");
    // They are there for who opens the store anew.
    let fresh = Store::open(&place.0).unwrap();
    assert_eq!(fresh.datasets().unwrap().len(), 4000);
    let mut bytes = [0; 10];
    StoredArray::of(fresh, &name(3999)).unwrap().read_box(0..1, &[0], &[10], &mut bytes).unwrap();
    assert_eq!(bytes, *b"d/00003999");
}

#[test]
fn what_is_replaced_or_given_up_in_a_store_that_stays_open_is_removed() {
    let place = Place::store(2, 1, 4096);
    let store = Store::open(&place.0).unwrap();
    for _ in 0..20 {
        make(&store, &name(1));
    }
    assert!(objects(&place) <= 3, "{} objects", objects(&place));
    let dataset = Dataset::new(&[10], ElemType::U8).unwrap();
    for _ in 0..20 {
        let again = store.again().unwrap();
        let mut out = StoreWriter::of(again, "gone", &dataset, "*", false, &options(0, 1)).unwrap();
        out.write(&[1; 10]).unwrap();
        drop(out);
    }
    make(&store, &name(2));
    assert!(objects(&place) <= 3, "{} objects", objects(&place));
    // Another's turn between is noticed.
    let other = Store::open(&place.0).unwrap();
    make(&other, &name(3));
    make(&store, &name(4));
    make(&other, &name(5));
    assert_eq!(store.datasets().unwrap().len(), 5);
}
