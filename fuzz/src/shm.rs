//! A peer may write anything into all that it shares with this process: the segment of a link, a bell, a
//! gate. The link breaks, for one reason that stands, or carries nonsense that keeps to its limits; nobody
//! waits beyond a deadline, nothing given is kept, and another link goes on.

#![forbid(unsafe_code)]

mod acts;
mod driver;

use polyduct_message::link::shm::{
    AttachError, Bell, Gate, Incoming, Link, Payload, SendError, Sender, Sizes,
};
use polyduct_message::types::{MAX_CHANNELS, MAX_PAYLOAD};
use polyduct_message::{ChannelId, HandlerId, Head, LinkError, Priority};
use polyduct_os::process::{PidFd, ProcessId};
use polyduct_os::segment::{Access, Segment};
use polyduct_os::spin::Spin;
use polyduct_os::sync::{Line, Ordering};
use serde::{Deserialize, Serialize};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Lines before those of the rings.
const FIRST_LINE: usize = 18;
/// Lines of each ring of the smallest link.
const RING: usize = 8;
const USERS: u32 = 3;

/// What the faulty peer does, or this side between two of its acts.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Act {
    /// It stores a word in the segment.
    Store {
        line: u16,
        word: u8,
        value: u64,
    },
    /// It shows a record: so far ahead of the next, with this first word, head, bytes in the ring, and rest.
    Forge {
        high: bool,
        ahead: u8,
        tag: (u16, u8, u8),
        bytes: u32,
        rest: [u64; 4],
    },
    /// It posts a message: an address so far from that of its mapping.
    Post {
        high: bool,
        offset: i64,
        len: u64,
    },
    /// It shows a head.
    Head {
        high: bool,
        line: u32,
        unit: u32,
    },
    /// It stores a word in this side's bell, or in a gate.
    Outside {
        gate: bool,
        line: u8,
        word: u8,
        value: u64,
    },
    /// This side lets it post.
    Pull,
    Send {
        high: bool,
        len: u16,
    },
    Begin {
        high: bool,
        len: u64,
        bytes: u16,
    },
    PostMine {
        high: bool,
    },
    WaitForIt {
        high: bool,
    },
    Abandon {
        high: bool,
    },
    /// This side receives; it has no room for long messages, or for none, or takes nothing.
    Poll {
        room: u32,
        take: bool,
    },
    Sleep,
    /// Somebody else maps the same segment.
    Attach,
    Enter {
        user: u8,
    },
}

/// A buffer that is counted while it is there.
struct Counted(Vec<u8>, #[allow(dead_code)] Arc<()>);

impl AsMut<[u8]> for Counted {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

fn map(fd: BorrowedFd<'_>) -> Segment {
    Segment::from_fd(fd.try_clone_to_owned().expect("a descriptor"), 1, 1 << 30, Access::ReadWrite)
        .expect("a segment")
}

fn lines(segment: &Segment) -> &[Line] {
    segment.lines(0..segment.len() / 64 * 64).expect("lines")
}

fn store(lines: &[Line], line: usize, word: u8, value: u64) {
    let line = &lines[line % lines.len()];
    match line.w.get(usize::from(word) % 8) {
        Some(word) => word.store(value, Ordering::Release),
        // The futex and the sleepers.
        None => line.sleepers.store(value as u32, Ordering::Release),
    }
}

fn head(word: u32) -> Head {
    Head { handler: HandlerId(9), args: [word; 4] }
}

/// Why a link is of no use, the same whenever it is asked.
#[derive(Default)]
struct Broken(Option<LinkError>);

impl Broken {
    fn note(&mut self, error: LinkError) {
        assert!(!error.to_string().is_empty());
        assert_eq!(*self.0.get_or_insert(error.clone()), error, "the first reason stands");
    }

    fn sent<T>(&mut self, result: Result<T, SendError>) -> Option<T> {
        match result {
            Ok(done) => return Some(done),
            Err(SendError::Broken(error)) => self.note(error),
            Err(SendError::Closed) => panic!("nobody closed it"),
            Err(other) => assert!(!other.to_string().is_empty()),
        }
        None
    }
}

/// Two ends that keep to the protocol: what goes in comes out.
struct Honest {
    from: Sender,
    to: polyduct_message::link::shm::Receiver<Vec<u8>>,
    _link: Link,
}

impl Honest {
    fn new() -> Honest {
        let a = Link::create(&Sizes::least()).expect("a link");
        let fd = a.fd().try_clone_to_owned().expect("a descriptor");
        let b = Link::attach(fd, 1 << 20, &Sizes::least()).expect("its other end");
        let (from, to) = (a.sender(ChannelId(3), Priority::Low), b.receiver());
        Honest { from: from.expect("its sender"), to: to.expect("its receiver"), _link: b }
    }

    fn works(&mut self, seed: u8) {
        for len in [0, 9, 200, 600] {
            let payload: Vec<u8> = (0..len).map(|i| seed.wrapping_add(i as u8)).collect();
            assert_eq!(self.from.send(head(len), &payload), Ok(payload.len()));
            let mut got = Vec::new();
            while got.is_empty() {
                let taken = self.to.poll(&mut |m| Some(vec![0; m.len as usize]), &mut |m, payload| {
                    assert_eq!((m.channel.0, m.head), (3, head(len)));
                    match payload {
                        Payload::Bytes(bytes) => got.push(bytes.to_vec()),
                        Payload::Buffer(buffer) => got.push(buffer),
                    }
                    true
                });
                assert_ne!(taken, Ok(0), "it was sent");
            }
            assert_eq!(got, [payload]);
        }
    }
}

thread_local! {
    static HONEST: std::cell::RefCell<Honest> = Honest::new().into();
}

/// This side of a link whose peer is faulty, and what it shares.
struct Scene {
    link: Link,
    segment: Segment,
    /// Where the lines of the peer's rings begin, and its control lines.
    peers: (usize, [usize; 2]),
    bell: Arc<Bell>,
    bell_lines: Segment,
    gate: Gate,
    gate_lines: Segment,
    /// The next record of each of the peer's rings.
    next: [u32; 2],
    broken: Broken,
}

impl Scene {
    fn new(guest: bool) -> Scene {
        let made = Link::create(&Sizes::least()).expect("a link");
        let segment = map(made.fd());
        let link = match guest {
            false => made,
            true => {
                let fd = made.fd().try_clone_to_owned().expect("a descriptor");
                Link::attach(fd, 1 << 20, &Sizes::least()).expect("a good link")
            }
        };
        // The side that receives shows its head in the control lines of the other direction.
        let peers = match guest {
            true => (FIRST_LINE, [2 + 8 + 2, 2 + 8 + 4 + 2]),
            false => (FIRST_LINE + 2 * RING, [2 + 2, 2 + 4 + 2]),
        };
        let bell = Arc::new(Bell::create(600).expect("a bell"));
        let gate = Gate::create(USERS).expect("a gate");
        link.ring_at(bell.clone(), 599);
        let (bell_lines, gate_lines) = (map(bell.fd()), map(gate.fd()));
        Scene {
            link,
            segment,
            peers,
            bell,
            bell_lines,
            gate,
            gate_lines,
            next: [0; 2],
            broken: Broken::default(),
        }
    }

    fn forge(&mut self, high: bool, ahead: u8, (channel, kind, inline): (u16, u8, u8), words: [u64; 6]) {
        let lane = usize::from(!high);
        let at = self.next[lane].wrapping_add(ahead.into());
        let line = &lines(&self.segment)[self.peers.0 + lane * RING + at as usize % RING];
        line.w[1..].iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        let tag = u64::from(channel) | u64::from(kind) << 16 | u64::from(inline) << 24;
        line.w[0].store(tag << 32 | u64::from(at.wrapping_add(1)), Ordering::Release);
        self.next[lane] = at.wrapping_add(1);
    }

    /// What the peer does, and what this side does with things of its own.
    fn faulty(&mut self, act: &Act) {
        match *act {
            Act::Store { line, word, value } => store(lines(&self.segment), line.into(), word, value),
            Act::Forge { high, ahead, tag, bytes, rest: [p, q, r, s] } => {
                let words = [9, 1 << 32, u64::from(bytes) << 32 | 7, p, q, r ^ s];
                self.forge(high, ahead, tag, words);
            }
            Act::Post { high, offset, len } => {
                let address = self.segment.address().wrapping_add_signed(offset);
                self.forge(high, 0, (5, 5, 0), [9, 0, 0, len, address, 0]);
            }
            Act::Head { high, line, unit } => {
                let control = self.peers.1[usize::from(!high)];
                store(lines(&self.segment), control, 0, u64::from(line) << 32 | u64::from(unit));
            }
            Act::Outside { gate, line, word, value } => {
                let there = if gate { &self.gate_lines } else { &self.bell_lines };
                store(lines(there), line.into(), word, value);
            }
            _ => unreachable!("an act of this side"),
        }
    }

    fn enter(&self, user: u8) {
        match self.gate.enter(user.into()) {
            Some(inside) => {
                assert!(u32::from(user) < USERS);
                drop(inside);
            }
            None => self.gate.close(),
        }
        let _ = self.gate.wait_empty(Duration::ZERO, |_| false);
        assert!(self.gate.wait_empty(Duration::ZERO, |_| true), "nobody waits for the dead");
    }

    fn attach(&mut self) {
        let fd = self.segment.fd().try_clone_to_owned().expect("a descriptor");
        let link = match Link::attach(fd, 1 << 20, &Sizes::least()) {
            Ok(link) => link,
            Err(AttachError::Link(error)) => return assert!(!error.to_string().is_empty()),
            Err(AttachError::System(error)) => panic!("{error}"),
        };
        assert_eq!(link.sizes().segment_bytes(), self.segment.len());
        let mut broken = Broken::default();
        let mut sender = link.sender(ChannelId(7), Priority::Low).expect("its sender");
        broken.sent(sender.send(head(1), &[2; 700]));
        let mut receiver = link.receiver::<Vec<u8>>().expect("its receiver");
        for _ in 0..20 {
            match receiver.poll(&mut |_| None, &mut |_, _| true) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => broken.note(error),
            }
        }
    }

    fn wait(&mut self, sender: &mut Sender) {
        let bell = self.bell.clone();
        let look = |sender: &mut &mut Sender| sender.is_taken(sender.ticket()).then_some(());
        bell.wait(&mut &mut *sender, &Spin::never(), Duration::ZERO, look, |sender| sender.ask_for_call());
        self.broken.sent(sender.send(head(3), &[4; 300]));
        if let Some(room) = self.broken.sent(sender.room()) {
            assert!(room.messages <= 8 && room.payload_bytes <= 1 << 10);
        }
        let mut slots = Vec::new();
        bell.calls().take(|slot| slots.push(slot));
        assert!(slots.iter().all(|&slot| slot < 1024) && slots.len() <= 1024);
    }
}

fn check(m: &Incoming, payload: &Payload<'_, Counted>) {
    let len = match payload {
        Payload::Bytes(bytes) => bytes.len(),
        Payload::Buffer(buffer) => buffer.0.len(),
    };
    assert!(m.channel.0 < MAX_CHANNELS && m.len == len as u64, "{m:?} of {len}");
    assert!(matches!(payload, Payload::Buffer(_)) || len <= 256);
}

/// Whether this side is a guest, then acts, one after the other.
fn target(input: &[u8]) {
    let Some((&choice, rest)) = input.split_first() else { return };
    let count = Arc::new(());
    let mut scene = Scene::new(choice & 1 == 1);
    let mut receiver = scene.link.receiver::<Counted>().expect("its receiver");
    let mut senders = [Priority::High, Priority::Low]
        .map(|priority| scene.link.sender(ChannelId(1), priority).expect("its sender"));
    let mine = vec![6; 500];
    for act in acts::read::<Act>(rest) {
        let broken = &mut scene.broken;
        match act {
            Act::Pull => {
                store(lines(&scene.segment), 0, if choice & 1 == 1 { 3 } else { 4 }, scene.segment.address());
                let me = ProcessId::current().and_then(PidFd::of).expect("this process");
                let _ = scene.link.pull_from(me);
            }
            Act::Send { high, len } => {
                let sender = &mut senders[usize::from(!high)];
                broken.sent(sender.send(head(2), &vec![3; len.into()]));
            }
            Act::Begin { high, len, bytes } => {
                let sender = &mut senders[usize::from(!high)];
                if broken.sent(sender.begin(head(2), len)).is_some() {
                    let taken = broken.sent(sender.extend(&vec![3; bytes.into()]));
                    assert!(taken.unwrap_or(0) as u64 + sender.left() == len || taken.is_none());
                }
            }
            Act::PostMine { high } => drop(broken.sent(senders[usize::from(!high)].post(head(5), &mine))),
            Act::WaitForIt { high } => scene.wait(&mut senders[usize::from(!high)]),
            Act::Abandon { high } => drop(broken.sent(senders[usize::from(!high)].abandon())),
            Act::Poll { room, take } => {
                let give = &mut |m: &Incoming| {
                    assert!(m.len <= MAX_PAYLOAD);
                    (m.len < u64::from(room.min(100_000)))
                        .then(|| Counted(vec![0; m.len as usize], count.clone()))
                };
                let polled = receiver.poll(give, &mut |m, payload| {
                    check(m, &payload);
                    take
                });
                polled.map_or_else(|error| broken.note(error), |n| assert!(n <= 64));
                assert!(receiver.waiting().iter().all(|&n| n <= RING as u32));
            }
            Act::Sleep => receiver.ask_for_call(),
            Act::Attach => scene.attach(),
            Act::Enter { user } => scene.enter(user),
            other => scene.faulty(&other),
        }
    }
    drop((receiver, senders, scene));
    assert_eq!(Arc::strong_count(&count), 1, "all buffers went with their receiver");
    HONEST.with_borrow_mut(|honest| honest.works(choice));
}

fn main() {
    let (high, poll, rest) = (false, Act::Poll { room: 100_000, take: true }, [0; 4]);
    let record = |kind, inline, bytes, first| Act::Forge {
        high,
        ahead: 0,
        tag: (5, kind, inline),
        bytes,
        rest: [first, 0, 0, 0],
    };
    let (inline, whole) = (record(1, 20, 0, 0), record(2, 0, 200, 0));
    let (first, next, abandon) = (record(3, 0, 100, 250), record(4, 0, 100, 0), record(6, 0, 0, 0));
    let last = record(4, 0, 50, 0);
    let post = |len| Act::Post { high, offset: 0, len };
    let store = |line, value| Act::Store { line, word: 0, value };
    let show = |line, unit| Act::Head { high, line, unit };
    let send = |len| Act::Send { high, len };
    let outside = |gate, line, value| Act::Outside { gate, line, word: 0, value };
    let scenes = [
        vec![inline.clone(), whole.clone(), poll.clone(), poll.clone(), send(20), send(200), Act::Sleep],
        vec![
            first.clone(),
            next.clone(),
            poll.clone(),
            inline.clone(),
            last.clone(),
            poll.clone(),
            poll.clone(),
        ],
        vec![
            first.clone(),
            poll.clone(),
            abandon.clone(),
            next.clone(),
            poll.clone(),
            first.clone(),
            first.clone(),
        ],
        vec![
            Act::Pull,
            post(100),
            poll.clone(),
            post(200_000),
            poll.clone(),
            post(64),
            poll.clone(),
            poll.clone(),
        ],
        vec![send(9), send(700), show(1, 0), Act::WaitForIt { high }, show(9, 9), send(300), send(300)],
        vec![
            Act::Begin { high, len: 2000, bytes: 600 },
            show(2, 8),
            Act::WaitForIt { high },
            Act::Abandon { high },
            Act::PostMine { high },
        ],
        vec![
            Act::Attach,
            store(0, 1),
            Act::Attach,
            Act::Enter { user: 1 },
            outside(true, 2, 5),
            Act::Enter { user: 0 },
        ],
        vec![outside(false, 0, 3), outside(false, 1, u64::MAX), Act::WaitForIt { high: true }, poll.clone()],
    ];
    let seeds: Vec<Vec<u8>> =
        (0..).zip(&scenes).map(|(i, acts): (u8, _)| [vec![i % 2], acts::write(acts)].concat()).collect();
    let acts = [
        inline,
        whole,
        first,
        next,
        last,
        abandon,
        poll,
        post(1 << 49),
        send(700),
        show(u32::MAX, 0),
        Act::Pull,
        Act::Attach,
        store(2, 9),
        Act::Poll { room: 0, take: false },
        Act::Sleep,
        Act::WaitForIt { high },
        Act::Forge { high: true, ahead: 0, tag: (4095, 1, 33), bytes: 0, rest },
        Act::Forge { high, ahead: 1, tag: (4096, 3, 0), bytes: 257, rest: [1 << 48; 4] },
        Act::Forge { high, ahead: 0, tag: (4096, 2, 0), bytes: 70, rest },
        Act::Forge { high, ahead: 0, tag: (5, 2, 0), bytes: 257, rest },
        Act::Forge { high, ahead: 0, tag: (6, 3, 0), bytes: 9, rest: [(1 << 48) + 1, 0, 0, 0] },
        Act::Forge { high, ahead: 0, tag: (4095, 3, 0), bytes: 200, rest: [200, 0, 0, 0] },
        Act::Store { line: 0, word: 1, value: 8 << 32 | 16 },
        Act::Store { line: 0, word: 2, value: 2 << 42 | 2 << 10 },
        Act::Enter { user: 2 },
    ];
    let words: Vec<Vec<u8>> = acts.iter().map(|act| acts::write(std::slice::from_ref(act))).collect();
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    driver::run(&seeds, &words, target);
}
