//! Units that were copied, and served on their own: what they have is never taken for that of the others,
//! whatever their clock said and however often they were opened; and it is said which have gone on apart.

use super::basics::{block, entry, rows, ID};
use super::sim::{Disks, Sim};
use super::written::WholeRows;
use polyduct_store::volume::planted::Bug;
use polyduct_store::volume::units::File;
use polyduct_store::volume::{Geometry, Scrub, Volume, VolumeError, BLOCK};

const BLOCKS: u64 = 4;

/// A store with "a", of blocks with seeds from 0 on.
fn made(g: Geometry) -> Disks {
    let mut sim = Sim::default();
    let mut v = Volume::create(&mut sim, ID, g, 1).unwrap();
    let object = v.new_object().unwrap();
    let n = g.row_blocks();
    for row in 0..BLOCKS.div_ceil(n) {
        v.write_row(object, row, &rows((row * n..).take(n as usize))).unwrap();
    }
    v.commit(vec![("a".into(), entry(object, BLOCKS.next_multiple_of(n)))], 2).unwrap();
    drop(v);
    sim.disks
}

/// The store is opened so many times without some units, and blocks are overwritten each time.
fn goes_on(disks: &Disks, g: Geometry, without: &[u32], times: u64, clock: u64, seed: u64) -> Disks {
    let mut sim = Sim::of(disks.clone(), without);
    for i in 0..times {
        let mut v = Volume::open(&mut sim, ID, g, clock + i).unwrap();
        for b in 0..BLOCKS {
            v.overwrite(0, b, &block(seed + b), clock + i).unwrap();
        }
        if i % 2 == 0 {
            v.close(clock + i).unwrap();
        }
    }
    sim.disks
}

/// Units have what they have somewhere else; what the store's own directory has stays.
fn mixed(ours: &Disks, theirs: &Disks, units: &[u32]) -> Disks {
    let of = |unit: &u32| units.contains(unit);
    let keep = ours.iter().filter(|(key, _)| !of(&key.0));
    keep.chain(theirs.iter().filter(|(key, _)| of(&key.0)))
        .map(|(key, bytes)| (*key, bytes.clone()))
        .collect()
}

/// Whose the content is: that of one seed throughout.
fn seed(v: &mut Volume<&mut Sim>, known: &[u64]) -> Result<u64, String> {
    let whose = |found: &[u8; BLOCK], b| known.iter().copied().find(|&seed| *found == block(seed + b));
    let all: Vec<Option<u64>> = (0..BLOCKS).map(|b| whose(&v.read(0, b).unwrap(), b)).collect();
    match all[0] {
        Some(seed) if all.iter().all(|&other| other == Some(seed)) => Ok(seed),
        _ => Err(format!("blocks of several: {all:?}")),
    }
}

/// A unit that was left out is made anew from the others, whatever its log still says; then any unit may be
/// lost.
fn heals(mut v: Volume<&mut Sim>, g: Geometry, seen: u64) -> Result<(), String> {
    let lost: Vec<u32> = v.lost().map(|(unit, _)| unit).collect();
    for unit in lost {
        v.replace(unit, false, 7).map_err(|e| e.to_string())?;
        while !v.rebuild(unit, 100, 8).map_err(|e| e.to_string())?.finished {}
    }
    v.overwrite(0, 0, &block(seen), 9).map_err(|e| e.to_string())?;
    let disks = v.units().disks.clone();
    for unit in 0..g.units() {
        let mut sim = Sim::of(disks.clone(), &[unit]);
        let mut v = Volume::open(&mut sim, ID, g, 10).map_err(|e| e.to_string())?;
        if v.lost().count() != 1 || seed(&mut v, &[seen])? != seen {
            return Err(format!("unit {unit} lost then: {:?}", v.lost().collect::<Vec<_>>()));
        }
    }
    Ok(())
}

const OURS: u64 = 1000;
const THEIRS: u64 = 2000;

/// All mixtures of two lines that went on so many times each, with a clock of its own.
fn mixtures(g: Geometry, here: u64, there: u64, clocks: (u64, u64)) {
    let base = made(g);
    let (units, enough) = (g.units(), g.data() as usize);
    // The copy is of as many units as are enough; the other line lacks none, or as many as it can.
    for (taken, away) in [(0..g.data(), None), (g.parity()..units, None), (0..g.data(), Some(units - 1))] {
        let taken: Vec<u32> = taken.collect();
        let not_taken: Vec<u32> = (0..units).filter(|unit| !taken.contains(unit)).collect();
        let ours = goes_on(&base, g, &away.into_iter().collect::<Vec<_>>(), here, clocks.0, OURS);
        let theirs = goes_on(&base, g, &not_taken, there, clocks.1, THEIRS);
        for set in 0_u32..1 << taken.len() {
            let copies: Vec<u32> =
                (0..).zip(&taken).filter(|(i, _)| set >> i & 1 != 0).map(|(_, &u)| u).collect();
            let case = format!(
                "{}+{}, {here} and {there} times, clocks {clocks:?}, {copies:?} are copies",
                g.data(),
                g.parity()
            );
            let own = (0..units).filter(|unit| !copies.contains(unit) && Some(*unit) != away).count();
            let mut sim = Sim::of(mixed(&ours, &theirs, &copies), &[]);
            let apart = here > 0 && there > 0;
            let opened = Volume::open(&mut sim, ID, g, 5);
            match opened {
                Ok(mut v) => {
                    let seen = seed(&mut v, &[0, OURS, THEIRS]).unwrap_or_else(|e| panic!("{case}: {e}"));
                    let lost: Vec<u32> = v.lost().map(|(unit, _)| unit).collect();
                    if apart && !copies.is_empty() {
                        // The units that are left out are all of one side.
                        let (side, others) = match seen {
                            OURS => (own, &copies),
                            THEIRS => (copies.len(), &not_taken),
                            _ => panic!("{case}: neither is there"),
                        };
                        assert!(
                            side >= enough && others.iter().all(|unit| lost.contains(unit)),
                            "{case}: {lost:?}"
                        );
                        assert!(own < enough || copies.len() < enough, "{case}: both could serve");
                        let said = v.lost().filter(|(_, why)| why.contains("gone on apart")).count();
                        assert!(own == 0 || said > 0, "{case}: {:?}", v.lost().collect::<Vec<_>>());
                    } else if copies.is_empty() {
                        assert_eq!(seen, if here > 0 { OURS } else { 0 }, "{case}");
                    }
                    heals(v, g, seen).unwrap_or_else(|e| panic!("{case}: {e}"));
                }
                Err(VolumeError::Forked(sides)) => {
                    let [here, there] = *sides;
                    assert!(apart, "{case}");
                    // One side may be away, and known of by what the store remembers.
                    let of_copies = |side: &[u32]| side.iter().all(|unit| copies.contains(unit));
                    let mixes =
                        |side: &[u32]| !of_copies(side) && side.iter().any(|unit| copies.contains(unit));
                    let known_of = away.is_some() && own < enough;
                    assert!(
                        known_of || !mixes(&here.units) && !mixes(&there.units),
                        "{case}: {here:?} {there:?}"
                    );
                    assert!(
                        known_of || of_copies(&here.units) != of_copies(&there.units),
                        "{case}: {here:?} {there:?}"
                    );
                    assert!(here.epoch != there.epoch, "{case}");
                }
                Err(VolumeError::TooManyLost { .. } | VolumeError::Outdated { .. }) => {
                    assert!(
                        !apart || own < enough || away.is_some(),
                        "{case}: {:?}",
                        Volume::open(&mut sim, ID, g, 5).err()
                    );
                }
                Err(e) => panic!("{case}: {e}"),
            }
        }
    }
}

#[test]
fn copies_that_went_on_apart_are_not_taken_for_the_store() {
    const NOW: u64 = 1_795_362_309_016_083;
    const HOUR: u64 = 3_600_000_000;
    for (data, parity) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (4, 2)] {
        let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
        for (here, there) in [(0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (3, 3), (2, 7), (7, 2)] {
            // An hour behind, a year ahead, and the same.
            for clock in [NOW - HOUR, NOW + 365 * 24 * HOUR, NOW] {
                mixtures(g, here, there, (NOW, clock + 100));
            }
        }
    }
}

/// Some units have the files of the object as a copy of the store has them that went on apart. Readers and a
/// scrub find what was written here, and then any unit may be lost. Gives how many blocks were given up
/// instead.
fn files_of_a_copy(
    ours: &Disks,
    theirs: &Disks,
    g: Geometry,
    units: &[u32],
    seen: u64,
    bug: Option<Bug>,
) -> Result<u64, String> {
    let mut disks = ours.clone();
    for (unit, file) in units.iter().flat_map(|&unit| [(unit, File::Data(0)), (unit, File::Sums(0))]) {
        disks.insert((unit, file), theirs[&(unit, file)].clone());
    }
    let mut given_up = 0;
    let mut is_right = |v: &mut Volume<&mut Sim>, when: &str| {
        for b in 0..BLOCKS {
            match v.read(0, b) {
                Ok(found) if *found == block(seen + b) => {}
                Ok(_) => return Err(format!("block {b} is not the one that was written, {when}")),
                Err(VolumeError::Damaged { .. }) => given_up += 1,
                Err(e) => return Err(format!("{e}, {when}")),
            }
        }
        Ok(())
    };
    let mut sim = Sim::of(disks.clone(), &[]);
    is_right(&mut Volume::open_with(&mut sim, ID, g, 50_000, bug).unwrap(), "read")?;
    let mut sim = Sim::of(disks.clone(), &[]);
    let mut v = Volume::open_with(&mut sim, ID, g, 50_000, bug).unwrap();
    let mut scrub = Scrub::new();
    v.scrub(&mut scrub, u64::MAX).map_err(|e| e.to_string())?;
    is_right(&mut v, "scrubbed")?;
    drop(v);
    // With words that are given up the loss of a unit is one too many.
    let rest = if scrub.report().damaged == 0 { 0..g.units() } else { 0..0 };
    for unit in rest {
        let mut sim = Sim::of(sim.disks.clone(), &[unit]);
        let mut v = Volume::open_with(&mut sim, ID, g, 60_000, bug).unwrap();
        is_right(&mut v, &format!("scrubbed, and unit {unit} lost"))?;
    }
    // One block is overwritten before anything is made good.
    let mut sim = Sim::of(disks, &[]);
    let mut v = Volume::open_with(&mut sim, ID, g, 50_000, bug).unwrap();
    if v.overwrite(0, 1, &block(seen + 1), 50_001).is_ok() {
        v.scrub(&mut Scrub::new(), u64::MAX).map_err(|e| e.to_string())?;
    }
    is_right(&mut v, "overwritten")?;
    Ok(given_up)
}

/// All sets of units within parity, of a line here and one there that were opened so many times.
fn all_files_of_copies(
    data: u32,
    parity: u32,
    here: u64,
    there: u64,
    bug: Option<Bug>,
) -> Result<u64, String> {
    let g = Geometry::new(data, parity, 2 * BLOCK as u64).unwrap();
    let base = made(g);
    let ours = goes_on(&base, g, &[], here, 10_000, OURS);
    let theirs = goes_on(&base, g, &[], there, 20_000, THEIRS);
    let mut given_up = 0;
    for set in (1_u32..1 << g.units()).filter(|set| set.count_ones() <= parity) {
        let units: Vec<u32> = (0..g.units()).filter(|unit| set >> unit & 1 != 0).collect();
        let seen = if here > 0 { OURS } else { 0 };
        given_up += files_of_a_copy(&ours, &theirs, g, &units, seen, bug)
            .map_err(|e| format!("{data}+{parity}, {here} and {there} times, units {units:?}: {e}"))?;
    }
    Ok(given_up)
}

#[test]
fn files_of_a_copy_that_went_on_apart_are_made_good() {
    for (data, parity) in [(1, 1), (1, 2), (2, 1), (2, 2), (4, 2), (3, 3)] {
        for (here, there) in [(0, 1), (0, 9), (1, 0), (1, 1), (1, 2), (2, 1), (2, 9), (9, 2)] {
            assert_eq!(all_files_of_copies(data, parity, here, there, None), Ok(0));
        }
    }
    for (data, parity) in [(1, 1), (2, 1), (2, 2)] {
        let found = all_files_of_copies(data, parity, 1, 5, Some(Bug::ForkTrusted));
        assert!(found.is_err(), "{data}+{parity}: the check finds nothing");
    }
}

/// Catalogs name 4096 epochs. What a copy wrote that went apart before them, and is newer than what was
/// written here, is not told from a write that units here lack: it is given up, and nothing strange is read.
#[test]
fn files_of_a_copy_that_went_apart_long_ago_are_never_read() {
    for (data, parity, epochs) in [(1, 1, 300), (2, 1, 300), (2, 2, 300), (2, 1, 4200)] {
        let g = Geometry::new(data, parity, 2 * BLOCK as u64).unwrap();
        let base = made(g);
        let mut sim = Sim::of(goes_on(&base, g, &[], 1, 10_000, OURS), &[]);
        for i in 0..epochs {
            drop(Volume::open(&mut sim, ID, g, 11_000 + i).unwrap());
            sim.history.clear();
        }
        let ours = sim.disks;
        for there in [4, 400] {
            let theirs = goes_on(&base, g, &[], there, 20_000, THEIRS);
            for unit in 0..g.units() {
                let given_up = files_of_a_copy(&ours, &theirs, g, &[unit], OURS, None)
                    .unwrap_or_else(|e| panic!("{data}+{parity}, {there} times, unit {unit}: {e}"));
                assert!(epochs > 4096 || given_up == 0, "{data}+{parity}, {there} times, unit {unit}");
            }
        }
    }
}

/// A write that a unit lacks is made good though many epochs have gone by.
#[test]
fn what_a_unit_lacks_since_long_ago_is_made_good() {
    for (data, parity) in [(1, 1), (2, 1), (2, 2)] {
        let g = Geometry::new(data, parity, 2 * BLOCK as u64).unwrap();
        let base = made(g);
        let mut sim = Sim::of(goes_on(&base, g, &[], 2, 10_000, OURS), &[]);
        for i in 0..300 {
            drop(Volume::open(&mut sim, ID, g, 11_000 + i).unwrap());
        }
        for unit in 0..g.units() {
            let given_up = files_of_a_copy(&sim.disks, &base, g, &[unit], OURS, None);
            assert_eq!(given_up, Ok(0), "{data}+{parity}, unit {unit}");
        }
    }
}
