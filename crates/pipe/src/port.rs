//! The parts that a writer's and a reader's port share: names, waiting, counters, errors.

use crate::bind::Kinds;
use crate::domain::{DomainOptions, PortDomain};
use crate::error::{silence, PipeError};
use crate::programs::Programs;
use crate::work::Work;
use polyduct_copy::{Kernels, LastCache};
use polyduct_message::domain::Domain;
use polyduct_os::{clock, spin::Spin, sync::Line};
use polyduct_port::{ArrayPart, Options, PortError, PortName, Reached, Scope, Stats, UnitName};
use polyduct_slots::{bell::Unmet, bell::WaitLimits, fault::Fault, Slots, Stop};
use std::time::Duration;

/// What each step that a reader takes adds to its counters.
#[derive(Debug)]
pub struct Share {
    /// The writers' step that would be next if none were dropped. A replacement cannot know it of its first
    /// step.
    due: Option<u64>,
}

impl Share {
    /// Of a reader whose predecessors took `taken` steps.
    pub fn new(taken: u64) -> Share {
        Share { due: (taken == 0).then_some(0) }
    }

    /// The reader took the writers' step `step`.
    pub fn count(&mut self, stats: &mut Stats, work: &Work, step: u64) {
        stats.steps += 1;
        stats.bytes += work.bytes();
        stats.runs += work.runs;
        stats.dropped += step.saturating_sub(self.due.unwrap_or(step));
        self.due = Some(step + 1);
    }
}

/// What a port has, however its unit reaches the others.
pub struct Port {
    pub pipe: String,
    pub me: UnitName,
    pub patience: WaitLimits,
    pub stats: Stats,
    pub domain: PortDomain,
    wait_on_loss: bool,
    failed: Option<PipeError>,
    open: bool,
}

/// Parts from this size on have their copies timed; below, reading the clock would cost more than the copy.
pub const TIMED_FROM: usize = 16 << 10;

/// Kernels for the parts of these arrays. The units of one host share its last-level cache: where a step does
/// not fit there as a whole, no unit's part stays, however small, and stores should not read lines only to
/// overwrite them.
pub fn kernels(arrays: &Kinds<'_>) -> Kernels {
    let kernels = Kernels::detect();
    let len = |&kind: &usize| arrays.mappings[kind].dataset().len_bytes();
    match arrays.of.iter().map(len).fold(0, u64::saturating_add) / 3 * 4 >= LastCache::detect().bytes as u64 {
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
        Stop::Aborted { unit, reason } => PipeError::Port(PortError::PeerAborted {
            port: PortName::Pipe(pipe),
            peer: unit.into(),
            reason: reason.into(),
        }),
        // One that gave up is told with its words.
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
            came: Reached::ToStep(step),
        }),
        Stop::Uneven { unit, closed_after } => PipeError::Port(PortError::UnevenSteps {
            port: PortName::Pipe(pipe),
            peer: unit.into(),
            closed_after,
            came: Reached::ToStep(step),
        }),
        Stop::ReadersGone => PipeError::ReadersGone { pipe, step },
        Stop::Corrupt(what) => PipeError::bad_peer(&pipe, what),
    }
}

impl Port {
    /// A port that opened just now, since `start`. Its waits spin for `spin` at most.
    pub fn new(
        pipe: &str,
        me: UnitName,
        domain: PortDomain,
        options: &Options,
        (start, spin): (Duration, Duration),
    ) -> Port {
        let (timeout, interrupt) = (options.timeout, options.interrupt.clone());
        Port {
            pipe: pipe.to_owned(),
            me,
            patience: WaitLimits { spin: Spin::new(spin), timeout, interrupt },
            stats: Stats { opened: clock::now() - start, ..Stats::default() },
            domain,
            wait_on_loss: options.on_loss == polyduct_port::OnLoss::Wait,
            failed: None,
            open: true,
        }
    }

    /// An error if the port has failed or is closed.
    pub fn check_open(&self) -> Result<(), PipeError> {
        match &self.failed {
            Some(e) => Err(e.clone()),
            None if !self.open => Err(self.closed()),
            None => Ok(()),
        }
    }

    /// The error of calls after the port was closed.
    pub fn closed(&self) -> PipeError {
        PipeError::Port(PortError::Closed { port: PortName::Pipe(self.pipe.clone()) })
    }

    /// Whether the port still has its place.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The error that has ended the port.
    pub fn failure(&self) -> Option<&PipeError> {
        self.failed.as_ref()
    }

    /// Whether the others wait for a replacement of this unit.
    pub fn waits_on_loss(&self) -> bool {
        self.wait_on_loss
    }

    /// The port is closed with the next calls.
    pub fn shut(&mut self) {
        self.open = false;
    }

    /// What closing gives: the error that the port failed with, or that leaving the domain met.
    pub fn outcome(&self, left: Result<(), PipeError>) -> Result<Stats, PipeError> {
        self.failed.clone().map_or(left, Err).map(|()| self.stats)
    }

    /// Checks the size of the caller's part.
    pub fn check_len(&self, found: usize, expected: usize) -> Result<(), PipeError> {
        if found == expected {
            return Ok(());
        }
        Err(PipeError::Port(PortError::WrongSize {
            port: PortName::Pipe(self.pipe.clone()),
            unit: Some(self.me.unit),
            array: Box::default(),
            expected: expected as u64,
            found: found as u64,
        }))
    }

    /// Checks the number and the sizes of the caller's parts of several arrays.
    pub fn check_parts(&self, found: &[usize], arrays: &[ArrayPart]) -> Result<(), PipeError> {
        if found.len() != arrays.len() {
            return Err(PipeError::Port(PortError::BadOption {
                port: Some(PortName::Pipe(self.pipe.clone())),
                option: "arrays",
                found: found.len().to_string(),
                expected: format!("one for each of the {} arrays", arrays.len()).into(),
            }));
        }
        match found.iter().zip(arrays).find(|(found, array)| **found != array.at.len()) {
            None => Ok(()),
            Some((&found, array)) => Err(PipeError::Port(PortError::WrongSize {
                port: PortName::Pipe(self.pipe.clone()),
                unit: Some(self.me.unit),
                array: array.name.as_str().into(),
                expected: array.at.len() as u64,
                found: found as u64,
            })),
        }
    }

    /// Counts the time that `copy` takes of a part of so many bytes.
    pub fn timed<T>(&mut self, len: usize, copy: impl FnOnce(&mut Port) -> T) -> T {
        let start = (len >= TIMED_FROM).then(clock::now);
        let copied = copy(self);
        self.stats.copied += start.map_or(Duration::ZERO, |start| clock::now() - start);
        copied
    }

    /// Waits at a bell for what `look` finds. An error of a wait that was in vain says what is `missing`.
    pub fn wait<T>(
        &mut self,
        slots: &Slots,
        bell: fn(&Slots) -> &Line,
        (what, step): (&str, u64),
        missing: impl FnOnce() -> Option<(UnitName, u32)>,
        look: impl Fn(&Slots) -> Result<Option<T>, Stop>,
    ) -> Result<T, PipeError> {
        let mut waited = Duration::ZERO;
        let met = polyduct_slots::bell::wait_for(bell(slots), &self.patience, &mut waited, || {
            look(slots).transpose()
        });
        self.stats.waited += waited;
        let (port, unit) = (|| PortName::Pipe(self.pipe.clone()), Some(self.me));
        match met {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(stop)) => Err(stop_error(&self.pipe, stop, step)),
            Err(Unmet::Interrupted) => Err(PipeError::interrupted(&self.pipe, unit)),
            Err(Unmet::Timeout) => {
                let what = format!("{what} {step}{}", not_replaced(missing(), self.domain.programs()));
                Err(PipeError::Port(PortError::Timeout { port: port(), unit, what: what.into(), waited }))
            }
        }
    }

    /// Remembers an error that ends the port, for the calls that come after it.
    pub fn fail(&mut self, error: PipeError) -> PipeError {
        let error = self.told(error);
        if error.scope() == Scope::Port && !matches!(error, PipeError::Port(PortError::Closed { .. })) {
            self.failed.get_or_insert_with(|| error.clone());
        }
        error
    }

    /// The error as it leaves this port.
    pub fn told(&self, error: PipeError) -> PipeError {
        error.at(&self.pipe, self.me).of(self.domain.programs())
    }

    /// Joins the port's domain. The stream that `slots` keep may end meanwhile, before this unit's step
    /// `step`.
    pub fn join_domain(
        &mut self,
        slots: &Slots,
        wishes: &DomainOptions,
        step: u64,
    ) -> Result<Domain, PipeError> {
        let watched = slots.clone();
        let joined = self.domain.join(wishes, move || watched.fault().is_some());
        // A lost unit will not come. Complete steps can be read all the same, and so the port has not failed.
        match slots.fault().filter(|_| joined.is_err()) {
            Some(fault) => Err(stop_error(&self.pipe, slots.stop(fault), step)),
            None => joined,
        }
    }
}

/// Says which unit, of which process, is lost and not replaced yet, as the end of a sentence.
pub(crate) fn not_replaced(lost: Option<(UnitName, u32)>, programs: &Programs) -> String {
    let words = |(unit, pid)| {
        format!("; {} (pid {pid}) is lost, and nothing has taken its place", programs.peer(unit))
    };
    lost.map(words).unwrap_or_default()
}
