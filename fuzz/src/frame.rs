//! Any bytes are a frame or are refused; what parses prints to the same bytes; a session that gets any pieces
//! in well-formed frames neither panics nor grows beyond its limits, and still takes a good message.

#![forbid(unsafe_code)]

mod driver;

use polyduct_message::engine::{Config, Incoming, PathId, Send, Session, SessionId, Transmit};
use polyduct_message::wire::{build, Fragment, Frame, Name, Piece, StreamId};
use polyduct_message::{ChannelId, HandlerId, Head, Order, Priority};
use std::time::Duration;

const PATH: PathId = PathId(0);
const RECEIVE: u64 = 0x2222;

fn session(lossless: bool) -> Session<Vec<u8>> {
    let config = if lossless { Config::stream() } else { Config::datagram() };
    let config =
        Config { checksum: false, channels: 8, messages_in_flight: 16, max_payload: 100_000, ..config };
    let id = SessionId { send: 0x1111, receive: RECEIVE };
    let mut session = Session::new(config, 1, id, Duration::ZERO);
    session.handle_path_up(Duration::ZERO, PATH, 1400).expect("within the limits");
    let (priority, order) = (Priority::Low, Order::Ordered);
    for len in [0, 10, 5000] {
        let head = Head { handler: HandlerId(1), args: [0; 4] };
        let message = Send { priority, order, head, payload: vec![1; len].into() };
        session.send(Duration::ZERO, ChannelId(1), message).expect("room");
    }
    session
}

/// The input is the pieces of several frames, apart by two newlines.
fn feed(input: &[u8], lossless: bool) {
    let mut session = session(lossless);
    let mut transmit = Transmit::new();
    let mut now = Duration::ZERO;
    let mut given = 0;
    let mut give = |ask: &Incoming| {
        let len = ask.len.unwrap_or(ask.at_least);
        assert!(len <= 100_000);
        given += 1;
        (given % 3 != 0).then(|| vec![0; len as usize])
    };
    let mut rest = input;
    let mut number = 0;
    while !rest.is_empty() {
        let end = rest.windows(2).position(|w| w == b"\n\n").unwrap_or(rest.len());
        let mut frame = build(0, RECEIVE, number, false, &[]);
        frame.extend(&rest[..end]);
        let len = frame.len() as u32;
        frame[4..8].copy_from_slice(&len.to_le_bytes());
        if lossless {
            if session.begin_frame(now, PATH, &frame, &mut give).is_ok() {
                session.body_mut(PATH).fill(7);
                let left = session.body_left(PATH);
                session.body_filled(now, PATH, left);
            }
        } else {
            let _ = session.handle_frame(now, PATH, &frame, &mut give);
        }
        number += 1;
        now += Duration::from_millis(3);
        session.handle_time(now);
        for _ in 0..20 {
            if !session.poll_transmit(now, PATH, &mut transmit) {
                break;
            }
        }
        while session.poll_event().is_some() {}
        assert!(session.buffers_held() <= 16);
        let _ = session.next_deadline();
        rest = rest.get(end + 2..).unwrap_or_default();
    }
}

fn target(input: &[u8]) {
    if let Ok(frame) = Frame::parse(input) {
        let header = frame.header;
        let pieces: Vec<_> = frame.pieces().collect();
        let printed = build(header.path, header.session, header.number, header.checksum.is_some(), &pieces);
        assert_eq!(printed, input);
    }
    let _ = Frame::parse_start(input);
    let _ = session(false).handle_frame(Duration::ZERO, PATH, input, &mut |_| None);
    feed(input, false);
    feed(input, true);
}

fn main() {
    let stream = StreamId::new(ChannelId(1), Priority::Low, Order::Ordered);
    let name = Name { stream, number: 0 };
    let head = Some(Head { handler: HandlerId(1), args: [1, 2, 3, 4] });
    let whole =
        Fragment { name, attempt: 0, offset: 0, len: 4, last: true, head, total: None, bytes: b"abcd" };
    let first = Fragment { last: false, total: Some(12), ..whole };
    let second = Fragment { offset: 4, last: false, head: None, ..whole };
    let all = build(0, RECEIVE, 1, false, &[Piece::Fragment(first), Piece::Fragment(second), Piece::Ping]);
    let sealed = build(0, RECEIVE, 2, true, &[Piece::Fragment(whole), Piece::Close]);
    let refusal = Piece::Refusal { name, attempt: 0 };
    let go = Piece::GoAhead { name, attempt: 0 };
    let small =
        build(0, RECEIVE, 3, false, &[refusal, go, Piece::Taken(name), Piece::Cancel(name), Piece::Pong]);
    let ack = b"\x02\x00\x01\x00\x01\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00";
    let several = [&all[28..], b"\n\n", &small[28..], b"\n\n", ack, b"\n\n", &sealed[28..]].concat();
    let seeds: [&[u8]; 6] = [&all, &sealed, &small, &several, &all[28..], ack];
    let words: [&[u8]; 12] = [
        b"\n\n",
        &all[28..],
        ack,
        b"\x01\x07\x04\x00\x00\x00\x00\x00",
        b"\x01\x02\x04\x00",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x03\x00\x04\x00\x02\x00\x00\x00",
        b"\x05\x00\x04\x00\x01\x00\x00\x00",
        b"\x06\x01\x04\x00\x01\x00\x00\x00",
        b"\x07\x00\x06\x00\x03\x00\x00\x00",
        b"\x08\x00\x00\x00",
    ];
    driver::run(&seeds, &words, target);
}
