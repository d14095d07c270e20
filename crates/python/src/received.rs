//! Memory that arrays of NumPy lie in without a copy: what has come, and regions.

use numpy::ndarray::ArrayView1;
use numpy::PyArray1;
use polyduct::host::process::own_pid;
use polyduct::message::domain::{self, WeakDomain};
use pyo3::prelude::*;

/// Payloads from so many bytes on go back to the domain when their array goes: fresh memory is slow.
const GIVEN_BACK: usize = 4096;

/// What keeps the memory of an array.
#[pyclass(frozen, module = "polyduct._native")]
pub struct Received {
    memory: Memory,
    /// The process that has it: a fork's copy is not the domain's.
    pid: u32,
}

enum Memory {
    Payload(Vec<u8>, WeakDomain),
    Region(domain::Region),
}

/// A payload as an array, which owns it, and gives it back to the domain that it is from.
pub fn payload_array<'py>(
    py: Python<'py>,
    payload: Vec<u8>,
    domain: impl FnOnce() -> Option<WeakDomain>,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    match domain().filter(|_| payload.len() >= GIVEN_BACK) {
        Some(domain) => over(py, Memory::Payload(payload, domain)),
        None => Ok(PyArray1::from_vec(py, payload)),
    }
}

/// Memory that other units put into and get from.
#[pyclass(frozen, module = "polyduct._native")]
pub struct Region(domain::Region);

impl From<domain::Region> for Region {
    fn from(region: domain::Region) -> Region {
        Region(region)
    }
}

#[pymethods]
impl Region {
    /// Its bytes, where they lie.
    fn array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u8>>> {
        over(py, Memory::Region(self.0.clone()))
    }
}

fn over(py: Python<'_>, memory: Memory) -> PyResult<Bound<'_, PyArray1<u8>>> {
    let (at, len) = match &memory {
        Memory::Payload(payload, _) => (payload.as_ptr(), payload.len()),
        Memory::Region(region) => (region.address() as *const u8, region.len()),
    };
    let keeper = Bound::new(py, Received { memory, pid: own_pid() })?;
    // SAFETY: `keeper` has the memory, `len` bytes that stay where they are until it is dropped: those of a
    // vector that nobody else has any more, or a mapping. Nobody in Rust makes a reference to them meanwhile.
    // Other processes may write to a region: bytes, for which every value is valid. Arrays of NumPy are raw
    // memory to Rust.
    let array = unsafe {
        let view = ArrayView1::from_shape_ptr(len, at);
        PyArray1::borrow_from_array(&view, keeper.into_any())
    };
    Ok(array)
}

impl Drop for Received {
    fn drop(&mut self) {
        let Memory::Payload(payload, domain) = &mut self.memory else { return };
        if self.pid == own_pid() {
            if let Some(domain) = domain.upgrade() {
                domain.give_back(std::mem::take(payload));
            }
        }
    }
}
