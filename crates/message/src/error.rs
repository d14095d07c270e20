//! Everything that can go wrong with messages, sorted by who is at fault.

use crate::domain::{calls::CallError, directory::HandlerError, gather::Refusal, Collective};
use crate::types::{Address, Token};
use polyduct_os::{socket::whose, OsError};
use std::net::SocketAddr;
use std::path::PathBuf;
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
    #[error("unit {unit} has come to {theirs}, this unit to {mine}; all have to come to the same, in the same order")]
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
        reason: Refusal,
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

    /// The unit that listens at an address has another key, trust, domain or version, and this one cannot come to it.
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

/// What is wrong with bytes that came over a link, or lie in shared memory. Only that link is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The bytes end before what they announce.
    #[error("{what} at byte {at}: {expected} bytes expected, {found} found")]
    Truncated {
        /// What was read.
        what: &'static str,
        /// Where, from the start of the frame.
        at: usize,
        /// Bytes that it needs.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// A field has a value that it cannot have.
    #[error("{what} is {found}; expected {expected}")]
    BadField {
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What it may be.
        expected: &'static str,
    },
    /// The checksum does not fit the bytes.
    #[error("checksum {found:#010x}; the bytes have {expected:#010x}")]
    Checksum {
        /// Of the bytes as they are.
        expected: u32,
        /// As it came.
        found: u32,
    },
    /// The other side speaks another version.
    #[error("the peer speaks version {found} of {protocol}; this side version {expected}")]
    Version {
        /// What is versioned.
        protocol: &'static str,
        /// This side's.
        expected: u32,
        /// The other's.
        found: u32,
    },
    /// The peer does not know the job's key, or what it sent was changed on the way.
    #[error("the peer did not prove that it knows the job's key")]
    Unauthentic,
    /// A message refers to something that the receiver does not have.
    #[error("{what} {found} does not exist")]
    Unknown {
        /// What kind of thing.
        what: &'static str,
        /// Its number.
        found: u64,
    },
    /// A peer sent something at a time when it may not.
    #[error("{what} out of turn")]
    OutOfTurn {
        /// What came.
        what: &'static str,
    },
    /// One side declares the network trusted, so that nothing is encrypted; the other does not.
    #[error("this side declares the network {}, the peer {}", trust(*.mine), trust(!*.mine))]
    Trust {
        /// Whether this side declares it trusted.
        mine: bool,
    },
    /// Another unit listens there than was asked for.
    #[error("unit {asked} was asked for; unit {found} is there")]
    WrongUnit {
        /// Which was asked for.
        asked: Address,
        /// Which is there.
        found: Address,
    },
    /// The peer has the job's key but belongs to another domain.
    #[error("the peer belongs to another domain")]
    WrongDomain,
    /// No room for another connection: descriptors or places are used up. Try again later.
    #[error("no room for another connection")]
    Busy,
    /// A life of the unit that was lost tries to come back; only a replacement may.
    #[error("this life of unit {unit} was lost before; only a replacement may come")]
    Dead {
        /// The unit.
        unit: Address,
    },
    /// Another process is that unit, and is connected.
    #[error("another process is unit {unit} already")]
    Taken {
        /// The unit.
        unit: Address,
    },
    /// A unit comes again to the domain that it has left, or was lost to: its other units have still to
    /// leave. Try again later.
    #[error("an earlier domain of this name, which unit {unit} has left, is still open there")]
    Earlier {
        /// The unit.
        unit: Address,
    },
    /// Something did not come within its time.
    #[error("{what} did not come within {limit_ms} ms")]
    Deadline {
        /// What was waited for.
        what: &'static str,
        /// The time that it had, in milliseconds.
        limit_ms: u64,
    },
    /// The other side ended the connection.
    #[error("the connection ended")]
    Closed,
}

fn trust(trusted: bool) -> &'static str {
    match trusted {
        true => "trusted",
        false => "not trusted",
    }
}

/// What is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read, or is not TOML.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// A name that is no setting.
    #[error("{place}: there is no setting {name:?}; there are {known}")]
    Unknown {
        /// The file or variable.
        place: String,
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A value that is no number of bytes, or out of its bounds.
    #[error("{place}: {name} is {found:?}; expected {min} to {max}")]
    BadValue {
        /// The file or variable.
        place: String,
        /// The setting.
        name: String,
        /// What it was given.
        found: String,
        /// The smallest value.
        min: String,
        /// The largest value.
        max: String,
    },
    /// Even the smallest rings do not fit into memory.
    #[error("rings with {partners} partners take {needed} bytes at least; {allowed} may be used")]
    TooBig {
        /// Partners.
        partners: u64,
        /// Bytes for the smallest rings.
        needed: u64,
        /// A quarter of what the machine gives.
        allowed: u64,
    },
}
