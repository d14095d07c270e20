//! A display: a device onto which a parallel program writes steps of arrays, and at which people look live in
//! their browsers. Values travel, and the page colours them.
//!
//! What is here knows nothing of pipes or processes: somebody publishes whole frames, and asks what viewers
//! want to see.
#![forbid(unsafe_code)]

mod elem;
pub mod reduce;
