//! Arrays of bytes from NumPy: borrowed as Rust borrows, so that no two calls write the same memory.

use crate::error;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;

/// Loads what the crate `numpy` needs of NumPy. It does so when first used, by running Python code, and
/// panics where that raises: a Ctrl-C during the first read of a program must not meet it there.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    let array = PyArray1::<u8>::zeros(py, 1, false);
    readable(&array).map(drop)?;
    writable(&array).map(drop)
}

/// Borrows an array for reading, for as long as a call takes.
pub fn readable<'py>(array: &Bound<'py, PyArray1<u8>>) -> PyResult<PyReadonlyArray1<'py, u8>> {
    let message = "an array overlaps one that is being written: by this call, or by one in another thread";
    array.try_readonly().map_err(|_| error::own(array.py(), "Misuse", message))
}

/// Borrows an array for writing, for as long as a call takes.
pub fn writable<'py>(array: &Bound<'py, PyArray1<u8>>) -> PyResult<PyReadwriteArray1<'py, u8>> {
    let message = "an array to be filled is read-only, or overlaps one that is in use: by this call, or by \
        one in another thread";
    array.try_readwrite().map_err(|_| error::own(array.py(), "Misuse", message))
}

/// Its bytes.
pub fn slice<'a>(array: &'a PyReadonlyArray1<'_, u8>) -> PyResult<&'a [u8]> {
    array.as_slice().map_err(|_| error::own(array.py(), "Misuse", "expected contiguous bytes"))
}

/// Its bytes.
pub fn slice_mut<'a>(array: &'a mut PyReadwriteArray1<'_, u8>) -> PyResult<&'a mut [u8]> {
    let py = array.py();
    array.as_slice_mut().map_err(|_| error::own(py, "Misuse", "expected contiguous bytes"))
}
