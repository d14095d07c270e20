//! A writer's end of a pipe on one host: its slots are memory that the readers map.

use super::offer::may_offer;
use super::{spin_time, Local};
use crate::bind::{bind_writers, check_terms, late_segment, slot_sizes, slots};
use crate::domain::{DomainOptions, PortDomain};
use crate::error::PipeError;
use crate::join::{fresh_id, not_duplicated, socket_name, system, Joining};
use crate::port::{stop_error, Port};
use crate::ready::{Wait, Watch};
use crate::rendezvous::Rendezvous;
use crate::room::Rooms;
use crate::serve::{attach, opening, NearServer, Opened, HOST};
use crate::watch::{spawn, Keepsake};
use crate::wire::{Array, Hello, Welcome};
use crate::writer::{self, Opening, Parts, WriterEnd};
use polyduct_message::domain::Domain;
use polyduct_message::meeting::Shared;
use polyduct_os::{
    poll::EventFd,
    process,
    segment::Segment,
    socket::{Conn, Listener},
    OsError,
};
use polyduct_port::Places;
use polyduct_port::{Options, Readers, Side, UnitName};
use polyduct_slots::{Begin, Slots, Turn};
use std::sync::{mpsc, Arc};

/// The slots of a writer unit.
pub(super) struct Slotted {
    pub local: Local,
    segment: Segment,
    rooms: Rooms,
    stride: usize,
    len: usize,
    /// Whether large arrays may be left in place for the readers to fetch.
    pub offers: bool,
    /// Replacements find the pipe here, as long as anybody may need one.
    stays: bool,
    /// It waits, closed, until nobody needs it.
    awaits: bool,
}

/// Opens the pipe of this name, and gives its arrays and where the unit goes on.
pub(crate) fn open(pipe: &str, me: UnitName, opening: Opening<'_>) -> Result<writer::Opened, PipeError> {
    let Opening { options, arrays, hello, start } = opening;
    let lay_out =
        |arrays: &[Array]| Ok::<_, PipeError>(bind_writers(arrays, options.units)?.lay_out(options.unit)?);
    let given = arrays.map(lay_out).transpose()?;
    let stop = Arc::new(EventFd::new().map_err(system(pipe))?);
    let (welcome, slots, segment, thread, stays) = if options.unit == 0 {
        let own = given.map(|places| slots(pipe, &places, options)).transpose()?;
        let (opened, own, thread) = serve(pipe, hello, own, options, &stop)?;
        (opened.welcome, opened.slots, own, thread, opened.waits)
    } else {
        let places = given.ok_or_else(|| PipeError::bad_peer(pipe, "no dataset"))?;
        let mut made = Some(slots(pipe, &places, options)?);
        let len = made.as_ref().map_or(0, Segment::len);
        let ((welcome, slots, own, keepsake), conn) = Joining::with(pipe, options, |joining| {
            let own = made.take().map_or_else(|| slots(pipe, &places, options), Ok)?;
            let (welcome, control, mut fds) = joining.welcome(&hello, &[own.fd()])?;
            let (control, slots) = attach(pipe, control, &welcome)?;
            // A replacement goes on with the slots of the unit it replaces: readers have them mapped.
            let own = match fds.pop() {
                Some(fd) => Segment::take_over(fd, len).map_err(system(pipe))?,
                None => own,
            };
            let mine = (options.unit, joining.keep(own.fd())?);
            let keepsake = Keepsake::new(joining, &hello, &welcome, control, vec![mine])?;
            joining.ready()?;
            Ok((welcome, slots, own, keepsake))
        })?;
        let (watched, stopped) = (slots.clone(), stop.clone());
        let thread = spawn(pipe, move || crate::watch::run(conn, me, watched, keepsake, stopped))?;
        (welcome, slots, own, thread, false)
    };
    let places = lay_out(&welcome.arrays)?;
    let offers = may_offer(&welcome, places.len, options);
    let next = slots.resume_at(me);
    let rooms = Rooms::new(&welcome.arrays, &places, options.depth);
    let domain = PortDomain::new(pipe, me, &welcome, options, None);
    let port = Port::new(pipe, me, domain, options, (start, spin_time(&slots)));
    let local = Local::new(slots, stop, thread);
    let end = Slotted::new(&port, local, (segment, rooms, &places), (offers, stays), options)?;
    Ok((port, Box::new(end), welcome.arrays, next))
}

impl Slotted {
    fn new(
        port: &Port,
        local: Local,
        (mut segment, rooms, places): (Segment, Rooms, &Places),
        (offers, stays): (bool, bool),
        options: &Options,
    ) -> Result<Slotted, PipeError> {
        let (stride, _) = slot_sizes(places.len, options)?;
        for slot in 0..options.depth as usize {
            let at = slot * stride;
            segment.prefault(at..at + places.fixed.max(1)).map_err(system(&port.pipe))?;
        }
        segment.keep_from_children();
        Ok(Slotted { local, segment, rooms, stride, len: places.len, offers, stays, awaits: false })
    }
}

impl WriterEnd for Slotted {
    fn begin(&mut self, port: &mut Port, n: u64) -> Result<Begin, PipeError> {
        let unit = port.me.unit;
        let what = ("a free slot for step", n);
        self.local.wait(port, Slots::freed_bell, what, |slots| slots.poll_begin(unit, n))
    }

    fn try_begin(&mut self, port: &mut Port, n: u64) -> Result<Option<Begin>, PipeError> {
        let unit = port.me.unit;
        self.local.look(port, n, |slots| slots.poll_begin(unit, n))
    }

    fn would_wait(&mut self, port: &mut Port, n: u64) -> Result<Option<Wait>, PipeError> {
        Ok((!self.local.slots.may_begin(port.me.unit, n)).then(Wait::default))
    }

    fn watch(&self, _: &Port) -> Result<Watch, PipeError> {
        Ok(Watch::at_bell(&self.local.slots, Slots::freed_bell))
    }

    fn is_near(&self) -> bool {
        true
    }

    fn slot(&self, turn: Turn) -> &[u8] {
        let start = turn.slot as usize * self.stride;
        self.segment.slice(start..start + self.len).unwrap_or_default()
    }

    fn slot_mut(&mut self, turn: Turn) -> &mut [u8] {
        let start = turn.slot as usize * self.stride;
        self.segment.slice_mut(start..start + self.len).unwrap_or_default()
    }

    fn make_room(&mut self, port: &Port, turn: Turn, used: &[usize], begins: bool) -> Result<(), PipeError> {
        let base = turn.slot as usize * self.stride;
        self.rooms.make((&self.segment, base), turn.slot, used, begins).map_err(system(&port.pipe))
    }

    fn finish(&mut self, port: &mut Port, n: u64, begin: Begin, said: &[u64]) -> Result<(), PipeError> {
        match begin {
            Begin::Fill(turn) => {
                self.local.slots.bring(port.me.unit, turn, said);
                self.local.slots.publish(port.me.unit, turn);
            }
            Begin::Drop => self.local.slots.skip(port.me.unit, n),
        }
        Ok(())
    }

    fn write(&mut self, port: &mut Port, n: u64, turn: Turn, parts: &Parts<'_>) -> Result<(), PipeError> {
        // Readers that are busy take the step later, and the caller need not wait for them: the slot is
        // better.
        if self.offers && !parts.constants && self.readers_come(port, parts.len) {
            return self.offer(port, turn, parts);
        }
        self.write_slot(port, n, turn, parts)
    }

    fn domain(&mut self, port: &mut Port, wishes: &DomainOptions, n: u64) -> Result<Domain, PipeError> {
        port.join_domain(&self.local.slots, wishes, n)
    }

    fn close(&mut self, port: &mut Port, n: u64) -> Result<(), PipeError> {
        let slots = &self.local.slots;
        if !slots.is_closed(port.me) {
            slots.close_writer(port.me.unit, n).map_err(|stop| stop_error(&port.pipe, stop, n))?;
        }
        // A unit may be lost as long as it has something to do, and its replacement asks here. Readers that
        // came later may live in other namespaces than those that were there first.
        let apart = port.me == HOST && !slots.all_share_numbers();
        if !(self.stays || apart) {
            return Ok(());
        }
        self.awaits = true;
        // Where readers come and go, their end is nobody's loss, and nobody waits for it.
        let open = slots.sizes().are_open();
        let what = ("all other units to close after step", n);
        self.local.wait(port, Slots::freed_bell, what, |slots| {
            let mut awaited = slots.units().filter(|unit| !open || unit.side == Side::Writer);
            Ok((slots.fault().is_some() || awaited.all(|unit| slots.is_done(unit))).then_some(()))
        })
    }

    fn leave(&mut self, port: &mut Port) -> Result<(), PipeError> {
        match self.local.slots.is_closed(port.me) {
            false => self.local.slots.leave(port.me),
            true if self.awaits => self.local.slots.go(port.me),
            true => {}
        }
        self.local.leave(port)
    }

    fn abort(&mut self, port: &mut Port, reason: &str) {
        self.local.give_up(port, reason);
    }
}

/// The process that has a name that this writer wants.
fn taken(pipe: &str, name: &[u8]) -> PipeError {
    let conn = Conn::connect(name);
    let found = conn.as_ref().ok().and_then(|conn| conn.stranger().ok().flatten());
    if let Some(found) = found {
        return PipeError::Stranger { pipe: pipe.to_owned(), expected: process::user_id(), found };
    }
    let pid = conn.and_then(|conn| conn.peer()).map_or(0, |peer| peer.pid);
    let program = process::command_line(pid).unwrap_or_default();
    PipeError::NameTaken { pipe: pipe.to_owned(), pid, program }
}

/// Serves the rendezvous in a thread of its own until all units have come.
fn serve(
    pipe: &str,
    hello: Hello,
    own: Option<Segment>,
    options: &Options,
    stop: &Arc<EventFd>,
) -> Result<(Opened, Segment, std::thread::JoinHandle<()>), PipeError> {
    let uid = process::user_id();
    let name = socket_name(uid, &options.job, pipe);
    let listener = Listener::bind(&name).map_err(|e| match e {
        OsError::AddrInUse { .. } => taken(pipe, &name),
        e => system(pipe)(e),
    })?;
    let fd = own.as_ref().map(|s| s.fd().try_clone_to_owned()).transpose();
    let fd = fd.map_err(|e| not_duplicated(pipe, "the slots", &e))?.map(Shared::new);
    let id = fresh_id().map_err(system(pipe))?;
    let (rendezvous, first) = Rendezvous::new(id, hello, std::process::id(), fd, check_terms);
    let rendezvous = rendezvous.with_a_sole_reader(options.readers == Readers::Sole);
    let (tell, outcome) = mpsc::channel();
    let slots_len = own.as_ref().map_or(0, Segment::len);
    let server = NearServer::new(listener, rendezvous, tell, stop.clone(), slots_len, options.open_timeout);
    let layout_units = options.clone();
    let server = match own.is_none() {
        true => server.with_late_segment(move |welcome: &Welcome| late_segment(welcome, &layout_units)),
        false => server,
    };
    let thread = spawn(pipe, move || server.run(first))?;
    // A replacement goes on with its predecessor's slots.
    let opened = opening(pipe, &outcome, options).and_then(|mut opened| {
        let own = opened.late.take().or(own).ok_or_else(|| PipeError::bad_peer(pipe, "no slots"))?;
        Ok((opened, own))
    });
    match opened {
        Ok((opened, own)) => Ok((opened, own, thread)),
        Err(error) => {
            let _ = stop.signal();
            let _ = thread.join();
            Err(error)
        }
    }
}
