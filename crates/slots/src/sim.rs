//! Simulates whole pipes in one thread: units are state machines, a seeded scheduler picks who moves next,
//! and death comes between any two changes of the shared state. A unit that finds nothing to do sleeps until
//! its bell rings, so a lost wake-up is a deadlock here. `POLYDUCT_SEEDS=100000` runs more seeds than the
//! default.

use super::bell::Sleeper;
use super::geometry::Sizes;
use super::{death, Begin, Next, Slots, Stop, Turn};
use polyduct_os::sync::{Line, Ordering};
use polyduct_port::{Policy, Side, UnitName};
use polyduct_rig::Random;

/// What a unit does next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    /// Its process has started and must find out where to go on.
    Joining,
    /// It asks for its step.
    Asking,
    /// It sleeps until its bell shows something else.
    Sleeping(u32),
    /// It fills or reads the slot; so many words are done.
    Copying(Turn, usize),
    /// It has nothing to do for this step.
    Skipping,
    /// It was killed and nobody knows yet.
    Dead,
    /// It has closed.
    Done,
}

struct Unit {
    name: UnitName,
    doing: Doing,
    /// Its next step.
    at: u64,
    /// Writers: what became of each step. Readers: which step came as the k-th.
    log: Vec<u64>,
}

const DROPPED: u64 = u64::MAX;
/// Words of a writer unit's part of one step: more than one, so that a torn part can be seen.
const WORDS: usize = 2;

struct World {
    slots: Slots,
    units: Vec<Unit>,
    /// The writers' slots: `[(unit * depth + slot) * WORDS + word]`.
    data: Vec<u64>,
    steps: u64,
    /// Steps after which each reader program closes.
    enough: Vec<u64>,
    random: Random,
    /// One action in so many is cut short by death; 0 for none.
    deadliness: u64,
    deaths: u64,
}

fn value(step: u64, unit: u32) -> u64 {
    (step + 1) * 1000 + u64::from(unit)
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let policies = [Policy::Block, Policy::Latest, Policy::DropOldest, Policy::DropNewest];
        let units = |random: &mut Random| match random.below(60) {
            0 => 66,
            n => 1 + (n % 3) as u32,
        };
        let writers = units(&mut random);
        let readers: Vec<u32> = (0..1 + random.below(3)).map(|_| units(&mut random)).collect();
        let (depth, policy) = (1 + random.below(4) as u32, policies[random.below(4) as usize]);
        let steps = random.below(14);
        let enough =
            readers.iter().map(|_| if random.below(4) == 0 { random.below(8) } else { u64::MAX }).collect();
        let slots = Slots::on_heap(Sizes { writers, readers, depth, policy, words: 0 });
        let units =
            slots.units().map(|name| Unit { name, doing: Doing::Joining, at: 0, log: Vec::new() }).collect();
        let deadliness = [0, 3, 10, 40][random.below(4) as usize];
        let data = vec![0; (writers * depth) as usize * WORDS];
        World { slots, units, data, steps, enough, random, deadliness, deaths: 0 }
    }

    fn run(&mut self) {
        for _ in 0..2_000_000 {
            let awake = |u: &Unit| match u.doing {
                Doing::Done => false,
                Doing::Sleeping(seen) => bell(&self.slots, u.name).bell.load(Ordering::Relaxed) != seen,
                _ => true,
            };
            let able: Vec<usize> = (0..self.units.len()).filter(|&i| awake(&self.units[i])).collect();
            let Some(&i) = able.get(self.random.below(able.len().max(1) as u64) as usize) else {
                let stuck = self.units.iter().find(|u| u.doing != Doing::Done);
                return assert!(
                    stuck.is_none(),
                    "all sleep: {} at step {}",
                    stuck.unwrap().name,
                    stuck.unwrap().at
                );
            };
            let last_breath = match self.deadliness {
                0 => u64::MAX - 1,
                n if self.random.below(n) == 0 => self.random.below(5),
                _ => u64::MAX - 1,
            };
            if death::within(last_breath, || self.act(i)).is_none() {
                self.deaths += 1;
                self.units[i].doing = Doing::Dead;
            }
        }
        panic!("no end");
    }

    /// Unit `i` does one thing.
    fn act(&mut self, i: usize) {
        let (name, at) = (self.units[i].name, self.units[i].at);
        if let Doing::Sleeping(_) = self.units[i].doing {
            bell(&self.slots, name).sleepers.fetch_sub(1, Ordering::Relaxed);
            self.units[i].doing = Doing::Asking;
        }
        self.units[i].doing = match self.units[i].doing {
            // Somebody notices the death; a unit that had closed needs no replacement.
            Doing::Dead => {
                self.slots.wake_all();
                if self.slots.is_closed(name) {
                    Doing::Done
                } else {
                    Doing::Joining
                }
            }
            Doing::Joining => {
                self.slots.join(name, (1, 1), 1);
                let at = self.slots.resume_at(name);
                let unit = &mut self.units[i];
                assert!(at == unit.at || at == unit.at + 1, "{name} was at {} and goes on at {at}", unit.at);
                if at > unit.at {
                    assert!(
                        unit.log.len() as u64 == at,
                        "{name} goes on at {at} without having done what is before"
                    );
                }
                unit.at = at;
                Doing::Asking
            }
            Doing::Asking => match name.side {
                Side::Writer => self.ask_to_write(i),
                Side::Reader(p) => self.ask_to_read(i, p),
            },
            Doing::Skipping => {
                self.slots.skip(name.unit, at);
                self.units[i].at += 1;
                Doing::Asking
            }
            Doing::Copying(turn, done) => self.copy(i, turn, done),
            other => other,
        };
    }

    fn ask_to_write(&mut self, i: usize) -> Doing {
        let (name, at) = (self.units[i].name, self.units[i].at);
        if at == self.steps {
            assert_eq!(self.slots.close_writer(name.unit, at), Ok(()));
            return Doing::Done;
        }
        let may = self.slots.may_begin(name.unit, at);
        match self.look(name, may, |slots| slots.poll_begin(name.unit, at)) {
            Ok(Ok(Begin::Fill(turn))) => {
                assert_eq!(turn.step, at);
                self.note(i, at);
                Doing::Copying(turn, 0)
            }
            Ok(Ok(Begin::Drop)) => {
                self.note(i, DROPPED);
                Doing::Skipping
            }
            Ok(Err(Stop::ReadersGone)) => {
                assert!(self.enough.iter().all(|&n| n < u64::MAX), "readers are gone that should not be");
                self.slots.leave(name);
                Doing::Done
            }
            Ok(Err(stop)) => panic!("{name}: {stop:?}"),
            Err(seen) => Doing::Sleeping(seen),
        }
    }

    fn ask_to_read(&mut self, i: usize, program: u32) -> Doing {
        let (name, k) = (self.units[i].name, self.units[i].at);
        if k == self.enough[program as usize] {
            self.slots.close_reader(program, name.unit, k);
            return Doing::Done;
        }
        let may = self.slots.may_next(program, name.unit, k);
        match self.look(name, may, |slots| slots.poll_next(program, name.unit, k)) {
            Ok(Ok(Next::Step(turn))) => Doing::Copying(turn, 0),
            Ok(Ok(Next::End)) => {
                self.slots.close_reader(program, name.unit, k);
                Doing::Done
            }
            Ok(Err(stop)) => panic!("{name}: {stop:?}"),
            Err(seen) => Doing::Sleeping(seen),
        }
    }

    /// Looks as a port does: once, then once more as a sleeper. `Err`: what the bell must show for sleep to
    /// be right. A unit that polls was told before whether it `may` find something.
    fn look<T>(
        &self,
        name: UnitName,
        may: bool,
        poll: impl Fn(&Slots) -> Result<Option<T>, Stop>,
    ) -> Result<Result<T, Stop>, u32> {
        let found = poll(&self.slots).transpose();
        assert_eq!(found.is_some(), may, "{name} was told otherwise");
        if let Some(found) = found {
            return Ok(found);
        }
        let sleeper = Sleeper::at(bell(&self.slots, name));
        // A unit that is killed while it sleeps, or is about to, stays counted.
        let sleeper = std::mem::ManuallyDrop::new(sleeper);
        let found = sleeper.look(|| poll(&self.slots).transpose());
        if found.is_ok() {
            drop(std::mem::ManuallyDrop::into_inner(sleeper));
        }
        found
    }

    fn copy(&mut self, i: usize, turn: Turn, done: usize) -> Doing {
        let (name, at) = (self.units[i].name, self.units[i].at);
        let sizes = self.slots.sizes();
        let word = |unit: u32, word: usize| ((unit * sizes.depth + turn.slot) as usize) * WORDS + word;
        match name.side {
            Side::Writer if done < WORDS => {
                let at = word(name.unit, done);
                self.data[at] = value(turn.step, name.unit);
                Doing::Copying(turn, done + 1)
            }
            Side::Writer => {
                self.slots.publish(name.unit, turn);
                self.units[i].at += 1;
                Doing::Asking
            }
            Side::Reader(_) if done < sizes.writers as usize * WORDS => {
                let unit = (done / WORDS) as u32;
                let got = self.data[word(unit, done % WORDS)];
                assert_eq!(
                    got,
                    value(turn.step, unit),
                    "{name}, step {}: the part of writer {unit} is torn",
                    turn.step
                );
                Doing::Copying(turn, done + 1)
            }
            Side::Reader(p) => {
                self.note(i, turn.step);
                self.slots.release(p, name.unit, at, turn);
                self.units[i].at += 1;
                Doing::Asking
            }
        }
    }

    /// Notes what became of a unit's step; a replacement must come to the same.
    fn note(&mut self, i: usize, what: u64) {
        let Unit { name, at, log, .. } = &mut self.units[i];
        match log.get(*at as usize) {
            Some(before) => assert_eq!(*before, what, "{name}, step {at}: told two things"),
            None => {
                assert_eq!(log.len() as u64, *at, "{name} left something out");
                log.push(what);
            }
        }
    }

    /// What must be true at the end.
    fn check(&self) {
        let Sizes { depth, policy, readers, .. } = self.slots.sizes();
        let of = |side: Side| self.units.iter().filter(move |u| u.name.side == side);
        let all_read = self.enough.iter().all(|&n| n == u64::MAX);
        for side in std::iter::once(Side::Writer).chain((0..readers.len() as u32).map(Side::Reader)) {
            let longest = of(side).map(|u| &u.log).max_by_key(|l| l.len()).unwrap();
            for unit in of(side) {
                let same = longest.starts_with(&unit.log);
                assert!(same, "{} and others disagree: {:?}, {longest:?}", unit.name, unit.log);
                // Writers stop anywhere when their readers go.
                assert!(
                    side == Side::Writer && !all_read || unit.log.len() == longest.len(),
                    "{}",
                    unit.name
                );
            }
            let Side::Reader(p) = side else { continue };
            assert!(longest.windows(2).all(|w| w[0] < w[1]), "out of order: {longest:?}");
            let enough = self.enough[p as usize];
            if *policy == Policy::Block {
                let given = if all_read { self.steps.min(enough) } else { longest.len() as u64 };
                assert_eq!(*longest, (0..given).collect::<Vec<_>>(), "reader program {p}");
            } else if *policy != Policy::DropNewest && *depth > 1 && readers.len() == 1 && enough == u64::MAX
            {
                assert_eq!(
                    longest.last().copied(),
                    self.steps.checked_sub(1),
                    "the newest step is never dropped"
                );
            }
        }
    }
}

fn bell(slots: &Slots, name: UnitName) -> &Line {
    match name.side {
        Side::Writer => slots.freed_bell(),
        Side::Reader(_) => slots.published_bell(),
    }
}

#[test]
fn whoever_dies_wherever_no_step_is_lost_doubled_or_torn() {
    let seeds = std::env::var("POLYDUCT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12_000);
    let mut deaths = 0;
    for seed in 1..=seeds {
        let mut world = World::new(seed);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.run();
            world.check();
        }));
        if let Err(e) = ended {
            let (sizes, steps, enough) = (world.slots.sizes(), world.steps, &world.enough);
            eprintln!(
                "seed {seed}: {steps} steps, {sizes:?}, readers close after {enough:?}, {} deaths",
                world.deaths
            );
            std::panic::resume_unwind(e);
        }
        deaths += world.deaths;
    }
    assert!(deaths > seeds, "only {deaths} deaths in {seeds} runs");
}
