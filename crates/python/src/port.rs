//! What both kinds of port share: calls without the interpreter, interrupts, forks.

use crate::error;
use polyduct::{Error, Interrupt};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Locks; what a panic left behind is a port like any other.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part of a port that says when its blocking calls have to end.
pub struct Port {
    ask: Arc<Ask>,
    /// The process that opened it. A fork has a copy of the port without the thread that watches the peers, and it must not
    /// speak for the unit.
    pid: u32,
}

struct Ask {
    /// Another thread wants to close the port.
    closing: AtomicBool,
    /// Why a blocking call was told to end.
    reason: Mutex<Option<Reason>>,
}

enum Reason {
    /// What a signal handler raised: KeyboardInterrupt, most of the time.
    Raised(PyErr),
    Closing,
    /// There is no interpreter any more that could be asked.
    Ending,
}

impl Ask {
    /// Whether a blocking call must end. Called without the interpreter, every 100 ms.
    fn ask(&self) -> bool {
        let reason = match self.closing.load(Ordering::Acquire) {
            true => Some(Reason::Closing),
            // Handlers run in the main thread only; in others this asks nothing.
            false => match Python::try_attach(|py| py.check_signals()) {
                Some(Ok(())) => None,
                Some(Err(e)) => Some(Reason::Raised(e)),
                None => Some(Reason::Ending),
            },
        };
        let stop = reason.is_some();
        if stop {
            *lock(&self.reason) = reason;
        }
        stop
    }
}

impl Port {
    pub fn new() -> Port {
        let ask = Arc::new(Ask { closing: AtomicBool::new(false), reason: Mutex::new(None) });
        Port { ask, pid: std::process::id() }
    }

    /// The question for [`polyduct::Open::interrupt`].
    pub fn interrupt(&self) -> Interrupt {
        let ask = self.ask.clone();
        Arc::new(move || ask.ask())
    }

    /// Whether this is the process that opened the port.
    pub fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Has blocking calls in other threads end, so that the port can be closed.
    pub fn stop_others(&self) {
        self.ask.closing.store(true, Ordering::Release);
    }

    /// Lets calls block again: those that close.
    pub fn others_stopped(&self) {
        self.ask.closing.store(false, Ordering::Release);
    }

    /// Calls `f` without the interpreter.
    pub fn run<T: Send>(&self, py: Python<'_>, f: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
        if !self.is_ours() {
            return Err(error::own(
                py,
                "Misuse",
                "a port cannot be used in a fork of the process that opened it",
            ));
        }
        // Why it was told to end goes before what the port calls it.
        py.detach(f).map_err(|e| match lock(&self.ask.reason).take() {
            Some(Reason::Raised(raised)) => raised,
            Some(Reason::Closing) => error::own(py, "Closed", "the port was closed by another thread"),
            Some(Reason::Ending) | None => error::raise(py, &e),
        })
    }
}

/// Counters as a tuple in the order of `polyduct.Stats`.
pub type Counters = (u64, u64, u64, u64, f64, f64, f64);

pub fn counters(s: &polyduct::Stats) -> Counters {
    let (waited, copied, opened) = (s.waited.as_secs_f64(), s.copied.as_secs_f64(), s.opened.as_secs_f64());
    (s.steps, s.dropped, s.bytes, s.runs, waited, copied, opened)
}

/// An error of a port that is no longer there.
pub fn closed() -> Error {
    Error::Pipe(polyduct::pipe::PipeError::Closed { pipe: "of this port".into() })
}
