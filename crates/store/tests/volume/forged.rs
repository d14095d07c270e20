//! Superblocks, logs and catalogs that are whole and say what nobody can have written: nothing panics, and
//! the other units are unharmed.

use super::basics::{block, entry, rows, ID};
use super::sim::{Disks, Sim};
use super::written::WholeRows;
use polyduct_store::volume::units::File;
use polyduct_store::volume::{Entry, Geometry, Volume, VolumeError, BLOCK};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SLOT: usize = 4096;
const MOST: u64 = 1 << 62;

/// A superblock, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Superblock {
    volume: [u8; 16],
    unit: u32,
    geometry: (u32, u32, u32),
    seq: u64,
    epoch: (u64, u64),
    line: Vec<((u64, u64), u32)>,
    members: u128,
    joiners: u128,
    joining: Option<((u64, u64), u64, u64)>,
    serving: bool,
    generation: u32,
    trimmed: u64,
}

/// A block of a unit's file, and entries.
type Patch = (u64, Option<(u64, Vec<u8>)>, Vec<(u64, Vec<u8>)>);

#[derive(Serialize)]
enum Action {
    #[allow(dead_code, reason = "the first of what can be stored")]
    Names(Vec<(String, Option<Entry>)>),
    Blocks(Vec<(u32, Patch)>),
}

/// A catalog, as it is stored: its transaction, the next object, and the names.
type Catalog = ([u8; 16], u32, u64, u64, BTreeMap<String, Entry>, BTreeSet<(u32, u32)>);

fn seal(kind: &[u8; 8], value: &impl Serialize) -> Vec<u8> {
    let value = postcard::to_allocvec(value).unwrap();
    let len = (value.len() as u32).to_le_bytes();
    let crc = crc32c::crc32c(&[&kind[..], &len, &value].concat());
    [&kind[..], &len, &crc.to_le_bytes(), &value].concat()
}

fn unseal<T: DeserializeOwned>(bytes: &[u8]) -> T {
    postcard::take_from_bytes(&bytes[16..]).unwrap().0
}

fn geometry() -> Geometry {
    Geometry::new(2, 1, BLOCK as u64).unwrap()
}

/// A store with "a", and a block of it overwritten.
fn used() -> Disks {
    let mut sim = Sim::default();
    let mut v = Volume::create(&mut sim, ID, geometry(), 10).unwrap();
    let object = v.new_object().unwrap();
    v.write_row(object, 0, &rows(0..2)).unwrap();
    v.commit(vec![("a".into(), entry(object, 2))], 20).unwrap();
    v.overwrite(object, 1, &block(100), 30).unwrap();
    drop(v);
    sim.disks
}

fn is_right(v: &mut Volume<&mut Sim>, case: &str) {
    assert!(v.names().keys().eq(["a"]) && v.names()["a"].blocks == 2, "{case}");
    let object = v.names()["a"].object;
    assert!(*v.read(object, 0).unwrap() == block(0) && *v.read(object, 1).unwrap() == block(100), "{case}");
}

/// The newest superblock of a unit.
fn superblock(disks: &Disks, unit: u32) -> Superblock {
    let slots = disks[&(unit, File::Superblock)].chunks(SLOT).map(unseal::<Superblock>);
    slots.max_by_key(|block| block.seq).unwrap()
}

/// Writes over both superblocks of a unit.
fn put(disks: &mut Disks, unit: u32, block: &Superblock) {
    let mut bytes = seal(b"pd-unit\x03", block);
    bytes.resize(SLOT, 0);
    disks.insert((unit, File::Superblock), Arc::new(bytes.repeat(2)));
}

#[test]
fn superblocks() {
    type Change = fn(&mut Superblock);
    let changes: [(&str, Change); 13] = [
        ("seq", |s| s.seq = u64::MAX),
        ("seq", |s| s.seq = MOST - 1),
        ("epoch", |s| s.epoch.0 = u64::MAX),
        ("epoch", |s| s.epoch.0 = MOST - 1),
        ("line", |s| s.line.push(((u64::MAX, 0), 1))),
        ("generation", |s| s.generation = u32::MAX),
        ("generation", |s| s.generation = u32::MAX - 1),
        ("trimmed", |s| s.trimmed = u64::MAX),
        ("trimmed", |s| s.trimmed = MOST - 1),
        ("members", |s| s.members = 0),
        ("members", |s| s.members = u128::MAX),
        ("mark", |s| s.joining = Some(((u64::MAX, u64::MAX), 0, u64::MAX))),
        ("mark", |s| s.joining = Some(((0, u64::MAX), 1 << 48, u64::MAX))),
    ];
    for (what, change) in changes {
        let mut disks = used();
        let mut forged = superblock(&disks, 1);
        change(&mut forged);
        let case = format!("{what}: {forged:?}");
        put(&mut disks, 1, &forged);
        let mut sim = Sim::of(disks, &[]);
        for now in [40, 50] {
            match Volume::open(&mut sim, ID, geometry(), now) {
                Ok(mut v) => is_right(&mut v, &case),
                Err(VolumeError::Limit { .. } | VolumeError::TooManyLost { .. } | VolumeError::Forked(_)) => {
                }
                Err(e) => panic!("{case}: {e}"),
            }
        }
        // The others alone are as they were; and the unit can join them.
        sim.dead = vec![1];
        let mut v = Volume::open(&mut sim, ID, geometry(), 60).unwrap();
        is_right(&mut v, &case);
        drop(v);
        sim.dead.clear();
        put(&mut sim.disks, 1, &forged);
        sim.dead = vec![1];
        let mut v = Volume::open(&mut sim, ID, geometry(), 70).unwrap();
        v.units_mut().dead.clear();
        v.replace(1, true, 80).unwrap();
        while !v.rebuild(1, 9, 80).unwrap().finished {}
        is_right(&mut v, &case);
        drop(v);
        let mut v = Volume::open(&mut sim, ID, geometry(), 90).unwrap();
        is_right(&mut v, &case);
    }
}

#[test]
fn a_mark_that_counted_all_there_is() {
    let mut disks = used();
    let object = 0;
    let mut sim = Sim::of(disks.clone(), &[]);
    sim.wipe(1);
    let mut v = Volume::open(&mut sim, ID, geometry(), 40).unwrap();
    v.replace(1, false, 50).unwrap();
    drop(v);
    disks = sim.disks;
    let mut forged = superblock(&disks, 1);
    forged.joining = forged.joining.map(|(at, born, _)| (at, born, u64::MAX));
    put(&mut disks, 1, &forged);
    let mut sim = Sim::of(disks, &[]);
    // With two of three blocks of a word gone nothing gives it back.
    sim.rot(0, File::Data(object), 7);
    let mut v = Volume::open(&mut sim, ID, geometry(), 60).unwrap();
    let progress = v.rebuild(1, 9, 70).unwrap();
    assert!(progress.finished && progress.damaged == u64::MAX);
}

#[test]
fn records() {
    let disks = used();
    let Superblock { epoch, .. } = superblock(&disks, 0);
    let patch = |object, block, at, len| (object, Some((block, vec![5; BLOCK])), vec![(at, vec![6; len])]);
    for (unit, patch) in [
        (3, patch(0, 0, 0, 12)),
        (u32::MAX, patch(0, 0, 0, 12)),
        (1, patch(1 << 48, 0, 0, 12)),
        (1, patch(0, 1 << 40, 36 << 40, 12)),
        (1, patch(0, u64::MAX, 0, 12)),
        (1, patch(0, 0, 36, 12)),
        (1, patch(0, 0, 4, 12)),
        (1, patch(0, 0, u64::MAX - 11, 12)),
        (1, patch(0, 0, 0, 4096)),
    ] {
        let mut disks = disks.clone();
        let (object, place, sums) = &patch;
        let case = format!("unit {unit}, {object}, {:?}, {:?}", place.as_ref().map(|p| p.0), sums[0].0);
        let mut log = seal(b"pd-tell\x04", &(ID, 0_u32, epoch, 50_u64, Action::Blocks(vec![(unit, patch)])));
        log.resize(log.len().next_multiple_of(BLOCK), 0);
        let of_unit = Arc::make_mut(disks.get_mut(&(0, File::Log)).unwrap());
        of_unit.extend(log);
        let mut sim = Sim::of(disks, &[]);
        for now in [40, 50] {
            let mut v = Volume::open(&mut sim, ID, geometry(), now).unwrap();
            is_right(&mut v, &case);
            assert_eq!((v.lost().count(), v.take_repairs().len()), (0, 0), "{case}");
        }
    }
}

#[test]
fn catalogs() {
    type Change = fn(&mut Catalog);
    let changes: [Change; 5] = [
        |c| c.4.values_mut().for_each(|entry| entry.blocks = u64::MAX),
        |c| c.4.values_mut().for_each(|entry| entry.blocks = (2 << 40) + 1),
        |c| c.4.values_mut().for_each(|entry| entry.object = 1 << 48),
        |c| c.3 = (1 << 48) + 1,
        |c| c.2 = MOST,
    ];
    let mut sim = Sim::of(used(), &[]);
    drop(Volume::open(&mut sim, ID, geometry(), 40).unwrap());
    for (i, change) in changes.into_iter().enumerate() {
        let mut sim = sim.clone();
        let both = [0, 1].map(|slot| unseal::<Catalog>(&sim.disks[&(1, File::Catalog(slot))]));
        let mut catalog = both.into_iter().max_by_key(|catalog| catalog.2).unwrap();
        // The newest of all.
        catalog.2 += 100;
        change(&mut catalog);
        for slot in 0..2 {
            sim.disks.insert((1, File::Catalog(slot)), Arc::new(seal(b"pd-name\x02", &catalog)));
        }
        let mut v = Volume::open(&mut sim, ID, geometry(), 50).unwrap();
        is_right(&mut v, &format!("change {i}"));
        assert_eq!((v.lost().count(), v.unreadable().len()), (0, 2), "change {i}");
    }
    // So far nobody counts: what would be written then could not be read again.
    for slot in 0..2 {
        for unit in 0..3 {
            let of_unit = sim.disks.get_mut(&(unit, File::Catalog(slot))).unwrap();
            let mut catalog: Catalog = unseal(of_unit);
            catalog.2 = MOST - 1;
            *of_unit = Arc::new(seal(b"pd-name\x02", &catalog));
        }
    }
    let before = sim.disks.clone();
    let opened = Volume::open(&mut sim, ID, geometry(), 60);
    assert!(matches!(opened, Err(VolumeError::Limit { .. })), "{opened:?}");
    assert!(sim.disks == before, "nothing has changed");
}

/// More blocks than an object has could not be read again.
#[test]
fn an_entry_that_could_not_be_read_again_is_not_committed() {
    let mut sim = Sim::of(used(), &[]);
    let mut v = Volume::open(&mut sim, ID, geometry(), 40).unwrap();
    for (object, blocks) in [(0, u64::MAX), (0, (2 << 40) + 1), (1 << 48, 2)] {
        let refused = v.commit(vec![("b".into(), entry(object, blocks))], 50);
        assert!(matches!(refused, Err(VolumeError::Limit { .. })), "{refused:?}");
    }
    is_right(&mut v, "refused");
}
