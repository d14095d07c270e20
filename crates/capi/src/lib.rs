//! What `polyduct.h` declares: ports, layouts, stores and messages for C, and by way of C for Fortran.
//!
//! Each function here is one of the header, which documents it. All go through `border::call`: it looks for
//! what the caller may have done wrong, catches panics, and leaves the words of an error where
//! `polyduct_error_text` finds them. Handles are numbers that look like pointers (`handle`), so that one that
//! was closed is an error and not a wild read. Memory of the caller's becomes slices in `args` alone.
//!
//! # Safety
//!
//! What the header asks of callers is what makes each of these functions sound: pointers lead to as much as it
//! says, or are NULL where it allows that; nobody writes to what a call reads while it runs.

// Every function is as unsafe as a call from C is, by the one contract above.
#![allow(clippy::missing_safety_doc)]

mod args;
mod attributes;
mod border;
mod bundle;
mod call;
mod channel;
mod code;
mod domain;
mod error;
mod guard;
mod handle;
mod handlers;
mod info;
mod layout;
mod listing;
mod mail;
mod memory;
mod options;
mod port;
mod quiet;
mod read;
mod region;
mod store;
mod types;
mod values;
mod view;
mod write;

pub use code::Code;
