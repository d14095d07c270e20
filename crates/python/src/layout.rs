//! Layouts bound to a shape and a number of units.

use crate::error;
use polyduct::layout::{Dataset, ElemType, IndexBox, LayoutError, Mapping};
use polyduct::Error;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A layout bound to an array's shape, the size of its elements and a number of units.
#[pyclass(frozen, eq, hash, module = "polyduct._native")]
#[derive(PartialEq, Eq, Hash)]
pub struct Layout {
    pub mapping: Mapping,
}

/// A half-open range for each dimension.
type Ranges<'py> = Vec<Bound<'py, PyTuple>>;

pub fn fail(py: Python<'_>) -> impl Fn(LayoutError) -> PyErr + '_ {
    move |e| error::raise(py, &Error::Layout(e))
}

/// A dataset of a shape and an element type by name.
pub fn dataset(shape: &[u64], elem: &str) -> Result<Dataset, LayoutError> {
    Dataset::new(shape, elem.parse::<ElemType>()?)
}

fn tuples<'py>(py: Python<'py>, boxes: &[IndexBox]) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    let one = |b: &IndexBox| -> PyResult<Bound<'py, PyTuple>> {
        let ranges: Ranges<'py> =
            (0..b.ndim()).map(|k| PyTuple::new(py, [b.lo[k], b.hi[k]])).collect::<PyResult<_>>()?;
        PyTuple::new(py, ranges)
    };
    boxes.iter().map(one).collect()
}

#[pymethods]
impl Layout {
    #[new]
    fn new(py: Python<'_>, text: &str, shape: Vec<u64>, units: u64, elem: &str) -> PyResult<Layout> {
        let parsed: polyduct::layout::Layout = text.parse().map_err(fail(py))?;
        let mapping = dataset(&shape, elem).and_then(|d| parsed.bind(&d, units)).map_err(fail(py))?;
        Ok(Layout { mapping })
    }

    #[getter]
    fn text(&self) -> String {
        self.mapping.layout().to_string()
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.mapping.layout().kind_name()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.mapping.dataset().shape())
    }

    #[getter]
    fn elem(&self) -> String {
        self.mapping.dataset().elem().to_string()
    }

    #[getter]
    fn itemsize(&self) -> u64 {
        self.mapping.dataset().elem().len_bytes()
    }

    #[getter]
    fn units(&self) -> u64 {
        self.mapping.units()
    }

    #[getter]
    fn replicas(&self) -> u64 {
        self.mapping.replicas()
    }

    fn local_shape<'py>(&self, py: Python<'py>, unit: u64) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.mapping.local_shape(unit).map_err(fail(py))?.as_slice())
    }

    /// Strides in elements, or None where a part is one dimension of packed elements or bytes.
    fn local_strides<'py>(&self, py: Python<'py>, unit: u64) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match self.mapping.local_strides(unit) {
            Ok(strides) => PyTuple::new(py, strides.as_slice()).map(Some),
            Err(LayoutError::NoStrides { .. }) => Ok(None),
            Err(e) => Err(fail(py)(e)),
        }
    }

    fn local_len_bytes(&self, py: Python<'_>, unit: u64) -> PyResult<u64> {
        self.mapping.local_len_bytes(unit).map_err(fail(py))
    }

    fn locate(&self, py: Python<'_>, index: Vec<u64>, halo: bool) -> PyResult<Vec<(u64, u64)>> {
        let places = self.mapping.locate(&index).map_err(fail(py))?;
        Ok(places.iter().filter(|p| halo || !p.halo).map(|p| (p.unit, p.offset_elems)).collect())
    }

    fn boxes<'py>(&self, py: Python<'py>, unit: u64, halo: bool) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let boxes = match halo {
            true => self.mapping.boxes_with_halo(unit),
            false => self.mapping.boxes(unit),
        };
        tuples(py, &boxes.map_err(fail(py))?)
    }
}

impl Layout {
    pub fn of(mapping: &Mapping) -> Layout {
        Layout { mapping: mapping.clone() }
    }
}
