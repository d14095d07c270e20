//! What a reader needs of the way its steps come, on one host or across hosts.

use crate::domain::DomainOptions;
use crate::error::PipeError;
use crate::port::Port;
use crate::ready::{Wait, Watch};
use crate::work::Work;
use polyduct_message::domain::Domain;
use polyduct_os::clock;
use polyduct_port::PortError;
use polyduct_slots::{Next, Turn};
use std::time::Duration;

/// A reader unit's way to the steps, on one host or across hosts.
pub(crate) trait ReaderEnd: Send + Sync {
    /// Waits for step `k` of this unit; says the same until it is [released](Self::release). `None` at the
    /// end of the stream.
    fn take(&mut self, port: &mut Port, k: u64) -> Result<Option<Turn>, PipeError>;

    /// The same if it is known, or within microseconds.
    fn try_take(&mut self, port: &mut Port, k: u64) -> Result<Option<Next>, PipeError> {
        match clock::within(Some(Duration::ZERO), || self.take(port, k)) {
            Ok(turn) => Ok(Some(turn.map_or(Next::End, Next::Step))),
            Err(PipeError::Port(PortError::Timeout { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What reading step `k` would wait for; `None` if it would not.
    fn would_wait(&mut self, port: &mut Port, work: &mut Work, k: u64) -> Result<Option<Wait>, PipeError>;

    /// Waits until nobody else can keep this unit from [copying](Self::copy) a step that it took. After a wait that was
    /// in vain the next call goes on.
    fn hold(&mut self, _port: &mut Port, _work: &Work, _turn: Turn) -> Result<(), PipeError> {
        Ok(())
    }

    /// Where [`take`](Self::take) and [`copy`](Self::copy) sleep.
    fn watch(&self, port: &Port) -> Result<Watch, PipeError>;

    /// Whether looking for a step takes but microseconds.
    fn is_near(&self) -> bool;

    /// Moves this unit's parts of a step that it took into `parts`, one for each array. After a wait that was
    /// in vain the next call goes on.
    fn copy(
        &mut self,
        port: &mut Port,
        work: &Work,
        turn: Turn,
        parts: &mut [&mut [u8]],
    ) -> Result<(), PipeError>;

    /// What the writer units said of a step that it took, in numbers: `None` where one of them said nothing.
    fn brought(&mut self, work: &Work, turn: Turn) -> Option<Vec<u64>>;

    /// Whether this unit's part lies in one piece, in order, in a slot that this unit has mapped.
    fn is_held(&self, _work: &Work, _turn: Turn) -> bool {
        false
    }

    /// The part that is [held](Self::is_held).
    fn held(&self, _work: &Work, _turn: Turn) -> &[u8] {
        &[]
    }

    /// The same of several arrays into the memory of a step, where all is [near](Self::is_near).
    fn copy_memory(
        &mut self,
        _port: &mut Port,
        _work: &Work,
        _turn: Turn,
        _memory: &mut [u8],
        _values: &mut [u8],
    ) -> Result<(), PipeError> {
        Ok(())
    }

    /// Copies the values of a step that is [held](Self::is_held).
    fn copy_values(
        &mut self,
        _port: &mut Port,
        _work: &Work,
        _turn: Turn,
        _values: &mut [u8],
    ) -> Result<(), PipeError> {
        Ok(())
    }

    /// This unit has what it needs of its step `k`.
    fn release(&mut self, port: &mut Port, k: u64, turn: Turn) -> Result<(), PipeError>;

    /// Joins the port's domain.
    fn domain(&mut self, port: &mut Port, wishes: &DomainOptions, k: u64) -> Result<Domain, PipeError>;

    /// Leaves the pipe, in which it has read the steps before `k`, and its domain.
    fn leave(&mut self, port: &mut Port, k: u64) -> Result<(), PipeError>;

    /// Gives the stream up for this reason, which may be empty, and leaves.
    fn abort(&mut self, port: &mut Port, reason: &str);
}
