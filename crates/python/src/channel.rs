//! A channel of a domain: an order of its own, a priority.

use crate::domain::Domain;
use crate::encode::{self, number};
use crate::error;
use crate::guard::lock;
use crate::options::maybe_seconds;
use polyduct::message::domain::{self, ChannelOptions};
use polyduct::message::{self, MessageError, Order, Priority};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Mutex;

/// A channel to a unit.
#[pyclass(frozen, module = "polyduct._native")]
pub struct Channel {
    domain: Py<Domain>,
    to: u32,
    /// Always there, but in a drop. Held while it sends, without the interpreter.
    channel: Mutex<Option<domain::Channel>>,
}

impl Channel {
    /// A new one.
    pub fn open(domain: &Bound<'_, Domain>, to: u32, priority: &str, is_ordered: bool) -> PyResult<Channel> {
        let py = domain.py();
        let priority = match priority {
            "low" => Priority::Low,
            "high" => Priority::High,
            other => {
                let message = format!("priority is {other:?}; expected 'low' or 'high'");
                return Err(error::bad_option(py, "priority", &message));
            }
        };
        let order = if is_ordered { Order::Ordered } else { Order::Any };
        let channel =
            domain.get().run(py, |domain| domain.channel_with(to, ChannelOptions { priority, order }))?;
        Ok(Channel { domain: domain.clone().unbind(), to, channel: Mutex::new(Some(channel)) })
    }

    fn run(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        f: impl FnOnce(&message::Domain, &mut domain::Channel) -> Result<(), MessageError> + Send,
    ) -> PyResult<()> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        self.domain.get().run_within(py, limit, |domain| {
            if message::Domain::in_handler() {
                // Another thread may hold it, or this very one.
                return Err(MessageError::InHandler);
            }
            lock(&self.channel).as_mut().map_or(Err(MessageError::Interrupted), |channel| f(domain, channel))
        })
    }
}

#[pymethods]
impl Channel {
    /// Sends an array or bytes for `recv`.
    fn send(
        &self,
        py: Python<'_>,
        what: &Bound<'_, PyAny>,
        tag: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let tag = number("tag", tag)?;
        let given = encode::look(what)?;
        let words = given.words();
        given.with(what, |payload| self.run(py, timeout, |_, channel| channel.send(tag, words, payload)))
    }

    /// Sends a message to a handler.
    fn post(
        &self,
        py: Python<'_>,
        name: &str,
        args: &Bound<'_, PyTuple>,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let args = crate::domain::words_of(py, args)?;
        encode::bytes_of(payload)?.with(payload, |bytes| {
            self.run(py, timeout, |domain, channel| channel.bulk(domain.lookup(name, self.to)?, args, bytes))
        })
    }

    /// Waits until the unit has handled all that was sent.
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.run(py, timeout, |_, channel| channel.flush())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let channel = self.channel.get_mut().ok().and_then(Option::take);
        if !self.domain.get().is_ours() {
            // Dropping it would speak for the parent's unit.
            std::mem::forget(channel);
        }
    }
}
