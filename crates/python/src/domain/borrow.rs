//! Calls borrow a domain until it is left: with the interpreter or without it; and how it is left.

use super::{Domain, Limit};
use crate::guard::{self, lock, settle};
use crate::{error, exit};
use polyduct::host::clock;
use polyduct::message::domain::pending::CallError;
use polyduct::message::domain::WeakDomain;
use polyduct::message::{self, MessageError};
use polyduct::Error;
use pyo3::prelude::*;

impl Domain {
    /// Whether it was not left.
    pub fn is_joined(&self) -> bool {
        lock(&self.domain).is_some()
    }

    /// Calls `f` with the domain, with the interpreter: for what waits for nobody.
    pub fn at_once<T>(&self, py: Python<'_>, f: impl FnOnce(&message::Domain) -> T) -> PyResult<T> {
        let Some(domain) = lock(&self.domain).clone() else {
            return Err(left(py));
        };
        let done = self.guard.at_once(py, || f(&domain));
        self.put_back(py, domain);
        done
    }

    /// The exception for an error of a call that did not wait.
    pub fn raise(&self, py: Python<'_>, e: &MessageError) -> PyErr {
        // What is made of Python's may run anybody's finalizers, which may ask for this domain.
        let domain = lock(&self.domain).clone();
        match (e, domain) {
            (MessageError::PeerLeft { unit }, _) if *unit == self.unit => left(py),
            (_, None) => left(py),
            (e, Some(domain)) => raise(py, e, &domain),
        }
    }

    /// What a call leaves behind of the domain.
    fn put_back(&self, py: Python<'_>, domain: message::Domain) {
        if lock(&self.domain).is_none() {
            // Another thread has left meanwhile: this may be the last handle, and the end of a thread is
            // waited for.
            py.detach(|| drop(domain));
        }
    }

    /// Calls `f` with the domain, without the interpreter.
    pub fn run<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&message::Domain) -> Result<T, MessageError> + Send,
    ) -> PyResult<T> {
        self.run_within(py, None, f)
    }

    /// The same with a limit to what the call waits for.
    pub fn run_within<T: Send>(
        &self,
        py: Python<'_>,
        limit: Limit,
        f: impl FnOnce(&message::Domain) -> Result<T, MessageError> + Send,
    ) -> PyResult<T> {
        let Some(domain) = lock(&self.domain).clone() else {
            return Err(left(py));
        };
        let done = self.guard.run_within(
            py,
            limit,
            || f(&domain),
            |py, e| match e {
                // By another thread, before this one was told.
                MessageError::PeerLeft { unit } if *unit == self.unit => left(py),
                e => raise(py, e, &domain),
            },
        );
        self.put_back(py, domain);
        done
    }

    /// Ends it, unless it was ended before. Gives it with what came of that.
    pub(super) fn end<T>(&self, end: impl FnOnce(&message::Domain) -> T) -> Option<(message::Domain, T)> {
        let domain = lock(&self.domain).take()?;
        let ended = self.guard.end(|| end(&domain));
        domain.wake();
        Some((domain, ended))
    }

    pub(super) fn leave_now(&self, py: Python<'_>, limit: Limit) -> PyResult<()> {
        let failed = |(domain, left): (_, Result<_, _>)| left.err().map(|error| (domain, error));
        let Some((domain, error)) =
            py.detach(|| clock::within(limit, || self.end(message::Domain::leave)).and_then(failed))
        else {
            return Ok(());
        };
        let error = guard::raised().unwrap_or_else(|| raise(py, &error, &domain));
        py.detach(|| drop(domain));
        Err(error)
    }

    pub(super) fn leave_to_exit(&self) {
        let domain = lock(&self.domain).take();
        if let Some(domain) = domain {
            exit::leave(exit::End::Domain(domain));
        }
    }

    pub(super) fn downgrade(&self) -> Option<WeakDomain> {
        lock(&self.domain).as_ref().map(message::Domain::downgrade)
    }
}

fn left(py: Python<'_>) -> PyErr {
    error::own(py, "Closed", "the domain was left")
}

/// The exception for an error of a domain's call.
pub(super) fn raise(py: Python<'_>, error: &MessageError, domain: &message::Domain) -> PyErr {
    let raised = error::raise(py, &Error::from(error.clone()));
    if let MessageError::PeerLost { unit, .. } | MessageError::Call(CallError::PeerGone { unit, .. }) = error
    {
        // A class of our own takes any attribute.
        let pid = domain.pid(*unit).ok().flatten();
        let _ = pid.map(|pid| raised.value(py).setattr("pid", pid));
    }
    raised
}

impl Drop for Domain {
    fn drop(&mut self) {
        if !self.guard.is_ours() {
            if let Ok(mut domain) = self.domain.try_lock() {
                // Dropping it would have the parent's unit leave.
                std::mem::forget(domain.take());
            }
            return;
        }
        let dropped = Python::try_attach(|py| match exit::nobody_runs(py) {
            true => self.leave_to_exit(),
            false => {
                // Nobody is there to be told but the hook for such errors.
                self.leave_now(py, None).unwrap_or_else(|error| error.write_unraisable(py, None));
                settle(py);
            }
        });
        if dropped.is_none() {
            drop(self.end(message::Domain::leave));
        }
    }
}
