//! Start and end on one host: units meet at the lowest of them, partners ask each other for links, deaths are
//! noticed.
//!
//! Every unit listens on an abstract Unix socket, so nothing has to be removed when it ends, however it ends.
//! One thread serves it, and watches the processes of all other units by descriptors: a unit that ends
//! without a word on the [board](super::board) is lost.

mod join;

use join::{ask_to_join, gather};

use super::ask::Watch;
use super::board::Board;
use super::host_map::Processes;
use super::process::{Members, Process};
use crate::meeting::{ConnId, Connections, Heard, JoinRefusal, Shared, Unit};
use crate::types::Address;
use crate::MessageError;
use polyduct_os::{
    poll::{EventFd, PollItem},
    process::{user_id, PidFd},
    socket::{Conn, Listener},
    OsError,
};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What the messages begin with.
pub use crate::handshake::DOMAIN as PROTOCOL;

/// What a unit says first to the lowest of its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Its address.
    pub unit: Address,
    /// Units of the domain, as it knows them.
    pub units: u32,
    /// Its process.
    pub process: Process,
}

/// What a unit asks another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// The lowest unit of the host: to take part in the domain. A descriptor of the process comes with it.
    Join(Join),
    /// A partner: a link. With the question and with the answer comes the bell of the one who sends it, then
    /// the segment of the link from the unit with the lower address, whoever asks.
    Link {
        /// The unit that asks.
        unit: Address,
    },
    /// A partner: where one of its regions lies.
    Region {
        /// The unit that asks.
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
    Refused(JoinRefusal),
    /// Before the welcome: descriptors of the processes of these units come along, in this order, for one in
    /// whose process namespace they have no number.
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
    /// A member asks for a link, and brings its bell, and the segment where that member makes it. Returns
    /// this unit's bell, and the segment where this unit makes it.
    fn linked(&mut self, unit: Address, theirs: Handed) -> Result<Handed, String>;
    /// A member asks where a region of this unit lies.
    fn region(&mut self, id: u32) -> Result<Whereabouts, String>;
    /// A unit is gone: it has left in order, or was lost.
    fn gone(&mut self, unit: Address, left: bool);
    /// The board says that a unit has given up: threads that wait are to look at it.
    fn gave_up(&mut self);
}

/// What a unit says when it joins.
pub struct Who<'a> {
    /// Name of the domain, the same for all its units: 1 to 64 letters, digits, `.`, `_`, `-`.
    pub name: &'a str,
    /// What stands for the domain in the names of its sockets: its name, or what its units drew when they met
    /// across hosts.
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

/// The units of a domain on one host, as this one has joined them: it listens, all are there.
pub struct Joined {
    connections: Connections,
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
    /// [`MessageError::Timeout`] without the lowest of them; [`MessageError::Interrupted`]; the system's
    /// refusals; those of `watch`.
    pub fn join(who: &Who<'_>, watch: Option<Watch<'_>>) -> Result<Joined, MessageError> {
        let listener = Listener::bind(&socket_name(who.place, who.unit)).map_err(|e| match e {
            OsError::AddrInUse { .. } => taken(who),
            e => e.into(),
        })?;
        let mut connections = Connections::new(listener, PROTOCOL);
        let (board, members) = match who.near.first() {
            Some(&first) if first != who.unit => ask_to_join(who, watch, first)?,
            _ => gather(who, watch, &mut connections)?,
        };
        Ok(Joined { connections, board, members })
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system's refusal of a descriptor or a thread.
    pub fn serve(self, unit: Address, events: impl Events) -> Result<Host, MessageError> {
        let stop = Arc::new(EventFd::new()?);
        let stopped = stop.clone();
        let Joined { connections, board, members } = self;
        let server = Server { connections, me: unit, board, members, events };
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

/// The process that has the name of this unit's socket: one of this user is the unit; any other only
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

/// What somebody is told for whom no descriptor is left.
fn refusal(unit: Address) -> impl Fn(&OsError) -> Answer {
    move |error| Answer::Refused(JoinRefusal::System { unit: Unit(unit), error: error.to_string() })
}

struct Server<E> {
    connections: Connections,
    me: Address,
    board: Board,
    members: Processes,
    events: E,
}

impl<E: Events> Server<E> {
    fn run(mut self, stop: &EventFd) {
        let mut others = self.watched();
        loop {
            let mut items = vec![PollItem::readable(stop)];
            items.extend(others.iter().map(|(_, process)| PollItem::readable(process)));
            // A failing poll (no memory) ends the watch: deaths are then noticed by deadlines only.
            let Ok(ready) = self.connections.wait(items, None) else { return };
            if ready.others[0] {
                return;
            }
            for id in ready.conns {
                self.serve(id);
            }
            if ready.knocked {
                while let Some(id) = self.connections.accept(refusal(self.me)) {
                    self.serve(id);
                }
                if self.board.first_to_give_up().is_some() {
                    self.events.gave_up();
                }
            }
            let mut ended = ready.others[1..].iter();
            let (events, board) = (&mut self.events, &self.board);
            others.retain(|(unit, _)| {
                let ended = ended.next().copied().unwrap_or(false);
                if ended {
                    events.gone(*unit, board.has_left(*unit));
                }
                !ended
            });
        }
    }

    /// Descriptors of the processes of all other units of this host. One process may be several units
    /// (threads, tests).
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

    /// Looks at what a connection says: a question, answered at once.
    fn serve(&mut self, id: ConnId) {
        let (answer, fds) = match self.connections.hear::<Ask>(id) {
            Heard::Message(ask, fds) => match self.answer(self.connections.pid(id), ask, fds) {
                Some(answer) => answer,
                None => return self.connections.drop(id),
            },
            Heard::Nothing => return,
            Heard::Gone => return self.connections.drop(id),
            Heard::Bad(bad) => (Answer::Refused(bad.refusal(Unit(self.me))), Vec::new()),
        };
        self.connections.send(id, &answer, fds);
        self.connections.finish(id);
    }

    /// The answer to the process `pid`, and what goes along.
    fn answer(&mut self, pid: u32, ask: Ask, fds: Vec<OwnedFd>) -> Option<(Answer, Vec<Shared>)> {
        let not_a_member = |unit| JoinRefusal::NotAMember { unit: Unit(unit), pid };
        let here = |error| JoinRefusal::System { unit: Unit(self.me), error };
        let answer = match ask {
            Ask::Link { unit } => {
                let member = self.members.may_be(unit, pid) && unit != self.me;
                // The unit with the lower address makes the segment.
                let theirs =
                    Handed::from_fds(fds).filter(|h| member && h.segment.is_some() == (unit < self.me));
                let linked = theirs.ok_or_else(|| not_a_member(unit));
                linked.and_then(|theirs| self.events.linked(unit, theirs).map_err(here)).map(|mine| {
                    let fds = [Some(mine.bell), mine.segment].into_iter().flatten();
                    (Answer::Linked, fds.map(Shared::new).collect())
                })
            }
            Ask::Region { unit, .. } if !self.members.may_be(unit, pid) => Err(not_a_member(unit)),
            Ask::Region { id, .. } => self.events.region(id).map_err(here).map(|region| match region {
                Whereabouts::Segment(fd) => (Answer::Region, vec![Shared::new(fd)]),
                Whereabouts::Memory { address, len, gate } => {
                    (Answer::Memory { address, len }, vec![Shared::new(gate)])
                }
            }),
            // A unit that has left wants the next domain of this name: not this one, which is about to close.
            Ask::Join(join) if self.members.is_known(join.unit) && self.board.is_leaving(join.unit) => {
                return None
            }
            Ask::Join(join) => {
                let there = self.members.pid(join.unit).unwrap_or(0);
                Err(JoinRefusal::duplicate(Unit(join.unit), there))
            }
        };
        Some(answer.unwrap_or_else(|why| (Answer::Refused(why), Vec::new())))
    }
}
