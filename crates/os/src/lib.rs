//! Safe wrappers over what the operating system offers.
//!
//! Everything here is mechanism: sealed shared memory, futexes, sockets that carry descriptors, liveness of
//! processes, another process's memory, files beneath a directory and many requests to them at once, threads.
//! What to do with them is decided above. This is one of the few crates that may use `unsafe`; everything it
//! exports is sound to call from safe code, under the one assumption that [`segment`] states about memory
//! shared with processes of the same user.
//!
//! Under `cfg(loom)` the words of [`sync`] are loom's, so that the protocols above can be model-checked.

pub mod aligned;
pub mod bell;
pub mod clock;
pub mod cpu;
pub mod dir;
mod error;
pub mod fork;
pub mod futex;
pub mod groups;
pub mod limits;
pub mod lock;
pub mod memory;
pub mod poll;
pub mod process;
pub mod remote;
pub mod ring;
pub mod segment;
pub mod socket;
pub mod spin;
pub mod sync;
pub mod threads;

pub use error::{Blame, OsError, Result, Scope, SegmentFault};
pub use rustix::io::Errno;
