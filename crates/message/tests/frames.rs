//! Hostile frames: each gets its exact error, and the session goes on working for good ones.

use polyduct_message::engine::{
    Begun, Broken, Config, Event, Incoming, PathId, Send, Session, SessionId, Transmit,
};
use polyduct_message::wire::{build, checksum, Fragment, Frame, Name, Piece, StreamId, MAX_ACK_RANGES};
use polyduct_message::{ChannelId, HandlerId, Head, LinkError, MessageError, Order, Priority};
use polyduct_rig::memory::{most_bytes, Counting};
use std::time::Duration;

#[global_allocator]
static COUNTING: Counting = Counting;

const PATH: PathId = PathId(0);
const NOW: Duration = Duration::from_millis(5);

fn id() -> SessionId {
    SessionId { send: 0x1111, receive: 0x2222 }
}

fn config() -> Config {
    Config {
        messages_in_flight: 16,
        channels: 8,
        max_payload: 100_000,
        max_ranges: 3,
        checksum: false,
        ..Config::datagram()
    }
}

fn stream_id() -> StreamId {
    StreamId::new(ChannelId(1), Priority::Low, Order::Ordered)
}

fn head() -> Head {
    Head { handler: HandlerId(9), args: [1, 2, 3, 4] }
}

fn whole(number: u32, bytes: &[u8]) -> Fragment<'_> {
    let name = Name { stream: stream_id(), number };
    Fragment {
        name,
        attempt: 0,
        offset: 0,
        len: bytes.len() as u32,
        last: true,
        head: Some(head()),
        total: None,
        bytes,
    }
}

fn part(number: u32, offset: u64, total: u64, bytes: &[u8]) -> Fragment<'_> {
    let last = offset + bytes.len() as u64 == total;
    let total = (!last).then_some(total);
    Fragment { offset, last, total, ..whole(number, bytes) }
}

/// A session under attack, with the number of buffers asked for.
struct Victim {
    session: Session<Vec<u8>>,
    asked: usize,
    buffers: usize,
    number: u64,
    messages: Vec<Vec<u8>>,
}

impl Victim {
    fn new(config: Config) -> Victim {
        let mut session = Session::new(config, 7, id(), Duration::ZERO);
        session.handle_path_up(Duration::ZERO, PATH, 1400).unwrap();
        Victim { session, asked: 0, buffers: usize::MAX, number: 0, messages: Vec::new() }
    }

    fn take(&mut self, frame: &[u8]) -> Result<(), LinkError> {
        let (asked, buffers) = (&mut self.asked, self.buffers);
        let mut give = |ask: &Incoming| {
            *asked += 1;
            let len = ask.len.unwrap_or(ask.at_least) as usize;
            assert!(len <= 100_000, "a buffer of {len} bytes was asked for");
            (*asked <= buffers).then(|| vec![0; len])
        };
        let result = self.session.handle_frame(NOW, PATH, frame, &mut give);
        while let Some(event) = self.session.poll_event() {
            if let Event::Message(message) = event {
                self.messages.push(message.payload.unwrap_or_default());
            }
        }
        result
    }

    fn frame(&mut self, pieces: &[Piece<'_>]) -> Vec<u8> {
        self.number += 1;
        build(0, id().receive, self.number, self.session.config().checksum, pieces)
    }

    fn pieces(&mut self, pieces: &[Piece<'_>]) -> Result<(), LinkError> {
        let frame = self.frame(pieces);
        self.take(&frame)
    }

    /// A good message on a stream of its own still arrives.
    fn lives(&mut self) {
        let good = StreamId::new(ChannelId(7), Priority::High, Order::Any);
        self.buffers = usize::MAX;
        let fragment = Fragment { name: Name { stream: good, number: 0 }, ..whole(0, b"still here") };
        let before = self.messages.len();
        self.number = self.number.max(1000);
        assert_eq!(self.pieces(&[Piece::Fragment(fragment)]), Ok(()));
        assert_eq!(self.messages[before..], [b"still here".to_vec()]);
    }
}

/// The frame that is bent in most cases: one whole message of four bytes.
fn good() -> Vec<u8> {
    build(0, id().receive, 500, false, &[Piece::Fragment(whole(0, b"abcd"))])
}

/// Bytes of [`good`]: header 28, fragment header 12, head 20, payload 4.
const FRAGMENT: usize = 28;

fn bent(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = good();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

fn cut(len: usize) -> Vec<u8> {
    good()[..len].to_vec()
}

/// With the length field made to fit.
fn shortened(len: usize) -> Vec<u8> {
    let mut frame = cut(len);
    frame[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    frame
}

/// A frame of raw piece bytes.
fn raw(pieces: &[u8]) -> Vec<u8> {
    let mut frame = build(0, id().receive, 501, false, &[]);
    frame.extend(pieces);
    let len = frame.len() as u32;
    frame[4..8].copy_from_slice(&len.to_le_bytes());
    frame
}

fn ack(count: u16, largest: u64, first: u32, more: &[u32]) -> Vec<u8> {
    let mut bytes = vec![2, 0];
    bytes.extend(count.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(largest.to_le_bytes());
    bytes.extend(first.to_le_bytes());
    more.iter().for_each(|m| bytes.extend(m.to_le_bytes()));
    raw(&bytes)
}

fn truncated(what: &'static str, at: usize, expected: u64, found: u64) -> LinkError {
    LinkError::Truncated { what, at, expected, found }
}

fn bad(what: &'static str, found: u64, expected: &'static str) -> LinkError {
    LinkError::BadField { what, found, expected }
}

const ZERO: &str = "unused bits 0";
const MESSAGE: &str = "message";

#[test]
fn bent_bytes_get_their_exact_error() {
    let many: Vec<u32> = std::iter::repeat_n([1, 0], MAX_ACK_RANGES + 1).flatten().collect();
    let unknown = |what, found| LinkError::Unknown { what, found };
    let sum = checksum([&bent(1, &[1])[..]].into_iter());
    let cases: Vec<(&str, Vec<u8>, LinkError)> = vec![
        // -- the header --
        ("nothing at all", vec![], truncated("frame header", 0, 4, 0)),
        ("one byte", cut(1), truncated("frame header", 0, 4, 1)),
        ("half a header", cut(14), truncated("frame header", 8, 8, 6)),
        ("a header without its checksum", cut(24), truncated("frame header", 24, 4, 0)),
        ("version 0", bent(0, &[0]), LinkError::Version { protocol: "frames", expected: 1, found: 0 }),
        ("version 2", bent(0, &[2]), LinkError::Version { protocol: "frames", expected: 1, found: 2 }),
        (
            "a web browser",
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            LinkError::Version { protocol: "frames", expected: 1, found: 71 },
        ),
        ("TLS", vec![22, 3, 1, 2, 0], LinkError::Version { protocol: "frames", expected: 1, found: 22 }),
        ("an unknown flag", bent(1, &[2]), bad("frame flags", 2, ZERO)),
        ("all flags", bent(1, &[0xff]), bad("frame flags", 0xfe, ZERO)),
        ("a used spare byte", bent(3, &[1]), bad("byte 3 of the frame", 1, ZERO)),
        ("another path", bent(2, &[9]), bad("path of a frame", 9, "the path that it came over")),
        ("length 0", bent(4, &[0; 4]), bad("frame length", 0, "28 to 2^24")),
        ("length below a header", bent(4, &27u32.to_le_bytes()), bad("frame length", 27, "28 to 2^24")),
        ("length 2^32 - 1", bent(4, &[0xff; 4]), bad("frame length", 0xffff_ffff, "28 to 2^24")),
        (
            "length 2^24 + 1",
            bent(4, &0x100_0001u32.to_le_bytes()),
            bad("frame length", 0x100_0001, "28 to 2^24"),
        ),
        ("length one less", bent(4, &63u32.to_le_bytes()), bad("frame length", 63, "the bytes that came")),
        ("length one more", bent(4, &65u32.to_le_bytes()), truncated("frame", 0, 65, 64)),
        ("a former session", bent(8, &0x3333u64.to_le_bytes()), unknown("session", 0x3333)),
        ("its own frame thrown back", bent(8, &id().send.to_le_bytes()), unknown("session", id().send)),
        ("a checksum nobody asked for", bent(24, &[1]), bad("unused checksum", 1, "0")),
        ("a wrong checksum", bent(1, &[1]), LinkError::Checksum { expected: sum, found: 0 }),
        // -- pieces --
        ("a frame cut in its bytes", cut(62), truncated("frame", 0, 64, 62)),
        ("a fragment without bytes", shortened(60), truncated("fragment bytes", 32, 4, 0)),
        ("a fragment without head", shortened(40), truncated("head", 12, 4, 0)),
        ("half a fragment header", shortened(34), truncated("fragment", 4, 4, 2)),
        ("piece of kind 0", bent(FRAGMENT, &[0]), bad("kind of a piece", 0, "1 to 11")),
        ("piece of kind 12", bent(FRAGMENT, &[12]), bad("kind of a piece", 12, "1 to 11")),
        ("piece of kind 255", bent(FRAGMENT, &[255]), bad("kind of a piece", 255, "1 to 11")),
        ("fragment with unknown flags", bent(FRAGMENT + 1, &[0x17]), bad("fragment flags", 0x10, ZERO)),
        (
            "first fragment without head",
            bent(FRAGMENT + 1, &[3]),
            bad("fragment flags", 3, "a head in the first fragment"),
        ),
        (
            "length beside the end",
            bent(FRAGMENT + 1, &[15]),
            bad("fragment flags", 15, "a length only beside a head and before the end"),
        ),
        (
            "length without head",
            raw(&[&[1, 8, 4, 0][..], &[0; 8], &7u64.to_le_bytes(), &[0; 16]].concat()),
            bad("fragment flags", 8, "a length only beside a head and before the end"),
        ),
        ("stream 16384", bent(FRAGMENT + 2, &[0, 0x40]), bad("stream", 16384, "less than 16384")),
        ("stream 65535", bent(FRAGMENT + 2, &[0xff, 0xff]), bad("stream", 65535, "less than 16384")),
        (
            "fragment length 2^24 - 1",
            bent(FRAGMENT + 8, &[0xff; 3]),
            truncated("fragment bytes", 32, 0xff_ffff, 4),
        ),
        (
            "no bytes and no end",
            raw(&[&[1, 5, 4, 0][..], &[0; 28]].concat()),
            bad("fragment length", 0, "bytes, or the end of the payload"),
        ),
        (
            "offset 0 written out",
            raw(&[&[1, 2, 4, 0][..], &[0; 8], &[0; 8]].concat()),
            bad("fragment offset", 0, "1 to 2^48"),
        ),
        (
            "offset 2^64 - 1",
            raw(&[&[1, 2, 4, 0][..], &[0; 8], &[0xff; 8]].concat()),
            bad("fragment offset", u64::MAX, "1 to 2^48"),
        ),
        (
            "end beyond 2^48",
            raw(&[&[1, 2, 4, 0][..], &[0; 4], &[1, 0, 0, 0], &(1u64 << 48).to_le_bytes(), &[0]].concat()),
            bad("end of a fragment", (1 << 48) + 1, "at most 2^48"),
        ),
        (
            "payload length 2^64 - 1",
            raw(&[&[1, 13, 4, 0][..], &[0; 4], &[1, 0, 0, 0], &[0; 20], &[0xff; 8], &[0]].concat()),
            bad("payload length", u64::MAX, "beyond the fragment, at most 2^48"),
        ),
        (
            "payload shorter than the fragment",
            raw(&[&[1, 13, 4, 0][..], &[0; 4], &[1, 0, 0, 0], &[0; 20], &1u64.to_le_bytes(), &[0]].concat()),
            bad("payload length", 1, "beyond the fragment, at most 2^48"),
        ),
        ("receipt cut short", raw(&[3, 0, 4, 0]), truncated("taken", 0, 8, 4)),
        ("receipt with a used spare byte", raw(&[3, 1, 4, 0, 0, 0, 0, 0]), bad("taken", 1, ZERO)),
        (
            "refusal of stream 65535",
            raw(&[5, 0, 0xff, 0xff, 0, 0, 0, 0]),
            bad("stream", 65535, "less than 16384"),
        ),
        ("ping with content", raw(&[8, 0, 1, 0]), bad("ping", 1, ZERO)),
        ("pong with content", raw(&[9, 0, 0, 1]), bad("pong", 256, ZERO)),
        ("close with content", raw(&[10, 1, 0, 0]), bad("close", 1, ZERO)),
        ("abort cut short", raw(&[11, 0, 0]), truncated("abort", 0, 4, 3)),
        ("rubbish behind a good piece", raw(&[8, 0, 0, 0, 99]), bad("kind of a piece", 99, "1 to 11")),
        // -- acknowledgements --
        ("ack of 65 ranges", ack(65, 1 << 40, 0, &many), bad("ranges of an ack", 65, "at most 64")),
        ("ack without its ranges", ack(2, 1 << 40, 0, &[1, 0]), truncated("ack ranges", 20, 16, 8)),
        (
            "ack below number 0",
            ack(0, 3, 4, &[]),
            bad("length of an ack range", 4, "no more than the numbers below"),
        ),
        ("ack with a gap of 0", ack(1, 9, 0, &[0, 0]), bad("gap of an ack", 0, "at least 1")),
        (
            "ack with a gap below 0",
            ack(1, 9, 0, &[9, 0]),
            bad("gap of an ack", 9, "no more than the numbers below"),
        ),
        (
            "ack with a range below 0",
            ack(1, 9, 0, &[1, 8]),
            bad("length of an ack range", 8, "no more than the numbers below"),
        ),
        (
            "ack of frames never sent",
            ack(0, 0, 0, &[]),
            bad("acknowledged frame", 0, "the number of a frame that was sent"),
        ),
        (
            "ack of frame 2^64 - 1",
            ack(0, u64::MAX, 0, &[]),
            bad("acknowledged frame", u64::MAX, "the number of a frame that was sent"),
        ),
        ("ack for a path that is not", raw(&[&[2, 5, 0, 0][..], &[0; 16]].concat()), unknown("path", 5)),
        // -- meaning --
        ("channel beyond the agreed", bent(FRAGMENT + 2, &[32, 0]), unknown("channel", 8)),
        (
            "message number far ahead",
            bent(FRAGMENT + 4, &17u32.to_le_bytes()),
            bad("message number", 17, "no more messages in flight than agreed"),
        ),
        (
            "message number 2^31 - 1",
            bent(FRAGMENT + 4, &0x7fff_ffffu32.to_le_bytes()),
            bad("message number", 0x7fff_ffff, "no more messages in flight than agreed"),
        ),
        (
            "payload beyond the session's limit",
            raw(&[&[1, 13, 4, 0][..], &[0; 4], &[1, 0, 0, 0], &[0; 20], &100_001u64.to_le_bytes(), &[0]]
                .concat()),
            bad("payload length", 100_001, "at most the session's limit"),
        ),
        (
            "offset beyond the session's limit",
            raw(&[&[1, 2, 4, 0][..], &[0; 4], &[1, 0, 0, 0], &100_000u64.to_le_bytes(), &[0]].concat()),
            bad("payload length", 100_001, "at most the session's limit"),
        ),
        ("receipt for what was not sent", raw(&[3, 0, 4, 0, 1, 0, 0, 0]), unknown(MESSAGE, 1)),
        ("receipt of one not sent", raw(&[4, 0, 4, 0, 0, 0, 0, 0]), unknown(MESSAGE, 0)),
        ("refusal of what was not sent", raw(&[5, 0, 4, 0, 0, 0, 0, 0]), unknown(MESSAGE, 0)),
        ("go-ahead for what was not sent", raw(&[6, 0, 4, 0, 0, 0, 0, 0]), unknown(MESSAGE, 0)),
        (
            "cancel far ahead",
            raw(&[7, 0, 4, 0, 16, 0, 0, 0]),
            bad("message number", 16, "no more messages in flight than agreed"),
        ),
    ];
    assert!(cases.len() >= 50);
    for (name, frame, expected) in cases {
        let mut victim = Victim::new(config());
        let found = victim.take(&frame);
        assert_eq!(found, Err(expected), "{name}");
        assert_eq!(victim.asked, 0, "{name}: a buffer was asked for");
        assert!(victim.messages.is_empty(), "{name}");
        assert_eq!(victim.session.counters().bad_frames, 1, "{name}");
        victim.lives();
    }
}

#[test]
fn every_cut_and_every_flipped_bit_is_survived() {
    let frame = build(0, id().receive, 9, true, &[Piece::Ping, Piece::Fragment(part(0, 0, 9, b"abcd"))]);
    for len in 0..frame.len() {
        let mut victim = Victim::new(Config { checksum: true, ..config() });
        assert!(victim.take(&frame[..len]).is_err(), "cut to {len}");
        victim.lives();
    }
    for bit in 0..frame.len() * 8 {
        let mut bent = frame.clone();
        bent[bit / 8] ^= 1 << (bit % 8);
        let mut victim = Victim::new(Config { checksum: true, ..config() });
        assert!(victim.take(&bent).is_err(), "bit {bit}");
        assert_eq!(victim.asked, 0);
        victim.lives();
    }
}

#[test]
fn a_frame_without_checksum_is_refused_where_one_is_due() {
    let mut victim = Victim::new(Config { checksum: true, ..config() });
    assert_eq!(victim.take(&good()), Err(bad("frame flags", 0, "a checksum")));
    victim.lives();
}

#[test]
fn a_replayed_frame_does_nothing() {
    let mut victim = Victim::new(config());
    let frame = victim.frame(&[Piece::Fragment(whole(0, b"once"))]);
    for _ in 0..5 {
        assert_eq!(victim.take(&frame), Ok(()));
    }
    assert_eq!(victim.messages, [b"once".to_vec()]);
    // Under a new number it is a message that is done.
    assert_eq!(victim.pieces(&[Piece::Fragment(whole(0, b"once"))]), Ok(()));
    assert_eq!((victim.messages.len(), victim.asked), (1, 1));
    victim.lives();
}

#[test]
fn fragments_that_contradict_each_other_are_refused() {
    type Bend = fn(Fragment<'static>) -> Fragment<'static>;
    let cases: [(&str, Bend, LinkError); 4] = [
        (
            "another head",
            |f| Fragment { head: Some(Head { handler: HandlerId(10), ..head() }), ..f },
            bad("head of a message", 10, "what its other fragments say"),
        ),
        (
            "another length",
            |f| Fragment { total: Some(13), ..f },
            bad("payload length", 13, "what its other fragments say"),
        ),
        (
            "an earlier end",
            |f| Fragment { last: true, total: None, ..f },
            bad("payload length", 8, "what its other fragments say"),
        ),
        (
            "bytes beyond the end",
            |f| Fragment { offset: 10, head: None, total: None, ..f },
            bad("payload length", 14, "what its other fragments say"),
        ),
    ];
    for (name, bend, expected) in cases {
        let mut victim = Victim::new(config());
        assert_eq!(victim.pieces(&[Piece::Fragment(part(0, 0, 12, b"0123"))]), Ok(()));
        let second = bend(part(0, 4, 12, b"4567"));
        assert_eq!(victim.pieces(&[Piece::Fragment(second)]), Err(expected), "{name}");
        // The honest rest still completes it.
        assert_eq!(victim.pieces(&[Piece::Fragment(part(0, 4, 12, b"456789ab"))]), Ok(()));
        assert_eq!(victim.messages, [b"0123456789ab".to_vec()], "{name}");
        victim.lives();
    }
}

#[test]
fn overlapping_fragments_are_harmless() {
    let mut victim = Victim::new(config());
    for (offset, bytes) in [(0, &b"01234"[..]), (3, b"3456"), (0, b"0123456"), (2, b"23456789")] {
        assert_eq!(victim.pieces(&[Piece::Fragment(part(0, offset, 10, bytes))]), Ok(()));
    }
    assert_eq!(victim.messages, [b"0123456789".to_vec()]);
    victim.lives();
}

#[test]
fn holes_are_limited() {
    let mut victim = Victim::new(config());
    for at in 0..50 {
        let offset = 10 + at * 10;
        assert_eq!(victim.pieces(&[Piece::Fragment(part(0, offset, 1000, b"x"))]), Ok(()));
    }
    // Three are kept; the frames of the others count as lost. All the rest, in order, completes it.
    let bytes: Vec<u8> = vec![b'x'; 1000];
    assert_eq!(victim.pieces(&[Piece::Fragment(part(0, 0, 1000, &bytes[..500]))]), Ok(()));
    assert_eq!(victim.pieces(&[Piece::Fragment(part(0, 500, 1000, &bytes[500..]))]), Ok(()));
    assert_eq!(victim.messages, [bytes]);
    victim.lives();
}

#[test]
fn open_messages_are_limited_over_all_lanes() {
    let mut victim = Victim::new(config());
    let mut refused = 0;
    for channel in 0..8 {
        for number in 0..16 {
            let stream = StreamId::new(ChannelId(channel), Priority::Low, Order::Ordered);
            let fragment = Fragment { name: Name { stream, number }, ..part(0, 0, 50_000, b"x") };
            match victim.pieces(&[Piece::Fragment(fragment)]) {
                Ok(()) => {}
                Err(error) => {
                    refused += 1;
                    let expected = "no more messages in flight than agreed";
                    assert_eq!(error, bad("message number", number.into(), expected));
                }
            }
        }
    }
    assert_eq!((victim.asked, refused), (16, 112));
    assert_eq!(victim.session.buffers_held(), 16);
}

#[test]
fn a_refused_message_asks_for_no_buffer_until_it_is_sent_again() {
    let mut victim = Victim::new(config());
    victim.buffers = 0;
    for _ in 0..100 {
        assert_eq!(victim.pieces(&[Piece::Fragment(whole(0, b"abcd"))]), Ok(()));
    }
    assert_eq!(victim.asked, 1);
    victim.buffers = usize::MAX;
    let again = Fragment { attempt: 1, ..whole(0, b"abcd") };
    assert_eq!(victim.pieces(&[Piece::Fragment(again)]), Ok(()));
    assert_eq!(victim.messages, [b"abcd".to_vec()]);
    victim.lives();
}

#[test]
fn a_fragment_without_head_opens_nothing() {
    let mut victim = Victim::new(config());
    let stray = Fragment { head: None, total: None, ..part(0, 10, 50, b"x") };
    assert_eq!(victim.pieces(&[Piece::Fragment(stray)]), Ok(()));
    assert_eq!((victim.asked, victim.session.counters().fragments_spare), (0, 1));
    victim.lives();
}

#[test]
fn answers_to_a_flood_are_bounded() {
    let mut victim = Victim::new(config());
    victim.buffers = 0;
    // Refusals, pings and holes in the numbers, without ever taking an answer.
    for n in 0..20_000u32 {
        victim.number += 1;
        let fragment = Fragment { attempt: n as u8, ..whole(n % 15, b"abcd") };
        assert_eq!(victim.pieces(&[Piece::Fragment(fragment), Piece::Ping]), Ok(()));
    }
    let (mut transmit, mut sent) = (Transmit::new(), 0);
    while victim.session.poll_transmit(NOW, PATH, &mut transmit) {
        sent += transmit.len_bytes();
        assert!(sent < 10_000, "{sent} bytes and more were waiting");
    }
    victim.lives();
}

/// A peer says that it has all of a message whose sender still hands it over.
#[test]
fn a_receipt_for_what_is_still_handed_over_ends_it() {
    let config = Config { queue_bytes: 100, ..config() };
    for given_up in [true, false] {
        let mut victim = Victim::new(config.clone());
        let send = |payload: &[u8]| Send {
            priority: Priority::Low,
            order: Order::Any,
            head: head(),
            payload: payload.to_vec().into(),
        };
        let session = &mut victim.session;
        // One before it is on its way, so it is not forgotten at once.
        session.send(NOW, ChannelId(1), send(&[1; 40])).unwrap();
        let second = session.begin(NOW, ChannelId(1), send(&[2; 40]), None).unwrap();
        let mut transmit = Transmit::new();
        while session.poll_transmit(NOW, PATH, &mut transmit) {}
        let stream = StreamId::new(ChannelId(1), Priority::Low, Order::Any);
        victim.pieces(&[Piece::Done(Name { stream, number: 1 })]).unwrap();
        let session = &mut victim.session;
        assert_eq!(session.bytes_kept(Priority::Low), 40);
        assert_eq!(
            session.extend(second, vec![3; 10].into()),
            Err(MessageError::NoMessage { token: second })
        );
        match given_up {
            true => assert_eq!(session.abandon(NOW, second), Err(MessageError::NoMessage { token: second })),
            false => assert_eq!(session.finish(second), Err(MessageError::NoMessage { token: second })),
        }
        assert_eq!(session.bytes_kept(Priority::Low), 40);
        victim.pieces(&[Piece::Done(Name { stream, number: 0 })]).unwrap();
        let session = &mut victim.session;
        assert_eq!(session.bytes_kept(Priority::Low), 0);
        session.send(NOW, ChannelId(2), send(&[4; 100])).unwrap();
        victim.lives();
    }
}

#[test]
fn an_abort_ends_the_session_and_nothing_more() {
    let mut victim = Victim::new(config());
    let frame = victim.frame(&[Piece::Abort { code: 77 }, Piece::Fragment(whole(0, b"late"))]);
    let mut give = |_: &Incoming| -> Option<Vec<u8>> { panic!("after the end") };
    assert_eq!(victim.session.handle_frame(NOW, PATH, &frame, &mut give), Ok(()));
    assert_eq!(victim.session.poll_event(), Some(Event::Broken(Broken::Aborted(77))));
    assert_eq!(victim.session.poll_event(), None);
    let after = LinkError::OutOfTurn { what: "frame after the end" };
    assert_eq!(victim.take(&good()), Err(after));
}

#[test]
fn a_path_that_is_down_or_unknown_takes_nothing() {
    let mut victim = Victim::new(config());
    let frame = build(3, id().receive, 1, false, &[Piece::Ping]);
    let result = victim.session.handle_frame(NOW, PathId(3), &frame, &mut |_| None);
    assert_eq!(result, Err(LinkError::Unknown { what: "path", found: 3 }));
    victim.session.handle_path_down(NOW, PATH);
    assert_eq!(victim.take(&good()), Err(LinkError::Unknown { what: "path", found: 0 }));
    victim.session.handle_path_up(NOW, PATH, 1400).unwrap();
    victim.lives();
}

// -- links that carry a stream --

fn stream() -> Victim {
    Victim::new(Config { lossless: true, ..config() })
}

#[test]
fn streams_take_no_acks_and_no_number_twice() {
    let mut victim = stream();
    let frame = victim.frame(&[Piece::Ping]);
    assert_eq!(victim.take(&frame), Ok(()));
    assert_eq!(victim.take(&frame), Err(bad("frame number", 1, "one that did not come")));
    let acks = LinkError::OutOfTurn { what: "ack on a path that loses nothing" };
    assert_eq!(victim.take(&ack(0, 0, 0, &[])), Err(acks));
    victim.lives();
}

#[test]
fn large_fragments_are_read_straight_into_their_place() {
    let payload: Vec<u8> = (0..50_000u32).map(|i| (i * 7) as u8).collect();
    let mut victim = stream();
    let (first, second) = payload.split_at(30_000);
    let frames = [
        victim.frame(&[Piece::Ping, Piece::Fragment(part(0, 0, 50_000, first))]),
        victim.frame(&[Piece::Fragment(Fragment { head: None, ..part(0, 30_000, 50_000, second) })]),
        // Nobody needs this one: its bytes go anywhere.
        victim.frame(&[Piece::Fragment(part(0, 0, 50_000, first))]),
    ];
    for (frame, wanted) in frames.iter().zip([true, true, false]) {
        let mut give = |ask: &Incoming| Some(vec![0; ask.len.unwrap_or(0) as usize]);
        let begun = victim.session.begin_frame(NOW, PATH, &frame[..100], &mut give).unwrap();
        let mut at = 100;
        assert_eq!(begun, Begun::Needs(frame.len() - at));
        // Another frame cannot come between.
        let early = victim.session.begin_frame(NOW, PATH, &frames[1], &mut give);
        assert_eq!(early, Err(LinkError::OutOfTurn { what: "frame within a frame" }));
        while at < frame.len() {
            let end = (at + 7001).min(frame.len());
            let body = victim.session.body_mut(PATH);
            assert_eq!(!body.is_empty(), wanted);
            if wanted {
                assert_eq!(body.len(), frame.len() - at);
                body[..end - at].copy_from_slice(&frame[at..end]);
            }
            victim.session.body_filled(NOW, PATH, end - at);
            at = end;
        }
        assert_eq!(victim.session.body_left(PATH), 0);
    }
    let event = victim.session.poll_event();
    assert!(matches!(event, Some(Event::Message(m)) if m.payload.as_ref() == Some(&payload)));
    victim.lives();
}

/// The fragments of a message over two paths: the first is under way on one while the others come over
/// another.
fn two_paths(others: impl FnOnce(&mut Victim, &mut dyn FnMut(&Incoming) -> Option<Vec<u8>>)) -> Vec<u8> {
    let mut victim = stream();
    victim.session.handle_path_up(NOW, PathId(1), 1400).unwrap();
    let mut give = |ask: &Incoming| Some(vec![0xee; ask.len.unwrap_or(ask.at_least) as usize]);
    let frame = victim.frame(&[Piece::Fragment(unknown(0, 0, &[1; 30_000], false))]);
    let begun = victim.session.begin_frame(NOW, PATH, &frame[..20_000], &mut give).unwrap();
    assert_eq!(begun, Begun::Needs(frame.len() - 20_000));
    others(&mut victim, &mut give);
    let left = victim.session.body_left(PATH);
    let body = victim.session.body_mut(PATH);
    let rest = body.len();
    body.copy_from_slice(&frame[frame.len() - rest..]);
    victim.session.body_filled(NOW, PATH, left);
    while let Some(event) = victim.session.poll_event() {
        if let Event::Message(m) = event {
            return m.payload.unwrap();
        }
    }
    // What was begun did not count: it comes again.
    let again = build(1, id().receive, 90, false, &[Piece::Fragment(unknown(1, 0, &[1; 30_000], false))]);
    victim.session.handle_frame(NOW, PathId(1), &again, &mut give).unwrap();
    match victim.session.poll_event() {
        Some(Event::Message(m)) => m.payload.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// A fragment of a message whose sender does not say how long it is before the end.
fn unknown(attempt: u8, offset: u64, bytes: &[u8], last: bool) -> Fragment<'_> {
    let whole = part(0, offset, 50_000, bytes);
    Fragment { attempt, total: None, last, head: whole.head, ..whole }
}

#[test]
fn a_longer_buffer_gets_what_another_path_has_begun_too() {
    let payload = two_paths(|victim, give| {
        let fragment = Piece::Fragment(unknown(0, 30_000, &[2; 20_000], true));
        let frame = build(1, id().receive, 1, false, &[fragment]);
        victim.session.handle_frame(NOW, PathId(1), &frame, give).unwrap();
    });
    assert!(payload == [vec![1; 30_000], vec![2; 20_000]].concat());
}

#[test]
fn what_a_path_has_begun_does_not_count_for_a_buffer_that_came_later() {
    let payload = two_paths(|victim, give| {
        // There is no longer buffer now: the message is refused, and comes again.
        let frame = |number, attempt, offset, bytes, last| {
            let fragment = Piece::Fragment(unknown(attempt, offset, bytes, last));
            build(1, id().receive, number, false, &[fragment])
        };
        let refused = frame(1, 0, 30_000, &[2; 20_000], true);
        victim.session.handle_frame(NOW, PathId(1), &refused, &mut |_| None).unwrap();
        let again = frame(2, 1, 30_000, &[2; 20_000], true);
        victim.session.handle_frame(NOW, PathId(1), &again, give).unwrap();
    });
    assert!(payload == [vec![1; 30_000], vec![2; 20_000]].concat());
}

#[test]
fn a_stream_frame_cut_elsewhere_is_refused() {
    let frame = good();
    for len in 0..60 {
        let mut victim = stream();
        let result = victim.session.begin_frame(NOW, PATH, &frame[..len], &mut |_| Some(vec![0; 4]));
        assert!(matches!(result, Err(LinkError::Truncated { .. })), "cut at {len}: {result:?}");
        victim.lives();
    }
}

#[test]
fn what_goes_out_parses_and_prints_to_itself() {
    let mut session: Session<Vec<u8>> = Session::new(config(), 7, id(), Duration::ZERO);
    session.handle_path_up(Duration::ZERO, PATH, 1400).unwrap();
    for number in 0..10 {
        let payload = vec![number; 700 * usize::from(number)].into();
        let (priority, order) = (Priority::Low, Order::Ordered);
        session.send(NOW, ChannelId(1), Send { priority, order, head: head(), payload }).unwrap();
    }
    let mut transmit = Transmit::new();
    let mut frames = 0;
    while session.poll_transmit(NOW, PATH, &mut transmit) {
        let mut bytes = Vec::new();
        transmit.write_to(&mut bytes);
        assert_eq!(bytes.len(), transmit.len_bytes());
        let frame = Frame::parse(&bytes).unwrap();
        let pieces: Vec<_> = frame.pieces().collect();
        let header = frame.header;
        assert_eq!(build(header.path, header.session, header.number, false, &pieces), bytes);
        frames += 1;
    }
    assert!(frames > 10);
}

/// A receiver answers each cancellation, and the answers wait for a frame: of one message there is one.
#[test]
fn a_message_given_up_again_and_again_takes_no_memory() {
    let mut victim = Victim::new(config());
    let cancel = Piece::Cancel(Name { stream: stream_id(), number: 3 });
    let pieces = vec![cancel; 100];
    victim.pieces(&pieces).unwrap();
    let (done, most) = most_bytes(|| (0..2000).all(|_| victim.pieces(&pieces).is_ok()));
    assert!(done && most < 64 << 10, "{most} bytes for 200,000 cancellations of one message");
}

#[test]
fn the_last_number_of_a_frame_is_refused() {
    let mut victim = Victim::new(config());
    let frame = build(0, id().receive, u64::MAX, false, &[Piece::Ping]);
    let refused = LinkError::BadField { what: "frame number", found: u64::MAX, expected: "below 2^64 - 1" };
    assert_eq!(victim.take(&frame), Err(refused));
}
