//! Says when calls that wait have to end: by a limit, by the caller's question, or because another thread
//! closes what they wait in.

use crate::args::seconds;
use crate::code::Code;
use crate::error::Failure;
use polyduct::host::clock;
use polyduct::message::Domain;
use polyduct::Interrupt;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The caller's question, and what it is about.
pub type Question = Option<unsafe extern "C" fn(*mut c_void) -> c_int>;

/// Locks; what a panic left behind is as any other.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pointer of the caller's for its own callbacks.
#[derive(Clone, Copy)]
pub struct User(pub *mut c_void);

// SAFETY: nothing here looks at what it leads to: it goes back to the caller's callbacks, which the header says
// may run in any thread that calls.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    /// The pointer, for a callback.
    pub fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// What guards the calls on a port or a domain.
pub struct Guard {
    what: &'static str,
    closing: Arc<AtomicBool>,
    /// Nanoseconds that later calls may wait; 0: as was said when it was opened.
    limit: AtomicU64,
}

thread_local! {
    /// What calls of this thread are busy with: a callback that called again would wait for it in vain.
    static BUSY: RefCell<Vec<*const Guard>> = const { RefCell::new(Vec::new()) };
    /// This thread's call is the one that closes, for which the others end.
    static CLOSES: Cell<bool> = const { Cell::new(false) };
}

struct Busy;

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.with_borrow_mut(|busy| busy.truncate(busy.len().saturating_sub(1)));
    }
}

struct Closes(bool);

impl Drop for Closes {
    fn drop(&mut self) {
        CLOSES.set(self.0);
    }
}

impl Guard {
    /// What errors call what it guards.
    pub fn new(what: &'static str) -> Guard {
        Guard { what, closing: Arc::default(), limit: AtomicU64::new(0) }
    }

    /// The question for those who wait: give up?
    pub fn interrupt(&self, question: Question, user: User) -> Interrupt {
        let closing = self.closing.clone();
        Arc::new(move || {
            let closed = closing.load(Ordering::Acquire) && !CLOSES.get();
            // SAFETY: a function of the caller's, which is called as the header says.
            closed || question.is_some_and(|ask| unsafe { ask(user.pointer()) } != 0)
        })
    }

    /// Sets how long later calls may wait.
    pub fn set_limit(&self, given: f64) -> Result<(), Failure> {
        let limit = seconds("timeout", given)?.map_or(0, |limit| limit.as_nanos() as u64);
        self.limit.store(limit, Ordering::Relaxed);
        Ok(())
    }

    /// Whether another thread closes.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn enter(&self) -> Result<Busy, Failure> {
        let at: *const Guard = self;
        let what = self.what;
        BUSY.with_borrow_mut(|busy| {
            // A handler runs inside a call of its domain, which knows what would have to wait there.
            if busy.contains(&at) && !(what == "domain" && Domain::in_handler()) {
                return Err(Failure::misuse(format!(
                    "a callback cannot use the {what} whose call it is part of"
                )));
            }
            busy.push(at);
            Ok(Busy)
        })
    }

    /// Runs a call.
    pub fn run<T>(&self, f: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let limit = match self.limit.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        };
        let busy = self.enter()?;
        let done = match limit {
            // One that is inside another has that one's limit.
            None => f(),
            limit => clock::within(limit, f),
        };
        drop(busy);
        match done {
            Err(_) if self.is_closing() && !CLOSES.get() => {
                let text = format!("the {} was closed by another thread", self.what);
                Err(Failure::Own(Code::CLOSED, text, Vec::new()))
            }
            done => done,
        }
    }

    /// Has the calls of other threads end, and runs the one that closes.
    pub fn end<T>(&self, f: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        // A callback that closes what its own call waits in would wait for itself.
        drop(self.enter()?);
        self.closing.store(true, Ordering::Release);
        let _closes = Closes(CLOSES.replace(true));
        self.run(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_inside_a_call_is_refused_and_others_are_not() {
        let (port, other) = (Guard::new("port"), Guard::new("port"));
        let inner = port.run(|| {
            assert!(other.run(|| Ok(())).is_ok());
            Ok(port.run(|| Ok(())).is_err() && port.end(|| Ok(())).is_err())
        });
        assert!(matches!(inner, Ok(true)));
        assert!(port.run(|| Ok(())).is_ok());
    }

    #[test]
    fn who_closes_may_wait_and_the_others_may_not() {
        let guard = Guard::new("port");
        let ask = guard.interrupt(None, User(std::ptr::null_mut()));
        assert!(!ask());
        assert!(guard.end(|| Ok(ask())).is_ok_and(|stopped| !stopped));
        assert!(ask());
        let failed = guard.run(|| Err::<(), _>(Failure::misuse("")));
        assert!(matches!(failed, Err(Failure::Own(Code::CLOSED, ..))));
    }
}
