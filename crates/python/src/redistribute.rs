//! Regrouping parts that lie in this process.

use crate::bytes::{readable, slice, slice_mut, writable};
use crate::error;
use crate::layout::Layout;
use numpy::PyArray1;
use pyo3::prelude::*;

/// Fills `to`, the parts of `dst`, from `from`, the parts of `src`: flat bytes, in each layout's order.
#[pyfunction]
pub fn redistribute(
    py: Python<'_>,
    src: &Layout,
    from: Vec<Bound<'_, PyArray1<u8>>>,
    dst: &Layout,
    to: Vec<Bound<'_, PyArray1<u8>>>,
) -> PyResult<()> {
    let mut to = to.iter().map(|part| writable(part)).collect::<PyResult<Vec<_>>>()?;
    let from = from.iter().map(|part| readable(part)).collect::<PyResult<Vec<_>>>()?;
    let mut to = to.iter_mut().map(slice_mut).collect::<PyResult<Vec<_>>>()?;
    let from = from.iter().map(slice).collect::<PyResult<Vec<_>>>()?;
    py.detach(|| polyduct::redistribute(&src.mapping, &from, &dst.mapping, &mut to))
        .map_err(|e| error::raise(py, &e))
}
