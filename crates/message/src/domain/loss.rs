//! Units that are gone: who is named, and who is told.

use super::peer::{lock, Gone};
use super::{Inner, OnLoss};
use crate::types::Address;
use crate::{LinkError, MessageError};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a process may take to die once its memory is gone.
const LAST_GASP: Duration = Duration::from_millis(100);

impl Inner {
    /// What there is to say of a unit that takes no part any more.
    #[inline]
    pub(super) fn gone_error(&self, unit: Address) -> Option<MessageError> {
        if unit == self.options.unit {
            return None;
        }
        self.gone(unit).map(|gone| self.why_gone(unit, gone))
    }

    /// The same for who hears and answers nothing any more, though what it sent before may still be on its
    /// way.
    pub(super) fn deaf_error(&self, unit: Address) -> Option<MessageError> {
        let leaves = || unit != self.options.unit && self.board.is_leaving(unit);
        self.gone_error(unit).or_else(|| leaves().then(|| self.why_gone(unit, Gone::Left)))
    }

    /// Where a unit has gone that takes no part any more.
    #[inline]
    fn gone(&self, unit: Address) -> Option<Gone> {
        // A unit of this very process is not watched, but it says when it leaves.
        self.peers.get(unit as usize)?.gone().or_else(|| self.board.gone(unit))
    }

    #[cold]
    fn why_gone(&self, unit: Address, gone: Gone) -> MessageError {
        // Who leaves because of a loss is not the one to be named.
        let lost = || {
            // It may have heard before this unit.
            let because = self.board.because(unit).filter(|_| self.options.on_loss == OnLoss::Raise);
            self.lost().or(because.map(|lost| self.lost_error(lost)))
        };
        let lost =
            Some(gone).filter(|&g| g == Gone::Left || self.board.has_given_up(unit)).and_then(|_| lost());
        lost.unwrap_or_else(|| match gone {
            Gone::Left => MessageError::PeerLeft { unit },
            Gone::Lost => self.lost_error(unit),
        })
    }

    /// Whether a unit takes no part any more.
    pub(super) fn is_gone(&self, unit: Address) -> bool {
        self.gone(unit).is_some()
    }

    pub(super) fn lost_error(&self, unit: Address) -> MessageError {
        let pid = self.members.pid(unit).map_or(String::new(), |pid| format!(" (pid {pid})"));
        if let Some(error) = self.peers[unit as usize].lost_by.get() {
            return error.clone();
        }
        if unit == self.options.unit {
            let reason = "others have given this unit up, which is the one that is told".to_owned();
            return MessageError::PeerLost { unit, reason };
        }
        match self.peers[unit as usize].broken.get() {
            Some(error) => MessageError::BadPeer { unit, error: error.clone() },
            None if self.board.has_given_up(unit) => {
                MessageError::PeerLost { unit, reason: format!("it gave up{pid}") }
            }
            None if self.hosts.is_far(unit) => {
                let said = self.peers[unit as usize].hearsay.get().cloned();
                MessageError::PeerLost { unit, reason: said.unwrap_or("another unit has lost it".to_owned()) }
            }
            None => MessageError::PeerLost { unit, reason: format!("its process{pid} died") },
        }
    }

    /// The first unit that was lost, as far as this one knows.
    pub(super) fn first_lost(&self) -> Option<Address> {
        let first = self.first_lost.load(Ordering::Acquire).checked_sub(1);
        first.or_else(|| self.board.first_to_give_up())
    }

    /// The same for who takes its leave: it may have heard of it only by others that did.
    pub(super) fn leaves_because_of(&self) -> Option<Address> {
        let mut left = (0..self.options.units).filter(|&unit| self.board.is_leaving(unit));
        self.first_lost().or_else(|| left.find_map(|unit| self.board.because(unit)))
    }

    /// The loss that all who wait are told of, if there is one.
    pub(super) fn lost(&self) -> Option<MessageError> {
        let first = self.first_lost()?;
        (self.options.on_loss == OnLoss::Raise).then(|| self.lost_error(first))
    }

    /// A partner broke the protocol: its link is of no further use.
    pub(super) fn broke(&self, unit: Address, error: LinkError) {
        // Once is enough: to see whether its process dies takes a while.
        if self.has_broken(unit) {
            return;
        }
        let dead = self.is_dying(unit);
        if !dead {
            tracing::warn!(unit, %error, "broke the protocol");
            let _ = self.peers[unit as usize].broken.set(error);
        }
        // Who has left in order, with something half sent because of the loss of another, is not the one that
        // is lost.
        let left = dead && self.board.has_left(unit);
        self.set_gone(unit, if left { Gone::Left } else { Gone::Lost });
    }

    /// Whether a unit broke the protocol.
    pub(super) fn has_broken(&self, unit: Address) -> bool {
        self.peers[unit as usize].broken.get().is_some()
    }

    /// A unit is lost, as this error says.
    pub(super) fn lost_by(&self, unit: Address, error: MessageError) {
        if let Some(peer) = self.peers.get(unit as usize).filter(|peer| peer.gone() != Some(Gone::Lost)) {
            let _ = peer.lost_by.set(error);
            self.set_gone(unit, Gone::Lost);
        }
    }

    /// Whether a unit's process is dead, or dies in a moment: its memory and its sockets go before that is
    /// known.
    pub(super) fn is_dying(&self, unit: Address) -> bool {
        // Nothing is known of the processes of other hosts.
        self.members.watch(unit).is_some_and(|process| match process {
            Ok(process) => process.exited_within(LAST_GASP).unwrap_or(false),
            Err(e) => e.is_peer_gone(),
        })
    }

    /// The better reason for an error in talking to a unit: that it is gone.
    pub(super) fn why(&self, unit: Address, error: MessageError) -> MessageError {
        if matches!(error, MessageError::PeerLost { .. })
            && self.gone_error(unit).is_none()
            && self.is_dying(unit)
        {
            self.set_gone(unit, if self.board.has_left(unit) { Gone::Left } else { Gone::Lost });
        }
        self.gone_error(unit).unwrap_or(error)
    }

    pub(super) fn set_gone(&self, unit: Address, how: Gone) {
        if let Some(peer) = self.peers.get(unit as usize) {
            if how == Gone::Lost {
                // Who gave up because of a loss is not the one to be named, though its end be noticed first.
                let root = self.board.because(unit).filter(|_| self.board.has_given_up(unit)).unwrap_or(unit);
                let _ = self.first_lost.compare_exchange(0, root + 1, Ordering::AcqRel, Ordering::Relaxed);
            }
            peer.set_gone(how);
            lock(&self.calls).handle_gone(unit);
            // Whoever receives looks at its link once more.
            self.epoch.fetch_add(1, Ordering::Release);
            self.stir();
        }
    }

    /// The first of all others, when there are others and none takes part any more.
    pub(super) fn all_gone(&self) -> Option<MessageError> {
        let mut others = (0..self.options.units).filter(|&unit| unit != self.options.unit);
        let first = self.gone_error(others.next()?)?;
        others.all(|unit| self.gone_error(unit).is_some()).then_some(first)
    }
}
