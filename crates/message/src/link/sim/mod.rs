//! A simulated network with virtual time, for the same engine code that runs on real links.
//!
//! * [`Net`]: topologies of links with bandwidth, latency and queues; loss, duplication, reordering,
//!   corruption, partitions.
//! * [`World`]: endpoints with real sessions on such a network, crashes and restarts; driven from outside,
//!   event by event.
//! * [`scenario`]: a whole run made from one seed, with the checks that it must pass.
//!
//! Everything random comes from one seed, so a run can be repeated exactly; [`World::trace`] is a hash of all
//! that happened.

mod ledger;
mod net;
mod random;
pub mod scenario;
mod world;

pub use net::{Faults, LinkSpeed, Net, Topology};
pub use random::Random;
pub use world::{Buffer, Happening, Pool, World};
