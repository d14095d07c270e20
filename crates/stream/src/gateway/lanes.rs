//! Lanes: what carries striping units, and whether the other end confirms them.

use crate::execution::Send;
use crate::StreamError;
use polyduct_os::poll::PollItem;
use std::ops::Range;
use std::time::Duration;

/// What came of an attempt to send a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Went {
    /// All of it is gone, and nobody will say more.
    Arrived,
    /// All of it is gone, and will be [confirmed](Event::Taken).
    Sent,
    /// The lane takes no more now: the same unit is to be gone on with.
    Partly,
    /// The lane is down: what it had not confirmed is to be sent again.
    Down,
}

/// What lanes tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The other end has a unit.
    Taken {
        /// The lane that it came over.
        lane: u32,
        /// Of which step.
        adu: u64,
        /// Which bytes of it.
        at: Range<u64>,
    },
    /// The other end has bytes, whatever lanes and units they came in: of units that are cut short it has the
    /// beginning.
    Here {
        /// Of which step.
        adu: u64,
        /// Which bytes of it.
        at: Range<u64>,
    },
    /// The other end has all steps below this.
    Past(u64),
    /// A lane is down: what it had not confirmed is to be sent again.
    Down(u32),
}

/// The lanes of a stream that transmits. Those that are never confirmed, nor made again, leave the questions of that as they
/// are answered here.
pub trait Lanes {
    /// How many there are.
    fn count(&self) -> u32;

    /// Whether units are [confirmed](Event::Taken), and buffers kept until then; else what lies in a program's memory is
    /// sent from there.
    fn confirms(&self) -> bool {
        false
    }

    /// Whether the other end has room for a step.
    fn has_room(&self, _adu: u64) -> bool {
        true
    }

    /// Whether a lane can be given a unit.
    fn is_up(&self, _lane: u32) -> bool {
        true
    }

    /// Goes on with a unit: `header` and then `data`.
    ///
    /// # Errors
    /// The end of the stream; of a lane that can be made again, none.
    fn go_on(&mut self, lane: u32, send: &Send, header: &[u8], data: &[u8]) -> Result<Went, StreamError>;

    /// What has happened, one thing after the other.
    ///
    /// # Errors
    /// The end of the stream.
    fn poll(&mut self, _now: Duration) -> Result<Option<Event>, StreamError> {
        Ok(None)
    }

    /// Adds what to wait for; of lanes that are `busy`, until they take more.
    fn items<'a>(&'a self, busy: &dyn Fn(u32) -> bool, items: &mut Vec<PollItem<'a>>);

    /// When [`poll`](Lanes::poll) is to be called at the latest.
    fn deadline(&self) -> Option<Duration> {
        None
    }

    /// Says that no more steps come than these, and waits until the other end has them.
    ///
    /// # Errors
    /// It does not.
    fn finish(&mut self, steps: u64, again: &dyn Fn() -> bool) -> Result<(), StreamError>;

    /// Tells the other end that the stream broke.
    fn abort(&mut self, why: &str);
}
