//! What the network links carry on loopback, against a bare socket: `cargo run --release -p polyduct-message --example
//! net_figures`. Ratios are of medians of interleaved runs; every frame's length is checked and a checksum of the last one.
//!
//! The baseline is this program's own loop of 128 KiB reads and writes on a `TcpStream`, as iperf3 does it. It is as fast as
//! iperf3 or faster, because nothing is counted beside, so the ratios are a little worse than against iperf3.

use bytes::Bytes;
use polyduct_message::link::hello::{Carrier, Identity};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::stream::{FrameSink, Left, Piece, StreamReader, StreamWriter};
use polyduct_message::link::noise::{Established, Initiator, Pending, Terms};
use polyduct_message::LinkError;
use polyduct_os::poll::{poll, PollItem};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

const RUN: usize = 2 << 30;
const ROUNDS: usize = 5;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a, listener.accept().unwrap().0)
}

fn bare() -> f64 {
    let (mut a, mut b) = pair();
    let start = Instant::now();
    let sender = std::thread::spawn(move || {
        let block = vec![1; 128 << 10];
        for _ in 0..RUN / block.len() {
            a.write_all(&block).unwrap();
        }
    });
    let (mut got, mut block) = (0, vec![0; 128 << 10]);
    loop {
        match b.read(&mut block).unwrap() {
            0 => break,
            n => got += n,
        }
    }
    sender.join().unwrap();
    assert_eq!(got, RUN);
    RUN as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn linked(trusted: bool) -> (Established, Established) {
    let terms = |unit| Terms {
        key: JobKey::from_bytes([7; 32]).unwrap(),
        me: Identity { domain: 5, unit, incarnation: 9, features: 0, frame_limit: 1 << 20, index: 0 },
        trusted,
        carrier: Carrier::Stream,
    };
    let mut a = Initiator::new(&terms(0), 1).unwrap();
    let mut b = Pending::new(&terms(1), a.message().bytes()).unwrap();
    let (a, confirm) = a.answer(b.message().bytes()).unwrap();
    (a, b.confirm(confirm.bytes()).unwrap())
}

/// Takes frames of one length into one place.
struct Place {
    place: Vec<u8>,
    head: Vec<u8>,
    at: usize,
    bytes: usize,
    frames: usize,
}

impl FrameSink for Place {
    fn frame(&mut self, frame: &[u8]) -> Result<(), LinkError> {
        self.bytes += frame.len();
        self.frames += 1;
        Ok(())
    }
    fn begin(&mut self, start: &[u8], len: usize) -> Result<bool, LinkError> {
        self.head.clear();
        self.head.extend_from_slice(&start[..64]);
        assert_eq!(len - 64, self.place.len());
        self.at = start.len() - 64;
        self.place[..self.at].copy_from_slice(&start[64..]);
        self.bytes += len;
        Ok(true)
    }
    fn body(&mut self) -> &mut [u8] {
        &mut self.place[self.at..]
    }
    fn filled(&mut self, n: usize) -> Result<(), LinkError> {
        self.at += n;
        self.frames += usize::from(self.at == self.place.len());
        Ok(())
    }
}

fn frames(trusted: bool, len: usize, total: usize) -> f64 {
    let (a, b) = pair();
    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    let (mine, theirs) = linked(trusted);
    let count = total / len;
    let payload: Bytes = (0..len).map(|i| i as u8).collect::<Vec<_>>().into();
    let expected = payload.clone();
    let start = Instant::now();
    let sender = std::thread::spawn(move || {
        let mut writer = StreamWriter::new(mine.sealer);
        let mut pushed = 0;
        while pushed < count || writer.queued_bytes() > 0 {
            while pushed < count && writer.queued_bytes() < 1 << 20 {
                let pieces = [Piece::Copy(&[9; 64]), Piece::Share(payload.clone())];
                writer.push(64 + len, pieces.into_iter()).unwrap();
                pushed += 1;
            }
            if !writer.write(&a).unwrap() {
                poll(&mut [PollItem::writable(&a)], None).unwrap();
            }
        }
        a
    });
    let mut reader = StreamReader::new(theirs.opener, 16 << 20);
    let mut sink = Place { place: vec![0; len], head: Vec::new(), at: 0, bytes: 0, frames: 0 };
    while sink.frames < count {
        if reader.read(&b, &mut sink).unwrap() == Left::Nothing && sink.frames < count {
            poll(&mut [PollItem::readable(&b)], None).unwrap();
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    drop(sender.join().unwrap());
    assert_eq!(sink.bytes, count * (64 + len));
    assert!(len < 16 << 10 || (sink.place == expected && sink.head == [9; 64]));
    (count * len) as f64 / seconds / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let cases = [
        (64 << 10, true),
        (256 << 10, true),
        (1 << 20, true),
        (64 << 10, false),
        (256 << 10, false),
        (1 << 20, false),
    ];
    let mut bares = Vec::new();
    let mut figures = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        bares.push(bare());
        for ((len, trusted), figure) in cases.iter().zip(&mut figures) {
            figure.push(frames(*trusted, *len, RUN / 2));
        }
    }
    let base = median(bares);
    println!("bare TCP on loopback, 128 KiB blocks: {base:.2} GB/s ({:.1} Gbit/s)", base * 8.0);
    for ((len, trusted), figure) in cases.iter().zip(figures) {
        let rate = median(figure);
        let mode = if *trusted { "trusted" } else { "encrypted" };
        println!("frames of {:4} KiB, {mode:9}: {rate:.2} GB/s, {:.2} of bare", len >> 10, rate / base);
    }
}
