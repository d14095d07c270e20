//! Settings and events of an endpoint on the network.

use super::acceptor::Limits;
use super::socket::KeepAlive;
use super::LinkFault;
use crate::engine;
use crate::error::MessageError;
use crate::link::key::JobKey;
use crate::types::{Address, Token};
use core::fmt;
use core::time::Duration;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// What carries an endpoint's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A TCP connection to each peer.
    Tcp,
    /// One UDP socket for all peers.
    Udp,
}

/// Called when there is something to [poll](super::endpoint::NetEndpoint::poll_event), from any thread; must
/// not block, nor call the endpoint.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Settings of an endpoint.
#[derive(Clone)]
pub struct NetConfig {
    /// This unit.
    pub me: Address,
    /// Units of the domain.
    pub units: u32,
    /// The domain: only its units are let in.
    pub domain: u64,
    /// The job's key.
    pub key: JobKey,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// A listener that is bound already, in the place of `listen`. For TCP; made by
    /// [`listen`](super::socket::listen).
    pub bound: Option<Arc<TcpListener>>,
    /// What carries the links. All units of a domain have the same.
    pub transport: Transport,
    /// The network is declared trusted: the key is proved, but what follows is not encrypted. All units must
    /// declare the same.
    pub trusted: bool,
    /// When a host that says nothing more is dead.
    pub patience: KeepAlive,
    /// How long strangers may take.
    pub limits: Limits,
    /// How long an attempt to reach a unit may take.
    pub connect_timeout: Duration,
    /// Another life of a unit takes the place of one that is connected: for who is restarted where its end
    /// was not noticed yet. Without it, only of one that is lost or has left.
    pub replaces: bool,
    /// Settings of the sessions; all units of a domain have the same.
    pub session: engine::Config,
    /// Bytes of a datagram to another machine, at most. To this one it has what the loopback carries well.
    pub datagram_bytes: usize,
    /// The kernel may cut and join datagrams where it can.
    pub offload: bool,
    /// Told when there is something to poll.
    pub waker: Option<Waker>,
}

impl NetConfig {
    /// The usual settings.
    pub fn new(
        me: Address,
        units: u32,
        domain: u64,
        key: JobKey,
        listen: SocketAddr,
        transport: Transport,
    ) -> NetConfig {
        let session = match transport {
            // High priority waits for this much, 0.06 ms at 2 GB/s; shorter fragments cost throughput. On a
            // slow link they are shorter.
            Transport::Tcp => engine::Config { max_fragment: 128 << 10, ..engine::Config::stream() },
            Transport::Udp => engine::Config::datagram(),
        };
        NetConfig {
            me,
            units,
            domain,
            key,
            listen,
            bound: None,
            transport,
            trusted: false,
            patience: KeepAlive::default(),
            limits: Limits::default(),
            connect_timeout: Duration::from_secs(5),
            replaces: true,
            session,
            datagram_bytes: super::datagram::SAFE,
            offload: true,
            waker: None,
        }
    }
}

impl fmt::Debug for NetConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NetConfig { me, units, listen, transport, trusted, .. } = self;
        write!(f, "NetConfig(unit {me} of {units} at {listen}, {transport:?}, trusted: {trusted})")
    }
}

/// What an endpoint tells.
#[derive(Debug)]
pub enum NetEvent<B> {
    /// A unit can be sent to.
    Connected {
        /// Which.
        unit: Address,
        /// Which life of it.
        incarnation: u64,
    },
    /// A message came.
    Message {
        /// From which unit.
        from: Address,
        /// The message.
        message: engine::Message<B>,
    },
    /// A message was given to the receiver's program.
    Delivered {
        /// The receiver.
        to: Address,
        /// What its send returned.
        token: Token,
    },
    /// The receiver had no buffer for a message; it is kept and goes again by itself.
    Refused {
        /// The receiver.
        to: Address,
        /// What its send returned.
        token: Token,
    },
    /// A unit left in order; all that it sent has come.
    Left {
        /// Which.
        unit: Address,
    },
    /// All that was sent to a unit before [`close`](super::endpoint::NetEndpoint::close) is delivered.
    Closed {
        /// Which.
        unit: Address,
    },
    /// A unit is lost. Once, after all that came from it; what was sent to it may or may not have arrived.
    Lost {
        /// Which.
        unit: Address,
        /// The same that sends to it return from now on.
        error: MessageError,
    },
    /// An attempt to reach a unit failed. The next send to it begins another.
    Unreachable {
        /// Which.
        unit: Address,
        /// Why.
        fault: LinkFault,
    },
    /// A stranger was turned away. Only the first few between two polls are told.
    TurnedAway {
        /// From where it came.
        from: SocketAddr,
        /// Why.
        fault: LinkFault,
    },
}
