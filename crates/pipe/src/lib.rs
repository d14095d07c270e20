//! Parallel pipes: two programs, two layouts, one copy.
//!
//! A writer program of P units and one or more reader programs of Q units each meet under a name. The writer's units
//! hold the dataset in one layout, each reader program in another; a step written by the first is read by the others,
//! every byte copied once, from the writer's slot to the reader's array.
//!
//! | module | idea |
//! |---|---|
//! | [`slots`] | the step protocol in shared memory: who may fill, read and reuse a slot |
//! | `wire`, `rendezvous`, `serve`, `join` | how the units find each other and exchange segments |
//! | [`net`] | the same across hosts |
//! | `bind` | what units say of their datasets and layouts, and the slots that they need |
//! | `programs` | what reader programs are called in texts |
//! | `watch` | noticing that a peer has died |
//! | [`writer`], [`reader`] | the two ends |
//! | [`ready`] | a descriptor for programs that poll |
//! | `domain` | messages between all units of both sides, beside the steps |
//!
//! The mechanism is that of the parallel pipes of nCUBE's release 3 (DeBenedictis and del Rosario, 1992): each side
//! declares only its own mapping function and the system composes them.
#![forbid(unsafe_code)]

#[cfg(not(loom))]
mod bind;
#[cfg(not(loom))]
mod domain;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod join;
#[cfg(not(loom))]
pub mod net;
#[cfg(not(loom))]
mod port;
#[cfg(not(loom))]
mod programs;
#[cfg(not(loom))]
pub mod reader;
#[cfg(not(loom))]
pub mod ready;
#[cfg(not(loom))]
pub mod rendezvous;
#[cfg(not(loom))]
mod serve;
pub mod slots;
#[cfg(not(loom))]
mod threads;
#[cfg(not(loom))]
mod watch;
#[cfg(not(loom))]
pub mod wire;
#[cfg(not(loom))]
pub mod writer;

#[cfg(not(loom))]
pub use domain::{Addresses, DomainOptions};
#[cfg(not(loom))]
pub use error::{PipeError, Refusal};
#[cfg(not(loom))]
pub use polyduct_port::*;
#[cfg(not(loom))]
pub use reader::{Reader, Step, Tried};
#[cfg(not(loom))]
pub use writer::{Given, StepMut, Writer};
