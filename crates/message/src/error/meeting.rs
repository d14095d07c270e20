//! Why the units of a domain do not meet.

use crate::types::{Address, MAX_UNITS};
use serde::{Deserialize, Serialize};

/// Why a unit may not join, or the domain cannot come to be. Crosses the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum JoinRefusal {
    /// The two speak different versions.
    #[error("this unit speaks version {found} of the domain's handshake, the one that it asked version {expected}")]
    Version {
        /// The version of the unit that was asked.
        expected: u32,
        /// The version of the unit that asks.
        found: u32,
    },
    /// The message could not be read, or came at a time when it means nothing.
    #[error("the first message of this unit could not be read")]
    Malformed,
    /// Units that do not know the same number of units.
    #[error("unit {unit} says that the domain has {found} units; unit 0 says {expected}")]
    Disagree {
        /// The unit that asks.
        unit: Address,
        /// Unit 0's number.
        expected: u32,
        /// Its own.
        found: u32,
    },
    /// An address that is not below the number of units, or a number of units out of range.
    #[error("unit {unit} of {units} units: expected 1 to {MAX_UNITS} units, numbered from 0")]
    UnitRange {
        /// The address.
        unit: Address,
        /// The units.
        units: u32,
    },
    /// This unit has joined before.
    #[error("unit {unit} is already there (pid {pid})")]
    Duplicate {
        /// The unit.
        unit: Address,
        /// The process that has its place.
        pid: u32,
    },
    /// Not all units came in time.
    #[error("{missing} did not come within {waited_ms} ms{}", turned_away.as_ref().map_or(String::new(), |why| format!("; turned away was one because {why}")))]
    Missing {
        /// Who is missing, in words.
        missing: String,
        /// How long unit 0 waited.
        waited_ms: u64,
        /// Why a unit that came was turned away, if one was: the last of them.
        turned_away: Option<String>,
    },
    /// Someone who is not a member asks for something.
    #[error("process {pid} is not unit {unit} of this domain")]
    NotAMember {
        /// The unit that it says it is.
        unit: Address,
        /// Its process.
        pid: u32,
    },
    /// The system refused something to the unit that was asked.
    #[error("unit {unit} could not: {error}")]
    System {
        /// The unit that was asked.
        unit: Address,
        /// The system's words.
        error: String,
    },
}
