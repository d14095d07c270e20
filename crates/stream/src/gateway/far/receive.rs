//! Steps from a gateway at another site.
//!
//! The units of the step that the program is to have next go straight into its slot; those of later steps wait in memory,
//! as far as this end said that it has room.

use super::lane::{Side, Ways};
use super::wire::{Give, Offer, Take, TEXT_BYTES};
use crate::gateway::receive::Sink;
use crate::gateway::Lease;
use crate::StreamError;
use polyduct_message::link::net::LinkFault;
use polyduct_os::clock;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSliceMut;
use std::time::Duration;

/// How long one wait takes, for interrupts to be seen.
const SLICE: Duration = Duration::from_millis(100);
/// Bytes of steps that may wait for those before them; and how many steps, at least and at most.
const AHEAD: (u64, u64, u64) = (32 << 20, 2, 1024);

/// A unit that is coming over a lane.
#[derive(Clone, Debug)]
struct Coming {
    adu: u64,
    at: u64,
    len: u32,
    have: u32,
}

/// A step that is being put together.
#[derive(Debug, Default)]
struct Pieces {
    /// Where units begin that are here, and bytes of them together.
    here: BTreeSet<u64>,
    bytes: u64,
}

/// Steps that come over lanes.
pub struct FarSteps {
    ways: Ways,
    coming: Vec<Option<Coming>>,
    offer: Option<Offer>,
    len: u64,
    /// The step that the program is to have next.
    next: u64,
    now: Pieces,
    /// Those after it.
    later: BTreeMap<u64, (Vec<u8>, Pieces)>,
    room: u64,
    end: Option<u64>,
    /// Bytes of units that are here already, which come again.
    again: Vec<u8>,
}

impl FarSteps {
    /// Waits until a lane is up, and the other end has said what the stream has.
    ///
    /// # Errors
    /// [`StreamError::Connect`] with what came of the last attempt.
    pub fn meet(side: Side, open: Duration, stop: &dyn Fn() -> bool) -> Result<FarSteps, StreamError> {
        let start = clock::now();
        let ways = super::meet(side, open, stop)?;
        let coming = vec![None; ways.lanes.len()];
        let mut steps = FarSteps {
            ways,
            coming,
            offer: None,
            len: 0,
            next: 0,
            now: Pieces::default(),
            later: BTreeMap::new(),
            room: 0,
            end: None,
            again: Vec::new(),
        };
        while steps.offer.is_none() {
            steps.look(&mut [])?;
            let waited = clock::now().saturating_sub(start);
            if steps.offer.is_none() && (waited >= open || stop()) {
                let source = std::io::Error::new(
                    std::io::ErrorKind::TimedOut,
                    "the program there has not opened its port",
                );
                return Err(StreamError::Connect { place: steps.ways.side.to_string(), waited, source });
            }
            if steps.offer.is_none() {
                super::wait(&steps.ways, &|_| false, SLICE)?;
            }
        }
        Ok(steps)
    }

    /// What the stream has.
    pub fn offer(&self) -> Option<&Offer> {
        self.offer.as_ref()
    }

    /// Each step has so many bytes: says how many there is room for.
    pub fn are_of(&mut self, len: u64) {
        self.len = len;
        self.make_room();
    }

    fn make_room(&mut self) {
        let ahead = (AHEAD.0 / self.len.max(1)).clamp(AHEAD.1, AHEAD.2);
        self.room = self.next + ahead;
        let room = self.room;
        (0..self.coming.len() as u32).for_each(|lane| self.say(lane, &Take::Room(room)));
    }

    fn say(&mut self, lane: u32, what: &Take) {
        let Some(channel) = self.ways.channel(lane) else { return };
        if let Err(fault) = channel.post(what).and_then(|()| channel.flush()) {
            self.down(lane, &fault);
        }
    }

    fn down(&mut self, lane: u32, fault: &LinkFault) {
        tracing::warn!(stream = %self.ways.side, lane, %fault, "a lane broke");
        self.ways.broke(lane, fault);
        self.coming[lane as usize] = None;
    }

    /// Moves steps until there are no more; gives how many.
    ///
    /// # Errors
    /// [`StreamError`]: the other end's, or the program's.
    pub fn run(
        &mut self,
        sink: &mut dyn Sink,
        lease: &Lease,
        stop: &dyn Fn() -> bool,
    ) -> Result<u64, StreamError> {
        let moved = self.carry(sink, lease, stop);
        if let Err(error) = &moved {
            self.abort(&error.to_string());
        }
        moved
    }

    /// Tells the other end that the stream broke.
    pub fn abort(&mut self, why: &str) {
        let why = Take::Broke(why.to_owned());
        (0..self.coming.len() as u32).for_each(|lane| self.say(lane, &why));
    }

    fn carry(
        &mut self,
        sink: &mut dyn Sink,
        lease: &Lease,
        stop: &dyn Fn() -> bool,
    ) -> Result<u64, StreamError> {
        loop {
            // Something of the next step, or that there is none.
            while self.end != Some(self.next) && self.now.bytes == 0 && !self.is_whole() {
                if !self.later.contains_key(&self.next) && !self.look(&mut [])? {
                    self.wait(stop)?;
                }
                if self.later.contains_key(&self.next) {
                    break;
                }
            }
            if self.end == Some(self.next) {
                lease.no_more()?;
                return Ok(self.next);
            }
            lease.offer(self.len)?;
            lease.wait_begun(stop)?;
            sink.step(&mut |slot| self.fill(slot, stop))?;
            lease.moved()?;
            self.next += 1;
            self.now = Pieces::default();
            self.make_room();
        }
    }

    /// Tells the other end that the program has everything.
    pub fn done(&mut self) {
        (0..self.coming.len() as u32).for_each(|lane| self.say(lane, &Take::Done));
    }

    fn is_whole(&self) -> bool {
        // Of a step without bytes one unit tells.
        self.now.bytes == self.len && !self.now.here.is_empty()
    }

    /// Fills the program's slot with the next step.
    fn fill(&mut self, slot: &mut [u8], stop: &dyn Fn() -> bool) -> Result<(), StreamError> {
        if let Some((bytes, pieces)) = self.later.remove(&self.next) {
            let len = bytes.len().min(slot.len());
            slot[..len].copy_from_slice(&bytes[..len]);
            self.now = pieces;
            // What comes of it right now goes on behind what is here.
        }
        while !self.is_whole() {
            if !self.look(slot)? {
                self.wait(stop)?;
            }
        }
        Ok(())
    }

    fn wait(&mut self, stop: &dyn Fn() -> bool) -> Result<(), StreamError> {
        if stop() {
            return Err(StreamError::Stopped { why: "the program gave up".into() });
        }
        let (now, borne) = (clock::now(), self.ways.side.borne);
        let down = self.ways.all_down().filter(|(since, _)| now.saturating_sub(*since) > borne);
        if let Some((_, why)) = down {
            let why = format!("no lane for {} s: {why}", borne.as_secs_f64());
            return Err(self.ways.side.broken(self.next, why));
        }
        super::wait(&self.ways, &|_| false, SLICE)
    }

    /// Takes what has come, of the next step into `slot`, where there is one; whether anything came.
    fn look(&mut self, slot: &mut [u8]) -> Result<bool, StreamError> {
        let mut any = false;
        while let Some(lane) = self.ways.poll(clock::now())? {
            self.coming[lane as usize] = None;
            if self.len > 0 || self.room > 0 {
                let room = self.room;
                self.say(lane, &Take::Room(room));
            }
            any = true;
        }
        for lane in 0..self.coming.len() as u32 {
            any |= self.look_at(lane, slot)?;
        }
        Ok(any)
    }

    fn look_at(&mut self, lane: u32, slot: &mut [u8]) -> Result<bool, StreamError> {
        let mut any = false;
        loop {
            if let Some(coming) = self.coming[lane as usize].take() {
                match self.take(lane, coming, slot)? {
                    true => any = true,
                    false => return Ok(any),
                }
                continue;
            }
            let Some(channel) = self.ways.channel(lane) else { return Ok(any) };
            match channel.hear::<Give>() {
                Ok(None) => return Ok(any),
                Ok(Some(said)) => self.heard(lane, said)?,
                Err(fault) => {
                    self.down(lane, &fault);
                    return Ok(any);
                }
            }
            any = true;
        }
    }

    fn heard(&mut self, lane: u32, said: Give) -> Result<(), StreamError> {
        let side = &self.ways.side;
        match said {
            Give::Offer(offer) => {
                let known = self.offer.get_or_insert_with(|| offer.clone());
                let wrong =
                    offer.elem.len() > TEXT_BYTES || offer.shape.len() > TEXT_BYTES || *known != offer;
                match wrong {
                    true => Err(side.broken(self.next, "the other end offers something else")),
                    false => Ok(()),
                }
            }
            Give::Unit { adu, adu_len, at, len } => {
                let fits =
                    adu_len == self.len && at.checked_add(len.into()).is_some_and(|end| end <= adu_len);
                let whole = len > 0 || adu_len == 0;
                if !fits || !whole || adu >= self.room {
                    return Err(
                        side.broken(adu, format!("a unit of {len} bytes at {at} of {adu_len} in step {adu}"))
                    );
                }
                self.coming[lane as usize] = Some(Coming { adu, at, len, have: 0 });
                Ok(())
            }
            Give::End { steps } => {
                self.end = Some(steps);
                (steps >= self.next)
                    .then_some(())
                    .ok_or_else(|| side.broken(self.next, "an end that is over"))
            }
            Give::Broke(why) => {
                let why: String = why.chars().take(TEXT_BYTES).collect();
                Err(side.broken(self.next, format!("the other end gave up: {why}")))
            }
        }
    }

    /// Takes bytes of a unit; `false` where none have come.
    fn take(&mut self, lane: u32, mut coming: Coming, slot: &mut [u8]) -> Result<bool, StreamError> {
        let Coming { adu, at, len, have } = coming;
        let known = adu < self.next
            || (adu == self.next && self.now.here.contains(&at))
            || self.later.get(&adu).is_some_and(|(_, pieces)| pieces.here.contains(&at));
        let at_once = adu == self.next && slot.len() as u64 == self.len && !self.later.contains_key(&adu);
        let place = at as usize + have as usize..at as usize + len as usize;
        let into = match (known, at_once) {
            (true, _) => {
                self.again.resize(len as usize, 0);
                &mut self.again[have as usize..]
            }
            (false, true) => &mut slot[place],
            (false, false) => {
                let all = self.len as usize;
                let (bytes, _) = self.later.entry(adu).or_insert_with(|| (vec![0; all], Pieces::default()));
                &mut bytes[place]
            }
        };
        let Some(channel) = self.ways.channel(lane) else { return Ok(false) };
        let came = match into.is_empty() {
            true => Ok(Some(0)),
            false => channel.recv(&mut [IoSliceMut::new(into)]),
        };
        match came {
            Ok(None) => {
                self.coming[lane as usize] = Some(coming);
                return Ok(false);
            }
            Ok(Some(more)) => coming.have += more as u32,
            Err(fault) => {
                self.down(lane, &fault);
                return Ok(true);
            }
        }
        if coming.have < len {
            self.coming[lane as usize] = Some(coming);
            return Ok(true);
        }
        if !known {
            let pieces = match self.later.get_mut(&adu).filter(|_| !at_once) {
                Some((_, pieces)) => pieces,
                None => &mut self.now,
            };
            if pieces.here.insert(at) {
                pieces.bytes += u64::from(len);
            }
            if pieces.bytes > self.len {
                return Err(self.ways.side.broken(adu, "units that overlap"));
            }
        }
        self.say(lane, &Take::Taken { adu, at, len });
        Ok(true)
    }
}
