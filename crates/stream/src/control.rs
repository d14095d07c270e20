//! The control interface: what is asked of a stream manager, and what it says of itself (iWarp's network interface,
//! sections 5.1 and 5.3.1).

use crate::Format;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A logical connection between a program and a place outside. Numbers are not used again.
    ConnectionId
);
id!(
    /// A stream: a transfer over a connection. Numbers are not used again.
    StreamId
);
id!(
    /// Streams that move in lock step.
    GroupId
);

/// Which way data go, seen from the parallel program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the outside.
    Transmit,
    /// From the outside.
    Receive,
}

/// What the owner of a stream says of it and of others: options of a place's URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ties {
    /// Streams of a connection of this name move one after the other, in the order in which they came.
    pub connection: Option<String>,
    /// It begins when the streams of the connection of this name that are there have ended.
    pub after: Option<String>,
    /// Streams of a group of this name move in lock step.
    pub group: Option<String>,
    /// How many of the group there are to be before any of it begins.
    pub members: Option<u32>,
    /// Steps that it moves before it gives way to others that wait.
    pub quantum: u32,
    /// Streams of a higher priority go first.
    pub priority: i32,
    /// Whether its buffers and lanes are its own.
    pub permanent: bool,
}

impl Default for Ties {
    fn default() -> Ties {
        let (connection, after, group, members) = (None, None, None, None);
        Ties { connection, after, group, members, quantum: 1, priority: 0, permanent: false }
    }
}

/// A stream that is to be registered.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Over which connection: its streams move one after the other, in the order of registration.
    pub connection: ConnectionId,
    /// Which way.
    pub direction: Direction,
    /// How its data are cut.
    pub format: Format,
    /// Buffers of a transfer unit each: two, for one to be filled while the other is sent; more where lanes are long.
    pub buffers: u32,
    /// Streams that end before this one begins: *sequencing*.
    pub after: Vec<StreamId>,
    /// The streams of a group move in lock step: *synchronisation* at the interval of a step.
    pub group: Option<GroupId>,
    /// Steps that it moves before it gives its buffers and lanes to others that wait, at least 1.
    pub quantum: u32,
    /// Streams of a higher priority go first.
    pub priority: i32,
    /// Keeps its buffers and lanes for as long as it is there.
    pub permanent: bool,
}

impl Spec {
    /// A stream with two buffers, a quantum of one step and no ties to others.
    pub fn new(connection: ConnectionId, direction: Direction, format: Format) -> Spec {
        Spec {
            connection,
            direction,
            format,
            buffers: 2,
            after: Vec::new(),
            group: None,
            quantum: 1,
            priority: 0,
            permanent: false,
        }
    }

    /// Bytes of its buffers.
    pub fn buffer_bytes(&self) -> u64 {
        self.format.tu_bytes().saturating_mul(self.buffers.into())
    }
}

/// What a stream's next step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state", content = "waits_for")]
pub enum State {
    /// The dependence resolver has it: it waits for this.
    Inactive(WaitsFor),
    /// It waits for buffers and lanes.
    Pending,
    /// It has buffers and lanes.
    Active,
    /// It has ended, with all of its steps.
    Ended,
    /// It has failed, or was closed before its end.
    Failed,
}

/// Why a stream is inactive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitsFor {
    /// For somebody who lets it go on.
    Resume,
    /// For the end of another stream.
    Stream(StreamId),
    /// For another of its group, which is a step behind.
    Group(StreamId),
    /// For so many of its group that have not come.
    Members(u32),
    /// For its program, which has not said what comes.
    Program,
    /// For a step.
    Data,
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitsFor::Resume => f.write_str("paused"),
            WaitsFor::Stream(other) => write!(f, "waits for stream {other}"),
            WaitsFor::Group(other) => write!(f, "in step with stream {other}"),
            WaitsFor::Members(more) => write!(f, "waits for {more} more of its group"),
            WaitsFor::Program => f.write_str("waits for its program"),
            WaitsFor::Data => f.write_str("waits for a step"),
        }
    }
}

/// A stream, as it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamStatus {
    /// Its number.
    pub stream: StreamId,
    /// Its connection.
    pub connection: ConnectionId,
    /// That one's name, if it has one.
    pub connection_name: Option<String>,
    /// Where it goes, or comes from.
    pub name: String,
    /// Which way it goes.
    pub direction: Direction,
    /// Where it is.
    #[serde(flatten)]
    pub state: State,
    /// Its group.
    pub group: Option<GroupId>,
    /// That one's name, if it has one.
    pub group_name: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// Its quantum, in steps.
    pub quantum: u32,
    /// Whether its buffers and lanes are its own.
    pub permanent: bool,
    /// Steps that are there, and have not been moved.
    pub waiting: u64,
    /// Steps that were moved.
    pub steps: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Bytes of its buffers while it is active.
    pub buffer_bytes: u64,
    /// Its lanes.
    pub lanes: u32,
    /// How long steps waited for buffers and lanes, in sum.
    #[serde(with = "seconds")]
    pub pending: Duration,
    /// How long it moved steps, in sum: what was moved in that time is its rate.
    #[serde(with = "seconds")]
    pub moving: Duration,
    /// Why it failed.
    pub why: Option<String>,
}

mod seconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// All that a manager has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Streams, in the order of their numbers.
    pub streams: Vec<StreamStatus>,
    /// Bytes of buffers that there may be.
    pub buffer_bytes: u64,
    /// Of these, not in use.
    pub free_bytes: u64,
    /// Lanes that there may be.
    pub lanes: u32,
    /// Of these, not in use.
    pub free_lanes: u32,
}
