//! Frames over a connection, however the bytes are cut on the way: what goes in comes out, whole or straight
//! into its place.

use bytes::Bytes;
use polyduct_message::link::hello::{Carrier, Identity};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::record::{Piece, RecordWriter};
use polyduct_message::link::net::stream::{FrameSink, StreamReader, START};
use polyduct_message::link::noise::{Established, Initiator, Pending, Terms};
use polyduct_message::LinkError;
use polyduct_os::poll::{poll, PollItem};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

fn linked(trusted: bool) -> (Established, Established) {
    let me = |unit| Identity { domain: 5, unit, incarnation: 9, features: 0, frame_limit: 1 << 20, index: 0 };
    let key = JobKey::from_bytes([7; 32]).unwrap();
    let terms = |unit| Terms { key: key.clone(), me: me(unit), trusted, carrier: Carrier::Stream };
    let mut a = Initiator::new(&terms(0), 1).unwrap();
    let mut b = Pending::new(&terms(1), a.message().bytes()).unwrap();
    let (a, confirm) = a.answer(b.message().bytes()).unwrap();
    (a, b.confirm(confirm.bytes()).unwrap())
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let b = listener.accept().unwrap().0;
    [&a, &b].iter().for_each(|s| s.set_nonblocking(true).unwrap());
    (a, b)
}

/// Takes every second long frame straight into its place, giving room for `step` bytes at a time.
#[derive(Default)]
struct Frames {
    frames: Vec<Vec<u8>>,
    long: usize,
    place: Vec<u8>,
    at: usize,
    step: usize,
}

impl FrameSink for Frames {
    fn frame(&mut self, frame: &[u8]) -> Result<(), LinkError> {
        self.frames.push(frame.to_vec());
        Ok(())
    }
    fn begin(&mut self, start: &[u8], len: usize) -> Result<bool, LinkError> {
        assert!(start.len() >= START && start.len() < len);
        self.long += 1;
        if self.long.is_multiple_of(2) {
            return Ok(false);
        }
        self.place = start.to_vec();
        self.place.resize(len, 0);
        self.at = start.len();
        Ok(true)
    }
    fn body(&mut self) -> &mut [u8] {
        let end = (self.at + self.step).min(self.place.len());
        &mut self.place[self.at..end]
    }
    fn filled(&mut self, n: usize) -> Result<(), LinkError> {
        self.at += n;
        // What lies behind may have come another way.
        let behind = &self.place[self.at..(self.at + 64).min(self.place.len())];
        assert!(behind.iter().all(|&byte| byte == 0), "written before it came");
        if self.at == self.place.len() {
            self.frames.push(std::mem::take(&mut self.place));
        }
        Ok(())
    }
}

fn frame(i: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + i * 7) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn frames_come_as_they_went(
        lens in prop::collection::vec(prop_oneof![1_usize..200, 3000_usize..6000, 16_000_usize..17_000, 60_000_usize..200_000], 1..12),
        cuts in prop::collection::vec(1_usize..100_000, 1..20),
        step in prop_oneof![1_usize..500, Just(1 << 20)],
        trusted in any::<bool>(),
    ) {
        let (mine, theirs) = linked(trusted);
        let (a, via_a) = pair();
        let (mut via_b, b) = pair();
        let mut writer = RecordWriter::new(mine.sealer);
        let mut reader = StreamReader::new(theirs.opener, 1 << 20);
        let mut sink = Frames { step, ..Frames::default() };
        for (i, &len) in lens.iter().enumerate() {
            let bytes = Bytes::from(frame(i, len));
            let cut = len / 3;
            let pieces = [Piece::Copy(&bytes[..cut]), Piece::Share(bytes.slice(cut..))];
            writer.push(len, pieces.into_iter()).unwrap();
        }
        // Through a middle that passes on what the cuts say.
        let (mut held, mut done) = (Vec::new(), false);
        let mut cuts = cuts.iter().cycle();
        let mut buffer = vec![0; 1 << 16];
        while sink.frames.len() < lens.len() {
            done = done || writer.write(&a).unwrap();
            while let Ok(n) = (&via_a).read(&mut buffer) {
                held.extend_from_slice(&buffer[..n]);
            }
            let n = held.len().min(*cuts.next().unwrap());
            if n > 0 {
                let sent = via_b.write(&held[..n]).unwrap_or(0);
                held.drain(..sent);
                poll(&mut [PollItem::readable(&b)], Some(Duration::from_secs(10))).unwrap();
            }
            while reader.read(&b, &mut sink).unwrap() {}
        }
        prop_assert!(done && held.is_empty() && writer.queued_bytes() == 0);
        for (i, (got, &len)) in sink.frames.iter().zip(&lens).enumerate() {
            prop_assert!(*got == frame(i, len), "frame {} of {}", i, len);
        }
    }
}

#[test]
fn a_writer_whose_reader_stands_still_keeps_what_it_was_given_and_no_more() {
    let (mine, theirs) = linked(true);
    let (a, b) = pair();
    let mut writer = RecordWriter::new(mine.sealer);
    let payload = Bytes::from(vec![3; 100_000]);
    let mut pushed = 0;
    // Until the kernel's buffers are full.
    while writer.write(&a).unwrap() {
        writer.push(payload.len(), [Piece::Share(payload.clone())].into_iter()).unwrap();
        pushed += 1;
    }
    assert!(writer.queued_bytes() <= 4 + payload.len());
    let mut reader = StreamReader::new(theirs.opener, 1 << 20);
    let mut sink = Frames { step: 1 << 20, ..Frames::default() };
    while sink.frames.len() < pushed {
        writer.write(&a).unwrap();
        poll(&mut [PollItem::readable(&b)], Some(Duration::from_secs(10))).unwrap();
        reader.read(&b, &mut sink).unwrap();
    }
    assert!(sink.frames.iter().all(|f| *f == payload));
}
