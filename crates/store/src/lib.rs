//! Standard files (npy, raw) read and written by all units at once.
//!
//! | module | idea |
//! |---|---|
//! | [`npy`] | the header of `.npy` files |
//! | [`file`] | one standard file as a port: [`FileReader`], [`FileWriter`] |
//!
//! A file is a device like any other: it has a mapping, the whole array in row-major (or, for a Fortran-ordered `.npy`,
//! column-major) order in one unit, and a plan says which of its bytes each unit of a program reads or writes. All units
//! work at once, each on its own part. A file that is written appears under its name when all units have closed it, whole,
//! in place of what was there before, or not at all.
#![forbid(unsafe_code)]

mod error;
pub mod file;
pub mod npy;

pub use error::{Blame, FileError, Scope};
pub use file::{Expect, FileReader, FileWriter, Format, Interrupt, Options, Stats, StepMut};
