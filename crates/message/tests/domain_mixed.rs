//! Real processes of one domain on two hosts: units 0 and 3 on host A, units 1 and 2 on host B, each beside one of its own kind
//! and across a cable from the others.
//!
//! Where the system gives nobody namespaces, the test says so, and units of this host are told apart by what they say.

#[path = "rig/hosts.rs"]
mod hosts;
#[path = "rig/lines.rs"]
mod lines;

use hosts::{plug_in, run_a, Other, Role};
use lines::{listen, say, Unit};
use polyduct_message::config::Config;
use polyduct_message::domain::{Domain, Network, OnLoss, Options, Reach};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::Transport;
use polyduct_message::{MessageError, Priority};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const UNITS: u32 = 4;
/// The host of each unit.
const HOST: [u64; UNITS as usize] = [0, 1, 1, 0];
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes that each unit puts into each region: more than a packet.
const SLOT: usize = 1_300_000;
const LENGTHS: [usize; 4] = [0, 40, 9_000, 2_500_000];

fn main() {
    if let Some(spec) = lines::spec() {
        return unit(&spec);
    }
    match hosts::role() {
        Role::B => {
            plug_in();
            // Its namespace lasts as long as it does.
            while !listen().is_empty() {}
        }
        Role::A => all(true),
        Role::Outside => {
            let args: Vec<String> = std::env::args().skip(1).collect();
            match run_a(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
                Ok(output) => {
                    let text = [output.stdout, output.stderr].concat();
                    let text = String::from_utf8_lossy(&text);
                    text.lines()
                        .filter(|l| l.starts_with("test ") || l.contains(" told "))
                        .for_each(|l| println!("{l}"));
                    assert!(output.status.success(), "{text}");
                }
                Err(why) => {
                    eprintln!("NO NETWORK NAMESPACES HERE ({why}): processes of this host instead");
                    all(false);
                }
            }
        }
    }
}

fn all(cable: bool) {
    lines::run(&[
        ("near_and_far_units_do_everything_together", &|| everything(cable)),
        ("whoever_is_killed_is_named_by_all", &|| deaths(cable)),
        ("who_leaves_leaves_the_others_at_work", &|| leaves(cable)),
        ("who_is_near_goes_on_without_the_other_host", &|| {
            if cable {
                host_gone()
            }
        }),
    ]);
}

/// How a domain is joined.
#[derive(Clone, Copy, Debug)]
struct Way {
    transport: Transport,
    /// Whether units of one host share memory.
    near: bool,
}

const NEAR_TCP: Way = Way { transport: Transport::Tcp, near: true };
const WAYS: [Way; 4] = [
    NEAR_TCP,
    Way { transport: Transport::Tcp, near: false },
    Way { transport: Transport::Udp, near: true },
    Way { transport: Transport::Udp, near: false },
];

/// Starts all units, which say "open" when they have joined.
fn start(other: &Other, cable: bool, way: Way, how: &str) -> Vec<Unit> {
    let root = TcpListener::bind((other.mine, 0)).unwrap().local_addr().unwrap();
    let one = |unit: u32| {
        let host = HOST[unit as usize];
        let mut command = match host {
            0 => Command::new(std::env::current_exe().unwrap()),
            _ => other.command(),
        };
        command.env("POLYDUCT_MESSAGE_NEAR", u8::from(way.near).to_string());
        // The system tells those apart that a cable parts.
        let apart = if cable { 0 } else { host + 1 };
        Unit::start_by(command, &format!("{unit} {root} {apart} {} {:?} {how}", way.near, way.transport))
    };
    let mut units: Vec<Unit> = (0..UNITS).map(one).collect();
    for (n, unit) in units.iter_mut().enumerate() {
        assert!(unit.wait_line("open"), "{way:?}, {how}: unit {n} says {:?}", unit.last);
    }
    units
}

/// One process: `unit root apart near transport how`.
fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let (me, near, how) = (f[0].parse().unwrap(), f[3] == "true", f[5]);
    let network = Network {
        transport: if f[4] == "Udp" { Transport::Udp } else { Transport::Tcp },
        apart: f[2].parse().unwrap(),
        ..Network::new(f[1].parse().unwrap(), JobKey::from_bytes([7; 32]).unwrap())
    };
    let options = Options {
        timeout: Some(PATIENCE),
        open_timeout: PATIENCE,
        on_loss: if how == "go_on" { OnLoss::Continue } else { OnLoss::Raise },
        network: Some(network),
        config: Config::from_sources(None, |name| std::env::var(name).ok()).unwrap(),
        ..Options::new("mixed", me, UNITS)
    };
    let done = Domain::join(options).and_then(|d| {
        for to in 0..UNITS {
            let is_near = near && HOST[to as usize] == HOST[me as usize];
            let reach = if is_near { Reach::Near } else { Reach::Far };
            assert_eq!(d.reach(to)?, if to == me { Reach::Itself } else { reach });
            assert_eq!(d.pid(to)?.is_some(), is_near);
        }
        match how {
            "everything" => exchange(&d),
            "wait" | "talk" => until_a_loss(&d, how == "talk"),
            "go_on" => go_on(&d),
            leaver => leave(&d, leaver.parse().unwrap()),
        }
    });
    let time = polyduct_os::clock::now().as_secs_f64();
    match done {
        Ok(()) => say("end"),
        Err(MessageError::PeerLost { unit, reason }) => say(&format!("lost {time:.6} {unit} {reason}")),
        Err(other) => say(&format!("error {other}")),
    }
}

fn others(me: u32) -> impl Iterator<Item = u32> {
    (0..UNITS).filter(move |&unit| unit != me)
}

/// What one unit sends another: no two the same.
fn bytes(from: u32, to: u32, n: u32, len: usize) -> Vec<u8> {
    let seed = u64::from(from * 64 + to * 16 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len as u64).map(|i| (seed.wrapping_mul(i + 1) >> 32) as u8).collect()
}

fn same(got: &[u8], wanted: &[u8], what: &str) {
    assert!(got == wanted, "{what}: other bytes than were sent");
}

/// Everything that units do together, in every direction at once.
fn exchange(d: &Domain) -> Result<(), MessageError> {
    let me = d.unit();
    let heard: Arc<Mutex<BTreeMap<u32, Vec<u8>>>> = Arc::default();
    let hears = heard.clone();
    d.handler("hear", 1, move |_, m| drop(hears.lock().unwrap().insert(m.from, m.payload.to_vec())))?;
    d.function("turn", 1, |_, x| Ok(x.iter().rev().copied().collect()))?;
    let shared = d.region(1, SLOT * UNITS as usize)?;
    let lent = d.lend(2, vec![0; SLOT * UNITS as usize])?;
    d.synchronise()?;
    say("open");
    let mut channels = BTreeMap::new();
    for to in others(me) {
        channels.insert(to, d.channel(to, Priority::Low)?);
    }
    let (mut here, mut there) = (vec![0; SLOT], vec![0; SLOT]);
    let slot = |unit: u32| unit as usize * SLOT;
    for (n, len) in (0..).zip(LENGTHS) {
        let sent = |from, to| bytes(from, to, n, len);
        for (&to, channel) in &mut channels {
            d.send(to, n, [n, me], &sent(me, to))?;
            channel.bulk(d.lookup("hear", to)?, [n; 4], &sent(me, to))?;
        }
        let calls: Vec<_> =
            (0..UNITS).map(|to| d.call(to, "turn", &sent(me, to), None)).collect::<Result<_, _>>()?;
        for from in others(me) {
            let mail = d.recv(Some(from), Some(n))?;
            assert_eq!(mail.words, [n, from]);
            same(&mail.payload, &sent(from, me), "a message");
        }
        for (to, call) in (0..).zip(calls) {
            let turned: Vec<u8> = sent(me, to).into_iter().rev().collect();
            same(&call.wait()?, &turned, "an answer");
        }
        d.serve_until(None, || heard.lock().unwrap().len() == channels.len())?;
        for (from, payload) in std::mem::take(&mut *heard.lock().unwrap()) {
            same(&payload, &sent(from, me), "a channel");
        }
        for to in others(me) {
            d.put(to, 1, slot(me), &bytes(me, to, n, SLOT))?;
            d.start_put(to, 2, slot(me), &bytes(me, to, n + 8, SLOT))?.wait()?;
        }
        d.barrier()?;
        for unit in others(me) {
            shared.read(slot(unit), &mut here)?;
            same(&here, &bytes(unit, me, n, SLOT), "a region");
            lent.read(slot(unit), &mut here)?;
            same(&here, &bytes(unit, me, n + 8, SLOT), "lent memory");
            for (id, more) in [(1, 0), (2, 8)] {
                d.get(unit, id, slot(me), &mut there)?;
                same(&there, &bytes(me, unit, n + more, SLOT), "what was put there");
            }
            match d.region_of(unit, 1) {
                Ok(theirs) => {
                    assert_eq!(d.reach(unit)?, Reach::Near);
                    theirs.read(slot(me), &mut there)?;
                    same(&there, &bytes(me, unit, n, SLOT), "a region in place");
                }
                Err(MessageError::Region { .. }) => assert_eq!(d.reach(unit)?, Reach::Far),
                Err(other) => return Err(other),
            }
        }
        // Nobody puts anew before all have looked.
        d.barrier()?;
    }
    assert_eq!(lent.withdraw()?.len(), slot(UNITS));
    d.barrier()?;
    for unit in others(me) {
        assert!(matches!(d.get(unit, 2, 0, &mut there), Err(MessageError::Region { id: 2, .. })));
    }
    d.barrier()
}

fn everything(cable: bool) {
    let other = Other::start(&[], cable);
    for way in WAYS {
        for (n, unit) in start(&other, cable, way, "everything").iter_mut().enumerate() {
            assert_eq!(unit.end(&format!("unit {n}, {way:?}")), "end", "unit {n}, {way:?}");
        }
    }
}

/// Waits or talks until a unit is lost.
fn until_a_loss(d: &Domain, talk: bool) -> Result<(), MessageError> {
    d.synchronise()?;
    say("open");
    let me = d.unit();
    if !talk {
        return d.recv(None, None).map(drop);
    }
    loop {
        for to in others(me) {
            d.send(to, 0, [0; 2], &[1; 20_000])?;
        }
        for from in others(me) {
            d.recv(Some(from), Some(0))?;
        }
        say("step");
    }
}

fn deaths(cable: bool) {
    let other = Other::start(&[], cable);
    let mut delays = Vec::new();
    // Datagrams do not tell of a death: with nobody beside it, it is noticed by silence.
    let told = |way: &Way| way.near || way.transport == Transport::Tcp;
    for (n, way) in WAYS.into_iter().filter(told).flat_map(|way| [(0, way), (5, way)]) {
        for victim in 0..UNITS as usize {
            let how = if n == 0 { "wait" } else { "talk" };
            let case = format!("unit {victim} killed, {way:?}, {how}");
            let mut units = start(&other, cable, way, how);
            for _ in 0..n {
                assert!(units[victim].wait_line("step"), "{case}: {}", units[victim].last);
            }
            units[victim].child.kill().unwrap();
            let killed = polyduct_os::clock::now().as_secs_f64();
            for (unit, one) in units.iter_mut().enumerate().filter(|(unit, _)| *unit != victim) {
                let last = one.end(&format!("{case}: unit {unit}"));
                let words: Vec<&str> = last.splitn(4, ' ').collect();
                let named = words.len() == 4 && words[0] == "lost" && words[2] == victim.to_string();
                assert!(named, "{case}: unit {unit} says {last:?}");
                // Whoever names a process knows which.
                assert!(!last.contains("its process died"), "{case}: unit {unit} says {last:?}");
                delays.push((
                    words[1].parse::<f64>().unwrap() - killed,
                    format!("{case}: unit {unit}: {last}"),
                ));
            }
        }
    }
    delays.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (middle, worst) = (delays[delays.len() / 2].0, &delays[delays.len() - 1]);
    println!(
        "{} survivors told within {:.1} ms (median), {:.1} ms (worst)",
        delays.len(),
        middle * 1e3,
        worst.0 * 1e3
    );
    assert!(middle < 0.1, "survivors are told too late");
    // Sooner than by the silence of the lost.
    assert!(worst.0 < 1.5, "told late: {worst:?}");
}

/// One leaves; the others have all that it said, learn that it left, and go on.
fn leave(d: &Domain, leaver: u32) -> Result<(), MessageError> {
    let me = d.unit();
    d.function("turn", 1, |_, x| Ok(x.iter().rev().copied().collect()))?;
    d.synchronise()?;
    say("open");
    if me == leaver {
        for to in others(me) {
            d.send(to, 7, [0; 2], &bytes(me, to, 0, 600_000))?;
        }
        d.leave();
        return Ok(());
    }
    same(&d.recv(Some(leaver), None)?.payload, &bytes(leaver, me, 0, 600_000), "last words");
    assert_eq!(d.recv(Some(leaver), None).map(drop), Err(MessageError::PeerLeft { unit: leaver }));
    assert_eq!(d.barrier(), Err(MessageError::PeerLeft { unit: leaver }));
    let rest = || others(me).filter(|&unit| unit != leaver);
    for to in rest() {
        d.send(to, 8, [0; 2], &bytes(me, to, 1, 9000))?;
    }
    for from in rest() {
        same(&d.recv(Some(from), Some(8))?.payload, &bytes(from, me, 1, 9000), "a message");
        assert_eq!(d.call(from, "turn", b"abc", None)?.wait()?, b"cba");
    }
    // Who has its answers leaves no sooner than the others have theirs.
    for to in rest() {
        d.send(to, 9, [0; 2], b"")?;
    }
    rest().try_for_each(|from| d.recv(Some(from), Some(9)).map(drop))
}

fn leaves(cable: bool) {
    let other = Other::start(&[], cable);
    for way in WAYS {
        for leaver in 0..UNITS {
            for (n, unit) in start(&other, cable, way, &leaver.to_string()).iter_mut().enumerate() {
                let case = format!("unit {leaver} leaves, {way:?}: unit {n}");
                assert_eq!(unit.end(&case), "end", "{case}");
            }
        }
    }
}

/// Loses both units of the other host, and goes on with the one beside it.
fn go_on(d: &Domain) -> Result<(), MessageError> {
    let me = d.unit();
    d.function("turn", 1, |_, x| Ok(x.iter().rev().copied().collect()))?;
    let region = d.region(1, 4)?;
    d.synchronise()?;
    // All are connected, so that each notices the others' silence.
    for to in others(me) {
        d.send(to, 1, [0; 2], b"")?;
    }
    for from in others(me) {
        d.recv(Some(from), Some(1))?;
    }
    d.barrier()?;
    say("open");
    for far in others(me).filter(|&unit| d.reach(unit) == Ok(Reach::Far)) {
        let lost = d.recv(Some(far), None).map(drop);
        assert!(matches!(lost, Err(MessageError::PeerLost { unit, .. }) if unit == far), "{far}: {lost:?}");
    }
    let beside = others(me).find(|&unit| d.reach(unit) == Ok(Reach::Near)).unwrap();
    assert_eq!(d.call(beside, "turn", b"abc", None)?.wait()?, b"cba");
    d.put(beside, 1, 0, &[me as u8; 4])?;
    d.send(beside, 2, [0; 2], b"")?;
    d.recv(Some(beside), Some(2))?;
    let mut put = [0; 4];
    region.read(0, &mut put)?;
    assert_eq!(put, [beside as u8; 4]);
    Ok(())
}

fn host_gone() {
    let mut other = Other::start(&[], true);
    let mut units = start(&other, true, NEAR_TCP, "go_on");
    other.cut();
    for (n, unit) in units.iter_mut().enumerate() {
        assert_eq!(unit.end(&format!("unit {n}")), "end", "unit {n}");
    }
}
