//! The words of links in shared memory: who may write which of them, when they count, and who wakes whom.
//!
//! | module | idea |
//! |---|---|
//! | [`ring`] | the ring of a lane: lines that are claimed, shown and free again |
//! | [`calls`] | how the peers of an endpoint call it |
//! | [`gate`] | nobody copies from memory that its owner takes back |
//!
//! Nothing here owns memory or waits; loom checks it as it is.
#![forbid(unsafe_code)]

pub mod calls;
pub mod gate;
pub mod ring;
