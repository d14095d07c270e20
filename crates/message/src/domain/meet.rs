//! How the units of a domain meet across hosts: all at the address where unit 0 listens.
//!
//! Every unit introduces itself to unit 0, over a link on which both have proved that they know the job's key. When all have,
//! unit 0 tells everybody where everybody listens, and has no further part: partners connect when they first need to.

use super::gather::Refusal;
use super::options::Options;
use super::system;
use crate::engine::Send;
use crate::link::key::JobKey;
use crate::link::net::config::{NetConfig, NetEvent, Transport, Waker};
use crate::link::net::endpoint::NetEndpoint;
use crate::types::{Address, ChannelId, Head, Order, Priority, MAX_CHANNELS};
use crate::MessageError;
use bytes::Bytes;
use polyduct_os::clock;
use serde::{de::DeserializeOwned, Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// How often a wait looks for an interrupt.
const SLICE: Duration = Duration::from_millis(50);
/// How much longer than unit 0 the others wait for its word on who is missing.
const GRACE: Duration = Duration::from_millis(500);

/// How units of a domain on several hosts reach each other.
#[derive(Clone, Debug)]
pub struct Network {
    /// Where unit 0 listens: the same for all units.
    pub root: SocketAddr,
    /// What all units prove to know.
    pub key: JobKey,
    /// What carries the links. All units have the same.
    pub transport: Transport,
    /// The network is declared trusted: the key is proved, but what follows is not encrypted. All units say the same.
    pub trusted: bool,
    /// Where this unit listens. `None`: on the interface that leads to unit 0, at any free port.
    pub listen: Option<SocketAddr>,
    /// A listener that this unit bound before, for TCP, in the place of `listen`: whoever must know a free port before the
    /// units meet.
    pub bound: Option<Arc<TcpListener>>,
}

impl Network {
    /// TCP, encrypted, to a unit 0 that listens at `root`.
    pub fn new(root: SocketAddr, key: JobKey) -> Network {
        Network { root, key, transport: Transport::Tcp, trusted: false, listen: None, bound: None }
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
        let domain = domain_number(&options.name);
        let key = self.key.clone();
        let mut config = NetConfig::new(options.unit, options.units, domain, key, listen, self.transport);
        (config.trusted, config.waker) = (self.trusted, Some(waker));
        config.bound = self.bound.clone();
        config.session.channels = MAX_CHANNELS;
        config.session.max_payload = options.config.bytes("message");
        Ok(config)
    }

    /// The address of this host that unit 0 sees.
    fn way_to_root(&self) -> Result<IpAddr, MessageError> {
        let any: IpAddr = match self.root.is_ipv4() {
            true => Ipv4Addr::UNSPECIFIED.into(),
            false => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Connecting a datagram socket sends nothing; it only asks for the way.
        let way = UdpSocket::bind((any, 0)).and_then(|s| s.connect(self.root).and_then(|()| s.local_addr()));
        way.map(|at| at.ip()).map_err(|e| {
            MessageError::System(polyduct_os::OsError::System {
                op: "connect",
                what: format!("unit 0 at {}", self.root),
                errno: polyduct_os::Errno::from_io_error(&e).unwrap_or(polyduct_os::Errno::HOSTUNREACH),
            })
        })
    }
}

/// FNV-1a, 64 bits: spreads names of domains over numbers.
fn domain_number(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// What a unit says to unit 0 first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Introduction {
    units: u32,
    listens_at: SocketAddr,
}

/// What unit 0 answers when all have come, or will not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    Book(Vec<SocketAddr>),
    Refused(Refusal),
}

/// Waits until all units have met; the endpoint knows then where each listens. Returns what came meanwhile for others.
///
/// # Errors
/// [`MessageError::Refused`] when units disagree or do not come within the open timeout; [`MessageError::Timeout`] without
/// unit 0; [`MessageError::Interrupted`]; what the endpoint fails with.
pub(super) fn meet(
    options: &Options,
    root: SocketAddr,
    endpoint: &NetEndpoint<Vec<u8>>,
) -> Result<Vec<NetEvent<Vec<u8>>>, MessageError> {
    let mut meeting = Meeting { options, endpoint, start: clock::now(), last: None, early: Vec::new() };
    let book = match options.unit {
        0 => meeting.gather()?,
        _ => meeting.introduce(root)?,
    };
    for (unit, at) in (0..).zip(book) {
        if unit != options.unit {
            endpoint.introduce(unit, at);
        }
    }
    Ok(meeting.early)
}

struct Meeting<'a> {
    options: &'a Options,
    endpoint: &'a NetEndpoint<Vec<u8>>,
    start: Duration,
    /// Why the last one was turned away.
    last: Option<String>,
    /// What came from units that knew earlier that all are there.
    early: Vec<NetEvent<Vec<u8>>>,
}

impl Meeting<'_> {
    /// Unit 0 waits for the others.
    fn gather(&mut self) -> Result<Vec<SocketAddr>, MessageError> {
        let units = self.options.units;
        let mut book = BTreeMap::from([(0, self.endpoint.local_addr())]);
        while book.len() < units as usize {
            let Some(event) = self.next(Duration::ZERO)? else {
                let missing: Vec<String> = (0..units)
                    .filter(|u| !book.contains_key(u))
                    .take(5)
                    .map(|u| format!("unit {u}"))
                    .collect();
                let waited_ms = (clock::now() - self.start).as_millis() as u64;
                let turned_away = self.last.take();
                let why = Refusal::Missing { missing: missing.join(", "), waited_ms, turned_away };
                for &unit in book.keys().filter(|&&u| u != 0) {
                    // Who cannot be told waits a moment longer.
                    let _ = self.say(unit, &Answer::Refused(why.clone()));
                }
                return Err(self.refused(why));
            };
            match event {
                NetEvent::Message { from, message } if message.head.handler == system::MEET => {
                    match read::<Introduction>(&message.payload) {
                        Some(met) if met.units == units => drop(book.insert(from, met.listens_at)),
                        Some(met) => {
                            let why = Refusal::Disagree { unit: from, expected: units, found: met.units };
                            self.last = Some(why.to_string());
                            self.say(from, &Answer::Refused(why))?;
                        }
                        None => self.say(from, &Answer::Refused(Refusal::Malformed))?,
                    }
                }
                NetEvent::Lost { unit, .. } | NetEvent::Left { unit } => drop(book.remove(&unit)),
                NetEvent::TurnedAway { from, fault } => self.last = Some(format!("{from}: {fault}")),
                other => self.keep(other),
            }
        }
        let book: Vec<SocketAddr> = book.into_values().collect();
        for unit in 1..units {
            self.say(unit, &Answer::Book(book.clone()))?;
        }
        Ok(book)
    }

    /// Any other unit introduces itself and waits for the answer.
    fn introduce(&mut self, root: SocketAddr) -> Result<Vec<SocketAddr>, MessageError> {
        self.endpoint.introduce(0, root);
        let introduction = Introduction { units: self.options.units, listens_at: self.endpoint.local_addr() };
        self.say(0, &introduction)?;
        loop {
            let Some(event) = self.next(GRACE)? else { return Err(self.over("all other units")) };
            match event {
                NetEvent::Message { from: 0, message } if message.head.handler == system::MEET => {
                    return match read(&message.payload) {
                        Some(Answer::Book(book)) if book.len() == self.options.units as usize => Ok(book),
                        Some(Answer::Refused(why)) => Err(self.refused(why)),
                        _ => {
                            let error = crate::LinkError::OutOfTurn { what: "an unreadable answer" };
                            Err(MessageError::BadPeer { unit: 0, error })
                        }
                    }
                }
                NetEvent::Lost { unit: 0, error } => return Err(error),
                other => self.keep(other),
            }
        }
    }

    /// The next event within the open timeout and `grace`; `None` when that is over.
    fn next(&self, grace: Duration) -> Result<Option<NetEvent<Vec<u8>>>, MessageError> {
        loop {
            if self.options.interrupt.as_ref().is_some_and(|ask| ask()) {
                return Err(MessageError::Interrupted);
            }
            let left = self.left(grace);
            if let Some(event) = self.endpoint.next_event(Some(left.min(SLICE)))? {
                return Ok(Some(event));
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    fn left(&self, grace: Duration) -> Duration {
        (self.options.open_timeout + grace).saturating_sub(clock::now() - self.start)
    }

    /// Sends once the unit is connected.
    fn say(&mut self, to: Address, what: &impl Serialize) -> Result<(), MessageError> {
        let payload = Bytes::from(postcard::to_stdvec(what).unwrap_or_default());
        loop {
            let head = Head { handler: system::MEET, args: [0; 4] };
            let message =
                Send { priority: Priority::High, order: Order::Ordered, head, payload: payload.clone() };
            match self.endpoint.send(to, ChannelId(super::peer::LIBRARY_CHANNEL), message) {
                Ok(_) => return Ok(()),
                Err(MessageError::Full { .. }) => {}
                Err(e) => return Err(e),
            }
            if self.options.interrupt.as_ref().is_some_and(|ask| ask()) {
                return Err(MessageError::Interrupted);
            }
            if self.left(Duration::ZERO).is_zero() {
                return Err(self.over(&format!("unit {to} to listen")));
            }
            // Nothing but its connection, or the end of the attempt, is of use now.
            match self.endpoint.next_event(Some(SLICE))? {
                Some(NetEvent::Lost { unit, error }) if unit == to => return Err(error),
                Some(other) => self.keep(other),
                None => {}
            }
        }
    }

    /// Keeps what is for the domain. Attempts to reach a unit that does not listen yet are not.
    fn keep(&mut self, event: NetEvent<Vec<u8>>) {
        if matches!(event, NetEvent::Message { .. } | NetEvent::Left { .. } | NetEvent::Lost { .. }) {
            self.early.push(event);
        }
    }

    fn refused(&self, reason: Refusal) -> MessageError {
        MessageError::Refused { domain: self.options.name.clone(), reason }
    }

    fn over(&self, what: &str) -> MessageError {
        MessageError::Timeout { what: what.to_owned(), waited: clock::now() - self.start }
    }
}

fn read<T: DeserializeOwned>(payload: &Option<Vec<u8>>) -> Option<T> {
    postcard::from_bytes(payload.as_ref()?).ok()
}
