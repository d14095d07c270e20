//! The step protocol: who may fill, read and reuse which slot, as state words in shared memory.
//!
//! Nothing here waits, sleeps or knows bytes. Each `poll_*` looks once and says what it saw; the ports wait
//! between polls at the [bells](bell). Words are read as input from a stranger: loaded once, checked, then
//! used.
//!
//! Every change that a unit makes can be made again by its replacement: a unit killed between any two
//! instructions leaves a state from which the step can be finished.
//!
//! * [`block`]: the lossless queue. Step `n` lives in slot `n % depth`; nothing has to be agreed.
//! * [`lossy`]: the queues that drop steps. The first unit of each program decides, the others follow.
//! * `close`: how the stream ends.
//! * [`reason`]: why a unit gave up.
//! * [`places`]: reader programs that come and go.
//! * `again`: writers that fill again what their predecessors had published.
//! * [`rebuild`]: the state made anew from what the units know of themselves.
//! * `may`: what a `poll_*` would say, for those who do not ask yet.
//! * `brought`: what writers say of their parts in numbers.
//! * `offer`: parts of a step that lie in their writers' own memory.

#![forbid(unsafe_code)]

mod again;
pub mod bell;
pub mod bits;
pub mod block;
mod brought;
pub mod close;
mod death;
pub mod fault;
pub mod geometry;
pub mod lossy;
mod may;
mod offer;
pub mod places;
pub mod reason;
pub mod rebuild;
#[cfg(test)]
mod sim;

use bell::ring;
use bits::Bits;
use fault::Fault;
use geometry::{Geometry, Sizes, FREED, GLOBAL, PUBLISHED};
use polyduct_os::sync::{Line, Ordering};
use polyduct_port::{Policy, Side, UnitName};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where the control lines lie.
#[derive(Clone)]
pub enum Lines {
    /// In a segment that all units map.
    Shared(Arc<polyduct_os::segment::Segment<()>>),
    /// In this process: for pipes across hosts, whose units ask the one that has it, and for models of the
    /// protocol.
    Heap(Arc<[Line]>),
}

/// The control state of one pipe.
#[derive(Clone)]
pub struct Slots {
    lines: Lines,
    geometry: Arc<Geometry>,
}

/// What a writer may do with its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Begin {
    /// Fill this slot, then publish.
    Fill(Turn),
    /// The queue drops this step.
    Drop,
}

/// What a reader gets as its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Next {
    /// Read this slot, then release it.
    Step(Turn),
    /// The writers have closed and everything was read.
    End,
}

/// One use of a slot by one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The writer's number of the step.
    pub step: u64,
    /// The slot.
    pub slot: u32,
    /// Sense of the arrival set in this round.
    pub sense: bool,
    /// How often the slot will have been used by the program when this turn ends.
    pub uses: u64,
}

/// Why there will be no next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A unit was lost.
    Fault(Fault),
    /// A unit gave up.
    Aborted {
        /// The unit.
        unit: UnitName,
        /// Why, in its words; empty if it did not say.
        reason: Box<str>,
    },
    /// A unit of the same program has closed after fewer steps.
    Uneven {
        /// That unit.
        unit: UnitName,
        /// Its steps.
        closed_after: u64,
    },
    /// All reader programs have closed.
    ReadersGone,
    /// The shared memory holds what it cannot hold.
    Corrupt(&'static str),
}

/// What a look at the state showed: `None` is "not yet".
pub type Poll<T> = Result<Option<T>, Stop>;

impl Slots {
    /// The control state in `lines`, which hold at least what the sizes need and start as zeros.
    pub fn new(lines: Lines, sizes: Sizes) -> Slots {
        let slots = Slots { lines, geometry: Arc::new(Geometry::new(sizes)) };
        debug_assert!(slots.lines().len() >= slots.geometry.lines());
        slots
    }

    /// Bytes that the control segment of a pipe of these sizes takes.
    pub fn len_bytes(sizes: &Sizes) -> usize {
        Geometry::new(sizes.clone()).lines() * size_of::<Line>()
    }

    /// A pipe's control state in this process's own memory.
    pub fn on_heap(sizes: Sizes) -> Slots {
        let n = Geometry::new(sizes.clone()).lines();
        Slots::new(Lines::Heap((0..n).map(|_| Line::new()).collect()), sizes)
    }

    /// The sizes of the pipe.
    pub fn sizes(&self) -> &Sizes {
        &self.geometry.sizes
    }

    fn lines(&self) -> &[Line] {
        match &self.lines {
            // The whole segment was checked to be lines when it was made or attached.
            Lines::Shared(segment) => segment.lines(0..segment.len() / 64 * 64).unwrap_or_default(),
            Lines::Heap(lines) => lines,
        }
    }

    fn line(&self, i: usize) -> &Line {
        &self.lines()[i]
    }

    /// Whether the queue drops steps.
    pub fn is_lossy(&self) -> bool {
        self.sizes().policy != Policy::Block
    }

    /// The bell that rings when a step becomes visible, a writer closes, or something fails.
    pub fn published_bell(&self) -> &Line {
        self.line(PUBLISHED)
    }

    /// Whether a reader sleeps, or is about to, until the next step is visible.
    pub fn readers_sleep(&self) -> bool {
        self.published_bell().sleepers.load(Ordering::Relaxed) > 0
    }

    /// The bell that rings when a slot is freed, a reader closes, a lossy queue decides, or something fails.
    pub fn freed_bell(&self) -> &Line {
        self.line(FREED)
    }

    // -- writers --

    /// May writer `unit` fill its part of step `n`?
    pub fn poll_begin(&self, unit: u32, n: u64) -> Poll<Begin> {
        if let Some(fault) = self.fault() {
            return Err(self.stop(fault));
        }
        if let Some((closed_after, by)) = self.first_close() {
            if n >= closed_after {
                // The readers must not take the first close for the end of the stream.
                let unit = UnitName { side: Side::Writer, unit: by };
                self.fail(Fault::Uneven { unit });
                return Err(Stop::Uneven { unit, closed_after });
            }
        }
        // What was decided stands: the readers may have gone in good order, not waiting for a step that is
        // dropped.
        if let Some(decided) = self.is_lossy().then(|| self.decided(n)).flatten() {
            return Ok(Some(decided));
        }
        if self.readers_are_gone() {
            // A fault that came since the first look may be what they closed for.
            return Err(self.fault().map_or(Stop::ReadersGone, |fault| self.stop(fault)));
        }
        if self.is_lossy() {
            self.poll_begin_lossy(unit, n)
        } else {
            Ok(self.poll_begin_block(n).map(Begin::Fill))
        }
    }

    /// Writer `unit` has filled its part of the step. Returns whether the whole step became visible by this.
    pub fn publish(&self, unit: u32, turn: Turn) -> bool {
        let last = self.geometry.arrivals(turn.slot).arrive(self.lines(), unit, turn.sense);
        death::may_come();
        if last {
            if self.is_lossy() {
                self.show_lossy(turn);
            } else {
                self.show_block(turn);
            }
            death::may_come();
            ring(self.published_bell());
        }
        self.advance_writer(unit, turn.step + 1);
        last
    }

    /// Writer `unit` has nothing to do for step `n`, which the queue drops.
    pub fn skip(&self, unit: u32, n: u64) {
        self.advance_writer(unit, n + 1);
    }

    fn advance_writer(&self, unit: u32, next: u64) {
        self.line(self.geometry.writer(unit)).w[NEXT].store(next, Ordering::Release);
        death::may_come();
        if self.is_lossy() && self.sizes().writers > 1 {
            // The deciding unit may be waiting for the last unit to catch up.
            ring(self.freed_bell());
        }
    }

    /// Wakes everybody who sleeps: whoever notices a death does this, since the dead may have changed
    /// something and not have come to ring for it.
    pub fn wake_all(&self) {
        ring(self.published_bell());
        ring(self.freed_bell());
    }

    /// What a fault means to a unit that meets it.
    pub fn stop(&self, fault: Fault) -> Stop {
        match (fault, self.first_close()) {
            (Fault::Uneven { unit }, Some((closed_after, _))) => Stop::Uneven { unit, closed_after },
            (Fault::Aborted { unit }, _) => Stop::Aborted { unit, reason: self.reason_of(fault) },
            _ => Stop::Fault(fault),
        }
    }

    // -- readers --

    /// What is the `k`-th step of reader program `program`, as its unit `unit` sees it?
    pub fn poll_next(&self, program: u32, unit: u32, k: u64) -> Poll<Next> {
        let look = || match self.is_lossy() {
            true => self.poll_next_lossy(program, unit, k),
            false => self.poll_next_block(k),
        };
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        let Some(stop) = self.no_next(program, k) else { return Ok(None) };
        // A step that was complete before that, or the end that the other unit closed at, may have come since
        // the first look, and counts.
        look()?.map(Some).ok_or(stop)
    }

    /// Why there will be no `k`-th step of a reader program, if it is not there yet.
    fn no_next(&self, program: u32, k: u64) -> Option<Stop> {
        let word = self.line(self.geometry.program(program)).w[FIRST_CLOSE].load(Ordering::Acquire);
        match (self.fault_of(Side::Reader(program)), close::closed_at(word)) {
            (Some(fault), _) => Some(self.stop(fault)),
            (None, Some((closed_after, by))) if k >= closed_after => {
                Some(Stop::Uneven { unit: UnitName { side: Side::Reader(program), unit: by }, closed_after })
            }
            (None, _) => None,
        }
    }

    /// Reader `unit` has finished with its `k`-th step and no longer looks at the slot.
    pub fn release(&self, program: u32, unit: u32, k: u64, turn: Turn) {
        let uses = &self.line(self.geometry.released(program, turn.slot)).w[0];
        // A replacement may repeat a release that its predecessor completed; the slot may be in its next
        // round by now.
        let repeated = uses.load(Ordering::Acquire) >= turn.uses;
        if repeated || self.done(program, turn.slot, unit).arrive(self.lines(), unit, turn.sense) {
            death::may_come();
            if !repeated {
                uses.store(turn.uses, Ordering::Release);
                death::may_come();
            }
            if self.is_lossy() {
                self.unpin(program, turn);
                death::may_come();
                ring(self.published_bell());
            }
            ring(self.freed_bell());
        }
        death::may_come();
        self.line(self.geometry.reader(program, unit)).w[NEXT].store(k + 1, Ordering::Release);
    }

    fn done(&self, program: u32, slot: u32, unit: u32) -> Bits {
        self.geometry.done(program, slot, self.units_with(program, unit))
    }

    /// The reader programs that are not there, one bit each: all their units have closed, or nobody has the
    /// place.
    fn gone(&self) -> u64 {
        let word = self.line(GLOBAL).w[GONE].load(Ordering::Acquire);
        match self.sizes().are_open() {
            // Zero is nobody.
            true => !word & self.all_programs(),
            false => word,
        }
    }

    /// Whether all units of all reader programs have closed, and no others may come.
    pub fn readers_are_gone(&self) -> bool {
        !self.sizes().are_open() && self.gone() == self.all_programs()
    }

    fn all_programs(&self) -> u64 {
        u64::MAX >> (64 - self.sizes().programs())
    }

    // -- units --

    fn unit_line(&self, unit: UnitName) -> &Line {
        self.line(match unit.side {
            Side::Writer => self.geometry.writer(unit.unit),
            Side::Reader(p) => self.geometry.reader(p, unit.unit),
        })
    }

    /// A unit takes its place: at the pipe's start, or as the replacement of a lost one. `process` is its
    /// process, by pid and start time.
    pub fn join(&self, unit: UnitName, process: (u32, u64), space: u32) {
        let line = self.unit_line(unit);
        line.w[PID].store(u64::from(process.0) | u64::from(space) << 32, Ordering::Relaxed);
        line.w[START].store(process.1, Ordering::Relaxed);
        line.w[STATE].store(UnitState::Joined as u64, Ordering::Release);
    }

    /// The process that has a unit's place: pid and start time.
    pub fn process(&self, unit: UnitName) -> (u32, u64) {
        let line = self.unit_line(unit);
        (line.w[PID].load(Ordering::Relaxed) as u32, line.w[START].load(Ordering::Relaxed))
    }

    /// The process namespace in which [`process`](Self::process) has its number; zero where it has none that
    /// others could know.
    pub fn space(&self, unit: UnitName) -> u32 {
        (self.unit_line(unit).w[PID].load(Ordering::Relaxed) >> 32) as u32
    }

    /// Whether two units mean the same process by a number.
    pub fn share_numbers(&self, one: UnitName, other: UnitName) -> bool {
        self.space(one) != 0 && self.space(one) == self.space(other)
    }

    /// Whether all units mean the same process by a number.
    pub fn all_share_numbers(&self) -> bool {
        let first = UnitName { side: Side::Writer, unit: 0 };
        self.units().all(|unit| self.share_numbers(first, unit))
    }

    /// Whether a unit has closed its port.
    pub fn is_closed(&self, unit: UnitName) -> bool {
        self.unit_line(unit).w[STATE].load(Ordering::Acquire) >= UnitState::Closed as u64
    }

    /// A unit that has closed, and had stayed for others, is not needed by anybody any more.
    pub fn go(&self, unit: UnitName) {
        self.unit_line(unit).w[STATE].store(UnitState::Gone as u64, Ordering::Release);
    }

    /// Whether a unit has closed and [gone](Self::go).
    pub fn is_gone(&self, unit: UnitName) -> bool {
        self.unit_line(unit).w[STATE].load(Ordering::Acquire) == UnitState::Gone as u64
    }

    /// All units of all programs, as far as they are there.
    pub fn units(&self) -> impl Iterator<Item = UnitName> + '_ {
        let readers = (0..self.sizes().programs()).map(|p| (p, self.units_of(p)));
        let readers = readers.flat_map(|(p, n)| (0..n).map(move |unit| (Side::Reader(p), unit)));
        (0..self.sizes().writers)
            .map(|unit| (Side::Writer, unit))
            .chain(readers)
            .map(|(side, unit)| UnitName { side, unit })
    }

    /// The step at which a unit goes on: 0 at first; for a replacement, where its predecessor was. What that
    /// one had begun to say is said again, since it may have died before all of it was said.
    pub fn resume_at(&self, unit: UnitName) -> u64 {
        let next = self.unit_line(unit).w[NEXT].load(Ordering::Acquire).min(MAX_STEP);
        let said = match unit.side {
            Side::Writer => self.written_turn(next).filter(|turn| {
                let arrived =
                    self.geometry.arrivals(turn.slot).has_arrived(self.lines(), unit.unit, turn.sense);
                arrived.unwrap_or_else(|| self.is_shown(*turn))
            }),
            Side::Reader(p) => self.read_turn(p, next).filter(|turn| {
                let arrived =
                    self.done(p, turn.slot, unit.unit).has_arrived(self.lines(), unit.unit, turn.sense);
                let uses = self.line(self.geometry.released(p, turn.slot)).w[0].load(Ordering::Acquire);
                uses >= turn.uses || arrived.unwrap_or(false)
            }),
        };
        match (unit.side, said) {
            (_, None) => return next,
            (Side::Writer, Some(turn)) => {
                self.publish(unit.unit, turn);
            }
            (Side::Reader(p), Some(turn)) => self.release(p, unit.unit, next, turn),
        }
        next + 1
    }

    fn written_turn(&self, n: u64) -> Option<Turn> {
        match self.is_lossy() {
            false => Some(self.block_turn(n)),
            true => match self.decided(n) {
                Some(Begin::Fill(turn)) => Some(turn),
                _ => None,
            },
        }
    }

    fn read_turn(&self, program: u32, k: u64) -> Option<Turn> {
        match self.is_lossy() {
            false => Some(self.block_turn(k)),
            true => self.taken(program, k),
        }
    }

    fn is_shown(&self, turn: Turn) -> bool {
        if self.is_lossy() {
            self.is_shown_lossy(turn)
        } else {
            self.is_shown_block(turn)
        }
    }

    /// Whether every reader program has released this turn's slot (or is gone).
    pub fn is_released(&self, turn: Turn) -> bool {
        let gone = self.gone();
        (0..self.sizes().programs()).all(|p| {
            gone >> p & 1 == 1
                || self.line(self.geometry.released(p, turn.slot)).w[0].load(Ordering::Acquire) >= turn.uses
        })
    }
}

/// A unit's place in the pipe.
#[repr(u64)]
enum UnitState {
    Joined = 1,
    Closed = 2,
    Gone = 3,
}

// Words of the global line and of the program lines. Where reader programs come and go, GONE has those that
// are there.
const FAULT: usize = 0;
const FIRST_CLOSE: usize = 1;
const GONE: usize = 2;
const CLAIMED: usize = 4;
// Words of the unit lines.
const STATE: usize = 0;
const NEXT: usize = 1;
const PID: usize = 2;
const START: usize = 3;
const OFFER: usize = 4;
const OFFER_STEP: usize = 5;
const REFUSED: usize = 6;
// Words of the slot lines; word 0 belongs to the queue.
const OFFERS: usize = 1;

/// Steps are counted in 41 bits: at a million steps a second, 25 days.
pub const MAX_STEP: u64 = (1 << 41) - 1;
