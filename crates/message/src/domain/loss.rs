//! Learns that other units are gone: by their processes, by what they do, and by the words of others.

use super::collective::CollectiveCount;
use super::peer::Gone;
use super::{net, Inner};
use crate::types::Address;
use crate::{LinkError, MessageError};

impl Inner {
    /// A partner broke the protocol: its link is of no further use.
    pub(super) fn broke(&self, unit: Address, error: LinkError) {
        // Once is enough: to see whether its process dies takes a while.
        if !self.units.has_broken(unit) {
            self.set_gone(unit, self.units.note_breach(unit, error));
        }
    }

    /// A unit is lost, as this error says.
    pub(super) fn lost_by(&self, unit: Address, error: MessageError) {
        if self.units.note_loss(unit, error) {
            self.set_gone(unit, Gone::Lost);
        }
    }

    /// The better reason for an error in talking to a unit: that it is gone.
    pub(super) fn why(&self, unit: Address, error: MessageError) -> MessageError {
        if matches!(error, MessageError::PeerLost { .. })
            && self.units.gone_error(unit).is_none()
            && self.units.is_dying(unit)
        {
            self.set_gone(unit, self.units.gone_dead(unit));
        }
        self.units.gone_error(unit).unwrap_or(error)
    }

    /// A unit takes no part any more.
    pub(super) fn set_gone(&self, unit: Address, how: Gone) {
        if self.units.set_gone(unit, how) {
            self.calls().handle_gone(unit);
            // The thread that receives looks at its link once more.
            self.receiving.tell_news();
            self.receiving.stir();
        }
    }

    /// A unit of another host says that it leaves, or gives up.
    pub(super) fn handle_leaving(&self, from: Address, args: [u32; 4], words: &[u8]) {
        if let Some(net) = self.net.as_ref().filter(|_| args[1] != 0) {
            return net.lost(
                self,
                from,
                MessageError::PeerLost { unit: from, reason: "it gave up".to_owned() },
            );
        }
        let (came, words) = words.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let came = CollectiveCount(u64::from_le_bytes(*came));
        let because = args[0].checked_sub(1).filter(|lost| self.units.all().contains(lost));
        if let Some(lost) = because.filter(|_| !words.is_empty()) {
            self.units.note_hearsay(lost, net::read_reason(words));
        }
        self.units.board().note_leaving(from, came, because);
        // It answers no more. Its answers came before this.
        self.calls().handle_gone(from);
    }

    /// A unit says that another is lost.
    pub(super) fn handle_lost(&self, from: Address, unit: Address, words: &[u8]) {
        let told = net::read_loss(self.units.hosts(), from, unit, words)
            .filter(|&(unit, _)| unit != self.units.me() && !self.units.board().is_leaving(unit));
        let Some((unit, error)) = told else { return };
        match self.net.as_ref().filter(|_| self.units.hosts().is_far(unit)) {
            Some(net) => net.lost(self, unit, error),
            None => self.lost_by(unit, error),
        }
    }
}
