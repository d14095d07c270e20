//! Messages between the endpoints of a parallel program: small ones, large ones and remote memory, on every
//! link.
//!
//! An endpoint has an address 0..N-1 in a domain. It sends on [channels](types::ChannelId), each with one
//! writer, of high or low [priority](types::Priority). A message is a [head](types::Head) (a handler and four
//! 32-bit words) and a payload of any length; everything else (puts and gets, calls, barriers) is made of
//! such messages.
//!
//! The layers, from below:
//!
//! * `link`: moves bytes between two processes. Shared memory carries whole messages and loses nothing; the
//!   others carry frames.
//! * `engine`: makes frames out of messages and messages out of frames, on links that lose, double and
//!   reorder them. A state machine: frames and time in; frames, deadlines and events out.
//! * the domain: who is there, handlers by name, calls, regions.

pub mod config;
pub mod domain;
pub mod endpoint;
pub mod engine;
mod error;
pub mod handshake;
pub mod hash;
pub mod link;
pub mod meeting;
pub mod types;
pub mod wire;

pub use domain::Domain;
pub use error::{ConfigError, LinkError, MessageError, Scope};
pub use types::{Address, ChannelId, HandlerId, Head, Order, Priority, Token};
