//! A unit's place in a domain of messages.

use crate::bytes;
use crate::call::Call;
use crate::error;
use crate::exit;
use crate::guard::{self, lock, settle, Guard};
use crate::handlers::{self, Handlers};
use crate::lent::{self, Lent};
use crate::options::maybe_seconds;
use crate::received::{payload_array, region_array};
use numpy::PyArray1;
use polyduct::message::domain::calls::CallError;
use polyduct::message::domain::mail::Mail;
use polyduct::message::domain::{self, Parcel, Reach};
use polyduct::message::{self, MessageError};
use polyduct::os::clock;
use polyduct::Error;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often whoever serves looks at what no message tells.
const SERVE_SLICE: Duration = Duration::from_millis(100);

pub type Bytes<'py> = Bound<'py, PyArray1<u8>>;
/// Unit, tag, words, payload.
type Letter<'py> = (u32, u32, (u32, u32), Bytes<'py>);

/// One unit's place in a domain.
#[pyclass(frozen, module = "polyduct._native")]
pub struct Domain {
    guard: Guard,
    /// Until it leaves.
    domain: Mutex<Option<message::Domain>>,
    handlers: Arc<Handlers>,
    #[pyo3(get)]
    unit: u32,
    #[pyo3(get)]
    units: u32,
    #[pyo3(get)]
    pub name: String,
    /// For each unit whether its regions can be mapped: it is on this host.
    maps: Vec<bool>,
}

impl Domain {
    /// Whether this process joined it: a fork has a copy of no use.
    pub fn is_ours(&self) -> bool {
        self.guard.is_ours()
    }

    /// Whether it was not left.
    pub fn is_joined(&self) -> bool {
        lock(&self.domain).is_some()
    }

    pub fn new(guard: Guard, domain: message::Domain) -> Domain {
        Domain {
            guard,
            unit: domain.unit(),
            units: domain.units(),
            name: domain.name().to_owned(),
            maps: (0..domain.units()).map(|unit| domain.reach(unit) != Ok(Reach::Far)).collect(),
            domain: Mutex::new(Some(domain)),
            handlers: Arc::default(),
        }
    }

    /// Calls `f` with the domain, without the interpreter.
    pub fn run<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&message::Domain) -> Result<T, MessageError> + Send,
    ) -> PyResult<T> {
        let left = |py: Python<'_>| error::own(py, "Closed", "the domain was left");
        let Some(domain) = lock(&self.domain).clone() else {
            return Err(left(py));
        };
        let done = self.guard.run(
            py,
            || f(&domain),
            |py, e| match e {
                // By another thread, before this one was told.
                MessageError::PeerLeft { unit } if *unit == self.unit => left(py),
                e => raise(py, e, &domain),
            },
        );
        if lock(&self.domain).is_none() {
            // Another thread has left meanwhile: this may be the last handle, and the end of a thread is waited for.
            py.detach(|| drop(domain));
        }
        done
    }

    /// Ends it, unless it was ended before. Gives it with what came of that.
    fn end<T>(&self, end: impl FnOnce(&message::Domain) -> T) -> Option<(message::Domain, T)> {
        let domain = lock(&self.domain).take()?;
        let ended = self.guard.end(|| end(&domain));
        domain.wake();
        Some((domain, ended))
    }

    fn leave_now(&self, py: Python<'_>) -> PyResult<()> {
        let failed = |(domain, left): (_, Result<_, _>)| left.err().map(|error| (domain, error));
        let Some((domain, error)) = py.detach(|| self.end(message::Domain::leave).and_then(failed)) else {
            return Ok(());
        };
        let error = guard::raised().unwrap_or_else(|| raise(py, &error, &domain));
        py.detach(|| drop(domain));
        Err(error)
    }

    fn leave_to_exit(&self) {
        let domain = lock(&self.domain).take();
        if let Some(domain) = domain {
            exit::leave(exit::End::Domain(domain));
        }
    }

    fn letter<'py>(&self, py: Python<'py>, mail: Mail) -> PyResult<Letter<'py>> {
        let Mail { from, tag, words, payload } = mail;
        Ok((from, tag, words.into(), self.array(py, payload)?))
    }

    fn array<'py>(&self, py: Python<'py>, payload: Vec<u8>) -> PyResult<Bytes<'py>> {
        let domain = lock(&self.domain).clone();
        match domain {
            Some(domain) => payload_array(py, payload, || domain.downgrade()),
            None => Ok(PyArray1::from_vec(py, payload)),
        }
    }
}

/// The exception for an error of a domain's call.
fn raise(py: Python<'_>, error: &MessageError, domain: &message::Domain) -> PyErr {
    let raised = error::raise(py, &Error::from(error.clone()));
    if let MessageError::PeerLost { unit, .. } | MessageError::Call(CallError::PeerGone { unit, .. }) = error
    {
        // A class of our own takes any attribute.
        let pid = domain.pid(*unit).ok().flatten();
        let _ = pid.map(|pid| raised.value(py).setattr("pid", pid));
    }
    raised
}

#[pymethods]
impl Domain {
    /// Sends bytes, and two words that say what they are.
    fn send(&self, py: Python<'_>, to: u32, tag: u32, words: [u32; 2], payload: &Bytes<'_>) -> PyResult<()> {
        let payload = bytes::readable(payload)?;
        let payload = bytes::slice(&payload)?;
        self.run(py, |domain| domain.send(to, tag, words, payload))
    }

    /// Waits for a message.
    fn recv<'py>(&self, py: Python<'py>, from: Option<u32>, tag: Option<u32>) -> PyResult<Letter<'py>> {
        let mail = self.run(py, |domain| domain.recv(from, tag))?;
        self.letter(py, mail)
    }

    /// Sends, then waits for a message.
    fn sendrecv<'py>(
        &self,
        py: Python<'py>,
        to: u32,
        tag: u32,
        words: [u32; 2],
        payload: &Bytes<'_>,
        from: u32,
    ) -> PyResult<Letter<'py>> {
        let payload = bytes::readable(payload)?;
        let payload = bytes::slice(&payload)?;
        let from = (Some(from), Some(tag));
        let mail = self.run(py, |domain| domain.send_recv((to, tag), words, payload, from))?;
        self.letter(py, mail)
    }

    /// A message, if one waits.
    fn try_recv<'py>(
        &self,
        py: Python<'py>,
        from: Option<u32>,
        tag: Option<u32>,
    ) -> PyResult<Option<Letter<'py>>> {
        let mail = self.run(py, |domain| Ok(domain.try_recv(from, tag)))?;
        mail.map(|mail| self.letter(py, mail)).transpose()
    }

    /// Sends a message to a handler.
    fn post(&self, py: Python<'_>, to: u32, name: &str, args: [u32; 4], payload: &Bytes<'_>) -> PyResult<()> {
        let payload = bytes::readable(payload)?;
        let payload = bytes::slice(&payload)?;
        self.run(py, |domain| domain.post(to, name, args, payload))
    }

    /// Installs a handler for messages.
    fn handler(&self, py: Python<'_>, name: &str, version: u32, function: Py<PyAny>) -> PyResult<()> {
        let function = handlers::of_messages(&self.handlers, function);
        self.run(py, |domain| domain.handler(name, version, function))
    }

    /// Installs a function for calls.
    fn function(&self, py: Python<'_>, name: &str, version: u32, function: Py<PyAny>) -> PyResult<()> {
        let function = handlers::of_calls(&self.handlers, function);
        self.run(py, |domain| domain.function_of_parcels(name, version, function))
    }

    fn synchronise(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, message::Domain::synchronise)
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, message::Domain::barrier)
    }

    /// Handles what has come; gives the number of records.
    fn poll(&self, py: Python<'_>) -> PyResult<usize> {
        self.run(py, |domain| Ok(domain.poll()))
    }

    /// How many handlers have run.
    #[getter]
    fn handled(&self) -> u64 {
        self.handlers.handled()
    }

    /// Handles what comes until more handlers have run than `seen`, for 0.1 s and `seconds` at most.
    fn serve(&self, py: Python<'_>, seen: u64, seconds: f64) -> PyResult<()> {
        let time = SERVE_SLICE.min(Duration::try_from_secs_f64(seconds).unwrap_or(SERVE_SLICE));
        self.run(py, |domain| {
            domain.serve_until(Some(clock::now() + time), || self.handlers.handled() != seen)
        })
    }

    /// Handles what comes until `stop_serving` is called with the same `stop`.
    fn serve_in_background(&self, py: Python<'_>, stop: &Bound<'_, Stop>) -> PyResult<()> {
        let stop = &stop.get().0;
        self.run(py, |domain| {
            // A domain's timeout ends the wait, too.
            while !stop.load(Ordering::Acquire) {
                domain.serve_until(None, || stop.load(Ordering::Acquire))?;
            }
            Ok(())
        })
    }

    /// Has the one stop that serves in the background with this `stop`, or will.
    fn stop_serving(&self, py: Python<'_>, stop: &Bound<'_, Stop>) -> PyResult<()> {
        stop.get().0.store(true, Ordering::Release);
        self.run(py, |domain| {
            domain.wake();
            Ok(())
        })
    }

    /// The counts of `polyduct.Status`, in its order.
    fn status(&self, py: Python<'_>) -> PyResult<[u64; 8]> {
        self.run(py, |domain| {
            if message::Domain::in_handler() {
                // The handler's own thread has what is to be counted.
                return Err(MessageError::InHandler);
            }
            let s = domain.status();
            let sends = [s.sends_high, s.sends_low];
            Ok([
                s.waiting_high,
                s.waiting_low,
                s.mails,
                s.calls,
                sends[0],
                sends[1],
                s.mail_bytes,
                s.other_bytes,
            ])
        })
    }

    /// Bytes of each setting in force.
    fn config(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        self.run(py, |domain| Ok(domain.config().settings().map(|s| (s.name, s.bytes)).collect()))
    }

    /// Calls a function of a unit.
    fn call(
        slf: &Bound<'_, Self>,
        to: u32,
        name: &str,
        words: [u32; 2],
        payload: &Bytes<'_>,
        timeout: Option<f64>,
    ) -> PyResult<Call> {
        let (py, this) = (slf.py(), slf.get());
        let timeout = maybe_seconds(py, "timeout", timeout)?;
        let payload = bytes::readable(payload)?;
        let payload = bytes::slice(&payload)?;
        let call = this.run(py, |domain| {
            domain.call_with(to, name, Parcel { words, payload: payload.to_vec() }, timeout)
        })?;
        Ok(Call::new(slf.clone().unbind(), call))
    }

    /// A new region of this unit.
    fn region(&self, py: Python<'_>, id: u32, len: usize) -> PyResult<Region> {
        self.run(py, |domain| domain.region(id, len)).map(Region)
    }

    /// Bytes of a region of a unit.
    fn region_len(&self, py: Python<'_>, unit: u32, id: u32) -> PyResult<usize> {
        self.run(py, |domain| domain.region_len(unit, id))
    }

    /// Lends an array of bytes.
    fn lend(slf: &Bound<'_, Self>, id: u32, memory: &Bytes<'_>) -> PyResult<Lent> {
        lent::lend(slf, id, memory)
    }

    /// Writes into a region of a unit.
    fn put(&self, py: Python<'_>, to: u32, id: u32, offset: usize, payload: &Bytes<'_>) -> PyResult<()> {
        let payload = bytes::readable(payload)?;
        let payload = bytes::slice(&payload)?;
        self.run(py, |domain| domain.put(to, id, offset, payload))
    }

    /// Reads from a region of a unit.
    fn get(&self, py: Python<'_>, from: u32, id: u32, offset: usize, out: &Bytes<'_>) -> PyResult<()> {
        let mut out = bytes::writable(out)?;
        let out = bytes::slice_mut(&mut out)?;
        self.run(py, |domain| domain.get(from, id, offset, out))
    }

    /// Whether a unit has a handler, which is an error if not.
    fn look_up(&self, py: Python<'_>, to: u32, name: &str) -> PyResult<()> {
        self.run(py, |domain| domain.lookup(name, to).map(drop))
    }

    /// Whether regions of a unit can be mapped.
    fn maps(&self, unit: u32) -> bool {
        // Of who is no unit, the mapping itself says so.
        self.maps.get(unit as usize).is_none_or(|&maps| maps)
    }

    /// A region of a unit.
    fn region_of(&self, py: Python<'_>, unit: u32, id: u32) -> PyResult<Region> {
        self.run(py, |domain| domain.region_of(unit, id)).map(Region)
    }

    /// An exception in a handler.
    fn check_outside(&self, py: Python<'_>) -> PyResult<()> {
        match (message::Domain::in_handler(), lock(&self.domain).as_ref()) {
            (true, Some(domain)) => Err(raise(py, &MessageError::InHandler, domain)),
            _ => Ok(()),
        }
    }

    /// Leaves in order.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.guard.check_ours(py)?;
        let left = self.leave_now(py);
        self.handlers.clear();
        settle(py);
        left
    }

    /// Gives up: the others get an error.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.guard.check_ours(py)?;
        py.detach(|| drop(self.end(message::Domain::give_up)));
        self.handlers.clear();
        Ok(())
    }

    /// Leaves the place to the end of the process: its status says whether it leaves in order.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.guard.check_ours(py)?;
        self.leave_to_exit();
        Ok(())
    }

    /// Whether this process joined it.
    #[getter]
    fn ours(&self) -> bool {
        self.is_ours()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.handlers.traverse(&visit)
    }

    fn __clear__(&self) {
        self.handlers.clear();
    }
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
                self.leave_now(py).unwrap_or_else(|error| error.write_unraisable(py, None));
                settle(py);
            }
        });
        if dropped.is_none() {
            drop(self.end(message::Domain::leave));
        }
    }
}

/// Has one thread stop that serves in the background; each has its own, since several may serve.
#[pyclass(frozen, module = "polyduct._native")]
#[derive(Default)]
pub struct Stop(AtomicBool);

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Stop {
        Stop::default()
    }
}

/// Memory that other units put into and get from.
#[pyclass(frozen, module = "polyduct._native")]
pub struct Region(domain::Region);

#[pymethods]
impl Region {
    /// Its bytes, where they lie.
    fn array<'py>(&self, py: Python<'py>) -> PyResult<Bytes<'py>> {
        region_array(py, self.0.clone())
    }
}
