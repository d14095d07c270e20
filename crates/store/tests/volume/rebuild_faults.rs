//! Units that do not do what they say while they are rebuilt, and others that have rotted meanwhile.

use super::basics::{block, ID};
use super::rebuild::{geometry, overwrite, put, read, rebuild, whole, with_new, Store};
use super::sim::{Disks, Fault, Sim};
use polyduct_store::volume::units::File;
use polyduct_store::volume::{Scrub, Volume, VolumeError, BLOCK};

/// Each write of a rebuild that the unit says it has made, and has not, or has made elsewhere: found by the
/// next scrub.
#[test]
fn a_new_unit_loses_or_misdirects_writes() {
    for (data, parity) in [(2, 1), (4, 2)] {
        let g = geometry(data, parity);
        let stride = 12 * (1 + u64::from(data));
        let (disks, mut seeds) = with_new(g, 1, 3);
        let mut found = 0;
        for fault in [Fault::Lost, Fault::Elsewhere(stride)] {
            for nth in 0.. {
                let mut sim = Sim::of(disks.clone(), &[]);
                sim.fault = Some((1, nth, fault));
                let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
                v.replace(1, false, 3000).unwrap();
                v.rebuild(1, 2, 3000).unwrap();
                overwrite(&mut v, &mut seeds, "a", 1, 700 + nth);
                rebuild(&mut v, 1, 2);
                let none_left = v.units().fault.is_some();
                read(&mut v, &seeds).unwrap();
                let mut scrub = Scrub::new();
                v.scrub(&mut scrub, u64::MAX).unwrap();
                found += usize::from(!v.take_repairs().is_empty());
                drop(v);
                whole(&sim.disks, g, &seeds, None).unwrap_or_else(|e| panic!("{fault:?}, write {nth}: {e}"));
                if none_left {
                    break;
                }
            }
        }
        assert!(found >= 10, "{found}");
    }
}

/// Files of a unit that is joining are cut short, or it is another one that has missed something.
#[test]
fn a_unit_is_not_what_it_was_when_it_goes_on() {
    let g = geometry(2, 1);
    let (disks, seeds) = with_new(g, 1, 4);
    let mut sim = Sim::of(disks, &[]);
    let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
    v.replace(1, false, 3000).unwrap();
    v.rebuild(1, 5, 3000).unwrap();
    drop(v);
    let old = sim.disks.clone();
    let mut cases: Vec<(String, Disks)> = Vec::new();
    for key in old.keys().filter(|key| key.0 == 1) {
        for part in 0..4 {
            let mut disks = old.clone();
            let bytes = std::sync::Arc::make_mut(disks.get_mut(key).unwrap());
            bytes.truncate(bytes.len() * part / 4);
            cases.push((format!("{key:?}, {part} quarters"), disks));
        }
    }
    // It was away while the others were in use.
    let mut away = Sim::of(old.clone(), &[1]);
    drop(Volume::open(&mut away, ID, g, 4000).unwrap());
    cases.push(("stale".to_owned(), away.disks));
    for (case, disks) in cases {
        let mut sim = Sim::of(disks, &[]);
        let mut v = Volume::open(&mut sim, ID, g, 5000).unwrap();
        let goes_on = v.joining().count() > 0;
        assert!(!goes_on || case != "stale", "{case}");
        if !goes_on {
            // Without a superblock nobody knows whose it is.
            v.replace(1, case.contains("Superblock"), 5000).unwrap();
        }
        rebuild(&mut v, 1, 3);
        let mut scrub = Scrub::new();
        v.scrub(&mut scrub, u64::MAX).unwrap();
        drop(v);
        whole(&sim.disks, g, &seeds, None).unwrap_or_else(|e| panic!("{case}: {e}"));
    }
    // It has the directory of another store's unit.
    let mut theirs = Sim::default();
    drop(Volume::create(&mut theirs, [7; 16], g, 10).unwrap());
    let mut foreign = Sim::of(old.clone(), &[]);
    foreign.swap(1, &theirs.disks, 1);
    let mut v = Volume::open(&mut foreign, ID, g, 5000).unwrap();
    assert!(
        v.joining().count() == 0 && v.lost().any(|(unit, why)| unit == 1 && why.contains("another store"))
    );
    assert!(matches!(v.replace(1, false, 5000), Err(VolumeError::Foreign { unit: 1, .. })));
    read(&mut v, &seeds).unwrap();
    // The directories of two units are changed over, of which one is joining.
    let mut swapped = Sim::of(old.clone(), &[]);
    swapped.swap(1, &old, 0);
    swapped.swap(0, &old, 1);
    let error = Volume::open(&mut swapped, ID, g, 5000).unwrap_err().to_string();
    assert!(error.contains("it is unit 1 of this store") && error.contains("it is unit 0"), "{error}");
}

/// A unit that is joining and has no room, or fails, does not hold up the others.
#[test]
fn a_new_unit_that_fails_holds_up_nobody() {
    let g = geometry(2, 1);
    let (disks, mut seeds) = with_new(g, 1, 3);
    let mut sim = Sim::of(disks, &[]);
    let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
    v.replace(1, false, 3000).unwrap();
    v.units_mut().full.push(1);
    put(&mut v, &mut seeds, "c", 3, 500);
    assert!(v.lost().any(|(unit, why)| unit == 1 && why.contains("no space")));
    v.units_mut().full.clear();
    // It has missed something, and says so from now on.
    drop(v);
    let mut v = Volume::open(&mut sim, ID, g, 4000).unwrap();
    assert!(v.lost().any(|(unit, why)| unit == 1 && why.contains("stale")) && v.joining().count() == 0);
    v.replace(1, false, 4000).unwrap();
    rebuild(&mut v, 1, 4);
    drop(v);
    whole(&sim.disks, g, &seeds, None).unwrap();
}

/// Words that cannot be rebuilt, since another block of them has rotted, are counted. What could be read of
/// them before still can.
#[test]
fn words_beyond_repair_are_left_out() {
    let g = geometry(3, 1);
    let (disks, seeds) = with_new(g, 1, 8);
    for row in 0..8_u64 {
        for rotten in [0, 2, 3] {
            let mut sim = Sim::of(disks.clone(), &[]);
            sim.rot(rotten, File::Data(0), row * BLOCK as u64 + 9);
            let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
            let readable = |v: &mut Store| -> Vec<u64> {
                let right = |v: &mut Store, b| match v.read(0, b) {
                    Ok(found) => *found == block(seeds["a"][b as usize]) || panic!("block {b} is wrong"),
                    Err(VolumeError::Damaged { .. }) => false,
                    Err(e) => panic!("{e}"),
                };
                (0..24).filter(|&b| right(v, b)).collect()
            };
            let before = readable(&mut v);
            v.replace(1, false, 3000).unwrap();
            let progress = v.rebuild(1, u64::MAX, 3000).unwrap();
            assert_eq!((progress.damaged, progress.done, progress.finished), (1, 16, true));
            assert_eq!(readable(&mut v), before, "row {row}, unit {rotten} has rotted");
            assert!(before.len() >= 24 - 2);
            let mut scrub = Scrub::new();
            v.scrub(&mut scrub, u64::MAX).unwrap();
            let listed: Vec<_> = scrub.report().listed.iter().map(|word| (word.object, word.block)).collect();
            assert_eq!(listed, [(0, row)]);
        }
    }
}

/// A word that was left out, since a unit did not answer, is repaired when that is there again: then on the
/// joining unit, too.
#[test]
fn repairs_go_to_a_unit_that_joins() {
    let g = geometry(4, 2);
    let (disks, seeds) = with_new(g, 1, 5);
    let mut sim = Sim::of(disks, &[]);
    sim.rot(0, File::Data(0), BLOCK as u64 + 9);
    let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
    v.replace(1, false, 3000).unwrap();
    v.units_mut().dead.push(3);
    assert_eq!(v.rebuild(1, 3, 3000).unwrap().damaged, 1);
    drop(v);
    sim.dead.clear();
    let mut v = Volume::open(&mut sim, ID, g, 4000).unwrap();
    assert_eq!(v.joining().map(|(unit, p)| (unit, p.done)).collect::<Vec<_>>(), [(1, 3)]);
    v.scrub(&mut Scrub::new(), u64::MAX).unwrap();
    let repairs: Vec<_> = v.take_repairs().into_iter().map(|r| (r.unit, r.block)).collect();
    assert_eq!(repairs, [(0, 1)]);
    rebuild(&mut v, 1, 3);
    drop(v);
    whole(&sim.disks, g, &seeds, None).unwrap();
}
