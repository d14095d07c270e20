//! Collective operations: barriers, and the agreement on handlers.

use super::barrier::{self, Barrier};
use super::directory::{self, Directory, HandlerError};
use super::handlers::in_handler;
use super::peer::{lock, try_lock};
use super::wait::is_loss;
use super::{system, Domain, Inner};
use crate::handshake::unpack;
pub use crate::types::Collective;
use crate::types::{Address, Head};
use crate::{LinkError, MessageError};
use polyduct_os::clock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
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
type Word = (Address, Head, Vec<u8>);

/// What this unit does together with all others, or is about to.
pub(super) struct Together {
    barrier: Mutex<Barrier>,
    agreement: Mutex<Agreement>,
    /// Whose turn an operation is: they are counted, so there is one at a time.
    turn: Mutex<()>,
    /// Threads that wait for it.
    in_line: AtomicUsize,
    /// Another unit has come to another operation than this one: there can be no more of them.
    at_odds: OnceLock<MessageError>,
    /// Words that could not be sent.
    unsaid: Mutex<Vec<Word>>,
}

impl Together {
    /// Nothing yet, as unit `me` of `units`.
    pub fn new(me: Address, units: u32) -> Together {
        Together {
            barrier: Mutex::new(Barrier::new(me, units)),
            agreement: Mutex::default(),
            turn: Mutex::default(),
            in_line: AtomicUsize::new(0),
            at_odds: OnceLock::new(),
            unsaid: Mutex::default(),
        }
    }
}

/// A synchronise under way.
#[derive(Default)]
struct Agreement {
    /// This unit has come to it, and has not heard what came of it.
    under_way: bool,
    /// At unit 0: what each unit offers.
    offers: Vec<Option<Vec<directory::Offered>>>,
    outcome: Option<Result<Directory, HandlerError>>,
}

impl Domain {
    /// Makes all handlers that were installed so far known in the whole domain. Collective: returns when all
    /// units have called it.
    ///
    /// # Errors
    /// [`MessageError::Handler`] when two units disagree about a version, or about whether a name is a
    /// function: the same in all units, which go on with what they agreed on before.
    /// [`MessageError::PeerLost`], [`MessageError::PeerLeft`]; [`MessageError::AtOdds`] naming a unit that
    /// has come to a barrier instead, after which there are no more of either; [`MessageError::Timeout`],
    /// after which the next call goes on with what this one brought.
    pub fn synchronise(&self) -> Result<(), MessageError> {
        self.inner.in_turn(Inner::agree)
    }

    /// Waits until all units have come to it. Threads of a unit that call this or
    /// [`synchronise`](Domain::synchronise) at once do so one after the other, so each call is a barrier of
    /// its own, which all units have to come to.
    ///
    /// # Errors
    /// [`MessageError::PeerLost`] and [`MessageError::PeerLeft`] naming a unit that will not come;
    /// [`MessageError::AtOdds`] naming one that has come to a synchronise instead, after which there are no
    /// more of either; [`MessageError::Timeout`], after which this unit has still come to it: the next call
    /// waits for the same barrier.
    pub fn barrier(&self) -> Result<(), MessageError> {
        self.inner.in_turn(|inner| inner.meet_all(Collective::Barrier))
    }
}

impl Inner {
    /// A collective operation, when those of other threads of this unit are over.
    fn in_turn(&self, operation: fn(&Inner) -> Result<(), MessageError>) -> Result<(), MessageError> {
        // Before the others are told: a unit that has come to a collective operation cannot take it back.
        if in_handler() {
            return Err(MessageError::InHandler);
        }
        let turn = match try_lock(&self.together.turn) {
            Some(turn) => turn,
            None => {
                self.together.in_line.fetch_add(1, Ordering::SeqCst);
                let what = "another thread to end its collective operation";
                let turn = self.wait(what, None, |_| try_lock(&self.together.turn).map(Ok));
                self.together.in_line.fetch_sub(1, Ordering::SeqCst);
                turn?
            }
        };
        let done = match self.together.at_odds.get() {
            Some(error) => Err(error.clone()),
            None => self.say_again().and_then(|()| operation(self)).map_err(|error| self.odds_behind(error)),
        };
        if let Err(error @ MessageError::AtOdds { .. }) = &done {
            if self.together.at_odds.set(error.clone()).is_ok() {
                self.tell_of_odds();
            }
        }
        drop(turn);
        if self.together.in_line.load(Ordering::SeqCst) > 0 {
            self.receiving.stir();
        }
        done
    }

    fn meet_all(&self, part_of: Collective) -> Result<(), MessageError> {
        if lock(&self.together.barrier).is_over() {
            self.units.board().come(self.units.me(), part_of);
            let mut tells = Vec::new();
            lock(&self.together.barrier).begin(&mut |t| tells.push(t));
            self.tell(tells)?;
        }
        self.wait("all units to come to the barrier", None, |inner| {
            if let Err(error) = inner.say_again() {
                return Some(Err(error));
            }
            match lock(&inner.together.barrier).is_over() {
                // Others may wait for the last word of this one, who may not come here again for long.
                true => (!inner.owes_words()).then_some(Ok(())),
                false => inner.who_never_comes().map(Err),
            }
        })
    }

    /// Whether words of a collective operation wait for room, or for a connection. The unit that they are for
    /// receives until it has them, so they do not wait for long.
    fn owes_words(&self) -> bool {
        let words = [system::BARRIER, system::OFFER, system::AGREED, system::CAME];
        let is_word = |head: &Head| words.contains(&head.handler);
        self.units.peers().iter().any(|peer| peer.owes(is_word))
    }

    /// Sends the words of a barrier.
    ///
    /// # Errors
    /// As [`say_all`](Inner::say_all).
    fn tell(&self, tells: Vec<barrier::Tell>) -> Result<(), MessageError> {
        let [low, high] = self.units.board().came(self.units.me()).words();
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
                lock(&self.together.unsaid).push((to, head, payload));
            }
            first = first.and(Err(error));
        }
        first
    }

    /// Tries again what could not be sent.
    fn say_again(&self) -> Result<(), MessageError> {
        let words = std::mem::take(&mut *lock(&self.together.unsaid));
        match words.is_empty() {
            true => Ok(()),
            false => self.say_all(words),
        }
    }

    /// A unit that will not come to the collective operation that this one has come to: the lowest, so that
    /// all waiting units name the same. A unit that does not come keeps all others, directly or not. One that
    /// has come to another operation goes before one that is gone, often because of it.
    fn who_never_comes(&self) -> Option<MessageError> {
        let mine = self.units.board().came(self.units.me());
        self.who_is_at_odds().or_else(|| {
            self.units.all().find_map(|unit| match self.units.deaf_error(unit)? {
                MessageError::PeerLeft { .. } if self.units.board().came(unit).count() >= mine.count() => {
                    None
                }
                error => Some(error),
            })
        })
    }

    /// The better reason for an error of a collective operation: a unit that is at odds with others may have
    /// left for it before this unit has sent to it, or has heard of that. In order, nobody leaves what it has
    /// come to before it has heard of all.
    fn odds_behind(&self, error: MessageError) -> MessageError {
        let mine = self.units.board().came(self.units.me()).count();
        if matches!(error, MessageError::PeerLeft { unit } if self.units.board().came(unit).count() >= mine) {
            let deadline = Some(clock::now() + LAST_WORDS);
            let _ = self.wait("word of others", deadline, |inner| inner.who_is_at_odds().map(Ok));
        }
        self.who_is_at_odds().unwrap_or(error)
    }

    /// A unit that has come to another collective operation where this one has come to its own: neither ends.
    fn who_is_at_odds(&self) -> Option<MessageError> {
        let mine = self.units.board().came(self.units.me());
        let own = mine.last()?;
        self.units.all().find_map(|unit| {
            let came = self.units.board().came(unit);
            let theirs = came.last().filter(|&theirs| came.count() == mine.count() && theirs != own)?;
            Some(MessageError::AtOdds { unit, theirs, mine: own })
        })
    }

    /// Says to all on other hosts what this unit has come to: only some have heard it. A unit that is at odds
    /// with it then says the same, to those that this unit is not at odds with.
    fn tell_of_odds(&self) {
        let [low, high] = self.units.board().came(self.units.me()).words();
        for to in self.units.hosts().far() {
            let head = Head { handler: system::CAME, args: [low, high, 0, 0] };
            if let Err(error) = self.push(to, head, Vec::new()) {
                tracing::warn!(to, %error, "a unit was not told of different collective operations");
            }
        }
        // This unit may not come here again; what finds no room in good time goes when it receives or leaves.
        let deadline = Some(clock::now() + LAST_WORDS);
        let _ = self.wait("room to tell", deadline, |inner| (!inner.owes_words()).then_some(Ok(())));
    }

    /// A word of a barrier has come.
    pub(super) fn handle_barrier(&self, from: Address, [number, round, low, high]: [u32; 4]) {
        self.handle_came(from, [low, high]);
        let mut tells = Vec::new();
        if !lock(&self.together.barrier).handle(from, number, round, &mut |t| tells.push(t)) {
            self.broke(from, LinkError::OutOfTurn { what: "a barrier's word" });
        } else if let Err(error) = self.tell(tells) {
            tracing::warn!(from, %error, "a barrier's word was not sent");
        }
    }

    /// At unit 0: what a unit brings to a synchronise, and what it has come to.
    pub(super) fn handle_offer(&self, from: Address, came: [u32; 2], offer: &[u8]) {
        let Ok(offer) = unpack(offer) else {
            return self.broke(from, LinkError::OutOfTurn { what: "an unreadable offer" });
        };
        self.handle_came(from, came);
        let mut agreement = lock(&self.together.agreement);
        agreement.offers.resize(self.units.all().len(), None);
        agreement.offers[from as usize] = Some(offer);
    }

    /// What came of a synchronise: a directory where it is `good`, or the error.
    pub(super) fn handle_agreed(&self, good: bool, words: &[u8]) {
        let outcome = match good {
            true => unpack(words).map(Ok),
            false => unpack(words).map(Err),
        };
        match outcome {
            Ok(outcome) => lock(&self.together.agreement).outcome = Some(outcome),
            Err(_) => self.broke(0, LinkError::OutOfTurn { what: "an unreadable directory" }),
        }
    }

    /// A unit has said what it had come to. What those of this host have come to is on the board.
    pub(super) fn handle_came(&self, from: Address, words: [u32; 2]) {
        if self.units.hosts().is_far(from) {
            self.units.board().note_came(from, CollectiveCount::of_words(words));
        }
    }

    fn agree(&self) -> Result<(), MessageError> {
        // One that ended at its deadline goes on: to come twice to what others come to once would put this
        // unit at odds with them later.
        let goes_on = std::mem::replace(&mut lock(&self.together.agreement).under_way, true);
        let offer = self.handlers.offer();
        if !goes_on {
            self.units.board().come(self.units.me(), Collective::Synchronise);
        }
        let has_outcome = lock(&self.together.agreement).outcome.is_some();
        if self.units.me() == 0 && !has_outcome {
            let outcome = self.wait("all units to synchronise", None, |inner| {
                let mut agreement = lock(&inner.together.agreement);
                agreement.offers.resize(inner.units.all().len(), None);
                agreement.offers[0].get_or_insert_with(|| offer.clone());
                if agreement.offers.iter().any(Option::is_none) {
                    return inner.who_never_comes().map(Err);
                }
                let offers: Vec<_> = agreement.offers.drain(..).map(Option::unwrap_or_default).collect();
                Some(Ok(agreement.outcome.insert(inner.handlers.merge(&offers)).clone()))
            })?;
            let (failed, payload) = match &outcome {
                Ok(directory) => (0, postcard::to_stdvec(directory)),
                Err(e) => (1, postcard::to_stdvec(e)),
            };
            let payload = payload.unwrap_or_default();
            let head = Head { handler: system::AGREED, args: [failed, 0, 0, 0] };
            self.say_all(self.units.all().skip(1).map(|to| (to, head, payload.clone())).collect())?;
        } else if self.units.me() != 0 && !goes_on {
            let payload = postcard::to_stdvec(&offer).unwrap_or_default();
            let [low, high] = self.units.board().came(self.units.me()).words();
            self.say_all(vec![(0, Head { handler: system::OFFER, args: [low, high, 0, 0] }, payload)])?;
        }
        let agreed = self.wait("all units to synchronise", None, |inner| {
            if inner.owes_words() {
                return None;
            }
            match lock(&inner.together.agreement).outcome.take() {
                Some(outcome) => Some(Ok(outcome)),
                None => inner.who_never_comes().map(Err),
            }
        })?;
        lock(&self.together.agreement).under_way = false;
        let agreed = agreed.map(|directory| {
            self.handlers.adopt(directory);
            self.receiving.tell_news();
        });
        // Nobody uses a new number before all know it.
        self.meet_all(Collective::Synchronise)?;
        Ok(agreed?)
    }
}
