//! A display: a device onto which a parallel program writes steps of arrays, and at which people look live in
//! their browsers. Values travel, and the page colours them.
//!
//! What is here knows nothing of pipes or processes: somebody [publishes](Show::publish) whole frames, and
//! asks [what viewers want](Show::wants) to see. A viewer never delays a program or another viewer: who is slower
//! than frames come gets the newest when two have been drawn, and holds no memory but those two.
//!
//! ```
//! use polyduct_display::{Display, Frame, Options, View, ViewInfo};
//! use polyduct_layout::ElemType;
//!
//! let display = Display::listen(&Options::default())?;
//! let (shape, elem) = (vec![2, 3], ElemType::U8);
//! let view = ViewInfo { name: "u".into(), shape: shape.clone(), elem, owners: None };
//! let show = display.enter("demo", vec![view])?;
//! let views = vec![View::whole("u", elem, &shape, vec![1, 2, 3, 4, 5, 6].into())];
//! let time = std::time::SystemTime::now();
//! show.publish(Frame { step: 0, time, values: Default::default(), views, exact: Vec::new() })?;
//! assert!(display.address("demo").starts_with("http://127.0.0.1:"));
//! # Ok::<(), polyduct_display::DisplayError>(())
//! ```
//!
//! The parts: [`head`] and [`client`] read what comes, `trust` says who may look, `answer` and `draw` make
//! what requests get; `window` and `viewer` are one viewer without its socket, `wire` the messages to it;
//! `hub` stands between programs and `server`, which alone knows sockets. [`reduce`] is for those who make
//! frames of parts.
#![forbid(unsafe_code)]

mod answer;
pub mod client;
mod connection;
mod display;
mod draw;
mod elem;
mod error;
mod frame;
pub mod head;
mod hub;
pub mod limits;
mod outbox;
mod page;
pub mod reduce;
mod server;
mod status;
mod trust;
mod viewer;
mod wants;
mod window;
mod wire;

pub use client::{Project, Want};
pub use display::{Display, Options, Show};
pub use error::DisplayError;
pub use frame::{check_name, Frame, OwnedBox, Owner, View, ViewInfo, WantId};
pub use page::TABLES;
pub use reduce::Reduce;
pub use status::{NameStatus, Status, ViewStatus};
pub use wants::Wants;
