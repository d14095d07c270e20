//! What comes from other endpoints: input, of which nothing is believed.

use super::matching::{Arrived, Body};
use super::pieces::MOST;
use super::wire::{self, Kind, Offer, HAS_DATA};
use super::{Shared, State, What, EAGER_BYTES, EAGER_MESSAGES};
use polyduct_message::endpoint::{Number, SHORT_BYTES};
use polyduct_message::Head;

impl State {
    /// Handles a message.
    #[inline]
    pub(super) fn arrive(&mut self, shared: &mut Shared, from: Number, head: &Head, bytes: &[u8]) {
        let Some(kind) = wire::kind(head) else { return };
        if self.peer(from).gone {
            // It was cut off, and goes on over the network.
            return;
        }
        match kind {
            Kind::Tagged | Kind::Plain => {
                let (tagged, arrived) = (kind == Kind::Tagged, arrived(from, head, bytes.len()));
                match self.matching(tagged).receive_for(&arrived) {
                    Some(posted) => {
                        self.receive_bytes(shared, tagged, &posted, &arrived, bytes);
                        self.owe(from, bytes.len() as u64);
                    }
                    None => self.keep(tagged, arrived, || Body::keep(bytes)),
                }
            }
            _ => self.arrive_other(shared, kind, from, head, bytes),
        }
    }

    /// Keeps a message until it is received, unless its sender has more kept here than it may.
    fn keep(&mut self, tagged: bool, arrived: Arrived, body: impl FnOnce() -> Body) {
        let peer = self.peer(arrived.from);
        if peer.held_messages >= EAGER_MESSAGES || peer.held_bytes >= EAGER_BYTES + SHORT_BYTES as u64 {
            peer.broke = true;
            return self.list(arrived.from);
        }
        let body = body();
        peer.held_messages += 1;
        peer.held_bytes += body.held(arrived.len);
        self.matching(tagged).keep(arrived, body);
    }

    fn arrive_other(&mut self, shared: &mut Shared, kind: Kind, from: Number, head: &Head, bytes: &[u8]) {
        let [a, b, c, d] = head.args;
        match kind {
            Kind::TaggedOffer | Kind::PlainOffer => {
                let tagged = kind == Kind::TaggedOffer;
                let Some(offer) = Offer::from_bytes(bytes) else { return };
                let Ok(len) = usize::try_from(offer.len) else { return };
                if offer.pieces as usize > MOST {
                    return;
                }
                if len <= SHORT_BYTES {
                    self.is_short(from);
                }
                let arrived = arrived(from, head, len);
                match self.matching(tagged).receive_for(&arrived) {
                    Some(posted) => {
                        self.receive_offered(shared, tagged, &posted, &arrived, &Body::Offered(offer))
                    }
                    None => self.keep(tagged, arrived, || Body::Offered(offer)),
                }
            }
            Kind::Take => self.stream(from, [a, b, c, d]),
            Kind::Taken => self.finish(shared, from, a, b, |what| matches!(what, What::Offered { .. })),
            Kind::Credit => {
                let peer = self.peer(from);
                peer.kept_messages = peer.kept_messages.saturating_sub(a);
                peer.kept_bytes = peer.kept_bytes.saturating_sub(b.into());
            }
            Kind::Put => self.put_here(shared, from, head, bytes),
            Kind::Get => self.get_here(shared, from, head, bytes),
            Kind::Got => self.got(shared, from, head, bytes),
            Kind::Atomic => self.atomic_here(shared, from, head, bytes),
            Kind::Done => self.remote_done(shared, from, head, bytes),
            Kind::Help => self.help_here(shared, from, head, bytes),
            // Only as a stream.
            Kind::Land | Kind::Tagged | Kind::Plain => {}
        }
    }
}

#[inline]
fn arrived(from: Number, head: &Head, len: usize) -> Arrived {
    let data = (head.handler.0 & HAS_DATA != 0).then_some(head.args[2].into());
    Arrived { from, tag: wire::wide(head.args[0], head.args[1]), data, len }
}
