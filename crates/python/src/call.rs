//! A call of a function of another unit.

use crate::domain::Domain;
use crate::encode;
use crate::guard::lock;
use crate::options::maybe_seconds;
use polyduct::host::clock;
use polyduct::message::domain::pending::CallError;
use polyduct::message::domain::{self, Parcel};
use polyduct::message::{self, MessageError};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A call under way.
#[pyclass(frozen, module = "polyduct._native")]
pub struct Call {
    domain: Py<Domain>,
    /// Always there, but in a drop.
    call: Option<Arc<domain::Call>>,
    /// The unit that was called.
    to: u32,
    /// Once it was fetched. Never held while the domain is asked: it runs handlers, and those may ask for
    /// this call.
    outcome: Mutex<Option<Result<Parcel, CallError>>>,
    /// Threads that wait for it.
    waiting: AtomicUsize,
}

impl Call {
    /// One that was just made in a domain.
    pub fn new(domain: Py<Domain>, call: domain::Call, to: u32) -> Call {
        let call = Some(Arc::new(call));
        Call { domain, call, to, outcome: Mutex::default(), waiting: AtomicUsize::new(0) }
    }

    /// Whether the result would not be waited for.
    pub fn is_over(&self) -> bool {
        self.is_fetched() || self.call.as_ref().is_none_or(|call| call.is_over())
    }

    fn call(&self) -> Result<&Arc<domain::Call>, MessageError> {
        self.call.as_ref().ok_or(MessageError::Interrupted)
    }

    fn is_fetched(&self) -> bool {
        lock(&self.outcome).is_some()
    }

    /// Whether there is an outcome, which is kept then.
    fn fetch(&self, domain: &message::Domain) -> Result<bool, MessageError> {
        if self.is_fetched() {
            return Ok(true);
        }
        let found = self.call()?.poll_parcel();
        Ok(self.keep(domain, found))
    }

    /// The same without a look at what has come but for microseconds.
    fn fetch_now(&self, domain: &message::Domain) -> bool {
        let outcome = || self.call.as_ref().filter(|call| call.is_done_now())?.take_outcome();
        self.is_fetched() || self.keep(domain, outcome())
    }

    /// Keeps what was found. Whether there is an outcome now.
    fn keep(&self, domain: &message::Domain, found: Option<Result<Parcel, CallError>>) -> bool {
        let Some(found) = found else {
            // A handler that ran meanwhile, or another thread, may have taken it.
            return self.is_fetched();
        };
        *lock(&self.outcome) = Some(found);
        // The domain has it no more, and those who looked there in between sleep. A thread that runs a
        // handler wakes them after it.
        if self.waiting.load(Ordering::SeqCst) > 0 && !message::Domain::in_handler() {
            domain.wake();
        }
        true
    }

    fn wait(&self, deadline: Option<Duration>) -> Result<(), MessageError> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let waited = self.call().and_then(|call| call.wait_outcome(deadline, || self.is_fetched()));
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        waited
    }
}

#[pymethods]
impl Call {
    /// Waits for the result, `timeout` seconds at most.
    fn result<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let timeout = maybe_seconds(py, "timeout", timeout)?;
        let this = self.domain.get();
        if !this.at_once(py, |domain| self.fetch_now(domain))? {
            this.run(py, |domain| {
                let deadline = timeout.map(|timeout| clock::now().saturating_add(timeout));
                while !self.fetch(domain)? {
                    match self.wait(deadline) {
                        // Another thread may have fetched it before the unit was found gone.
                        Err(e) if !self.is_fetched() => return Err(e),
                        _ => {}
                    }
                }
                Ok(())
            })?;
        }
        let outcome = lock(&self.outcome).clone();
        match outcome {
            Some(Ok(Parcel { words, payload })) => encode::decode(py, words, payload, self.to, || None),
            Some(Err(e)) => Err(this.raise(py, &MessageError::Call(e))),
            None => Err(this.raise(py, &MessageError::Interrupted)),
        }
    }

    /// Whether there is an outcome.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        self.domain.get().run(py, |domain| self.fetch(domain))
    }

    /// Gives the call up.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        self.domain.get().run(py, |domain| {
            self.call()?.cancel();
            // There is an outcome now; another thread may just be about to keep it.
            while !self.fetch(domain)? {
                std::thread::yield_now();
            }
            Ok(matches!(&*lock(&self.outcome), Some(Err(CallError::Cancelled { .. }))))
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let call = self.call.take();
        if !self.domain.get().is_ours() {
            // Dropping it would speak for the parent's unit.
            std::mem::forget(call);
        }
    }
}
