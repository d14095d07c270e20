//! A unit that gives up says why, and all units of all programs hear the same words, on one host and across.

mod common;

use common::at::At;
use common::net::{Across, Near};
use common::{reader_options, writer_options, PipeAt};
use polyduct_layout::{Dataset, ElemType};
use polyduct_pipe::{Expect, Given, Options, PipeError, Side, UnitName, MAX_REASON};
use polyduct_port::PortError;
use std::sync::Barrier;

const READERS: [(&str, u32); 2] = [("*,block", 3), ("*,*", 1)];
const WRITERS: u32 = 3;
const UNITS: usize = 7;

fn writer(unit: u32) -> UnitName {
    UnitName { side: Side::Writer, unit }
}

fn reader(program: u32, unit: u32) -> UnitName {
    UnitName { side: Side::Reader(program), unit }
}

/// An error of who heard that a unit gave up, and why.
fn heard(error: &PipeError, who: UnitName, why: &str) {
    match error {
        PipeError::Port(PortError::PeerAborted { peer, reason, .. }) => {
            // Programs have their numbers in the order in which they come.
            let is_writer = peer.name().map(|name| name.side == Side::Writer);
            assert_eq!((is_writer, peer.unit), (Some(who.side == Side::Writer), who.unit));
            assert_eq!(reason, why);
        }
        other => panic!("{other}"),
    }
    assert_eq!(error.to_string().contains(": out of"), !why.is_empty(), "{error}");
}

/// A unit gives up after the first step, with these words, of which the others hear so much.
fn gives_up<A: At>(at: A, who: UnitName, said: &str, kept: &str) {
    let data = Dataset::new(&[6, 6], ElemType::U64).unwrap();
    let all = Barrier::new(UNITS);
    let mut pipe = PipeAt::new(&data, "block,*", WRITERS, &READERS);
    pipe.at = at;
    pipe.run(
        |mut w, unit| {
            w.write(&vec![0; w.local_len_bytes()]).unwrap();
            all.wait();
            if who == writer(unit as u32) {
                return w.abort_because(said);
            }
            let part = vec![0; w.local_len_bytes()];
            heard(&std::iter::repeat_with(|| w.write(&part)).find_map(Result::err).unwrap(), who, kept);
            heard(&w.close().unwrap_err(), who, kept);
        },
        |mut r, program, unit| {
            let mut part = vec![0; r.local_len_bytes()];
            assert_eq!(r.read(&mut part).unwrap(), Some(0));
            all.wait();
            if who == reader(program as u32, unit as u32) {
                return r.abort_because(said);
            }
            heard(&std::iter::repeat_with(|| r.read(&mut part)).find_map(Result::err).unwrap(), who, kept);
            heard(&r.close().unwrap_err(), who, kept);
        },
    );
}

/// Whoever it is.
fn all_hear<A: At>(at: impl Fn() -> A) {
    for who in [writer(0), writer(2), reader(0, 0), reader(0, 1), reader(1, 0)] {
        gives_up(at(), who, "out of größten Teils wet paper", "out of größten Teils wet paper");
    }
    gives_up(at(), writer(1), "", "");
    let long = format!("out of {}", "x".repeat(2 * MAX_REASON));
    gives_up(at(), reader(0, 2), &long, &long[..MAX_REASON]);
}

#[test]
fn on_one_host_all_units_hear_why_one_gave_up() {
    all_hear(<String as At>::new);
}

#[test]
fn across_hosts_all_units_hear_why_one_gave_up() {
    for near in [Near::None, Near::All, Near::Even] {
        all_hear(|| Across { near, ..Across::trusting(true) });
    }
}

/// All units of a program give up at once, each with words of its own: the other program's hear those of one.
fn all_give_up_at_once<A: At>(at: &A) {
    let data = Given::Dataset(Dataset::new(&[6, 6], ElemType::U64).unwrap());
    let (all, said) = (Barrier::new(6), |unit: u32| format!("out of paper {unit}"));
    let open = |options: Options| Options { depth: 1, ..options };
    std::thread::scope(|s| {
        for unit in 0..3 {
            let (data, all) = (&data, &all);
            s.spawn(move || {
                let mut w = at.writer(data, "block,*", &open(writer_options(unit, 3))).unwrap();
                all.wait();
                w.abort_because(&said(unit));
            });
        }
        let read = |unit| {
            let mut r = at.reader("*,block", &Expect::default(), &reader_options("r", unit, 3)).unwrap();
            all.wait();
            let mut part = vec![0; r.local_len_bytes()];
            match r.read(&mut part).unwrap_err() {
                PipeError::Port(PortError::PeerAborted { peer, reason, .. }) => {
                    assert_eq!(reason, said(peer.unit));
                    reason
                }
                other => panic!("{other}"),
            }
        };
        let units: Vec<_> = (0..3).map(|unit| s.spawn(move || read(unit))).collect();
        let words: Vec<_> = units.into_iter().map(|unit| unit.join().unwrap()).collect();
        assert!(words.iter().all(|said| *said == words[0]), "{words:?}");
    });
}

#[test]
fn of_several_that_give_up_at_once_all_hear_the_same() {
    for _ in 0..20 {
        all_give_up_at_once(&<String as At>::new());
        all_give_up_at_once(&Across::new());
    }
}
