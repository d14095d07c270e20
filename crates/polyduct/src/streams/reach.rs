//! Reaching the other end of a stream, before anything is carried.

use super::{show, StreamTarget};
use crate::Error;
use polyduct_display::Display;
use polyduct_message::config::Config;
use polyduct_message::link::key::{self, Trust};
use polyduct_stream::gateway::far::{FarLanes, FarSteps, Side};
use polyduct_stream::gateway::tcp::{self, Patience};
use polyduct_stream::{Protocol, StreamError};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Where a program's steps go.
pub enum Outward {
    /// Ordinary connections.
    Tcp(Vec<TcpStream>),
    /// Lanes to another site.
    Far(Box<FarLanes>),
    /// Browsers.
    Display(Arc<Display>),
}

/// Meets the other site. The argument is asked now and then: give up?
pub type Meets = Box<dyn FnOnce(&dyn Fn() -> bool) -> Result<FarSteps, StreamError> + Send>;

/// Where a program's steps come from.
pub enum Inward {
    /// An ordinary connection.
    Tcp(TcpStream),
    /// Lanes from another site, whose program may open its port after this one.
    Far(Meets),
}

impl Outward {
    /// What people are to know of it.
    pub fn note(&self, target: &StreamTarget) -> Option<String> {
        match self {
            Outward::Display(display) => {
                Some(format!("{} is shown at {}", target.name, display.address(&target.name)))
            }
            Outward::Tcp(_) | Outward::Far(_) => None,
        }
    }
}

/// Reaches where steps go.
///
/// # Errors
/// [`Error::Stream`] where nobody is there in time, [`Error::Key`] without a key.
pub fn outward(
    target: &StreamTarget,
    open: Duration,
    trust: Option<Trust>,
    again: &dyn Fn() -> bool,
) -> Result<Outward, Error> {
    Ok(match target.place.protocol {
        Protocol::Tcp => {
            let patience = Patience { open, again };
            Outward::Tcp(tcp::connect(&target.place, &patience)?)
        }
        Protocol::Far => {
            let side = side(target, true, trust)?;
            Outward::Far(Box::new(FarLanes::meet(side, open, again)?))
        }
        Protocol::Display => Outward::Display(show::display(target)?),
    })
}

/// Reaches where steps come from; another site is met later.
///
/// # Errors
/// As [`outward`].
pub fn inward(
    target: &StreamTarget,
    open: Duration,
    trust: Option<Trust>,
    again: &dyn Fn() -> bool,
) -> Result<Inward, Error> {
    Ok(match target.place.protocol {
        Protocol::Tcp => {
            let patience = Patience { open, again };
            let mut sockets = tcp::connect(&target.place, &patience)?;
            match (sockets.pop(), sockets.is_empty()) {
                (Some(socket), true) => Inward::Tcp(socket),
                _ => {
                    return Err(Error::Misuse {
                        what: format!("{target}: plain bytes are read from one lane"),
                    })
                }
            }
        }
        Protocol::Far => {
            let side = side(target, false, trust)?;
            Inward::Far(Box::new(move |again| FarSteps::meet(side, open, again)))
        }
        Protocol::Display => {
            return Err(Error::Misuse { what: format!("{target}: a display is written, and not read") });
        }
    })
}

fn side(target: &StreamTarget, transmits: bool, trust: Option<Trust>) -> Result<Side, Error> {
    let key = |source| Error::Key { url: target.to_string(), source };
    let trust = trust.map_or_else(|| Trust::from_env().map_err(key), Ok)?;
    let mut session = [0; 16];
    key::random(&mut session).map_err(|e| StreamError::System { what: e.to_string() })?;
    let config = Config::load().map_err(polyduct_message::MessageError::from)?;
    Ok(Side {
        place: target.place.clone(),
        name: target.name.clone(),
        transmits,
        trust,
        borne: config.time("silence"),
        session: u128::from_le_bytes(session).max(1),
    })
}
