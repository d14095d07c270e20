//! The vocabulary of ports, whatever is at their other end: a pipe, a file, a store.
//!
//! | module | idea |
//! |---|---|
//! | `bundle`, `select` | several named arrays in a step, and which of them a reader takes |
//! | `sizes` | arrays whose size changes from step to step |
//! | `assembly` | arrays that a reader puts together from boxes of several |
//! | `names` | what ports and units are called in errors |
//! | `options` | what a unit says when it opens a port |
//! | `expect` | what a reader expects of the dataset |
//! | `values` | numbers, text and the like that belong to a step |
//! | `stats` | what a port has done |
//! | `error` | what can go wrong with any port, and how far it reaches |
//!
//! Nothing here moves bytes.
#![forbid(unsafe_code)]

mod assembly;
mod bundle;
mod error;
mod expect;
mod names;
mod options;
mod select;
mod sizes;
mod stats;
pub mod values;

pub use assembly::{Assembly, Index, Join, Piece, MAX_PIECES};
pub use bundle::{
    check_name, check_names, lay_out, Array, ArrayPart, BundleError, Changes, Places, MAX_ARRAYS, NAME_BYTES,
};
pub use error::{PortError, Reached, Scope};
pub use expect::Expect;
pub use names::{Peer, PortName, Side, UnitName};
pub use options::{Interrupt, OnLoss, Options, Policy, Readers};
pub use options::{INTERRUPT_SLICE, MAX_DEPTH, MAX_PROGRAMS, MAX_UNITS, PROGRAM_BYTES};
pub use select::{choose, is_pattern, matches, Chosen, Rule, MAX_PATTERNS};
pub use sizes::{fixed, most_of_all, Sizes, StepSize};
pub use stats::Stats;
pub use values::{Value, ValuesError, VALUES_BYTES};
