//! What an opening does again of what stands in the logs, while others read.

use super::basics::{block, entry, rows, ID};
use super::sim::{Disks, Event, Sim};
use super::written::WholeRows;
use polyduct_store::volume::units::File;
use polyduct_store::volume::{Geometry, Volume, BLOCK};
use std::collections::BTreeSet;

/// A store with one object, some of whose blocks were overwritten again and again: the logs have all of it.
fn overwritten(g: Geometry) -> (Disks, u64) {
    let mut sim = Sim::default();
    let mut v = Volume::create(&mut sim, ID, g, 10).unwrap();
    let object = v.new_object().unwrap();
    v.write_row(object, 0, &rows(0..g.row_blocks())).unwrap();
    v.commit(vec![("a".into(), entry(object, g.row_blocks()))], 20).unwrap();
    for seed in 0..12 {
        v.overwrite(object, seed % 2, &block(100 + seed), 30).unwrap();
    }
    drop(v);
    (sim.disks, object)
}

/// A reader without a lock may look at any time: what is in its place already never goes back to what it was
/// before.
#[test]
fn nothing_that_was_overwritten_is_seen_again() {
    for (data, parity) in [(1, 0), (2, 1), (4, 1), (4, 2)] {
        let g = Geometry::new(data, parity, 2 * BLOCK as u64).unwrap();
        let (disks, object) = overwritten(g);
        let mut sim = Sim::of(disks.clone(), &[]);
        let mut v = Volume::open(&mut sim, ID, g, 40).unwrap();
        assert_eq!(v.replayed(), 13);
        assert!(*v.read(object, 0).unwrap() == block(110) && *v.read(object, 1).unwrap() == block(111));
        drop(v);
        let mut places = BTreeSet::new();
        for event in &sim.history {
            let Event::Write { unit, file: file @ (File::Data(_) | File::Sums(_)), at, bytes } = event else {
                continue;
            };
            let there = &disks[&(*unit, *file)][*at as usize..][..bytes.len()];
            assert!(there == bytes, "{data}+{parity}, unit {unit}, {file:?} at {at}: it changes");
            assert!(places.insert((unit, file, at)), "{data}+{parity}, unit {unit}, {file:?} at {at}: again");
        }
        assert!(!places.is_empty());
    }
}

/// A change of a block is in few logs: that others do not have it says nothing. A log that was cut short is
/// told of.
#[test]
fn only_a_log_that_lacks_something_is_told_of() {
    for (data, parity) in [(2, 1), (4, 1), (4, 2)] {
        let g = Geometry::new(data, parity, 2 * BLOCK as u64).unwrap();
        let (disks, object) = overwritten(g);
        let mut sim = Sim::of(disks.clone(), &[]);
        assert_eq!(Volume::open(&mut sim, ID, g, 40).unwrap().unreadable(), []);
        for unit in 0..g.units() {
            let mut sim = Sim::of(disks.clone(), &[]);
            sim.rot(unit, File::Log, 20);
            let mut v = Volume::open(&mut sim, ID, g, 40).unwrap();
            let of: Vec<_> =
                v.unreadable().iter().map(|&(unit, why)| (unit, why.contains("log ends"))).collect();
            assert_eq!(of, [(unit, true)], "{data}+{parity}");
            assert!(*v.read(object, 1).unwrap() == block(111));
        }
        // One that joins keeps no log.
        let mut sim = Sim::of(disks, &[]);
        sim.wipe(1);
        let mut v = Volume::open(&mut sim, ID, g, 40).unwrap();
        v.replace(1, false, 50).unwrap();
        v.overwrite(object, 0, &block(200), 60).unwrap();
        drop(v);
        let v = Volume::open(&mut sim, ID, g, 70).unwrap();
        assert_eq!((v.joining().count(), v.replayed(), v.unreadable()), (1, 1, &[][..]));
    }
}
