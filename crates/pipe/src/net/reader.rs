//! The reading side of a pipe across hosts.

mod ready;

use super::channel::Channel;
use super::client::Client;
use super::dial::{dial, is_passing, link};
use super::hub::steps_ahead;
use super::lane::Lane;
use super::near::host_of;
use super::place::Place;
use super::redial::{Caller, FRUITLESS};
use super::route::{End, Route};
use super::wire::Ask;
use super::Trust;
use crate::bind::from_wire;
use crate::domain::{Addresses, DomainOptions, PortDomain};
use crate::error::PipeError;
use crate::join::{check_options, check_patience, hello, system};
use crate::port::{kernels, Share};
use crate::reader::conversion;
use crate::threads::Threads;
use crate::wire::Role;
use polyduct_copy::{Conversion, Kernels};
use polyduct_layout::{Dataset, Layout, Mapping, Plan};
use polyduct_message::domain::Domain;
use polyduct_message::meeting::{GRACE, SLICE};
use polyduct_message::LinkError;
use polyduct_os::{clock, poll::poll};
use polyduct_port::{Expect, OnLoss, Options, Policy, PortError, PortName, Scope, Side, Stats, UnitName};
use polyduct_slots::{Next, Turn};
use std::net::SocketAddr;
use std::time::Duration;

/// Connects to a writer unit while the pipe opens, at `addr` or where unit 0 says that it is by then, and
/// asks for this unit's part of the steps.
fn connect(
    caller: &Caller,
    client: &mut Client,
    name: UnitName,
    addr: SocketAddr,
    (start, may_map): (Duration, bool),
) -> Result<Channel, PipeError> {
    let Caller { place, trust, options, replaced, .. } = caller;
    let from = client.from;
    let check_in = || {
        client.check_in()?;
        Ok(client.moved(name.unit))
    };
    // One that is replaced may be there again.
    match dial(place, trust, options, start, &[addr], (name, !replaced), check_in) {
        Ok(mut channel) => {
            channel.post(&caller.asks(from, may_map)).map_err(link(&place.to_string(), name))?;
            Ok(channel)
        }
        // Why it is not there, unit 0 knows.
        Err(PipeError::Link { source, .. }) => Err(client.failed_to_open(name, *source)),
        Err(error) => Err(error),
    }
}

/// One unit's reading end of a pipe across hosts.
///
/// It has no thread: what comes waits in the sockets until it is [read](NetReader::read), and lands in the
/// caller's array.
pub struct NetReader {
    pipe: String,
    me: UnitName,
    client: Client,
    lanes: Vec<Lane>,
    caller: Caller,
    dataset: Dataset,
    dst: Mapping,
    conversion: Option<Conversion>,
    kernels: Kernels,
    threads: Threads,
    lossy: bool,
    /// Steps that are asked for before they are needed.
    ahead: u32,
    len: usize,
    share: Share,
    next: u64,
    /// The step whose bytes are coming.
    turn: Option<Turn>,
    /// What had come of it when a wait was given up.
    kept: Vec<u8>,
    ended: bool,
    stats: Stats,
    failed: Option<PipeError>,
    domain: PortDomain,
    open: bool,
}

impl NetReader {
    /// Opens the pipe at `place` and waits until all units of this program, of the writer and of all reader
    /// programs have come. The dataset is the writer's.
    ///
    /// # Errors
    /// [`PortError::Layout`] and [`PortError::BadOption`] before anything is done; [`PortError::Timeout`]
    /// when no writer comes within the open timeout; [`PipeError::Link`] where it does not let this unit in;
    /// [`PipeError::Refused`] when the units disagree.
    pub fn open(
        place: &Place,
        trust: &Trust,
        layout: &str,
        expect: &Expect,
        options: &Options,
    ) -> Result<NetReader, PipeError> {
        // Which of the reader programs this is, it learns from unit 0.
        let me = check_options(options, Side::Reader(0))?;
        NetReader::join(place, trust, layout, expect, options).map_err(|e| e.at(&place.to_string(), me))
    }

    fn join(
        place: &Place,
        trust: &Trust,
        layout: &str,
        expect: &Expect,
        options: &Options,
    ) -> Result<NetReader, PipeError> {
        let start = clock::now();
        let pipe = place.to_string();
        let layout: Layout = layout.parse()?;
        let role = Role::Reader {
            shape: expect.shape.clone(),
            elem: expect.elem.map(|e| e.to_string()),
            convert: expect.convert,
        };
        let hello = hello(options, &layout.to_string(), role).map_err(system(&pipe))?;
        let (mut client, welcome, meets_at) =
            Client::join(place, trust, options, hello, |_| Ok(None), start)?;
        let program = welcome.program;
        if program as usize >= welcome.readers.len() {
            return Err(client.bad("a welcome without a place"));
        }
        let me = UnitName { side: Side::Reader(program), unit: options.unit };
        let network = Place::network(trust, meets_at, None);
        let domain = PortDomain::new(&pipe, me, &welcome, options, Some(network));

        let given = from_wire(&welcome.dataset)?;
        let elem = expect.elem.unwrap_or(given.elem());
        let conversion = conversion(&pipe, &given, elem)?;
        let dataset = Dataset::new(given.shape(), elem)?;
        let src = welcome.layout.parse::<Layout>()?.bind(&given, u64::from(welcome.writers))?;
        let dst = layout.bind(&dataset, u64::from(options.units))?;
        // Offsets count elements, so the writers know the same route without knowing the element type.
        let seen = layout.bind(&given, u64::from(options.units))?;
        let (unit, end) = (u64::from(options.unit), End::Scatter { convert: conversion.is_some() });
        let plan = Plan::to_reader(&src, &seen, unit)?;
        let from: Vec<u32> =
            plan.transfers().iter().filter(|t| t.bytes() > 0).map(|t| t.src_unit() as u32).collect();
        let addrs = client.addresses(&from)?;
        let caller = Caller {
            place: place.clone(),
            trust: trust.clone(),
            options: options.clone(),
            program,
            // One that may be given up while it lives, and replaced, must not copy from slots that its successor has
            // released.
            host: host_of(options).filter(|_| options.on_loss != OnLoss::Wait),
            replaced: welcome.writers_wait,
        };
        let mut lanes = Vec::with_capacity(from.len());
        for (&writer, addr) in from.iter().zip(addrs) {
            let Some(route) = Route::new(&src, &seen, writer.into(), unit, end)? else { continue };
            let name = UnitName { side: Side::Writer, unit: writer };
            let channel = connect(&caller, &mut client, name, addr, (start, true))?;
            let slots = (welcome.depth, src.local_len_bytes(writer.into())? as usize);
            let mut lane = Lane::new(writer, addr, channel, route, slots);
            lane.moved = client.moved(writer);
            lanes.push(lane);
        }
        for lane in &mut lanes {
            let name = UnitName { side: Side::Writer, unit: lane.unit };
            loop {
                match lane.is_open() {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(fault) if is_passing(&fault) && lane.fruitless() <= FRUITLESS => {
                        let may_map = lane.may_map();
                        lane.replace(connect(&caller, &mut client, name, lane.addr, (start, may_map))?);
                        lane.moved = client.moved(lane.unit);
                    }
                    Err(fault) => return Err(client.failed_to_open(name, fault)),
                }
                client.check_in()?;
                let left = check_patience(&pipe, options, start, GRACE, &format!("{name} to open a lane"))?;
                let mut items: Vec<_> = lane.items().collect();
                poll(&mut items, Some(left.min(SLICE))).map_err(system(&pipe))?;
            }
        }
        client.ready()?;
        let next = client.from;
        let len = dst.local_len_bytes(unit)? as usize;
        let mut reader = NetReader {
            pipe,
            me,
            client,
            lanes,
            caller,
            dataset,
            dst,
            conversion,
            kernels: kernels(&given),
            threads: Threads::of(options.units),
            lossy: welcome.policy != Policy::Block,
            ahead: steps_ahead(welcome.depth, welcome.policy),
            len,
            share: Share::new(&plan, len, 0),
            next,
            turn: None,
            kept: Vec::new(),
            ended: false,
            stats: Stats { opened: clock::now() - start, ..Stats::default() },
            failed: None,
            domain,
            open: true,
        };
        reader.ask_ahead(None)?;
        Ok(reader)
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
        let joined = self.client.join_domain(&mut self.domain, wishes, self.next);
        joined.map_err(|e| e.at(&self.pipe, self.me))
    }

    /// Shape and element type of what this unit reads.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// This program's mapping.
    pub fn mapping(&self) -> &Mapping {
        &self.dst
    }

    /// Which unit of which program this is.
    pub fn name(&self) -> UnitName {
        self.me
    }

    /// Bytes of this unit's part.
    pub fn local_len_bytes(&self) -> usize {
        self.len
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Waits for the next step and receives this unit's part of it into `part`. Returns the writer's number
    /// of the step, `None` at the end of the stream.
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; [`PortError::Timeout`] and [`PortError::Interrupted`], after which the port
    /// can be used again; loss of peers, after which it cannot. After an error the content of `part` is
    /// undefined.
    pub fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, PipeError> {
        if part.len() != self.len {
            return Err(PipeError::Port(PortError::WrongSize {
                port: PortName::Pipe(self.pipe.clone()),
                unit: Some(self.me.unit),
                expected: self.len as u64,
                found: part.len() as u64,
            }));
        }
        self.check_open()?;
        self.read_step(part).map_err(|e| {
            let error = e.at(&self.pipe, self.me).of(self.domain.programs());
            if error.scope() == Scope::Port {
                self.failed = Some(error.clone());
            }
            error
        })
    }

    fn check_open(&self) -> Result<(), PipeError> {
        match (&self.failed, self.open) {
            (Some(e), _) => Err(e.clone()),
            (None, false) => {
                Err(PipeError::Port(PortError::Closed { port: PortName::Pipe(self.pipe.clone()) }))
            }
            _ => Ok(()),
        }
    }

    fn read_step(&mut self, part: &mut [u8]) -> Result<Option<u64>, PipeError> {
        let turn = match self.turn {
            Some(turn) => {
                part.copy_from_slice(&self.kept);
                turn
            }
            None => match self.take()? {
                None => return Ok(None),
                Some(turn) => turn,
            },
        };
        let received = self.receive(turn, part);
        if let Err(e) = received {
            if e.scope() == Scope::Operation {
                self.kept.clear();
                self.kept.extend_from_slice(part);
            }
            return Err(e);
        }
        self.turn = None;
        self.next += 1;
        self.share.count(&mut self.stats, turn.step);
        self.ask_ahead(Some(Ask::Release))?;
        Ok(Some(turn.step))
    }

    /// Says something. Where every step comes, the next are asked for before they are needed; where steps are
    /// dropped, that would give old ones.
    fn ask_ahead(&mut self, first: Option<Ask>) -> Result<(), PipeError> {
        let ahead = if self.lossy { 0 } else { self.ahead.saturating_sub(self.client.asked) };
        self.client.asked += ahead;
        self.client.say_all(first.into_iter().chain((0..ahead).map(|_| Ask::Next)))
    }

    fn take(&mut self) -> Result<Option<Turn>, PipeError> {
        if self.ended {
            return Ok(None);
        }
        if self.client.asked == 0 {
            self.client.say(&Ask::Next)?;
            self.client.asked = 1;
        }
        let next = self.client.wait(self.next, "step", &mut self.stats.waited, Client::next)?;
        self.client.asked -= 1;
        let Next::Step(turn) = next else {
            self.ended = true;
            return Ok(None);
        };
        for lane in &mut self.lanes {
            lane.begin();
            if self.lossy {
                // A connection that is gone is noticed where its bytes are missed.
                let _ = lane.want(turn.step);
            }
        }
        self.turn = Some(turn);
        Ok(Some(turn))
    }

    /// Takes the bytes of a step from all lanes as they come.
    fn receive(&mut self, turn: Turn, part: &mut [u8]) -> Result<(), PipeError> {
        let step = turn.step;
        let start = clock::now();
        let mut waited = Duration::ZERO;
        while self.lanes.iter().any(Lane::waits) {
            let mut more = false;
            for lane in self.lanes.iter_mut().filter(|l| l.waits()) {
                if lane.redial.is_some() {
                    let made = self.caller.again(&mut self.client, lane, step)?;
                    if made && self.lossy {
                        let _ = lane.want(step);
                    }
                    more |= made;
                    continue;
                }
                match lane.receive(turn, part, (self.kernels, self.conversion, self.threads)) {
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
            // One that was replaced may live, and keep its lane: what is waited for comes from its successor.
            for lane in self.lanes.iter_mut().filter(|l| l.waits() && l.redial.is_none()) {
                if self.client.moved(lane.unit) != lane.moved {
                    self.caller.broke(&mut self.client, lane, LinkError::Closed.into())?;
                    more = true;
                }
            }
            if more {
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
                    None => items.extend(lane.items()),
                }
            }
            let until = waiting.filter_map(|lane| lane.redial.as_ref()?.deadline()).min();
            self.client.pause((items, until), start, "the rest of step", step)?;
            waited += clock::now() - pause;
        }
        self.stats.waited += waited;
        self.stats.copied += (clock::now() - start).saturating_sub(waited);
        Ok(())
    }

    /// Leaves the pipe. When all units of all reader programs have left, the writers' next step fails with
    /// [`PipeError::ReadersGone`].
    ///
    /// # Errors
    /// The error that the port failed with before, if any.
    pub fn close(&mut self) -> Result<Stats, PipeError> {
        if self.open {
            self.open = false;
            // Writers may wait for that before they take what this unit has sent to them in the domain.
            match self.failed {
                None => self.client.leave(&Ask::Close),
                Some(_) => self.client.give_up(),
            }
            let left = self.domain.leave();
            return self.failed.clone().map_or(left, Err).map(|()| self.stats);
        }
        self.failed.clone().map_or(Ok(self.stats), Err)
    }

    /// Gives the stream up: all other units get [`PortError::PeerAborted`]. Where this program
    /// [waits](crate::OnLoss::Wait) for replacements it leaves its place to another unit instead, which goes
    /// on with the next step: so a reader leaves whom another one follows, now or later.
    pub fn abort(&mut self) {
        if self.open {
            self.open = false;
            self.domain.give_up();
            self.client.give_up();
        }
    }
}

impl Drop for NetReader {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort();
        } else {
            let _ = self.close();
        }
    }
}
