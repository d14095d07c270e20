//! Methods that both kinds of port share.

use crate::array::{Elem, Look};
use crate::error;
use crate::guard::{lock, Guard, What};
use numpy::npyffi::npy_intp;
use polyduct::ready::{Ready, Wait, Watch};
use polyduct::Addresses;
use polyduct::{Error, Interrupt, Mode};
use pyo3::prelude::*;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Parts up to this size are copied while the interpreter is held.
pub const AT_ONCE: usize = 64 << 10;

/// What the array of a unit's part looks like, where that is common.
pub struct Form {
    pub elem: Elem,
    pub shape: Vec<npy_intp>,
    pub is_fortran: bool,
}

impl Form {
    /// The look of an array, if it is of this form.
    pub fn look<'a>(form: &OnceLock<Form>, array: &'a Bound<'_, PyAny>) -> Option<Look<'a>> {
        let (form, look) = (form.get()?, Look::at(array)?);
        let same = form.elem == look.elem && form.shape == look.shape;
        // What has one dimension, or none, has no order.
        (same && (form.shape.len() < 2 || form.is_fortran == look.is_fortran)).then_some(look)
    }

    /// One of a type with this number.
    pub fn set(form: &OnceLock<Form>, elem: u32, shape: Vec<npy_intp>, is_fortran: bool) {
        if let Some(elem) = Elem::from_number(elem) {
            let _ = form.set(Form { elem, shape, is_fortran });
        }
    }
}

/// A port's calls, and what it leads to.
pub struct Port {
    guard: Guard,
    /// `pipe:NAME`, `store:PATH` or a path.
    url: String,
    /// For who polls; made when it is first asked for.
    ready: OnceLock<Ready>,
}

impl Port {
    pub fn new(url: &str, mode: Mode) -> Port {
        let url = match url {
            "-" => std::env::var(mode.variable()).unwrap_or_else(|_| url.to_owned()),
            url => url.to_owned(),
        };
        Port { guard: Guard::new(What::Port).of(&url), url, ready: OnceLock::new() }
    }

    /// The question for [`polyduct::Open::interrupt`].
    pub fn interrupt(&self) -> Interrupt {
        self.guard.interrupt()
    }

    /// Whether this is the process that opened the port.
    pub fn is_ours(&self) -> bool {
        self.guard.is_ours()
    }

    /// Has blocking calls in other threads end, so that the port can be closed.
    pub fn stop_others(&self) {
        self.guard.stop_others();
    }

    /// Lets calls block again: those that close.
    pub fn others_stopped(&self) {
        self.guard.others_stopped();
    }

    /// Calls `f` without the interpreter.
    pub fn run<T: Send>(&self, py: Python<'_>, f: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
        self.guard.run(py, f, error::raise)
    }

    /// The same with a limit to what the call waits for.
    pub fn run_within<T: Send>(
        &self,
        py: Python<'_>,
        limit: Option<Duration>,
        f: impl FnOnce() -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.guard.run_within(py, limit, f, error::raise)
    }

    /// Calls `f` with the interpreter, for what waits for nobody: `None` where it is not to be had so.
    pub fn at_once<T>(
        &self,
        py: Python<'_>,
        f: impl FnOnce() -> Option<Result<T, Error>>,
    ) -> PyResult<Option<T>> {
        self.guard.at_once(py, f)?.transpose().map_err(|e| error::raise(py, &e))
    }

    /// The descriptor that is readable while the next call would not wait: `watch` says where those sleep,
    /// `would_wait` whether it would.
    pub fn fileno<P: Send + 'static>(
        &self,
        py: Python<'_>,
        port: &Arc<Mutex<P>>,
        watch: impl FnOnce(&P) -> Result<Option<Watch>, Error> + Send,
        would_wait: fn(&mut P) -> Option<Wait>,
    ) -> PyResult<RawFd> {
        if let Some(ready) = self.ready.get() {
            return Ok(ready.fd());
        }
        self.run(py, || {
            let mut held = lock(port);
            // Another thread may have made it meanwhile.
            if self.ready.get().is_none() {
                let made = Ready::new(&self.url, watch(&held)?, port.clone(), would_wait)?;
                let _ = self.ready.set(made);
                self.look(&mut *held, would_wait);
            }
            self.ready.get().map(Ready::fd).ok_or_else(|| self.closed())
        })
    }

    /// Has who polls know whether the next call would wait. Called with the port's lock, after each call that
    /// may change it.
    pub fn look<P>(&self, port: &mut P, would_wait: fn(&mut P) -> Option<Wait>) {
        if let Some(ready) = self.ready.get() {
            ready.look(|| would_wait(port));
        }
    }

    /// The port has ended. Called without its lock.
    pub fn over(&self) {
        if let Some(ready) = self.ready.get() {
            ready.end();
        }
    }

    /// An error of a port that is no longer there.
    pub fn closed(&self) -> Error {
        Error::closed(&self.url)
    }
}

/// Where in the domain of a port its writers' addresses begin and end, and those of each reader program.
pub type Places = ((u32, u32), Vec<(u32, u32)>);

pub fn places(addresses: &Addresses) -> Places {
    let pair = |range: Range<u32>| (range.start, range.end);
    (pair(addresses.writers()), addresses.readers().map(pair).collect())
}

/// Counters as a tuple in the order of `polyduct.Stats`.
pub type Counters = (u64, u64, u64, u64, f64, f64, f64);

pub fn counters(s: &polyduct::Stats) -> Counters {
    let (waited, copied, opened) = (s.waited.as_secs_f64(), s.copied.as_secs_f64(), s.opened.as_secs_f64());
    (s.steps, s.dropped, s.bytes, s.runs, waited, copied, opened)
}
