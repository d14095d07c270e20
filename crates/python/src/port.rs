//! What both kinds of port share: calls without the interpreter, interrupts, forks.

use crate::{error, exit};
use polyduct::pipe::PipeError;
use polyduct::store::FileError;
use polyduct::{Error, Interrupt, Mode};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Locks; what a panic left behind is a port like any other.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part of a port that says when its blocking calls have to end.
pub struct Port {
    /// Another thread wants to close the port.
    closing: Arc<AtomicBool>,
    /// What it leads to: `pipe:NAME` or a path.
    url: String,
    /// The process that opened it. A fork has a copy of the port without the thread that watches the peers, and it must not
    /// speak for the unit.
    pid: u32,
}

enum Reason {
    /// What a signal handler raised: KeyboardInterrupt, most of the time.
    Raised(PyErr),
    Closing,
    /// There is no interpreter any more that could be asked.
    Ending,
}

thread_local! {
    /// Why this thread's call was told to end. A call asks in its own thread, so that calls of other threads on the same
    /// port cannot take each other's reasons.
    static REASON: RefCell<Option<Reason>> = const { RefCell::new(None) };
    /// The ports that calls of this thread are busy with. A signal handler runs inside a call, and would wait for it in vain.
    static BUSY: RefCell<Vec<*const Port>> = const { RefCell::new(Vec::new()) };
}

/// This thread's call to a port, until dropped.
struct Call;

impl Call {
    /// `None` inside another call of this thread to the same port.
    fn enter(port: *const Port) -> Option<Call> {
        BUSY.with_borrow_mut(|busy| {
            let free = !busy.contains(&port);
            free.then(|| {
                busy.push(port);
                Call
            })
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        BUSY.with_borrow_mut(|busy| busy.truncate(busy.len().saturating_sub(1)));
    }
}

/// Whether a blocking call must end. Called without the interpreter, every 100 ms.
fn ask(closing: &AtomicBool) -> bool {
    if exit::begun() {
        return false;
    }
    let reason = match closing.load(Ordering::Acquire) {
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
        REASON.set(reason);
    }
    stop
}

impl Port {
    pub fn new(url: &str, mode: Mode) -> Port {
        let url = match url {
            "-" => std::env::var(mode.variable()).unwrap_or_else(|_| url.to_owned()),
            url => url.to_owned(),
        };
        Port { closing: Arc::default(), url, pid: std::process::id() }
    }

    /// The question for [`polyduct::Open::interrupt`].
    pub fn interrupt(&self) -> Interrupt {
        let closing = self.closing.clone();
        Arc::new(move || ask(&closing))
    }

    /// Whether it leads to a pipe, not a file.
    pub fn is_pipe(&self) -> bool {
        self.url.starts_with("pipe:")
    }

    /// Whether this is the process that opened the port.
    pub fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Has blocking calls in other threads end, so that the port can be closed.
    pub fn stop_others(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Lets calls block again: those that close.
    pub fn others_stopped(&self) {
        self.closing.store(false, Ordering::Release);
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
        let Some(call) = Call::enter(self) else {
            let what = "a signal handler cannot use the port whose call it interrupts: raise an exception there, and close \
                        or abort the port where that is caught";
            return Err(error::own(py, "Misuse", what));
        };
        let done = py.detach(f);
        drop(call);
        // Why it was told to end goes before what the port calls it.
        let reason = REASON.take();
        if let Some(Reason::Raised(raised)) = reason {
            return Err(raised);
        }
        done.map_err(|e| {
            // Ctrl-C often comes to all units at once, and the end of a peer is learnt before the own signal is looked at.
            // It goes first: CPython would run the handler while it prints the error, and lose the rest of the text.
            if let Err(raised) = py.check_signals() {
                return raised;
            }
            match reason {
                Some(Reason::Closing) => error::own(py, "Closed", "the port was closed by another thread"),
                _ => error::raise(py, &e),
            }
        })
    }

    /// An error of a port that is no longer there.
    pub fn closed(&self) -> Error {
        match self.url.strip_prefix("pipe:") {
            Some(pipe) => Error::Pipe(PipeError::Closed { pipe: pipe.to_owned() }),
            None => Error::File(FileError::Closed { path: self.url.clone() }),
        }
    }
}

/// Passes on what a signal handler raised while a port was dropped: a drop cannot raise.
pub fn settle(py: Python<'_>) {
    let Some(Reason::Raised(raised)) = REASON.take() else { return };
    let again = match raised.is_instance_of::<PyKeyboardInterrupt>(py) {
        true => py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main")).map(drop),
        false => Err(raised),
    };
    if let Err(e) = again {
        e.write_unraisable(py, None);
    }
}

/// Counters as a tuple in the order of `polyduct.Stats`.
pub type Counters = (u64, u64, u64, u64, f64, f64, f64);

pub fn counters(s: &polyduct::Stats) -> Counters {
    let (waited, copied, opened) = (s.waited.as_secs_f64(), s.copied.as_secs_f64(), s.opened.as_secs_f64());
    (s.steps, s.dropped, s.bytes, s.runs, waited, copied, opened)
}
