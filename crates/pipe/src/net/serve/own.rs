//! Finds out whether a unit 0 that misses others still has its place: where it was cut off for long, another
//! may have come to its address, with whom the others have gone on.
//!
//! It calls that address itself, and whoever has the pipe there answers.

use super::FarServer;
use crate::net::mend::{Calls, Mended, Mending};
use crate::net::wire::Back;
use polyduct_message::link::net::LinkFault;
use polyduct_message::LinkError;
use polyduct_os::{clock, poll::PollItem};
use std::time::Duration;

/// How often it asks.
const ASKS: Duration = Duration::from_secs(1);

/// A unit 0 that asks.
pub(super) struct OwnPlace {
    /// The session is the pipe.
    pub calls: Calls,
    asking: Option<Mending>,
    again_at: Duration,
}

impl OwnPlace {
    /// Of a unit 0 that is found at that address.
    pub fn new(calls: Calls) -> OwnPlace {
        OwnPlace { calls, asking: None, again_at: clock::now() + ASKS }
    }

    /// What to wait for.
    pub fn item(&self) -> Option<PollItem<'_>> {
        self.asking.as_ref().and_then(Mending::item)
    }

    /// When to [look](OwnPlace::is_taken) at the latest.
    pub fn deadline(&self) -> Duration {
        self.asking.as_ref().map_or(self.again_at, |asking| asking.deadline(&self.calls))
    }

    /// Whether another has the place.
    fn is_taken(&mut self, now: Duration) -> bool {
        if self.asking.is_none() && now < self.again_at {
            return false;
        }
        let asked = self.asking.get_or_insert_with(|| Mending::new(now)).go_on(&self.calls, 0, now);
        if !matches!(asked, Ok(Mended::NotYet)) {
            (self.asking, self.again_at) = (None, now + ASKS);
        }
        matches!(asked, Err(LinkFault::Peer(LinkError::Taken { .. })))
    }
}

impl FarServer {
    /// Whether somebody is missed that may be with another unit 0.
    pub(super) fn misses(&self) -> bool {
        let is_missed = |conn: &super::Conn| !matches!(conn.way, super::Standing::Stands);
        self.lasts() && self.conns.values().any(is_missed)
    }

    /// Looks whether another has the place of this unit.
    pub(super) fn look_for_others(&mut self) {
        if self.misses() && self.own.is_taken(clock::now()) {
            self.is_replaced();
        }
    }

    /// What a unit 0 of this pipe, before which there had been so many, is told that calls its own address.
    pub(super) fn own_place(&self, life: u32) -> Back {
        match life < self.own.calls.life {
            true => Back::Replaced,
            false => Back::On(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::listener::PipeListener;
    use crate::net::wire::First;
    use crate::net::{JobKey, PipeAddress, Trust};
    use polyduct_os::poll::poll;
    use polyduct_port::Options;

    #[test]
    fn whoever_has_the_pipe_at_its_address_answers() {
        let place = PipeAddress::new("h", 0, "own");
        let trust = Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network: true };
        let at = ([127, 0, 0, 1], 0).into();
        for (said, is_taken) in [(Back::On(0), false), (Back::Unknown, false), (Back::Replaced, true)] {
            let mut there = PipeListener::new(at, &place, &trust, &Options::default()).unwrap();
            let (addr, terms) = (there.addr(), place.terms(&trust, 0));
            let (borne, session, life) = (Duration::from_secs(10), [9; 16], 3);
            let (unit, lasts, revives, most) = (0, false, false, borne);
            let mut own = OwnPlace::new(Calls {
                addr,
                unit,
                terms,
                borne,
                session,
                lasts,
                most,
                revives,
                life,
                pipe: session,
            });
            let begins = own.deadline();
            assert!(!own.is_taken(begins - ASKS / 2));
            assert!(own.asking.is_none(), "asks too soon");
            let (mut told, mut taken) = (None, false);
            while told.is_none() || own.asking.is_some() {
                taken |= own.is_taken(begins);
                for (mut channel, first) in there.serve(clock::now()).unwrap() {
                    assert!(matches!(first, First::Again { session: [9, ..], life: 3, .. }));
                    channel.post(&said).unwrap();
                    channel.flush().unwrap();
                    told = Some(channel);
                }
                let mut items: Vec<PollItem<'_>> = own.item().into_iter().collect();
                there.items(&mut items);
                poll(&mut items, Some(Duration::from_millis(1))).unwrap();
            }
            assert_eq!(taken, is_taken, "{said:?}");
        }
    }
}
