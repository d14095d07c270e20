//! What comes from other endpoints: input, of which nothing is believed.

use super::matching::{Arrived, Body};
use super::pieces::MOST;
use super::wire::{self, Kind, Offer, HAS_DATA};
use super::{Shared, State, What};
use polyduct_message::endpoint::Number;
use polyduct_message::Head;

impl State {
    /// Handles a message.
    #[inline]
    pub(super) fn arrive(&mut self, shared: &mut Shared, from: Number, head: &Head, bytes: &[u8]) {
        let Some(kind) = wire::kind(head) else { return };
        match kind {
            Kind::Tagged | Kind::Plain => {
                let (tagged, arrived) = (kind == Kind::Tagged, arrived(from, head, bytes.len()));
                match self.matching(tagged).receive_for(&arrived) {
                    Some(posted) => {
                        self.receive_bytes(shared, tagged, &posted, &arrived, bytes);
                        self.owe(from, bytes.len() as u64);
                    }
                    None => self.matching(tagged).keep(arrived, Body::keep(bytes)),
                }
            }
            _ => self.arrive_other(shared, kind, from, head, bytes),
        }
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
                let arrived = arrived(from, head, len);
                match self.matching(tagged).receive_for(&arrived) {
                    Some(posted) => {
                        self.receive_offered(shared, tagged, &posted, &arrived, &Body::Offered(offer))
                    }
                    None => self.matching(tagged).keep(arrived, Body::Offered(offer)),
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
