//! Whether the next step has come.

use super::{clock, Duration, Lane, NetReader, PipeError, Scope};
use crate::join::system;
use crate::ready::{Wait, Watch};
use polyduct_port::PortError;

impl NetReader {
    /// Where [`read`](NetReader::read) sleeps.
    ///
    /// # Errors
    /// The system's refusal of a descriptor.
    pub fn watch(&self) -> Result<Watch, PipeError> {
        Watch::at_sockets().map_err(system(&self.pipe))
    }

    /// What the next [`read`](NetReader::read) would wait for; `None` if it would not. Receives what has come
    /// of the step into memory of the port, one copy more than without it. Where steps are dropped, the one
    /// that it finds is the one that is read.
    pub fn would_wait(&mut self) -> Option<Wait> {
        let here =
            self.check_open().and_then(|()| clock::within(Some(Duration::ZERO), || self.receive_ahead()));
        let error = here.err().filter(|_| self.failed.is_none())?;
        let error = error.at(&self.pipe, self.me);
        if error.scope() == Scope::Port {
            self.failed = (!matches!(error, PipeError::Port(PortError::Closed { .. }))).then_some(error);
            return None;
        }
        let mut wait = Wait::default();
        self.client.waits_at(&mut wait);
        if self.turn.is_some() {
            for lane in self.lanes.iter().filter(|lane| lane.waits()) {
                match &lane.redial {
                    Some(redial) => redial.waits_at(&mut wait),
                    None => match lane.coming() {
                        Some(slots) => wait.at(&slots, false),
                        None => wait.at(lane.channel(), false),
                    },
                }
            }
        }
        Some(wait)
    }

    /// Has all of the next step in `kept`, if it has come.
    fn receive_ahead(&mut self) -> Result<(), PipeError> {
        let turn = match self.turn {
            Some(turn) => turn,
            None => match self.take()? {
                Some(turn) => turn,
                None => return Ok(()),
            },
        };
        if !self.lanes.iter().any(Lane::waits) && self.kept.len() == self.len {
            return Ok(());
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.resize(self.len, 0);
        let received = self.receive(turn, &mut kept);
        self.kept = kept;
        received
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use crate::net::{JobKey, NetWriter};
    use crate::Given;
    use polyduct_layout::ElemType;
    use polyduct_os::poll::PollItem;
    use std::net::TcpListener;
    use std::sync::Barrier;

    #[test]
    fn who_shares_a_host_shares_memory_unless_one_of_the_two_does_not_want_it() {
        for (writer, reader) in [(true, true), (true, false), (false, true)] {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let place = Place { host: "127.0.0.1".into(), port, name: "near".into() };
            let trust = Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network: false };
            let options = |near| Options { near, ..Options::default() };
            std::thread::scope(|s| {
                s.spawn(|| {
                    let given = Given::Dataset(Dataset::new(&[4], ElemType::U8).unwrap());
                    let mut w = NetWriter::open(&place, &trust, &given, "block", &options(writer)).unwrap();
                    (0..5).for_each(|step| assert!(w.write(&[step; 4]).unwrap()));
                    w.close().unwrap();
                });
                let expect = Expect::default();
                let mut r = NetReader::open(&place, &trust, "block", &expect, &options(reader)).unwrap();
                assert_eq!(r.lanes[0].is_mapped(), writer && reader);
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
        let place = Place { host: "127.0.0.1".into(), port, name: "look".into() };
        let trust = Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network: true };
        let (options, broken) = (Options { near: false, ..Options::default() }, Barrier::new(2));
        std::thread::scope(|s| {
            s.spawn(|| {
                let given = Given::Dataset(Dataset::new(&[4], ElemType::U8).unwrap());
                let mut w = NetWriter::open(&place, &trust, &given, "block", &options).unwrap();
                w.write(&[0; 4]).unwrap();
                broken.wait();
                w.write(&[1; 4]).unwrap();
                w.close().unwrap();
            });
            let mut r = NetReader::open(&place, &trust, "block", &Expect::default(), &options).unwrap();
            let mut part = [9; 4];
            assert_eq!((r.read(&mut part).unwrap(), part), (Some(0), [0; 4]));
            r.lanes[0].channel().shut();
            poll(&mut [PollItem::hangup(r.lanes[0].channel())], None).unwrap();
            // Who listens there takes the connection, and does not answer.
            let deaf = listens();
            let addr = std::mem::replace(&mut r.lanes[0].addr, deaf.local_addr().unwrap());
            broken.wait();
            let start = clock::now();
            while r.lanes[0].redial.as_ref().is_none_or(|redial| redial.item().is_none()) {
                assert!(r.would_wait().is_some());
            }
            let read = clock::within(Some(Duration::ZERO), || r.read(&mut part));
            assert!(matches!(read, Err(PipeError::Port(PortError::Timeout { .. }))), "{read:?}");
            r.lanes[0].addr = addr;
            while r.would_wait().is_some() {
                std::thread::yield_now();
            }
            let read = clock::within(Some(Duration::ZERO), || r.read(&mut part));
            assert_eq!((read.unwrap(), part), (Some(1), [1; 4]));
            assert!(clock::now() - start < options.silence / 2, "{:?}", clock::now() - start);
        });
    }
}
