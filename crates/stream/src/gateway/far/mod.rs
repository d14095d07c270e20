//! Streams between sites, `stream://HOST:PORT/NAME`: gateways at both ends, and lanes between them that prove the job's key and
//! are encrypted with it.
//!
//! Each unit says where in its step it belongs, so that any lane may carry it; it is confirmed when it has arrived, and kept in
//! the gateway's buffer until then. A lane that breaks is made again, and what it had not confirmed goes over the
//! others meanwhile. The receiver says how many steps it has room for, and over a lane that is new what is
//! here already, be it part of a unit: the sender goes on from there.
//!
//! The last word of an end, that it has all or that it gives up, is answered, and the end stays until then,
//! though not for long. Where a lane is in the middle of a unit nothing can be said over it: it is made again,
//! and the word goes over the new one.

mod lane;
mod pieces;
mod receive;
mod send;
pub mod wire;

pub use lane::Side;
pub use receive::FarSteps;
pub use send::FarLanes;

use crate::StreamError;
use lane::Ways;
use polyduct_message::meeting::{Within, SLICE};
use polyduct_os::clock;
use std::time::Duration;

/// How long an end stays for its last word to be heard.
const FAREWELL: Duration = Duration::from_millis(500);

/// Waits until a lane is up.
fn meet(side: Side, within: Within<'_>) -> Result<Ways, StreamError> {
    let (start, mut ways) = (clock::now(), Ways::new(side)?);
    loop {
        if ways.poll(clock::now())?.is_some() {
            return Ok(ways);
        }
        let Some(left) = within.left(start) else {
            let waited = clock::now().saturating_sub(start);
            let why = ways.all_down().map(|(_, why)| why.to_owned()).unwrap_or_default();
            let source = std::io::Error::new(std::io::ErrorKind::TimedOut, why);
            return Err(StreamError::Connect { place: ways.side.to_string(), waited, source });
        };
        wait(&ways, &|_| false, left.most)?;
    }
}

/// Waits until something comes, or it is time to look.
fn wait(ways: &Ways, busy: &dyn Fn(u32) -> bool, most: Duration) -> Result<(), StreamError> {
    let mut items = Vec::new();
    ways.items(busy, &mut items);
    let most = ways.deadline().map_or(most, |at| at.saturating_sub(clock::now()).min(most));
    send::wait_items(&mut items, most.min(SLICE))
}
