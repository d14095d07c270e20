//! What a writer needs of the way its steps go, on one host or across hosts.

use crate::domain::DomainOptions;
use crate::error::PipeError;
use crate::port::Port;
use crate::ready::{Wait, Watch};
use polyduct_copy::Kernels;
use polyduct_message::domain::Domain;
use polyduct_os::clock;
use polyduct_port::{ArrayPart, Changes, PortError};
use polyduct_slots::{Begin, Turn};
use std::time::Duration;

/// A writer unit's slots, and its part in the step protocol, on one host or across hosts.
pub(crate) trait WriterEnd: Send + Sync {
    /// Waits for what this unit may do with step `n`; says the same until it is done.
    fn begin(&mut self, port: &mut Port, n: u64) -> Result<Begin, PipeError>;

    /// The same if it is known, or within microseconds.
    fn try_begin(&mut self, port: &mut Port, n: u64) -> Result<Option<Begin>, PipeError> {
        match clock::within(Some(Duration::ZERO), || self.begin(port, n)) {
            Ok(begin) => Ok(Some(begin)),
            Err(PipeError::Port(PortError::Timeout { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What [`begin`](Self::begin) would wait for; `None` if it would not.
    fn would_wait(&mut self, port: &mut Port, n: u64) -> Result<Option<Wait>, PipeError>;

    /// Where [`begin`](Self::begin) sleeps.
    fn watch(&self, port: &Port) -> Result<Watch, PipeError>;

    /// Whether looking for room takes but microseconds.
    fn is_near(&self) -> bool;

    /// Has memory in the slot of a step that has begun for so many bytes of each array whose size changes.
    /// Where it `begins`, nothing of it is there yet.
    fn make_room(&mut self, port: &Port, turn: Turn, used: &[usize], begins: bool) -> Result<(), PipeError>;

    /// The slot of a step that has begun.
    fn slot(&self, turn: Turn) -> &[u8];

    /// The slot of a step that has begun.
    fn slot_mut(&mut self, turn: Turn) -> &mut [u8];

    /// Publishes step `n`, of which this unit says these numbers, or skips it where the queue drops it.
    fn finish(&mut self, port: &mut Port, n: u64, begin: Begin, said: &[u64]) -> Result<(), PipeError>;

    /// Writes step `n`, which has begun, from the caller's memory, through its slot unless there is a
    /// shorter way.
    fn write(&mut self, port: &mut Port, n: u64, turn: Turn, parts: &Parts<'_>) -> Result<(), PipeError> {
        self.write_slot(port, n, turn, parts)
    }

    /// Fills the slot of step `n`, which has begun, and publishes it.
    fn write_slot(
        &mut self,
        port: &mut Port,
        n: u64,
        turn: Turn,
        parts: &Parts<'_>,
    ) -> Result<(), PipeError> {
        port.timed(parts.len, |port| parts.fill(port, self.slot_mut(turn)))?;
        self.finish(port, n, Begin::Fill(turn), parts.said)
    }

    /// Joins the port's domain.
    fn domain(&mut self, port: &mut Port, wishes: &DomainOptions, n: u64) -> Result<Domain, PipeError>;

    /// Ends the stream before step `n`, and waits until this unit is not needed any more.
    fn close(&mut self, port: &mut Port, n: u64) -> Result<(), PipeError>;

    /// Leaves the pipe and its domain, after [`close`](Self::close) or in its place.
    fn leave(&mut self, port: &mut Port) -> Result<(), PipeError>;

    /// Gives the stream up for this reason, which may be empty, and leaves.
    fn abort(&mut self, port: &mut Port, reason: &str);
}

/// A unit's parts of a step in the caller's memory.
pub(crate) struct Parts<'a> {
    /// One for each array.
    pub parts: &'a [&'a [u8]],
    /// Where they belong in a slot.
    pub arrays: &'a [ArrayPart],
    /// What the unit says of the step.
    pub said: &'a [u64],
    /// Bytes of all.
    pub len: usize,
    pub kernels: Kernels,
    /// Some arrays are constant; and whether they lie in the slot already.
    pub constants: bool,
    pub lie_there: bool,
}

impl Parts<'_> {
    /// Copies all of them into a slot.
    pub fn fill(&self, port: &Port, slot: &mut [u8]) -> Result<(), PipeError> {
        let stays = |array: &ArrayPart| self.lie_there && array.open == Some(Changes::Never);
        self.parts.iter().zip(self.arrays).filter(|(_, array)| !stays(array)).try_for_each(
            |(&part, array)| {
                let room = slot.get_mut(array.at.clone()).unwrap_or_default();
                let copied = self.kernels.memcpy(room.into(), part.into());
                copied.map_err(|e| PipeError::bad_peer(&port.pipe, e.to_string()))
            },
        )
    }
}
