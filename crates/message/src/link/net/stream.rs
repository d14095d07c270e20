//! Frames on a connection that keeps order and loses nothing.
//!
//! Plain, a frame is its length in four bytes and its bytes. Sealed, the same sequence of bytes is cut into records wherever
//! it suits the sender, each with its length in two bytes in front: several small frames share a record, a long one takes
//! several. Long payloads are not copied on their way out while plain, and both ways the bytes of a long frame land where
//! they belong as soon as its first bytes have told the [sink](FrameSink) what it is.

use super::{socket, Fault};
use crate::error::LinkError;
use crate::link::hello::{Header, Kind, Refusal, HEADER, REFUSAL};
use crate::link::seal::{Opener, Sealer, RECORD, RECORD_PLAIN, TAG};
use crate::types::Address;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::TcpStream;

/// Pieces of a frame that are shorter are copied together.
const SHARE_FROM: usize = 4 << 10;
/// Frames from this length on are begun before they are whole.
const DIRECT_FROM: usize = 16 << 10;
/// Bytes of such a frame that a sink sees when it begins, at least.
pub const START: usize = 128;
/// One read, where nothing says where the bytes belong, and of what is sealed, at most.
const CHUNK: usize = 64 << 10;
const SEALED: usize = 2 * (2 + RECORD);
/// What a buffer has at first: one that is filled is doubled, so that many connections that carry little take
/// little.
const SMALL: usize = 4 << 10;
/// How much of what follows a long frame is read with its end. More would have to be copied from here.
const NEXT: usize = 4 << 10;
/// Slices in one system call.
const SLICES: usize = 64;
/// Bytes that one call reads or writes, so that every connection gets its turn.
const TURN: usize = 4 << 20;

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
pub struct StreamWriter {
    sealer: Sealer,
    queue: VecDeque<Out>,
    /// Bytes of the queue.
    queued: usize,
    /// Copied and sealed bytes: those from `start` up to `end` are in the queue. What lies behind is free and initialised.
    own: Vec<u8>,
    start: usize,
    end: usize,
    /// Short pieces for the next record.
    pending: Vec<u8>,
    /// The link is slow: what is written goes in packets of its own.
    pub(crate) apart: bool,
}

impl StreamWriter {
    /// A writer after the handshake.
    pub fn new(sealer: Sealer) -> StreamWriter {
        let (queue, pending) = (VecDeque::new(), Vec::new());
        StreamWriter { sealer, queue, queued: 0, own: Vec::new(), start: 0, end: 0, pending, apart: false }
    }

    /// Bytes that wait for the socket. Whoever pushes keeps it bounded: a caller stops at its limit and goes on when
    /// [`write`](StreamWriter::write) has made room.
    pub fn queued_bytes(&self) -> usize {
        self.queued + self.pending.len()
    }

    /// Takes a frame of `len` bytes, which the pieces must have together.
    ///
    /// # Errors
    /// [`LinkError::BadField`] where 2⁶⁴ records were sealed.
    pub fn push<'a>(&mut self, len: usize, pieces: impl Iterator<Item = Piece<'a>>) -> Result<(), LinkError> {
        self.copy(&(len as u32).to_le_bytes())?;
        for piece in pieces {
            match piece {
                Piece::Copy(bytes) => self.copy(bytes)?,
                Piece::Share(bytes) if bytes.len() < SHARE_FROM => self.copy(&bytes)?,
                Piece::Share(bytes) if self.sealer.is_plain() => {
                    self.queued += bytes.len();
                    self.queue.push_back(Out::Shared(bytes));
                }
                Piece::Share(bytes) => {
                    self.seal_pending()?;
                    for chunk in bytes.chunks(RECORD_PLAIN) {
                        self.seal(chunk)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes what the socket takes. Returns whether nothing is left.
    ///
    /// # Errors
    /// [`OsError::PeerClosed`](polyduct_os::OsError::PeerClosed), or the system's.
    pub fn write(&mut self, stream: &TcpStream) -> Result<bool, Fault> {
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

/// Takes the frames of a connection.
pub trait FrameSink {
    /// A whole frame.
    ///
    /// # Errors
    /// What is wrong with it: the connection is dropped.
    fn frame(&mut self, frame: &[u8]) -> Result<(), LinkError>;

    /// A frame of `len` bytes begins with `start`, which are [`START`] bytes or more. Returns whether its rest goes into
    /// what [`body`](FrameSink::body) gives; otherwise it comes as a whole when it is there.
    ///
    /// # Errors
    /// What is wrong with it: the connection is dropped.
    fn begin(&mut self, start: &[u8], len: usize) -> Result<bool, LinkError>;

    /// Where the rest of the frame that was begun belongs: all of it that is missing.
    fn body(&mut self) -> &mut [u8];

    /// The first `n` bytes of the body came. Called with the last of them, the frame is complete.
    ///
    /// # Errors
    /// What is wrong with it: the connection is dropped.
    fn filled(&mut self, n: usize) -> Result<(), LinkError>;
}

/// The incoming half of a connection.
pub struct StreamReader {
    opener: Opener,
    /// Plain: scratch. Sealed: what has come of the next records, up to `have`.
    buf: Vec<u8>,
    have: usize,
    /// A record, opened.
    opened: Vec<u8>,
    frames: Frames,
    /// Of the side that connected, until it has heard something: who it is.
    refusable: Option<Address>,
}

/// What [`StreamReader::read`] leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing now.
    Nothing,
    /// Perhaps more: its turn is over.
    Perhaps,
}

impl StreamReader {
    /// A reader after the handshake, for frames of 1 to `limit` bytes.
    pub fn new(opener: Opener, limit: usize) -> StreamReader {
        let (buf, opened) = (vec![0; SMALL], Vec::new());
        StreamReader { opener, buf, have: 0, opened, frames: Frames::new(limit), refusable: None }
    }

    /// The other side may still refuse this one, unit `me`, which has come to the end of the handshake: it has not seen that yet.
    pub fn may_be_refused(&mut self, me: Address) {
        self.refusable = Some(me);
    }

    /// Reads what has come and gives the frames to `sink`.
    ///
    /// # Errors
    /// What the peer or the sink did wrong, [`OsError::PeerClosed`](polyduct_os::OsError::PeerClosed) at the end, or the
    /// system's: the connection is over.
    pub fn read(&mut self, stream: &TcpStream, sink: &mut impl FrameSink) -> Result<Left, Fault> {
        let mut turn = TURN;
        while turn > 0 {
            let got = match self.opener.is_plain() {
                true => self.read_plain(stream, sink)?,
                false => self.read_sealed(stream, sink)?,
            };
            match got {
                Some(n) => turn = turn.saturating_sub(n),
                None => return Ok(Left::Nothing),
            }
        }
        Ok(Left::Perhaps)
    }

    fn read_plain(&mut self, stream: &TcpStream, sink: &mut impl FrameSink) -> Result<Option<usize>, Fault> {
        let body = self.frames.body(sink);
        let missing = body.len();
        let next = if missing > 0 { NEXT.min(self.buf.len()) } else { self.buf.len() };
        let mut parts = [IoSliceMut::new(body), IoSliceMut::new(&mut self.buf[..next])];
        let Some(n) = socket::read(stream, &mut parts[usize::from(missing == 0)..])? else { return Ok(None) };
        // What comes later may look like anything.
        check_refusal(self.refusable.take(), &self.buf[..n.saturating_sub(missing)])?;
        if missing > 0 {
            self.frames.filled(n.min(missing), sink)?;
        }
        self.frames.feed(&self.buf[..n.saturating_sub(missing)], sink)?;
        if missing == 0 && n == next {
            self.grow(CHUNK);
        }
        Ok(Some(n))
    }

    fn read_sealed(&mut self, stream: &TcpStream, sink: &mut impl FrameSink) -> Result<Option<usize>, Fault> {
        let room = &mut self.buf[self.have..];
        let Some(n) = socket::read(stream, &mut [IoSliceMut::new(room)])? else { return Ok(None) };
        self.have += n;
        let filled = self.have == self.buf.len();
        check_refusal(self.refusable, &self.buf[..self.have])?;
        if self.have >= REFUSAL {
            self.refusable = None;
        }
        let mut at = 0;
        while let Some((record, end)) = next_record(&self.buf[..self.have], at)? {
            // Not where it belongs: opening leaves a tag behind the bytes, and anything where the record is forged. Another
            // connection may have brought these places of the message already.
            if self.opened.len() < record.len() {
                self.opened.resize(record.len().next_power_of_two().min(RECORD), 0);
            }
            let opened = self.opener.open_next(record, &mut self.opened[..record.len()])?;
            self.frames.feed(&self.opened[..opened], sink)?;
            at = end;
        }
        self.buf.copy_within(at..self.have, 0);
        self.have -= at;
        if filled {
            self.grow(SEALED);
        }
        Ok(Some(n))
    }

    /// A read filled the buffer: the next may bring more, up to `most` bytes.
    fn grow(&mut self, most: usize) {
        let len = (2 * self.buf.len()).min(most);
        self.buf.resize(len, 0);
    }
}

/// Whether the first bytes are a refusal in place of a record: they cannot be the beginning of a plain frame, and of a sealed one
/// only by a chance of 2⁻⁶⁴.
fn check_refusal(me: Option<Address>, first: &[u8]) -> Result<(), LinkError> {
    let (Some(from), Some((header, body))) = (me, first.split_at_checked(HEADER)) else { return Ok(()) };
    match Header::decode(header) {
        Ok(header) if header.kind == Kind::Refusal && first.len() >= REFUSAL => {
            Err(Refusal::decode(body)?.error(&Header { from, ..header }))
        }
        _ => Ok(()),
    }
}

/// The record at `at`, if it is whole, and where it ends.
fn next_record(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, LinkError> {
    let Some(len) = bytes[at..].first_chunk::<2>() else { return Ok(None) };
    let len = usize::from(u16::from_le_bytes(*len));
    if len <= TAG {
        let expected = "17 to 65535";
        return Err(LinkError::BadField { what: "length of a record", found: len as u64, expected });
    }
    let end = at + 2 + len;
    Ok(bytes.get(at + 2..end).map(|record| (record, end)))
}

/// Cuts a sequence of bytes into frames.
struct Frames {
    limit: usize,
    /// The beginning of a frame whose rest has not come.
    stash: Vec<u8>,
    state: State,
}

enum State {
    /// Between frames, or in one that is stashed.
    Between,
    /// The rest goes to the sink: this many bytes.
    Direct(usize),
    /// The sink wants the frame as a whole: so many bytes of the stash are there.
    Whole(usize),
}

impl Frames {
    fn new(limit: usize) -> Frames {
        Frames { limit: limit.min(u32::MAX as usize), stash: Vec::new(), state: State::Between }
    }

    /// Where the next bytes belong, if that is known; else empty.
    fn body<'a>(&'a mut self, sink: &'a mut impl FrameSink) -> &'a mut [u8] {
        match self.state {
            State::Between => &mut [],
            State::Direct(left) => {
                let body = sink.body();
                let len = body.len().min(left);
                &mut body[..len]
            }
            State::Whole(have) => &mut self.stash[have..],
        }
    }

    /// So many bytes of the body came.
    fn filled(&mut self, n: usize, sink: &mut impl FrameSink) -> Result<(), LinkError> {
        match &mut self.state {
            State::Between => return Ok(()),
            State::Direct(left) => {
                *left -= n;
                let done = *left == 0;
                sink.filled(n)?;
                if done {
                    self.state = State::Between;
                }
            }
            State::Whole(have) => {
                *have += n;
                if *have == self.stash.len() {
                    let taken = sink.frame(&self.stash);
                    self.stash.clear();
                    self.state = State::Between;
                    taken?;
                }
            }
        }
        Ok(())
    }

    fn feed(&mut self, mut bytes: &[u8], sink: &mut impl FrameSink) -> Result<(), LinkError> {
        while !bytes.is_empty() {
            let body = self.body(sink);
            if !body.is_empty() {
                let n = body.len().min(bytes.len());
                body[..n].copy_from_slice(&bytes[..n]);
                self.filled(n, sink)?;
                bytes = &bytes[n..];
                continue;
            }
            let used = if self.stash.is_empty() {
                let used = self.take(bytes, sink)?;
                if used == 0 {
                    self.stash.extend_from_slice(bytes);
                    return Ok(());
                }
                used
            } else {
                // No more than what decides: the length, then the start of the frame or all of it.
                let want = match self.stash.first_chunk::<4>() {
                    None => 4,
                    Some(len) => match u32::from_le_bytes(*len) as usize {
                        len if len >= DIRECT_FROM => 4 + START,
                        len => 4 + len,
                    },
                };
                let more = (want - self.stash.len()).min(bytes.len());
                self.stash.extend_from_slice(&bytes[..more]);
                let stash = std::mem::take(&mut self.stash);
                let used = self.take(&stash, sink)?;
                if used == 0 {
                    self.stash = stash;
                } else if self.stash.capacity() == 0 {
                    self.stash = stash;
                    self.stash.clear();
                }
                more
            };
            bytes = &bytes[used..];
        }
        Ok(())
    }

    /// Takes the first frame of `bytes`, or all of them as the beginning of a long one. Returns how many bytes were taken.
    fn take(&mut self, bytes: &[u8], sink: &mut impl FrameSink) -> Result<usize, LinkError> {
        let Some(len) = bytes.first_chunk::<4>() else { return Ok(0) };
        let len = u32::from_le_bytes(*len) as usize;
        if len == 0 || len > self.limit {
            let expected = "1 up to the limit that the handshake named";
            return Err(LinkError::BadField { what: "length of a frame", found: len as u64, expected });
        }
        if let Some(frame) = bytes[4..].get(..len) {
            sink.frame(frame)?;
            return Ok(4 + len);
        }
        let start = &bytes[4..];
        if len < DIRECT_FROM || start.len() < START {
            return Ok(0);
        }
        if sink.begin(start, len)? {
            self.state = State::Direct(len - start.len());
        } else {
            self.stash.clear();
            self.stash.resize(len, 0);
            self.stash[..start.len()].copy_from_slice(start);
            self.state = State::Whole(start.len());
        }
        Ok(bytes.len())
    }
}
