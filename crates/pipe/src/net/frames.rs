//! The bytes of a step as they come from a writer unit over the network: they land where they belong.

use super::channel::Channel;
use super::route::{Cursor, FramePart, Piece, Route, FRAME};
use super::wire::{LaneOpen, Want};
use polyduct_copy::Kernels;
use polyduct_message::link::net::LinkFault;
use polyduct_message::LinkError;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::ops::Range;

/// Runs that one system call fills, at most.
const RUNS: usize = 64;
/// Bytes that one lane takes before the next has its turn.
const TURN: usize = 1 << 20;

/// A connection over which a writer unit sends.
pub struct Frames {
    channel: Channel,
    cursor: Cursor,
    header: [u8; 16],
    have: usize,
    /// Runs of the reader's parts that come next, each with its array.
    runs: VecDeque<(usize, Range<usize>)>,
    /// A frame that comes next: its parts, its length, and what has come of it.
    frame: Option<(Vec<FramePart>, usize, usize)>,
    buffer: Vec<u8>,
    done: bool,
}

impl Frames {
    /// A connection whose writer has been told what for.
    pub fn new(channel: Channel) -> Frames {
        Frames {
            channel,
            cursor: Cursor::default(),
            header: [0; 16],
            have: 0,
            runs: VecDeque::new(),
            frame: None,
            buffer: Vec::new(),
            done: false,
        }
    }

    /// The connection, to wait for.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Whether the writer has opened its end of a lane, whose steps have those of this route, or any number
    /// of bytes.
    ///
    /// # Errors
    /// It speaks of another; the connection is gone.
    pub fn is_open(&mut self, route: Option<&Route>) -> Result<bool, LinkFault> {
        self.channel.flush()?;
        let Some(LaneOpen { bytes }) = self.channel.next()? else { return Ok(false) };
        route.map_or(Ok(()), |route| check_len(bytes, route))?;
        Ok(true)
    }

    /// Asks for a step, of which the writers said this.
    pub fn want(&mut self, step: u64, said: &[u64]) -> Result<(), LinkFault> {
        self.channel.post(&Want { step, said: said.to_vec() })
    }

    /// From now on the next step's bytes are awaited.
    pub fn begin(&mut self) {
        (self.have, self.cursor, self.done) = (0, Cursor::default(), false);
    }

    /// Whether all bytes of the step have come.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Takes what has come of `step` into `memory`, a part for each array. Returns whether there may be more at once. `fruitless` is 0
    /// once something has come.
    ///
    /// # Errors
    /// Why the connection is of no further use.
    pub fn receive(
        &mut self,
        route: &Route,
        step: u64,
        memory: &mut [&mut [u8]],
        kernels: Kernels,
        fruitless: &mut u32,
    ) -> Result<bool, LinkFault> {
        self.channel.flush()?;
        let mut turn = TURN;
        while !self.done && turn > 0 {
            let n = if self.have < self.header.len() {
                let n = self.channel.recv(&mut [IoSliceMut::new(&mut self.header[self.have..])])?;
                self.have += n.unwrap_or(0);
                if self.have == self.header.len() {
                    self.check_header(step, route)?;
                    self.advance(route);
                }
                n
            } else if let Some((parts, len, have)) = &mut self.frame {
                let n = self.channel.recv(&mut [IoSliceMut::new(&mut self.buffer[*have..*len])])?;
                *have += n.unwrap_or(0);
                if have == len {
                    let scattered = route.scatter(kernels, parts, &self.buffer[..*len], memory);
                    scattered.map_err(|_| LinkError::OutOfTurn { what: "a route that leaves its array" })?;
                    self.frame = None;
                    self.advance(route);
                }
                n
            } else {
                let n = self.fill_runs(memory)?;
                self.came(n.unwrap_or(0));
                if self.runs.len() < RUNS / 2 {
                    self.advance(route);
                }
                n
            };
            match n {
                Some(n) => {
                    *fruitless = 0;
                    turn = turn.saturating_sub(n.max(1));
                }
                None => return Ok(false),
            }
        }
        Ok(!self.done)
    }

    fn check_header(&self, step: u64, route: &Route) -> Result<(), LinkError> {
        let word = |at: usize| self.header[at..].first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        check_step(word(0), step)?;
        check_len(word(8), route)
    }

    /// Looks what comes next. Runs are collected up to the next frame.
    fn advance(&mut self, route: &Route) {
        if self.frame.is_some() {
            return;
        }
        while self.runs.len() < RUNS {
            let mut ahead = self.cursor;
            match route.next(&mut ahead) {
                Some(Piece::Run { array, at }) => self.runs.push_back((array, at)),
                Some(Piece::Frame { parts, len }) if self.runs.is_empty() => {
                    self.buffer.resize(FRAME as usize, 0);
                    self.frame = Some((parts, len, 0));
                    self.cursor = ahead;
                    return;
                }
                Some(Piece::Frame { .. }) => return,
                None => {
                    self.done = self.runs.is_empty();
                    return;
                }
            }
            self.cursor = ahead;
        }
    }

    fn fill_runs(&mut self, memory: &mut [&mut [u8]]) -> Result<Option<usize>, LinkFault> {
        let mut rooms = Vec::with_capacity(self.runs.len());
        let mut memory = memory.iter_mut().enumerate();
        // What is left of the array's part, and where that begins.
        let (mut now, mut rest, mut at) = (None, &mut [][..], 0);
        for (array, run) in &self.runs {
            if now != Some(*array) {
                // Those of an array that lies further back wait for the next call.
                let Some((_, part)) = memory.find(|(other, _)| other == array) else { break };
                (now, rest, at) = (Some(*array), part, 0);
            }
            // As do those behind one that lies further back.
            let Some(skip) = run.start.checked_sub(at) else { break };
            let Some((_, from)) = std::mem::take(&mut rest).split_at_mut_checked(skip) else { break };
            let Some((room, behind)) = from.split_at_mut_checked(run.len()) else { break };
            rooms.push(IoSliceMut::new(room));
            (rest, at) = (behind, run.end);
        }
        if rooms.is_empty() {
            return Err(LinkError::OutOfTurn { what: "a route that leaves its array" }.into());
        }
        self.channel.recv(&mut rooms)
    }

    fn came(&mut self, mut n: usize) {
        while let Some((_, run)) = self.runs.front_mut() {
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

/// Whether the writer speaks of the step that unit 0 has said is complete.
pub fn check_step(found: u64, step: u64) -> Result<(), LinkError> {
    let (what, expected) = ("step", "the one that is complete");
    match found == step {
        true => Ok(()),
        false => Err(LinkError::BadField { what, found, expected }),
    }
}

fn check_len(found: u64, route: &Route) -> Result<(), LinkError> {
    let (what, expected) = ("length of a part", "the bytes that the plan says");
    match found == route.bytes() {
        true => Ok(()),
        false => Err(LinkError::BadField { what, found, expected }),
    }
}
