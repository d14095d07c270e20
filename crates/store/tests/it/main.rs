//! Files as ports, with threads and processes as units.

mod arrays;
mod bombs;
mod errors;
mod foreign;
mod forms;
mod groups;
mod kill;
mod oracle;
mod process;
mod roundtrip;
mod together;
mod zarr;
