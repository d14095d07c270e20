//! The end of a stream: each unit closes after a number of steps, which should be the same for all units of a
//! program.

use super::fault::Fault;
use super::geometry::GLOBAL;
use super::{death, Slots, Stop, UnitState, FIRST_CLOSE, MAX_STEP, STATE};
use polyduct_os::sync::{AtomicU64, Ordering};
use polyduct_port::{Side, UnitName};

/// Whether a pipe comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It does not.
    No,
    /// Its units leave one after the other; until then lost ones may be replaced.
    Leaving,
    /// It has failed.
    Failed,
}

impl Slots {
    /// Whether the pipe comes to its end.
    pub fn ending(&self) -> Ending {
        match self.fault() {
            Some(_) => Ending::Failed,
            None if self.is_closed(UnitName { side: Side::Writer, unit: 0 }) || self.readers_are_gone() => {
                Ending::Leaving
            }
            None => Ending::No,
        }
    }

    /// A unit leaves after an error that all have seen or will see: nothing ends by this.
    pub fn leave(&self, unit: UnitName) {
        self.unit_line(unit).w[STATE].store(UnitState::Closed as u64, Ordering::Release);
    }

    /// A unit gives its place up, and the others are told, and [why](super::reason) if it says. A writer without readers left gives up nothing:
    /// the other writers are to hear that the readers have closed, whichever of them finds it first.
    pub fn give_up(&self, unit: UnitName, reason: &str) {
        if unit.side != Side::Writer || !self.readers_are_gone() {
            self.fail_because(unit, reason);
        }
        self.leave(unit);
    }

    /// Writer `unit` will write no more: the stream ends before step `n`.
    ///
    /// # Errors
    /// Another unit closed after more or fewer steps. All units that have not closed are told; what all have
    /// written can still be read.
    pub fn close_writer(&self, unit: u32, n: u64) -> Result<(), Stop> {
        let odd = close_at(&self.line(GLOBAL).w[FIRST_CLOSE], unit, n);
        death::may_come();
        if let Some((_, by)) = odd {
            // Before the last unit has closed, which the readers would take for the end of the stream.
            self.fail(Fault::Uneven { unit: UnitName { side: Side::Writer, unit: by } });
        }
        // Last, so that a unit killed before has not closed but is lost.
        self.leave(UnitName { side: Side::Writer, unit });
        death::may_come();
        self.wake_all();
        odd.map_or(Ok(()), |(closed_after, by)| {
            Err(Stop::Uneven { unit: UnitName { side: Side::Writer, unit: by }, closed_after })
        })
    }

    /// Reader `unit` will read no more than the `k` steps it has read.
    pub fn close_reader(&self, program: u32, unit: u32, k: u64) {
        let line = self.line(self.geometry.program(program));
        let _ = close_at(&line.w[FIRST_CLOSE], unit, k);
        death::may_come();
        if self.geometry.closed(program, self.units_with(program, unit)).arrive(self.lines(), unit, true) {
            death::may_come();
            self.gone_is(program, true);
        }
        death::may_come();
        // Last, as for writers.
        self.leave(UnitName { side: Side::Reader(program), unit });
        death::may_come();
        self.wake_all();
    }

    /// Whether nothing is left for a unit to do: it has closed, or reads and has read every step that there
    /// will be. (Where steps are dropped, only the reader knows how many it gets.)
    pub fn is_done(&self, unit: UnitName) -> bool {
        let has_all = |unit| !self.is_lossy() && self.ends_before(self.resume_at(unit));
        self.is_closed(unit) || unit.side != Side::Writer && has_all(unit)
    }

    /// Whether the stream ends before step `k`: all writers have closed, after the same number of steps.
    pub(super) fn ends_before(&self, k: u64) -> bool {
        self.first_close().is_some_and(|(steps, _)| k >= steps)
            && (0..self.sizes().writers).all(|unit| self.is_closed(UnitName { side: Side::Writer, unit }))
            && self.fault().is_none()
    }

    /// Steps after which the first writer closed, and that writer.
    pub(super) fn first_close(&self) -> Option<(u64, u32)> {
        let word = self.line(GLOBAL).w[FIRST_CLOSE].load(Ordering::Acquire);
        closed_at(word)
    }
}

/// Notes that `unit` closed after `n` steps, if none closed after fewer. Returns the fewest and that unit, if
/// not all that have closed did so after as many.
fn close_at(word: &AtomicU64, unit: u32, n: u64) -> Option<(u64, u32)> {
    // Steps and unit in one word, so that the first unit to close and its count are one fact.
    let mine = n.min(MAX_STEP) << 16 | u64::from(unit) | 1 << 63;
    let mut seen = word.load(Ordering::Acquire);
    while seen == 0 || mine < seen {
        match word.compare_exchange_weak(seen, mine, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(now) => seen = now,
        }
    }
    let fewest = closed_at(if seen == 0 { mine } else { seen.min(mine) });
    fewest.filter(|_| seen != 0 && seen >> 16 != mine >> 16)
}

/// The fewest steps that a unit closed after, and that unit.
pub(super) fn closed_at(word: u64) -> Option<(u64, u32)> {
    (word != 0).then_some(((word & !(1 << 63)) >> 16, word as u32 & 0xffff))
}
