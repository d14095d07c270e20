//! The shared-memory link within one process: what comes is what was sent, in order, whatever its length, and
//! whatever a faulty peer writes.

use polyduct_message::link::shm::{Bell, Cut, Incoming, Link, Payload, Receiver, SendError, Sender, Sizes};
use polyduct_message::{ChannelId, HandlerId, Head, LinkError, Priority};
use polyduct_os::process::PidFd;
use polyduct_os::segment::{Access, Segment};
use polyduct_os::sync::Ordering;
use proptest::prelude::*;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};

/// What came: channel, priority, word, payload.
type Got = (u16, Priority, u32, Vec<u8>);

struct Pair {
    a: Link,
    /// The other end, and the same memory once more, as a faulty peer may use it.
    b: Link,
    receiver: Receiver<Vec<u8>>,
}

fn pair(sizes: &Sizes) -> Pair {
    let a = Link::create(sizes).unwrap();
    let b = Link::attach(a.fd().try_clone_to_owned().unwrap(), 1 << 30, sizes).unwrap();
    let receiver = b.receiver().unwrap();
    Pair { a, b, receiver }
}

fn head(word: u32) -> Head {
    Head { handler: HandlerId(9), args: [word, !word, 7, 1 << 31] }
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ seed.wrapping_mul(97) ^ i >> 8) as u8).collect()
}

fn take(receiver: &mut Receiver<Vec<u8>>, got: &mut Vec<Got>) -> Result<usize, LinkError> {
    receiver.poll(&mut |m| Some(vec![0; m.len as usize + 3]), &mut |m: &Incoming, payload| {
        assert_eq!(m.head, head(m.head.args[0]));
        let payload = match payload {
            Payload::Bytes(bytes) => bytes.to_vec(),
            Payload::Buffer(buffer) => buffer[..m.len as usize].to_vec(),
        };
        got.push((m.channel.0, m.priority, m.head.args[0], payload));
        true
    })
}

/// Sends all of it; where there is no room, the other end takes something.
fn send(
    sender: &mut Sender,
    word: u32,
    payload: &[u8],
    receiver: &mut Receiver<Vec<u8>>,
    got: &mut Vec<Got>,
) {
    let mut taken = None;
    while taken != Some(payload.len()) {
        let step = match taken {
            None => sender.send(head(word), payload),
            Some(at) => sender.extend(&payload[at..]),
        };
        match step {
            Ok(n) => taken = Some(taken.unwrap_or(0) + n),
            Err(SendError::Full) => assert!(take(receiver, got).unwrap() > 0, "full, and nothing there"),
            Err(e) => panic!("{e}"),
        }
    }
}

fn sizes() -> [Sizes; 3] {
    let middle = Sizes { low_lines: 16, low_bytes: 16 << 10, max_fragment: 1 << 20, ..Sizes::default() };
    [Sizes::default(), Sizes::least(), middle]
}

const LENGTHS: [usize; 36] = [
    0, 1, 2, 7, 8, 9, 27, 28, 29, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 4095,
    4096, 4097, 8191, 8192, 8193, 12_287, 12_288, 12_289, 65_536, 200_001, 3_000_007,
];

#[test]
fn every_length_arrives_as_it_was_sent() {
    for sizes in sizes() {
        for priority in [Priority::Low, Priority::High] {
            let Pair { a, mut receiver, .. } = pair(&sizes);
            let mut sender = a.sender(ChannelId(4095), priority).unwrap();
            let (mut got, mut sent) = (Vec::new(), Vec::new());
            for (i, len) in LENGTHS.into_iter().chain(LENGTHS.into_iter().rev()).enumerate() {
                let payload = bytes(i, len);
                send(&mut sender, i as u32, &payload, &mut receiver, &mut got);
                sent.push((4095, priority, i as u32, payload));
            }
            while take(&mut receiver, &mut got).unwrap() > 0 {}
            assert!(got == sent, "{sizes:?} {priority:?}");
        }
    }
}

#[test]
fn long_messages_of_many_channels_are_sent_a_fragment_at_a_time_and_all_arrive() {
    let Pair { a, mut receiver, .. } = pair(&Sizes { low_bytes: 64 << 10, ..Sizes::default() });
    let mut senders: Vec<_> = (0..40).map(|c| a.sender(ChannelId(c * 100), Priority::Low).unwrap()).collect();
    let payloads: Vec<_> = (0..40).map(|c| bytes(c, 10_000 + 7001 * c)).collect();
    let mut got = Vec::new();
    for (c, sender) in senders.iter_mut().enumerate() {
        sender.begin(head(c as u32), payloads[c].len() as u64).unwrap();
    }
    while senders.iter().any(|s| s.left() > 0) {
        for (sender, payload) in senders.iter_mut().zip(&payloads) {
            let at = payload.len() - sender.left() as usize;
            let end = payload.len().min(at + 3000);
            match sender.extend(&payload[at..end]) {
                Ok(_) => {}
                Err(SendError::Full) => _ = take(&mut receiver, &mut got).unwrap(),
                Err(e) => panic!("{e}"),
            }
        }
    }
    while take(&mut receiver, &mut got).unwrap() > 0 {}
    assert_eq!(got.len(), 40);
    for (channel, _, word, payload) in got {
        assert_eq!(u32::from(channel), word * 100);
        assert!(payload == payloads[word as usize], "{word}");
    }
}

#[test]
fn high_goes_first_and_counts_are_exact() {
    let Pair { a, b, mut receiver } = pair(&Sizes::default());
    let mut low = a.sender(ChannelId(0), Priority::Low).unwrap();
    let mut high = a.sender(ChannelId(0), Priority::High).unwrap();
    assert!(a.sender(ChannelId(0), Priority::High).is_none(), "a channel has one writer");
    assert!(b.receiver::<Vec<u8>>().is_none());
    let room = low.room().unwrap();
    assert_eq!((room.messages, room.payload_bytes), (1024, 32 << 10));
    let payload = bytes(0, 100);
    for n in 0..300 {
        low.send(head(n), if n % 2 == 0 { &payload } else { &[] }).unwrap();
        assert_eq!(receiver.waiting(), [0, n + 1]);
        assert_eq!(low.room().unwrap().messages, 1023 - n);
    }
    low.begin(head(300), 5000).unwrap();
    assert_eq!(low.extend(&bytes(1, 4999)), Ok(4999));
    assert_eq!(receiver.waiting(), [0, 300], "a message counts when all of it is there");
    assert_eq!(low.short(head(0)), Err(SendError::Unfinished { left: 1 }));
    assert_eq!(low.extend(&[1, 2, 3]), Ok(1));
    for n in 0..10 {
        high.short(head(n)).unwrap();
    }
    assert_eq!(receiver.waiting(), [10, 301]);
    let last = low.ticket();
    assert!(!low.is_taken(last));
    let mut got = Vec::new();
    while take(&mut receiver, &mut got).unwrap() > 0 {
        let taken = |p| got.iter().filter(|g| g.1 == p).count() as u32;
        assert_eq!(receiver.waiting(), [10 - taken(Priority::High), 301 - taken(Priority::Low)]);
    }
    assert!(got[..10].iter().all(|g| g.1 == Priority::High));
    assert_eq!(got.len(), 311);
    assert!(low.is_taken(last));
    assert_eq!((low.room().unwrap(), receiver.waiting()), (room, [0, 0]));
}

#[test]
fn exactly_as_many_as_are_guaranteed_are_taken() {
    for sizes in sizes() {
        let Pair { a, mut receiver, .. } = pair(&sizes);
        let mut sender = a.sender(ChannelId(1), Priority::Low).unwrap();
        let mut got = Vec::new();
        for round in 0..20 {
            let room = sender.room().unwrap().messages;
            assert!(room > 0);
            for n in 0..room {
                sender.short(head(n)).unwrap();
            }
            // The receiver may have made more room than was known, but not here.
            assert_eq!(sender.short(head(0)), Err(SendError::Full));
            for _ in 0..round % 3 + 1 {
                take(&mut receiver, &mut got).unwrap();
            }
            while sender.room().unwrap().messages == 0 {
                take(&mut receiver, &mut got).unwrap();
            }
        }
    }
}

#[test]
fn what_is_refused_waits_and_keeps_its_place() {
    let Pair { a, mut receiver, .. } = pair(&Sizes::default());
    let mut sender = a.sender(ChannelId(3), Priority::Low).unwrap();
    let long = bytes(5, 20_000);
    sender.send(head(1), b"before").unwrap();
    assert_eq!(sender.send(head(2), &long), Ok(20_000));
    sender.send(head(3), b"after").unwrap();
    let mut order = Vec::new();
    for buffer in [0, 19_999] {
        let n = receiver.poll(&mut |_| (buffer > 0).then(|| vec![0; buffer]), &mut |m, _| {
            order.push(m.head.args[0]);
            true
        });
        assert!(n.is_ok());
        assert_eq!((&order[..], receiver.waiting()), (&[1][..], [0, 2]), "refused with a buffer of {buffer}");
    }
    let mut got = Vec::new();
    while take(&mut receiver, &mut got).unwrap() > 0 {}
    assert!(got.len() == 2 && got[0].3 == long && got[1].3 == b"after");
}

#[test]
fn what_comes_in_one_piece_may_be_refused_too() {
    let Pair { a, mut receiver, .. } = pair(&Sizes::default());
    let mut low = a.sender(ChannelId(3), Priority::Low).unwrap();
    let mut high = a.sender(ChannelId(3), Priority::High).unwrap();
    let mut got = Vec::new();
    // In the line, and in the ring.
    for (word, len) in [(0, 5), (10, 2000)] {
        (word..word + 3).for_each(|n| assert_eq!(low.send(head(n), &bytes(n as usize, len)), Ok(len)));
        for _ in 0..2 {
            high.send(head(99), b"goes on").unwrap();
            let mut seen = Vec::new();
            let mut look = || {
                receiver.poll(&mut |_| Some(Vec::new()), &mut |m, _| {
                    seen.push(m.head.args[0]);
                    m.priority == Priority::High
                })
            };
            // One that comes alone is all that a look takes.
            assert_eq!([look(), look()], [Ok(1), Ok(0)]);
            assert_eq!((&seen[..], receiver.waiting()), (&[99, word][..], [0, 3]));
        }
        while take(&mut receiver, &mut got).unwrap() > 0 {}
        let came: Vec<_> = got.drain(..).map(|(.., n, payload)| (n, payload)).collect();
        assert_eq!(came, [0, 1, 2].map(|n| (word + n, bytes((word + n) as usize, len))));
    }
}

#[test]
fn a_message_that_is_given_up_is_forgotten() {
    let Pair { a, mut receiver, .. } = pair(&Sizes::default());
    let mut sender = a.sender(ChannelId(3), Priority::Low).unwrap();
    let mut got = Vec::new();
    for round in 0..3 {
        sender.begin(head(1), 100_000).unwrap();
        if round > 0 {
            sender.extend(&bytes(0, 100)).unwrap();
        }
        if round == 2 {
            // Nobody has a buffer; the first fragment waits where it is.
            let refused = receiver.poll(&mut |_| None::<Vec<u8>>, &mut |_, _| panic!("incomplete"));
            assert_eq!(refused, Ok(0));
        }
        sender.abandon().unwrap();
        assert_eq!(sender.left(), 0);
        while take(&mut receiver, &mut got).unwrap() > 0 {}
        assert_eq!(got, []);
    }
    sender.send(head(5), b"next").unwrap();
    while take(&mut receiver, &mut got).unwrap() > 0 {}
    assert_eq!(got.last().unwrap().3, b"next");
}

#[test]
fn what_is_given_up_in_a_full_ring_is_said_with_the_next_message() {
    for said_by_link in [false, true] {
        let Pair { a, mut receiver, .. } = pair(&Sizes::default());
        let mut sender = a.sender(ChannelId(3), Priority::Low).unwrap();
        let mut other = a.sender(ChannelId(4), Priority::Low).unwrap();
        sender.begin(head(1), 100_000).unwrap();
        sender.extend(&bytes(0, 100)).unwrap();
        while other.short(head(2)).is_ok() {}
        assert_eq!(sender.abandon(), Err(SendError::Full));
        assert_eq!(sender.short(head(3)), Err(SendError::Full), "not before it is said");
        let mut got = Vec::new();
        while take(&mut receiver, &mut got).unwrap() > 0 {}
        assert!(!said_by_link || a.say_abandoned());
        sender.short(head(3)).unwrap();
        sender.send(head(4), &bytes(1, 20_000)).unwrap();
        while take(&mut receiver, &mut got).unwrap() > 0 {}
        let words: Vec<_> = got.iter().filter(|g| g.0 == 3).map(|g| (g.2, g.3.len())).collect();
        assert_eq!(words, [(3, 0), (4, 20_000)]);
    }
}

#[test]
fn a_channel_left_within_a_message_is_not_used_again_unless_the_peer_knows() {
    let Pair { a, mut receiver, .. } = pair(&Sizes::default());
    let mut got = Vec::new();
    for fill in [false, true] {
        let mut sender = a.sender(ChannelId(3), Priority::Low).unwrap();
        let mut other = a.sender(ChannelId(4), Priority::Low).unwrap();
        sender.begin(head(1), 100_000).unwrap();
        sender.extend(&bytes(0, 100)).unwrap();
        while fill && other.short(head(2)).is_ok() {}
        drop(sender);
        while take(&mut receiver, &mut got).unwrap() > 0 {}
        assert_eq!(a.sender(ChannelId(3), Priority::Low).is_none(), fill);
    }
}

#[test]
fn sizes_and_segments_that_cannot_be_are_refused() {
    for sizes in [
        Sizes { low_lines: 0, ..Sizes::default() },
        Sizes { high_lines: 12, ..Sizes::default() },
        Sizes { low_bytes: u32::MAX, ..Sizes::default() },
        Sizes { high_bytes: 64, ..Sizes::default() },
    ] {
        assert!(Link::create(&sizes).is_err(), "{sizes:?}");
    }
    let zeros = Segment::create("zeros", Sizes::default().segment_bytes()).unwrap();
    let attach = |fd: std::os::fd::BorrowedFd<'_>, max| {
        Link::attach(fd.try_clone_to_owned().unwrap(), max, &Sizes::default())
    };
    assert!(attach(zeros.fd(), 1 << 30).is_err());
    assert!(attach(std::io::stdin().as_fd(), 1 << 30).is_err());
    let link = Link::create(&Sizes::default()).unwrap();
    assert!(attach(link.fd(), 1 << 22).is_err(), "larger than allowed");
    assert!(attach(link.fd(), 1 << 30).is_ok());
    // A header that speaks of other sizes than the segment has.
    let raw =
        Segment::from_fd_partly(link.fd().try_clone_to_owned().unwrap(), 1, 1 << 30, 0, Access::ReadWrite)
            .unwrap();
    for (word, value) in [(1, 8 << 32 | 8), (1, 7), (2, u64::MAX), (0, 3)] {
        let w = &raw.lines(0..64).unwrap()[0].w[word];
        let before = w.swap(value, Ordering::SeqCst);
        assert!(attach(link.fd(), 1 << 30).is_err(), "{word} {value}");
        w.store(before, Ordering::SeqCst);
    }
    assert!(attach(link.fd(), 1 << 30).is_ok());
}

#[test]
fn a_closed_link_says_so_and_can_be_drained() {
    let Pair { a, b, mut receiver } = pair(&Sizes::least());
    let mut sender = a.sender(ChannelId(0), Priority::Low).unwrap();
    while sender.short(head(0)).is_ok() {}
    a.close();
    b.close();
    assert_eq!(sender.short(head(0)), Err(SendError::Closed));
    assert_eq!(sender.send(head(0), &[1; 99]), Err(SendError::Closed));
    let mut got = Vec::new();
    while take(&mut receiver, &mut got).unwrap() > 0 {}
    assert_eq!(got.len(), 8);
}

#[test]
fn a_bell_of_many_links_names_those_that_call() {
    let bell = Bell::create(4000).unwrap();
    let peers = Bell::attach(bell.fd().try_clone_to_owned().unwrap()).unwrap();
    assert!(!bell.calls().any());
    for slot in [0, 63, 64, 511, 512, 3999, 64, 1 << 30] {
        peers.calls().call(slot);
    }
    let mut called = Vec::new();
    assert!(bell.calls().any());
    bell.calls().take(|slot| called.push(slot));
    assert_eq!(called, [0, 63, 64, 511, 512, 3999]);
    assert!(!bell.calls().any());
}

/// What a faulty peer does between two steps of the honest side.
#[derive(Clone, Debug)]
enum Act {
    /// Stores garbage in a word; the low bits say where, near the start most often.
    Store(usize, u64),
    /// A record that looks right in its first word.
    Forge { lane: usize, ahead: u32, tag: u32, words: [u64; 7] },
    /// The honest side sends.
    Send(usize),
    /// The honest side receives.
    Poll,
}

fn act() -> impl Strategy<Value = Act> {
    let nice =
        prop_oneof![Just(0_u64), Just(u64::MAX), 0..200_u64, any::<u64>(), (0..70_u64).prop_map(|n| n << 32)];
    let tag = (0..5000_u32, 0..8_u32, prop_oneof![0..33_u32, 0..256_u32]);
    prop_oneof![
        (any::<usize>(), nice.clone()).prop_map(|(at, v)| Act::Store(at, v)),
        (0..2_usize, 0..2_u32, tag.prop_map(|(c, k, n)| c | k << 16 | n << 24), prop::array::uniform7(nice))
            .prop_map(|(lane, ahead, tag, words)| Act::Forge { lane, ahead, tag, words }),
        (0..3000_usize).prop_map(Act::Send),
        Just(Act::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn garbage_in_every_word_breaks_this_link_and_nothing_else(acts in prop::collection::vec(act(), 1..60)) {
        let sizes = Sizes::least();
        let link = Link::create(&sizes).unwrap();
        let raw = Segment::from_fd_partly(link.fd().try_clone_to_owned().unwrap(), 1, 1 << 30, 0, Access::ReadWrite).unwrap();
        let lines = raw.lines(0..raw.len() / 64 * 64).unwrap();
        let mut receiver = link.receiver::<Vec<u8>>().unwrap();
        let mut sender = link.sender(ChannelId(1), Priority::Low).unwrap();
        let mut records = [0_u32; 2];
        for act in acts {
            match act {
                Act::Store(at, value) => {
                    let near = if at & 1 == 0 { 30 } else { lines.len() };
                    lines[at / 16 % near].w[at / 2 % 7].store(value, Ordering::Relaxed);
                }
                Act::Forge { lane, ahead, tag, words } => {
                    // The lanes from the guest to the creator: after the control lines and those of the other
                    // direction.
                    let at = records[lane].wrapping_add(ahead);
                    let line = &lines[18 + 16 + lane * 8 + (at % 8) as usize];
                    for (i, word) in words.into_iter().enumerate().take(6) {
                        line.w[i + 1].store(word, Ordering::Relaxed);
                    }
                    line.w[0].store(u64::from(tag) << 32 | u64::from(at.wrapping_add(1)), Ordering::Release);
                    records[lane] += u32::from(ahead == 0);
                }
                Act::Send(n) => {
                    let _ = sender.send(head(1), &vec![1; n]);
                    let _ = sender.abandon();
                    let _ = sender.room();
                    let _ = sender.is_taken(sender.ticket());
                }
                Act::Poll => {
                    let give = &mut |m: &Incoming| (m.len < 100_000).then(|| vec![0; m.len as usize]);
                    let n = receiver.poll(give, &mut |m, payload| {
                        let n = match payload {
                            Payload::Bytes(bytes) => bytes.len(),
                            Payload::Buffer(buffer) => buffer.len(),
                        };
                        assert!(m.len as usize == n && m.channel.0 < 4096);
                        m.head.args[0] % 8 > 0
                    });
                    prop_assert!(n.is_err() || n.unwrap() <= 64);
                    let [high, low] = receiver.waiting();
                    prop_assert!(high <= 8 && low <= 8);
                    receiver.ask_for_call();
                }
            }
        }
    }

    #[test]
    fn any_messages_in_any_turns_arrive_in_order(
        ring in 0..3_usize,
        cut in (0..9000_u32, 1..9000_u32, 1..70_000_u32),
        messages in prop::collection::vec((0..3_u16, any::<bool>(), prop_oneof![0..80_usize, 0..40_000_usize]), 1..60),
        polls in prop::collection::vec(any::<bool>(), 60),
    ) {
        let Pair { a, mut receiver, .. } = pair(&sizes()[ring]);
        let (whole_bytes, first_fragment, max_fragment) = cut;
        let mut senders = HashMap::new();
        let (mut got, mut sent) = (Vec::new(), Vec::new());
        for (i, (channel, high, len)) in messages.into_iter().enumerate() {
            let priority = if high { Priority::High } else { Priority::Low };
            let sender = senders.entry((channel, high)).or_insert_with(|| {
                let mut sender = a.sender(ChannelId(channel), priority).unwrap();
                sender.set_cut(Cut { whole_bytes, first_fragment, max_fragment });
                sender
            });
            let payload = bytes(i, len);
            send(sender, i as u32, &payload, &mut receiver, &mut got);
            sent.push((channel, priority, i as u32, payload));
            if polls[i] {
                take(&mut receiver, &mut got).unwrap();
            }
        }
        while take(&mut receiver, &mut got).unwrap() > 0 {}
        prop_assert_eq!(got.len(), sent.len());
        for priority in [Priority::High, Priority::Low] {
            let of = |all: &[Got]| all.iter().filter(|g| g.1 == priority).cloned().collect::<Vec<_>>();
            prop_assert!(of(&got) == of(&sent));
        }
    }
}

/// A posted message that its sender takes back: before it is looked at, and in the middle.
#[test]
fn what_is_withdrawn_does_not_come() {
    let Pair { a, b, mut receiver } = pair(&Sizes::default());
    assert!(b.pull_from(PidFd::open(std::process::id()).unwrap()).unwrap());
    let mut sender = a.sender(ChannelId(0), Priority::Low).unwrap();
    let mut got = Vec::new();
    for pieces in 0..2 {
        let payload = bytes(pieces, 300_000);
        let ticket = sender.post(head(1), &payload).unwrap();
        (0..pieces).for_each(|_| assert_eq!(take(&mut receiver, &mut got).unwrap(), 1));
        assert!(sender.withdraw(ticket), "{pieces}");
        // Nothing may read it from here on.
        drop(payload);
        assert_eq!(b.waiting(), [0, 1]);
        send(&mut sender, 2, b"after", &mut receiver, &mut got);
        while take(&mut receiver, &mut got).unwrap() > 0 {}
        assert_eq!(got, [(0, Priority::Low, 2, b"after".to_vec())], "{pieces}");
        assert_eq!((b.waiting(), sender.is_taken(ticket)), ([0, 0], true));
        got.clear();
    }
    let payload = bytes(7, 1000);
    let ticket = sender.post(head(3), &payload).unwrap();
    while take(&mut receiver, &mut got).unwrap() > 0 {}
    assert!(!sender.withdraw(ticket), "it was fetched");
    assert_eq!(got, [(0, Priority::Low, 3, payload)]);
    // The line of an old ticket holds something else by now, and that stays.
    for n in 0..2000 {
        got.clear();
        send(&mut sender, n, &[0; 32], &mut receiver, &mut got);
        assert!(!sender.withdraw(ticket));
        while take(&mut receiver, &mut got).unwrap() > 0 {}
        assert_eq!(got.len(), 1);
    }
}

/// Memory that a link's segment has.
fn reserved(link: &Link) -> u64 {
    let about = std::fs::metadata(format!("/proc/self/fd/{}", link.fd().as_raw_fd())).unwrap();
    std::os::unix::fs::MetadataExt::blocks(&about) * 512
}

/// Each lap is twice as long as the one before, until the ring is all used, or until as much has been taken
/// as may be.
#[test]
fn rings_begin_small_and_grow_with_use_as_far_as_they_may() {
    for (grow_bytes, most) in [(u64::MAX, 6000), (0, 6000), (0, 60_000), (100 << 10, 60_000)] {
        let sizes = Sizes { grow_bytes, ..Sizes::default() };
        let Pair { a, mut receiver, .. } = pair(&sizes);
        let first = reserved(&a);
        assert!(first <= 320 << 10, "{first} bytes at first");
        let mut low = a.sender(ChannelId(0), Priority::Low).unwrap();
        let (mut sent, mut got, mut random) = (Vec::new(), Vec::new(), 1u64);
        for n in 0..2000u32 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let payload = bytes(n as usize % 200, 1 + (random >> 40) as usize % most);
            let mut taken = 0;
            while taken < payload.len() {
                let step =
                    if taken == 0 { low.send(head(n), &payload) } else { low.extend(&payload[taken..]) };
                match step {
                    Ok(more) => taken += more,
                    Err(SendError::Full) => _ = take(&mut receiver, &mut got).unwrap(),
                    Err(e) => panic!("{e}"),
                }
            }
            sent.push(payload);
        }
        while take(&mut receiver, &mut got).unwrap() > 0 {}
        assert_eq!(got.len(), sent.len());
        assert!(got.iter().zip(&sent).all(|(got, sent)| got.3 == *sent), "{grow_bytes} {most}");
        let grown = reserved(&a) - first;
        match grow_bytes {
            u64::MAX => assert!(grown >= 3 << 20, "{grown} bytes more"),
            // What the segment has comes in whole pages.
            may => assert!(grown <= may + (8 << 10), "{grown} bytes more; {may} may be"),
        }
    }
}
