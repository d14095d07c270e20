//! All words are checked, and what is damaged is made good.

use super::basics::{block, entry, rows, ID};
use super::sim::{Disks, Failure, Sim};
use super::written::WholeRows;
use polyduct_store::volume::planted::Bug;
use polyduct_store::volume::scrub::{Report, LISTED};
use polyduct_store::volume::units::File;
use polyduct_store::volume::{Cursor, Geometry, Scrub, Volume, VolumeError, BLOCK};
use std::sync::Arc;

const ROWS: u64 = 7;

/// "a" and "b", of so many rows each, with seeds from 0 and from 1000 on.
fn filled(g: Geometry) -> Disks {
    let mut sim = Sim::default();
    let mut v = Volume::create(&mut sim, ID, g, 1000).unwrap();
    let n = g.row_blocks();
    for (name, seed) in [("a", 0), ("b", 1000)] {
        let object = v.new_object().unwrap();
        for row in 0..ROWS {
            v.write_row(object, row, &rows(seed + row * n..seed + (row + 1) * n)).unwrap();
        }
        v.commit(vec![(name.into(), entry(object, ROWS * n))], 2000).unwrap();
    }
    v.close(3000).unwrap();
    sim.disks
}

fn read(v: &mut Volume<&mut Sim>) -> Result<(), String> {
    let n = v.geometry().row_blocks();
    for (name, seed) in [("a", 0), ("b", 1000)] {
        let object = v.names()[name].object;
        for b in 0..ROWS * n {
            if *v.read(object, b).map_err(|e| e.to_string())? != block(seed + b) {
                return Err(format!("block {b} of {name} is wrong"));
            }
        }
    }
    Ok(())
}

/// Damages a block, an entry, or an entry of another's that parity has, of so many words; then scrubs.
fn scrubbed(g: Geometry, bug: Option<Bug>, steps: u64) -> Result<(), String> {
    let disks = filled(g);
    let stride = 12 * (1 + u64::from(g.data()));
    let words = ROWS * u64::from(g.chunk_blocks());
    for unit in 0..g.units() {
        for what in 0..3 {
            let mut sim = Sim::of(disks.clone(), &[]);
            let mut damaged = 0;
            for word in (0..words).filter(|word| word % 3 != unit as u64 % 3) {
                let row = word / u64::from(g.chunk_blocks());
                match what {
                    0 => sim.rot(unit, File::Data(1), word * BLOCK as u64 + 31 * word),
                    1 => sim.rot(unit, File::Sums(1), word * stride + word % 8),
                    // Only parity has these.
                    _ if g.chunk(row, unit) < g.data() => continue,
                    _ => sim.rot(unit, File::Sums(1), word * stride + 8 + word % (stride - 8)),
                }
                damaged += 1;
            }
            let mut v = Volume::open_with(&mut sim, ID, g, 4000, bug).unwrap();
            let mut scrub = Scrub::new();
            while !v.scrub(&mut scrub, steps).map_err(|e| e.to_string())?.finished {}
            let report = scrub.report().clone();
            let all: Vec<u64> = report.checked.values().copied().collect();
            if (report.words, &all[..]) != (2 * words, &vec![2 * words; g.units() as usize][..]) {
                return Err(format!("not all is checked: {report:?}"));
            }
            let want: Vec<(u32, u64)> = Some((unit, damaged)).filter(|_| damaged > 0).into_iter().collect();
            let found: Vec<(u32, u64)> = report.repaired.into_iter().collect();
            if found != want || report.damaged != 0 {
                return Err(format!("unit {unit}, {what}: repaired {found:?} of {want:?}"));
            }
            if v.take_repairs().len() as u64 != damaged {
                return Err("not each repair is told".to_owned());
            }
            drop(v);
            // As it was before anything was damaged: the repairs are durable, and another scrub finds
            // nothing.
            for other in (0..g.units()).filter(|&other| other != unit) {
                let mut sim = Sim::of(sim.disks.clone(), &[other]);
                read(&mut Volume::open(&mut sim, ID, g, 5000).unwrap())?;
            }
            let mut v = Volume::open(&mut sim, ID, g, 6000).unwrap();
            let mut scrub = Scrub::new();
            v.scrub(&mut scrub, u64::MAX).map_err(|e| e.to_string())?;
            if !scrub.report().repaired.is_empty() {
                return Err("it is found a second time".to_owned());
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_damaged_is_made_good() {
    for (data, parity, chunk) in [(2, 1, 1), (4, 1, 2), (4, 2, 1), (1, 1, 3)] {
        let g = Geometry::new(data, parity, chunk * BLOCK as u64).unwrap();
        for steps in [1, 3, u64::MAX] {
            scrubbed(g, None, steps).unwrap_or_else(|e| panic!("{data}+{parity}: {e}"));
        }
    }
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    for bug in [Bug::RottenParity, Bug::ChecksumIgnored] {
        assert!(scrubbed(g, Some(bug), 3).is_err(), "{bug:?} is not found");
    }
}

/// A unit that lost all writes of a word has what is right in itself.
#[test]
fn lost_writes_are_found_by_a_scrub() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    let old = filled(g);
    let mut sim = Sim::of(old.clone(), &[]);
    let mut v = Volume::open(&mut sim, ID, g, 4000).unwrap();
    v.overwrite(0, 4, &block(4444), 4000).unwrap();
    v.close(5000).unwrap();
    for unit in 0..3 {
        let mut lost = Sim::of(sim.disks.clone(), &[]);
        for file in [File::Data(0), File::Sums(0)] {
            lost.disks.insert((unit, file), old[&(unit, file)].clone());
        }
        let concerned = lost.disks[&(unit, File::Data(0))] != sim.disks[&(unit, File::Data(0))];
        let mut v = Volume::open(&mut lost, ID, g, 6000).unwrap();
        let mut scrub = Scrub::new();
        v.scrub(&mut scrub, u64::MAX).unwrap();
        assert_eq!(scrub.report().repaired.get(&unit).copied(), concerned.then_some(1));
        assert!(*v.read(0, 4).unwrap() == block(4444));
    }
}

#[test]
fn what_cannot_be_repaired_is_listed_and_stops_nothing() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    let mut sim = Sim::of(filled(g), &[]);
    for (unit, object, word) in [(0, 0, 2), (1, 0, 2), (1, 1, 5), (2, 1, 5), (2, 0, 3), (0, 1, 6)] {
        sim.rot(unit, File::Data(object), word * BLOCK as u64 + 100);
    }
    let mut v = Volume::open(&mut sim, ID, g, 4000).unwrap();
    let mut scrub = Scrub::new();
    while !v.scrub(&mut scrub, 2).unwrap().finished {}
    let report = scrub.report();
    let word = |object, block| Cursor { object, block };
    assert_eq!((report.damaged, &report.listed[..]), (2, &[word(0, 2), word(1, 5)][..]));
    assert_eq!(report.repaired.iter().map(|(&u, &n)| (u, n)).collect::<Vec<_>>(), [(0, 1), (2, 1)]);
    assert_eq!(report.words, 2 * ROWS);
}

#[test]
fn the_list_has_an_end() {
    let g = Geometry::new(1, 0, 64 * BLOCK as u64).unwrap();
    let mut sim = Sim::default();
    let mut v = Volume::create(&mut sim, ID, g, 1000).unwrap();
    let object = v.new_object().unwrap();
    let words = 64 * (LISTED as u64 / 64 + 3);
    for row in 0..words / 64 {
        v.write_row(object, row, &rows(row * 64..row * 64 + 64)).unwrap();
    }
    v.commit(vec![("a".into(), entry(object, words))], 2000).unwrap();
    drop(v);
    let bytes = Arc::make_mut(sim.disks.get_mut(&(0, File::Data(object))).unwrap());
    bytes.iter_mut().step_by(BLOCK).for_each(|byte| *byte ^= 1);
    let mut v = Volume::open(&mut sim, ID, g, 4000).unwrap();
    let mut scrub = Scrub::new();
    assert_eq!(v.scrub(&mut scrub, 100).unwrap().done, 100);
    while !v.scrub(&mut scrub, 100).unwrap().finished {}
    assert_eq!((scrub.report().damaged, scrub.report().listed.len()), (words, LISTED));
}

/// Objects that come and go while a scrub goes on, and units that are lost.
#[test]
fn the_store_is_in_use_while_it_is_scrubbed() {
    let g = Geometry::new(4, 2, BLOCK as u64).unwrap();
    let mut sim = Sim::of(filled(g), &[]);
    sim.rot(3, File::Data(1), 2 * BLOCK as u64);
    let mut v = Volume::open(&mut sim, ID, g, 4000).unwrap();
    let mut scrub = Scrub::new();
    let progress = v.scrub(&mut scrub, 3).unwrap();
    assert_eq!((progress.done, progress.total, progress.finished), (3, 2 * ROWS, false));
    v.commit(vec![("a".into(), None)], 4000).unwrap();
    let object = v.new_object().unwrap();
    v.write_row(object, 0, &rows(0..4)).unwrap();
    v.commit(vec![("c".into(), entry(object, 4))], 4000).unwrap();
    v.overwrite(1, 2, &block(9), 4000).unwrap();
    v.units_mut().dead.push(5);
    let progress = v.scrub(&mut scrub, 3).unwrap();
    assert_eq!((progress.done, progress.total), (3, ROWS + 1));
    v.units_mut().dead.push(0);
    while !v.scrub(&mut scrub, 3).unwrap().finished {}
    let report = scrub.report();
    assert_eq!((report.words, report.damaged), (3 + ROWS + 1, 0));
    assert_eq!(report.checked[&5], 3);
    assert_eq!(report.repaired.iter().map(|(&u, &n)| (u, n)).collect::<Vec<_>>(), [(3, 1)]);
    v.units_mut().dead.push(1);
    assert!(matches!(v.scrub(&mut Scrub::from(Cursor::default()), 1), Err(VolumeError::TooManyLost { .. })));
}

/// Scrubs a 2+1 store of which some is damaged, and gives the report and who is lost.
fn scrubbed_of(mut sim: Sim, steps: u64) -> (Report, Vec<(u32, String)>, Sim) {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    let mut v = Volume::open(&mut sim, ID, g, 4000).unwrap();
    let mut scrub = Scrub::new();
    while !v.scrub(&mut scrub, steps).unwrap().finished {}
    read(&mut v).unwrap();
    let lost = v.lost().map(|(unit, why)| (unit, why.to_owned())).collect();
    drop(v);
    (scrub.report().clone(), lost, sim)
}

/// Blocks of both objects that are damaged, all on unit 1.
fn rotten() -> Sim {
    let mut sim = Sim::of(filled(Geometry::new(2, 1, BLOCK as u64).unwrap()), &[]);
    for (object, word) in [(0, 2), (0, 4), (1, 5)] {
        sim.rot(1, File::Data(object), word * BLOCK as u64 + 100);
    }
    sim
}

#[test]
fn what_cannot_be_written_anew_is_not_made_good_and_the_rest_is_checked() {
    let data = (1, File::Data(0), 4);
    for steps in [1, 3, u64::MAX] {
        for (what, why) in [
            (Sim { unwritable: [data].into(), ..rotten() }, "input/output error"),
            (Sim { rotting: [data].into(), ..rotten() }, "the disk does not keep what is written"),
            (Sim { full_files: vec![(1, File::Data(0))], ..rotten() }, "no space left on device"),
        ] {
            // Without room nothing of the object can be written.
            let blocks = if what.full_files.is_empty() { 1 } else { 2 };
            let (report, lost, sim) = scrubbed_of(what, steps);
            assert_eq!(report.unrepaired, [(1, (blocks, why.to_owned()))].into(), "{steps}");
            assert_eq!(report.repaired, [(1, 3 - blocks)].into());
            assert_eq!((report.words, report.checked[&1], report.damaged), (2 * ROWS, 2 * ROWS, 0));
            assert_eq!(lost, []);
            // Each time again, until the disk is mended.
            let again = Sim { history: Vec::new(), ..sim };
            let (report, lost, sim) = scrubbed_of(again, steps);
            assert_eq!((report.unrepaired[&1].0, report.repaired.len(), lost.len()), (blocks, 0, 0));
            let mended = Sim { disks: sim.disks, ..Sim::default() };
            let (report, ..) = scrubbed_of(mended, steps);
            assert!(report.repaired == [(1, blocks)].into() && report.unrepaired.is_empty());
        }
    }
}

#[test]
fn a_unit_that_is_lost_to_a_failed_sync_is_so_at_the_next_opening() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    let mut sim = rotten();
    let mut v = Volume::open(&mut sim, ID, g, 4000).unwrap();
    v.units_mut().failing = Some((0, Failure::Sync));
    let mut scrub = Scrub::new();
    while !v.scrub(&mut scrub, 5).unwrap().finished {}
    assert_eq!(v.units().failed.map(|(unit, _)| unit), Some(1));
    let report = scrub.report();
    assert_eq!((report.unrepaired[&1].0, report.repaired.len(), report.words), (2, 0, 2 * ROWS));
    assert_eq!((report.checked[&0], report.checked[&1]), (2 * ROWS, 5));
    drop(v);
    let mut v = Volume::open(&mut sim, ID, g, 5000).unwrap();
    assert_eq!(v.lost().map(|(unit, _)| unit).collect::<Vec<_>>(), [1]);
    read(&mut v).unwrap();
}

/// A reader of a damaged block has it written anew, and says so of what the disk gives back.
#[test]
fn what_a_reader_has_repaired_counts_when_the_disk_keeps_it() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    for (keeps, repairs) in [(true, 1), (false, 0)] {
        let mut sim = Sim::default();
        let mut v = Volume::create(&mut sim, ID, g, 10).unwrap();
        let object = v.new_object().unwrap();
        v.write_row(object, 0, &rows(0..2)).unwrap();
        v.commit(vec![("x".into(), entry(object, 2))], 20).unwrap();
        let file = File::Data(object);
        v.units_mut().rot(1, file, 9);
        if !keeps {
            v.units_mut().rotting.insert((1, file, 0));
        }
        for again in 0..2 {
            assert_eq!(*v.read(object, 1).unwrap(), block(1));
            let expected = if again == 0 { repairs } else { 0 };
            assert_eq!(v.take_repairs().len(), expected, "the disk keeps it: {keeps}");
        }
    }
}
