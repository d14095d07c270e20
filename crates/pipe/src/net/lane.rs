//! A reader's end of a connection to a writer unit: the bytes of a step land where they belong.

use super::channel::Channel;
use super::near::Coming;
use super::redial::Redial;
use super::route::{Cursor, Piece, Route, FRAME};
use super::wire::{LaneOpen, Want};
use crate::threads::Threads;
use polyduct_copy::{Conversion, Dest, Kernels, Source};
use polyduct_layout::OpTable;
use polyduct_message::link::net::Fault;
use polyduct_message::LinkError;
use polyduct_os::{poll::PollItem, segment::Segment};
use polyduct_slots::Turn;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Runs that one system call fills, at most.
const RUNS: usize = 64;
/// Bytes that one lane takes before the next has its turn.
const TURN: usize = 1 << 20;

/// Whether the writer's slots are mapped.
enum Near {
    /// It sends their bytes.
    No,
    /// That did not succeed.
    Never,
    /// They are on their way.
    Coming(Coming),
    /// They are: of a step comes only that it is there.
    Mapped(Vec<Segment<()>>),
}

/// A connection to a writer unit.
pub struct Lane {
    /// The writer unit.
    pub unit: u32,
    /// Where it was when this unit joined.
    pub addr: SocketAddr,
    channel: Channel,
    route: Route,
    cursor: Cursor,
    header: [u8; 16],
    have: usize,
    /// Runs of the reader's array that come next.
    runs: VecDeque<Range<usize>>,
    /// A frame that comes next: its table, its length, and what has come of it.
    frame: Option<(OpTable, usize, usize)>,
    buffer: Vec<u8>,
    waits: bool,
    open: bool,
    /// Slots of the writer, and bytes of each.
    slots: (u32, usize),
    near: Near,
    /// Connections that brought nothing, one after the other.
    fruitless: u32,
    /// The connection is gone, and another is made.
    pub(super) redial: Option<Redial>,
    /// Where unit 0 had said that the writer unit is when the connection was made, if it had replaced another.
    pub(super) moved: Option<SocketAddr>,
}

impl Lane {
    /// A lane whose writer has been told what for.
    /// It has so many `slots`, of so many bytes.
    pub fn new(unit: u32, addr: SocketAddr, channel: Channel, route: Route, slots: (u32, usize)) -> Lane {
        Lane {
            unit,
            addr,
            channel,
            route,
            cursor: Cursor::default(),
            header: [0; 16],
            have: 0,
            runs: VecDeque::new(),
            frame: None,
            buffer: Vec::new(),
            waits: false,
            open: false,
            slots,
            near: Near::No,
            fruitless: 0,
            redial: None,
            moved: None,
        }
    }

    /// Goes on with another connection, to whoever has replaced the writer unit: what has come of a step
    /// comes again.
    pub fn replace(&mut self, channel: Channel) {
        self.channel = channel;
        self.runs.clear();
        (self.frame, self.open) = (None, false);
        if !matches!(self.near, Near::Never) {
            self.near = Near::No;
        }
        self.fruitless += 1;
        if self.waits {
            self.begin();
        }
    }

    /// How many connections have been made in vain since bytes came last.
    pub fn fruitless(&self) -> u32 {
        self.fruitless
    }

    /// The connection, to wait for.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Whether the writer has opened its end; looks for that.
    pub fn is_open(&mut self) -> Result<bool, Fault> {
        self.channel.flush()?;
        if self.open {
            return Ok(true);
        }
        if matches!(self.near, Near::No | Near::Never) {
            let Some(LaneOpen { bytes, slots }) = self.channel.next()? else { return Ok(false) };
            self.check_len(bytes)?;
            match slots.map(|name| Coming::new(&name, self.slots.0, self.slots.1)) {
                None => {
                    self.open = true;
                    return Ok(true);
                }
                Some(Ok(coming)) => self.near = Near::Coming(coming),
                Some(Err(fault)) => return Err(self.has_no_slots(&fault)),
            }
        }
        // What follows on the connection is about steps.
        if let Near::Coming(coming) = &mut self.near {
            match coming.take() {
                Ok(None) => {}
                Ok(Some(slots)) => (self.near, self.open) = (Near::Mapped(slots), true),
                Err(fault) => return Err(self.has_no_slots(&fault)),
            }
        }
        Ok(self.open)
    }

    /// The slots cannot be mapped: their bytes are asked for, by another connection.
    fn has_no_slots(&mut self, fault: &Fault) -> Fault {
        tracing::warn!(unit = self.unit, %fault, "slots of a unit of this host cannot be mapped");
        self.near = Near::Never;
        LinkError::Closed.into()
    }

    /// Whether the next connection may ask for slots to map.
    pub fn may_map(&self) -> bool {
        !matches!(self.near, Near::Never)
    }

    /// Whether the writer's slots are mapped.
    pub fn is_mapped(&self) -> bool {
        matches!(self.near, Near::Mapped(_))
    }

    /// Where the writer's slots come.
    pub fn coming(&self) -> Option<BorrowedFd<'_>> {
        match &self.near {
            Near::Coming(coming) => Some(coming.as_fd()),
            _ => None,
        }
    }

    /// What to wait for.
    pub fn items(&self) -> impl Iterator<Item = PollItem<'_>> {
        // While slots are on their way the writer may say already which steps are there.
        let (channel, coming) = match &self.near {
            Near::Coming(coming) => (PollItem::hangup(&self.channel), Some(coming.item())),
            _ => (PollItem::readable(&self.channel), None),
        };
        [channel].into_iter().chain(coming)
    }

    /// Asks for a step, where the queue may drop some.
    pub fn want(&mut self, step: u64) -> Result<(), Fault> {
        self.channel.post(&Want { step })
    }

    /// From now on the next step's bytes are awaited.
    pub fn begin(&mut self) {
        (self.waits, self.have, self.cursor) = (true, 0, Cursor::default());
    }

    /// Whether bytes of the step are missing.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Takes what has come of `step` into `part`. Returns whether there may be more at once.
    pub fn receive(
        &mut self,
        Turn { step, slot, .. }: Turn,
        part: &mut [u8],
        (kernels, conversion, threads): (Kernels, Option<Conversion>, Threads),
    ) -> Result<bool, Fault> {
        // It is one that was opened anew where the writer has yet to say so.
        if !self.open && !self.is_open()? {
            return Ok(false);
        }
        self.channel.flush()?;
        let mut turn = TURN;
        while self.waits && turn > 0 {
            let n = if self.have < self.header.len() {
                let n = self.channel.recv(&mut [IoSliceMut::new(&mut self.header[self.have..])])?;
                self.have += n.unwrap_or(0);
                if self.have == self.header.len() {
                    self.check_header(step)?;
                    match &self.near {
                        Near::Mapped(slots) => {
                            let slot = slots.get(slot as usize);
                            let slot = slot.and_then(|slot| slot.slice(0..self.slots.1).ok());
                            let slot =
                                slot.ok_or(LinkError::OutOfTurn { what: "a slot that there is not" })?;
                            self.route.copy((kernels, conversion, threads), slot, part)?;
                            self.waits = false;
                        }
                        _ => self.advance(),
                    }
                }
                n
            } else if let Some((table, len, have)) = &mut self.frame {
                let n = self.channel.recv(&mut [IoSliceMut::new(&mut self.buffer[*have..*len])])?;
                *have += n.unwrap_or(0);
                if have == len {
                    let (src, dst) = (Source::from(&self.buffer[..*len]), Dest::from(&mut *part));
                    let scattered = match conversion {
                        None => kernels.execute(table, src, dst),
                        Some(conversion) => kernels.execute_convert(table, conversion, src, dst),
                    };
                    scattered.map_err(|_| LinkError::OutOfTurn { what: "a route that leaves its array" })?;
                    self.frame = None;
                    self.advance();
                }
                n
            } else {
                let n = self.fill_runs(part)?;
                self.came(n.unwrap_or(0));
                if self.runs.len() < RUNS / 2 {
                    self.advance();
                }
                n
            };
            match n {
                Some(n) => {
                    self.fruitless = 0;
                    turn = turn.saturating_sub(n.max(1));
                }
                None => return Ok(false),
            }
        }
        Ok(self.waits)
    }

    fn check_header(&self, step: u64) -> Result<(), LinkError> {
        let word = |at: usize| self.header[at..].first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        if word(0) != step {
            return Err(LinkError::BadField {
                what: "step",
                found: word(0),
                expected: "the one that is complete",
            });
        }
        self.check_len(word(8))
    }

    fn check_len(&self, found: u64) -> Result<(), LinkError> {
        let (what, expected) = ("length of a part", "the bytes that the plan says");
        match found == self.route.bytes() {
            true => Ok(()),
            false => Err(LinkError::BadField { what, found, expected }),
        }
    }

    /// Looks what comes next. Runs are collected up to the next frame.
    fn advance(&mut self) {
        if self.frame.is_some() {
            return;
        }
        while self.runs.len() < RUNS {
            let mut ahead = self.cursor;
            match self.route.next(&mut ahead) {
                Some(Piece::Run { at, len }) => self.runs.push_back(at..at + len),
                Some(Piece::Frame { table, len }) if self.runs.is_empty() => {
                    self.buffer.resize(FRAME as usize, 0);
                    self.frame = Some((table, len, 0));
                    self.cursor = ahead;
                    return;
                }
                Some(Piece::Frame { .. }) => return,
                None => {
                    self.waits = !self.runs.is_empty();
                    return;
                }
            }
            self.cursor = ahead;
        }
    }

    fn fill_runs(&mut self, part: &mut [u8]) -> Result<Option<usize>, Fault> {
        let mut parts = Vec::with_capacity(self.runs.len());
        let (mut rest, mut at) = (part, 0);
        for run in &self.runs {
            // Those behind one that lies further back wait for the next call.
            let Some(skip) = run.start.checked_sub(at) else { break };
            let Some((_, from)) = rest.split_at_mut_checked(skip) else { break };
            let Some((room, behind)) = from.split_at_mut_checked(run.len()) else { break };
            parts.push(IoSliceMut::new(room));
            (rest, at) = (behind, run.end);
        }
        if parts.is_empty() {
            return Err(LinkError::OutOfTurn { what: "a route that leaves its array" }.into());
        }
        self.channel.recv(&mut parts)
    }

    fn came(&mut self, mut n: usize) {
        while let Some(run) = self.runs.front_mut() {
            let taken = n.min(run.len());
            run.start += taken;
            n -= taken;
            if run.start < run.end {
                return;
            }
            self.runs.pop_front();
        }
    }
}
