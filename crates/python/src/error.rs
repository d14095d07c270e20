//! Which exception each error becomes: the one place that says it.

use polyduct::os::OsError;
use polyduct::pipe::{PipeError, Refusal, Side, UnitName};
use polyduct::{layout::LayoutError, Error};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// An attribute of an exception.
enum Value {
    Int(u64),
    Text(String),
    Seconds(f64),
}

/// The name of a class in `polyduct.errors`, and the attributes that an instance gets.
type Class = (&'static str, Vec<(&'static str, Value)>);

fn int(n: impl Into<u64>) -> Value {
    Value::Int(n.into())
}

fn classify(error: &Error) -> Class {
    match error {
        Error::Misuse { .. } => ("Misuse", vec![]),
        Error::Environment { variable, .. } => {
            ("BadEnvironment", vec![("variable", Value::Text(variable.clone()))])
        }
        Error::Url { url, .. } => ("BadUrl", vec![("url", Value::Text(url.clone()))]),
        Error::Layout(e) => layout(e),
        Error::Pipe(e) => pipe(e),
        Error::File(e) => ("FileError", e.unit().map(|unit| ("unit", int(unit))).into_iter().collect()),
        Error::PartSize { unit, expected, found, .. } => wrong_size(*unit, *expected, *found),
        _ => ("Error", vec![]),
    }
}

fn layout(error: &LayoutError) -> Class {
    let position = match error {
        LayoutError::Text { position, .. } => vec![("position", int(*position as u64))],
        _ => vec![],
    };
    ("LayoutError", position)
}

fn wrong_size(unit: u64, expected: u64, found: u64) -> Class {
    ("WrongSize", vec![("unit", int(unit)), ("expected", int(expected)), ("found", int(found))])
}

/// Unit, side and, for readers, number of the program.
fn named(unit: &UnitName) -> Vec<(&'static str, Value)> {
    let (side, program) = match unit.side {
        Side::Writer => ("writer", 0),
        Side::Reader(program) => ("reader", program),
    };
    vec![("unit", int(unit.unit)), ("side", Value::Text(side.into())), ("program", int(program))]
}

fn pipe(error: &PipeError) -> Class {
    match error {
        PipeError::Layout(e) => layout(e),
        PipeError::BadOption { option, .. } => ("BadOption", vec![("option", Value::Text((*option).into()))]),
        PipeError::WrongSize { unit, expected, found, .. } => wrong_size((*unit).into(), *expected, *found),
        PipeError::NameTaken { .. } => ("NameTaken", vec![]),
        PipeError::Closed { .. } => ("Closed", vec![]),
        PipeError::PeerLost { unit, pid, .. } => {
            let mut attributes = named(unit);
            attributes.push(("pid", int(*pid)));
            ("PeerLost", attributes)
        }
        PipeError::PeerAborted { unit, .. } => ("PeerAborted", named(unit)),
        PipeError::UnevenSteps { unit, closed_after, step, .. } => {
            let mut attributes = named(unit);
            attributes.extend([("closed_after", int(*closed_after)), ("step", int(*step))]);
            ("UnevenSteps", attributes)
        }
        PipeError::ReadersGone { step, .. } => ("ReadersGone", vec![("step", int(*step))]),
        PipeError::Refused { reason, .. } => refused(reason),
        PipeError::Stranger { .. } => ("Stranger", vec![]),
        PipeError::BadPeer { .. } => ("BadPeer", vec![]),
        PipeError::Timeout { waited, .. } => {
            ("TimeoutError", vec![("waited", Value::Seconds(waited.as_secs_f64()))])
        }
        PipeError::Interrupted { .. } => ("Interrupted", vec![]),
        PipeError::System { source, .. } => system(source),
        _ => ("Error", vec![]),
    }
}

fn refused(reason: &Refusal) -> Class {
    let (name, mut attributes) = match reason {
        Refusal::Version { .. } => ("version", vec![]),
        Refusal::Malformed => ("malformed", vec![]),
        Refusal::Disagree { unit, .. } => ("disagree", named(unit)),
        Refusal::Dataset { .. } => ("dataset", vec![]),
        Refusal::UnitRange { unit, .. } => ("unit_range", vec![("unit", int(*unit))]),
        Refusal::Duplicate { unit, pid } => {
            let mut attributes = named(unit);
            attributes.push(("pid", int(*pid)));
            ("duplicate", attributes)
        }
        Refusal::TooManyPrograms { .. } => ("too_many_programs", vec![]),
        Refusal::Layout { unit, .. } => ("layout", named(unit)),
        Refusal::NoDataset => ("no_dataset", vec![]),
        Refusal::Segment { unit, .. } => ("segment", named(unit)),
        Refusal::Missing { .. } => ("missing", vec![]),
        Refusal::Lost { unit, pid } => {
            let mut attributes = named(unit);
            attributes.push(("pid", int(*pid)));
            ("lost", attributes)
        }
        Refusal::Over => ("over", vec![]),
        Refusal::System { .. } => ("system", vec![]),
    };
    attributes.push(("reason", Value::Text(name.into())));
    ("Refused", attributes)
}

fn system(error: &OsError) -> Class {
    match error {
        OsError::NoMemory { .. } => ("NoMemory", vec![]),
        _ => {
            let errno = error.errno().map(|e| ("errno", int(e.raw_os_error().unsigned_abs())));
            ("SystemRefused", errno.into_iter().collect())
        }
    }
}

/// The exception for an error.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    new(py, &classify(error), error.to_string()).unwrap_or_else(|e| e)
}

/// An exception of a class of `polyduct.errors` that no error of the Rust side stands behind.
pub fn own(py: Python<'_>, class: &'static str, message: &str) -> PyErr {
    new(py, &(class, vec![]), message.to_owned()).unwrap_or_else(|e| e)
}

fn new(py: Python<'_>, (class, attributes): &Class, message: String) -> PyResult<PyErr> {
    static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = ERRORS.get_or_try_init(py, || PyModule::import(py, "polyduct.errors").map(Bound::unbind))?;
    let exception = module.bind(py).getattr(*class)?.call1((message,))?;
    for (name, value) in attributes {
        match value {
            Value::Int(n) => exception.setattr(*name, n)?,
            Value::Text(text) => exception.setattr(*name, text)?,
            Value::Seconds(s) => exception.setattr(*name, s)?,
        }
    }
    Ok(PyErr::from_value(exception))
}
