//! What children of a unit have no part in. Units that have forked are killed while their children live on:
//! the others learn of it as if there were no children, and the pipe's name, or its port, is free.

mod common;

use common::at::{step_with, At};
use common::net::{place, trust, Across, Near};
use common::{reader_options, unique, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_os::poll::{poll, EventFd, PollItem};
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{Expect, Given, Options, PipeError, Policy};
use polyduct_port::PortError;
use polyduct_rig::fork::{end, Forked};
use polyduct_rig::{say, tests, Unit};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long the others may take to know.
const KNOWN: Duration = Duration::from_secs(2);

fn main() {
    polyduct_rig::main(
        unit,
        tests![
            on_one_host_the_loss_of_a_unit_with_a_child_is_known,
            across_hosts_the_loss_of_a_unit_with_a_child_is_known,
            on_one_host_a_child_of_a_step_writes_for_itself,
            across_hosts_a_child_of_a_step_writes_for_itself,
        ],
    );
}

/// One process of a pipe of two writer units and a reader: `role unit forks place`.
fn unit(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    match f[3].split_once(':') {
        Some((host, port)) => {
            let place = PipeAddress::new(host, port.parse().unwrap(), "forked");
            run(
                &Across { place, trust: trust(true), near: Near::None },
                f[0],
                f[1].parse().unwrap(),
                f[2] == "true",
            );
        }
        None => run(&f[3].to_owned(), f[0], f[1].parse().unwrap(), f[2] == "true"),
    }
}

fn run<A: At>(at: &A, role: &str, unit: u32, forks: bool) {
    let of = if role == "w" { writer_options(unit, 2) } else { reader_options("r", unit, 1) };
    let options = Options { timeout: Some(Duration::from_secs(30)), ..of };
    let opened = || {
        if forks {
            say(&format!("child {}", Forked::sleeper().pid()));
        }
        say("open");
    };
    let done = if role == "w" {
        let given = Given::Dataset(Dataset::new(&[64], ElemType::U64).unwrap());
        let mut w = at.writer(&given, "block", &options).unwrap();
        opened();
        loop {
            if let Err(e) = step_with(&mut w, |slot| slot.fill(1)) {
                break e;
            }
        }
    } else {
        let mut r = at.reader("*", &Expect::default(), &options).unwrap();
        opened();
        let mut part = [0; 512];
        loop {
            if let Err(e) = r.read(&mut part) {
                break e;
            }
        }
    };
    match done {
        PipeError::Port(PortError::PeerLost { peer, pid, silence: None, .. }) => {
            say(&format!("lost {peer} {pid}"))
        }
        other => say(&format!("other {other}")),
    }
}

fn start(place: &str, victim: usize) -> Vec<Unit> {
    let roles = [("w", 0), ("w", 1), ("r", 0)];
    let unit = |(n, (role, unit)): (usize, &(&str, u32))| {
        let name = format!("{} unit {unit}", if *role == "w" { "writer" } else { "reader" });
        Unit::start(name, &format!("{role} {unit} {} {place}", n == victim))
    };
    roles.iter().enumerate().map(unit).collect()
}

/// Each unit in turn is killed while a child of it lives, all at one place.
fn check(place: &str) {
    for victim in 0..3 {
        let mut units = start(place, victim);
        assert!(units[victim].wait_line("child"), "{}: {}", units[victim].name, units[victim].last());
        let child: u32 = units[victim].last()["child ".len()..].parse().unwrap();
        for unit in &mut units {
            assert!(unit.wait_line("open"), "{}: {}", unit.name, unit.last());
        }
        let lost = format!("lost {} {}", units[victim].name, units[victim].pid());
        units[victim].kill();
        let begun = Instant::now();
        for (n, unit) in units.iter_mut().enumerate().filter(|(n, _)| *n != victim) {
            assert_eq!(unit.end(), lost, "{n}, {place}");
        }
        let took = begun.elapsed();
        // What it had is free for the next, though the child is there.
        let mut next = start(place, 3);
        for unit in &mut next {
            assert!(unit.wait_line("open"), "{}: {}", unit.name, unit.last());
        }
        end(child);
        assert!(took < KNOWN, "{lost} known after {took:?}, {place}");
    }
}

fn on_one_host_the_loss_of_a_unit_with_a_child_is_known() {
    check(&unique("forked"));
}

fn across_hosts_the_loss_of_a_unit_with_a_child_is_known() {
    let PipeAddress { host, port, .. } = place();
    check(&format!("{host}:{port}"));
}

/// A child that is forked while a step is filled writes into it when it is published.
fn write_in_a_child<A: At>() {
    let at = A::new();
    let given = Given::Dataset(Dataset::new(&[8192], ElemType::U64).unwrap());
    std::thread::scope(|s| {
        let reader = s.spawn(|| at.reader("*", &Expect::default(), &reader_options("r", 0, 1)).unwrap());
        // Each step is fetched when it is asked for.
        let options = Options { policy: Policy::Latest, ..writer_options(0, 1) };
        let mut w = at.writer(&given, "block", &options).unwrap();
        let mut r = reader.join().unwrap();
        let mut part = vec![0; 65536];
        for n in 0..4 {
            let (published, child) = (EventFd::new().unwrap(), Cell::new(None));
            step_with(&mut w, |slot| {
                slot.fill(n);
                let writes = || {
                    let _ = poll(&mut [PollItem::readable(&published)], None);
                    let sees = slot[0] == n && slot[65535] == n;
                    slot.fill(100);
                    sees && slot.iter().all(|&byte| byte == 100)
                };
                child.set(Some(Forked::call(writes)));
            })
            .unwrap();
            published.signal().unwrap();
            assert!(child.take().unwrap().ends_well(), "the child of step {n} does not see its own");
            assert_eq!(r.read(&mut part).unwrap(), Some(n.into()));
            assert!(part.iter().all(|&byte| byte == n), "step {n} has got {}", part[0]);
        }
    });
}

fn on_one_host_a_child_of_a_step_writes_for_itself() {
    write_in_a_child::<String>();
}

fn across_hosts_a_child_of_a_step_writes_for_itself() {
    write_in_a_child::<Across>();
}
