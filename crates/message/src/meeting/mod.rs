//! Meetings of units: connections to the name of one of them on a host, messages with descriptors, and the
//! deaths of those who came.
//!
//! [`Connections`] are one side: the unit that others come to, which by a [`Gathering`] decides on those of
//! its program, or keeps a [`Roll`] of several programs. A [`Connection`] is the other. Both look at who is
//! at the other end (a process of this user, watched by a descriptor), wait for as long as their user has
//! patience, and send again what the system has no room for. A unit that may not stay hears a [`Refusal`].
//! Domains, pipes and files are their users: each says its own terms, and decides who agrees.

mod connection;
mod connections;
mod gathering;
mod roll;

pub use connection::{later, pause, Connection, Failure, Patience, Within, GRACE, RETRY, SLICE};
pub use connections::{ConnId, Connections, Heard, Ready, Shared, STRANGERS};
pub use gathering::Gathering;
pub use roll::{Member, Roll, OWN};

pub use crate::error::{JoinRefusal, NoTerms, Refusal, Unit};

use std::time::Duration;

/// How soon descriptors are sent again that too many others were on their way beside.
pub const CROWDED: Duration = Duration::from_millis(5);
