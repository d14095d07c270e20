//! A call under way.

use super::calls::{CallError, MAX_CALLS};
use super::{peer::lock, system, Inner};
use crate::types::{Address, Head};
use crate::MessageError;
use polyduct_os::clock;
use std::sync::Arc;
use std::time::Duration;

/// A call of another unit's function. Dropped before its outcome is fetched, it is forgotten, and the callee told.
pub struct Call {
    inner: Arc<Inner>,
    number: u32,
}

impl Call {
    pub(super) fn ask(
        inner: Arc<Inner>,
        to: Address,
        name: &str,
        argument: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Call, MessageError> {
        inner.peer(to)?;
        let method = lock(&inner.directory).clone().lookup(name, to)?;
        let now = clock::now();
        let deadline = timeout.and_then(|t| now.checked_add(t));
        let limit = MAX_CALLS as u64;
        let number = lock(&inner.calls).ask(to, name, now, deadline);
        let number =
            number.ok_or(MessageError::Limit { what: "calls under way", limit, found: limit + 1 })?;
        // From here on a failure forgets the call.
        let call = Call { inner, number };
        let head = Head { handler: system::CALL, args: [method.0, number, 0, 0] };
        if to == call.inner.options.unit {
            call.inner.call_self(head, argument);
        } else {
            call.inner.push(to, head, argument.to_vec())?;
        }
        Ok(call)
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// [`MessageError::Call`]: the function failed, the deadline came, the call was cancelled, or the unit is gone;
    /// [`MessageError::Timeout`] and [`MessageError::Interrupted`], after which it can be waited for again.
    pub fn wait(&self) -> Result<Vec<u8>, MessageError> {
        let number = self.number;
        self.inner.wait("the answer to a call", None, |inner| {
            lock(&inner.calls).poll_outcome(number).map(|outcome| outcome.map_err(MessageError::Call))
        })
    }

    /// The result, if it is there: once.
    pub fn poll(&self) -> Option<Result<Vec<u8>, CallError>> {
        let _ = self.inner.late_calls(clock::now());
        self.inner.poll();
        lock(&self.inner.calls).poll_outcome(self.number)
    }

    /// Gives the call up: its outcome is [`CallError::Cancelled`] then, if there was none before.
    pub fn cancel(&self) {
        if let Some(to) = lock(&self.inner.calls).cancel(self.number) {
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
        let to = lock(&self.inner.calls).forget(self.number);
        if let Some(to) = to {
            self.tell(to);
        }
    }
}
