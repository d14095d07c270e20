//! Domains: who is there, handlers by name, calls.

pub mod calls;
pub mod directory;
