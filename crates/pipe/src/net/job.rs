//! A writer's end of a connection to a reader unit: a step goes out as far as the socket takes it, and on
//! when it takes more.

use super::channel::Channel;
use super::route::{Cursor, End, Piece, Route, FRAME};
use super::store::Store;
use super::wire::{LaneOpen, Want};
use crate::work::Work;
use polyduct_copy::Kernels;
use polyduct_message::link::net::LinkFault;
use polyduct_message::LinkError;
use polyduct_os::{poll::PollItem, segment::Segment};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Slices in one system call.
const SLICES: usize = 64;
/// Bytes that go to one reader before another has its turn.
const TURN: usize = 1 << 20;

/// What all of them send from.
pub struct Stock<'a> {
    /// The slots.
    pub store: &'a Store,
    /// Bytes of one.
    pub len: usize,
    /// Whether readers say which steps they want: the queue may drop some, or sizes change.
    pub wants: bool,
    /// What gathers.
    pub kernels: Kernels,
}

/// A writer unit's end of a lane to a reader unit, as a thread serves it.
pub trait Serves: Send {
    /// The reader program and its unit.
    fn of(&self) -> (u32, u32);

    /// What to wait for.
    fn item(&self) -> PollItem<'_>;

    /// Whether nothing can be done before the socket takes more.
    fn is_stuck(&self) -> bool;

    /// When to [serve](Serves::serve) it though nothing happens.
    fn deadline(&self) -> Option<Duration>;

    /// Sends what there is to send; `ready` says whether its socket has something new. Returns whether there
    /// may be more at once.
    ///
    /// # Errors
    /// Why the connection is of no further use.
    fn serve(&mut self, ready: bool, stock: &Stock<'_>) -> Result<bool, LinkFault>;

    /// It is of no further use.
    fn end(self: Box<Self>, store: &Store);
}

/// A step that is being sent.
struct Sending {
    memory: Arc<Segment>,
    header: [u8; 16],
    headed: usize,
    cursor: Cursor,
    /// Runs of the slot that come next.
    runs: VecDeque<Range<usize>>,
    /// What comes next in the frame.
    framed: Range<usize>,
}

/// A connection to a reader unit.
pub struct Job {
    of: (u32, u32),
    channel: Channel,
    route: Route,
    /// Where sizes change: what the reader unit gets from all writer units, and the number of this one.
    work: Option<(Box<Work>, u32)>,
    next: u64,
    /// Where the reader says so: the one that it waits for.
    wanted: Option<u64>,
    sending: Option<Sending>,
    frame: Vec<u8>,
}

impl Job {
    /// A connection on which a unit asks for its part of the steps from `from` on, of which writer unit `me`
    /// has this: says that they come.
    pub fn new(
        of: (u32, u32),
        mut channel: Channel,
        (work, me): (Work, u32),
        from: u64,
    ) -> Result<Job, LinkFault> {
        let route = route(&work, me);
        channel.post(&LaneOpen { bytes: route.bytes() })?;
        let work = work.changes().then(|| (Box::new(work), me));
        Ok(Job { of, channel, route, work, next: from, wanted: None, sending: None, frame: Vec::new() })
    }

    /// Has the route of a step of which the writers said this.
    fn size(&mut self, said: &[u64]) -> Result<(), LinkFault> {
        let Some((work, me)) = &mut self.work else { return Ok(()) };
        match work.at_step(said) {
            Ok(true) => self.route = route(work, *me),
            Ok(false) => {}
            Err(_) => return Err(LinkError::OutOfTurn { what: "sizes that nobody can have said" }.into()),
        }
        Ok(())
    }
}

impl Serves for Job {
    fn of(&self) -> (u32, u32) {
        self.of
    }

    fn item(&self) -> PollItem<'_> {
        match self.is_stuck() {
            true => PollItem::writable(&self.channel),
            false => PollItem::readable(&self.channel),
        }
    }

    fn is_stuck(&self) -> bool {
        self.sending.is_some() || self.channel.is_backed_up()
    }

    fn end(self: Box<Self>, store: &Store) {
        self.sending.into_iter().for_each(|sending| store.done(sending.memory));
    }

    fn deadline(&self) -> Option<Duration> {
        self.channel.deadline()
    }

    fn serve(&mut self, ready: bool, stock: &Stock<'_>) -> Result<bool, LinkFault> {
        let (mut turn, mut ready) = (TURN, ready);
        loop {
            if !self.channel.flush()? {
                return Ok(false);
            }
            if self.sending.is_none() && !self.begin(std::mem::take(&mut ready), stock)? {
                return Ok(false);
            }
            match self.send(stock)? {
                Sent::Nothing => return Ok(false),
                Sent::Some(n) => turn = turn.saturating_sub(n.max(1)),
                Sent::All => {
                    if let Some(sending) = self.sending.take() {
                        stock.store.done(sending.memory);
                    }
                    self.next += 1;
                }
            }
            if turn == 0 {
                return Ok(true);
            }
        }
    }
}

impl Job {
    /// Takes the next step, if there is one to send.
    fn begin(&mut self, ready: bool, stock: &Stock<'_>) -> Result<bool, LinkFault> {
        let wanted = if ready || stock.wants { self.channel.next::<Want>()? } else { None };
        let memory = match (stock.wants, wanted) {
            (false, None) => stock.store.find(self.next),
            (false, Some(_)) => {
                return Err(LinkError::OutOfTurn { what: "a step that comes by itself" }.into())
            }
            (true, wanted) => {
                if let Some(want) = &wanted {
                    self.size(&want.said)?;
                }
                self.wanted = wanted.map(|want| want.step).or(self.wanted);
                self.next = self.wanted.unwrap_or(self.next);
                // One that replaces another fills it anew.
                self.wanted.and_then(|step| stock.store.find(step))
            }
        };
        let Some(memory) = memory else { return Ok(false) };
        self.wanted = None;
        let mut header = [0; 16];
        header[..8].copy_from_slice(&self.next.to_le_bytes());
        header[8..].copy_from_slice(&self.route.bytes().to_le_bytes());
        let (cursor, runs) = (Cursor::default(), VecDeque::with_capacity(SLICES));
        self.sending = Some(Sending { memory, header, headed: 0, cursor, runs, framed: 0..0 });
        Ok(true)
    }

    /// Sends as much of the step as one system call takes.
    fn send(&mut self, stock: &Stock<'_>) -> Result<Sent, LinkFault> {
        let Job { sending, route, frame, channel, .. } = self;
        let Some(sending) = sending else { return Ok(Sent::All) };
        sending.advance(route, frame, stock)?;
        let slot = sending.memory.slice(0..stock.len).unwrap_or_default();
        let mut parts = Vec::with_capacity(SLICES + 1);
        parts.push(IoSlice::new(&sending.header[sending.headed..]));
        parts.extend(sending.runs.iter().map(|run| IoSlice::new(slot.get(run.clone()).unwrap_or_default())));
        parts.push(IoSlice::new(&frame[sending.framed.clone()]));
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() {
            return Ok(Sent::All);
        }
        let sent = channel.send(&parts)?;
        drop(parts);
        let Some(n) = sent else { return Ok(Sent::Nothing) };
        sending.went(n);
        Ok(Sent::Some(n))
    }
}

/// What this writer unit has for the reader unit.
fn route(work: &Work, me: u32) -> Route {
    let mine = work.supplies.iter().find(|supply| supply.unit == me);
    mine.map_or_else(|| Route::nothing(End::Gather), |supply| Route::new(supply, End::Gather))
}

enum Sent {
    Some(usize),
    Nothing,
    All,
}

impl Sending {
    /// Looks what comes next: runs up to the next frame, and that.
    fn advance(&mut self, route: &Route, frame: &mut Vec<u8>, stock: &Stock<'_>) -> Result<(), LinkFault> {
        while self.framed.is_empty() && self.runs.len() < SLICES {
            match route.next(&mut self.cursor) {
                Some(Piece::Run { at, .. }) => self.runs.push_back(at),
                Some(Piece::Frame { parts, len }) => {
                    frame.resize(FRAME as usize, 0);
                    let slot = self.memory.slice(0..stock.len).unwrap_or_default();
                    let gathered = route.gather(stock.kernels, &parts, slot, &mut frame[..len]);
                    gathered.map_err(|_| LinkError::OutOfTurn { what: "a route that leaves its slot" })?;
                    self.framed = 0..len;
                }
                None => break,
            }
        }
        Ok(())
    }

    /// So many bytes went.
    fn went(&mut self, mut n: usize) {
        let head = n.min(self.header.len() - self.headed);
        self.headed += head;
        n -= head;
        while let Some(run) = self.runs.front_mut().filter(|_| n > 0) {
            let went = n.min(run.len());
            run.start += went;
            n -= went;
            if run.start == run.end {
                self.runs.pop_front();
            }
        }
        self.framed.start += n.min(self.framed.len());
    }
}
