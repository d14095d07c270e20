//! Streams: ports whose other end is an ordinary program, another site, or a display.
//!
//! A stream is a pipe whose other side is a *gateway*. Where nothing else is said that is a thread of unit 0, so that a
//! program's units do what they do with any pipe, and the gateway moves the bytes.

mod bundles;
mod called;
mod carrier;
mod colour;
mod control;
mod inward;
mod meet;
mod page;
mod pictures;
mod program;
mod reach;
mod reducers;
mod reshuffle;
mod screen;
mod serve;
mod show;
mod talk;
mod tell;
mod work;

pub use called::{is_name, GatewayAt};
pub(crate) use carrier::Carrier;
pub use colour::Colour;
#[doc(hidden)]
pub use control::{an_ask, understands};
pub use control::{command, members, status, tell, Command};
pub use reshuffle::{reshuffling, Reshuffling};
pub use serve::serve;

use crate::Error;
use polyduct_layout::Dataset;
use polyduct_pipe::PipeError;
use polyduct_store::npy::Header;
use polyduct_stream::{Place, Protocol, Ties};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the bytes of a stream look like to an ordinary program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// The bytes of the row-major array, one step behind the other, and nothing else. One that is read may begin as a
    /// `.npy` file.
    #[default]
    Raw,
    /// Each step as a `.npy` file.
    Npy,
    /// Each step with its length before it: eight bytes, the lowest first.
    Length,
}

impl Form {
    /// What goes before a step.
    fn prefix(self, dataset: &Dataset) -> Vec<u8> {
        match self {
            Form::Raw => Vec::new(),
            Form::Npy => {
                let header = Header::of_steps(dataset, None, 1, false);
                header.print(header.len_bytes()).unwrap_or_default()
            }
            Form::Length => dataset.len_bytes().to_le_bytes().to_vec(),
        }
    }
}

/// What an error of a pipe means where a gateway is behind it.
pub(crate) fn why(carrier: &mut Option<Carrier>, error: PipeError) -> Error {
    match carrier {
        Some(carrier) => carrier.explain(error),
        None => error.into(),
    }
}

/// The other end of a stream, and how it wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamTarget {
    /// Where.
    pub place: Place,
    /// The stream's name there; empty for an ordinary program. Of a window its path.
    pub name: String,
    /// What the bytes look like there.
    pub form: Form,
    /// The gateways that carry it, where those are processes of their own.
    pub gateways: Vec<GatewayAt>,
    /// Whether units reshuffle, where that is not left to [`reshuffling`].
    pub reshuffle: Option<bool>,
    /// What it has to do with others there.
    pub ties: Ties,
    /// Of a display: as which part of its page, whose parts are a group.
    pub part: Option<String>,
    /// Of a display: what the last dimension is of arrays that are pictures.
    pub colour: Option<Colour>,
}

impl StreamTarget {
    /// An ordinary program there, of which nothing else is said.
    pub fn new(place: Place) -> StreamTarget {
        let (name, form, ties, gateways) = (String::new(), Form::Raw, Ties::default(), Vec::new());
        StreamTarget { place, name, form, gateways, reshuffle: None, ties, part: None, colour: None }
    }
}

impl fmt::Display for StreamTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(part) = &self.part {
            return write!(f, "{}/{} ({part})", self.place, self.name);
        }
        if self.place.protocol == Protocol::Window {
            return write!(f, "window:{}", self.name);
        }
        self.place.fmt(f)?;
        match &self.name[..] {
            "" => Ok(()),
            name => write!(f, "/{name}"),
        }
    }
}
