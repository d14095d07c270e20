//! The thread of the writers' unit 0: lets units in, carries out the [rendezvous](crate::rendezvous), then
//! serves the [hub](super::hub) and notices who is gone.

mod away;
mod own;
mod revive;
mod tell;

use super::channel::Channel;
use super::hub::StepHub;
use super::listener::PipeListener;
use super::mend::{Calls, Life};
use super::senders::Senders;
use super::session::{ResumableSession, SessionId};
use super::silence::silent_for;
use super::wire::{Ask, First, KnownUnit, Tell};
use crate::error::Refusal;
use crate::rendezvous::{Action, ConnId, Rendezvous};
use crate::serve::{sizes, HOST};
use crate::wire::{FromHost, Hello, ToHost, Welcome};
use away::{Replaced, Standing};
use own::OwnPlace;
use polyduct_message::meeting::STRANGERS;
use polyduct_os::{
    clock,
    poll::{poll, EventFd, PollItem},
};
use polyduct_port::{Options, Side, UnitName};
use polyduct_slots::{fault::Fault, Slots};
use revive::Revival;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Connections that wait for the place of a unit whose connection broke, at most.
const EARLY: usize = 64;
/// What unit 0 learns when the pipe is open.
pub struct Opened {
    /// The control state.
    pub slots: Slots,
    /// Unit 0's slots.
    pub senders: Arc<Senders>,
    /// The same that the others were told.
    pub welcome: Welcome,
    /// The steps before this one an earlier unit 0 has published: what is needed of them is written again.
    pub published: u64,
}

/// What unit 0 and its thread share.
pub struct Shared {
    /// Something happened that the thread should look at.
    pub wake: EventFd,
    /// The thread is to end.
    pub stop: AtomicBool,
    /// Unit 0 has closed, everybody else has left, and nobody comes any more.
    pub alone: AtomicBool,
    /// No reader needs more of what the writers have.
    pub readers_over: AtomicBool,
    /// Nothing was heard of this unit for so long that another has its place.
    pub replaced: AtomicBool,
    /// Units that are lost and not replaced yet.
    pub absent: Mutex<Vec<(UnitName, u32)>>,
}

impl Shared {
    /// Units that are lost and not replaced yet.
    pub fn absent(&self) -> MutexGuard<'_, Vec<(UnitName, u32)>> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Conn {
    session: ResumableSession<Tell>,
    pid: u32,
    name: SessionId,
    /// Where the unit listens for as long as it takes part: as others see it, and if it can be reached there.
    addr: Option<SocketAddr>,
    door: Option<SocketAddr>,
    way: Standing,
}

/// Everything the thread holds.
pub struct FarServer {
    pipe: String,
    listener: PipeListener,
    conns: BTreeMap<ConnId, Conn>,
    /// Units that ask for the place of one whose connection broke: they wait until that one is back, or dead.
    early: Vec<(Channel, First)>,
    replaced: Replaced,
    /// What all units are told of each, where unit 0 may be replaced.
    known: HashMap<UnitName, KnownUnit>,
    /// Units of an earlier unit 0 are coming back.
    revival: Option<Revival>,
    own: OwnPlace,
    next_id: ConnId,
    rendezvous: Rendezvous<SocketAddr>,
    /// Where unit 0 listens for the domain of the port.
    meets_at: SocketAddr,
    open: Option<(StepHub, Arc<Senders>)>,
    /// Until unit 0 has it; with the steps that an earlier one has published.
    welcome: Option<(Welcome, u64)>,
    outcome: Option<mpsc::Sender<Result<Opened, Refusal>>>,
    shared: Arc<Shared>,
    /// How long others may be silent, and for how many seconds the one was that is lost just now.
    silence: (Duration, u8),
    started: Duration,
    deadline: Duration,
    /// The stream has ended: until when guests are waited for.
    farewell: Option<Duration>,
}

impl FarServer {
    /// A server for a bound listener. Units meet in the domain of the port at `meets_at`; `calls` is how the
    /// pipe is found by others.
    pub fn new(
        pipe: &str,
        (listener, meets_at): (PipeListener, SocketAddr),
        rendezvous: Rendezvous<SocketAddr>,
        outcome: mpsc::Sender<Result<Opened, Refusal>>,
        shared: Arc<Shared>,
        (options, calls): (&Options, Calls),
    ) -> FarServer {
        let started = clock::now();
        FarServer {
            pipe: pipe.to_owned(),
            listener,
            conns: BTreeMap::new(),
            early: Vec::new(),
            replaced: Replaced::default(),
            known: HashMap::new(),
            revival: None,
            own: OwnPlace::new(calls),
            next_id: 1,
            rendezvous,
            meets_at,
            open: None,
            welcome: None,
            outcome: Some(outcome),
            shared,
            silence: (options.silence, 0),
            started,
            deadline: started.saturating_add(options.open_timeout),
            farewell: None,
        }
    }

    /// Runs until stopped, or until the pipe has failed to open. `first` is what the rendezvous said when it
    /// was made.
    pub fn run(mut self, first: Vec<Action>) {
        self.carry_out(first);
        while self.outcome.is_some() || self.rendezvous.is_running() {
            self.tell();
            if self.shared.stop.load(Ordering::Acquire) || !self.wait(None) {
                break;
            }
            self.serve_all();
            self.welcome_strangers();
            self.go_on_if_revived();
            self.look_for_others();
            self.let_guests_go();
            if self.outcome.is_some() && clock::now() >= self.deadline {
                let waited = (clock::now() - self.started).as_millis() as u64;
                let actions = self.rendezvous.deadline(waited);
                self.carry_out(actions);
            }
        }
        self.say_last_words();
    }

    fn serve_all(&mut self) {
        let _ = self.shared.wake.drain();
        let ids: Vec<ConnId> = self.conns.keys().copied().collect();
        ids.into_iter().for_each(|id| self.serve(id));
    }

    /// Waits for something to happen, until `end` at most. `false`: the system does not let us.
    fn wait(&self, end: Option<Duration>) -> bool {
        let mut items = vec![PollItem::readable(&self.shared.wake)];
        for conn in self.conns.values() {
            // A unit that does not take its answers is not asked for more questions.
            let channel = conn.session.channel();
            items.extend(match &conn.way {
                Standing::Broke(missing) => missing.item(),
                Standing::GivenUp => None,
                Standing::Stands if channel.is_backed_up() => Some(PollItem::writable(channel)),
                Standing::Stands => Some(PollItem::readable(channel)),
            });
        }
        self.listener.items(&mut items);
        items.extend(self.revival.iter().flat_map(Revival::items));
        let asks = self.misses().then_some(&self.own);
        items.extend(asks.and_then(OwnPlace::item));
        let opening = self.outcome.as_ref().map(|_| self.deadline);
        let revival = self.revival.as_ref().and_then(Revival::deadline);
        let opening = opening.into_iter().chain(revival).chain(asks.map(OwnPlace::deadline)).min();
        let looks = self.conns.values().filter_map(|conn| match &conn.way {
            Standing::Broke(missing) => missing.deadline(),
            Standing::GivenUp => None,
            Standing::Stands => conn.session.channel().deadline(),
        });
        let free = self.early.iter().any(|(_, first)| !self.is_early(first)).then_some(Duration::ZERO);
        let deadline = self.listener.deadline().into_iter().chain(opening).chain(looks).chain(free);
        let deadline = deadline.chain(end).chain(self.farewell).min();
        poll(&mut items, deadline.map(|d| d.saturating_sub(clock::now()))).is_ok()
    }

    fn welcome_strangers(&mut self) {
        // A listener that fails lets nobody in any more; those who are in go on.
        let mut came = std::mem::take(&mut self.early);
        came.extend(self.listener.serve(clock::now()).unwrap_or_default());
        if let Some(why) = self.listener.turned_away() {
            self.rendezvous.turned_away(&why);
        }
        for came in self.listener.near() {
            if let Some((_, senders)) = &self.open {
                senders.hand_out(came);
            }
        }
        for (channel, first) in came {
            if self.is_early(&first) && self.early.len() < EARLY {
                self.early.push((channel, first));
                continue;
            }
            match first {
                First::Lane { program, unit, from, guest } => {
                    if let Some((_, senders)) = &self.open {
                        senders.adopt(channel, (program, unit), guest.as_deref(), from);
                    }
                }
                First::Again { session, heard, life, pipe } => {
                    // Of another pipe of this name its life says nothing.
                    let life = if pipe == self.own.calls.pipe { life } else { 0 };
                    self.again(channel, session, heard, life)
                }
                First::Join { pid, session: name, door, hello, knows } => {
                    let strangers = self.conns.keys().filter(|&&id| !self.rendezvous.is_member(id));
                    if strangers.count() >= STRANGERS {
                        continue;
                    }
                    let addr =
                        channel.peer().zip(door).map(|(peer, door)| SocketAddr::new(peer.ip(), door.port()));
                    // A unit that comes from elsewhere than it thinks is behind something that may answer in
                    // its place.
                    let door = door.filter(|door| Some(*door) == addr);
                    let id = self.next_id;
                    self.next_id += 1;
                    let session = ResumableSession::new(channel);
                    self.conns.insert(id, Conn { session, pid, name, addr, door, way: Standing::Stands });
                    self.note_ends();
                    if let ToHost::Hello(Hello { rejoin: Some(welcome), .. }) = &hello {
                        match knows.filter(|knows| knows.fits(welcome)) {
                            Some(knows) => self.returns(id, hello, *knows, addr),
                            None => self.turn_back(id, Refusal::Malformed),
                        }
                        continue;
                    }
                    let actions = self.rendezvous.handle(id, pid, hello, addr.into_iter().collect());
                    self.carry_out(actions);
                    self.serve(id);
                }
            }
        }
    }

    /// Somebody asks for a place: the rendezvous is told who has closed, and whether the pipe ends.
    fn note_ends(&mut self) {
        let Some((hub, _)) = &self.open else { return };
        let slots = hub.slots();
        self.rendezvous.closed(slots.units().filter(|&unit| slots.is_closed(unit)));
        self.rendezvous.ends(slots.ending());
    }

    fn serve(&mut self, id: ConnId) {
        loop {
            let Some(conn) = self.conns.get_mut(&id) else { return };
            if conn.session.is_overfull() {
                return self.hang_up(id, 0);
            }
            match &mut conn.way {
                Standing::Stands => {}
                Standing::GivenUp => return,
                Standing::Broke(missing) => match missing.look(clock::now()) {
                    Life::Open => return,
                    Life::Ended => return self.hang_up(id, 0),
                    Life::Silent => return self.give_up(id, silent_for(self.silence.0)),
                },
            }
            // A unit that does not take its answers is not asked for more questions.
            if let Ok(false) = conn.session.flush() {
                return;
            }
            match conn.session.hear() {
                Ok(None) => return,
                Ok(Some(Ask::Meet(message))) => {
                    let actions = self.rendezvous.handle(id, conn.pid, message, Vec::new());
                    self.carry_out(actions);
                }
                Ok(Some(Ask::Abort(_)))
                    if self.open.as_ref().is_some_and(|(hub, _)| hub.replaceable(id).is_some()) =>
                {
                    return self.hang_up(id, 0);
                }
                Ok(Some(ask)) => {
                    let taken = self.open.as_mut().is_some_and(|(hub, _)| hub.handle(id, &ask).is_ok());
                    if !taken {
                        tracing::warn!(?ask, "a unit spoke out of turn");
                        return self.hang_up(id, 0);
                    }
                    if matches!(ask, Ask::Abort(_)) {
                        // It waits until its word has come.
                        self.send(id, &Tell::Bye);
                    }
                }
                Err(fault) => {
                    tracing::debug!(%fault, "a connection ended");
                    return self.ended(id, &fault);
                }
            }
        }
    }

    /// A connection is gone: hung up, or nothing was heard for so many seconds.
    fn hang_up(&mut self, id: ConnId, silent: u8) {
        let Some(Conn { pid, way, .. }) = self.conns.remove(&id) else { return };
        let (mut closed, mut lost) = (false, None);
        self.revival.iter_mut().for_each(|revival| revival.lost(id, silent));
        if let Some((hub, _)) = &mut self.open {
            // Of one that was given up the others know.
            lost = hub.replaceable(id).filter(|_| !matches!(way, Standing::GivenUp));
            closed = hub.hangup(id);
        }
        self.note_absent();
        let actions = self.rendezvous.hangup(id, closed);
        self.silence.1 = silent;
        self.carry_out(actions);
        self.silence.1 = 0;
        if let Some(unit) = lost.filter(|_| !self.rendezvous.is_over()) {
            self.tell_lost(id, unit, pid);
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Seat(program, units) => {
                    let waits = self.rendezvous.waits(Side::Reader(program));
                    self.open.iter_mut().for_each(|(hub, _)| hub.seat(program, units, waits));
                }
                Action::Enter(program) => {
                    self.open.iter().for_each(|(hub, _)| hub.slots().enter(program));
                }
                Action::Vacate(program) => {
                    self.open.iter_mut().for_each(|(hub, _)| hub.vacate(program));
                }
                Action::Send(to, FromHost::Refused(why)) => {
                    let message = FromHost::Refused(self.how_lost(why));
                    self.send(to, &Tell::Meet(message, 0, None, 0));
                }
                // A unit that has come from an earlier unit 0 goes on with all others.
                Action::Send(_, FromHost::Go) if self.revival.is_some() => {}
                Action::Send(to, FromHost::Go) => self.let_go(to),
                Action::Send(to, message) => self.send(to, &Tell::Meet(message, 0, None, 0)),
                Action::Welcome { to, welcome, .. } => {
                    let from = self.open.as_ref().map_or(0, |(hub, _)| hub.goes_on_at(to));
                    let (pid, meets_at) = (std::process::id(), Some(self.meets_at));
                    self.send(to, &Tell::Meet(FromHost::Welcome(welcome), pid, meets_at, from));
                }
                Action::Segment(to, unit) => {
                    let addr = self.rendezvous.segment(unit).copied();
                    self.send(to, &Tell::Meet(FromHost::Segment(unit), 0, addr, 0));
                }
                Action::Drop(id) => {
                    if let Some(conn) = self.conns.get(&id) {
                        conn.session.channel().shut();
                        self.replaced.note(conn);
                    }
                    self.hang_up(id, 0);
                }
                Action::Build(welcome) => {
                    if let Err(error) = self.build(welcome) {
                        let actions = self.rendezvous.abandon(Refusal::System { unit: HOST, error });
                        return self.carry_out(actions);
                    }
                }
                Action::Revive(welcome) => {
                    if let Err(error) = self.revive(welcome) {
                        let actions = self.rendezvous.abandon(Refusal::System { unit: HOST, error });
                        return self.carry_out(actions);
                    }
                }
                Action::Join(id, unit, pid, start_time) => self.join(id, unit, (pid, start_time)),
                Action::Go => {
                    let told = (self.outcome.take(), &self.open, self.welcome.take());
                    if let (Some(tell), Some((hub, senders)), Some((welcome, published))) = told {
                        let (slots, senders) = (hub.slots().clone(), senders.clone());
                        let _ = tell.send(Ok(Opened { slots, senders, welcome, published }));
                    }
                }
                Action::Fail(why) => {
                    let why = self.how_lost(why);
                    if let Some(tell) = self.outcome.take() {
                        let _ = tell.send(Err(why));
                    }
                }
                Action::Lost(unit, pid) => self.lost(unit, pid),
            }
        }
    }

    fn join(&mut self, id: ConnId, unit: UnitName, (pid, start_time): (u32, u64)) {
        let Some((hub, _)) = &mut self.open else { return };
        let life = self.known.get(&unit).map_or(0, |known| known.life.saturating_add(1));
        let door = self.conns.get(&id).and_then(|conn| conn.door);
        self.known.insert(unit, KnownUnit { life, pid, door, left: None });
        if unit == HOST {
            return hub.slots().join(unit, (pid, start_time), 0);
        }
        let replaces = hub.absent().iter().any(|(lost, _)| *lost == unit);
        hub.join(id, unit, pid, start_time);
        if replaces {
            let addr = self.conns.get(&id).and_then(|conn| conn.addr);
            if let (Side::Writer, Some(addr)) = (unit.side, addr) {
                self.rendezvous.set_segment(unit.unit, addr);
            }
            let absent = hub.absent();
            self.note_absent();
            self.tell_known(id, unit);
            self.tell_of(id, unit);
            absent.into_iter().for_each(|(lost, pid)| self.send(id, &Tell::Lost(lost, pid)));
        }
    }

    fn lost(&mut self, unit: UnitName, pid: u32) {
        tracing::warn!(%unit, pid, "lost");
        if let Some((hub, _)) = &self.open {
            hub.slots().fail(Fault::lost(unit, pid, self.silence.1));
        }
    }

    /// The rendezvous knows only that a connection is gone.
    fn how_lost(&self, why: Refusal) -> Refusal {
        match (why, self.silence.1) {
            (Refusal::Lost { unit, pid, .. }, seconds @ 1..) => {
                Refusal::Lost { unit, pid, silent_s: Some(seconds) }
            }
            (why, _) => why,
        }
    }

    fn build(&mut self, welcome: Welcome) -> Result<(), String> {
        let sizes = sizes(&welcome).ok_or("sizes out of limits")?;
        let senders =
            Senders::new(&self.pipe, &welcome, HOST.unit).map_err(|e| e.at(&self.pipe, HOST).to_string())?;
        self.open = Some((StepHub::new(Slots::on_heap(sizes), self.rendezvous.waiting()), senders));
        self.welcome = Some((welcome, 0));
        Ok(())
    }
}
