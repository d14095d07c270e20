//! The domain of a port: all units of both sides of a pipe send each other messages, while steps flow, on one
//! host and across.

mod common;

use common::at::At;
use common::net::{near, Across};
use common::{fill, local_indices, unique, Pipe, PipeAt};
use polyduct_layout::{Dataset, ElemType};
use polyduct_message::domain::Domain;
use polyduct_message::meeting::JoinRefusal;
use polyduct_message::MessageError;
use polyduct_pipe::{Addresses, DomainOptions, PipeError, Reader, Side, UnitName, Writer};
use polyduct_port::PortError;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

const READERS: [(&str, u32); 2] = [("*,block", 2), ("*,*", 1)];
const UNITS: u32 = 5;
const STEPS: u64 = 6;
const TAG: u32 = 9;

fn data() -> Dataset {
    Dataset::new(&[8, 6], ElemType::U64).unwrap()
}

/// How long whoever asks for a domain waits for one who does not.
fn soon() -> DomainOptions {
    DomainOptions { open_timeout: Some(Duration::from_millis(300)), ..DomainOptions::default() }
}

/// A unit of this number tells all others its address, about a step.
fn tell_all(domain: &Domain, step: u64) {
    for to in (0..UNITS).filter(|&to| to != domain.unit()) {
        domain.send(to, TAG + step as u32, [domain.unit(), 0], &[domain.unit() as u8; 3000]).unwrap();
    }
}

/// Hears from all others what they told about a step.
fn hear_all(domain: &Domain, step: u64) {
    for from in (0..UNITS).filter(|&from| from != domain.unit()) {
        let mail = domain.recv(Some(from), Some(TAG + step as u32)).unwrap();
        assert_eq!((mail.from, mail.words, mail.payload), (from, [from, 0], vec![from as u8; 3000]));
    }
}

/// The side on which a unit is that has joined.
fn side(domain: &Domain, addresses: &Addresses, unit: u64) -> Side {
    assert_eq!((addresses.units(), domain.units()), (UNITS, UNITS));
    assert_eq!(addresses.writers(), 0..2);
    let me = addresses.unit_at(domain.unit()).unwrap();
    assert_eq!(addresses.address_of(me), Some(domain.unit()));
    assert_eq!(u64::from(me.unit), unit);
    me.side
}

/// All units of a pipe meet in its domain, as often as asked.
fn everybody_reaches_everybody<A: At>(at: A, options: &DomainOptions, rounds: u32) {
    let data = data();
    let mut pipe = PipeAt::new(&data, "block,*", 2, &READERS);
    pipe.at = at;
    for _ in 0..rounds {
        let seen = Mutex::new(Vec::new());
        let read = |r, program, unit| {
            let address = read_and_tell(r, unit, options);
            seen.lock().unwrap().push((program, unit, address));
        };
        pipe.run(|w, unit| write_and_tell(w, unit, options), read);
        check_addresses(seen);
    }
}

fn write_and_tell(mut port: Writer, unit: u64, options: &DomainOptions) {
    let indices = local_indices(port.mapping(), unit);
    let domain = port.domain(options).unwrap();
    assert_eq!(side(&domain, port.addresses(), unit), Side::Writer);
    for step in 0..STEPS {
        tell_all(&domain, step);
        let mut part = vec![0; port.local_len_bytes()];
        fill(&mut part, &indices, step);
        assert!(port.write(&part).unwrap());
        // Everybody has this step before the next: steps and messages go side by side.
        hear_all(&domain, step);
    }
    // The same place, not another one.
    let again = port.domain(&soon()).unwrap();
    again.send(again.unit(), 1, [4, 2], &[]).unwrap();
    assert_eq!(domain.recv(None, Some(1)).unwrap().words, [4, 2]);
    port.close().unwrap();
    assert!(matches!(port.domain(&soon()), Err(PipeError::Port(PortError::Closed { .. }))));
    // A unit that holds it stays in it when the port is closed.
    domain.barrier().unwrap();
}

/// Gives its address in the domain.
fn read_and_tell(mut port: Reader, unit: u64, options: &DomainOptions) -> u32 {
    let indices = local_indices(port.mapping(), unit);
    let domain = port.domain(options).unwrap();
    assert_ne!(side(&domain, port.addresses(), unit), Side::Writer);
    let (mut part, mut expected) = (vec![0; port.local_len_bytes()], vec![0; port.local_len_bytes()]);
    for step in 0..STEPS {
        assert_eq!(port.read(&mut part).unwrap(), Some(step));
        fill(&mut expected, &indices, step);
        assert_eq!(part, expected);
        tell_all(&domain, step);
        hear_all(&domain, step);
    }
    assert_eq!(port.read(&mut part).unwrap(), None);
    port.close().unwrap();
    domain.barrier().unwrap();
    domain.unit()
}

/// Which unit of which program had which address: programs in any order, their units one after the other.
fn check_addresses(seen: Mutex<Vec<(usize, u64, u32)>>) {
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    let places: Vec<_> = seen.iter().map(|s| s.2).collect();
    assert!(places == [2, 3, 4] || places == [3, 4, 2], "{seen:?}");
}

#[test]
fn everybody_reaches_everybody_while_steps_flow() {
    // The second time under the same name, in the same process.
    everybody_reaches_everybody(unique("domain"), &DomainOptions::default(), 2);
}

#[test]
fn across_hosts_everybody_reaches_everybody_while_steps_flow() {
    for (trusted, is_near) in [(true, false), (false, false), (false, true)] {
        everybody_reaches_everybody(Across::trusting(trusted), &near(is_near), 1);
    }
}

#[test]
fn two_pipes_have_two_domains() {
    let data = data();
    let names = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for mark in [1, 2] {
            let (data, names) = (&data, &names);
            s.spawn(move || {
                let pipe = Pipe::new(data, "block,*", 1, &[("*,*", 1)]);
                pipe.run(
                    |mut w, _| {
                        let domain = w.domain(&DomainOptions::default()).unwrap();
                        domain.send(1, TAG, [mark, 0], &[]).unwrap();
                        names.lock().unwrap().push(mark);
                        domain.barrier().unwrap();
                    },
                    |mut r, _, _| {
                        let domain = r.domain(&DomainOptions::default()).unwrap();
                        assert_eq!(domain.recv(None, None).unwrap().words, [mark, 0]);
                        domain.barrier().unwrap();
                    },
                );
            });
        }
    });
    assert_eq!(names.into_inner().unwrap().len(), 2);
}

/// Whether the error is that unit 3, the reader's, did not come.
fn is_missing(error: &PipeError) -> bool {
    let PipeError::Domain { addresses, source, .. } = error else { return false };
    let MessageError::Refused { reason, .. } = &**source else { return false };
    let JoinRefusal::Missing { missing, .. } = &**reason else { return false };
    let unit = UnitName { side: Side::Reader(0), unit: 1 };
    missing == "unit 3"
        && addresses.address_of(unit) == Some(3)
        && error.to_string().contains("readers 0 2..4")
}

/// One unit never asks: all others hear so in time, by name, can go on with the steps, and have the domain
/// when they ask again and so does the late one.
fn one_is_late<A: At>() {
    let (data, given_up) = (data(), Barrier::new(4));
    PipeAt::<A>::new(&data, "block,*", 2, &[("*,block", 2)]).run(
        |mut w, _| {
            let start = Instant::now();
            let error = w.domain(&soon()).err().unwrap();
            assert!(is_missing(&error), "{error}");
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
            given_up.wait();
            assert!(w.write(&vec![1; w.local_len_bytes()]).unwrap());
            w.domain(&DomainOptions::default()).unwrap().barrier().unwrap();
            w.close().unwrap();
        },
        |mut r, _, unit| {
            if unit == 0 {
                let error = r.domain(&soon()).err().unwrap();
                assert!(is_missing(&error), "{error}");
            }
            given_up.wait();
            let mut part = vec![0; r.local_len_bytes()];
            assert_eq!(r.read(&mut part).unwrap(), Some(0));
            r.domain(&DomainOptions::default()).unwrap().barrier().unwrap();
            assert_eq!(r.read(&mut part).unwrap(), None);
        },
    );
}

#[test]
fn who_never_asks_is_named_in_time() {
    one_is_late::<String>();
}

#[test]
fn across_hosts_who_never_asks_is_named_in_time() {
    one_is_late::<Across>();
}

/// A unit that gives its port up before it has asked is missed at once, not after the open timeout.
fn one_gives_up<A: At>() {
    let (data, start) = (data(), Instant::now());
    let gone = |error: PipeError| {
        let unit = UnitName { side: Side::Reader(0), unit: 1 };
        assert!(
            matches!(&error, PipeError::Port(PortError::PeerAborted { peer, .. }) if peer.name() == Some(unit)),
            "{error}"
        );
    };
    PipeAt::<A>::new(&data, "block,*", 2, &[("*,block", 2)]).run(
        |mut w, _| gone(w.domain(&DomainOptions::default()).err().unwrap()),
        |mut r, _, unit| match unit {
            0 => gone(r.domain(&DomainOptions::default()).err().unwrap()),
            _ => r.abort(),
        },
    );
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn whoever_waits_for_one_that_gave_up_hears_it_at_once() {
    one_gives_up::<String>();
}

#[test]
fn across_hosts_whoever_waits_for_one_that_gave_up_hears_it_at_once() {
    one_gives_up::<Across>();
}

#[test]
fn a_closed_port_has_left_and_an_aborted_one_is_lost() {
    let data = data();
    for abort in [false, true] {
        let pipe = Pipe::new(&data, "*,*", 1, &[("*,*", 1)]);
        pipe.run(
            |mut w, _| {
                // Nobody keeps it but the port.
                w.domain(&DomainOptions::default()).unwrap().barrier().unwrap();
                match abort {
                    true => w.abort(),
                    false => drop(w.close().unwrap()),
                }
            },
            |mut r, _, _| {
                let domain = r.domain(&DomainOptions::default()).unwrap();
                domain.barrier().unwrap();
                let error = domain.recv(Some(0), None).unwrap_err();
                let expected = match abort {
                    true => matches!(error, MessageError::PeerLost { unit: 0, .. }),
                    false => matches!(error, MessageError::PeerLeft { unit: 0 }),
                };
                assert!(expected, "aborted: {abort}: {error}");
            },
        );
    }
}
