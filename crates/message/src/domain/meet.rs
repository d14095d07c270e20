//! Brings the units of a domain together across hosts: all come to the address where unit 0 listens.
//!
//! Every unit introduces itself to unit 0, over a link on which both have proved that they know the job's
//! key. When all have, unit 0 tells everybody where everybody listens and who shares a host, and has no
//! further part: partners connect when they first need to.

use super::host_map::{beside, HostId, Hosts};
use super::net::early_events;
use super::options::Options;
use super::room::Buffer;
use super::system;
use crate::engine::{Message, Send};
use crate::handshake::{self, unpack};
use crate::hash::fnv1a;
use crate::link::key::{self, JobKey};
use crate::link::net::config::{NetConfig, NetEvent, Transport, Waker};
use crate::link::net::endpoint::NetEndpoint;
use crate::link::net::socket::way_to;
use crate::link::net::LinkFault;
use crate::meeting::{Gathering, JoinRefusal, Member, GRACE, OWN, SLICE};
use crate::types::{Address, ChannelId, Head, Order, Priority, MAX_CHANNELS};
use crate::{LinkError, MessageError};
use bytes::Bytes;
use polyduct_os::clock;
use serde::{de::DeserializeOwned, Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// The version of meetings, as it stands in the first word of each message.
const VERSION: u32 = handshake::VERSION as u32;
/// How long who has lost unit 0 looks for more of that before it comes to the next.
const AGAIN: Duration = Duration::from_millis(5);
/// How long unit 0 may say that another process is this unit: it may see a moment later that that has left.
/// By datagrams it has been asked for as long by then.
const TAKEN: Duration = Duration::from_secs(1);

/// How units of a domain on several hosts reach each other.
#[derive(Clone, Debug)]
pub struct Network {
    /// Where unit 0 listens: the same for all units.
    pub root: SocketAddr,
    /// What all units prove to know.
    pub key: JobKey,
    /// What carries the links. All units have the same.
    pub transport: Transport,
    /// The network is declared trusted: the key is proved, but what follows is not encrypted. All units say
    /// the same.
    pub trusted: bool,
    /// Where this unit listens. `None`: on the interface that leads to unit 0, at any free port.
    pub listen: Option<SocketAddr>,
    /// A listener that this unit bound before, for TCP, in the place of `listen`: whoever must know a free
    /// port before the units meet.
    pub bound: Option<Arc<TcpListener>>,
    /// Units that say different numbers here use the network between them, though they be on one host: for
    /// tests. Equal numbers mean nothing. Where the setting `near` is 0, a unit uses the network to all
    /// others.
    pub apart: u64,
}

impl Network {
    /// TCP, encrypted, to a unit 0 that listens at `root`.
    pub fn new(root: SocketAddr, key: JobKey) -> Network {
        Network { root, key, transport: Transport::Tcp, trusted: false, listen: None, bound: None, apart: 0 }
    }

    /// Settings of the endpoint of a unit.
    ///
    /// # Errors
    /// No way leads to unit 0.
    pub(super) fn endpoint(&self, options: &Options, waker: Waker) -> Result<NetConfig, MessageError> {
        let listen = match (options.unit, self.listen) {
            (0, None) => self.root,
            (_, Some(listen)) => listen,
            (_, None) => SocketAddr::new(self.way_to_root()?, 0),
        };
        // Its units tell different domains of one job apart by their name.
        let domain = fnv1a(options.name.bytes());
        let key = self.key.clone();
        let mut config = NetConfig::new(options.unit, options.units, domain, key, listen, self.transport);
        (config.trusted, config.waker) = (self.trusted, Some(waker));
        config.bound = self.bound.clone();
        config.session.channels = MAX_CHANNELS;
        let size = |name| usize::try_from(options.config.bytes(name)).unwrap_or(usize::MAX);
        config.session.max_payload = options.config.bytes("message");
        config.session.queue_bytes = options.config.bytes("queue");
        config.session.first_fragment = size("far_first_fragment");
        config.session.max_fragment = match self.transport {
            Transport::Tcp => size("tcp_max_fragment"),
            Transport::Udp => size("udp_max_fragment"),
        };
        config.session.inline = size("inline");
        config.session.silence = options.config.time("silence");
        config.patience.dead_after = config.session.silence;
        config.datagram_bytes = size("datagram");
        // A second process that says it is a unit of this domain must not disturb those at work.
        config.replaces = false;
        Ok(config)
    }

    /// The address of this host that unit 0 sees.
    fn way_to_root(&self) -> Result<IpAddr, MessageError> {
        way_to(self.root).map_err(|e| {
            MessageError::System(polyduct_os::OsError::System {
                op: "connect",
                what: format!("unit 0 at {}", self.root),
                errno: polyduct_os::Errno::from_io_error(&e).unwrap_or(polyduct_os::Errno::HOSTUNREACH),
            })
        })
    }
}

/// What a unit says to unit 0 first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Introduction {
    units: u32,
    listens_at: SocketAddr,
    /// Where it runs, if it knows and wants others to share memory with it.
    host: Option<HostId>,
}

/// Where everybody is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Book {
    listens_at: Vec<SocketAddr>,
    /// For each unit the lowest that shares its host.
    beside: Vec<Address>,
    /// Drawn by unit 0: names the sockets at which the units of a host find each other, so that no other
    /// domain has them.
    place: u64,
}

/// What unit 0 answers when all have come, or will not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    Book(Book),
    Refused(JoinRefusal),
}

/// What a unit knows when all have met.
pub(super) struct Met {
    pub hosts: Hosts,
    /// What stands for the domain in the names of the near sockets.
    pub place: String,
    /// What came meanwhile for others.
    pub early: Vec<NetEvent<Buffer>>,
}

/// Waits until all units have met; the endpoint knows then where each listens.
///
/// # Errors
/// [`MessageError::Refused`] when units disagree or do not come within the open timeout;
/// [`MessageError::NameTaken`]; [`MessageError::TurnedAway`]; [`MessageError::Timeout`] without unit 0;
/// [`MessageError::Interrupted`]; what the endpoint fails with.
pub(super) fn meet(
    options: &Options,
    network: &Network,
    endpoint: &NetEndpoint<Buffer>,
) -> Result<Met, MessageError> {
    let wanted = options.config.bytes("near") != 0;
    let host = if wanted { HostId::of_this_process(network.apart) } else { None };
    let start = clock::now();
    let mut meeting =
        Meeting { options, network, endpoint, start, last: None, taken: None, early: Vec::new() };
    let book = match options.unit {
        0 => meeting.gather(host)?,
        _ => meeting.introduce(host)?,
    };
    let Book { listens_at, beside, place } = book;
    let hosts = Hosts::read(options.unit, beside).ok_or_else(unreadable)?;
    for (unit, at) in (0..).zip(listens_at) {
        if unit != options.unit {
            endpoint.introduce(unit, at);
        }
    }
    // No name of a domain begins so.
    Ok(Met { hosts, place: format!("@{place:016x}"), early: meeting.early })
}

fn unreadable() -> MessageError {
    let error = LinkError::OutOfTurn { what: "an unreadable answer" };
    MessageError::BadPeer { unit: 0, error }
}

struct Meeting<'a> {
    options: &'a Options,
    network: &'a Network,
    endpoint: &'a NetEndpoint<Buffer>,
    start: Duration,
    /// Why the last one was turned away, or the last attempt failed.
    last: Option<String>,
    /// Since when unit 0 says that another process is this unit.
    taken: Option<Duration>,
    /// What came from units that knew earlier that all are there.
    early: Vec<NetEvent<Buffer>>,
}

impl Meeting<'_> {
    /// Unit 0 waits for the others.
    fn gather(&mut self, host: Option<HostId>) -> Result<Book, MessageError> {
        let units = self.options.units;
        let own = Member { conn: OWN, pid: 0, terms: (self.endpoint.local_addr(), host) };
        let mut gathering = Gathering::new(units, 0..units, own);
        while !gathering.is_complete() {
            let event = self.next(Duration::ZERO)?;
            self.last.take().iter().for_each(|why| gathering.turned_away(why));
            let Some(event) = event else {
                let why = gathering.handle_deadline((clock::now() - self.start).as_millis() as u64);
                for (unit, _) in gathering.terms().skip(1) {
                    // A unit that cannot be told waits a moment longer.
                    let _ = self.say(unit, &Answer::Refused(why.clone()));
                }
                return Err(self.refused(why));
            };
            match event {
                NetEvent::Message { from, message } if message.head.handler == system::MEET => {
                    let joined = introduced(&message).and_then(|Introduction { units, listens_at, host }| {
                        // Its number is that of its link, which has proved the key.
                        let member = Member { conn: from.into(), pid: 0, terms: (listens_at, host) };
                        // Of two introductions the later counts.
                        gathering.handle_hangup(from.into());
                        gathering.handle_join((from, units), member, || Ok(()))
                    });
                    if let Err(why) = joined {
                        self.last = Some(why.to_string());
                        self.say(from, &Answer::Refused(why))?;
                    }
                }
                NetEvent::Lost { unit, .. } | NetEvent::Left { unit } => gathering.handle_hangup(unit.into()),
                NetEvent::TurnedAway { from, fault } => self.last = Some(format!("{from}: {fault}")),
                other => self.keep(other)?,
            }
        }
        let (listens_at, hosts): (Vec<_>, Vec<_>) = gathering.terms().map(|(_, terms)| *terms).unzip();
        let mut place = [0; 8];
        key::random(&mut place)?;
        let book = Book { listens_at, beside: beside(&hosts), place: u64::from_le_bytes(place) };
        // Before anybody knows, and can leave and come again.
        self.endpoint.complete();
        for unit in 1..units {
            self.say(unit, &Answer::Book(book.clone()))?;
        }
        Ok(book)
    }

    /// Any other unit introduces itself and waits for the answer. A unit 0 that goes without one was that of
    /// an earlier domain, or is started anew: the next is waited for.
    fn introduce(&mut self, host: Option<HostId>) -> Result<Book, MessageError> {
        self.endpoint.introduce(0, self.network.root);
        let units = self.options.units;
        let introduction = Introduction { units, listens_at: self.endpoint.local_addr(), host };
        loop {
            let met = self.say(0, &introduction).and_then(|()| self.hear());
            match met {
                Err(
                    error @ (MessageError::PeerLost { unit: 0, .. } | MessageError::PeerLeft { unit: 0 }),
                ) => {
                    self.last = Some(error.to_string());
                    // What came belongs to a domain that is no more.
                    self.early.clear();
                    self.endpoint.forget(0);
                    // The loss may be known at once, and again and again, until its event was polled.
                    drop(self.endpoint.next_event(Some(AGAIN))?);
                    self.check_interrupt()?;
                    if self.left(Duration::ZERO).is_zero() {
                        return Err(self.over("all other units"));
                    }
                }
                met => return met,
            }
        }
    }

    /// Waits for unit 0's answer.
    fn hear(&mut self) -> Result<Book, MessageError> {
        let units = self.options.units;
        loop {
            let Some(event) = self.next(GRACE)? else { return Err(self.over("all other units")) };
            match event {
                NetEvent::Message { from: 0, message } if message.head.handler == system::MEET => {
                    let whole =
                        |book: &Book| [book.listens_at.len(), book.beside.len()] == [units as usize; 2];
                    return match (read(&message.payload), other_version(&message.head)) {
                        // Refusals read alike in all versions.
                        (Some(Answer::Refused(why)), _) => Err(self.refused(why)),
                        (_, Some(expected)) => {
                            Err(self.refused(JoinRefusal::Version { expected, found: VERSION }))
                        }
                        (Some(Answer::Book(book)), None) if whole(&book) => Ok(book),
                        _ => Err(unreadable()),
                    };
                }
                NetEvent::Lost { unit: 0, error } => return Err(self.lost(error)),
                NetEvent::Left { unit: 0 } => return Err(MessageError::PeerLeft { unit: 0 }),
                other => self.keep(other)?,
            }
        }
    }

    /// Two lives of this unit may have knocked at once: the other one was let in.
    fn lost(&self, error: MessageError) -> MessageError {
        match error {
            MessageError::BadPeer { error: LinkError::Taken { unit }, .. } => {
                MessageError::NameTaken { domain: self.domain(), unit }
            }
            other => other,
        }
    }

    /// The next event within the open timeout and `grace`; `None` when that is over.
    fn next(&self, grace: Duration) -> Result<Option<NetEvent<Buffer>>, MessageError> {
        loop {
            self.check_interrupt()?;
            let left = self.left(grace);
            if let Some(event) = self.endpoint.next_event(Some(left.min(SLICE)))? {
                return Ok(Some(event));
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    fn check_interrupt(&self) -> Result<(), MessageError> {
        if self.options.is_interrupted() {
            Err(MessageError::Interrupted)
        } else {
            Ok(())
        }
    }

    fn left(&self, grace: Duration) -> Duration {
        self.options.open_timeout.saturating_add(grace).saturating_sub(clock::now() - self.start)
    }

    /// Sends once the unit is connected.
    fn say(&mut self, to: Address, what: &impl Serialize) -> Result<(), MessageError> {
        let payload = Bytes::from(postcard::to_stdvec(what).unwrap_or_default());
        loop {
            let head = Head { handler: system::MEET, args: [VERSION, 0, 0, 0] };
            let message =
                Send { priority: Priority::High, order: Order::Ordered, head, payload: payload.clone() };
            match self.endpoint.send(to, ChannelId(super::peer::LIBRARY_CHANNEL), message) {
                Ok(_) => return Ok(()),
                Err(MessageError::Full { .. }) => {}
                Err(e) => return Err(e),
            }
            self.check_interrupt()?;
            if self.left(Duration::ZERO).is_zero() {
                return Err(self.nobody(to));
            }
            // Nothing but its connection, or the end of the attempt, is of use now.
            match self.endpoint.next_event(Some(SLICE))? {
                Some(NetEvent::Lost { unit, error }) if unit == to => return Err(self.lost(error)),
                Some(NetEvent::Left { unit }) if unit == to => return Err(MessageError::PeerLeft { unit }),
                Some(other) => self.keep(other)?,
                None => {}
            }
        }
    }

    /// Keeps what is for the domain.
    ///
    /// # Errors
    /// Unit 0 cannot be reached, for a reason that time does not change. That it does not listen yet is none.
    /// More than is kept.
    fn keep(&mut self, event: NetEvent<Buffer>) -> Result<(), MessageError> {
        match event {
            NetEvent::Message { .. } | NetEvent::Left { .. } | NetEvent::Lost { .. } => {
                let limit = early_events(self.options.units);
                if self.early.len() >= limit {
                    let (what, found) = ("messages of others before all have met", limit as u64 + 1);
                    return Err(MessageError::Limit { what, limit: limit as u64, found });
                }
                self.early.push(event)
            }
            NetEvent::Unreachable { unit: 0, fault: LinkFault::Peer(LinkError::Taken { unit }) }
                if self.network.transport == Transport::Udp || self.is_taken_for_good() =>
            {
                return Err(MessageError::NameTaken { domain: self.domain(), unit });
            }
            NetEvent::Unreachable { unit: 0, fault: LinkFault::Peer(error) } if is_for_good(&error) => {
                return Err(MessageError::TurnedAway { unit: 0, at: self.network.root, error });
            }
            NetEvent::Unreachable { unit: 0, fault } => self.last = Some(fault.to_string()),
            NetEvent::Unreachable { unit, fault } => self.last = Some(format!("unit {unit}: {fault}")),
            _ => {}
        }
        Ok(())
    }

    /// Whether unit 0 has said for long enough that another process is this unit.
    fn is_taken_for_good(&mut self) -> bool {
        let now = clock::now();
        now >= *self.taken.get_or_insert(now) + TAKEN
    }

    /// The domain as the user knows it: one that is named by its port alone was given an address, not a name.
    fn domain(&self) -> String {
        let root = self.network.root;
        match self.options.name == format!("port-{}", root.port()) {
            true => format!("at {root}"),
            false => self.options.name.clone(),
        }
    }

    fn refused(&self, reason: JoinRefusal) -> MessageError {
        MessageError::refused(&self.domain(), reason)
    }

    /// A unit was not reached in time.
    fn nobody(&self, to: Address) -> MessageError {
        if to != 0 {
            return self.over(&format!("unit {to} to listen"));
        }
        let root = self.network.root;
        // By datagrams a refusal proves nothing until the attempt is over, but it is the best reason there
        // is.
        let why = self.endpoint.refused(to).map(|fault| fault.to_string()).or_else(|| self.last.clone());
        let silent = || "; nothing comes back from there: is it blocked?".to_owned();
        let why = why.map_or_else(silent, |why| format!("; the last attempt failed: {why}"));
        self.over(&format!("unit 0 to listen at {root}{why}"))
    }

    fn over(&self, what: &str) -> MessageError {
        MessageError::Timeout { what: what.to_owned(), waited: clock::now() - self.start }
    }
}

/// What a unit says of itself.
fn introduced(message: &Message<Buffer>) -> Result<Introduction, JoinRefusal> {
    match other_version(&message.head) {
        Some(found) => Err(JoinRefusal::Version { expected: VERSION, found }),
        None => read(&message.payload).ok_or(JoinRefusal::Malformed),
    }
}

/// Whether waiting is of no use: the two do not belong together, whenever they come.
fn is_for_good(error: &LinkError) -> bool {
    use LinkError::{Trust, Unauthentic, Version, WrongDomain};
    matches!(error, Unauthentic | Trust { .. } | WrongDomain | Version { .. })
}

/// The version that the other unit speaks, where it is another.
fn other_version(head: &Head) -> Option<u32> {
    Some(head.args[0]).filter(|&found| found != VERSION)
}

fn read<T: DeserializeOwned>(payload: &Option<Buffer>) -> Option<T> {
    unpack(payload.as_ref()?).ok()
}
