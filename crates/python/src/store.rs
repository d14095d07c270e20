//! Stores, and arrays in them of which any box is read and overwritten.

use crate::guard::{lock, Guard, What};
use crate::layout::{dataset, fail};
use crate::options::{descr, seconds};
use crate::{bytes, error};
use numpy::PyArray1;
use polyduct::store::disk::{self, Create, Slice, StoreError, StoreWriter};
use polyduct::store::Options;
use polyduct::Error;
use polyduct::PortOptions;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// A store in a directory.
#[pyclass(frozen, module = "polyduct._native")]
pub struct Store {
    guard: Guard,
    dir: PathBuf,
    timeout: Option<Duration>,
}

/// What a store is made of, and which units are not used: data units, parity units, bytes of a stripe unit,
/// the directories of each unit, and of each unit that is not used why.
type Status = (u32, u32, u64, Vec<Vec<PathBuf>>, Vec<(u32, String)>);

/// First index, how many, and from one to the next.
type Indices = (u64, u64, u64);

/// Makes a store.
#[pyfunction]
pub fn create_store(
    py: Python<'_>,
    dir: PathBuf,
    units: Vec<Vec<PathBuf>>,
    parity: u32,
    stripe: u64,
) -> PyResult<()> {
    let guard = Guard::new(What::Store);
    let how = Create { units, parity, stripe };
    run(&guard, py, || disk::Store::create(&dir, &how).map(drop))
}

/// Opens a store.
#[pyfunction]
pub fn open_store(py: Python<'_>, dir: PathBuf, timeout: Option<f64>) -> PyResult<Store> {
    let timeout = timeout.map(|timeout| seconds(py, "timeout", timeout)).transpose()?;
    let store = Store { guard: Guard::new(What::Store), dir, timeout };
    run(&store.guard, py, || disk::Store::open(&store.dir).map(drop))?;
    Ok(store)
}

/// Calls `f` without the interpreter.
fn run<T: Send>(
    guard: &Guard,
    py: Python<'_>,
    f: impl FnOnce() -> Result<T, StoreError> + Send,
) -> PyResult<T> {
    guard.run(py, || f().map_err(Error::from), error::raise)
}

impl Store {
    /// The store, as its manifest is now; waits ask `guard`.
    fn open_for(&self, guard: &Guard) -> Result<disk::Store, StoreError> {
        let mut store = disk::Store::open(&self.dir)?;
        (store.timeout, store.interrupt) = (self.timeout, Some(guard.interrupt()));
        Ok(store)
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&disk::Store) -> Result<T, StoreError> + Send,
    ) -> PyResult<T> {
        run(&self.guard, py, || f(&self.open_for(&self.guard)?))
    }
}

#[pymethods]
impl Store {
    /// The names of all datasets, in order.
    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |store| Ok(store.own_to_read()?.names().keys().cloned().collect()))
    }

    /// Opens a dataset.
    fn array(&self, py: Python<'_>, name: &str) -> PyResult<StoredArray> {
        let guard = Guard::new(What::Store);
        let array = run(&guard, py, || disk::StoredArray::of(self.open_for(&guard)?, name))?;
        let attributes = Mutex::new(array.meta().attributes.clone());
        Ok(StoredArray { guard, array, attributes })
    }

    /// Writes a dataset of one step, in place of what has its name. `dtype` is what NumPy takes its elements
    /// for.
    fn write(
        &self,
        py: Python<'_>,
        name: &str,
        shape: Vec<u64>,
        elem: &str,
        dtype: Option<&str>,
        array: &Bound<'_, PyArray1<u8>>,
    ) -> PyResult<()> {
        let dataset = dataset(&shape, elem).map_err(fail(py))?;
        let array = bytes::readable(array)?;
        let array = bytes::slice(&array)?;
        // One unit has all: as an array, or where it has no dimensions as the bytes of the file.
        let layout = match shape.len() {
            0 => "stripe(1024MiB)".into(),
            n => vec!["*"; n].join(","),
        };
        let port = PortOptions {
            open_timeout: self.timeout.unwrap_or(Duration::MAX),
            interrupt: Some(self.guard.interrupt()),
            ..PortOptions::default()
        };
        let options = Options { descr: descr(py, dtype)?, ..port.into() };
        run(&self.guard, py, || {
            let mut out = StoreWriter::open(&self.dir, name, &dataset, &layout, false, &options)?;
            out.write(array)?;
            out.close().map(drop)
        })
    }

    fn remove(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.with(py, |store| store.remove(&[name], false).map(drop))
    }

    fn rename(&self, py: Python<'_>, from: &str, to: &str) -> PyResult<()> {
        self.with(py, |store| store.rename(from, to).map(drop))
    }

    fn status(&self, py: Python<'_>) -> PyResult<Status> {
        self.with(py, |store| {
            let geometry = store.geometry();
            let units = (0..geometry.units()).map(|unit| store.manifest().dirs(store.dir(), unit)).collect();
            let lost = store.own_to_read()?.lost().map(|(unit, why)| (unit, why.to_owned())).collect();
            let stripe = u64::from(geometry.chunk_blocks()) * polyduct::store::volume::BLOCK as u64;
            Ok((geometry.data(), geometry.parity(), stripe, units, lost))
        })
    }
}

/// A dataset of a store: the version that was opened.
#[pyclass(frozen, module = "polyduct._native")]
pub struct StoredArray {
    guard: Guard,
    array: disk::StoredArray,
    /// As of the last change here.
    attributes: Mutex<Map<String, Value>>,
}

fn slices(steps: Indices, of: Vec<Indices>) -> (Slice, Vec<Slice>) {
    let slice = |(start, count, step): Indices| Slice { start, count, step };
    (slice(steps), of.into_iter().map(slice).collect())
}

#[pymethods]
impl StoredArray {
    /// Shape of a step.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.array.dataset().shape())
    }

    #[getter]
    fn steps(&self) -> u64 {
        self.array.steps()
    }

    #[getter]
    fn elem(&self) -> String {
        self.array.dataset().elem().to_string()
    }

    /// What NumPy takes the elements for, where that is kept.
    #[getter]
    fn descr(&self) -> Option<String> {
        self.array.meta().descr.as_ref().map(ToString::to_string)
    }

    /// Whether the steps are a dimension.
    #[getter]
    fn stepped(&self) -> bool {
        self.array.meta().has_steps()
    }

    /// Reads what slices choose of some steps.
    fn read(
        &self,
        py: Python<'_>,
        steps: Indices,
        of: Vec<Indices>,
        out: &Bound<'_, PyArray1<u8>>,
    ) -> PyResult<()> {
        let mut out = bytes::writable(out)?;
        let out = bytes::slice_mut(&mut out)?;
        let (steps, of) = slices(steps, of);
        run(&self.guard, py, || self.array.read(steps, &of, out))
    }

    /// Overwrites what slices choose of some steps.
    fn write(
        &self,
        py: Python<'_>,
        steps: Indices,
        of: Vec<Indices>,
        array: &Bound<'_, PyArray1<u8>>,
    ) -> PyResult<()> {
        let array = bytes::readable(array)?;
        let array = bytes::slice(&array)?;
        let (steps, of) = slices(steps, of);
        run(&self.guard, py, || self.array.write(steps, &of, array))
    }

    /// The attributes as JSON: as of opening, or of the last change here.
    fn attributes(&self) -> String {
        Value::Object(lock(&self.attributes).clone()).to_string()
    }

    /// Sets attributes, given as a JSON object, and removes others.
    fn change_attributes(&self, py: Python<'_>, set: &str, removed: Vec<String>) -> PyResult<()> {
        let set: Map<String, Value> =
            serde_json::from_str(set).map_err(|e| error::own(py, "Misuse", &format!("attributes: {e}")))?;
        let changed = run(&self.guard, py, || {
            self.array.change_attributes(|all| {
                removed.iter().for_each(|name| drop(all.remove(name)));
                all.extend(set);
            })
        })?;
        *lock(&self.attributes) = changed;
        Ok(())
    }
}
