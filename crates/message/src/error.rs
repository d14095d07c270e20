//! Everything that can go wrong with messages, sorted by who is at fault. Nothing here knows those who meet
//! it.

mod call;
mod config;
mod handler;
mod link;
mod refusal;

pub use call::CallError;
pub use config::ConfigError;
pub use handler::HandlerError;
pub use link::LinkError;
pub use refusal::{JoinRefusal, NoTerms, Refusal, Unit};

use crate::types::{Address, Collective, Token};
use polyduct_os::{socket::whose, OsError};
use std::net::SocketAddr;
use std::time::Duration;

/// How far an error reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This call did nothing; all else is as it was.
    Operation,
    /// The peer is of no further use; other peers are as they were.
    Link,
    /// The endpoint is of no further use.
    Endpoint,
}

/// What can go wrong between an endpoint and its callers.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    // -- the caller's misuse --
    /// There is no such unit in the domain.
    #[error("there is no unit {to}; the domain has {units} units, numbered from 0")]
    NoUnit {
        /// The address asked for.
        to: Address,
        /// Units of the domain.
        units: u32,
    },
    /// A domain cannot have this name.
    #[error("{found:?} cannot name a domain; expected 1 to 64 letters, digits, '.', '_' or '-'")]
    BadName {
        /// Its beginning.
        found: String,
    },
    /// A channel to the unit itself.
    #[error("unit {unit} is this unit itself; call the handler, or send to `recv`")]
    ToSelf {
        /// This unit.
        unit: Address,
    },
    /// A handler waited for what this thread would have to receive.
    #[error("a handler cannot wait; use its context to send")]
    InHandler,
    /// A region that is not there, or bytes beyond its end.
    #[error("region {id}: {reason}")]
    Region {
        /// The region's number.
        id: u32,
        /// What is wrong.
        reason: String,
    },
    /// A call has no result.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(Box<ConfigError>),
    /// A handler's name is wrong.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// A limit on something that grows.
    #[error("{what}: {found} asked, {limit} allowed")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// What was asked for.
        found: u64,
    },
    /// Units came to different collective operations at once, each of which would wait for the other.
    #[error(
        "unit {unit} has come to {theirs}, this unit to {mine}; all have to come to the same, in the \
        same order"
    )]
    AtOdds {
        /// Another unit.
        unit: Address,
        /// What it came to.
        theirs: Collective,
        /// What this unit came to.
        mine: Collective,
    },
    /// No message that is being handed over has this token.
    #[error("no message with token {} is being handed over", .token.0)]
    NoMessage {
        /// The token.
        token: Token,
    },

    /// Another process is this unit of the domain already.
    #[error("domain {domain}: another process is already its unit {unit}")]
    NameTaken {
        /// The domain.
        domain: String,
        /// The unit.
        unit: Address,
    },

    // -- back-pressure: nothing is wrong, try again when there is room --
    /// The peer has not taken enough of what was sent before.
    #[error("unit {to} has not taken what was sent before; poll or wait, then send again")]
    Full {
        /// To whom.
        to: Address,
    },

    // -- the peers --
    /// A unit's process ended without leaving the domain, or its host does not answer.
    #[error("unit {unit} is lost: {reason}")]
    PeerLost {
        /// The unit.
        unit: Address,
        /// What was noticed.
        reason: String,
    },
    /// A unit left the domain in order.
    #[error("unit {unit} has left")]
    PeerLeft {
        /// The unit.
        unit: Address,
    },
    /// What a peer sent breaks the protocol.
    #[error("unit {unit} broke the protocol: {error}")]
    BadPeer {
        /// The unit.
        unit: Address,
        /// How.
        error: LinkError,
    },

    /// The other units did not agree to this one joining, or a partner to a link.
    #[error("domain {domain}: {reason}")]
    Refused {
        /// The domain.
        domain: String,
        /// Why.
        reason: Box<JoinRefusal>,
    },
    /// The process at the other end belongs to another user.
    #[error("the process serving unit {unit} {}", whose(*found, *expected))]
    Stranger {
        /// The unit.
        unit: Address,
        /// This user.
        expected: u32,
        /// The other's user.
        found: u32,
    },

    /// The unit that listens at an address has another key, trust, domain or version, and this one cannot
    /// come to it.
    #[error("unit {unit} at {at} turned this unit away: {error}")]
    TurnedAway {
        /// The unit that was to be reached.
        unit: Address,
        /// Where it listens.
        at: SocketAddr,
        /// What the two do not agree on.
        error: LinkError,
    },

    // -- time and the system --
    /// A wait came to its deadline.
    #[error("timed out after {waited:.1?} waiting for {what}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
    },
    /// The caller asked blocking calls to stop (Ctrl-C).
    #[error("interrupted")]
    Interrupted,
    /// The system refused something.
    #[error("{0}")]
    System(#[from] OsError),
}

impl From<ConfigError> for MessageError {
    fn from(error: ConfigError) -> MessageError {
        MessageError::Config(Box::new(error))
    }
}

impl MessageError {
    /// Units of a domain do not meet.
    pub(crate) fn refused(domain: &str, reason: JoinRefusal) -> MessageError {
        MessageError::Refused { domain: domain.to_owned(), reason: Box::new(reason) }
    }

    /// How far the error reaches.
    pub fn scope(&self) -> Scope {
        match self {
            MessageError::PeerLost { .. } | MessageError::PeerLeft { .. } | MessageError::BadPeer { .. } => {
                Scope::Link
            }
            MessageError::System(_) => Scope::Endpoint,
            _ => Scope::Operation,
        }
    }
}
