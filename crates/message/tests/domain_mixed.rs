//! Real processes of one domain on two hosts: units 0 and 3 on host A, units 1 and 2 on host B, each beside
//! one of its own kind and across a cable from the others.
//!
//! Where the system gives nobody namespaces, the test says so, and units of this host are told apart by what
//! they say.

use polyduct_message::config::Config;
use polyduct_message::domain::{Domain, Network, OnLoss, Options, Reach};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::Transport;
use polyduct_message::{MessageError, Priority};
use polyduct_rig::hosts::{next_line, plug_in, role, two_hosts, Other, Role};
use polyduct_rig::kills::{say_error, Delays};
use polyduct_rig::{say, tests, Unit};
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
    if role() == Role::B {
        plug_in();
        // Its namespace lasts as long as it does.
        while !next_line().is_empty() {}
        return;
    }
    polyduct_rig::main(
        unit,
        tests![
            near_and_far_units_do_everything_together,
            whoever_is_killed_is_named_by_all,
            who_leaves_leaves_the_others_at_work,
            who_is_near_goes_on_without_the_other_host,
        ],
    );
}

/// Runs a test as host A, beside host B; its argument says whether there is a cable between them.
fn on_two_hosts(test: &str, run: impl FnOnce(&mut Other, bool)) {
    let on_a = |cable| run(&mut Other::start(&[test], cable), cable);
    two_hosts(&[test], " survivors of ", on_a, || unreachable!("host B only waits"));
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
        let spec = format!("{unit} {root} {apart} {} {:?} {how}", way.near, way.transport);
        Unit::start_by(command, format!("unit {unit}"), &spec)
    };
    let mut units: Vec<Unit> = (0..UNITS).map(one).collect();
    for unit in &mut units {
        assert!(unit.wait_line("open"), "{way:?}, {how}: {} says {:?}", unit.name, unit.last());
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
    match done {
        Ok(()) => say("end"),
        Err(MessageError::PeerLost { unit, reason }) => say_error(&format!("lost {unit}: {reason}")),
        Err(other) => say_error(&other.to_string()),
    }
}

/// All units come to their end in order.
fn end(units: &mut [Unit], case: &str) {
    for unit in units {
        assert_eq!(unit.end(), "end", "{case}: {}", unit.name);
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

fn near_and_far_units_do_everything_together() {
    on_two_hosts("near_and_far_units_do_everything_together", |other, cable| {
        for way in WAYS {
            end(&mut start(other, cable, way, "everything"), &format!("{way:?}"));
        }
    });
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

fn whoever_is_killed_is_named_by_all() {
    on_two_hosts("whoever_is_killed_is_named_by_all", |other, cable| {
        let (mut delays, mut kills) = (Delays::default(), 0);
        // Datagrams do not tell of a death: with nobody beside it, it is noticed by silence.
        let told = |way: &Way| way.near || way.transport == Transport::Tcp;
        for (steps, way) in WAYS.into_iter().filter(told).flat_map(|way| [(0, way), (5, way)]) {
            for victim in 0..UNITS as usize {
                let how = if steps == 0 { "wait" } else { "talk" };
                let case = format!("unit {victim} killed, {way:?}, {how}");
                let mut units = start(other, cable, way, how);
                for _ in 0..steps {
                    assert!(units[victim].wait_line("step"), "{case}: {}", units[victim].last());
                }
                // An error that names a process names the right one.
                let process = format!("its process (pid {}) died", units[victim].pid());
                let lost = format!("lost {victim}: ");
                let expected = |error: &str| {
                    error.starts_with(&lost) && (!error.contains("its process") || error.ends_with(&process))
                };
                delays.kill_with(&mut units, victim, expected, &case);
                kills += 1;
            }
        }
        // Sooner than by the silence of the lost.
        delays.check(kills, &[(50, 0.1), (100, 1.5)]);
    });
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
        d.leave().unwrap();
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
    // A unit that has its answers leaves no sooner than the others have theirs.
    for to in rest() {
        d.send(to, 9, [0; 2], b"")?;
    }
    rest().try_for_each(|from| d.recv(Some(from), Some(9)).map(drop))
}

fn who_leaves_leaves_the_others_at_work() {
    on_two_hosts("who_leaves_leaves_the_others_at_work", |other, cable| {
        for (leaver, way) in WAYS.into_iter().flat_map(|way| (0..UNITS).map(move |leaver| (leaver, way))) {
            end(
                &mut start(other, cable, way, &leaver.to_string()),
                &format!("unit {leaver} leaves, {way:?}"),
            );
        }
    });
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

fn who_is_near_goes_on_without_the_other_host() {
    on_two_hosts("who_is_near_goes_on_without_the_other_host", |other, cable| {
        // Without one, nothing but the units themselves can be cut off.
        if cable {
            let mut units = start(other, cable, NEAR_TCP, "go_on");
            other.cut();
            end(&mut units, "the other host is gone");
        }
    });
}
