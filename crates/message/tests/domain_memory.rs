//! What the rings of many units take: a little for each pair, and more for those that use them, within a limit.

use polyduct_message::domain::{Domain, Options};
use polyduct_rig::{say, tests, Unit};
use std::time::Duration;

const UNITS: u32 = 128;
/// Bytes of a message to each other unit.
const LEN: usize = 4000;
const ROUNDS: u32 = 12;

fn main() {
    polyduct_rig::main(unit, tests![all_to_all_takes_little]);
}

/// Joins, sends to all others and receives from all others, and says how much memory it has then that is its own.
fn unit(spec: &str) {
    let (name, unit) = spec.split_once(' ').unwrap();
    let mut options = Options::new(name, unit.parse().unwrap(), UNITS);
    options.open_timeout = Duration::from_secs(100);
    let d = Domain::join(options).unwrap();
    d.barrier().unwrap();
    say("joined");
    for round in 0..ROUNDS {
        for step in 1..UNITS {
            d.send((d.unit() + step) % UNITS, round, [0; 2], &[7; LEN]).unwrap();
        }
        for step in 1..UNITS {
            let mail = d.recv(Some((d.unit() + UNITS - step) % UNITS), Some(round)).unwrap();
            assert_eq!(mail.payload.len(), LEN);
        }
    }
    d.barrier().unwrap();
    say(&format!("takes {}", bytes_in("/proc/self/smaps_rollup", "Pss_Anon")));
    // All are there until the test has looked.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Bytes in a line of a file in `/proc`.
fn bytes_in(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn all_to_all_takes_little() {
    let name = format!("test-memory-{}", std::process::id());
    let (start, shared) = (std::time::Instant::now(), bytes_in("/proc/meminfo", "Shmem"));
    let mut units: Vec<Unit> =
        (0..UNITS).map(|unit| Unit::start(format!("unit {unit}"), &format!("{name} {unit}"))).collect();
    for unit in &mut units {
        assert!(unit.wait_line("joined"), "{} ended", unit.name);
    }
    println!("joined, and the first barrier, after {:.1?}", start.elapsed());
    let takes: Vec<u64> = units
        .iter_mut()
        .map(|unit| {
            assert!(unit.wait_line("takes"), "{} ended", unit.name);
            unit.last().split(' ').nth(1).unwrap().parse().unwrap()
        })
        .collect();
    let own = takes.iter().max().unwrap();
    let rings = bytes_in("/proc/meminfo", "Shmem").saturating_sub(shared) / u64::from(UNITS);
    println!(
        "{} MiB of rings for a unit, and {} KiB of its own, after {:.1?}",
        rings >> 20,
        own >> 10,
        start.elapsed()
    );
    assert!(rings + own <= 32 << 20, "{} bytes", rings + own);
}
