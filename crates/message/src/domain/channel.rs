//! Channels: one writer each, so that sending takes no lock.

use super::{wait::SPIN, Inner};
use crate::link::shm::{SendError, Sender, Ticket};
use crate::types::{Address, ChannelId, HandlerId, Head, Priority};
use crate::MessageError;
use polyduct_os::clock;
use std::sync::Arc;
use std::time::Duration;

/// A channel to another unit. Messages of one channel arrive in the order in which they were sent; of several, as it comes.
pub struct Channel {
    inner: Arc<Inner>,
    raw: RawChannel,
}

/// A channel, as the domain itself holds it.
pub struct RawChannel {
    to: Address,
    sender: Sender,
    /// From so many bytes on, the receiver fetches a payload itself.
    pull_from: u64,
}

impl RawChannel {
    pub(super) fn new(inner: &Inner, to: Address, priority: Priority) -> Result<RawChannel, MessageError> {
        let link = inner.link(to)?;
        let limit = super::peer::LIBRARY_CHANNEL.into();
        let none = || MessageError::Limit { what: "channels to a unit", limit, found: limit + 1 };
        loop {
            let number = inner.peers[to as usize].next_channel().ok_or_else(none)?;
            if let Some(sender) = link.sender(number, priority) {
                return Ok(RawChannel { to, sender, pull_from: inner.options.config.bytes("pull_from") });
            }
        }
    }

    /// Sends, waiting for room and receiving meanwhile.
    pub(super) fn send(&mut self, inner: &Inner, head: Head, payload: &[u8]) -> Result<(), MessageError> {
        self.check(inner)?;
        inner.check_len(payload.len())?;
        if payload.len() as u64 >= self.pull_from && self.sender.can_post() {
            let ticket = self.sending(inner, |s| s.post(head, payload))?;
            return self.taken(inner, ticket);
        }
        let mut taken = self.sending(inner, |s| s.send(head, payload))?;
        while taken < payload.len() {
            match self.sending(inner, |s| s.extend(&payload[taken..])) {
                Ok(n) => taken += n,
                Err(e) => {
                    // What has come of it is forgotten at the other end.
                    let _ = self.sender.abandon();
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    fn check(&self, inner: &Inner) -> Result<(), MessageError> {
        inner.gone_error(self.to).map_or(Ok(()), Err)
    }

    /// Tries until there is room.
    fn sending<T>(
        &mut self,
        inner: &Inner,
        mut send: impl FnMut(&mut Sender) -> Result<T, SendError>,
    ) -> Result<T, MessageError> {
        match send(&mut self.sender) {
            Err(SendError::Full) => {}
            done => return done.map_err(|e| self.error(inner, e)),
        }
        let to = self.to;
        inner.wait("the receiver to make room", None, |inner| match send(&mut self.sender) {
            Err(SendError::Full) => {
                if let Some(e) = inner.gone_error(to) {
                    return Some(Err(e));
                }
                self.sender.ask_for_call();
                // What was taken before it could know of the question.
                match send(&mut self.sender) {
                    Err(SendError::Full) => None,
                    done => Some(done.map_err(|e| self.error(inner, e))),
                }
            }
            done => Some(done.map_err(|e| self.error(inner, e))),
        })
    }

    /// Waits until the receiver is done with a record.
    fn taken(&mut self, inner: &Inner, ticket: Ticket) -> Result<(), MessageError> {
        let to = self.to;
        inner.wait("the receiver to fetch the message", None, |inner| {
            if self.sender.is_taken(ticket) {
                return Some(Ok(()));
            }
            if let Some(e) = inner.gone_error(to) {
                return Some(Err(e));
            }
            self.sender.ask_for_call();
            self.sender.is_taken(ticket).then_some(Ok(()))
        })
    }

    fn error(&self, inner: &Inner, e: SendError) -> MessageError {
        match e {
            SendError::Full => MessageError::Full { to: self.to },
            SendError::TooLong { len } => MessageError::Limit {
                what: "bytes of a message",
                limit: crate::types::MAX_PAYLOAD,
                found: len,
            },
            SendError::Unfinished { left } => MessageError::Limit {
                what: "bytes missing in the channel's last message",
                limit: 0,
                found: left,
            },
            SendError::Broken(error) => MessageError::BadPeer { unit: self.to, error },
            SendError::Closed | SendError::NoPull => {
                inner.gone_error(self.to).unwrap_or(MessageError::PeerLeft { unit: self.to })
            }
        }
    }
}

impl Channel {
    pub(super) fn new(inner: Arc<Inner>, to: Address, priority: Priority) -> Result<Channel, MessageError> {
        let raw = RawChannel::new(&inner, to, priority)?;
        Ok(Channel { inner, raw })
    }

    /// The unit at the other end.
    pub fn to(&self) -> Address {
        self.raw.to
    }

    /// The channel's number.
    pub fn number(&self) -> ChannelId {
        self.raw.sender.channel()
    }

    /// Sends a short message: a handler and four words. Does not wait, allocate, lock or call the system, but to wake a
    /// receiver that sleeps.
    ///
    /// # Errors
    /// [`MessageError::Full`]: the receiver has not taken enough of what was sent before; poll, then try again. Loss of
    /// the unit.
    #[inline]
    pub fn short(&mut self, handler: HandlerId, args: [u32; 4]) -> Result<(), MessageError> {
        match self.raw.sender.short(Head { handler, args }) {
            Ok(()) => Ok(()),
            Err(e) => Err(self.raw.error(&self.inner, e)),
        }
    }

    /// Sends a message with a payload of any length, and waits until the receiver has all of it or the library has; the
    /// payload is the caller's again then. Receives meanwhile. A long one is fetched by the receiver from where it lies,
    /// a shorter one cut into fragments that the receiver takes while later ones are written.
    ///
    /// # Errors
    /// Loss of the unit; [`MessageError::Timeout`] after the domain's timeout: the message is not sent.
    pub fn bulk(&mut self, handler: HandlerId, args: [u32; 4], payload: &[u8]) -> Result<(), MessageError> {
        self.raw.send(&self.inner, Head { handler, args }, payload)
    }

    /// Sends a message whose payload the receiver fetches while `work` runs, on the receiver's processor; returns what
    /// `work` returns once both are done.
    ///
    /// # Errors
    /// As [`bulk`](Channel::bulk). `work` has run in any case but loss of the unit before.
    pub fn bulk_while<T>(
        &mut self,
        handler: HandlerId,
        args: [u32; 4],
        payload: &[u8],
        work: impl FnOnce() -> T,
    ) -> Result<T, MessageError> {
        self.raw.check(&self.inner)?;
        self.inner.check_len(payload.len())?;
        let head = Head { handler, args };
        if !self.raw.sender.can_post() {
            self.raw.send(&self.inner, head, payload)?;
            return Ok(work());
        }
        let ticket = self.raw.sending(&self.inner, |s| s.post(head, payload))?;
        let done = work();
        self.raw.taken(&self.inner, ticket)?;
        Ok(done)
    }

    /// Short messages that will be taken for certain, if no other channel to the unit sends.
    ///
    /// # Errors
    /// Loss of the unit.
    pub fn sends_guaranteed(&self) -> Result<u32, MessageError> {
        self.raw.check(&self.inner)?;
        self.raw.sender.room().map(|room| room.messages).map_err(|e| self.raw.error(&self.inner, e))
    }

    /// Waits until the receiver has handled all that this channel sent.
    ///
    /// # Errors
    /// Loss of the unit; [`MessageError::Timeout`].
    pub fn flush(&mut self) -> Result<(), MessageError> {
        let ticket = self.raw.sender.ticket();
        match self.raw.sender.is_taken(ticket) {
            true => Ok(()),
            false => self.raw.taken(&self.inner, ticket),
        }
    }

    /// How long calls spin before they sleep.
    pub fn spin() -> Duration {
        SPIN
    }

    /// The time on the clock that deadlines are on.
    pub fn now() -> Duration {
        clock::now()
    }
}
