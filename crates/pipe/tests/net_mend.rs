//! Connections of a pipe that a network breaks while both their ends live are made again: no unit is lost,
//! and no step is lost, doubled or torn. Real processes, whose connections are disconnected under them, which
//! sends the other end a reset.
//!
//! `POLYDUCT_KILLS=500` runs more seeds than the default.

mod common;

use common::kill::{loss_of, name, LAYOUTS};
use common::net::{address_of, place, trust};
use common::{reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{Expect, Given, Reader, Writer};
use polyduct_rig::kills::{error_of, kills, survivors};
use polyduct_rig::{tests, Middle, Random, Unit};
use rustix::net::{connect_unspec, getpeername, AddressFamily};
use rustix::process::{pidfd_getfd, pidfd_open, Pid, PidfdFlags, PidfdGetfdFlags};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const SHAPE: [u64; 2] = [64, 48];
const STEPS: u64 = 300;
const WATCHDOG: Duration = Duration::from_secs(60);

fn main() {
    polyduct_rig::main(
        unit,
        tests![
            resets_at_any_moment_end_no_unit_and_lose_no_step,
            a_reset_while_all_compute_is_mended_when_they_go_on,
            who_dies_after_a_reset_is_known_to_be_dead,
            last_words_are_heard_though_the_connection_breaks_under_them,
        ],
    );
}

fn unit(spec: &str) {
    common::kill::unit_across("mend", &SHAPE, spec);
}

/// Resets all connections of a process, with whatever is on them. Returns how many there were.
fn reset(unit: &Unit) -> usize {
    let pid = Pid::from_raw(unit.pid() as i32).unwrap();
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return 0 };
    let Ok(numbers) = std::fs::read_dir(format!("/proc/{}/fd", unit.pid())) else { return 0 };
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let connected = |number| {
        let socket = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok()?;
        let is_tcp = matches!(getpeername(&socket).ok()??.address_family(), AddressFamily::INET);
        (is_tcp && connect_unspec(&socket).is_ok()).then_some(())
    };
    numbers.filter_map(connected).count()
}

/// A pipe of such units.
struct Pipe {
    units: Vec<Unit>,
    case: String,
}

impl Pipe {
    /// So many writers and readers, and whether their lost units are replaced.
    fn start(random: &mut Random, (writers, readers): (u64, u64), policy: &str, on_loss: &str) -> Pipe {
        let PipeAddress { host, port, .. } = place();
        let (src, dst) = (random.one_of(&LAYOUTS), random.one_of(&LAYOUTS));
        let trusted = random.below(2) == 0;
        let case = format!("{writers} {src} to {readers} {dst}, {policy}, {on_loss}, trusted {trusted}");
        let unit = |role: &str, layout: &str, unit: u64, units: u64| {
            let spec = format!(
                "{role} {layout} {unit} {units} {host} {port} {policy} {trusted} 30000 {on_loss} {STEPS}"
            );
            Unit::start(name(role, unit), &spec)
        };
        let mut units: Vec<Unit> = (0..writers).map(|u| unit("w", src, u, writers)).collect();
        units.extend((0..readers).map(|u| unit("r", dst, u, readers)));
        Pipe { units, case }
    }

    /// Resets the connections of some unit, and with them the other ends of others.
    fn reset(&self, random: &mut Random) -> usize {
        reset(&self.units[random.below(self.units.len() as u64) as usize])
    }

    fn open(&mut self) {
        for unit in &mut self.units {
            assert!(unit.wait_line("open"), "{}: {} says {}", self.case, unit.name, unit.last());
        }
    }

    /// Everybody comes to the end, and gets every step once where the queue drops none.
    fn assert_ends(mut self, lossless: bool) {
        self.units.iter_mut().for_each(Unit::let_go);
        // The readers first, whose errors are the reason of the writers'.
        for unit in self.units.iter_mut().rev() {
            assert_eq!(unit.end(), "end", "{}: {}", self.case, unit.name);
            let steps: Vec<u64> =
                unit.seen().iter().filter_map(|l| l.strip_prefix("step ")?.parse().ok()).collect();
            if lossless && unit.name.starts_with("reader") {
                assert_eq!(steps, (0..STEPS).collect::<Vec<_>>(), "{}: {}", self.case, unit.name);
            }
        }
    }
}

fn resets_at_any_moment_end_no_unit_and_lose_no_step() {
    let mut resets = 0;
    let seeds = kills(12);
    for seed in 1..=seeds {
        let mut random = Random::new(seed);
        let policy = random.one_of(&["block", "block", "latest"]);
        let on_loss = if policy == "block" { random.one_of(&["raise", "wait"]) } else { "raise" };
        let (writers, readers) = (1 + random.below(2), 1 + random.below(2));
        let mut pipe = Pipe::start(&mut random, (writers, readers), policy, on_loss);
        // While it opens, too.
        let end = Instant::now() + WATCHDOG;
        for _ in 0..3 {
            random.linger(Duration::from_millis(20));
            resets += pipe.reset(&mut random);
        }
        pipe.open();
        for _ in 0..8 {
            random.linger(Duration::from_millis(10));
            resets += pipe.reset(&mut random);
        }
        assert!(Instant::now() < end, "{}", pipe.case);
        // The second half is written with breaks, too.
        pipe.units.iter_mut().for_each(Unit::let_go);
        for _ in 0..4 {
            random.linger(Duration::from_millis(10));
            resets += pipe.reset(&mut random);
        }
        pipe.assert_ends(policy == "block");
    }
    println!("{resets} connections were reset");
    assert!(resets as u64 > 5 * seeds, "{resets}");
}

fn a_reset_while_all_compute_is_mended_when_they_go_on() {
    let mut pipe = Pipe::start(&mut Random::new(1), (2, 2), "block", "raise");
    pipe.open();
    // The writers wait to be let go; the readers wait for the first step that they do not write.
    let half = format!("step {}", STEPS / 2 - 1);
    for unit in &mut pipe.units[2..] {
        while unit.last() != half {
            assert!(unit.wait_line("step"), "{} says {}", unit.name, unit.last());
        }
    }
    assert!(pipe.units.iter().map(reset).sum::<usize>() >= 3);
    pipe.assert_ends(true);
}

fn who_dies_after_a_reset_is_known_to_be_dead() {
    for victim in 0..3 {
        let mut pipe = Pipe::start(&mut Random::new(2), (2, 1), "block", "raise");
        pipe.open();
        for unit in &mut pipe.units {
            assert!(unit.wait_line("step"));
        }
        // Units of one host may share memory, and then have connections to unit 0 only.
        assert!(pipe.units.iter().map(reset).sum::<usize>() >= 2);
        let lost = loss_of(&pipe.units[victim]);
        pipe.units[victim].kill();
        let killed = Instant::now();
        for unit in survivors(&mut pipe.units, &[victim]) {
            let last = unit.end();
            assert_eq!(error_of(&last).map(|e| e.1), Some(&lost[..]), "{} of {victim}", unit.name);
        }
        assert!(killed.elapsed() < Duration::from_secs(3), "{:?}", killed.elapsed());
    }
}

/// The reader hears of the end of the stream by way of a middle that loses it.
fn last_words_are_heard_though_the_connection_breaks_under_them() {
    let (at, trust) = (place(), trust(true));
    let (ends, lost) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let look = {
        let (ends, lost) = (ends.clone(), lost.clone());
        move |_: &[u8], to_unit_0: bool| {
            if !to_unit_0 && ends.swap(false, Ordering::SeqCst) {
                lost.wait();
                lost.wait();
            }
        }
    };
    let middle = Middle::looking(address_of(&at), Arc::new(look));
    let by = PipeAddress { host: middle.addr.ip().to_string(), port: middle.addr.port(), ..at.clone() };
    std::thread::scope(|s| {
        s.spawn(|| {
            let given = Given::Dataset(Dataset::new(&[4], ElemType::U8).unwrap());
            let mut w = Writer::open((&at, &trust), &given, "block", &writer_options(0, 1)).unwrap();
            w.write(&[1, 2, 3, 4]).unwrap();
            lost.wait();
            ends.store(true, Ordering::SeqCst);
            w.close().unwrap();
        });
        // The unit that listens behind the middle is there before it is asked for.
        while std::net::TcpStream::connect((&at.host[..], at.port)).is_err() {
            std::thread::yield_now();
        }
        let options = reader_options("r", 0, 1);
        let mut r = Reader::open((&by, &trust), "*", &Expect::default(), &options).unwrap();
        let mut part = [0; 4];
        assert_eq!((r.read(&mut part).unwrap(), part), (Some(0), [1, 2, 3, 4]));
        lost.wait();
        lost.wait();
        assert!(middle.reset() > 0);
        lost.wait();
        assert_eq!(r.read(&mut part).unwrap(), None);
        r.close().unwrap();
    });
}
