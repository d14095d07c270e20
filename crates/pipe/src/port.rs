//! What a writer's and a reader's port have in common: the pipe's control state, the watching thread,
//! waiting, errors.

use crate::domain::{Addresses, DomainOptions, PortDomain};
use crate::error::{silence, PipeError};
use crate::programs::Programs;
use polyduct_copy::{Kernels, LastCache};
use polyduct_layout::{Dataset, Plan};
use polyduct_message::domain::Domain;
use polyduct_os::{poll::EventFd, process::ProcessId, spin::Spin, sync::Line};
use polyduct_port::{Came, Options, PortError, PortName, Scope, Stats, UnitName};
use polyduct_slots::{bell::Patience, bell::Unmet, fault::Fault, Slots, Stop};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What each step that a reader takes adds to its counters.
#[derive(Debug)]
pub struct Share {
    bytes: u64,
    runs: u64,
    /// The writers' step that would be next if none were dropped. A replacement cannot know it of its first
    /// step.
    due: Option<u64>,
}

impl Share {
    /// Of a reader that gets its part by `plan`, and whose predecessors took `taken` steps.
    pub fn new(plan: &Plan, len: usize, taken: u64) -> Share {
        Share { bytes: len as u64, runs: plan.runs(), due: (taken == 0).then_some(0) }
    }

    /// The reader took the writers' step `step`.
    pub fn count(&mut self, stats: &mut Stats, step: u64) {
        stats.steps += 1;
        stats.bytes += self.bytes;
        stats.runs += self.runs;
        stats.dropped += step.saturating_sub(self.due.unwrap_or(step));
        self.due = Some(step + 1);
    }
}

/// The state of a port.
pub struct Port {
    pub pipe: String,
    pub me: UnitName,
    pub slots: Slots,
    pub patience: Patience,
    pub stats: Stats,
    wait_on_loss: bool,
    failed: Option<PipeError>,
    domain: PortDomain,
    watch: Option<(Arc<EventFd>, JoinHandle<()>)>,
}

/// The longest spin: processes beyond the cores make it a theft of time.
fn spin_time(slots: &Slots) -> Duration {
    match slots.units().count() <= polyduct_os::cpu::allowed().len() {
        true => Duration::from_micros(50),
        false => Duration::from_micros(2),
    }
}

/// Looks of who does not wait: some microseconds, in which a partner on another processor comes to its next
/// step.
const LOOKS: u32 = 256;

/// Parts from this size on have their copies timed; below, reading the clock would cost more than the copy.
pub const TIMED_FROM: usize = 16 << 10;

/// Kernels for the parts of a dataset. The units of one host share its last-level cache: where a step does
/// not fit there as a whole, no unit's part stays, however small, and stores should not read lines only to
/// overwrite them.
pub fn kernels(dataset: &Dataset) -> Kernels {
    let kernels = Kernels::detect();
    match dataset.len_bytes() / 3 * 4 >= LastCache::detect().bytes as u64 {
        true => kernels.stream_from(STREAM_FROM),
        false => kernels,
    }
}

/// Shorter tables are not worth the fence that ends streaming.
const STREAM_FROM: usize = 64 << 10;

/// What a stop means to a unit that asked for a step.
pub fn stop_error(pipe: &str, stop: Stop, step: u64) -> PipeError {
    let pipe = pipe.to_owned();
    match stop {
        Stop::Fault(Fault::Lost { unit, pid }) => PipeError::Port(PortError::PeerLost {
            port: PortName::Pipe(pipe),
            peer: unit.into(),
            pid,
            silence: None,
        }),
        Stop::Fault(Fault::Silent { unit, pid, seconds }) => PipeError::Port(PortError::PeerLost {
            port: PortName::Pipe(pipe),
            peer: unit.into(),
            pid,
            silence: silence(seconds),
        }),
        Stop::Fault(Fault::Aborted { unit }) => PipeError::Port(PortError::PeerAborted {
            port: PortName::Pipe(pipe),
            peer: unit.into(),
            reason: String::new(),
        }),
        // A fault is never uneven without a first close.
        Stop::Fault(Fault::Uneven { unit }) => PipeError::Port(PortError::UnevenSteps {
            port: PortName::Pipe(pipe),
            peer: unit.into(),
            closed_after: step,
            came: Came::ToStep(step),
        }),
        Stop::Uneven { unit, closed_after } => PipeError::Port(PortError::UnevenSteps {
            port: PortName::Pipe(pipe),
            peer: unit.into(),
            closed_after,
            came: Came::ToStep(step),
        }),
        Stop::ReadersGone => PipeError::ReadersGone { pipe, step },
        Stop::Corrupt(what) => PipeError::Port(PortError::BadPeer {
            port: PortName::Pipe(pipe),
            peer: None,
            what: what.to_owned(),
        }),
    }
}

impl Port {
    pub fn new(
        pipe: &str,
        me: UnitName,
        (slots, domain): (Slots, PortDomain),
        options: &Options,
        opened: Duration,
        watch: (Arc<EventFd>, JoinHandle<()>),
    ) -> Port {
        let (timeout, interrupt) = (options.timeout, options.interrupt.clone());
        Port {
            pipe: pipe.to_owned(),
            me,
            patience: Patience { spin: Spin::new(spin_time(&slots)), timeout, interrupt },
            slots,
            stats: Stats { opened, ..Stats::default() },
            wait_on_loss: options.on_loss == polyduct_port::OnLoss::Wait,
            failed: None,
            domain,
            watch: Some(watch),
        }
    }

    /// An error if the port has failed or is closed.
    pub fn check_open(&self) -> Result<(), PipeError> {
        match &self.failed {
            Some(e) => Err(e.clone()),
            None if self.watch.is_none() => {
                Err(PipeError::Port(PortError::Closed { port: PortName::Pipe(self.pipe.clone()) }))
            }
            None => Ok(()),
        }
    }

    /// Waits at a bell for what `look` finds.
    pub fn wait<T>(
        &mut self,
        bell: fn(&Slots) -> &Line,
        step: u64,
        what: &str,
        look: impl Fn(&Slots) -> Result<Option<T>, Stop>,
    ) -> Result<T, PipeError> {
        let slots = &self.slots;
        let mut waited = Duration::ZERO;
        let met = polyduct_slots::bell::wait_for(bell(slots), &self.patience, &mut waited, || {
            look(slots).transpose()
        });
        self.stats.waited += waited;
        match met {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(stop)) => Err(self.stopped(stop, step)),
            Err(Unmet::Interrupted) => Err(PipeError::Port(PortError::Interrupted {
                port: PortName::Pipe(self.pipe.clone()),
                unit: Some(self.me),
            })),
            Err(Unmet::Timeout) => {
                let what = format!("{what} {step}{}", self.missing());
                Err(PipeError::Port(PortError::Timeout {
                    port: PortName::Pipe(self.pipe.clone()),
                    unit: Some(self.me),
                    what: what.into(),
                    waited,
                }))
            }
        }
    }

    /// Looks for some microseconds for what [`wait`](Port::wait) waits for. No system call.
    pub fn look<T>(
        &mut self,
        step: u64,
        look: impl Fn(&Slots) -> Result<Option<T>, Stop>,
    ) -> Result<Option<T>, PipeError> {
        for _ in 0..LOOKS {
            match look(&self.slots) {
                Ok(None) => polyduct_os::sync::spin_hint(),
                Ok(found) => return Ok(found),
                Err(stop) => return Err(self.stopped(stop, step)),
            }
        }
        Ok(None)
    }

    /// Which unit is gone and was not replaced, in words. (Where none may be, that is an error and not waited
    /// for.)
    fn missing(&self) -> String {
        let gone = |&unit: &UnitName| {
            let (pid, start_time) = self.slots.process(unit);
            let is_seen = self.slots.share_numbers(self.me, unit);
            is_seen && !self.slots.is_closed(unit) && !ProcessId { pid, start_time }.is_alive()
        };
        let lost = self.slots.units().find(gone).map(|unit| (unit, self.slots.process(unit).0));
        not_replaced(lost, self.domain.programs())
    }

    fn stopped(&mut self, stop: Stop, step: u64) -> PipeError {
        self.fail(stop_error(&self.pipe, stop, step))
    }

    /// Remembers an error that ends the port, for the calls that come after it.
    pub fn fail(&mut self, error: PipeError) -> PipeError {
        let error = error.of(self.domain.programs());
        if error.scope() == Scope::Port {
            self.failed = Some(error.clone());
        }
        error
    }

    /// Where this unit and all others are in the port's domain.
    pub fn addresses(&self) -> &Addresses {
        self.domain.addresses()
    }

    /// The port's domain, joined when it is first asked for. `step` is this unit's next.
    pub fn domain(&mut self, wishes: &DomainOptions, step: u64) -> Result<Domain, PipeError> {
        if let Some(domain) = self.domain.joined() {
            return Ok(domain);
        }
        self.check_open()?;
        let slots = self.slots.clone();
        let joined = self.domain.join(wishes, move || slots.fault().is_some());
        // Who is lost will not come. Complete steps can be read all the same, and so the port has not failed.
        match self.slots.fault().filter(|_| joined.is_err()) {
            Some(fault) => {
                Err(stop_error(&self.pipe, self.slots.stop(fault), step).of(self.domain.programs()))
            }
            None => joined.map_err(|e| e.at(&self.pipe, self.me)),
        }
    }

    /// The place of this port in its program was given up: tells the others, unless they wait for a
    /// replacement.
    pub fn abort(&mut self) {
        // One that has closed gives up nothing but its wait for the others.
        if self.watch.is_some() && !self.wait_on_loss && !self.slots.is_closed(self.me) {
            self.slots.give_up(self.me);
        }
        self.domain.give_up();
        // It has left, and waits for nobody.
        let _ = self.leave();
    }

    /// Whether the port still has its place.
    pub fn is_open(&self) -> bool {
        self.watch.is_some()
    }

    /// This writer unit ends the stream after `n` steps, if it has not left before.
    pub fn close_writer(&mut self, n: u64) -> Result<(), PipeError> {
        match self.is_open() {
            true => self.slots.close_writer(self.me.unit, n).map_err(|stop| self.stopped(stop, n)),
            false => Ok(()),
        }
    }

    /// Ends the watching thread and leaves the domain. What others are to know must be in the control state
    /// before.
    ///
    /// # Errors
    /// Of leaving the domain: the port has left all the same.
    pub fn leave(&mut self) -> Result<(), PipeError> {
        let left = self.domain.leave();
        if let Some((stop, thread)) = self.watch.take() {
            // Without its descriptor, which a program may have closed with all others, the thread cannot be
            // called.
            if stop.signal().is_ok() {
                let _ = thread.join();
            }
        }
        left
    }
}

/// Says which unit, of which process, is lost and not replaced yet, as the end of a sentence.
pub(crate) fn not_replaced(lost: Option<(UnitName, u32)>, programs: &Programs) -> String {
    let words = |(unit, pid)| {
        format!("; {} (pid {pid}) is lost, and nothing has taken its place", programs.peer(unit))
    };
    lost.map(words).unwrap_or_default()
}
