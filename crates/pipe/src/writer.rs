//! The writing side of a pipe.

mod offer;
mod ready;

use offer::may_offer;
use polyduct_port::{OnLoss, Options, PortError, PortName, Readers, Scope, Side, Stats, UnitName};

use crate::bind::{bind_writer, check_layout, from_wire, late_segment, slot_sizes, to_wire};
use crate::domain::{Addresses, DomainOptions, PortDomain};
use crate::error::PipeError;
use crate::join::{check_name, check_options, fresh_id, hello, not_duplicated, socket_name, system, Joining};
use crate::port::{kernels, Port, TIMED_FROM};
use crate::rendezvous::Rendezvous;
use crate::serve::{attach, opening, Opened, Server, HOST};
use crate::watch::{spawn, Keepsake};
use crate::wire::{self, Role};
use polyduct_copy::Kernels;
use polyduct_layout::{Dataset, Layout, Mapping};
use polyduct_message::domain::Domain;
use polyduct_message::meeting::Shared;
use polyduct_os::{
    clock,
    poll::EventFd,
    process,
    segment::Segment,
    socket::{Conn, Listener},
    OsError,
};
use polyduct_slots::{Begin, Slots, Turn};
use std::ops::{Deref, DerefMut};
use std::sync::{mpsc, Arc};
use std::time::Duration;

/// One unit's writing end of a pipe.
///
/// Steps are filled [in place](Writer::step), or [copied in](Writer::write). The port is
/// [closed](Writer::close), or closes when it is dropped; dropped in a panic it [aborts](Writer::abort).
pub struct Writer {
    port: Port,
    mapping: Mapping,
    segment: Segment,
    slot_len: usize,
    len: usize,
    next: u64,
    /// Where a step is written that the queue drops; made when first needed.
    scratch: Vec<u8>,
    kernels: Kernels,
    /// Whether large arrays may be left in place for the readers to fetch.
    offers: bool,
    /// Replacements find the pipe here, as long as anybody may need one.
    stays: bool,
}

/// A dataset given when opening, or left to the readers.
#[derive(Clone, Debug)]
pub enum Given {
    /// This one.
    Dataset(Dataset),
    /// The one that the first reader expects: for a single unit that passes plain bytes on.
    ByReader,
}

impl Writer {
    /// Opens the pipe `pipe` and waits until all units of this program and of the expected reader programs
    /// have come; where [any](Readers::Any) may come, for none of them.
    ///
    /// # Errors
    /// [`PortError::Layout`] and [`PortError::BadOption`] before anything is allocated;
    /// [`PipeError::NameTaken`]; [`PipeError::Refused`] when units disagree or do not come within the open
    /// timeout; the system's refusals.
    pub fn open(pipe: &str, given: &Given, layout: &str, options: &Options) -> Result<Writer, PipeError> {
        let me = check_options(options, Side::Writer)?;
        Writer::open_as(me, pipe, given, layout, options).map_err(|e| e.at(pipe, me))
    }

    fn open_as(
        me: UnitName,
        pipe: &str,
        given: &Given,
        layout: &str,
        options: &Options,
    ) -> Result<Writer, PipeError> {
        let start = clock::now();
        check_name(pipe)?;
        let layout: Layout = layout.parse()?;
        check_any(given, options)?;
        let (dataset, mapping) = match given {
            Given::Dataset(d) => (Some(to_wire(d)), Some(bind_writer(&layout, d, options.units)?)),
            Given::ByReader if options.units == 1 => (None, None),
            Given::ByReader => {
                let (option, found) = ("units", options.units.to_string());
                return Err(PipeError::Port(PortError::BadOption {
                    port: None,
                    option,
                    found,
                    expected: "1 where the reader says the shape".into(),
                }));
            }
        };
        let role = Role::Writer {
            dataset,
            depth: options.depth,
            policy: options.policy,
            readers: options.readers.to_wire(),
        };
        let hello = hello(options, &layout.to_string(), role).map_err(system(pipe))?;
        let stop = Arc::new(EventFd::new().map_err(system(pipe))?);
        let segment = |mapping: &Mapping| {
            let (_, total) = slot_sizes(mapping, options)?;
            Segment::create("polyduct-slots", total).map_err(system(pipe))
        };
        if options.unit == 0 {
            let own = mapping.as_ref().map(segment).transpose()?;
            let (opened, own, thread) = serve(pipe, hello, own, options, &stop)?;
            let mapping = match mapping {
                Some(m) => m,
                None => bind_writer(&layout, &from_wire(&opened.welcome.dataset)?, options.units)?,
            };
            let offers = may_offer(&mapping, &opened.welcome, options);
            let domain = PortDomain::new(pipe, me, &opened.welcome, options, None);
            let port =
                Port::new(pipe, me, (opened.slots, domain), options, clock::now() - start, (stop, thread));
            let mut writer = Writer::new(port, mapping, own, offers, options)?;
            writer.stays = opened.waits;
            return Ok(writer);
        }
        let mapping = mapping.ok_or_else(|| {
            PipeError::Port(PortError::BadPeer {
                port: PortName::Pipe(pipe.to_owned()),
                peer: None,
                what: "no dataset".into(),
            })
        })?;
        let mut made = Some(segment(&mapping)?);
        let len = made.as_ref().map_or(0, Segment::len);
        let ((welcome, slots, own, keepsake), conn) = Joining::with(pipe, options, |joining| {
            let own = made.take().map_or_else(|| segment(&mapping), Ok)?;
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
        let offers = may_offer(&mapping, &welcome, options);
        let domain = PortDomain::new(pipe, me, &welcome, options, None);
        let port = Port::new(pipe, me, (slots, domain), options, clock::now() - start, (stop, thread));
        Writer::new(port, mapping, own, offers, options)
    }

    fn new(
        port: Port,
        mapping: Mapping,
        mut segment: Segment,
        offers: bool,
        options: &Options,
    ) -> Result<Writer, PipeError> {
        let len = mapping.local_len_bytes(u64::from(options.unit))? as usize;
        let (slot_len, _) = slot_sizes(&mapping, options)?;
        segment.prefault(0..segment.len()).map_err(system(&port.pipe))?;
        segment.keep_from_children();
        let next = port.slots.resume_at(port.me);
        let kernels = kernels(mapping.dataset());
        Ok(Writer {
            port,
            mapping,
            segment,
            slot_len,
            len,
            next,
            scratch: Vec::new(),
            kernels,
            offers,
            stays: false,
        })
    }

    /// The dataset and who owns what of it.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
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
        self.port.addresses()
    }

    /// The message domain of this port: all units of the writer program and of all reader programs of the
    /// pipe, at their [addresses](Self::addresses). The first call joins it, and waits until all of them have
    /// asked; later ones give the same again, whatever they wish. Messages are independent of steps. Closing
    /// the port leaves the domain, unless the caller has a clone of it; aborting gives it up. A unit that
    /// replaces another does not get into a domain that exists.
    ///
    /// # Errors
    /// [`PipeError::Domain`] with who did not come within the open timeout, after which it can be asked for
    /// again; [`PortError::PeerLost`] and the like when somebody is gone who would have to come;
    /// [`PortError::Interrupted`].
    pub fn domain(&mut self, wishes: &DomainOptions) -> Result<Domain, PipeError> {
        self.port.domain(wishes, self.next)
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        self.port.stats
    }

    /// Waits for a slot and gives this unit's part of the next step, to be filled in place and
    /// [published](StepMut::publish). Its content is undefined (an older step's). Dropped without publishing,
    /// the step is not written and the next call gives it again. What a child that is forked meanwhile writes
    /// there, it has for itself.
    ///
    /// # Errors
    /// [`PortError::Timeout`] and [`PortError::Interrupted`], after which the port can be used again; loss of
    /// peers, after which it cannot.
    pub fn step(&mut self) -> Result<StepMut<'_>, PipeError> {
        let begin = self.begin()?;
        self.begun(begin)
    }

    /// The same if there is a slot, or one is free within microseconds; `None` if not. Makes no system call.
    ///
    /// # Errors
    /// Loss of peers, as [`step`](Self::step).
    pub fn try_step(&mut self) -> Result<Option<StepMut<'_>>, PipeError> {
        self.check_writing()?;
        let (unit, n) = (self.port.me.unit, self.next);
        match self.port.look(n, |slots| slots.poll_begin(unit, n))? {
            None => Ok(None),
            Some(begin) => self.begun(begin).map(Some),
        }
    }

    fn begun(&mut self, begin: Begin) -> Result<StepMut<'_>, PipeError> {
        if begin == Begin::Drop && self.scratch.len() != self.len {
            self.scratch.resize(self.len, 0);
        }
        Ok(StepMut { writer: self, begin })
    }

    /// Writes this unit's part of the next step from memory of the caller's: one copy more than
    /// [`step`](Self::step). Returns whether the step was taken (`false`: the queue dropped it, and nothing
    /// was copied).
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; otherwise as [`step`](Self::step).
    pub fn write(&mut self, part: &[u8]) -> Result<bool, PipeError> {
        if part.len() != self.len {
            return Err(PipeError::Port(PortError::WrongSize {
                port: PortName::Pipe(self.port.pipe.clone()),
                unit: Some(self.port.me.unit),
                expected: self.len as u64,
                found: part.len() as u64,
            }));
        }
        match self.begin()? {
            Begin::Drop => {
                self.finish(Begin::Drop);
                Ok(false)
            }
            // Readers that are busy take the step later, and the caller need not wait for them: the slot is
            // better.
            Begin::Fill(turn) if self.offers && self.readers_come(part.len()) => self.offer(turn, part),
            Begin::Fill(turn) => {
                let start = (part.len() >= TIMED_FROM).then(clock::now);
                let kernels = self.kernels;
                let copied = kernels.memcpy(self.slot(turn)?.into(), part.into());
                copied.map_err(|e| {
                    PipeError::Port(PortError::BadPeer {
                        port: PortName::Pipe(self.port.pipe.clone()),
                        peer: None,
                        what: e.to_string(),
                    })
                })?;
                self.port.stats.copied += start.map_or(Duration::ZERO, |start| clock::now() - start);
                self.finish(Begin::Fill(turn));
                Ok(true)
            }
        }
    }

    fn check_writing(&self) -> Result<(), PipeError> {
        self.port.check_open()?;
        match self.port.slots.is_closed(self.port.me) {
            true => Err(PipeError::Port(PortError::Closed { port: PortName::Pipe(self.port.pipe.clone()) })),
            false => Ok(()),
        }
    }

    fn begin(&mut self) -> Result<Begin, PipeError> {
        self.check_writing()?;
        let (unit, n) = (self.port.me.unit, self.next);
        self.port.wait(Slots::freed_bell, n, "a free slot for step", |slots| slots.poll_begin(unit, n))
    }

    fn slot(&mut self, turn: Turn) -> Result<&mut [u8], PipeError> {
        let start = turn.slot as usize * self.slot_len;
        let (pipe, me) = (&self.port.pipe, self.port.me);
        self.segment.slice_mut(start..start + self.len).map_err(|source| PipeError::System {
            pipe: pipe.clone(),
            unit: Some(me),
            source,
        })
    }

    fn finish(&mut self, begin: Begin) {
        let unit = self.port.me.unit;
        match begin {
            Begin::Fill(turn) => {
                self.port.slots.publish(unit, turn);
                self.port.stats.steps += 1;
                self.port.stats.bytes += self.len as u64;
            }
            Begin::Drop => {
                self.port.slots.skip(unit, self.next);
                self.port.stats.dropped += 1;
            }
        }
        self.next += 1;
    }

    /// Ends the stream: readers get every step published so far, then its end. All units must have written
    /// the same number of steps. Does not wait for the readers to fetch them, but where lost units may be
    /// [replaced](crate::OnLoss::Wait) unit 0 stays until all writers have closed and all readers have closed
    /// or read every step; and so it does where units live in different process namespaces, as in the
    /// containers of a pod, since it alone sees all of them end: of the writers only, where readers come and
    /// go. Leaves the port's [domain](Self::domain) if nobody else has it, which waits until others have what
    /// this unit sent there.
    ///
    /// # Errors
    /// The error that the port failed with before, if any; [`PortError::UnevenSteps`] where another unit
    /// closed after more or fewer steps; [`PortError::Timeout`] and [`PortError::Interrupted`] while unit 0
    /// stays, after which it can be called again; [`PipeError::Domain`] where others did not take what was
    /// sent in the domain.
    pub fn close(&mut self) -> Result<Stats, PipeError> {
        let failed =
            self.port.check_open().err().filter(|e| !matches!(e, PipeError::Port(PortError::Closed { .. })));
        let ended = match failed {
            None => match self.port.close_writer(self.next).and_then(|()| self.stay()) {
                Err(e) if e.scope() == Scope::Operation => return Err(e),
                ended => ended,
            },
            Some(e) => {
                if self.port.is_open() {
                    self.port.slots.leave(self.port.me);
                }
                Err(e)
            }
        };
        let left = self.port.leave();
        ended.and(left).map(|()| self.port.stats)
    }

    /// A unit may be lost as long as it has something to do, and its replacement asks here.
    fn stay(&mut self) -> Result<(), PipeError> {
        // Readers that came later may live in other namespaces than those that were there first.
        let apart = self.port.me == HOST && !self.port.slots.all_share_numbers();
        if !(self.stays || apart) || !self.port.is_open() {
            return Ok(());
        }
        // Where readers come and go, their end is nobody's loss, and nobody waits for it.
        let open = self.port.slots.sizes().are_open();
        self.port.wait(Slots::freed_bell, self.next, "all other units to close after step", |slots| {
            let mut awaited = slots.units().filter(|unit| !open || unit.side == Side::Writer);
            Ok((slots.fault().is_some() || awaited.all(|unit| slots.is_done(unit))).then_some(()))
        })?;
        self.port.slots.go(self.port.me);
        Ok(())
    }

    /// Gives the stream up: all other units get [`PortError::PeerAborted`].
    pub fn abort(&mut self) {
        self.port.abort();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort();
        } else {
            let _ = self.close();
            // Whoever has not closed by now had its time.
            if self.port.is_open() && self.port.slots.is_closed(self.port.me) {
                self.port.slots.go(self.port.me);
            }
            let _ = self.port.leave();
        }
    }
}

/// This unit's part of one step, to be filled in place.
pub struct StepMut<'a> {
    writer: &'a mut Writer,
    begin: Begin,
}

impl StepMut<'_> {
    /// Makes the part visible, together with those of all other units. Returns whether the queue took the
    /// step.
    pub fn publish(self) -> bool {
        self.writer.finish(self.begin);
        self.begin != Begin::Drop
    }

    /// Number of the step, from 0.
    pub fn number(&self) -> u64 {
        self.writer.next
    }
}

impl Deref for StepMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.begin {
            Begin::Drop => &self.writer.scratch,
            Begin::Fill(turn) => {
                let start = turn.slot as usize * self.writer.slot_len;
                self.writer.segment.slice(start..start + self.writer.len).unwrap_or_default()
            }
        }
    }
}

impl DerefMut for StepMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self.begin {
            Begin::Drop => &mut self.writer.scratch,
            Begin::Fill(turn) => self.writer.slot(turn).unwrap_or_default(),
        }
    }
}

/// What a writer cannot have that waits for no readers.
fn check_any(given: &Given, options: &Options) -> Result<(), PipeError> {
    let bad = |option, found: &str, expected: &'static str| {
        Err(PipeError::Port(PortError::BadOption {
            port: None,
            option,
            found: found.into(),
            expected: expected.into(),
        }))
    };
    match (options.readers, given, options.on_loss) {
        (Readers::Programs(_), ..) => Ok(()),
        (Readers::Any, Given::ByReader, _) => {
            bad("readers", "any", "a number where the first reader says what the steps are")
        }
        (Readers::Any, _, OnLoss::Wait) => bad("on_loss", "wait", "raise in a writer whose readers is any"),
        (Readers::Any, ..) => Ok(()),
    }
}

/// Who has a name that this writer wants.
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
    hello: wire::Hello,
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
    let (rendezvous, first) = Rendezvous::new(id, hello, std::process::id(), fd, check_layout);
    let (tell, outcome) = mpsc::channel();
    let slots_len = own.as_ref().map_or(0, Segment::len);
    let server = Server::new(listener, rendezvous, tell, stop.clone(), slots_len, options.open_timeout);
    let layout_units = options.clone();
    let server = match own.is_none() {
        true => server.with_late_segment(move |welcome| late_segment(welcome, &layout_units)),
        false => server,
    };
    let thread = spawn(pipe, move || server.run(first))?;
    // A replacement goes on with its predecessor's slots.
    let opened = opening(pipe, &outcome, options).and_then(|mut opened| match opened.late.take().or(own) {
        Some(own) => Ok((opened, own)),
        None => Err(PipeError::Port(PortError::BadPeer {
            port: PortName::Pipe(pipe.to_owned()),
            peer: None,
            what: "no slots".into(),
        })),
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
