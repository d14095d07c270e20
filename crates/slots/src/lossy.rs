//! The queues that drop steps: `latest`, `drop_oldest`, `drop_newest`. The writer never waits for a reader.
//!
//! All units of a program must drop the same steps, so unit 0 of each program decides and writes its decision
//! into a ring; the others follow it. A slot's word holds everything that a decision depends on, so that one
//! compare-exchange takes or frees it:
//!
//! | bits | meaning |
//! |---|---|
//! | 0-1 | free, filling, visible |
//! | 2 | sense of the current fill |
//! | 3-10 | programs that have yet to finish with the step |
//! | 11-18 | programs that are reading it; or, of one that has no more to finish, that it was killed over it |
//! | 19-22 | how often the step was offered to a program that came, modulo 16 |
//! | 23-63 | the step |

use super::geometry::{ring_len, Sizes};
use super::{bell::ring, death, Begin, Next, Slots, Stop, Turn, MAX_STEP, NEXT};
use polyduct_os::sync::Ordering;
use polyduct_port::Policy;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

const OFFERS_AT: u64 = 19;
const STEP_AT: u64 = 23;
const OFFERS: u64 = 0xf << OFFERS_AT;

pub(super) const FREE: u64 = 0;
pub(super) const FILLING: u64 = 1;
pub(super) const VISIBLE: u64 = 2;

impl Word {
    pub(super) fn new(state: u64, sense: bool, pending: u64, pins: u64, step: u64) -> Word {
        Word(state | u64::from(sense) << 2 | (pending & 0xff) << 3 | (pins & 0xff) << 11 | step << STEP_AT)
    }
    pub(super) fn state(self) -> u64 {
        self.0 & 3
    }
    pub(super) fn sense(self) -> bool {
        self.0 >> 2 & 1 == 1
    }
    pub(super) fn pending(self) -> u64 {
        self.0 >> 3 & 0xff
    }
    pub(super) fn pins(self) -> u64 {
        self.0 >> 11 & self.pending()
    }
    pub(super) fn step(self) -> u64 {
        self.0 >> STEP_AT
    }
    /// Offered to a program that came: from now on it looks as it did at no time before, so that a writer that found
    /// then that it can have the slot does not take it from under the program.
    fn offered(self, program: u32) -> Word {
        let offers = OFFERS & ((self.0 & OFFERS) + (1 << OFFERS_AT));
        Word(self.0 & !OFFERS | offers | 1 << (3 + program))
    }
    /// Whether a program may take the step, which took the one `after` last.
    fn is_fresh(self, program: u32, after: Option<u64>) -> bool {
        let is_new = after.is_none_or(|after| self.step() > after);
        self.state() == VISIBLE && self.pending() & (1 << program) != 0 && is_new
    }
    /// In which order slots are taken that nobody holds: free ones first, and then the oldest.
    fn rank(self) -> u64 {
        if self.state() == FREE {
            0
        } else {
            1 + self.step()
        }
    }
}

/// What a writer's unit 0 sees for its next step.
enum Found {
    /// The slot that a predecessor took, which was killed before it wrote its decision.
    Taken(Turn),
    /// One that is free, or whose old step may be dropped, and what it shows.
    Slot(u32, Word),
    /// None that the queue may have: it drops the step.
    Full,
    /// None yet.
    Nothing,
}

// Words of a decision: what was decided, then the tag that makes it valid.
const TAG: usize = 0;
const WHAT: usize = 1;
const STEP: usize = 2;
const USES: usize = 3;
const DROPPED: u64 = u64::MAX;

impl Slots {
    pub(super) fn word(&self, slot: u32) -> Word {
        Word(self.line(self.geometry.slot(slot)).w[0].load(Ordering::Acquire))
    }

    fn swap(&self, slot: u32, from: Word, to: Word) -> bool {
        let word = &self.line(self.geometry.slot(slot)).w[0];
        word.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// What was decided for the writers' step `n`, if anything yet.
    pub(super) fn decided(&self, n: u64) -> Option<Begin> {
        let line = self.line(self.geometry.decision(n));
        if line.w[TAG].load(Ordering::Acquire) != n + 1 {
            return None;
        }
        let what = line.w[WHAT].load(Ordering::Relaxed);
        if what == DROPPED {
            return Some(Begin::Drop);
        }
        let slot = (what >> 1) as u32 % self.sizes().depth;
        Some(Begin::Fill(Turn { step: n, slot, sense: what & 1 == 1, uses: 0 }))
    }

    pub(super) fn decide(&self, n: u64, begin: Begin) -> Begin {
        let line = self.line(self.geometry.decision(n));
        let what = match begin {
            Begin::Fill(turn) => u64::from(turn.slot) << 1 | u64::from(turn.sense),
            Begin::Drop => DROPPED,
        };
        line.w[WHAT].store(what, Ordering::Relaxed);
        death::may_come();
        line.w[TAG].store(n + 1, Ordering::Release);
        death::may_come();
        if self.sizes().writers > 1 {
            ring(self.freed_bell());
        }
        begin
    }

    pub(super) fn poll_begin_lossy(&self, unit: u32, n: u64) -> Result<Option<Begin>, Stop> {
        if unit != 0 {
            return Ok(None);
        }
        if n > MAX_STEP {
            return Err(Stop::Corrupt("the step counter is exhausted"));
        }
        match self.is_passed(n) {
            true => Ok(self.choose(n).map(|begin| self.decide(n, begin))),
            false => Ok(None),
        }
    }

    /// Whether the entry of the ring for step `n` may be overwritten: every unit has passed it.
    fn is_passed(&self, n: u64) -> bool {
        let ring = ring_len(self.sizes().depth);
        let nexts = (0..self.sizes().writers)
            .map(|u| self.line(self.geometry.writer(u)).w[NEXT].load(Ordering::Acquire));
        n < ring || nexts.min().unwrap_or(n).saturating_add(ring) > n
    }

    /// Whether unit 0 of the writers would find a slot for step `n`, or drop it. Decides nothing.
    pub(super) fn may_choose(&self, n: u64) -> bool {
        n > MAX_STEP
            || self.decided(n).is_some()
            || self.is_passed(n) && !matches!(self.find(n), Found::Nothing)
    }

    /// Finds a slot for step `n`, or drops it. Only unit 0 of the writers comes here, so slots become fuller
    /// only by its own doing; readers may empty them meanwhile. `None`: where an old step may be dropped but
    /// the other writer units have yet to complete it, they are waited for; readers never are.
    fn choose(&self, n: u64) -> Option<Begin> {
        loop {
            let (slot, seen) = match self.find(n) {
                Found::Taken(turn) => return Some(Begin::Fill(turn)),
                Found::Full => return Some(Begin::Drop),
                Found::Nothing => return None,
                Found::Slot(slot, seen) => (slot, seen),
            };
            let sense = !seen.sense();
            if self.swap(slot, seen, Word::new(FILLING, sense, 0, 0, n)) {
                death::may_come();
                return Some(Begin::Fill(Turn { step: n, slot, sense, uses: 0 }));
            }
        }
    }

    /// Looks for a slot for step `n`.
    fn find(&self, n: u64) -> Found {
        let mut free: Option<(u32, Word)> = None;
        let mut oldest: Option<(u32, Word)> = None;
        let mut filling = false;
        for slot in 0..self.sizes().depth {
            let w = self.word(slot);
            // After the word: who pinned the slot was there before.
            let gone = self.gone();
            match w.state() {
                FILLING if w.step() == n => {
                    return Found::Taken(Turn { step: n, slot, sense: w.sense(), uses: 0 })
                }
                FILLING => filling = true,
                VISIBLE if w.pending() & !gone != 0 => {
                    if w.pins() & !gone == 0 && oldest.is_none_or(|(_, o)| w.step() < o.step()) {
                        oldest = Some((slot, w));
                    }
                }
                // Programs that come may want the newest of what nobody holds.
                _ => free = free.filter(|(_, f)| f.rank() <= w.rank()).or(Some((slot, w))),
            }
        }
        let may_drop_old = self.sizes().policy != Policy::DropNewest;
        match free.or(oldest.filter(|_| may_drop_old)) {
            Some((slot, seen)) => Found::Slot(slot, seen),
            None if filling && may_drop_old => Found::Nothing,
            None => Found::Full,
        }
    }

    pub(super) fn show_lossy(&self, turn: Turn) {
        let filling = Word::new(FILLING, turn.sense, 0, 0, turn.step);
        let pending = self.all_programs() & !self.full_programs(turn.slot);
        let state = if pending == 0 { FREE } else { VISIBLE };
        // Fails only when a replacement repeats what its predecessor completed.
        self.swap(turn.slot, filling, Word::new(state, turn.sense, pending, 0, turn.step));
    }

    /// Under `drop_newest` with several programs, those that hold every slot but this one: they miss the
    /// step, so that one which does not read keeps no other from reading.
    fn full_programs(&self, except: u32) -> u64 {
        let Sizes { policy, depth, readers, .. } = self.sizes();
        if *policy != Policy::DropNewest || readers.len() == 1 || *depth == 1 {
            return 0;
        }
        let others = (0..*depth).filter(|&slot| slot != except).map(|slot| self.word(slot));
        others.fold(u64::MAX, |full, w| full & if w.state() == VISIBLE { w.pending() } else { 0 })
    }

    pub(super) fn is_shown_lossy(&self, turn: Turn) -> bool {
        self.word(turn.slot) != Word::new(FILLING, turn.sense, 0, 0, turn.step)
    }

    pub(super) fn poll_next_lossy(&self, program: u32, unit: u32, k: u64) -> Result<Option<Next>, Stop> {
        if let Some(turn) = self.taken(program, k) {
            return Ok(Some(Next::Step(turn)));
        }
        // The end is read before the slots: what was visible by then is still found below.
        let ended = self.ends_before(u64::MAX);
        let mut unfinished = false;
        if unit == 0 {
            let after = self.taken_before(program, k);
            if let Some((slot, word)) = self.pick(program, after, &mut unfinished) {
                return Ok(Some(Next::Step(self.take(program, k, slot, word))));
            }
            if ended && !unfinished {
                self.end(program, k);
            }
        }
        Ok(self.is_end(program, k).then_some(Next::End))
    }

    /// Whether unit 0 of `program` would find a step to take as the `k`-th, or the end. Decides nothing.
    pub(super) fn may_take(&self, program: u32, k: u64) -> bool {
        if self.taken(program, k).is_some() || self.is_end(program, k) {
            return true;
        }
        // As in `pick`, which has the last word.
        let ended = self.ends_before(u64::MAX);
        let end = self.first_close().map_or(u64::MAX, |(n, _)| n);
        let after = self.taken_before(program, k);
        let (mut pinned, mut filling, mut fresh, mut left) = (0, false, false, false);
        for w in (0..self.sizes().depth).map(|slot| self.word(slot)) {
            let is_pinned = w.state() == VISIBLE && w.pins() & (1 << program) != 0;
            let is_fresh = w.is_fresh(program, after);
            pinned += u32::from(is_pinned);
            filling |= w.state() == FILLING && w.step() < end;
            fresh |= is_fresh;
            left |= is_fresh && is_pinned;
        }
        let has_room = pinned == 0 || pinned < self.most_pinned();
        left || has_room && (fresh || ended && !filling)
    }

    /// Whether some slot holds a step that `program` could take as its `k`-th.
    pub(super) fn has_fresh(&self, program: u32, k: u64) -> bool {
        let after = self.taken_before(program, k);
        (0..self.sizes().depth).any(|slot| self.word(slot).is_fresh(program, after))
    }

    /// The step that `program` took last before its `k`-th.
    fn taken_before(&self, program: u32, k: u64) -> Option<u64> {
        k.checked_sub(1).and_then(|k| self.taken(program, k)).map(|turn| turn.step)
    }

    /// Slots that a reader program pins, at most, where it pins any. Beside programs that may come, each
    /// holds one: with a slot more than programs none keeps another from reading.
    fn most_pinned(&self) -> u32 {
        if self.sizes().are_open() {
            1
        } else {
            self.sizes().depth - 1
        }
    }

    /// Pins the slot that `program` reads next. `unfinished` becomes true when there may be one later: a step
    /// is still being filled, or the program's other units have yet to finish with what it took before. One
    /// slot stays unpinned, so that a single reader program never makes the writer drop its newest step.
    fn pick(&self, program: u32, after: Option<u64>, unfinished: &mut bool) -> Option<(u32, Word)> {
        let bit = 1 << program;
        let end = self.first_close().map_or(u64::MAX, |(n, _)| n);
        let most = self.most_pinned();
        let mut seen_before = None;
        loop {
            *unfinished = false;
            let mut best: Option<(u32, Word)> = None;
            let mut pinned = 0;
            for slot in 0..self.sizes().depth {
                let w = self.word(slot);
                pinned += u32::from(w.state() == VISIBLE && w.pins() & bit != 0);
                *unfinished |= w.state() == FILLING && w.step() < end;
                if !w.is_fresh(program, after) {
                    continue;
                }
                // Pinned and not yet taken: a predecessor was killed in between.
                if w.pins() & bit != 0 {
                    return Some((slot, w));
                }
                let newest = self.sizes().policy == Policy::Latest;
                if best.is_none_or(|(_, b)| (w.step() > b.step()) == newest) {
                    best = Some((slot, w));
                }
            }
            if pinned > 0 && pinned >= most {
                *unfinished = true;
                return None;
            }
            let (slot, seen) = best?;
            // The slots were looked at one after the other, and an older step may have become visible behind
            // the look. It would never be read and keep its slot for ever. Steps become visible in their
            // order: another look finds it.
            let seen_twice = seen_before.replace(seen.step()) == Some(seen.step());
            if !seen_twice && self.sizes().policy != Policy::Latest {
                continue;
            }
            let pinned = Word(seen.0 | bit << 11);
            if self.swap(slot, seen, pinned) {
                death::may_come();
                if self.sizes().policy == Policy::Latest {
                    self.pass_over(program, pinned.step());
                }
                return Some((slot, pinned));
            }
        }
    }

    /// Under `latest`, gives back the steps older than the one taken.
    fn pass_over(&self, program: u32, taken: u64) {
        let bit = 1 << program;
        for slot in 0..self.sizes().depth {
            let w = self.word(slot);
            if w.state() == VISIBLE && w.step() < taken && w.pins() & bit == 0 && w.pending() & bit != 0 {
                self.finish(slot, program, w.step());
                death::may_come();
            }
        }
    }

    /// Clears a program's bits in a slot, and frees the slot when no program is left; where programs come and go the
    /// step stays for whoever comes, until the slot is needed. Nothing is done when the slot holds another step by now.
    fn finish(&self, slot: u32, program: u32, step: u64) {
        let bits = 1 << (3 + program) | 1 << (11 + program);
        loop {
            let seen = self.word(slot);
            let mut to = Word(seen.0 & !bits);
            if seen.state() != VISIBLE || seen.step() != step || to == seen {
                return;
            }
            if to.pending() == 0 && !self.sizes().are_open() {
                to = Word::new(FREE, seen.sense(), 0, 0, seen.step());
            }
            if self.swap(slot, seen, to) {
                return;
            }
        }
    }

    /// Every visible step is new to `program`, which has just got its place, and none is pinned by it. One
    /// that somebody who had the place before was killed over is not offered, to nobody who gets the place:
    /// pinned again, its slot would look as it did when the writers may have found that they can have it. So
    /// the pin stays, alone, for as long as the step.
    pub(super) fn offer_steps(&self, program: u32) {
        let (pending, pin) = (1 << (3 + program), 1 << (11 + program));
        for slot in 0..self.sizes().depth {
            loop {
                let seen = self.word(slot);
                let to = match seen.0 & pin {
                    0 => seen.offered(program),
                    _ => Word(seen.0 & !pending),
                };
                if seen.state() != VISIBLE || to == seen || self.swap(slot, seen, to) {
                    break;
                }
            }
        }
    }

    pub(super) fn unpin(&self, program: u32, turn: Turn) {
        self.finish(turn.slot, program, turn.step);
    }

    /// The slot that `program` reads as its `k`-th step, if that was decided.
    pub(super) fn taken(&self, program: u32, k: u64) -> Option<Turn> {
        let line = self.line(self.geometry.take(program, k));
        if line.w[TAG].load(Ordering::Acquire) != k + 1 {
            return None;
        }
        let what = line.w[WHAT].load(Ordering::Relaxed);
        Some(Turn {
            step: line.w[STEP].load(Ordering::Relaxed).min(MAX_STEP),
            slot: (what >> 1) as u32 % self.sizes().depth,
            sense: what & 1 == 1,
            uses: line.w[USES].load(Ordering::Relaxed),
        })
    }

    pub(super) fn take(&self, program: u32, k: u64, slot: u32, word: Word) -> Turn {
        let uses = self.line(self.geometry.released(program, slot)).w[0].load(Ordering::Acquire);
        let turn =
            Turn { step: word.step(), slot, sense: uses.is_multiple_of(2), uses: uses.saturating_add(1) };
        let line = self.line(self.geometry.take(program, k));
        line.w[WHAT].store(u64::from(slot) << 1 | u64::from(turn.sense), Ordering::Relaxed);
        line.w[STEP].store(turn.step, Ordering::Relaxed);
        line.w[USES].store(turn.uses, Ordering::Relaxed);
        death::may_come();
        line.w[TAG].store(k + 1, Ordering::Release);
        death::may_come();
        if self.units_of(program) > 1 {
            ring(self.published_bell());
        }
        turn
    }

    /// The first unit of a program says that its stream ends before its `k`-th step.
    pub(super) fn end(&self, program: u32, k: u64) {
        self.line(self.geometry.program(program)).w[END].store(k + 1, Ordering::Release);
        death::may_come();
        if self.units_of(program) > 1 {
            ring(self.published_bell());
        }
    }

    fn is_end(&self, program: u32, k: u64) -> bool {
        let end = self.line(self.geometry.program(program)).w[END].load(Ordering::Acquire);
        end != 0 && k + 1 >= end
    }
}

// Word of a program line, beside FIRST_CLOSE.
const END: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(slots: &Slots, n: u64) {
        let Ok(Some(Begin::Fill(turn))) = slots.poll_begin(0, n) else { panic!("no slot for step {n}") };
        slots.publish(0, turn);
    }

    #[test]
    fn a_slot_that_writers_found_to_be_theirs_is_not_pinned_under_them_by_who_comes_next() {
        let sizes = Sizes { writers: 1, readers: Vec::new(), depth: 10, policy: Policy::Latest, words: 0 };
        let slots = Slots::on_heap(sizes);
        slots.seat(0, 1);
        slots.enter(0);
        publish(&slots, 0);
        let Ok(Some(Next::Step(turn))) = slots.poll_next(0, 0, 0) else { panic!("no step") };
        // It is killed, and the writers find the slot; before they take it another reader gets the place.
        slots.vacate(0);
        let found = slots.word(turn.slot);
        slots.seat(0, 1);
        slots.enter(0);
        assert_eq!(slots.poll_next(0, 0, 0), Ok(None));
        assert_ne!(slots.word(turn.slot), found);
        publish(&slots, 1);
        assert!(matches!(slots.poll_next(0, 0, 0), Ok(Some(Next::Step(turn))) if turn.step == 1));
    }
}
