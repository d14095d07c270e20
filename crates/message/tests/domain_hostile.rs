//! What strangers and faulty members say to a unit of a domain: each gets its refusal, and the others go on.

use polyduct_message::domain::host::{socket_name, Answer, Ask, Join, PROTOCOL};
use polyduct_message::domain::process::Process;
use polyduct_message::domain::{Domain, OnLoss, Options};
use polyduct_message::handshake::{Incoming, Protocol, VERSION};
use polyduct_message::link::shm::{Bell, Gate, Link, Sizes};
use polyduct_message::meeting::{JoinRefusal, Unit};
use polyduct_message::{HandlerId, LinkError, MessageError, Priority};
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::segment::Segment;
use polyduct_os::socket::{Conn, Listener, Sent, MESSAGE_LIMIT};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn options(name: &str, unit: u32, units: u32) -> Options {
    Options {
        open_timeout: Duration::from_secs(20),
        timeout: Some(Duration::from_secs(20)),
        ..Options::new(name, unit, units)
    }
}

fn unique(what: &str) -> String {
    format!("hostile-{what}-{}", std::process::id())
}

/// Connects to a unit that is starting or has started.
fn connect(name: &str, unit: u32) -> Conn {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match Conn::connect(&socket_name(name, unit)) {
            Ok(conn) => return conn,
            Err(e) => assert!(Instant::now() < end, "{e}"),
        }
        std::thread::yield_now();
    }
}

/// What comes next; a hangup is `None`. It comes within the time of a test, or the unit hangs.
fn answer(conn: &Conn) -> Option<Answer> {
    let mut buffer = vec![0; MESSAGE_LIMIT];
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match PROTOCOL.receive(conn, &mut buffer) {
            Incoming::Message(message, _) => return Some(message),
            Incoming::Closed => return None,
            Incoming::Bad(bad) => panic!("{bad:?}"),
            Incoming::Nothing => assert!(Instant::now() < end, "no answer"),
        }
        std::thread::yield_now();
    }
}

/// The one refusal that must come, with nothing after it.
fn refusal(conn: &Conn) -> JoinRefusal {
    match answer(conn) {
        Some(Answer::Refused(why)) => {
            assert_eq!(answer(conn), None, "something follows a refusal");
            why
        }
        other => panic!("{other:?} instead of a refusal"),
    }
}

fn say(conn: &Conn, ask: &Ask, fds: &[BorrowedFd<'_>]) {
    assert_eq!(PROTOCOL.encode(ask).unwrap().send(conn, fds), Ok(Sent::Done));
}

fn join(unit: u32, units: u32) -> Ask {
    Ask::Join(Join { unit, units, process: Process::current().unwrap() })
}

/// Both units of a domain, and `attack` while they are there; afterwards they still understand each other.
fn in_spite_of(what: &str, attack: impl FnOnce(&str)) {
    let name = unique(what);
    std::thread::scope(|s| {
        let other = s.spawn(|| {
            let d = Domain::join(options(&name, 1, 2)).unwrap();
            let mail = d.recv(Some(0), None).unwrap();
            d.send(0, mail.tag, mail.words, &mail.payload).unwrap();
            d.barrier().unwrap();
        });
        let d = Domain::join(options(&name, 0, 2)).unwrap();
        attack(&name);
        let long = vec![5; 100_000];
        d.send(1, 3, [4, 5], &long).unwrap();
        let mail = d.recv(Some(1), Some(3)).unwrap();
        assert_eq!((mail.words, mail.payload), ([4, 5], long));
        d.barrier().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn garbage_is_refused() {
    in_spite_of("garbage", |name| {
        // The header of a domain's record: magic number, version, kind of meeting and of the record.
        let [low, high] = VERSION.to_le_bytes();
        let header = |meeting, record| [&b"PDUC"[..], &[low, high, meeting, record]].concat();
        let (nothing, none) = (header(0, 1), header(7, 2));
        for bytes in [&b"x"[..], b"GET / HTTP/1.0\r\n\r\n", &nothing, &none, b"PDUC"] {
            let conn = connect(name, 0);
            assert_eq!(conn.send(bytes, &[]), Ok(Sent::Done));
            assert_eq!(refusal(&conn), JoinRefusal::Malformed, "{bytes:?}");
        }
        let conn = connect(name, 1);
        assert_eq!(conn.send(&[0xff; MESSAGE_LIMIT], &[]), Ok(Sent::Done));
        assert_eq!(refusal(&conn), JoinRefusal::Malformed);
        let link = [header(0, 2), vec![1, 7, 9]].concat();
        for cut in 8..11 {
            let conn = connect(name, 0);
            assert_eq!(conn.send(&link[..cut], &[]), Ok(Sent::Done));
            let why = refusal(&conn);
            // Whole, it asks for a link of a unit that there is not.
            assert!(matches!(why, JoinRefusal::Malformed | JoinRefusal::NotAMember { .. }), "{cut}: {why}");
        }
    });
}

#[test]
fn another_version_is_refused_by_name() {
    in_spite_of("version", |name| {
        let conn = connect(name, 0);
        let other = Protocol { version: 77, ..PROTOCOL };
        assert_eq!(other.encode(&join(1, 2)).unwrap().send(&conn, &[]), Ok(Sent::Done));
        let why = refusal(&conn);
        assert_eq!(why, JoinRefusal::Version { expected: PROTOCOL.version.into(), found: 77 });
        assert!(
            why.to_string().contains("77")
                && why.to_string().contains(&format!("version {}", PROTOCOL.version)),
            "{why}"
        );
    });
}

#[test]
fn who_is_no_member_gets_no_link() {
    in_spite_of("member", |name| {
        let bell = Bell::create(2).unwrap();
        let link = Link::create(&Sizes::default()).unwrap();
        let pid = std::process::id();
        for (ask, fds) in [
            // No such unit, the unit itself, without a bell, with a segment where none belongs, without one
            // where it does.
            (Ask::Link { unit: 9 }, vec![bell.fd()]),
            (Ask::Link { unit: u32::MAX }, vec![bell.fd()]),
            (Ask::Link { unit: 0 }, vec![bell.fd()]),
            (Ask::Link { unit: 1 }, vec![]),
            (Ask::Link { unit: 1 }, vec![bell.fd(), link.fd()]),
            (Ask::Link { unit: 1 }, vec![bell.fd(), link.fd(), bell.fd()]),
        ] {
            let conn = connect(name, 0);
            say(&conn, &ask, &fds);
            let Ask::Link { unit } = ask else { unreachable!() };
            assert_eq!(
                refusal(&conn),
                JoinRefusal::NotAMember { unit: Unit(unit), pid },
                "{ask:?} with {} fds",
                fds.len()
            );
        }
        let conn = connect(name, 1);
        say(&conn, &Ask::Link { unit: 0 }, &[bell.fd()]);
        assert_eq!(refusal(&conn), JoinRefusal::NotAMember { unit: Unit(0), pid });
        let conn = connect(name, 0);
        say(&conn, &join(1, 2), &[]);
        assert_eq!(refusal(&conn), JoinRefusal::duplicate(Unit(1), pid));
    });
}

#[test]
fn segments_that_are_none_are_refused() {
    in_spite_of("segments", |name| {
        let bell = Bell::create(2).unwrap();
        let small = Segment::create("small", 64).unwrap();
        let zeros = Segment::create("zeros", Sizes::default().segment_bytes()).unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let file = std::os::fd::AsFd::as_fd(&file);
        for fds in [[bell.fd(), small.fd()], [bell.fd(), zeros.fd()], [bell.fd(), file], [file, zeros.fd()]] {
            let conn = connect(name, 1);
            say(&conn, &Ask::Link { unit: 0 }, &fds);
            let why = refusal(&conn);
            assert!(matches!(why, JoinRefusal::System { unit: Unit(1), .. }), "{why}");
        }
        for id in [0, u32::MAX] {
            let conn = connect(name, 0);
            say(&conn, &Ask::Region { unit: 1, id }, &[]);
            assert!(matches!(refusal(&conn), JoinRefusal::System { unit: Unit(0), .. }));
        }
        let conn = connect(name, 0);
        say(&conn, &Ask::Region { unit: 5, id: 0 }, &[]);
        assert!(matches!(refusal(&conn), JoinRefusal::NotAMember { unit: Unit(5), .. }));
    });
}

#[test]
fn a_crowd_that_says_nothing_keeps_nobody_out() {
    in_spite_of("crowd", |name| {
        let crowd: Vec<Conn> = (0..600).map(|_| connect(name, 1)).collect();
        // The first are dropped for the last.
        let end = Instant::now() + Duration::from_secs(20);
        while !matches!(crowd[0].recv(&mut [0; 8]), Ok(polyduct_os::socket::Received::Closed)) {
            assert!(Instant::now() < end, "the crowd stays");
            std::thread::yield_now();
        }
    });
}

#[test]
fn strangers_do_not_hinder_a_gathering() {
    let name = unique("gathering");
    std::thread::scope(|s| {
        let root = s.spawn(|| Domain::join(options(&name, 0, 3)).unwrap());
        let silent: Vec<Conn> = (0..300).map(|_| connect(&name, 0)).collect();
        for (ask, want) in [
            (join(1, 4), JoinRefusal::disagree(Unit(1), "units", 4, Unit(0), 3)),
            (join(3, 3), JoinRefusal::UnitRange { unit: 3, units: 3 }),
            (join(0, 3), JoinRefusal::duplicate(Unit(0), std::process::id())),
            (Ask::Link { unit: 1 }, JoinRefusal::Malformed),
            (Ask::Region { unit: 1, id: 1 }, JoinRefusal::Malformed),
        ] {
            let conn = connect(&name, 0);
            say(&conn, &ask, &[]);
            assert_eq!(refusal(&conn), want);
        }
        // One that joins and hangs up frees its place.
        let fickle = connect(&name, 0);
        say(&fickle, &join(1, 3), &[]);
        drop(fickle);
        let others: Vec<_> = [1, 2]
            .map(|unit| {
                let name = &name;
                let end = Instant::now() + Duration::from_secs(20);
                s.spawn(move || loop {
                    match Domain::join(options(name, unit, 3)) {
                        // Its place is free as soon as the hangup has been seen.
                        Err(MessageError::Refused { reason, .. })
                            if matches!(*reason, JoinRefusal::Duplicate { .. }) && Instant::now() < end => {}
                        joined => break joined.unwrap(),
                    }
                })
            })
            .into_iter()
            .collect();
        let (root, others): (_, Vec<_>) =
            (root.join().unwrap(), others.into_iter().map(|t| t.join().unwrap()).collect());
        drop(silent);
        std::thread::scope(|s| {
            for d in others.iter().chain([&root]) {
                s.spawn(move || d.barrier().unwrap());
            }
        });
    });
}

/// A member that lies about where its regions lie: whoever believes it learns so, and touches nothing of its
/// own.
#[test]
fn lies_about_lent_memory_are_the_liars_loss() {
    let name = unique("liar");
    let small = Segment::create("small", 64).unwrap();
    let (good, closed) = (Gate::create(2).unwrap(), Gate::create(2).unwrap());
    closed.close();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let file = std::os::fd::AsFd::as_fd(&file);
    let at = |address, len| Answer::Memory { address, len };
    let lies = [
        (at(8, 100), vec![small.fd()], "a gate that is none"),
        (at(8, 100), vec![file], "a gate that is none"),
        (at(8, 100), vec![], "out of turn"),
        (at(8, 100), vec![good.fd(), good.fd()], "out of turn"),
        (Answer::Linked, vec![good.fd()], "out of turn"),
        (at(8, 100), vec![good.fd()], "does not exist"),
        (at(u64::MAX - 4, u64::MAX), vec![good.fd()], "does not exist"),
        (at(8, 9), vec![good.fd()], "bytes 0 to 10 are not all in its 9"),
        (at(8, 100), vec![closed.fd()], "has withdrawn it"),
    ];
    std::thread::scope(|s| {
        let honest = s.spawn(|| {
            let d = Domain::join(options(&name, 0, 2)).unwrap();
            let said = |id: usize| {
                let mut bytes = [7; 10];
                let put = d.put(1, id as u32, 0, &bytes).unwrap_err();
                let get = d.get(1, id as u32, 0, &mut bytes).unwrap_err();
                assert_eq!(bytes, [7; 10]);
                let far = matches!(&get, MessageError::Region { .. })
                    || matches!(&get, MessageError::BadPeer { unit: 1, error: LinkError::OutOfTurn { .. } })
                    || matches!(&get, MessageError::BadPeer { unit: 1, error: LinkError::Unknown { .. } });
                assert!(far && get == put, "{get}, {put}");
                get.to_string()
            };
            (0..9).map(said).collect::<Vec<_>>()
        });
        let listener = Listener::bind(&socket_name(&name, 1)).unwrap();
        let root = connect(&name, 0);
        say(&root, &Ask::Join(Join { unit: 1, units: 2, process: Process::current().unwrap() }), &[]);
        assert!(matches!(answer(&root), Some(Answer::Welcome(_))));
        let mut buffer = vec![0; MESSAGE_LIMIT];
        while !honest.is_finished() {
            let _ = poll(&mut [PollItem::readable(&listener)], Some(Duration::from_millis(20))).unwrap();
            let Ok(Some(conn)) = listener.accept() else { continue };
            let id = loop {
                match PROTOCOL.receive(&conn, &mut buffer) {
                    Incoming::Message(Ask::Region { unit: 0, id }, _) => break id,
                    Incoming::Nothing => drop(poll(&mut [PollItem::readable(&conn)], None)),
                    _ => panic!("another question"),
                }
            };
            let (lie, fds, _) = &lies[id as usize];
            assert_eq!(PROTOCOL.encode(lie).unwrap().send(&conn, fds), Ok(Sent::Done));
        }
        for (said, (lie, fds, want)) in honest.join().unwrap().iter().zip(&lies) {
            assert!(said.contains(want), "{lie:?} with {} fds: {said}", fds.len());
        }
    });
}

#[test]
fn who_talks_nonsense_again_and_again_keeps_nobody_waiting() {
    let (name, over) = (unique("nonsense"), AtomicBool::new(false));
    let join = |unit| {
        let options = Options { on_loss: OnLoss::Continue, ..options(&name, unit, 3) };
        Domain::join(options).unwrap()
    };
    std::thread::scope(|s| {
        s.spawn(|| {
            let d = join(2);
            d.synchronise().unwrap();
            // Units that still synchronise would hear there that this one is of no use.
            [0, 1].iter().for_each(|&unit| drop(d.recv(Some(unit), None).unwrap()));
            let mut channel = d.channel(0, Priority::Low).unwrap();
            for _ in 0..200 {
                channel.short(HandlerId(4000), [0; 4]).unwrap();
            }
            d.send(1, 0, [0; 2], &[]).unwrap();
        });
        s.spawn(|| {
            let d = join(0);
            d.function("echo", 1, |_, x| Ok(x.to_vec())).unwrap();
            d.synchronise().unwrap();
            d.send(2, 0, [0; 2], &[]).unwrap();
            d.serve_until(None, || over.load(Ordering::Acquire)).unwrap();
        });
        let d = join(1);
        d.synchronise().unwrap();
        d.send(2, 0, [0; 2], &[]).unwrap();
        d.recv(Some(2), None).unwrap();
        let start = Instant::now();
        assert_eq!(d.call(0, "echo", b"x", None).unwrap().wait().unwrap(), b"x");
        // To see whether the process of the one that talks nonsense dies takes 0.1 s, once.
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        over.store(true, Ordering::Release);
        // It wakes unit 0, which may have looked already.
        let sent = d.send(0, 0, [0; 2], &[]);
        assert!(matches!(sent, Ok(()) | Err(MessageError::PeerLeft { unit: 0 })), "{sent:?}");
    });
}
