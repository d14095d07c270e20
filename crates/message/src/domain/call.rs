//! A call under way.

use super::directory::Kind;
use super::pending::{CallError, MAX_CALLS};
use super::{system, Domain, Inner};
use crate::types::{Address, Head};
use crate::MessageError;
use polyduct_os::clock;
use polyduct_os::process::own_pid;
use std::sync::Arc;
use std::time::Duration;

/// What a call carries, either way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parcel {
    /// Two words that say what the bytes are, to those who agree on it; 0 for plain bytes.
    pub words: [u32; 2],
    /// The bytes.
    pub payload: Vec<u8>,
}

impl From<Vec<u8>> for Parcel {
    fn from(payload: Vec<u8>) -> Parcel {
        Parcel { words: [0; 2], payload }
    }
}

/// A call of another unit's function. Dropped before its outcome is fetched, it is forgotten, and the callee
/// told.
pub struct Call {
    pub(super) inner: Arc<Inner>,
    pub(super) to: Address,
    pub(super) number: u32,
    /// The process that called: a fork of it has no part in the call.
    process: u32,
}

impl Domain {
    /// Calls a function of another unit; does not wait. Any number of threads may have calls under way.
    ///
    /// # Errors
    /// [`MessageError::Handler`]: there is no such function there, or it is a handler of messages;
    /// [`MessageError::Limit`]: too many calls under way; loss of the unit.
    pub fn call(
        &self,
        to: Address,
        name: &str,
        argument: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Call, MessageError> {
        self.call_with(to, name, argument.to_vec().into(), timeout)
    }

    /// The same with two words beside the argument, which is not copied.
    ///
    /// # Errors
    /// As [`call`](Domain::call).
    pub fn call_with(
        &self,
        to: Address,
        name: &str,
        argument: Parcel,
        timeout: Option<Duration>,
    ) -> Result<Call, MessageError> {
        self.inner.units.peer(to)?;
        let method = self.inner.handlers.lookup(name, to, Kind::Calls)?;
        let Parcel { words: [first, second], payload } = argument;
        Call::begin(self.inner.clone(), to, name, timeout, |inner, number| {
            let head = Head { handler: system::CALL, args: [method.0, number, first, second] };
            match to == self.unit() {
                true => inner.call_self(head, &payload),
                false => inner.push(to, head, payload)?,
            }
            Ok(())
        })
    }
}

impl Call {
    /// Has `send` send what asks for an answer, with the number that the answer is to have.
    pub(super) fn begin(
        inner: Arc<Inner>,
        to: Address,
        name: &str,
        timeout: Option<Duration>,
        send: impl FnOnce(&Inner, u32) -> Result<(), MessageError>,
    ) -> Result<Call, MessageError> {
        let now = clock::now();
        let deadline = timeout.and_then(|t| now.checked_add(t));
        let limit = MAX_CALLS as u64;
        let number = inner.calls().ask(to, name, now, deadline);
        let number =
            number.ok_or(MessageError::Limit { what: "calls under way", limit, found: limit + 1 })?;
        // From here on a failure forgets the call.
        let call = Call { inner, to, number, process: own_pid() };
        send(&call.inner, number)?;
        Ok(call)
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// [`MessageError::Call`]: the function failed, the deadline came, the call was cancelled, or the unit is
    /// gone; [`MessageError::Timeout`] and [`MessageError::Interrupted`], after which it can be waited for
    /// again.
    pub fn wait(&self) -> Result<Vec<u8>, MessageError> {
        self.wait_until(None).map(|result| result.payload)
    }

    /// The same with the words that came with it, until a time of [`clock::now`]; without one, the domain's
    /// timeout holds.
    ///
    /// # Errors
    /// As [`wait`](Call::wait).
    pub fn wait_until(&self, deadline: Option<Duration>) -> Result<Parcel, MessageError> {
        loop {
            self.wait_outcome(deadline, || false)?;
            // Another thread may fetch it in between; then there is nothing to wait for, until the deadline.
            if let Some(outcome) = self.inner.calls().poll_outcome(self.number) {
                return outcome.map_err(MessageError::Call);
            }
        }
    }

    /// Waits for the result of what is no call to its user: where the unit is gone, the error says how.
    pub(super) fn wait_or_why(&self) -> Result<Vec<u8>, MessageError> {
        self.wait().map_err(|error| match error {
            MessageError::Call(CallError::PeerGone { unit, .. }) => {
                self.inner.units.deaf_error(unit).unwrap_or(error)
            }
            error => error,
        })
    }

    /// Waits until there is an outcome, and leaves it there; or until `fetched` says that another thread has
    /// taken it.
    ///
    /// # Errors
    /// [`MessageError::Timeout`], [`MessageError::Interrupted`]; the loss of another unit, where it ends all
    /// waits.
    pub fn wait_outcome(
        &self,
        deadline: Option<Duration>,
        fetched: impl Fn() -> bool,
    ) -> Result<(), MessageError> {
        let waited = self.inner.wait("the answer to a call", deadline, |inner| {
            let answered = (inner.calls().has_outcome(self.number) || fetched()).then_some(Ok(()));
            // The system tells of units that die, not of those that leave.
            answered.or_else(|| inner.units.deaf_error(self.to).map(Err))
        });
        match waited {
            Err(
                MessageError::PeerLost { .. } | MessageError::PeerLeft { .. } | MessageError::BadPeer { .. },
            ) if self.inner.units.deaf_error(self.to).is_some() => {
                let mut calls = self.inner.calls();
                calls.handle_gone(self.to);
                match calls.has_outcome(self.number) {
                    true => Ok(()),
                    false => waited,
                }
            }
            other => other,
        }
    }

    /// The result, if it is there: once.
    pub fn poll(&self) -> Option<Result<Vec<u8>, CallError>> {
        self.poll_parcel().map(|outcome| outcome.map(|result| result.payload))
    }

    /// The result with the words that came with it, if it is there: once.
    pub fn poll_parcel(&self) -> Option<Result<Parcel, CallError>> {
        self.look();
        self.inner.calls().poll_outcome(self.number)
    }

    /// Whether there is an outcome that was not fetched yet.
    pub fn is_done(&self) -> bool {
        self.look();
        self.inner.calls().has_outcome(self.number)
    }

    fn look(&self) {
        let _ = self.inner.late_calls(clock::now());
        self.inner.poll();
        if self.inner.units.deaf_error(self.to).is_some() {
            self.inner.calls().handle_gone(self.to);
        }
    }

    /// Gives the call up: its outcome is [`CallError::Cancelled`] then, if there was none before.
    pub fn cancel(&self) {
        if let Some(to) = self.inner.calls().cancel(self.number) {
            self.tell(to);
        }
    }

    fn tell(&self, to: Address) {
        let head = Head { handler: system::CANCEL, args: [self.number, 0, 0, 0] };
        let _ = self.inner.push(to, head, Vec::new());
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if own_pid() != self.process {
            return;
        }
        let to = self.inner.calls().forget(self.number);
        if let Some(to) = to {
            self.tell(to);
        }
    }
}
