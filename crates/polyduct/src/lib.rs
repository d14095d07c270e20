//! polyduct: distributed arrays between parallel programs and files, each side in its own layout.
//!
//! A program says how *its own* part of an array is laid out, and [opens](open()) a port by name. polyduct
//! composes the two sides' layouts and copies every byte once, straight to its place.
//!
//! ```no_run
//! use polyduct::{open, layout::{Dataset, ElemType}};
//!
//! // The writer: one of 64 units, started by mpiexec, srun, torchrun or `polyduct run`.
//! let field = Dataset::new(&[4096, 4096], ElemType::F32)?;
//! let mut out = open("pipe:field").write(&field, "block,*")?;
//! let mut step = out.step()?;
//! step.fill(0);
//! step.publish()?;
//!
//! // The reader, in another program, of 12 units.
//! let mut input = open("pipe:field").read("*,block")?;
//! let mut part = vec![0; input.local_len_bytes()];
//! while let Some(step) = input.read(&mut part)? {
//!     println!("step {step}");
//! }
//! # Ok::<(), polyduct::Error>(())
//! ```
#![forbid(unsafe_code)]

mod at;
pub mod class;
mod domain;
mod each;
mod env;
mod error;
mod files;
pub mod host;
mod open;
#[doc(hidden)]
pub mod plain;
mod reader;
mod redistribute;
mod stats;
mod streams;
#[doc(hidden)]
pub mod url;
pub mod words;
mod writer;

/// Gateways that are processes of their own.
pub mod gateway {
    #[doc(hidden)]
    pub use crate::streams::{an_ask, understands};
    pub use crate::streams::{
        command, is_name, members, reshuffling, serve, status, tell, Command, GatewayAt, Reshuffling,
    };
    pub use polyduct_stream::control::{State, Status, StreamStatus, WaitsFor};
}

pub use at::At;
pub use domain::{domain, Join};
pub use each::Each;
pub use env::{domain_place, own_job as job, place, JobUnit};
pub use error::Error;
pub use open::{open, Open};
pub use polyduct_layout as layout;
pub use polyduct_message as message;
pub use polyduct_pipe::ready;
pub use polyduct_pipe::{Addresses, Mismatch, PipeError, Refusal, Step, Tried, MAX_REASON};
pub use polyduct_port::values;
pub use polyduct_port::Options as PortOptions;
pub use polyduct_port::{
    Array, ArrayPart, Assembly, BundleError, Changes, Expect, Index, Interrupt, Join as JoinPieces, OnLoss,
    Peer, Piece, Policy, PortError, PortName, Reached, Readers, Rule, Scope, Side, Stats, UnitName,
    MAX_UNITS,
};
pub use polyduct_store as store;
pub use polyduct_stream as stream;
pub use reader::Reader;
pub use redistribute::redistribute;
pub use streams::{Colour, Form, StreamTarget};
pub use url::{Keeps, Mode, Target};
pub use writer::{StepMut, Writer};
