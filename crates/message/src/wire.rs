//! Frames as bytes: `docs/wire.md` has the tables.
//!
//! Parsing gives a [`Frame`] whose pieces are known to be well-formed before the first of them is used:
//! lengths lie within the frame, unused bits are zero, numbers are in their range. Every value has one form,
//! so what parses prints to the same bytes. Nothing here allocates when it parses.

#![forbid(unsafe_code)]

mod parse;
mod write;

use parse::{zero_bits, Pieces, Reader};
pub use write::{ack_len, write_ack, write_fragment_header, write_piece};

use crate::error::LinkError;
use crate::types::{ChannelId, Head, Order, Priority, MAX_CHANNELS};

/// The version of the frame format that this side speaks.
pub const VERSION: u8 = 1;
/// Bytes of a frame's header.
pub const HEADER_LEN: usize = 28;
/// Bytes of a frame, at most.
pub const MAX_FRAME: usize = 1 << 24;
/// Bytes of a fragment's header, at most: with offset, head and length.
pub const FRAGMENT_HEADER_MAX: usize = 12 + 8 + 20 + 8;
/// Ranges of an acknowledgement beside the first, at most.
pub const MAX_ACK_RANGES: usize = 64;
/// Bytes of the shortest piece.
const SHORT: usize = 4;
/// Bytes of a piece that names a message.
const NAMED: usize = 8;

const CHECKSUM: u8 = 1;

const FRAGMENT: u8 = 1;
const ACK: u8 = 2;
const TAKEN: u8 = 3;
const DONE: u8 = 4;
const REFUSAL: u8 = 5;
const GO_AHEAD: u8 = 6;
const CANCEL: u8 = 7;
const PING: u8 = 8;
const PONG: u8 = 9;
const CLOSE: u8 = 10;
const ABORT: u8 = 11;

const FIRST: u8 = 1;
const LAST: u8 = 2;
const HEAD: u8 = 4;
const LENGTH: u8 = 8;

/// One stream of numbered messages: a channel, a priority and an order. A channel has four, so that high
/// priority overtakes low on the same channel and messages in any order do not wait for those that are
/// ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u16);

impl StreamId {
    /// The stream of a channel.
    pub fn new(channel: ChannelId, priority: Priority, order: Order) -> StreamId {
        let high = u16::from(priority == Priority::High);
        let any = u16::from(order == Order::Any);
        StreamId((channel.0 % MAX_CHANNELS) << 2 | high << 1 | any)
    }

    /// Its channel.
    pub fn channel(self) -> ChannelId {
        ChannelId(self.0 >> 2)
    }

    /// Its priority.
    pub fn priority(self) -> Priority {
        if self.0 & 2 != 0 {
            Priority::High
        } else {
            Priority::Low
        }
    }

    /// Its order.
    pub fn order(self) -> Order {
        if self.0 & 1 != 0 {
            Order::Any
        } else {
            Order::Ordered
        }
    }

    /// A dense number, from 0.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn from_index(index: usize) -> StreamId {
        StreamId(index as u16)
    }
}

/// The fixed start of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The path whose numbers [`number`](Header::number) is from.
    pub path: u8,
    /// Bytes of the frame, this header included.
    pub len: u32,
    /// The session, as the receiver knows it.
    pub session: u64,
    /// Number of the frame on its path; never used twice.
    pub number: u64,
    /// CRC32C of the frame with zeros in this place, if the sender computed one.
    pub checksum: Option<u32>,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    ///
    /// `Truncated`, `Version` or `BadField`.
    pub fn parse(bytes: &[u8]) -> Result<Header, LinkError> {
        // A foreign version is named even if the rest is too short for this one.
        if let Some(&version) = bytes.first() {
            if version != VERSION {
                return Err(LinkError::Version {
                    protocol: "frames",
                    expected: VERSION.into(),
                    found: version.into(),
                });
            }
        }
        let mut r = Reader { bytes, at: 0 };
        let [_, flags, path, zero] = r.array("frame header")?;
        zero_bits("frame flags", flags & !CHECKSUM)?;
        zero_bits("byte 3 of the frame", zero)?;
        let len = r.u32("frame header")?;
        if (len as usize) < HEADER_LEN || len as usize > MAX_FRAME {
            return Err(LinkError::BadField {
                what: "frame length",
                found: len.into(),
                expected: "28 to 2^24",
            });
        }
        let session = r.u64("frame header")?;
        let number = r.u64("frame header")?;
        if number == u64::MAX {
            return Err(LinkError::BadField {
                what: "frame number",
                found: number,
                expected: "below 2^64 - 1",
            });
        }
        let sum = r.u32("frame header")?;
        if flags & CHECKSUM == 0 && sum != 0 {
            return Err(LinkError::BadField { what: "unused checksum", found: sum.into(), expected: "0" });
        }
        Ok(Header { path, len, session, number, checksum: (flags & CHECKSUM != 0).then_some(sum) })
    }

    /// Appends the header. The checksum is left 0 and comes last, when the rest is known.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend([VERSION, if self.checksum.is_some() { CHECKSUM } else { 0 }, self.path, 0]);
        out.extend(self.len.to_le_bytes());
        out.extend(self.session.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend([0; 4]);
    }
}

/// The checksum of a frame given in slices, the first of which holds the header; its own place counts as
/// zero.
pub fn checksum<'a>(slices: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut sum = 0;
    let mut head = true;
    for slice in slices {
        if head {
            let (before, rest) = slice.split_at(24.min(slice.len()));
            sum = crc32c::crc32c_append(sum, before);
            sum = crc32c::crc32c_append(sum, &[0; 4][..rest.len().min(4)]);
            sum = crc32c::crc32c_append(sum, &rest[rest.len().min(4)..]);
            head = false;
        } else {
            sum = crc32c::crc32c_append(sum, slice);
        }
    }
    sum
}

/// Writes length, number and checksum into a frame's first slice when the rest is known.
pub(crate) fn seal(bytes: &mut [u8], len: u32, sum: Option<u32>) {
    bytes[4..8].copy_from_slice(&len.to_le_bytes());
    if let Some(sum) = sum {
        bytes[24..28].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A frame whose header and pieces are well-formed.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    body: &'a [u8],
    /// Bytes of the frame that are not in `body`: all belong to the last fragment.
    missing: usize,
}

impl<'a> Frame<'a> {
    /// Checks a whole frame: header, checksum if there is one, and every piece.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(bytes: &'a [u8]) -> Result<Frame<'a>, LinkError> {
        let frame = Self::parse_start(bytes)?;
        if frame.missing > 0 {
            return Err(LinkError::Truncated {
                what: "frame",
                at: 0,
                expected: frame.header.len.into(),
                found: bytes.len() as u64,
            });
        }
        Ok(frame)
    }

    /// Checks the start of a frame that may be cut within the bytes of its last fragment, for links that read
    /// such bytes straight into their place. Without a cut it is as [`parse`](Frame::parse).
    ///
    /// # Errors
    ///
    /// What is wrong with it; `Truncated` if it is cut elsewhere, or has a checksum and is cut.
    pub fn parse_start(bytes: &'a [u8]) -> Result<Frame<'a>, LinkError> {
        let header = Header::parse(bytes)?;
        let len = header.len as usize;
        if bytes.len() > len {
            return Err(LinkError::BadField {
                what: "frame length",
                found: header.len.into(),
                expected: "the bytes that came",
            });
        }
        let missing = len - bytes.len();
        if let Some(found) = header.checksum {
            if missing > 0 {
                let (expected, found) = (header.len.into(), bytes.len() as u64);
                return Err(LinkError::Truncated { what: "frame", at: 0, expected, found });
            }
            let expected = checksum([bytes].into_iter());
            if found != expected {
                return Err(LinkError::Checksum { expected, found });
            }
        }
        let frame = Frame { header, body: &bytes[HEADER_LEN..], missing };
        let mut pieces = frame.pieces_checked();
        while pieces.next_piece()?.is_some() {}
        Ok(frame)
    }

    /// Bytes of the last fragment that are not here yet.
    pub fn missing(&self) -> usize {
        self.missing
    }

    fn pieces_checked(&self) -> Pieces<'a> {
        Pieces { r: Reader { bytes: self.body, at: 0 }, missing: self.missing }
    }

    /// Its pieces.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'a>> {
        let mut pieces = self.pieces_checked();
        // All were read once by `parse`.
        std::iter::from_fn(move || pieces.next_piece().ok().flatten())
    }
}

/// Names a message on the wire: its stream and the low 32 bits of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// The stream.
    pub stream: StreamId,
    /// Low bits of its number.
    pub number: u32,
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Of which message.
    pub name: Name,
    /// How often the message was refused before, modulo 256.
    pub attempt: u8,
    /// Where its bytes lie in the payload.
    pub offset: u64,
    /// Bytes of it; more than `bytes` has only in a frame that is [cut](Frame::parse_start).
    pub len: u32,
    /// Whether the payload ends with it.
    pub last: bool,
    /// The message's head, if the sender does not know that the receiver has it.
    pub head: Option<Head>,
    /// Bytes of the whole payload if they are known and this is not the last: only beside a head.
    pub total: Option<u64>,
    /// Its bytes, or the first of them.
    pub bytes: &'a [u8],
}

impl Fragment<'_> {
    /// Bytes of the whole payload as far as this fragment tells.
    pub fn payload_len(&self) -> Option<u64> {
        if self.last {
            Some(self.offset + u64::from(self.len))
        } else {
            self.total
        }
    }

    /// Bytes of its header.
    pub fn header_len(&self) -> usize {
        12 + if self.offset == 0 { 0 } else { 8 }
            + if self.head.is_some() { 20 } else { 0 }
            + if self.total.is_some() { 8 } else { 0 }
    }
}

/// An acknowledgement: which frames of a path came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The path.
    pub path: u8,
    /// Microseconds between the arrival of frame `largest` and this acknowledgement.
    pub delay_us: u32,
    /// The largest number that came.
    pub largest: u64,
    /// Numbers directly below it that came too.
    pub first: u32,
    more: &'a [u8],
}

impl<'a> Ack<'a> {
    /// The numbers that came, as inclusive ranges, from the largest downwards.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let mut low = self.largest - u64::from(self.first);
        let more = self.more;
        std::iter::once((low, self.largest)).chain(more.chunks_exact(8).map(move |c| {
            let gap = u64::from(u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
            let len = u64::from(u32::from_le_bytes([c[4], c[5], c[6], c[7]]));
            let high = low - gap - 1;
            low = high - len;
            (low, high)
        }))
    }
}

/// What a frame is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A part of a message.
    Fragment(Fragment<'a>),
    /// Frames that came.
    Ack(Ack<'a>),
    /// All messages of a stream below this number have been delivered.
    Taken(Name),
    /// This message was delivered although earlier ones were not (streams in any order).
    Done(Name),
    /// The receiver had no buffer for this message.
    Refusal {
        /// The message.
        name: Name,
        /// Which attempt was refused.
        attempt: u8,
    },
    /// The receiver has a buffer for this message.
    GoAhead {
        /// The message.
        name: Name,
        /// The attempt that was accepted, or the last that was refused.
        attempt: u8,
    },
    /// The sender gave this message up.
    Cancel(Name),
    /// Answer me.
    Ping,
    /// The answer.
    Pong,
    /// All is said; no more messages come.
    Close,
    /// The session ends here.
    Abort {
        /// Why: the user's number.
        code: u16,
    },
}

/// A whole frame of these pieces, for tests and tools: header, pieces, length and, if asked for, checksum.
pub fn build(path: u8, session: u64, number: u64, with_checksum: bool, pieces: &[Piece<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    Header { path, len: 0, session, number, checksum: with_checksum.then_some(0) }.write(&mut out);
    for piece in pieces {
        write_piece(piece, &mut out);
    }
    let len = out.len() as u32;
    seal(&mut out, len, None);
    if with_checksum {
        let sum = checksum([&out[..]].into_iter());
        seal(&mut out, len, Some(sum));
    }
    out
}
