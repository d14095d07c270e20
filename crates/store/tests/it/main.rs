//! Files as ports, with threads and processes as units.

mod errors;
mod kill;
mod oracle;
mod process;
mod roundtrip;
mod together;
