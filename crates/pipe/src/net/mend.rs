//! A connection to a unit broke: whether the unit lives, and how it is reached again. No thread.
//!
//! Unit 0 [looks after](Missing) the unit: every unit listens somewhere for as long as it takes part, so that
//! where nobody listens any more, it is dead, and where a connection stands, it lives, and comes back when it
//! next has something to say. The unit itself [calls](Mending) unit 0 again.

use super::channel::Channel;
use super::dial::{is_passing, is_refused};
use super::session::SessionId;
use super::silence::seconds;
use super::wire::{Back, First, PipeId};
use crate::ready::Wait;
use polyduct_message::link::net::{dial::Dial, socket, socket::KeepAlive, LinkFault};
use polyduct_message::link::noise::Terms;
use polyduct_message::LinkError;
use polyduct_os::{poll::PollItem, Errno, OsError};
use std::io::IoSliceMut;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How soon another attempt follows one that failed, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(320));
/// So long between two looks somebody still looks: longer, and nobody does, as while the unit computes.
const LOOKS: Duration = Duration::from_secs(1);

/// Whether a connection that ended so may have broken while both its ends live.
pub fn is_of_the_way(fault: &LinkFault) -> bool {
    matches!(fault, LinkFault::System(_) | LinkFault::Peer(LinkError::Closed))
}

/// What is known of a unit whose connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It may come back.
    Open,
    /// It has ended.
    Ended,
    /// Nothing is heard of its host.
    Silent,
}

/// A unit whose connection broke.
pub struct Missing {
    /// Where it listens, if it can be reached there.
    door: Option<SocketAddr>,
    /// How long silence is borne, and since when nothing was heard.
    borne: Duration,
    since: Duration,
    /// A connection to its door that stands, or is begun.
    probe: Option<TcpStream>,
    stands: bool,
    again_at: Duration,
}

impl Missing {
    /// A unit that listens at `door`. Without one it is waited for as long as silence is borne.
    pub fn new(door: Option<SocketAddr>, borne: Duration, now: Duration) -> Missing {
        Missing { door, borne, since: now, probe: None, stands: false, again_at: now }
    }

    /// What to wait for.
    pub fn item(&self) -> Option<PollItem<'_>> {
        self.probe.as_ref().map(|probe| match self.stands {
            true => PollItem::readable(probe),
            false => PollItem::writable(probe),
        })
    }

    /// When to [look](Missing::look) at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        let gives_up = (!self.stands).then(|| self.since.saturating_add(self.borne));
        let again = (self.door.is_some() && self.probe.is_none()).then_some(self.again_at);
        gives_up.into_iter().chain(again).min()
    }

    /// Looks whether it lives.
    pub fn look(&mut self, now: Duration) -> Life {
        let Some(door) = self.door else { return self.waits(now) };
        if self.probe.is_none() && now >= self.again_at {
            match socket::connect(door, KeepAlive { dead_after: self.borne }) {
                Ok(probe) => self.probe = Some(probe),
                Err(error) => return self.failed(&error.into(), now),
            }
        }
        let Some(probe) = &self.probe else { return self.waits(now) };
        if !self.stands {
            match socket::is_connected(probe, door) {
                Ok(true) => self.stands = true,
                Ok(false) => return self.waits(now),
                Err(error) => return self.failed(&error.into(), now),
            }
        }
        // A unit that opens the door says nothing there, but its kernel says when it is shut.
        match socket::read(probe, &mut [IoSliceMut::new(&mut [0; 64])]) {
            Ok(_) => Life::Open,
            Err(error) => {
                self.since = now;
                self.failed(&error.into(), now)
            }
        }
    }

    fn failed(&mut self, fault: &LinkFault, now: Duration) -> Life {
        let stood = std::mem::take(&mut self.stands);
        (self.probe, self.again_at) = (None, now + AGAIN.0);
        match fault {
            fault if is_refused(fault) => Life::Ended,
            fault if stood && seconds(fault, self.borne) > 0 => Life::Silent,
            _ => self.waits(now),
        }
    }

    fn waits(&self, now: Duration) -> Life {
        match now.saturating_sub(self.since) < self.borne {
            true => Life::Open,
            false => Life::Silent,
        }
    }
}

/// How a unit reaches unit 0 again.
pub struct Calls {
    /// Where unit 0 listens.
    pub addr: SocketAddr,
    /// This unit.
    pub unit: u32,
    /// What it proves.
    pub terms: Terms,
    /// How long silence is borne.
    pub borne: Duration,
    /// The session that goes on.
    pub session: SessionId,
    /// Where this unit may be replaced, unit 0 is called for longer, as long as nobody has its place.
    pub lasts: bool,
    /// For how long then.
    pub most: Duration,
    /// Unit 0 itself may be replaced: it is called until somebody answers, and if it is another, told so.
    pub revives: bool,
    /// How many unit 0s there have been before the one that this unit was with.
    pub life: u32,
    /// The pipe, once it is known.
    pub pipe: PipeId,
}

impl Calls {
    /// How long unit 0 is called.
    fn patience(&self) -> Duration {
        if self.revives {
            Duration::MAX
        } else if self.lasts {
            self.borne.max(self.most)
        } else {
            self.borne
        }
    }
}

enum Stage {
    Rests(Duration),
    Dials(Box<Dial>),
    /// It has said who it is, and is answered by then.
    Asks(Box<Channel>, Duration),
}

/// How long something is tried, less the time in which nobody looked.
pub struct Tries {
    since: Duration,
    looked: Duration,
}

impl Tries {
    /// From now on.
    pub fn new(now: Duration) -> Tries {
        Tries { since: now, looked: now }
    }

    /// Looks how long it has been.
    pub fn last(&mut self, now: Duration) -> Duration {
        self.since += now.saturating_sub(self.looked).saturating_sub(LOOKS);
        self.looked = now;
        now.saturating_sub(self.since)
    }
}

/// A connection to unit 0 is made again.
pub struct Mending {
    tries: Tries,
    stage: Stage,
    /// How long it rests after the next attempt that fails.
    rest: Duration,
    /// The next connection is to a unit 0 that replaces the one before.
    joins: bool,
    /// Why it could not be made when it was tried last.
    pub failed: Option<LinkFault>,
}

/// How far that is.
pub enum Mended {
    NotYet,
    /// The session goes on, on this connection, whose other end has heard so many messages in it.
    GoesOn(Box<Channel>, u64),
    /// Another unit 0 is there, on this connection: it knows nothing yet.
    Another(Box<Channel>),
}

impl Mending {
    /// The connection ended just now.
    pub fn new(now: Duration) -> Mending {
        let (tries, stage) = (Tries::new(now), Stage::Rests(now));
        Mending { tries, stage, rest: AGAIN.0, joins: false, failed: None }
    }

    /// Another unit 0 was there, and did not take this unit in: it is asked again after a while.
    pub fn again(now: Duration) -> Mending {
        Mending { stage: Stage::Rests(now + AGAIN.1), ..Mending::new(now) }
    }

    /// What to wait for.
    pub fn item(&self) -> Option<PollItem<'_>> {
        match &self.stage {
            Stage::Rests(_) => None,
            Stage::Dials(dial) => Some(match dial.waits_for() {
                (stream, true) => PollItem::writable(stream),
                (stream, false) => PollItem::readable(stream),
            }),
            Stage::Asks(channel, _) => Some(PollItem::readable(&**channel)),
        }
    }

    /// The same, for programs that poll.
    pub fn waits_at(&self, wait: &mut Wait) {
        match &self.stage {
            Stage::Rests(_) => {}
            Stage::Dials(dial) => {
                let (stream, writes) = dial.waits_for();
                wait.at(stream, writes);
            }
            Stage::Asks(channel, _) => wait.at(&**channel, false),
        }
    }

    /// When to [go on](Mending::go_on) at the latest.
    pub fn deadline(&self, calls: &Calls) -> Duration {
        let end = self.tries.since.saturating_add(calls.patience());
        let next = match &self.stage {
            Stage::Rests(until) | Stage::Asks(_, until) => *until,
            Stage::Dials(dial) => dial.deadline(),
        };
        end.min(next)
    }

    /// Goes on as far as it can, for a unit that has heard so many messages in its session.
    ///
    /// # Errors
    /// [`LinkError::Closed`] where unit 0 is gone for good or knows this unit no more, [`LinkError::Taken`]
    /// where another has its place; or its silence.
    pub fn go_on(&mut self, calls: &Calls, heard: u64, now: Duration) -> Result<Mended, LinkFault> {
        let lasted = self.tries.last(now);
        loop {
            match self.next(calls, heard, now) {
                Ok(Next::Waits) if lasted < calls.patience() => return Ok(Mended::NotYet),
                Ok(Next::Waits) => {
                    let what = "a connection that could not be made again".into();
                    return Err(OsError::System { op: "connect", what, errno: Errno::TIMEDOUT }.into());
                }
                Ok(Next::Goes) => {}
                Ok(Next::Done(mended)) => return Ok(mended),
                Ok(Next::Gone(why)) => return Err(why.into()),
                // Its process, or what was there, is gone.
                Err(fault) if is_refused(&fault) && !calls.revives => return Err(LinkError::Closed.into()),
                // One that may be replaced is not called in vain for what another says there.
                Err(fault) if is_passing(&fault) || calls.revives => {
                    (self.stage, self.failed) = (Stage::Rests(now + self.rest), Some(fault));
                    self.rest = (2 * self.rest).min(AGAIN.1);
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    fn next(&mut self, calls: &Calls, heard: u64, now: Duration) -> Result<Next, LinkFault> {
        match &mut self.stage {
            Stage::Rests(until) if now < *until => return Ok(Next::Waits),
            Stage::Rests(_) => {
                let patience = KeepAlive { dead_after: calls.borne };
                let dial = Dial::new(&calls.terms, 0, calls.addr, patience, now, calls.borne)?;
                self.stage = Stage::Dials(Box::new(dial));
            }
            Stage::Dials(dial) => {
                let Some(established) = dial.serve(now)? else { return Ok(Next::Waits) };
                let Stage::Dials(dial) = std::mem::replace(&mut self.stage, Stage::Rests(now)) else {
                    return Ok(Next::Waits);
                };
                let mut channel = Channel::new(dial.into_stream(), established, calls.borne);
                if std::mem::take(&mut self.joins) {
                    return Ok(Next::Done(Mended::Another(Box::new(channel))));
                }
                channel.post(&First::Again {
                    session: calls.session,
                    heard,
                    life: calls.life,
                    pipe: calls.pipe,
                })?;
                channel.flush()?;
                self.stage = Stage::Asks(Box::new(channel), now.saturating_add(calls.borne));
            }
            Stage::Asks(_, until) if now >= *until => self.stage = Stage::Rests(now),
            Stage::Asks(channel, _) => {
                let Some(back) = channel.hear::<Back>()? else { return Ok(Next::Waits) };
                let Stage::Asks(channel, _) = std::mem::replace(&mut self.stage, Stage::Rests(now)) else {
                    return Ok(Next::Waits);
                };
                match back {
                    Back::On(theirs) => return Ok(Next::Done(Mended::GoesOn(channel, theirs))),
                    Back::Opens if calls.revives => self.joins = true,
                    // It has given this unit up, or is another.
                    Back::Unknown | Back::Opens => return Ok(Next::Gone(LinkError::Closed)),
                    Back::Replaced => return Ok(Next::Gone(LinkError::Taken { unit: calls.unit })),
                }
            }
        }
        Ok(Next::Goes)
    }
}

enum Next {
    Waits,
    Goes,
    Gone(LinkError),
    Done(Mended),
}

#[cfg(test)]
mod tests {
    use super::super::{address::PipeAddress, JobKey, Trust};
    use super::*;
    use polyduct_os::{clock, poll::poll};

    const BORNE: Duration = Duration::from_secs(10);

    /// Looks until `done`, as often as it wants.
    fn look_until(missing: &mut Missing, done: impl Fn(&Missing, Life) -> bool) -> Life {
        loop {
            let life = missing.look(clock::now());
            if done(missing, life) {
                return life;
            }
            let left = missing.deadline().map(|at| at.saturating_sub(clock::now()));
            let mut items: Vec<_> = missing.item().into_iter().collect();
            poll(&mut items, left).unwrap();
        }
    }

    #[test]
    fn who_listens_lives_and_who_does_not_any_more_has_ended() {
        let listener = socket::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let door = socket::local_addr(&listener).unwrap();
        let mut missing = Missing::new(Some(door), BORNE, clock::now());
        assert_eq!(look_until(&mut missing, |missing, _| missing.stands), Life::Open);
        // However long it takes.
        assert_eq!(missing.look(clock::now() + 10 * BORNE), Life::Open);
        drop(listener);
        assert_eq!(look_until(&mut missing, |_, life| life != Life::Open), Life::Ended);
    }

    #[test]
    fn who_cannot_be_reached_is_waited_for_as_long_as_silence_is_borne() {
        let (now, ms) = (clock::now(), Duration::from_millis(1));
        let mut missing = Missing::new(None, BORNE, now);
        assert_eq!(missing.look(now + BORNE - ms), Life::Open);
        assert_eq!(missing.deadline(), Some(now + BORNE));
        assert_eq!(missing.look(now + BORNE), Life::Silent);
    }

    #[test]
    fn time_in_which_the_unit_does_not_look_does_not_count_as_silence() {
        // It takes connections, and nobody answers there.
        let listener = socket::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let addr = socket::local_addr(&listener).unwrap();
        let place = PipeAddress::new("127.0.0.1", addr.port(), "mend");
        let trust = Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network: true };
        let (terms, session) = (place.terms(&trust, 1), [0; 16]);
        let (unit, borne, most) = (1, BORNE, 20 * BORNE);
        let (lasts, revives, life) = (false, false, 0);
        let pipe = [0; 16];
        let mut calls = Calls { addr, unit, terms, borne, session, lasts, most, revives, life, pipe };
        let start = clock::now();
        let mut mending = Mending::new(start);
        assert!(matches!(mending.go_on(&calls, 0, start), Ok(Mended::NotYet)));
        // The unit computes, and looks again.
        let again = start + 6 * BORNE;
        assert!(matches!(mending.go_on(&calls, 0, again), Ok(Mended::NotYet)));
        let mut now = again;
        while now < again + BORNE - LOOKS {
            assert!(matches!(mending.go_on(&calls, 0, now), Ok(Mended::NotYet)));
            now += LOOKS / 2;
        }
        let silent = mending.go_on(&calls, 0, now).err().unwrap();
        assert!(seconds(&silent, BORNE) > 0, "{silent}");
        // One that may be replaced calls on.
        calls.lasts = true;
        assert!(matches!(mending.go_on(&calls, 0, now + 10 * BORNE), Ok(Mended::NotYet)));
    }
}
