//! Units whose files of an object are put back to what they were, or whose disks dropped writes for a while:
//! what they have is right in itself, and old. Every set of units, at every state that they ever had.

use super::basics::{block, entry, rows, ID};
use super::sim::{Disks, Sim};
use super::written::WholeRows;
use polyduct_store::volume::units::File;
use polyduct_store::volume::{Geometry, Scrub, Volume, VolumeError, BLOCK};

/// What an object was after each change of a block of its first row.
struct History {
    geometry: Geometry,
    states: Vec<Disks>,
    /// Of each state the seeds of the row's blocks.
    seeds: Vec<Vec<u64>>,
    /// The block that came to each state but the first.
    changes: Vec<usize>,
}

fn history(g: Geometry, changes: &[usize]) -> History {
    let mut sim = Sim::default();
    let mut v = Volume::create(&mut sim, ID, g, 1000).unwrap();
    let object = v.new_object().unwrap();
    let n = g.row_blocks();
    v.write_row(object, 0, &rows(0..n)).unwrap();
    v.commit(vec![("a".into(), entry(object, n))], 2000).unwrap();
    v.close(3000).unwrap();
    let mut all = History {
        geometry: g,
        states: vec![sim.disks.clone()],
        seeds: vec![(0..n).collect()],
        changes: changes.into(),
    };
    for (i, &b) in (1..).zip(changes) {
        let mut v = Volume::open(&mut sim, ID, g, 4000 + i).unwrap();
        v.overwrite(object, b as u64, &block(1000 * i), 5000 + i).unwrap();
        v.close(6000 + i).unwrap();
        let mut seeds = all.seeds[all.seeds.len() - 1].clone();
        seeds[b] = 1000 * i;
        all.seeds.push(seeds);
        all.states.push(sim.disks.clone());
    }
    all
}

impl History {
    /// The units that a change of a block comes to.
    fn concerned(&self, b: usize) -> Vec<u32> {
        (0..self.geometry.units()).filter(|&c| c as usize == b || c >= self.geometry.data()).collect()
    }

    /// The disks where each unit has its object as it was in some state.
    fn mixed(&self, of: &[usize]) -> Disks {
        let mut disks = self.states[self.states.len() - 1].clone();
        for (unit, &state) in (0..).zip(of) {
            for file in [File::Data(0), File::Sums(0)] {
                disks.insert((unit, file), self.states[state][&(unit, file)].clone());
            }
        }
        disks
    }

    /// The last state in which a unit's files are what they are in this one.
    fn last_same(&self, unit: u32, state: usize) -> usize {
        let changed = |&i: &usize| self.concerned(self.changes[i - 1]).contains(&unit);
        (state + 1..self.states.len()).find(changed).map_or(self.states.len() - 1, |i| i - 1)
    }

    /// Reads, scrubs and reads again. Gives whether anything was given up as damaged.
    fn check(&self, of: &[usize]) -> Result<bool, String> {
        let (g, last) = (self.geometry, self.states.len() - 1);
        let of: Vec<usize> = (0..).zip(of).map(|(unit, &state)| self.last_same(unit, state)).collect();
        let old = of.iter().filter(|&&state| state < last).count();
        // Whether anybody is left who can know of the last change of a block.
        let known = |b: usize| {
            let change = self.changes.iter().rposition(|&other| other == b).map_or(0, |i| i + 1);
            self.concerned(b).iter().any(|&unit| of[unit as usize] >= change)
        };
        let mut damaged = false;
        for scrubs in [false, true] {
            let mut sim = Sim::of(self.mixed(&of), &[]);
            let before = sim.disks.clone();
            let mut v = Volume::open(&mut sim, ID, g, 10_000).map_err(|e| e.to_string())?;
            if scrubs {
                let mut scrub = Scrub::new();
                v.scrub(&mut scrub, u64::MAX).map_err(|e| e.to_string())?;
                damaged |= scrub.report().damaged > 0;
            }
            for (b, &seed) in self.seeds[last].iter().enumerate() {
                match v.read(0, b as u64) {
                    Ok(found) if *found == block(seed) => {}
                    Ok(_) if !known(b) => {}
                    Ok(_) => return Err(format!("block {b} is old, scrubbed {scrubs}")),
                    Err(VolumeError::Damaged { doubtful, .. }) if doubtful.len() > g.parity() as usize => {
                        damaged = true
                    }
                    Err(e) => return Err(e.to_string()),
                }
            }
            drop(v);
            for unit in 0..g.units() {
                for file in [File::Data(0), File::Sums(0)] {
                    let (was, good) = (&before[&(unit, file)], &self.states[last][&(unit, file)]);
                    let is_good = &sim.disks[&(unit, file)] == good;
                    if was == good && !is_good && (0..g.data() as usize).all(known) {
                        return Err(format!("{file:?} of unit {unit} was made bad, scrubbed {scrubs}"));
                    }
                }
            }
        }
        match damaged && old <= g.parity() as usize {
            true => Err("given up within parity".to_owned()),
            false => Ok(damaged),
        }
    }

    /// All ways in which units can have old states. Gives how many there are, and how many of them are beyond
    /// parity.
    fn all(&self) -> Result<(usize, usize), String> {
        let (units, states) = (self.geometry.units(), self.states.len());
        let (mut count, mut beyond) = (0, 0);
        for n in 0..states.pow(units) {
            let of: Vec<usize> = (0..units).map(|unit| n / states.pow(unit) % states).collect();
            beyond += usize::from(self.check(&of).map_err(|e| format!("{of:?}: {e}"))?);
            count += 1;
        }
        Ok((count, beyond))
    }
}

const GEOMETRIES: [(u32, u32); 8] = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (4, 1), (4, 2), (3, 3)];

/// Of one change as many units as parity makes up for may have nothing, whichever they are.
#[test]
fn every_set_of_old_units() {
    for (data, parity) in GEOMETRIES {
        let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
        for b in 0..data as usize {
            let (count, beyond) =
                history(g, &[b]).all().unwrap_or_else(|e| panic!("{data}+{parity}, block {b}: {e}"));
            assert_eq!((count, beyond), (1 << g.units(), 0), "{data}+{parity}, block {b}");
        }
    }
}

/// The same where units stopped at different times: two changes, of one block or of two.
#[test]
fn every_set_of_units_that_are_old_at_different_times() {
    for (data, parity) in GEOMETRIES {
        let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
        for changes in [[0, 0], [0, data as usize - 1]] {
            let (count, beyond) =
                history(g, &changes).all().unwrap_or_else(|e| panic!("{data}+{parity}, {changes:?}: {e}"));
            println!("{data}+{parity}, blocks {changes:?}: {count} mixtures, {beyond} beyond parity");
        }
    }
}
