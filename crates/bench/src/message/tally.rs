//! Counts messages, and checks each where it is received.
//!
//! | word | of a message |
//! |---|---|
//! | 0 | its kind, its lane × 256, and [`WHOLE`] |
//! | 1 | its number in its lane, from 0 |
//! | 2 | of a short one a mix of the number, else where in the [source](Source) its payload lies |
//! | 3 | bytes of its payload |

use bytes::Bytes;
use polyduct_message::Priority;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

/// Lanes: channels of low priority, and one of high.
pub const LANES: usize = 65;
/// The lane of high priority.
pub const HIGH: usize = 64;
/// The receiver compares the whole payload and not only samples of it.
pub const WHOLE: u32 = 1 << 31;
/// Payloads up to so many bytes are always compared whole: it costs less than to choose samples.
const ALWAYS_WHOLE: usize = 64;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Both processes are here.
    Meet = 1,
    /// What is measured.
    Data = 2,
    /// The answer to it.
    Reply = 3,
}

/// Bytes to send: the same in both processes, and different at every place.
#[derive(Clone)]
pub struct Source(Bytes);

impl Source {
    /// So many bytes, in place.
    pub fn new(len: usize) -> Source {
        Source((0..len).map(|i| (i * 31 / 7 % 253) as u8).collect::<Vec<_>>().into())
    }

    /// A part of it, without a copy.
    pub fn share(&self, at: usize, len: usize) -> Bytes {
        self.0.slice(at..at + len)
    }

    /// A part of it.
    pub fn part(&self, at: usize, len: usize) -> &[u8] {
        &self.0[at..at + len]
    }

    /// All its bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Counts of what came. One thread writes; atomics only because handlers must be shareable.
pub struct Tally {
    source: Source,
    next: [AtomicU32; LANES],
    meets: AtomicU64,
    data: AtomicU64,
    replies: AtomicU64,
    high: AtomicU64,
    bad: AtomicU64,
    answers: AtomicBool,
}

/// A look at the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// [`Kind::Meet`].
    pub meets: u64,
    /// [`Kind::Data`] of low priority.
    pub data: u64,
    /// [`Kind::Reply`].
    pub replies: u64,
    /// [`Kind::Data`] of high priority.
    pub high: u64,
}

/// Adds one, without a locked instruction.
#[inline]
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[inline]
fn mix(number: u32) -> u32 {
    (number ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9).rotate_left(7)
}

/// The words of a message of `len` bytes from `at` on.
pub fn words(kind: Kind, lane: usize, number: u32, at: usize, len: usize) -> [u32; 4] {
    let place = if len == 0 { mix(number) } else { at as u32 };
    [kind as u32 | (lane as u32) << 8, number, place, len as u32]
}

impl Tally {
    /// Nothing has come yet.
    pub fn new(source: Source) -> Arc<Tally> {
        let zero = || AtomicU64::new(0);
        let next = std::array::from_fn(|_| AtomicU32::new(0));
        Arc::new(Tally {
            source,
            next,
            meets: zero(),
            data: zero(),
            replies: zero(),
            high: zero(),
            bad: zero(),
            answers: AtomicBool::new(true),
        })
    }

    /// The bytes that payloads are parts of.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// This is the process that asks: nothing that comes to it is to be answered.
    pub fn no_answers(&self) {
        self.answers.store(false, Ordering::Relaxed);
    }

    /// A message has come. Says whether it is of high priority and to be answered at once.
    #[inline]
    pub fn take(&self, priority: Priority, args: [u32; 4], payload: &[u8]) -> bool {
        let [word, number, place, len] = args;
        let lane = (word >> 8 & 0xff) as usize;
        let good = match self.next.get(lane) {
            Some(next) => {
                let due = next.load(Ordering::Relaxed);
                next.store(due.wrapping_add(1), Ordering::Relaxed);
                due == number && len as usize == payload.len() && self.is_right(word, number, place, payload)
            }
            None => false,
        };
        if !good {
            bump(&self.bad);
        }
        match (priority, word & 0xff) {
            (Priority::High, 2) => {
                bump(&self.high);
                return self.answers.load(Ordering::Relaxed);
            }
            (_, 1) => bump(&self.meets),
            (_, 2) => bump(&self.data),
            (_, 3) => bump(&self.replies),
            _ => bump(&self.bad),
        }
        false
    }

    #[inline]
    fn is_right(&self, word: u32, number: u32, place: u32, payload: &[u8]) -> bool {
        match payload.is_empty() {
            true => place == mix(number),
            false => self.is_part(word, place, payload),
        }
    }

    fn is_part(&self, word: u32, place: u32, payload: &[u8]) -> bool {
        let n = payload.len();
        let at = place as usize;
        if at + n > self.source.len() {
            return false;
        }
        let expected = self.source.part(at, n);
        if n <= ALWAYS_WHOLE || word & WHOLE != 0 {
            return payload == expected;
        }
        [0, n / 3, n / 2, n - 1].into_iter().all(|i| payload[i] == expected[i])
    }

    /// What came so far.
    #[inline]
    pub fn seen(&self) -> Seen {
        let of = |c: &AtomicU64| c.load(Ordering::Relaxed);
        Seen {
            meets: of(&self.meets),
            data: of(&self.data),
            replies: of(&self.replies),
            high: of(&self.high),
        }
    }

    /// Messages that were not as they should be.
    pub fn bad(&self) -> u64 {
        self.bad.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_counted() {
        let tally = Tally::new(Source::new(1000));
        let payload = tally.source().part(10, 300).to_vec();
        let low = |args, payload: &[u8]| tally.take(Priority::Low, args, payload);
        low(words(Kind::Data, 0, 0, 0, 0), &[]);
        low(words(Kind::Data, 0, 1, 10, 300), &payload);
        low(words(Kind::Reply, 3, 0, 0, 0), &[]);
        assert!(tally.take(Priority::High, words(Kind::Data, HIGH, 0, 0, 0), &[]));
        assert_eq!(tally.seen(), Seen { meets: 0, data: 2, replies: 1, high: 1 });
        assert_eq!(tally.bad(), 0);
        let mut bad = 0;
        let mut wrong = |args, payload: &[u8]| {
            bad += 1;
            low(args, payload);
            assert_eq!(tally.bad(), bad);
        };
        wrong(words(Kind::Data, 0, 1, 0, 0), &[]); // doubled
        wrong(words(Kind::Data, 0, 5, 0, 0), &[]); // some were lost
        wrong([2, 4, 7, 0], &[]); // a short one that was changed
        wrong(words(Kind::Data, 0, 5, 11, 300), &payload); // other bytes
        wrong(words(Kind::Data, 0, 6, 10, 299), &payload); // another length
        wrong(words(Kind::Data, 0, 7, 900, 300), &payload); // beyond the source
        wrong([2 | 200 << 8, 0, 0, 0], &[]); // no such lane
        let mut changed = payload.clone();
        changed[77] ^= 1;
        let mut args = words(Kind::Data, 0, 8, 10, 300);
        args[0] |= WHOLE;
        wrong(args, &changed);
    }
}
