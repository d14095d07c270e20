//! From a lane to a program: bytes go from the socket straight into the program's slots.

use super::Lease;
use crate::gateway::transmit::ProgramError;
use crate::StreamError;
use polyduct_message::meeting::SLICE;
use polyduct_os::poll::{poll, PollItem};
use std::io::{self, Read};
use std::net::TcpStream;

/// A parallel program, as a gateway gives it steps.
pub trait Sink {
    /// Waits for room, and has `fill` fill the next step, of `len` bytes, which the program then sees; one that is not filled
    /// whole it never sees.
    ///
    /// # Errors
    /// The program's, and those of `fill`.
    fn step(
        &mut self,
        len: u64,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), StreamError>,
    ) -> Result<(), StreamError>;
}

/// A socket whose bytes are waited for, and counted.
pub struct Incoming<'a> {
    socket: TcpStream,
    again: &'a dyn Fn() -> bool,
}

impl<'a> Incoming<'a> {
    /// Over a connection that does not block. `again` is asked now and then: give up?
    pub fn new(socket: TcpStream, again: &'a dyn Fn() -> bool) -> Incoming<'a> {
        Incoming { socket, again }
    }
}

impl Read for Incoming<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.socket.read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if (self.again)() {
                        return Err(io::Error::other("the program gave up"));
                    }
                    poll(&mut [PollItem::readable(&self.socket)], Some(SLICE))
                        .map_err(|e| io::Error::other(e.to_string()))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

/// What the bytes of a stream are: knows where a step begins.
pub trait Steps {
    /// Goes to the next step; `false` at the end.
    ///
    /// # Errors
    /// What is wrong with the stream.
    fn open(&mut self) -> Result<bool, ProgramError>;

    /// Fills `part` with the step.
    ///
    /// # Errors
    /// What is wrong with the stream.
    fn fill(&mut self, part: &mut [u8]) -> Result<(), ProgramError>;
}

/// Moves steps until the stream ends; gives how many.
///
/// # Errors
/// [`StreamError`]: of what comes, or of the program.
pub fn run(
    steps: &mut dyn Steps,
    sink: &mut dyn Sink,
    lease: &Lease,
    (place, len): (&str, u64),
    again: &dyn Fn() -> bool,
) -> Result<u64, StreamError> {
    let mut count = 0;
    let wrong = |count| move |source| StreamError::Content { place: place.to_owned(), step: count, source };
    while steps.open().map_err(wrong(count))? {
        lease.offer(len)?;
        lease.wait_begun(again)?;
        sink.step(len, &mut |slot| steps.fill(slot).map_err(wrong(count)))?;
        lease.moved()?;
        count += 1;
    }
    lease.no_more()?;
    Ok(count)
}
