//! Collective operations: barriers, and the agreement on handlers.

use super::directory::{self, Directory, HandlerError};
use super::peer::{lock, try_lock};
use super::wait::is_loss;
use super::{barrier, dispatch, system, Inner};
pub use crate::types::Collective;
use crate::types::{Address, Head};
use crate::MessageError;
use polyduct_os::clock;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// How long a unit that is at odds with others waits for room to say so.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The collective operations that a unit has come to: how many, above eight bits that say which the last is.
/// One word, so that whoever reads it while it changes finds what belongs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveCount(pub u64);

impl CollectiveCount {
    /// One more than these.
    pub fn and(self, last: Collective) -> CollectiveCount {
        CollectiveCount(self.count().wrapping_add(1) << 8 | last as u64)
    }

    /// How many.
    pub fn count(self) -> u64 {
        self.0 >> 8
    }

    /// Which the last is; `None` for what no unit says, and before the first.
    pub fn last(self) -> Option<Collective> {
        [Collective::Barrier, Collective::Synchronise].into_iter().find(|&last| last as u64 == self.0 & 0xff)
    }

    /// As two words of a message.
    fn words(self) -> [u32; 2] {
        [self.0 as u32, (self.0 >> 32) as u32]
    }

    /// The two words of a message.
    pub(super) fn of_words([low, high]: [u32; 2]) -> CollectiveCount {
        CollectiveCount(u64::from(high) << 32 | u64::from(low))
    }
}

/// A word of a collective operation, and for whom.
pub(super) type Word = (Address, Head, Vec<u8>);

/// A synchronise under way.
#[derive(Default)]
pub(super) struct Agreement {
    /// This unit has come to it, and has not heard what came of it.
    under_way: bool,
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
        let done = match self.at_odds.get() {
            Some(error) => Err(error.clone()),
            None => self.say_again().and_then(|()| operation(self)).map_err(|error| self.odds_behind(error)),
        };
        if let Err(error @ MessageError::AtOdds { .. }) = &done {
            if self.at_odds.set(error.clone()).is_ok() {
                self.tell_of_odds();
            }
        }
        drop(turn);
        if self.in_line.load(Ordering::SeqCst) > 0 {
            self.stir();
        }
        done
    }

    pub(super) fn barrier(&self) -> Result<(), MessageError> {
        self.in_turn(|inner| inner.meet_all(Collective::Barrier))
    }

    pub(super) fn synchronise(&self) -> Result<(), MessageError> {
        self.in_turn(Inner::agree)
    }

    fn meet_all(&self, part_of: Collective) -> Result<(), MessageError> {
        if lock(&self.barrier).is_over() {
            self.board.come(self.options.unit, part_of);
            let mut tells = Vec::new();
            lock(&self.barrier).begin(&mut |t| tells.push(t));
            self.tell(tells)?;
        }
        self.wait("all units to come to the barrier", None, |inner| {
            if let Err(error) = inner.say_again() {
                return Some(Err(error));
            }
            match lock(&inner.barrier).is_over() {
                // Others may wait for the last word of this one, who may not come here again for long.
                true => (!inner.owes_words()).then_some(Ok(())),
                false => inner.who_never_comes().map(Err),
            }
        })
    }

    /// Whether words of a collective operation wait for room, or for a connection. Who they are for receives
    /// until it has them, so they do not wait for long.
    fn owes_words(&self) -> bool {
        let words = [system::BARRIER, system::OFFER, system::AGREED, system::CAME];
        let is_word = |head: &Head| words.contains(&head.handler);
        self.peers.iter().any(|peer| peer.owes(is_word))
            || self.net.as_ref().is_some_and(|net| net.owes(is_word))
    }

    /// Sends the words of a barrier.
    ///
    /// # Errors
    /// As [`say_all`](Inner::say_all).
    pub(super) fn tell(&self, tells: Vec<barrier::Tell>) -> Result<(), MessageError> {
        let [low, high] = self.board.came(self.options.unit).words();
        let word = |(to, number, round)| {
            (to, Head { handler: system::BARRIER, args: [number, round, low, high] }, Vec::new())
        };
        self.say_all(tells.into_iter().map(word).collect())
    }

    /// Sends words of a collective operation. Those that cannot be sent, though their unit is there, are
    /// kept: the operation has gone on, and others wait for them.
    ///
    /// # Errors
    /// The first reason why one could not be sent.
    fn say_all(&self, words: Vec<Word>) -> Result<(), MessageError> {
        let mut first = Ok(());
        for (to, head, payload) in words {
            let Err(error) = self.push(to, head, payload.clone()) else { continue };
            if !is_loss(&error) {
                lock(&self.unsaid).push((to, head, payload));
            }
            first = first.and(Err(error));
        }
        first
    }

    /// Tries again what could not be sent.
    fn say_again(&self) -> Result<(), MessageError> {
        let words = std::mem::take(&mut *lock(&self.unsaid));
        match words.is_empty() {
            true => Ok(()),
            false => self.say_all(words),
        }
    }

    /// A unit that will not come to the collective operation that this one has come to: the lowest, so that
    /// all who wait name the same. Who does not come keeps all others, directly or not. Who has come to
    /// another comes before who is gone, often because of it.
    pub(super) fn who_never_comes(&self) -> Option<MessageError> {
        let mine = self.board.came(self.options.unit);
        self.who_is_at_odds().or_else(|| {
            (0..self.options.units).find_map(|unit| match self.deaf_error(unit)? {
                MessageError::PeerLeft { .. } if self.board.came(unit).count() >= mine.count() => None,
                error => Some(error),
            })
        })
    }

    /// The better reason for an error of a collective operation: who is at odds with others may have left for
    /// it before this unit has sent to it, or has heard of that. In order, nobody leaves what it has come to
    /// before it has heard of all.
    fn odds_behind(&self, error: MessageError) -> MessageError {
        let mine = self.board.came(self.options.unit).count();
        if matches!(error, MessageError::PeerLeft { unit } if self.board.came(unit).count() >= mine) {
            let deadline = Some(clock::now() + LAST_WORDS);
            let _ = self.wait("word of others", deadline, |inner| inner.who_is_at_odds().map(Ok));
        }
        self.who_is_at_odds().unwrap_or(error)
    }

    /// A unit that has come to another collective operation where this one has come to its own: neither ends.
    fn who_is_at_odds(&self) -> Option<MessageError> {
        let mine = self.board.came(self.options.unit);
        let own = mine.last()?;
        (0..self.options.units).find_map(|unit| {
            let came = self.board.came(unit);
            let theirs = came.last().filter(|&theirs| came.count() == mine.count() && theirs != own)?;
            Some(MessageError::AtOdds { unit, theirs, mine: own })
        })
    }

    /// Says to all on other hosts what this unit has come to: only some have heard it. Who is at odds with it
    /// then says the same, to those whom this unit is not at odds with.
    fn tell_of_odds(&self) {
        let [low, high] = self.board.came(self.options.unit).words();
        for to in self.hosts.far() {
            let head = Head { handler: system::CAME, args: [low, high, 0, 0] };
            if let Err(error) = self.push(to, head, Vec::new()) {
                tracing::warn!(to, %error, "a unit was not told of different collective operations");
            }
        }
        // This unit may not come here again; what finds no room in good time goes when it receives or leaves.
        let deadline = Some(clock::now() + LAST_WORDS);
        let _ = self.wait("room to tell", deadline, |inner| (!inner.owes_words()).then_some(Ok(())));
    }

    /// A unit has said what it had come to. What those of this host have come to is on the board.
    pub(super) fn handle_came(&self, from: Address, words: [u32; 2]) {
        if self.hosts.is_far(from) {
            self.board.note_came(from, CollectiveCount::of_words(words));
        }
    }

    fn agree(&self) -> Result<(), MessageError> {
        // One that ended at its deadline goes on: to come twice to what others come to once would put this
        // unit at odds with them later.
        let goes_on = std::mem::replace(&mut lock(&self.agreement).under_way, true);
        let offer = lock(&self.installed).offer();
        if !goes_on {
            self.board.come(self.options.unit, Collective::Synchronise);
        }
        let has_outcome = lock(&self.agreement).outcome.is_some();
        if self.options.unit == 0 && !has_outcome {
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
            let head = Head { handler: system::AGREED, args: [failed, 0, 0, 0] };
            self.say_all((1..self.options.units).map(|to| (to, head, payload.clone())).collect())?;
        } else if self.options.unit != 0 && !goes_on {
            let payload = postcard::to_stdvec(&offer).unwrap_or_default();
            let [low, high] = self.board.came(self.options.unit).words();
            self.say_all(vec![(0, Head { handler: system::OFFER, args: [low, high, 0, 0] }, payload)])?;
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
        lock(&self.agreement).under_way = false;
        if let Ok(directory) = &agreed {
            let mut installed = lock(&self.installed);
            installed.number(directory);
            *lock(&self.table) = Arc::new(installed.clone());
            *lock(&self.directory) = Arc::new(directory.clone());
            self.epoch.fetch_add(1, Ordering::Release);
        }
        // Nobody uses a new number before all know it.
        self.meet_all(Collective::Synchronise)?;
        Ok(agreed.map(drop)?)
    }
}
