//! Connections that break: a fault of the network is no end of a unit. Both sides dial again, and the session
//! goes on where it was.

use super::{Attempt, NetHub, AGAIN};
use crate::engine::PathId;
use crate::error::{LinkError, MessageError};
use crate::link::net::LinkFault;
use crate::types::Address;
use core::time::Duration;
use polyduct_os::OsError;

impl<B: AsMut<[u8]>> NetHub<B> {
    /// A way to a peer is over. With the last one so is the peer, unless there is hope that it is made again.
    pub(super) fn way_lost(&mut self, unit: Address, at: usize, fault: LinkFault, now: Duration) {
        let Some(peer) = self.peers.get_mut(&unit) else { return };
        peer.ways[at] = None;
        peer.session.handle_path_down(now, PathId(at as u8));
        // It is over already, by silence for one, and its last event says why.
        if peer.session.is_broken() {
            return self.mark(unit);
        }
        let hope = is_of_the_way(&fault) && peer.gone.is_none() && !peer.left;
        // Where both began at once, the other connection goes on.
        if hope && peer.has_way() {
            return;
        }
        let reachable = self.book.contains_key(&unit) && !self.closing;
        if !hope || !reachable {
            return self.lose(unit, error_of(unit, fault));
        }
        // The end of a process looks like this, too: whoever then waits for it is told that it is lost.
        tracing::info!(unit, %fault, "a connection broke: it is made again");
        peer.broken = Some(fault);
        self.not_before.remove(&unit);
        self.mend(unit, now);
    }

    /// Dials a peer again, unless that goes on already.
    fn mend(&mut self, unit: Address, now: Duration) {
        if self.attempts.contains_key(&unit) || self.not_before.get(&unit).is_some_and(|t| now < *t) {
            return;
        }
        let Some(&addr) = self.book.get(&unit) else { return };
        match self.dial(unit, addr, now) {
            Ok(dial) => {
                self.attempts.insert(unit, Attempt::Dial(Box::new(dial)));
                self.go_on(unit, now);
            }
            Err(fault) => self.not_mended(unit, fault, now),
        }
    }

    /// An attempt to reach a peer again failed.
    pub(super) fn not_mended(&mut self, unit: Address, fault: LinkFault, now: Duration) {
        let Some(peer) = self.peers.get_mut(&unit) else { return };
        let Some(broke) = peer.broken.take_if(|_| peer.gone.is_none()) else { return };
        match fault {
            // Its process, or what was there, is gone: that is why.
            LinkFault::System(OsError::NotListening { .. }) => self.lose(unit, error_of(unit, broke)),
            fault if is_of_the_way(&fault) => {
                peer.broken = Some(broke);
                self.not_before.insert(unit, now + AGAIN);
            }
            fault => self.lose(unit, error_of(unit, fault)),
        }
    }

    /// Dials again whom it is time to. Returns when the next is. A session that waits too long for its peer
    /// gives it up by itself.
    pub(super) fn mend_all(&mut self, now: Duration) -> Option<Duration> {
        let broken = |peer: &super::Peer<B>| peer.broken.is_some() && peer.gone.is_none();
        let units: Vec<_> = self.peers.iter().filter(|(_, p)| broken(p)).map(|(unit, _)| *unit).collect();
        units.iter().for_each(|&unit| self.mend(unit, now));
        units.iter().filter_map(|unit| self.not_before.get(unit)).filter(|t| **t > now).min().copied()
    }
}

/// Whether another attempt may do better.
fn is_of_the_way(fault: &LinkFault) -> bool {
    match fault {
        LinkFault::System(_) => true,
        LinkFault::Peer(error) => {
            matches!(error, LinkError::Busy | LinkError::Closed | LinkError::Deadline { .. })
        }
    }
}

fn error_of(unit: Address, fault: LinkFault) -> MessageError {
    match fault {
        // Not what it did is wrong, but what this unit did not.
        LinkFault::Peer(LinkError::Dead { .. }) => {
            let reason = "it heard nothing of this unit for too long, gave it up and went on without it";
            MessageError::PeerLost { unit, reason: reason.to_owned() }
        }
        LinkFault::Peer(error) if !is_of_the_way(&LinkFault::Peer(error.clone())) => {
            MessageError::BadPeer { unit, error }
        }
        LinkFault::System(OsError::PeerClosed) => {
            MessageError::PeerLost { unit, reason: "its connection ended".to_owned() }
        }
        fault => MessageError::PeerLost { unit, reason: fault.to_string() },
    }
}
