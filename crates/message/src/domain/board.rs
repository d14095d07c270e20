//! The board of a domain: a line for each unit, in a segment that all units of a host have mapped.
//!
//! A unit's line says whether it has left or given up, how many collective operations it has come to, and
//! which the last is. Nothing else is shared by all, and nothing of it is on the path of a message. What
//! units of other hosts say of themselves, in messages, each unit notes for itself: it has not come to their
//! end sooner for what another has received.

use super::collective::{Collective, CollectiveCount};
use super::host_map::Hosts;
use super::peer::Gone;
use crate::types::{Address, MAX_UNITS};
use polyduct_os::{
    segment::{Access, Segment},
    sync::{Line, Ordering},
    OsError,
};
use std::mem::size_of;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Word of a unit's line: whether it takes part.
const STATE: usize = 0;
/// Word of a unit's line: the collective operations that it has come to, a [`CollectiveCount`].
const CAME: usize = 1;
/// Word of a unit's line: the lost unit, and one, that it knew of when it left or gave up.
const BECAUSE: usize = 2;
/// Word of the segment's first line: the unit, and one, for whose sake the first gave up: itself, or one that
/// was lost.
const GAVE_UP_FIRST: usize = 3;
/// The unit has said that it leaves; what it sent before is on its way.
const LEAVING: u64 = 3;
/// The unit has left in order.
const LEFT: u64 = 1;
/// The unit gave up: for the others it is lost, though its process may live.
const GAVE_UP: u64 = 2;

/// The board, as one unit has it mapped.
#[derive(Clone, Debug)]
pub struct Board {
    segment: Arc<Segment>,
    units: u32,
    /// In a domain across hosts that has units beside this one: who they are, and where the others' lines
    /// are.
    far: Option<(Arc<Hosts>, Arc<Segment>)>,
}

impl Board {
    /// A fresh board for `units` units (at most [`MAX_UNITS`]).
    ///
    /// # Errors
    /// The system's refusal of memory.
    pub fn create(units: u32) -> Result<Board, OsError> {
        Ok(Board { segment: Arc::new(Self::lines(units)?), units, far: None })
    }

    /// The board that the lowest unit of the host handed over.
    ///
    /// # Errors
    /// A segment that is not what it must be.
    pub fn attach(fd: OwnedFd, units: u32) -> Result<Board, OsError> {
        let len = Self::len_bytes(units);
        let segment = Arc::new(Segment::from_fd(fd, len, len, Access::ReadWrite)?);
        Ok(Board { segment, units, far: None })
    }

    /// The same board where units of other hosts have no part in it: their lines are this unit's own.
    ///
    /// # Errors
    /// The system's refusal of memory.
    pub fn among(self, hosts: Arc<Hosts>) -> Result<Board, OsError> {
        let far = Some((hosts, Arc::new(Self::lines(self.units)?)));
        Ok(Board { far, ..self })
    }

    fn lines(units: u32) -> Result<Segment, OsError> {
        let segment = Segment::create("polyduct-board", Self::len_bytes(units))?;
        segment.prefault(0..segment.len())?;
        Ok(segment)
    }

    fn len_bytes(units: u32) -> usize {
        units.clamp(1, MAX_UNITS) as usize * size_of::<Line>()
    }

    /// The segment, to be handed to others.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The line of a unit.
    ///
    /// # Panics
    /// For a unit that the domain does not have.
    pub fn line(&self, unit: Address) -> &Line {
        let segment = match &self.far {
            Some((hosts, theirs)) if hosts.is_far(unit) => theirs,
            _ => &self.segment,
        };
        Self::line_in(segment, unit)
    }

    fn line_in(segment: &Segment, unit: Address) -> &Line {
        let at = unit as usize * size_of::<Line>();
        let line = segment.lines(at..at + size_of::<Line>());
        &line.expect("the segment has a line for each unit of the domain")[0]
    }

    /// This unit takes no part any more, by its own will. `because` of the loss of another, if it knew of
    /// one.
    pub fn leave(&self, unit: Address, because: Option<Address>) {
        self.say_because(unit, because);
        self.line(unit).w[STATE].store(LEFT, Ordering::Release);
    }

    /// This unit gives up, in the midst of its work; `because` of the loss of another, if it knew of one.
    pub fn give_up(&self, unit: Address, because: Option<Address>) {
        self.say_because(unit, because);
        self.line(unit).w[STATE].store(GAVE_UP, Ordering::Release);
        let first = &Self::line_in(&self.segment, 0).w[GAVE_UP_FIRST];
        let root = u64::from(because.unwrap_or(unit)) + 1;
        let _ = first.compare_exchange(0, root, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn say_because(&self, unit: Address, because: Option<Address>) {
        let because = because.map_or(0, |lost| u64::from(lost) + 1);
        self.line(unit).w[BECAUSE].store(because, Ordering::Relaxed);
    }

    /// Where a unit has gone, as it said itself.
    #[inline]
    pub fn gone(&self, unit: Address) -> Option<Gone> {
        match self.line(unit).w[STATE].load(Ordering::Acquire) {
            LEFT => Some(Gone::Left),
            GAVE_UP => Some(Gone::Lost),
            _ => None,
        }
    }

    /// Whether a unit has given up.
    pub fn has_given_up(&self, unit: Address) -> bool {
        self.gone(unit) == Some(Gone::Lost)
    }

    /// The first unit of this host that gave up, if one has: or that whose loss was the reason.
    pub fn first_to_give_up(&self) -> Option<Address> {
        let first =
            Self::line_in(&self.segment, 0).w[GAVE_UP_FIRST].load(Ordering::Acquire).checked_sub(1)?;
        u32::try_from(first).ok().filter(|&first| first < self.units)
    }

    /// This unit comes to one more collective operation. One thread at a time does so.
    pub fn come(&self, unit: Address, to: Collective) {
        self.line(unit).w[CAME].store(self.came(unit).and(to).0, Ordering::Release);
    }

    /// What a unit has come to.
    pub fn came(&self, unit: Address) -> CollectiveCount {
        CollectiveCount(self.line(unit).w[CAME].load(Ordering::Acquire))
    }

    /// A unit of another host has said what it had come to. Its words may come in another order than it said
    /// them.
    pub fn note_came(&self, unit: Address, came: CollectiveCount) {
        self.line(unit).w[CAME].fetch_max(came.0, Ordering::AcqRel);
    }

    /// Of a unit that has left or given up: the loss that it knew of.
    pub fn because(&self, unit: Address) -> Option<Address> {
        let lost = self.line(unit).w[BECAUSE].load(Ordering::Relaxed).checked_sub(1)?;
        u32::try_from(lost).ok().filter(|&lost| lost < self.units)
    }

    /// A unit has said that it leaves, having come to these collective operations.
    pub fn note_leaving(&self, unit: Address, came: CollectiveCount, because: Option<Address>) {
        self.say_because(unit, because);
        self.line(unit).w[CAME].store(came.0, Ordering::Relaxed);
        self.line(unit).w[STATE].store(LEAVING, Ordering::Release);
    }

    /// Whether a unit has said that it leaves, or has left.
    pub fn is_leaving(&self, unit: Address) -> bool {
        self.line(unit).w[STATE].load(Ordering::Acquire) != 0
    }

    /// Whether a unit has left in order.
    pub fn has_left(&self, unit: Address) -> bool {
        self.gone(unit) == Some(Gone::Left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_up_first_is_the_one_that_is_named() {
        let board = Board::create(4).unwrap();
        assert_eq!((board.first_to_give_up(), board.because(2)), (None, None));
        board.give_up(2, None);
        board.give_up(1, Some(2));
        board.leave(3, Some(2));
        assert_eq!(board.first_to_give_up(), Some(2));
        assert_eq!([1, 2, 3].map(|unit| board.has_given_up(unit)), [true, true, false]);
        assert_eq!([1, 2, 3].map(|unit| board.has_left(unit)), [false, false, true]);
        assert_eq!([1, 2, 3].map(|unit| board.because(unit)), [Some(2), None, Some(2)]);
    }

    #[test]
    fn what_far_units_say_is_noted_by_each_for_itself() {
        let shared = Board::create(4).unwrap();
        let told = vec![0, 1, 1, 0];
        let among = |me| shared.clone().among(Arc::new(Hosts::read(me, told.clone()).unwrap())).unwrap();
        let [one, two] = [among(1), among(2)];
        one.note_leaving(0, CollectiveCount(7 << 8 | 1), None);
        assert_eq!([&one, &two].map(|board| board.is_leaving(0)), [true, false]);
        assert_eq!([&one, &two].map(|board| board.came(0).count()), [7, 0]);
        one.give_up(1, Some(3));
        assert!(two.has_given_up(1));
        assert_eq!([&one, &two].map(Board::first_to_give_up), [Some(3); 2]);
    }
}
