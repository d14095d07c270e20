//! What a gateway refuses.

use crate::{ConnectionId, GroupId, StreamId};

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
        "a stream in group {group} would wait for the end of stream {stream}, which waits for that group at each step"
    )]
    Cycle {
        /// The group in lock step.
        group: GroupId,
        /// The stream before it.
        stream: StreamId,
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
