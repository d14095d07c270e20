use super::*;
use crate::join::hello;
use crate::net::JobKey;
use crate::wire::{Role, Takes, Wish};
use crate::{Given, Options, PortError, Writer};
use polyduct_layout::{Dataset, ElemType};
use polyduct_os::poll::PollItem;
use std::net::TcpListener;
use std::sync::Barrier;

/// A unit that reads bytes as "block", whose lanes can be looked at.
struct Bytes {
    port: Port,
    end: Receiving,
    work: Work,
    next: u64,
}

impl Bytes {
    fn join(place: &PipeAddress, trust: &Trust, options: &Options) -> Bytes {
        let role = Role::Reader { takes: Takes::One(Wish::layout("block")) };
        let (pipe, start) = (place.to_string(), clock::now());
        let hello = hello(options, role).unwrap();
        let opening = Opening { options, hello, start, pipe: &pipe };
        let (port, end, work, next) = join(place, trust, &opening).unwrap().expect("the writers are there");
        Bytes { port, end, work, next }
    }

    fn would_wait(&mut self) -> bool {
        self.end.would_wait(&mut self.port, &mut self.work, self.next).unwrap().is_some()
    }

    fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, PipeError> {
        let Some(turn) = self.end.take(&mut self.port, self.next)? else { return Ok(None) };
        self.end.copy(&mut self.port, &self.work, turn, &mut [part])?;
        self.end.release(&mut self.port, self.next, turn)?;
        self.next += 1;
        Ok(Some(turn.step))
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let _ = self.end.leave(&mut self.port, self.next);
    }
}

#[test]
fn who_shares_a_host_shares_memory_unless_one_of_the_two_does_not_want_it() {
    for (writer, reader) in [(true, true), (true, false), (false, true)] {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let place = PipeAddress::new("127.0.0.1", port, "near");
        let trust = Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network: false };
        let options = |near| Options { near, ..Options::default() };
        std::thread::scope(|s| {
            s.spawn(|| {
                let given = Given::Dataset(Dataset::new(&[4], ElemType::U8).unwrap());
                let mut w = Writer::open((&place, &trust), &given, "block", &options(writer)).unwrap();
                (0..5).for_each(|step| assert!(w.write(&[step; 4]).unwrap()));
                w.close().unwrap();
            });
            let mut r = Bytes::join(&place, &trust, &options(reader));
            assert_eq!(r.end.lanes[0].is_mapped(), writer && reader);
            let mut part = [9; 4];
            for step in 0..5 {
                assert_eq!((r.read(&mut part).unwrap(), part), (Some(step), [step as u8; 4]));
            }
            assert_eq!(r.read(&mut part).unwrap(), None);
        });
    }
}

#[test]
fn a_look_and_a_read_agree_while_a_connection_is_made_again_and_neither_waits_longer_than_it_may() {
    let listens = || TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listens().local_addr().unwrap().port();
    let place = PipeAddress::new("127.0.0.1", port, "look");
    let trust = Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network: true };
    let (options, broken) = (Options { near: false, ..Options::default() }, Barrier::new(2));
    std::thread::scope(|s| {
        s.spawn(|| {
            let given = Given::Dataset(Dataset::new(&[4], ElemType::U8).unwrap());
            let mut w = Writer::open((&place, &trust), &given, "block", &options).unwrap();
            w.write(&[0; 4]).unwrap();
            broken.wait();
            w.write(&[1; 4]).unwrap();
            w.close().unwrap();
        });
        let mut r = Bytes::join(&place, &trust, &options);
        let mut part = [9; 4];
        assert_eq!((r.read(&mut part).unwrap(), part), (Some(0), [0; 4]));
        rustix::net::shutdown(&r.end.lanes[0], rustix::net::Shutdown::Write).unwrap();
        poll(&mut [PollItem::hangup(&r.end.lanes[0])], None).unwrap();
        // A unit that listens there takes the connection, and does not answer.
        let deaf = listens();
        let addr = std::mem::replace(&mut r.end.lanes[0].addr, deaf.local_addr().unwrap());
        broken.wait();
        let start = clock::now();
        while r.end.lanes[0].redial.as_ref().is_none_or(|redial| redial.item().is_none()) {
            assert!(r.would_wait());
        }
        let read = clock::within(Some(Duration::ZERO), || r.read(&mut part));
        assert!(matches!(read, Err(PipeError::Port(PortError::Timeout { .. }))), "{read:?}");
        r.end.lanes[0].addr = addr;
        while r.would_wait() {
            std::thread::yield_now();
        }
        let read = clock::within(Some(Duration::ZERO), || r.read(&mut part));
        assert_eq!((read.unwrap(), part), (Some(1), [1; 4]));
        assert!(clock::now() - start < options.silence / 2, "{:?}", clock::now() - start);
    });
}
