//! What waits at a unit, and what it may send.

use super::peer::Peer;
use super::room::RoomShare;
use super::{Domain, Inner};

/// What waits at an endpoint: exact at the time of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Messages of high priority that have come and were not handled.
    pub waiting_high: u64,
    /// Messages of low priority that have come and were not handled.
    pub waiting_low: u64,
    /// Messages for `recv` that were not taken.
    pub mails: u64,
    /// What messages for `recv` hold, those that are still coming included: their payloads, and 64 bytes for
    /// each.
    pub mail_bytes: u64,
    /// The same for all others that do not come in one piece: those for handlers, calls and answers.
    pub other_bytes: u64,
    /// Calls under way, and answers that nobody has fetched.
    pub calls: u64,
    /// Short messages of high priority that each unit this one is connected to takes for certain, if no other
    /// thread sends.
    pub sends_high: u64,
    /// The same of low priority.
    pub sends_low: u64,
}

impl Domain {
    /// What waits and what may be sent, exactly.
    pub fn status(&self) -> Status {
        let [high, low] = self.inner.waiting();
        let [sends_high, sends_low] = self.inner.sends();
        let rooms = self.inner.inbox.rooms();
        Status {
            waiting_high: high,
            waiting_low: low,
            mails: self.inner.inbox.mailbox().len() as u64,
            mail_bytes: rooms.held(RoomShare::Mail) + rooms.held(RoomShare::Awaited),
            other_bytes: rooms.held(RoomShare::High) + rooms.held(RoomShare::Low),
            calls: self.inner.calls().len() as u64,
            sends_high,
            sends_low,
        }
    }
}

impl Inner {
    /// Messages that have come and were not taken, high and low. Without the receiving side: also for
    /// handlers, and beside who receives.
    fn waiting(&self) -> [u64; 2] {
        let near = self.units.peers().iter().filter_map(Peer::link).map(|link| link.waiting().map(u64::from));
        let far = self.net.iter().map(|net| net.waiting());
        near.chain(far).fold([0; 2], |[high, low], [h, l]| [high + h, low + l])
    }

    /// Short messages that whoever is connected takes for certain, high and low: as many as the one that
    /// takes the fewest.
    fn sends(&self) -> [u64; 2] {
        let there = self.units.peers().iter().filter(|peer| peer.gone().is_none());
        let near = there.filter_map(Peer::link).map(|link| link.sends().map(u64::from));
        let far = self.net.iter().flat_map(|net| net.sends());
        let fewest = near.chain(far).reduce(|[high, low], [h, l]| [high.min(h), low.min(l)]);
        fewest.unwrap_or_default()
    }
}
