//! From a program to lanes: one thread fills a buffer while others are on their way.

use super::lanes::{Event, Lanes, Went};
use super::Lease;
use crate::execution::{Fill, Send};
use crate::{Deal, Execution, Format, StreamError};
use polyduct_message::meeting::SLICE;
use polyduct_os::clock;
use polyduct_os::poll::{poll, PollItem};
use std::ops::Range;
use std::time::Duration;

/// How soon a program is asked for its next step again, while steps before it are on their way.
const SOON: Duration = Duration::from_millis(1);

/// What goes wrong on the program's side.
pub type ProgramError = Box<dyn std::error::Error + std::marker::Send + Sync>;

/// What came of opening a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It has so many bytes.
    Step(u64),
    /// It is not there yet.
    NotYet,
    /// There are no more.
    End,
}

/// A parallel program's steps, as a gateway takes them.
pub trait Source {
    /// Opens the next step, if it `waits` once that is there.
    ///
    /// # Errors
    /// The program's.
    fn open(&mut self, waits: bool) -> Result<Opened, ProgramError>;

    /// What goes before the open step.
    fn prefix(&self) -> &[u8] {
        &[]
    }

    /// Whether bytes of the step lie in one piece in memory that stays until it is [passed](Source::pass).
    ///
    /// # Errors
    /// The program's.
    fn lies(&mut self, at: &Range<u64>) -> Result<bool, ProgramError>;

    /// Those bytes.
    fn lie(&self, at: &Range<u64>) -> &[u8];

    /// Copies bytes of the step.
    ///
    /// # Errors
    /// The program's.
    fn copy(&mut self, at: &Range<u64>, into: &mut [u8]) -> Result<(), ProgramError>;

    /// Nothing more of the step is needed.
    ///
    /// # Errors
    /// The program's.
    fn pass(&mut self) -> Result<(), ProgramError>;
}

/// What a transfer unit's buffer has.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// The data lie in the program's memory instead.
    lies: bool,
}

/// The step that the program has open.
#[derive(Debug)]
struct Step {
    len: u64,
    /// Its number, once it may move.
    adu: Option<u64>,
    /// Transfer units that are not in a buffer yet.
    missing: u64,
}

/// A stream to lanes.
pub struct Transmit<'a, S, L> {
    /// The program.
    pub source: S,
    lanes: L,
    lease: &'a Lease,
    format: Format,
    execution: Execution,
    buffers: Vec<Buffer>,
    /// What each lane is at.
    sending: Vec<Option<Send>>,
    step: Option<Step>,
    begun: u64,
    again: &'a dyn Fn() -> bool,
}

impl<'a, S: Source, L: Lanes> Transmit<'a, S, L> {
    /// A stream whose steps are cut as `format` says, in so many buffers.
    pub fn new(
        (source, lanes): (S, L),
        lease: &'a Lease,
        (format, buffers): (Format, u32),
        again: &'a dyn Fn() -> bool,
    ) -> Transmit<'a, S, L> {
        let deal = if lanes.confirms() { Deal::Free } else { Deal::Fixed };
        let execution = Execution::new(format, deal, buffers);
        let buffers = (0..buffers).map(|_| Buffer::default()).collect();
        let sending = (0..lanes.count()).map(|_| None).collect();
        Transmit { source, lanes, lease, format, execution, buffers, sending, step: None, begun: 0, again }
    }

    /// Moves steps until the program ends; gives how many. Where it does not get that far, the other end is told.
    ///
    /// # Errors
    /// [`StreamError`]: the receiver's, or the program's.
    pub fn run(&mut self) -> Result<u64, StreamError> {
        let moved = self.carry().and_then(|steps| {
            self.lanes.finish(steps, self.again)?;
            self.lease.no_more()?;
            Ok(steps)
        });
        if let Err(error) = &moved {
            self.lanes.abort(&error.to_string());
        }
        moved
    }

    fn carry(&mut self) -> Result<u64, StreamError> {
        let (mut moved, mut ended) = (0, false);
        loop {
            let idle = self.execution.is_idle() && self.step.is_none();
            if !ended && self.step.is_none() && (idle || self.lanes.confirms()) {
                match self.source.open(idle)? {
                    Opened::Step(len) => {
                        self.lease.offer(len)?;
                        self.step = Some(Step { len, adu: None, missing: self.format.tus(len) });
                    }
                    Opened::NotYet => {}
                    Opened::End => ended = true,
                }
            }
            if ended && self.execution.is_idle() && self.step.is_none() {
                return Ok(moved);
            }
            let mut any = self.begin()?;
            any |= self.fill()?;
            any |= self.send()?;
            any |= self.hear()?;
            while self.execution.take_moved().is_some() {
                self.moved()?;
                (moved, any) = (moved + 1, true);
            }
            if !any {
                self.wait()?;
            }
        }
    }

    /// Has the open step move, once it may.
    fn begin(&mut self) -> Result<bool, StreamError> {
        let idle = self.execution.is_idle();
        let Some(step) = self.step.as_mut().filter(|step| step.adu.is_none()) else { return Ok(false) };
        if !self.lanes.has_room(self.begun) {
            return Ok(false);
        }
        // Where nothing is on its way there is nothing else to see to.
        let begun = match idle && !self.lanes.confirms() {
            true => Some(self.lease.wait_begun(self.again)?),
            false => self.lease.begun()?,
        };
        let Some(adu) = begun else { return Ok(false) };
        step.adu = Some(adu);
        self.begun = adu + 1;
        self.execution.grant(adu, step.len);
        Ok(true)
    }

    /// Fills one buffer, if one is free.
    fn fill(&mut self) -> Result<bool, StreamError> {
        let Some(Fill { buffer, at, .. }) = self.execution.next_fill() else { return Ok(false) };
        let into = &mut self.buffers[buffer as usize];
        into.lies = at.is_empty() || (self.source.lies(&at)? && !self.lanes.confirms());
        if !into.lies {
            into.bytes.resize((at.end - at.start) as usize, 0);
            self.source.copy(&at, &mut into.bytes)?;
        }
        self.execution.filled(buffer);
        let Some(step) = &mut self.step else { return Ok(true) };
        step.missing -= 1;
        if step.missing == 0 && self.lanes.confirms() {
            self.step = None;
            self.source.pass()?;
        }
        Ok(true)
    }

    /// Goes on with what each lane has; whether anything was done.
    fn send(&mut self) -> Result<bool, StreamError> {
        let mut any = false;
        for lane in 0..self.lanes.count() {
            while self.lanes.is_up(lane) {
                let sending = &mut self.sending[lane as usize];
                let Some(send) = sending.take().or_else(|| self.execution.next_send(lane)) else { break };
                let buffer = &self.buffers[send.buffer as usize];
                let data = match buffer.lies {
                    true => self.source.lie(&send.tu),
                    false => &buffer.bytes,
                };
                let at = (send.at.start - send.tu.start) as usize..(send.at.end - send.tu.start) as usize;
                let data = data.get(at).unwrap_or_default();
                let header = if send.at.start == 0 { self.source.prefix() } else { &[] };
                match self.lanes.go_on(lane, &send, header, data)? {
                    Went::Arrived => self.execution.sent(lane, send.adu, &send.at),
                    Went::Sent => {}
                    Went::Partly => {
                        *sending = Some(send);
                        break;
                    }
                    Went::Down => self.execution.lane_failed(lane),
                }
                any = true;
            }
        }
        Ok(any)
    }

    /// Takes what the lanes tell; whether they told anything.
    fn hear(&mut self) -> Result<bool, StreamError> {
        let mut any = false;
        while let Some(event) = self.lanes.poll(clock::now())? {
            match event {
                Event::Taken { lane, adu, at } => self.execution.sent(lane, adu, &at),
                Event::Here { adu, at } => self.execution.here(adu..adu + 1, &at, &self.sending),
                Event::Past(adu) => self.execution.here(0..adu, &(0..u64::MAX), &self.sending),
                Event::Down(lane) => {
                    self.sending[lane as usize] = None;
                    self.execution.lane_failed(lane);
                }
            }
            any = true;
        }
        Ok(any)
    }

    /// One more step has arrived.
    fn moved(&mut self) -> Result<(), StreamError> {
        if !self.lanes.confirms() {
            self.step = None;
            self.source.pass()?;
        }
        self.lease.moved()?;
        if !self.lease.holds() {
            self.buffers.iter_mut().for_each(|buffer| buffer.bytes = Vec::new());
        }
        Ok(())
    }

    /// Waits until a lane takes more, or tells something.
    fn wait(&mut self) -> Result<(), StreamError> {
        self.lease.check_going(self.again)?;
        let mut items: Vec<PollItem<'_>> = Vec::new();
        self.lanes.items(&|lane| self.sending[lane as usize].is_some(), &mut items);
        // Nobody calls when the next step is there, or may begin.
        let asks = self.lanes.confirms() && self.step.as_ref().is_none_or(|step| step.adu.is_none());
        let most = self.lanes.deadline().map_or(SLICE, |at| at.saturating_sub(clock::now()).min(SLICE));
        let waited = poll(&mut items, Some(if asks { most.min(SOON) } else { most }));
        waited.map(drop).map_err(|e| StreamError::System { what: e.to_string() })?;
        if asks && self.step.is_some() {
            self.lease.check_program()?;
        }
        Ok(())
    }
}
