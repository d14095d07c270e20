//! A unit comes to a unit 0 that replaces the one before: it brings where it stands and what it was told of
//! others, and says again what it is waiting for.

use super::Client;
use crate::error::Refusal;
use crate::join::fresh_id;
use crate::net::channel::Channel;
use crate::net::mend::Mending;
use crate::net::session::ResumableSession;
use crate::net::wire::{Ask, First, KnownUnit, Knows};
use crate::serve::HOST;
use crate::wire::{FromHost, Hello, ToHost, Welcome};
use polyduct_message::link::net::LinkFault;
use polyduct_message::LinkError;
use polyduct_os::clock;
use polyduct_port::{Policy, Side, UnitName, MAX_PROGRAMS, MAX_UNITS};
use polyduct_slots::rebuild::{Granted, Stands};
use polyduct_slots::{Begin, Next};
use std::collections::HashMap;
use std::net::SocketAddr;

/// Units that a unit is told of, at most: all that a pipe may have.
const KNOWN: usize = MAX_UNITS as usize * (MAX_PROGRAMS as usize + 1);

/// What a unit keeps for a unit 0 that replaces the one before.
pub(super) struct Survivor {
    /// Where this unit listens.
    door: Option<SocketAddr>,
    /// What it says then, where unit 0 may be replaced.
    hello: Option<Hello>,
    /// The slots, where the queue may drop steps.
    slots: Option<usize>,
    /// Where it stands.
    pub stands: Stands,
    others: HashMap<UnitName, KnownUnit>,
    /// It has come to another unit 0, and is not let in yet.
    pub waits: bool,
    /// What it says when it is.
    held: Vec<Ask>,
}

impl Survivor {
    /// Of a unit that listens there.
    pub fn at(door: Option<SocketAddr>) -> Survivor {
        Survivor {
            door,
            hello: None,
            slots: None,
            stands: Stands::default(),
            others: HashMap::new(),
            waits: false,
            held: Vec::new(),
        }
    }

    /// Whether it has something to say to another unit 0.
    pub fn revives(&self) -> bool {
        self.hello.is_some()
    }

    /// The unit says something: gives it to be said now, unless nobody is there to hear it.
    pub fn says(&mut self, ask: Ask) -> Option<Ask> {
        let filled = match self.stands.granted {
            Some(Granted::Begin(Begin::Fill(turn))) => Some(turn).filter(|_| self.slots.is_some()),
            _ => None,
        };
        if let (Ask::Bring(said), Some(Granted::Begin(Begin::Fill(turn))), true) =
            (&ask, self.stands.granted, self.revives())
        {
            self.stands.brings(turn, said);
        }
        match ask {
            Ask::Publish | Ask::Skip | Ask::Release => {
                let published = filled.filter(|_| matches!(ask, Ask::Publish));
                published.into_iter().for_each(|turn| self.stands.publishes(turn));
                (self.stands.granted, self.stands.done) = (None, self.stands.done + 1);
            }
            Ask::Close => self.stands.closed = true,
            _ => {}
        }
        match self.waits {
            true => {
                self.held.push(ask);
                None
            }
            false => Some(ask),
        }
    }

    /// A reader has its next step.
    pub fn takes(&mut self, next: Next) {
        self.stands.granted = Some(Granted::Next(next));
        if let (Next::Step(turn), Some(slots)) = (next, self.slots) {
            self.stands.takes(turn, slots);
        }
    }

    /// Writers that were replaced by what another unit 0 says, of which the one before had no time to tell.
    pub fn moved(&self, units: &[(UnitName, KnownUnit)]) -> Vec<(u32, SocketAddr)> {
        let before = |unit| self.others.get(unit).map_or(0, |known| known.life);
        let writers = units.iter().filter(|(unit, _)| unit.side == Side::Writer && *unit != HOST);
        let moved = writers.filter(|(unit, known)| self.waits && known.life > before(unit));
        moved.filter_map(|(unit, known)| Some((unit.unit, known.door?))).collect()
    }

    /// What is known of others.
    pub fn hears(&mut self, units: Vec<(UnitName, KnownUnit)>) {
        for (unit, known) in units {
            if self.others.len() < KNOWN || self.others.contains_key(&unit) {
                self.others.insert(unit, known);
            }
        }
    }
}

impl Client {
    /// Keeps what this unit says to a unit 0 that replaces this one, of which it was told that. It does so
    /// once all have [gone](Client::ready): before, the loss of unit 0 is the end.
    pub(super) fn keeps(&mut self, hello: &Hello, welcome: &Welcome) {
        self.calls.pipe = welcome.id;
        let rejoins = || Hello { rejoin: Some(welcome.clone()), ..hello.clone() };
        self.survivor.hello = welcome.writers_wait.then(rejoins);
        self.survivor.slots = (welcome.policy != Policy::Block).then_some(welcome.depth as usize);
        (self.survivor.stands.from, self.survivor.stands.done) = (self.from, self.from);
    }

    /// Another unit 0 is at the other end of this connection: this unit asks to be let in, and what it was
    /// told by the one before, and has not begun with, counts no more.
    pub(super) fn comes_back(&mut self, mut channel: Channel) -> Result<(), LinkFault> {
        let Some(hello) = self.survivor.hello.clone() else { return Err(LinkError::Closed.into()) };
        tracing::info!(pipe = self.pipe, "comes to another unit 0");
        let session = fresh_id()?;
        let others = self.survivor.others.iter().map(|(unit, known)| (*unit, known.clone())).collect();
        let knows = Knows { stands: self.survivor.stands.clone(), others };
        let (pid, hello, door) = (std::process::id(), ToHost::Hello(hello), self.survivor.door);
        let posted = channel.post(&First::Join { pid, session, door, hello, knows: Some(Box::new(knows)) });
        (self.session, self.calls.session) = (ResumableSession::new(channel), session);
        self.survivor.waits = true;
        (self.begin, self.next, self.brought) = Default::default();
        self.withdraws = false;
        self.absent.clear();
        let asks = if self.is_reader { Ask::Next } else { Ask::Begin };
        let asked = if self.survivor.stands.closed { 0 } else { self.asked };
        self.survivor.held = std::iter::repeat_n(asks, asked as usize).collect();
        match posted {
            Err(fault) if !super::is_of_the_way(&fault) => Err(fault),
            // The end of the connection is noticed where answers are read.
            _ => Ok(()),
        }
    }

    /// What another unit 0 says to a unit that has come to it.
    pub(super) fn is_let_in(&mut self, said: FromHost, pid: u32) -> Result<(), LinkFault> {
        match said {
            FromHost::Go => {
                self.survivor.waits = false;
                self.host_pid = pid;
                self.calls.life = self.survivor.others.get(&HOST).map_or(0, |host| host.life);
                self.has_moved(HOST.unit, self.calls.addr);
                let held = std::mem::take(&mut self.survivor.held);
                let said = held.into_iter().try_for_each(|ask| self.session.post(ask));
                match said.and_then(|()| self.session.flush().map(drop)) {
                    Err(fault) if !super::is_of_the_way(&fault) => Err(fault),
                    _ => Ok(()),
                }
            }
            FromHost::Refused(Refusal::Replaced { unit }) => Err(LinkError::Taken { unit: unit.unit }.into()),
            // It is no replacement, or could not become one: another may come.
            FromHost::Refused(why) => {
                tracing::debug!(%why, "not let in by another unit 0");
                self.survivor.waits = false;
                self.session.is_cut();
                self.mending = Some(Mending::again(clock::now()));
                Ok(())
            }
            _ => Err(LinkError::OutOfTurn { what: "a unit that comes back" }.into()),
        }
    }
}
