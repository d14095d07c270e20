//! Reader programs that come and go while the writers write: each has one of the pipe's places for as long as
//! it is there.
//!
//! The writers' unit 0 gives out the places. One that is free says nothing: the writers take what lies in its
//! slots for read. So a step stays in its slot, for whoever comes, until the slot is needed for another.

use super::geometry::GLOBAL;
use super::{Slots, GONE};
use polyduct_os::sync::Ordering;
use polyduct_port::{Side, MAX_UNITS};

impl Slots {
    /// Units of a reader program; none where nobody has its place.
    pub(super) fn units_of(&self, program: u32) -> u32 {
        match self.sizes().readers.get(program as usize) {
            Some(&units) => units,
            None => {
                let word = self.line(self.geometry.program(program)).w[UNITS].load(Ordering::Acquire);
                word.min(MAX_UNITS.into()) as u32
            }
        }
    }

    /// The same, as far as one of them can believe it, which is there itself.
    pub(super) fn units_with(&self, program: u32, unit: u32) -> u32 {
        self.units_of(program).max(unit.saturating_add(1))
    }

    /// Whether the loss of a unit of one side is one of another side, too. A unit that comes and goes is
    /// nobody's loss.
    pub fn depends_on(&self, side: Side, on: Side) -> bool {
        !self.sizes().are_open() || on == Side::Writer || on == side
    }

    /// Makes a free place ready for a program of so many units. It reads nothing until it has
    /// [entered](Self::enter).
    pub fn seat(&self, program: u32, units: u32) {
        for line in &self.lines()[self.geometry.place(program)] {
            line.w.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        self.offer_steps(program);
        self.line(self.geometry.program(program)).w[UNITS].store(units.into(), Ordering::Release);
    }

    /// A program that has its [seat](Self::seat) reads from now on: first the newest step that lies in a
    /// slot.
    pub fn enter(&self, program: u32) {
        self.gone_is(program, false);
    }

    /// Whether a program has [entered](Self::enter).
    pub fn has_entered(&self, program: u32) -> bool {
        self.gone() & 1 << program == 0
    }

    /// Nobody of a program is left: its place is free.
    pub fn vacate(&self, program: u32) {
        self.gone_is(program, true);
        self.line(self.geometry.program(program)).w[UNITS].store(0, Ordering::Release);
        self.wake_all();
    }

    /// Notes whether a program is not there.
    pub(super) fn gone_is(&self, program: u32, gone: bool) {
        let (word, bit) = (&self.line(GLOBAL).w[GONE], 1 << program);
        if gone == self.sizes().are_open() {
            word.fetch_and(!bit, Ordering::AcqRel);
        } else {
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }
}

/// Word of a program line, beside those of [`lossy`](super::lossy) and FIRST_CLOSE.
const UNITS: usize = 3;
