//! Bundles as they cross from Python and back.

use crate::error;
use crate::layout::{dataset, fail, Layout};
use crate::options::layout_of;
use polyduct::layout::ElemType;
use polyduct::values::{self, Value, VALUES_DEPTH as DEPTH};
use polyduct::{Array, ArrayPart, Assembly, Changes, Expect, Index, JobUnit, JoinPieces, Piece, Rule};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// An array of a writer: its name, shape, element type and layout, and how its size changes: the number of the
/// open dimension, -1 for the whole, -2 for an array that is constant.
pub type ArraySpec = (String, Vec<u64>, String, Option<String>, Option<i64>);

/// An index of a box, of each dimension: from where to where, and whether it goes away.
type IndexSpec = Vec<(u64, Option<u64>, bool)>;

/// Boxes of which an array is made, each of which array, and where it lies; a dimension, and whether it is new.
type AssemblySpec = (Vec<(String, IndexSpec, Option<IndexSpec>)>, u32, bool);

/// What a reader says of arrays: a name or pattern, their layout, the shape and element type that it expects, and
/// what they are made of.
pub type RuleSpec = (String, Option<String>, Option<Vec<u64>>, Option<String>, Option<AssemblySpec>);

/// An array of a port: its name, its layout, where this unit's part begins and ends, and how its size changes.
pub type PlacedArray = (String, Layout, usize, usize, Option<i64>);

/// The arrays that a writer brings.
pub fn given(py: Python<'_>, arrays: Vec<ArraySpec>, place: &JobUnit) -> PyResult<Vec<Array>> {
    let array = |(name, shape, elem, layout, open): ArraySpec| {
        let dataset = dataset(&shape, &elem).map_err(fail(py))?;
        let open = open.map(|dim| match dim {
            -2 => Changes::Never,
            dim => u32::try_from(dim).map_or(Changes::Whole, Changes::Dim),
        });
        let layout = match open {
            // Units bring their pieces in their order.
            Some(Changes::Dim(_)) => layout.unwrap_or_default(),
            _ => layout_of(py, layout.as_deref(), place)?.to_owned(),
        };
        Ok(Array { name, dataset, layout, open })
    };
    arrays.into_iter().map(array).collect()
}

/// What a reader takes.
pub fn rules(py: Python<'_>, rules: Vec<RuleSpec>, convert: bool, place: &JobUnit) -> PyResult<Vec<Rule>> {
    let rule = |(pattern, layout, shape, elem, of): RuleSpec| {
        let elem = elem.map(|elem| elem.parse::<ElemType>()).transpose().map_err(fail(py))?;
        let layout = layout_of(py, layout.as_deref(), place)?.to_owned();
        // Of those that no type is said of none is converted.
        let convert = convert && elem.is_some();
        Ok(Rule { pattern, layout, expect: Expect { shape, elem, convert }, of: of.map(assembly) })
    };
    rules.into_iter().map(rule).collect()
}

fn assembly((pieces, axis, stacked): AssemblySpec) -> Assembly {
    let index = |of: IndexSpec| {
        of.into_iter()
            .map(|(from, to, one)| if one { Index::One(from) } else { Index::Span(from, to) })
            .collect()
    };
    let pieces = pieces.into_iter().map(|(array, of, at)| Piece { array, of: index(of), at: at.map(index) });
    let join = if stacked { JoinPieces::Stacked(axis) } else { JoinPieces::Along(axis) };
    Assembly { pieces: pieces.collect(), join }
}

/// Whether a rule of a reader, a name or a pattern, is of an array.
#[pyfunction]
pub fn fits(rule: String, name: &str) -> bool {
    Rule { pattern: rule, ..Rule::default() }.fits(name)
}

/// What a port has, as a writer says it.
pub fn described(arrays: Vec<Array>) -> Vec<ArraySpec> {
    let spec = |array: Array| {
        let (shape, elem) = (array.dataset.shape().to_vec(), array.dataset.elem().to_string());
        (array.name, shape, elem, Some(array.layout), array.open.map(changes))
    };
    arrays.into_iter().map(spec).collect()
}

/// How a size changes, as a number.
fn changes(open: Changes) -> i64 {
    match open {
        Changes::Dim(dim) => dim.into(),
        Changes::Whole => -1,
        Changes::Never => -2,
    }
}

/// The arrays of an open port.
pub fn placed(arrays: &[ArrayPart]) -> Vec<PlacedArray> {
    let place = |part: &ArrayPart| {
        (part.name.clone(), Layout::of(&part.mapping), part.at.start, part.at.end, part.open.map(changes))
    };
    arrays.iter().map(place).collect()
}

/// Values of Python, packed.
pub fn pack(values: &Bound<'_, PyDict>) -> PyResult<Vec<u8>> {
    let named = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name = name.extract::<String>().map_err(|_| wrong(&name, "a name that is text"))?;
        Ok((name, to_value(&value, 0)?))
    };
    let named = values.iter().map(named).collect::<PyResult<Vec<_>>>()?;
    values::pack(named).map_err(|e| error::own(values.py(), "Misuse", &e.to_string()))
}

/// Packed values for Python.
pub fn unpack<'py>(py: Python<'py>, packed: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    let named = values::unpack(packed).map_err(|e| error::own(py, "BadPeer", &e.to_string()))?;
    for (name, value) in named {
        found.set_item(name, from_value(py, &value)?)?;
    }
    Ok(found)
}

fn wrong(what: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    let kind = what.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
    let message = format!("a value of a step is of type {kind}; expected {expected}");
    error::own(what.py(), "WrongType", &message)
}

fn to_value(what: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if depth > DEPTH {
        return Err(error::own(
            what.py(),
            "Misuse",
            &format!("values lie deeper than {DEPTH} in each other"),
        ));
    }
    if what.is_none() {
        return Ok(Value::Nil);
    }
    if let Ok(flag) = what.cast::<PyBool>() {
        return Ok(flag.is_true().into());
    }
    if what.is_instance_of::<PyInt>() {
        let int = what.extract::<i64>().map(Value::from).or_else(|_| what.extract::<u64>().map(Value::from));
        return int
            .map_err(|_| error::own(what.py(), "WrongType", "an integer of a step does not fit 64 bits"));
    }
    if what.is_instance_of::<PyFloat>() {
        return Ok(what.extract::<f64>()?.into());
    }
    if let Ok(text) = what.cast::<PyString>() {
        let text = text.to_str().map_err(|_| wrong(what, "text that has a form in UTF-8"))?;
        return Ok(text.into());
    }
    if let Ok(bytes) = what.cast::<PyBytes>() {
        return Ok(Value::Binary(bytes.as_bytes().to_vec()));
    }
    if let Ok(map) = what.cast::<PyDict>() {
        let pair = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            Ok((to_value(&key, depth + 1)?, to_value(&value, depth + 1)?))
        };
        return Ok(Value::Map(map.iter().map(pair).collect::<PyResult<_>>()?));
    }
    if what.is_instance_of::<PyList>() || what.is_instance_of::<PyTuple>() {
        let each = what.try_iter()?.map(|one| to_value(&one?, depth + 1));
        return Ok(Value::Array(each.collect::<PyResult<_>>()?));
    }
    // Numbers of NumPy, and arrays without dimensions.
    let is_number = what.getattr("shape").is_ok_and(|shape| shape.len().is_ok_and(|dims| dims == 0));
    match is_number.then(|| what.call_method0("item")) {
        Some(item) => to_value(&item?, depth + 1),
        None => Err(wrong(what, "None, a number, text, bytes, a list or a dictionary of these")),
    }
}

fn from_value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Nil => py.None().into_bound(py),
        Value::Boolean(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        Value::Integer(int) => match (int.as_i64(), int.as_u64()) {
            (Some(int), _) => int.into_pyobject(py)?.into_any(),
            (None, int) => int.unwrap_or_default().into_pyobject(py)?.into_any(),
        },
        Value::F32(float) => f64::from(*float).into_pyobject(py)?.into_any(),
        Value::F64(float) => float.into_pyobject(py)?.into_any(),
        Value::String(text) => PyString::new(py, &String::from_utf8_lossy(text.as_bytes())).into_any(),
        Value::Binary(bytes) | Value::Ext(_, bytes) => PyBytes::new(py, bytes).into_any(),
        Value::Array(list) => {
            let list = list.iter().map(|one| from_value(py, one)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, list)?.into_any()
        }
        Value::Map(map) => {
            let found = PyDict::new(py);
            for (key, value) in map {
                found.set_item(from_value(py, key)?, from_value(py, value)?)?;
            }
            found.into_any()
        }
    })
}
