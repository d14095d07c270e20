//! Units that come back, or new ones in their places, while the store is in use.

use super::basics::{block, entry, rows, ID};
use super::sim::{Disks, Event, Sim};
use super::written::WholeRows;
use polyduct_store::volume::planted::Bug;
use polyduct_store::volume::units::File;
use polyduct_store::volume::{Geometry, Scrub, Volume, VolumeError, BLOCK};
use std::collections::BTreeMap;

pub type Store<'a> = Volume<&'a mut Sim>;
/// Of each name, its blocks' seeds.
pub type Seeds = BTreeMap<String, Vec<u64>>;

pub fn geometry(data: u32, parity: u32) -> Geometry {
    Geometry::new(data, parity, BLOCK as u64).unwrap()
}

fn fill(v: &mut Store, object: u64, rows_of_it: std::ops::Range<u64>, seed: u64) {
    let n = v.geometry().row_blocks();
    for row in rows_of_it {
        v.write_row(object, row, &rows(seed + row * n..seed + (row + 1) * n)).unwrap();
    }
}

/// Writes a dataset of so many rows.
pub fn put(v: &mut Store, seeds: &mut Seeds, name: &str, rows: u64, seed: u64) {
    let n = rows * v.geometry().row_blocks();
    let object = v.new_object().unwrap();
    fill(v, object, 0..rows, seed);
    v.commit(vec![(name.into(), entry(object, n))], 3000).unwrap();
    seeds.insert(name.into(), (seed..seed + n).collect());
}

pub fn overwrite(v: &mut Store, seeds: &mut Seeds, name: &str, b: u64, seed: u64) {
    let object = v.names()[name].object;
    v.overwrite(object, b, &block(seed), 3000).unwrap();
    seeds.get_mut(name).unwrap()[b as usize] = seed;
}

pub fn read(v: &mut Store, seeds: &Seeds) -> Result<(), String> {
    if !v.names().keys().eq(seeds.keys()) {
        return Err(format!("names: {:?}", v.names().keys()));
    }
    for (name, seeds) in seeds {
        let object = v.names()[name].object;
        for (b, &seed) in (0..).zip(seeds) {
            if *v.read(object, b).map_err(|e| e.to_string())? != block(seed) {
                return Err(format!("block {b} of {name} is wrong"));
            }
        }
    }
    Ok(())
}

pub fn rebuild(v: &mut Store, unit: u32, words: u64) {
    while !v.rebuild(unit, words, 5000).unwrap().finished {}
    assert_eq!(v.joining().count(), 0);
}

/// Nothing is lost, nothing has to be repaired, and each unit may be lost.
pub fn whole(disks: &Disks, g: Geometry, seeds: &Seeds, bug: Option<Bug>) -> Result<(), String> {
    let mut sim = Sim::of(disks.clone(), &[]);
    let mut v = Volume::open_with(&mut sim, ID, g, 9000, bug).map_err(|e| e.to_string())?;
    read(&mut v, seeds)?;
    let mut scrub = Scrub::new();
    v.scrub(&mut scrub, u64::MAX).map_err(|e| e.to_string())?;
    let repairs = v.take_repairs();
    if v.lost().count() > 0 || !repairs.is_empty() || scrub.report().damaged > 0 {
        return Err(format!("lost {:?}, repaired {repairs:?}", v.lost().collect::<Vec<_>>()));
    }
    drop(v);
    for unit in 0..g.units() {
        let mut sim = Sim::of(sim.disks.clone(), &[unit]);
        let mut v = Volume::open_with(&mut sim, ID, g, 10_000, bug).map_err(|e| e.to_string())?;
        read(&mut v, seeds).map_err(|e| format!("without unit {unit}: {e}"))?;
    }
    Ok(())
}

/// A store in which `unit` has a new directory: nothing of it is rebuilt.
pub fn with_new(g: Geometry, unit: u32, rows: u64) -> (Disks, Seeds) {
    let (mut sim, mut seeds) = (Sim::default(), Seeds::new());
    let mut v = Volume::create(&mut sim, ID, g, 1000).unwrap();
    put(&mut v, &mut seeds, "a", rows, 100);
    put(&mut v, &mut seeds, "b", rows, 100_000);
    v.close(2000).unwrap();
    sim.wipe(unit);
    (sim.disks, seeds)
}

#[test]
fn a_rebuild_goes_on_where_it_was() {
    for (data, parity, chunk) in [(2, 1, 1), (4, 1, 2), (4, 2, 3), (1, 1, 1), (1, 2, 2)] {
        let g = Geometry::new(data, parity, chunk * BLOCK as u64).unwrap();
        let (disks, seeds) = with_new(g, 1, 5);
        let mut sim = Sim::of(disks, &[]);
        let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
        let words = 2 * 5 * chunk;
        let begun = v.replace(1, false, 3000).unwrap();
        assert_eq!((begun.done, begun.total, begun.finished), (0, words, false));
        drop(v);
        for done in 1..=words {
            // It was cut short each time.
            let mut v = Volume::open(&mut sim, ID, g, 4000 + done).unwrap();
            let joining: Vec<_> = v.joining().map(|(unit, progress)| (unit, progress.done)).collect();
            assert_eq!(joining, [(1, done - 1)], "{data}+{parity}");
            assert_eq!(v.replace(1, false, 4000).unwrap().done, done - 1, "it is joining already");
            let progress = v.rebuild(1, 1, 4000 + done).unwrap();
            assert_eq!((progress.done, progress.finished), (done, done == words));
            assert_eq!(v.lost().count(), usize::from(done < words));
        }
        whole(&sim.disks, g, &seeds, None).unwrap();
    }
}

#[test]
fn the_store_is_in_use_meanwhile() {
    for (data, parity) in [(2, 1), (4, 1), (4, 2)] {
        let g = geometry(data, parity);
        let (disks, mut seeds) = with_new(g, 0, 70);
        let mut sim = Sim::of(disks, &[]);
        let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
        v.replace(0, false, 3000).unwrap();
        let mut steps = 0;
        let n = g.row_blocks();
        loop {
            steps += 1;
            let b = steps * 7 % (70 * n);
            overwrite(&mut v, &mut seeds, "b", b, 200_000 + steps);
            if steps % 4 == 0 {
                put(&mut v, &mut seeds, &format!("c{}", steps % 8), 3, 300_000 + 100 * steps);
            }
            if steps == 9 {
                v.commit(vec![("a".into(), None)], 3000).unwrap();
                seeds.remove("a");
            }
            if v.rebuild(0, 5, 3000).unwrap().finished {
                break;
            }
        }
        assert!((14..=40).contains(&steps), "{steps}");
        read(&mut v, &seeds).unwrap();
        drop(v);
        whole(&sim.disks, g, &seeds, None).unwrap();
    }
}

#[test]
fn directories_of_others_are_not_written_over() {
    let g = geometry(2, 1);
    let mut other = Sim::default();
    let (disks, seeds) = with_new(g, 1, 2);
    let mut v = Volume::create(&mut other, [9; 16], g, 10).unwrap();
    put(&mut v, &mut Seeds::new(), "theirs", 2, 7);
    drop(v);
    let mut torn = disks.clone();
    torn.insert((1, File::Superblock), vec![7; 5000].into());
    torn.insert((1, File::Data(3)), vec![7; 5000].into());
    let cases = [("another store", &other.disks, 1), ("unit 2 of this", &disks, 2), ("1 objects", &torn, 1)];
    for bug in [None, Some(Bug::TakenBlindly)] {
        for (words, from, theirs) in cases {
            let mut sim = Sim::of(disks.clone(), &[]);
            sim.swap(1, from, theirs);
            let before = sim.disks.clone();
            let mut v = Volume::open_with(&mut sim, ID, g, 3000, bug).unwrap();
            let refused = v.replace(1, false, 3000);
            if bug.is_some() {
                assert!(refused.is_ok(), "the bug does nothing");
                continue;
            }
            let why = match refused.unwrap_err() {
                VolumeError::Foreign { unit: 1, why } => why,
                other => panic!("{other}"),
            };
            assert!(why.contains(words), "{why}");
            assert!(!v.units().history.iter().any(|e| matches!(e, Event::Remove { unit: 1, .. })));
            let theirs = |disks: &Disks| -> Disks {
                disks.iter().filter(|(key, _)| key.0 == 1).map(|(k, b)| (*k, b.clone())).collect()
            };
            assert_eq!(theirs(&v.units().disks), theirs(&before), "it was changed");
            v.replace(1, true, 3000).unwrap();
            rebuild(&mut v, 1, 1);
            read(&mut v, &seeds).unwrap();
            drop(v);
            whole(&sim.disks, g, &seeds, None).unwrap();
        }
    }
}

#[test]
fn only_lost_units_are_replaced() {
    let g = geometry(2, 1);
    let (disks, _) = with_new(g, 1, 2);
    let mut sim = Sim::of(disks, &[]);
    let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
    let why = |e: VolumeError| e.to_string();
    assert!(why(v.replace(0, true, 3000).unwrap_err()).contains("it is in use"));
    assert!(why(v.replace(3, true, 3000).unwrap_err()).contains("no unit 3"));
    assert!(why(v.rebuild(1, 1, 3000).unwrap_err()).contains("no unit that is joining 1"));
    v.units_mut().dead.push(1);
    assert!(why(v.replace(1, true, 3000).unwrap_err()).contains("it is gone"));
    v.units_mut().dead.clear();
    v.replace(1, false, 3000).unwrap();
    v.units_mut().dead.push(1);
    assert!(matches!(v.rebuild(1, 1, 3000), Err(VolumeError::NotJoined { unit: 1, .. })));
    assert!(v.lost().any(|(unit, why)| unit == 1 && why.contains("gone")));
}

/// With one parity unit a second loss is said, and when the unit is there again the rebuild goes on. With two
/// it just goes on.
#[test]
fn a_second_unit_is_lost_meanwhile() {
    for (data, parity) in [(2, 1), (4, 1), (4, 2)] {
        let g = geometry(data, parity);
        let (disks, mut seeds) = with_new(g, 1, 5);
        let mut sim = Sim::of(disks, &[]);
        let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
        v.replace(1, false, 3000).unwrap();
        v.rebuild(1, 4, 3000).unwrap();
        v.units_mut().dead.push(0);
        if parity == 1 {
            for _ in 0..2 {
                let error = v.rebuild(1, 4, 3000).unwrap_err();
                assert!(matches!(error, VolumeError::TooManyLost { missing: 2, .. }), "{error}");
            }
            // What the others have of their own is still given.
            let n = g.row_blocks();
            let given = (0..5 * n).filter(|&b| v.read(0, b).is_ok_and(|found| *found == block(100 + b)));
            assert!(given.count() as u64 >= n, "nothing is given");
            drop(v);
            assert!(matches!(
                Volume::open(&mut sim, ID, g, 4000),
                Err(VolumeError::TooManyLost { missing: 2, .. })
            ));
            sim.dead.clear();
            let mut v = Volume::open(&mut sim, ID, g, 5000).unwrap();
            assert_eq!(v.joining().map(|(unit, p)| (unit, p.done)).collect::<Vec<_>>(), [(1, 4)]);
            rebuild(&mut v, 1, 4);
        } else {
            overwrite(&mut v, &mut seeds, "a", 3, 777);
            rebuild(&mut v, 1, 4);
            assert_eq!(v.lost().map(|(unit, _)| unit).collect::<Vec<_>>(), [0]);
            v.units_mut().dead.clear();
            v.replace(0, false, 3000).unwrap();
            rebuild(&mut v, 0, 100);
        }
        whole(&sim.disks, g, &seeds, None).unwrap();
    }
}

/// Two units are rebuilt at the same time.
#[test]
fn two_units_join() {
    let g = geometry(4, 2);
    let (disks, mut seeds) = with_new(g, 1, 5);
    let mut sim = Sim::of(disks, &[]);
    sim.wipe(4);
    let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
    v.replace(1, false, 3000).unwrap();
    v.rebuild(1, 3, 3000).unwrap();
    v.replace(4, false, 3000).unwrap();
    v.rebuild(4, 7, 3000).unwrap();
    overwrite(&mut v, &mut seeds, "a", 0, 777);
    drop(v);
    let mut v = Volume::open(&mut sim, ID, g, 4000).unwrap();
    assert_eq!(v.joining().map(|(unit, p)| (unit, p.done)).collect::<Vec<_>>(), [(1, 3), (4, 7)]);
    while v.rebuild(4, 1, 4000).unwrap().done < 10 {}
    overwrite(&mut v, &mut seeds, "b", 0, 778);
    rebuild(&mut v, 1, 2);
    drop(v);
    whole(&sim.disks, g, &seeds, None).unwrap();
}

/// Objects that were begun before a unit came to join, and get their names while it joins, or when it is a
/// member.
fn late(bug: Option<Bug>, after_joining: bool) -> Result<(), String> {
    let g = geometry(2, 1);
    let (disks, mut seeds) = with_new(g, 1, 2);
    let mut sim = Sim::of(disks, &[]);
    let mut v = Volume::open_with(&mut sim, ID, g, 3000, bug).unwrap();
    let object = v.new_object().unwrap();
    fill(&mut v, object, 0..3, 500);
    v.replace(1, false, 3000).unwrap();
    fill(&mut v, object, 3..4, 500);
    v.rebuild(1, 3, 3000).unwrap();
    if after_joining {
        rebuild(&mut v, 1, 3);
    }
    let n = 4 * g.row_blocks();
    v.commit(vec![("late".into(), entry(object, n))], 3000).unwrap();
    seeds.insert("late".into(), (500..500 + n).collect());
    // Were it behind the mark, nobody would go through it again.
    if !after_joining {
        drop(v);
        v = Volume::open_with(&mut sim, ID, g, 4000, bug).unwrap();
        rebuild(&mut v, 1, 3);
    }
    drop(v);
    whole(&sim.disks, g, &seeds, bug)
}

#[test]
fn objects_that_were_begun_before_are_completed() {
    late(None, false).unwrap();
    late(None, true).unwrap();
    assert!(late(Some(Bug::LateObjects), true).is_err(), "the check finds nothing");
}

/// Rows of an object without a name that are lost with a second unit: it does not get one.
#[test]
fn objects_that_cannot_be_completed_get_no_name() {
    let g = geometry(2, 1);
    let (disks, seeds) = with_new(g, 1, 2);
    let mut sim = Sim::of(disks, &[]);
    let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
    let object = v.new_object().unwrap();
    fill(&mut v, object, 0..3, 500);
    v.replace(1, false, 3000).unwrap();
    rebuild(&mut v, 1, 3);
    v.units_mut().dead.push(0);
    let error = v.commit(vec![("late".into(), entry(object, 6))], 3000).unwrap_err();
    assert!(matches!(error, VolumeError::Damaged { object: found, .. } if found == object), "{error}");
    read(&mut v, &seeds).unwrap();
    // Written anew it does.
    fill(&mut v, object, 0..3, 500);
    v.commit(vec![("late".into(), entry(object, 6))], 3000).unwrap();
    assert!(*v.read(object, 5).unwrap() == block(505));
}

/// A change that only one unit knew of, which was then left behind: it does not bring it back when it joins.
#[test]
fn a_unit_does_not_bring_back_what_was_discarded() {
    // In the one catalog, or in the other.
    discarded(0);
    discarded(1);
}

fn discarded(epochs: u64) {
    let g = geometry(2, 1);
    let (mut sim, mut seeds) = (Sim::default(), Seeds::new());
    let mut v = Volume::create(&mut sim, ID, g, 1000).unwrap();
    put(&mut v, &mut seeds, "a", 2, 100);
    for epoch in 0..epochs {
        drop(v);
        v = Volume::open(&mut sim, ID, g, 1100 + epoch).unwrap();
    }
    let before = v.units().disks.clone();
    v.commit(vec![("a".into(), None)], 2000).unwrap();
    drop(v);
    // The cut came when one log had it, and the next when one catalog had it.
    let mut disks = before;
    disks.insert((2, File::Log), sim.disks[&(2, File::Log)].clone());
    let mut sim = Sim::of(disks.clone(), &[]);
    assert!(Volume::open(&mut sim, ID, g, 3000).unwrap().names().is_empty());
    let wrote = |e: &&Event| matches!(e, Event::Write { unit: 2, file: File::Catalog(_), .. });
    let Some(Event::Write { file, at: 0, bytes, .. }) = sim.history.iter().find(wrote) else {
        panic!("no catalog")
    };
    disks.insert((2, *file), bytes.clone().into());
    for reopened in [false, true] {
        let mut sim = Sim::of(disks.clone(), &[2]);
        read(&mut Volume::open(&mut sim, ID, g, 4000).unwrap(), &seeds).unwrap();
        sim.dead.clear();
        let mut v = Volume::open(&mut sim, ID, g, 5000).unwrap();
        v.replace(2, false, 5000).unwrap();
        if reopened {
            drop(v);
            v = Volume::open(&mut sim, ID, g, 6000).unwrap();
        }
        rebuild(&mut v, 2, 2);
        drop(v);
        whole(&sim.disks, g, &seeds, None).unwrap();
    }
}

/// What was written to an object that came to no name goes from a unit that is joining, too, when the store
/// is opened.
#[test]
fn nothing_is_left_of_objects_without_names() {
    let g = geometry(2, 1);
    let (disks, seeds) = with_new(g, 1, 3);
    let mut sim = Sim::of(disks, &[]);
    let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
    v.replace(1, false, 3000).unwrap();
    let object = v.new_object().unwrap();
    fill(&mut v, object, 0..2, 500);
    drop(v);
    assert!(sim.disks.contains_key(&(1, File::Data(object))));
    let mut v = Volume::open(&mut sim, ID, g, 4000).unwrap();
    assert!(!v.units().disks.keys().any(|key| key.1 == File::Data(object) || key.1 == File::Sums(object)));
    rebuild(&mut v, 1, 2);
    drop(v);
    whole(&sim.disks, g, &seeds, None).unwrap();
}

/// Only what is lost anew begins an epoch.
#[test]
fn a_degraded_store_begins_no_epochs() {
    let g = geometry(2, 1);
    let (disks, mut seeds) = with_new(g, 1, 2);
    let mut sim = Sim::of(disks, &[]);
    let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
    let before = v.units().history.len();
    (0..10).for_each(|i| overwrite(&mut v, &mut seeds, "a", i % 4, 800 + i));
    let epochs = v.units().history[before..].iter();
    let epochs = epochs.filter(|e| matches!(e, Event::Write { file: File::Superblock, .. }));
    assert_eq!(epochs.count(), 0);
}
