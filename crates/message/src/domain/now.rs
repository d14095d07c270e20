//! Operations that are done at once or not at all: for a caller that holds what others need, such as the lock
//! of an interpreter, and that gives it back before it waits.
//!
//! Nothing here waits for a lock that is held while a handler runs, since the handler may need what the
//! caller holds.

use super::channel::RawChannel;
use super::handlers::in_handler;
use super::inbox::Mail;
use super::wait::Over;
use super::{system, Call, Domain, Parcel};
use crate::types::{Address, Head};
use crate::MessageError;
use std::time::Duration;

/// Looks for what is waited for: some microseconds, in which an answer comes from another processor.
const LOOKS: u32 = 256;
/// Messages, or parts of such, that are handled meanwhile.
const RECORDS: usize = 16;
/// The longest payload that is copied.
const LONGEST: usize = 8 << 10;

impl Domain {
    /// Does what [`send`](Domain::send) does, if that takes no longer than to copy the payload. `false`:
    /// nothing was done; what there is to say against it, `send` says.
    pub fn send_now(&self, to: Address, tag: u32, words: [u32; 2], payload: &[u8]) -> bool {
        self.sends_now(to, Head { handler: system::MAIL, args: [tag, words[0], words[1], 0] }, payload)
    }

    /// The same for [`post`](Domain::post).
    pub fn post_now(&self, to: Address, name: &str, args: [u32; 4], payload: &[u8]) -> bool {
        let head = || self.lookup(name, to).ok().map(|handler| Head { handler, args });
        to != self.unit() && head().is_some_and(|head| self.sends_now(to, head, payload))
    }

    fn sends_now(&self, to: Address, head: Head, payload: &[u8]) -> bool {
        let inner = &*self.inner;
        let Some(peer) = inner.units.peer(to).ok().filter(|_| payload.len() <= LONGEST) else {
            return false;
        };
        if in_handler() {
            return peer.link().is_some() && inner.push(to, head, payload.to_vec()).is_ok();
        }
        let Some(mut mail) = peer.mail_turn() else { return false };
        let Some(RawChannel::Near(near)) = &mut *mail else { return false };
        if !near.send_now(inner, head, payload) {
            return false;
        }
        drop(mail);
        inner.end_mail_turn();
        true
    }

    /// What [`recv`](Domain::recv) gives, if it is there or comes within microseconds.
    pub fn recv_now(&self, from: Option<Address>, tag: Option<u32>) -> Option<Mail> {
        let mut mail = self.inner.take_mail(from, tag);
        if mail.is_none() && !in_handler() {
            self.inner.receive_at_once(LOOKS, RECORDS, &mut |inner| {
                mail = inner.take_mail(from, tag);
                Over::when(mail.is_some())
            });
        }
        mail
    }

    /// Handles what comes within microseconds, until `done`, which is asked after everything that came.
    /// Returns whether it is.
    pub fn serve_now(&self, mut done: impl FnMut() -> bool) -> bool {
        !in_handler() && self.inner.receive_at_once(LOOKS, RECORDS, &mut |_| Over::when(done()))
    }

    /// Does what [`call_with`](Domain::call_with) does, if it need not connect. The argument comes back where
    /// it was not done.
    ///
    /// # Errors
    /// As `call_with`; in either case nothing was sent.
    pub fn call_now(
        &self,
        to: Address,
        name: &str,
        argument: Parcel,
        timeout: Option<Duration>,
    ) -> Result<Result<Call, MessageError>, Parcel> {
        let peer = self.inner.units.peer(to);
        match peer.is_ok_and(|peer| peer.link().is_some()) && argument.payload.len() <= LONGEST {
            true => Ok(self.call_with(to, name, argument, timeout)),
            false => Err(argument),
        }
    }
}

impl Call {
    /// Whether there is an outcome, or one comes within microseconds.
    pub fn is_done_now(&self) -> bool {
        let done = || self.inner.calls().has_outcome(self.number);
        done() || !in_handler() && self.inner.receive_at_once(LOOKS, RECORDS, &mut |_| Over::when(done()))
    }

    /// Whether [`wait`](Call::wait) would wait no more. Receives nothing.
    pub fn is_over(&self) -> bool {
        self.inner.calls().has_outcome(self.number) || self.inner.units.deaf_error(self.to).is_some()
    }

    /// The outcome, if it is there: once. Receives nothing.
    pub fn take_outcome(&self) -> Option<Result<Parcel, super::pending::CallError>> {
        self.inner.calls().poll_outcome(self.number)
    }
}
