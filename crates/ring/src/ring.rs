//! The ring of one lane: who may write which line, when a line counts, and when it is free again.
//!
//! Positions only grow (modulo 2³²) and are masked into the ring. A position is a pair: records, one line
//! each, and units of 64 bytes of payload; both move in one word, so that one compare-exchange claims a
//! record with its payload and the payloads lie in the order of the records.
//!
//! A line counts when its first word shows its position plus one, stored last with release. The position of
//! the lap before differs, so nothing is ever reset.
//!
//! What the other process stores is loaded once and checked against what this side knows by itself.

use polyduct_os::sync::{AtomicU64, Ordering, Words};

/// The size of a lane's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Records that it holds; a power of two, at most 2²⁰.
    pub lines: u32,
    /// Units of 64 bytes of payload that it holds; a power of two, at most 2²⁵.
    pub units: u32,
}

/// A place in a lane, counted from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingPosition {
    /// Records before it.
    pub line: u32,
    /// Units of payload before it, those left out at the ring's end included.
    pub unit: u32,
}

impl RingPosition {
    #[inline]
    fn pack(self) -> u64 {
        u64::from(self.line) << 32 | u64::from(self.unit)
    }

    #[inline]
    fn unpack(word: u64) -> RingPosition {
        RingPosition { line: (word >> 32) as u32, unit: word as u32 }
    }
}

impl Shape {
    /// The ring's next start after position `unit`; that itself where it is one.
    #[inline]
    pub fn anew(self, unit: u32) -> u32 {
        unit.wrapping_add(unit.wrapping_neg() & (self.units - 1))
    }

    /// The line's place in the ring.
    #[inline]
    pub fn line(self, line: u32) -> usize {
        (line & (self.lines - 1)) as usize
    }

    /// The unit's place in the ring.
    #[inline]
    pub fn unit(self, unit: u32) -> usize {
        (unit & (self.units - 1)) as usize
    }

    /// Whether what lies between `head` and `tail` can be in the ring at once.
    #[inline]
    fn holds(self, head: RingPosition, tail: RingPosition) -> bool {
        tail.line.wrapping_sub(head.line) <= self.lines && tail.unit.wrapping_sub(head.unit) <= self.units
    }
}

/// Why nothing was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The receiver has not taken enough yet.
    Full,
    /// The receiver shows a head that cannot be.
    Broken(u64),
}

/// A place for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Where.
    pub at: RingPosition,
    /// The payload begins at the ring's start, and what was left before that is left out. The receiver is
    /// told.
    pub anew: bool,
}

/// The sending side of a lane, in the sender's own memory: its threads share it.
///
/// Payload goes through a window at the start of the ring, and the rest of the ring takes no memory until the
/// window is made wider. Positions are those of the whole ring, so a lap that ends with the window leaves the
/// rest out, as one that ends with the ring leaves out what a payload does not fit into.
#[derive(Debug)]
#[repr(align(64))]
pub struct Outlet {
    /// The place of the next record.
    tail: AtomicU64,
    /// A head that the receiver has shown: at most the true one, whichever thread read it.
    seen: AtomicU64,
    /// Units of the window; it only grows.
    window: AtomicU64,
}

impl Outlet {
    /// With a window of so many units at first; of the whole ring where it has fewer.
    pub fn new(window: u32) -> Outlet {
        Outlet { tail: AtomicU64::new(0), seen: AtomicU64::new(0), window: AtomicU64::new(window.into()) }
    }

    /// Units of the window.
    #[inline]
    pub fn window(&self, shape: Shape) -> u32 {
        (self.window.load(Ordering::Relaxed) as u32).min(shape.units)
    }

    /// Makes the window as wide, if it is not wider.
    pub fn widen(&self, window: u32) {
        self.window.fetch_max(window.into(), Ordering::Relaxed);
    }

    /// Claims a line and `units` of payload, at most half the window's. `shown` is the receiver's word; it is
    /// read only where the last known head does not do. `widen` is asked where the window's end is reached,
    /// and says whether it is wider now.
    #[inline]
    pub fn claim(
        &self,
        shape: Shape,
        units: u32,
        shown: &AtomicU64,
        widen: impl Fn() -> bool,
    ) -> Result<Claim, NoRoom> {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let at = RingPosition::unpack(tail);
            let mut unit = at.unit;
            let anew = shape.unit(unit) + units as usize > self.window(shape) as usize;
            if anew {
                if widen() {
                    tail = self.tail.load(Ordering::Relaxed);
                    continue;
                }
                unit = shape.anew(unit);
            }
            let next = RingPosition { line: at.line.wrapping_add(1), unit: unit.wrapping_add(units) };
            // Acquire: what this thread overwrites was read before the head was shown.
            if !shape.holds(RingPosition::unpack(self.seen.load(Ordering::Acquire)), next) {
                match self.look(shape, (tail, next), shown)? {
                    now if now == tail => {}
                    now => {
                        tail = now;
                        continue;
                    }
                }
            }
            let claimed =
                self.tail.compare_exchange_weak(tail, next.pack(), Ordering::Relaxed, Ordering::Relaxed);
            match claimed {
                Ok(_) => return Ok(Claim { at: RingPosition { line: at.line, unit }, anew }),
                Err(now) => tail = now,
            }
        }
    }

    /// Asks the receiver whether there is room up to `next`, which follows the tail `known`. Returns the tail
    /// as it is now: where that is another one, it says nothing of the room.
    #[cold]
    fn look(
        &self,
        shape: Shape,
        (known, next): (u64, RingPosition),
        shown: &AtomicU64,
    ) -> Result<u64, NoRoom> {
        let word = shown.load(Ordering::Acquire);
        // Read after the head, so that an honest head is never beyond it.
        let tail = self.tail.load(Ordering::Relaxed);
        let head = RingPosition::unpack(word);
        if !shape.holds(head, RingPosition::unpack(tail)) {
            return Err(NoRoom::Broken(word));
        }
        self.seen.store(word, Ordering::Release);
        match tail != known || shape.holds(head, next) {
            true => Ok(tail),
            false => Err(NoRoom::Full),
        }
    }

    /// Records and units that can be claimed for certain, each on its own.
    pub fn room(&self, shape: Shape, shown: &AtomicU64) -> Result<(u32, u32), NoRoom> {
        let word = shown.load(Ordering::Acquire);
        let (head, tail) =
            (RingPosition::unpack(word), RingPosition::unpack(self.tail.load(Ordering::Relaxed)));
        if !shape.holds(head, tail) {
            return Err(NoRoom::Broken(word));
        }
        self.seen.store(word, Ordering::Release);
        let (head_at, tail_at) = (shape.unit(head.unit) as u32, shape.unit(tail.unit) as u32);
        // What is claimed ends in the lap that the receiver is in, or in the next one, behind it.
        let units = match head.unit.wrapping_sub(head_at) == tail.unit.wrapping_sub(tail_at) {
            true => self.window(shape).saturating_sub(tail_at - head_at.min(tail_at)),
            false => head_at.saturating_sub(tail_at),
        };
        Ok((shape.lines - tail.line.wrapping_sub(head.line), units))
    }

    /// Whether the receiver shows that it has taken all that was claimed.
    pub fn is_empty(&self, shown: &AtomicU64) -> bool {
        shown.load(Ordering::Acquire) == self.tail.load(Ordering::Relaxed)
    }

    /// Whether the receiver has passed the record at `line`, which was claimed at most 2³² records ago. Where
    /// nothing was claimed yet, it has.
    #[inline]
    pub fn passed(&self, line: u32, shown: &AtomicU64) -> bool {
        let head = RingPosition::unpack(shown.load(Ordering::Acquire)).line;
        let tail = RingPosition::unpack(self.tail.load(Ordering::Relaxed)).line;
        // Of the last records so many are not taken.
        let (age, waiting) = (tail.wrapping_sub(line), tail.wrapping_sub(head));
        age == 0 || age > waiting
    }
}

/// The line becomes a record: `words` are its words 1 to 7, `tag` the upper half of its first.
#[inline]
pub fn publish(line: &Words, at: u32, tag: u32, words: [u64; 7]) {
    line.store_rest(words);
    line.w[0].store(u64::from(tag) << 32 | u64::from(at.wrapping_add(1)), Ordering::Release);
}

/// The receiving side of a lane: one thread's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inlet {
    at: RingPosition,
    shown: RingPosition,
    /// Units that the longest lap had: the sender's window, as far as it is known here.
    lap: u32,
}

/// Units that are taken before the sender learns it, at least.
const OFTEN: u32 = 16;

impl Inlet {
    /// The tag of the next record, if it is there.
    #[inline]
    pub fn peek(&self, line: &Words) -> Option<u32> {
        let word = line.w[0].load(Ordering::Acquire);
        (word as u32 == self.at.line.wrapping_add(1)).then_some((word >> 32) as u32)
    }

    /// The place of the next record.
    #[inline]
    pub fn at(&self) -> RingPosition {
        self.at
    }

    /// Where the next record's `units` of payload begin; `None` where they would pass the ring's end.
    #[inline]
    pub fn start(&self, shape: Shape, units: u32, anew: bool) -> Option<u32> {
        let unit = if anew { shape.anew(self.at.unit) } else { self.at.unit };
        (shape.unit(unit) + units as usize <= shape.units as usize).then_some(unit)
    }

    /// The next record is done with, and so are its `units` of payload (at most half the ring's), which began
    /// at `start`.
    #[inline]
    pub fn advance(&mut self, shape: Shape, start: u32, units: u32) {
        self.at = RingPosition { line: self.at.line.wrapping_add(1), unit: start.wrapping_add(units) };
        self.lap = self.lap.max(shape.unit(start) as u32 + units);
    }

    /// Whether so much is free that the sender should learn it: a quarter of the ring, as far as it is used.
    #[inline]
    pub fn owes_much(&self, shape: Shape) -> bool {
        self.at.line.wrapping_sub(self.shown.line) >= shape.lines / 4
            || self.at.unit.wrapping_sub(self.shown.unit) >= (self.lap / 4).max(OFTEN)
    }

    /// Whether anything is free that the sender does not know.
    #[inline]
    pub fn owes(&self) -> bool {
        self.at != self.shown
    }

    /// Shows the sender how far this side is. What was read before is free to be overwritten from here on.
    #[inline]
    pub fn show(&mut self, shown: &AtomicU64) {
        self.shown = self.at;
        shown.store(self.at.pack(), Ordering::Release);
    }
}

/// A word that says whether one side waits for the other, and counts what the other does.
///
/// Both sides change it by read-modify-write only. So either the change that announces the wait sees all that
/// was done before the last count, or the count sees the announcement; neither needs a fence.
pub mod alarm {
    use super::{AtomicU64, Ordering};

    const ARMED: u64 = 1;

    /// Counts `deeds`, which may be none: it is called after all that the other side may wait for. Returns
    /// whether the other side asked to be called, and no longer asks.
    #[inline]
    pub fn count(word: &AtomicU64, deeds: u64) -> bool {
        let armed = word.fetch_add(deeds << 1, Ordering::AcqRel) & ARMED != 0;
        armed && disarm(word)
    }

    /// Asks to be called at the next deed. What was done before the last one is visible from here on.
    #[inline]
    pub fn arm(word: &AtomicU64) {
        word.fetch_or(ARMED, Ordering::AcqRel);
    }

    /// Asks no more. Returns whether it had been asked; of several threads, one gets to know.
    #[cold]
    pub fn disarm(word: &AtomicU64) -> bool {
        word.fetch_and(!ARMED, Ordering::AcqRel) & ARMED != 0
    }

    /// Whether the other side seems to wait. It may come to see a wait late.
    #[inline]
    pub fn is_armed(word: &AtomicU64) -> bool {
        word.load(Ordering::Relaxed) & ARMED != 0
    }

    /// Deeds so far, modulo 2³².
    #[inline]
    pub fn deeds(word: &AtomicU64) -> u32 {
        (word.load(Ordering::Acquire) >> 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { lines: 8, units: 8 };

    fn outlet(line: u32) -> Outlet {
        let at = AtomicU64::new(RingPosition { line, unit: 0 }.pack());
        let seen = AtomicU64::new(RingPosition { line, unit: 0 }.pack());
        Outlet { tail: at, seen, window: AtomicU64::new(u64::MAX) }
    }

    fn shown(line: u32) -> AtomicU64 {
        AtomicU64::new(RingPosition { line, unit: 0 }.pack())
    }

    #[test]
    fn a_record_is_passed_when_it_is_behind_the_head_however_long_ago() {
        assert!(outlet(0).passed(0, &shown(0)), "nothing was claimed");
        let of = |tail: u32, head: u32, line: u32| outlet(tail).passed(line, &shown(head));
        assert_eq!([4, 5, 6, 7].map(|line| of(8, 6, line)), [true, true, false, false]);
        // Across the end of the numbers, and with more records since than half of them.
        assert_eq!([u32::MAX - 1, u32::MAX, 0, 1].map(|line| of(2, 0, line)), [true, true, false, false]);
        assert!(of(3 << 30, 3 << 30, 5) && of(3 << 30, (3 << 30) - 8, 5));
    }

    #[test]
    fn a_ring_is_full_only_for_who_knows_its_tail() {
        let outlet = outlet(20);
        // The receiver has all of it. A thread that slept since the tail was 5 asks for line 6 behind that.
        let (late, now) = (RingPosition { line: 5, unit: 0 }, RingPosition { line: 20, unit: 0 });
        let next = RingPosition { line: 6, unit: 0 };
        assert_eq!(outlet.look(SHAPE, (late.pack(), next), &shown(20)), Ok(now.pack()));
        let full = RingPosition { line: 29, unit: 0 };
        assert_eq!(outlet.look(SHAPE, (now.pack(), full), &shown(20)), Err(NoRoom::Full));
    }
}
