//! What all units do together: barriers, and agreeing on handlers.

use super::directory::{self, Directory, HandlerError};
use super::peer::{lock, try_lock};
use super::{barrier, dispatch, system, Inner};
use crate::types::Head;
use crate::MessageError;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// A synchronise under way.
#[derive(Default)]
pub(super) struct Agreement {
    /// At unit 0: what each unit offers.
    pub offers: Vec<Option<Vec<directory::Offered>>>,
    pub outcome: Option<Result<Directory, HandlerError>>,
}

/// Refused before the others are told: a unit that has come to a collective operation cannot take it back.
fn not_in_handler() -> Result<(), MessageError> {
    match dispatch::in_handler() {
        true => Err(MessageError::InHandler),
        false => Ok(()),
    }
}

impl Inner {
    /// A collective operation, when those of other threads of this unit are over.
    fn in_turn<T>(
        &self,
        operation: impl FnOnce(&Inner) -> Result<T, MessageError>,
    ) -> Result<T, MessageError> {
        not_in_handler()?;
        let turn = match try_lock(&self.collective) {
            Some(turn) => turn,
            None => {
                self.in_line.fetch_add(1, Ordering::SeqCst);
                let what = "another thread to end its collective operation";
                let turn = self.wait(what, None, |_| try_lock(&self.collective).map(Ok));
                self.in_line.fetch_sub(1, Ordering::SeqCst);
                turn?
            }
        };
        let done = operation(self);
        drop(turn);
        if self.in_line.load(Ordering::SeqCst) > 0 {
            self.stir();
        }
        done
    }

    pub(super) fn barrier(&self) -> Result<(), MessageError> {
        self.in_turn(Inner::meet_all)
    }

    pub(super) fn synchronise(&self) -> Result<(), MessageError> {
        self.in_turn(Inner::agree)
    }

    fn meet_all(&self) -> Result<(), MessageError> {
        if lock(&self.barrier).is_over() {
            self.board.come(self.options.unit);
            let mut tells = Vec::new();
            lock(&self.barrier).begin(&mut |t| tells.push(t));
            self.tell(tells)?;
        }
        self.wait("all units to come to the barrier", None, |inner| {
            match lock(&inner.barrier).is_over() {
                // Others may wait for the last word of this one, who may not come here again for long.
                true => (!inner.owes_words()).then_some(Ok(())),
                false => inner.who_never_comes().map(Err),
            }
        })
    }

    /// Whether words of a collective operation wait for room, or for a connection. Who they are for receives until it has
    /// them, so they do not wait for long.
    fn owes_words(&self) -> bool {
        let is_word = |head: &Head| [system::BARRIER, system::OFFER, system::AGREED].contains(&head.handler);
        self.peers.iter().any(|peer| peer.owes(is_word))
            || self.net.as_ref().is_some_and(|net| net.owes(is_word))
    }

    pub(super) fn tell(&self, tells: Vec<barrier::Tell>) -> Result<(), MessageError> {
        for (to, number, round) in tells {
            let head = Head { handler: system::BARRIER, args: [number, round, 0, 0] };
            self.push(to, head, Vec::new())?;
        }
        Ok(())
    }

    /// A unit that will not come to the collective operation that this one has come to: the lowest, so that all who wait
    /// name the same. Who does not come keeps all others, directly or not.
    pub(super) fn who_never_comes(&self) -> Option<MessageError> {
        let mine = self.board.collectives(self.options.unit);
        (0..self.options.units).find_map(|unit| match self.gone_error(unit)? {
            MessageError::PeerLeft { .. } if self.board.collectives(unit) >= mine => None,
            error => Some(error),
        })
    }

    fn agree(&self) -> Result<(), MessageError> {
        let offer = lock(&self.installed).offer();
        self.board.come(self.options.unit);
        if self.options.unit == 0 {
            self.wait("all units to synchronise", None, |inner| {
                let units = inner.options.units as usize;
                let mut agreement = lock(&inner.agreement);
                agreement.offers.resize(units, None);
                agreement.offers[0].get_or_insert_with(|| offer.clone());
                if agreement.offers.iter().any(Option::is_none) {
                    return inner.who_never_comes().map(Err);
                }
                let offers: Vec<_> = agreement.offers.drain(..).map(Option::unwrap_or_default).collect();
                agreement.outcome = Some(lock(&inner.directory).merge(&offers));
                Some(Ok(()))
            })?;
            let outcome = lock(&self.agreement).outcome.clone();
            let failed = u32::from(matches!(outcome, Some(Err(_))));
            let payload = match &outcome {
                Some(Ok(directory)) => postcard::to_stdvec(directory),
                Some(Err(e)) => postcard::to_stdvec(e),
                None => Ok(Vec::new()),
            };
            let payload = payload.unwrap_or_default();
            for to in 1..self.options.units {
                let head = Head { handler: system::AGREED, args: [failed, 0, 0, 0] };
                self.push(to, head, payload.clone())?;
            }
        } else {
            let payload = postcard::to_stdvec(&offer).unwrap_or_default();
            self.push(0, Head { handler: system::OFFER, args: [0; 4] }, payload)?;
        }
        let agreed = self.wait("all units to synchronise", None, |inner| {
            if inner.owes_words() {
                return None;
            }
            match lock(&inner.agreement).outcome.take() {
                Some(outcome) => Some(Ok(outcome)),
                None => inner.who_never_comes().map(Err),
            }
        })?;
        if let Ok(directory) = &agreed {
            let mut installed = lock(&self.installed);
            installed.number(directory);
            *lock(&self.table) = Arc::new(installed.clone());
            *lock(&self.directory) = Arc::new(directory.clone());
            self.epoch.fetch_add(1, Ordering::Release);
        }
        // Nobody uses a new number before all know it.
        self.meet_all()?;
        Ok(agreed.map(drop)?)
    }
}
