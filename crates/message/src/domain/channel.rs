//! Channels: one writer each, so that sending takes no lock.

use super::{call::Call, peer::Number, system, Domain, Inner};
use crate::engine::Send;
use crate::link::shm::{SendError, Sender, Ticket};
use crate::types::{Address, ChannelId, HandlerId, Head, Order, Priority, Token};
use crate::MessageError;
use bytes::Bytes;
use polyduct_os::clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// What a channel is like.
///
/// # Examples
/// ```
/// use polyduct_message::{domain::ChannelOptions, Order, Priority};
/// let free = ChannelOptions { order: Order::Any, ..ChannelOptions::default() };
/// assert_eq!(free.priority, Priority::Low);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelOptions {
    /// Low or high.
    pub priority: Priority,
    /// Whether its messages arrive in the order in which they were sent. With [`Order::Any`] none is held up
    /// because an earlier one was lost on the way or found no buffer. Between units of one host nothing is
    /// lost, and both are in order.
    pub order: Order,
}

/// A channel to another unit. Messages of one channel arrive in the order in which they were sent, unless it
/// was made for [any](Order::Any); of several, as it comes.
pub struct Channel {
    inner: Arc<Inner>,
    raw: RawChannel,
}

/// A channel, as the domain itself holds it.
pub enum RawChannel {
    /// To a unit of the same host.
    Near(Near),
    /// Across hosts.
    Far(Far),
}

impl Domain {
    /// A new channel to a unit, in order; connects to it if it is the first.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`] (this unit itself, too: call the handler instead); [`MessageError::Limit`];
    /// [`MessageError::PeerLost`], [`MessageError::PeerLeft`], [`MessageError::Timeout`] when connecting.
    pub fn channel(&self, to: Address, priority: Priority) -> Result<Channel, MessageError> {
        self.channel_with(to, ChannelOptions { priority, ..ChannelOptions::default() })
    }

    /// The same for a channel whose messages may come in [any order](crate::Order::Any).
    ///
    /// # Errors
    /// As [`channel`](Domain::channel).
    pub fn channel_with(&self, to: Address, options: ChannelOptions) -> Result<Channel, MessageError> {
        Ok(Channel { raw: RawChannel::new(&self.inner, to, options)?, inner: self.inner.clone() })
    }
}

/// A channel to a unit of another host.
pub struct Far {
    to: Address,
    number: Number,
    options: ChannelOptions,
    /// Messages that are not with the receiver's program yet: the last one says nothing of the others where
    /// they have no order.
    under_way: Arc<AtomicU64>,
}

impl RawChannel {
    pub(super) fn new(
        inner: &Inner,
        to: Address,
        options: ChannelOptions,
    ) -> Result<RawChannel, MessageError> {
        if !inner.units.hosts().is_far(to) {
            return Near::new(inner, to, options.priority).map(RawChannel::Near);
        }
        let number = inner.units.peer(to)?.next_channel().ok_or_else(no_channel)?;
        let far = Far { to, number, options, under_way: Arc::default() };
        far.check(inner)?;
        Ok(RawChannel::Far(far))
    }

    /// Sends, waiting for room and receiving meanwhile.
    pub(super) fn send(&mut self, inner: &Inner, head: Head, payload: &[u8]) -> Result<(), MessageError> {
        match self {
            RawChannel::Near(near) => near.send(inner, head, payload),
            RawChannel::Far(far) => far.send(inner, head, payload).map(drop),
        }
    }
}

impl Far {
    fn check(&self, inner: &Inner) -> Result<(), MessageError> {
        inner.units.deaf_error(self.to).map_or(Ok(()), Err)
    }

    fn try_send(&mut self, inner: &Inner, head: Head, payload: Bytes) -> Result<Token, MessageError> {
        let Some(net) = &inner.net else { return Err(MessageError::PeerLeft { unit: self.to }) };
        let ChannelOptions { priority, order } = self.options;
        let sent =
            net.send(self.to, self.number.id, Send { priority, order, head, payload }, &self.under_way);
        sent.map_err(|error| match error {
            MessageError::Full { .. } => error,
            // The link knows only that the unit said good-bye; why, it said before.
            error => inner.units.gone_error(self.to).unwrap_or(error),
        })
    }

    fn send(&mut self, inner: &Inner, head: Head, payload: &[u8]) -> Result<Token, MessageError> {
        self.check(inner)?;
        inner.inbox.check_len(payload.len())?;
        // Kept by the link until it has arrived, while the caller goes on.
        let payload = Bytes::copy_from_slice(payload);
        match self.try_send(inner, head, payload.clone()) {
            Err(MessageError::Full { .. }) => {}
            done => return done,
        }
        inner.wait("the receiver to make room", None, |inner| {
            match self.try_send(inner, head, payload.clone()) {
                Err(MessageError::Full { to }) => inner.units.deaf_error(to).map(Err),
                done => Some(done),
            }
        })
    }

    /// Waits until the receiver's program has a message, or all that were sent if none is named.
    fn delivered(&self, inner: &Inner, message: Option<Token>) -> Result<(), MessageError> {
        let Some(net) = &inner.net else { return Ok(()) };
        let to = self.to;
        let delivered = || match message {
            Some(token) => net.is_delivered(to, token),
            None => self.under_way.load(Ordering::Acquire) == 0,
        };
        inner.wait("the receiver to take the message", None, |inner| match delivered() {
            true => Some(Ok(())),
            false => inner.units.gone_error(to).map(Err),
        })
    }

    /// Waits until the receiver has handled all that was sent. That it has it is not enough: it may handle it
    /// later. So it is asked behind all the rest, in the same priority.
    fn flush(&mut self, inner: &Arc<Inner>) -> Result<(), MessageError> {
        // Where there is no order, the question could overtake what is still on its way.
        self.delivered(inner, None)?;
        let to = self.to;
        let asked = Call::begin(inner.clone(), to, "a flush", None, |inner, number| {
            self.send(inner, Head { handler: system::FLUSH, args: [number, 0, 0, 0] }, &[]).map(drop)
        })?;
        asked.wait_or_why().map(drop)
    }
}

fn no_channel() -> MessageError {
    let limit = super::peer::LIBRARY_CHANNEL.into();
    MessageError::Limit { what: "channels to a unit", limit, found: limit + 1 }
}

/// A channel to a unit of the same host.
pub struct Near {
    to: Address,
    // It goes before its number does.
    sender: Sender,
    _number: Number,
    /// From so many bytes on, the receiver fetches a payload itself.
    pull_from: u64,
}

impl Near {
    fn new(inner: &Inner, to: Address, priority: Priority) -> Result<Near, MessageError> {
        let link = inner.link(to)?;
        // A channel that has not said yet what it gave up keeps its number.
        for _ in 0..super::peer::LIBRARY_CHANNEL {
            let number = inner.units.peer(to)?.next_channel().ok_or_else(no_channel)?;
            if let Some(sender) = link.sender(number.id, priority) {
                let pull_from = inner.units.options().config.bytes("pull_from");
                return Ok(Near { to, sender, _number: number, pull_from });
            }
        }
        Err(no_channel())
    }

    /// Sends, waiting for room and receiving meanwhile.
    fn send(&mut self, inner: &Inner, head: Head, payload: &[u8]) -> Result<(), MessageError> {
        self.check(inner)?;
        inner.inbox.check_len(payload.len())?;
        if payload.len() as u64 >= self.pull_from && self.sender.can_post() {
            let ticket = self.sending(inner, |s| s.post(head, payload))?;
            return Posted { near: self, ticket }.fetched(inner);
        }
        let mut taken = self.sending(inner, |s| s.send(head, payload))?;
        while taken < payload.len() {
            match self.sending(inner, |s| s.extend(&payload[taken..])) {
                Ok(n) => taken += n,
                Err(e) => {
                    // What has come of it is forgotten at the other end: now, or when there is room to say
                    // so.
                    if self.sender.abandon().is_err() {
                        inner.units.note_backlog();
                    }
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Sends what goes in one piece, if there is room. `false`: nothing was sent.
    pub(super) fn send_now(&mut self, inner: &Inner, head: Head, payload: &[u8]) -> bool {
        let len = payload.len() as u64;
        let whole = len <= u64::from(self.sender.cut().whole_bytes) && len < self.pull_from;
        whole && !inner.units.is_gone(self.to) && self.sender.send(head, payload).is_ok()
    }

    fn check(&self, inner: &Inner) -> Result<(), MessageError> {
        inner.units.gone_error(self.to).map_or(Ok(()), Err)
    }

    /// Tries until there is room.
    fn sending<T>(
        &mut self,
        inner: &Inner,
        mut send: impl FnMut(&mut Sender) -> Result<T, SendError>,
    ) -> Result<T, MessageError> {
        let mut once = |near: &mut Near| match send(&mut near.sender) {
            Err(SendError::Full) => None,
            done => Some(done.map_err(|e| near.error(inner, e))),
        };
        match once(self) {
            Some(done) => done,
            None => self.wait(inner, "the receiver to make room", once),
        }
    }

    /// Waits until the receiver is done with a record.
    fn taken(&mut self, inner: &Inner, ticket: Ticket) -> Result<(), MessageError> {
        let taken = |near: &mut Near| near.sender.is_taken(ticket).then_some(Ok(()));
        self.wait(inner, "the receiver to fetch the message", taken)
    }

    /// Waits until the receiver has done what `look` looks for.
    fn wait<T>(
        &mut self,
        inner: &Inner,
        what: &str,
        mut look: impl FnMut(&mut Near) -> Option<Result<T, MessageError>>,
    ) -> Result<T, MessageError> {
        inner.wait(what, None, |inner| {
            look(self).or_else(|| inner.units.gone_error(self.to).map(Err)).or_else(|| {
                self.sender.ask_for_call();
                // What was taken before it could know of the question.
                look(self)
            })
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
                inner.units.gone_error(self.to).unwrap_or(MessageError::PeerLeft { unit: self.to })
            }
        }
    }
}

/// A message whose payload the receiver may be fetching. When it is dropped it does not any more: the caller
/// has its memory back, however the call ends.
struct Posted<'a> {
    near: &'a mut Near,
    ticket: Ticket,
}

impl Posted<'_> {
    /// Waits until the receiver has it.
    fn fetched(self, inner: &Inner) -> Result<(), MessageError> {
        let waited = self.near.taken(inner, self.ticket);
        let to = self.near.to;
        match waited {
            // Whatever ended the wait, a receiver that lives had all of it by then.
            Err(_) if inner.units.gone_error(to).is_none() && !self.near.sender.withdraw(self.ticket) => {
                Ok(())
            }
            waited => waited,
        }
    }
}

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        // Where it has been fetched, or withdrawn before, nothing happens.
        self.near.sender.withdraw(self.ticket);
    }
}

impl Channel {
    /// The unit at the other end.
    pub fn to(&self) -> Address {
        match &self.raw {
            RawChannel::Near(near) => near.to,
            RawChannel::Far(far) => far.to,
        }
    }

    /// The channel's number.
    pub fn number(&self) -> ChannelId {
        match &self.raw {
            RawChannel::Near(near) => near.sender.channel(),
            RawChannel::Far(far) => far.number.id,
        }
    }

    /// Sends a short message: a handler and four words. Does not wait, allocate, lock or call the system, but
    /// to wake a receiver that sleeps.
    ///
    /// # Errors
    /// [`MessageError::Full`]: the receiver has not taken enough of what was sent before; poll, then try
    /// again. Loss of the unit.
    #[inline]
    pub fn short(&mut self, handler: HandlerId, args: [u32; 4]) -> Result<(), MessageError> {
        match &mut self.raw {
            RawChannel::Near(near) => match near.sender.short(Head { handler, args }) {
                Ok(()) => Ok(()),
                Err(e) => Err(near.error(&self.inner, e)),
            },
            RawChannel::Far(far) => far.try_send(&self.inner, Head { handler, args }, Bytes::new()).map(drop),
        }
    }

    /// Sends a message for [`recv`](super::Domain::recv), as [`bulk`](Channel::bulk) does.
    ///
    /// # Errors
    /// As `bulk`.
    pub fn send(&mut self, tag: u32, words: [u32; 2], payload: &[u8]) -> Result<(), MessageError> {
        self.bulk(system::MAIL, [tag, words[0], words[1], 0], payload)
    }

    /// Sends a message with a payload of any length, and waits until the receiver has all of it or the
    /// library has; the payload is the caller's again then. Receives meanwhile. It is cut into fragments that
    /// the receiver takes while later ones are written; from the setting `pull_from` on the receiver fetches
    /// it from where it lies.
    ///
    /// # Errors
    /// Loss of the unit; [`MessageError::Timeout`] after the domain's timeout: the message is not sent.
    pub fn bulk(&mut self, handler: HandlerId, args: [u32; 4], payload: &[u8]) -> Result<(), MessageError> {
        self.raw.send(&self.inner, Head { handler, args }, payload)
    }

    /// Sends a message whose payload the receiver fetches while `work` runs, on the receiver's processor;
    /// returns what `work` returns once both are done.
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
        let head = Head { handler, args };
        let near = match &mut self.raw {
            RawChannel::Near(near) => near,
            RawChannel::Far(far) => {
                let token = far.send(&self.inner, head, payload)?;
                let done = work();
                far.delivered(&self.inner, Some(token))?;
                return Ok(done);
            }
        };
        near.check(&self.inner)?;
        self.inner.inbox.check_len(payload.len())?;
        if !near.sender.can_post() {
            near.send(&self.inner, head, payload)?;
            return Ok(work());
        }
        let ticket = near.sending(&self.inner, |s| s.post(head, payload))?;
        let posted = Posted { near, ticket };
        let done = work();
        posted.fetched(&self.inner)?;
        Ok(done)
    }

    /// Short messages that will be taken for certain, if no other channel to the unit sends.
    ///
    /// # Errors
    /// Loss of the unit.
    pub fn sends_guaranteed(&self) -> Result<u32, MessageError> {
        match &self.raw {
            RawChannel::Near(near) => {
                near.check(&self.inner)?;
                near.sender.room().map(|room| room.messages).map_err(|e| near.error(&self.inner, e))
            }
            RawChannel::Far(far) => {
                far.check(&self.inner)?;
                let net = self.inner.net.as_ref();
                Ok(net.map_or(0, |net| {
                    net.sends_guaranteed(far.to, far.number.id, far.options.priority, far.options.order)
                }))
            }
        }
    }

    /// Waits until the receiver has handled all that this channel sent.
    ///
    /// # Errors
    /// Loss of the unit; [`MessageError::Timeout`].
    pub fn flush(&mut self) -> Result<(), MessageError> {
        match &mut self.raw {
            RawChannel::Near(near) => {
                let ticket = near.sender.ticket();
                match near.sender.is_taken(ticket) {
                    true => Ok(()),
                    false => near.taken(&self.inner, ticket),
                }
            }
            RawChannel::Far(far) => far.flush(&self.inner),
        }
    }

    /// The time on the clock that deadlines are on.
    pub fn now() -> Duration {
        clock::now()
    }
}
