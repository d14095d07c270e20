//! Lanes to a gateway at another site: units are confirmed, and lanes that break are made again.

use super::lane::{Side, Ways};
use super::wire::{Give, Offer, Take, TEXT_BYTES};
use crate::execution::Send;
use crate::gateway::lanes::{Event, Lanes, Went};
use crate::StreamError;
use polyduct_message::link::net::LinkFault;
use polyduct_message::meeting::{Within, SLICE};
use polyduct_message::LinkError;
use polyduct_os::clock;
use polyduct_os::poll::{poll, PollItem};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Duration;

/// What a lane is at.
#[derive(Clone, Debug, Default)]
struct Unit {
    /// Its header is on its way.
    announced: bool,
    /// Bytes that are in the lane.
    gone: usize,
}

/// Lanes that transmit.
pub struct FarLanes {
    ways: Ways,
    units: Vec<Unit>,
    /// Lanes over which the other end has said what it has.
    told: Vec<bool>,
    offer: Option<Offer>,
    /// Bytes of each step of all gateways, where this is one of several.
    step: Option<u64>,
    /// Steps that the other end has room for.
    room: u64,
    events: VecDeque<Event>,
    done: bool,
    /// Why the other end gave up.
    broke: Option<String>,
    /// Both ends know how it ended, as far as this one can have that.
    over: bool,
    /// The latest step of which something was sent; in the end, how many there were.
    steps: u64,
}

impl FarLanes {
    /// Waits until a lane is up; the others may follow.
    ///
    /// # Errors
    /// [`StreamError::Connect`] with what came of the last attempt.
    pub fn meet(side: Side, within: Within<'_>) -> Result<FarLanes, StreamError> {
        let ways = super::meet(side, within)?;
        let units = vec![Unit::default(); ways.lanes.len()];
        let events = (0..units.len() as u32).map(Event::Down).collect();
        Ok(FarLanes {
            ways,
            told: vec![false; units.len()],
            units,
            offer: None,
            step: None,
            room: 0,
            events,
            done: false,
            broke: None,
            over: false,
            steps: 0,
        })
    }

    /// Says what the stream has, on all lanes and those that will be; and where this is one of several gateways, how many
    /// bytes each step has.
    pub fn offer(&mut self, offer: Offer, step: Option<u64>) {
        (self.offer, self.step) = (Some(offer), step);
        (0..self.units.len() as u32).for_each(|lane| self.greet(lane));
    }

    /// A lane is new.
    fn greet(&mut self, lane: u32) {
        let Some(offer) = self.offer.clone() else { return };
        let Some(channel) = self.ways.channel(lane) else { return };
        let said = channel.post(&Give::Offer(offer)).and_then(|()| channel.flush());
        if let Err(fault) = said {
            self.down(lane, &fault);
        }
    }

    fn down(&mut self, lane: u32, fault: &LinkFault) {
        tracing::warn!(stream = %self.ways.side, lane, %fault, "a lane broke");
        // It may not take anything more, but what came over it before counts.
        while let Some(Ok(Some(said))) = self.ways.channel(lane).map(|channel| channel.next()) {
            self.heard(lane, said);
        }
        self.ways.broke(lane, fault);
        (self.units[lane as usize], self.told[lane as usize]) = (Unit::default(), false);
        self.events.push_back(Event::Down(lane));
    }

    /// What the other end says.
    fn hear(&mut self) -> Result<(), StreamError> {
        for lane in 0..self.units.len() as u32 {
            while let Some(channel) = self.ways.channel(lane) {
                // Heard though the lane is full: that may be why it is, and what is confirmed makes room.
                let flushed = channel.flush();
                match channel
                    .next::<Take>()
                    .and_then(|said| said.map_or(flushed.map(|_| None), |s| Ok(Some(s))))
                {
                    Ok(None) => break,
                    Ok(Some(said)) => self.heard(lane, said),
                    Err(fault) => {
                        self.down(lane, &fault);
                        break;
                    }
                }
            }
        }
        match &self.broke {
            Some(why) => Err(self.ways.side.broken(self.steps, format!("the other end gave up: {why}"))),
            None => Ok(()),
        }
    }

    fn heard(&mut self, lane: u32, said: Take) {
        match said {
            Take::Taken { adu, at, len } => {
                // What this end never sent counts for nothing.
                let Some(at) = self.ways.side.share.own(at) else { return };
                let at = at..at.saturating_add(len.into());
                self.events.push_back(Event::Taken { lane, adu, at });
            }
            Take::Here { adu, at, len } => {
                let share = self.ways.side.share;
                let at = share.own_before(at)..share.own_before(at.saturating_add(len));
                self.events.push_back(Event::Here { adu, at });
            }
            Take::Past(adu) => self.events.push_back(Event::Past(adu)),
            Take::Room(room) => {
                self.room = self.room.max(room);
                self.told[lane as usize] = true;
            }
            Take::Done => self.done = true,
            Take::Broke(why) => self.broke = Some(why.chars().take(TEXT_BYTES).collect()),
            Take::Heard => self.over = true,
        }
    }

    /// Answers the other end's last word, where something can be said.
    fn answer(&mut self) {
        self.over = true;
        for lane in 0..self.units.len() as u32 {
            if !self.units[lane as usize].announced {
                self.ways.say(lane, &Give::Heard);
            }
        }
    }

    /// Says why this end gives up until that is heard; lanes that are in the middle of a unit are made again for
    /// it.
    fn give_up(&mut self, why: &str) {
        let (start, given_up) = (clock::now(), LinkFault::Peer(LinkError::Closed));
        let mut told = vec![false; self.units.len()];
        for lane in 0..self.units.len() as u32 {
            if self.units[lane as usize].announced {
                self.down(lane, &given_up);
            }
        }
        while !self.over && self.broke.is_none() {
            let left = super::FAREWELL.saturating_sub(clock::now().saturating_sub(start));
            if left.is_zero() {
                return;
            }
            loop {
                match self.ways.poll(clock::now()) {
                    Ok(Some(lane)) => told[lane as usize] = false,
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
            for lane in 0..self.units.len() as u32 {
                let told = &mut told[lane as usize];
                *told = self.ways.is_up(lane) && (*told || self.ways.say(lane, &Give::Broke(why.to_owned())));
            }
            // There is nothing left to say of what goes wrong now.
            if self.hear().is_err() || super::wait(&self.ways, &|_| false, left).is_err() {
                return;
            }
        }
    }

    fn waits_for_lanes(&self, now: Duration) -> Result<(), StreamError> {
        match self.ways.all_down() {
            Some((since, why)) if now.saturating_sub(since) > self.ways.side.borne => {
                let borne = self.ways.side.borne.as_secs_f64();
                Err(self.ways.side.broken(self.steps, format!("no lane for {borne} s: {why}")))
            }
            _ => Ok(()),
        }
    }
}

impl Lanes for FarLanes {
    fn count(&self) -> u32 {
        self.units.len() as u32
    }

    fn confirms(&self) -> bool {
        true
    }

    fn has_room(&self, adu: u64) -> bool {
        adu < self.room
    }

    fn is_up(&self, lane: u32) -> bool {
        // What is sent before would maybe come twice.
        self.told[lane as usize] && self.ways.is_up(lane)
    }

    fn go_on(&mut self, lane: u32, send: &Send, _: &[u8], data: &[u8]) -> Result<Went, StreamError> {
        self.steps = self.steps.max(send.adu);
        let (share, step) = (self.ways.side.share, self.step);
        if data.is_empty() && !share.is_all() && step != Some(0) {
            // Others carry what there is of the step.
            return Ok(Went::Arrived);
        }
        let unit = &mut self.units[lane as usize];
        let Some(channel) = self.ways.channel(lane) else { return Ok(Went::Down) };
        let mut write = || {
            if !unit.announced {
                let Send { adu, adu_len, at, .. } = send;
                let len = (at.end - at.start) as u32;
                let (adu_len, at) = (step.unwrap_or(*adu_len), share.of_step(at.start));
                channel.post(&Give::Unit { adu: *adu, adu_len, at, len })?;
                unit.announced = true;
            }
            while unit.gone < data.len() {
                match channel.send(&[IoSlice::new(&data[unit.gone..])])? {
                    Some(len) => unit.gone += len,
                    None => return Ok(false),
                }
            }
            channel.flush()
        };
        match write() {
            Ok(true) => {
                *unit = Unit::default();
                Ok(Went::Sent)
            }
            Ok(false) => Ok(Went::Partly),
            Err(fault) => {
                self.down(lane, &fault);
                Ok(Went::Down)
            }
        }
    }

    fn poll(&mut self, now: Duration) -> Result<Option<Event>, StreamError> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        while let Some(lane) = self.ways.poll(now)? {
            (self.units[lane as usize], self.told[lane as usize]) = (Unit::default(), false);
            self.events.push_back(Event::Down(lane));
            self.greet(lane);
        }
        self.hear()?;
        self.waits_for_lanes(now)?;
        Ok(self.events.pop_front())
    }

    fn items<'a>(&'a self, busy: &dyn Fn(u32) -> bool, items: &mut Vec<PollItem<'a>>) {
        self.ways.items(busy, items);
    }

    fn deadline(&self) -> Option<Duration> {
        self.ways.deadline()
    }

    fn finish(&mut self, steps: u64, again: &dyn Fn() -> bool) -> Result<(), StreamError> {
        self.steps = steps;
        let mut told = vec![false; self.units.len()];
        while !self.done {
            while let Some(event) = self.poll(clock::now())? {
                if let Event::Down(lane) = event {
                    told[lane as usize] = false;
                }
            }
            for lane in 0..self.units.len() as u32 {
                let Some(channel) = self.ways.channel(lane).filter(|_| !told[lane as usize]) else {
                    continue;
                };
                let said = channel.post(&Give::End { steps }).and_then(|()| channel.flush());
                told[lane as usize] = true;
                if let Err(fault) = said {
                    self.down(lane, &fault);
                }
            }
            if again() {
                return Err(StreamError::stopped(&self.ways.side, "the program gave up"));
            }
            super::wait(&self.ways, &|_| false, SLICE)?;
        }
        self.answer();
        Ok(())
    }

    fn abort(&mut self, why: &str) {
        if self.broke.is_some() {
            self.answer();
        } else if !self.over {
            self.give_up(why);
        }
        self.over = true;
    }
}

impl Drop for FarLanes {
    fn drop(&mut self) {
        // Before it came to sending.
        self.abort("the program there does not transmit");
    }
}

/// Waits until something comes.
pub(super) fn wait_items(items: &mut [PollItem<'_>], most: Duration) -> Result<(), StreamError> {
    poll(items, Some(most)).map(drop).map_err(|e| StreamError::System { what: e.to_string() })
}
