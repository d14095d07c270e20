//! Makes exceptions of errors. Which class each has, the façade says.

use polyduct::class::{Class, Value, TRACEBACK};
use polyduct::message::domain::pending::CallError;
use polyduct::message::MessageError;
use polyduct::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

/// The exception for an error.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    new(py, &error.class(), words(error)).unwrap_or_else(|e| e)
}

/// What an error says; where the Rust side advises what Python does not have, what helps there.
fn words(error: &Error) -> String {
    match error {
        Error::Message(e) if matches!(**e, MessageError::InHandler) => {
            "a handler cannot wait: it may send, post and call; have the program wait for the answer, or install a handler \
             for it"
                .to_owned()
        }
        // Where it was raised goes beside the words.
        Error::Message(e) if matches!(**e, MessageError::Call(CallError::Failed { .. })) => {
            let text = error.to_string();
            text.split_once(TRACEBACK).map_or(text.as_str(), |(words, _)| words).to_owned()
        }
        _ => error.to_string(),
    }
}

/// A `BadOption` that no error of the Rust side stands behind.
pub fn bad_option(py: Python<'_>, option: &str, message: &str) -> PyErr {
    let option = ("option", Value::Text(option.into()));
    new(py, &("BadOption", vec![option]), message.to_owned()).unwrap_or_else(|e| e)
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
            Value::Int(n) => {
                exception.setattr(*name, n)?;
                if *name == "errno" && exception.hasattr("strerror")? {
                    exception
                        .setattr("strerror", PyModule::import(py, "os")?.call_method1("strerror", (n,))?)?;
                }
            }
            Value::Text(text) => {
                exception.setattr(*name, text)?;
                // From Python 3.11 on an exception has notes, which are shown below its own traceback.
                if *name == "traceback" && exception.hasattr("add_note")? {
                    exception.call_method1("add_note", (format!("In the other unit:\n{text}"),))?;
                }
            }
            Value::Seconds(s) => exception.setattr(*name, s)?,
            Value::Ints(numbers) => exception.setattr(*name, PyTuple::new(py, numbers)?)?,
        }
    }
    Ok(PyErr::from_value(exception))
}
