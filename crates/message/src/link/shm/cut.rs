//! How messages are cut into records, and which stores write them.

use super::layout::{Lane, UNIT};

/// Where one way of sending gives way to the next. The link's [`Sizes`](super::Sizes) say it for all its senders; one may
/// choose otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Messages up to so many bytes go as one piece.
    pub whole_bytes: u32,
    /// The first fragment of a longer message; each that follows is twice as long, up to a quarter of the message.
    pub first_fragment: u32,
    /// The longest fragment.
    pub max_fragment: u32,
}

impl Cut {
    /// Nothing is longer than a quarter of the ring.
    pub(super) fn within(self, lane: &Lane) -> Cut {
        let most = lane.shape.units / 4 * UNIT as u32;
        let max_fragment = self.max_fragment.clamp(1, most);
        let first_fragment = self.first_fragment.clamp(1, max_fragment);
        Cut { whole_bytes: self.whole_bytes.min(most), first_fragment, max_fragment }
    }

    /// The longest fragment of a message of `len` bytes.
    ///
    /// The receiver ends one fragment after the sender, so the last ones should not be a large part of the message; and each
    /// costs a line from one processor to the other. Measured over first fragments of 1 to 8 KiB and parts of 1/16 to 1/4.
    pub(super) fn longest(self, len: u64) -> u32 {
        let part = u64::min((len / 4).next_multiple_of(UNIT as u64), self.max_fragment.into()) as u32;
        part.max(self.first_fragment)
    }

    /// Whether the receiver copies a message of `len` bytes while it is being written, and both end soon: it has several
    /// fragments, and not so many that it is the rate that counts.
    pub(super) fn overlaps(self, len: u64) -> bool {
        len > self.first_fragment.into() && len <= OVERLAPS
    }
}

/// Messages up to so many bytes may be streamed to a receiver that waits. Longer ones arrive sooner through the caches: 1 MiB in
/// 130 µs instead of 180 between cores of one chip.
pub(super) const OVERLAPS: u64 = 128 << 10;

/// A page: what is read of another process's memory costs something for each.
const PAGE: usize = 4 << 10;

/// How many bytes at the end of a message, which lies at `address`, are left to the receiver: a third, from a page's start, or
/// none where that is less than a page.
///
/// It reads slower than the sender writes, and has to copy what was written meanwhile. Measured over a third, a half, and two
/// thirds.
pub(super) fn left_to_the_receiver(address: usize, len: usize) -> usize {
    let start = (address + len - len / 3).next_multiple_of(PAGE);
    Some((address + len).saturating_sub(start)).filter(|&end| end >= PAGE).unwrap_or(0)
}

/// How a message's fragments come to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By ordinary stores.
    Cached,
    /// By stores that bypass the caches.
    Streamed,
    /// Streamed, but for the end, which the receiver reads in the sender's memory meanwhile.
    Shared,
}

/// How the next message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub way: Way,
    /// The receiver says how long it took, for [`Pace`].
    pub timed: bool,
}

impl Plan {
    /// What is known without a look at anything.
    pub const CACHED: Plan = Plan { way: Way::Cached, timed: false };
}

const WAYS: [Way; 3] = [Way::Cached, Way::Streamed, Way::Shared];
/// Of so many messages one is timed each way: an odd number, so that each kind of message of a program that sends two by turns is
/// timed every way.
const PERIOD: u32 = 61;
/// What was measured counts for so much more at each further measurement: a processor may have changed, and one that was
/// interrupted says too much.
const AGE: f32 = 1.125;

/// What each way costs, from the sender's first step to the receiver's last.
///
/// Between cores that share only the last cache or nothing, ordinary stores wait for lines that the receiver has, and take
/// those that it reads: 48 KiB arrive in 0.85 of the time by streaming. Where both share nearer caches ordinary stores are twice
/// as fast. What the sender has in its own caches it hands over best itself; what it has not, both fetch sooner. Nothing that a
/// process can ask tells which it is, least of all in a virtual machine; the time does.
#[derive(Debug, Default)]
pub(super) struct Pace {
    messages: u32,
    /// Whose time is to come: its first record, its way, and its bytes.
    asked: Option<(u32, Way, u64)>,
    /// The least times of late, nanoseconds for a byte; zero is unknown.
    least: [f32; 3],
}

impl Pace {
    /// How the next message to a receiver that waits goes. `said` is what it has [said](said) last; whether it `can_read` the
    /// sender's memory.
    pub fn plan(&mut self, said: u64, can_read: bool) -> Plan {
        let line = (said >> 32) as u32;
        if let Some((_, way, bytes)) = self.asked.take_if(|asked| asked.0 == line) {
            let now = (said as u32) as f32 / bytes.max(1) as f32;
            let least = &mut self.least[way as usize];
            *least = if *least == 0.0 { now } else { now.min(*least * AGE) };
        }
        let turn = self.messages % PERIOD;
        self.messages = self.messages.wrapping_add(1);
        let ways = &WAYS[..if can_read { 3 } else { 2 }];
        match ways.get(turn as usize) {
            Some(&way) => Plan { way, timed: true },
            None => {
                let known = ways.iter().copied().filter(|&way| self.least[way as usize] > 0.0);
                let least = known.min_by(|&a, &b| self.least[a as usize].total_cmp(&self.least[b as usize]));
                Plan { way: least.unwrap_or(Way::Cached), timed: false }
            }
        }
    }

    /// The message that was to be timed has its first record.
    pub fn ask(&mut self, line: u32, way: Way, bytes: u64) {
        self.asked = Some((line, way, bytes));
    }
}

/// What a receiver says of a message that was to be timed: its first record, and the nanoseconds it took. It is no more than a
/// hint, and a clock of another time namespace is as good as none.
pub(super) fn said(line: u32, nanos: u64) -> u64 {
    u64::from(line) << 32 | nanos.min(u32::MAX.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::shm::layout::HAS_READ;
    use crate::link::shm::record::has_read;
    use crate::link::shm::{Incoming, Link, Payload, Receiver, Sender, Sizes};
    use crate::types::{ChannelId, HandlerId, Head, Priority};
    use polyduct_os::process::PidFd;
    use polyduct_os::segment::{Access, Segment};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    const CUT: Cut = Cut { whole_bytes: 8 << 10, first_fragment: 8 << 10, max_fragment: 64 << 10 };

    #[test]
    fn fragments_grow_to_a_quarter_of_the_message() {
        assert_eq!(CUT.longest(48 << 10), 12 << 10);
        assert_eq!(CUT.longest((48 << 10) + 4), (12 << 10) + 64);
        assert_eq!(CUT.longest(9 << 10), 8 << 10);
        assert_eq!(CUT.longest(1 << 40), 64 << 10);
    }

    #[test]
    fn only_what_is_in_several_pieces_and_short_is_streamed() {
        let overlaps = [8 << 10, (8 << 10) + 1, OVERLAPS, OVERLAPS + 1].map(|len| CUT.overlaps(len));
        assert_eq!(overlaps, [false, true, true, false]);
        assert!(!Cut { first_fragment: 64 << 10, ..CUT }.overlaps(48 << 10));
    }

    #[test]
    fn a_third_is_left_to_the_receiver_from_a_pages_start() {
        assert_eq!(left_to_the_receiver(0x1000, 48 << 10), 16 << 10);
        assert_eq!(left_to_the_receiver(0x1010, 48 << 10), (12 << 10) + 16);
        assert_eq!(left_to_the_receiver(0x1000, 12 << 10), 4 << 10);
        assert_eq!(left_to_the_receiver(0x1800, 9 << 10), 0, "less than a page");
        assert_eq!(left_to_the_receiver(0x1000, 100), 0);
    }

    /// Sends so many messages of 1000 bytes, which take so many nanoseconds by each way, and says how many went by each.
    fn ways(pace: &mut Pace, messages: u32, can_read: bool, nanos: [u64; 3]) -> [u32; 3] {
        let (mut went, mut answer) = ([0; 3], 0);
        for line in 0..messages {
            let plan = pace.plan(answer, can_read);
            went[plan.way as usize] += 1;
            if plan.timed {
                pace.ask(line, plan.way, 1000);
                answer = said(line, nanos[plan.way as usize]);
            }
        }
        went
    }

    #[test]
    fn the_way_that_takes_least_is_used_and_all_are_tried() {
        let (mut pace, most) = (Pace::default(), 10 * (PERIOD - 2));
        assert_eq!(ways(&mut pace, 10 * PERIOD, true, [100, 80, 70]), [10, 10, most]);
        // Both moved to processors that share a cache: after some measurements all but those are ordinary.
        ways(&mut pace, 20 * PERIOD, true, [40, 110, 120]);
        assert_eq!(ways(&mut pace, 10 * PERIOD, true, [40, 110, 120]), [most, 10, 10]);
        ways(&mut pace, 20 * PERIOD, true, [130, 110, 120]);
        assert_eq!(ways(&mut pace, 10 * PERIOD, true, [130, 110, 120]), [10, most, 10]);
        assert_eq!(
            ways(&mut Pace::default(), PERIOD, false, [2, 3, 1]),
            [PERIOD - 1, 1, 0],
            "it cannot read"
        );
    }

    #[test]
    fn one_interruption_changes_nothing() {
        let mut pace = Pace::default();
        ways(&mut pace, PERIOD, true, [100, 80, 90]);
        assert_eq!(ways(&mut pace, PERIOD, true, [100, 1_000_000, 90]), [1, PERIOD - 2, 1]);
    }

    #[test]
    fn an_answer_that_belongs_to_no_question_is_none() {
        let mut pace = Pace::default();
        for line in 0..PERIOD {
            let plan = pace.plan(said(line, 1), true);
            assert_eq!(
                (plan.way, plan.timed),
                (WAYS.get(line as usize).copied().unwrap_or(Way::Cached), line < 3)
            );
            if plan.timed {
                pace.ask(line + 1000, plan.way, 1000);
            }
        }
        assert_eq!(said(7, u64::MAX), 7 << 32 | u64::from(u32::MAX));
    }

    /// Two ends in one process, each of which may read the memory of the other.
    struct Pair {
        sender: Sender,
        receiver: Receiver<Vec<u8>>,
        links: [Link; 2],
    }

    impl Pair {
        fn new() -> Pair {
            let sizes = Sizes::default();
            let link = Link::create(&sizes).unwrap();
            let other = Link::attach(link.fd().try_clone_to_owned().unwrap(), 1 << 30, &sizes).unwrap();
            let own = || PidFd::open(std::process::id()).unwrap();
            assert!(other.pull_from(own()).unwrap());
            let sender = link.sender(ChannelId(0), Priority::Low).unwrap();
            Pair { sender, receiver: other.receiver().unwrap(), links: [link, other] }
        }
    }

    /// Takes what is there, and then says so to the sender. Returns the last message.
    fn take(receiver: &mut Receiver<Vec<u8>>) -> Option<Vec<u8>> {
        let mut came = None;
        loop {
            let mut deliver = |_: &_, payload: Payload<'_, Vec<u8>>| {
                came = Some(match payload {
                    Payload::Buffer(bytes) => bytes,
                    Payload::Bytes(bytes) => bytes.to_vec(),
                });
                true
            };
            let records = receiver.poll(&mut |m| Some(vec![0; m.len as usize]), &mut deliver).unwrap();
            if records == 0 {
                return came;
            }
        }
    }

    const HEAD: Head = Head { handler: HandlerId(1), args: [0; 4] };

    fn bytes(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|i| ((i + seed) * 31 / 7 % 253) as u8).collect()
    }

    #[test]
    fn only_a_receiver_that_waits_awake_gets_anything_but_ordinary_stores() {
        let Pair { mut sender, mut receiver, links: _links } = Pair::new();
        let mut plan = |payload: &[u8]| {
            sender.begin(HEAD, payload.len() as u64).unwrap();
            let plan = sender.plan().unwrap();
            assert_eq!(sender.extend(payload), Ok(payload.len()));
            plan
        };
        let timed = |way| Plan { way, timed: true };
        let payload = bytes(48 << 10, 1);
        assert_eq!(plan(&payload), timed(Way::Cached));
        assert_eq!(plan(&payload), Plan::CACHED, "it has not taken the first one");
        assert_eq!(take(&mut receiver).as_ref(), Some(&payload));
        assert_eq!(plan(&payload), timed(Way::Streamed));
        assert_eq!(take(&mut receiver).as_ref(), Some(&payload));
        // Nobody reads while it is sent here, so all of it comes through the ring.
        assert_eq!(plan(&payload), timed(Way::Shared));
        assert_eq!(take(&mut receiver).as_ref(), Some(&payload));
        receiver.ask_for_call();
        assert_eq!(plan(&payload), Plan::CACHED, "it sleeps");
    }

    /// The receiver reads in the memory of a message that has come to an end meanwhile: what it finds there counts for nothing.
    #[test]
    fn an_end_that_is_read_late_comes_through_the_ring() {
        let Pair { mut sender, mut receiver, links: _links } = Pair::new();
        for (turn, seed) in (0..3).zip(5..) {
            let mut payload = bytes(48 << 10, seed);
            assert_eq!(sender.send(HEAD, &payload), Ok(payload.len()), "{turn}");
            payload.fill(0);
            assert_eq!(take(&mut receiver), Some(bytes(48 << 10, seed)));
        }
    }

    /// Sends a message of which the receiver may read the end.
    fn share(sender: &mut Sender, payload: &[u8]) {
        sender.begin(HEAD, payload.len() as u64).unwrap();
        sender.go(Way::Shared);
        assert_eq!(sender.extend(payload), Ok(payload.len()), "the ring has room for it");
    }

    /// Set when it is dropped, so that who waits for it does so also when a test fails.
    struct Done<'a>(&'a AtomicBool);

    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }

    /// Whoever is first.
    #[test]
    fn whatever_the_receiver_reads_all_of_it_arrives() {
        const MESSAGES: usize = 600;
        let Pair { mut sender, mut receiver, links: _links } = Pair::new();
        let (done, failed, taken) = (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|s| {
            let (done, failed, taken) = (&done, &failed, &taken);
            s.spawn(move || {
                let _failed = Done(failed);
                while !done.load(Ordering::Acquire) {
                    if let Some(came) = take(&mut receiver) {
                        let seed = taken.load(Ordering::Relaxed);
                        assert!(came == bytes(came.len(), seed), "message {seed} of {} bytes", came.len());
                        taken.store(seed + 1, Ordering::Release);
                    }
                }
            });
            let _done = Done(done);
            for seed in 0..MESSAGES {
                let len = (8 << 10) + 1 + seed * 7919 % (119 << 10);
                // Begins anywhere.
                let mut payload = vec![0; seed % 64];
                payload.extend(bytes(len, seed));
                share(&mut sender, &payload[seed % 64..]);
                payload.fill(0);
                while taken.load(Ordering::Acquire) <= seed {
                    assert!(!failed.load(Ordering::Acquire), "the receiver has failed");
                    std::thread::yield_now();
                }
            }
        });
    }

    /// The receiver's words of the lane on which the creator sends low priority.
    fn says(link: &Link, word: usize, value: u64) {
        const LINE: usize = 8;
        let fd = link.fd().try_clone_to_owned().unwrap();
        let segment = Segment::from_fd(fd, 1, 1 << 30, Access::ReadWrite).unwrap();
        segment.lines(0..64 * (LINE + 1)).unwrap()[LINE].w[word].store(value, Ordering::Release);
    }

    #[test]
    fn an_end_that_the_receiver_has_read_is_not_sent() {
        let Pair { mut sender, mut receiver, links } = Pair::new();
        let payload = bytes(48 << 10, 3);
        let end = left_to_the_receiver(payload.as_ptr() as usize, payload.len()) as u64;
        let before = sender.room().unwrap().payload_bytes;
        // As though it had been fast. It reads when it is asked to look.
        says(&links[0], HAS_READ, has_read(0));
        share(&mut sender, &payload);
        let used = before - sender.room().unwrap().payload_bytes;
        assert_eq!(used, ((48 << 10) - end).next_multiple_of(UNIT as u64));
        assert_eq!(links[1].waiting(), [0, 1]);
        assert_eq!(take(&mut receiver).as_ref(), Some(&payload));
        assert_eq!(links[1].waiting(), [0, 0]);
    }

    #[test]
    fn what_the_receiver_could_not_read_must_not_be_left_out() {
        let Pair { mut sender, receiver, links } = Pair::new();
        drop(receiver);
        let blind =
            Link::attach(links[0].fd().try_clone_to_owned().unwrap(), 1 << 30, &Sizes::default()).unwrap();
        let mut receiver = blind.receiver::<Vec<u8>>().unwrap();
        says(&links[0], HAS_READ, has_read(0));
        share(&mut sender, &bytes(48 << 10, 3));
        let mut error = None;
        while error.is_none() {
            let give = &mut |m: &Incoming| Some(vec![0; m.len as usize]);
            error = receiver.poll(give, &mut |_, _| panic!("it lacks its end")).err();
        }
        let text = error.unwrap().to_string();
        assert!(text.contains("the bytes that a fragment leaves out"), "{text}");
    }
}
