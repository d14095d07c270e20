//! Links over a network: TCP connections and UDP datagrams.
//!
//! Strangers come to the [acceptor]; a peer that is to be reached is [dialled](dial), or [called](call).
//! After the proof of the key a [stream] or the [datagram socket](datagram) carries frames; the [records] of
//! a stream carry all else that is in order, too. Nothing here blocks and nothing reads a clock: calls that
//! depend on the time take it as an argument.
//!
//! [records]: record

mod batch;
pub mod call;
pub mod config;
mod cookie;

pub mod acceptor;
pub mod channel;
pub mod datagram;
pub mod dial;
pub mod endpoint;
mod events;
pub mod handshakes;
mod hub;
mod inbox;
pub mod incarnations;
mod pace;
mod peer;
pub mod pool;
pub mod ports;
pub mod record;
mod serve;
mod serving;
pub mod silence;
pub mod socket;
pub mod stream;

use crate::error::LinkError;
use polyduct_os::OsError;

/// Why a connection, or an attempt at one, is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    /// The other side: what it sent, or that it said no, nothing, or good-bye.
    #[error(transparent)]
    Peer(#[from] LinkError),
    /// The system.
    #[error(transparent)]
    System(#[from] OsError),
}
