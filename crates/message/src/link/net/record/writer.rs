//! The outgoing half.

use super::super::{socket, LinkFault};
use super::SMALL;
use crate::error::LinkError;
use crate::link::seal::{Sealer, RECORD_PLAIN, TAG};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::TcpStream;

/// Pieces that are shorter are copied together.
const SHARE_FROM: usize = 4 << 10;
/// Slices in one system call.
const SLICES: usize = 64;
/// Bytes that one call writes, so that every connection gets its turn.
const TURN: usize = 4 << 20;
/// Sealed bytes that wait for the socket before no more of what [lies elsewhere](RecordWriter::send) is
/// sealed.
const SEALED_AHEAD: usize = 256 << 10;

/// A part of a frame to send.
pub enum Piece<'a> {
    /// Short, or not to be kept: copied.
    Copy(&'a [u8]),
    /// Kept until the socket has taken it.
    Share(Bytes),
}

enum Out {
    Own(usize),
    Shared(Bytes),
}

/// The outgoing half of a connection.
pub struct RecordWriter {
    sealer: Sealer,
    queue: VecDeque<Out>,
    /// Bytes of the queue.
    queued: usize,
    /// Copied and sealed bytes: those from `start` up to `end` are in the queue. What lies behind is free and
    /// initialised.
    own: Vec<u8>,
    start: usize,
    end: usize,
    /// Short pieces for the next record.
    pending: Vec<u8>,
    /// The link is slow: what is written goes in packets of its own.
    pub(crate) apart: bool,
}

impl RecordWriter {
    /// A writer after the handshake.
    pub fn new(sealer: Sealer) -> RecordWriter {
        let (queue, pending) = (VecDeque::new(), Vec::new());
        RecordWriter { sealer, queue, queued: 0, own: Vec::new(), start: 0, end: 0, pending, apart: false }
    }

    /// Bytes that wait for the socket. Callers keep it bounded: a caller stops at its limit and goes on when
    /// [`write`](RecordWriter::write) has made room.
    pub fn queued_bytes(&self) -> usize {
        self.queued + self.pending.len()
    }

    /// Queues a frame, or a message, of `len` bytes, which the pieces must have together: its length and its
    /// bytes.
    ///
    /// # Errors
    /// [`LinkError::BadField`] where 2⁶⁴ records were sealed.
    pub fn push<'a>(
        &mut self,
        len: usize,
        mut pieces: impl Iterator<Item = Piece<'a>>,
    ) -> Result<(), LinkError> {
        self.copy(&(len as u32).to_le_bytes())?;
        pieces.try_for_each(|piece| match piece {
            Piece::Copy(bytes) => self.copy(bytes),
            Piece::Share(bytes) if bytes.len() < SHARE_FROM => self.copy(&bytes),
            Piece::Share(bytes) if self.sealer.is_plain() => {
                self.queued += bytes.len();
                self.queue.push_back(Out::Shared(bytes));
                Ok(())
            }
            Piece::Share(bytes) => {
                self.seal_pending()?;
                bytes.chunks(RECORD_PLAIN).try_for_each(|chunk| self.seal(chunk))
            }
        })
    }

    /// Sends the beginning of what lies in `parts`, once nothing is queued any more: plain from where it
    /// lies, sealed as much as may wait. Returns how many bytes, `None` where the socket takes nothing now.
    ///
    /// # Errors
    /// Those of [`write`](RecordWriter::write).
    pub fn send(&mut self, stream: &TcpStream, parts: &[IoSlice<'_>]) -> Result<Option<usize>, LinkFault> {
        if !self.write(stream)? {
            return Ok(None);
        }
        if self.sealer.is_plain() {
            return Ok(socket::write(stream, parts)?);
        }
        let mut n = 0;
        for part in parts {
            if self.queued >= SEALED_AHEAD {
                break;
            }
            // Short parts share a record, long ones are sealed from where they lie.
            if self.pending.len() + part.len() < RECORD_PLAIN {
                self.pending.extend_from_slice(part);
                n += part.len();
                continue;
            }
            self.seal_pending()?;
            let most = SEALED_AHEAD / RECORD_PLAIN;
            for chunk in part.chunks(RECORD_PLAIN).take(most) {
                self.seal(chunk)?;
                n += chunk.len();
            }
            if part.len() > RECORD_PLAIN * most {
                break;
            }
        }
        self.write(stream)?;
        Ok(Some(n))
    }

    /// Writes what the socket takes. Returns whether nothing is left.
    ///
    /// # Errors
    /// [`OsError::PeerClosed`](polyduct_os::OsError::PeerClosed), or the system's.
    pub fn write(&mut self, stream: &TcpStream) -> Result<bool, LinkFault> {
        self.seal_pending()?;
        let mut turn = TURN;
        while self.queued > 0 && turn > 0 {
            let mut at = self.start;
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slice, out) in slices.iter_mut().zip(&self.queue) {
                *slice = IoSlice::new(match out {
                    Out::Own(len) => {
                        at += len;
                        &self.own[at - len..at]
                    }
                    Out::Shared(bytes) => bytes,
                });
                count += 1;
            }
            let write = if self.apart { socket::write_apart } else { socket::write };
            match write(stream, &slices[..count])? {
                Some(n) => {
                    self.written(n);
                    turn = turn.saturating_sub(n);
                }
                None => return Ok(false),
            }
        }
        Ok(self.queued == 0)
    }

    fn written(&mut self, mut n: usize) {
        self.queued -= n;
        while n > 0 {
            let Some(front) = self.queue.front_mut() else { return };
            let len = match front {
                Out::Own(len) => *len,
                Out::Shared(bytes) => bytes.len(),
            };
            let done = n.min(len);
            n -= done;
            if let Out::Own(left) = front {
                self.start += done;
                *left -= done;
            } else if let Out::Shared(bytes) = front {
                bytes::Buf::advance(bytes, done);
            }
            if done == len {
                self.queue.pop_front();
            }
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    fn copy(&mut self, mut bytes: &[u8]) -> Result<(), LinkError> {
        if self.sealer.is_plain() {
            self.room(bytes.len()).copy_from_slice(bytes);
            self.made(bytes.len());
            return Ok(());
        }
        while !bytes.is_empty() {
            let fits = bytes.len().min(RECORD_PLAIN - self.pending.len());
            self.pending.extend_from_slice(&bytes[..fits]);
            bytes = &bytes[fits..];
            if self.pending.len() == RECORD_PLAIN {
                self.seal_pending()?;
            }
        }
        Ok(())
    }

    fn seal_pending(&mut self) -> Result<(), LinkError> {
        if !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            let sealed = self.seal(&pending);
            self.pending = pending;
            self.pending.clear();
            sealed?;
        }
        Ok(())
    }

    fn seal(&mut self, plain: &[u8]) -> Result<(), LinkError> {
        let len = plain.len() + TAG;
        self.room(2 + len);
        let record = &mut self.own[self.end..self.end + 2 + len];
        record[..2].copy_from_slice(&(len as u16).to_le_bytes());
        self.sealer.seal(plain, &mut record[2..])?;
        self.made(2 + len);
        Ok(())
    }

    /// Free bytes behind what is in the queue.
    fn room(&mut self, len: usize) -> &mut [u8] {
        if self.own.len() - self.end < len {
            // Once what was written makes up most of it, the rest moves to the front; else it grows.
            if self.start >= self.end - self.start {
                self.own.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            if self.own.len() - self.end < len {
                self.own.resize((self.end + len).next_power_of_two().max(SMALL), 0);
            }
        }
        &mut self.own[self.end..self.end + len]
    }

    fn made(&mut self, len: usize) {
        self.end += len;
        self.queued += len;
        match self.queue.back_mut() {
            Some(Out::Own(last)) => *last += len,
            _ => self.queue.push_back(Out::Own(len)),
        }
    }
}
