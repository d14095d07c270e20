//! Pipes across hosts among strangers: who does not know the key gets nowhere, and whatever it sends, the
//! pipe goes on.

mod common;

use common::net::{place, trust, Across, NetPipe};
use common::{fill, local_indices, reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_message::link::net::LinkFault;
use polyduct_message::LinkError;
use polyduct_pipe::net::{JobKey, PipeAddress, Trust};
use polyduct_pipe::{Expect, Given, Options, PipeError, Reader, Writer};
use polyduct_port::PortError;
use polyduct_rig::{Deaf, Random};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn refused(at: &PipeAddress, trust: &Trust) -> LinkError {
    match Reader::open((at, trust), "*", &Expect::default(), &reader_options("r", 0, 1)).map(drop) {
        Err(PipeError::Link { source, .. }) => match *source {
            LinkFault::Peer(error) => error,
            other => panic!("{other}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_does_not_belong_is_told_why_and_the_pipe_opens_without_it() {
    let at = place();
    let data = Dataset::new(&[4], ElemType::U8).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            let given = Given::Dataset(data);
            let mut w = Writer::open((&at, &trust(false)), &given, "block", &writer_options(0, 1)).unwrap();
            w.write(&[1, 2, 3, 4]).unwrap();
        });
        let stranger = Trust { key: JobKey::from_bytes([8; 32]).unwrap(), trusted_network: false };
        assert_eq!(refused(&at, &stranger), LinkError::Unauthentic);
        assert_eq!(refused(&at, &trust(true)), LinkError::Trust { mine: true });
        let elsewhere = PipeAddress { name: "other".into(), ..at.clone() };
        assert_eq!(refused(&elsewhere, &trust(false)), LinkError::WrongDomain);
        let mut r =
            Reader::open((&at, &trust(false)), "*", &Expect::default(), &reader_options("r", 0, 1)).unwrap();
        let mut part = [0; 4];
        assert_eq!((r.read(&mut part).unwrap(), part), (Some(0), [1, 2, 3, 4]));
    });
}

#[test]
fn who_comes_in_vain_is_told_what_was_found() {
    let soon = |o: Options| Options { open_timeout: Duration::from_millis(400), ..o };
    let read = |at: &PipeAddress, trust: &Trust| {
        let options = soon(reader_options("r", 0, 1));
        Reader::open((at, trust), "*", &Expect::default(), &options).map(drop).unwrap_err().to_string()
    };
    let at = place();
    let error = read(&at, &trust(true));
    assert!(error.contains(&format!("nobody listens at \"{}:{}\"", at.host, at.port)), "{error}");
    // Another program has the port.
    let other = std::net::TcpListener::bind((&at.host[..], at.port)).unwrap();
    let error = read(&at, &trust(true));
    let says =
        format!("{}:{} takes the connection and says nothing; is it another program?", at.host, at.port);
    assert!(error.contains(&says), "{error}");
    drop(other);
    // The port drops what comes, as behind a firewall.
    let deaf = Deaf::new();
    let blocked = PipeAddress { host: deaf.at().ip().to_string(), port: deaf.at().port(), ..place() };
    let error = read(&blocked, &trust(true));
    assert!(
        error.contains(&format!("no connection to {} comes about; is it blocked?", deaf.at())),
        "{error}"
    );
    let nowhere = PipeAddress { host: "nosuch.invalid".into(), ..place() };
    let error = read(&nowhere, &trust(true));
    let says = "waiting for an address of host \"nosuch.invalid\", whose name does not resolve";
    assert!(error.contains(says), "{error}");
    // The writer is told, too, why nobody came in.
    let at = place();
    std::thread::scope(|s| {
        let writer = s.spawn(|| {
            let given = Given::Dataset(Dataset::new(&[4], ElemType::U8).unwrap());
            let options = Options { open_timeout: Duration::from_secs(2), ..writer_options(0, 1) };
            Writer::open((&at, &trust(true)), &given, "block", &options).map(drop).unwrap_err().to_string()
        });
        let stranger = Trust { key: JobKey::from_bytes([8; 32]).unwrap(), trusted_network: true };
        assert_eq!(refused(&at, &stranger), LinkError::Unauthentic);
        let error = writer.join().unwrap();
        assert!(error.contains("turned away was one because") && error.contains("key"), "{error}");
    });
}

#[test]
fn a_second_writer_and_a_second_reader_are_refused() {
    let data = Dataset::new(&[4], ElemType::U8).unwrap();
    let pipe = NetPipe::new(&data, "block", 1, &[("block", 1)]);
    let (at, known) = (&pipe.at.place, &pipe.at.trust);
    pipe.run(
        |mut w, _| (0..3).for_each(|_| assert!(w.write(&[0; 4]).unwrap())),
        |mut r, _, _| {
            let soon = |o: Options| Options { open_timeout: Duration::from_millis(200), ..o };
            let given = Given::Dataset(data);
            let again = Writer::open((at, known), &given, "block", &soon(writer_options(0, 1)));
            assert!(matches!(again.map(drop), Err(PipeError::System { .. })));
            let again =
                Reader::open((at, known), "block", &Expect::default(), &soon(reader_options("r", 0, 1)));
            assert!(matches!(again.map(drop), Err(PipeError::Refused { .. })));
            while r.read(&mut [0; 4]).unwrap().is_some() {}
        },
    );
}

#[test]
fn garbage_and_port_scans_during_a_run_harm_nobody() {
    let data = Dataset::new(&[64, 64], ElemType::U64).unwrap();
    let over = AtomicBool::new(false);
    for trusted in [true, false] {
        over.store(false, Ordering::Relaxed);
        let mut pipe = NetPipe::new(&data, "block,*", 2, &[("*,block", 2)]);
        pipe.at = Across::far(trusted);
        let at = format!("{}:{}", pipe.at.place.host, pipe.at.place.port);
        std::thread::scope(|s| {
            let scanner = s.spawn(|| {
                let (mut random, mut visits, mut held) = (Random::new(1), 0, Vec::new());
                while !over.load(Ordering::Relaxed) {
                    let Ok(mut stream) = TcpStream::connect(&at) else { continue };
                    visits += 1;
                    let len = random.below(300);
                    let mut bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                    match visits % 4 {
                        // It knows how a handshake begins.
                        0 if len > 8 => bytes[..8].copy_from_slice(b"PDNT\x02\x00\x01\x01"),
                        // It asks for the longest there is.
                        1 => bytes = vec![0xff; 64],
                        _ => {}
                    }
                    let _ = stream.write_all(&bytes);
                    match visits % 3 {
                        0 => drop(stream),
                        // It says no more, and stays.
                        1 if held.len() < 64 => held.push(stream),
                        _ => {
                            let _ = stream.set_read_timeout(Some(Duration::from_millis(5)));
                            let _ = stream.read(&mut [0; 64]);
                        }
                    }
                }
                visits
            });
            pipe.run(
                |mut w, unit| {
                    let indices = local_indices(w.mapping(), unit);
                    for step in 0..200 {
                        let mut slot = w.step().unwrap();
                        fill(&mut slot, &indices, step);
                        slot.publish().unwrap();
                    }
                    w.close().unwrap();
                },
                |mut r, _, unit| {
                    let indices = local_indices(r.mapping(), unit);
                    let (mut part, mut expected) =
                        (vec![0; r.local_len_bytes()], vec![0; r.local_len_bytes()]);
                    for step in 0..200 {
                        assert_eq!(r.read(&mut part).unwrap(), Some(step));
                        fill(&mut expected, &indices, step);
                        assert!(part == expected, "step {step}");
                    }
                    assert_eq!(r.read(&mut part).unwrap(), None);
                },
            );
            over.store(true, Ordering::Relaxed);
            let visits = scanner.join().unwrap();
            assert!(visits > 0, "nobody came");
        });
    }
}

#[test]
fn a_stopped_reader_stops_the_writer_at_its_depth() {
    let data = Dataset::new(&[1 << 20], ElemType::U8).unwrap();
    let mut pipe = NetPipe::new(&data, "block", 1, &[("block", 1)]);
    (pipe.depth, pipe.timeout) = (3, Some(Duration::from_millis(150)));
    let full = std::sync::Barrier::new(2);
    pipe.run(
        |mut w, _| {
            let error = (0..).find_map(|_| w.write(&vec![1; 1 << 20]).err()).unwrap();
            assert!(matches!(error, PipeError::Port(PortError::Timeout { .. })), "{error}");
            assert_eq!(w.stats().steps, 3, "more steps than slots");
            full.wait();
            while matches!(w.close(), Err(PipeError::Port(PortError::Timeout { .. }))) {}
        },
        |mut r, _, _| {
            full.wait();
            let mut part = vec![0; 1 << 20];
            for step in 0..3 {
                assert_eq!(r.read(&mut part).unwrap(), Some(step));
                assert!(part.iter().all(|b| *b == 1));
            }
        },
    );
}
