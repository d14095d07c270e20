//! Decides which messages wait a moment for those behind them, so that they share frames, records and system
//! calls.
//!
//! A message that goes alone goes at once: a write to a socket costs ten times what the rest of a short
//! message does, but the partner waits for it. A program that sends one message directly behind the other
//! does not wait for any of them. From the third of such a row on they wait. All go together with the one
//! that makes [`MANY`] of them; with the next that may not wait, since it is long or urgent or comes after a
//! pause; when the program looks for what has come, or is about to sleep; and when the first has waited for
//! [`MOMENT`]: the endpoint's thread sends them then.
//!
//! A program that finds no room looks for some between its sends, and gets it for one message at a time.
//! Those are a row, too, from the first on: each would go alone otherwise, and each be answered alone. While
//! there was none lately, a look sends only what has waited for [`SOON`].

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
/// The same where the program looks again and again because it waits for room.
const SOON: Duration = Duration::from_micros(20);
/// A program that found no room so long ago still sends as fast as others take it.
const CROWDED: Duration = Duration::from_micros(200);

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
    /// When the program last found no room.
    full: Option<Duration>,
}

impl Batch {
    /// A send of `len` bytes to `unit` has begun at `now`. Returns whether it may wait; otherwise all that
    /// wait go with it.
    pub fn waits(&mut self, unit: Address, len: usize, urgent: bool, now: Duration) -> bool {
        let is_behind = self.last.is_some_and(|last| now.saturating_sub(last) < BEHIND);
        let may_wait = len <= SHORT && !urgent;
        self.row = if is_behind && may_wait { self.row.saturating_add(1) } else { 0 };
        self.last = Some(now);
        if self.row < FIRST && !(may_wait && self.is_crowded(now)) {
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

    /// A send found no room.
    pub fn no_room(&mut self, now: Duration) {
        self.full = Some(now);
    }

    fn is_crowded(&self, now: Duration) -> bool {
        self.full.is_some_and(|full| now.saturating_sub(full) < CROWDED)
    }

    /// The program looks for what has come. Returns whether what waits has to go now.
    pub fn look(&mut self, now: Duration) -> bool {
        if self.is_crowded(now) && now.saturating_sub(self.since) < SOON {
            return false;
        }
        self.last = None;
        self.waiting > 0
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
    fn who_waits_for_room_sends_in_batches() {
        let mut batch = Batch::default();
        batch.no_room(Duration::ZERO);
        let mut now = Duration::ZERO;
        let sent = (0..20)
            .map(|_| {
                now += 2000 * NS;
                assert!(batch.waits(1, 8, false, now), "{now:?}");
                now += 1000 * NS;
                batch.look(now)
            })
            .position(|goes| goes);
        assert_eq!(sent, Some(7), "all that came in SOON");
        assert_eq!((batch.pop(), batch.pop()), (Some(1), None));
        assert!(!batch.look(now) && !batch.waits(1, 8, true, now));
        assert!(!batch.waits(1, 8, false, now + CROWDED), "there is room again");
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
        assert!(batch.look(1650 * NS));
        assert!(!batch.waits(1, 8, false, 1700 * NS));
    }
}
