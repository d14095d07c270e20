//! A unit's place in a domain of messages.

mod borrow;
mod mail;
mod serving;

pub use mail::words_of;
pub use serving::Stop;

use crate::array::Look;
use crate::bytes;
use crate::call::Call;
use crate::channel::Channel;
use crate::encode::{self, maybe_number, number};
use crate::error;
use crate::guard::{lock, settle, Guard};
use crate::handlers::{self, Handlers};
use crate::lent::{self, Lent};
use crate::options::maybe_seconds;
use crate::received::Region;
use borrow::raise;
use mail::{check_out, FILLED};
use numpy::PyArray1;
use polyduct::host::clock;
use polyduct::message::domain::{Parcel, Reach};
use polyduct::message::{self, MessageError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub type Bytes<'py> = Bound<'py, PyArray1<u8>>;
/// Unit, tag, and what was sent.
type Letter<'py> = (u32, u32, Bound<'py, PyAny>);
type Given<'a, 'py> = &'a Bound<'py, PyAny>;
/// The longest wait of a call; without it the domain's timeout holds.
pub type Limit = Option<Duration>;

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

    /// Copies run after run, each to or from its offset in a region of a unit.
    fn each_run<R>(
        &self,
        py: Python<'_>,
        limit: Limit,
        offsets: Vec<usize>,
        runs: impl Iterator<Item = R> + Send,
        copy: impl Fn(&message::Domain, usize, R) -> Result<(), MessageError> + Send + Sync,
    ) -> PyResult<()> {
        self.run_within(py, limit, |domain| {
            offsets.into_iter().zip(runs).try_for_each(|(offset, run)| copy(domain, offset, run))
        })
    }
}

/// Bytes of each of so many runs of one length; at least 1, which none has where there are none.
fn run_len(py: Python<'_>, len: usize, runs: usize) -> PyResult<usize> {
    match len.checked_div(runs) {
        Some(size) if size * runs != len => {
            Err(error::own(py, "WrongSize", "the runs are not of one length"))
        }
        size => Ok(size.unwrap_or(0).max(1)),
    }
}

#[pymethods]
impl Domain {
    /// Sends an array or bytes.
    fn send(
        &self,
        py: Python<'_>,
        to: Given<'_, '_>,
        what: Given<'_, '_>,
        tag: Given<'_, '_>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        self.send_to(py, number("to", to)?, number("tag", tag)?, what, limit)
    }

    /// Waits for a message, and gives what was sent.
    fn recv<'py>(
        &self,
        py: Python<'py>,
        from: Option<Given<'_, 'py>>,
        tag: Option<Given<'_, 'py>>,
        out: Option<Given<'_, 'py>>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.recv_from(py, from, tag, out, timeout).map(|(_, _, what)| what)
    }

    /// The same with who sent it, and its tag.
    fn recv_from<'py>(
        &self,
        py: Python<'py>,
        from: Option<Given<'_, 'py>>,
        tag: Option<Given<'_, 'py>>,
        out: Option<Given<'_, 'py>>,
        timeout: Option<f64>,
    ) -> PyResult<Letter<'py>> {
        let (from, tag) = (maybe_number("from_", from)?, maybe_number("tag", tag)?);
        let limit = maybe_seconds(py, "timeout", timeout)?;
        check_out(out)?;
        let mail = self.receive(py, from, tag, limit)?;
        Ok((mail.from, mail.tag, self.open(py, mail, out)?))
    }

    /// Sends, then waits for a message.
    #[allow(clippy::too_many_arguments)]
    fn sendrecv<'py>(
        &self,
        py: Python<'py>,
        to: Given<'_, 'py>,
        what: Given<'_, 'py>,
        from: Option<Given<'_, 'py>>,
        tag: Given<'_, 'py>,
        out: Option<Given<'_, 'py>>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (to, tag) = (number("to", to)?, number("tag", tag)?);
        let from = maybe_number("from_", from)?.unwrap_or(to);
        let limit = maybe_seconds(py, "timeout", timeout)?;
        check_out(out)?;
        let given = encode::look(what)?;
        let words = given.words();
        let mail = match self.sends_now(py, to, tag, &given)? {
            // It has not waited, so there was no circle to wait in.
            true => self.receive(py, Some(from), Some(tag), limit)?,
            false => given.with(what, |payload| {
                self.run_within(py, limit, |domain| {
                    domain.send_recv((to, tag), words, payload, (Some(from), Some(tag)))
                })
            })?,
        };
        self.open(py, mail, out)
    }

    /// Sends, if that takes no time.
    fn try_send(
        &self,
        py: Python<'_>,
        to: Given<'_, '_>,
        what: Given<'_, '_>,
        tag: Given<'_, '_>,
    ) -> PyResult<bool> {
        let (to, tag) = (number("to", to)?, number("tag", tag)?);
        self.sends_now(py, to, tag, &encode::look(what)?)
    }

    /// Waits until one of the messages from units with tags is there, one of the calls is over, or `stop` was
    /// given to `stop_serving`; whether that was before `timeout` seconds had passed.
    fn wait_any(
        &self,
        py: Python<'_>,
        wanted: Vec<(Option<u32>, Option<u32>)>,
        calls: Vec<Py<Call>>,
        stop: &Bound<'_, Stop>,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        let stop = stop.get();
        self.run(py, |domain| {
            let deadline = limit.map(|limit| clock::now().saturating_add(limit));
            let done = || stop.is_set() || calls.iter().any(|call| call.get().is_over());
            domain.wait_any(&wanted, deadline, done)
        })
    }

    /// A message, if one waits.
    fn try_recv<'py>(
        &self,
        py: Python<'py>,
        from: Option<Given<'_, 'py>>,
        tag: Option<Given<'_, 'py>>,
    ) -> PyResult<Option<Letter<'py>>> {
        let (from, tag) = (maybe_number("from_", from)?, maybe_number("tag", tag)?);
        let mail = self.at_once(py, |domain| domain.try_recv(from, tag))?;
        mail.map(|mail| Ok((mail.from, mail.tag, self.open(py, mail, None)?))).transpose()
    }

    /// Sends a message to a handler.
    fn post(
        &self,
        py: Python<'_>,
        to: Given<'_, '_>,
        name: &str,
        args: &Bound<'_, PyTuple>,
        payload: Given<'_, '_>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        let (to, args) = (number("to", to)?, words_of(py, args)?);
        let given = encode::bytes_of(payload)?;
        if let Some(bytes) = given.here() {
            if self.at_once(py, |domain| domain.post_now(to, name, args, bytes))? {
                return Ok(());
            }
        }
        given.with(payload, |bytes| self.run_within(py, limit, |domain| domain.post(to, name, args, bytes)))
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

    fn synchronise(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.run_within(py, maybe_seconds(py, "timeout", timeout)?, message::Domain::synchronise)
    }

    fn barrier(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.run_within(py, maybe_seconds(py, "timeout", timeout)?, message::Domain::barrier)
    }

    /// Handles what has come; gives the number of records.
    fn poll(&self, py: Python<'_>) -> PyResult<usize> {
        self.at_once(py, message::Domain::poll)
    }

    /// How many handlers have run.
    #[getter]
    fn handled(&self) -> u64 {
        self.handlers.handled()
    }

    /// Handles what comes until more handlers have run than `seen`, for 0.1 s and `seconds` at most.
    fn serve(&self, py: Python<'_>, seen: u64, seconds: f64) -> PyResult<()> {
        self.serve_beyond(py, seen, seconds)
    }

    /// Handles what comes until `stop_serving` is called with the same `stop`.
    fn serve_in_background(&self, py: Python<'_>, stop: &Bound<'_, Stop>) -> PyResult<()> {
        self.serve_until_stopped(py, stop.get())
    }

    /// Has the one stop that serves in the background with this `stop`, or will.
    fn stop_serving(&self, py: Python<'_>, stop: &Bound<'_, Stop>) -> PyResult<()> {
        stop.get().set();
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
    fn call<'py>(
        slf: &Bound<'py, Self>,
        to: Given<'_, 'py>,
        name: &str,
        argument: Given<'_, 'py>,
        timeout: Option<f64>,
    ) -> PyResult<Call> {
        let (py, this, to) = (slf.py(), slf.get(), number("to", to)?);
        let timeout = maybe_seconds(py, "timeout", timeout)?;
        let given = encode::look(argument)?;
        let parcel = Parcel { words: given.words(), payload: given.to_vec()? };
        let call = match this.at_once(py, |domain| domain.call_now(to, name, parcel, timeout))? {
            Ok(call) => call.map_err(|e| this.raise(py, &e))?,
            Err(parcel) => this.run(py, |domain| domain.call_with(to, name, parcel, timeout))?,
        };
        Ok(Call::new(slf.clone().unbind(), call, to))
    }

    /// A new channel to a unit.
    fn channel(
        slf: &Bound<'_, Self>,
        to: Given<'_, '_>,
        priority: &str,
        is_ordered: bool,
    ) -> PyResult<Channel> {
        Channel::open(slf, number("to", to)?, priority, is_ordered)
    }

    /// A new region of this unit.
    fn region(&self, py: Python<'_>, id: u32, len: usize) -> PyResult<Region> {
        self.run(py, |domain| domain.region(id, len)).map(Region::from)
    }

    /// Bytes of a region of a unit.
    fn region_len(&self, py: Python<'_>, unit: u32, id: u32, timeout: Option<f64>) -> PyResult<usize> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        self.run_within(py, limit, |domain| domain.region_len(unit, id))
    }

    /// Lends an array of bytes.
    fn lend(slf: &Bound<'_, Self>, id: u32, memory: &Bytes<'_>) -> PyResult<Lent> {
        lent::lend(slf, id, memory)
    }

    /// Writes runs that lie one after the other in `payload` into a region of a unit, where each begins at
    /// one of `offsets`.
    fn put(
        &self,
        py: Python<'_>,
        to: u32,
        id: u32,
        offsets: Vec<usize>,
        payload: &Bytes<'_>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        let payload = bytes::readable(payload)?;
        let payload = bytes::slice(&payload)?;
        let size = run_len(py, payload.len(), offsets.len())?;
        self.each_run(py, limit, offsets, payload.chunks_exact(size), |domain, offset, run| {
            domain.put(to, id, offset, run)
        })
    }

    /// Reads runs from a region of a unit, where each begins at one of `offsets`, into `out`, one after the
    /// other.
    fn get(
        &self,
        py: Python<'_>,
        from: u32,
        id: u32,
        offsets: Vec<usize>,
        out: &Bytes<'_>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        let mut out = bytes::writable(out)?;
        let out = bytes::slice_mut(&mut out)?;
        let size = run_len(py, out.len(), offsets.len())?;
        self.each_run(py, limit, offsets, out.chunks_exact_mut(size), |domain, offset, run| {
            domain.get(from, id, offset, run)
        })
    }

    /// Whether a unit has a handler for such arguments, which is an error if not.
    fn look_up(&self, py: Python<'_>, to: u32, name: &str, args: &Bound<'_, PyTuple>) -> PyResult<()> {
        words_of(py, args)?;
        self.run(py, |domain| domain.lookup(name, to).map(drop))
    }

    /// Whether regions of a unit can be mapped.
    fn maps(&self, unit: u32) -> bool {
        // Of who is no unit, the mapping itself says so.
        self.maps.get(unit as usize).is_none_or(|&maps| maps)
    }

    /// Whether a unit is there as far as this one knows: neither this one nor that one has left, and it is
    /// not lost.
    fn is_there(&self, unit: u32) -> bool {
        self.is_ours() && lock(&self.domain).as_ref().is_some_and(|domain| domain.gone(unit) == Ok(None))
    }

    /// Copies an array to or from where one of a unit lies, if that is a short copy of the bytes as they are
    /// and the unit is there. `false`: nothing was done.
    fn copy_now(&self, unit: u32, into: Given<'_, '_>, from: Given<'_, '_>) -> bool {
        let (Some(into), Some(from)) = (Look::at(into), Look::at(from)) else { return false };
        from.len() <= FILLED && self.is_there(unit) && into.copy_from(&from)
    }

    /// A region of a unit.
    fn region_of(&self, py: Python<'_>, unit: u32, id: u32, timeout: Option<f64>) -> PyResult<Region> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        self.run_within(py, limit, |domain| domain.region_of(unit, id)).map(Region::from)
    }

    /// An exception in a handler.
    fn check_outside(&self, py: Python<'_>) -> PyResult<()> {
        let domain = lock(&self.domain).clone();
        match (message::Domain::in_handler(), domain) {
            (true, Some(domain)) => Err(raise(py, &MessageError::InHandler, &domain)),
            _ => Ok(()),
        }
    }

    /// Leaves in order.
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        self.guard.check_ours(py)?;
        let left = self.leave_now(py, limit);
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
