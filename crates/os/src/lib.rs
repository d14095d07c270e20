//! Safe wrappers over what the operating system offers.
//!
//! Everything here is mechanism: sealed shared memory, futexes, sockets that carry descriptors, liveness of processes,
//! another process's memory, files beneath a directory and many requests to them at once, threads. What to do with them is
//! decided above. This is one of the few crates that may use `unsafe`; everything it exports is sound to call from safe
//! code, under the one assumption that [`segment`] states about memory shared with processes of the same user.
//!
//! Under `cfg(loom)` only [`sync`], [`futex`] and [`bell`] exist, over loom's atomics, so that the protocols above can be
//! model-checked without a kernel.

#[cfg(not(loom))]
pub mod aligned;
pub mod bell;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub mod cpu;
#[cfg(not(loom))]
pub mod dir;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub mod fork;
pub mod futex;
#[cfg(not(loom))]
pub mod groups;
#[cfg(not(loom))]
pub mod limits;
#[cfg(not(loom))]
pub mod lock;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod poll;
#[cfg(not(loom))]
pub mod process;
#[cfg(not(loom))]
pub mod remote;
#[cfg(not(loom))]
pub mod ring;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
pub mod socket;
#[cfg(not(loom))]
pub mod spin;
pub mod sync;
#[cfg(not(loom))]
pub mod threads;

#[cfg(not(loom))]
pub use error::{Blame, OsError, Result, Scope, SegmentFault};
#[cfg(not(loom))]
pub use rustix::io::Errno;
