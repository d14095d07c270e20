//! Whether there is room for the next step.

use super::{clock, Control, Duration, NetWriter, PipeError, Scope, Slots};
use crate::join::system;
use crate::ready::{Wait, Watch};

/// How soon a slot is looked at again that is free, but from which a thread is sending its last bytes.
const SENT: Duration = Duration::from_millis(1);

impl NetWriter {
    /// Where [`step`](NetWriter::step) sleeps.
    ///
    /// # Errors
    /// The system's refusal of a descriptor.
    pub fn watch(&self) -> Result<Watch, PipeError> {
        match &self.control {
            Control::Host { slots, .. } => Ok(Watch::at_bell(slots, Slots::freed_bell)),
            Control::Guest(_) => Watch::at_sockets().map_err(system(&self.pipe)),
        }
    }

    /// What the next [`step`](NetWriter::step) would wait for; `None` if it would not.
    pub fn would_wait(&mut self) -> Option<Wait> {
        if self.check_open().is_err() {
            return None;
        }
        if let Control::Host { slots, .. } = &self.control {
            // Asking for the step may have the queue drop one, which is for whoever wants to fill it.
            if self.begun.is_none() && (slots.is_lossy() || !slots.may_begin(self.me.unit, self.next)) {
                return (!slots.may_begin(self.me.unit, self.next)).then(Wait::default);
            }
        }
        let begun = clock::within(Some(Duration::ZERO), || self.begin());
        begun.err().filter(|e| e.scope() == Scope::Operation)?;
        let mut wait = Wait::default();
        if let Control::Guest(client) = &self.control {
            client.waits_at(&mut wait);
        }
        wait.within(self.begun.map(|_| SENT));
        Some(wait)
    }
}
