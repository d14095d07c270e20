//! A writer's end of a pipe across hosts: its slots stay in its process until the readers have fetched them.

mod end;

use super::address::PipeAddress;
use super::client::Client;
use super::enter::{guest, host, Control};
use super::senders::Senders;
use super::serve::Shared;
use super::wire::Ask;
use super::Trust;
use crate::bind::bind_writers;
use crate::domain::{DomainOptions, PortDomain};
use crate::error::{PipeError, Refusal};
use crate::join::system;
use crate::port::Port;
use crate::ready::{Wait, Watch};
use crate::room::Rooms;
use crate::writer::{self, Opening, WriterEnd};
use polyduct_message::domain::Domain;
use polyduct_message::meeting::SLICE;
use polyduct_os::{clock, segment::Segment};
use polyduct_port::{BundleError, PortError, PortName, Scope, UnitName};
use polyduct_slots::{Begin, Slots, Turn};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a wait at a bell of this process spins.
const SPIN: Duration = Duration::from_micros(5);
/// How soon a slot is looked at again that is free, but from which a thread is sending its last bytes.
const SENT: Duration = Duration::from_millis(1);

/// The slots of a writer unit, and the threads that send from them.
struct Sending {
    control: Control,
    senders: Arc<Senders>,
    accepts: Option<JoinHandle<()>>,
    /// What this unit may do with the next step, once it knows.
    begun: Option<Begin>,
    /// The memory of the slot that is being filled.
    filling: Option<Segment>,
    rooms: Rooms,
}

/// Opens the pipe at `place`, and gives its arrays and where the unit goes on.
pub(crate) fn open(
    place: &PipeAddress,
    trust: &Trust,
    me: UnitName,
    opening: Opening<'_>,
) -> Result<writer::Opened, PipeError> {
    let Opening { options, hello, start, .. } = opening;
    let (control, senders, accepts, (welcome, network)) = if options.unit == 0 {
        let (control, senders, meeting) = host(place, trust, options, hello, start)?;
        (control, senders, None, meeting)
    } else {
        let (client, senders, accepts, meeting) = guest(place, trust, options, hello, start)?;
        (Control::Guest(Box::new(client)), senders, Some(accepts), meeting)
    };
    let from = match &control {
        Control::Host { slots, published, .. } => slots.first_needed(*published),
        Control::Guest(client) => client.from,
    };
    let pipe = place.to_string();
    let domain = PortDomain::new(&pipe, me, &welcome, options, Some(network));
    let port = Port::new(&pipe, me, domain, options, (start, SPIN));
    let arrays = welcome.arrays;
    let places = bind_writers(&arrays, options.units)?.lay_out(options.unit)?;
    let rooms = Rooms::new(&arrays, &places, welcome.depth);
    let end = Sending { control, senders, accepts, begun: None, filling: None, rooms };
    Ok((port, Box::new(end), arrays, from))
}

/// This unit replaces another, and brings something else of a step of which readers may know what that one brought.
fn brings_otherwise(port: &Port, step: u64) -> PipeError {
    PipeError::Port(PortError::Bundle {
        port: PortName::Pipe(port.pipe.clone()),
        source: Box::new(BundleError::Size {
            name: String::new(),
            what: "what a replacement brings",
            found: format!("another size of step {step}"),
            expected: "the sizes of arrays and values that the unit brought which it replaces".into(),
        }),
    })
}

impl WriterEnd for Sending {
    fn begin(&mut self, port: &mut Port, n: u64) -> Result<Begin, PipeError> {
        let begun = match self.begun {
            Some(begun) => begun,
            None => self.ask(port, n)?,
        };
        self.begun = Some(begun);
        if let (Begin::Fill(turn), None) = (begun, &self.filling) {
            self.filling = Some(self.take(port, n, turn.slot)?);
        }
        Ok(begun)
    }

    fn would_wait(&mut self, port: &mut Port, n: u64) -> Result<Option<Wait>, PipeError> {
        if let Control::Host { slots, published, .. } = &self.control {
            // Asking for the step may have the queue drop one, which is for whoever wants to fill it.
            let may_begin = n < *published || slots.may_begin(port.me.unit, n);
            if self.begun.is_none() && (slots.is_lossy() || !may_begin) {
                return Ok((!may_begin).then(Wait::default));
            }
        }
        match clock::within(Some(Duration::ZERO), || self.begin(port, n)) {
            Ok(_) => Ok(None),
            Err(e) if e.scope() == Scope::Operation => {
                let mut wait = Wait::default();
                if let Control::Guest(client) = &self.control {
                    client.waits_at(&mut wait);
                }
                wait.within(self.begun.map(|_| SENT));
                Ok(Some(wait))
            }
            Err(e) => Err(e),
        }
    }

    fn watch(&self, port: &Port) -> Result<Watch, PipeError> {
        match &self.control {
            Control::Host { slots, .. } => Ok(Watch::at_bell(slots, Slots::freed_bell)),
            Control::Guest(_) => Watch::at_sockets().map_err(system(&port.pipe)),
        }
    }

    fn is_near(&self) -> bool {
        false
    }

    fn make_room(&mut self, port: &Port, turn: Turn, used: &[usize], begins: bool) -> Result<(), PipeError> {
        let Some(memory) = &self.filling else { return Ok(()) };
        self.rooms.make((memory, 0), turn.slot, used, begins).map_err(system(&port.pipe))
    }

    fn slot(&self, _: Turn) -> &[u8] {
        let memory = self.filling.as_ref().and_then(|memory| memory.slice(0..self.senders.len()).ok());
        memory.unwrap_or_default()
    }

    fn slot_mut(&mut self, _: Turn) -> &mut [u8] {
        let len = self.senders.len();
        self.filling.as_mut().and_then(|memory| memory.slice_mut(0..len).ok()).unwrap_or_default()
    }

    fn finish(&mut self, port: &mut Port, n: u64, begin: Begin, said: &[u64]) -> Result<(), PipeError> {
        self.begun = None;
        if let (Begin::Fill(turn), Some(memory)) = (begin, self.filling.take()) {
            // Before anybody can ask for it.
            self.senders.put(turn.slot, n, memory);
        }
        match (&mut self.control, begin) {
            (Control::Host { slots, shared, published, .. }, begin) => {
                if let Begin::Fill(turn) = begin {
                    if n < *published && slots.said_others(port.me.unit, turn, said) {
                        return Err(brings_otherwise(port, n));
                    }
                    slots.bring(port.me.unit, turn, said);
                }
                match begin {
                    _ if n < *published => {}
                    Begin::Fill(turn) => drop(slots.publish(port.me.unit, turn)),
                    Begin::Drop => slots.skip(port.me.unit, n),
                }
                let _ = shared.wake.signal();
                Ok(())
            }
            (Control::Guest(client), Begin::Fill(_)) => {
                let brings = (!said.is_empty()).then(|| Ask::Bring(said.to_vec()));
                client.say_all(brings.into_iter().chain([Ask::Publish]))
            }
            (Control::Guest(client), Begin::Drop) => client.say(&Ask::Skip),
        }
    }

    fn domain(&mut self, port: &mut Port, wishes: &DomainOptions, n: u64) -> Result<Domain, PipeError> {
        match &mut self.control {
            Control::Host { slots, .. } => port.join_domain(slots, wishes, n),
            Control::Guest(client) => client.join_domain(&mut port.domain, wishes, n),
        }
    }

    fn close(&mut self, port: &mut Port, n: u64) -> Result<(), PipeError> {
        self.linger(port, n)
    }

    fn leave(&mut self, port: &mut Port) -> Result<(), PipeError> {
        if let Some(PipeError::Port(PortError::UnevenSteps { .. })) = port.failure() {
            self.outlast(port);
        }
        let left = port.domain.leave();
        self.end(port, "");
        left
    }

    fn abort(&mut self, port: &mut Port, reason: &str) {
        port.domain.give_up();
        if let (Control::Host { slots, .. }, false) = (&self.control, port.waits_on_loss()) {
            slots.give_up(port.me, reason);
        }
        self.end(port, reason);
    }
}

/// What an error means where this unit was not heard, and another has its place.
fn replaced(port: &Port, shared: &Shared, error: PipeError) -> PipeError {
    match shared.replaced.load(Ordering::Acquire) {
        true => PipeError::refused(&port.pipe, Refusal::Replaced { unit: port.me }),
        false => error,
    }
}

impl Sending {
    fn ask(&mut self, port: &mut Port, n: u64) -> Result<Begin, PipeError> {
        let what = "a free slot for step";
        match &mut self.control {
            Control::Host { slots, shared, published, .. } => {
                let unit = port.me.unit;
                let absent = || shared.absent().first().copied();
                let begin = |slots: &Slots| slots.poll_begin_again(unit, n, *published);
                let begun = port.wait(slots, Slots::freed_bell, (what, n), absent, begin);
                begun.map_err(|error| replaced(port, shared, error))
            }
            Control::Guest(client) => {
                // Asked where it is looked for: another unit 0 may have come between, and knows of no answer.
                let begins = |client: &mut Client| {
                    if client.asked == 0 && !client.knows_begin() {
                        if let Err(error) = client.say(&Ask::Begin) {
                            return Some(Err(error));
                        }
                        client.asked = 1;
                    }
                    client.begin().map(Ok)
                };
                let begun = client.wait(n, what, &mut port.stats.waited, begins)??;
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
    fn take(&mut self, port: &Port, n: u64, slot: u32) -> Result<Segment, PipeError> {
        let start = clock::now();
        loop {
            let left = clock::left(start, port.patience.timeout);
            if let Some(memory) = self.senders.store.take(slot, left.map_or(SLICE, |left| left.min(SLICE))) {
                return Ok(memory);
            }
            let (waited, unit) = (clock::now() - start, Some(port.me));
            if port.patience.interrupt.as_ref().is_some_and(|ask| ask()) {
                return Err(PipeError::interrupted(&port.pipe, unit));
            }
            if clock::left(start, port.patience.timeout).is_some_and(|left| left.is_zero()) {
                let what = format!("a slot to be sent for step {n}").into();
                let port = PortName::Pipe(port.pipe.clone());
                return Err(PipeError::Port(PortError::Timeout { port, unit, what, waited }));
            }
            if let Control::Guest(client) = &mut self.control {
                client.take(n)?;
            }
        }
    }
}
