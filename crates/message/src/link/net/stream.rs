//! Frames that come on a connection: each is its length in four bytes and its bytes, in the
//! [records](super::record) of the connection. The bytes of a long one land where they belong as soon as its
//! first bytes have told the [sink](FrameSink) what it is.

use super::record::{Received, RecordReader, SEALED};
use super::LinkFault;
use crate::error::LinkError;
use crate::link::hello::{HandshakeRefusal, Header, Kind, HEADER, REFUSAL};
use crate::link::seal::Opener;
use crate::types::Address;
use std::net::TcpStream;

/// Frames from this length on are begun before they are whole.
const DIRECT_FROM: usize = 16 << 10;
/// Bytes of such a frame that a sink sees when it begins, at least.
pub const START: usize = 128;
/// One read, where nothing says where the bytes belong, at most.
const CHUNK: usize = 64 << 10;
/// How much of what follows a long frame is read with its end. More would have to be copied from here.
const NEXT: usize = 4 << 10;
/// Bytes that one call reads, so that every connection gets its turn.
const TURN: usize = 4 << 20;

/// Takes the frames of a connection.
pub trait FrameSink {
    /// A whole frame.
    ///
    /// # Errors
    /// What is wrong with it: the connection is dropped.
    fn frame(&mut self, frame: &[u8]) -> Result<(), LinkError>;

    /// A frame of `len` bytes begins with `start`, which are [`START`] bytes or more. Returns whether its
    /// rest goes into what [`body`](FrameSink::body) gives; otherwise it comes as a whole when it is there.
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
    records: RecordReader,
    frames: Frames,
    /// Of the side that connected, until it has heard something: who it is.
    refusable: Option<Address>,
}

impl StreamReader {
    /// A reader after the handshake, for frames of 1 to `limit` bytes.
    pub fn new(opener: Opener, limit: usize) -> StreamReader {
        let records = RecordReader::new(opener, CHUNK, 2 * SEALED);
        StreamReader { records, frames: Frames::new(limit), refusable: None }
    }

    /// The other side may still refuse this one, unit `me`, which has come to the end of the handshake: it
    /// has not seen that yet.
    pub fn may_be_refused(&mut self, me: Address) {
        self.refusable = Some(me);
    }

    /// Reads what has come and gives the frames to `sink`. Returns whether anything has; more may have since.
    ///
    /// # Errors
    /// What the peer or the sink did wrong, [`OsError::PeerClosed`](polyduct_os::OsError::PeerClosed) at the
    /// end, or the system's: the connection is over.
    pub fn read(&mut self, stream: &TcpStream, sink: &mut impl FrameSink) -> Result<bool, LinkFault> {
        let mut turn = TURN;
        while turn > 0 {
            match self.read_once(stream, sink)? {
                // Whether more has come since, whoever waits for the socket is told: a call that mostly finds
                // nothing would cost a short message more than all else here.
                Some(came) if came.short => break,
                Some(came) => turn = turn.saturating_sub(came.all),
                None => return Ok(turn < TURN),
            }
        }
        Ok(true)
    }

    fn read_once(
        &mut self,
        stream: &TcpStream,
        sink: &mut impl FrameSink,
    ) -> Result<Option<Received>, LinkFault> {
        let is_plain = self.records.is_plain();
        // What is sealed is not opened where it belongs: that leaves a tag behind the bytes, and anything
        // where the record is forged. Another connection may have brought these places of the message
        // already.
        let body = if is_plain { self.frames.body(sink) } else { &mut [] };
        let ahead = if body.is_empty() { usize::MAX } else { NEXT };
        let Some(came) = self.records.read(stream, body, ahead)? else { return Ok(None) };
        check_refusal(self.refusable, self.records.came())?;
        // What comes later may look like anything.
        if is_plain || self.records.came().len() >= REFUSAL {
            self.refusable = None;
        }
        if came.body > 0 {
            self.frames.filled(came.body, sink)?;
        }
        while self.records.open()? {
            self.frames.feed(self.records.ready(), sink)?;
            let n = self.records.ready().len();
            self.records.took(n);
        }
        Ok(Some(came))
    }
}

/// Whether the first bytes are a refusal in place of a record: they cannot be the beginning of a plain frame,
/// and of a sealed one only by a chance of 2⁻⁶⁴.
fn check_refusal(me: Option<Address>, first: &[u8]) -> Result<(), LinkError> {
    let (Some(from), Some((header, body))) = (me, first.split_at_checked(HEADER)) else { return Ok(()) };
    match Header::decode(header) {
        Ok(header) if header.kind == Kind::HandshakeRefusal && first.len() >= REFUSAL => {
            Err(HandshakeRefusal::decode(body)?.error(&Header { from, ..header }))
        }
        _ => Ok(()),
    }
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

    /// Takes the first frame of `bytes`, or all of them as the beginning of a long one. Returns how many
    /// bytes were taken.
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
