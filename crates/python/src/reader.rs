//! A unit's reading port.

use crate::bytes;
use crate::layout::{fail, Layout};
use crate::options::Options;
use crate::port::{closed, counters, lock, Counters, Port};
use numpy::PyArray1;
use polyduct::layout::ElemType;
use polyduct::{Reader, Stats};
use pyo3::prelude::*;
use std::sync::Mutex;

/// One unit's reading port.
#[pyclass(frozen, module = "polyduct._native")]
pub struct ReadPort {
    port: Port,
    reader: Mutex<Option<Box<Reader>>>,
    /// As of the last call, for when another thread is in one.
    stats: Mutex<Stats>,
    layout: polyduct::layout::Mapping,
    #[pyo3(get)]
    unit: u32,
    #[pyo3(get)]
    units: u32,
    #[pyo3(get)]
    program: String,
}

/// Opens a port for reading.
#[pyfunction]
pub fn open_reader(
    py: Python<'_>,
    url: &str,
    layout: &str,
    shape: Option<Vec<u64>>,
    elem: Option<&str>,
    convert: bool,
    options: Options,
) -> PyResult<ReadPort> {
    let port = Port::new();
    let (mut open, place) = options.builder(py, url, &port)?;
    if let Some(shape) = shape {
        open = open.shape(&shape);
    }
    if let Some(elem) = elem {
        open = open.elem(elem.parse::<ElemType>().map_err(fail(py))?);
    }
    let reader = port.run(py, || open.convert(convert).read(layout))?;
    Ok(ReadPort {
        stats: Mutex::new(reader.stats()),
        layout: reader.mapping().clone(),
        port,
        reader: Mutex::new(Some(Box::new(reader))),
        unit: place.unit,
        units: place.units,
        program: place.program,
    })
}

impl ReadPort {
    fn end<T>(&self, end: impl FnOnce(&mut Reader) -> T) -> Option<T> {
        self.port.stop_others();
        let mut reader = lock(&self.reader);
        self.port.others_stopped();
        let reader = reader.as_mut()?;
        let done = end(reader);
        *lock(&self.stats) = reader.stats();
        Some(done)
    }
}

#[pymethods]
impl ReadPort {
    #[getter]
    fn layout(&self) -> Layout {
        Layout::of(&self.layout)
    }

    /// Waits for the next step and copies this unit's part of it. Gives the step's number, None at the end.
    fn read(&self, py: Python<'_>, part: &Bound<'_, PyArray1<u8>>) -> PyResult<Option<u64>> {
        let mut part = bytes::writable(part)?;
        let part = bytes::slice_mut(&mut part)?;
        self.port.run(py, || {
            let mut reader = lock(&self.reader);
            let reader = reader.as_mut().ok_or_else(closed)?;
            let done = reader.read(part);
            *lock(&self.stats) = reader.stats();
            done
        })
    }

    fn stats(&self) -> Counters {
        counters(&lock(&self.stats))
    }

    /// Leaves. That the port failed before was said before.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.port.run(py, || {
            self.end(|reader| reader.close().map(drop));
            Ok(())
        })
    }

    /// Gives up: the other units get an error.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.port.run(py, || {
            self.end(Reader::abort);
            Ok(())
        })
    }
}

impl Drop for ReadPort {
    fn drop(&mut self) {
        if self.port.is_ours() {
            self.end(|reader| reader.close().map(drop));
        } else if let Ok(mut reader) = self.reader.try_lock() {
            // Dropping the reader would close the parent's port.
            std::mem::forget(reader.take());
        }
    }
}
