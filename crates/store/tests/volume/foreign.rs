//! Files of an object that are whole and belong elsewhere: to another store that has written more often, to
//! another object, to another unit. They are nobody's here, and are made good from what is.

use super::basics::{block, entry, rows, ID};
use super::sim::{Disks, Sim};
use super::written::WholeRows;
use polyduct_store::volume::planted::Bug;
use polyduct_store::volume::units::File;
use polyduct_store::volume::{Geometry, Scrub, Volume, BLOCK};
use std::collections::BTreeMap;

/// A store with "a" and "b", of two rows each. It has been opened, and blocks overwritten, so many times.
fn filled(id: [u8; 16], g: Geometry, seed: u64, times: u64, bug: Option<Bug>) -> Disks {
    let mut sim = Sim::default();
    drop(Volume::create(&mut sim, id, g, 1000).unwrap());
    let n = g.row_blocks();
    for name in ["a", "b"] {
        let mut v = Volume::open_with(&mut sim, id, g, 2000, bug).unwrap();
        let object = v.new_object().unwrap();
        for row in 0..2 {
            v.write_row(object, row, &rows((seed + 100 * object + row * n..).take(n as usize))).unwrap();
        }
        v.commit(vec![(name.into(), entry(object, 2 * n))], 2000).unwrap();
    }
    for i in 0..times {
        let mut v = Volume::open_with(&mut sim, id, g, 3000 + i, bug).unwrap();
        for b in 0..2 * n {
            v.overwrite(0, b, &block(seed + b), 3000 + i).unwrap();
        }
        v.close(3000 + i).unwrap();
    }
    sim.disks
}

/// Gives units the files of an object from somewhere, and looks: readers and a scrub find what was written.
fn given(
    true_ones: &Disks,
    g: Geometry,
    bug: Option<Bug>,
    strange: &[(u32, File, &Disks, (u32, File))],
) -> Result<(), String> {
    let mut disks = true_ones.clone();
    for (unit, file, from, of) in strange {
        disks.insert((*unit, *file), from[of].clone());
    }
    let n = 2 * g.row_blocks();
    let is_right = |v: &mut Volume<&mut Sim>| {
        for (object, b) in (0..2).flat_map(|object| (0..n).map(move |b| (object, b))) {
            match v.read(object, b) {
                Ok(found) if *found == block(100 * object + b) => {}
                Ok(_) => return Err(format!("block {b} of object {object} is strange")),
                Err(e) => return Err(e.to_string()),
            }
        }
        Ok(())
    };
    let mut sim = Sim::of(disks.clone(), &[]);
    is_right(&mut Volume::open_with(&mut sim, ID, g, 10_000, bug).unwrap())?;
    let mut sim = Sim::of(disks, &[]);
    let mut v = Volume::open_with(&mut sim, ID, g, 10_000, bug).unwrap();
    let mut scrub = Scrub::new();
    v.scrub(&mut scrub, u64::MAX).map_err(|e| e.to_string())?;
    let report = scrub.report().clone();
    let all = 2 * u64::from(g.chunk_blocks());
    let want: BTreeMap<u32, u64> = strange.iter().map(|(unit, ..)| (*unit, all)).collect();
    if report.damaged > 0 || report.repaired != want {
        return Err(format!("{report:?}"));
    }
    is_right(&mut v)?;
    drop(v);
    for unit in (0..g.units()).filter(|_| g.parity() > 0) {
        let mut sim = Sim::of(sim.disks.clone(), &[unit]);
        is_right(&mut Volume::open_with(&mut sim, ID, g, 20_000, bug).unwrap())?;
    }
    Ok(())
}

const GEOMETRIES: [(u32, u32); 6] = [(1, 1), (1, 2), (2, 1), (2, 2), (4, 2), (3, 3)];

fn of_another_store(data: u32, parity: u32, bug: Option<Bug>) -> Result<(), String> {
    let g = Geometry::new(data, parity, 2 * BLOCK as u64).unwrap();
    let ours = filled(ID, g, 0, 1, bug);
    // The same names and shapes, of other content, and more and less often written.
    for times in [0, 5] {
        let theirs = filled([9; 16], g, 7000, times, bug);
        for set in (1_u32..1 << g.units()).filter(|set| set.count_ones() <= parity) {
            let units = (0..g.units()).filter(|unit| set >> unit & 1 != 0);
            let both = |unit| [File::Data(0), File::Sums(0)].map(|file| (unit, file, &theirs, (unit, file)));
            let strange: Vec<_> = units.flat_map(both).collect();
            given(&ours, g, bug, &strange)
                .map_err(|e| format!("{data}+{parity}, units {set:b}, {times}: {e}"))?;
        }
    }
    Ok(())
}

#[test]
fn files_of_another_store_are_made_good() {
    for (data, parity) in GEOMETRIES {
        of_another_store(data, parity, None).unwrap();
    }
    for (data, parity) in [(1, 1), (2, 1), (2, 2)] {
        assert!(
            of_another_store(data, parity, Some(Bug::PlaceNotSummed)).is_err(),
            "{data}+{parity}: the check finds nothing"
        );
    }
}

#[test]
fn files_of_another_object_or_unit_are_made_good() {
    for (data, parity) in GEOMETRIES {
        let g = Geometry::new(data, parity, 2 * BLOCK as u64).unwrap();
        let ours = filled(ID, g, 0, 1, None);
        for (unit, of, object) in
            (0..g.units()).flat_map(|unit| (0..g.units()).flat_map(move |of| [(unit, of, 0), (unit, of, 1)]))
        {
            let files = [(File::Data(0), File::Data(object)), (File::Sums(0), File::Sums(object))];
            let strange = files.map(|(file, other)| (unit, file, &ours, (of, other)));
            if (unit, 0) == (of, object) {
                continue;
            }
            given(&ours, g, None, &strange)
                .unwrap_or_else(|e| panic!("{data}+{parity}, unit {unit}: object {object} of {of}: {e}"));
        }
    }
}
