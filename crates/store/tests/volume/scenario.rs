//! What a store goes through in a test, step by step; and the check of a state in which that may be cut
//! short.

use super::basics::{block, entry, rows, ID};
use super::sim::{Cut, Disks, Event, Sim};
use super::written::WholeRows;
use polyduct_store::volume::planted::Bug;
use polyduct_store::volume::units::File;
use polyduct_store::volume::{Entry, Geometry, Scrub, Volume, VolumeError, BLOCK};

/// A step of a scenario.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Writes a new object with seeds from here on and gives it the name.
    Replace(&'static str, u64),
    /// Overwrites a block of what the name stands for.
    Overwrite(&'static str, u64, u64),
    /// Overwrites this block and the next one.
    OverwriteTwo(&'static str, u64, u64),
    /// Much is known of what the name stands for.
    Describe(&'static str),
    /// What the first name stands for has the second from now on.
    Rename(&'static str, &'static str),
    Remove(&'static str),
    /// The owner dies, and another opens the store.
    Reopen,
    /// A unit does nothing any more.
    Lose(u32),
    /// A block of the next object's data cannot be written: the unit fails while its rows are.
    Unwritable(u32, u64),
    /// It does again, with what it had.
    Back(u32),
    /// It does again, with a new directory.
    Wipe(u32),
    Join(u32),
    /// So many words of it.
    Rebuild(u32, u64),
    /// A byte of the object's data, or of its checksums, is not what it was.
    Rot(u32, &'static str, bool, u64),
    /// So many words.
    Scrub(u64),
}

/// What readers may see: of each name its blocks' seeds.
pub type View = std::collections::BTreeMap<&'static str, Vec<u64>>;

/// What they may see after a step; objects have so many blocks.
pub fn after(view: &View, step: Step, blocks: u64) -> View {
    let mut view = view.clone();
    match step {
        Step::Replace(name, seed) => drop(view.insert(name, (seed..seed + blocks).collect())),
        Step::Overwrite(name, b, seed) => view.get_mut(name).unwrap()[b as usize] = seed,
        Step::OverwriteTwo(name, b, seed) => {
            let seeds = view.get_mut(name).unwrap();
            (seeds[b as usize], seeds[b as usize + 1]) = (seed, seed + 1);
        }
        Step::Rename(from, to) => {
            let seeds = view.remove(from).unwrap();
            view.insert(to, seeds);
        }
        Step::Remove(name) => drop(view.remove(name)),
        _ => {}
    }
    view
}

/// What goes on beside the content.
#[derive(Clone, Default)]
pub struct Beside {
    /// Units that were lost and are not whole again, and those of which something rotted.
    pub lost: u32,
    pub rotten: u32,
    /// Units that came to join, or are members again.
    pub joined: u32,
    pub scrub: Scrub,
}

/// Does a step; [`Step::Reopen`] is the caller's.
pub fn take(v: &mut Volume<&mut Sim>, step: Step, now: u64, beside: &mut Beside) -> Result<(), VolumeError> {
    let n = 2 * v.geometry().row_blocks();
    let find = |v: &Volume<&mut Sim>, name: &str| -> Result<Entry, VolumeError> {
        let gone = || VolumeError::NotThere { what: "name", found: name.to_owned() };
        v.names().get(name).cloned().ok_or_else(gone)
    };
    match step {
        Step::Replace(name, seed) => {
            let object = v.new_object().unwrap();
            v.write_rows(object, 0..2, &rows(seed..seed + n))?;
            v.commit(vec![(name.into(), entry(object, n))], now)
        }
        Step::Overwrite(name, b, seed) => v.overwrite(find(v, name)?.object, b, &block(seed), now),
        Step::OverwriteTwo(name, b, seed) => {
            v.overwrite_run(find(v, name)?.object, b, &rows(seed..seed + 2), now)
        }
        Step::Rename(from, to) => {
            let entry = find(v, from)?;
            v.commit(vec![(from.into(), None), (to.into(), Some(entry))], now)
        }
        Step::Describe(name) => {
            let entry = Entry { about: vec![9; 20_000], ..find(v, name)? };
            v.commit(vec![(name.into(), Some(entry))], now)
        }
        Step::Remove(name) => v.commit(vec![(name.into(), None)], now),
        Step::Reopen => Ok(()),
        Step::Lose(unit) => {
            v.units_mut().dead.push(unit);
            beside.lost |= 1 << unit;
            beside.joined &= !(1 << unit);
            Ok(())
        }
        Step::Unwritable(unit, block) => {
            let last = v.names().values().map(|entry| entry.object).max().unwrap();
            v.units_mut().unwritable.insert((unit, File::Data(last + 1), block));
            beside.lost |= 1 << unit;
            beside.joined &= !(1 << unit);
            Ok(())
        }
        Step::Back(unit) => {
            v.units_mut().unwritable.clear();
            v.units_mut().dead.retain(|&dead| dead != unit);
            Ok(())
        }
        Step::Wipe(unit) => {
            v.units_mut().dead.retain(|&dead| dead != unit);
            v.units_mut().wipe(unit);
            Ok(())
        }
        Step::Join(unit) => v.replace(unit, false, now).map(|_| beside.joined |= 1 << unit),
        Step::Rebuild(unit, words) => v.rebuild(unit, words, now).map(|progress| {
            if progress.finished {
                beside.lost &= !(1 << unit);
            }
        }),
        Step::Rot(unit, name, sums, at) => {
            let object = find(v, name)?.object;
            v.units_mut().rot(unit, if sums { File::Sums(object) } else { File::Data(object) }, at);
            beside.rotten |= 1 << unit;
            beside.scrub = Scrub::new();
            Ok(())
        }
        Step::Scrub(words) => v.scrub(&mut beside.scrub, words).map(|progress| {
            if progress.finished {
                beside.rotten = 0;
            }
        }),
    }
}

fn text(e: VolumeError) -> String {
    e.to_string()
}

/// Looks at all that a store has. Gives which of the views it is.
pub fn see(v: &mut Volume<&mut Sim>, known: &[&View]) -> Result<View, String> {
    let names: Vec<String> = v.names().keys().cloned().collect();
    'views: for view in known {
        if !view.keys().copied().eq(names.iter().map(String::as_str)) {
            continue;
        }
        for (name, seeds) in *view {
            let object = v.names()[*name].object;
            // As programs read, who need no volume: what they take is right, and the rest is asked for below.
            let all = 0..(seeds.len() as u64).div_ceil(v.geometry().row_blocks());
            let right =
                |(found, &seed): (Option<Box<[u8; BLOCK]>>, &u64)| found.is_none_or(|b| *b == block(seed));
            if !v.read_rows(object, all).into_iter().zip(seeds).all(right) {
                continue 'views;
            }
            for (b, &seed) in (0..).zip(seeds) {
                if *v.read(object, b).map_err(text)? != block(seed) {
                    continue 'views;
                }
            }
        }
        return Ok((*view).clone());
    }
    Err(format!("neither the old nor the new content: {names:?}"))
}

/// How a scenario is gone through.
#[derive(Clone, Copy)]
pub struct Run {
    pub geometry: Geometry,
    pub bug: Option<Bug>,
    /// States of one cut, at most: where it may leave more, so many are drawn.
    pub most: u64,
    /// All that is lost is rebuilt in each state, and the store scrubbed.
    pub heal: bool,
}

/// What was gone through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// States in which cuts left the disks.
    pub cuts: u64,
    /// States that were opened and read: those, with each unit lost, and what came of them.
    pub states: u64,
    /// Cuts of which not all states were opened.
    pub drawn: u64,
}

/// What came of the steps of a scenario.
pub struct Played {
    /// What was durable before.
    pub base: Disks,
    pub history: Vec<Event>,
    /// What is to be seen before the first step, and after each.
    pub views: Vec<View>,
    pub beside: Vec<Beside>,
    /// How long the history was when each step was acknowledged.
    pub acknowledged: Vec<usize>,
}

impl Run {
    pub fn of(data: u32, parity: u32, most: u64) -> Run {
        let geometry = Geometry::new(data, parity, BLOCK as u64).unwrap();
        Run { geometry, bug: None, most, heal: false }
    }

    pub fn healing(self) -> Run {
        Run { heal: true, ..self }
    }

    pub fn open<'a>(&self, sim: &'a mut Sim, now: u64) -> Result<Volume<&'a mut Sim>, VolumeError> {
        Volume::open_with(sim, ID, self.geometry, now, self.bug)
    }

    /// Opens a state and looks at all of it. Gives which of the views it is. Units that came to join are not
    /// left behind.
    fn look(&self, sim: &mut Sim, now: u64, known: &[&View], joined: u32) -> Result<View, String> {
        let mut v = self.open(sim, now).map_err(text)?;
        let behind = |v: &Volume<_>, unit| !v.joining().any(|(joining, _)| joining == unit);
        if let Some((unit, why)) = v.lost().find(|&(u, _)| joined >> u & 1 != 0 && behind(&v, u)) {
            return Err(format!("unit {unit} has to begin again: {why}"));
        }
        see(&mut v, known)
    }

    /// Rebuilds and repairs all; then any unit may be lost. Gives how many states that were.
    pub fn mend(&self, disks: Disks, now: u64, seen: &View, rotten: u32) -> Result<u64, String> {
        let mut sim = Sim::of(disks, &[]);
        let mut v = self.open(&mut sim, now).map_err(text)?;
        let lost: Vec<u32> = v.lost().map(|(unit, _)| unit).collect();
        for unit in lost {
            v.replace(unit, false, now).map_err(|e| e.to_string())?;
            while v.joining().any(|(joining, _)| joining == unit) {
                v.rebuild(unit, 3, now).map_err(|e| e.to_string())?;
            }
        }
        let mut scrub = Scrub::new();
        while !v.scrub(&mut scrub, 3).map_err(|e| e.to_string())?.finished {}
        // Where nothing has rotted there is nothing to repair: what a cut left open, the logs say.
        let whole = scrub.report().damaged == 0 && v.lost().count() == 0;
        if !whole || rotten == 0 && !scrub.report().repaired.is_empty() {
            return Err(format!("it is not whole: {:?}, {:?}", scrub.report(), v.lost().collect::<Vec<_>>()));
        }
        drop(v);
        let disks = sim.disks;
        for unit in 0..self.geometry.units() {
            let mut without = Sim::of(disks.clone(), &[unit]);
            self.look(&mut without, now + 100, &[seen], 0)
                .map_err(|e| format!("unit {unit} lost then: {e}"))?;
        }
        Ok(1 + u64::from(self.geometry.units()))
    }

    /// The state is right as it is and with each unit lost; and what was seen once stays so, whatever is lost
    /// or comes back. Some units were lost before, or have rotted: with these, more than parity makes up for
    /// may be lost, and that is said. In turn, one of those that were lost for a while is rebuilt.
    pub fn check(&self, disks: &Disks, known: &[&View], beside: &Beside, turn: u64) -> Result<u64, String> {
        let units = self.geometry.units();
        let Beside { lost: gone, rotten, joined, .. } = *beside;
        let mut sim = Sim::of(disks.clone(), &[]);
        let seen = self.look(&mut sim, 10_000, known, joined)?;
        let mut states = 1;
        if self.heal {
            states +=
                self.mend(sim.disks.clone(), 12_000, &seen, rotten).map_err(|e| format!("healed: {e}"))?;
        }
        if self.geometry.parity() >= self.geometry.data() && gone | rotten == 0 {
            states += self.by_turns(disks, known, turn).map_err(|e| format!("by turns: {e}"))?;
        }
        let lost = |unit: u32, when: &str, e: String| format!("unit {unit} lost {when}: {e}");
        for unit in (0..units).filter(|_| self.geometry.parity() > 0) {
            let mut without = Sim::of(disks.clone(), &[unit]);
            let seen_without = self.look(&mut without, 10_000, known, joined & !(1 << unit));
            states += 1;
            if (gone | rotten | 1 << unit).count_ones() > self.geometry.parity() {
                let too_many = match seen_without {
                    Err(e) if e.contains("cannot be used") || e.contains("was served since") => true,
                    Err(e) if e.contains("is damaged") && rotten != 0 => false,
                    Err(e) => return Err(lost(unit, "beyond parity", e)),
                    Ok(_) => false,
                };
                if too_many {
                    without.dead.clear();
                    let back = self.look(&mut without, 20_000, known, joined);
                    back.map_err(|e| lost(unit, "beyond parity, and there again", e))?;
                    states += 1;
                }
                continue;
            }
            let seen_without = seen_without.map_err(|e| lost(unit, "in the cut", e))?;
            let mut after = Sim::of(sim.disks.clone(), &[unit]);
            self.look(&mut after, 20_000, &[&seen], joined & !(1 << unit))
                .map_err(|e| lost(unit, "afterwards", e))?;
            without.dead.clear();
            self.look(&mut without, 20_000, &[&seen_without], joined & !(1 << unit))
                .map_err(|e| lost(unit, "for a while", e))?;
            states += 2;
            if self.heal && u64::from(unit) == turn % u64::from(units) {
                let healed = self.mend(without.disks, 30_000, &seen_without, rotten);
                states += healed.map_err(|e| lost(unit, "for a while, and healed", e))?;
            }
        }
        Ok(states)
    }

    /// Half of the units serve while the others are away, and change something; these do not serve then
    /// without them, and see it when they are there again. In turn, either half is first.
    fn by_turns(&self, disks: &Disks, known: &[&View], turn: u64) -> Result<u64, String> {
        let (units, enough) = (self.geometry.units(), self.geometry.data());
        let some = if turn.is_multiple_of(2) { 0..enough } else { units - enough..units };
        let (here, away): (Vec<u32>, Vec<u32>) = (0..units).partition(|unit| some.contains(unit));
        let mut sim = Sim::of(disks.clone(), &away);
        let mut v = self.open(&mut sim, 10_000).map_err(text)?;
        let mut seen = see(&mut v, known)?;
        if let Some(&name) = seen.keys().next() {
            let step = Step::Overwrite(name, 0, 7000);
            take(&mut v, step, 10_100, &mut Beside::default()).map_err(text)?;
            seen = after(&seen, step, 0);
        }
        drop(v);
        sim.dead = here;
        match self.open(&mut sim, 11_000) {
            Err(VolumeError::Outdated { .. }) => {}
            Err(e) => return Err(format!("the others: {e}")),
            Ok(_) => return Err("the others serve, and know of nothing".to_owned()),
        }
        sim.dead.clear();
        self.look(&mut sim, 12_000, &[&seen], 0).map_err(|e| format!("all of them: {e}"))?;
        Ok(3)
    }

    /// Takes the steps of a scenario. What was `made` before it is durable.
    pub fn play(&self, made: &[Step], steps: &[Step]) -> Result<Played, String> {
        let mut sim = Sim::default();
        drop(Volume::create(&mut sim, ID, self.geometry, 1000).unwrap());
        let mut before = View::new();
        let mut v = self.open(&mut sim, 1500).map_err(text)?;
        for &step in made {
            take(&mut v, step, 1500, &mut Beside::default()).map_err(|e| format!("{step:?}: {e}"))?;
            before = after(&before, step, 2 * self.geometry.row_blocks());
        }
        v.close(1900).map_err(|e| e.to_string())?;
        let base = std::mem::take(&mut sim.disks);
        sim = Sim::of(base.clone(), &[]);
        let (mut views, mut beside, mut acknowledged) = (vec![before], vec![Beside::default()], Vec::new());
        let mut v = self.open(&mut sim, 2000).map_err(text)?;
        for (i, &step) in steps.iter().enumerate() {
            let mut now = beside[i].clone();
            if matches!(step, Step::Reopen) {
                drop(v);
                v = self.open(&mut sim, 3000 + i as u64).map_err(text)?;
            }
            take(&mut v, step, 3000 + i as u64, &mut now).map_err(|e| format!("{step:?}: {e}"))?;
            acknowledged.push(v.units().history.len());
            views.push(after(&views[i], step, 2 * self.geometry.row_blocks()));
            beside.push(now);
        }
        v.close(9000).map_err(|e| e.to_string())?;
        Ok(Played { base, history: sim.history, views, beside, acknowledged })
    }

    /// Goes through the states that cuts of a history leave. Gives how many cuts left more than were looked
    /// at.
    pub fn each_cut(
        &self,
        base: Disks,
        history: &[Event],
        look: &mut dyn FnMut(&Disks, &Cut<'_>) -> Result<(), String>,
    ) -> Result<u64, String> {
        let (mut drawn, mut random) = (0, 0x2545_f491_4f6c_dd1d_u64);
        let mut cut = Cut::new(base, history);
        loop {
            let all = 1_u64.checked_shl(cut.open.len() as u32).unwrap_or(u64::MAX);
            drawn += u64::from(all > self.most);
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
                look(&cut.disks(kept), &cut)
                    .map_err(|e| format!("after {} of {}, {bits:b}: {e}", cut.len, history.len()))?;
            }
            if !cut.advance() {
                return Ok(drawn);
            }
        }
    }

    /// Goes through a scenario and the states that cuts leave.
    pub fn enumerate(&self, made: &[Step], steps: &[Step]) -> Result<Count, String> {
        let Played { base, history, views, beside, acknowledged } = self.play(made, steps)?;
        let mut count = Count::default();
        let drawn = self.each_cut(base, &history, &mut |disks, cut| {
            let acked = acknowledged.iter().filter(|&&at| at <= cut.len).count();
            let now = acked..views.len().min(acked + 2);
            let known: Vec<&View> = views[now.clone()].iter().collect();
            let beside = beside[now].iter().cloned().reduce(|a, b| Beside {
                lost: a.lost | b.lost,
                rotten: a.rotten | b.rotten,
                joined: a.joined & b.joined,
                scrub: Scrub::new(),
            });
            let found = self.check(disks, &known, &beside.unwrap_or_default(), count.cuts);
            count.states += found.map_err(|e| format!("step {acked}: {e}"))?;
            count.cuts += 1;
            Ok(())
        })?;
        Ok(Count { drawn, ..count })
    }

    /// Goes through the states in which a second cut leaves the disks, while what a first one left is opened.
    /// Some of the first are gone through: one of so many.
    pub fn enumerate_openings(&self, made: &[Step], steps: &[Step], one_of: u64) -> Result<Count, String> {
        let Played { base, history, views, acknowledged, .. } = self.play(made, steps)?;
        let (mut count, mut seen) = (Count::default(), 0);
        self.each_cut(base, &history, &mut |disks, cut| {
            seen += 1;
            if seen % one_of != 0 {
                return Ok(());
            }
            let acked = acknowledged.iter().filter(|&&at| at <= cut.len).count();
            let known: Vec<&View> = views[acked..views.len().min(acked + 2)].iter().collect();
            let mut sim = Sim::of(disks.clone(), &[]);
            drop(self.open(&mut sim, 9500).map_err(text)?);
            let drawn = self.each_cut(disks.clone(), &sim.history, &mut |disks, _| {
                count.states += self.check(disks, &known, &Beside::default(), count.cuts)?;
                count.cuts += 1;
                Ok(())
            });
            count.drawn += drawn.map_err(|e| format!("step {acked}, while it is opened {e}"))?;
            Ok(())
        })?;
        Ok(count)
    }
}
