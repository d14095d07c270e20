//! Arrays that a unit lends where they lie.

use crate::domain::Domain;
use crate::options::maybe_seconds;
use crate::{bytes, error};
use numpy::PyArray1;
use polyduct::host::clock;
use polyduct::message::domain;
use polyduct::message::link::shm::Memory;
use polyduct::message::MessageError;
use polyduct::Error;
use pyo3::prelude::*;

/// Memory of an array that other units put into and get from.
#[pyclass(frozen, module = "polyduct._native")]
pub struct Lent {
    domain: Py<Domain>,
    /// Always there, but in a drop.
    lent: Option<domain::Lent>,
}

/// Lends an array of bytes, which is kept for as long.
pub fn lend(domain: &Bound<'_, Domain>, id: u32, array: &Bound<'_, PyArray1<u8>>) -> PyResult<Lent> {
    let py = domain.py();
    let (base, len) = {
        // Whether it can be written and lies together; and nobody else holds it as Rust does at this moment.
        let mut writable = bytes::writable(array)?;
        let slice = bytes::slice_mut(&mut writable)?;
        (slice.as_mut_ptr(), slice.len())
    };
    let keeper: Box<dyn std::any::Any + Send + Sync> = Box::new(array.clone().unbind());
    // SAFETY: the array is kept by `keeper`, and so is its memory, `len` bytes from `base` that lie together
    // and can be written, as was just checked; NumPy does not move what something refers to. To Rust, arrays
    // of NumPy are raw memory: those that calls borrow are copied from and to, bytes for which every value is
    // valid.
    let memory = unsafe { Memory::of(base, len, keeper) };
    let lent = domain.get().run(py, |domain| domain.lend(id, memory))?;
    Ok(Lent { domain: domain.clone().unbind(), lent: Some(lent) })
}

#[pymethods]
impl Lent {
    /// Takes it back; waits for the copies of others. Again does nothing.
    fn withdraw(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        let Some(lent) = &self.lent else { return Ok(()) };
        let domain = self.domain.get();
        let withdraw = || match lent.withdraw() {
            Err(MessageError::Region { .. }) => Ok(None),
            other => other.map(Some),
        };
        let done = match domain.is_joined() {
            true => domain.run_within(py, limit, |_| withdraw()),
            // After the domain was left, others may still be in the midst of a copy.
            false => {
                py.detach(|| clock::within(limit, withdraw)).map_err(|e| error::raise(py, &Error::from(e)))
            }
        };
        // The array goes with the interpreter attached.
        done.map(drop)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut lent = self.lent.take();
        if !self.domain.get().is_ours() {
            // The memory is the parent's to lend.
            std::mem::forget(lent);
            return;
        }
        // Waits for those who copy, some of whom may be threads of this interpreter. Where it has ended, so
        // has the need to let others run.
        Python::try_attach(|py| py.detach(|| drop(lent.take())));
    }
}
