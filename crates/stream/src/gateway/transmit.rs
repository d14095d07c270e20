//! From a program to lanes: one thread fills a buffer while the others are in the sockets.

use super::tcp::Lane;
use super::Lease;
use crate::execution::{Fill, Send};
use crate::{Deal, Execution, Format, StreamError};
use polyduct_os::poll::{poll, PollItem};
use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

/// How long one wait takes, for interrupts to be seen.
const SLICE: Duration = Duration::from_millis(100);
/// How long the end of a stream waits for a receiver to take what is left.
pub const FINISH: Duration = Duration::from_secs(60);

/// What goes wrong on the program's side.
pub type ProgramError = Box<dyn std::error::Error + std::marker::Send + Sync>;

/// A parallel program's steps, as a gateway takes them.
pub trait Source {
    /// Waits for the next step: bytes of it, `None` at the end.
    ///
    /// # Errors
    /// The program's.
    fn open(&mut self) -> Result<Option<u64>, ProgramError>;

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

/// A stream to lanes.
pub struct Transmit<'a, S> {
    /// The program.
    pub source: S,
    /// The place, as errors name it.
    pub place: String,
    /// What goes before each step.
    pub prefix: Vec<u8>,
    lease: Lease,
    lanes: Vec<(Lane, Option<Send>)>,
    execution: Execution,
    buffers: Vec<Buffer>,
    again: &'a dyn Fn() -> bool,
}

impl<'a, S: Source> Transmit<'a, S> {
    /// A stream whose steps are cut as `format` says, over as many connections as that has lanes.
    pub fn new(
        (source, place, prefix): (S, String, Vec<u8>),
        lease: Lease,
        sockets: Vec<TcpStream>,
        (format, buffers): (Format, u32),
        again: &'a dyn Fn() -> bool,
    ) -> Transmit<'a, S> {
        let lanes = sockets.into_iter().map(|socket| (Lane::new(socket), None)).collect();
        let execution = Execution::new(format, Deal::Fixed, buffers);
        let buffers = (0..buffers).map(|_| Buffer::default()).collect();
        Transmit { source, place, prefix, lease, lanes, execution, buffers, again }
    }

    /// Moves steps until the program ends; gives how many.
    ///
    /// # Errors
    /// [`StreamError`]: the receiver's, or the program's.
    pub fn run(&mut self) -> Result<u64, StreamError> {
        let mut steps = 0;
        while let Some(len) = self.source.open()? {
            let adu = self.lease.begin(len, self.again)?;
            self.execution.grant(adu, len);
            while self.execution.take_moved().is_none() {
                let filled = self.fill()?;
                let sent = self.send(adu)?;
                if !filled && !sent {
                    self.wait()?;
                }
            }
            self.source.pass()?;
            self.lease.moved()?;
            steps += 1;
            if !self.lease.holds() {
                self.buffers.iter_mut().for_each(|buffer| buffer.bytes = Vec::new());
            }
        }
        for (lane, _) in &mut self.lanes {
            let finished = lane.finish(FINISH, self.again);
            match finished {
                Ok(true) => {}
                Ok(false) => {
                    return Err(StreamError::Stalled {
                        place: self.place.clone(),
                        step: steps,
                        waited: FINISH,
                    })
                }
                Err(source) => {
                    return Err(StreamError::Broken { place: self.place.clone(), step: steps, source })
                }
            }
        }
        self.lease.no_more()?;
        Ok(steps)
    }

    /// Fills one buffer, if one is free.
    fn fill(&mut self) -> Result<bool, StreamError> {
        let Some(Fill { buffer, at, .. }) = self.execution.next_fill() else { return Ok(false) };
        let into = &mut self.buffers[buffer as usize];
        into.lies = at.is_empty() || self.source.lies(&at)?;
        if !into.lies {
            into.bytes.resize((at.end - at.start) as usize, 0);
            self.source.copy(&at, &mut into.bytes)?;
        }
        self.execution.filled(buffer);
        Ok(true)
    }

    /// Goes on with what each lane has; whether anything was done.
    fn send(&mut self, step: u64) -> Result<bool, StreamError> {
        let mut any = false;
        for (number, (lane, sending)) in self.lanes.iter_mut().enumerate() {
            let number = number as u32;
            while let Some(send) = sending.take().or_else(|| self.execution.next_send(number)) {
                let buffer = &self.buffers[send.buffer as usize];
                let data = match buffer.lies {
                    true => self.source.lie(&send.tu),
                    false => &buffer.bytes,
                };
                let at = (send.at.start - send.tu.start) as usize..(send.at.end - send.tu.start) as usize;
                let data = data.get(at).unwrap_or_default();
                let header = if send.at.start == 0 { &self.prefix[..] } else { &[] };
                match lane.go_on(header, data) {
                    Ok(true) => {
                        self.execution.sent(number, send.adu, &send.at);
                        any = true;
                    }
                    Ok(false) => {
                        *sending = Some(send);
                        break;
                    }
                    Err(source) => return Err(broken(&self.place, step, source)),
                }
            }
        }
        Ok(any)
    }

    /// Waits until a lane takes more.
    fn wait(&mut self) -> Result<(), StreamError> {
        let busy = self.lanes.iter().filter(|(_, sending)| sending.is_some());
        let mut items: Vec<PollItem<'_>> = busy.map(|(lane, _)| PollItem::writable(lane.socket())).collect();
        if (self.again)() {
            return Err(StreamError::Stopped { why: "the program gave up".into() });
        }
        let waited = poll(&mut items, Some(SLICE));
        waited.map(drop).map_err(|e| StreamError::System { what: e.to_string() })
    }
}

fn broken(place: &str, step: u64, source: io::Error) -> StreamError {
    match source.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            StreamError::Closed { place: place.to_owned(), step }
        }
        _ => StreamError::Broken { place: place.to_owned(), step, source },
    }
}
