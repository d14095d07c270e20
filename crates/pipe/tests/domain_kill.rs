//! A unit of a port's domain that is killed: all others hear of it in the domain, by its address, on one host
//! and across.

mod common;

use common::at::At;
use common::net::{near, trust, Across, Near};
use common::{reader_options, unique, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_message::domain::Domain;
use polyduct_message::MessageError;
use polyduct_pipe::net::PipeAddress;
use polyduct_pipe::{DomainOptions, Expect, Given, Options};
use polyduct_rig::{say, tests, Unit};
use std::io::Read as _;
use std::time::{Duration, Instant};

fn main() {
    polyduct_rig::main(victim, tests![a_killed_unit_is_lost_by_its_address]);
}

/// A process that takes its place and holds it: `pipe` or `host port near`.
fn victim(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let hold = |domain: Domain| {
        domain.barrier().unwrap();
        say(&format!("unit {}", domain.unit()));
        // Until the test ends it.
        let _ = std::io::stdin().read(&mut [0]);
    };
    match f[..] {
        [pipe] => read(&pipe.to_owned(), "victim", &DomainOptions::default(), hold),
        _ => {
            let place = PipeAddress::new(f[0], f[1].parse().unwrap(), "test");
            let options = near(f[2].parse().unwrap());
            read(&Across { place, trust: trust(true), near: Near::None }, "victim", &options, hold);
        }
    }
}

fn read<A: At>(at: &A, program: &str, options: &DomainOptions, then: impl FnOnce(Domain)) {
    let mut r = at.reader("*", &Expect::default(), &reader_options(program, 0, 1)).unwrap();
    then(r.domain(options).unwrap());
}

fn write<A: At>(at: &A, unit: u32, options: &DomainOptions, then: impl FnOnce(Domain)) {
    let port = Options { readers: 2.into(), ..writer_options(unit, 2) };
    let given = Given::Dataset(Dataset::new(&[64], ElemType::U8).unwrap());
    let mut w = at.writer(&given, "block", &port).unwrap();
    then(w.domain(options).unwrap());
}

fn a_killed_unit_is_lost_by_its_address() {
    let name = unique("domain-kill");
    killed_at(&name, &name, &DomainOptions::default());
    // Where units of one host share memory all the same, and where they do not.
    for is_near in [true, false] {
        let at = Across::trusting(true);
        killed_at(&at, &format!("{} {} {is_near}", at.place.host, at.place.port), &near(is_near));
    }
}

/// `spec` says to the process that is killed where the pipe is.
fn killed_at<A: At>(at: &A, spec: &str, options: &DomainOptions) {
    let hears = |domain: Domain| {
        let start = Instant::now();
        // A unit that dies just behind the barrier may keep another from it.
        let error = domain.barrier().and_then(|()| domain.recv(None, None)).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        let MessageError::PeerLost { unit, .. } = error else { panic!("{error}") };
        unit
    };
    let (victim, heard) = std::thread::scope(|s| {
        let survivors = [
            s.spawn(|| with(|give| write(at, 0, options, |d| give(hears(d))))),
            s.spawn(|| with(|give| write(at, 1, options, |d| give(hears(d))))),
            s.spawn(|| with(|give| read(at, "survivor", options, |d| give(hears(d))))),
        ];
        let mut victim = Unit::start("the victim", spec);
        // Reader programs have their numbers in the order in which they came.
        assert!(victim.wait_line("unit"), "it ends after {:?}", victim.last());
        let unit: u32 = victim.last()["unit ".len()..].parse().unwrap();
        victim.kill();
        victim.end();
        (unit, survivors.map(|s| s.join().unwrap()))
    });
    assert_eq!(heard, [victim; 3]);
}

/// What `run` gives.
fn with(run: impl FnOnce(&mut dyn FnMut(u32))) -> u32 {
    let mut given = None;
    run(&mut |unit| given = Some(unit));
    given.unwrap()
}
