//! Domains: who is there, handlers by name, calls.

pub mod barrier;
pub mod board;
pub mod calls;
pub mod directory;
pub mod gather;
pub mod host;
pub mod mail;
