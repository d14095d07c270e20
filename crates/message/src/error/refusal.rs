//! Why units do not meet: one enum for domains, pipes and files.

use crate::types::MAX_UNITS;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};

/// Why a unit may not take part, or a meeting comes to nothing. Crosses the wire.
///
/// `P` is what the users of the meeting call a place; `T`, what else they refuse a unit for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal<P, T>
where
    P: Display,
    T: Display,
{
    /// The two speak different versions.
    #[error(
        "this unit speaks version {found} of the handshake; the unit that it asked speaks version {expected}"
    )]
    Version {
        /// The version of the unit that was asked.
        expected: u32,
        /// The version of the unit that asks.
        found: u32,
    },
    /// The message could not be read, or came at a time when it means nothing.
    #[error("the first message of this unit could not be read")]
    Malformed,
    /// A number that is not below the number of units, or a number of units out of range.
    #[error("unit {unit} of {units} units: expected 1 to {MAX_UNITS} units, numbered from 0")]
    UnitRange {
        /// The unit.
        unit: u32,
        /// The units.
        units: u32,
    },
    /// Units of one program say different things.
    #[error("{unit} says {what} {found}; {other} says {expected}{hint}")]
    Disagree {
        /// The unit that asks.
        unit: P,
        /// What they disagree on.
        what: String,
        /// A unit that came before.
        other: P,
        /// What that one said.
        expected: Box<str>,
        /// What this one says.
        found: Box<str>,
        /// What may be done about it, as the end of the sentence; or nothing.
        hint: Box<str>,
    },
    /// The place is taken.
    #[error("{unit} is already there (pid {pid}){hint}")]
    Duplicate {
        /// The unit.
        unit: P,
        /// The process that has its place.
        pid: u32,
        /// What may be done about it, as the end of the sentence; or nothing.
        hint: Box<str>,
    },
    /// Someone who is not a member asks for something.
    #[error("process {pid} is not {unit}")]
    NotAMember {
        /// The unit that it says it is.
        unit: P,
        /// Its process.
        pid: u32,
    },
    /// Not all units came in time.
    #[error("{missing} did not come within {waited_ms} ms{hint}")]
    Missing {
        /// The units that are missing, in words.
        missing: String,
        /// How long the others waited.
        waited_ms: u64,
        /// Why that may be, as the end of the sentence; or nothing.
        hint: String,
    },
    /// A unit was lost before all had come.
    #[error("{unit} (pid {pid}) {} before all had come", lost(*silent_s))]
    Lost {
        /// The unit.
        unit: P,
        /// Its process.
        pid: u32,
        /// Seconds for which nothing was heard of it; `None` where it is known to have ended.
        silent_s: Option<u8>,
    },
    /// Nothing was heard of this unit for so long that another came in its place.
    #[error("{unit} was not heard for too long, and another process has taken its place")]
    Replaced {
        /// The unit.
        unit: P,
    },
    /// It has come to its end, or has failed.
    #[error("it has already ended")]
    Over,
    /// The system refused something to the unit that was asked.
    #[error("{unit} failed: {error}")]
    System {
        /// The unit that was asked.
        unit: P,
        /// The system's words.
        error: String,
    },
    /// What the users of the meeting ask for does not fit.
    #[error("{0}")]
    Terms(T),
}

impl<P: Display, T: Display> Refusal<P, T> {
    /// Two units that say different things, with nothing to be done about it.
    pub fn disagree(unit: P, what: &str, found: impl ToString, other: P, expected: impl ToString) -> Self {
        let (expected, found) = (expected.to_string().into(), found.to_string().into());
        Refusal::Disagree { unit, what: what.into(), other, expected, found, hint: "".into() }
    }

    /// Whether a program may have so many units, and this one among them.
    ///
    /// # Errors
    /// [`Refusal::UnitRange`].
    pub fn check_range(unit: u32, units: u32) -> Result<(), Self> {
        match (1..=MAX_UNITS).contains(&units) && unit < units {
            true => Ok(()),
            false => Err(Refusal::UnitRange { unit, units }),
        }
    }

    /// A place that a process has.
    pub fn duplicate(unit: P, pid: u32) -> Self {
        Refusal::Duplicate { unit, pid, hint: "".into() }
    }
}

fn lost(silent_s: Option<u8>) -> String {
    silent_s.map_or("died or gave up".into(), |seconds| format!("was not heard for {seconds} s"))
}

/// A place among the units of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Unit(pub u32);

impl Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unit {}", self.0)
    }
}

/// The terms of those who have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoTerms {}

impl Display for NoTerms {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// Why a unit may not join a domain, or the domain cannot come to be.
pub type JoinRefusal = Refusal<Unit, NoTerms>;
