//! Simulates whole pipes in one thread whose control state is lost now and then, together with the writers'
//! unit 0 and some of the others. `POLYDUCT_SEEDS=100000` runs more seeds than the default.

use super::*;
use polyduct_port::Policy;
use polyduct_rig::Random;

struct Unit {
    name: UnitName,
    stands: Stands,
    /// A writer: the steps before this one it does not publish, since its predecessor has.
    published: u64,
    /// A writer: what lies in its slots.
    store: Vec<Option<u64>>,
    /// A reader: what it got, and its predecessors.
    log: Vec<u64>,
    was_lost: bool,
}

struct World {
    slots: Slots,
    units: Vec<Unit>,
    steps: u64,
    random: Random,
    losses: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let policies = [Policy::Block, Policy::Latest, Policy::DropOldest, Policy::DropNewest];
        let writers = 1 + random.below(3) as u32;
        let readers: Vec<u32> = (0..1 + random.below(2)).map(|_| 1 + random.below(3) as u32).collect();
        let (depth, policy) = (1 + random.below(4) as u32, policies[random.below(4) as usize]);
        let slots = Slots::on_heap(Sizes { writers, readers, depth, policy, words: 0 });
        let unit = |name| Unit {
            name,
            stands: Stands::default(),
            published: 0,
            store: vec![None; depth as usize],
            log: vec![],
            was_lost: false,
        };
        let units = slots.units().map(unit).collect();
        slots.units().for_each(|unit| slots.join(unit, (1, 1), 0));
        World { slots, units, steps: random.below(30), random, losses: 0 }
    }

    fn run(&mut self) {
        let mut idle = 0;
        while self.units.iter().any(|u| !u.stands.closed) {
            let i = self.random.below(self.units.len() as u64) as usize;
            idle = if self.act(i) { 0 } else { idle + 1 };
            let stuck = || self.units.iter().find(|u| !u.stands.closed).map(|u| (u.name, u.stands.clone()));
            assert!(idle < 1000, "nobody goes on: {:?}", stuck());
            if self.losses < 4 && self.random.below(25) == 0 {
                self.lose();
            }
        }
    }

    /// Unit `i` does one thing; returns whether it could.
    fn act(&mut self, i: usize) -> bool {
        let Unit { name, stands, published, .. } = &self.units[i];
        let (name, n, published, granted) = (*name, stands.done, *published, stands.granted);
        let depth = self.slots.sizes().depth as usize;
        if stands.closed {
            return false;
        }
        match (name.side, granted) {
            (Side::Writer, None) if n == self.steps => {
                assert!(n >= published, "{name} ends before step {published}");
                assert_eq!(self.slots.close_writer(name.unit, n), Ok(()));
                self.units[i].stands.closed = true;
            }
            (Side::Writer, None) => {
                let begun = self.slots.poll_begin_again(name.unit, n, published).unwrap();
                let Some(begun) = begun else { return false };
                self.units[i].stands.granted = Some(Granted::Begin(begun));
            }
            (Side::Writer, Some(Granted::Begin(begin))) => {
                let unit = &mut self.units[i];
                (unit.stands.granted, unit.stands.done) = (None, n + 1);
                match begin {
                    Begin::Fill(turn) => {
                        unit.store[turn.slot as usize] = Some(n);
                        unit.stands.publishes(turn);
                        if n >= published {
                            self.slots.publish(name.unit, turn);
                        }
                    }
                    Begin::Drop if n >= published => self.slots.skip(name.unit, n),
                    Begin::Drop => {}
                }
            }
            (Side::Reader(program), None) => match self.slots.poll_next(program, name.unit, n).unwrap() {
                None => return false,
                Some(Next::Step(turn)) => {
                    let stands = &mut self.units[i].stands;
                    stands.granted = Some(Granted::Next(Next::Step(turn)));
                    stands.takes(turn, depth);
                }
                Some(Next::End) => {
                    self.units[i].stands.granted = Some(Granted::Next(Next::End));
                    self.units[i].stands.closed = true;
                }
            },
            (Side::Reader(program), Some(Granted::Next(Next::Step(turn)))) => {
                let mut writers = self.units.iter().filter(|u| u.name.side == Side::Writer);
                if !writers.all(|w| w.store[turn.slot as usize] == Some(turn.step)) {
                    return false;
                }
                self.slots.release(program, name.unit, n, turn);
                let unit = &mut self.units[i];
                unit.log.push(turn.step);
                (unit.stands.granted, unit.stands.done) = (None, n + 1);
            }
            other => panic!("{other:?}"),
        }
        true
    }

    /// The writers' unit 0 is lost, and maybe others with it.
    fn lose(&mut self) {
        self.losses += 1;
        let more = self.random.below(3) == 0;
        let mut lost: Vec<usize> = vec![0];
        let others = 1..self.units.len();
        lost.extend(others.filter(|&i| more && !self.units[i].stands.closed && self.random.below(3) == 0));
        let position = |(i, unit): (usize, &Unit)| Position {
            unit: unit.name,
            process: (1, 1),
            stands: (!lost.contains(&i)).then(|| unit.stands.clone()),
        };
        let positions: Vec<_> = self.units.iter().enumerate().map(position).collect();
        let (slots, published) = Slots::rebuild(self.slots.sizes().clone(), &positions).unwrap();
        self.slots = slots;
        let is_block = !self.slots.is_lossy();
        for (i, unit) in self.units.iter_mut().enumerate() {
            if lost.contains(&i) {
                (unit.stands, unit.was_lost) = (Stands::default(), true);
                unit.store.fill(None);
                unit.stands.done = match unit.name.side {
                    Side::Writer => self.slots.first_needed(published),
                    Side::Reader(_) => self.slots.resume_at(unit.name),
                };
                unit.stands.from = unit.stands.done;
                let at = unit.stands.done as usize;
                assert!(!is_block || unit.name.side == Side::Writer || at <= unit.log.len(), "{}", unit.name);
                if is_block {
                    unit.log.truncate(at);
                }
            }
            unit.published = published;
            let done = unit.stands.done;
            match (&mut unit.stands.granted, unit.name.side) {
                (Some(Granted::Begin(begin)), _) if done >= published => {
                    let again = self.slots.poll_begin(unit.name.unit, done).unwrap().unwrap();
                    match (*begin, again) {
                        (Begin::Fill(had), Begin::Fill(has)) => assert_eq!(had.slot, has.slot),
                        (Begin::Drop, Begin::Fill(_)) => panic!("{} has dropped {done}", unit.name),
                        (_, Begin::Drop) => {}
                    }
                    *begin = again;
                }
                (Some(Granted::Next(next)), Side::Reader(program)) if *next != Next::End => {
                    let again = self.slots.poll_next(program, unit.name.unit, done).unwrap().unwrap();
                    let (Next::Step(had), Next::Step(has)) = (*next, again) else { panic!("no step") };
                    assert_eq!((had.step, had.slot), (has.step, has.slot));
                    *next = again;
                }
                _ => {}
            }
        }
    }

    fn check(&self) {
        let Sizes { depth, policy, readers, .. } = self.slots.sizes();
        for unit in self.units.iter().filter(|u| u.name.side != Side::Writer) {
            if *policy == Policy::Block {
                assert_eq!(unit.log, (0..self.steps).collect::<Vec<_>>(), "{}", unit.name);
                continue;
            }
            if unit.was_lost {
                continue; // Nobody may know what it had.
            }
            assert!(unit.log.windows(2).all(|w| w[0] < w[1]), "out of order: {:?}", unit.log);
            if *policy != Policy::DropNewest && *depth > 1 && readers.len() == 1 {
                let newest = self.steps.checked_sub(1);
                assert_eq!(unit.log.last().copied(), newest, "the newest step is dropped: {}", unit.name);
            }
        }
    }
}

#[test]
fn whoever_is_lost_with_the_state_the_others_go_on() {
    let seeds = std::env::var("POLYDUCT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(5_000);
    let mut losses = 0;
    for seed in 1..=seeds {
        let mut world = World::new(seed);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.run();
            world.check();
        }));
        if let Err(e) = ended {
            let (sizes, steps) = (world.slots.sizes(), world.steps);
            eprintln!("seed {seed}: {steps} steps, {sizes:?}, {} losses", world.losses);
            std::panic::resume_unwind(e);
        }
        losses += world.losses;
    }
    assert!(losses > seeds, "only {losses} losses in {seeds} runs");
}

#[test]
fn positions_that_cannot_be_are_refused() {
    let sizes = |policy| Sizes { writers: 2, readers: vec![2], depth: 2, policy, words: 0 };
    let at = |side, unit, stands| Position { unit: UnitName { side, unit }, process: (1, 1), stands };
    let turn = |step, slot| Turn { step, slot, sense: true, uses: 0 };
    let stands = |done, turns: &[Turn]| Some(Stands { done, turns: turns.to_vec(), ..Stands::default() });
    let rebuilds = |policy, writer, readers: [Option<Stands>; 2]| {
        let [one, other] = readers;
        let reader = Side::Reader(0);
        let all = [
            at(Side::Writer, 0, None),
            at(Side::Writer, 1, writer),
            at(reader, 0, one),
            at(reader, 1, other),
        ];
        Slots::rebuild(sizes(policy), &all).is_some()
    };
    use Policy::{Block, Latest};
    assert!(rebuilds(Block, stands(5, &[]), [stands(4, &[]), stands(3, &[])]));
    assert!(!rebuilds(Block, stands(6, &[]), [stands(4, &[]), stands(3, &[])]));
    assert!(!rebuilds(Block, stands(3, &[]), [stands(6, &[]), stands(3, &[])]));
    assert!(!rebuilds(Block, stands(u64::MAX - 1, &[]), [stands(0, &[]), stands(0, &[])]));
    let filling = Some(Granted::Begin(Begin::Drop));
    for wild in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX)] {
        let (from, done) = wild;
        let wild = Stands { from, done, granted: filling, ..Stands::default() };
        assert!(!rebuilds(Block, Some(wild.clone()), [None, None]));
        assert!(!rebuilds(Latest, Some(wild), [None, None]));
    }
    let took = |k, turns: &[Turn]| stands(k, turns);
    assert!(rebuilds(Latest, stands(9, &[]), [took(2, &[turn(7, 1)]), took(1, &[])]));
    assert!(!rebuilds(Latest, stands(9, &[]), [took(2, &[turn(7, 2)]), took(1, &[])]), "no such slot");
    assert!(!rebuilds(Latest, stands(9, &[]), [took(2, &[]), took(1, &[])]), "of an unknown step");
    assert!(!rebuilds(Latest, stands(9, &[]), [took(2, &[turn(7, 1)]), took(2, &[turn(6, 1)])]), "of two");
    assert!(!rebuilds(Latest, stands(9, &[turn(9, 0)]), [took(0, &[]), took(0, &[])]), "published too early");
}
