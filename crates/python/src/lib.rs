//! `polyduct._native`: ports, messages, layouts and regrouping for the Python package.
//!
//! Most arrays cross this border as flat arrays of bytes: what dtype, shape and order they have is the
//! business of the Python side, where NumPy says it best. What is sent and received in microseconds crosses
//! as it is (`array` looks at it once). Everything that may block releases the interpreter; what does not
//! wait keeps it.

mod array;
mod bundle;
mod bytes;
mod call;
mod channel;
mod domain;
mod encode;
mod error;
mod exit;
mod guard;
mod handlers;
mod join;
mod layout;
mod lent;
mod options;
mod port;
mod reader;
mod received;
mod redistribute;
mod store;
mod writer;

use pyo3::prelude::*;

/// The native part of polyduct.
#[pymodule]
pub fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    bytes::prepare(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<layout::Layout>()?;
    module.add_class::<writer::WritePort>()?;
    module.add_class::<writer::Memory>()?;
    module.add_class::<reader::ReadPort>()?;
    module.add_class::<domain::Domain>()?;
    module.add_class::<domain::Stop>()?;
    module.add_class::<call::Call>()?;
    module.add_class::<channel::Channel>()?;
    module.add_class::<received::Region>()?;
    module.add_class::<lent::Lent>()?;
    module.add_class::<received::Received>()?;
    module.add_class::<store::Store>()?;
    module.add_class::<store::StoredArray>()?;
    module.add_function(wrap_pyfunction!(store::create_store, module)?)?;
    module.add_function(wrap_pyfunction!(store::open_store, module)?)?;
    module.add_function(wrap_pyfunction!(join::join, module)?)?;
    module.add_function(wrap_pyfunction!(writer::open_writer, module)?)?;
    module.add_function(wrap_pyfunction!(exit::end_left_now, module)?)?;
    module.add_function(wrap_pyfunction!(reader::open_reader, module)?)?;
    module.add_function(wrap_pyfunction!(writer::open_bundle_writer, module)?)?;
    module.add_function(wrap_pyfunction!(reader::open_bundle_reader, module)?)?;
    module.add_function(wrap_pyfunction!(reader::describe, module)?)?;
    module.add_function(wrap_pyfunction!(bundle::fits, module)?)?;
    module.add_function(wrap_pyfunction!(redistribute::redistribute, module)?)?;
    Ok(())
}
