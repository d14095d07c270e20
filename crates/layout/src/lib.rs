//! Datasets, layouts, their text form, and transfer plans.
//!
//! No I/O and no `unsafe`: this crate knows indices, not bytes, memory or processes.
#![forbid(unsafe_code)]

mod op;

pub use op::{Loop, Op, OpTable, Shape as OpShape, MAX_NEST};
