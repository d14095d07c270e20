//! Whether the next step has come.

use super::{clock, Duration, Lane, NetReader, PipeError, Scope, Side, UnitName};
use crate::join::system;
use crate::ready::{Wait, Watch};

impl NetReader {
    /// Where [`read`](NetReader::read) sleeps.
    ///
    /// # Errors
    /// The system's refusal of a descriptor.
    pub fn watch(&self) -> Result<Watch, PipeError> {
        Watch::at_sockets().map_err(system(&self.pipe))
    }

    /// What the next [`read`](NetReader::read) would wait for; `None` if it would not. Receives what has come
    /// of the step into memory of the port, one copy more than without it. Where steps are dropped, the one
    /// that it finds is the one that is read.
    pub fn would_wait(&mut self) -> Option<Wait> {
        let here =
            self.check_open().and_then(|()| clock::within(Some(Duration::ZERO), || self.receive_ahead()));
        let error = here.err().filter(|_| self.failed.is_none())?;
        let error = error.at(&self.pipe, self.me);
        if error.scope() == Scope::Port {
            self.failed = (!matches!(error, PipeError::Closed { .. })).then_some(error);
            return None;
        }
        let mut wait = Wait::default();
        self.client.waits_at(&mut wait);
        if self.turn.is_some() {
            // Who replaces a unit that is lost, unit 0 says.
            let is_there =
                |lane: &&Lane| !self.client.is_absent(UnitName { side: Side::Writer, unit: lane.unit });
            for lane in self.lanes.iter().filter(|lane| lane.waits()).filter(is_there) {
                wait.at(lane.channel(), false);
            }
        }
        Some(wait)
    }

    /// Has all of the next step in `kept`, if it has come.
    fn receive_ahead(&mut self) -> Result<(), PipeError> {
        let turn = match self.turn {
            Some(turn) => turn,
            None => match self.take()? {
                Some(turn) => turn,
                None => return Ok(()),
            },
        };
        if !self.lanes.iter().any(Lane::waits) && self.kept.len() == self.len {
            return Ok(());
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.resize(self.len, 0);
        let received = self.receive(turn.step, &mut kept);
        self.kept = kept;
        received
    }
}
