//! Parallel pipes: two programs, two layouts, one copy.
//!
//! A writer program of P units and one or more reader programs of Q units each meet under a name. The
//! writer's units hold the dataset in one layout, each reader program in another; a step written by the first
//! is read by the others, every byte copied once, from the writer's slot to the reader's array.
//!
//! | module | idea |
//! |---|---|
//! | [`polyduct_slots`] | the step protocol in shared memory: who may fill, read and reuse a slot |
//! | `wire`, `rendezvous`, `serve`, `join` | how the units find each other and exchange segments |
//! | [`net`] | the way across hosts |
//! | `bind` | what units say of their arrays and layouts, and the slots that they need |
//! | `brings` | sizes and values that a writer unit says of its next step |
//! | `work` | what a reader unit gets from each writer unit |
//! | `programs` | what reader programs are called in texts |
//! | `watch` | noticing that a peer has died |
//! | [`writer`], [`reader`] | the two ends, wherever the others are |
//! | `local` | slots that are mapped: the way between units of one host |
//! | [`ready`] | a descriptor for programs that poll |
//! | `domain` | messages between all units of both sides, beside the steps |
//!
//! The mechanism is that of the parallel pipes of nCUBE's release 3 (DeBenedictis and del Rosario, 1992):
//! each side declares only its own mapping function and the system composes them.
#![forbid(unsafe_code)]

mod at;
mod bind;
mod brings;
mod domain;
mod error;
mod join;
mod local;
pub mod net;
mod port;
mod programs;
pub mod reader;
pub mod ready;
pub mod rendezvous;
mod room;
mod serve;
#[doc(hidden)]
pub mod threads;
mod watch;
pub mod wire;
#[doc(hidden)]
pub mod work;
pub mod writer;

pub use at::At;
pub use domain::{Addresses, DomainOptions};
pub use error::{is_of_terms, Mismatch, PipeError, Refusal};
pub use join::socket_name;
pub use polyduct_port::*;
pub use polyduct_slots::reason::MAX_REASON;
pub use reader::{Reader, Step, Tried};
pub use writer::{Given, StepMut, Writer};
