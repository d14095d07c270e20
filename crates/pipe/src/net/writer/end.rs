//! A writer across hosts ends: when the readers have all, or before its time.

use super::{is_over, unmet, NetWriter};
use crate::error::PipeError;
use crate::net::client::Client;
use crate::net::enter::Control;
use crate::net::wire::Ask;
use crate::port::stop_error;
use polyduct_port::{PortError, Scope, Stats};
use polyduct_slots::bell::wait_for;
use polyduct_slots::fault::Fault;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl NetWriter {
    /// Ends the stream: readers get every step published so far, then its end. All units must have written
    /// the same number of steps. Waits until the readers have fetched them, and unit 0 until all other units
    /// have left: the data are in this process.
    ///
    /// # Errors
    /// The error that the port failed with before; [`PortError::UnevenSteps`]; [`PortError::Timeout`] and
    /// [`PortError::Interrupted`] while waiting, after which it can be called again; loss of a reader before
    /// it had all.
    pub fn close(&mut self) -> Result<Stats, PipeError> {
        if !self.open {
            return self.failed.clone().map_or(Ok(self.stats), Err);
        }
        if self.failed.is_none() {
            match self.linger().map_err(|e| e.at(&self.pipe, self.me).of(self.domain.programs())) {
                Err(e) if e.scope() == Scope::Operation => return Err(e),
                ended => self.failed = ended.err(),
            }
        }
        if let Some(PipeError::Port(PortError::UnevenSteps { .. })) = self.failed {
            self.outlast();
        }
        let left = self.domain.leave();
        self.leave();
        self.failed.clone().map_or(left, Err).map(|()| self.stats)
    }

    fn linger(&mut self) -> Result<(), PipeError> {
        let (unit, n) = (self.me.unit, self.next);
        match &mut self.control {
            Control::Host { slots, shared, .. } => {
                if !slots.is_closed(self.me) {
                    let closed = slots.close_writer(unit, n);
                    let _ = shared.wake.signal();
                    closed.map_err(|stop| stop_error(&self.pipe, stop, n))?;
                }
                let mut waited = Duration::ZERO;
                let done =
                    wait_for(slots.freed_bell(), &self.patience, &mut waited, || is_over(slots, shared));
                unmet(&self.pipe, done, n, waited, shared)
            }
            Control::Guest(client) => {
                client.say(&Ask::Close)?;
                let dismissed = |client: &mut Client| client.is_dismissed().then_some(());
                client.wait(n, "the readers to have all up to step", &mut Duration::default(), dismissed)
            }
        }
    }

    /// The readers may still fetch the steps from before the writers' disagreement.
    fn outlast(&mut self) {
        match &mut self.control {
            Control::Host { slots, shared, .. } => {
                slots.leave(self.me);
                let _ = wait_for(slots.freed_bell(), &self.patience, &mut Duration::default(), || {
                    is_over(slots, shared)
                });
            }
            Control::Guest(client) => client.outlast(),
        }
    }

    /// Gives the stream up: all other units get [`PortError::PeerAborted`].
    pub fn abort(&mut self) {
        if !self.open {
            return;
        }
        self.domain.give_up();
        if let Control::Host { slots, .. } = &self.control {
            slots.give_up(self.me);
        }
        self.leave();
    }

    fn leave(&mut self) {
        self.open = false;
        match &mut self.control {
            Control::Host { slots, shared, thread } => {
                if slots.fault().is_some() || slots.readers_are_gone() {
                    slots.leave(self.me);
                } else if !slots.is_closed(self.me) || !shared.alone.load(Ordering::Acquire) {
                    // Whoever is still there would wait for what cannot come any more.
                    slots.fail(Fault::Aborted { unit: self.me });
                }
                shared.stop.store(true, Ordering::Release);
                let _ = shared.wake.signal();
                thread.take().into_iter().for_each(|t| drop(t.join()));
            }
            Control::Guest(client) if client.is_dismissed() => client.leave(&Ask::Close),
            Control::Guest(client) => client.give_up(),
        }
        self.senders.stop();
        self.accepts.take().into_iter().for_each(|t| drop(t.join()));
    }
}

impl Drop for NetWriter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort();
        } else if self.close().is_err() && self.open {
            // The readers had their time.
            self.leave();
        }
    }
}
