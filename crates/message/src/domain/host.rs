//! Start and end on one host: units meet at the lowest of them, partners ask each other for links, deaths are noticed.
//!
//! Every unit listens on an abstract Unix socket, so nothing has to be removed when it ends, however it ends. One thread
//! serves it, and watches the processes of all other units by descriptors: who ends without a word on the
//! [board](super::board) is lost.

mod join;

use join::{ask_to_join, gather};

use super::ask::{Watch, CROWDED};
use super::board::Board;
use super::gather::{ConnId, Join, Members, Refusal};
use super::hosts::Processes;
use crate::handshake::{Bad, Encoded, Incoming, Protocol};
use crate::types::Address;
use crate::MessageError;
use polyduct_os::{
    poll::{poll, EventFd, PollItem},
    process::{user_id, PidFd},
    socket::{Conn, Listener, Sent, MESSAGE_LIMIT},
    OsError,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What the messages begin with.
pub const PROTOCOL: Protocol = Protocol { magic: *b"PDDM", version: 4 };
/// Connections that have said nothing yet; for one more, the oldest is dropped.
const STRANGERS: usize = 256;

/// What a unit asks another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// The lowest unit of the host: to take part in the domain. A descriptor of the process comes with it.
    Join(Join),
    /// A partner: a link. With the question and with the answer comes the bell of the one who sends it, then the
    /// segment of the link from the unit with the lower address, whoever asks.
    Link {
        /// Who asks.
        unit: Address,
    },
    /// A partner: where one of its regions lies.
    Region {
        /// Who asks.
        unit: Address,
        /// The region's number.
        id: u32,
    },
}

/// What it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// All are there. The board comes with it.
    Welcome(Members),
    /// The link stands.
    Linked,
    /// The region's segment comes with it.
    Region,
    /// The region lies in ordinary memory; the segment of its gate comes with it.
    Memory {
        /// Its first byte, in the process of its unit.
        address: u64,
        /// Bytes.
        len: u64,
    },
    /// No.
    Refused(Refusal),
    /// Before the welcome: descriptors of the processes of these units come along, in this order, for one in whose process
    /// namespace they have no number.
    Processes(Vec<Address>),
}

/// What partners hand each other.
#[derive(Debug)]
pub struct Handed {
    /// The bell at which the one who hands it over sleeps.
    pub bell: OwnedFd,
    /// The segment of the link, from the unit with the lower address.
    pub segment: Option<OwnedFd>,
}

impl Handed {
    pub(super) fn from_fds(fds: Vec<OwnedFd>) -> Option<Handed> {
        let mut fds = fds.into_iter();
        let handed = Handed { bell: fds.next()?, segment: fds.next() };
        fds.next().is_none().then_some(handed)
    }

    pub(super) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        [Some(&self.bell), self.segment.as_ref()].into_iter().flatten().map(AsFd::as_fd).collect()
    }
}

/// Where a region lies, as its unit tells a partner.
#[derive(Debug)]
pub enum Whereabouts {
    /// In a segment, to be mapped.
    Segment(OwnedFd),
    /// In ordinary memory of its unit's process.
    Memory {
        /// Its first byte there.
        address: u64,
        /// Bytes.
        len: u64,
        /// The segment of its [gate](crate::link::shm::Gate).
        gate: OwnedFd,
    },
}

/// What the thread tells the domain.
pub trait Events: Send + 'static {
    /// A member asks for a link, and brings its bell, and the segment where that member makes it. Returns this unit's bell,
    /// and the segment where this unit makes it.
    fn linked(&mut self, unit: Address, theirs: Handed) -> Result<Handed, String>;
    /// A member asks where a region of this unit lies.
    fn region(&mut self, id: u32) -> Result<Whereabouts, String>;
    /// A unit is gone: it has left in order, or was lost.
    fn gone(&mut self, unit: Address, left: bool);
    /// The board says that a unit has given up: whoever waits is to look at it.
    fn gave_up(&mut self);
}

/// What a unit says when it joins.
pub struct Who<'a> {
    /// Name of the domain, the same for all its units: 1 to 64 letters, digits, `.`, `_`, `-`.
    pub name: &'a str,
    /// What stands for the domain in the names of its sockets: its name, or what its units drew when they met across hosts.
    pub place: &'a str,
    /// This unit.
    pub unit: Address,
    /// Units of the domain.
    pub units: u32,
    /// Those of them on this host, in order, this one too.
    pub near: &'a [Address],
    /// How long to wait for the others.
    pub timeout: Duration,
    /// Asked now and then: whether to stop waiting.
    pub interrupt: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

/// The abstract socket name of a unit.
pub fn socket_name(domain: &str, unit: Address) -> Vec<u8> {
    format!("polyduct/{}/domain/{domain}/{unit}", user_id()).into_bytes()
}

/// The units of a domain on one host, as this one has joined them: the listener is bound, all are there.
pub struct Joined {
    listener: Listener,
    /// The board.
    pub board: Board,
    /// The processes of all units.
    pub members: Processes,
}

impl Joined {
    /// Joins, and waits until all units of this host have come.
    ///
    /// # Errors
    /// [`MessageError::Refused`] when units disagree or do not come in time; [`MessageError::NameTaken`];
    /// [`MessageError::Timeout`] without the lowest of them; [`MessageError::Interrupted`]; the system's refusals; those of
    /// `watch`.
    pub fn join(who: &Who<'_>, watch: Option<Watch<'_>>) -> Result<Joined, MessageError> {
        let listener = Listener::bind(&socket_name(who.place, who.unit)).map_err(|e| match e {
            OsError::AddrInUse { .. } => taken(who),
            e => e.into(),
        })?;
        match who.near.first() {
            Some(&first) if first != who.unit => ask_to_join(who, watch, first, listener),
            _ => gather(who, watch, listener),
        }
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system's refusal of a descriptor or a thread.
    pub fn serve(self, unit: Address, events: impl Events) -> Result<Host, MessageError> {
        let stop = Arc::new(EventFd::new()?);
        let stopped = stop.clone();
        let Joined { listener, board, members } = self;
        let (strangers, late) = (BTreeMap::new(), VecDeque::new());
        let server = Server { listener, me: unit, board, members, strangers, next: 1, late, events };
        let thread = std::thread::Builder::new()
            .name("polyduct-host".into())
            .spawn(move || server.run(&stopped))
            .map_err(|e| OsError::System {
                op: "spawn",
                what: "the domain's thread".into(),
                errno: polyduct_os::Errno::from_io_error(&e).unwrap_or(polyduct_os::Errno::AGAIN),
            })?;
        Ok(Host { stop, thread: Some(thread) })
    }
}

/// Whoever has the name of this unit's socket: another process of this user is the unit; anybody else only
/// has the name.
fn taken(who: &Who<'_>) -> MessageError {
    let conn = Conn::connect(&socket_name(who.place, who.unit));
    match conn.and_then(|conn| conn.stranger()) {
        Ok(Some(found)) => MessageError::Stranger { unit: who.unit, expected: user_id(), found },
        _ => MessageError::NameTaken { domain: who.name.to_owned(), unit: who.unit },
    }
}

/// The running thread; ends when dropped.
pub struct Host {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A connection that is served, and who is at its other end.
struct Peer {
    conn: Conn,
    pid: u32,
    /// Its process, where it has no number here.
    process: Option<PidFd>,
}

/// Accepts whoever waits at the listener and is of this user.
fn accept(listener: &Listener, unit: Address, peers: &mut BTreeMap<ConnId, Peer>, next: &mut ConnId) {
    // A failing accept (no descriptors left) turns that one away; the others go on.
    let refuse = |conn: &Conn, error: &OsError| {
        answer(conn, &Answer::Refused(Refusal::System { unit, error: error.to_string() }), &[]);
    };
    while let Ok(Some(conn)) = listener.accept_or(refuse) {
        match (conn.stranger(), conn.peer()) {
            (Ok(None), Ok(cred)) => {
                peers.insert(*next, Peer { conn, pid: cred.pid, process: None });
                *next += 1;
            }
            (_, cred) => tracing::warn!(?cred, "turned a connection away"),
        }
    }
}

/// Sends an answer to one who waits for nothing else; whoever does not take it is not waited for.
fn answer(conn: &Conn, answer: &Answer, fds: &[BorrowedFd<'_>]) {
    let sent = PROTOCOL.encode(answer).and_then(|m| m.send(conn, fds));
    if sent != Ok(Sent::Done) {
        tracing::warn!("an answer was not taken");
    }
}

fn bad(bad: Bad) -> Refusal {
    match bad {
        Bad::Malformed | Bad::NoDescriptor => Refusal::Malformed,
        Bad::Version(found) => Refusal::Version { expected: PROTOCOL.version.into(), found: found.into() },
    }
}

struct Server<E> {
    listener: Listener,
    me: Address,
    board: Board,
    members: Processes,
    strangers: BTreeMap<ConnId, Peer>,
    next: ConnId,
    /// Answers whose descriptors too many others were on their way beside.
    late: VecDeque<Late>,
    events: E,
}

/// An answer that is sent again, and what comes with it.
struct Late {
    conn: Conn,
    message: Encoded,
    fds: Vec<OwnedFd>,
}

impl<E: Events> Server<E> {
    fn run(mut self, stop: &EventFd) {
        let mut others = self.watched();
        let mut buffer = vec![0; MESSAGE_LIMIT];
        loop {
            let ids: Vec<ConnId> = self.strangers.keys().copied().collect();
            let mut items = vec![PollItem::readable(stop), PollItem::readable(&self.listener)];
            items.extend(others.iter().map(|(_, p)| PollItem::readable(p)));
            items.extend(self.strangers.values().map(|p| PollItem::readable(&p.conn)));
            // A failing poll (no memory) ends the watch: deaths are then noticed by deadlines only.
            let again = (!self.late.is_empty()).then_some(CROWDED);
            if poll(&mut items, again).is_err() || items[0].is_ready() {
                return;
            }
            let ready: Vec<bool> = items[1..].iter().map(PollItem::is_ready).collect();
            let (knocked, gone) = (ready[0], &ready[1..=others.len()]);
            let asked = ids.iter().zip(&ready[1 + others.len()..]).filter(|(_, ready)| **ready);
            self.late.retain(|late| {
                let fds: Vec<_> = late.fds.iter().map(AsFd::as_fd).collect();
                matches!(late.message.send(&late.conn, &fds), Err(OsError::TooManyInFlight { .. }))
            });
            for (&id, _) in asked {
                self.serve(id, &mut buffer);
            }
            if knocked {
                accept(&self.listener, self.me, &mut self.strangers, &mut self.next);
                while self.strangers.len() > STRANGERS {
                    self.strangers.pop_first();
                }
                if self.board.first_to_give_up().is_some() {
                    self.events.gave_up();
                }
            }
            let mut gone = gone.iter();
            let (events, board) = (&mut self.events, &self.board);
            others.retain(|(unit, _)| {
                let ended = gone.next().copied().unwrap_or(false);
                if ended {
                    events.gone(*unit, board.has_left(*unit));
                }
                !ended
            });
        }
    }

    /// Descriptors of the processes of all other units of this host. One process may be several units (threads, tests).
    fn watched(&mut self) -> Vec<(Address, PidFd)> {
        let mut others = Vec::new();
        for unit in self.members.others().filter(|&unit| unit != self.me) {
            let Some(process) = self.members.watch(unit) else { continue };
            match process {
                Ok(process) => others.push((unit, process)),
                Err(e) if e.is_peer_gone() => self.events.gone(unit, self.board.has_left(unit)),
                // No descriptor to watch it with: what it owes is waited for as long as the deadline says.
                Err(error) => tracing::warn!(unit, %error, "cannot watch"),
            }
        }
        others
    }

    /// Answers with descriptors: later, where too many are on their way.
    fn hand(&mut self, conn: Conn, answer: &Answer, fds: &[BorrowedFd<'_>]) {
        let sent = PROTOCOL.encode(answer).map(|m| (m.send(&conn, fds), m));
        match sent {
            Ok((Ok(Sent::Done), _)) => {}
            Ok((Err(OsError::TooManyInFlight { .. }), message)) if self.late.len() < STRANGERS => {
                let fds: Result<Vec<_>, _> = fds.iter().map(BorrowedFd::try_clone_to_owned).collect();
                match fds {
                    Ok(fds) => self.late.push_back(Late { conn, message, fds }),
                    Err(error) => tracing::warn!(%error, "an answer cannot be kept"),
                }
            }
            _ => tracing::warn!("an answer was not taken"),
        }
    }

    /// Looks at what a connection says: a question, answered at once.
    fn serve(&mut self, id: ConnId, buffer: &mut [u8]) {
        let Some(Peer { conn, pid, .. }) = self.strangers.remove(&id) else { return };
        let asked = PROTOCOL.receive::<Ask>(&conn, buffer);
        let refuse = |why| answer(&conn, &Answer::Refused(why), &[]);
        match asked {
            Incoming::Message(Ask::Link { unit }, fds) => {
                let member = self.members.may_be(unit, pid) && unit != self.me;
                // The unit with the lower address makes the segment.
                let theirs =
                    Handed::from_fds(fds).filter(|h| member && h.segment.is_some() == (unit < self.me));
                let Some(theirs) = theirs else { return refuse(Refusal::NotAMember { unit, pid }) };
                match self.events.linked(unit, theirs) {
                    Ok(mine) => self.hand(conn, &Answer::Linked, &mine.fds()),
                    Err(error) => refuse(Refusal::System { unit: self.me, error }),
                }
            }
            Incoming::Message(Ask::Region { unit, id }, _) => {
                if !self.members.may_be(unit, pid) {
                    return refuse(Refusal::NotAMember { unit, pid });
                }
                match self.events.region(id) {
                    Ok(Whereabouts::Segment(fd)) => self.hand(conn, &Answer::Region, &[fd.as_fd()]),
                    Ok(Whereabouts::Memory { address, len, gate }) => {
                        self.hand(conn, &Answer::Memory { address, len }, &[gate.as_fd()]);
                    }
                    Err(error) => refuse(Refusal::System { unit: self.me, error }),
                }
            }
            // Who has left wants the next domain of this name: not this one, which is about to close.
            Incoming::Message(Ask::Join(join), _)
                if self.members.is_known(join.unit) && self.board.is_leaving(join.unit) => {}
            Incoming::Message(Ask::Join(join), _) => {
                let there = self.members.pid(join.unit).unwrap_or(0);
                refuse(Refusal::Duplicate { unit: join.unit, pid: there });
            }
            Incoming::Nothing => {
                self.strangers.insert(id, Peer { conn, pid, process: None });
            }
            Incoming::Closed => {}
            Incoming::Bad(b) => refuse(bad(b)),
        }
    }
}
