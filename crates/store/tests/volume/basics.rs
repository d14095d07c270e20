//! What is written is read again, with any units lost.

use super::sim::{Event, Failure, Sim};
use super::written::WholeRows;
use polyduct_store::volume::units::File;
use polyduct_store::volume::{Entry, Geometry, Volume, VolumeError, BLOCK};
use std::sync::Arc;

pub const ID: [u8; 16] = *b"a store in tests";

pub fn block(seed: u64) -> [u8; BLOCK] {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut block = [0; BLOCK];
    for word in block.chunks_exact_mut(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        word.copy_from_slice(&x.to_le_bytes());
    }
    block
}

pub fn rows(seeds: impl Iterator<Item = u64>) -> Vec<u8> {
    seeds.flat_map(block).collect()
}

pub fn entry(object: u64, blocks: u64) -> Option<Entry> {
    Some(Entry { object, blocks, about: vec![7; 700] })
}

/// A store of 2+1 units with one row, of an object that is named `x`.
fn one_row() -> (Geometry, Sim, u64) {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    let mut sim = Sim::default();
    let mut v = Volume::create(&mut sim, ID, g, 10).unwrap();
    let object = v.new_object().unwrap();
    v.write_row(object, 0, &rows(0..2)).unwrap();
    v.commit(vec![("x".into(), entry(object, 2))], 20).unwrap();
    drop(v);
    (g, sim, object)
}

#[test]
fn what_is_written_is_read_with_any_units_lost() {
    for (data, parity, chunk) in [(1, 0, 2), (3, 0, 1), (1, 1, 1), (2, 1, 2), (4, 1, 1), (4, 2, 1), (2, 3, 1)]
    {
        let g = Geometry::new(data, parity, chunk * BLOCK as u64).unwrap();
        let mut sim = Sim::default();
        let mut v = Volume::create(&mut sim, ID, g, 10).unwrap();
        let object = v.new_object().unwrap();
        let n = g.row_blocks();
        for row in 0..3 {
            v.write_row(object, row, &rows(row * n..(row + 1) * n)).unwrap();
        }
        v.commit(vec![("a/b".into(), entry(object, 3 * n))], 20).unwrap();
        for b in (0..3 * n).step_by(2) {
            v.overwrite(object, b, &block(1000 + b), 30).unwrap();
        }
        drop(v);
        let disks = sim.disks.clone();
        for lost in 0_u32..1 << g.units() {
            let dead: Vec<u32> = (0..g.units()).filter(|&u| lost >> u & 1 != 0).collect();
            let mut sim = Sim::of(disks.clone(), &dead);
            let opened = Volume::open(&mut sim, ID, g, 40);
            if dead.len() as u32 > parity {
                let error = opened.unwrap_err();
                assert!(
                    matches!(error, VolumeError::TooManyLost { missing, .. } if missing == dead.len() as u32)
                );
                continue;
            }
            let mut v = opened.unwrap();
            assert_eq!(v.names()["a/b"], entry(object, 3 * n).unwrap());
            for b in 0..3 * n {
                let want = block(if b % 2 == 0 { 1000 + b } else { b });
                assert!(*v.read(object, b).unwrap() == want, "{data}+{parity}, lost {dead:?}, block {b}");
            }
            assert!(v.take_repairs().is_empty(), "nothing was damaged");
        }
    }
}

/// What could not be read again is refused before anything is written.
#[test]
fn more_names_than_a_catalog_holds_are_refused() {
    let g = Geometry::new(1, 0, BLOCK as u64).unwrap();
    let mut sim = Sim::default();
    let mut v = Volume::create(&mut sim, ID, g, 10).unwrap();
    let object = v.new_object().unwrap();
    v.write_row(object, 0, &block(1)).unwrap();
    let large = |bytes| Some(Entry { object, blocks: 1, about: vec![1; bytes] });
    v.commit(vec![("a".into(), large(1 << 20))], 20).unwrap();
    let before = v.units().history.len();
    for changes in [vec![("b".into(), large(127 << 20))], vec![("c".into(), large(20 << 20)); 7]] {
        assert!(matches!(v.commit(changes, 30), Err(VolumeError::Limit { .. })));
    }
    assert_eq!(v.units().history.len(), before);
    v.commit(vec![("a".into(), None), ("b".into(), large(2 << 20))], 40).unwrap();
    drop(v);
    let mut v = Volume::open(&mut sim, ID, g, 60).unwrap();
    assert!(v.names().keys().eq(["b"]) && *v.read(object, 0).unwrap() == block(1));
}

/// An epoch of which some units know cannot be given up: who has no room for it is lost.
#[test]
fn an_epoch_begins_though_a_unit_has_no_room() {
    let g = Geometry::new(4, 2, BLOCK as u64).unwrap();
    for full in 1..5 {
        let mut sim = Sim::default();
        let mut v = Volume::create(&mut sim, ID, g, 10).unwrap();
        let object = v.new_object().unwrap();
        v.write_row(object, 0, &rows(0..4)).unwrap();
        v.commit(vec![("a".into(), entry(object, 4))], 20).unwrap();
        v.units_mut().dead.push(5);
        v.units_mut().full_files.push((full, File::Superblock));
        v.overwrite(object, 0, &block(100), 30).unwrap();
        assert_eq!(v.lost().map(|(unit, _)| unit).collect::<Vec<_>>(), [full, 5]);
        v.overwrite(object, 1, &block(101), 40).unwrap();
        drop(v);
        sim.dead.clear();
        sim.full_files.clear();
        let mut v = Volume::open(&mut sim, ID, g, 50).unwrap();
        assert_eq!(v.lost().map(|(unit, _)| unit).collect::<Vec<_>>(), [full, 5]);
        assert!(*v.read(object, 0).unwrap() == block(100) && *v.read(object, 1).unwrap() == block(101));
    }
}

/// A change that was agreed is not refused any more: who has no room for it in its place is lost.
#[test]
fn what_was_agreed_is_not_refused() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    for full in 0..3 {
        for reopened in [false, true] {
            let mut sim = Sim::default();
            let mut v = Volume::create(&mut sim, ID, g, 10).unwrap();
            let object = v.new_object().unwrap();
            v.write_row(object, 0, &rows(0..2)).unwrap();
            v.commit(vec![("a".into(), entry(object, 2))], 20).unwrap();
            if reopened {
                v.overwrite(object, 0, &block(100), 30).unwrap();
            }
            v.units_mut().full_files = vec![(full, File::Data(object)), (full, File::Sums(object))];
            if !reopened {
                v.overwrite(object, 0, &block(100), 30).unwrap();
            }
            let concerned = full != 1;
            drop(v);
            let mut v = Volume::open(&mut sim, ID, g, 40).unwrap();
            assert_eq!(
                v.lost().map(|(unit, _)| unit).collect::<Vec<_>>(),
                vec![full; usize::from(concerned)]
            );
            assert!(*v.read(object, 0).unwrap() == block(100) && *v.read(object, 1).unwrap() == block(1));
        }
    }
}

/// A change that one log has no room for stays refused, though another log had it already: it is taken out
/// there, or who cannot do that is not believed any more.
#[test]
fn a_refused_change_never_comes_back() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    for (full, stuck, goes_on) in (0..3)
        .flat_map(|unit| [(unit, false, false), (unit, false, true), (unit, true, false), (unit, true, true)])
    {
        let mut sim = Sim::default();
        let mut v = Volume::create(&mut sim, ID, g, 10).unwrap();
        let object = v.new_object().unwrap();
        v.write_row(object, 0, &rows(0..2)).unwrap();
        v.commit(vec![("a".into(), entry(object, 2))], 20).unwrap();
        v.overwrite(object, 0, &block(100), 30).unwrap();
        v.units_mut().full_files = vec![(full, File::Log)];
        v.units_mut().stuck = stuck;
        let refused = v.overwrite(object, 0, &block(200), 40);
        // The first block's changes go to the logs of units 0 and 1.
        let concerned = full != 2;
        assert_eq!(refused.is_err(), concerned, "{full}: {refused:?}");
        assert!(!concerned || matches!(refused, Err(VolumeError::Full(_))), "{refused:?}");
        assert_eq!(v.lost().count(), usize::from(stuck && concerned), "{full} {stuck}");
        v.units_mut().full_files.clear();
        let mut want = if concerned { block(100) } else { block(200) };
        if goes_on {
            v.overwrite(object, 0, &block(300), 50).unwrap();
            want = block(300);
        }
        assert!(*v.read(object, 0).unwrap() == want, "{full} {stuck} {goes_on}");
        drop(v);
        let mut v = Volume::open(&mut sim, ID, g, 60).unwrap();
        assert!(*v.read(object, 0).unwrap() == want, "{full} {stuck} {goes_on}: after opening");
        assert!(*v.read(object, 1).unwrap() == block(1));
    }
}

/// The same where the full unit has no room for a catalog either: nobody is told that nothing has changed.
#[test]
fn a_change_that_may_come_back_is_not_called_refused() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    for full in [0, 1] {
        let mut sim = Sim::default();
        let mut v = Volume::create(&mut sim, ID, g, 10).unwrap();
        let object = v.new_object().unwrap();
        v.write_row(object, 0, &rows(0..2)).unwrap();
        v.commit(vec![("a".into(), entry(object, 2))], 20).unwrap();
        v.units_mut().full_files =
            [File::Log, File::Catalog(0), File::Catalog(1)].map(|file| (full, file)).into();
        v.units_mut().stuck = true;
        let told = v.overwrite(object, 0, &block(200), 40);
        assert!(matches!(told, Err(VolumeError::TooManyLost { .. })), "{full}: {told:?}");
    }
}

/// A change is agreed, a unit is lost by that, and another has no room for a new epoch: the change is there.
/// The epoch comes before the next change.
#[test]
fn what_was_agreed_is_done_though_no_epoch_can_begin() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    for (overwrites, goes_on, full) in
        [false, true].into_iter().flat_map(|o| [(o, false, 1), (o, true, 1), (o, false, 2), (o, true, 2)])
    {
        let mut sim = Sim::default();
        let mut v = Volume::create(&mut sim, ID, g, 10).unwrap();
        let object = v.new_object().unwrap();
        v.write_row(object, 0, &rows(0..2)).unwrap();
        v.commit(vec![("a".into(), entry(object, 2))], 20).unwrap();
        v.units_mut().full_files = vec![(full, File::Catalog(0)), (full, File::Catalog(1))];
        // Of the log of unit 0.
        v.units_mut().failing = Some((0, Failure::Sync));
        let change = |v: &mut Volume<&mut Sim>, seed: u64| match overwrites {
            true => v.overwrite(object, 0, &block(seed), 30),
            false => v.commit(vec![(format!("b{seed}"), entry(object, 2))], 30),
        };
        let has = |v: &mut Volume<&mut Sim>, seed: u64| match overwrites {
            true => *v.read(object, 0).unwrap() == block(seed),
            false => v.names().keys().last().is_some_and(|name| *name == format!("b{seed}")),
        };
        change(&mut v, 100).unwrap();
        assert!(v.lost().map(|(unit, _)| unit).eq([0]) && has(&mut v, 100));
        assert!(matches!(change(&mut v, 200), Err(VolumeError::Full(_))) && has(&mut v, 100));
        v.units_mut().full_files.clear();
        let mut want = 100;
        if goes_on {
            want = 300;
            change(&mut v, want).unwrap();
        }
        drop(v);
        let mut v = Volume::open(&mut sim, ID, g, 40).unwrap();
        assert_eq!(v.lost().count(), usize::from(goes_on));
        assert!(has(&mut v, want));
        drop(v);
        for unit in (0..3).filter(|&unit| !goes_on || unit == 0) {
            let mut sim = Sim::of(sim.disks.clone(), &[unit]);
            let mut v = Volume::open(&mut sim, ID, g, 50).unwrap();
            assert!(has(&mut v, want) && *v.read(object, 1).unwrap() == block(1), "without unit {unit}");
        }
    }
}

/// Each dataset comes with an epoch of its own. What that writes is as long as what has changed, and not as
/// all there is.
#[test]
fn what_many_names_take_grows_with_them() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    let mut sim = Sim::default();
    drop(Volume::create(&mut sim, ID, g, 10).unwrap());
    let mut written = Vec::new();
    for n in 0..1200 {
        let mut v = Volume::open(&mut sim, ID, g, 100 + n).unwrap();
        v.commit(vec![(format!("name {n}"), entry(n, 2))], 100 + n).unwrap();
        drop(v);
        let len = |event: &Event| match event {
            Event::Write { file: File::Catalog(_), bytes, .. } => bytes.len(),
            _ => 0,
        };
        written.push(std::mem::take(&mut sim.history).iter().map(len).sum::<usize>());
    }
    let of = |range: std::ops::Range<usize>| written[range].iter().sum::<usize>();
    let (first, last) = (of(0..600), of(600..1200));
    println!("catalogs: {first} bytes of the first 600 names, {last} of the next");
    assert!(last < 2 * first && last < 600 * 3 * 8 * 800, "{first} {last}");
    // What is behind them is read with any unit lost, and without what is torn.
    for unit in 0..3 {
        let mut sim = Sim::of(sim.disks.clone(), &[unit]);
        assert_eq!(Volume::open(&mut sim, ID, g, 5000).unwrap().names().len(), 1200);
    }
    let v = Volume::open(&mut sim, ID, g, 5000).unwrap();
    assert!(v.names().len() == 1200 && v.unreadable().is_empty());
    drop(v);
    // A bit flips in any part of them: another unit knows, and then this one does again.
    let disks = sim.disks;
    for (slot, part) in (0..2).flat_map(|slot| (0..40).map(move |part| (slot, part))) {
        let mut sim = Sim::of(disks.clone(), &[]);
        let file = File::Catalog(slot);
        let len = sim.disks[&(1, file)].len() as u64;
        sim.rot(1, file, len * part / 40 + 5);
        for now in [6000, 6001] {
            let v = Volume::open(&mut sim, ID, g, now).unwrap();
            assert!(v.names().len() == 1200 && v.lost().count() == 0);
            assert!(v.unreadable().is_empty() || now == 6000, "catalog{slot}, part {part}");
        }
        for others in [[0], [2]] {
            let mut sim = Sim::of(sim.disks.clone(), &others);
            assert_eq!(Volume::open(&mut sim, ID, g, 7000).unwrap().names().len(), 1200);
        }
    }
}

/// A log that is long and cannot begin anew, since there is no room for a catalog, goes on. What it has was
/// agreed.
#[test]
fn a_long_log_waits_for_room() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    for lost in [None, Some(2)] {
        let mut sim = Sim::default();
        drop(Volume::create(&mut sim, ID, g, 10).unwrap());
        sim.dead.extend(lost);
        let mut v = Volume::open(&mut sim, ID, g, 15).unwrap();
        let object = v.new_object().unwrap();
        v.write_row(object, 0, &rows(0..2)).unwrap();
        let large = |seed| Some(Entry { object, blocks: 2, about: vec![seed; 9 << 20] });
        v.units_mut().full_files = vec![(1, File::Catalog(0)), (1, File::Catalog(1))];
        for seed in 0..4 {
            v.commit(vec![("a".into(), large(seed))], 20).unwrap();
            assert_eq!(v.names()["a"].about[0], seed);
        }
        v.units_mut().full_files.clear();
        v.commit(vec![("a".into(), large(4))], 20).unwrap();
        drop(v);
        let v = Volume::open(&mut sim, ID, g, 30).unwrap();
        assert_eq!(v.names()["a"].about[0], 4);
        assert!(v.lost().map(|(unit, _)| unit).eq(lost));
    }
}

/// This unit is there again and stale, and the others have what was written without it.
fn is_left_behind(sim: &mut Sim, g: Geometry, object: u64, missing: u32) {
    sim.dead.clear();
    let mut v = Volume::open(sim, ID, g, 40).unwrap();
    let lost: Vec<_> = v.lost().map(|(unit, why)| (unit, why.contains("stale"))).collect();
    assert_eq!(lost, [(missing, true)]);
    assert!(*v.read(object, 0).unwrap() == block(7));
}

#[test]
fn a_unit_that_missed_something_is_not_read() {
    let (g, sim, object) = one_row();
    for missing in 0..3 {
        let mut sim = sim.clone();
        sim.dead = vec![missing];
        let mut v = Volume::open(&mut sim, ID, g, 30).unwrap();
        v.overwrite(object, 0, &block(7), 30).unwrap();
        drop(v);
        is_left_behind(&mut sim, g, object, missing);
        // Without the others there is nobody who could know.
        sim.dead = vec![(missing + 1) % 3];
        assert!(matches!(
            Volume::open(&mut sim, ID, g, 50),
            Err(VolumeError::TooManyLost { missing: 2, .. })
        ));
    }
}

/// An epoch of which only one unit came to know before a cut, and the one that the others begin then, may
/// have the same number.
#[test]
fn a_unit_that_missed_an_epoch_of_the_same_number_is_not_read() {
    let (g, sim, object) = one_row();
    for missing in 0..3 {
        let mut after = Sim::of(sim.disks.clone(), &[]);
        drop(Volume::open(&mut after, ID, g, 30).unwrap());
        let superblock = |event: &&Event| matches!(event, Event::Write { unit, file: File::Superblock, .. } if *unit == missing);
        let Some(Event::Write { at, bytes, .. }) = after.history.iter().find(superblock) else { panic!() };
        let mut sim = Sim::of(sim.disks.clone(), &[missing]);
        let key = (missing, File::Superblock);
        let superblocks = Arc::make_mut(sim.disks.get_mut(&key).unwrap());
        superblocks.resize(2 * 4096, 0);
        superblocks[*at as usize..][..bytes.len()].copy_from_slice(bytes);
        let epoch = Volume::open(&mut after, ID, g, 40).unwrap().epoch();
        let mut v = Volume::open(&mut sim, ID, g, 30).unwrap();
        // Of the same nonce, too, which nobody draws twice.
        assert!(v.epoch() < epoch);
        v.overwrite(object, 0, &block(7), 30).unwrap();
        drop(v);
        is_left_behind(&mut sim, g, object, missing);
    }
}

#[test]
fn units_of_others_are_refused_by_name() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    let (mut one, mut other) = (Sim::default(), Sim::default());
    drop(Volume::create(&mut one, ID, g, 10).unwrap());
    drop(Volume::create(&mut other, [7; 16], g, 10).unwrap());
    for (theirs, from, words) in [(1, &other, "another store"), (2, &one, "it is unit 2 of this store")] {
        let mut sim = one.clone();
        sim.swap(1, &from.disks, theirs);
        let v = Volume::open(&mut sim, ID, g, 20).unwrap();
        let why: Vec<_> = v.lost().collect();
        assert!(why.len() == 1 && why[0].0 == 1 && why[0].1.contains(words), "{why:?}");
    }
    assert!(matches!(Volume::create(&mut one, ID, g, 30), Err(VolumeError::Limit { .. })));
}
