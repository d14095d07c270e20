//! Errors of bytes that came over a link.

use crate::types::Address;

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
    #[error("the others have given this process of unit {unit} up; only another process can take its place")]
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
