//! Counts the messages that wait at a unit, and those that it may send.

use super::net::Net;
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
        let Inner { units, net, inbox, .. } = &*self.inner;
        // Without the receiving side: also for handlers, and beside who receives.
        let near = units.peers().iter().filter_map(Peer::link).map(|link| link.waiting().map(u64::from));
        let far = net.iter().map(Net::waiting);
        let [waiting_high, waiting_low] =
            near.chain(far).fold([0; 2], |[high, low], [h, l]| [high + h, low + l]);
        // As many as the one takes that takes the fewest.
        let there = units.peers().iter().filter(|peer| peer.gone().is_none());
        let near = there.filter_map(Peer::link).map(|link| link.sends().map(u64::from));
        let far = net.iter().flat_map(Net::sends);
        let fewest = near.chain(far).reduce(|[high, low], [h, l]| [high.min(h), low.min(l)]);
        let [sends_high, sends_low] = fewest.unwrap_or_default();
        let rooms = inbox.rooms();
        Status {
            waiting_high,
            waiting_low,
            mails: inbox.mailbox().len() as u64,
            mail_bytes: rooms.held(RoomShare::Mail) + rooms.held(RoomShare::Awaited),
            other_bytes: rooms.held(RoomShare::High) + rooms.held(RoomShare::Low),
            calls: self.inner.calls().len() as u64,
            sends_high,
            sends_low,
        }
    }
}
