//! Sectors that cannot be read until they are written anew: like rot, they cost their blocks and not their
//! unit.

use super::basics::{block, ID};
use super::rebuild::{geometry, put, read, rebuild, whole, with_new, Seeds};
use super::sim::{Disks, Sim};
use polyduct_store::volume::units::File;
use polyduct_store::volume::{Geometry, Scrub, Volume, VolumeError};

const ROWS: u64 = 400;

fn filled(g: Geometry) -> (Disks, Seeds) {
    let (mut sim, mut seeds) = (Sim::default(), Seeds::new());
    let mut v = Volume::create(&mut sim, ID, g, 1000).unwrap();
    put(&mut v, &mut seeds, "a", ROWS, 100);
    v.close(2000).unwrap();
    (sim.disks, seeds)
}

fn with_unreadable(disks: &Disks, blocks: &[(u32, File, u64)]) -> Sim {
    Sim { unreadable: blocks.iter().copied().collect(), ..Sim::of(disks.clone(), &[]) }
}

#[test]
fn what_cannot_be_read_is_made_good_and_the_unit_stays() {
    for (data, parity) in [(2, 1), (4, 2)] {
        let g = geometry(data, parity);
        let (disks, seeds) = filled(g);
        for unit in 0..g.units() {
            // The last block of the checksums is shorter than a block.
            for unreadable in [File::Data(0), File::Sums(0)].map(|file| [(unit, file, 0), (unit, file, 1)]) {
                for scrubs in [false, true] {
                    let mut sim = with_unreadable(&disks, &unreadable);
                    let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
                    if scrubs {
                        let mut scrub = Scrub::new();
                        v.scrub(&mut scrub, u64::MAX).unwrap();
                        assert!(scrub.report().repaired.keys().eq([&unit]) && scrub.report().damaged == 0);
                    }
                    read(&mut v, &seeds).unwrap();
                    assert_eq!(v.lost().count(), 0);
                    if !scrubs {
                        v.overwrite(0, 1, &block(101), 3000).unwrap();
                        v.scrub(&mut Scrub::new(), u64::MAX).unwrap();
                    }
                    assert!(v.units().unreadable.is_empty() && !v.take_repairs().is_empty());
                    drop(v);
                    whole(&sim.disks, g, &seeds, None).unwrap();
                }
            }
        }
    }
}

/// The words that need it are lost, all others are rebuilt.
#[test]
fn a_rebuild_ends_though_another_unit_has_an_unreadable_block() {
    let g = geometry(2, 1);
    let (disks, seeds) = with_new(g, 0, 100);
    for (file, damaged) in [(File::Data(0), 1), (File::Sums(0), 100)] {
        let mut sim = with_unreadable(&disks, &[(1, file, 0)]);
        let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
        v.replace(0, false, 3000).unwrap();
        let progress = v.rebuild(0, u64::MAX, 3000).unwrap();
        assert_eq!((progress.damaged, progress.done, progress.finished), (damaged, 200, true));
        assert_eq!(v.lost().count(), 0);
        let mut beyond = 0;
        for (b, &seed) in (0..).zip(&seeds["a"]) {
            match v.read(0, b) {
                Ok(found) => assert!(*found == block(seed), "block {b}"),
                Err(VolumeError::Damaged { .. }) => beyond += 1,
                Err(e) => panic!("{e}"),
            }
        }
        assert!((1..=2 * damaged).contains(&beyond), "{beyond}");
        assert_eq!(v.lost().count(), 0);
    }
}

/// A unit that can read nothing at all is lost, and is not taken for one that has rotted.
#[test]
fn a_unit_that_reads_nothing_is_lost() {
    let g = geometry(2, 1);
    let (disks, seeds) = with_new(g, 0, 3);
    let mut sim = Sim::of(disks, &[]);
    let mut v = Volume::open(&mut sim, ID, g, 3000).unwrap();
    v.replace(0, false, 3000).unwrap();
    v.units_mut().dead.push(1);
    assert!(matches!(v.rebuild(0, 1, 3000), Err(VolumeError::TooManyLost { .. })));
    drop(v);
    sim.dead.clear();
    let mut v = Volume::open(&mut sim, ID, g, 4000).unwrap();
    rebuild(&mut v, 0, 1);
    read(&mut v, &seeds).unwrap();
}
