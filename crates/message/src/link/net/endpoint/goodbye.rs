//! The good-bye of an endpoint: how it sees to it that others have what it sent, and know that no more comes.

use super::NetEndpoint;
use crate::engine::Session;
use crate::error::MessageError;
use crate::link::net::config::Transport;
use crate::link::net::peer::Peer;
use crate::types::Address;
use core::time::Duration;
use polyduct_os::clock;

/// What a session is aborted with whose peer does not have all that was sent.
const LEFT_EARLY: u16 = 1;
/// How often who says good-bye looks whether another thread has heard the answer.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// How long those who have everything are given to say so where the wait for others is over.
const MOMENT: Duration = Duration::from_millis(250);
/// How long who has said good-bye by datagrams answers those who do so, too, where no answer says that they
/// know: so many times what an answer takes, and a little. That is five of its own repetitions, each after
/// twice the time of the one before, and an answer to each of the other's: where a fifth of the packets is
/// lost, all of those are in one of some hundred thousand good-byes.
const ANSWERS: (u32, Duration, Duration) = (32, Duration::from_millis(100), Duration::from_secs(3));

impl<B: AsMut<[u8]> + Send + 'static> NetEndpoint<B> {
    /// Says good-bye: waits until all that was sent is delivered and every peer knows that no more comes, for
    /// `timeout` at most. Messages that come meanwhile are dropped.
    ///
    /// # Errors
    /// [`MessageError::Timeout`] where some peer did not take everything; [`MessageError::System`].
    pub fn close(self, timeout: Duration) -> Result<(), MessageError> {
        self.say_goodbye(|_| true, |_| false, within(timeout))
    }

    /// The same, for one that others may still refer to, and that waits only for those who are `waited_for`:
    /// what is on its way to the others may be lost. Nothing can be sent any more. `go_on` is asked again and
    /// again, with what is waited for: how long to wait until it is asked again, or the error to end with.
    /// Other threads may poll meanwhile.
    ///
    /// # Errors
    /// What `go_on` gives. Those that do not have everything, and those to whom the caller `owes` what it
    /// could not even send, are told that the session is over before its time. [`MessageError::System`].
    pub fn say_goodbye(
        &self,
        waited_for: impl Fn(Address) -> bool,
        owes: impl Fn(Address) -> bool,
        go_on: impl Fn(&str) -> Result<Duration, MessageError>,
    ) -> Result<(), MessageError> {
        self.shared.lock().hub.closing = true;
        self.tell(&self.open(&owes), |session, _| session.abort(LEFT_EARLY))?;
        self.tell(&self.open(|_| true), |session, now| session.close(now))?;
        loop {
            let open = self.open(&waited_for);
            if open.is_empty() {
                return self.answer_for_a_while(&waited_for);
            }
            match go_on(&format!("units {open:?} to take what was sent")) {
                Ok(time) => drop(self.next_event(Some(time.min(LOOK)))?),
                Err(error) => {
                    self.break_off(&waited_for)?;
                    return Err(error);
                }
            }
        }
    }

    /// A unit that leaves, too, may not know that its good-bye is here: by datagrams the answer may be lost,
    /// and nobody would say it again.
    fn answer_for_a_while(&self, waited_for: &impl Fn(Address) -> bool) -> Result<(), MessageError> {
        let (begun, (times, least, most)) = (clock::now(), ANSWERS);
        loop {
            let mut leave: Vec<_> = {
                let state = self.shared.lock();
                if state.hub.config.transport == Transport::Tcp {
                    return Ok(());
                }
                let not_told = |p: &Peer<B>| {
                    p.gone.is_none() && p.left && !p.session.is_closed() && !p.session.is_broken()
                };
                let peers = state.hub.peers.iter().filter(|(_, p)| not_told(p));
                peers.map(|(unit, p)| (*unit, p.round_trip())).collect()
            };
            leave.retain(|&(unit, _)| waited_for(unit));
            let Some(longest) = leave.iter().map(|(_, time)| *time).max() else { return Ok(()) };
            let left = (times * longest + least).min(most).saturating_sub(clock::now() - begun);
            if left.is_zero() {
                return Ok(());
            }
            self.next_event(Some(left.min(LOOK)))?;
        }
    }

    /// Ends the sessions of those who do not have everything; the others have a moment to say that they do.
    fn break_off(&self, waited_for: &impl Fn(Address) -> bool) -> Result<(), MessageError> {
        let lacks = |session: &mut Session<B>, _| {
            if session.unconfirmed() > 0 {
                session.abort(LEFT_EARLY);
            }
        };
        self.tell(&self.open(waited_for), lacks)?;
        let end = clock::now() + MOMENT;
        while !self.open(waited_for).is_empty() && clock::now() < end {
            self.next_event(Some(LOOK))?;
        }
        Ok(())
    }

    /// Units that have not yet said that they have everything, or leave, or are lost. One that leaves, too,
    /// may be gone before it could say it.
    fn open(&self, of: impl Fn(Address) -> bool) -> Vec<Address> {
        let answers =
            |p: &Peer<B>| p.gone.is_none() && !p.left && !p.session.is_closed() && !p.session.is_broken();
        let mut open: Vec<_> = {
            let state = self.shared.lock();
            state.hub.peers.iter().filter(|(_, p)| answers(p)).map(|(unit, _)| *unit).collect()
        };
        // Not while the state is locked: `of` may take locks of its caller.
        open.retain(|&unit| of(unit));
        open
    }

    /// Has the sessions of these units say something for the last time.
    fn tell(&self, units: &[Address], last: impl Fn(&mut Session<B>, Duration)) -> Result<(), MessageError> {
        let now = clock::now();
        let mut state = self.shared.lock();
        for &unit in units {
            if let Some(peer) = state.hub.peers.get_mut(&unit) {
                last(&mut peer.session, now);
            }
            state.hub.mark(unit);
            state.hub.pump(unit, now);
            self.shared.reconsider(&mut state, unit)?;
        }
        Ok(())
    }
}

/// Goes on for so long: for [`say_goodbye`](NetEndpoint::say_goodbye).
pub fn within(time: Duration) -> impl Fn(&str) -> Result<Duration, MessageError> {
    let begun = clock::now();
    move |what| {
        let waited = clock::now().saturating_sub(begun);
        match time.saturating_sub(waited) {
            Duration::ZERO => Err(MessageError::Timeout { what: what.to_owned(), waited }),
            left => Ok(left),
        }
    }
}
