//! A unit of a port's domain that is killed: all others hear of it in the domain, by its address, on one host and across.

mod common;

use common::net::{place, trust};
use common::{reader_options, unique, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_message::domain::Domain;
use polyduct_message::MessageError;
use polyduct_pipe::net::{NetReader, NetWriter, Place};
use polyduct_pipe::{DomainOptions, Expect, Given, Reader, Writer};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TEST: (&str, fn()) = ("a_killed_unit_is_lost_by_its_address", a_killed_unit_is_lost_by_its_address);
fn main() {
    if let Ok(spec) = std::env::var("POLYDUCT_TEST_UNIT") {
        return victim(&spec);
    }
    let wanted = std::env::args().skip(1).filter(|a| !a.starts_with('-')).all(|a| TEST.0.contains(&a));
    println!("\nrunning {} tests", u8::from(wanted));
    if wanted {
        TEST.1();
        println!("test {} ... ok", TEST.0);
    }
    println!("\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured\n", u8::from(wanted));
}

/// Where the pipe is: on this host, or across.
#[derive(Clone)]
enum At {
    Here(String),
    There(Place),
}

/// A process that takes its place and holds it: `pipe` or `host port`.
fn victim(spec: &str) {
    let f: Vec<&str> = spec.split(' ').collect();
    let at = match f[..] {
        [pipe] => At::Here(pipe.into()),
        _ => At::There(Place { host: f[0].into(), port: f[1].parse().unwrap(), name: "test".into() }),
    };
    read(&at, "victim", |domain| {
        domain.barrier().unwrap();
        println!("{}", domain.unit());
        std::io::stdout().flush().unwrap();
        // Until the test ends it.
        let _ = std::io::stdin().read(&mut [0]);
    });
}

fn read(at: &At, program: &str, then: impl FnOnce(Domain)) {
    let options = reader_options(program, 0, 1);
    match at {
        At::Here(pipe) => {
            let mut r = Reader::open(pipe, "*", &Expect::default(), &options).unwrap();
            then(r.domain(&DomainOptions::default()).unwrap());
        }
        At::There(place) => {
            let mut r = NetReader::open(place, &trust(true), "*", &Expect::default(), &options).unwrap();
            then(r.domain(&DomainOptions::default()).unwrap());
        }
    }
}

fn write(at: &At, unit: u32, then: impl FnOnce(Domain)) {
    let mut options = writer_options(unit, 2);
    options.readers = 2;
    let given = Given::Dataset(Dataset::new(&[64], ElemType::U8).unwrap());
    match at {
        At::Here(pipe) => {
            let mut w = Writer::open(pipe, &given, "block", &options).unwrap();
            then(w.domain(&DomainOptions::default()).unwrap());
        }
        At::There(place) => {
            let mut w = NetWriter::open(place, &trust(true), &given, "block", &options).unwrap();
            then(w.domain(&DomainOptions::default()).unwrap());
        }
    }
}

fn a_killed_unit_is_lost_by_its_address() {
    for (at, spec) in places() {
        let start = |spec: &str| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.env("POLYDUCT_TEST_UNIT", spec).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().unwrap()
        };
        let hears = |domain: Domain| {
            domain.barrier().unwrap();
            let start = Instant::now();
            let error = domain.recv(None, None).unwrap_err();
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
            let MessageError::PeerLost { unit, .. } = error else { panic!("{error}") };
            unit
        };
        let (victim, heard) = std::thread::scope(|s| {
            let survivors = [
                s.spawn(|| with(|give| write(&at, 0, |d| give(hears(d))))),
                s.spawn(|| with(|give| write(&at, 1, |d| give(hears(d))))),
                s.spawn(|| with(|give| read(&at, "survivor", |d| give(hears(d))))),
            ];
            let mut victim = start(&spec);
            // Reader programs have their numbers in the order in which they came.
            let mut said = [0; 2];
            victim.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
            victim.kill().unwrap();
            victim.wait().unwrap();
            (u32::from(said[0] - b'0'), survivors.map(|s| s.join().unwrap()))
        });
        assert_eq!(heard, [victim; 3]);
    }
}

/// What `run` gives.
fn with(run: impl FnOnce(&mut dyn FnMut(u32))) -> u32 {
    let mut given = None;
    run(&mut |unit| given = Some(unit));
    given.unwrap()
}

fn places() -> [(At, String); 2] {
    let (name, place) = (unique("domain-kill"), place());
    let spec = format!("{} {}", place.host, place.port);
    [(At::Here(name.clone()), name), (At::There(place), spec)]
}
