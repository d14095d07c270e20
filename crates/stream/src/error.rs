//! What a gateway refuses, and what ends a stream.

use crate::gateway::transmit::ProgramError;
use crate::{ConnectionId, GroupId, StreamId};
use std::io;
use std::time::Duration;

/// Why a stream ended before its program did. All of them concern the stream alone: the gateway goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// Nobody was there.
    #[error("{place}: not reached{}: {source}", within(*waited))]
    Connect {
        /// The place.
        place: String,
        /// How long it was tried.
        waited: Duration,
        /// What came of the last try.
        source: io::Error,
    },
    /// This side cannot listen there.
    #[error("{place}: {source}")]
    Listen {
        /// The place.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// The other end has closed while there was something for it.
    #[error("{place}: the receiver closed the connection during step {step}")]
    Closed {
        /// The place.
        place: String,
        /// The step that it did not get.
        step: u64,
    },
    /// The connection broke.
    #[error("{place}: the connection broke during step {step}: {source}")]
    Broken {
        /// The place.
        place: String,
        /// The step that did not arrive.
        step: u64,
        /// The system's word.
        source: io::Error,
    },
    /// The receiver did not take the end of the stream.
    #[error("{place}: the receiver has not taken all of {step} steps within {} s", waited.as_secs())]
    Stalled {
        /// The place.
        place: String,
        /// Steps that were sent.
        step: u64,
        /// How long it was waited for.
        waited: Duration,
    },
    /// What comes is not what it should be.
    #[error("{place}: step {step}: {source}")]
    Content {
        /// The place.
        place: String,
        /// The step.
        step: u64,
        /// What is wrong with it.
        source: ProgramError,
    },
    /// The gateway is gone, or gave the stream up; why, it tells its own unit.
    #[error("{place}: the gateway that carries the stream has ended: {source}")]
    Lost {
        /// The place.
        place: String,
        /// What the unit has seen of it.
        source: ProgramError,
    },
    /// What a gateway that is a process of its own says of it.
    #[error("{what}")]
    Told {
        /// The place.
        place: String,
        /// Whether its other end was reached.
        reached: bool,
        /// The gateway's words.
        what: String,
    },
    /// There is no such gateway.
    #[error(
        "{place}: there is no gateway {gateway:?} on this host; `polyduct gateway {gateway}` starts one ({source})"
    )]
    NoGateway {
        /// The place.
        place: String,
        /// The gateway.
        gateway: String,
        /// What the system says.
        source: ProgramError,
    },
    /// The gateway at a place is not reached.
    #[error(
        "{place}: the gateway at {gateway} is not reached ({source}); `polyduct gateway NAME --listen {gateway}` starts one \
        there, with this job's key"
    )]
    NoGatewayThere {
        /// The place of the stream.
        place: String,
        /// Where the gateway listens.
        gateway: String,
        /// What came of it.
        source: ProgramError,
    },
    /// Somebody stopped the stream.
    #[error("{place}: the stream was stopped: {why}")]
    Stopped {
        /// The place.
        place: String,
        /// Why.
        why: String,
    },
    /// The program's side.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The gateway's manager refused it.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The system refused what a gateway needs.
    #[error("{what}")]
    System {
        /// What.
        what: String,
    },
}

impl StreamError {
    /// That of a stream that somebody stopped.
    pub fn stopped(place: impl ToString, why: impl Into<String>) -> StreamError {
        StreamError::Stopped { place: place.to_string(), why: why.into() }
    }
}

/// Why a call of the control interface was refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// A size or a number that cannot be.
    #[error("{what}: expected {expected}, found {found}")]
    Format {
        /// Of what.
        what: &'static str,
        /// What it is.
        found: u64,
        /// What it may be.
        expected: &'static str,
    },
    /// There is no such connection.
    #[error("there is no connection {0}")]
    NoConnection(ConnectionId),
    /// There is no such stream, or it was forgotten after its end.
    #[error("there is no stream {0}")]
    NoStream(StreamId),
    /// A connection with streams that have not ended cannot go.
    #[error("connection {connection} has streams that have not ended, {stream} first of all")]
    InUse {
        /// The connection.
        connection: ConnectionId,
        /// One of its streams.
        stream: StreamId,
    },
    /// The stream would wait for one that waits for it.
    #[error(
        "a stream in group {group}{} would wait for the end of stream {stream}{}, which waits for that group at \
        each step",
        called(group_name), called(place)
    )]
    Cycle {
        /// The group in lock step.
        group: GroupId,
        /// Its name, if it has one.
        group_name: String,
        /// The stream before it.
        stream: StreamId,
        /// Where that goes.
        place: String,
    },
    /// The streams of a group say different numbers of members.
    #[error("group {group:?} is to have {} members, and not {}", number(*first), number(*found))]
    Members {
        /// The group.
        group: String,
        /// What the first of it said; 0 for nothing.
        first: u32,
        /// What this one says.
        found: u32,
    },
    /// What the stream needs is not there, whoever ends.
    #[error(
        "a stream needs {need} {what}: there are {all}, of which {permanent} belong to permanent streams, and the \
        others need up to {others}"
    )]
    NoRoom {
        /// Bytes of buffers, or lanes.
        what: &'static str,
        /// What it needs.
        need: u64,
        /// What there is.
        all: u64,
        /// What permanent streams have.
        permanent: u64,
        /// The most that another stream, which must not starve, needs.
        others: u64,
    },
    /// There are as many as there may be.
    #[error("there are {most} {what} already, which is the most")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// More or less than the stream's units of data have.
    #[error("stream {stream}: a step of {found} bytes, which its format has no place for")]
    WrongSize {
        /// The stream.
        stream: StreamId,
        /// Bytes of the step.
        found: u64,
    },
}

/// Where it was tried again and again.
fn within(waited: Duration) -> String {
    match waited.as_millis() {
        0 => String::new(),
        millis => format!(" within {millis} ms"),
    }
}

fn called(name: &str) -> String {
    if name.is_empty() {
        String::new()
    } else {
        format!(" ({name})")
    }
}

fn number(members: u32) -> String {
    if members == 0 {
        "any number of".into()
    } else {
        members.to_string()
    }
}
