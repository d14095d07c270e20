//! Pipes whose units agree on no port: they learn from a directory where unit 0 listens.

mod common;

use common::net::{place, trust};
use common::{reader_options, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_message::link::net::LinkFault;
use polyduct_message::meeting::Within;
use polyduct_os::OsError;
use polyduct_pipe::net::{Directory, Entry, PipeAddress};
use polyduct_pipe::{Expect, Given, Options, PipeError, Reader, Writer};
use polyduct_port::PortError;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Default)]
struct Table(Arc<Mutex<BTreeMap<String, SocketAddr>>>);

/// Takes a pipe out of the table when it is dropped.
struct Line(Table, String);

impl Drop for Line {
    fn drop(&mut self) {
        self.0 .0.lock().unwrap().remove(&self.1);
    }
}

impl Directory for Table {
    fn own_ip(&self) -> Result<IpAddr, LinkFault> {
        Ok(Ipv4Addr::LOCALHOST.into())
    }

    fn enter(&self, pipe: &str, at: SocketAddr, _: Within<'_>) -> Result<Option<Entry>, LinkFault> {
        let mut table = self.0.lock().unwrap();
        if table.contains_key(pipe) {
            return Ok(None);
        }
        table.insert(pipe.to_owned(), at);
        Ok(Some(Box::new(Line(self.clone(), pipe.to_owned()))))
    }

    fn find(&self, pipe: &str, _: Within<'_>) -> Result<Option<SocketAddr>, LinkFault> {
        Ok(self.0.lock().unwrap().get(pipe).copied())
    }
}

/// It cannot be reached.
struct Nowhere;

impl Directory for Nowhere {
    fn own_ip(&self) -> Result<IpAddr, LinkFault> {
        Err(OsError::PeerClosed.into())
    }

    fn enter(&self, _: &str, _: SocketAddr, _: Within<'_>) -> Result<Option<Entry>, LinkFault> {
        Err(OsError::PeerClosed.into())
    }

    fn find(&self, _: &str, _: Within<'_>) -> Result<Option<SocketAddr>, LinkFault> {
        Err(OsError::PeerClosed.into())
    }
}

fn known(directory: impl Directory + 'static) -> PipeAddress {
    PipeAddress { directory: Some(Arc::new(directory)), ..place() }
}

/// Opens, writes and reads a few steps as two units and three.
fn run(place: &PipeAddress) {
    let trust = &trust(true);
    let data = Dataset::new(&[12], ElemType::U8).unwrap();
    std::thread::scope(|s| {
        for unit in 0..2 {
            s.spawn(move || {
                let options = writer_options(unit, 2);
                let mut w = Writer::open((place, trust), &Given::Dataset(data), "block", &options).unwrap();
                (0..3).for_each(|step| assert!(w.write(&[step + 10 * unit as u8; 6]).unwrap()));
                w.close().unwrap();
            });
        }
        for unit in 0..3 {
            s.spawn(move || {
                let options = reader_options("r", unit, 3);
                let mut r = Reader::open((place, trust), "cyclic", &Expect::default(), &options).unwrap();
                for step in 0..3 {
                    let mut part = [0; 4];
                    assert_eq!(r.read(&mut part).unwrap(), Some(step.into()));
                    assert_eq!(part, [step, step, step + 10, step + 10]);
                }
                assert_eq!(r.read(&mut [0; 4]).unwrap(), None);
            });
        }
    });
}

#[test]
fn units_find_each_other_and_nothing_is_left_in_the_directory() {
    let table = Table::default();
    let place = known(table.clone());
    // One pipe after the other of one name: each listens elsewhere.
    (0..3).for_each(|_| run(&place));
    assert!(table.0.lock().unwrap().is_empty());
}

#[test]
fn who_was_told_of_a_unit_0_that_is_gone_is_told_of_the_next() {
    let table = Table::default();
    // Nobody listens there any more.
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let entry = table.enter("test", gone, Within::time(Duration::ZERO)).unwrap().unwrap();
    let (place, trust) = (known(table.clone()), &trust(true));
    let data = Dataset::new(&[4], ElemType::U8).unwrap();
    std::thread::scope(|s| {
        let reader = s.spawn(|| {
            let options = reader_options("r", 0, 1);
            let mut r = Reader::open((&place, trust), "*", &Expect::default(), &options).unwrap();
            let mut part = [0; 4];
            assert_eq!(r.read(&mut part).unwrap(), Some(0));
            part
        });
        let writer = s.spawn(|| {
            let options = writer_options(0, 1);
            let mut w = Writer::open((&place, trust), &Given::Dataset(data), "*", &options).unwrap();
            w.write(&[7; 4]).unwrap();
            w.close().unwrap();
        });
        // The writer waits for the name, the reader for somebody to listen there.
        drop(entry);
        writer.join().unwrap();
        assert_eq!(reader.join().unwrap(), [7; 4]);
    });
}

#[test]
fn waits_end_and_a_directory_that_is_not_reached_is_an_error() {
    let (trust, soon) = (trust(true), Duration::from_millis(50));
    let given = Given::Dataset(Dataset::new(&[4], ElemType::U8).unwrap());
    let writer = Options { open_timeout: soon, ..writer_options(0, 1) };
    let reader = Options { open_timeout: soon, ..reader_options("r", 0, 1) };
    let table = Table::default();
    let place = known(table.clone());
    let error = Reader::open((&place, &trust), "*", &Expect::default(), &reader).map(drop).unwrap_err();
    assert!(matches!(error, PipeError::Port(PortError::Timeout { .. })), "{error}");
    let _entry =
        table.enter("test", SocketAddr::from(([127, 0, 0, 1], 1)), Within::time(soon)).unwrap().unwrap();
    let error = Writer::open((&place, &trust), &given, "*", &writer).map(drop).unwrap_err();
    assert!(matches!(error, PipeError::Port(PortError::Timeout { .. })), "{error}");
    assert!(error.to_string().contains("another pipe of this name"), "{error}");
    let place = known(Nowhere);
    let error = Writer::open((&place, &trust), &given, "*", &writer).map(drop).unwrap_err();
    assert!(matches!(error, PipeError::NoDirectory { .. }), "{error}");
    let error = Reader::open((&place, &trust), "*", &Expect::default(), &reader).map(drop).unwrap_err();
    assert!(matches!(error, PipeError::NoDirectory { .. }), "{error}");
}
