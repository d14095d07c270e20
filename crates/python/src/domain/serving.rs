//! Serving: a thread handles what comes, for a while or until it is stopped.

use super::Domain;
use polyduct::host::clock;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often whoever serves looks at what no message tells.
const SERVE_SLICE: Duration = Duration::from_millis(100);

/// Has one thread stop that serves in the background; each has its own, since several may serve.
#[pyclass(frozen, module = "polyduct._native")]
#[derive(Default)]
pub struct Stop(AtomicBool);

impl Stop {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Stop {
        Stop::default()
    }
}

impl Domain {
    /// Handles what comes until more handlers have run than `seen`, for 0.1 s and `seconds` at most.
    pub(super) fn serve_beyond(&self, py: Python<'_>, seen: u64, seconds: f64) -> PyResult<()> {
        if self.at_once(py, |domain| domain.serve_now(|| self.handlers.handled() != seen))? {
            return Ok(());
        }
        let time = SERVE_SLICE.min(Duration::try_from_secs_f64(seconds).unwrap_or(SERVE_SLICE));
        self.run(py, |domain| {
            domain.serve_until(Some(clock::now() + time), || self.handlers.handled() != seen)
        })
    }

    /// Handles what comes until `stop` is set.
    pub(super) fn serve_until_stopped(&self, py: Python<'_>, stop: &Stop) -> PyResult<()> {
        loop {
            let served = self.run(py, |domain| {
                // A domain's timeout ends the wait, too.
                while !stop.is_set() {
                    domain.serve_until(None, || stop.is_set())?;
                }
                Ok(())
            });
            match served {
                // A handler wanted to end the program, which no thread beside the first can; those who call
                // wait for the next.
                Err(e) if !e.is_instance_of::<PyException>(py) => e.write_unraisable(py, None),
                served => return served,
            }
        }
    }
}
