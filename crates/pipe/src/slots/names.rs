//! Names that the step protocol shares with everything above it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A unit of one of the programs that a pipe joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UnitName {
    /// The side, and which of the reader programs.
    pub side: Side,
    /// Number of the unit in its program.
    pub unit: u32,
}

/// One of the programs that a pipe joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Side {
    /// The writer program.
    Writer,
    /// A reader program, counted in the order in which they joined.
    Reader(u32),
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.side {
            Side::Writer => write!(f, "writer unit {}", self.unit),
            Side::Reader(0) => write!(f, "reader unit {}", self.unit),
            // Counted from 1, as who waits for "reader program 2 of 2" counts.
            Side::Reader(p) => write!(f, "unit {} of reader program {}", self.unit, u64::from(p) + 1),
        }
    }
}

/// What happens when a step is ready and every slot is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// The writer waits for the slowest reader: every step arrives.
    #[default]
    Block,
    /// The writer never waits; a reader gets the newest complete step, older ones are dropped.
    Latest,
    /// The writer never waits; the oldest step that no reader has begun is dropped.
    DropOldest,
    /// The writer never waits; the step that found no room is dropped. With several reader programs, one that holds all
    /// slots but one misses it alone.
    DropNewest,
}
