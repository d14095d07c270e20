//! Damage of what is stored: bits that flip, writes that were lost or went elsewhere, units cut short. All is
//! found, and made good as far as there is parity; wrong bytes are never given.

use super::basics::{block, entry, rows, ID};
use super::sim::{Disks, Sim};
use super::written::WholeRows;
use polyduct_store::volume::planted::Bug;
use polyduct_store::volume::units::File;
use polyduct_store::volume::{Geometry, Scrub, Volume, VolumeError, BLOCK};
use std::sync::Arc;

/// A store in the middle of its use: two rows of "a", some blocks overwritten and not yet in their places for
/// good.
fn used(g: Geometry, bug: Option<Bug>) -> (Disks, Vec<u64>) {
    let mut sim = Sim::default();
    drop(Volume::create(&mut sim, ID, g, 1000).unwrap());
    let mut v = Volume::open_with(&mut sim, ID, g, 2000, bug).unwrap();
    let object = v.new_object().unwrap();
    let n = g.row_blocks();
    let mut seeds: Vec<u64> = (0..2 * n).collect();
    for row in 0..2 {
        v.write_row(object, row, &rows(row * n..(row + 1) * n)).unwrap();
    }
    v.commit(vec![("a".into(), entry(object, 2 * n))], 3000).unwrap();
    for b in [1, 0, 1] {
        seeds[b] += 100;
        v.overwrite(object, b as u64, &block(seeds[b]), 4000).unwrap();
    }
    drop(v);
    (sim.disks, seeds)
}

/// Reads all. An error is one, and so is a block that is not right. Gives what was found damaged and made
/// good.
fn read(disks: Disks, g: Geometry, seeds: &[u64], bug: Option<Bug>) -> Result<(Disks, usize), String> {
    let mut sim = Sim::of(disks, &[]);
    let mut v = Volume::open_with(&mut sim, ID, g, 10_000, bug).map_err(|e| e.to_string())?;
    let object = v.names().get("a").ok_or("the name is gone")?.object;
    for (b, &seed) in (0..).zip(seeds) {
        if *v.read(object, b).map_err(|e| e.to_string())? != block(seed) {
            return Err(format!("block {b} is wrong"));
        }
    }
    let repairs = v.take_repairs().len() + v.unreadable().len();
    drop(v);
    Ok((sim.disks, repairs))
}

fn flips(g: Geometry, count: u64, bug: Option<Bug>) -> Result<usize, String> {
    let (disks, seeds) = used(g, None);
    let files: Vec<(u32, File)> = disks.keys().copied().collect();
    let (mut random, mut repaired) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    for i in 0..count {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let key = files[i as usize % files.len()];
        let mut disks = disks.clone();
        let bytes = Arc::make_mut(disks.get_mut(&key).unwrap());
        let bit = (random >> 8) as usize % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let context = |e: String| format!("{key:?}, bit {bit}: {e}");
        let (disks, repairs) = read(disks, g, &seeds, bug).map_err(context)?;
        repaired += repairs;
        // Of these every bit says something.
        if repairs == 0 && matches!(key.1, File::Catalog(_)) {
            return Err(context("nobody has found it".to_owned()));
        }
        // Made good: another time nothing is found.
        let (_, repairs) = read(disks, g, &seeds, bug).map_err(context)?;
        if repairs > 0 {
            return Err(context("it is found a second time".to_owned()));
        }
    }
    Ok(repaired)
}

#[test]
fn every_flipped_bit_is_made_good() {
    for (data, parity, count) in [(2, 1, 5000), (4, 1, 3000), (4, 2, 3000)] {
        let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
        match flips(g, count, None) {
            Ok(repaired) => println!("{data}+{parity}: {count} flips, {repaired} blocks repaired"),
            Err(error) => panic!("{data}+{parity}: {error}"),
        }
    }
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    assert!(flips(g, 3000, Some(Bug::ChecksumIgnored)).is_err(), "the check finds nothing");
}

/// The same store when unit 1 is new, and half of it is rebuilt.
fn joining(g: Geometry) -> (Disks, Vec<u64>) {
    let (disks, mut seeds) = used(g, None);
    let mut sim = Sim::of(disks, &[]);
    sim.wipe(1);
    let mut v = Volume::open(&mut sim, ID, g, 5000).unwrap();
    v.replace(1, false, 5000).unwrap();
    v.rebuild(1, 1, 5000).unwrap();
    let object = v.names()["a"].object;
    for b in [0, 2, g.row_blocks() as usize + 1] {
        seeds[b] += 1000;
        v.overwrite(object, b as u64, &block(seeds[b]), 5000).unwrap();
    }
    drop(v);
    (sim.disks, seeds)
}

/// A bit flips, half of them on the unit that joins. It goes on where it was; and what can be given back is,
/// now and then.
fn flips_while_joining(g: Geometry, count: u64, bug: Option<Bug>) -> Result<u64, String> {
    let (disks, seeds) = joining(g);
    let all: Vec<(u32, File)> = disks.keys().copied().collect();
    let its: Vec<(u32, File)> = all.iter().copied().filter(|key| key.0 == 1).collect();
    let (mut random, mut beyond) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    for i in 0..count as usize {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let key = if i % 2 == 0 { its[i / 2 % its.len()] } else { all[i / 2 % all.len()] };
        let mut disks = disks.clone();
        let bytes = Arc::make_mut(disks.get_mut(&key).unwrap());
        let bit = (random >> 8) as usize % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let context = |e: String| format!("{key:?}, bit {bit}: {e}");
        // With one parity unit, which is joining, nothing makes up for it.
        let may_be_lost = g.parity() == 1 && key.0 != 1 && matches!(key.1, File::Data(_) | File::Sums(_));
        let (disks, lost) = join(disks, g, &seeds, bug).map_err(context)?;
        if lost && !may_be_lost {
            return Err(context("it is damaged".to_owned()));
        }
        beyond += u64::from(lost);
        for unit in (0..g.units()).filter(|_| !lost) {
            let mut sim = Sim::of(disks.clone(), &[unit]);
            let mut v =
                Volume::open_with(&mut sim, ID, g, 20_000, bug).map_err(|e| context(e.to_string()))?;
            if blocks(&mut v, &seeds).map_err(context)? > 0 {
                return Err(context(format!("it is damaged without unit {unit}")));
            }
        }
    }
    Ok(beyond)
}

/// How many blocks are damaged. One that is wrong is an error.
fn blocks(v: &mut Volume<&mut Sim>, seeds: &[u64]) -> Result<usize, String> {
    let object = v.names().get("a").ok_or("the name is gone")?.object;
    let mut damaged = 0;
    for (b, &seed) in (0..).zip(seeds) {
        match v.read(object, b) {
            Ok(found) if *found == block(seed) => {}
            Ok(_) => return Err(format!("block {b} is wrong")),
            Err(VolumeError::Damaged { .. }) => damaged += 1,
            Err(e) => return Err(e.to_string()),
        }
    }
    Ok(damaged)
}

/// Rebuilds the rest, and repairs. Gives whether blocks are damaged for good.
fn join(disks: Disks, g: Geometry, seeds: &[u64], bug: Option<Bug>) -> Result<(Disks, bool), String> {
    let mut sim = Sim::of(disks, &[]);
    let mut v = Volume::open_with(&mut sim, ID, g, 10_000, bug).map_err(|e| e.to_string())?;
    let before = blocks(&mut v, seeds)?;
    if v.joining().count() != 1 || v.lost().count() != 1 {
        return Err(format!("it does not go on: {:?}", v.lost().collect::<Vec<_>>()));
    }
    while !v.rebuild(1, 1, 10_000).map_err(|e| e.to_string())?.finished {}
    let mut scrub = Scrub::new();
    v.scrub(&mut scrub, u64::MAX).map_err(|e| e.to_string())?;
    let after = blocks(&mut v, seeds)?;
    if after > before {
        return Err(format!("{before} blocks were damaged before, {after} are then"));
    }
    // Parity alone may be beyond repair.
    let lost = before > 0 || scrub.report().damaged > 0;
    drop(v);
    Ok((sim.disks, lost))
}

#[test]
fn every_flipped_bit_is_made_good_while_a_unit_joins() {
    for (data, parity, count) in [(2, 1, 1500), (4, 1, 1500), (4, 2, 1500)] {
        let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
        match flips_while_joining(g, count, None) {
            Ok(lost) => println!("{data}+{parity}: {count} flips while a unit joins, {lost} beyond parity"),
            Err(error) => panic!("{data}+{parity}: {error}"),
        }
    }
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    assert!(flips_while_joining(g, 1500, Some(Bug::ChecksumIgnored)).is_err(), "the check finds nothing");
}

/// Without parity what is damaged is not given.
#[test]
fn damage_without_parity_is_an_error() {
    let g = Geometry::new(2, 0, BLOCK as u64).unwrap();
    let (disks, seeds) = used(g, None);
    let (disks, _) = read(disks, g, &seeds, None).unwrap();
    for (key, bytes) in disks.iter().filter(|(key, _)| matches!(key.1, File::Data(_) | File::Sums(_))) {
        for at in (0..bytes.len()).step_by(bytes.len() / 8) {
            let mut disks = disks.clone();
            Arc::make_mut(disks.get_mut(key).unwrap())[at] ^= 1;
            let error = read(disks, g, &seeds, None).unwrap_err();
            assert!(error.contains("is damaged"), "{key:?}, byte {at}: {error}");
        }
    }
}

/// Each write of an overwritten block that its unit said it had made, and had not.
fn lost_writes(g: Geometry, bug: Option<Bug>) -> Result<(), String> {
    let (before, _) = used(g, None);
    let (clean, mut seeds) = {
        let mut sim = Sim::of(before, &[]);
        let mut v = Volume::open(&mut sim, ID, g, 5000).unwrap();
        let object = v.names()["a"].object;
        let old = sim_of(&mut v, object);
        v.overwrite(object, 1, &block(777), 5000).unwrap();
        v.close(6000).unwrap();
        (sim.disks.clone(), old)
    };
    seeds.1[1] = 777;
    for (key, old) in seeds.0.iter().filter(|(key, _)| matches!(key.1, File::Data(_) | File::Sums(_))) {
        // One file, or all that the unit has of the object, is as it was.
        for whole in [false, true] {
            let mut disks = clean.clone();
            for (other, old) in &seeds.0 {
                let same = matches!(other.1, File::Data(_) | File::Sums(_)) && other.0 == key.0;
                if other == key || whole && same {
                    disks.insert(*other, old.clone());
                }
            }
            let _ = old;
            read(disks, g, &seeds.1, bug).map_err(|e| format!("{key:?}, all of it {whole}: {e}"))?;
        }
    }
    Ok(())
}

/// The disks as they are, and the seeds of what they hold.
fn sim_of(v: &mut Volume<&mut Sim>, object: u64) -> (Disks, Vec<u64>) {
    let n = 2 * v.geometry().row_blocks();
    let seeds = (0..n).map(|b| {
        let found = v.read(object, b).unwrap();
        (0..2000).find(|&seed| *found == block(seed)).unwrap()
    });
    let seeds = seeds.collect();
    (v.units().disks.clone(), seeds)
}

#[test]
fn lost_writes_are_found() {
    for (data, parity) in [(2, 1), (4, 1), (4, 2)] {
        let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
        lost_writes(g, None).unwrap_or_else(|e| panic!("{data}+{parity}: {e}"));
    }
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    assert!(lost_writes(g, Some(Bug::CopiesIgnored)).is_err(), "the check finds nothing");
}

/// A block, and its checksum, that a unit wrote to another place.
fn misdirected(g: Geometry, bug: Option<Bug>) -> Result<(), String> {
    let (disks, seeds) = used(g, bug);
    let mut sim = Sim::of(disks, &[]);
    drop(Volume::open_with(&mut sim, ID, g, 5000, bug).unwrap());
    let stride = if g.parity() > 0 { 12 * (1 + g.data() as usize) } else { 12 };
    for unit in 0..g.units() {
        let mut disks = sim.disks.clone();
        for (key, bytes) in disks.iter_mut().filter(|(key, _)| key.0 == unit) {
            let each = match key.1 {
                File::Data(_) => BLOCK,
                File::Sums(_) => stride,
                _ => continue,
            };
            let bytes = Arc::make_mut(bytes);
            bytes.copy_within(0..each, each);
        }
        match read(disks, g, &seeds, bug) {
            Ok(_) => {}
            Err(error) if g.parity() == 0 && error.contains("is damaged") => {}
            Err(error) => return Err(format!("unit {unit}: {error}")),
        }
    }
    Ok(())
}

#[test]
fn misdirected_writes_are_found() {
    for (data, parity) in [(2, 0), (2, 1), (4, 2)] {
        let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
        misdirected(g, None).unwrap_or_else(|e| panic!("{data}+{parity}: {e}"));
    }
    let g = Geometry::new(2, 0, BLOCK as u64).unwrap();
    assert!(misdirected(g, Some(Bug::PlaceNotSummed)).is_err(), "the check finds nothing");
}

#[test]
fn a_unit_cut_short_is_made_good() {
    let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
    let (disks, seeds) = used(g, None);
    for key in disks.keys() {
        for part in 0..4 {
            let mut disks = disks.clone();
            let bytes = Arc::make_mut(disks.get_mut(key).unwrap());
            bytes.truncate(bytes.len() * part / 4);
            read(disks, g, &seeds, None).unwrap_or_else(|e| panic!("{key:?}, {part} quarters: {e}"));
        }
    }
}

/// What parity gives is read, though there is no room to write it anew: that waits until there is.
#[test]
fn what_is_damaged_is_read_though_its_unit_is_full() {
    for (data, parity) in [(2, 1), (4, 2)] {
        let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
        let (disks, seeds) = used(g, None);
        let mut sim = Sim::of(disks, &[]);
        drop(Volume::open(&mut sim, ID, g, 9000).unwrap());
        let place = g.place(3);
        let unit = g.unit(place.row, place.chunk);
        sim.rot(unit, File::Data(0), place.row * BLOCK as u64 + 5);
        let mut v = Volume::open(&mut sim, ID, g, 10_000).unwrap();
        v.units_mut().full.push(unit);
        for (b, &seed) in (0..).zip(&seeds) {
            assert!(*v.read(0, b).unwrap() == block(seed), "block {b}");
        }
        assert!(matches!(v.overwrite(0, 3, &block(7), 10_000), Err(VolumeError::Full(_))));
        assert!(v.lost().count() == 0 && v.take_repairs().is_empty());
        v.units_mut().full.clear();
        assert!(*v.read(0, 3).unwrap() == block(seeds[3]));
        assert_eq!(v.take_repairs().len(), 1);
    }
}
