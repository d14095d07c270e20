//! Guards calls of ports and domains: the interpreter is released, signals interrupt, forked children are
//! refused.

use crate::{error, exit};
use polyduct::host::{clock, process::own_pid};
use polyduct::message::Domain;
use polyduct::{Error, Interrupt};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Locks; what a panic left behind is a port like any other.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks, if nobody else has it: while the interpreter is held nobody may be waited for who may need it.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Whose calls a guard guards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    Port,
    Domain,
    Store,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Port => "port",
            What::Domain => "domain",
            What::Store => "store",
        })
    }
}

/// Says when the blocking calls of a port or a domain have to end.
pub struct Guard {
    what: What,
    /// Another thread wants to close it.
    closing: Arc<AtomicBool>,
    /// The process that opened it. A fork has a copy of it without the thread that watches the peers, and it
    /// must not speak for the unit.
    pid: u32,
    /// What errors call a port.
    url: Option<String>,
}

enum Reason {
    /// What a signal handler raised: KeyboardInterrupt, most of the time.
    Raised(PyErr),
    Closing,
    /// There is no interpreter any more that could be asked.
    Ending,
}

thread_local! {
    /// Why this thread's call was told to end. A call asks in its own thread, so that calls of other threads
    /// on the same port cannot take each other's reasons.
    static REASON: RefCell<Option<Reason>> = const { RefCell::new(None) };
    /// What calls of this thread are busy with. A signal handler runs inside a call, and would wait for it in
    /// vain.
    static BUSY: RefCell<Vec<*const Guard>> = const { RefCell::new(Vec::new()) };
    /// This thread looks at a port whose user may be busy with something else: signals are for the user's
    /// calls.
    static ASIDE: Cell<bool> = const { Cell::new(false) };
    /// This thread's call is the one that closes, and for which the others end.
    static CLOSES: Cell<bool> = const { Cell::new(false) };
}

/// This thread's call, until dropped.
struct Call;

impl Call {
    /// `None` inside another call of this thread to the same port or domain. A handler of messages runs
    /// inside one of its domain, which knows: what would have to wait is refused there. A port does not know,
    /// and would wait for itself.
    fn enter(guard: &Guard) -> Option<Call> {
        let at: *const Guard = guard;
        BUSY.with_borrow_mut(|busy| {
            let free = !busy.contains(&at) || guard.what == What::Domain && Domain::in_handler();
            free.then(|| {
                busy.push(at);
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
    if ASIDE.get() {
        return closing.load(Ordering::Acquire);
    }
    if REASON.with_borrow(Option::is_some) {
        return true;
    }
    let reason = match closing.load(Ordering::Acquire) && !CLOSES.get() {
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

/// Looks at a port beside its user's calls: no signal is taken from those, and the interpreter is not asked
/// for.
pub fn aside<T>(f: impl FnOnce() -> T) -> T {
    let before = ASIDE.replace(true);
    let done = f();
    ASIDE.set(before);
    done
}

/// Has the call end in which this thread runs a handler, and raise this: a handler itself raises to nobody.
pub fn raise_from_call(raised: PyErr) {
    REASON.set(Some(Reason::Raised(raised)));
}

impl Guard {
    pub fn new(what: What) -> Guard {
        Guard { what, closing: Arc::default(), pid: own_pid(), url: None }
    }

    /// For errors to name.
    pub fn of(self, url: &str) -> Guard {
        Guard { url: Some(url.to_owned()), ..self }
    }

    /// The question for those who wait: give up?
    pub fn interrupt(&self) -> Interrupt {
        let closing = self.closing.clone();
        Arc::new(move || ask(&closing))
    }

    /// Whether this is the process that opened it.
    pub fn is_ours(&self) -> bool {
        self.pid == own_pid()
    }

    /// An exception where this is not the process that opened it. A store has no threads, and speaks for no
    /// unit.
    pub fn check_ours(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_ours() || self.what == What::Store {
            return Ok(());
        }
        let message = format!("a {} cannot be used in a fork of the process that opened it", self.what);
        Err(error::own(py, "Misuse", &message))
    }

    /// Has blocking calls in other threads end, so that it can be closed.
    pub fn stop_others(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Has blocking calls in other threads end for good, and runs what ends it, which may wait.
    pub fn end<T>(&self, end: impl FnOnce() -> T) -> T {
        self.stop_others();
        let before = CLOSES.replace(true);
        let ended = end();
        CLOSES.set(before);
        ended
    }

    /// Lets calls block again: those that close.
    pub fn others_stopped(&self) {
        self.closing.store(false, Ordering::Release);
    }

    fn enter(&self, py: Python<'_>) -> PyResult<Call> {
        self.check_ours(py)?;
        Call::enter(self).ok_or_else(|| {
            let what = self.what;
            let message = format!(
                "a signal handler cannot use the {what} whose call it interrupts: raise an exception there, and close or \
                 abort the {what} where that is caught"
            );
            error::own(py, "Misuse", &message)
        })
    }

    /// Calls `f` with the interpreter, for what takes microseconds and waits for nobody: to let go of the
    /// interpreter and to get it back takes longer.
    pub fn at_once<T>(&self, py: Python<'_>, f: impl FnOnce() -> T) -> PyResult<T> {
        let call = self.enter(py)?;
        let done = f();
        drop(call);
        match REASON.take() {
            // A handler that ran meanwhile.
            Some(Reason::Raised(raised)) => Err(raised),
            _ => Ok(done),
        }
    }

    /// Calls `f` without the interpreter; `raise` makes an exception of its error.
    pub fn run<T: Send, E: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce() -> Result<T, E> + Send,
        raise: impl FnOnce(Python<'_>, &E) -> PyErr,
    ) -> PyResult<T> {
        self.run_within(py, None, f, raise)
    }

    /// The same with a limit to what the call waits for; without one each wait has its own.
    pub fn run_within<T: Send, E: Send>(
        &self,
        py: Python<'_>,
        limit: Option<Duration>,
        f: impl FnOnce() -> Result<T, E> + Send,
        raise: impl FnOnce(Python<'_>, &E) -> PyErr,
    ) -> PyResult<T> {
        let (what, call) = (self.what, self.enter(py)?);
        let done = py.detach(|| clock::within(limit, f));
        drop(call);
        // Why it was told to end goes before what the port calls it.
        let reason = REASON.take();
        if let Some(Reason::Raised(raised)) = reason {
            return Err(raised);
        }
        done.map_err(|e| {
            // Ctrl-C often comes to all units at once, and the end of a peer is learnt before the own signal
            // is looked at. It goes first: CPython would run the handler while it prints the error, and lose
            // the rest of the text.
            if let Err(raised) = py.check_signals() {
                return raised;
            }
            match (reason, &self.url) {
                (Some(Reason::Closing), Some(url)) => error::raise(py, &Error::closed(url)),
                (Some(Reason::Closing), None) => {
                    error::own(py, "Closed", &format!("the {what} was closed by another thread"))
                }
                _ => raise(py, &e),
            }
        })
    }
}

/// What a signal handler raised, where this thread's call was told to end by that.
pub fn raised() -> Option<PyErr> {
    match REASON.take() {
        Some(Reason::Raised(raised)) => Some(raised),
        _ => None,
    }
}

/// Passes on what a signal handler raised while a port was dropped: a drop cannot raise.
pub fn settle(py: Python<'_>) {
    let Some(raised) = raised() else { return };
    let again = match raised.is_instance_of::<PyKeyboardInterrupt>(py) {
        true => py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main")).map(drop),
        false => Err(raised),
    };
    if let Err(e) = again {
        e.write_unraisable(py, None);
    }
}
