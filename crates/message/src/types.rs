//! The words that all layers speak.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A unit of a domain, 0..N-1.
pub type Address = u32;

/// A channel from one endpoint to another: its writer numbers it. Has one writer, so sending takes no lock;
/// messages of one channel arrive in order unless it is [`Order::Any`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u16);

/// Channels from one endpoint to another, at most.
pub const MAX_CHANNELS: u16 = 4096;

/// The function that a message is for, by its number in the domain.
///
/// Numbers from [`RESERVED`](HandlerId::RESERVED) on are the library's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandlerId(pub u32);

impl HandlerId {
    /// The first number that users do not get.
    pub const RESERVED: u32 = 0xffff_0000;
}

/// Low never delays high by more than one fragment; high may hold up low (StarT-X).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Served when nothing of high priority waits.
    #[default]
    Low,
    /// Served first.
    High,
}

/// Whether messages of a channel arrive in the order in which they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// In order.
    #[default]
    Ordered,
    /// As they come; may use several links at once (StarT-X).
    Any,
}

/// What a message says beside its payload: a handler and four 32-bit words. Without payload it is a short
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    /// For whom.
    pub handler: HandlerId,
    /// What.
    pub args: [u32; 4],
}

/// Names a message until its delivery is known: given when it is sent, returned by the event that it was
/// delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// Bytes of a payload, at most (2⁴⁸): beyond every memory, and small enough that sums of it do not overflow.
pub const MAX_PAYLOAD: u64 = 1 << 48;

/// Units of a domain, at most.
pub const MAX_UNITS: u32 = 4096;

/// Handlers of a domain, at most.
pub const MAX_HANDLERS: usize = 65_536;

/// Bytes of a handler's name, at most.
pub const MAX_NAME: usize = 128;

/// What a name stands for: the same in the whole domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A handler, which gets messages.
    Messages,
    /// A function, which is called.
    Calls,
}

impl Kind {
    /// What to do with it.
    pub(crate) fn use_it(self) -> &'static str {
        match self {
            Kind::Messages => "send to it",
            Kind::Calls => "call it",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Messages => "a handler of messages",
            Kind::Calls => "a function",
        })
    }
}

/// What all units do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// A barrier.
    Barrier = 1,
    /// A synchronise, with the barrier at its end.
    Synchronise = 2,
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Collective::Barrier => "a barrier",
            Collective::Synchronise => "a synchronise",
        })
    }
}
