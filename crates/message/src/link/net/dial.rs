//! The side that connects: a connection that was begun, up to the end of the handshake.

use super::inbox::Inbox;
use super::socket::{connect, is_connected, write, Patience};
use super::Fault;
use crate::error::LinkError;
use crate::link::noise::{Established, Initiator, Message, Terms};
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
        patience: Patience,
        now: Duration,
        timeout: Duration,
    ) -> Result<Dial, Fault> {
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
        self.begun + self.timeout
    }

    /// Goes on as far as it can; the keys at the end.
    ///
    /// # Errors
    /// Why this attempt is over: what the other side refused, its silence, or the system's.
    pub fn serve(&mut self, now: Duration) -> Result<Option<Established>, Fault> {
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

    fn say(&self, bytes: &[u8]) -> Result<(), Fault> {
        // The first bytes on a connection always fit into its buffer.
        match write(&self.stream, &[IoSlice::new(bytes)])? {
            Some(n) if n == bytes.len() => Ok(()),
            _ => Err(LinkError::Closed.into()),
        }
    }
}

/// Over datagrams: messages of the handshake go again after this long without an answer.
pub const REPEAT: Duration = Duration::from_millis(50);

/// An attempt to reach a unit by datagrams.
pub(crate) struct Call {
    pub addr: SocketAddr,
    /// What the peer is to send with.
    pub index: u32,
    initiator: Initiator,
    begun: Duration,
    again: Duration,
    timeout: Duration,
    /// What somebody answered without a proof: only told if nothing better comes.
    refused: Option<LinkError>,
}

impl Call {
    pub fn new(
        terms: &Terms,
        to: Address,
        addr: SocketAddr,
        now: Duration,
        timeout: Duration,
    ) -> Result<Call, Fault> {
        let (initiator, index) = (Initiator::new(terms, to)?, terms.me.index);
        Ok(Call { addr, index, initiator, begun: now, again: now, timeout, refused: None })
    }

    /// What was answered without a proof so far.
    pub fn refused(&self) -> Option<&LinkError> {
        self.refused.as_ref()
    }

    /// When [`due`](Call::due) has something to say.
    pub fn deadline(&self) -> Duration {
        self.again.min(self.begun + self.timeout)
    }

    /// What to send now, if anything.
    pub fn due(&mut self, now: Duration) -> Result<Option<&Message>, Fault> {
        if now >= self.begun + self.timeout {
            let late = LinkError::Deadline { what: "an answer", limit_ms: self.timeout.as_millis() as u64 };
            return Err(self.refused.take().unwrap_or(late).into());
        }
        if now < self.again {
            return Ok(None);
        }
        self.again = now + REPEAT;
        Ok(Some(self.initiator.message()))
    }

    /// Takes a message of a handshake that may be the answer.
    pub fn handle(&mut self, bytes: &[u8]) -> Option<(Established, Message)> {
        match self.initiator.answer(bytes) {
            Ok(done) => Some(done),
            Err(error) => {
                self.refused = Some(error);
                None
            }
        }
    }
}
