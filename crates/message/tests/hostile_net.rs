//! Connections by hand against an acceptor, on loopback: each stranger gets exactly its error, the others go
//! on, and nothing much is allocated before the key is proved. The time is an argument, so that no test waits
//! for it.

use polyduct_message::link::hello::{
    Carrier, HandshakeRefusal, Header, Identity, Kind, HEADER, REFUSAL, VERSION,
};
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::acceptor::{Acceptor, Arrival, Limits, Visit, STRANGERS};
use polyduct_message::link::net::dial::Dial;
use polyduct_message::link::net::incarnations::Incarnations;
use polyduct_message::link::net::record::{Piece, RecordWriter};
use polyduct_message::link::net::socket::{listen, local_addr, KeepAlive};
use polyduct_message::link::net::stream::{FrameSink, StreamReader};
use polyduct_message::link::net::LinkFault;
use polyduct_message::link::noise::{Initiator, Terms};
use polyduct_message::link::seal::TAG;
use polyduct_message::LinkError;
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::OsError;
use polyduct_rig::memory::{most_bytes, Counting};
use rustix::net::{self, AddressFamily, SocketType};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const START: Duration = Duration::from_secs(1000);
const SECOND: Duration = Duration::from_secs(1);

fn terms(unit: u32, trusted: bool) -> Terms {
    let me = Identity { domain: 5, unit, incarnation: 9, features: 0, frame_limit: 1 << 20, index: 0 };
    Terms { key: JobKey::from_bytes([7; 32]).unwrap(), me, trusted, carrier: Carrier::Stream }
}

/// A acceptor of unit 1 with what came of its visitors.
struct Door {
    acceptor: Acceptor,
    addr: SocketAddr,
    now: Duration,
    turned_away: Vec<(SocketAddr, LinkFault)>,
    arrived: Vec<Arrival>,
}

impl Door {
    fn new(trusted: bool) -> Door {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = local_addr(&listener).unwrap();
        let acceptor = Acceptor::new(
            listener,
            terms(1, trusted),
            KeepAlive::default(),
            Limits::default(),
            Incarnations::default(),
        )
        .unwrap();
        Door { acceptor, addr, now: START, turned_away: Vec::new(), arrived: Vec::new() }
    }

    fn serve(&mut self) {
        let (arrived, turned_away) = (&mut self.arrived, &mut self.turned_away);
        self.acceptor
            .serve(self.now, |visit| match visit {
                Visit::Arrival(arrival) => arrived.push(*arrival),
                Visit::TurnedAway(addr, fault) => turned_away.push((addr, fault)),
            })
            .unwrap();
    }

    /// Serves whoever comes until `done`; a watchdog of real time ends it.
    fn until(&mut self, mut done: impl FnMut(&mut Door) -> bool) {
        let end = std::time::Instant::now() + 20 * SECOND;
        loop {
            self.serve();
            if done(self) {
                return;
            }
            assert!(std::time::Instant::now() < end, "watchdog; turned away: {:?}", self.turned_away);
            poll(&mut [PollItem::readable(&self.acceptor)], Some(Duration::from_millis(5))).unwrap();
        }
    }

    /// The error that this one gets.
    fn verdict(&mut self, of: &TcpStream) -> LinkFault {
        let addr = of.local_addr().unwrap();
        let mut found = None;
        self.until(|door| {
            found = door.turned_away.iter().find(|(a, _)| *a == addr).map(|(_, fault)| fault.clone());
            found.is_some()
        });
        found.unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(10 * SECOND)).unwrap();
        stream
    }

    /// Somebody of the job comes in, whatever the others do.
    fn good_peer(&mut self, trusted: bool) -> (RecordWriter, TcpStream, Arrival) {
        let (mut established, stream) = self.dial(terms(0, trusted)).expect("comes in");
        let before = self.arrived.len();
        self.until(|door| door.arrived.len() > before);
        let arrival = self.arrived.pop().unwrap();
        assert_eq!(
            (arrival.established.peer, established.peer),
            (terms(0, trusted).me, terms(1, trusted).me)
        );
        established.peer.index = 0;
        (RecordWriter::new(established.sealer), stream, arrival)
    }

    fn dial(
        &mut self,
        terms: Terms,
    ) -> Result<(polyduct_message::link::noise::Established, TcpStream), LinkFault> {
        let (now, patience) = (self.now, KeepAlive::default());
        let mut dial = Dial::new(&terms, 1, self.addr, patience, now, 5 * SECOND)?;
        let mut outcome = None;
        self.until(|door| {
            outcome = dial.serve(door.now).transpose();
            outcome.is_some()
        });
        outcome.unwrap().map(|established| (established, dial.into_stream()))
    }
}

fn first(terms: &Terms) -> Vec<u8> {
    Initiator::new(terms, 1).unwrap().message().bytes().to_vec()
}

fn all(mut stream: TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    // A reset ends it as well as an orderly end.
    let _ = stream.read_to_end(&mut got);
    got
}

fn refusal(got: &[u8]) -> HandshakeRefusal {
    assert_eq!(Header::decode(got).unwrap().kind, Kind::HandshakeRefusal);
    assert_eq!(got.len(), REFUSAL);
    HandshakeRefusal::decode(&got[HEADER..]).unwrap()
}

/// Sends some bytes, wants one error and one answer, and a good peer still comes in.
fn hostile(bytes: &[u8], error: LinkError, answer: Option<HandshakeRefusal>) {
    let mut door = Door::new(false);
    let mut stream = door.connect();
    stream.write_all(bytes).unwrap();
    assert_eq!(door.verdict(&stream), LinkFault::Peer(error));
    let got = all(stream);
    match answer {
        Some(answer) => assert_eq!(refusal(&got), answer),
        None => assert_eq!(got, []),
    }
    door.good_peer(false);
    assert!(door.arrived.is_empty());
}

fn field(what: &'static str, found: u64, expected: &'static str) -> LinkError {
    LinkError::BadField { what, found, expected }
}

fn magic(found: &[u8; 4]) -> LinkError {
    field("magic number", u32::from_le_bytes(*found).into(), "\"PDNT\"")
}

#[test]
fn a_port_scan_is_a_connection_that_ends() {
    let mut door = Door::new(false);
    for _ in 0..3 * STRANGERS {
        let stream = door.connect();
        let addr = stream.local_addr().unwrap();
        drop(stream);
        door.until(|d| d.turned_away.iter().any(|(a, f)| *a == addr && *f == LinkError::Closed.into()));
    }
    door.good_peer(false);
}

#[test]
fn other_protocols_are_known_by_their_first_bytes_and_get_no_answer() {
    hostile(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", magic(b"GET "), None);
    hostile(b"SSH-2.0-OpenSSH_9.2\r\n", magic(b"SSH-"), None);
    hostile(b"\x16\x03\x01\x02\x00", magic(b"\x16\x03\x01\x02"), None);
    hostile(b"PDUC\x01\x00\x00\x00", magic(b"PDUC"), None);
    hostile(b"X", magic(b"X\0\0\0"), None);
    hostile(&[0; 4096], magic(&[0; 4]), None);
    hostile(&[0xff; 100_000], magic(&[0xff; 4]), None);
}

#[test]
fn another_version_is_told_both_names() {
    for found in [0, VERSION - 1, VERSION + 1, 255, 65_535_u16] {
        let mut bytes = b"PDNT".to_vec();
        bytes.extend(found.to_le_bytes());
        let (mine, yours) = (VERSION.into(), found.into());
        let error = LinkError::Version { protocol: "polyduct's network link", expected: mine, found: yours };
        hostile(&bytes, error, Some(HandshakeRefusal::Version { mine, yours }));
    }
}

#[test]
fn every_field_of_the_header_is_checked_before_its_body_is_awaited() {
    let good = first(&terms(0, false));
    let change = |at: usize, bytes: &[u8]| {
        let mut message = good[..HEADER].to_vec();
        message[at..at + bytes.len()].copy_from_slice(bytes);
        message
    };
    hostile(&change(6, &[0]), field("kind of message", 0, "1 to 6"), None);
    hostile(&change(6, &[9]), field("kind of message", 9, "1 to 6"), None);
    hostile(&change(7, &[4]), field("flags", 4, "bits 0 and 1"), None);
    hostile(&change(7, &[0xff]), field("flags", 0xff, "bits 0 and 1"), None);
    let length = |found| field("length of a handshake message", found, "at most 128");
    hostile(&change(16, &[129, 0]), length(129), None);
    hostile(&change(16, &[0xff, 0xff]), length(65_535), None);
    hostile(&change(18, &[1, 0]), field("reserved bytes", 1, "0"), None);
    hostile(&change(18, &[0xff, 0xff]), field("reserved bytes", 65_535, "0"), None);
}

#[test]
fn what_is_whole_but_wrong_is_named() {
    let good = first(&terms(0, false));
    let kind = |kind: Kind| {
        let mut message = good.clone();
        message[6] = kind as u8;
        message
    };
    let turn = |what| LinkError::OutOfTurn { what };
    for k in [Kind::Answer, Kind::Confirm, Kind::HandshakeRefusal] {
        hostile(&kind(k), turn("a message that is not the first"), None);
    }
    let mut datagrams = good.clone();
    datagrams[7] = 2;
    hostile(&datagrams, field("carrier", 1, "the one it came over"), None);
    hostile(
        &first(&terms(0, true)),
        LinkError::Trust { mine: false },
        Some(HandshakeRefusal::Trust { mine: false }),
    );
    let mut trusted = good.clone();
    trusted[7] = 1;
    hostile(&trusted, LinkError::Trust { mine: false }, Some(HandshakeRefusal::Trust { mine: false }));
    let other = Terms { key: JobKey::from_hex("17".repeat(32)).unwrap(), ..terms(0, false) };
    hostile(&first(&other), LinkError::Unauthentic, Some(HandshakeRefusal::Key));
    let mut bytes = [7; 32];
    bytes[31] ^= 0x80;
    let bit = Terms { key: JobKey::from_bytes(bytes).unwrap(), ..terms(0, false) };
    hostile(&first(&bit), LinkError::Unauthentic, Some(HandshakeRefusal::Key));
    for at in [HEADER, HEADER + 31, HEADER + 32, good.len() - 1] {
        let mut changed = good.clone();
        changed[at] ^= 1;
        hostile(&changed, LinkError::Unauthentic, Some(HandshakeRefusal::Key));
    }
    let mut shorter = good[..HEADER + 40].to_vec();
    shorter[16] = 40;
    hostile(&shorter, LinkError::Unauthentic, Some(HandshakeRefusal::Key));
    let mut empty = good[..HEADER].to_vec();
    empty[16] = 0;
    hostile(&empty, LinkError::Unauthentic, Some(HandshakeRefusal::Key));
    let mut domain = terms(0, false);
    domain.me.domain = 6;
    hostile(&first(&domain), LinkError::WrongDomain, Some(HandshakeRefusal::Domain));
    let asked = Initiator::new(&terms(0, false), 8).unwrap().message().bytes().to_vec();
    let wrong = LinkError::WrongUnit { asked: 8, found: 1 };
    hostile(&asked, wrong, Some(HandshakeRefusal::Unit { mine: 1, asked: 8 }));
}

#[test]
fn lengths_of_two_to_the_64_say_nothing() {
    let mut bytes = b"PDNT\x02\x00\x01\x00".to_vec();
    bytes.extend([0xff; 4096]);
    hostile(&bytes, field("length of a handshake message", 65_535, "at most 128"), None);
}

#[test]
fn one_that_stops_at_any_byte_is_closed_when_it_ends_and_dropped_when_its_time_is_over() {
    let good = first(&terms(0, false));
    let mut door = Door::new(false);
    for len in 0..good.len() {
        let mut stream = door.connect();
        stream.write_all(&good[..len]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(door.verdict(&stream), LinkError::Closed.into(), "{len}");
    }
    for len in (0..good.len()).step_by(9) {
        let mut stream = door.connect();
        stream.write_all(&good[..len]).unwrap();
        door.until(|d| d.acceptor.strangers() == 1);
        assert_eq!(door.acceptor.next_deadline(), Some(door.now + 5 * SECOND));
        door.now += 5 * SECOND;
        let late = LinkError::Deadline { what: "the proof of the key", limit_ms: 5000 };
        assert_eq!(door.verdict(&stream), late.into(), "{len}");
    }
    door.good_peer(false);
}

#[test]
fn a_slow_drip_ends_at_the_deadline_and_holds_nobody_up() {
    let good = first(&terms(0, false));
    let mut door = Door::new(false);
    let mut slow = door.connect();
    let addr = slow.local_addr().unwrap();
    door.until(|d| d.acceptor.strangers() == 1);
    let mut sent = 0;
    while !door.turned_away.iter().any(|(a, _)| *a == addr) {
        assert!(sent < 50, "5 s at 10 bytes a second");
        slow.write_all(&good[sent..sent + 1]).unwrap();
        sent += 1;
        door.now += SECOND / 10;
        door.serve();
        if sent % 10 == 0 {
            door.good_peer(false);
        }
    }
    assert_eq!(
        door.verdict(&slow),
        LinkError::Deadline { what: "the proof of the key", limit_ms: 5000 }.into()
    );
    assert_eq!(all(slow), []);
}

#[test]
fn recorded_first_messages_are_known_and_keep_nobody_out() {
    let mut door = Door::new(false);
    // What a listener on the wire saw of good peers.
    let recorded: Vec<_> = (0..3)
        .map(|_| {
            let mut initiator = Initiator::new(&terms(0, false), 1).unwrap();
            let first = initiator.message().bytes().to_vec();
            let mut good = door.connect();
            good.write_all(&first).unwrap();
            door.until(|d| d.acceptor.strangers() == 1);
            let mut answer = vec![0; first.len()];
            good.read_exact(&mut answer).unwrap();
            let (_, confirm) = initiator.answer(&answer).unwrap();
            good.write_all(confirm.bytes()).unwrap();
            door.until(|d| d.arrived.pop().is_some());
            [&first, confirm.bytes()].concat()
        })
        .collect();
    let play = |door: &Door, at: usize| {
        let mut replay = door.connect();
        replay.write_all(&recorded[at % recorded.len()]).unwrap();
        replay
    };
    let mut crowd: Vec<_> = (0..328).map(|at| play(&door, at)).collect();
    let now = door.now;
    let mut dial = Dial::new(&terms(0, false), 1, door.addr, KeepAlive::default(), now, 5 * SECOND).unwrap();
    let mut in_the_end = None;
    door.until(|d| {
        in_the_end = in_the_end.take().or_else(|| dial.serve(d.now).expect("not refused"));
        // Those who were dropped come again.
        crowd.rotate_left(1);
        crowd[0] = play(d, 0);
        assert!(d.acceptor.strangers() <= 1, "but for the good one nobody is kept");
        !d.arrived.is_empty()
    });
    let replay = LinkError::OutOfTurn { what: "a first message that came before" };
    assert!(door.turned_away.iter().all(|(_, fault)| *fault == replay.clone().into()));
    let last = play(&door, 0);
    assert_eq!((door.verdict(&last), all(last).len()), (replay.into(), 0));
}

#[test]
fn first_messages_that_nobody_confirms_hold_a_place_for_a_second_where_others_wait() {
    let mut door = Door::new(false);
    // Recorded before this unit was there, or kept from it.
    let _crowd: Vec<_> = (0..328)
        .map(|_| {
            let mut stream = door.connect();
            stream.write_all(&first(&terms(0, false))).unwrap();
            stream
        })
        .collect();
    door.until(|d| d.acceptor.strangers() == STRANGERS && d.acceptor.is_full());
    let begun = door.now;
    let mut dial =
        Dial::new(&terms(0, false), 1, door.addr, KeepAlive::default(), begun, 60 * SECOND).unwrap();
    let mut in_the_end = None;
    door.until(|d| {
        in_the_end = in_the_end.take().or_else(|| dial.serve(d.now).expect("not refused"));
        if d.arrived.is_empty() && d.acceptor.is_full() {
            d.now = d.acceptor.next_deadline().unwrap().max(d.now);
        }
        !d.arrived.is_empty()
    });
    assert!(door.now - begun <= 328_u32.div_ceil(STRANGERS as u32) * SECOND, "{:?}", door.now - begun);
}

#[test]
fn own_bytes_thrown_back_are_noticed_by_both_sides() {
    // The side that connects meets a mirror.
    let mirror = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    mirror.set_nonblocking(false).unwrap();
    let addr = local_addr(&mirror).unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = mirror.accept().unwrap();
        let mut bytes = [0; 100];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
        all(stream)
    });
    let mut dial = Dial::new(&terms(0, false), 1, addr, KeepAlive::default(), START, 5 * SECOND).unwrap();
    let fault = loop {
        let (stream, writable) = dial.waits_for();
        let item = if writable { PollItem::writable(stream) } else { PollItem::readable(stream) };
        poll(&mut [item], Some(10 * SECOND)).unwrap();
        match dial.serve(START) {
            Ok(None) => continue,
            Ok(Some(_)) => panic!("a mirror is no peer"),
            Err(fault) => break fault,
        }
    };
    let what = "a message that only the side that connects sends";
    assert_eq!(fault, LinkError::OutOfTurn { what }.into());
    drop(dial);
    assert_eq!(echo.join().unwrap(), []);
}

#[test]
fn who_is_refused_learns_why() {
    let told = |change: &dyn Fn(&mut Terms)| {
        let mut peer = terms(0, false);
        change(&mut peer);
        Door::new(false).dial(peer).expect_err("refused")
    };
    assert_eq!(told(&|t| t.trusted = true), LinkError::Trust { mine: true }.into());
    assert_eq!(told(&|t| t.key = JobKey::from_bytes([8; 32]).unwrap()), LinkError::Unauthentic.into());
    assert_eq!(told(&|t| t.me.domain = 1), LinkError::WrongDomain.into());
}

#[test]
fn who_does_not_answer_is_given_up_in_time() {
    let silent = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = local_addr(&silent).unwrap();
    let mut dial = Dial::new(&terms(0, false), 1, addr, KeepAlive::default(), START, 5 * SECOND).unwrap();
    poll(&mut [PollItem::writable(dial.waits_for().0)], Some(10 * SECOND)).unwrap();
    assert!(dial.serve(START).unwrap().is_none());
    assert_eq!(dial.deadline(), START + 5 * SECOND);
    let late = LinkError::Deadline { what: "an answer", limit_ms: 5000 };
    assert_eq!(dial.serve(dial.deadline()).err(), Some(late.into()));
    drop(silent);
    let nobody =
        Dial::new(&terms(0, false), 1, addr, KeepAlive::default(), START, 5 * SECOND).and_then(|mut dial| {
            poll(&mut [PollItem::writable(dial.waits_for().0)], Some(10 * SECOND)).unwrap();
            dial.serve(START).map(|_| ())
        });
    assert_eq!(nobody, Err(OsError::NotListening { name: addr.to_string() }.into()));
}

#[test]
fn floods_of_silent_connections_do_not_keep_a_good_peer_out() {
    // From its own address, and from others: 1000, and 160 more each second.
    for from in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 9)] {
        let mut door = Door::new(false);
        let silent = |door: &Door| connect_from(from, door.addr);
        let mut flood: Vec<_> = (0..1000).map(|_| silent(&door)).collect();
        // The good one waits behind all of them.
        let begun = door.now;
        let mut dial =
            Dial::new(&terms(0, false), 1, door.addr, KeepAlive::default(), begun, 5 * SECOND).unwrap();
        let mut in_the_end = None;
        door.until(|d| {
            in_the_end = in_the_end.take().or_else(|| dial.serve(d.now).expect("not refused"));
            assert!(d.acceptor.strangers() <= STRANGERS);
            if d.arrived.is_empty() {
                d.now += SECOND / 10;
                (0..16).for_each(|_| flood.push(silent(d)));
            }
            !d.arrived.is_empty()
        });
        let took = door.now - begun;
        println!("a good peer came in after {took:?} beside {} silent ones from {from}", flood.len());
        assert!(took <= SECOND / 2, "{took:?}");
    }
}

#[test]
fn those_of_one_address_give_way_to_others_and_not_the_other_way_round() {
    let mut door = Door::new(false);
    let others: Vec<_> = (1..=8).map(|n| connect_from(Ipv4Addr::new(127, 0, 1, n), door.addr)).collect();
    door.until(|d| d.acceptor.strangers() == others.len());
    let _flood: Vec<_> = (0..3 * STRANGERS).map(|_| door.connect()).collect();
    door.until(|d| d.turned_away.len() == others.len() + 2 * STRANGERS);
    let of_the_flood = door.turned_away.iter().filter(|(from, _)| from.ip() == Ipv4Addr::LOCALHOST);
    assert_eq!(of_the_flood.count(), others.len() + 2 * STRANGERS);
    assert_eq!(door.acceptor.strangers(), STRANGERS);
    // The others are still there, to be heard.
    for mut other in others {
        other.write_all(b"GET /").unwrap();
        assert_eq!(door.verdict(&other), LinkFault::Peer(magic(b"GET ")));
    }
}

fn connect_from(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let fd = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&fd, &SocketAddr::from((from, 0))).unwrap();
    net::connect(&fd, &to).unwrap();
    fd.into()
}

#[test]
fn strangers_together_hold_less_than_128_kib() {
    let mut door = Door::new(false);
    door.good_peer(false); // What the libraries make once is not the strangers'.
                           // The dearest that strangers can be: each has shown a first message that somebody
                           // with the key made.
    let good: Vec<_> = (0..2 * STRANGERS).map(|_| first(&terms(0, false))).collect();
    let mut streams = Vec::with_capacity(2 * STRANGERS);
    let ((), most) = most_bytes(|| {
        for good in &good {
            let mut stream = TcpStream::connect(door.addr).unwrap();
            stream.write_all(good).unwrap();
            streams.push(stream);
            door.serve();
        }
        door.until(|d| d.acceptor.strangers() == STRANGERS);
    });
    println!("{STRANGERS} strangers hold at most {most} bytes");
    assert!(most < 128 << 10, "{most} bytes");
    // One stranger alone, silent or with the worst length it can claim.
    drop(streams);
    door.until(|d| d.acceptor.strangers() == 0);
    door.turned_away.clear();
    let (_stream, most) = most_bytes(|| {
        let mut stream = TcpStream::connect(door.addr).unwrap();
        stream.write_all(b"PDNT\x02\x00\x01\x00\0\0\0\0\x01\0\0\0\x80\0\0\0").unwrap();
        door.until(|d| d.acceptor.strangers() == 1);
        stream
    });
    assert!(most < 4096, "{most} bytes");
}

/// Collects frames.
#[derive(Default)]
struct Frames(Vec<Vec<u8>>);

impl FrameSink for Frames {
    fn frame(&mut self, frame: &[u8]) -> Result<(), LinkError> {
        self.0.push(frame.to_vec());
        Ok(())
    }
    fn begin(&mut self, _: &[u8], _: usize) -> Result<bool, LinkError> {
        Ok(false)
    }
    fn body(&mut self) -> &mut [u8] {
        &mut []
    }
    fn filled(&mut self, _: usize) -> Result<(), LinkError> {
        Ok(())
    }
}

fn read_until(
    stream: &TcpStream,
    reader: &mut StreamReader,
    sink: &mut Frames,
    frames: usize,
) -> Result<(), LinkFault> {
    while sink.0.len() < frames {
        assert_eq!(poll(&mut [PollItem::readable(stream)], Some(10 * SECOND)).unwrap(), 1, "watchdog");
        while reader.read(stream, sink)? {}
    }
    Ok(())
}

/// One good frame comes, then `attack` on the bytes that the writer made; what the reader says, and that only
/// this connection is over.
fn attack_records(trusted: bool, attack: impl FnOnce(&mut Vec<Vec<u8>>)) -> LinkFault {
    let mut door = Door::new(trusted);
    let (established, mut wire) = door.dial(terms(0, trusted)).unwrap();
    door.until(|d| !d.arrived.is_empty());
    let Arrival { stream, established: mine, .. } = door.arrived.pop().unwrap();
    let (mut reader, mut sink) = (StreamReader::new(mine.opener, 1 << 20), Frames::default());
    let mut sealer = established.sealer;
    let mut records: Vec<Vec<u8>> = (0..4_u8)
        .map(|i| {
            let mut frame = 100_u32.to_le_bytes().to_vec();
            frame.extend([i; 100]);
            if trusted {
                return frame;
            }
            let mut record = vec![0; 2 + 104 + TAG];
            record[..2].copy_from_slice(&(104 + TAG as u16).to_le_bytes());
            sealer.seal(&frame, &mut record[2..]).unwrap();
            record
        })
        .collect();
    wire.write_all(&records.remove(0)).unwrap();
    read_until(&stream, &mut reader, &mut sink, 1).unwrap();
    attack(&mut records);
    wire.write_all(&records.concat()).unwrap();
    let _ = wire.shutdown(std::net::Shutdown::Write);
    let fault = read_until(&stream, &mut reader, &mut sink, usize::MAX).unwrap_err();
    assert!(
        sink.0.iter().enumerate().all(|(i, frame)| frame[..] == [i as u8; 100]),
        "nothing false came through"
    );
    door.good_peer(trusted);
    fault
}

/// Both have the acceptor's answer before either has confirmed: who comes second hears that the place is
/// taken, in place of its first record.
#[test]
fn of_two_lives_that_knock_at_once_one_comes_in_and_the_other_is_told() {
    for trusted in [true, false] {
        let mut door = Door::new(trusted);
        let mut knocks = [1, 2].map(|incarnation| {
            let mut terms = terms(0, trusted);
            terms.me.incarnation = incarnation;
            let dial = Dial::new(&terms, 1, door.addr, KeepAlive::default(), START, 10 * SECOND).unwrap();
            (dial, incarnation)
        });
        // Their first messages, and the answers, which neither has read.
        knocks.iter_mut().for_each(|(dial, _)| {
            door.until(|_| {
                assert!(dial.serve(START).unwrap().is_none());
                !dial.waits_for().1
            })
        });
        door.until(|door| door.acceptor.strangers() == 2);
        for (dial, _) in &knocks {
            assert_eq!(poll(&mut [PollItem::readable(dial.waits_for().0)], Some(10 * SECOND)).unwrap(), 1);
        }
        let [(first, one), (second, _)] = knocks
            .map(|(mut dial, incarnation)| {
                let established = dial.serve(START).unwrap().expect("the answer is there");
                (dial.into_stream(), established, incarnation)
            })
            .map(|(stream, established, incarnation)| ((stream, established), incarnation));
        door.until(|door| door.arrived.len() + door.turned_away.len() == 2);
        assert_eq!(door.arrived[0].established.peer.incarnation, one);
        assert!(matches!(door.turned_away[..], [(_, LinkFault::Peer(LinkError::Taken { unit: 0 }))]));
        drop(first);
        let (stream, established) = second;
        let mut reader = StreamReader::new(established.opener, 1 << 20);
        reader.may_be_refused(0);
        let told = read_until(&stream, &mut reader, &mut Frames::default(), 1).unwrap_err();
        assert_eq!(told, LinkFault::Peer(LinkError::Taken { unit: 0 }), "trusted: {trusted}");
    }
}

#[test]
fn records_that_are_not_as_they_were_sent_end_their_connection_only() {
    let closed = LinkFault::System(OsError::PeerClosed);
    let unauthentic = LinkFault::Peer(LinkError::Unauthentic);
    assert_eq!(attack_records(false, |_| {}), closed);
    assert_eq!(attack_records(false, |r| r[0][50] ^= 1), unauthentic, "changed");
    assert_eq!(attack_records(false, |r| *r[0].last_mut().unwrap() ^= 0x80), unauthentic, "tag");
    assert_eq!(attack_records(false, |r| r.insert(1, r[0].clone())), unauthentic, "replayed");
    assert_eq!(attack_records(false, |r| r.swap(0, 1)), unauthentic, "reordered");
    assert_eq!(attack_records(false, |r| drop(r.remove(0))), unauthentic, "left out");
    assert_eq!(attack_records(false, |r| r[0].truncate(60)), unauthentic, "the next one's bytes fill it up");
    assert_eq!(attack_records(false, |r| r.truncate(0)), closed);
    assert_eq!(attack_records(false, |r| r[2].truncate(60)), closed, "cut off at the end");
    let length = |found| LinkFault::Peer(field("length of a record", found, "17 to 65535"));
    assert_eq!(attack_records(false, |r| r[0][..2].copy_from_slice(&[0, 0])), length(0));
    assert_eq!(attack_records(false, |r| r[0][..2].copy_from_slice(&[16, 0])), length(16));
    assert_eq!(attack_records(false, |r| r[0] = vec![0xff; 70_000]), unauthentic, "a giant of noise");
}

#[test]
fn lengths_beyond_the_limit_end_their_connection_only() {
    let limit = "1 up to the limit that the handshake named";
    for found in [0, (1 << 20) + 1, 1 << 31, u32::MAX] {
        let fault = attack_records(true, |r| r[0][..4].copy_from_slice(&found.to_le_bytes()));
        assert_eq!(fault, LinkFault::Peer(field("length of a frame", found.into(), limit)));
    }
    let fault = attack_records(true, |r| r[0] = vec![0xff; 64]);
    assert_eq!(fault, LinkFault::Peer(field("length of a frame", u32::MAX.into(), limit)), "2^64 - 1");
}

#[test]
fn a_life_that_was_lost_does_not_come_back_but_a_replacement_may() {
    let mut door = Door::new(false);
    let lost = terms(0, false);
    door.acceptor.incarnations.bury(0, lost.me.incarnation);
    assert_eq!(door.dial(lost.clone()).err(), Some(LinkError::Dead { unit: 0 }.into()));
    let mut replacement = lost;
    replacement.me.incarnation += 1;
    assert!(door.dial(replacement).is_ok());
    door.until(|d| d.arrived.len() == 1);
}

#[test]
fn out_of_descriptors_the_newcomer_is_refused_and_the_others_go_on() {
    const CHILD: &str = "POLYDUCT_TEST_FEW_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        // The limit is of the whole process.
        let me = std::env::current_exe().unwrap();
        let name = "out_of_descriptors_the_newcomer_is_refused_and_the_others_go_on";
        let args = [name, "--exact", "--nocapture"];
        let output = std::process::Command::new(me).args(args).env(CHILD, "1").output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("refused in the child"), "{text}");
        return;
    }
    let mut door = Door::new(true);
    let (mut writer, wire, arrival) = door.good_peer(true);
    let mut newcomer = door.connect();
    let mut second = door.connect();
    // Nothing is left: each further descriptor fails.
    let mut hoard = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        hoard.push(file);
        assert!(hoard.len() < 1 << 20, "a limit of descriptors");
    }
    let addr = newcomer.local_addr().unwrap();
    door.until(|d| d.turned_away.iter().any(|(a, f)| *a == addr && *f == LinkError::Busy.into()));
    let mut got = vec![0; REFUSAL];
    newcomer.read_exact(&mut got).unwrap();
    assert_eq!(refusal(&got), HandshakeRefusal::Busy);
    second.read_exact(&mut got).unwrap();
    // The other one goes on.
    writer.push(5, [Piece::Copy(b"hello")].into_iter()).unwrap();
    assert!(writer.write(&wire).unwrap());
    let (mut reader, mut sink) = (StreamReader::new(arrival.established.opener, 1 << 20), Frames::default());
    read_until(&arrival.stream, &mut reader, &mut sink, 1).unwrap();
    assert_eq!(sink.0, [b"hello"]);
    drop(hoard);
    door.good_peer(true);
    println!("refused in the child");
}
