//! The side that connects: a connection that was begun, up to the end of the handshake.

use super::inbox::Inbox;
use super::socket::{connect, is_connected, write, KeepAlive};
use super::LinkFault;
use crate::error::LinkError;
use crate::link::noise::{Established, Initiator, Terms};
use crate::types::Address;
use core::time::Duration;
use std::io::IoSlice;
use std::net::{SocketAddr, TcpStream};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Asked,
}

/// An attempt to reach a unit.
pub struct Dial {
    stream: TcpStream,
    addr: SocketAddr,
    stage: Stage,
    initiator: Initiator,
    inbox: Inbox,
    begun: Duration,
    timeout: Duration,
}

impl Dial {
    /// Begins to connect to unit `to` at `addr`, which may take `timeout` in all.
    ///
    /// # Errors
    /// The system's, or that nobody listens there.
    pub fn new(
        terms: &Terms,
        to: Address,
        addr: SocketAddr,
        patience: KeepAlive,
        now: Duration,
        timeout: Duration,
    ) -> Result<Dial, LinkFault> {
        let initiator = Initiator::new(terms, to)?;
        let stream = connect(addr, patience)?;
        let (stage, inbox) = (Stage::Connecting, Inbox::new());
        Ok(Dial { stream, addr, stage, initiator, inbox, begun: now, timeout })
    }

    /// The socket to wait for, and whether until it is writable (else readable).
    pub fn waits_for(&self) -> (&TcpStream, bool) {
        (&self.stream, self.stage == Stage::Connecting)
    }

    /// When [`serve`](Dial::serve) must be called at the latest.
    pub fn deadline(&self) -> Duration {
        self.begun.saturating_add(self.timeout)
    }

    /// Goes on as far as it can; the keys at the end.
    ///
    /// # Errors
    /// Why this attempt is over: what the other side refused, its silence, or the system's.
    pub fn serve(&mut self, now: Duration) -> Result<Option<Established>, LinkFault> {
        if self.stage == Stage::Connecting && is_connected(&self.stream, self.addr)? {
            self.say(self.initiator.message().bytes())?;
            self.stage = Stage::Asked;
        }
        if self.stage == Stage::Asked {
            if let Some(message) = self.inbox.read(&self.stream)? {
                let (established, confirm) = self.initiator.answer(message)?;
                self.say(confirm.bytes())?;
                return Ok(Some(established));
            }
        }
        if now >= self.deadline() {
            let what = match (self.stage, self.inbox.has_begun()) {
                (Stage::Connecting, _) => "a connection",
                (Stage::Asked, false) => "an answer",
                (Stage::Asked, true) => "the rest of an answer",
            };
            return Err(LinkError::Deadline { what, limit_ms: self.timeout.as_millis() as u64 }.into());
        }
        Ok(None)
    }

    /// The connection, after the handshake: the next bytes are the first record.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    fn say(&self, bytes: &[u8]) -> Result<(), LinkFault> {
        // The first bytes on a connection always fit into its buffer.
        match write(&self.stream, &[IoSlice::new(bytes)])? {
            Some(n) if n == bytes.len() => Ok(()),
            _ => Err(LinkError::Closed.into()),
        }
    }
}
