//! The thread of the writer's unit 0: carries out the [rendezvous](crate::rendezvous), then watches every
//! unit.

use crate::error::{Mismatch, PipeError, Refusal};
use crate::rendezvous::{Action, ConnId, Rendezvous, OWN};
use crate::wire::{words, FromHost, ToHost, Welcome, PROTOCOL};
use polyduct_message::meeting::{Connections, Heard, Shared, SLICE};
use polyduct_os::{
    clock,
    poll::{EventFd, PollItem},
    process::ProcessId,
    segment::{Access, Segment},
    socket::Listener,
    OsError,
};
use polyduct_port::{Options, Side, UnitName};
use polyduct_slots::{fault::Fault, geometry::Sizes, Lines, Slots};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{mpsc, Arc};
use std::time::Duration;

/// How often a replacement of unit 0 looks who lives while it waits for the survivors.
const REVIVAL_SLICE: Duration = Duration::from_millis(20);

/// What unit 0 learns when the pipe is open.
pub struct Opened {
    /// The control state.
    pub slots: Slots,
    /// The same that the others were told.
    pub welcome: Welcome,
    /// Unit 0's own slots, where they could be made only when the dataset was known.
    pub late: Option<Segment>,
    /// Unit 0 stays until nobody needs it: some program waits for replacements, which find the pipe through
    /// it, or units of several process namespaces learn of each other's deaths by it alone.
    pub waits: bool,
}

/// How the opening ended.
pub type Outcome = Result<Opened, Refusal>;

/// Waits for the end of an opening that another thread serves.
pub fn opening<T>(
    pipe: &str,
    outcome: &mpsc::Receiver<Result<T, Refusal>>,
    options: &Options,
) -> Result<T, PipeError> {
    loop {
        match outcome.recv_timeout(SLICE) {
            Ok(ended) => return ended.map_err(|reason| PipeError::refused(pipe, reason)),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if options.is_interrupted() {
                    return Err(PipeError::interrupted(pipe, None));
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(PipeError::bad_peer(pipe, "the rendezvous ended"))
            }
        }
    }
}

/// Makes unit 0's own slots once the dataset is known.
type MakeSlots = Box<dyn FnOnce(&Welcome) -> Result<Segment, String> + Send>;

/// Everything the thread holds.
pub struct NearServer {
    connections: Connections,
    /// Units that have a place in the control segment.
    units: HashMap<ConnId, UnitName>,
    rendezvous: Rendezvous<Shared>,
    /// The control segment, where anybody may still be given it, and what lies in it.
    control: Option<(Option<Shared>, Opened)>,
    outcome: Option<mpsc::Sender<Outcome>>,
    make_slots: Option<MakeSlots>,
    /// Bytes of unit 0's own slots.
    slots_len: usize,
    stop: Arc<EventFd>,
    started: Duration,
    deadline: Duration,
}

impl NearServer {
    /// A server for a bound listener. `actions` are what the rendezvous said when it was made.
    pub fn new(
        listener: Listener,
        rendezvous: Rendezvous<Shared>,
        outcome: mpsc::Sender<Outcome>,
        stop: Arc<EventFd>,
        slots_len: usize,
        open_timeout: Duration,
    ) -> NearServer {
        let started = clock::now();
        NearServer {
            connections: Connections::new(listener, PROTOCOL),
            units: HashMap::new(),
            rendezvous,
            control: None,
            outcome: Some(outcome),
            make_slots: None,
            slots_len,
            stop,
            started,
            deadline: started.saturating_add(open_timeout),
        }
    }

    /// For a writer that learns its dataset from a reader: how to make its slots then.
    pub fn with_late_segment(
        mut self,
        make: impl FnOnce(&Welcome) -> Result<Segment, String> + Send + 'static,
    ) -> NearServer {
        self.make_slots = Some(Box::new(make));
        self
    }

    /// Runs until stopped, or until the pipe has failed to open.
    pub fn run(mut self, first: Vec<Action>) {
        self.carry_out(first);
        while self.outcome.is_some() || self.rendezvous.is_running() {
            let mut timeout = self.outcome.as_ref().map(|_| self.deadline.saturating_sub(clock::now()));
            if self.rendezvous.is_reviving() {
                // A survivor that dies before it is back tells nobody.
                timeout = timeout.map(|t| t.min(REVIVAL_SLICE));
            }
            // A failing poll (no memory) ends the watch; the peers see a hangup and find unit 0 alive but
            // gone.
            let ready = self.connections.wait(vec![PollItem::readable(&*self.stop)], timeout);
            let Some(ready) = ready.ok().filter(|ready| !ready.others[0]) else { return };
            for id in ready.conns {
                self.serve(id);
            }
            if ready.knocked {
                self.accept_all();
            }
            self.go_on_if_revived();
            if self.outcome.is_some() && clock::now() >= self.deadline {
                let waited = (clock::now() - self.started).as_millis() as u64;
                let actions = self.rendezvous.deadline(waited);
                self.carry_out(actions);
            }
        }
    }

    fn accept_all(&mut self) {
        // A failing accept (no descriptors left) turns that one away; the others go on.
        let refusal = |e: &OsError| FromHost::Refused(Refusal::System { unit: HOST, error: e.to_string() });
        while let Some(id) = self.connections.accept(refusal) {
            // What it says first has mostly come by now, and a crowd behind it cannot push it out any more.
            self.serve(id);
        }
    }

    fn serve(&mut self, id: ConnId) {
        loop {
            match self.connections.hear::<ToHost>(id) {
                Heard::Message(message, fds) => self.handle(id, message, fds),
                Heard::Nothing => return,
                Heard::Gone => return self.hang_up(id),
                Heard::Bad(bad) => {
                    self.rendezvous.leave(id);
                    let why = bad.refusal(HOST);
                    self.connections.send(id, &FromHost::Refused(why), Vec::new());
                    return self.hang_up(id);
                }
            }
        }
    }

    fn handle(&mut self, id: ConnId, message: ToHost, fds: Vec<OwnedFd>) {
        // Where the two do not mean the same by a number, others may who are beside that unit.
        let space = self.rendezvous.space(HOST);
        let pid = match &message {
            ToHost::Hello(hello) if space == 0 || hello.space != space => hello.pid,
            _ => self.connections.pid(id),
        };
        if matches!(message, ToHost::Hello(_)) {
            self.hear_who_left();
        }
        let actions = match bad_slots(&message, &fds) {
            Some(why) => vec![Action::Send(id, FromHost::Refused(why)), Action::Drop(id)],
            None => {
                let fds = fds.into_iter().map(Shared::new).collect();
                self.rendezvous.handle(id, pid, message, fds)
            }
        };
        if self.rendezvous.is_member(id) {
            self.connections.admit(id);
        }
        self.carry_out(actions);
    }

    /// Somebody asks for a place: who had it may have left a moment ago.
    fn hear_who_left(&mut self) {
        for id in self.connections.look_at(&self.connections.admitted()) {
            self.serve(id);
        }
        if let Some((_, Opened { slots, .. })) = &self.control {
            self.rendezvous.closed(slots.units().filter(|&unit| slots.is_closed(unit)));
            self.rendezvous.ends(slots.ending());
        }
    }

    fn hang_up(&mut self, id: ConnId) {
        self.connections.drop(id);
        let unit = self.units.remove(&id);
        let closed = match (&self.control, unit) {
            (Some((_, opened)), Some(unit)) => opened.slots.is_closed(unit),
            _ => false,
        };
        let actions = self.rendezvous.hangup(id, closed);
        self.carry_out(actions);
        if let (Some((_, opened)), Some(_)) = (&self.control, unit) {
            opened.slots.wake_all();
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(to, message) => self.connections.send(to, &message, Vec::new()),
                Action::Welcome { to, welcome, segment } => {
                    let control = self.control.as_ref().and_then(|(fd, _)| fd.clone());
                    let slots = segment.and_then(|unit| self.rendezvous.segment(unit).cloned());
                    let along = control.into_iter().chain(slots).collect();
                    self.connections.send(to, &FromHost::Welcome(welcome), along);
                }
                Action::Segment(to, unit) => {
                    let slots = self.rendezvous.segment(unit).cloned();
                    self.connections.send(to, &FromHost::Segment(unit), slots.into_iter().collect());
                }
                Action::Drop(id) => self.hang_up(id),
                Action::Build(welcome) => {
                    if let Err(error) = self.build(welcome) {
                        let actions = self.rendezvous.abandon(Refusal::System { unit: HOST, error });
                        return self.carry_out(actions);
                    }
                }
                Action::Revive(welcome) => {
                    let control = self.rendezvous.control().and_then(|fd| fd.try_clone().ok());
                    match control.map(|fd| attach("", fd, &welcome)) {
                        Some(Ok((fd, slots))) => {
                            let opened = Opened { slots, welcome, late: None, waits: false };
                            self.control = Some((Some(Shared::new(fd)), opened));
                        }
                        other => {
                            let error = other.and_then(Result::err).map_or(String::new(), |e| e.to_string());
                            let actions = self.rendezvous.abandon(Refusal::System { unit: HOST, error });
                            return self.carry_out(actions);
                        }
                    }
                }
                Action::Join(id, unit, pid, start_time) => {
                    if let Some((_, opened)) = &self.control {
                        opened.slots.join(unit, (pid, start_time), self.rendezvous.space(unit));
                    }
                    if id != OWN {
                        self.units.insert(id, unit);
                    }
                }
                Action::Seat(program, units) => self.places(|slots| slots.seat(program, units)),
                Action::Enter(program) => self.places(|slots| slots.enter(program)),
                Action::Vacate(program) => self.places(|slots| slots.vacate(program)),
                Action::Go => {
                    if let (Some(tell), Some((fd, o))) = (self.outcome.take(), &mut self.control) {
                        let (slots, welcome, late) = (o.slots.clone(), o.welcome.clone(), o.late.take());
                        // Or only unit 0 can watch them all.
                        if !self.rendezvous.takes_more() {
                            // What waits in the outboxes by now has none of it.
                            *fd = None;
                        }
                        let waits = self.rendezvous.anyone_waits() || !slots.all_share_numbers();
                        let _ = tell.send(Ok(Opened { slots, welcome, late, waits }));
                    }
                }
                Action::Fail(why) => {
                    // Units that have knocked, or were let in and not heard yet, are told why, too, and do not
                    // wait for another unit 0.
                    self.accept_all();
                    let unheard = |id: &ConnId| !self.rendezvous.is_member(*id);
                    for id in self.connections.all().into_iter().filter(unheard) {
                        self.connections.send(id, &FromHost::Refused(why.clone()), Vec::new());
                    }
                    if let Some(tell) = self.outcome.take() {
                        let _ = tell.send(Err(why));
                    }
                }
                Action::Lost(unit, pid) => {
                    tracing::warn!(%unit, pid, "lost");
                    if let Some((_, opened)) = &self.control {
                        opened.slots.fail(Fault::Lost { unit, pid });
                    }
                }
            }
        }
    }

    /// The replacement of unit 0 goes on when all that live are back who write, or may not be lost; and when
    /// it has the slots of all writers, which every survivor has kept, or all that live are back.
    fn go_on_if_revived(&mut self) {
        let Some((_, opened)) = self.control.as_mut().filter(|_| self.rendezvous.is_reviving()) else {
            return;
        };
        let (slots, welcome) = (&opened.slots, &opened.welcome);
        let lives = |unit: UnitName| {
            let (pid, start_time) = slots.process(unit);
            // A unit that has no number here comes back, or is missing when the time to come is over.
            let is_seen = slots.share_numbers(HOST, unit);
            !slots.is_closed(unit) && (!is_seen || ProcessId { pid, start_time }.is_alive())
        };
        let early = |unit| self.rendezvous.is_early(slots.process(unit).0, slots.space(unit));
        let comes = |unit: UnitName| lives(unit) && !early(unit);
        let waits = |unit: UnitName| match unit.side {
            Side::Writer => welcome.writers_wait,
            Side::Reader(p) => welcome.readers_wait.get(p as usize).is_some_and(|&wait| wait),
        };
        let missing = (0..welcome.writers).find(|&unit| self.rendezvous.segment(unit).is_none());
        let needed = |unit: &UnitName| unit.side == Side::Writer || !waits(*unit) || missing.is_some();
        if slots.units().filter(needed).any(|unit| comes(unit) && !self.rendezvous.is_here(unit)) {
            return;
        }
        if let Some(fd) = self.rendezvous.segment(HOST.unit) {
            match fd.try_clone().map(|fd| Segment::take_over(fd, self.slots_len)) {
                Ok(Ok(segment)) => opened.late = Some(segment),
                other => {
                    let actions =
                        self.rendezvous.abandon(Refusal::System { unit: HOST, error: format!("{other:?}") });
                    return self.carry_out(actions);
                }
            }
        }
        // Units that died together with unit 0 and are not waited for, or whose slots nobody could keep.
        let kept = |unit: UnitName| unit.side != Side::Writer || missing != Some(unit.unit);
        let lost = |&unit: &UnitName| !(slots.is_closed(unit) || lives(unit) || waits(unit) && kept(unit));
        if let Some(unit) = slots.units().find(lost) {
            slots.fail(Fault::Lost { unit, pid: slots.process(unit).0 });
        }
        let actions = self.rendezvous.revived();
        self.carry_out(actions);
    }

    /// Changes something of the places that reader programs have in the control state.
    fn places(&self, change: impl FnOnce(&Slots)) {
        if let Some((_, Opened { slots, .. })) = &self.control {
            change(slots);
        }
    }

    fn build(&mut self, welcome: Welcome) -> Result<(), String> {
        let (fd, slots) = build(&welcome).map_err(|e| e.to_string())?;
        let late = self.make_slots.take().map(|make| make(&welcome)).transpose()?;
        if let Some(own) = &late {
            let fd = own.fd().try_clone_to_owned().map_err(|e| e.to_string())?;
            self.rendezvous.set_segment(HOST.unit, Shared::new(fd));
        }
        self.control = Some((Some(Shared::new(fd)), Opened { slots, welcome, late, waits: false }));
        Ok(())
    }
}

/// Looks at the slots that a writer hands over before anybody maps them.
fn bad_slots(message: &ToHost, fds: &[OwnedFd]) -> Option<Refusal> {
    let ToHost::Hello(hello) = message else { return None };
    let slots = fds.last().filter(|_| hello.rejoin.is_none())?;
    let unit = UnitName { side: Side::Writer, unit: hello.unit };
    crate::bind::check_slots(hello, slots.as_fd())
        .err()
        .map(|error| Refusal::Terms(Mismatch::Segment { unit, error }))
}

/// The sizes of the pipe that a welcome describes, if they are in their limits.
pub fn sizes(welcome: &Welcome) -> Option<Sizes> {
    let (readers, policy) = (welcome.readers.clone(), welcome.policy);
    let words = u32::try_from(words(&welcome.arrays)).ok()?;
    let sizes = Sizes { writers: welcome.writers, readers, depth: welcome.depth, policy, words };
    sizes.in_limits().then_some(sizes)
}

fn build(welcome: &Welcome) -> Result<(OwnedFd, Slots), OsError> {
    let sizes =
        sizes(welcome).ok_or(OsError::BadName { name: "pipe".into(), reason: "sizes out of limits" })?;
    let segment = Segment::create("polyduct-control", Slots::len_bytes(&sizes))?;
    segment.prefault(0..segment.len())?;
    let (segment, fd) = segment.into_parts();
    Ok((fd, Slots::new(Lines::Shared(Arc::new(segment)), sizes)))
}

/// The control state in a segment that unit 0 handed over, whose descriptor comes back.
pub fn attach(pipe: &str, fd: OwnedFd, welcome: &Welcome) -> Result<(OwnedFd, Slots), PipeError> {
    let bad = |what: String| PipeError::bad_peer(pipe, what);
    let sizes = sizes(welcome).ok_or_else(|| bad(format!("sizes out of limits: {welcome:?}")))?;
    let len = Slots::len_bytes(&sizes);
    let segment = Segment::from_fd(fd, len, len, Access::ReadWrite)
        .map_err(|e| bad(format!("control segment: {e}")))?;
    let (segment, fd) = segment.into_parts();
    Ok((fd, Slots::new(Lines::Shared(Arc::new(segment)), sizes)))
}

/// The name of unit 0 of the writers, which serves the rendezvous.
pub const HOST: UnitName = UnitName { side: Side::Writer, unit: 0 };
