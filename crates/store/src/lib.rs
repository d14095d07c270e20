//! Standard files (npy, raw, safetensors, Zarr) read and written by all units at once, and what a store over
//! many units is made of.
//!
//! | module | idea |
//! |---|---|
//! | [`npy`] | the header of `.npy` files |
//! | [`safetensors`] | the header of `.safetensors` files |
//! | [`zarr`] | the metadata of Zarr arrays, and how their chunks are encoded |
//! | [`mod@file`] | one standard file as a port: [`FileReader`], [`FileWriter`] |
//! | `ragged` | arrays whose size changes from step to step, as one array that says where each step begins |
//! | `staging` | windows of a step in the memory of those who move them |
//! | `team` | the units of a program that agree on each stage, and see each other's memory |
//! | [`volume`] | a store over many units: striping, parity, commit and recovery, without I/O |
//! | [`disk`] | the same on directories: datasets through ports and by boxes |
//!
//! A file is a device like any other: it has a mapping, the whole array in row-major (or, for a
//! Fortran-ordered `.npy`, column-major) order in one unit, and a plan says which of its bytes each unit of a
//! program reads or writes. All units work at once, each on its own part. A file that is written appears
//! under its name when all units have closed it, whole, in place of what was there before, or not at all.
//!
//! ```
//! use polyduct_layout::{Dataset, ElemType};
//! use polyduct_store::{Expect, FileReader, FileWriter, Format, Options};
//! # let dir = std::env::temp_dir().join(format!("polyduct-store-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! let path = dir.join("steps.npy");
//! let dataset = Dataset::new(&[2, 3], ElemType::U8)?;
//! let mut out = FileWriter::open(&path, Format::Npy, &dataset, "block,*", &Options::default())?;
//! out.write(&[0, 1, 2, 3, 4, 5])?;
//! let mut step = out.step_mut()?;
//! step.fill(7);
//! step.publish()?;
//! out.close()?; // np.load gives an array of shape (2, 2, 3)
//!
//! // Unit 1 of two has the last columns.
//! let options = Options::of(1, 2);
//! let mut columns = FileReader::open(&path, Format::Npy, "*,block", &Expect::default(), &options)?;
//! let mut part = vec![0; columns.local_len_bytes()];
//! assert_eq!((columns.steps(), columns.read(&mut part)?), (2, Some(0)));
//! assert_eq!(part, [2, 5]);
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod crc;
pub mod disk;
mod error;
pub mod file;
mod json;
pub mod npy;
mod order;
mod ragged;
pub mod safetensors;
mod staging;
mod steps;
mod team;
pub mod volume;
pub mod zarr;

pub use error::FileError;
pub use file::{Attributes, FileReader, FileWriter, Format, Options, StepMut};
pub use polyduct_port::{Expect, Interrupt, PortError, PortName, Scope, Stats};
