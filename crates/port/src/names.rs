//! Names of ports and units.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A port, as its user named it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortName {
    /// `pipe:NAME`, or `//HOST:PORT/NAME` across hosts.
    Pipe(String),
    /// The path of a file.
    File(String),
    /// The directory of a store.
    Store(String),
    /// The place where a stream goes, or from where it comes.
    Stream(String),
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortName::Pipe(name) if name.starts_with("//") => write!(f, "pipe:{name}"),
            PortName::Pipe(name) => write!(f, "pipe {name}"),
            PortName::File(path) | PortName::Store(path) | PortName::Stream(path) => f.write_str(path),
        }
    }
}

/// A unit of one of the programs that a pipe joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnitName {
    /// The side, and which of the reader programs.
    pub side: Side,
    /// Number of the unit in its program.
    pub unit: u32,
}

/// One of the programs that a pipe joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// A unit that an error speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Number of the unit in its program.
    pub unit: u32,
    /// Its side of a pipe; `None` for a unit of the program that has a file or a store.
    pub side: Option<Side>,
    /// The name of its program, where there are several on that side and it has one.
    pub program: Option<Box<str>>,
}

impl From<UnitName> for Peer {
    fn from(name: UnitName) -> Peer {
        Peer { unit: name.unit, side: Some(name.side), program: None }
    }
}

impl From<u32> for Peer {
    fn from(unit: u32) -> Peer {
        Peer { unit, side: None, program: None }
    }
}

impl Peer {
    /// The unit of a pipe that this is.
    pub fn name(&self) -> Option<UnitName> {
        self.side.map(|side| UnitName { side, unit: self.unit })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.program, self.name()) {
            (Some(program), _) => write!(f, "unit {} of reader program {program:?}", self.unit),
            (None, Some(name)) => name.fmt(f),
            (None, None) => write!(f, "unit {}", self.unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_programs_are_counted_from_one() {
        let name = |p| UnitName { side: Side::Reader(p), unit: 3 }.to_string();
        assert_eq!([name(0), name(1)], ["reader unit 3", "unit 3 of reader program 2"]);
        assert_eq!(Peer::from(3).to_string(), "unit 3");
    }

    #[test]
    fn a_pipe_with_an_address_is_named_by_its_url() {
        let name = |pipe: &str| PortName::Pipe(pipe.into()).to_string();
        assert_eq!([name("field"), name("//b:7/field")], ["pipe field", "pipe://b:7/field"]);
    }
}
