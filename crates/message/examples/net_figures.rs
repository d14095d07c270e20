//! What the network links carry on loopback, against a bare socket: `cargo run --release -p polyduct-message --example
//! net_figures`. Ratios are medians over pairs of runs; every frame's length is checked, and the
//! bytes of the last.
//!
//! The baseline is this program's own loop of 128 KiB reads and writes on a `TcpStream`, as iperf3 does it. It is as fast as
//! iperf3 or faster, because nothing is counted beside, so the ratios are a little worse than against iperf3.

#[path = "../tests/shim/mod.rs"]
mod shim;

use bytes::Bytes;
use polyduct_message::engine::Send;
use polyduct_message::link::hello::{Carrier, Identity};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::{NetConfig, NetEvent, Transport};
use polyduct_message::link::net::endpoint::NetEndpoint;
use polyduct_message::link::net::pool::{Buffer, Pool};
use polyduct_message::link::net::stream::{FrameSink, Left, Piece, StreamReader, StreamWriter};
use polyduct_message::link::noise::{Established, Initiator, Pending, Terms};
use polyduct_message::{ChannelId, HandlerId, Head, LinkError, MessageError, Order, Priority};
use polyduct_os::poll::{poll, PollItem};
use shim::{Shim, Weather};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

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

fn endpoint(me: u32, transport: Transport, trusted: bool) -> NetEndpoint<Buffer> {
    let key = JobKey::from_bytes([7; 32]).unwrap();
    let config =
        NetConfig { trusted, ..NetConfig::new(me, 2, 5, key, "127.0.0.1:0".parse().unwrap(), transport) };
    let pool = Pool::new(256 << 20);
    NetEndpoint::start(config, move |_, incoming| {
        pool.take(incoming.len.unwrap_or(incoming.at_least) as usize)
    })
    .unwrap()
}

/// Messages from one endpoint to another, perhaps through a relay that loses datagrams.
fn messages(transport: Transport, trusted: bool, len: usize, total: usize, lost: Option<u32>) -> f64 {
    let (a, b) = (endpoint(0, transport, trusted), endpoint(1, transport, trusted));
    let relay =
        lost.map(|lost| Shim::new(b.local_addr(), Weather { lost, doubled: 0, late: 0, changed: 0 }, 7));
    a.introduce(1, relay.as_ref().map_or(b.local_addr(), Shim::addr));
    let payload: Bytes = (0..len).map(|i| i as u8).collect::<Vec<_>>().into();
    let (expected, count) = (payload.clone(), total / len);
    let head = Head { handler: HandlerId(1), args: [0; 4] };
    let message = Send { priority: Priority::Low, order: Order::Ordered, head, payload };
    let connected = |at: &NetEndpoint<Buffer>| {
        while !matches!(at.next_event(None).unwrap(), Some(NetEvent::Connected { .. })) {}
    };
    a.connect(1).unwrap();
    connected(&a);
    connected(&b);
    let start = Instant::now();
    let seconds = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut sent, mut known) = (0, 0);
            while known < count {
                // A window of 16 MiB.
                while sent < count && (sent - known) * len < 16 << 20 {
                    match a.send(1, ChannelId(0), message.clone()) {
                        Ok(_) => sent += 1,
                        Err(MessageError::Full { .. }) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                match a.next_event(Some(Duration::from_secs(20))).unwrap() {
                    Some(NetEvent::Delivered { .. }) => known += 1,
                    Some(NetEvent::Refused { .. }) => {}
                    other => panic!("{other:?}"),
                }
            }
        });
        for _ in 0..count {
            match b.next_event(Some(Duration::from_secs(20))).unwrap() {
                Some(NetEvent::Message { message, .. }) => {
                    assert_eq!(message.payload.unwrap()[..], expected[..])
                }
                other => panic!("{other:?}"),
            }
        }
        start.elapsed().as_secs_f64()
    });
    (count * len) as f64 / seconds / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A rate, and the median of its ratios to a baseline that is measured right before each run: the machine may be busy with
/// other things, and differently from one second to the next.
fn compare(what: &str, mut base: impl FnMut() -> f64, mut run: impl FnMut() -> f64) {
    let pairs: Vec<_> = (0..ROUNDS).map(|_| (base(), run())).collect();
    let rate = median(pairs.iter().map(|(_, rate)| *rate).collect());
    let ratio = median(pairs.iter().map(|(base, rate)| rate / base).collect());
    println!("{what}: {rate:.2} GB/s, {ratio:.2} of the baseline");
}

fn main() {
    let mode = |trusted| if trusted { "trusted" } else { "encrypted" };
    println!(
        "Baseline: bare TCP on loopback, 128 KiB blocks: {:.2} GB/s",
        median((0..ROUNDS).map(|_| bare()).collect())
    );
    for trusted in [true, false] {
        for len in [64 << 10, 256 << 10, 1 << 20] {
            let what = format!("TCP, frames of {} KiB, {}", len >> 10, mode(trusted));
            compare(&what, bare, || frames(trusted, len, RUN / 2));
        }
    }
    for (transport, total) in [(Transport::Tcp, RUN / 2), (Transport::Udp, RUN / 4)] {
        for trusted in [true, false] {
            for len in [64 << 10, 1 << 20, 16 << 20] {
                let what = format!("{transport:?}, messages of {} KiB, {}", len >> 10, mode(trusted));
                compare(&what, bare, || messages(transport, trusted, len, total, None));
            }
        }
    }
    println!("Baseline: the same relay that loses nothing");
    let relayed = |lost| messages(Transport::Udp, true, 1 << 20, RUN / 16, Some(lost));
    for lost in [1, 5, 10, 30] {
        compare(&format!("UDP through a relay, {lost} % lost"), || relayed(0), || relayed(lost));
    }
}
