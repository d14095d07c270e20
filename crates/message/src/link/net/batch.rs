//! Decides which messages wait a moment for those behind them, so that they share frames, records and system calls.
//!
//! A message that goes alone goes at once: a write to a socket costs ten times what the rest of a short message does, but the
//! partner waits for it. A program that sends one message directly behind the other does not wait for any of them. From the third of
//! such a row on they wait until there are [`MANY`] of them, the program does anything else (it looks for what has come, waits, or
//! pauses before it sends again), or [`MOMENT`] has passed: the endpoint's thread sends them then.

use crate::types::Address;
use core::time::Duration;

/// Between the end of one send and the beginning of the next there is no time for anything else.
const BEHIND: Duration = Duration::from_micros(1);
/// How many messages of a row go at once.
const FIRST: u32 = 2;
/// Messages that wait, at most.
const MANY: u32 = 64;
/// Longer payloads go at once.
const SHORT: usize = 1 << 10;
/// The longest that a message waits for others.
const MOMENT: Duration = Duration::from_micros(100);

/// The messages that wait, by their receivers. Times are of [`polyduct_os::clock::now`].
#[derive(Debug, Default)]
pub struct Batch {
    /// When the last send ended, and how many came directly behind another.
    last: Option<Duration>,
    row: u32,
    /// Units with messages that wait, how many those are, and since when the first does.
    units: Vec<Address>,
    waiting: u32,
    since: Duration,
}

impl Batch {
    /// A send of `len` bytes to `unit` has begun at `now`. Returns whether it may wait; otherwise all that wait go with it.
    pub fn waits(&mut self, unit: Address, len: usize, urgent: bool, now: Duration) -> bool {
        let is_behind = self.last.is_some_and(|last| now.saturating_sub(last) < BEHIND);
        self.row = if is_behind && len <= SHORT && !urgent { self.row.saturating_add(1) } else { 0 };
        self.last = Some(now);
        if self.row < FIRST {
            return false;
        }
        if self.waiting == 0 {
            self.since = now;
        } else if now.saturating_sub(self.since) >= MOMENT || self.waiting + 1 >= MANY {
            return false;
        }
        self.waiting += 1;
        if !self.units.contains(&unit) {
            self.units.push(unit);
        }
        true
    }

    /// A send that did not wait has ended.
    pub fn sent(&mut self, now: Duration) {
        self.last = Some(now);
    }

    /// The program does something else than to send.
    pub fn interrupt(&mut self) {
        self.last = None;
    }

    /// When what waits has to go.
    pub fn deadline(&self) -> Option<Duration> {
        (self.waiting > 0).then(|| self.since + MOMENT)
    }

    /// A unit with messages that wait; they no longer do.
    pub fn pop(&mut self) -> Option<Address> {
        self.waiting = 0;
        self.units.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: Duration = Duration::from_nanos(1);

    #[test]
    fn what_goes_alone_goes_at_once() {
        let mut batch = Batch::default();
        for n in 0..100 {
            assert!(!batch.waits(1, 8, false, 2000 * n * NS), "{n}");
        }
    }

    #[test]
    fn a_row_waits_until_it_is_long() {
        let mut batch = Batch::default();
        let waits: Vec<bool> = (0..200).map(|n| batch.waits(1, 8, false, 100 * n * NS)).collect();
        assert_eq!(waits[..3], [false, false, true], "the first two of a row go at once");
        assert!(waits[2..65].iter().all(|waits| *waits) && !waits[65]);
        assert_eq!(batch.pop(), Some(1));
        assert_eq!((batch.pop(), batch.deadline()), (None, None));
    }

    #[test]
    fn nothing_waits_longer_than_a_moment() {
        let mut batch = Batch::default();
        let mut now = Duration::ZERO;
        while batch.deadline().is_none() {
            now += 900 * NS;
            batch.waits(1, 8, false, now);
        }
        assert_eq!(batch.deadline(), Some(now + MOMENT));
        // A slow row: it is not long when its time is over.
        let begun = now;
        loop {
            now += 990 * NS;
            if !batch.waits(2, 8, false, now) {
                break;
            }
        }
        assert!(now - begun < MOMENT + 1000 * NS, "{:?}", now - begun);
        assert_eq!([batch.pop(), batch.pop(), batch.pop()], [Some(2), Some(1), None]);
    }

    #[test]
    fn what_is_urgent_or_long_goes_at_once_and_so_does_what_follows_anything_else() {
        let mut batch = Batch::default();
        let row = |batch: &mut Batch, from: u32| {
            (from..from + 5).map(|n| batch.waits(1, 8, false, 100 * n * NS)).last()
        };
        assert_eq!(row(&mut batch, 0), Some(true));
        assert!(!batch.waits(1, SHORT + 1, false, 500 * NS));
        assert_eq!(row(&mut batch, 6), Some(true));
        assert!(!batch.waits(1, 8, true, 1100 * NS));
        assert_eq!(row(&mut batch, 12), Some(true));
        batch.interrupt();
        assert!(!batch.waits(1, 8, false, 1700 * NS));
    }
}
