//! Whatever a unit of another host sends on a connection, once it has proved to know the key: messages are
//! taken exactly as long as they are whole and good, a step exactly when all its bytes came under its own
//! number, and each of them lands once. The first mistake is the other side's, and the end of the connection.

#![forbid(unsafe_code)]

mod driver;

use polyduct_copy::Kernels;
use polyduct_message::handshake::BODY_LIMIT;
use polyduct_message::link::hello::{Carrier, Identity};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::LinkFault;
use polyduct_message::link::noise::{Established, Initiator, Pending, Terms};
use polyduct_os::OsError;
use polyduct_pipe::net::channel::Channel;
use polyduct_pipe::net::frames::Frames;
use polyduct_pipe::net::lane::{Delivery, Lane};
use polyduct_pipe::net::wire::{Ask, LaneOpen};
use polyduct_pipe::threads::Threads;
use polyduct_pipe::wire::{Array, Takes, Wish};
use polyduct_pipe::work::{supply_of, Supply};
use polyduct_slots::Turn;
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::io::{IoSlice, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long the other end may be silent: longer than any case takes.
const SILENCE: Duration = Duration::from_secs(10);

/// A shape and the reader's layout.
type Given = (&'static [u64], &'static str);

/// Arrays for so many units: one run, short pieces, several runs, all in
/// one frame, and several arrays of which some share a frame and some have runs.
const ROUTES: [(&[Given], u32); 6] = [
    (&[(&[3000], "*")], 1),
    (&[(&[40, 30], "*,*;order=F")], 1),
    (&[(&[4, 2100], "*,block")], 2),
    (&[(&[4, 300], "*,cyclic(3)")], 2),
    (&[(&[7], "block")], 2),
    (&[(&[7], "block"), (&[5, 3], "*,cyclic"), (&[1], "*"), (&[2500], "*"), (&[9], "*")], 2),
];

/// What the writers' only unit has for unit 0.
fn supply(index: usize) -> Supply {
    let (arrays, units) = ROUTES[index];
    let of = |at: usize| format!("array {at}");
    let given = |(at, (shape, _)): (usize, &Given)| Array {
        name: of(at),
        shape: shape.to_vec(),
        elem: "u8".into(),
        layout: vec!["*"; shape.len()].join(","),
        open: None,
    };
    let given: Vec<Array> = arrays.iter().enumerate().map(given).collect();
    let wish = |(at, (_, layout)): (usize, &Given)| (of(at), Wish::layout(layout));
    let takes = Takes::Named(arrays.iter().enumerate().map(wish).collect());
    let supply = supply_of(&given, (0, 1), &takes, (0, units));
    supply.expect("a plan").expect("something to move")
}

/// Both ends of what a handshake comes to.
fn established(trusted: bool) -> [Established; 2] {
    let terms = |unit| {
        let me = Identity { domain: 5, unit, incarnation: 9, features: 0, frame_limit: 1 << 20, index: 3 };
        Terms { key: JobKey::from_bytes([7; 32]).expect("a key"), me, trusted, carrier: Carrier::Stream }
    };
    let mut one = Initiator::new(&terms(0), 1).expect("random bytes");
    let mut other = Pending::new(&terms(1), one.message().bytes()).expect("its message");
    let (first, confirm) = one.answer(other.message().bytes()).expect("its answer");
    [first, other.confirm(confirm.bytes()).expect("its confirmation")]
}

/// What the other side sends: a raw piece goes past the sealing, so it is what somebody else wrote.
struct Sent<'a> {
    pieces: Vec<(bool, &'a [u8])>,
}

impl<'a> Sent<'a> {
    /// Pieces lie apart by two newlines; a raw one begins with an exclamation mark.
    fn read(mut rest: &'a [u8], sealed: bool) -> Sent<'a> {
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let end = rest.windows(2).position(|w| w == b"\n\n").unwrap_or(rest.len());
            pieces.push(match rest[..end].strip_prefix(b"!") {
                Some(raw) if sealed => (true, raw),
                _ => (false, &rest[..end]),
            });
            rest = rest.get(end + 2..).unwrap_or_default();
        }
        pieces.retain(|(_, bytes)| !bytes.is_empty());
        Sent { pieces }
    }

    /// What a reader gets, and whether something that is no record follows.
    fn plain(&self) -> (Vec<u8>, bool) {
        let good = self.pieces.iter().take_while(|(raw, _)| !raw).map(|(_, bytes)| *bytes);
        (good.collect::<Vec<_>>().concat(), self.pieces.iter().any(|(raw, _)| *raw))
    }

    /// This side's end of a connection on which all of it was sent.
    fn channel(&self, sealed: bool) -> Channel {
        let [theirs, mine] = established(!sealed);
        // A connection within the system: it takes no port, and what was written is there.
        let (a, b) = UnixStream::pair().expect("a pair");
        b.set_nonblocking(true).expect("a socket");
        let [a, b] = [a, b].map(|end| TcpStream::from(OwnedFd::from(end)));
        let mut raw = a.try_clone().expect("a descriptor");
        let mut sender = Channel::new(a, theirs, SILENCE);
        for (is_raw, bytes) in &self.pieces {
            if *is_raw {
                raw.write_all(bytes).expect("room");
                continue;
            }
            let mut left = &bytes[..];
            while !left.is_empty() {
                let n = sender.send(&[IoSlice::new(left)]).expect("an open end").expect("room");
                left = &left[n..];
            }
        }
        assert!(sender.flush().expect("an open end"));
        sender.shut();
        Channel::new(b, mine, SILENCE)
    }
}

/// How a connection ended must be what was wrong with the bytes.
fn check_end(fault: &LinkFault, bad: bool, raw: bool) {
    match fault {
        LinkFault::Peer(error) => assert!((bad || raw) && !error.to_string().is_empty(), "{error}"),
        LinkFault::System(OsError::PeerClosed) => assert!(!bad),
        LinkFault::System(other) => panic!("{other}"),
    }
}

/// Takes a message off the beginning of `stream`: `Ok(None)` where it is not whole.
fn first<T: DeserializeOwned>(stream: &mut &[u8]) -> Result<Option<T>, ()> {
    let Some((len, rest)) = stream.split_first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_le_bytes(*len) as usize;
    if len == 0 || len > BODY_LIMIT {
        return Err(());
    }
    let Some((body, rest)) = rest.split_at_checked(len) else { return Ok(None) };
    *stream = rest;
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(Some(message)),
        _ => Err(()),
    }
}

fn check_messages(sent: &Sent<'_>, sealed: bool) {
    let (stream, raw) = sent.plain();
    let (mut rest, mut expected) = (&stream[..], Vec::new());
    let bad = loop {
        match first::<Ask>(&mut rest) {
            Ok(Some(ask)) => expected.push(format!("{ask:?}")),
            Ok(None) => break false,
            Err(()) => break true,
        }
    };
    let (mut channel, mut got) = (sent.channel(sealed), Vec::new());
    let fault = loop {
        match channel.next::<Ask>() {
            Ok(Some(ask)) => got.push(format!("{ask:?}")),
            Ok(None) => panic!("neither more nor an end"),
            Err(fault) => break fault,
        }
    };
    assert_eq!(got, expected);
    check_end(&fault, bad, raw);
}

/// The bytes of each whole step, and whether what follows is wrong.
fn steps(mut stream: &[u8], bytes: usize) -> (Vec<Vec<u8>>, bool) {
    let mut steps = Vec::new();
    match first::<LaneOpen>(&mut stream) {
        Ok(Some(open)) if open.bytes == bytes as u64 => {}
        other => return (steps, !matches!(other, Ok(None))),
    }
    while let Some((header, rest)) = stream.split_at_checked(16) {
        if header != [(steps.len() as u64).to_le_bytes(), (bytes as u64).to_le_bytes()].concat() {
            return (steps, true);
        }
        let Some((step, rest)) = rest.split_at_checked(bytes) else { break };
        steps.push(step.to_vec());
        stream = rest;
    }
    (steps, false)
}

fn check_lane(sent: &Sent<'_>, sealed: bool, index: usize) {
    let supply = supply(index);
    let bytes = supply.bytes as usize;
    let lens: Vec<usize> = supply.legs.iter().map(|leg| leg.transfer().bytes() as usize).collect();
    let (stream, raw) = sent.plain();
    let (expected, bad) = steps(&stream, bytes);
    let of = (Kernels::detect(), Threads::of(1));
    let addr = SocketAddr::from(([127, 0, 0, 1], 9));
    let way = Delivery::Frames(Box::new(Frames::new(sent.channel(sealed))));
    let (mut lane, mut part) = (Lane::new(addr, way, supply, 2, false), vec![0; bytes]);
    let mut taken = 0;
    let fault = loop {
        match lane.is_open() {
            Ok(true) => {}
            Ok(false) => panic!("neither more nor an end"),
            Err(fault) => break fault,
        }
        let end = loop {
            lane.begin();
            part.fill(0);
            let end = loop {
                let turn = Turn { step: taken as u64, slot: 0, sense: false, uses: 1 };
                let mut rest = &mut part[..];
                let parts = lens.iter().map(|&len| rest.split_off_mut(..len).expect("room"));
                match lane.receive(turn, &mut parts.collect::<Vec<_>>(), of) {
                    Ok(_) if !lane.waits() => break None,
                    Ok(more) => assert!(more, "neither more nor an end"),
                    Err(fault) => break Some(fault),
                }
            };
            if end.is_some() {
                break end;
            }
            // Each byte has its own place, wherever that is.
            let mut came = expected.get(taken).expect("no more than was sent").clone();
            let mut there = part.clone();
            came.sort_unstable();
            there.sort_unstable();
            assert!(came == there, "step {taken}");
            taken += 1;
        };
        if let Some(fault) = end {
            break fault;
        }
    };
    assert_eq!(taken, expected.len());
    check_end(&fault, bad, raw);
}

/// The first byte says whether the network is trusted, and what is expected; the rest is what comes.
fn target(input: &[u8]) {
    let Some((&choice, rest)) = input.split_first() else { return };
    let sealed = choice & 1 == 1;
    let sent = Sent::read(rest, sealed);
    match usize::from(choice / 2) % (ROUTES.len() + 1) {
        index if index < ROUTES.len() => check_lane(&sent, sealed, index),
        _ => check_messages(&sent, sealed),
    }
}

fn message(value: &impl Serialize) -> Vec<u8> {
    let body = postcard::to_stdvec(value).expect("words");
    [&(body.len() as u32).to_le_bytes()[..], &body].concat()
}

fn main() {
    let step = |n: u64, bytes: usize| {
        let payload: Vec<u8> = (0..bytes).map(|i| 0x40 | (i * 7 % 61) as u8).collect();
        [&n.to_le_bytes()[..], &(bytes as u64).to_le_bytes(), &payload].concat()
    };
    let mut seeds = Vec::new();
    for (i, choice) in (0..ROUTES.len()).zip((0..).step_by(2)) {
        let bytes = supply(i).bytes as usize;
        let open = message(&LaneOpen { bytes: bytes as u64 });
        let all = [&open[..], &step(0, bytes), &step(1, bytes)].concat();
        let cut = [&open[..], b"\n\n", &step(0, bytes), b"\n\n", &step(1, bytes)[..20], b"\n\n!xy"].concat();
        for sealed in [0, 1] {
            seeds.push([&[choice | sealed], &all[..]].concat());
            seeds.push([&[choice | sealed], &cut[..]].concat());
        }
    }
    let asks =
        [message(&Ask::Begin), message(&Ask::Publish), message(&Ask::Abort("no more".into()))].concat();
    seeds.push([&[12], &asks[..], b"\n\n", &asks].concat());
    seeds.push([&[13], &asks[..], b"\n\n", &asks, b"\n\n!", &[20; 30]].concat());
    let small = supply(4).bytes as usize;
    let words = [
        b"\n\n".to_vec(),
        b"\n\n!".to_vec(),
        message(&Ask::Next),
        message(&LaneOpen { bytes: small as u64 }),
        step(1, small),
        step(2, small),
        vec![0; 4],
        vec![0xff; 8],
        vec![1, 0, 0, 0],
        b"\x00\x00\x80\x00".to_vec(),
        b"\x01\x00\x80\x00".to_vec(),
    ];
    let [seeds, words] = [&seeds[..], &words].map(|all| all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    driver::run(&seeds, &words, target);
}
