//! Chooses how messages are cut into records, and which stores write them.

use super::layout::{RingView, UNIT};
use std::time::Duration;

/// Where one way of sending gives way to the next. The link's [`Sizes`](super::Sizes) say it for all its
/// senders; one may choose otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Messages up to so many bytes go as one piece.
    pub whole_bytes: u32,
    /// The first fragment of a longer message; each that follows is twice as long, up to a quarter of the
    /// message.
    pub first_fragment: u32,
    /// The longest fragment.
    pub max_fragment: u32,
}

impl Cut {
    /// Nothing is longer than a quarter of the ring.
    pub(super) fn within(self, ring: &RingView) -> Cut {
        let most = ring.shape.units / 4 * UNIT as u32;
        let max_fragment = self.max_fragment.clamp(1, most);
        let first_fragment = self.first_fragment.clamp(1, max_fragment);
        Cut { whole_bytes: self.whole_bytes.min(most), first_fragment, max_fragment }
    }

    /// The longest fragment of a message of `len` bytes.
    ///
    /// The receiver ends one fragment after the sender, so the last ones should not be a large part of the
    /// message; and each costs a line from one processor to the other. Measured over first fragments of 1 to
    /// 8 KiB and parts of 1/16 to 1/4.
    pub(super) fn longest(self, len: u64) -> u32 {
        let part = u64::min((len / 4).next_multiple_of(UNIT as u64), self.max_fragment.into()) as u32;
        part.max(self.first_fragment)
    }

    /// Whether the receiver copies a message of `len` bytes while it is being written, and both end soon: it
    /// has several fragments, and not so many that it is the rate that counts.
    pub(super) fn overlaps(self, len: u64) -> bool {
        len > self.first_fragment.into() && len <= OVERLAPS
    }
}

/// Messages up to so many bytes may be streamed to a receiver that waits. Longer ones arrive sooner through
/// the caches: 1 MiB in 130 µs instead of 180 between cores of one chip.
pub(super) const OVERLAPS: u64 = 128 << 10;

/// Which stores write a message's fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stores {
    /// Those that bypass the caches.
    pub streamed: bool,
    /// [`Pace`] gets to know how long they take.
    pub timed: bool,
}

impl Stores {
    /// Ordinary ones.
    pub const CACHED: Stores = Stores { streamed: false, timed: false };
}

/// Of so many messages one is timed with either stores: an odd number, so that each kind of message of a
/// program that sends two by turns is timed with both.
const PERIOD: u32 = 61;
/// Streaming is worth so much of the sender's time, since the receiver gains by it.
const WORTH: f32 = 1.25;
/// What was measured counts for so much more at each further measurement: a processor may have changed, and
/// one that was interrupted says too much.
const AGE: f32 = 1.125;

/// What either stores cost while a receiver reads what they write.
///
/// Between cores that share only the last cache or nothing, ordinary stores wait for lines that the receiver
/// has, and take those that it reads: 48 KiB arrive in 0.85 of the time by streaming. Where both share nearer
/// caches ordinary stores are twice as fast. Nothing that a process can ask tells which it is, least of all
/// in a virtual machine; the sender's own time does.
#[derive(Debug, Default)]
pub(super) struct Pace {
    messages: u32,
    /// Of the message that is timed, so far.
    bytes: usize,
    time: Duration,
    /// The least times of late, nanoseconds for a byte; zero is unknown. Ordinary stores, then streaming
    /// ones.
    least: [f32; 2],
}

impl Pace {
    /// The stores for the next message to a receiver that waits.
    pub fn stores(&mut self) -> Stores {
        let turn = self.messages % PERIOD;
        self.messages = self.messages.wrapping_add(1);
        (self.bytes, self.time) = (0, Duration::ZERO);
        let [cached, streamed] = self.least;
        match turn {
            0 | 1 => Stores { streamed: turn == 1, timed: true },
            _ => Stores { streamed: streamed <= cached * WORTH, timed: false },
        }
    }

    /// So many bytes took so long; the message may end with them.
    pub fn took(&mut self, stores: Stores, bytes: usize, ends: bool, time: Duration) {
        self.bytes += bytes;
        self.time += time;
        if ends {
            let now = self.time.as_nanos() as f32 / self.bytes.max(1) as f32;
            let least = &mut self.least[usize::from(stores.streamed)];
            *least = if *least == 0.0 { now } else { now.min(*least * AGE) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::shm::{Link, Payload, Sender, Sizes};
    use crate::types::{ChannelId, HandlerId, Head, Priority};

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

    /// Sends so many messages of two fragments of 500 bytes, which take so many nanoseconds, and says how
    /// many were streamed.
    fn streamed(pace: &mut Pace, messages: u32, cached: u64, streaming: u64) -> u32 {
        let mut streamed = 0;
        for _ in 0..messages {
            let stores = pace.stores();
            streamed += u32::from(stores.streamed);
            if stores.timed {
                let half = Duration::from_nanos(if stores.streamed { streaming } else { cached } / 2);
                pace.took(stores, 500, false, half);
                pace.took(stores, 500, true, half);
            }
        }
        streamed
    }

    #[test]
    fn the_stores_that_cost_less_are_used_and_both_are_tried() {
        let mut pace = Pace::default();
        assert_eq!(streamed(&mut pace, 10 * PERIOD, 100, 110), 10 * (PERIOD - 1));
        // Both moved to processors that share a cache: after some measurements all but those are ordinary.
        streamed(&mut pace, 20 * PERIOD, 40, 110);
        assert_eq!(streamed(&mut pace, 10 * PERIOD, 40, 110), 10);
        streamed(&mut pace, 20 * PERIOD, 130, 110);
        assert_eq!(streamed(&mut pace, 10 * PERIOD, 130, 110), 10 * (PERIOD - 1));
    }

    #[test]
    fn one_interruption_changes_nothing() {
        let mut pace = Pace::default();
        streamed(&mut pace, PERIOD, 100, 110);
        assert_eq!(streamed(&mut pace, PERIOD, 100, 1_000_000), PERIOD - 1);
    }

    #[test]
    fn only_a_receiver_that_waits_awake_is_streamed_to() {
        let sizes = Sizes::default();
        let link = Link::create(&sizes).unwrap();
        let other = Link::attach(link.fd().try_clone_to_owned().unwrap(), 1 << 30, &sizes).unwrap();
        let mut receiver = other.receiver::<Vec<u8>>().unwrap();
        let mut sender = link.sender(ChannelId(0), Priority::Low).unwrap();
        let head = Head { handler: HandlerId(1), args: [0; 4] };
        let payload: Vec<u8> = (0..48 << 10).map(|i| (i * 31 / 7 % 253) as u8).collect();
        let mut take = || loop {
            let mut came = Vec::new();
            let mut deliver = |_: &_, payload: Payload<'_, Vec<u8>>| {
                if let Payload::Buffer(bytes) = payload {
                    came = bytes;
                }
                true
            };
            let records = receiver.poll(&mut |m| Some(vec![0; m.len as usize]), &mut deliver).unwrap();
            assert!(came.is_empty() || came == payload);
            if records == 0 {
                return;
            }
        };
        let stores = |sender: &mut Sender| {
            sender.begin(head, payload.len() as u64).unwrap();
            let stores = sender.stores().unwrap();
            assert_eq!(sender.extend(&payload), Ok(payload.len()));
            stores
        };
        let timed = |streamed| Stores { streamed, timed: true };
        assert_eq!(stores(&mut sender), timed(false));
        assert_eq!(stores(&mut sender), Stores::CACHED, "it has not taken the first one");
        take();
        assert_eq!(stores(&mut sender), timed(true));
        take();
        receiver.ask_for_call();
        assert_eq!(stores(&mut sender), Stores::CACHED, "it sleeps");
    }
}
