//! Units that do not agree, do not come, give up, or wait too long.

use crate::oracle::*;
use polyduct_layout::{Dataset, ElemType};
use polyduct_message::meeting::JoinRefusal;
use polyduct_port::{PortError, Reached};
use polyduct_store::{FileError, FileWriter, Format, Options, Scope};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

fn data() -> Dataset {
    Dataset::new(&[6, 6], ElemType::I16).unwrap()
}

#[test]
fn units_that_disagree_all_hear_of_it() {
    let place = Place::new();
    let path = place.file("x.npy");
    for (what, shape, elem, layout, format) in [
        ("shape", [6, 7], ElemType::I16, "block,*", Format::Npy),
        ("dtype", [6, 6], ElemType::I32, "block,*", Format::Npy),
        ("layout", [6, 6], ElemType::I16, "*,block", Format::Npy),
        ("format", [6, 6], ElemType::I16, "block,*", Format::Raw),
    ] {
        let errors = in_threads(3, |u| {
            let (dataset, layout, format) = match u {
                2 => (Dataset::new(&shape, elem).unwrap(), layout, format),
                _ => (data(), "block,*", Format::Npy),
            };
            FileWriter::open(&path, format, &dataset, layout, &unit(u, 3)).err().expect("a disagreement")
        });
        for e in errors {
            match &e {
                FileError::Port(PortError::Disagree { unit: 2, what: found, .. }) => assert_eq!(found, what),
                _ => panic!("{e}"),
            }
        }
    }
    let errors = in_threads(2, |u| {
        FileWriter::open(&path, Format::Npy, &data(), "block,*", &unit(u, 2 + u))
            .err()
            .expect("a disagreement")
    });
    for e in errors {
        assert!(
            matches!(&e, FileError::Port(PortError::Disagree { unit: 1, what, .. }) if what == "units"),
            "{e}"
        );
    }
    assert!(place.names().is_empty());
}

#[test]
fn uneven_closes() {
    let place = Place::new();
    let path = place.file("x.npy");
    let errors = in_threads(3, |u| {
        let mut port = FileWriter::open(&path, Format::Npy, &data(), "block,*", &unit(u, 3)).unwrap();
        // The one that goes on may hear of it when it writes.
        let steps = if u == 1 { 3 } else { 2 };
        let written = (0..steps).try_for_each(|_| port.write(&[0; 24]));
        written.and_then(|()| port.close().map(drop)).unwrap_err()
    });
    for e in errors {
        match e {
            FileError::Port(PortError::UnevenSteps {
                peer,
                closed_after,
                came: Reached::Closed { unit, after },
                ..
            }) => {
                let both = [(peer.unit, closed_after), (unit, after)];
                assert!(both.contains(&(1, 3)) && both.iter().any(|b| b.1 == 2), "{both:?}");
            }
            e => panic!("{e}"),
        }
    }
    assert!(place.names().is_empty());
}

#[test]
fn units_that_do_not_come() {
    let place = Place::new();
    let path = place.file("x.npy");
    let errors = in_threads(2, |u| {
        let port = polyduct_port::Options { open_timeout: Duration::from_millis(150), ..unit(u, 4).port };
        let options = Options::from(port);
        FileWriter::open(&path, Format::Npy, &data(), "block,*", &options).err().unwrap()
    });
    for e in errors {
        let FileError::Refused { reason, .. } = &e else { panic!("{e}") };
        let is_missing =
            matches!(&**reason, JoinRefusal::Missing { missing, .. } if missing == "unit 2, unit 3");
        assert!(is_missing, "{e}");
    }
    let port = polyduct_port::Options { open_timeout: Duration::ZERO, ..unit(3, 4).port };
    let options = Options::from(port);
    let e = FileWriter::open(&path, Format::Npy, &data(), "block,*", &options).err().unwrap();
    assert!(matches!(e, FileError::Port(PortError::Timeout { .. })), "{e}");
    assert!(place.names().is_empty());
}

#[test]
fn one_that_gives_up_and_one_that_panics() {
    let place = Place::new();
    let path = place.file("x.npy");
    for (how, expected) in [(0, "no more"), (1, "dropped"), (2, "panicked")] {
        let errors = in_threads(3, |u| {
            let mut port = FileWriter::open(&path, Format::Npy, &data(), "block,*", &unit(u, 3)).unwrap();
            if u != how {
                return Some(port.close().unwrap_err());
            }
            match how {
                0 => port.abort("no more"),
                1 => drop(port),
                _ => {
                    let hook = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                        let _port = port;
                        std::panic::resume_unwind(Box::new("planned"));
                    }));
                    assert!(hook.is_err());
                }
            }
            None
        });
        for e in errors.into_iter().flatten() {
            match &e {
                FileError::Port(PortError::PeerAborted { peer, reason, .. }) => {
                    assert!(peer.unit == how && reason.contains(expected), "{e}")
                }
                _ => panic!("{e}"),
            }
        }
    }
    assert!(place.names().is_empty());
}

#[test]
fn a_close_that_waits_too_long_can_be_taken_up_again() {
    let place = Place::new();
    let path = place.file("x.npy");
    let (late, stop) = (Barrier::new(2), Arc::new(AtomicBool::new(false)));
    in_threads(2, |u| {
        let asked = stop.clone();
        let port = polyduct_port::Options {
            timeout: Some(Duration::from_millis(30)),
            interrupt: Some(Arc::new(move || asked.load(Ordering::SeqCst))),
            ..unit(u, 2).port
        };
        let options = Options::from(port);
        let mut port = FileWriter::open(&path, Format::Npy, &data(), "block,*", &options).unwrap();
        port.write(&[u as u8; 36]).unwrap();
        if u == 1 {
            late.wait();
        } else {
            let e = port.close().unwrap_err();
            assert!(
                matches!(e, FileError::Port(PortError::Timeout { .. })) && e.scope() == Scope::Operation,
                "{e}"
            );
            stop.store(true, Ordering::SeqCst);
            assert!(matches!(port.close(), Err(FileError::Port(PortError::Interrupted { .. }))));
            stop.store(false, Ordering::SeqCst);
            assert!(matches!(port.write(&[0; 36]), Err(FileError::Port(PortError::Closed { .. }))));
            late.wait();
        }
        while let Err(e) = port.close() {
            assert!(matches!(e, FileError::Port(PortError::Timeout { .. })), "{e}");
        }
    });
    assert_eq!(place.names(), ["x.npy"]);
}

#[test]
fn two_programs_and_one_file() {
    let place = Place::new();
    let path = place.file("x.npy");
    let done = Barrier::new(3);
    in_threads(3, |u| {
        if u == 2 {
            // Both are inside; another program's units find the place taken.
            done.wait();
            for (other, program, advice) in [
                (0, "another", false),
                (1, "another", false),
                (0, "children-of-7", true),
                (1, "children-of-7", true),
            ] {
                let port = polyduct_port::Options { program: program.into(), ..unit(other, 2).port };
                let options = Options::from(port);
                let e = FileWriter::open(&path, Format::Npy, &data(), "block,*", &options).err().unwrap();
                assert!(matches!(e, FileError::Busy { .. }), "{e}");
                assert_eq!(e.to_string().contains("POLYDUCT_PROGRAM"), advice, "{e}");
            }
            done.wait();
            return;
        }
        let mut port = FileWriter::open(&path, Format::Npy, &data(), "block,*", &unit(u, 2)).unwrap();
        done.wait();
        done.wait();
        port.write(&[1; 36]).unwrap();
        port.close().unwrap();
    });
    assert_eq!(std::fs::read(&path).unwrap(), npy_bytes("<i2", false, &[6, 6], &[1; 72], 128));
}
