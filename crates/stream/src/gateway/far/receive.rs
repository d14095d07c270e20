//! Steps from a gateway at another site.
//!
//! The units of the step that the program is to have next wait for its slot, and go straight there; those of later steps
//! wait in memory, as far as this end said that it has room.

use super::lane::{Side, Ways};
use super::pieces::Pieces;
use super::wire::{Give, Offer, Take, TEXT_BYTES};
use crate::gateway::receive::Sink;
use crate::gateway::Lease;
use crate::{Adu, StreamError};
use polyduct_message::link::net::LinkFault;
use polyduct_message::meeting::{Within, SLICE};
use polyduct_os::{clock, OsError};
use std::collections::BTreeMap;
use std::io::IoSliceMut;

/// Bytes of steps that may wait for those before them; and how many steps, at least and at most.
const AHEAD: (u64, u64, u64) = (32 << 20, 2, 1024);
/// Pieces that are told of on a new lane, at most: others come again.
const TOLD: usize = 4096;
/// Bytes that are read at once where they are not needed.
const SCRATCH: u32 = 64 << 10;

/// A unit that is coming over a lane.
#[derive(Clone, Debug)]
struct Coming {
    adu: u64,
    at: u64,
    len: u32,
    have: u32,
}

/// Steps that come over lanes.
pub struct FarSteps {
    ways: Ways,
    coming: Vec<Option<Coming>>,
    offer: Option<Offer>,
    adu: Adu,
    /// The step that the program is to have next, and what is here of it once there is a slot.
    next: u64,
    now: Option<Pieces>,
    /// Those after it, and that one before: what is here of their bytes, up to the last.
    later: BTreeMap<u64, (Vec<u8>, Pieces)>,
    room: u64,
    end: Option<u64>,
    /// Bytes of units that are here already, which come again.
    again: Vec<u8>,
    /// Why the other end gave up.
    broke: Option<String>,
    /// Both ends know how it ended, as far as this one can have that.
    over: bool,
}

impl FarSteps {
    /// Waits until a lane is up, and the other end has said what the stream has.
    ///
    /// # Errors
    /// [`StreamError::Connect`] with what came of the last attempt.
    pub fn meet(side: Side, within: Within<'_>) -> Result<FarSteps, StreamError> {
        let start = clock::now();
        let ways = super::meet(side, within)?;
        let coming = vec![None; ways.lanes.len()];
        let mut steps = FarSteps {
            ways,
            coming,
            offer: None,
            adu: Adu::Fixed(0),
            next: 0,
            now: None,
            later: BTreeMap::new(),
            room: 0,
            end: None,
            again: Vec::new(),
            broke: None,
            over: false,
        };
        loop {
            steps.look(&mut [])?;
            if steps.offer.is_some() {
                break;
            }
            let Some(left) = within.left(start) else {
                let waited = clock::now().saturating_sub(start);
                let source = std::io::Error::new(
                    std::io::ErrorKind::TimedOut,
                    "the program there has not opened its port",
                );
                return Err(StreamError::Connect { place: steps.ways.side.to_string(), waited, source });
            };
            super::wait(&steps.ways, &|_| false, left.slice())?;
        }
        Ok(steps)
    }

    /// What the stream has.
    pub fn offer(&self) -> Option<&Offer> {
        self.offer.as_ref()
    }

    /// Steps have so many bytes: says how many there is room for.
    pub fn are_of(&mut self, adu: Adu) {
        self.adu = adu;
        self.make_room();
    }

    fn make_room(&mut self) {
        let ahead = (AHEAD.0 / self.adu.most().max(1)).clamp(AHEAD.1, AHEAD.2);
        self.room = self.next + ahead;
        let room = self.room;
        (0..self.coming.len() as u32).for_each(|lane| self.say(lane, &Take::Room(room)));
    }

    fn say(&mut self, lane: u32, what: &Take) {
        let Some(channel) = self.ways.channel(lane) else { return };
        match channel.post(what).and_then(|()| channel.flush()) {
            // What came before the other end closed it is read first, and whoever reads learns of the end.
            Ok(_) | Err(LinkFault::System(OsError::PeerClosed)) => {}
            Err(fault) => self.down(lane, &fault),
        }
    }

    fn down(&mut self, lane: u32, fault: &LinkFault) {
        tracing::warn!(stream = %self.ways.side, lane, %fault, "a lane broke");
        self.ways.broke(lane, fault);
        self.cut_short(lane);
    }

    /// What has come of a unit is here, though its lane is gone.
    fn cut_short(&mut self, lane: u32) {
        let Some(Coming { adu, at, have: have @ 1.., .. }) = self.coming[lane as usize].take() else {
            return;
        };
        if let Some(pieces) = self.pieces(adu) {
            pieces.add(&(at..at + u64::from(have)));
        }
    }

    /// Says on a new lane what is here, and for what there is room, once that is known.
    fn greet(&mut self, lane: u32) {
        if self.room == 0 {
            return;
        }
        let now = self.now.iter().map(|pieces| (self.next, pieces));
        let later = self.later.iter().map(|(&adu, (_, pieces))| (adu, pieces));
        let here = now.chain(later).flat_map(|(adu, pieces)| pieces.here().map(move |at| (adu, at)));
        let here = here.map(|(adu, at)| Take::Here { adu, at: at.start, len: at.end - at.start });
        let past = (self.next > 0).then_some(Take::Past(self.next));
        let words = past.into_iter().chain(here.take(TOLD)).chain([Take::Room(self.room)]);
        let words: Vec<Take> = words.collect();
        let Some(channel) = self.ways.channel(lane) else { return };
        let said = words.iter().try_for_each(|word| channel.post(word));
        if let Err(fault) = said.and_then(|()| channel.flush()) {
            self.down(lane, &fault);
        }
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

    /// Tells the other end that the stream broke, and waits a little until it knows.
    pub fn abort(&mut self, why: &str) {
        if self.broke.is_some() {
            for lane in 0..self.coming.len() as u32 {
                self.ways.say(lane, &Take::Heard);
            }
        } else if !self.over {
            self.part(&Take::Broke(why.to_owned()));
        }
        self.over = true;
    }

    /// Says the last word over each lane until it is heard. What comes meanwhile is read, since the system
    /// throws away what was said over a connection that is closed with something unread.
    fn part(&mut self, word: &Take) {
        let (start, mut told) = (clock::now(), vec![false; self.coming.len()]);
        while !self.over {
            let left = super::FAREWELL.saturating_sub(clock::now().saturating_sub(start));
            if left.is_zero() {
                return;
            }
            loop {
                match self.ways.poll(clock::now()) {
                    Ok(Some(lane)) => (told[lane as usize], self.coming[lane as usize]) = (false, None),
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
            for lane in 0..self.coming.len() as u32 {
                let told = &mut told[lane as usize];
                *told = self.ways.is_up(lane) && (*told || self.ways.say(lane, word));
                let was_told = *told;
                match self.pass_over(lane) {
                    Ok(heard) => self.over |= heard,
                    Err(fault) => {
                        // An end that gives up in the middle of a unit cannot answer but by this.
                        self.over |= was_told && matches!(word, Take::Broke(_));
                        self.ways.broke(lane, &fault);
                    }
                }
            }
            if !self.over && super::wait(&self.ways, &|_| false, left).is_err() {
                return;
            }
        }
    }

    /// Reads what comes over a lane, and throws it away; whether it is that the other end has heard the last
    /// word.
    fn pass_over(&mut self, lane: u32) -> Result<bool, LinkFault> {
        let Some(channel) = self.ways.channel(lane) else { return Ok(false) };
        loop {
            if let Some(coming) = &mut self.coming[lane as usize] {
                while coming.have < coming.len {
                    self.again.resize((coming.len - coming.have).min(SCRATCH) as usize, 0);
                    let into = &mut self.again[..];
                    let Some(more) = channel.recv(&mut [IoSliceMut::new(into)])? else { return Ok(false) };
                    coming.have += more as u32;
                }
            }
            self.coming[lane as usize] = None;
            match channel.hear()? {
                None => return Ok(false),
                Some(Give::Unit { adu, at, len, .. }) => {
                    self.coming[lane as usize] = Some(Coming { adu, at, len, have: 0 });
                }
                Some(Give::Heard | Give::Broke(_)) => return Ok(true),
                Some(Give::Offer(_) | Give::End { .. }) => {}
            }
        }
    }

    fn carry(
        &mut self,
        sink: &mut dyn Sink,
        lease: &Lease,
        stop: &dyn Fn() -> bool,
    ) -> Result<u64, StreamError> {
        loop {
            // Something of the next step, or that there is none.
            let len = loop {
                if self.end == Some(self.next) {
                    lease.no_more()?;
                    return Ok(self.next);
                }
                if let Some((_, pieces)) = self.later.get(&self.next) {
                    break pieces.len;
                }
                if !self.look(&mut [])? {
                    self.wait(stop)?;
                }
            };
            lease.offer(len)?;
            lease.wait_begun(stop)?;
            sink.step(len, &mut |slot| self.fill(slot, stop))?;
            lease.moved()?;
            self.next += 1;
            self.now = None;
            self.make_room();
        }
    }

    /// Tells the other end that the program has everything, and waits a little until it knows.
    pub fn done(&mut self) {
        self.part(&Take::Done);
        self.over = true;
    }

    /// Fills the program's slot with the next step.
    fn fill(&mut self, slot: &mut [u8], stop: &dyn Fn() -> bool) -> Result<(), StreamError> {
        if let Some((bytes, pieces)) = self.later.remove(&self.next) {
            let len = bytes.len().min(slot.len());
            slot[..len].copy_from_slice(&bytes[..len]);
            self.now = Some(pieces);
            // What comes of it right now goes on behind what is here.
        }
        while !self.now.as_ref().is_some_and(Pieces::is_whole) {
            if !self.look(slot)? {
                self.wait(stop)?;
            }
        }
        Ok(())
    }

    /// What is here of a step that the program has not had.
    fn pieces(&mut self, adu: u64) -> Option<&mut Pieces> {
        match &mut self.now {
            Some(now) if adu == self.next => Some(now),
            _ => self.later.get_mut(&adu).map(|(_, pieces)| pieces),
        }
    }

    fn wait(&mut self, stop: &dyn Fn() -> bool) -> Result<(), StreamError> {
        if stop() {
            return Err(StreamError::stopped(&self.ways.side, "the program gave up"));
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
            self.cut_short(lane);
            self.greet(lane);
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
                match *known == offer {
                    true => Ok(()),
                    false => Err(side.broken(self.next, "the other end offers something else")),
                }
            }
            Give::Unit { adu, adu_len, at, len } => {
                let fits =
                    self.adu.fits(adu_len) && at.checked_add(len.into()).is_some_and(|end| end <= adu_len);
                let whole = len > 0 || adu_len == 0;
                let is_due = adu > self.next || (adu == self.next && self.now.is_none());
                let most = self.room.min(self.end.unwrap_or(u64::MAX));
                if is_due && adu < most {
                    self.later.entry(adu).or_insert_with(|| (Vec::new(), Pieces::new(adu_len)));
                }
                let differs = self.pieces(adu).is_some_and(|pieces| pieces.len != adu_len);
                self.coming[lane as usize] = Some(Coming { adu, at, len, have: 0 });
                if !fits || !whole || adu >= most || differs {
                    let what = format!("a unit of {len} bytes at {at} of {adu_len} in step {adu}");
                    return Err(self.ways.side.broken(adu, what));
                }
                Ok(())
            }
            Give::End { steps } => {
                let before = *self.end.get_or_insert(steps);
                if before != steps {
                    let what = format!("an end after {steps} steps, which was to be after {before}");
                    return Err(side.broken(self.next, what));
                }
                // Nothing more comes of those that have begun: their rest would be waited for.
                let last = self.later.keys().next_back().map_or(0, |adu| adu + 1);
                if steps < last.max(self.next + u64::from(self.now.is_some())) {
                    let what = format!("an end after {steps} steps, of which there are more");
                    return Err(side.broken(self.next, what));
                }
                Ok(())
            }
            Give::Broke(why) => {
                let why: String = why.chars().take(TEXT_BYTES).collect();
                let error = side.broken(self.next, format!("the other end gave up: {why}"));
                self.broke = Some(why);
                Err(error)
            }
            // An answer to what was not said.
            Give::Heard => Ok(()),
        }
    }

    /// Takes bytes of a unit; `false` where none have come.
    fn take(&mut self, lane: u32, mut coming: Coming, slot: &mut [u8]) -> Result<bool, StreamError> {
        let Coming { adu, at, len, have } = coming;
        if adu == self.next && self.now.is_none() {
            self.coming[lane as usize] = Some(coming);
            return Ok(false);
        }
        let all = at..at + u64::from(len);
        let known = self.pieces(adu).is_none_or(|pieces| pieces.has(&all));
        let place = at as usize + have as usize..at as usize + len as usize;
        let FarSteps { again, later, .. } = self;
        let into = match later.get_mut(&adu) {
            _ if known => {
                again.resize(len as usize, 0);
                again.get_mut(have as usize..)
            }
            None => slot.get_mut(place),
            Some((bytes, pieces)) => {
                make_room(bytes, place.end, pieces.len).and_then(|()| bytes.get_mut(place))
            }
        };
        let Some(into) = into else {
            let what = format!("{}: no room for step {adu}", self.ways.side);
            return Err(StreamError::System { what });
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
                self.coming[lane as usize] = Some(coming);
                self.down(lane, &fault);
                return Ok(true);
            }
        }
        if coming.have < len {
            self.coming[lane as usize] = Some(coming);
            return Ok(true);
        }
        if let Some(pieces) = self.pieces(adu) {
            pieces.add(&all);
        }
        self.say(lane, &Take::Taken { adu, at, len });
        Ok(true)
    }
}

impl Drop for FarSteps {
    fn drop(&mut self) {
        // Before it came to receiving.
        self.abort("the program there does not receive");
    }
}

/// Has memory for the first `end` bytes of a step of `len`: what is said is believed when it comes.
fn make_room(bytes: &mut Vec<u8>, end: usize, len: u64) -> Option<()> {
    if bytes.len() < end {
        bytes.try_reserve_exact(usize::try_from(len).ok()?.saturating_sub(bytes.len())).ok()?;
        bytes.resize(end, 0);
    }
    Some(())
}
