//! Real processes of a domain and real `kill -9`: whoever dies, whenever, every survivor learns it at once
//! and by name.
//!
//! `POLYDUCT_KILLS=5000` runs more seeds than the default.

use polyduct_message::domain::{Domain, Network, OnLoss, Options};
use polyduct_message::link::key::JobKey;
use polyduct_message::{MessageError, Priority};
use polyduct_rig::kills::{kills, say_error, survivors, Delays};
use polyduct_rig::{free_address, kill_all, say, tests, Random, Unit};
use std::time::{Duration, Instant};

/// The longest pause before a kill: less than a step takes.
const PAUSE: Duration = Duration::from_micros(300);

fn main() {
    polyduct_rig::main(
        unit,
        tests![
            any_unit_killed_at_any_moment,
            survivors_that_go_on,
            nobody_waits_to_tell_the_dead,
            all_killed_at_once_leave_nothing,
            what_the_dead_half_sent_makes_room_for_others,
        ],
    );
}

/// One process: `name unit units how`, and across hosts where unit 0 is.
fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let (unit, units): (u32, u32) = (f[1].parse().unwrap(), f[2].parse().unwrap());
    let go_on = ["go_on", "half"].contains(&f[3]);
    let network = f.get(4).map(|root| Network {
        apart: unit.into(),
        trusted: true,
        ..Network::new(root.parse().unwrap(), JobKey::from_bytes([7; 32]).unwrap())
    });
    let options = Options {
        timeout: Some(Duration::from_secs(20)),
        open_timeout: Duration::from_secs(20),
        on_loss: if go_on { OnLoss::Continue } else { OnLoss::Raise },
        network,
        ..Options::new(f[0], unit, units)
    };
    let done = match f[3] {
        "go_on" => ring_of_survivors(options),
        "half" => half_sent(options),
        "last_words" => last_words(options),
        how => talk(options, how),
    };
    match done {
        Ok(()) => say("end"),
        Err(MessageError::PeerLost { unit, reason }) => say_error(&format!("lost {unit}: {reason}")),
        Err(other) => say_error(&format!("other {other}")),
    }
}

/// Bytes that each unit lends.
const LENT: usize = 2 << 20;

/// All talk to all in every way there is, for ever.
fn talk(options: Options, how: &str) -> Result<(), MessageError> {
    let (me, units) = (options.unit, options.units);
    // Goes after the domain: who is told of a loss leaves, and does not first take its memory from the
    // others.
    let lent;
    let d = Domain::join(options)?;
    d.function("echo", 1, |_, x| Ok(x.to_vec()))?;
    d.handler("hear", 1, |_, _| ())?;
    d.region(1, 4096)?;
    lent = d.lend(2, vec![me as u8 + 1; LENT])?;
    let mut copy = vec![0; LENT];
    d.synchronise()?;
    say("open");
    let mut channels = Vec::new();
    let next = (me + 1) % units;
    for step in 0u32.. {
        match how {
            "barriers" => d.barrier()?,
            "mails" => {
                d.send(next, step, [0; 2], &vec![1; 300_000 * (step as usize % 5)])?;
                d.recv(Some((me + units - 1) % units), Some(step)).map(|m| d.give_back(m.payload))?;
            }
            "calls" => {
                let long = vec![3; 50_000 * (step as usize % 3)];
                let calls: Result<Vec<_>, _> = (0..units).map(|to| d.call(to, "echo", &long, None)).collect();
                for call in calls? {
                    let answer = call.wait();
                    // A call says for itself that the unit is gone; the next wait says how.
                    match answer {
                        Err(MessageError::Call(_)) => d.barrier()?,
                        answer => assert_eq!(answer?.len(), long.len()),
                    }
                }
            }
            "memory" => {
                for to in 0..units {
                    d.get(to, 2, 0, &mut copy)?;
                    assert!(copy.iter().all(|&b| b == to as u8 + 1), "these are not the bytes of unit {to}");
                    d.put(to, 2, LENT / 2, &vec![to as u8 + 1; LENT / 2])?;
                }
                // Now and then memory that others may be copying goes, and comes back under its number.
                if step % 4 == 3 {
                    let again = d.lend(3, vec![1; LENT])?;
                    match d.get(next, 3, 0, &mut copy) {
                        Ok(()) => assert!(copy.iter().all(|&b| b == 1)),
                        Err(MessageError::Region { id: 3, .. }) => {}
                        Err(other) => return Err(other),
                    }
                    if let Ok(mut bytes) = again.withdraw()?.into_vec() {
                        bytes.fill(9);
                    }
                }
                d.poll();
            }
            _ => {
                if channels.is_empty() {
                    for to in (0..units).filter(|&to| to != me) {
                        channels.push((to, d.channel(to, Priority::Low)?));
                    }
                }
                for (to, channel) in &mut channels {
                    channel.bulk(d.lookup("hear", *to)?, [0; 4], &[7; 100_000])?;
                    d.put(*to, 1, 0, &[step as u8; 4096])?;
                }
                d.poll();
            }
        }
        say("step");
    }
    drop(d);
    drop(lent);
    Ok(())
}

/// A ring of mails among those who live, until told.
fn ring_of_survivors(options: Options) -> Result<(), MessageError> {
    let (me, units) = (options.unit, options.units);
    let d = Domain::join(options)?;
    say("open");
    let mut alive: Vec<u32> = (0..units).collect();
    // Unit 0 tells with each round who takes part in it, so that all agree.
    for round in 0u32.. {
        if me == 0 {
            alive.retain(|&u| d.gone(u) == Ok(None));
            if alive.len() < units as usize && round > 50 {
                for &to in &alive[1..] {
                    let _ = d.send(to, u32::MAX, [0; 2], b"");
                }
                return Ok(());
            }
            for &to in &alive[1..] {
                // A unit that dies now misses the next round.
                let _ = d.send(to, round, [round, 0], &[1; 1000]);
            }
            for &from in &alive[1..] {
                match d.recv(Some(from), Some(round)) {
                    Ok(mail) => assert_eq!(mail.words[0], round),
                    Err(MessageError::PeerLost { unit, .. }) if unit == from => {}
                    Err(other) => return Err(other),
                }
            }
        } else {
            let mail = d.recv(Some(0), None)?;
            if mail.tag == u32::MAX {
                return Ok(());
            }
            d.send(0, mail.tag, mail.words, &mail.payload)?;
        }
        say("step");
    }
    Ok(())
}

/// Unit 1 takes nothing; unit 0 leaves with more to say than there is room for.
fn last_words(options: Options) -> Result<(), MessageError> {
    let me = options.unit;
    let d = Domain::join(options)?;
    d.function("echo", 1, |_, x| Ok(x.to_vec()))?;
    d.synchronise()?;
    say("open");
    if me == 1 {
        // Until it is killed, or its parent goes.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return Ok(());
    }
    let calls: Result<Vec<_>, _> = (0..50).map(|_| d.call(1, "echo", &[5; 100_000], None)).collect();
    say("leaving");
    drop(calls?);
    drop(d);
    Ok(())
}

/// Bytes of a message that takes all the room there is, and a while to come.
const HUGE: usize = 1 << 30;

/// Unit 1 is killed when unit 0 has a part of its message. Unit 2 has another, for which there is no room
/// before.
fn half_sent(options: Options) -> Result<(), MessageError> {
    let me = options.unit;
    let d = Domain::join(options)?;
    d.synchronise()?;
    match me {
        0 => {
            d.serve_until(None, || d.status().mail_bytes > HUGE as u64)?;
            // Looks no more until unit 1 is dead, where it would have to look to get the rest.
            say("begun");
            std::io::stdin().read_line(&mut String::new()).unwrap();
            d.send(2, 0, [0; 2], b"now")?;
            d.serve_until(None, || d.status().mails > 0)?;
            let mail = d.try_recv(Some(2), None).expect("only unit 2 has sent all of it");
            assert!(mail.payload == vec![2; 1_000_000], "wrong bytes");
            assert_eq!((d.status().mails, d.status().mail_bytes), (0, 0));
            d.send(2, 0, [0; 2], b"that is all")
        }
        1 => {
            d.send(0, 0, [0; 2], &vec![1; HUGE])?;
            d.recv(Some(0), None).map(drop)
        }
        _ => {
            d.recv(Some(0), None)?;
            d.send(0, 0, [0; 2], &[2; 1_000_000])?;
            d.recv(Some(0), None).map(drop)
        }
    }
}

/// All units of a domain.
fn start_all(name: &str, units: u32, how: &str) -> Vec<Unit> {
    let start = |unit| Unit::start(format!("unit {unit}"), &format!("{name} {unit} {units} {how}"));
    (0..units).map(start).collect()
}

fn name(seed: u64) -> String {
    format!("kill-{}-{seed}", std::process::id())
}

fn any_unit_killed_at_any_moment() {
    let mut delays = Delays::default();
    for seed in 1..=kills(120) {
        let mut random = Random::new(seed);
        let units = 2 + random.below(4) as u32;
        let how = random.one_of(&["barriers", "mails", "calls", "channels", "memory"]);
        let name = format!("any-{}", name(seed));
        let mut all = start_all(&name, units, how);
        assert!(all.iter_mut().all(|u| u.wait_line("open")), "seed {seed}: a unit did not join");
        let victim = random.below(units.into()) as usize;
        for _ in 0..random.below(12) {
            assert!(all[victim].wait_line("step"), "seed {seed}, {how}: {}", all[victim].last());
        }
        random.linger(PAUSE);
        let lost = format!("lost {victim}: its process (pid {}) died", all[victim].pid());
        delays.kill(&mut all, victim, &lost, &format!("seed {seed}, {units} units, {how}"));
    }
    delays.check(kills(120), &[(95, 0.1), (99, 1.0), (100, 5.0)]);
}

fn survivors_that_go_on() {
    for seed in 1..=kills(20) {
        let mut random = Random::new(seed);
        let units = 3 + random.below(3) as u32;
        let name = format!("on-{}", name(seed));
        let mut all = start_all(&name, units, "go_on");
        assert!(all.iter_mut().all(|u| u.wait_line("open")), "seed {seed}: a unit did not join");
        let victim = 1 + random.below(u64::from(units) - 1) as usize;
        for _ in 0..random.below(12) {
            assert!(all[victim].wait_line("step"), "seed {seed}: {}", all[victim].last());
        }
        random.linger(PAUSE);
        all[victim].kill();
        for unit in survivors(&mut all, &[victim]) {
            assert_eq!(unit.end(), "end", "seed {seed}: {}", unit.name);
        }
    }
}

fn nobody_waits_to_tell_the_dead() {
    let name = format!("words-{}", name(0));
    let mut all = start_all(&name, 2, "last_words");
    assert!(all[1].wait_line("open") && all[0].wait_line("leaving"), "{:?}", all[0].last());
    all[1].kill();
    let killed = Instant::now();
    assert_eq!(all[0].end(), "end");
    assert!(killed.elapsed() < Duration::from_secs(2), "left {:?} after the loss", killed.elapsed());
}

fn all_killed_at_once_leave_nothing() {
    let name = format!("all-{}", name(0));
    for _ in 0..3 {
        let mut all = start_all(&name, 4, "mails");
        assert!(all.iter_mut().all(|u| u.wait_line("step")), "the last run left something in the way");
        kill_all(&mut all);
    }
    let left: Vec<_> = std::fs::read_dir("/dev/shm")
        .into_iter()
        .chain(std::fs::read_dir(std::env::temp_dir()))
        .flatten()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().contains(&name))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.contains(&name), "{sockets}");
}

fn what_the_dead_half_sent_makes_room_for_others() {
    for far in [false, true] {
        let name = format!("half-{}", name(far.into()));
        let root = free_address();
        let how = if far { format!("half {root}") } else { "half".to_owned() };
        let mut all = start_all(&name, 3, &how);
        assert!(all[0].wait_line("begun"), "{how}: {}", all[0].last());
        all[1].kill();
        all[1].end();
        assert_eq!(all[0].ask("it is dead").as_deref(), Some("end"), "{how}: {}", all[0].last());
        assert_eq!(all[2].end(), "end", "{how}");
    }
}
