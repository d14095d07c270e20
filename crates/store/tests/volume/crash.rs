//! Every state in which a cut may leave a store: old or new content of each write, nothing between, and what was
//! acknowledged is there, with each unit lost in turn.

use super::basics::{block, entry, rows, ID};
use super::sim::{Cut, Disks, Sim};
use polyduct_store::volume::planted::Bug;
use polyduct_store::volume::{Geometry, Volume, BLOCK};

/// A step of a scenario.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Writes a new object with seeds from here on and gives it the name.
    Replace(&'static str, u64),
    /// Overwrites a block of what the name stands for.
    Overwrite(&'static str, u64, u64),
    Remove(&'static str),
}

/// What readers may see: of each name its blocks' seeds.
type View = std::collections::BTreeMap<&'static str, Vec<u64>>;

fn after(view: &View, step: Step, blocks: u64) -> View {
    let mut view = view.clone();
    match step {
        Step::Replace(name, seed) => drop(view.insert(name, (seed..seed + blocks).collect())),
        Step::Overwrite(name, b, seed) => view.get_mut(name).unwrap()[b as usize] = seed,
        Step::Remove(name) => drop(view.remove(name)),
    }
    view
}

fn take(v: &mut Volume<&mut Sim>, step: Step, now: u64) {
    let (n, object) =
        (2 * v.geometry().row_blocks(), |v: &Volume<&mut Sim>, name: &str| v.names()[name].object);
    match step {
        Step::Replace(name, seed) => {
            let object = v.new_object().unwrap();
            for row in 0..2 {
                v.write_row(object, row, &rows(seed + row * n / 2..seed + (row + 1) * n / 2)).unwrap();
            }
            v.commit(vec![(name.into(), entry(object, n))], now).unwrap();
        }
        Step::Overwrite(name, b, seed) => v.overwrite(object(v, name), b, &block(seed), now).unwrap(),
        Step::Remove(name) => v.commit(vec![(name.into(), None)], now).unwrap(),
    }
}

/// How a scenario is gone through.
#[derive(Clone, Copy)]
struct Run {
    geometry: Geometry,
    bug: Option<Bug>,
    /// States of one cut, at most.
    most: u64,
    /// One cut of so many is looked at.
    each: usize,
}

impl Run {
    fn of(data: u32, parity: u32, most: u64, each: usize) -> Run {
        let geometry = Geometry::new(data, parity, BLOCK as u64).unwrap();
        Run { geometry, bug: None, most, each }
    }

    fn open<'a>(&self, sim: &'a mut Sim, now: u64) -> Result<Volume<&'a mut Sim>, String> {
        Volume::open_with(sim, ID, self.geometry, now, self.bug).map_err(|e| e.to_string())
    }

    /// Opens a state and looks at all of it. Gives which of the views it is.
    fn look(&self, sim: &mut Sim, now: u64, known: &[&View]) -> Result<View, String> {
        let mut v = self.open(sim, now)?;
        let names: Vec<String> = v.names().keys().cloned().collect();
        'views: for view in known {
            if !view.keys().copied().eq(names.iter().map(String::as_str)) {
                continue;
            }
            for (name, seeds) in *view {
                let object = v.names()[*name].object;
                for (b, &seed) in (0..).zip(seeds) {
                    if *v.read(object, b).map_err(|e| e.to_string())? != block(seed) {
                        continue 'views;
                    }
                }
            }
            return Ok((*view).clone());
        }
        Err(format!("neither the old nor the new content: {names:?}"))
    }

    /// The state is right as it is and with each unit lost; and what was seen once stays so, whatever is lost or comes back.
    fn check(&self, disks: &Disks, known: &[&View]) -> Result<u64, String> {
        let units = self.geometry.units();
        let mut sim = Sim::of(disks.clone(), &[]);
        let seen = self.look(&mut sim, 10_000, known)?;
        let mut states = 1;
        let lost = |unit: u32, when: &str, e: String| format!("unit {unit} lost {when}: {e}");
        for unit in (0..units).filter(|_| self.geometry.parity() > 0) {
            let mut after = Sim::of(sim.disks.clone(), &[unit]);
            self.look(&mut after, 20_000, &[&seen]).map_err(|e| lost(unit, "afterwards", e))?;
            let mut without = Sim::of(disks.clone(), &[unit]);
            let seen = self.look(&mut without, 10_000, known).map_err(|e| lost(unit, "in the cut", e))?;
            without.dead.clear();
            self.look(&mut without, 20_000, &[&seen]).map_err(|e| lost(unit, "for a while", e))?;
            states += 3;
        }
        Ok(states)
    }

    /// Goes through a scenario and the states that cuts leave. Returns how many there were.
    fn enumerate(&self, steps: &[Step]) -> Result<u64, String> {
        let mut sim = Sim::default();
        drop(Volume::create(&mut sim, ID, self.geometry, 1000).unwrap());
        let base = std::mem::take(&mut sim.disks);
        sim = Sim::of(base.clone(), &[]);
        let mut views = vec![View::new()];
        let mut v = self.open(&mut sim, 2000)?;
        for (i, &step) in steps.iter().enumerate() {
            take(&mut v, step, 3000 + i as u64);
            views.push(after(&views[i], step, 2 * self.geometry.row_blocks()));
        }
        v.close(9000).unwrap();
        let history = std::mem::take(&mut sim.history);
        let done = self.acknowledged(&base, steps)?;
        let (mut states, mut random) = (0, 0x2545_f491_4f6c_dd1d_u64);
        for len in (0..=history.len()).filter(|len| len % self.each == 0) {
            let cut = Cut::after(&base, &history, len);
            let acked = done.iter().filter(|&&at| at <= len).count();
            let known: Vec<&View> = views[acked..views.len().min(acked + 2)].iter().collect();
            let all = 1_u64.checked_shl(cut.open.len() as u32).unwrap_or(u64::MAX);
            for subset in 0..all.min(self.most) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let (bits, torn) = (if all <= self.most { subset } else { random }, random.rotate_left(29));
                // Of what is not there whole, some has come in part.
                let kept = |i: usize, parts: usize| match (bits >> (i % 48) & 1, torn >> (i % 16) & 1) {
                    (1, _) => parts,
                    (_, 0) => 0,
                    _ => (torn >> (i % 40)) as usize % parts,
                };
                let found = self.check(&cut.disks(kept), &known);
                states += found.map_err(|e| format!("after {len} of {}, {bits:b}: {e}", history.len()))?;
            }
        }
        Ok(states)
    }

    /// After how many events each step was acknowledged.
    fn acknowledged(&self, base: &Disks, steps: &[Step]) -> Result<Vec<usize>, String> {
        let upto = |n: usize| {
            let mut sim = Sim::of(base.clone(), &[]);
            let mut v = self.open(&mut sim, 2000)?;
            for (i, &step) in steps[..n].iter().enumerate() {
                take(&mut v, step, 3000 + i as u64);
            }
            drop(v);
            Ok(sim.history.len())
        };
        (1..=steps.len()).map(upto).collect()
    }
}

const STEPS: &[Step] = &[
    Step::Replace("a", 100),
    Step::Overwrite("a", 1, 900),
    Step::Overwrite("a", 1, 901),
    Step::Overwrite("a", 0, 902),
    Step::Replace("b", 200),
    Step::Replace("a", 300),
    Step::Overwrite("a", 2, 903),
    Step::Remove("b"),
    Step::Overwrite("a", 3, 904),
];

/// `POLYDUCT_CUTS=all` looks at ten times as many.
fn all(run: Run) {
    let more = if std::env::var("POLYDUCT_CUTS").is_ok_and(|v| v == "all") { 10 } else { 1 };
    let (data, parity) = (run.geometry.data(), run.geometry.parity());
    match (Run { most: run.most * more, ..run }).enumerate(STEPS) {
        Ok(states) => println!("{data}+{parity}: {states} states"),
        Err(error) => panic!("{data}+{parity}: {error}"),
    }
}

#[test]
fn cuts_of_2_and_1() {
    all(Run::of(2, 1, 32, 1));
}

#[test]
fn cuts_of_4_and_1() {
    all(Run::of(4, 1, 8, 1));
}

#[test]
fn cuts_of_4_and_2() {
    all(Run::of(4, 2, 4, 1));
}

#[test]
fn cuts_without_parity() {
    all(Run::of(2, 0, 64, 1));
}

/// The checks find each of these.
#[test]
fn planted_bugs_are_found() {
    let bugs = [
        Bug::DataNotSynced,
        Bug::LogNotSynced,
        Bug::PlaceFirst,
        Bug::OneLog,
        Bug::NothingReplayed,
        Bug::TrimmedEarly,
        Bug::OneCatalog,
        Bug::NoEpoch,
        Bug::StaleRead,
    ];
    for bug in bugs {
        let run = Run { bug: Some(bug), ..Run::of(2, 1, 32, 1) };
        match run.enumerate(STEPS) {
            Ok(states) => panic!("{bug:?} is not found in {states} states"),
            Err(error) => println!("{bug:?}: {error}"),
        }
    }
}
