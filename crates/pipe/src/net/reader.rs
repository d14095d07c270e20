//! A reader's end of a pipe across hosts: one [lane](super::lane) to each writer unit that has something for
//! it.
//!
//! There is no thread: what comes waits in the sockets until it is read, and lands in the caller's array.

use super::address::PipeAddress;
use super::client::{wait_for_next, Client};
use super::dial::{dial, is_passing, link};
use super::hub::steps_ahead;
use super::lane::{Delivery, Lane};
use super::redial::{Caller, FRUITLESS};
use super::wire::{Ask, Guest};
use super::Trust;
use crate::domain::{DomainOptions, PortDomain};
use crate::error::PipeError;
use crate::join::{check_patience, system};
use crate::port::Port;
use crate::reader::{misfit, Opening, ReaderEnd};
use crate::ready::{Wait, Watch};
use crate::wire::Welcome;
use crate::work::Work;
use polyduct_message::domain::Domain;
use polyduct_message::meeting::{GRACE, RETRY, SLICE};
use polyduct_message::LinkError;
use polyduct_os::{clock, poll::poll};
use polyduct_port::{OnLoss, Policy, Scope, Side, UnitName, MAX_PROGRAMS};
use polyduct_slots::{Next, Turn};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes of a step that was received ahead for which the memory is not kept.
const KEPT_BYTES: usize = 64 << 20;

/// How long a reader would spin at a bell: it waits at sockets only.
const SPIN: Duration = Duration::ZERO;

/// Connects to a writer unit while the pipe opens, at `addr` or where unit 0 says that it is by then, and
/// asks for this unit's part of the steps: the writer's slots, or where it may not map them or they are not
/// on this host, their bytes.
fn connect(
    caller: &Caller,
    client: &mut Client,
    name: UnitName,
    (addr, slots): (SocketAddr, Option<(u32, usize, usize)>),
    start: Duration,
) -> Result<Delivery, PipeError> {
    let Caller { place, trust, options, replaced, .. } = caller;
    let (from, here) = (client.from, client.moved(name.unit).map_or(addr, |(addr, _)| addr));
    if let Some(way) = slots.and_then(|slots| caller.maps((name.unit, here), slots, from)) {
        return Ok(way);
    }
    let check_in = || {
        client.check_in()?;
        Ok(client.moved(name.unit).map(|(addr, _)| addr))
    };
    // One that is replaced may be there again.
    match dial(place, trust, options, start, &[addr], (name, !replaced), check_in) {
        Ok(channel) => caller.frames(channel, from).map_err(link(&place.to_string(), name)),
        // Why it is not there, unit 0 knows.
        Err(PipeError::Link { source, .. }) => Err(client.failed_to_open(name, *source)),
        Err(error) => Err(error),
    }
}

/// A reader unit's lanes, and its way to unit 0.
struct Receiving {
    client: Client,
    lanes: Vec<Lane>,
    caller: Caller,
    lossy: bool,
    /// Writers are told which steps are wanted: the queue may drop some, or sizes change.
    wants: bool,
    /// The [generation](Work::generation) that the lanes are of.
    generation: u64,
    /// Steps that are asked for before they are needed.
    ahead: u32,
    /// The step whose bytes are coming.
    turn: Option<Turn>,
    /// The lanes have been told of it.
    begun: bool,
    /// What had come of it when a wait was given up, if one was.
    kept: Vec<u8>,
    resumes: bool,
    /// This unit's part of each constant array, which comes once; they are all there or none is.
    constants: Vec<(usize, Option<Vec<u8>>)>,
    ended: bool,
}

/// Joins the pipe at `place`, and gives where the unit goes on.
pub(crate) fn open(
    place: &PipeAddress,
    trust: &Trust,
    opening: &Opening<'_>,
) -> Result<(Port, Box<dyn ReaderEnd>, Work, u64), PipeError> {
    let (mut pause, Opening { options, start, pipe, .. }) = (RETRY.0, opening);
    loop {
        if let Some((port, end, work, next)) = join(place, trust, opening)? {
            return Ok((port, Box::new(end), work, next));
        }
        wait_for_next(pipe, options, *start, &mut pause)?;
    }
}

/// Nothing where the writers left meanwhile, who do not wait for reader programs that come and go.
fn join(
    place: &PipeAddress,
    trust: &Trust,
    opening: &Opening<'_>,
) -> Result<Option<(Port, Receiving, Work, u64)>, PipeError> {
    let Opening { options, hello, start, .. } = opening;
    let (options, start, pipe) = (*options, *start, place.to_string());
    let (mut client, welcome, meets_at) =
        Client::join(place, trust, options, hello.clone(), |_| Ok(None), start)?;
    let program = welcome.program;
    let comes = welcome.readers.is_empty();
    if program >= if comes { MAX_PROGRAMS } else { welcome.readers.len() as u32 } {
        return Err(client.bad("a welcome without a place"));
    }
    let me = UnitName { side: Side::Reader(program), unit: options.unit };
    let network = PipeAddress::network(trust, meets_at, None);
    let domain = PortDomain::new(&pipe, me, &welcome, options, Some(network));
    let work = opening.bind(&welcome)?;
    let caller = Caller {
        place: place.clone(),
        trust: trust.clone(),
        options: options.clone(),
        program,
        guest: hello.role.takes().filter(|_| comes).map(|takes| {
            let (units, takes) = (options.units, takes.clone());
            Box::new(Guest { units, takes })
        }),
        // One that may be given up while it lives, and replaced, must not copy from slots that its successor
        // has released.
        maps: options.near && options.on_loss != OnLoss::Wait,
        replaced: welcome.writers_wait,
    };
    let lanes = match meet_writers(&mut client, &caller, &welcome, &work, start) {
        Ok(lanes) => lanes,
        Err(_) if comes && client.is_left() => return Ok(None),
        Err(error) => return Err(error),
    };
    let next = client.from;
    let mut end = Receiving {
        client,
        lanes,
        caller,
        lossy: welcome.policy != Policy::Block,
        wants: welcome.policy != Policy::Block || work.changes(),
        generation: 0,
        begun: false,
        ahead: steps_ahead(welcome.depth, welcome.policy),
        turn: None,
        kept: Vec::new(),
        resumes: false,
        constants: work.constants().into_iter().map(|array| (array, None)).collect(),
        ended: false,
    };
    end.ask_ahead(None)?;
    Ok(Some((Port::new(&pipe, me, domain, options, (start, SPIN)), end, work, next)))
}

/// Opens a lane to each writer unit that has something for this one, and waits until all units are ready.
fn meet_writers(
    client: &mut Client,
    caller: &Caller,
    welcome: &Welcome,
    work: &Work,
    start: Duration,
) -> Result<Vec<Lane>, PipeError> {
    let (options, pipe) = (&caller.options, caller.place.to_string());
    let from: Vec<u32> = work.supplies.iter().map(|supply| supply.unit).collect();
    let addrs = client.addresses(&from)?;
    let mut lanes = Vec::with_capacity(from.len());
    for (supply, addr) in work.supplies.iter().zip(addrs) {
        let name = UnitName { side: Side::Writer, unit: supply.unit };
        let slots = (welcome.depth, supply.slot_len, supply.fixed);
        let way = connect(caller, client, name, (addr, Some(slots)), start)?;
        let mut lane = Lane::new(addr, way, supply.clone(), welcome.depth, work.changes());
        lane.moved = client.moved(supply.unit);
        lanes.push(lane);
    }
    for lane in &mut lanes {
        let name = UnitName { side: Side::Writer, unit: lane.unit };
        loop {
            match lane.is_open() {
                Ok(true) => break,
                Ok(false) => {}
                Err(fault) if is_passing(&fault) && lane.fruitless() <= FRUITLESS => {
                    let slots = Some(lane.slots).filter(|_| lane.may_map());
                    lane.replace(connect(caller, client, name, (lane.addr, slots), start)?);
                    lane.moved = client.moved(lane.unit);
                }
                Err(fault) => return Err(client.failed_to_open(name, fault)),
            }
            client.check_in()?;
            let left = check_patience(&pipe, options, start, GRACE, &format!("{name} to open a lane"))?;
            poll(&mut [lane.item()], Some(left.min(SLICE))).map_err(system(&pipe))?;
        }
    }
    client.ready()?;
    Ok(lanes)
}

impl ReaderEnd for Receiving {
    fn take(&mut self, port: &mut Port, k: u64) -> Result<Option<Turn>, PipeError> {
        let taken = self.wait_for_turn(port, k);
        if self.lossy && taken.as_ref().is_err_and(|e| e.scope() == Scope::Operation) {
            self.client.withdraw();
        }
        taken
    }

    fn brought(&mut self, work: &Work, _: Turn) -> Option<Vec<u64>> {
        Some(self.said(work).into_owned())
    }

    fn would_wait(&mut self, port: &mut Port, work: &mut Work, k: u64) -> Result<Option<Wait>, PipeError> {
        match clock::within(Some(Duration::ZERO), || self.receive_ahead(port, work, k)) {
            Ok(()) => Ok(None),
            Err(e) if e.scope() == Scope::Operation => Ok(Some(self.waits_at())),
            Err(e) => Err(e),
        }
    }

    fn watch(&self, port: &Port) -> Result<Watch, PipeError> {
        Watch::at_sockets().map_err(system(&port.pipe))
    }

    fn is_near(&self) -> bool {
        false
    }

    fn hold(&mut self, port: &mut Port, work: &Work, turn: Turn) -> Result<(), PipeError> {
        self.begin_lanes(work, turn);
        let has_all = !self.lanes.iter().any(Lane::waits);
        if has_all && self.resumes {
            return Ok(());
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.resize(work.kept_len(), 0);
        let received = self.receive(port, work, turn, &mut work.split_kept(&mut kept));
        (self.kept, self.resumes) = (kept, true);
        received
    }

    fn copy(
        &mut self,
        port: &mut Port,
        work: &Work,
        turn: Turn,
        parts: &mut [&mut [u8]],
    ) -> Result<(), PipeError> {
        if self.resumes {
            work.split_kept(&mut self.kept).iter().zip(parts.iter_mut()).for_each(|(kept, part)| {
                part.copy_from_slice(kept);
            });
        }
        let received = self.receive(port, work, turn, parts);
        if received.is_ok() {
            for (array, kept) in &mut self.constants {
                match kept {
                    Some(kept) => parts[*array].copy_from_slice(kept),
                    None => *kept = Some(parts[*array].to_vec()),
                }
            }
        }
        if received.as_ref().is_err_and(|e| e.scope() == Scope::Operation) {
            self.kept.resize(work.kept_len(), 0);
            work.split_kept(&mut self.kept).iter_mut().zip(parts).for_each(|(kept, part)| {
                kept.copy_from_slice(part);
            });
            self.resumes = true;
        }
        received
    }

    fn release(&mut self, _: &mut Port, _: u64, _: Turn) -> Result<(), PipeError> {
        self.turn = None;
        if self.kept.capacity() > KEPT_BYTES {
            self.kept = Vec::new();
        }
        self.ask_ahead(Some(Ask::Release))
    }

    fn domain(&mut self, port: &mut Port, wishes: &DomainOptions, k: u64) -> Result<Domain, PipeError> {
        self.client.join_domain(&mut port.domain, wishes, k)
    }

    fn leave(&mut self, port: &mut Port, _: u64) -> Result<(), PipeError> {
        // Writers may wait for that before they take what this unit has sent to them in the domain.
        match port.failure() {
            None => self.client.leave(&Ask::Close),
            Some(_) => self.client.give_up(""),
        }
        port.domain.leave()
    }

    fn abort(&mut self, port: &mut Port, reason: &str) {
        port.domain.give_up();
        self.client.give_up(reason);
    }
}

impl Receiving {
    /// The next step, once unit 0 has said which it is.
    fn wait_for_turn(&mut self, port: &mut Port, k: u64) -> Result<Option<Turn>, PipeError> {
        if self.ended || self.turn.is_some() {
            return Ok(self.turn);
        }
        // Asked where it is looked for: what was asked before may be withdrawn.
        let look = |client: &mut Client| {
            if client.asked == 0 {
                if let Err(error) = client.say(&Ask::Next) {
                    return Some(Err(error));
                }
                client.asked = 1;
            }
            client.next().map(Ok)
        };
        let next = self.client.wait(k, "step", &mut port.stats.waited, look)??;
        self.client.asked -= 1;
        let Next::Step(turn) = next else {
            self.ended = true;
            return Ok(None);
        };
        (self.turn, self.begun, self.resumes) = (Some(turn), false, false);
        Ok(self.turn)
    }

    /// What the writers said of the step at hand, as far as this unit needs it: of constants that it has nothing.
    fn said(&self, work: &Work) -> Cow<'_, [u64]> {
        let mut said = Cow::Borrowed(self.client.said());
        if self.constants.first().is_some_and(|(_, kept)| kept.is_some()) {
            work.without_constants(said.to_mut());
        }
        said
    }

    /// Says something. Where every step comes, the next are asked for before they are needed; where steps are
    /// dropped, that would give old ones.
    fn ask_ahead(&mut self, first: Option<Ask>) -> Result<(), PipeError> {
        let ahead = if self.lossy { 0 } else { self.ahead.saturating_sub(self.client.asked) };
        self.client.asked += ahead;
        self.client.say_all(first.into_iter().chain((0..ahead).map(|_| Ask::Next)))
    }

    /// What the next read waits for.
    fn waits_at(&self) -> Wait {
        let mut wait = Wait::default();
        self.client.waits_at(&mut wait);
        let waiting = self.lanes.iter().filter(|lane| self.turn.is_some() && lane.waits());
        for lane in waiting {
            match &lane.redial {
                Some(redial) => redial.waits_at(&mut wait),
                None => wait.at(lane, false),
            }
        }
        wait
    }

    /// Has all of the next step in `kept`, if it has come.
    fn receive_ahead(&mut self, port: &mut Port, work: &mut Work, k: u64) -> Result<(), PipeError> {
        let Some(turn) = self.wait_for_turn(port, k)? else { return Ok(()) };
        let said = self.said(work);
        work.at_step(&said).map_err(|e| misfit(&port.pipe, e))?;
        self.hold(port, work, turn)
    }

    /// Has the lanes await their parts of a step.
    fn begin_lanes(&mut self, work: &Work, turn: Turn) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let changed = std::mem::replace(&mut self.generation, work.generation) != work.generation;
        let said = self.said(work).into_owned();
        for (lane, supply) in self.lanes.iter_mut().zip(&work.supplies) {
            if changed {
                lane.supplies(supply);
            }
            lane.begin();
            if self.wants && lane.waits() {
                // A connection that is gone is noticed where its bytes are missed.
                let _ = lane.want(turn.step, &said);
            }
        }
    }

    /// Leaves the lanes of units that were replaced: one may live, and what is waited for comes from its
    /// successor, as does what lies in its lane already. Returns whether there were any.
    fn leave_replaced(&mut self) -> Result<bool, PipeError> {
        let mut left = false;
        for lane in self.lanes.iter_mut().filter(|l| l.waits() && l.redial.is_none()) {
            if self.client.moved(lane.unit) != lane.moved {
                self.caller.broke(&mut self.client, lane, LinkError::Closed.into())?;
                left = true;
            }
        }
        Ok(left)
    }

    /// Takes the bytes of a step from all lanes as they come.
    fn receive(
        &mut self,
        port: &mut Port,
        work: &Work,
        turn: Turn,
        parts: &mut [&mut [u8]],
    ) -> Result<(), PipeError> {
        let step = turn.step;
        let start = clock::now();
        let mut waited = Duration::ZERO;
        self.begin_lanes(work, turn);
        let said = self.said(work).into_owned();
        while self.lanes.iter().any(Lane::waits) {
            let mut more = self.leave_replaced()?;
            for lane in self.lanes.iter_mut().filter(|l| l.waits()) {
                if lane.redial.is_some() {
                    let made = self.caller.again(&mut self.client, lane, step)?;
                    if made && self.wants {
                        let _ = lane.want(step, &said);
                    }
                    more |= made;
                    continue;
                }
                match lane.receive(turn, parts, (work.kernels, work.threads)) {
                    Ok(perhaps) => more |= perhaps,
                    Err(fault) => {
                        self.caller.broke(&mut self.client, lane, fault)?;
                        more = true;
                    }
                }
            }
            if more || !self.lanes.iter().any(Lane::waits) {
                continue;
            }
            self.client.take(step)?;
            if self.leave_replaced()? {
                continue;
            }
            for lane in self.lanes.iter().filter(|l| l.waits()) {
                self.client.check_lost(UnitName { side: Side::Writer, unit: lane.unit }, step)?;
            }
            let pause = clock::now();
            let mut items = Vec::with_capacity(self.lanes.len() + 1);
            let waiting = self.lanes.iter().filter(|l| l.waits());
            for lane in waiting.clone() {
                match &lane.redial {
                    Some(redial) => items.extend(redial.item()),
                    None => items.push(lane.item()),
                }
            }
            let until = waiting.filter_map(|lane| lane.redial.as_ref()?.deadline()).min();
            self.client.pause((items, until), start, "the rest of step", step)?;
            waited += clock::now() - pause;
        }
        port.stats.waited += waited;
        port.stats.copied += (clock::now() - start).saturating_sub(waited);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
