//! A unit's writing port, and the arrays in its slots.

use crate::array::{self, Elem};
use crate::bundle::{self, ArraySpec, PlacedArray};
use crate::bytes;
use crate::domain::Domain;
use crate::error;
use crate::exit;
use crate::guard::{aside, lock, settle, try_lock};
use crate::join;
use crate::layout::{dataset, fail, Layout};
use crate::options::{layout_of, maybe_seconds, Options};
use crate::port::{counters, places, Counters, Form, Places, Port, AT_ONCE};
use numpy::PyArray1;
use polyduct::ready::Wait;
use polyduct::{ArrayPart, Error, JobUnit, Mode, Stats, StepMut, Writer};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use self_cell::{self_cell, MutBorrow};
use std::ops::DerefMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

type OpenStep<'a> = Option<StepMut<'a>>;

self_cell!(
    /// A writer together with the step that it has open.
    struct Filling {
        owner: MutBorrow<Box<Writer>>,
        #[not_covariant]
        dependent: OpenStep,
    }
);

enum State {
    Idle(Box<Writer>),
    /// A slot is being filled.
    Filling(Filling),
    /// Closed or aborted.
    Ended,
    /// Left to the end of the process; or only for a moment, while one of the others becomes another.
    Gone,
}

/// A writer that has ended, with its slots: the last array that lies there frees them.
type Kept = Arc<Mutex<Option<Box<Writer>>>>;

/// What the arrays in the slots keep alive.
#[pyclass(frozen, module = "polyduct._native")]
pub struct Memory {
    /// The port, which has the writer for as long as it is open.
    _state: Arc<Mutex<State>>,
    /// Held for its drop alone. A writer that is left to the end of the process is never dropped.
    _kept: Kept,
}

/// One unit's writing port.
#[pyclass(frozen, module = "polyduct._native")]
pub struct WritePort {
    port: Port,
    state: Arc<Mutex<State>>,
    /// Until the port ends.
    kept: Mutex<Option<Kept>>,
    /// As of the last call, for when another thread is in one.
    stats: Mutex<Stats>,
    /// Number of the next step, or of the one that is being filled; as of the last call, too.
    next: AtomicU64,
    layout: polyduct::layout::Mapping,
    /// None of a file.
    arrays: Vec<ArrayPart>,
    form: OnceLock<Form>,
    len_bytes: usize,
    /// All units are on this host.
    near: bool,
    /// Whether a step may be filled where it lies; else it is written from an array of the caller's.
    #[pyo3(get)]
    in_place: bool,
    /// `None` for a file.
    #[pyo3(get)]
    addresses: Option<Places>,
    #[pyo3(get)]
    unit: u32,
    #[pyo3(get)]
    units: u32,
    #[pyo3(get)]
    program: String,
}

/// Opens a port for writing.
#[pyfunction]
pub fn open_writer(
    py: Python<'_>,
    url: &str,
    layout: Option<&str>,
    shape: Vec<u64>,
    elem: &str,
    options: Options,
) -> PyResult<WritePort> {
    let dataset = dataset(&shape, elem).map_err(fail(py))?;
    let port = Port::new(url, Mode::Write);
    let (open, place) = options.builder(py, url, &port)?;
    let layout = layout_of(py, layout, &place)?;
    let writer = port.run(py, || open.write(&dataset, layout))?;
    Ok(WritePort::new(port, writer, place))
}

/// Opens a port for writing several arrays in each step.
#[pyfunction]
pub fn open_bundle_writer(
    py: Python<'_>,
    url: &str,
    arrays: Vec<ArraySpec>,
    options: Options,
) -> PyResult<WritePort> {
    let port = Port::new(url, Mode::Write);
    let (open, place) = options.builder(py, url, &port)?;
    let arrays = bundle::given(py, arrays, &place)?;
    let writer = port.run(py, || open.write_arrays(&arrays))?;
    Ok(WritePort::new(port, writer, place))
}

impl WritePort {
    fn new(port: Port, writer: Writer, place: JobUnit) -> WritePort {
        WritePort {
            in_place: writer.is_filled_in_place(),
            near: writer.is_near(),
            form: OnceLock::new(),
            port,
            layout: writer.mapping().clone(),
            arrays: writer.arrays().to_vec(),
            addresses: writer.addresses().map(places),
            len_bytes: writer.local_len_bytes(),
            stats: Mutex::new(writer.stats()),
            next: AtomicU64::new(writer.next_step()),
            state: Arc::new(Mutex::new(State::Idle(Box::new(writer)))),
            kept: Mutex::new(Some(Kept::default())),
            unit: place.unit,
            units: place.units,
            program: place.program,
        }
    }

    /// Calls `f` with the idle writer, without the interpreter.
    fn with_writer<T: Send>(
        &self,
        py: Python<'_>,
        limit: Option<Duration>,
        f: impl FnOnce(&mut Writer) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.port.run_within(py, limit, || {
            let mut state = lock(&self.state);
            let done = match &mut *state {
                State::Idle(writer) => f(writer),
                State::Filling(_) => Err(busy()),
                State::Ended | State::Gone => Err(self.port.closed()),
            };
            self.note(&mut state);
            done
        })
    }

    fn check_in_place(&self, py: Python<'_>) -> PyResult<()> {
        match self.in_place {
            true => Ok(()),
            false => Err(error::own(py, "Misuse", "only the steps of a pipe can be filled where they lie")),
        }
    }

    /// Begins a step if that takes no time. `Some(None)`: there is no room.
    fn begin_now(&self, py: Python<'_>) -> PyResult<Option<Option<usize>>> {
        let begin = || self.begun(&mut *try_lock(&self.state)?, Writer::try_step).transpose();
        match self.near {
            true => Ok(self.port.at_once(py, begin)?.map(Some)),
            false => Ok(None),
        }
    }

    /// Begins a step, and gives its address, if `step` gives one.
    fn begun(
        &self,
        state: &mut State,
        step: impl for<'a> FnOnce(&'a mut Writer) -> Result<OpenStep<'a>, Error>,
    ) -> Result<Option<usize>, Error> {
        let writer = match std::mem::replace(state, State::Gone) {
            State::Idle(writer) => writer,
            other => {
                let error = match other {
                    State::Filling(_) => busy(),
                    _ => self.port.closed(),
                };
                *state = other;
                return Err(error);
            }
        };
        let begun = Filling::try_new_or_recover(MutBorrow::new(writer), |w| match step(w.borrow_mut()) {
            Ok(Some(step)) => Ok(Some(step)),
            Ok(None) => Err(None),
            Err(e) => Err(Some(e)),
        });
        let begun = match begun {
            Ok(mut filling) => {
                let at =
                    filling.with_dependent_mut(|_, step| step.as_mut().map(|s| s.deref_mut().as_mut_ptr()));
                *state = State::Filling(filling);
                // Pointers may not cross threads, and this may be held to be in another.
                at.map(|p| Some(p as usize)).ok_or_else(|| self.port.closed())
            }
            Err((writer, e)) => {
                *state = State::Idle(writer.into_inner());
                e.map_or(Ok(None), Err)
            }
        };
        self.port.look(state, would_wait);
        begun
    }

    /// The array of the step that begins there.
    fn array<'py>(&self, py: Python<'py>, address: usize) -> PyResult<Bound<'py, PyAny>> {
        let kept = lock(&self.kept).clone().ok_or_else(|| error::raise(py, &self.port.closed()))?;
        let memory = Bound::new(py, Memory { _state: self.state.clone(), _kept: kept })?.into_any();
        let (elem, len) = (Elem::BYTE, [self.len_bytes as isize]);
        let (elem, shape, is_fortran) = match self.form.get() {
            Some(form) => (form.elem, &form.shape[..], form.is_fortran),
            None => (elem, &len[..], false),
        };
        // A step of a pipe lies in the writer's segment (or its scratch memory, for steps that the queue
        // drops). Once it is published there may be readers in other processes, and the next write to the
        // slot: to Rust, arrays of NumPy are raw memory.
        // SAFETY: the part is `len_bytes` long, as its form is, it neither moves nor goes before the writer
        // does, which `memory` keeps, nothing else in this process touches it while the step is open, and
        // its bytes may have any value.
        unsafe { array::over(py, elem, shape, array::flags_of(is_fortran), address as *mut u8, memory) }
    }

    /// Has it known what a call has changed.
    fn note(&self, state: &mut State) {
        if let State::Idle(writer) = state {
            self.keep(writer);
        }
        self.port.look(state, would_wait);
    }

    /// Keeps what may be asked during a call of another thread.
    fn keep(&self, writer: &Writer) {
        *lock(&self.stats) = writer.stats();
        self.next.store(writer.next_step(), Ordering::Relaxed);
    }

    /// Gives up a step that is being filled; the writer is idle then.
    fn drop_step(state: &mut State) {
        *state = match std::mem::replace(state, State::Gone) {
            State::Filling(filling) => State::Idle(filling.into_owner().into_inner()),
            other => other,
        };
    }

    /// Closes or aborts, whatever state the port is in.
    fn end(&self, end: impl FnOnce(&mut Writer) -> Result<(), Error>) -> Result<(), Error> {
        self.take(|mut writer| {
            let done = end(&mut writer);
            self.keep(&writer);
            if let Some(kept) = lock(&self.kept).take() {
                *lock(&kept) = Some(writer);
            }
            (State::Ended, done)
        })
        .unwrap_or(Ok(()))
    }

    fn leave_to_exit(&self) {
        self.take(|writer| {
            exit::leave(exit::End::Writer(writer));
            (State::Gone, ())
        });
    }

    /// Calls `f` with the writer, whatever state the port is in, after calls of other threads have ended. It
    /// says what the state is then. None if the port has ended before.
    fn take<T>(&self, f: impl FnOnce(Box<Writer>) -> (State, T)) -> Option<T> {
        self.port.stop_others();
        let mut state = lock(&self.state);
        self.port.others_stopped();
        WritePort::drop_step(&mut state);
        let taken = match std::mem::replace(&mut *state, State::Gone) {
            State::Idle(writer) => {
                let (then, done) = f(writer);
                *state = then;
                Some(done)
            }
            other => {
                *state = other;
                None
            }
        };
        drop(state);
        self.port.over();
        taken
    }
}

/// What the next step would wait for. While one is being filled, its end is waited for.
fn would_wait(state: &mut State) -> Option<Wait> {
    match state {
        State::Idle(writer) => aside(|| writer.would_wait()),
        State::Filling(_) => Some(Wait::default()),
        State::Ended | State::Gone => None,
    }
}

fn busy() -> Error {
    Error::Misuse { what: "the port has a step open: leave its `with` block first".into() }
}

/// Closes for good. What cannot be completed now is given up: to drop the writer would be to wait once more.
fn close(writer: &mut Writer) -> Result<(), Error> {
    let closed = writer.close().map(drop);
    if closed.is_err() {
        writer.abort();
    }
    closed
}

#[pymethods]
impl WritePort {
    #[getter]
    fn layout(&self) -> Layout {
        Layout::of(&self.layout)
    }

    /// The arrays, and where this unit's parts of them lie in the memory of a step.
    #[getter]
    fn arrays(&self) -> Vec<PlacedArray> {
        bundle::placed(&self.arrays)
    }

    /// Bytes of that memory.
    #[getter]
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// What the arrays are like.
    fn set_form(&self, elem: u32, shape: Vec<isize>, is_fortran: bool) {
        Form::set(&self.form, elem, shape, is_fortran);
    }

    /// Waits for room and gives this unit's part of the next step, where it lies: an array of its form where
    /// that is common, else its bytes.
    fn begin<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        self.check_in_place(py)?;
        let limit = maybe_seconds(py, "timeout", timeout)?;
        let address = match self.begin_now(py)? {
            Some(address) => address,
            None => self
                .port
                .run_within(py, limit, || self.begun(&mut lock(&self.state), |w| w.step().map(Some)))?,
        };
        self.array(py, address.ok_or_else(|| error::raise(py, &self.port.closed()))?)
    }

    /// The same if there is room now; `None` if not.
    fn try_begin<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.check_in_place(py)?;
        let address = match self.begin_now(py)? {
            Some(address) => address,
            None => self.port.run(py, || self.begun(&mut lock(&self.state), Writer::try_step))?,
        };
        address.map(|address| self.array(py, address)).transpose()
    }

    /// Makes the step visible that [`begin`](WritePort::begin) gave. False when the queue dropped it. The
    /// array is read-only then.
    fn publish(&self, py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<bool> {
        array::freeze(array);
        let publish = |state: &mut State| {
            let State::Filling(filling) = &mut *state else { return Err(self.port.closed()) };
            let step = filling.with_dependent_mut(|_, step| step.take());
            let published = step.map_or_else(|| Err(self.port.closed()), StepMut::publish);
            WritePort::drop_step(state);
            self.note(state);
            published
        };
        let now = || Some(publish(&mut *try_lock(&self.state).filter(|_| self.near)?));
        match self.port.at_once(py, now)? {
            Some(published) => Ok(published),
            None => self.port.run(py, || publish(&mut lock(&self.state))),
        }
    }

    /// Forgets the step that [`begin`](WritePort::begin) gave: the next call gives it again.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        self.port.run(py, || {
            let mut state = lock(&self.state);
            WritePort::drop_step(&mut state);
            self.note(&mut state);
            Ok(())
        })
    }

    /// Writes an array of the common form. False when the queue dropped the step, `None` for any other array.
    fn write_array(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Option<bool>> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        let Some(look) = Form::look(&self.form, array) else { return Ok(None) };
        if self.near && self.len_bytes <= AT_ONCE {
            let now = || {
                let mut state = try_lock(&self.state)?;
                let State::Idle(writer) = &mut *state else { return None };
                let done = writer.try_step().transpose()?.and_then(|mut step| {
                    step.copy_from_slice(look.bytes());
                    step.publish()
                });
                self.note(&mut state);
                Some(done)
            };
            if let Some(written) = self.port.at_once(py, now)? {
                return Ok(Some(written));
            }
        }
        let flat = look.flat(array)?;
        self.write(py, &flat, limit.map(|limit| limit.as_secs_f64())).map(Some)
    }

    /// Writes a part that lies elsewhere. False when the queue dropped the step.
    #[pyo3(signature = (part, timeout=None))]
    fn write(&self, py: Python<'_>, part: &Bound<'_, PyArray1<u8>>, timeout: Option<f64>) -> PyResult<bool> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        let part = bytes::readable(part)?;
        let part = bytes::slice(&part)?;
        self.with_writer(py, limit, |writer| writer.write(part))
    }

    /// Says how large an array is in the next step, or the one that is being filled. Gives its arrays.
    fn bring(&self, py: Python<'_>, array: usize, shape: Vec<u64>) -> PyResult<PlacedArray> {
        self.port
            .run(py, || {
                let mut state = lock(&self.state);
                match &mut *state {
                    State::Idle(writer) => {
                        writer.bring(array, &shape)?;
                        Ok(bundle::placed(&writer.arrays()[array..=array]))
                    }
                    State::Filling(filling) => filling.with_dependent_mut(|_, step| {
                        let step = step.as_mut().ok_or_else(|| self.port.closed())?;
                        step.bring(array, &shape)?;
                        Ok(bundle::placed(&step.arrays()[array..=array]))
                    }),
                    State::Ended | State::Gone => Err(self.port.closed()),
                }
            })?
            .pop()
            .ok_or_else(|| error::raise(py, &self.port.closed()))
    }

    /// Has these values go with the next step, or the one that is being filled.
    fn set_values(&self, py: Python<'_>, values: &Bound<'_, PyDict>) -> PyResult<()> {
        let packed = bundle::pack(values)?;
        self.port.run(py, || {
            let mut state = lock(&self.state);
            match &mut *state {
                State::Idle(writer) => writer.set_values(&packed),
                State::Filling(filling) => filling.with_dependent_mut(|_, step| {
                    step.as_mut().ok_or_else(|| self.port.closed())?.set_values(&packed)
                }),
                State::Ended | State::Gone => Err(self.port.closed()),
            }
        })
    }

    /// Writes the parts of all arrays, which lie elsewhere. False when the queue dropped the step.
    fn write_arrays(
        &self,
        py: Python<'_>,
        parts: Vec<Bound<'_, PyArray1<u8>>>,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        let parts = parts.iter().map(bytes::readable).collect::<PyResult<Vec<_>>>()?;
        let parts = parts.iter().map(bytes::slice).collect::<PyResult<Vec<_>>>()?;
        self.with_writer(py, limit, |writer| writer.write_arrays(&parts))
    }

    /// Number of the next step, from 0; of the one that is being filled, if there is one.
    #[getter]
    fn next_step(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Joins the domain of the port, or gives it again.
    fn domain(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        open_timeout: Option<f64>,
        on_loss: &str,
    ) -> PyResult<Domain> {
        join::of_port(py, &self.port, timeout, open_timeout, on_loss, |join| match &mut *lock(&self.state) {
            State::Idle(writer) => writer.domain(join),
            State::Filling(_) => Err(busy()),
            State::Ended | State::Gone => Err(self.port.closed()),
        })
    }

    /// A descriptor that is readable while a step would not wait.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let watch = |state: &State| match state {
            State::Idle(writer) => writer.watch(),
            State::Filling(_) => Err(busy()),
            State::Ended | State::Gone => Ok(None),
        };
        self.port.fileno(py, &self.state, watch, would_wait)
    }

    /// Whether this process opened it.
    #[getter]
    fn ours(&self) -> bool {
        self.port.is_ours()
    }

    fn stats(&self) -> Counters {
        counters(&lock(&self.stats))
    }

    /// Ends the stream, or completes the file.
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let limit = maybe_seconds(py, "timeout", timeout)?;
        self.port.run_within(py, limit, || self.end(close))
    }

    /// Gives up for a reason, which may be empty: the other units get an error that has it.
    #[pyo3(signature = (reason = ""))]
    fn abort(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        self.port.run(py, || {
            self.end(|writer| {
                writer.abort_because(reason);
                Ok(())
            })
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

impl Drop for WritePort {
    fn drop(&mut self) {
        if !self.port.is_ours() {
            // Dropping the writer would close the parent's port.
            std::mem::forget(self.state.clone());
            return;
        }
        let dropped = Python::try_attach(|py| match exit::nobody_runs(py) {
            true => self.leave_to_exit(),
            false => {
                // Completing a file waits for the other units, and one of them may be a thread of this
                // process.
                drop(py.detach(|| self.end(close)));
                settle(py);
            }
        });
        if dropped.is_none() {
            drop(self.end(close));
        }
    }
}
