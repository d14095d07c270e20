//! Python functions that messages and calls of other units run.
//!
//! They run in whichever thread receives, which attaches to the interpreter for as long. The domain itself
//! keeps but their numbers here: it would keep the functions, and all that they know, for ever.

use crate::encode::{decode_copy, look};
use crate::guard::{lock, raise_from_call};
use polyduct::class::TRACEBACK;
use polyduct::message::domain::{Context, Message, Parcel};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of a traceback that are sent.
const MAX_TRACEBACK: usize = 16 << 10;

/// The functions of a domain.
#[derive(Default)]
pub struct Handlers {
    functions: Mutex<Vec<Py<PyAny>>>,
    /// How many have run.
    handled: AtomicU64,
}

impl Handlers {
    /// How many have run.
    pub fn handled(&self) -> u64 {
        self.handled.load(Ordering::Acquire)
    }

    /// Forgets the functions; what comes for them is dropped.
    pub fn clear(&self) {
        let functions = std::mem::take(&mut *lock(&self.functions));
        // Dropping them may run anything.
        drop(functions);
    }

    /// For the interpreter's collector of cycles.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.functions.try_lock() {
            Ok(functions) => functions.iter().try_for_each(|function| visit.call(function)),
            // In use, and so no garbage.
            Err(_) => Ok(()),
        }
    }

    fn add(&self, function: Py<PyAny>) -> usize {
        let mut functions = lock(&self.functions);
        functions.push(function);
        functions.len() - 1
    }

    fn get(&self, py: Python<'_>, number: usize) -> Option<Py<PyAny>> {
        lock(&self.functions).get(number).map(|function| function.clone_ref(py))
    }

    /// Runs a function with the interpreter; `None` where there is none any more.
    fn run<T>(&self, number: usize, run: impl FnOnce(&Bound<'_, PyAny>) -> T) -> Option<T> {
        let done = Python::try_attach(|py| {
            let function = self.get(py, number)?;
            Some(run(function.bind(py)))
        });
        self.handled.fetch_add(1, Ordering::Release);
        done.flatten()
    }
}

/// A handler for messages: `function(from, args, payload)`.
pub fn of_messages(handlers: &Arc<Handlers>, function: Py<PyAny>) -> impl Fn(&Context<'_>, Message<'_>) {
    let (handlers, number) = (handlers.clone(), handlers.add(function));
    move |_, m| {
        handlers.run(number, |function| {
            let py = function.py();
            let called = PyTuple::new(py, m.args)
                .and_then(|args| function.call1((m.from, args, PyBytes::new(py, m.payload))));
            if let Err(e) = called {
                report(py, e, function);
            }
        });
    }
}

/// A function for calls: `function(argument)` gives a result, arrays or bytes both ways.
pub fn of_calls(
    handlers: &Arc<Handlers>,
    function: Py<PyAny>,
) -> impl Fn(&Context<'_>, [u32; 2], &[u8]) -> Result<Parcel, String> {
    let (handlers, number) = (handlers.clone(), handlers.add(function));
    move |context, words, argument| {
        let run = |function: &Bound<'_, PyAny>| {
            let py = function.py();
            let called = decode_copy(py, words, argument, context.from())
                .and_then(|argument| function.call1((argument,)))
                .and_then(|result| {
                    if result.is_none() {
                        return Ok(Parcel::default());
                    }
                    let given = look(&result)?;
                    Ok(Parcel { words: given.words(), payload: given.to_vec()? })
                });
            called.map_err(|e| {
                let words = words_of(py, &e);
                if !e.is_instance_of::<PyException>(py) {
                    raise_from_call(e);
                }
                words
            })
        };
        handlers.run(number, run).unwrap_or_else(|| Err("the unit has left".to_owned()))
    }
}

/// An exception that nobody waits for: Ctrl-C ends the call in which the handler ran, of others the user is
/// told.
fn report(py: Python<'_>, e: PyErr, function: &Bound<'_, PyAny>) {
    match e.is_instance_of::<PyException>(py) {
        true => e.write_unraisable(py, Some(function)),
        false => raise_from_call(e),
    }
}

/// `ValueError: not a number`, an empty line, and where that was raised.
fn words_of(py: Python<'_>, e: &PyErr) -> String {
    let class = e.get_type(py).qualname().map_or_else(|_| "an exception".to_owned(), |name| name.to_string());
    let mut words = match e.value(py).str().map(|text| text.to_string()) {
        Ok(text) if !text.is_empty() => format!("{class}: {text}"),
        _ => class,
    };
    if let Some(text) = e.traceback(py).and_then(|traceback| traceback.format().ok()) {
        let text = text.strip_prefix(TRACEBACK.trim_start()).unwrap_or(&text);
        // The end is nearest to the cause.
        let from = (text.len().saturating_sub(MAX_TRACEBACK)..).find(|&at| text.is_char_boundary(at));
        words.push_str(TRACEBACK);
        words.push_str(text[from.unwrap_or(0)..].trim_end());
    }
    words
}
