//! A writer across hosts ends: when the readers have all, or before its time.

use super::{replaced, Sending};
use crate::error::PipeError;
use crate::net::client::Client;
use crate::net::enter::Control;
use crate::net::serve::Shared;
use crate::net::wire::Ask;
use crate::port::{stop_error, Port};
use polyduct_slots::bell::wait_for;
use polyduct_slots::fault::Fault;
use polyduct_slots::{Slots, Stop};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How the stream ended, once unit 0 need not serve it any more.
fn is_over(slots: &Slots, shared: &Shared) -> Result<Option<()>, Stop> {
    match slots.fault() {
        Some(fault) if fault.loses_steps() || shared.readers_over.load(Ordering::Acquire) => {
            Err(slots.stop(fault))
        }
        Some(_) => Ok(None),
        None => Ok(shared.alone.load(Ordering::Acquire).then_some(())),
    }
}

impl Sending {
    /// Ends the stream, and waits until the readers have all of it.
    pub(super) fn linger(&mut self, port: &mut Port, n: u64) -> Result<(), PipeError> {
        let what = ("the readers to have all up to step", n);
        match &mut self.control {
            Control::Host { slots, shared, published, .. } => {
                // Readers wait for steps that an earlier unit 0 published, and that nobody has any more.
                if n < *published {
                    slots.fail(Fault::Aborted { unit: port.me });
                } else if !slots.is_closed(port.me) {
                    let closed = slots.close_writer(port.me.unit, n);
                    let _ = shared.wake.signal();
                    closed.map_err(|stop| stop_error(&port.pipe, stop, n))?;
                }
                let absent = || shared.absent().first().copied();
                let over = port.wait(slots, Slots::freed_bell, what, absent, |slots| is_over(slots, shared));
                over.map_err(|error| replaced(port, shared, error))
            }
            Control::Guest(client) => {
                client.say(&Ask::Close)?;
                let dismissed = |client: &mut Client| client.is_dismissed().then_some(());
                client.wait(n, what.0, &mut Duration::default(), dismissed)
            }
        }
    }

    /// The readers may still fetch the steps from before the writers' disagreement.
    pub(super) fn outlast(&mut self, port: &Port) {
        match &mut self.control {
            Control::Host { slots, shared, .. } => {
                slots.leave(port.me);
                let over = || is_over(slots, shared).transpose();
                let _ = wait_for(slots.freed_bell(), &port.patience, &mut Duration::default(), over);
            }
            Control::Guest(client) => client.outlast(),
        }
    }

    /// Takes leave of the others, which are told why if it is before the time, and ends all threads.
    pub(super) fn end(&mut self, port: &Port, reason: &str) {
        match &mut self.control {
            Control::Host { slots, shared, thread, .. } => {
                if slots.fault().is_some() || slots.readers_are_gone() {
                    slots.leave(port.me);
                } else if !port.waits_on_loss()
                    && (!slots.is_closed(port.me) || !shared.alone.load(Ordering::Acquire))
                {
                    // A unit that is still there would wait for what cannot come any more.
                    slots.fail(Fault::Aborted { unit: port.me });
                }
                shared.stop.store(true, Ordering::Release);
                let _ = shared.wake.signal();
                thread.take().into_iter().for_each(|t| drop(t.join()));
            }
            Control::Guest(client) if client.is_dismissed() => client.leave(&Ask::Close),
            Control::Guest(client) => client.give_up(reason),
        }
        self.senders.stop();
        self.accepts.take().into_iter().for_each(|t| drop(t.join()));
    }
}
