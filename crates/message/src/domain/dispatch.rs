//! Delivers incoming messages to handlers, `recv` and pending calls.

use super::call::Parcel;
use super::collective::CollectiveCount;
use super::inbox::Mail;
use super::room::{Buffer, Lease, RoomShare, Rooms};
use super::{net, peer::lock, system, Inner, Table};
use crate::handshake::unpack;
use crate::link::shm::{Incoming, Payload};
use crate::types::{Address, HandlerId, Head, Priority};
use crate::{LinkError, MessageError};
use std::cell::Cell;
use std::ops::Deref;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// A function that gets messages.
type Receiver = dyn Fn(&Context<'_>, Message<'_>) + Send + Sync;
/// A function that others can call.
type Function = dyn Fn(&Context<'_>, [u32; 2], &[u8]) -> Result<Parcel, String> + Send + Sync;

/// What a name stands for in this unit.
#[derive(Clone)]
pub(super) enum Handler {
    /// Gets messages.
    Message(Arc<Receiver>),
    /// Gets calls.
    Call(Arc<Function>),
}

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside a handler: it cannot wait for what it would itself have to receive.
pub(super) fn in_handler() -> bool {
    IN_HANDLER.get()
}

/// Marks this thread as inside a handler, until dropped; also when the handler panics.
struct Inside(bool);

impl Inside {
    fn enter() -> Inside {
        Inside(IN_HANDLER.replace(true))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        IN_HANDLER.set(self.0);
    }
}

/// Runs a handler. A panic of it, which has been reported by then, ends here: whoever receives goes on, and
/// so does the link. `Err` has the panic's words.
fn inside<T>(handler: impl FnOnce() -> T) -> Result<T, String> {
    let _inside = Inside::enter();
    catch_unwind(AssertUnwindSafe(handler)).map_err(|cause| {
        let text = cause.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| cause.downcast_ref::<String>().cloned());
        format!("it panicked: {}", text.as_deref().unwrap_or("without words"))
    })
}

/// A message, as its handler gets it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Who sent it.
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
        self.inner.options.unit
    }

    /// Who sent the message.
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

/// Gives a message to a handler of the unit itself, in place. Returns whether there is one.
pub(super) fn post_self(inner: &Inner, head: Head, payload: &[u8], handlers: &Table) -> bool {
    let Some(Handler::Message(handler)) = handlers.get(head.handler) else { return false };
    let from = inner.options.unit;
    let (channel, priority) = (crate::ChannelId(0), Priority::Low);
    let message = Message { from, channel, priority, args: head.args, payload };
    warn(from, inside(|| handler(&Context { inner, from }, message)));
    true
}

/// Calls a function of the unit itself, in place.
pub(super) fn call_self(inner: &Inner, head: Head, argument: &[u8], handlers: &Table) {
    let me = inner.options.unit;
    let [method, _, first, second] = head.args;
    let answer = inner.run(me, method, [first, second], argument, handlers);
    lock(&inner.calls).handle_answer(me, head.args[1], answer);
}

impl Inner {
    /// Runs a function of this unit.
    fn run(
        &self,
        from: Address,
        method: u32,
        words: [u32; 2],
        argument: &[u8],
        handlers: &Table,
    ) -> Result<Parcel, String> {
        match self.find(HandlerId(method), handlers, &mut None) {
            Some(Handler::Call(function)) => {
                inside(|| function(&Context { inner: self, from }, words, argument)).and_then(|result| result)
            }
            Some(Handler::Message(_)) => Err("it is a handler of messages, not a function".to_owned()),
            None => Err("there is no such function here".to_owned()),
        }
    }

    /// A handler by its number. It may have become known since this thread began to look, and the sender may
    /// know that: it is kept in `late` then.
    #[inline]
    fn find<'a>(
        &self,
        id: HandlerId,
        handlers: &'a Table,
        late: &'a mut Option<Handler>,
    ) -> Option<&'a Handler> {
        handlers.get(id).or_else(|| {
            *late = lock(&self.table).get(id).cloned();
            late.as_ref()
        })
    }

    /// A buffer for a message that comes in pieces; `None` refuses it for now.
    pub(super) fn buffer_for(&self, from: Address, m: &Incoming) -> Option<Buffer> {
        if m.len > self.longest {
            // Its sender would have been told.
            self.broke(
                from,
                LinkError::BadField {
                    what: "a message's length",
                    found: m.len,
                    expected: "within the limit",
                },
            );
            return None;
        }
        let lease = match RoomShare::message(m.head.handler, m.priority) {
            RoomShare::Mail => self.room_for_mail(&self.rooms, from, m)?,
            of => Lease::ask(self.rooms.clone(), of, m.len, m.holds_up)?,
        };
        if m.len == 0 {
            return Some(Buffer::new(Vec::new(), lease));
        }
        let bytes = self.pool.take(usize::try_from(m.len).ok()?);
        if bytes.is_none() {
            tracing::warn!(from, bytes = m.len, "no memory for a message: it waits");
        }
        Some(Buffer::new(bytes?, lease))
    }

    /// Room for a message for `recv`.
    fn room_for_mail<R: Deref<Target = Rooms> + Clone>(
        &self,
        rooms: &R,
        from: Address,
        m: &Incoming,
    ) -> Option<Lease<R>> {
        Lease::ask(rooms.clone(), RoomShare::Mail, m.len, false).or_else(|| {
            let [tag, ..] = m.head.args;
            let awaited = lock(&self.mailbox).is_awaited(from, tag);
            if awaited {
                Lease::ask(rooms.clone(), RoomShare::Awaited, m.len, false)
            } else {
                None
            }
        })
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
        match self.find(m.head.handler, handlers, &mut None) {
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
                    self.recycle(payload);
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

    /// The payload in memory that outlives its delivery.
    fn own(&self, payload: Payload<'_, Buffer>) -> Vec<u8> {
        match payload {
            Payload::Bytes(bytes) => {
                let Some(mut buffer) = self.pool.take(bytes.len()) else { return bytes.to_vec() };
                buffer.copy_from_slice(bytes);
                buffer
            }
            Payload::Buffer(buffer) => buffer.into_parts().0,
        }
    }

    fn recycle(&self, payload: Payload<'_, Buffer>) {
        if let Payload::Buffer(buffer) = payload {
            self.pool.give_back(buffer.into_parts().0);
        }
    }

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
            system::MAIL if self.left.load(Ordering::Acquire) => {}
            system::MAIL => {
                let mail = |payload| Mail { from, tag: args[0], words: [args[1], args[2]], payload };
                match payload {
                    Payload::Buffer(buffer) => {
                        let (bytes, lease) = buffer.into_parts();
                        lock(&self.mailbox).put(mail(bytes), lease);
                    }
                    Payload::Bytes(_) => {
                        let rooms = &*self.rooms;
                        // Across hosts it has no payload, and is here for good.
                        let lease = match self.hosts.is_far(from) {
                            true => Lease::ask(rooms, RoomShare::Mail, m.len, true),
                            false => self.room_for_mail(&rooms, from, m),
                        };
                        let Some(lease) = lease else { return false };
                        let bytes = self.own(payload);
                        lock(&self.mailbox).put(mail(bytes), lease);
                    }
                }
                return true;
            }
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
            system::LEAVING if self.hosts.is_far(from) && args[1] != 0 => {
                let error = MessageError::PeerLost { unit: from, reason: "it gave up".to_owned() };
                self.net.iter().for_each(|net| net.lost(self, from, error.clone()));
            }
            system::LEAVING if self.hosts.is_far(from) => {
                let bytes = steady();
                let (came, words) = bytes.split_first_chunk().unwrap_or((&[0; 8], &[]));
                let came = CollectiveCount(u64::from_le_bytes(*came));
                let because = args[0].checked_sub(1).filter(|&lost| lost < self.options.units);
                if let Some(lost) = because.filter(|_| !words.is_empty()) {
                    let _ = self.peers[lost as usize].hearsay.set(net::read_reason(words));
                }
                self.board.note_leaving(from, came, because);
                // It answers no more. Its answers came before this.
                lock(&self.calls).handle_gone(from);
            }
            system::LOST if self.net.is_some() => {
                let told = net::read_loss(&self.hosts, from, args[0], &steady())
                    .filter(|&(unit, _)| unit != self.options.unit && !self.board.is_leaving(unit));
                if let Some((unit, error)) = told {
                    match self.net.as_ref().filter(|_| self.hosts.is_far(unit)) {
                        Some(net) => net.lost(self, unit, error),
                        None => self.lost_by(unit, error),
                    }
                }
            }
            // Said once more by a unit that was already answered.
            system::MEET if self.net.is_some() => {}
            system::ANSWER => {
                let answer = match args[1] {
                    0 => Ok(Parcel { words: [args[2], args[3]], payload: self.own(payload) }),
                    _ => Err(String::from_utf8_lossy(&steady()).into_owned()),
                };
                lock(&self.calls).handle_answer(from, args[0], answer);
                return true;
            }
            // Functions run to their end when they are called, so there is nothing to stop: the answer finds
            // nobody.
            system::CANCEL => {}
            system::CAME => self.handle_came(from, [args[0], args[1]]),
            system::BARRIER => {
                self.handle_came(from, [args[2], args[3]]);
                let mut tells = Vec::new();
                let good = lock(&self.barrier).handle(from, args[0], args[1], &mut |t| tells.push(t));
                if !good {
                    self.broke(from, LinkError::OutOfTurn { what: "a barrier's word" });
                } else if let Err(error) = self.tell(tells) {
                    tracing::warn!(from, %error, "a barrier's word was not sent");
                }
            }
            system::OFFER if self.options.unit == 0 => match unpack(&steady()) {
                Ok(offer) => {
                    self.handle_came(from, [args[0], args[1]]);
                    let mut agreement = lock(&self.agreement);
                    agreement.offers.resize(self.options.units as usize, None);
                    agreement.offers[from as usize] = Some(offer);
                }
                Err(_) => self.broke(from, LinkError::OutOfTurn { what: "an unreadable offer" }),
            },
            system::AGREED if from == 0 => {
                let bytes = steady();
                let outcome = match args[0] {
                    0 => unpack(&bytes).map(Ok),
                    _ => unpack(&bytes).map(Err),
                };
                match outcome {
                    Ok(outcome) => lock(&self.agreement).outcome = Some(outcome),
                    Err(_) => self.broke(from, LinkError::OutOfTurn { what: "an unreadable directory" }),
                }
            }
            other => {
                let found = other.0.into();
                self.broke(from, LinkError::Unknown { what: "a message of the library", found });
            }
        }
        self.recycle(payload);
        true
    }

    /// Takes the first mail that fits. Where that makes room again for what was refused, it is offered again.
    pub(super) fn take_mail(&self, from: Option<Address>, tag: Option<u32>) -> Option<Mail> {
        let mail = lock(&self.mailbox).take(from, tag)?;
        self.offer_room();
        Some(mail)
    }

    /// The same for one that is waited for: should it find no room when it comes, it comes all the same.
    pub(super) fn take_or_await_mail(&self, from: Option<Address>, tag: Option<u32>) -> Option<Mail> {
        let mail = lock(&self.mailbox).take_or_await(from, tag);
        self.offer_room();
        mail
    }

    /// Where there is room again for what was refused, tells those who wait for it on other hosts. On this
    /// one it lies in its ring, and whoever receives, and was woken, finds it there.
    #[inline]
    pub(super) fn offer_room(&self) {
        if self.rooms.take_again() {
            if let Some(net) = &self.net {
                net.retry_refused();
            }
        }
    }
}
