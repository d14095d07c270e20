//! Pipes across hosts, real processes and real `kill -9`: whoever dies, whenever, every survivor learns it at
//! once and by name, and no step is ever torn. The processes are of one host, where a death is known by the
//! same hangups.
//!
//! `POLYDUCT_KILLS=500` runs more seeds than the default.

mod common;

use common::kill::{assert_could_not_open, loss_of, name, LAYOUTS};
use common::lasting::{steps, Lasting, STEPS};
use common::net::{address_of, place, trust};
use common::{fill, local_indices, reader_options};
use polyduct_os::clock::within;
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{Expect, OnLoss, Options, Reader};
use polyduct_rig::kills::{error_of, kills, survivors, Delays};
use polyduct_rig::{tests, Middle, Random, Unit};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const SHAPE: [u64; 2] = [96, 80];
/// The longest pause before a kill: less than a step takes.
const PAUSE: Duration = Duration::from_micros(500);

fn main() {
    polyduct_rig::main(
        unit,
        tests![
            any_unit_killed_at_any_moment,
            units_killed_while_the_pipe_opens,
            a_writer_that_closes_learns_that_unit_0_is_killed,
            lost_units_are_replaced,
            units_are_replaced_where_steps_are_dropped,
            two_units_are_replaced,
            a_look_and_a_read_agree_while_a_writer_is_replaced,
            units_that_were_welcomed_and_are_killed_before_all_may_go_are_replaced,
        ],
    );
}

fn unit(spec: &str) {
    common::kill::unit_across("kill", &SHAPE, spec);
}

fn start_all(random: &mut Random, open_ms: u32) -> (String, Vec<Unit>) {
    let at = place();
    let (writers, readers) = (1 + random.below(3), 1 + random.below(3));
    let (src, dst) = (random.one_of(&LAYOUTS), random.one_of(&LAYOUTS));
    let policy = random.one_of(&["block", "block", "block", "latest", "drop_oldest"]);
    let trusted = random.below(2) == 0;
    let case = format!("{writers} {src} to {readers} {dst}, {policy}, trusted {trusted}");
    let unit = |role: &str, layout: &str, unit: u64, units: u64| {
        let spec = format!(
            "{role} {layout} {unit} {units} {} {} {policy} {trusted} {open_ms} raise {}",
            at.host,
            at.port,
            u64::MAX
        );
        Unit::start(name(role, unit), &spec)
    };
    let mut units: Vec<Unit> = (0..writers).map(|u| unit("w", src, u, writers)).collect();
    units.extend((0..readers).map(|u| unit("r", dst, u, readers)));
    (case, units)
}

fn any_unit_killed_at_any_moment() {
    let mut delays = Delays::default();
    for seed in 1..=kills(60) {
        let mut random = Random::new(seed);
        let (case, mut units) = start_all(&mut random, 20_000);
        let victim = random.below(units.len() as u64) as usize;
        for unit in &mut units {
            assert!(unit.wait_line("open"), "seed {seed}, {case}: {} says {}", unit.name, unit.last());
        }
        for _ in 0..random.below(12) {
            assert!(
                units[victim].wait_line("step"),
                "seed {seed}, {case}: {} ended by itself",
                units[victim].name
            );
        }
        random.linger(PAUSE);
        let lost = loss_of(&units[victim]);
        delays.kill(&mut units, victim, &lost, &format!("seed {seed}, {case}"));
    }
    delays.check(kills(60), &[(50, 0.1), (100, 3.0)]);
}

fn units_killed_while_the_pipe_opens() {
    for seed in 1..=kills(60) / 2 {
        let mut random = Random::new(seed);
        let (case, mut units) = start_all(&mut random, 1000);
        let victim = random.below(units.len() as u64) as usize;
        assert!(units[victim].wait_line("start"));
        (0..random.below(40)).for_each(|_| random.linger(PAUSE));
        units[victim].kill();
        let case = format!("seed {seed}, {case}");
        survivors(&mut units, &[victim]).for_each(|u| assert_could_not_open(u, &case));
    }
}

/// It closes with a slot for a further step that it was told of unasked, and does not need.
fn a_writer_that_closes_learns_that_unit_0_is_killed() {
    for _ in 0..3 {
        let at = place();
        let start = |role: &str, unit: u64, units: u64| {
            let spec =
                format!("{role} block,* {unit} {units} {} {} block true 20000 raise 2", at.host, at.port);
            Unit::start(name(role, unit), &spec)
        };
        let mut units = [start("w", 0, 2), start("w", 1, 2), start("r", 0, 1)];
        // Both writers wait before their last step.
        assert!(units[2].wait_line("step"), "{}", units[2].last());
        units[1].let_go();
        assert!(units[1].wait_line("step") && units[1].wait_line("step"), "{}", units[1].last());
        let lost = loss_of(&units[0]);
        units[0].kill();
        let killed = Instant::now();
        for unit in survivors(&mut units, &[0]) {
            let last = unit.end();
            assert_eq!(error_of(&last).map(|e| e.1), Some(&lost[..]), "{} says {last}", unit.name);
        }
        assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    }
}

/// Kills `victims` in the first half of the stream, starts others in their places, and checks that everybody
/// gets everything.
fn replace(seed: u64, pipe: &Lasting, victims: &[usize], random: &mut Random) {
    let case = format!(
        "seed {seed}: {:?} to {:?}, trusted {}, without {victims:?}",
        pipe.writers, pipe.readers, pipe.trusted
    );
    let mut units = pipe.start_all();
    if pipe.policy == "block" {
        (0..random.below(40)).for_each(|_| assert!(units[victims[0]].wait_line("step"), "{case}"));
        random.linger(PAUSE);
    } else {
        // A reader gets as few of the steps as its writers are fast.
        (0..random.below(20)).for_each(|_| random.linger(PAUSE));
    }
    for &v in victims {
        units[v].kill();
        units[v].end();
    }
    let mut again: Vec<Unit> = victims.iter().map(|&v| pipe.start(v as u64)).collect();
    survivors(&mut units, victims).chain(&mut again).for_each(Unit::let_go);
    let ended: Vec<String> = survivors(&mut units, victims)
        .chain(&mut again)
        .map(|unit| {
            let last = unit.end();
            format!("{} after {} lines: {last}", unit.name, unit.seen().len())
        })
        .collect();
    assert!(ended.iter().all(|end| end.ends_with(": end")), "{case}: {ended:#?}");
    for (v, unit) in units.iter().enumerate().skip(pipe.writers.0 as usize) {
        let mut got = steps(unit);
        if pipe.policy != "block" {
            continue; // What of it came in order and whole, it has checked itself.
        }
        if let Some(i) = victims.iter().position(|&victim| victim == v) {
            // The last step that the predecessor took it may have told unit 0 and not us, or us and not unit
            // 0: its replacement does not get it then, or gets it again.
            let (rest, next) = (steps(&again[i]), got.last().map_or(0, |s| s + 1));
            if rest.first() == Some(&(next + 1)) {
                got.push(next);
            }
            got.extend(rest.into_iter().skip_while(|&step| step + 1 == next));
        }
        assert_eq!(got, (0..STEPS).collect::<Vec<_>>(), "{case}: {}", unit.name);
    }
}

/// Runs `seeds` pipes and replaces in each of them the units that `choose` says.
fn replace_in_many(seeds: u64, choose: impl Fn(&mut Random) -> (Lasting, Vec<usize>)) {
    for seed in 1..=kills(seeds) {
        let mut random = Random::new(seed);
        let (pipe, victims) = choose(&mut random);
        replace(seed, &pipe, &victims, &mut random);
    }
}

fn lost_units_are_replaced() {
    replace_in_many(40, |random| {
        let readers = 1 + random.below(3);
        let pipe = Lasting::new(random, readers);
        // Any but the writers' unit 0, for which `net_revive` is there.
        let victim = 1 + random.below(pipe.writers.0 + pipe.readers.0 - 1);
        (pipe, vec![victim as usize])
    });
}

fn units_are_replaced_where_steps_are_dropped() {
    replace_in_many(30, |random| {
        let policy = random.one_of(&["latest", "drop_oldest", "drop_newest"]);
        let pipe = Lasting { policy, bundle: random.below(3) == 0, ..Lasting::new(random, 2) };
        let victim = 1 + random.below(pipe.writers.0 + pipe.readers.0 - 1);
        (pipe, vec![victim as usize])
    });
}

fn two_units_are_replaced() {
    replace_in_many(20, |random| {
        let pipe = Lasting::new(random, 2);
        let others = pipe.writers.0 + pipe.readers.0 - 1;
        let first = random.below(others);
        let second = (first + 1 + random.below(others - 1)) % others;
        (pipe, [first, second].map(|n| 1 + n as usize).to_vec())
    });
}

/// Its lane ends before unit 0 has said that it is lost.
fn a_look_and_a_read_agree_while_a_writer_is_replaced() {
    for seed in 1..=kills(10) {
        let mut random = Random::new(seed);
        let pipe = Lasting { writers: (2, "block,*"), ..Lasting::new(&mut random, 1) };
        let mut writers = [pipe.start(0), pipe.start(1)];
        let at = PipeAddress { name: "kill".into(), ..pipe.place.clone() };
        let options = Options { on_loss: OnLoss::Wait, ..reader_options("r", 0, 1) };
        let mut r =
            Reader::open((&at, &trust(pipe.trusted)), "*,block", &Expect::default(), &options).unwrap();
        let indices = local_indices(r.mapping(), 0);
        let (mut part, mut expected) = (vec![0; r.local_len_bytes()], vec![0; r.local_len_bytes()]);
        let (mut steps, mut again, mut ended) = (0, None, false);
        let kill_at = 1 + random.below(40);
        while !ended {
            // What can be read is read at once; what cannot is not.
            if r.would_wait().is_none() {
                let read = within(Some(Duration::ZERO), || r.read(&mut part));
                let read = read.unwrap_or_else(|e| panic!("seed {seed}, {steps}: {e}: {}", writers[0].end()));
                fill(&mut expected, &indices, steps);
                assert!(read.is_none() || part == expected, "seed {seed}: step {steps} is torn");
                assert!(read.is_none_or(|step| step == steps), "seed {seed}: {read:?}, not {steps}");
                steps += u64::from(read.is_some());
                ended = read.is_none();
            }
            if steps == kill_at && again.is_none() {
                writers[1].kill();
                // As long as unit 0 takes to know, and longer.
                for _ in 0..2000 {
                    if r.would_wait().is_none() {
                        let read = within(Some(Duration::ZERO), || r.read(&mut part));
                        assert!(read == Ok(Some(steps)), "seed {seed}: {read:?} after {steps}");
                        steps += 1;
                    }
                }
                let mut unit = pipe.start(1);
                unit.let_go();
                writers[0].let_go();
                again = Some(unit);
            }
        }
        assert_eq!(steps, STEPS, "seed {seed}");
        r.close().unwrap();
        assert_eq!((writers[0].end(), again.unwrap().end()), ("end".into(), "end".into()), "seed {seed}");
    }
}

/// How far a pipe has come to be.
#[derive(PartialEq)]
enum Stage {
    Gathers,
    /// A welcome was sent; what is said to unit 0 is held back.
    Welcomed,
    Over,
}

/// It is welcomed by way of a middle that lets nothing more through to unit 0, so that nobody is told to go.
fn units_that_were_welcomed_and_are_killed_before_all_may_go_are_replaced() {
    for victim in [1, 2, 3] {
        let mut random = Random::new(victim);
        let pipe = Lasting { trusted: true, writers: (2, "cyclic,*"), ..Lasting::new(&mut random, 2) };
        let stage = Arc::new((Mutex::new(Stage::Gathers), Condvar::new()));
        let look = {
            let (welcome, stage) = (pipe.writers.1.as_bytes(), stage.clone());
            move |bytes: &[u8], to_unit_0: bool| {
                let mut at = stage.0.lock().unwrap();
                if to_unit_0 {
                    drop(stage.1.wait_while(at, |at| *at == Stage::Welcomed).unwrap());
                } else if *at == Stage::Gathers && bytes.windows(welcome.len()).any(|w| w == welcome) {
                    *at = Stage::Welcomed;
                    stage.1.notify_all();
                }
            }
        };
        let middle = Middle::looking(address_of(&pipe.place), Arc::new(look));
        let (host, port) = (middle.addr.ip().to_string(), middle.addr.port());
        let others = (0..4).filter(|&n| n != victim).map(|n| pipe.start(n));
        let mut units: Vec<Unit> = others.collect();
        // The unit that listens behind the middle is there before it is asked for.
        assert!(units[0].wait_line("waits"));
        let mut lost = pipe.start_by(victim, &host, port);
        drop(stage.1.wait_while(stage.0.lock().unwrap(), |at| *at != Stage::Welcomed).unwrap());
        lost.kill();
        lost.end();
        middle.reset();
        units.push(pipe.start(victim));
        units.iter_mut().for_each(Unit::let_go);
        for unit in &mut units {
            assert_eq!(unit.end(), "end", "without {victim}: {}", unit.name);
            let got = steps(unit);
            assert!(
                unit.name.starts_with("writer") || got == (0..STEPS).collect::<Vec<_>>(),
                "{}: {got:?}",
                unit.name
            );
        }
        *stage.0.lock().unwrap() = Stage::Over;
        stage.1.notify_all();
    }
}
