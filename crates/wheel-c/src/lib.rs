//! The library `libpolyduct.so`, as the wheel carries it.
#![forbid(unsafe_code)]

// Its functions, which C looks up by name, are all that it needs.
pub use polyduct_capi as capi;
