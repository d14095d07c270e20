//! Strangers that come by datagrams: nothing is kept of them before they have shown that they can be reached
//! and know the key.
//!
//! A peer that knocks is given a cookie. A first message is made for that cookie, so it counts at one address
//! and for seconds: one that was recorded and is sent again from elsewhere, or later, is answered like a
//! knock. Only a peer that knows the key takes up one of [`PLACES`], for as long as a handshake may take. A
//! connecting side repeats its message until it is answered, so nothing here has a timer.

use super::cookie::{answer, Cookies};
use super::incarnations::Incarnations;
use crate::error::LinkError;
use crate::link::hello::{HandshakeRefusal, Kind, MESSAGE_LIMIT};
use crate::link::noise::{split, Established, Pending, Terms};
use core::time::Duration;
use polyduct_os::OsError;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Handshakes under way, at most: as many as a domain has units. One more is not answered, and comes again.
pub const PLACES: usize = 4096;

struct Place {
    from: SocketAddr,
    since: Duration,
    /// The first message: when it is repeated, so is the answer.
    first: [u8; MESSAGE_LIMIT],
    pending: Box<Pending>,
    index: u32,
}

/// The handshakes that others have begun with this side.
pub struct Handshakes {
    terms: Terms,
    deadline: Duration,
    cookies: Cookies,
    /// In the order in which they began.
    places: VecDeque<Place>,
    /// Which lives of units may come in.
    pub incarnations: Incarnations,
}

/// What to do about a datagram of the handshake.
pub enum Reply {
    /// Nothing.
    Nothing,
    /// Send this back.
    Answer(Vec<u8>),
    /// Send this back; the stranger was turned away.
    Refuse(Vec<u8>, LinkError),
    /// The stranger is no stranger any more.
    Arrival {
        /// Who, and the keys.
        established: Box<Established>,
        /// What it sends with.
        index: u32,
    },
}

impl Handshakes {
    /// Nobody but `lives` has come yet. Each handshake may take `deadline`. The index in `terms` is drawn
    /// anew for each.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new(terms: Terms, deadline: Duration, incarnations: Incarnations) -> Result<Handshakes, OsError> {
        Ok(Handshakes { terms, deadline, cookies: Cookies::fresh()?, places: VecDeque::new(), incarnations })
    }

    /// Takes a datagram that is part of a handshake. `index` is what this side would be known by to a new
    /// peer.
    pub fn handle(&mut self, from: SocketAddr, bytes: &[u8], now: Duration, index: u32) -> Reply {
        while self.places.front().is_some_and(|p| now >= p.since + self.deadline) {
            self.places.pop_front();
        }
        let (header, body) = match split(bytes) {
            Ok(parts) => parts,
            Err(error) => return self.refuse(error, bytes),
        };
        match header.kind {
            Kind::Knock | Kind::First if header.trusted != self.terms.trusted => {
                self.refuse(LinkError::Trust { mine: self.terms.trusted }, bytes)
            }
            Kind::First if body.first_chunk().is_some_and(|c| self.cookies.is_good(c, from, now)) => {
                self.first(from, bytes, now, index)
            }
            Kind::Knock | Kind::First => {
                let cookie = answer(&header, body, &self.cookies.make(from, now));
                cookie.map_or(Reply::Nothing, |cookie| Reply::Answer(cookie.bytes().to_vec()))
            }
            Kind::Confirm => {
                // Several handshakes may be under way with one address; the right one is where the
                // confirmation fits.
                for at in 0..self.places.len() {
                    if self.places[at].from != from {
                        continue;
                    }
                    if let Ok(established) = self.places[at].pending.confirm(bytes) {
                        let index = self.places.remove(at).map_or(0, |p| p.index);
                        return Reply::Arrival { established: Box::new(established), index };
                    }
                }
                Reply::Nothing
            }
            // Those are for the side that connects.
            Kind::Answer | Kind::HandshakeRefusal | Kind::Cookie => Reply::Nothing,
        }
    }

    /// Takes a first message with a good cookie.
    fn first(&mut self, from: SocketAddr, bytes: &[u8], now: Duration, index: u32) -> Reply {
        let known = self.places.iter().find(|p| p.from == from && p.first.starts_with(bytes));
        if let Some(place) = known {
            return Reply::Answer(place.pending.message().bytes().to_vec());
        }
        if self.places.len() == PLACES {
            return Reply::Nothing;
        }
        let mut terms = self.terms.clone();
        terms.me.index = index;
        let pending = match Pending::new(&terms, bytes) {
            Ok(pending) => Box::new(pending),
            Err(error) => return self.refuse(error, bytes),
        };
        if let Err(error) = self.incarnations.check(pending.claims()) {
            return self.refuse(error, bytes);
        }
        let answer = pending.message().bytes().to_vec();
        let mut first = [0; MESSAGE_LIMIT];
        first[..bytes.len()].copy_from_slice(bytes); // A message that decodes is no longer.
        self.places.push_back(Place { from, since: now, first, pending, index });
        Reply::Answer(answer)
    }

    /// No refusal is longer than what it answers, so that nobody can be flooded with them.
    fn refuse(&self, error: LinkError, bytes: &[u8]) -> Reply {
        if bytes.get(6) == Some(&(Kind::HandshakeRefusal as u8)) {
            return Reply::Nothing; // In no version are refusals answered.
        }
        let refusal = HandshakeRefusal::of(&error).map(|r| r.encode(self.terms.carrier, self.terms.trusted));
        match refusal {
            Some(refusal) if refusal.len() <= bytes.len() => Reply::Refuse(refusal.to_vec(), error),
            _ => Reply::Nothing,
        }
    }

    /// Handshakes under way.
    pub fn places(&self) -> usize {
        self.places.len()
    }
}
