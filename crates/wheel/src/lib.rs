//! The module `polyduct._native`, as the wheel carries it.
#![forbid(unsafe_code)]

// Its entry, which the interpreter looks up by name, is all that it needs.
pub use polyduct_python::_native;
