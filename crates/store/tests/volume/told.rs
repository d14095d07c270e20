//! Those who read without the protocol are told which units are not read, before anything is acknowledged
//! that those lack.

use super::basics::{block, entry, rows, ID};
use super::sim::{Failure, Sim};
use super::written::WholeRows;
use polyduct_store::volume::planted::Bug;
use polyduct_store::volume::{Geometry, Volume, VolumeError, BLOCK};

fn not_read(v: &Volume<&mut Sim>) -> u128 {
    v.lost().fold(0, |set, (unit, _)| set | 1 << unit)
}

fn made(g: Geometry) -> (Sim, u64) {
    let mut sim = Sim::default();
    let mut v = Volume::create(&mut sim, ID, g, 10).unwrap();
    let object = v.new_object().unwrap();
    v.write_row(object, 0, &rows(0..g.row_blocks())).unwrap();
    v.commit(vec![("x".into(), entry(object, g.row_blocks()))], 20).unwrap();
    drop(v);
    (sim, object)
}

/// Whatever a unit fails in, of those for which that ends it.
fn all_failures(g: Geometry, bug: Option<Bug>) -> Result<u64, String> {
    let mut lost = 0;
    for after in 0..60 {
        let (mut sim, object) = made(g);
        let mut v = Volume::open_with(&mut sim, ID, g, 30, bug).unwrap();
        v.units_mut().failing = Some((after, Failure::Sync));
        for seed in 0..6 {
            let done = v.overwrite(object, 0, &block(100 + seed), 40);
            if done.is_ok() && v.units().told != not_read(&v) {
                return Err(format!("{after}: {:b} is told, {:b} is lost", v.units().told, not_read(&v)));
            }
        }
        lost += u64::from(not_read(&v) != 0);
    }
    Ok(lost)
}

#[test]
fn readers_are_told_before_anything_is_acknowledged() {
    for (data, parity) in [(1, 1), (2, 1), (4, 2)] {
        let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
        assert!(all_failures(g, None).unwrap() > 5);
        assert!(all_failures(g, Some(Bug::Untold)).is_err());
        // What a process is told that opens it, and when all is whole again.
        let (mut sim, object) = made(g);
        sim.dead.push(1);
        let mut v = Volume::open(&mut sim, ID, g, 50).unwrap();
        assert_eq!(v.units().told, 2);
        v.overwrite(object, 0, &block(200), 60).unwrap();
        v.units_mut().dead.clear();
        v.replace(1, false, 70).unwrap();
        assert_eq!(v.units().told, 2);
        while !v.rebuild(1, 9, 80).unwrap().finished {}
        assert_eq!(v.units().told, 0);
    }
}

#[test]
fn what_readers_cannot_be_told_of_is_not_acknowledged() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    let (mut sim, object) = made(g);
    sim.deaf = true;
    assert!(matches!(Volume::open(&mut sim, ID, g, 30), Err(VolumeError::Home { .. })));
    sim.deaf = false;
    let mut v = Volume::open(&mut sim, ID, g, 30).unwrap();
    v.units_mut().deaf = true;
    v.overwrite(object, 0, &block(100), 40).unwrap();
    v.units_mut().dead.push(1);
    for seed in 101..103 {
        assert!(matches!(v.overwrite(object, 0, &block(seed), 40), Err(VolumeError::Home { .. })));
    }
    v.units_mut().deaf = false;
    v.overwrite(object, 0, &block(104), 40).unwrap();
    assert_eq!(v.units().told, 2);
    assert!(*v.read(object, 0).unwrap() == block(104));
}
