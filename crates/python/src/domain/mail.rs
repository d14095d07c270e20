//! What a domain sends and receives: at once where nobody is waited for, else without the interpreter.

use super::{Domain, Given, Limit};
use crate::array::Look;
use crate::encode::{self, number};
use crate::error;
use crate::guard::lock;
use polyduct::message::domain::inbox::Mail;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Bytes that are copied with the interpreter, at most.
pub(super) const FILLED: usize = 64 << 10;

impl Domain {
    pub(super) fn sends_now(
        &self,
        py: Python<'_>,
        to: u32,
        tag: u32,
        given: &encode::Given<'_, '_>,
    ) -> PyResult<bool> {
        match given.here() {
            Some(payload) => self.at_once(py, |domain| domain.send_now(to, tag, given.words(), payload)),
            None => Ok(false),
        }
    }

    pub(super) fn send_to(
        &self,
        py: Python<'_>,
        to: u32,
        tag: u32,
        what: Given<'_, '_>,
        limit: Limit,
    ) -> PyResult<()> {
        let given = encode::look(what)?;
        if self.sends_now(py, to, tag, &given)? {
            return Ok(());
        }
        let words = given.words();
        given.with(what, |payload| self.run_within(py, limit, |domain| domain.send(to, tag, words, payload)))
    }

    /// Waits for a message.
    pub(super) fn receive(
        &self,
        py: Python<'_>,
        from: Option<u32>,
        tag: Option<u32>,
        limit: Limit,
    ) -> PyResult<Mail> {
        match self.at_once(py, |domain| domain.recv_now(from, tag))? {
            Some(mail) => Ok(mail),
            None => self.run_within(py, limit, |domain| domain.recv(from, tag)),
        }
    }

    /// What a message is, in `out` if that is given.
    pub(super) fn open<'py>(
        &self,
        py: Python<'py>,
        mail: Mail,
        out: Option<Given<'_, 'py>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Mail { from, words, payload, .. } = mail;
        let filled = out.filter(|out| payload.len() <= FILLED && encode::fill(out, words, &payload));
        if let Some(out) = filled {
            if let Some(domain) = lock(&self.domain).as_ref() {
                domain.give_back(payload);
            }
            return Ok(out.clone());
        }
        let data = encode::decode(py, words, payload, from, || self.downgrade())?;
        match out {
            None => Ok(data),
            Some(out) => py.import("polyduct._domain")?.call_method1("_into", (out, data)),
        }
    }
}

/// Refuses what cannot be filled, before anything is received.
pub(super) fn check_out(out: Option<Given<'_, '_>>) -> PyResult<()> {
    match out {
        Some(out) if !Look::at(out).is_some_and(|look| look.is_writeable) => {
            out.py().import("polyduct._regions")?.call_method1("check_out", (out,)).map(drop)
        }
        _ => Ok(()),
    }
}

/// The words and the payload for a handler.
pub fn words_of(py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<[u32; 4]> {
    if args.len() > 4 {
        let message = format!("{} arguments; a message has four at most", args.len());
        return Err(error::own(py, "Misuse", &message));
    }
    let mut words = [0; 4];
    for (word, arg) in words.iter_mut().zip(args.iter_borrowed()) {
        *word = number("an argument", &arg)?;
    }
    Ok(words)
}
