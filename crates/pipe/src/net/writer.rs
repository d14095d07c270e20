//! The writing side of a pipe across hosts.

mod end;
mod ready;

use super::client::Client;
use super::enter::{guest, host, Control};
use super::place::Place;
use super::senders::Senders;
use super::serve::Shared;
use super::wire::Ask;
use super::Trust;
use crate::bind::{bind_writer, to_wire};
use crate::domain::{Addresses, DomainOptions, PortDomain};
use crate::error::PipeError;
use crate::join::{check_options, hello, system};
use crate::port::{not_replaced, stop_error, TIMED_FROM};
use crate::programs::Programs;
use crate::wire::Role;
use crate::writer::Given;
use polyduct_layout::{Layout, Mapping};
use polyduct_message::domain::Domain;
use polyduct_os::{clock, segment::Segment, spin::Spin};
use polyduct_port::{OnLoss, Options, Policy, PortError, PortName, Readers, Scope, Side, Stats, UnitName};
use polyduct_slots::bell::{wait_for, Patience, Unmet};
use polyduct_slots::{Begin, Slots, Stop, Turn};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a wait for a slot looks whether the pipe has failed.
const SLICE: Duration = Duration::from_millis(50);

/// One unit's writing end of a pipe across hosts.
///
/// As [`Writer`](crate::Writer), but for one thing: the steps stay in this process until readers have fetched
/// them, and so [`close`](NetWriter::close) waits for that.
pub struct NetWriter {
    pipe: String,
    me: UnitName,
    control: Control,
    senders: Arc<Senders>,
    accepts: Option<JoinHandle<()>>,
    patience: Patience,
    len: usize,
    next: u64,
    /// What this unit may do with the next step, once it knows.
    begun: Option<Begin>,
    filling: Option<(Turn, Segment)>,
    /// Where a step is written that the queue drops; made when first needed.
    scratch: Vec<u8>,
    stats: Stats,
    failed: Option<PipeError>,
    domain: PortDomain,
    open: bool,
}

impl NetWriter {
    /// Opens the pipe at `place` and waits until all units of this program and of the expected reader
    /// programs have come. Unit 0 listens there.
    ///
    /// # Errors
    /// [`PortError::Layout`] and [`PortError::BadOption`] before anything is allocated; [`PipeError::Link`]
    /// where unit 0 does not let this unit in; [`PipeError::Refused`] when units disagree or do not come
    /// within the open timeout; the system's refusals.
    pub fn open(
        place: &Place,
        trust: &Trust,
        given: &Given,
        layout: &str,
        options: &Options,
    ) -> Result<NetWriter, PipeError> {
        let me = check_options(options, Side::Writer)?;
        if options.on_loss == OnLoss::Wait && options.policy != Policy::Block {
            return Err(PipeError::Port(PortError::BadOption {
                port: None,
                option: "policy",
                found: options.policy.to_string(),
                expected: "block where lost units of the writer are replaced across hosts".into(),
            }));
        }
        if options.readers == Readers::Any {
            return Err(PipeError::Port(PortError::BadOption {
                port: None,
                option: "readers",
                found: options.readers.to_string(),
                expected: "the number of reader programs across hosts: any may come and go on one host only"
                    .into(),
            }));
        }
        NetWriter::open_as(me, place, trust, given, layout, options).map_err(|e| e.at(&place.to_string(), me))
    }

    fn open_as(
        me: UnitName,
        place: &Place,
        trust: &Trust,
        given: &Given,
        layout: &str,
        options: &Options,
    ) -> Result<NetWriter, PipeError> {
        let start = clock::now();
        let pipe = place.to_string();
        let layout: Layout = layout.parse()?;
        let dataset = match given {
            Given::Dataset(d) => {
                bind_writer(&layout, d, options.units)?;
                Some(to_wire(d))
            }
            Given::ByReader if options.units == 1 => None,
            Given::ByReader => {
                let (option, found) = ("units", options.units.to_string());
                let expected = "1 where the reader says the shape".into();
                return Err(PipeError::Port(PortError::BadOption { port: None, option, found, expected }));
            }
        };
        let addrs = place.resolve(options, start)?;
        let role = Role::Writer {
            dataset,
            depth: options.depth,
            policy: options.policy,
            readers: options.readers.to_wire(),
        };
        let hello = hello(options, &layout.to_string(), role).map_err(system(&pipe))?;
        let (control, senders, accepts, (welcome, network)) = if options.unit == 0 {
            let (control, senders, meeting) = host(place, trust, options, hello, addrs[0])?;
            (control, senders, None, meeting)
        } else {
            let (client, senders, accepts, meeting) = guest(place, trust, options, hello, start)?;
            (Control::Guest(Box::new(client)), senders, Some(accepts), meeting)
        };
        let from = match &control {
            Control::Host { .. } => 0,
            Control::Guest(client) => client.from,
        };
        let domain = PortDomain::new(&pipe, me, &welcome, options, Some(network));
        let len = senders.mapping().local_len_bytes(u64::from(options.unit))? as usize;
        let (timeout, interrupt) = (options.timeout, options.interrupt.clone());
        Ok(NetWriter {
            pipe,
            me,
            control,
            senders,
            accepts,
            patience: Patience { spin: Spin::new(Duration::from_micros(5)), timeout, interrupt },
            len,
            next: from,
            begun: None,
            filling: None,
            scratch: Vec::new(),
            stats: Stats { opened: clock::now() - start, ..Stats::default() },
            failed: None,
            domain,
            open: true,
        })
    }

    /// The dataset and who owns what of it.
    pub fn mapping(&self) -> &Mapping {
        self.senders.mapping()
    }

    /// Number of the next step, from 0.
    pub fn next_step(&self) -> u64 {
        self.next
    }

    /// Bytes of this unit's part.
    pub fn local_len_bytes(&self) -> usize {
        self.len
    }

    /// Where the units of all programs are in the port's [domain](Self::domain).
    pub fn addresses(&self) -> &Addresses {
        self.domain.addresses()
    }

    /// The message domain of this port: all units of the writer program and of all reader programs of the
    /// pipe, at their [addresses](Self::addresses). The first call joins it, and waits until all of them have
    /// asked; later ones give the same again, whatever they wish. Messages are independent of steps. Closing
    /// the port leaves the domain, unless the caller has a clone of it; aborting gives it up.
    ///
    /// # Errors
    /// [`PipeError::Domain`] with who did not come within the open timeout, after which it can be asked for
    /// again; [`PortError::PeerLost`] and the like when somebody is gone who would have to come;
    /// [`PortError::Interrupted`].
    pub fn domain(&mut self, wishes: &DomainOptions) -> Result<Domain, PipeError> {
        if let Some(domain) = self.domain.joined() {
            return Ok(domain);
        }
        self.check_open()?;
        let n = self.next;
        let joined = match &mut self.control {
            Control::Host { slots, .. } => {
                let watched = slots.clone();
                let joined = self.domain.join(wishes, move || watched.fault().is_some());
                match slots.fault().filter(|_| joined.is_err()) {
                    Some(fault) => Err(stop_error(&self.pipe, slots.stop(fault), n)),
                    None => joined,
                }
            }
            Control::Guest(client) => client.join_domain(&mut self.domain, wishes, n),
        };
        joined.map_err(|e| e.at(&self.pipe, self.me))
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Waits for a slot and gives this unit's part of the next step; as
    /// [`Writer::step`](crate::Writer::step).
    ///
    /// # Errors
    /// [`PortError::Timeout`] and [`PortError::Interrupted`], after which the port can be used again; loss of
    /// peers, after which it cannot.
    pub fn step(&mut self) -> Result<NetStepMut<'_>, PipeError> {
        if self.begin()? == Begin::Drop && self.scratch.len() != self.len {
            self.scratch.resize(self.len, 0);
        }
        Ok(NetStepMut { writer: self })
    }

    /// Writes this unit's part of the next step from memory of the caller's. Returns whether the step was
    /// taken.
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; otherwise as [`step`](Self::step).
    pub fn write(&mut self, part: &[u8]) -> Result<bool, PipeError> {
        if part.len() != self.len {
            return Err(PipeError::Port(PortError::WrongSize {
                port: PortName::Pipe(self.pipe.clone()),
                unit: Some(self.me.unit),
                expected: self.len as u64,
                found: part.len() as u64,
            }));
        }
        if let Begin::Fill(_) = self.begin()? {
            let start = (part.len() >= TIMED_FROM).then(clock::now);
            let kernels = crate::port::kernels(self.mapping().dataset());
            let copied = kernels.memcpy(self.part_mut().into(), part.into());
            copied.map_err(|e| {
                PipeError::Port(PortError::BadPeer {
                    port: PortName::Pipe(self.pipe.clone()),
                    peer: None,
                    what: e.to_string(),
                })
            })?;
            self.stats.copied += start.map_or(Duration::ZERO, |start| clock::now() - start);
        }
        self.finish()
    }

    fn begin(&mut self) -> Result<Begin, PipeError> {
        self.check_open()?;
        if self.begun.is_none() {
            let begun = self.ask().map_err(|e| self.fail(e))?;
            self.begun = Some(begun);
        }
        match self.begun {
            Some(Begin::Fill(turn)) if self.filling.is_none() => {
                let memory = self.take(turn.slot).map_err(|e| self.fail(e))?;
                self.filling = Some((turn, memory));
                Ok(Begin::Fill(turn))
            }
            Some(begun) => Ok(begun),
            None => Ok(Begin::Drop),
        }
    }

    fn ask(&mut self) -> Result<Begin, PipeError> {
        let n = self.next;
        match &mut self.control {
            Control::Host { slots, shared, .. } => {
                let (unit, mut waited) = (self.me.unit, Duration::ZERO);
                let looked = wait_for(slots.freed_bell(), &self.patience, &mut waited, || {
                    slots.poll_begin(unit, n).transpose()
                });
                self.stats.waited += waited;
                unmet(&self.pipe, looked, n, waited, shared)
            }
            Control::Guest(client) => {
                client.take(n)?;
                if client.asked == 0 && !client.knows_begin() {
                    client.say(&Ask::Begin)?;
                    client.asked = 1;
                }
                let begun = client.wait(n, "a free slot for step", &mut self.stats.waited, Client::begin)?;
                client.asked = 0;
                match begun {
                    Begin::Fill(turn) if turn.slot >= self.senders.store.depth() => {
                        Err(client.bad("a slot that this unit does not have"))
                    }
                    begun => Ok(begun),
                }
            }
        }
    }

    /// The slot's memory. Its readers have what was in it; the thread of one may be about to say so.
    fn take(&mut self, slot: u32) -> Result<Segment, PipeError> {
        let start = clock::now();
        loop {
            let left = clock::left(start, self.patience.timeout);
            if let Some(memory) = self.senders.store.take(slot, left.map_or(SLICE, |left| left.min(SLICE))) {
                return Ok(memory);
            }
            let waited = clock::now() - start;
            if self.patience.interrupt.as_ref().is_some_and(|ask| ask()) {
                return Err(PipeError::Port(PortError::Interrupted {
                    port: PortName::Pipe(self.pipe.clone()),
                    unit: None,
                }));
            }
            if clock::left(start, self.patience.timeout).is_some_and(|left| left.is_zero()) {
                let what = format!("a slot to be sent for step {}", self.next);
                return Err(PipeError::Port(PortError::Timeout {
                    port: PortName::Pipe(self.pipe.clone()),
                    unit: None,
                    what: what.into(),
                    waited,
                }));
            }
            if let Control::Guest(client) = &mut self.control {
                client.take(self.next)?;
            }
        }
    }

    fn part_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        match &mut self.filling {
            Some((_, memory)) => memory.slice_mut(0..len).unwrap_or_default(),
            None => &mut self.scratch,
        }
    }

    /// Publishes what was filled, or skips what is dropped.
    fn finish(&mut self) -> Result<bool, PipeError> {
        let (unit, n) = (self.me.unit, self.next);
        let filled = self.filling.take();
        let taken = filled.is_some();
        self.begun = None;
        self.next += 1;
        match filled {
            Some((turn, memory)) => {
                // Before anybody can ask for it.
                self.senders.put(turn.slot, n, memory);
                self.stats.steps += 1;
                self.stats.bytes += self.len as u64;
                match &mut self.control {
                    Control::Host { slots, shared, .. } => {
                        slots.publish(unit, turn);
                        let _ = shared.wake.signal();
                    }
                    Control::Guest(client) => client.say(&Ask::Publish)?,
                }
            }
            None => {
                self.stats.dropped += 1;
                match &mut self.control {
                    Control::Host { slots, shared, .. } => {
                        slots.skip(unit, n);
                        let _ = shared.wake.signal();
                    }
                    Control::Guest(client) => client.say(&Ask::Skip)?,
                }
            }
        }
        Ok(taken)
    }

    fn check_open(&self) -> Result<(), PipeError> {
        match &self.failed {
            Some(e) => Err(e.clone()),
            None if !self.open => {
                Err(PipeError::Port(PortError::Closed { port: PortName::Pipe(self.pipe.clone()) }))
            }
            None => Ok(()),
        }
    }

    fn fail(&mut self, error: PipeError) -> PipeError {
        let error = error.at(&self.pipe, self.me).of(self.domain.programs());
        if error.scope() == Scope::Port {
            self.failed = Some(error.clone());
        }
        error
    }
}

/// This unit's part of one step, to be filled in place. Dropped without publishing, the next call gives it
/// again.
pub struct NetStepMut<'a> {
    writer: &'a mut NetWriter,
}

impl NetStepMut<'_> {
    /// Makes the part visible, together with those of all other units. Returns whether the queue took the
    /// step.
    ///
    /// # Errors
    /// The loss of unit 0.
    pub fn publish(self) -> Result<bool, PipeError> {
        self.writer.finish()
    }

    /// Number of the step, from 0.
    pub fn number(&self) -> u64 {
        self.writer.next
    }
}

impl Deref for NetStepMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.writer.filling {
            Some((_, memory)) => memory.slice(0..self.writer.len).unwrap_or_default(),
            None => &self.writer.scratch,
        }
    }
}

impl DerefMut for NetStepMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.writer.part_mut()
    }
}

/// How the stream ended, once unit 0 need not serve it any more.
fn is_over(slots: &Slots, shared: &Shared) -> Option<Result<(), Stop>> {
    match slots.fault() {
        Some(fault) if fault.loses_steps() || shared.readers_over.load(Ordering::Acquire) => {
            Some(Err(slots.stop(fault)))
        }
        Some(_) => None,
        None => shared.alone.load(Ordering::Acquire).then_some(Ok(())),
    }
}

/// What a wait at a bell came to.
fn unmet<T>(
    pipe: &str,
    looked: Result<Result<T, Stop>, Unmet>,
    step: u64,
    waited: Duration,
    shared: &Shared,
) -> Result<T, PipeError> {
    match looked {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(stop)) => Err(stop_error(pipe, stop, step)),
        Err(Unmet::Interrupted) => {
            Err(PipeError::Port(PortError::Interrupted { port: PortName::Pipe(pipe.to_owned()), unit: None }))
        }
        Err(Unmet::Timeout) => {
            let what = format!(
                "the readers at step {step}{}",
                not_replaced(shared.absent().first().copied(), &Programs::default())
            );
            Err(PipeError::Port(PortError::Timeout {
                port: PortName::Pipe(pipe.to_owned()),
                unit: None,
                what: what.into(),
                waited,
            }))
        }
    }
}
