//! Errors of handlers' names.

use crate::types::{Address, Kind, MAX_HANDLERS, MAX_NAME};
use serde::{Deserialize, Serialize};

/// What is wrong with a handler's name, or with what a unit calls by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// Nobody has told of this name; or not before the last synchronise.
    #[error("no unit has a handler named {name:?}; install it and synchronise")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The unit that the message is for has no handler of this name, while others have.
    #[error("unit {unit} has no handler named {name:?}; others have")]
    NotThere {
        /// The name.
        name: String,
        /// The unit.
        unit: Address,
    },
    /// The name is taken in this unit.
    #[error("a handler named {name:?} is installed already")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// Two units have the same name in different versions.
    #[error(
        "handler {name:?} has version {first} in unit {first_unit} and version {second} in unit \
        {second_unit}"
    )]
    Versions {
        /// The name.
        name: String,
        /// A version.
        first: u32,
        /// A unit that has it.
        first_unit: Address,
        /// Another version.
        second: u32,
        /// A unit that has that.
        second_unit: Address,
    },
    /// A name that cannot be one.
    #[error(
        "{name:?} cannot name a handler: expected 1 to {MAX_NAME} bytes, none of them a control character"
    )]
    BadName {
        /// Its beginning.
        name: String,
    },
    /// Too many handlers.
    #[error("{found} handlers; {MAX_HANDLERS} are allowed in a domain")]
    TooMany {
        /// How many there would be.
        found: usize,
    },
    /// The name of a function was to get a message, or that of a handler of messages a call.
    #[error("{name:?} is {found}, not {expected}: {}", .found.use_it())]
    WrongKind {
        /// The name.
        name: String,
        /// What it was taken for.
        expected: Kind,
        /// What it is.
        found: Kind,
    },
    /// Two units have the same name for different things.
    #[error("{name:?} is {first} in unit {first_unit} and {second} in unit {second_unit}")]
    Kinds {
        /// The name.
        name: String,
        /// What it is in a unit.
        first: Kind,
        /// That unit.
        first_unit: Address,
        /// What it is in another.
        second: Kind,
        /// That other unit.
        second_unit: Address,
    },
}
