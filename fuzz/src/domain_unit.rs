//! A unit of a domain may say anything to the others, in shared memory, across a network or at their sockets:
//! they answer or refuse it, and go on with each other. Nobody's answer is taken for another's, and what
//! comes from the faulty unit is known to be its own.

#![forbid(unsafe_code)]

mod acts;
mod driver;

use polyduct_message::config::Config;
use polyduct_message::domain::host::{socket_name, Answer, Ask, Join, PROTOCOL};
use polyduct_message::domain::process::Process;
use polyduct_message::domain::{Channel, Domain, Network, OnLoss, Options};
use polyduct_message::handshake::Incoming;
use polyduct_message::link::key::JobKey;
use polyduct_message::link::shm::{Bell, Link, Sizes};
use polyduct_message::{HandlerId, Priority};
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::segment::Segment;
use polyduct_os::socket::{Conn, Sent, MESSAGE_LIMIT};
use polyduct_os::OsError;
use polyduct_rig::free_address;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{sync_channel, Receiver};
use std::time::{Duration, Instant};

/// Longer than anything here may take.
const PATIENCE: Duration = Duration::from_secs(10);
const REGION: u32 = 4;
const REGION_LEN: usize = 64;

/// What the faulty unit does.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Act {
    /// It sends a message of the library, or to a handler, to one of the others.
    Say { to: bool, high: bool, library: bool, number: u16, args: [u32; 4], payload: Vec<u8> },
    /// The same with one of the lengths that go in pieces.
    Long { to: bool, number: u16, args: [u32; 4], len: u16 },
    /// It comes to the socket of one of the others, with so many descriptors.
    Ask { to: bool, ask: Ask, fds: u8 },
    /// The same with what is no question.
    Raw { to: bool, bytes: Vec<u8>, fds: u8 },
}

/// Three units of one process, one of them faulty.
struct Scene {
    name: String,
    faulty: Domain,
    good: [Domain; 2],
    /// The faulty unit's channels to the two good ones, of low and of high priority.
    channels: [[Channel; 2]; 2],
    bell: Bell,
    link: Link,
    small: Segment,
    far: bool,
}

fn join(name: &str, network: &Option<Network>, unit: u32) -> Domain {
    let small = |variable: &str| variable.ends_with("RING").then(|| "64KiB".to_owned());
    let network = network.clone().map(|network| Network { apart: unit.into(), ..network });
    let domain = Domain::join(Options {
        open_timeout: PATIENCE,
        timeout: Some(PATIENCE),
        on_loss: OnLoss::Continue,
        network,
        config: Config::from_sources(None, small).expect("sizes"),
        ..Options::new(name, unit, 3)
    });
    let domain = domain.expect("a place in the domain");
    domain.function("echo", 1, |_, argument| Ok(argument.to_vec())).expect("a function");
    domain.handler("note", 1, |_, _| ()).expect("a handler");
    domain.synchronise().expect("all are there");
    domain
}

impl Scene {
    fn new(far: bool, faulty: usize) -> Scene {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("fuzz-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let network = far.then(|| Network::new(free_address(), JobKey::from_bytes([7; 32]).expect("a key")));
        let mut units: Vec<Domain> = std::thread::scope(|s| {
            let threads = [0, 1, 2].map(|unit| {
                let (name, network) = (&name, &network);
                s.spawn(move || join(name, network, unit))
            });
            threads.into_iter().map(|thread| thread.join().expect("a unit")).collect()
        });
        let faulty = units.remove(faulty);
        let Ok(good) = <[Domain; 2]>::try_from(units) else { unreachable!("three units") };
        for unit in &good {
            drop(unit.region(REGION, REGION_LEN).expect("a region"));
        }
        let channels = [0, 1].map(|to: usize| {
            [Priority::Low, Priority::High]
                .map(|priority| faulty.channel(good[to].unit(), priority).expect("a channel"))
        });
        let (bell, link) = (Bell::create(3).expect("a bell"), Link::create(&Sizes::least()).expect("a link"));
        let small = Segment::create("small", 64).expect("a segment");
        let scene = Scene { name, faulty, good, channels, bell, link, small, far };
        // A unit that goes by another's name at a socket must not be the first to come.
        scene.talk(0);
        scene
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Say { to, high, library, number, args, payload } => {
                let base = if *library { HandlerId::RESERVED } else { 0 };
                let handler = HandlerId(base.wrapping_add((*number).into()));
                let channel = &mut self.channels[usize::from(*to)][usize::from(*high)];
                let _ = match payload.is_empty() {
                    true => channel.short(handler, *args),
                    false => channel.bulk(handler, *args, payload),
                };
            }
            Act::Long { to, number, args, len } => {
                let payload = vec![8; usize::from(*len) % 30_000];
                let handler = HandlerId(HandlerId::RESERVED.wrapping_add((*number).into()));
                let _ = self.channels[usize::from(*to)][0].bulk(handler, *args, &payload);
            }
            Act::Ask { to, ask, fds } => match PROTOCOL.encode(ask) {
                Ok(words) => self.come(*to, *fds, |conn, fds| words.send(conn, fds)),
                Err(error) => panic!("{error}"),
            },
            Act::Raw { to, bytes, fds } => self.come(*to, *fds, |conn, fds| conn.send(bytes, fds)),
        }
    }

    /// The faulty unit comes to a socket. It has an answer, or is hung up on, in good time.
    fn come(&self, to: bool, fds: u8, say: impl FnOnce(&Conn, &[BorrowedFd<'_>]) -> Result<Sent, OsError>) {
        if self.far {
            return;
        }
        let conn = Conn::connect(&socket_name(&self.name, self.good[usize::from(to)].unit()));
        let Ok(conn) = conn else { return };
        let all = [self.bell.fd(), self.link.fd(), self.small.fd()];
        let said = say(&conn, &all[..usize::from(fds) % 4]);
        if said != Ok(Sent::Done) {
            return;
        }
        let (end, mut buffer) = (Instant::now() + PATIENCE, vec![0; MESSAGE_LIMIT]);
        loop {
            match PROTOCOL.receive::<Answer>(&conn, &mut buffer) {
                Incoming::Nothing => assert!(Instant::now() < end, "no answer"),
                Incoming::Message(Answer::Welcome(_), _) => panic!("all were there"),
                Incoming::Message(Answer::Refused(why), _) => return assert!(!why.to_string().is_empty()),
                Incoming::Message(..) | Incoming::Closed => return,
                Incoming::Bad(bad) => panic!("{bad:?}"),
            }
            let _ = poll(&mut [PollItem::readable(&conn)], Some(Duration::from_millis(100)));
        }
    }

    /// Everybody takes what has come.
    fn settle(&self) {
        let end = Instant::now() + Duration::from_millis(if self.far { 2 } else { 0 });
        for _ in 0..1000 {
            let taken = self.faulty.poll() + self.good[0].poll() + self.good[1].poll();
            if taken == 0 && Instant::now() >= end {
                break;
            }
        }
    }

    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done() {
            self.good.iter().for_each(|unit| _ = unit.poll());
            assert!(Instant::now() < end, "waited in vain for {what}");
        }
    }

    /// The good units do all that they do with each other.
    fn talk(&self, seed: u8) {
        for (me, other) in [(0, 1), (1, 0)] {
            let (me, other) = (&self.good[me], &self.good[other]);
            let payload = vec![seed; 300 * usize::from(seed % 7)];
            me.send(other.unit(), 77, [seed.into(), 1], &payload).expect("the other is there");
            let mut mail = None;
            self.until("a message", || {
                mail = mail.take().or_else(|| other.try_recv(Some(me.unit()), Some(77)));
                mail.is_some()
            });
            let mail = mail.expect("a message");
            assert_eq!((mail.words, mail.payload), ([seed.into(), 1], payload));
            assert_eq!((me.gone(other.unit()), me.gone(me.unit())), (Ok(None), Ok(None)));
        }
        if !self.far {
            let [me, other] = &self.good;
            let mut bytes = [0; REGION_LEN];
            me.get(other.unit(), REGION, 0, &mut bytes).expect("its region");
            assert!(me.get(other.unit(), REGION, 1, &mut bytes).is_err());
        }
    }

    /// Whether the faulty unit can go on.
    fn is_whole(&self) -> bool {
        self.good.iter().all(|unit| unit.gone(self.faulty.unit()) == Ok(None))
            && self.good.iter().all(|unit| self.faulty.gone(unit.unit()) == Ok(None))
    }
}

/// A scene in use, and others that are made meanwhile: units take their time to come and to go.
struct Stage {
    scene: Option<Scene>,
    next: Receiver<Scene>,
}

impl Stage {
    fn new(kind: usize) -> Stage {
        let (tell, next) = sync_channel(2);
        // Ends with the process, or when nobody takes any more.
        std::thread::spawn(move || while tell.send(Scene::new(kind == 2, [0, 1, 1][kind])).is_ok() {});
        Stage { scene: None, next }
    }
}

thread_local! {
    static STAGES: RefCell<[Stage; 3]> = RefCell::new([0, 1, 2].map(Stage::new));
}

/// The first byte says which unit is faulty, and whether they are on several hosts as it were; acts follow.
fn target(input: &[u8]) {
    let Some((&choice, rest)) = input.split_first() else { return };
    // Across hosts unit 0 is believed when it says that another is lost, so it is a good one there.
    let kind = [0, 2, 1, 2][usize::from(choice % 4)];
    STAGES.with_borrow_mut(|stages| {
        let Stage { scene: place, next } = &mut stages[kind];
        let scene = place.get_or_insert_with(|| next.recv().expect("a domain"));
        let (me, other) = (scene.good[0].clone(), scene.good[1].unit());
        let asked = me.call(other, "echo", &[choice; 40], None).expect("the other is there");
        for (i, act) in acts::read::<Act>(rest).iter().enumerate() {
            scene.act(act);
            if i % 3 == 2 {
                scene.settle();
            }
        }
        scene.settle();
        scene.until("an answer", || asked.is_done());
        assert_eq!(asked.wait(), Ok(vec![choice; 40]), "the answer of the one that was asked");
        scene.talk(choice);
        for unit in &scene.good {
            while let Some(mail) = unit.try_recv(None, None) {
                assert_eq!(mail.from, scene.faulty.unit());
            }
            assert_eq!((unit.status().mails, unit.status().calls), (0, 0));
        }
        if !scene.is_whole() {
            let over = place.take();
            std::thread::spawn(move || drop(over));
        }
    });
}

fn main() {
    use polyduct_message::domain::system::{
        AGREED, ANSWER, BARRIER, CALL, CANCEL, FLUSH, GET, LEAVING, LOST, MAIL, MEET, OFFER, PUT,
    };
    let words = acts::write::<Act>;
    let say = |handler: HandlerId, args, payload: &[u8]| {
        let (number, payload) = ((handler.0 - HandlerId::RESERVED) as u16, payload.to_vec());
        Act::Say { to: true, high: false, library: true, number, args, payload }
    };
    let first = |act: Act| match act {
        Act::Say { high, library, number, args, payload, .. } => {
            Act::Say { to: false, high, library, number, args, payload }
        }
        other => other,
    };
    let long = |handler: HandlerId, args, len| Act::Long {
        to: true,
        number: (handler.0 - HandlerId::RESERVED) as u16,
        args,
        len,
    };
    let ask = |ask, fds| Act::Ask { to: true, ask, fds };
    let answers: Vec<Act> = (0..4).map(|n| first(say(ANSWER, [n, 0, 0, 0], b"mine"))).collect();
    let region = |n| [REGION, 0, 0, n];
    let scenes = [
        vec![
            say(MAIL, [1, 2, 3, 4], b"mail"),
            long(MAIL, [77, 1, 1, 0], 20_000),
            first(say(MAIL, [77; 4], b"")),
        ],
        vec![say(CALL, [0, 5, 1, 2], b"argument"), say(CALL, [9, 6, 0, 0], b""), say(CANCEL, [5; 4], b"")],
        answers,
        vec![
            say(PUT, region(3), &[5; 64]),
            say(GET, region(4), &64_u64.to_le_bytes()),
            say(GET, region(5), b""),
        ],
        vec![say(PUT, [REGION, 60, 0, 1], &[5; 64]), say(GET, [REGION, 0, 9, 1], &u64::MAX.to_le_bytes())],
        vec![
            say(BARRIER, [2, 0, 0, 0], b""),
            say(BARRIER, [3, 0, 0, 0], b""),
            say(BARRIER, [2, 1, 0, 0], b""),
        ],
        vec![first(say(OFFER, [0; 4], b"\x01\x01f\x01")), say(AGREED, [0; 4], b"\x01\x01f\x01\x01\x02")],
        vec![
            say(AGREED, [1, 0, 0, 0], b"\x00\x01f"),
            say(FLUSH, [3; 4], b""),
            say(MEET, [2; 4], b"\x01\x00"),
        ],
        vec![
            say(LEAVING, [3, 0, 0, 0], b"\x01\0\0\0\0\0\0\0gone"),
            say(LOST, [0; 4], b"dead"),
            say(LOST, [2; 4], b"x"),
        ],
        vec![
            ask(Ask::Link { unit: 1 }, 2),
            ask(Ask::Region { unit: 1, id: REGION }, 0),
            ask(Ask::Link { unit: 0 }, 1),
        ],
        vec![
            ask(
                Ask::Join(Join { unit: 1, units: 3, process: Process { pid: 7, space: 1, start_time: 1 } }),
                0,
            ),
            ask(Ask::Region { unit: 9, id: 1 }, 3),
        ],
        vec![
            Act::Raw { to: false, bytes: b"PDUC\x0f\0\x01\x02".to_vec(), fds: 3 },
            Act::Raw { to: true, bytes: b"PDUC\x0f\0\0\x02\x02\x01\x04".to_vec(), fds: 0 },
        ],
    ];
    let mut seeds: Vec<Vec<u8>> =
        (0..).zip(&scenes).map(|(i, acts): (u8, _)| [vec![i % 2 * 2], words(acts)].concat()).collect();
    seeds.extend(scenes[..9].iter().map(|acts| [vec![1], words(acts)].concat()));
    let mut pieces: Vec<Vec<u8>> =
        scenes.iter().flatten().map(|act| words(std::slice::from_ref(act))).collect();
    pieces.extend([vec![0], vec![1], vec![0xff; 4], b"\xff\xff\xff\xff\x0f".to_vec()]);
    let [seeds, pieces] = [&seeds, &pieces].map(|all| all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    driver::run(&seeds, &pieces, target);
}
