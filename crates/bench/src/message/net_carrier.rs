//! A network link on loopback: TCP or UDP, trusted or encrypted, perhaps through a relay that loses
//! datagrams.

use super::end::Carrier;
use super::error::BenchError;
use super::link_carrier::{hear, tell};
use super::relay::Relay;
use super::slow_link::slow_link;
use super::tally::{words, Kind, Source, Tally, HIGH};
use bytes::Bytes;
use polyduct_message::engine::Send;
use polyduct_message::link::key::JobKey;
use polyduct_message::link::net::config::{NetConfig, NetEvent, Transport};
use polyduct_message::link::net::endpoint::NetEndpoint;
use polyduct_message::link::net::pool::{Buffer, Pool};
use polyduct_message::{ChannelId, HandlerId, Head, MessageError, Order, Priority, Token};
use polyduct_os::socket::Conn;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Bytes under way, at most, where there is more than one message.
const WINDOW: usize = 16 << 20;
/// What received messages may take.
const BUFFERS: usize = 256 << 20;
const SLICE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(30);

/// What stands between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Nothing but the loopback.
    Nothing,
    /// A relay that loses datagrams.
    Relay {
        /// So many of a hundred.
        lost: u32,
    },
    /// A link that carries a connection slowly.
    SlowLink {
        /// Megabits a second.
        megabits: u32,
    },
}

/// One of two endpoints.
pub struct NetCarrier {
    endpoint: NetEndpoint<Buffer>,
    peer: u32,
    /// What is not delivered yet: bytes of each, and their sum.
    under_way: (HashMap<Token, usize>, usize),
    answered: u32,
    tally: Arc<Tally>,
    _relay: Option<Relay>,
}

impl NetCarrier {
    /// Connects to the process at the other end of `conn`.
    pub fn new(
        conn: &Conn,
        unit: u32,
        transport: Transport,
        trusted: bool,
        between: Between,
        source: Source,
    ) -> Result<NetCarrier, BenchError> {
        let unreadable = || BenchError::Disagree { what: "an address" };
        let key = JobKey::from_bytes([7; 32]).map_err(|_| BenchError::Disagree { what: "the job's key" })?;
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config = NetConfig { trusted, ..NetConfig::new(unit, 2, 5, key, listen, transport) };
        let pool = Pool::new(BUFFERS);
        let give = move |_, incoming: &polyduct_message::engine::Incoming| {
            pool.take(incoming.len.unwrap_or(incoming.at_least) as usize)
        };
        let endpoint = NetEndpoint::start(config, give)?;
        let (peer, mut relay) = (1 - unit.min(1), None);
        if unit == 0 {
            let theirs: SocketAddr = std::str::from_utf8(&hear(conn)?.0)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(unreadable)?;
            let at = match between {
                Between::Nothing => theirs,
                Between::Relay { lost } => relay.insert(Relay::new(theirs, lost)?).addr(),
                Between::SlowLink { megabits } => slow_link(theirs, megabits)?,
            };
            endpoint.introduce(peer, at);
            endpoint.connect(peer)?;
        } else {
            tell(conn, endpoint.local_addr().to_string().as_bytes(), &[])?;
        }
        let tally = Tally::new(source);
        if unit == 0 {
            tally.no_answers();
        }
        let under_way = (HashMap::new(), 0);
        let mut carrier = NetCarrier { endpoint, peer, under_way, answered: 0, tally, _relay: relay };
        let deadline = polyduct_os::clock::now() + PATIENCE;
        while carrier.endpoint.connected().is_empty() {
            carrier.step()?;
            if polyduct_os::clock::now() > deadline {
                return Err(BenchError::Silent { what: "a connection", seconds: PATIENCE.as_secs() });
            }
        }
        Ok(carrier)
    }

    fn push(&mut self, lane: usize, args: [u32; 4], payload: Bytes) -> Result<bool, BenchError> {
        let priority = if lane == HIGH { Priority::High } else { Priority::Low };
        let len = payload.len();
        let head = Head { handler: HandlerId(7), args };
        let message = Send { priority, order: Order::Ordered, head, payload };
        match self.endpoint.send(self.peer, ChannelId(lane as u16), message) {
            Ok(token) => {
                if len > 0 {
                    self.under_way.0.insert(token, len);
                    self.under_way.1 += len;
                }
                Ok(true)
            }
            Err(MessageError::Full { .. }) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn handle(&mut self, event: NetEvent<Buffer>) -> Result<(), BenchError> {
        match event {
            NetEvent::Message { message, .. } => {
                let payload = message.payload.as_deref().unwrap_or(&[]);
                let len = payload.len().min(message.len as usize);
                if self.tally.take(message.priority, message.head.args, &payload[..len]) {
                    let args = words(Kind::Data, HIGH, self.answered, 0, 0);
                    self.answered = self.answered.wrapping_add(1);
                    // One that is not sent is missed where it is waited for.
                    self.push(HIGH, args, Bytes::new())?;
                }
            }
            NetEvent::Delivered { token, .. } => {
                self.under_way.1 -= self.under_way.0.remove(&token).unwrap_or(0);
            }
            NetEvent::Lost { error, .. } => return Err(error.into()),
            NetEvent::Unreachable { .. } => {
                return Err(BenchError::Disagree { what: "the other process cannot be reached" })
            }
            // Messages that are refused go again by themselves.
            _ => {}
        }
        Ok(())
    }
}

impl Carrier for NetCarrier {
    const STEPS: u32 = 1;

    fn short(&mut self, lane: usize, args: [u32; 4]) -> Result<bool, BenchError> {
        self.push(lane, args, Bytes::new())
    }

    fn bulk(&mut self, lane: usize, args: [u32; 4], at: usize, len: usize) -> Result<(), BenchError> {
        let payload = self.tally.source().share(at, len);
        let deadline = polyduct_os::clock::now() + PATIENCE;
        loop {
            let room = self.under_way.1 == 0 || self.under_way.1 + len <= WINDOW;
            if room && self.push(lane, args, payload.clone())? {
                return Ok(());
            }
            self.step()?;
            if polyduct_os::clock::now() > deadline {
                return Err(BenchError::Silent { what: "room", seconds: PATIENCE.as_secs() });
            }
        }
    }

    fn bulk_while(
        &mut self,
        lane: usize,
        args: [u32; 4],
        at: usize,
        len: usize,
        work: &mut dyn FnMut(),
    ) -> Result<(), BenchError> {
        self.bulk(lane, args, at, len)?;
        work();
        let deadline = polyduct_os::clock::now() + PATIENCE;
        while self.under_way.1 > 0 {
            self.step()?;
            if polyduct_os::clock::now() > deadline {
                return Err(BenchError::Silent { what: "the receiver", seconds: PATIENCE.as_secs() });
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<(), BenchError> {
        while let Some(event) = self.endpoint.poll_event()? {
            self.handle(event)?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), BenchError> {
        if let Some(event) = self.endpoint.next_event(Some(SLICE))? {
            self.handle(event)?;
        }
        Ok(())
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn finish(self) -> Result<(), BenchError> {
        Ok(self.endpoint.close(PATIENCE)?)
    }
}
