//! Real processes and real `kill -9`: whoever dies, whenever, every survivor learns it at once and by name,
//! no step is ever torn, nothing is left, and where a program waits for a replacement the stream goes on
//! without a gap.
//!
//! `POLYDUCT_KILLS=5000` runs more seeds than the default.

mod common;

use common::kill::{assert_could_not_open, loss_of, name, BUNDLE, LAYOUTS};
use common::unique;
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::{OnLoss, Options, Policy};
use polyduct_rig::kills::{error_of, kills, survivors, Delays};
use polyduct_rig::{kill_all, tests, Random, Unit};
use std::collections::HashMap;
use std::time::Duration;

const SHAPE: [u64; 2] = [24, 20];
/// The longest pause before a kill: less than a step takes.
const PAUSE: Duration = Duration::from_micros(300);

fn main() {
    polyduct_rig::main(
        unit,
        tests![
            any_unit_killed_at_any_moment,
            two_units_killed_at_once,
            two_units_are_replaced,
            unit_0_and_any_other_are_replaced,
            one_that_lives_keeps_the_pipe,
            units_killed_while_the_pipe_opens,
            units_killed_before_all_have_come,
            any_unit_killed_while_opening_is_replaced,
            all_killed_at_once_leave_nothing,
            a_replacement_joins_at_the_next_step,
            a_death_after_unit_0_has_left_is_noticed,
        ],
    );
}

/// One process: `role layout unit units steps pipe policy on_loss patient`.
fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let number = |i: usize| f[i].parse::<u64>().unwrap();
    let options = Options {
        unit: number(2) as u32,
        units: number(3) as u32,
        program: f[0].into(),
        policy: f[6].parse::<Policy>().unwrap(),
        on_loss: f[7].parse::<OnLoss>().unwrap(),
        timeout: Some(Duration::from_secs(20)),
        open_timeout: Duration::from_millis(if f[8] == "0" { 1000 } else { 20_000 }),
        ..Options::default()
    };
    let data = Dataset::new(&SHAPE, ElemType::U64).unwrap();
    common::kill::run(&f[5].to_owned(), f[0], data, f[1], &options, number(4));
}

#[derive(Clone)]
struct Case {
    pipe: String,
    writers: (u64, &'static str),
    readers: (u64, &'static str),
    steps: u64,
    policy: &'static str,
    on_loss: &'static str,
    patient: bool,
}

impl Case {
    fn start(&self, role: &str, unit: u64) -> Unit {
        let (units, layout) = if role == "w" { self.writers } else { self.readers };
        // Every third pipe carries a bundle.
        let number = self.pipe.rsplit('-').next().and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
        let kind = if number.is_multiple_of(3) { BUNDLE } else { "" };
        let Case { pipe, steps, policy, on_loss, patient, .. } = self;
        let spec = format!(
            "{role} {kind}{layout} {unit} {units} {steps} {pipe} {policy} {on_loss} {}",
            u8::from(*patient)
        );
        Unit::start(name(role, unit), &spec)
    }

    fn start_all(&self) -> Vec<Unit> {
        let writers = (0..self.writers.0).map(|u| self.start("w", u));
        writers.chain((0..self.readers.0).map(|u| self.start("r", u))).collect()
    }
}

fn any_unit_killed_at_any_moment() {
    let mut delays = Delays::default();
    for seed in 1..=kills(250) {
        let mut random = Random::new(seed);
        let case = Case {
            pipe: unique("kill"),
            writers: (1 + random.below(3), random.one_of(&LAYOUTS)),
            readers: (1 + random.below(3), random.one_of(&LAYOUTS)),
            steps: u64::MAX,
            policy: random.one_of(&["block", "block", "latest", "drop_oldest", "drop_newest"]),
            on_loss: "raise",
            patient: true,
        };
        let mut units = case.start_all();
        let victim = random.below(units.len() as u64) as usize;
        let all_open = units.iter_mut().all(|u| u.wait_line("open"));
        assert!(all_open, "seed {seed}: a unit did not open");
        for _ in 0..random.below(12) {
            assert!(units[victim].wait_line("step"), "seed {seed}: {} ended by itself", units[victim].name);
        }
        random.linger(PAUSE);
        let lost = loss_of(&units[victim]);
        delays.kill(&mut units, victim, &lost, &format!("seed {seed}, {case}"));
    }
    delays.check(kills(250), &[(95, 0.1), (99, 1.0)]);
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} to {:?}, {}", self.writers, self.readers, self.policy)
    }
}

/// Two different ones of `n`.
fn two_of(n: u64, random: &mut Random) -> [usize; 2] {
    let first = random.below(n);
    [first as usize, ((first + 1 + random.below(n - 1)) % n) as usize]
}

fn two_units_killed_at_once() {
    for seed in 1..=kills(60) {
        let mut random = Random::new(seed);
        let case = Case {
            pipe: unique("two"),
            writers: (1 + random.below(3), random.one_of(&LAYOUTS)),
            readers: (2 + random.below(2), random.one_of(&LAYOUTS)),
            steps: u64::MAX,
            policy: random.one_of(&["block", "latest", "drop_oldest", "drop_newest"]),
            on_loss: "raise",
            patient: true,
        };
        let mut units = case.start_all();
        let victims = two_of(units.len() as u64, &mut random);
        assert!(units.iter_mut().all(|u| u.wait_line("open")), "seed {seed}: a unit did not open");
        for _ in 0..random.below(12) {
            assert!(
                units[victims[0]].wait_line("step"),
                "seed {seed}: {} ended by itself",
                units[victims[0]].name
            );
        }
        random.linger(PAUSE);
        let dead = victims.map(|v| loss_of(&units[v]));
        victims.iter().for_each(|&v| units[v].kill());
        let told: Vec<String> = survivors(&mut units, &victims).map(Unit::end).collect();
        let said: Vec<&str> = told.iter().map(|l| error_of(l).map_or(&l[..], |(_, error)| error)).collect();
        let same = said.iter().all(|s| *s == said[0]);
        assert!(
            same && dead.iter().any(|d| d == said[0]),
            "seed {seed}, {case}: {said:?}, not one of {dead:?}"
        );
    }
}

fn two_units_are_replaced() {
    for seed in 1..=kills(40) {
        let mut random = Random::new(seed);
        let case = Case {
            writers: (1 + random.below(3), random.one_of(&LAYOUTS)),
            readers: (2 + random.below(2), random.one_of(&LAYOUTS)),
            ..waiting("both")
        };
        let mut units = case.start_all();
        let victims = two_of(units.len() as u64, &mut random);
        assert!(units.iter_mut().all(|u| u.wait_line("open")));
        for _ in 0..random.below(10) {
            assert!(units[victims[0]].wait_line("step"));
        }
        random.linger(PAUSE);
        victims.iter().for_each(|&v| units[v].kill());
        case.replace(&mut units, &victims, &format!("seed {seed}"));
    }
}

/// A pipe whose lost units are replaced. Every reader reads from one writer only, so that nobody needs what
/// others have.
fn waiting(name: &str) -> Case {
    Case {
        pipe: unique(name),
        writers: (3, LAYOUTS[0]),
        readers: (3, LAYOUTS[0]),
        steps: STEPS,
        policy: "block",
        on_loss: "wait",
        patient: true,
    }
}

impl Case {
    /// Starts replacements of these units, in this order; all units then come to their ends.
    fn replace(&self, units: &mut [Unit], victims: &[usize], what: &str) {
        victims.iter().for_each(|&v| drop(units[v].end()));
        let mut again: Vec<Unit> = victims
            .iter()
            .map(|&v| match (v as u64).checked_sub(self.writers.0) {
                None => self.start("w", v as u64),
                Some(reader) => self.start("r", reader),
            })
            .collect();
        survivors(units, victims).chain(&mut again).for_each(Unit::let_go);
        let ends: Vec<String> = again.iter_mut().map(Unit::end).collect();
        if ends.iter().any(|e| e != "end") {
            let told: Vec<String> = units.iter_mut().map(|u| u.end() + " by " + &u.name).collect();
            panic!("{what}, {self}: the replacements of {victims:?} end with {ends:?}, the others {told:?}");
        }
        for unit in survivors(units, victims) {
            assert_got_all(unit, &format!("{what}, {self}, {victims:?} were replaced"));
        }
    }
}

fn unit_0_and_any_other_are_replaced() {
    for other in 1..6 {
        for order in ["at once", "the other first", "the other while unit 0 is away"] {
            let case = waiting("pair");
            let mut units = case.start_all();
            assert!(units.iter_mut().all(|u| u.wait_line("open")));
            assert!(units[0].wait_line("step"));
            units[if order == "the other first" { other } else { 0 }].kill();
            if order != "at once" {
                let _ = units[if order == "the other first" { other } else { 0 }].end();
            }
            [0, other].iter().for_each(|&v| units[v].kill());
            case.replace(&mut units, &[0, other], order);
        }
    }
}

fn one_that_lives_keeps_the_pipe() {
    for survivor in 1..6 {
        let case = waiting("one");
        let mut units = case.start_all();
        assert!(units.iter_mut().all(|u| u.wait_line("open")));
        assert!(units[0].wait_line("step"));
        let victims: Vec<usize> = (0..6).filter(|&v| v != survivor).collect();
        victims.iter().for_each(|&v| units[v].kill());
        case.replace(&mut units, &victims, "all but one");
    }
}

/// Any unit may be killed, however far the others have come: each has a place in the pipe that opens in the
/// end.
fn any_unit_killed_while_opening_is_replaced() {
    for seed in 1..=kills(60) {
        let mut random = Random::new(seed);
        let case = Case { writers: (2, LAYOUTS[0]), readers: (2, LAYOUTS[1]), ..waiting("reopen") };
        let mut units = case.start_all();
        let victim = [0, 0, 0, 1, 2, 3][random.below(6) as usize];
        let seen = random.below(units.len() as u64) as usize;
        assert!(units[seen].wait_line(random.one_of(&["start", "waits", "waits", "open"])));
        random.linger(4 * PAUSE);
        units[victim].kill();
        case.replace(&mut units, &[victim], &format!("seed {seed}"));
    }
}

fn units_killed_while_the_pipe_opens() {
    // Several at once: those that are left mostly wait until their patience ends.
    const AT_ONCE: u64 = 5;
    std::thread::scope(|s| {
        for first in 1..=AT_ONCE {
            s.spawn(move || (first..=kills(60) / 2).step_by(AT_ONCE as usize).for_each(killed_while_opening));
        }
    });
}

fn killed_while_opening(seed: u64) {
    let mut random = Random::new(seed);
    let case = Case {
        pipe: unique("open"),
        writers: (1 + random.below(3), LAYOUTS[0]),
        readers: (1 + random.below(3), LAYOUTS[1]),
        steps: u64::MAX,
        policy: "block",
        on_loss: "raise",
        patient: false,
    };
    let mut units = case.start_all();
    let victim = random.below(units.len() as u64) as usize;
    assert!(units[victim].wait_line("start"));
    random.linger(PAUSE);
    units[victim].kill();
    survivors(&mut units, &[victim]).for_each(|u| assert_could_not_open(u, &format!("seed {seed}")));
}

/// One reader is still to come. Who has come already is told at once, or waits for a replacement.
fn units_killed_before_all_have_come() {
    let mut delays = Delays::default();
    for (seed, victim) in (1..=kills(40) / 2).flat_map(|seed| [(seed, 1), (seed, 2)]) {
        for on_loss in ["raise", "wait"] {
            let case = Case {
                pipe: unique("early"),
                writers: (2, LAYOUTS[0]),
                readers: (2, LAYOUTS[1]),
                steps: 20,
                policy: "block",
                on_loss,
                patient: true,
            };
            let mut units = vec![case.start("w", 0)];
            // A name is there before anybody listens at it: the flag of those that do.
            let listens = |line: &str| line.contains(&case.pipe) && line.contains(" 00010000 ");
            while !std::fs::read_to_string("/proc/net/unix").unwrap().lines().any(listens) {
                std::thread::yield_now();
            }
            // Unit 0 listens, so what these wait for is its answer.
            units.extend([case.start("w", 1), case.start("r", 0)]);
            assert!(units[1..].iter_mut().all(|u| u.wait_line("waits")));
            Random::new(seed).linger(PAUSE);
            let lost = loss_of(&units[victim]);
            if on_loss == "raise" {
                delays.kill(&mut units, victim, &lost, &format!("seed {seed}"));
                continue;
            }
            units[victim].kill();
            assert_ne!(units[victim].end(), "end");
            let again = if victim == 1 { case.start("w", 1) } else { case.start("r", 0) };
            units[victim] = again;
            units.push(case.start("r", 1));
            units.iter_mut().for_each(Unit::let_go);
            let ends: Vec<String> = units.iter_mut().map(Unit::end).collect();
            assert!(ends.iter().all(|end| end == "end"), "seed {seed}: {ends:?}");
        }
    }
    delays.check(kills(40), &[(95, 0.1), (99, 1.0)]);
}

fn all_killed_at_once_leave_nothing() {
    let case = Case {
        pipe: unique("all"),
        writers: (3, LAYOUTS[0]),
        readers: (2, LAYOUTS[1]),
        steps: u64::MAX,
        policy: "block",
        on_loss: "raise",
        patient: true,
    };
    for _ in 0..5 {
        // The same name again: the next run starts clean.
        let mut units = case.start_all();
        assert!(units.iter_mut().all(|u| u.wait_line("step")));
        kill_all(&mut units);
        let names = std::fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!names.contains(&case.pipe), "an abstract name is left");
        for place in ["/dev/shm", "/tmp"] {
            let left = std::fs::read_dir(place).unwrap().flatten();
            let ours = left.filter(|e| e.file_name().to_string_lossy().contains(&case.pipe)).count();
            assert_eq!(ours, 0, "something is left in {place}");
        }
    }
}

/// Steps of a stream in which a unit is replaced.
const STEPS: u64 = 600;

fn a_replacement_joins_at_the_next_step() {
    for seed in 1..=kills(60) {
        let mut random = Random::new(seed);
        let case = Case {
            pipe: unique("again"),
            writers: (1 + random.below(3), random.one_of(&LAYOUTS)),
            readers: (1 + random.below(3), random.one_of(&LAYOUTS)),
            steps: STEPS,
            policy: "block",
            on_loss: "wait",
            patient: true,
        };
        let mut units = case.start_all();
        let victim = random.below(units.len() as u64) as usize;
        assert!(units.iter_mut().all(|u| u.wait_line("open")));
        for _ in 0..random.below(10) {
            assert!(units[victim].wait_line("step"));
        }
        random.linger(PAUSE);
        units[victim].kill();
        let died = units[victim].end();
        let (role, number) = match victim as u64 {
            v if v < case.writers.0 => ("w", v),
            v => ("r", v - case.writers.0),
        };
        let mut replacement = case.start(role, number);
        units.iter_mut().chain([&mut replacement]).for_each(Unit::let_go);
        let last = replacement.end();
        assert_eq!(last, "end", "seed {seed}, {case}: replacement of {} {number} (last said {died})", role);
        for unit in survivors(&mut units, &[victim]) {
            assert_got_all(unit, &format!("seed {seed}, {case}"));
        }
        if role == "r" {
            // What the predecessor took, and maybe could not say any more, its replacement does not get
            // again.
            let (before, after) = (steps(units[victim].seen()), steps(replacement.seen()));
            let next = before.last().map_or(0, |s| s + 1);
            let first = after[0];
            assert!(first == next || first == next + 1, "seed {seed}: {before:?} then {after:?}");
            assert_eq!(after, (first..STEPS).collect::<Vec<_>>());
        }
    }
}

/// A unit that has lived on ends well, and a reader has got every step.
fn assert_got_all(unit: &mut Unit, case: &str) {
    assert_eq!(unit.end(), "end", "{case}: {}", unit.name);
    if unit.name.starts_with("reader") {
        assert_eq!(steps(unit.seen()), (0..STEPS).collect::<Vec<_>>(), "{case}: {}", unit.name);
    }
}

fn steps(lines: &[String]) -> Vec<u64> {
    lines.iter().filter_map(|l| l.strip_prefix("step ")?.parse().ok()).collect()
}

fn a_death_after_unit_0_has_left_is_noticed() {
    let mut case = Case {
        pipe: unique("late"),
        writers: (2, LAYOUTS[0]),
        readers: (2, LAYOUTS[1]),
        steps: 5,
        policy: "block",
        on_loss: "raise",
        patient: true,
    };
    // Unit 0 of the writers ends after 5 steps; the others would go on and are then told of the uneven end,
    // or of a death.
    let mut first = case.start("w", 0);
    first.let_go();
    case.steps = u64::MAX;
    let mut rest: HashMap<&str, Unit> =
        [("w1", case.start("w", 1)), ("r0", case.start("r", 0)), ("r1", case.start("r", 1))].into();
    assert_eq!(first.end(), "end");
    let last = rest.get_mut("w1").unwrap().end();
    assert!(last.contains("closed after 5 steps"), "{last}");
    for reader in ["r0", "r1"] {
        let last = rest.get_mut(reader).unwrap().end();
        assert!(last.contains("closed after 5 steps"), "{last}");
    }
}
