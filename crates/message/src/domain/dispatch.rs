//! Delivers incoming messages to handlers, `recv` and pending calls.

use super::call::Parcel;
use super::handlers::{inside, Handler, Table};
use super::inbox::Mail;
use super::room::Buffer;
use super::{system, Inner};
use crate::link::shm::{Incoming, Payload};
use crate::types::{Address, HandlerId, Head, Priority};
use crate::{LinkError, MessageError};

/// A message, as its handler gets it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The unit that sent it.
    pub from: Address,
    /// On which of its channels.
    pub channel: crate::ChannelId,
    /// Its priority.
    pub priority: Priority,
    /// Four words.
    pub args: [u32; 4],
    /// The payload, for as long as the call lasts.
    pub payload: &'a [u8],
}

/// What a handler may do: send, without waiting.
pub struct Context<'a> {
    inner: &'a Inner,
    from: Address,
}

impl Context<'_> {
    /// This unit's address.
    pub fn unit(&self) -> Address {
        self.inner.units.me()
    }

    /// The unit that sent the message.
    pub fn from(&self) -> Address {
        self.from
    }

    /// Sends a message to a handler, now or when there is room. In the order in which handlers send to a
    /// unit, and in no order with channels.
    ///
    /// # Errors
    /// [`MessageError::Limit`] when too much waits to be sent to the unit; loss of the unit.
    pub fn send(
        &self,
        to: Address,
        handler: HandlerId,
        args: [u32; 4],
        payload: &[u8],
    ) -> Result<(), MessageError> {
        self.inner.push(to, Head { handler, args }, payload.to_vec())
    }
}

fn warn(from: Address, handled: Result<(), String>) {
    if let Err(error) = handled {
        tracing::error!(from, %error, "a handler of messages failed");
    }
}

impl Inner {
    /// Gives a message to a handler of the unit itself, in place. Returns whether there is one.
    pub(super) fn post_self(&self, head: Head, payload: &[u8]) -> bool {
        let handlers = self.handlers.table();
        let Some(Handler::Message(handler)) = handlers.get(head.handler) else { return false };
        let from = self.units.me();
        let (channel, priority) = (crate::ChannelId(0), Priority::Low);
        let message = Message { from, channel, priority, args: head.args, payload };
        warn(from, inside(|| handler(&Context { inner: self, from }, message)));
        true
    }

    /// Calls a function of the unit itself, in place.
    pub(super) fn call_self(&self, head: Head, argument: &[u8]) {
        let me = self.units.me();
        let [method, number, first, second] = head.args;
        let answer = self.run(me, method, [first, second], argument, &self.handlers.table());
        self.calls().handle_answer(me, number, answer);
    }

    /// Runs a function of this unit.
    fn run(
        &self,
        from: Address,
        method: u32,
        words: [u32; 2],
        argument: &[u8],
        handlers: &Table,
    ) -> Result<Parcel, String> {
        match self.handlers.find(HandlerId(method), handlers, &mut None) {
            Some(Handler::Call(function)) => {
                inside(|| function(&Context { inner: self, from }, words, argument)).and_then(|result| result)
            }
            Some(Handler::Message(_)) => Err("it is a handler of messages, not a function".to_owned()),
            None => Err("there is no such function here".to_owned()),
        }
    }

    /// A buffer for a message that comes in pieces; `None` refuses it for now.
    pub(super) fn buffer_for(&self, from: Address, m: &Incoming) -> Option<Buffer> {
        if m.len > self.inbox.longest() {
            // Its sender would have been told.
            let (what, expected) = ("a message's length", "within the limit");
            self.broke(from, LinkError::BadField { what, found: m.len, expected });
            return None;
        }
        self.inbox.buffer(from, m)
    }

    /// Handles a message. Returns whether it was taken: mail that comes in one piece over shared memory and
    /// finds no room is not.
    #[inline]
    pub(super) fn deliver(
        &self,
        from: Address,
        m: &Incoming,
        payload: Payload<'_, Buffer>,
        handlers: &Table,
    ) -> bool {
        if m.head.handler.0 >= HandlerId::RESERVED {
            return self.library(from, m, payload, handlers);
        }
        match self.handlers.find(m.head.handler, handlers, &mut None) {
            Some(Handler::Message(handler)) => {
                let (bytes, buffer) = match &payload {
                    Payload::Bytes(bytes) => (*bytes, false),
                    Payload::Buffer(b) => (&b[..], true),
                };
                let context = Context { inner: self, from };
                let (channel, priority, args) = (m.channel, m.priority, m.head.args);
                let message = Message { from, channel, priority, args, payload: bytes };
                warn(from, inside(|| handler(&context, message)));
                if buffer {
                    self.inbox.recycle(payload);
                }
            }
            // A sender that looked the number up knows better: it is faulty.
            _ => {
                let what = "a handler of messages with the number";
                self.broke(from, LinkError::Unknown { what, found: m.head.handler.0.into() });
            }
        }
        true
    }

    /// Answers a call. A caller that is gone, or that takes no answers, does without.
    fn answer(&self, to: Address, number: u32, result: Result<Parcel, String>) {
        let (failed, result) = match result {
            Ok(result) => (0, result),
            Err(words) => (1, Parcel::from(words.into_bytes())),
        };
        let Parcel { words: [first, second], payload } = result;
        let head = |failed| Head { handler: system::ANSWER, args: [number, failed, first, second] };
        let sent = match self.push(to, head(failed), payload) {
            // The caller may wait without a deadline.
            Err(error @ MessageError::Limit { .. }) => {
                let words = format!("its answer could not be sent: {error}");
                let mut words = words.into_bytes();
                words.truncate(system::REASON);
                self.push(to, head(1), words)
            }
            sent => sent,
        };
        if let Err(error) = sent {
            tracing::warn!(to, %error, "an answer was not sent");
        }
    }

    /// Handles a message of the library's own.
    #[cold]
    fn library(&self, from: Address, m: &Incoming, payload: Payload<'_, Buffer>, handlers: &Table) -> bool {
        let args = m.head.args;
        let bytes = match &payload {
            Payload::Bytes(bytes) => bytes,
            Payload::Buffer(b) => &b[..],
        };
        // A faulty sender can change what is seen where it lies. What is parsed must not.
        let steady = || bytes.to_vec();
        match m.head.handler {
            // Nobody takes it any more.
            system::MAIL if self.units.leaves() => {}
            // Across hosts it has no payload where it is in one piece, and is here for good.
            system::MAIL => return self.inbox.put(from, m, payload, self.units.hosts().is_far(from)),
            system::CALL => {
                let result = self.run(from, args[0], [args[2], args[3]], bytes, handlers);
                self.answer(from, args[1], result);
            }
            system::PUT | system::GET => {
                let result = self.answer_far(m.head.handler, args, bytes);
                self.answer(from, args[3], result.map(Parcel::from));
            }
            // Handlers run in the order in which messages come, so all before it has been handled.
            system::FLUSH => self.answer(from, args[0], Ok(Parcel::default())),
            system::LEAVING if self.units.hosts().is_far(from) => self.handle_leaving(from, args, &steady()),
            system::LOST if self.net.is_some() => self.handle_lost(from, args[0], &steady()),
            // Said once more by a unit that was already answered.
            system::MEET if self.net.is_some() => {}
            system::ANSWER => {
                let answer = match args[1] {
                    0 => Ok(Parcel { words: [args[2], args[3]], payload: self.inbox.own(payload) }),
                    _ => Err(String::from_utf8_lossy(&steady()).into_owned()),
                };
                self.calls().handle_answer(from, args[0], answer);
                return true;
            }
            // Functions run to their end when they are called, so there is nothing to stop: the answer finds
            // nobody.
            system::CANCEL => {}
            system::CAME => self.handle_came(from, [args[0], args[1]]),
            system::BARRIER => self.handle_barrier(from, args),
            system::OFFER if self.units.me() == 0 => self.handle_offer(from, [args[0], args[1]], &steady()),
            system::AGREED if from == 0 => self.handle_agreed(args[0] == 0, &steady()),
            other => {
                let found = other.0.into();
                self.broke(from, LinkError::Unknown { what: "a message of the library", found });
            }
        }
        self.inbox.recycle(payload);
        true
    }

    /// Takes the first mail that fits. Where that makes room again for what was refused, it is offered again.
    pub(super) fn take_mail(&self, from: Option<Address>, tag: Option<u32>) -> Option<Mail> {
        let mail = self.inbox.mailbox().take(from, tag)?;
        self.offer_room();
        Some(mail)
    }

    /// The same for one that is waited for: should it find no room when it comes, it comes all the same.
    pub(super) fn take_or_await_mail(&self, from: Option<Address>, tag: Option<u32>) -> Option<Mail> {
        let mail = self.inbox.mailbox().take_or_await(from, tag);
        self.offer_room();
        mail
    }

    /// Where there is room again for what was refused, tells those who wait for it on other hosts. On this
    /// one it lies in its ring, and whoever receives, and was woken, finds it there.
    #[inline]
    pub(super) fn offer_room(&self) {
        if self.inbox.rooms().take_again() {
            if let Some(net) = &self.net {
                net.retry_refused();
            }
        }
    }
}
