//! The way of every other unit to unit 0 of the writers: joining, then asking.
//!
//! There is no thread: whoever asks waits here for the answer, and learns of deaths while it waits. What unit
//! 0 says between two calls waits in the socket.

mod domain;
mod leave;
mod meet;
mod rejoin;
#[cfg(test)]
pub(super) mod tests;

pub use meet::wait_for_next;

use super::dial::{is_refused, link};
use super::mend::{is_of_the_way, Calls, Mended, Mending};
use super::session::ResumableSession;
use super::silence::seconds;
use super::wire::{Ask, Tell};
use crate::error::{silence, PipeError, Refusal};
use crate::port::{not_replaced, stop_error};
use crate::programs::Programs;
use crate::ready::Wait;
use crate::serve::HOST;
use polyduct_message::link::net::LinkFault;
use polyduct_message::meeting::{RETRY, SLICE};
use polyduct_message::LinkError;
use polyduct_os::{
    clock,
    poll::{poll, PollItem},
};
use polyduct_port::{Options, PortError, PortName, Side, UnitName, MAX_PROGRAMS, MAX_UNITS};
use polyduct_slots::{fault::Fault, rebuild::Granted, Begin, Next, Stop};
use rejoin::Survivor;
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// How long a unit waits for unit 0 to confirm that a connection's end is a death.
pub const VERDICT: Duration = Duration::from_millis(500);
/// Connections that nobody needs any more and that are taken from the door at once, at most.
const VISITS: usize = 64;
/// What connects a unit to unit 0.
pub struct Client {
    session: ResumableSession<Ask>,
    calls: Calls,
    /// The connection broke, and is made again.
    mending: Option<Mending>,
    /// Why it is not made again.
    ended: Option<LinkFault>,
    /// Nobody comes in here: that it is open tells that this unit takes part.
    door: Option<TcpListener>,
    pipe: String,
    options: Options,
    me: UnitName,
    start: Duration,
    host_pid: u32,
    /// What a writer may do with its next steps.
    begin: VecDeque<Begin>,
    /// A reader's next steps.
    next: VecDeque<Next>,
    /// What the writers said of them, where sizes change.
    brought: VecDeque<Vec<u64>>,
    /// The same of the step at hand.
    said: Vec<u64>,
    stop: Option<Stop>,
    /// What unit 0 says has happened.
    notice: Option<Stop>,
    /// A writer needs no more than that to stop; a reader is told of its next step all the same.
    is_reader: bool,
    bye: bool,
    /// Unit 0 does not answer any more: nothing is waited for on leaving.
    silent: bool,
    /// Unit 0 has taken this unit for one of the pipe that opens, and no other may come in its place.
    noted: bool,
    /// The connection has ended.
    hung_up: bool,
    /// This unit goes without an answer.
    gives_up: bool,
    /// Questions of this unit about steps, whose answers it has not taken yet.
    pub asked: u32,
    /// Steps of which this unit is told before it has done them, at most.
    ahead: usize,
    /// This unit does not wait for its next step any more, and unit 0 has yet to say that there is none.
    withdraws: bool,
    /// Units that are lost and not replaced yet.
    absent: Vec<(UnitName, u32)>,
    /// Where writer units are that have replaced others.
    moved: BTreeMap<u32, Moved>,
    /// What is kept for a unit 0 that replaces the one before.
    survivor: Survivor,
    /// The step at which this unit goes on: not 0 where it replaces another.
    pub from: u64,
}

/// Where a writer unit is by now, and how many have had its place since this unit joined.
pub type Moved = (SocketAddr, u32);

impl Client {
    /// Says something.
    pub fn say(&mut self, ask: &Ask) -> Result<(), PipeError> {
        self.say_all([ask.clone()])
    }

    /// Says several things at once.
    pub fn say_all(&mut self, asks: impl IntoIterator<Item = Ask>) -> Result<(), PipeError> {
        let asks = asks.into_iter().filter_map(|ask| self.survivor.says(ask));
        let said = asks.into_iter().try_for_each(|ask| self.session.post(ask));
        match said.and_then(|()| self.session.flush()) {
            Ok(_) => Ok(()),
            // The end of the connection is noticed where answers are read, behind what was said before it.
            Err(fault) if is_of_the_way(&fault) => Ok(()),
            Err(fault) => Err(self.gone(fault)),
        }
    }

    fn hear(&mut self) -> Result<Option<Tell>, LinkFault> {
        if let Some(fault) = &self.ended {
            return Err(fault.clone());
        }
        self.hear_on().inspect_err(|fault| self.ended = Some(fault.clone()))
    }

    /// The next message, over another connection where this one broke.
    fn hear_on(&mut self) -> Result<Option<Tell>, LinkFault> {
        loop {
            if let Some(mending) = &mut self.mending {
                match mending.go_on(&self.calls, self.session.heard(), clock::now())? {
                    Mended::NotYet => return Ok(None),
                    // The end of that connection, too, is noticed below.
                    Mended::GoesOn(channel, theirs) => {
                        let resumed = self.session.resume(*channel, theirs);
                        resumed.or_else(|fault| if is_of_the_way(&fault) { Ok(()) } else { Err(fault) })?;
                    }
                    Mended::Another(channel) => {
                        self.mending = None;
                        self.comes_back(*channel)?;
                        continue;
                    }
                }
                tracing::info!(pipe = self.pipe, "the connection to unit 0 broke, and was made again");
                self.mending = None;
                // Unit 0 has come to the door meanwhile, and needs no answer any more.
                let mut visits = self.door.iter().flat_map(TcpListener::incoming).take(VISITS);
                while let Some(Ok(_)) = visits.next() {}
            }
            let heard = match self.session.hear() {
                Err(fault) if self.may_mend(&fault) => {
                    tracing::debug!(%fault, "the connection to unit 0 broke");
                    self.session.is_cut();
                    self.mending = Some(Mending::new(clock::now()));
                    continue;
                }
                heard => heard?,
            };
            match heard {
                Some(Tell::Lost(unit, _) | Tell::Replaced(unit, _)) if !may_be(unit) => {
                    let (what, expected) = ("unit", "one of the pipe");
                    return Err(LinkError::BadField { what, found: unit.unit.into(), expected }.into());
                }
                Some(Tell::Units(units)) => {
                    let moved = self.survivor.moved(&units);
                    moved.into_iter().for_each(|(unit, door)| self.has_moved(unit, self.reachable(door)));
                    self.survivor.hears(units)
                }
                Some(Tell::Meet(said, pid, ..)) if self.survivor.waits => self.is_let_in(said, pid)?,
                Some(Tell::Lost(unit, pid)) => {
                    self.absent.retain(|(lost, _)| *lost != unit);
                    self.absent.push((unit, pid));
                }
                Some(Tell::Replaced(unit, addr)) => {
                    self.absent.retain(|(lost, _)| *lost != unit);
                    let addr = addr.map(|addr| self.reachable(addr)).filter(|_| unit.side == Side::Writer);
                    addr.into_iter().for_each(|addr| self.has_moved(unit.unit, addr));
                }
                other => return Ok(other),
            }
        }
    }

    fn has_moved(&mut self, writer: u32, addr: SocketAddr) {
        let times = self.moved.get(&writer).map_or(0, |(_, times)| times + 1);
        self.moved.insert(writer, (addr, times));
    }

    /// Whether a connection that ended so is made again: one that is silent only where this unit may be
    /// replaced, or unit 0, and none where nothing is expected any more.
    fn may_mend(&self, fault: &LinkFault) -> bool {
        let is_borne = seconds(fault, self.options.silence) == 0 || self.calls.lasts || self.calls.revives;
        is_of_the_way(fault) && is_borne && !self.bye && !self.gives_up
    }

    /// Whether the connection to unit 0 broke, and is yet to be made again.
    pub fn is_cut_off(&self) -> bool {
        self.mending.is_some() || self.survivor.waits
    }

    /// Whether unit 0 waits for this unit, should it not hear of it for long.
    pub fn lasts(&self) -> bool {
        self.calls.lasts
    }

    /// Whether a unit is lost and not replaced yet.
    pub fn is_absent(&self, unit: UnitName) -> bool {
        self.absent.iter().any(|(lost, _)| *lost == unit)
    }

    /// Where a writer unit is, if it has replaced another since this unit joined.
    pub fn moved(&self, unit: u32) -> Option<Moved> {
        self.moved.get(&unit).copied()
    }

    /// Takes what has come.
    pub fn take(&mut self, step: u64) -> Result<(), PipeError> {
        loop {
            match self.hear() {
                Ok(None) => break,
                Ok(Some(Tell::Begin(begin))) if self.begin.len() < self.ahead => self.begin.push_back(begin),
                Ok(Some(Tell::Next(next))) if self.next.len() < self.ahead => {
                    self.next.push_back(next);
                    self.withdraws = false;
                }
                Ok(Some(Tell::NotYet)) if self.withdraws => (self.withdraws, self.asked) = (false, 0),
                Ok(Some(Tell::Brought(said))) if self.brought.len() < self.ahead => {
                    self.brought.push_back(said);
                }
                Ok(Some(Tell::Begin(_) | Tell::Next(_) | Tell::Brought(_))) => {
                    return Err(self.bad("more steps than slots"))
                }
                Ok(Some(Tell::NotYet)) => return Err(self.bad("an answer before a question")),
                Ok(Some(Tell::Stop(halt))) => {
                    (self.stop, self.calls.revives) = (self.stop.take().or(Some(halt.into())), false);
                }
                Ok(Some(Tell::Notice(halt))) => {
                    (self.notice, self.calls.revives) = (self.notice.take().or(Some(halt.into())), false);
                }
                Ok(Some(Tell::Bye)) => self.bye = true,
                Ok(Some(Tell::Meet(..))) => return Err(self.bad("a second welcome")),
                // Noted where it was heard.
                Ok(Some(Tell::Lost(..) | Tell::Replaced(..) | Tell::Units(_))) => {}
                Err(_) if self.bye => break,
                // What was said before the end counts.
                Err(_) if self.stop.is_some() || !self.next.is_empty() || !self.begin.is_empty() => break,
                Err(fault) => return Err(self.lost(fault, step)),
            }
        }
        match self.stop.as_ref().or(self.notice.as_ref().filter(|_| !self.is_reader)) {
            Some(stop) if self.next.is_empty() => Err(self.stopped(stop.clone(), step)),
            _ => Ok(()),
        }
    }

    /// Waits for what `look` finds in this client after each thing that comes.
    pub fn wait<T>(
        &mut self,
        step: u64,
        what: &str,
        waited: &mut Duration,
        mut look: impl FnMut(&mut Client) -> Option<T>,
    ) -> Result<T, PipeError> {
        let start = clock::now();
        let found = loop {
            if let Err(e) = self.take(step) {
                break Err(e);
            }
            if let Some(found) = look(self) {
                break Ok(found);
            }
            if let Err(e) = self.pause((Vec::new(), None), start, what, step) {
                break Err(e);
            }
        };
        *waited += clock::now() - start;
        found
    }

    /// Waits until unit 0 says something, one of `items` is ready or `until` has come, within the port's
    /// patience since `start`.
    pub fn pause(
        &self,
        (items, until): (Vec<PollItem<'_>>, Option<Duration>),
        start: Duration,
        what: &str,
        step: u64,
    ) -> Result<(), PipeError> {
        // What it said before its end was not what is waited for, and nothing more comes.
        if let Some(fault) = self.ended.as_ref().filter(|_| items.is_empty()) {
            return Err(self.lost(fault.clone(), step));
        }
        if self.options.is_interrupted() {
            return Err(PipeError::interrupted(&self.pipe, None));
        }
        let waited = clock::now() - start;
        let left = clock::left(start, self.options.timeout);
        if left.is_some_and(|l| l.is_zero()) {
            let failed = self.mending.as_ref().and_then(|mending| mending.failed.as_ref());
            let why = match failed {
                Some(fault) if is_refused(fault) => {
                    not_replaced(Some((HOST, self.host_pid)), &Programs::default())
                }
                Some(fault) => format!("; {HOST} cannot be reached ({fault})"),
                None if self.mending.is_some() => format!("; {HOST} cannot be reached"),
                None if self.survivor.waits => format!("; {HOST} was replaced, and waits for others"),
                None => not_replaced(self.absent.first().copied(), &Programs::default()),
            };
            let what = format!("{what} {step}{why}").into();
            let port = PortName::Pipe(self.pipe.clone());
            return Err(PipeError::Port(PortError::Timeout { port, unit: None, what, waited }));
        }
        let most = until.map(|until| until.saturating_sub(clock::now()));
        self.poll(items, left.into_iter().chain(most).min())
    }

    /// Lets a while go by, or until unit 0 says something.
    pub fn rest(&self, pause: Duration) -> Result<(), PipeError> {
        self.poll(Vec::new(), Some(pause))
    }

    fn poll<'a>(&'a self, mut items: Vec<PollItem<'a>>, left: Option<Duration>) -> Result<(), PipeError> {
        items.extend(self.item());
        let slice = self.options.interrupt.as_ref().map(|_| SLICE);
        let timeout = left.into_iter().chain(slice).chain(self.look_in()).min();
        poll(&mut items, timeout).map(drop).map_err(crate::join::system(&self.pipe))
    }

    /// What to wait for: unit 0's next word, or another connection to it.
    fn item(&self) -> Option<PollItem<'_>> {
        let channel = self.session.channel();
        match &self.mending {
            _ if self.ended.is_some() => None,
            Some(mending) => mending.item(),
            None if channel.is_backed_up() => Some(PollItem::both(channel)),
            None => Some(PollItem::readable(channel)),
        }
    }

    /// In which time to look after the connection though nothing came.
    fn look_in(&self) -> Option<Duration> {
        let at = match &self.mending {
            _ if self.ended.is_some() => None,
            Some(mending) => Some(mending.deadline(&self.calls)),
            None => self.session.channel().deadline(),
        };
        at.map(|at| at.saturating_sub(clock::now()))
    }

    /// Where unit 0 is heard.
    pub fn waits_at(&self, wait: &mut Wait) {
        let channel = self.session.channel();
        match &self.mending {
            _ if self.ended.is_some() => wait.within(Some(RETRY.0)),
            Some(mending) => mending.waits_at(wait),
            None => wait.at(channel, channel.is_backed_up()),
        }
        wait.within(self.look_in());
    }

    /// What a writer may do with its next step, if unit 0 has said so.
    pub fn begin(&mut self) -> Option<Begin> {
        let begin = self.begin.pop_front()?;
        self.survivor.stands.granted = Some(Granted::Begin(begin));
        Some(begin)
    }

    /// Whether unit 0 has said that before it was asked.
    pub fn knows_begin(&self) -> bool {
        !self.begin.is_empty()
    }

    /// A reader's next step, if unit 0 has said which.
    pub fn next(&mut self) -> Option<Next> {
        let next = self.next.pop_front()?;
        if matches!(next, Next::Step(_)) {
            self.said = self.brought.pop_front().unwrap_or_default();
        }
        self.survivor.takes(next);
        Some(next)
    }

    /// This reader does not wait any more for the step that it has asked for: the one that is the newest when
    /// it asks again is better.
    pub fn withdraw(&mut self) {
        if self.asked > 0 && self.next.is_empty() && !self.withdraws {
            // Where unit 0 is gone, the next call finds that.
            self.withdraws = self.say(&Ask::Withdraw).is_ok();
        }
    }

    /// What the writers said of the step that was taken last; nothing where no sizes change.
    pub fn said(&self) -> &[u64] {
        &self.said
    }

    /// A unit that has yet to send its part of a step is gone, and with it the step.
    pub fn check_lost(&self, unit: UnitName, step: u64) -> Result<(), PipeError> {
        match &self.notice {
            Some(
                stop @ (Stop::Fault(Fault::Lost { unit: gone, .. } | Fault::Silent { unit: gone, .. })
                | Stop::Aborted { unit: gone, .. }),
            ) if *gone == unit => Err(self.stopped(stop.clone(), step)),
            _ => Ok(()),
        }
    }

    /// Whether the pipe goes on, for a reader that cannot do without what it waits for.
    pub fn check_going(&mut self, step: u64) -> Result<(), PipeError> {
        self.take(step)?;
        if let Some(fault) = &self.ended {
            return Err(self.lost(fault.clone(), step));
        }
        self.notice.clone().map_or(Ok(()), |stop| Err(self.stopped(stop, step)))
    }

    /// The connection to a unit is gone: unit 0 says whether the unit is, and what all others are told.
    pub fn accuse(&mut self, unit: UnitName, fault: &LinkFault) -> Result<(), PipeError> {
        self.say(&Ask::Lost(unit, seconds(fault, self.options.silence)))
    }

    /// Unit 0 has said nothing of a unit that was [accused](Client::accuse).
    pub fn unconfirmed(&mut self, unit: UnitName, fault: &LinkFault) -> PipeError {
        let silent = seconds(fault, self.options.silence);
        self.silent = true;
        PipeError::Port(PortError::PeerLost {
            port: PortName::Pipe(self.pipe.clone()),
            peer: unit.into(),
            pid: 0,
            silence: silence(silent),
        })
    }

    /// An error for a peer that answered something else than it should.
    pub fn bad(&self, what: &str) -> PipeError {
        PipeError::bad_peer(&self.pipe, what)
    }

    fn stopped(&self, stop: Stop, step: u64) -> PipeError {
        stop_error(&self.pipe, stop, step)
    }

    /// The connection to unit 0 has ended: with what it gave notice of, if it did.
    fn lost(&self, fault: LinkFault, step: u64) -> PipeError {
        match &self.notice {
            Some(stop) => self.stopped(stop.clone(), step),
            None => self.gone(fault),
        }
    }

    fn gone(&self, fault: LinkFault) -> PipeError {
        tracing::debug!(%fault, "the connection to unit 0 ended");
        let silent = seconds(&fault, self.options.silence);
        let lost = Stop::Fault(Fault::lost(HOST, self.host_pid, silent));
        match fault {
            LinkFault::Peer(LinkError::Closed) | LinkFault::System(_) => self.stopped(lost, 0),
            LinkFault::Peer(LinkError::Taken { .. }) => {
                PipeError::refused(&self.pipe, Refusal::Replaced { unit: self.me })
            }
            fault => link(&self.pipe, HOST)(fault),
        }
    }
}

/// Whether a pipe may have such a unit: units are lost while the pipe opens, too, when nobody knows yet how
/// many there are.
fn may_be(unit: UnitName) -> bool {
    let is_side = match unit.side {
        Side::Writer => true,
        Side::Reader(program) => program < MAX_PROGRAMS,
    };
    is_side && unit.unit < MAX_UNITS
}
