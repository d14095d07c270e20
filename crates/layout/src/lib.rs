//! Datasets, layouts, their text form, and transfer plans.
//!
//! No I/O and no `unsafe`: this crate knows indices, not bytes, memory or processes.
//!
//! The way through it: a [`Layout`] is parsed from text, bound to a [`Dataset`] and a number of units it
//! becomes a [`Mapping`] (dataset index → unit and offset), and two mappings over one dataset give a
//! [`Plan`]: for each pair of units that share elements, the flat [`OpTable`] of runs to copy.
//!
//! ```
//! use polyduct_layout::{Dataset, Layout, Plan};
//!
//! let data = Dataset::new(&[1000, 600], "f8".parse()?)?;
//! let solver = "block,*".parse::<Layout>()?.bind(&data, 64)?;
//! let viewer = "*,block".parse::<Layout>()?.bind(&data, 12)?;
//!
//! let plan = Plan::to_reader(&solver, &viewer, 3)?;
//! assert_eq!(plan.bytes(), viewer.local_len_bytes(3)?);
//! for transfer in plan.transfers() {
//!     for table in transfer.tables() {
//!         assert!(table.src_extent() <= solver.local_len_elems(transfer.src_unit())?);
//!     }
//! }
//! # Ok::<(), polyduct_layout::LayoutError>(())
//! ```
#![forbid(unsafe_code)]

mod boxes;
mod cache;
mod comb;
mod dataset;
mod digit_plan;
mod digits;
mod dims;
mod error;
mod factored;
mod grid;
mod leaves;
mod linear;
mod linear_plan;
mod mapping;
mod op;
mod parse;
mod plan;
mod regular;
mod runs;
mod segments;
mod stats;
mod text;
mod transfer;
mod walk;
mod window;

pub use cache::{Direction, PlanCache};
pub use comb::{intersect, Comb, Family};
pub use dataset::{Dataset, ElemType};
pub use dims::{Dims, IndexBox, MAX_DIMS};
pub use error::LayoutError;
pub use mapping::{Location, Mapping, MAX_BOXES_LISTED, MAX_UNITS};
pub use op::{Loop, Op, OpTable, Shape as OpShape, MAX_NEST};
pub use plan::Plan;
pub use stats::{run_sizes, traffic, RunSizes, Traffic, MAX_TRAFFIC_CELLS};
pub use text::{Layout, MAX_BOXES_TEXT_BYTES, MAX_DIGITS, MAX_TEXT_BYTES};
pub use transfer::{Tables, Transfer, MAX_TABLE_OPS};
pub use window::Window;
