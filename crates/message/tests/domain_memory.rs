//! What many units of a domain take: rings of a host are little for each pair, and more for those that use
//! them, within a limit; and what unit 0 keeps for each unit of another host is little, too.

use polyduct_message::config::Config;
use polyduct_message::domain::{Domain, Network, Options};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::Transport;
use polyduct_rig::group::Group;
use polyduct_rig::{free_address, say, tests, Unit};
use std::time::{Duration, Instant};

const UNITS: u32 = 128;
/// Bytes of a message to each other unit.
const LEN: usize = 4000;
/// Bytes of a message from and to unit 0 across hosts, all at once: more than what goes at first.
const FAR: usize = 40_000;
const ROUNDS: u32 = 12;
/// Two processors start so many processes beside other tests.
const PATIENCE: Duration = Duration::from_secs(100);

fn main() {
    polyduct_rig::main(
        unit,
        tests![
            all_to_all_takes_little,
            who_meets_all_across_hosts_takes_little,
            many_units_work_in_a_small_control_group,
        ],
    );
}

/// One process: `name unit units how root group`, where `how` is `near`, or how the network is, and `group`
/// the control group that it goes to, or `-`.
fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    if f[5] != "-" {
        polyduct_rig::group::enter(f[5]);
    }
    let mut options = Options::new(f[0], f[1].parse().unwrap(), f[2].parse().unwrap());
    (options.open_timeout, options.timeout) = (PATIENCE, Some(PATIENCE));
    if f[3] != "near" {
        let key = JobKey::from_bytes([7; 32]).unwrap();
        let transport = if f[3].starts_with("udp") { Transport::Udp } else { Transport::Tcp };
        let trusted = f[3].ends_with("trusted");
        options.network = Some(Network { transport, trusted, ..Network::new(f[4].parse().unwrap(), key) });
        let far = |name: &str| (name == "POLYDUCT_MESSAGE_NEAR").then(|| "0".to_owned());
        options.config = Config::from_sources(None, far).unwrap();
    }
    let d = Domain::join(options).unwrap();
    let begun = Instant::now();
    d.barrier().unwrap();
    say(&format!("joined {}", begun.elapsed().as_millis()));
    match f[3] {
        "near" => all_to_all(&d),
        _ => with_unit_0(&d),
    }
    d.barrier().unwrap();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    say(&format!("takes {} {descriptors}", bytes_in("/proc/self/smaps_rollup", "Pss_Anon")));
    // All are there until the test has looked.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Each sends to all others and receives from all others.
fn all_to_all(d: &Domain) {
    let units = d.units();
    for round in 0..ROUNDS {
        for step in 1..units {
            d.send((d.unit() + step) % units, round, [0; 2], &[7; LEN]).unwrap();
        }
        for step in 1..units {
            let mail = d.recv(Some((d.unit() + units - step) % units), Some(round)).unwrap();
            assert_eq!(mail.payload.len(), LEN);
        }
    }
}

/// Unit 0 receives from all, all at once, and answers each.
fn with_unit_0(d: &Domain) {
    for round in 0..ROUNDS {
        if d.unit() > 0 {
            d.send(0, round, [0; 2], &[7; FAR]).unwrap();
            assert_eq!(d.recv(Some(0), Some(round)).unwrap().payload.len(), FAR);
        } else {
            for from in 1..d.units() {
                assert_eq!(d.recv(Some(from), Some(round)).unwrap().payload.len(), FAR);
                d.send(from, round, [0; 2], &[7; FAR]).unwrap();
            }
        }
    }
}

/// Bytes in a line of a file in `/proc`.
fn bytes_in(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Runs all units, in a control group perhaps; they stay until the test ends. Bytes and descriptors that each
/// takes, in order.
fn takes(how: &str, count: u32, group: Option<&Group>) -> (Vec<Unit>, Vec<(u64, u64)>) {
    let name = format!("test-memory-{}", std::process::id());
    let (start, root) = (Instant::now(), free_address());
    let group = group.map_or("-", Group::path);
    let one =
        |unit| Unit::start(format!("unit {unit}"), &format!("{name} {unit} {count} {how} {root} {group}"));
    let mut units: Vec<Unit> = (0..count).map(one).collect();
    let number = |unit: &mut Unit, what: &str| {
        assert!(unit.wait_line(what), "{how}: {} ended", unit.name);
        let mut numbers = unit.last().split(' ').skip(1).map(|n| n.parse::<u64>().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap_or_default())
    };
    let barriers: Vec<u64> = units.iter_mut().map(|unit| number(unit, "joined").0).collect();
    let slowest = barriers.iter().max().unwrap();
    println!("{how}: all were there after {:.1?}; their first barrier took {slowest} ms", start.elapsed());
    // Half a second, a whole one in memory, on two processors that may have others to serve.
    assert!(*slowest < 3000, "{how}: the first barrier took {slowest} ms");
    let takes = units.iter_mut().map(|unit| number(unit, "takes")).collect();
    println!("{how}: done after {:.1?}", start.elapsed());
    (units, takes)
}

fn all_to_all_takes_little() {
    let shared = bytes_in("/proc/meminfo", "Shmem");
    let (_units, takes) = takes("near", UNITS, None);
    let own = takes.iter().map(|took| took.0).max().unwrap();
    let rings = bytes_in("/proc/meminfo", "Shmem").saturating_sub(shared) / u64::from(UNITS);
    let descriptors = takes.iter().map(|took| took.1).max().unwrap();
    println!(
        "{} MiB of rings for a unit, and {} KiB of its own; {descriptors} descriptors",
        rings >> 20,
        own >> 10
    );
    assert!(rings + own <= 32 << 20, "{} bytes", rings + own);
    // What `polyduct doctor --units` says that a unit needs.
    let said = Config::descriptors(u64::from(UNITS) - 1);
    assert!((said / 2..=said).contains(&descriptors), "{descriptors} descriptors, not {said}");
}

fn who_meets_all_across_hosts_takes_little() {
    for how in ["tcp-trusted", "tcp-sealed", "udp-trusted", "udp-sealed"] {
        let (_units, takes) = takes(how, UNITS, None);
        let (first, others) = (takes[0].0, takes[1..].iter().map(|took| took.0).max().unwrap());
        println!("{how}: unit 0 takes {} MiB, others {} MiB", first >> 20, others >> 20);
        assert!(first <= 64 << 20 && others <= 32 << 20, "{how}: {first} and {others} bytes");
    }
}

/// Where rings as they are by default would take twice what there is.
fn many_units_work_in_a_small_control_group() {
    let group = match Group::new("memory", 512 << 20) {
        Ok(group) => group,
        Err(why) => return eprintln!("NO CONTROL GROUPS HERE ({why}): not tested"),
    };
    let (units, _) = takes("near", 32, Some(&group));
    let used = group.used_bytes();
    println!("32 units in a group of 512 MiB: {} MiB used", used >> 20);
    assert!(used > 0 && used < 400 << 20, "{used} bytes");
    drop(units);
}
