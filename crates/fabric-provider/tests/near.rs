//! The provider between processes of one host, as between two endpoints of one process.

mod common;
mod suite;

/// Nothing has to be set.
fn init() {}
