//! Pipes across hosts, real processes and real `kill -9`: whoever dies, whenever, every survivor learns it at once and by
//! name, and no step is ever torn. The processes are of one host, where a death is known by the same hangups.
//!
//! `POLYDUCT_KILLS=500` runs more seeds than the default.

mod common;

use common::kill::{assert_could_not_open, loss_of, name, LAYOUTS};
use common::net::{place, trust, Across};
use common::{reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::net::Place;
use polyduct_pipe::{Options, Policy};
use polyduct_rig::kills::{kills, survivors, Delays};
use polyduct_rig::{tests, Random, Unit};
use std::time::Duration;

const SHAPE: [u64; 2] = [96, 80];
/// The longest pause before a kill: less than a step takes.
const PAUSE: Duration = Duration::from_micros(500);

fn main() {
    polyduct_rig::main(unit, tests![any_unit_killed_at_any_moment, units_killed_while_the_pipe_opens]);
}

/// One process: `role layout unit units host port policy trusted open_timeout`.
fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let number = |i: usize| f[i].parse::<u32>().unwrap();
    let of = if f[0] == "w" {
        writer_options(number(2), number(3))
    } else {
        reader_options("r", number(2), number(3))
    };
    let (timeout, open_timeout) = (Some(Duration::from_secs(20)), Duration::from_millis(number(8).into()));
    let options = Options { policy: f[6].parse::<Policy>().unwrap(), timeout, open_timeout, ..of };
    let place = Place { host: f[4].into(), port: number(5) as u16, name: "kill".into() };
    let at = Across { place, trust: trust(f[7] == "true") };
    let data = Dataset::new(&SHAPE, ElemType::U64).unwrap();
    common::kill::run(&at, f[0], data, f[1], &options, u64::MAX);
}

fn start_all(random: &mut Random, open_ms: u32) -> (String, Vec<Unit>) {
    let at = place();
    let (writers, readers) = (1 + random.below(3), 1 + random.below(3));
    let (src, dst) = (random.one_of(&LAYOUTS), random.one_of(&LAYOUTS));
    let policy = random.one_of(&["block", "block", "block", "latest", "drop_oldest"]);
    let trusted = random.below(2) == 0;
    let case = format!("{writers} {src} to {readers} {dst}, {policy}, trusted {trusted}");
    let unit = |role: &str, layout: &str, unit: u64, units: u64| {
        let spec =
            format!("{role} {layout} {unit} {units} {} {} {policy} {trusted} {open_ms}", at.host, at.port);
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
