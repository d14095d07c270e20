//! Links: what carries bytes from one process to another, or pretends to.
//!
//! On one host that is [memory](shm) that both have mapped. On a network a link first lets both sides
//! [prove](noise) that they know the [job's key](key), and then carries frames, [sealed](seal) unless both
//! declare the network trusted.

pub mod hello;
pub mod key;
pub mod net;
pub mod noise;
pub mod seal;
pub mod shm;
#[cfg(feature = "sim")]
pub mod sim;
