//! What moves bytes between two processes, or pretends to.

#[cfg(feature = "sim")]
pub mod sim;
