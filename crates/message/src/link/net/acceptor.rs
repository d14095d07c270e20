//! Accepts connections of strangers: bounded in number, bytes and time, until they have proved that they know
//! the key.
//!
//! 1. There are at most [`STRANGERS`] at once, each with one fixed buffer; what else it costs to read them is
//!    made only after the proof in their first message. Together they hold less than 128 KiB.
//! 2. When all places are taken, a newcomer gets that of a stranger from an address that has more than half
//!    of them and has not said its first message; or of any that has been silent for [`Limits::grace`], or
//!    not confirmed for [`Limits::confirm`]. Where there is none, newcomers wait in the kernel. One that has
//!    not come through within [`Limits::deadline`] goes in any case.
//! 3. A first message that came before is a recorded one: it is dropped at the cost of a look.
//! 4. Whatever one of them does, the others go on.

use super::events::{Events, Interest};
use super::inbox::Inbox;
use super::incarnations::Incarnations;
use super::socket::{accept, write, KeepAlive};
use super::LinkFault;
use crate::error::LinkError;
use crate::link::hello::{Carrier, HandshakeRefusal, HEADER};
use crate::link::noise::{Established, Pending, Terms};
use core::time::Duration;
use polyduct_os::poll::{poll, EventFd, PollItem};
use polyduct_os::OsError;
use std::collections::HashSet;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

/// Strangers at once, at most.
pub const STRANGERS: usize = 64;
/// Places that one address may hold against others with strangers that say nothing.
const SHARE: usize = STRANGERS / 2;
/// First messages that are known again, at least: as many as a domain has units.
const KNOWN: usize = 4096;

/// How long strangers may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the connection to the end of the handshake.
    pub deadline: Duration,
    /// From the connection to the first message, where others wait.
    pub grace: Duration,
    /// From the connection to the confirmation, where others wait.
    pub confirm: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Limits { deadline: ms(5000), grace: ms(100), confirm: ms(1000) }
    }
}

/// First messages that came, by a part of what is drawn anew for each.
#[derive(Default)]
struct Known {
    now: HashSet<u64>,
    before: HashSet<u64>,
}

impl Known {
    fn has(&self, first: u64) -> bool {
        self.now.contains(&first) || self.before.contains(&first)
    }

    fn add(&mut self, first: u64) {
        if self.now.len() == KNOWN {
            self.before = std::mem::take(&mut self.now);
        }
        self.now.insert(first);
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
    TurnedAway(SocketAddr, LinkFault),
}

/// The door of an endpoint.
pub struct Acceptor {
    listener: TcpListener,
    terms: Terms,
    patience: KeepAlive,
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
    /// Which lives of units may come in.
    pub incarnations: Incarnations,
    known: Known,
}

impl Acceptor {
    /// An acceptor at a bound [listener](super::socket::listen), that lets in whom `incarnations` does.
    ///
    /// # Errors
    /// The system's, where it has no descriptor to spare.
    pub fn new(
        listener: TcpListener,
        terms: Terms,
        patience: KeepAlive,
        limits: Limits,
        incarnations: Incarnations,
    ) -> Result<Acceptor, OsError> {
        let (strangers, spare) = (Vec::with_capacity(STRANGERS), Some(EventFd::new()?));
        let events = Events::new()?;
        events.add(&listener, 0, Interest::Readable)?;
        let (full, rests_until) = (false, Duration::ZERO);
        let known = Known::default();
        Ok(Acceptor {
            listener,
            terms,
            patience,
            limits,
            strangers,
            spare,
            full,
            rests_until,
            events,
            incarnations,
            known,
        })
    }

    /// Whether all places are taken: newcomers wait.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Strangers inside.
    pub fn strangers(&self) -> usize {
        self.strangers.len()
    }

    /// When [`serve`](Acceptor::serve) must be called at the latest.
    pub fn next_deadline(&self) -> Option<Duration> {
        let due = |s: &Stranger| s.since + if self.full { self.granted(s) } else { self.limits.deadline };
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
            let crowded = self.strangers.len() == STRANGERS && self.somebody_waits()?;
            let full = now < self.rests_until || crowded && !self.make_room(now, &mut told);
            if full != self.full {
                self.full = full;
                match full {
                    true => self.events.remove(&self.listener)?,
                    false => self.events.add(&self.listener, 0, Interest::Readable)?,
                }
            }
            if full || self.strangers.len() == STRANGERS {
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
                Err(OsError::OutOfDescriptors { .. }) if self.make_room(now, &mut told) => {}
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
                // Connected units go on meanwhile.
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
        let outcome = match stranger.hear(&self.terms, &self.incarnations, &mut self.known) {
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
                self.incarnations.hold(established.peer.unit, established.peer.incarnation);
                let _ = self.events.remove(&stream); // It was in there.
                told(Visit::Arrival(Box::new(Arrival { stream, addr, established })));
            }
            Err(fault) => {
                if let LinkFault::Peer(error) = &fault {
                    stranger.refuse(error, self.terms.trusted);
                }
                told(Visit::TurnedAway(stranger.addr, fault));
            }
        }
        true
    }

    /// Whether there is a newcomer: nobody gives way to nobody.
    fn somebody_waits(&self) -> Result<bool, OsError> {
        Ok(poll(&mut [PollItem::readable(&self.listener)], Some(Duration::ZERO))? > 0)
    }

    /// How long this one may take where others wait.
    fn granted(&self, stranger: &Stranger) -> Duration {
        if stranger.pending.is_some() {
            self.limits.confirm
        } else {
            self.limits.grace
        }
    }

    /// Drops one for a newcomer. Returns whether there is room.
    fn make_room(&mut self, now: Duration, told: &mut impl FnMut(Visit)) -> bool {
        while let Some(at) = self.gives_way(now) {
            let silent = self.strangers[at].pending.is_none();
            // Its word may have come by now.
            if self.serve_one(at, now, told) {
                return true;
            }
            if silent && self.strangers[at].pending.is_some() {
                continue;
            }
            let stranger = self.strangers.remove(at);
            stranger.refuse(&LinkError::Busy, self.terms.trusted);
            let what = if silent { "the first message" } else { "the proof of the key" };
            let limit_ms = (now - stranger.since).as_millis() as u64;
            told(Visit::TurnedAway(stranger.addr, LinkError::Deadline { what, limit_ms }.into()));
            return true;
        }
        false
    }

    /// Whose place a newcomer gets.
    fn gives_way(&self, now: Duration) -> Option<usize> {
        let strangers = || self.strangers.iter().enumerate();
        let held = |host: u64| self.strangers.iter().filter(|s| host_of(s.addr) == host).count();
        // Only one address can have so many; of its strangers the one that came first.
        let crowd = strangers().map(|(_, s)| host_of(s.addr)).find(|&host| held(host) > SHARE);
        let over = strangers().find(|(_, s)| s.pending.is_none() && Some(host_of(s.addr)) == crowd);
        let late = || strangers().filter(|(_, s)| now >= s.since + self.granted(s));
        let silent = || late().find(|(_, s)| s.pending.is_none());
        let pending = || late().max_by_key(|(at, s)| (held(host_of(s.addr)), usize::MAX - at));
        over.or_else(silent).or_else(pending).map(|(at, _)| at)
    }

    /// Uses the spare descriptor to tell one newcomer that there is none left. Returns whether one more may
    /// wait.
    fn refuse_one(&mut self, told: &mut impl FnMut(Visit)) -> bool {
        self.spare = None;
        let accepted = accept(&self.listener, self.patience);
        let refused = matches!(accepted, Ok(Some(_)));
        if let Ok(Some((stream, addr))) = accepted {
            refuse(&stream, HandshakeRefusal::Busy, self.terms.trusted);
            told(Visit::TurnedAway(addr, LinkError::Busy.into()));
        }
        self.spare = EventFd::new().ok();
        refused && self.spare.is_some()
    }
}

/// Becomes readable when a stranger has said something or a newcomer can come in.
impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl Stranger {
    fn hear(
        &mut self,
        terms: &Terms,
        incarnations: &Incarnations,
        known: &mut Known,
    ) -> Result<Option<Established>, LinkFault> {
        loop {
            let Some(message) = self.inbox.read(&self.stream)? else { return Ok(None) };
            if let Some(pending) = &mut self.pending {
                let established = pending.confirm(message)?;
                // Another life of it may have come in since this one knocked.
                incarnations.check(&established.peer)?;
                return Ok(Some(established));
            }
            let drawn = drawn(message);
            if drawn.is_some_and(|drawn| known.has(drawn)) {
                return Err(LinkError::OutOfTurn { what: "a first message that came before" }.into());
            }
            let pending = Pending::new(terms, message)?;
            drawn.into_iter().for_each(|drawn| known.add(drawn));
            incarnations.check(pending.claims())?;
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
        if let Some(refusal) = HandshakeRefusal::of(error) {
            refuse(&self.stream, refusal, trusted);
        }
    }
}

/// Eight bytes of what is drawn anew for each first message.
fn drawn(first: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*first.get(HEADER..)?.first_chunk()?))
}

/// What one host has of its own: an address, of version 6 the network that is mostly one's.
fn host_of(addr: SocketAddr) -> u64 {
    match addr.ip().to_canonical() {
        IpAddr::V4(ip) => u64::from(u32::from(ip)),
        IpAddr::V6(ip) => (u128::from(ip) >> 64) as u64,
    }
}

fn refuse(stream: &TcpStream, refusal: HandshakeRefusal, trusted: bool) {
    // Whether it can be told does not matter to us.
    let _ = write(stream, &[IoSlice::new(&refusal.encode(Carrier::Stream, trusted))]);
    drain(stream);
}

/// A socket that is closed with bytes unread sends a reset, which takes the refusal away from the reader:
/// take a few first.
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
