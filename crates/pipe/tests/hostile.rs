//! Processes of the same user that break every rule are turned away by a typed refusal, and the pipe opens
//! and works all the same.

mod common;

use common::raw::{answer, array, connect, data, hello, name_of, reader, LEN};
use common::{reader_options, unique, writer_options};
use polyduct_layout::{Dataset, ElemType};
use polyduct_message::handshake::Incoming;
use polyduct_os::process::ProcessId;
use polyduct_os::segment::{Access, Segment};
use polyduct_os::socket::{Conn, Listener, Sent, MESSAGE_LIMIT};
use polyduct_os::sync::{Line, Ordering};
use polyduct_pipe::wire::{self, FromHost, Hello, Role, ToHost, Welcome, PROTOCOL};
use polyduct_pipe::{Expect, Given, Mismatch, Options, PipeError, Policy, Reader, Refusal, Side, Writer};
use polyduct_port::{PortError, UnitName};
use polyduct_rig::Random;
use polyduct_slots::geometry::{Geometry, Sizes};
use polyduct_slots::{Begin, Lines, Next, Slots};
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, Instant};

// -- sockets --

/// Sends what no well-behaved peer can: any length, any number of descriptors. A full socket buffer is waited
/// for.
fn send_raw(conn: &Conn, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
    match rustix::net::sendmsg(conn, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
        // A host that has refused and hung up takes no more.
        Ok(_) | Err(rustix::io::Errno::PIPE) => {}
        Err(e) => panic!("{} bytes: {e}", bytes.len()),
    }
}

/// The one refusal that must come, with nothing after it.
fn refusal(conn: &Conn) -> Refusal {
    match answer(conn) {
        Some(FromHost::Refused(why)) => {
            assert_eq!(answer(conn), None, "something follows a refusal");
            why
        }
        other => panic!("{other:?} instead of a refusal"),
    }
}

fn bytes_of(message: &ToHost) -> Vec<u8> {
    let (a, b) = Conn::pair().unwrap();
    assert_eq!(PROTOCOL.encode(message).unwrap().send(&a, &[]), Ok(Sent::Done));
    let mut bytes = vec![0; MESSAGE_LIMIT];
    let n = rustix::net::recvmsg(
        &b,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut rustix::net::RecvAncillaryBuffer::new(&mut []),
        rustix::net::RecvFlags::empty(),
    );
    bytes.truncate(n.unwrap().bytes);
    bytes
}

fn writer(unit: u32) -> Hello {
    let gives = wire::Gives::Arrays(vec![array(LEN)]);
    hello(Role::Writer { gives, depth: 2, policy: Policy::Block, readers: 1 }, unit, 2)
}

fn memfd(len: u64, reserved: bool, sealed: bool) -> OwnedFd {
    let fd = rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    if reserved {
        rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, len).unwrap();
    }
    if sealed {
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
    }
    fd
}

/// Everything that can be said wrongly to unit 0, one connection each, and what must come back.
fn say_everything_wrong(pipe: &str) {
    let raw = |bytes: &[u8], fds: &[BorrowedFd<'_>]| {
        let conn = connect(pipe);
        send_raw(&conn, bytes, fds);
        refusal(&conn)
    };
    let say = |message: ToHost, fds: &[BorrowedFd<'_>]| raw(&bytes_of(&message), fds);
    let good = bytes_of(&ToHost::Hello(reader(0, 1)));

    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 8], &[0xff; 300], b"P"] {
        assert_eq!(raw(garbage, &[]), Refusal::Malformed);
    }
    // Cut anywhere, and longer than any message may be.
    for len in 1..good.len() {
        assert_eq!(raw(&good[..len], &[]), Refusal::Malformed, "cut to {len} bytes");
    }
    assert_eq!(raw(&vec![0x55; MESSAGE_LIMIT + 40_000], &[]), Refusal::Malformed);
    let mut endless = good[..8].to_vec();
    endless.extend([0; 2]);
    endless.extend([0xff; 60]);
    assert_eq!(raw(&endless, &[]), Refusal::Malformed, "lengths beyond all memory");
    // Another version is told both.
    let mut other = good.clone();
    other[4] = 77;
    let why = raw(&other, &[]);
    assert_eq!(why, Refusal::Version { expected: PROTOCOL.version.into(), found: 77 });
    let words = why.to_string();
    assert!(words.contains("77") && words.contains(&format!("version {}", PROTOCOL.version)), "{words}");
    // More descriptors than a message may carry.
    let one = memfd(4096, true, true);
    assert_eq!(raw(&good, &[one.as_fd(); 40]), Refusal::Malformed);
    // A body that should lie in a segment.
    let mut elsewhere = good[..8].to_vec();
    elsewhere[6] = 1;
    assert_eq!(raw(&elsewhere, &[]), Refusal::Malformed);
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert_eq!(raw(&elsewhere, &[file.as_fd()]), Refusal::Malformed);
    for (len, reserved, sealed) in [(4096, true, false), (4096, false, true), (9 << 20, true, true)] {
        assert_eq!(raw(&elsewhere, &[memfd(len, reserved, sealed).as_fd()]), Refusal::Malformed);
    }
    // Out of turn.
    assert_eq!(say(ToHost::Ready, &[]), Refusal::Malformed);
    assert_eq!(say(ToHost::Segments(vec![0; 60_000]), &[]), Refusal::Malformed);
    // Units that cannot be.
    for (unit, units) in [(1, 1), (7, 2), (0, 0), (0, 4097), (u32::MAX, u32::MAX)] {
        assert_eq!(say(ToHost::Hello(reader(unit, units)), &[]), Refusal::UnitRange { unit, units });
    }
    // Survivors of a pipe that never was.
    let welcome = Welcome {
        id: [0; 16],
        program: u32::MAX,
        writers: 2,
        readers: vec![u32::MAX],
        depth: 2,
        policy: Policy::Block,
        arrays: vec![array(1 << 60)],
        writers_wait: true,
        readers_wait: vec![false],
        reader_programs: vec!["r".into()],
        reader_takes: vec![wire::Takes::One(wire::Wish::layout("block"))],
    };
    let survivor = Hello { rejoin: Some(welcome), ..reader(0, 1) };
    assert_eq!(say(ToHost::Hello(survivor.clone()), &[]), Refusal::Over);
    assert_eq!(say(ToHost::Hello(survivor), &[one.as_fd()]), Refusal::Over);
}

/// Slots that a second writer unit may not hand over.
fn hand_over_bad_slots(pipe: &str) {
    let len = 2 * 4096;
    let good = memfd(len, true, true);
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let bad: [(&str, OwnedFd); 5] = [
        ("not sealed", memfd(len, true, false)),
        ("too short", memfd(len / 2, true, true)),
        ("too long", memfd(len * 2, true, true)),
        ("not reserved", memfd(len, false, true)),
        ("a file", file.into()),
    ];
    for (what, fd) in &bad {
        let conn = connect(pipe);
        send_raw(&conn, &bytes_of(&ToHost::Hello(writer(1))), &[fd.as_fd()]);
        match refusal(&conn) {
            Refusal::Terms(Mismatch::Segment { unit, error }) => {
                assert_eq!(unit, UnitName { side: Side::Writer, unit: 1 });
                assert!(!error.is_empty());
            }
            other => panic!("slots that are {what}: {other}"),
        }
    }
    let conn = connect(pipe);
    send_raw(&conn, &bytes_of(&ToHost::Hello(writer(1))), &[]);
    assert!(matches!(refusal(&conn), Refusal::Terms(Mismatch::Segment { .. })));
    // A unit that comes in good order and then breaks it loses its place again.
    let conn = connect(pipe);
    send_raw(&conn, &bytes_of(&ToHost::Hello(writer(1))), &[good.as_fd()]);
    send_raw(&conn, &bytes_of(&ToHost::Hello(writer(1))), &[good.as_fd()]);
    assert_eq!(refusal(&conn), Refusal::Malformed);
}

fn more_descriptors() {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

#[test]
fn a_pipe_opens_and_works_among_enemies() {
    more_descriptors();
    let pipe = unique("enemies");
    std::thread::scope(|s| {
        let write = |unit| {
            let mut w =
                Writer::open(&pipe, &Given::Dataset(data()), "block", &writer_options(unit, 2)).unwrap();
            for step in 0..40 {
                w.write(&[step; LEN as usize / 2]).unwrap();
            }
            w.close().unwrap();
        };
        s.spawn(move || write(0));
        // Strangers that say nothing, and some that say half and wait.
        let silent: Vec<Conn> = (0..10).map(|_| connect(&pipe)).collect();
        say_everything_wrong(&pipe);
        hand_over_bad_slots(&pipe);
        // More than unit 0 listens to: the longest silent go.
        let crowd: Vec<Conn> = (0..300).map(|_| connect(&pipe)).collect();
        let start = Instant::now();
        s.spawn(move || write(1));
        let mut r = Reader::open(&pipe, "*", &Expect::default(), &reader_options("r0", 0, 1)).unwrap();
        assert!(start.elapsed() < Duration::from_secs(5), "opening took {:?}", start.elapsed());
        assert_eq!(answer(&silent[0]), None, "the longest silent was not dropped");
        let mut part = [0; LEN as usize];
        for step in 0..40 {
            if step == 20 {
                // The same again while it runs. (There is no place free for a writer now.)
                say_everything_wrong(&pipe);
            }
            assert_eq!(r.read(&mut part).unwrap(), Some(u64::from(step)));
            assert_eq!(part, [step; LEN as usize]);
        }
        assert_eq!(r.read(&mut part).unwrap(), None);
        drop((silent, crowd));
    });
}

#[test]
fn who_was_let_in_and_not_heard_yet_is_told_that_the_pipe_does_not_open() {
    let pipe = unique("unheard");
    let options = Options { open_timeout: Duration::from_secs(20), ..writer_options(0, 2) };
    std::thread::scope(|s| {
        let host = s.spawn(|| Writer::open(&pipe, &Given::Dataset(data()), "block", &options).map(drop));
        // Its hello is still on its way when the reader that came after it dies.
        let (silent, dies) = (connect(&pipe), connect(&pipe));
        send_raw(&dies, &bytes_of(&ToHost::Hello(reader(0, 1))), &[]);
        drop(dies);
        let why = refusal(&silent);
        assert!(matches!(&why, Refusal::Lost { unit, .. } if unit.side == Side::Reader(0)), "{why}");
        host.join().unwrap().unwrap_err();
    });
}

#[test]
fn a_member_that_asks_and_never_listens_holds_nobody() {
    let pipe = unique("deaf");
    std::thread::scope(|s| {
        let pipe = &pipe;
        let host = s.spawn(move || {
            let options = Options { readers: 2.into(), ..writer_options(0, 1) };
            Writer::open(pipe, &Given::Dataset(data()), "block", &options).map(drop)
        });
        let deaf = connect(pipe);
        let hello = Hello { program: "deaf".into(), ..reader(0, 1) };
        send_raw(&deaf, &bytes_of(&ToHost::Hello(hello)), &[]);
        let honest = s.spawn(move || {
            Reader::open(pipe, "*", &Expect::default(), &reader_options("r0", 0, 1)).map(drop)
        });
        assert!(matches!(answer(&deaf), Some(FromHost::Welcome(_))));
        // Asks for segments until nothing more goes in, and reads no answer.
        let ask = PROTOCOL.encode(&ToHost::Segments(vec![0; 64])).unwrap();
        let (mut asked, mut full) = (0, Instant::now());
        while full.elapsed() < Duration::from_millis(100) {
            if ask.send(&deaf, &[]).unwrap() == Sent::Done {
                (asked, full) = (asked + 1, Instant::now());
            }
            std::thread::yield_now();
            assert!(asked < 5000, "unit 0 takes questions without end");
        }
        drop(deaf);
        for error in [host.join().unwrap().unwrap_err(), honest.join().unwrap().unwrap_err()] {
            assert!(matches!(error, PipeError::Port(PortError::PeerLost { .. })), "{error}");
        }
    });
}

// -- the other way round: a host that breaks the rules --

#[test]
fn a_false_host_gets_a_typed_error_from_readers() {
    let good = Welcome {
        id: [0; 16],
        program: 0,
        writers: 1,
        readers: vec![1],
        depth: 2,
        policy: Policy::Block,
        arrays: vec![array(LEN)],
        writers_wait: false,
        readers_wait: vec![false],
        reader_programs: vec!["r".into()],
        reader_takes: vec![wire::Takes::One(wire::Wish::layout("*"))],
    };
    let len =
        Slots::len_bytes(&Sizes { writers: 1, readers: vec![1], depth: 2, policy: Policy::Block, words: 0 })
            as u64;
    let with = |change: &dyn Fn(&mut Welcome)| {
        let mut w = good.clone();
        change(&mut w);
        w
    };
    let cases: Vec<(&str, Welcome, Option<OwnedFd>)> = vec![
        ("no control segment", good.clone(), None),
        ("control not sealed", good.clone(), Some(memfd(len, true, false))),
        ("control too short", good.clone(), Some(memfd(len - 64, true, true))),
        ("control too long", good.clone(), Some(memfd(len + 64, true, true))),
        ("control not reserved", good.clone(), Some(memfd(len, false, true))),
        ("no such program", with(&|w| w.program = 1), Some(memfd(len, true, true))),
        ("far program", with(&|w| w.program = u32::MAX), Some(memfd(len, true, true))),
        ("no writers", with(&|w| w.writers = 0), Some(memfd(len, true, true))),
        ("too many writers", with(&|w| w.writers = u32::MAX), Some(memfd(len, true, true))),
        ("too many readers", with(&|w| w.readers = vec![u32::MAX; 300]), Some(memfd(len, true, true))),
        ("no depth", with(&|w| w.depth = 0), Some(memfd(len, true, true))),
        ("endless depth", with(&|w| w.depth = u32::MAX), Some(memfd(len, true, true))),
        ("a bad layout", with(&|w| w.arrays[0].layout = "blok".into()), Some(memfd(len, true, true))),
        ("a bad dtype", with(&|w| w.arrays[0].elem = "f7".into()), Some(memfd(len, true, true))),
        ("a huge shape", with(&|w| w.arrays[0].shape = vec![u64::MAX; 3]), Some(memfd(len, true, true))),
        ("other dims", with(&|w| w.arrays[0].shape = vec![4; 40]), Some(memfd(len, true, true))),
        ("no arrays", with(&|w| w.arrays.clear()), Some(memfd(len, true, true))),
        ("a nameless one of two", with(&|w| w.arrays.push(array(1))), Some(memfd(len, true, true))),
        (
            "two of one name",
            with(&|w| w.arrays = vec![wire::Array { name: "u".into(), ..array(1) }; 2]),
            Some(memfd(len, true, true)),
        ),
    ];
    for (what, welcome, control) in &cases {
        let error = with_false_host(|conn| {
            let fds: Vec<_> = control.iter().map(AsFd::as_fd).collect();
            assert_eq!(
                PROTOCOL.encode(&FromHost::Welcome(welcome.clone())).unwrap().send(conn, &fds),
                Ok(Sent::Done)
            );
        });
        let typed = matches!(
            error,
            PipeError::Port(PortError::BadPeer { .. } | PortError::Layout { .. } | PortError::Bundle { .. })
        );
        assert!(typed, "{what}: {error}");
    }
    // And one that refuses in an odd way, or talks nonsense.
    let last = Refusal::Terms(Mismatch::TooManyPrograms { expected: u32::MAX, found: String::new() });
    let error = with_false_host(|conn| {
        assert_eq!(
            PROTOCOL.encode(&FromHost::Refused(last.clone())).unwrap().send(conn, &[]),
            Ok(Sent::Done)
        );
    });
    assert!(error.to_string().contains("one too many"), "{error}");
    let error = with_false_host(|conn| send_raw(conn, b"PDUC\x09\x00\x00\x01", &[]));
    let words = error.to_string();
    assert!(
        words.contains("version 9") && words.contains(&format!("version {}", PROTOCOL.version)),
        "{words}"
    );
    let error = with_false_host(|conn| send_raw(conn, &[0x41; 70_000], &[]));
    assert!(matches!(error, PipeError::Port(PortError::BadPeer { .. })), "{error}");
    let error = with_false_host(|conn| {
        let noted = PROTOCOL.encode(&FromHost::Noted { writers_wait: false });
        assert_eq!(noted.unwrap().send(conn, &[]), Ok(Sent::Done));
    });
    assert!(matches!(error, PipeError::Port(PortError::PeerLost { .. })), "{error}");
}

/// What a reader says of a host that answers its hello like this and hangs up.
fn with_false_host(say: impl FnOnce(&Conn)) -> PipeError {
    let pipe = unique("false");
    let listener = Listener::bind(&name_of(&pipe)).unwrap();
    std::thread::scope(|s| {
        let pipe = &pipe;
        let reader = s
            .spawn(move || Reader::open(pipe, "*", &Expect::default(), &reader_options("r", 0, 1)).map(drop));
        let conn = loop {
            match listener.accept().unwrap() {
                Some(conn) => break conn,
                None => std::thread::yield_now(),
            }
        };
        let mut buffer = vec![0; MESSAGE_LIMIT];
        while !matches!(
            PROTOCOL.receive::<ToHost>(&conn, &mut buffer),
            Incoming::Message(ToHost::Hello(_), _)
        ) {
            std::thread::yield_now();
        }
        say(&conn);
        drop((conn, listener));
        reader.join().unwrap().unwrap_err()
    })
}

// -- shared memory --

/// One thing that a unit does, with what it saw last.
#[derive(Clone, Copy, Debug)]
enum Act {
    Scribble(usize, usize, u64),
    Begin(u32, u64),
    Publish(u32),
    Skip(u32, u64),
    Next(u32, u32, u64),
    Release(u32, u32, u64),
    Resume(UnitName),
    Look,
    CloseWriter(u32, u64),
    CloseReader(u32, u32, u64),
}

fn act() -> impl Strategy<Value = Act> {
    let word = prop_oneof![
        Just(0),
        Just(u64::MAX),
        Just(1 << 63),
        Just(u64::MAX >> 1),
        0u64..5,
        any::<u64>(),
        (0u32..64).prop_map(|b| 1 << b),
    ];
    let n = || prop_oneof![4 => 0u64..2, 4 => 0u64..12, 1 => Just((1 << 41) - 1), 1 => Just(1 << 41)];
    let unit = prop_oneof![
        (0u32..3).prop_map(|unit| UnitName { side: Side::Writer, unit }),
        (0u32..2, 0u32..2).prop_map(|(p, unit)| UnitName { side: Side::Reader(p), unit }),
    ];
    prop_oneof![
        6 => (any::<usize>(), 0usize..8, word).prop_map(|(l, w, v)| Act::Scribble(l, w, v)),
        2 => (0u32..3, n()).prop_map(|(u, n)| Act::Begin(u, n)),
        2 => (0u32..3).prop_map(Act::Publish),
        1 => (0u32..3, n()).prop_map(|(u, n)| Act::Skip(u, n)),
        2 => (0u32..2, 0u32..2, n()).prop_map(|(p, u, k)| Act::Next(p, u, k)),
        2 => (0u32..2, 0u32..2, n()).prop_map(|(p, u, k)| Act::Release(p, u, k)),
        1 => unit.prop_map(Act::Resume),
        1 => Just(Act::Look),
        1 => (0u32..3, n()).prop_map(|(u, n)| Act::CloseWriter(u, n)),
        1 => (0u32..2, 0u32..2, n()).prop_map(|(p, u, k)| Act::CloseReader(p, u, k)),
    ]
}

/// Small or smaller: in the smaller one a scribble is likely to hit what the next call looks at.
fn sizes(policy: Policy, depth: u32, small: bool) -> Sizes {
    let (writers, readers) = if small { (1, vec![1]) } else { (3, vec![2, 2]) };
    Sizes { writers, readers, depth, policy, words: 0 }
}

/// Places of programs that come and go: two are taken, by as many units as the programs of others have.
fn seated(policy: Policy, depth: u32, small: bool) -> (Sizes, Arc<[Line]>, Slots) {
    let others = sizes(policy, depth, small);
    let open = Sizes { readers: vec![], ..others.clone() };
    let (lines, slots) = heap(&open);
    for (program, &units) in (0..).zip(&others.readers) {
        slots.seat(program, units);
        slots.enter(program);
    }
    (others, lines, slots)
}

fn heap(sizes: &Sizes) -> (Arc<[Line]>, Slots) {
    let lines: Arc<[Line]> = (0..Geometry::new(sizes.clone()).lines()).map(|_| Line::new()).collect();
    (lines.clone(), Slots::new(Lines::Heap(lines), sizes.clone()))
}

fn scribble(lines: &[Line], line: usize, word: usize, value: u64) {
    let line = &lines[line % lines.len()];
    match line.w.get(word) {
        Some(w) => w.store(value, Ordering::Relaxed),
        None => {
            line.bell.store(value as u32, Ordering::Relaxed);
            line.sleepers.store((value >> 32) as u32, Ordering::Relaxed);
        }
    }
}

const POLICIES: [Policy; 4] = [Policy::Block, Policy::Latest, Policy::DropOldest, Policy::DropNewest];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(30_000) })]
    /// Whatever the memory holds, every call returns, and what it returns lies in bounds.
    #[test]
    fn any_memory_is_input(
        policy in 0usize..4,
        depth in 1u32..4,
        small in any::<bool>(),
        open in any::<bool>(),
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let (sizes, lines, slots) = match open && POLICIES[policy] == Policy::Latest {
            true => seated(POLICIES[policy], depth, small),
            false => {
                let sizes = sizes(POLICIES[policy], depth, small);
                let (lines, slots) = heap(&sizes);
                (sizes, lines, slots)
            }
        };
        let writers = sizes.writers;
        let of = |p: u32, u: u32| (p % sizes.readers.len() as u32, u % sizes.readers[0]);
        let (mut filling, mut reading) = ([None; 3], [[None; 2]; 2]);
        for act in acts {
            let act = match act {
                Act::Begin(u, n) => Act::Begin(u % writers, n),
                Act::Publish(u) => Act::Publish(u % writers),
                Act::Skip(u, n) => Act::Skip(u % writers, n),
                Act::CloseWriter(u, n) => Act::CloseWriter(u % writers, n),
                Act::Next(p, u, k) => Act::Next(of(p, u).0, of(p, u).1, k),
                Act::Release(p, u, k) => Act::Release(of(p, u).0, of(p, u).1, k),
                Act::CloseReader(p, u, k) => Act::CloseReader(of(p, u).0, of(p, u).1, k),
                Act::Resume(UnitName { side: Side::Writer, unit }) => {
                    Act::Resume(UnitName { side: Side::Writer, unit: unit % writers })
                }
                Act::Resume(UnitName { side: Side::Reader(p), unit }) => {
                    Act::Resume(UnitName { side: Side::Reader(of(p, unit).0), unit: of(p, unit).1 })
                }
                other => other,
            };
            match act {
                Act::Scribble(line, word, value) => scribble(&lines, line, word, value),
                Act::Begin(unit, n) => {
                    if let Ok(Some(Begin::Fill(turn))) = slots.poll_begin(unit, n) {
                        prop_assert!(turn.slot < depth);
                        filling[unit as usize] = Some(turn);
                    }
                }
                Act::Publish(unit) => {
                    if let Some(turn) = filling[unit as usize].take() {
                        slots.offer(unit, turn, 1);
                        slots.publish(unit, turn);
                        slots.withdraw(unit);
                        let _ = slots.is_refused(unit, turn);
                    }
                }
                Act::Skip(unit, n) => slots.skip(unit, n),
                Act::Next(p, unit, k) => {
                    if let Ok(Some(Next::Step(turn))) = slots.poll_next(p, unit, k) {
                        prop_assert!(turn.slot < depth);
                        let _ = (slots.offered(0, turn), slots.is_released(turn));
                        slots.refuse_offer(0, turn);
                        reading[p as usize][unit as usize] = Some(turn);
                    }
                }
                Act::Release(p, unit, k) => {
                    if let Some(turn) = reading[p as usize][unit as usize].take() {
                        slots.release(p, unit, k, turn);
                    }
                }
                Act::Resume(unit) => {
                    let at = slots.resume_at(unit);
                    prop_assert!(at <= 1 << 41);
                    slots.join(unit, slots.process(unit), slots.space(unit));
                }
                Act::Look => {
                    let shown = slots.fault().map(|f| format!("{f:?}"));
                    let _ = (shown, slots.readers_sleep(), slots.units().filter(|&u| slots.is_closed(u)).count());
                }
                Act::CloseWriter(unit, n) => drop(slots.close_writer(unit, n)),
                Act::CloseReader(p, unit, k) => slots.close_reader(p, unit, k),
            }
        }
    }
}

/// Joins as the second reader program, by hand. Gives the connection and the control segment.
fn second_program(pipe: &str) -> (Conn, Segment) {
    let conn = connect(pipe);
    let hello = Hello { program: "scribbler".into(), ..reader(0, 1) };
    send_raw(&conn, &bytes_of(&ToHost::Hello(hello)), &[]);
    let mut buffer = vec![0; MESSAGE_LIMIT];
    let control = loop {
        if let Incoming::Message(FromHost::Welcome(_), mut fds) = PROTOCOL.receive(&conn, &mut buffer) {
            break Segment::from_fd(fds.remove(0), 1, 1 << 20, Access::ReadWrite).unwrap();
        }
        std::thread::yield_now();
    };
    send_raw(&conn, &bytes_of(&ToHost::Ready), &[]);
    assert_eq!(answer(&conn), Some(FromHost::Go));
    (conn, control)
}

/// The process that has the writer's number is not the one that offered the step: its memory is not read.
#[test]
fn a_number_that_another_process_has_by_now_is_not_read_from() {
    const BYTES: usize = 8 << 20;
    let pipe = unique("reused");
    let ready = std::sync::Barrier::new(2);
    std::thread::scope(|s| {
        let (pipe, ready) = (&pipe, &ready);
        let writer = s.spawn(move || {
            let data = Dataset::new(&[BYTES as u64], ElemType::U8).unwrap();
            let options =
                Options { readers: 2.into(), timeout: Some(Duration::from_secs(2)), ..writer_options(0, 1) };
            let mut w = Writer::open(pipe, &Given::Dataset(data), "block", &options).unwrap();
            ready.wait();
            // Nobody takes it.
            let _ = w.write(&vec![7; BYTES]);
        });
        let reading = s.spawn(move || {
            let mut r = Reader::open(pipe, "*", &Expect::default(), &reader_options("r0", 0, 1)).unwrap();
            r.read(&mut vec![0; BYTES]).unwrap_err()
        });
        let (_conn, control) = second_program(pipe);
        // Number and start of the process, as each unit has written them.
        let me = ProcessId::current().unwrap();
        let lines = control.lines(0..control.len()).unwrap();
        let of_units = lines.iter().filter(|l| l.w[2].load(Ordering::Relaxed) as u32 == me.pid);
        let changed = of_units.map(|line| line.w[3].store(me.start_time + 1, Ordering::Relaxed)).count();
        assert!(changed >= 2, "{changed} units");
        ready.wait();
        let error = reading.join().unwrap();
        assert!(
            matches!(&error, PipeError::Port(PortError::PeerLost { peer, .. }) if peer.side == Some(Side::Writer)),
            "{error}"
        );
        writer.join().unwrap();
    });
}

/// A member of the pipe that scribbles over the control segment which it was given, while others use the
/// pipe.
#[test]
fn a_member_that_scribbles_makes_no_panic_and_no_hang() {
    for (round, policy) in POLICIES.into_iter().cycle().take(12).enumerate() {
        let pipe = unique("scribble");
        let stop = AtomicBool::new(false);
        let brief = |o: Options| Options { timeout: Some(Duration::from_millis(100)), ..o };
        std::thread::scope(|s| {
            let (pipe, stop) = (&pipe, &stop);
            let writer = s.spawn(move || {
                let options = Options { policy, readers: 2.into(), ..brief(writer_options(0, 1)) };
                let mut w = Writer::open(pipe, &Given::Dataset(data()), "block", &options).unwrap();
                let mut errors = 0;
                let end = Instant::now() + Duration::from_secs(10);
                while errors < 3 && !stop.load(Ordering::Relaxed) && Instant::now() < end {
                    errors += u32::from(w.write(&[1; LEN as usize]).is_err());
                }
            });
            let reader_side = s.spawn(move || {
                let options = brief(reader_options("r0", 0, 1));
                let mut r = Reader::open(pipe, "*", &Expect::default(), &options).unwrap();
                let mut errors = 0;
                let end = Instant::now() + Duration::from_secs(10);
                while errors < 3 && !stop.load(Ordering::Relaxed) && Instant::now() < end {
                    errors += u32::from(!matches!(r.read(&mut [0; LEN as usize]), Ok(Some(_))));
                }
            });
            let (_conn, control) = second_program(pipe);
            let lines = control.lines(0..control.len()).unwrap();
            let mut series = Random::new(round as u64 + 1);
            for _ in 0..200_000 {
                let random = series.word();
                // Mostly small numbers, so that something goes on.
                let value = if random >> 60 == 0 { random } else { random >> 40 & 7 };
                scribble(lines, (random >> 8) as usize, (random >> 24) as usize % 8, value);
                std::hint::spin_loop();
                if random & 0xfff == 0 {
                    std::thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap();
            reader_side.join().unwrap();
        });
    }
}
