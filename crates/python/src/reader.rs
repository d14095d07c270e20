//! A unit's reading port.

use crate::bundle::{self, ArraySpec, PlacedArray, RuleSpec};
use crate::bytes;
use crate::domain::Domain;
use crate::exit;
use crate::guard::{aside, lock, settle, try_lock};
use crate::join;
use crate::layout::{fail, Layout};
use crate::options::{layout_of, maybe_seconds, Options};
use crate::port::{counters, places, Counters, Form, Places, Port, AT_ONCE};
use numpy::PyArray1;
use polyduct::layout::ElemType;
use polyduct::ready::Wait;
use polyduct::{ArrayPart, At, Error, JobUnit, Mode, Reader, Stats, Tried};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, OnceLock};

/// `None` once it was closed.
type Held = Option<Box<Reader>>;

/// One unit's reading port.
#[pyclass(frozen, module = "polyduct._native")]
pub struct ReadPort {
    port: Port,
    reader: Arc<Mutex<Held>>,
    /// As of the last call, for when another thread is in one.
    stats: Mutex<Stats>,
    layout: polyduct::layout::Mapping,
    /// None of a file.
    arrays: Vec<ArrayPart>,
    descrs: Vec<Option<String>>,
    len_bytes: usize,
    form: OnceLock<Form>,
    /// All units are on this host.
    near: bool,
    /// `None` for a file.
    #[pyo3(get)]
    addresses: Option<Places>,
    #[pyo3(get)]
    unit: u32,
    #[pyo3(get)]
    units: u32,
    #[pyo3(get)]
    program: String,
    /// What NumPy takes the elements for, where that is kept.
    #[pyo3(get)]
    descr: Option<String>,
}

/// Opens a port for reading.
#[pyfunction]
pub fn open_reader(
    py: Python<'_>,
    url: &str,
    layout: Option<&str>,
    shape: Option<Vec<u64>>,
    elem: Option<&str>,
    convert: bool,
    options: Options,
) -> PyResult<ReadPort> {
    let port = Port::new(url, Mode::Read);
    let (mut open, place) = options.builder(py, url, &port)?;
    let layout = layout_of(py, layout, &place)?;
    if let Some(shape) = shape {
        open = open.shape(&shape);
    }
    if let Some(elem) = elem {
        open = open.elem(elem.parse::<ElemType>().map_err(fail(py))?);
    }
    let reader = port.run(py, || open.convert(convert).read(layout))?;
    Ok(ReadPort::new(port, reader, place))
}

/// Opens a port for reading those of several arrays that rules choose.
#[pyfunction]
pub fn open_bundle_reader(
    py: Python<'_>,
    url: &str,
    rules: Vec<RuleSpec>,
    convert: bool,
    options: Options,
) -> PyResult<ReadPort> {
    let port = Port::new(url, Mode::Read);
    let (open, place) = options.builder(py, url, &port)?;
    let rules = bundle::rules(py, rules, convert, &place)?;
    let reader = port.run(py, || open.read_arrays(&rules))?;
    Ok(ReadPort::new(port, reader, place))
}

/// What the writers of a port bring.
#[pyfunction]
pub fn describe(py: Python<'_>, url: &str, options: Options) -> PyResult<Vec<ArraySpec>> {
    let port = Port::new(url, Mode::Read);
    let (open, _) = options.builder(py, url, &port)?;
    Ok(bundle::described(port.run(py, || open.describe())?))
}

/// What the next read would wait for.
fn would_wait(held: &mut Held) -> Option<Wait> {
    let reader = held.as_mut()?;
    aside(|| reader.would_wait())
}

impl ReadPort {
    fn new(port: Port, reader: Reader, place: JobUnit) -> ReadPort {
        ReadPort {
            stats: Mutex::new(reader.stats()),
            layout: reader.mapping().clone(),
            arrays: reader.arrays().to_vec(),
            descrs: reader.descrs().iter().map(|descr| descr.as_ref().map(ToString::to_string)).collect(),
            len_bytes: reader.local_len_bytes(),
            form: OnceLock::new(),
            near: reader.is_near(),
            addresses: reader.addresses().map(places),
            descr: reader.descr().map(ToString::to_string),
            port,
            reader: Arc::new(Mutex::new(Some(Box::new(reader)))),
            unit: place.unit,
            units: place.units,
            program: place.program,
        }
    }

    /// Has it known what a call has changed.
    fn note(&self, held: &mut Held) {
        if let Some(reader) = held {
            *lock(&self.stats) = reader.stats();
        }
        self.port.look(held, would_wait);
    }

    /// Calls `f` with the reader.
    fn with_reader<T>(&self, f: impl FnOnce(&mut Reader) -> Result<T, Error>) -> Result<T, Error> {
        let mut held = lock(&self.reader);
        let done = f(held.as_mut().ok_or_else(|| self.port.closed())?);
        self.note(&mut held);
        done
    }

    /// The reader, after calls of other threads have ended; None if it was taken before.
    fn take(&self) -> Option<Box<Reader>> {
        self.port.stop_others();
        let mut reader = lock(&self.reader);
        self.port.others_stopped();
        reader.take()
    }

    fn end<T>(&self, end: impl FnOnce(&mut Reader) -> T) {
        if let Some(mut reader) = self.take() {
            end(&mut reader);
            *lock(&self.stats) = reader.stats();
        }
        self.port.over();
    }

    fn at<T: Send>(
        &self,
        py: Python<'_>,
        lo: &[u64],
        hi: &[u64],
        timeout: Option<f64>,
        act: impl FnOnce(At<'_>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        self.port.run_within(py, limit, || {
            let reader = lock(&self.reader);
            let reader = reader.as_ref().ok_or_else(|| self.port.closed())?;
            act(reader.at(lo, hi)?)
        })
    }

    fn leave_to_exit(&self) {
        if let Some(reader) = self.take() {
            exit::leave(exit::End::Reader(reader));
        }
        self.port.over();
    }
}

#[pymethods]
impl ReadPort {
    #[getter]
    fn layout(&self) -> Layout {
        Layout::of(&self.layout)
    }

    /// The arrays, and where this unit's parts of them lie in the memory of a step.
    #[getter]
    fn arrays(&self) -> Vec<PlacedArray> {
        bundle::placed(&self.arrays)
    }

    /// Bytes of that memory, where no sizes change.
    #[getter]
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// What NumPy takes the elements of each for, where something is known of that.
    #[getter]
    fn descrs(&self) -> Vec<Option<String>> {
        self.descrs.clone()
    }

    /// Waits for the next step without reading it: its number, the arrays whose size changes as they are in it,
    /// and the bytes of its memory; `None` at the end.
    fn peek(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<(u64, Vec<PlacedArray>, usize)>> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        self.port.run_within(py, limit, || {
            self.with_reader(|reader| {
                let Some(step) = reader.peek()? else { return Ok(None) };
                let changing: Vec<ArrayPart> =
                    reader.arrays().iter().filter(|part| part.open.is_some()).cloned().collect();
                Ok(Some((step, bundle::placed(&changing), reader.local_len_bytes())))
            })
        })
    }

    /// Waits until the next read gives all of the next step whatever becomes of the writers: its number, `None` at the end.
    fn hold(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<u64>> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        self.port.run_within(py, limit, || self.with_reader(Reader::hold))
    }

    /// The values of the step that was read last.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let packed = self.port.run(py, || self.with_reader(|reader| Ok(reader.values().to_vec())))?;
        bundle::unpack(py, &packed)
    }

    /// What the arrays are like.
    fn set_form(&self, elem: u32, shape: Vec<isize>, is_fortran: bool) {
        Form::set(&self.form, elem, shape, is_fortran);
    }

    /// Reads the next step into an array of the common form: the step's number, `None` at the end, -1 for any
    /// other array.
    fn fill(&self, py: Python<'_>, array: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<Option<i64>> {
        let Some(look) = Form::look(&self.form, array).filter(|look| look.is_writeable) else {
            return Ok(Some(-1));
        };
        if self.near && look.len() <= AT_ONCE {
            let now = || {
                let mut held = try_lock(&self.reader)?;
                // SAFETY: the interpreter is held, and nobody else in Rust has these bytes meanwhile: this
                // thread is here.
                let tried = held.as_mut()?.try_read(unsafe { look.bytes_mut() });
                self.note(&mut held);
                match tried {
                    Ok(Tried::NotYet) => None,
                    Ok(Tried::Step(number)) => Some(Ok(Some(number as i64))),
                    Ok(Tried::End) => Some(Ok(None)),
                    Err(e) => Some(Err(e)),
                }
            };
            if let Some(found) = self.port.at_once(py, now)? {
                return Ok(found);
            }
        }
        Ok(self.read(py, &look.flat(array)?, timeout)?.map(|number| number as i64))
    }

    /// Reads the next step if it is there: its number, `None` at the end, -1 if it is not.
    fn try_read(&self, py: Python<'_>, part: &Bound<'_, PyArray1<u8>>) -> PyResult<Option<i64>> {
        let mut part = bytes::writable(part)?;
        let part = bytes::slice_mut(&mut part)?;
        let tried = self.port.run(py, || self.with_reader(|reader| reader.try_read(part)))?;
        Ok(match tried {
            Tried::Step(number) => Some(number as i64),
            Tried::End => None,
            Tried::NotYet => Some(-1),
        })
    }

    /// Waits for the next step and copies this unit's part of it. Gives the step's number, None at the end.
    #[pyo3(signature = (part, timeout=None))]
    fn read(
        &self,
        py: Python<'_>,
        part: &Bound<'_, PyArray1<u8>>,
        timeout: Option<f64>,
    ) -> PyResult<Option<u64>> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        let mut part = bytes::writable(part)?;
        let part = bytes::slice_mut(&mut part)?;
        self.port.run_within(py, limit, || self.with_reader(|reader| reader.read(part)))
    }

    /// The same into a place of its own for each array.
    fn read_arrays(
        &self,
        py: Python<'_>,
        parts: Vec<Bound<'_, PyArray1<u8>>>,
        timeout: Option<f64>,
    ) -> PyResult<Option<u64>> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        let mut parts = parts.iter().map(bytes::writable).collect::<PyResult<Vec<_>>>()?;
        let mut parts = parts.iter_mut().map(bytes::slice_mut).collect::<PyResult<Vec<_>>>()?;
        self.port.run_within(py, limit, || self.with_reader(|reader| reader.read_arrays(&mut parts)))
    }

    /// Bytes of a box of a dataset in a store.
    fn box_len_bytes(&self, py: Python<'_>, lo: Vec<u64>, hi: Vec<u64>) -> PyResult<usize> {
        self.at(py, &lo, &hi, None, |at| Ok(at.len_bytes()))
    }

    /// Reads a box of a step.
    fn read_box(
        &self,
        py: Python<'_>,
        step: u64,
        lo: Vec<u64>,
        hi: Vec<u64>,
        out: &Bound<'_, PyArray1<u8>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let mut out = bytes::writable(out)?;
        let out = bytes::slice_mut(&mut out)?;
        self.at(py, &lo, &hi, timeout, |at| at.read(step, out))
    }

    /// Overwrites a box of a step.
    fn write_box(
        &self,
        py: Python<'_>,
        step: u64,
        lo: Vec<u64>,
        hi: Vec<u64>,
        array: &Bound<'_, PyArray1<u8>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let array = bytes::readable(array)?;
        let array = bytes::slice(&array)?;
        self.at(py, &lo, &hi, timeout, |at| at.write(step, array))
    }

    /// Joins the domain of the port, or gives it again.
    fn domain(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        open_timeout: Option<f64>,
        on_loss: &str,
    ) -> PyResult<Domain> {
        join::of_port(py, &self.port, timeout, open_timeout, on_loss, |join| {
            let mut reader = lock(&self.reader);
            reader.as_mut().ok_or_else(|| self.port.closed())?.domain(join)
        })
    }

    /// A descriptor that is readable while a read would not wait.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let watch = |held: &Held| held.as_ref().map_or(Ok(None), |reader| reader.watch());
        self.port.fileno(py, &self.reader, watch, would_wait)
    }

    /// Whether this process opened it.
    #[getter]
    fn ours(&self) -> bool {
        self.port.is_ours()
    }

    fn stats(&self) -> Counters {
        counters(&lock(&self.stats))
    }

    /// Leaves. That the port failed before was said before.
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        self.port.run_within(py, limit, || {
            self.end(|reader| reader.close().map(drop));
            Ok(())
        })
    }

    /// Gives up for a reason, which may be empty: the other units get an error that has it.
    #[pyo3(signature = (reason = ""))]
    fn abort(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        self.port.run(py, || {
            self.end(|reader| reader.abort_because(reason));
            Ok(())
        })
    }

    /// Leaves the port to the end of the process: its status says whether to close or to abort.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.port.run(py, || {
            self.leave_to_exit();
            Ok(())
        })
    }
}

impl Drop for ReadPort {
    fn drop(&mut self) {
        if !self.port.is_ours() {
            if let Ok(mut reader) = self.reader.try_lock() {
                // Dropping the reader would close the parent's port.
                std::mem::forget(reader.take());
            }
            return;
        }
        let dropped = Python::try_attach(|py| match exit::nobody_runs(py) {
            true => self.leave_to_exit(),
            false => {
                py.detach(|| self.end(|reader| reader.close().map(drop)));
                settle(py);
            }
        });
        if dropped.is_none() {
            self.end(|reader| reader.close().map(drop));
        }
    }
}
