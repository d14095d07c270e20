//! Links: what carries bytes from one process to another, or pretends to.
//!
//! On one host that is [memory](shm) that both have mapped. On a network a link first lets both sides [prove](noise) that
//! they know the [job's key](key), and then carries frames, [sealed](seal) unless both declare the network trusted.

#[cfg(not(loom))]
pub mod hello;
#[cfg(not(loom))]
pub mod key;
#[cfg(not(loom))]
pub mod net;
#[cfg(not(loom))]
pub mod noise;
#[cfg(not(loom))]
pub mod seal;
pub mod shm;
#[cfg(all(feature = "sim", not(loom)))]
pub mod sim;
