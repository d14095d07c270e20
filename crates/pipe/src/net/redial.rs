//! A lane broke: its writer unit is called again, or the one that has replaced it. Nothing here waits.
//!
//! Nobody is called while unit 0 says that the unit is lost, nor while this unit is cut off from unit 0
//! itself: which of the two is to blame is known when it is heard again.

use super::address::PipeAddress;
use super::channel::Channel;
use super::client::{Client, VERDICT};
use super::dial::{is_passing, is_refused, link};
use super::frames::Frames;
use super::lane::{Delivery, Lane};
use super::mend::Tries;
use super::near::Mapping;
use super::silence::seconds;
use super::wire::{First, Guest};
use super::Trust;
use crate::error::PipeError;
use crate::ready::Wait;
use polyduct_message::link::net::{dial::Dial, socket::KeepAlive, LinkFault};
use polyduct_message::meeting::{later, RETRY};
use polyduct_os::{clock, poll::PollItem, Errno, OsError};
use polyduct_port::{Options, PortError, PortName, Side, UnitName};
use std::net::SocketAddr;
use std::time::Duration;

/// Connections to a writer unit that bring nothing, one after the other, before it is given up: a second or
/// two.
pub const FRUITLESS: u32 = 10;

/// How much longer than it is borne silence may take to be known of an idle connection: kernels count whole
/// seconds.
const PROBED: Duration = Duration::from_secs(2);

/// What a reader says of itself to a writer unit.
pub struct Caller {
    /// The pipe.
    pub place: PipeAddress,
    /// What the unit proves.
    pub trust: Trust,
    /// Its options.
    pub options: Options,
    /// The program that it belongs to.
    pub program: u32,
    /// What writer units do not know of it.
    pub guest: Option<Box<Guest>>,
    /// It maps the slots of writer units of its host.
    pub maps: bool,
    /// Lost writer units are replaced.
    pub replaced: bool,
}

/// How far a lane is made again.
pub struct Redial {
    /// Why it ended.
    fault: LinkFault,
    tries: Tries,
    pause: Duration,
    stage: Stage,
}

enum Stage {
    /// There is nobody to call.
    Idle,
    Rests(Duration),
    Dials(Box<Dial>, SocketAddr),
    /// Unit 0 was told that the unit cannot be reached, and says by then what all others are told.
    Accuses(Duration),
}

impl Redial {
    fn new(fault: LinkFault, stage: Stage) -> Redial {
        Redial { fault, tries: Tries::new(clock::now()), pause: RETRY.0, stage }
    }

    /// What to wait for.
    pub fn item(&self) -> Option<PollItem<'_>> {
        let Stage::Dials(dial, _) = &self.stage else { return None };
        Some(match dial.waits_for() {
            (stream, true) => PollItem::writable(stream),
            (stream, false) => PollItem::readable(stream),
        })
    }

    /// When to go on at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        match &self.stage {
            Stage::Idle => None,
            Stage::Rests(until) | Stage::Accuses(until) => Some(*until),
            Stage::Dials(dial, _) => Some(dial.deadline()),
        }
    }

    /// The same, for programs that poll.
    pub fn waits_at(&self, wait: &mut Wait) {
        if let Stage::Dials(dial, _) = &self.stage {
            let (stream, writes) = dial.waits_for();
            wait.at(stream, writes);
        }
        wait.within(self.deadline().map(|at| at.saturating_sub(clock::now())));
    }
}

impl Caller {
    /// How long a writer unit that is there may take: one that is replaced may have to come first, and where
    /// this unit may be cut off itself, it learns of that before it accuses another.
    fn most(&self, client: &Client) -> Duration {
        match (self.replaced, client.lasts()) {
            (true, _) => self.options.open_timeout,
            (false, true) => self.options.silence.saturating_add(PROBED),
            (false, false) => self.options.silence,
        }
    }

    /// A lane ended: it is made again from now on.
    ///
    /// # Errors
    /// The fault, where another connection would fare no better.
    pub fn broke(&self, client: &mut Client, lane: &mut Lane, fault: LinkFault) -> Result<(), PipeError> {
        let name = UnitName { side: Side::Writer, unit: lane.unit };
        tracing::debug!(unit = %name, %fault, "a lane ended");
        let is_silent = seconds(&fault, self.options.silence) > 0;
        // Where this unit may be replaced, it may be cut off, and learn of that from unit 0 only.
        let may_be_this = self.replaced || client.lasts();
        if is_passing(&fault) && (!is_silent || may_be_this) && lane.fruitless() <= FRUITLESS {
            // One that takes the connection and drops it again is not asked as fast as it can.
            let pause = match lane.fruitless() {
                0 => Duration::ZERO,
                n => Duration::from_millis(1 << n),
            };
            lane.redial = Some(Redial::new(fault, Stage::Rests(clock::now() + pause)));
            return Ok(());
        }
        if self.replaced {
            return Err(link(&self.place.to_string(), name)(fault));
        }
        let stage = self.accuse(client, name, &fault)?;
        lane.redial = Some(Redial::new(fault, stage));
        Ok(())
    }

    fn accuse(&self, client: &mut Client, name: UnitName, fault: &LinkFault) -> Result<Stage, PipeError> {
        client.accuse(name, fault)?;
        Ok(Stage::Accuses(clock::now() + VERDICT))
    }

    /// Goes on with a lane that [broke](Caller::broke), as far as it can; returns whether it is made again.
    /// The unit's part of
    /// `step` comes again then.
    ///
    /// # Errors
    /// What unit 0 says of the writer unit, or of the pipe; [`PortError::Timeout`] where one that may be
    /// replaced is there, and opens no lane.
    pub fn again(&self, client: &mut Client, lane: &mut Lane, step: u64) -> Result<bool, PipeError> {
        let Some(mut redial) = lane.redial.take() else { return Ok(true) };
        let made = self.go_on(client, lane, &mut redial, step);
        match made {
            Ok(Some(way)) => {
                lane.replace(way);
                lane.moved = client.moved(lane.unit);
                Ok(true)
            }
            Ok(None) => {
                lane.redial = Some(redial);
                Ok(false)
            }
            Err(error) => {
                redial.stage = Stage::Idle;
                lane.redial = Some(redial);
                Err(error)
            }
        }
    }

    fn go_on(
        &self,
        client: &mut Client,
        lane: &Lane,
        redial: &mut Redial,
        step: u64,
    ) -> Result<Option<Delivery>, PipeError> {
        let (name, pipe) = (UnitName { side: Side::Writer, unit: lane.unit }, self.place.to_string());
        client.check_going(step)?;
        let now = clock::now();
        if let Stage::Accuses(until) = redial.stage {
            return if now < until { Ok(None) } else { Err(client.unconfirmed(name, &redial.fault)) };
        }
        if client.is_absent(name) || client.is_cut_off() {
            redial.stage = Stage::Idle;
            return Ok(None);
        }
        if let Stage::Idle = redial.stage {
            (redial.stage, redial.tries, redial.pause) = (Stage::Rests(now), Tries::new(now), RETRY.0);
        }
        let addr = client.moved(lane.unit).map_or(lane.addr, |(addr, _)| addr);
        let failed = loop {
            match &mut redial.stage {
                Stage::Rests(until) if now >= *until => {
                    if let Some(way) =
                        self.maps((lane.unit, addr), lane.slots, step).filter(|_| lane.may_map())
                    {
                        return Ok(Some(way));
                    }
                    let terms = self.place.terms(&self.trust, self.options.unit);
                    let patience = KeepAlive { dead_after: self.options.silence };
                    match Dial::new(&terms, lane.unit, addr, patience, now, self.most(client)) {
                        Ok(dial) => redial.stage = Stage::Dials(Box::new(dial), addr),
                        Err(fault) => break Some(fault),
                    }
                }
                Stage::Dials(_, to) if *to != addr => redial.stage = Stage::Rests(now),
                Stage::Dials(dial, _) => match dial.serve(now) {
                    Ok(None) => break None,
                    Ok(Some(established)) => {
                        let Stage::Dials(dial, _) = std::mem::replace(&mut redial.stage, Stage::Idle) else {
                            return Ok(None);
                        };
                        let channel = Channel::new(dial.into_stream(), established, self.options.silence);
                        return self.frames(channel, step).map(Some).map_err(link(&pipe, name));
                    }
                    Err(fault) => break Some(fault),
                },
                _ => break None,
            }
        };
        match failed {
            None => {}
            Some(fault) if is_passing(&fault) && (self.replaced || !is_refused(&fault)) => {
                redial.stage = Stage::Rests(now + later(&mut redial.pause));
            }
            Some(fault) if self.replaced => return Err(link(&pipe, name)(fault)),
            // It is gone, with what it had.
            Some(_) => redial.stage = self.accuse(client, name, &redial.fault)?,
        }
        let waited = redial.tries.last(now);
        if waited < self.most(client) {
            return Ok(None);
        }
        if self.replaced {
            let what = format!("{name} to open a lane for step {step}").into();
            let port = PortName::Pipe(pipe);
            return Err(PipeError::Port(PortError::Timeout { port, unit: None, what, waited }));
        }
        let what = "a lane that could not be opened again".into();
        redial.fault = OsError::System { op: "connect", what, errno: Errno::TIMEDOUT }.into();
        redial.stage = self.accuse(client, name, &redial.fault)?;
        Ok(None)
    }

    /// Asks a writer unit for its bytes of the steps from `from` on.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn frames(&self, mut channel: Channel, from: u64) -> Result<Delivery, LinkFault> {
        let (program, unit, guest) = (self.program, self.options.unit, self.guest.clone());
        channel.post(&First::Lane { program, unit, from, guest })?;
        Ok(Delivery::Frames(Box::new(Frames::new(channel))))
    }

    /// Asks a writer unit for its slots, if it is on this host and both may share memory.
    pub fn maps(&self, at: (u32, SocketAddr), slots: (u32, usize, usize), from: u64) -> Option<Delivery> {
        let me = (self.program, self.options.unit, from);
        let maps = self.maps.then(|| Mapping::ask((&self.place, &self.trust), at, me, slots));
        maps.flatten().map(Delivery::Slots)
    }
}
