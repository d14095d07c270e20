//! How the units of a host meet: connections to the name of one of them, messages with descriptors, and the
//! deaths of those who came.
//!
//! [`Connections`] are one side: the unit that others come to. A [`Connection`] is the other. Both look at
//! who is at the other end (a process of this user, watched by a descriptor), wait for as long as their user
//! has patience, and send again what the system has no room for. What is said, and who may stay, is their
//! users' business: domains, pipes and files.

mod connection;
mod connections;

pub use connection::{pause, Connection, Failure, Patience, GRACE, RETRY, SLICE};
pub use connections::{ConnId, Connections, Heard, Ready, Shared};

use std::time::Duration;

/// How soon descriptors are sent again that too many others were on their way beside.
pub const CROWDED: Duration = Duration::from_millis(5);
