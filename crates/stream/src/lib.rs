//! Streams: what leaves a parallel program, or comes to it, through a few places, in order and in step.
//!
//! A *gateway* moves steps between a parallel program and the world outside: sockets, wide networks, displays. The program
//! brings its data in large blocks; the gateway decides which stream moves when, and moves it. The split, and the
//! words, are those of iWarp's network interface (P. Steenkiste and others, sections 5 to 7):
//!
//! | word | meaning |
//! |---|---|
//! | connection | a way to a place outside, made and asked about by calls, apart from the data |
//! | stream | a series of steps over a connection |
//! | ADU, application data unit | a step |
//! | TU, transfer unit | what of it moves as a unit, in one buffer |
//! | SU, striping unit | the part of a TU that goes over one lane |
//!
//! | module | idea |
//! |---|---|
//! | [`control`] | what is asked of a manager, and what it says of itself |
//! | [`manager`] | the state machine: no input or output, no clock, no thread |
//! | [`dependence`] | order on a connection, sequencing, lock step |
//! | [`resources`] | buffers and lanes, quantum, priorities, permanent streams |
//! | [`execution`] | transfer units in two buffers and more, striping units over lanes that may fail |
//! | [`mod@format`] | how an ADU is cut |
//! | [`gateway`] | threads that carry out what the manager decides |
//! | [`place`] | where a stream goes |
//! | [`Share`] | what one of several gateways carries of it |
//!
//! ```
//! use polyduct_stream::{Adu, Capacity, Direction, Format, Manager, Order, Spec};
//! use std::time::Duration;
//!
//! let mut manager = Manager::new(Capacity { buffer_bytes: 1 << 20, lanes: 4 });
//! let connection = manager.connect("tcp://viewer:9000")?;
//! let format = Format::new(Adu::Fixed(100_000), 65_536, 65_536, 1)?;
//! let now = Duration::ZERO;
//! let stream = manager.register(Spec::new(connection, Direction::Transmit, format), now)?;
//! manager.offer(stream, 100_000, now)?;
//! assert_eq!(manager.poll(), Some(Order::SwapIn(stream)));
//! assert_eq!(manager.poll(), Some(Order::Begin { stream, adu: 0, len: 100_000 }));
//! manager.moved(stream, now)?;
//! manager.no_more(stream, now)?;
//! assert_eq!(manager.poll(), Some(Order::SwapOut(stream)));
//! assert_eq!(manager.poll(), Some(Order::End(stream)));
//! # Ok::<(), polyduct_stream::ControlError>(())
//! ```
#![forbid(unsafe_code)]

pub mod control;
pub mod dependence;
mod error;
pub mod execution;
pub mod format;
pub mod gateway;
pub mod manager;
pub mod place;
pub mod resources;
mod share;

pub use control::{
    ConnectionId, Direction, GroupId, Spec, State, Status, StreamId, StreamStatus, Ties, WaitsFor,
};
pub use dependence::Dependences;
pub use error::{ControlError, StreamError};
pub use execution::{Deal, Execution};
pub use format::{Adu, Format, Su};
pub use gateway::Gateway;
pub use manager::{Manager, Order};
pub use place::{Place, Protocol};
pub use resources::{Capacity, Resources};
pub use share::Share;
