//! Pipes on one host: units share the control state and the writers' slots in memory.
//!
//! | module | idea |
//! |---|---|
//! | `writer`, `offer` | a writer's slots; large arrays that readers fetch from the writer's own memory |
//! | `reader` | the slots of the writers that a reader copies from |

mod offer;
pub(crate) mod reader;
pub(crate) mod writer;

use crate::error::PipeError;
use crate::port::{stop_error, Port};
use polyduct_os::{poll::EventFd, process::ProcessId, sync::Line};
use polyduct_port::UnitName;
use polyduct_slots::{Slots, Stop};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Looks of a call that does not wait: some microseconds, in which a partner on another processor comes to
/// its next step.
const LOOKS: u32 = 256;

/// The longest spin: where there are more processes than processors it takes time from the others.
pub(crate) fn spin_time(slots: &Slots) -> Duration {
    match slots.units().count() <= polyduct_os::cpu::allowed().len() {
        true => Duration::from_micros(50),
        false => Duration::from_micros(2),
    }
}

/// A unit's access to the control state of its pipe, and the thread that watches the other units.
pub(crate) struct Local {
    pub slots: Slots,
    watch: Option<(Arc<EventFd>, JoinHandle<()>)>,
}

impl Local {
    /// The thread ends when `stop` is signalled.
    pub fn new(slots: Slots, stop: Arc<EventFd>, thread: JoinHandle<()>) -> Local {
        Local { slots, watch: Some((stop, thread)) }
    }

    /// Waits at a bell for what `look` finds.
    pub fn wait<T>(
        &self,
        port: &mut Port,
        bell: fn(&Slots) -> &Line,
        what: (&str, u64),
        look: impl Fn(&Slots) -> Result<Option<T>, Stop>,
    ) -> Result<T, PipeError> {
        let me = port.me;
        port.wait(&self.slots, bell, what, || self.missing(me), look)
    }

    /// Looks for some microseconds for what [`wait`](Local::wait) waits for. No system call.
    pub fn look<T>(
        &self,
        port: &Port,
        step: u64,
        look: impl Fn(&Slots) -> Result<Option<T>, Stop>,
    ) -> Result<Option<T>, PipeError> {
        for _ in 0..LOOKS {
            match look(&self.slots) {
                Ok(None) => polyduct_os::sync::spin_hint(),
                Ok(found) => return Ok(found),
                Err(stop) => return Err(stop_error(&port.pipe, stop, step)),
            }
        }
        Ok(None)
    }

    /// The unit that is gone and was not replaced, and its process. (Where none may be replaced, that is an
    /// error and not waited for.)
    fn missing(&self, me: UnitName) -> Option<(UnitName, u32)> {
        let gone = |&unit: &UnitName| {
            let (pid, start_time) = self.slots.process(unit);
            let is_seen = self.slots.share_numbers(me, unit);
            is_seen && !self.slots.is_closed(unit) && !ProcessId { pid, start_time }.is_alive()
        };
        self.slots.units().find(gone).map(|unit| (unit, self.slots.process(unit).0))
    }

    /// The place of this unit in its program was given up: tells the others, and why if it says, unless they
    /// wait for a replacement.
    pub fn give_up(&mut self, port: &mut Port, reason: &str) {
        // One that has closed gives up nothing but its wait for the others.
        if !port.waits_on_loss() && !self.slots.is_closed(port.me) {
            self.slots.give_up(port.me, reason);
        }
        port.domain.give_up();
        self.stop_watching();
    }

    /// Leaves the domain and ends the watching thread. What others are to know must be in the control state
    /// before.
    ///
    /// # Errors
    /// Of leaving the domain: the unit has left all the same.
    pub fn leave(&mut self, port: &mut Port) -> Result<(), PipeError> {
        let left = port.domain.leave();
        self.stop_watching();
        left
    }

    fn stop_watching(&mut self) {
        if let Some((stop, thread)) = self.watch.take() {
            // Without its descriptor, which a program may have closed with all others, the thread cannot be
            // called.
            if stop.signal().is_ok() {
                let _ = thread.join();
            }
        }
    }
}
