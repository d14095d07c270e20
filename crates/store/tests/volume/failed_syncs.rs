//! Each sync, and each change for a log, fails once while a store is in use, on a unit that goes on living.
//! The unit is lost, or the change is refused; what was acknowledged is there, also after a cut, with other
//! units lost, and when the unit is back.

use super::basics::{block, ID};
use super::scenario::{after, see, take, Beside, Run, Step, View};
use super::sim::{Cut, Disks, Event, Failure, Sim};
use polyduct_store::volume::planted::Bug;
use polyduct_store::volume::{Volume, VolumeError};

/// What is in use all the time.
const IN_USE: &[Step] = &[
    Step::Replace("a", 100),
    Step::Overwrite("a", 1, 900),
    Step::Overwrite("a", 1, 901),
    Step::Replace("b", 200),
    Step::Rename("b", "c"),
    Step::Overwrite("a", 0, 902),
    Step::Replace("a", 300),
    Step::Remove("c"),
    Step::Reopen,
    Step::Overwrite("a", 2, 903),
    Step::Reopen,
];

/// A unit is lost, and a new one rebuilt; then something rots, and is made good.
const CARED_FOR: &[Step] = &[
    Step::Replace("a", 100),
    Step::Overwrite("a", 1, 900),
    Step::Lose(1),
    Step::Overwrite("a", 1, 901),
    Step::Wipe(1),
    Step::Join(1),
    Step::Overwrite("a", 0, 902),
    Step::Rebuild(1, 1),
    Step::Replace("b", 200),
    Step::Reopen,
    Step::Rebuild(1, 9),
    Step::Rot(2, "a", false, 17),
    Step::Rot(2, "b", true, 3),
    Step::Scrub(9),
    Step::Overwrite("b", 1, 903),
    Step::Reopen,
];

/// One of those that can fail does.
struct Case<'a> {
    run: Run,
    base: &'a Disks,
    how: Failure,
    nth: u64,
}

/// What came of the step in which that was.
struct Told {
    /// What may be seen when it is over; one or two.
    known: Vec<View>,
    /// The store is of use.
    goes_on: bool,
}

impl Case<'_> {
    /// What may come of a step, by what was there before it and is to be after it. `lost` are the units that
    /// are not used then.
    fn judge(
        &self,
        unit: u32,
        done: Result<(), VolumeError>,
        lost: u32,
        [before, after]: [&View; 2],
    ) -> Result<Told, String> {
        let parity = self.run.geometry.parity();
        let goes_on = lost.count_ones() <= parity;
        let is_lost = lost >> unit & 1 != 0;
        // With a bug planted it is what is read that has to show it.
        let may_go_on = is_lost || self.run.bug.is_some();
        let known = match (self.how, &done) {
            (Failure::Sync, Ok(())) if may_go_on => vec![after.clone()],
            (Failure::Sync, Err(VolumeError::NotJoined { unit: u, .. })) if *u == unit => {
                vec![before.clone()]
            }
            (Failure::Sync, Err(VolumeError::TooManyLost { missing, .. })) if *missing > parity => {
                return Ok(Told { known: vec![before.clone(), after.clone()], goes_on: false });
            }
            (Failure::Full, Err(VolumeError::Full(e))) if e.unit == unit && !is_lost => vec![before.clone()],
            _ => return Err(format!("unit {unit} failed, {lost:b} are lost, and what is told is {done:?}")),
        };
        Ok(Told { known, goes_on })
    }

    /// Goes through the steps. Gives the states that were opened; `None` where nothing has failed.
    fn go(&self, steps: &[Step]) -> Result<Option<u64>, String> {
        let blocks = 2 * self.run.geometry.row_blocks();
        let mut sim = Sim::of(self.base.clone(), &[]);
        sim.failing = Some((self.nth, self.how));
        let (mut view, mut beside) = (View::new(), Beside::default());
        let mut v = match self.run.open(&mut sim, 2000) {
            Ok(v) => v,
            Err(e) => return self.stays_shut(sim, e, &view, &beside).map(Some),
        };
        // The first has nothing to do: with it is looked at what came of opening the store.
        for (i, &step) in [Step::Scrub(1)].iter().chain(steps).enumerate() {
            let (begun, now, before) = (v.units().history.len(), 3000 + i as u64, beside.clone());
            let next = after(&view, step, blocks);
            let done = match step {
                Step::Reopen => {
                    drop(v);
                    match self.run.open(&mut sim, now) {
                        Ok(opened) => v = opened,
                        Err(e) => return self.stays_shut(sim, e, &view, &beside).map(Some),
                    }
                    Ok(())
                }
                _ => take(&mut v, step, now, &mut beside),
            };
            let Some((unit, file)) = v.units().failed else {
                done.map_err(|e| format!("{step:?}: {e}"))?;
                view = next;
                continue;
            };
            let context =
                |e: String| format!("{:?} {} of unit {unit}'s {file:?}, {step:?}: {e}", self.how, self.nth);
            let mut lost = v.lost().fold(0, |lost, (unit, _)| lost | 1 << unit);
            let told = self.judge(unit, done, lost, [&view, &next]).map_err(context)?;
            if self.how == Failure::Sync {
                lost |= 1 << unit;
            }
            beside.lost |= before.lost | lost;
            // A repair that was not synced may not be there.
            beside.rotten |= before.rotten;
            beside.joined &= before.joined & !lost;
            let meanwhile = [&view, &next];
            return self.rest(v, begun, told, meanwhile, beside).map(Some).map_err(context);
        }
        Ok(None)
    }

    /// The store could not be opened: nothing is lost by that.
    fn stays_shut(&self, sim: Sim, e: VolumeError, view: &View, beside: &Beside) -> Result<u64, String> {
        let (unit, file) = sim.failed.ok_or("nothing has failed")?;
        let context =
            |e: String| format!("{:?} {} of unit {unit}'s {file:?}, opening: {e}", self.how, self.nth);
        self.judge(unit, Err(e), 0, [view, view]).map_err(context)?;
        let beside = Beside { lost: beside.lost | 1 << unit, joined: 0, ..beside.clone() };
        let states = self.cut(&sim.history, sim.history.len(), &[view], &beside);
        let open = self.run.check(&sim.disks, &[view], &beside, self.nth);
        states.and_then(|n| Ok(n + open?)).map_err(context)
    }

    /// What is there after the step in which it failed, which began after so many events, and when the store
    /// goes on.
    fn rest(
        &self,
        mut v: Volume<&mut Sim>,
        begun: usize,
        told: Told,
        meanwhile: [&View; 2],
        mut beside: Beside,
    ) -> Result<u64, String> {
        let known: Vec<&View> = told.known.iter().collect();
        let history = v.units().history.clone();
        let failed = history.iter().position(|event| matches!(event, Event::NotSynced { .. }));
        let (from, to) = (failed.unwrap_or(begun), history.len());
        let mut states = self.cut(&history, to, &known, &beside)?;
        let between = if everything() { 1 } else { (to - from).max(1) };
        for at in (from..to).step_by(between) {
            states += self.cut(&history, at, &meanwhile, &beside)?;
        }
        if !told.goes_on {
            never_wrong(&mut v, &known)?;
            let disks = v.units().disks.clone();
            return Ok(states + self.run.check(&disks, &known, &beside, self.nth)?);
        }
        let mut view = see(&mut v, &known)?;
        let overwrites = view.keys().next().map(|&name| Step::Overwrite(name, 0, 990));
        for step in overwrites.into_iter().chain([Step::Replace("z", 700)]) {
            take(&mut v, step, 5000, &mut beside).map_err(|e| format!("then {step:?}: {e}"))?;
            view = after(&view, step, 2 * self.run.geometry.row_blocks());
        }
        // Units that do nothing cannot come back.
        let lost: Vec<u32> = v.lost().map(|(unit, _)| unit).collect();
        for unit in lost.into_iter().filter(|unit| !v.units().dead.contains(unit)).collect::<Vec<_>>() {
            let joins = Some(Step::Join(unit)).filter(|_| !v.is_joining(unit));
            for step in joins.into_iter().chain([Step::Rebuild(unit, 99)]) {
                take(&mut v, step, 6000, &mut beside).map_err(|e| format!("then {step:?}: {e}"))?;
            }
        }
        see(&mut v, &[&view])?;
        let Sim { history, disks, .. } = (**v.units()).clone();
        drop(v);
        states += self.cut(&history, history.len(), &[&view], &beside)?;
        states += match self.run.geometry.parity() {
            0 => self.run.check(&disks, &[&view], &beside, self.nth)?,
            _ => self.run.mend(disks, 40_000, &view, beside.rotten)?,
        };
        Ok(states)
    }

    /// States in which a cut after so many events leaves the disks: with nothing of what was not synced, with
    /// all of it, and with some; where that is too much, in turn.
    fn cut(&self, history: &[Event], at: usize, known: &[&View], beside: &Beside) -> Result<u64, String> {
        let mut cut = Cut::new(self.base.clone(), history);
        while cut.len < at && cut.advance() {}
        let (mut states, mut random) = (0, 0x2545_f491_4f6c_dd1d_u64.wrapping_mul(2 * self.nth + 1));
        for n in 0..self.run.most {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let turn = (n + self.nth) % 3;
            let bits = [0, u64::MAX, random][turn as usize];
            let kept = |i: usize, parts: usize| match bits >> (i % 48) & 1 {
                1 => parts,
                // Of what is not there whole, some has come in part.
                _ if turn == 2 => (random >> (i % 40)) as usize % parts,
                _ => 0,
            };
            let found = self.run.check(&cut.disks(kept), known, beside, self.nth);
            states += found.map_err(|e| format!("cut after {at} of {}, {bits:b}: {e}", history.len()))?;
        }
        Ok(states)
    }
}

/// Whether all is gone through, instead of some of it.
fn everything() -> bool {
    std::env::var("POLYDUCT_CUTS").is_ok_and(|v| v == "all")
}

/// What a store still gives, of which too much is lost, is right.
fn never_wrong(v: &mut Volume<&mut Sim>, known: &[&View]) -> Result<(), String> {
    let names: Vec<(String, u64, u64)> =
        v.names().iter().map(|(name, entry)| (name.clone(), entry.object, entry.blocks)).collect();
    for (name, object, blocks) in names {
        for b in 0..blocks {
            let Ok(found) = v.read(object, b) else { continue };
            let is =
                |view: &&View| view.get(&name[..]).is_some_and(|seeds| *found == block(seeds[b as usize]));
            if !known.iter().any(is) {
                return Err(format!("block {b} of {name} is wrong"));
            }
        }
    }
    Ok(())
}

/// Every sync of a history fails, and every change for a log has no room. Gives how many of each that were,
/// and the states.
fn each(run: Run, steps: &[Step]) -> Result<([u64; 2], u64), String> {
    let mut sim = Sim::default();
    drop(Volume::create(&mut sim, ID, run.geometry, 1000).unwrap());
    let run = Run { most: run.most * if everything() { 10 } else { 1 }, ..run };
    let (mut failed, mut states) = ([0; 2], 0);
    for (how, failed) in [Failure::Sync, Failure::Full].into_iter().zip(&mut failed) {
        for nth in 0.. {
            match (Case { run, base: &sim.disks, how, nth }).go(steps)? {
                Some(opened) => states += opened,
                None => break,
            }
            *failed += 1;
        }
    }
    Ok((failed, states))
}

/// At least so many syncs, and changes for a log, fail.
fn all(run: Run, least: [u64; 2], steps: &[Step]) {
    let (data, parity) = (run.geometry.data(), run.geometry.parity());
    let ([syncs, logs], states) = each(run, steps).unwrap_or_else(|e| panic!("{data}+{parity}: {e}"));
    println!("{data}+{parity}: {syncs} syncs failed, {logs} changes had no room, {states} states opened");
    assert!(syncs >= least[0] && logs >= least[1], "{syncs} and {logs} are fewer than {least:?}");
}

#[test]
fn failed_syncs_of_2_and_1() {
    all(Run::of(2, 1, 2), [80, 20], IN_USE);
}

#[test]
fn failed_syncs_of_2_and_1_while_healing() {
    all(Run::of(2, 1, 2), [90, 10], CARED_FOR);
}

#[test]
fn failed_syncs_of_4_and_2() {
    all(Run::of(4, 2, 1), [150, 40], IN_USE);
}

#[test]
fn failed_syncs_of_4_and_2_while_healing() {
    all(Run::of(4, 2, 1), [170, 20], CARED_FOR);
}

#[test]
fn failed_syncs_without_parity() {
    all(Run::of(2, 0, 3), [50, 10], IN_USE);
}

/// A driver that goes on with a unit whose sync failed loses something that was acknowledged.
#[test]
fn a_unit_that_is_used_on_is_found() {
    let run = Run { bug: Some(Bug::FailureIgnored), ..Run::of(2, 1, 3) };
    let error = each(run, IN_USE).expect_err("the checks find nothing");
    println!("{error}");
    assert!(error.contains("Sync"), "{error}");
}

/// A store of which a unit's sync failed is none.
#[test]
fn no_store_is_made_with_a_failed_sync() {
    for (data, parity) in [(2, 0), (2, 1), (4, 2)] {
        let geometry = Run::of(data, parity, 1).geometry;
        let make = |nth| {
            let mut sim = Sim { failing: Some((nth, Failure::Sync)), ..Sim::default() };
            let made = Volume::create(&mut sim, ID, geometry, 1000).map(drop);
            (sim.failed.is_some(), made)
        };
        let syncs = (0..).take_while(|&nth| make(nth).0).count() as u64;
        // Its catalog, and its superblock twice.
        assert_eq!(syncs, 3 * u64::from(data + parity));
        for nth in 0..syncs {
            let (_, made) = make(nth);
            assert!(
                matches!(made, Err(VolumeError::TooManyLost { .. })),
                "{data}+{parity}, sync {nth}: {made:?}"
            );
        }
        assert_eq!(make(syncs).1, Ok(()));
    }
}
