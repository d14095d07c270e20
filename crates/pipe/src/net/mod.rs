//! Pipes across hosts: `pipe://HOST:PORT/NAME`, with the same programs as on one host.
//!
//! Unit 0 of the writers listens at HOST:PORT; every other unit, of the writers and of the readers, connects
//! there, proves that it knows the job's key, and joins by the same [rendezvous](crate::rendezvous) as on one
//! host, with addresses in the place of descriptors. Unit 0 then keeps the step protocol for all ([`hub`]).
//! The bytes of a step take no detour: each reader unit has a connection to each writer unit that has
//! something for it, and both walk the same [`route`].
//!
//! A writer's slots stay in its own process. So a writer that closes stays until all readers have what they
//! came for, and unit 0 until everybody has left.
//!
//! # Connections that break
//!
//! A network may reset a connection while both its ends live. A unit calls unit 0 again then, and both go on
//! where they were; a reader asks for the rest of its step anew. Dead is who no longer listens anywhere.
//!
//! # Lost units that are replaced
//!
//! Unit 0 keeps the place of a lost unit whose program [waits](crate::OnLoss::Wait), and lets in who comes
//! with its number. It tells a reader with which step to go on, and the reader asks for its lanes from that
//! step. It tells a writer the first step that some reader lacks, since the steps were in the lost unit's
//! memory: the new one fills their slots again, and publishes what its predecessor had not. A unit that was
//! only not heard for long calls on, and goes on where it was if it is the first to come to its place. Unit 0
//! tells the readers where it is; they connect anew, at once or when they miss their bytes, and get their
//! part of the step again from its start.
//!
//! Unit 0 itself may be replaced where the writers wait. The step protocol is gone with its memory, but every
//! unit knows where it stands, and was told who else there is and at which door: the others call unit 0's
//! address until another one answers, and that makes the state anew when all are back that live. What a unit
//! says meanwhile waits until then.
//!
//! | module | idea |
//! |---|---|
//! | `address` | where a pipe is: host, port and name |
//! | [`channel`] | an authenticated connection: messages and bytes |
//! | [`wire`] | the messages |
//! | [`session`] | what is said to unit 0 and by it, over as many connections as it takes |
//! | `mend` | a connection to unit 0 broke: who lives, and how it is made again |
//! | `listener` | who comes in |
//! | [`hub`], `serve` | unit 0: the step protocol for all; its thread |
//! | `dial` | connections to units that may not be there yet |
//! | `client` | the other units' way to unit 0, and to another that replaces it |
//! | [`route`] | which bytes, in which order |
//! | `store`, `senders`, `job` | a writer's slots, the threads that send from them, and one connection that they send on |
//! | [`lane`], `redial` | a reader's end of a connection to a writer; how it is made again |
//! | `frames` | bytes that come over the network |
//! | `near` | slots that a reader of the same host maps |
//! | `enter` | how a writer's unit comes in |
//! | `writer`, `reader` | what the two ends of a pipe have across hosts |

mod address;
mod client;
mod dial;
mod enter;
#[doc(hidden)]
pub mod frames;
pub mod hub;
mod job;
#[doc(hidden)]
pub mod lane;
mod listener;
mod mend;
mod near;
pub(crate) mod reader;
mod redial;
pub mod route;
mod senders;
mod serve;
pub mod session;
mod store;
pub mod wire;
pub(crate) mod writer;

pub use address::{Directory, Entry, PipeAddress};
pub use polyduct_message::link::key::{JobKey, KeyError, Trust, KEY_VARIABLE};
#[doc(hidden)]
pub use polyduct_message::link::net::channel;
use polyduct_message::link::net::silence;
