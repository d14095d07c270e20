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
    // The disks may have more to do for others than before: what grows with the datasets was a hundred times
    // as much.
    assert!(late <= 2 * early + Duration::from_millis(10), "{early:?}, with 3,600 more {late:?}");
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

/// What an opening costs with so many datasets in the store: of one that is read, and of one that is made, as
/// `cp` does.
#[test]
fn a_fresh_opening_among_four_thousand_costs_little_more_than_among_forty() {
    let dataset = Dataset::new(&[10], ElemType::U8).unwrap();
    // The shortest of many: whatever else the machine does only makes them longer.
    let shortest = |took: Vec<Duration>| took.into_iter().min().unwrap_or_default();
    let filled = |count: u32| {
        let place = Place::store(4, 1, 4096);
        let store = Store::open(&place.0).unwrap();
        make(&store, &name(0));
        let mut owned = store.own().unwrap();
        let (like, _) = owned.find(&name(0)).unwrap();
        let mut changes = Vec::new();
        for n in 1..count {
            let object = owned.new_object().unwrap();
            changes.push((name(n), Some(Entry { object, ..like.clone() })));
            for unit in 0..5 {
                let objects = place.0.join(format!("unit{unit}/objects"));
                for kind in ["data", "sums"] {
                    let file = |object: u64| objects.join(format!("{object:x}.{kind}"));
                    std::fs::copy(file(like.object), file(object)).unwrap();
                }
            }
        }
        owned.commit_names(changes).unwrap();
        drop(owned);
        drop(store);
        place
    };
    let measure = |place: &Place| {
        let read = shortest(
            (0..40)
                .map(|_| {
                    let start = Instant::now();
                    StoredArray::of(Store::open(&place.0).unwrap(), &name(7)).unwrap();
                    start.elapsed()
                })
                .collect(),
        );
        let made = shortest(
            (0..40)
                .map(|n| {
                    let start = Instant::now();
                    let mut out =
                        StoreWriter::open(&place.0, &format!("new{n}"), &dataset, "*", false, &options(0, 1))
                            .unwrap();
                    out.write(&[1; 10]).unwrap();
                    out.close().unwrap();
                    start.elapsed()
                })
                .collect(),
        );
        (read, made)
    };
    let (few, many) = (filled(40), filled(4000));
    let (few, many) = (measure(&few), measure(&many));
    println!("among 40 {few:?}, among 4,000 {many:?}");
    // With room for a machine that has other things to do.
    let most = |few: Duration| 3 * few + Duration::from_millis(10);
    assert!(many.0 <= most(few.0) && many.1 <= most(few.1), "{few:?}, among 4,000 {many:?}");
}
