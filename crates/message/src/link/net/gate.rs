//! Where strangers come in: bounded in number, bytes and time, until they have proved that they know the key.
//!
//! 1. There are at most [`STRANGERS`] at once, each with one fixed buffer; what else it costs to read them is made only
//!    after the proof in their first message. Together they hold less than 64 KiB.
//! 2. When all places are taken, newcomers wait in the kernel. A stranger that has not said its first message within
//!    [`Limits::grace`] makes room for them; one that has not come through within [`Limits::deadline`] goes in any case.
//! 3. Whatever one of them does, the others go on.

use super::events::{Events, Interest};
use super::inbox::Inbox;
use super::lives::Lives;
use super::socket::{accept, write, Patience};
use super::Fault;
use crate::error::LinkError;
use crate::link::hello::{Carrier, Refusal};
use crate::link::noise::{Established, Pending, Terms};
use crate::types::Address;
use core::time::Duration;
use polyduct_os::poll::EventFd;
use polyduct_os::OsError;
use std::io::IoSlice;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

/// Strangers at once, at most.
pub const STRANGERS: usize = 16;

/// How long strangers may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the connection to the end of the handshake.
    pub deadline: Duration,
    /// From the connection to the first message, where others wait.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { deadline: Duration::from_secs(5), grace: Duration::from_millis(100) }
    }
}

struct Stranger {
    stream: TcpStream,
    addr: SocketAddr,
    since: Duration,
    inbox: Inbox,
    /// It has shown the key once.
    pending: Option<Box<Pending>>,
}

/// One that came through.
pub struct Arrival {
    /// The connection: the next bytes are its first record.
    pub stream: TcpStream,
    /// From where.
    pub addr: SocketAddr,
    /// Who, and the keys.
    pub established: Established,
}

/// How long the system is left alone that has no descriptor or memory for a newcomer.
const REST: Duration = Duration::from_millis(100);

/// Whether a listener is of no further use.
fn is_fatal(error: &OsError) -> bool {
    use polyduct_os::Errno;
    let errnos = [Errno::BADF, Errno::INVAL, Errno::NOTSOCK, Errno::OPNOTSUPP, Errno::FAULT];
    matches!(error, OsError::System { errno, .. } if errnos.contains(errno))
}

/// What came of a stranger.
pub enum Visit {
    /// It proved that it belongs here.
    Arrival(Box<Arrival>),
    /// It was turned away, and why.
    TurnedAway(SocketAddr, Fault),
}

/// The door of an endpoint.
pub struct Gate {
    listener: TcpListener,
    terms: Terms,
    patience: Patience,
    limits: Limits,
    strangers: Vec<Stranger>,
    /// A descriptor in reserve: with none left, a newcomer can still be accepted, told so and dropped.
    spare: Option<EventFd>,
    /// Newcomers wait: for a place, or for the system.
    full: bool,
    /// The system had nothing for newcomers; until then it is not asked again.
    rests_until: Duration,
    /// The listener, unless full, and the strangers.
    events: Events,
    lives: Lives,
}

impl Gate {
    /// A gate at a bound [listener](super::socket::listen), that keeps `lives` out or in.
    ///
    /// # Errors
    /// The system's, where it has no descriptor to spare.
    pub fn new(
        listener: TcpListener,
        terms: Terms,
        patience: Patience,
        limits: Limits,
        lives: Lives,
    ) -> Result<Gate, OsError> {
        let (strangers, spare) = (Vec::with_capacity(STRANGERS), Some(EventFd::new()?));
        let events = Events::new()?;
        events.add(&listener, 0, Interest::Readable)?;
        let (full, rests_until) = (false, Duration::ZERO);
        Ok(Gate { listener, terms, patience, limits, strangers, spare, full, rests_until, events, lives })
    }

    /// Whether all places are taken: newcomers wait.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Strangers inside.
    pub fn strangers(&self) -> usize {
        self.strangers.len()
    }

    /// That life of a unit was lost, or is replaced: it is turned away from now on.
    pub fn bury(&mut self, unit: Address, incarnation: u64) {
        self.lives.bury(unit, incarnation);
    }

    /// That life of a unit is connected: others are turned away until it is [freed](Gate::free) or [buried](Gate::bury).
    pub fn hold(&mut self, unit: Address, incarnation: u64) {
        self.lives.hold(unit, incarnation);
    }

    /// A unit left in order: another life of it may come.
    pub fn free(&mut self, unit: Address) {
        self.lives.free(unit);
    }

    /// When [`serve`](Gate::serve) must be called at the latest.
    pub fn next_deadline(&self) -> Option<Duration> {
        let (grace, deadline) = (self.limits.grace, self.limits.deadline);
        let due = |s: &Stranger| match self.full && s.pending.is_none() {
            true => s.since + grace,
            false => s.since + deadline,
        };
        let rest = Some(self.rests_until).filter(|_| self.full && self.strangers.len() < STRANGERS);
        self.strangers.iter().map(due).chain(rest).min()
    }

    /// Reads what strangers said, drops those whose time is over, lets newcomers in; says what came of them.
    ///
    /// # Errors
    /// The system's: the listener is of no further use.
    pub fn serve(&mut self, now: Duration, mut told: impl FnMut(Visit)) -> Result<(), OsError> {
        let mut at = 0;
        while at < self.strangers.len() {
            at += usize::from(!self.serve_one(at, now, &mut told));
        }
        loop {
            let full = now < self.rests_until
                || self.strangers.len() == STRANGERS && !self.make_room(now, &mut told);
            if full != self.full {
                self.full = full;
                match full {
                    true => self.events.remove(&self.listener)?,
                    false => self.events.add(&self.listener, 0, Interest::Readable)?,
                }
            }
            if full {
                return Ok(());
            }
            match accept(&self.listener, self.patience) {
                Ok(Some((stream, addr))) => {
                    if self.events.add(&stream, 1, Interest::Readable).is_err() {
                        continue;
                    }
                    let stranger = Stranger { stream, addr, since: now, inbox: Inbox::new(), pending: None };
                    self.strangers.push(stranger);
                    // What it says first has mostly come by now.
                    self.serve_one(self.strangers.len() - 1, now, &mut told);
                }
                Ok(None) => return Ok(()),
                Err(OsError::OutOfDescriptors { .. }) => {
                    if !self.refuse_one(&mut told) {
                        match self.spare {
                            // Nobody waits.
                            Some(_) => return Ok(()),
                            None => self.rests_until = now + REST,
                        }
                    }
                }
                Err(e) if is_fatal(&e) => return Err(e),
                // Who is connected goes on meanwhile.
                Err(error) => {
                    tracing::warn!(%error, "newcomers wait");
                    self.rests_until = now + REST;
                }
            }
        }
    }

    /// Returns whether it left its place; another may be there then.
    fn serve_one(&mut self, at: usize, now: Duration, told: &mut impl FnMut(Visit)) -> bool {
        let stranger = &mut self.strangers[at];
        let outcome = match stranger.hear(&self.terms, &self.lives) {
            Ok(None) if now < stranger.since + self.limits.deadline => return false,
            Ok(None) => {
                let limit_ms = self.limits.deadline.as_millis() as u64;
                Err(LinkError::Deadline { what: "the proof of the key", limit_ms }.into())
            }
            Ok(Some(established)) => Ok(established),
            Err(fault) => Err(fault),
        };
        // The order tells who came first.
        let stranger = self.strangers.remove(at);
        match outcome {
            Ok(established) => {
                let Stranger { stream, addr, .. } = stranger;
                // The next one may be another life of it.
                self.lives.hold(established.peer.unit, established.peer.incarnation);
                let _ = self.events.remove(&stream); // It was in there.
                told(Visit::Arrival(Box::new(Arrival { stream, addr, established })));
            }
            Err(fault) => {
                if let Fault::Peer(error) = &fault {
                    stranger.refuse(error, self.terms.trusted);
                }
                told(Visit::TurnedAway(stranger.addr, fault));
            }
        }
        true
    }

    /// Drops who has been silent longest and has used up its grace.
    fn make_room(&mut self, now: Duration, told: &mut impl FnMut(Visit)) -> bool {
        let grace = self.limits.grace;
        let silent = |s: &Stranger| s.pending.is_none() && now >= s.since + grace;
        let Some(at) = self.strangers.iter().position(silent) else { return false };
        let stranger = self.strangers.remove(at);
        stranger.refuse(&LinkError::Busy, self.terms.trusted);
        let limit_ms = grace.as_millis() as u64;
        told(Visit::TurnedAway(
            stranger.addr,
            LinkError::Deadline { what: "the first message", limit_ms }.into(),
        ));
        true
    }

    /// Uses the spare descriptor to tell one newcomer that there is none left. Returns whether one more may wait.
    fn refuse_one(&mut self, told: &mut impl FnMut(Visit)) -> bool {
        self.spare = None;
        let accepted = accept(&self.listener, self.patience);
        let refused = matches!(accepted, Ok(Some(_)));
        if let Ok(Some((stream, addr))) = accepted {
            refuse(&stream, Refusal::Busy, self.terms.trusted);
            told(Visit::TurnedAway(addr, LinkError::Busy.into()));
        }
        self.spare = EventFd::new().ok();
        refused && self.spare.is_some()
    }
}

/// Becomes readable when a stranger has said something or a newcomer can come in.
impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl Stranger {
    fn hear(&mut self, terms: &Terms, lives: &Lives) -> Result<Option<Established>, Fault> {
        loop {
            let Some(message) = self.inbox.read(&self.stream)? else { return Ok(None) };
            if let Some(pending) = &mut self.pending {
                let established = pending.confirm(message)?;
                // Another life of it may have come in since this one knocked.
                lives.check(&established.peer)?;
                return Ok(Some(established));
            }
            let pending = Pending::new(terms, message)?;
            lives.check(pending.claims())?;
            self.inbox.clear();
            let answer = pending.message().bytes();
            // The first bytes on a connection always fit into its buffer.
            if write(&self.stream, &[IoSlice::new(answer)])? != Some(answer.len()) {
                return Err(LinkError::Closed.into());
            }
            self.pending = Some(Box::new(pending));
        }
    }

    fn refuse(&self, error: &LinkError, trusted: bool) {
        if let Some(refusal) = Refusal::of(error) {
            refuse(&self.stream, refusal, trusted);
        }
    }
}

fn refuse(stream: &TcpStream, refusal: Refusal, trusted: bool) {
    // Whether it can be told does not matter to us.
    let _ = write(stream, &[IoSlice::new(&refusal.encode(Carrier::Stream, trusted))]);
    drain(stream);
}

/// A socket that is closed with bytes unread sends a reset, which takes the refusal away from the reader: take a few first.
fn drain(stream: &TcpStream) {
    let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Write);
    let mut junk = [0; 512];
    for _ in 0..8 {
        match super::socket::read(stream, &mut [std::io::IoSliceMut::new(&mut junk)]) {
            Ok(Some(_)) => continue,
            _ => return,
        }
    }
}
