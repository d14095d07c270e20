//! The pieces of a frame, out of its bytes.

use super::{Ack, Fragment, Name, Piece, StreamId};
use super::{ABORT, ACK, CANCEL, CLOSE, DONE, FRAGMENT, GO_AHEAD, PING, PONG, REFUSAL, TAKEN};
use super::{FIRST, HEAD, HEADER_LEN, LAST, LENGTH, MAX_ACK_RANGES, NAMED, SHORT};
use crate::error::LinkError;
use crate::types::{HandlerId, Head, MAX_CHANNELS, MAX_PAYLOAD};

pub(super) struct Pieces<'a> {
    pub(super) r: Reader<'a>,
    pub(super) missing: usize,
}

impl<'a> Pieces<'a> {
    pub(super) fn next_piece(&mut self) -> Result<Option<Piece<'a>>, LinkError> {
        let r = &mut self.r;
        if r.at == r.bytes.len() {
            if self.missing > 0 {
                let found = (HEADER_LEN + r.at) as u64;
                let (what, at, expected) = ("frame", 0, found + self.missing as u64);
                return Err(LinkError::Truncated { what, at, expected, found });
            }
            return Ok(None);
        }
        let kind = r.bytes[r.at];
        let piece = match kind {
            FRAGMENT => {
                let fragment = r.fragment(self.missing)?;
                if fragment.bytes.len() < fragment.len as usize {
                    self.missing = 0;
                }
                Piece::Fragment(fragment)
            }
            ACK => Piece::Ack(r.ack()?),
            TAKEN => Piece::Taken(r.name("taken")?.0),
            DONE => Piece::Done(r.name("done")?.0),
            REFUSAL => r.name_attempt("refusal").map(|(name, attempt)| Piece::Refusal { name, attempt })?,
            GO_AHEAD => r.name_attempt("go-ahead").map(|(name, attempt)| Piece::GoAhead { name, attempt })?,
            CANCEL => Piece::Cancel(r.name("cancel")?.0),
            PING => r.short("ping", false).map(|_| Piece::Ping)?,
            PONG => r.short("pong", false).map(|_| Piece::Pong)?,
            CLOSE => r.short("close", false).map(|_| Piece::Close)?,
            ABORT => Piece::Abort { code: r.short("abort", true)? },
            _ => {
                return Err(LinkError::BadField {
                    what: "kind of a piece",
                    found: kind.into(),
                    expected: "1 to 11",
                })
            }
        };
        Ok(Some(piece))
    }
}

pub(super) fn zero_bits(what: &'static str, bits: u8) -> Result<(), LinkError> {
    if bits == 0 {
        Ok(())
    } else {
        Err(LinkError::BadField { what, found: bits.into(), expected: "unused bits 0" })
    }
}

pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, what: &'static str, len: usize) -> Result<&'a [u8], LinkError> {
        let left = &self.bytes[self.at..];
        if left.len() < len {
            return Err(LinkError::Truncated {
                what,
                at: self.at,
                expected: len as u64,
                found: left.len() as u64,
            });
        }
        self.at += len;
        Ok(&left[..len])
    }

    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], LinkError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(what, N)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, LinkError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, LinkError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn stream(low: u8, high: u8) -> Result<StreamId, LinkError> {
        let stream = u16::from_le_bytes([low, high]);
        if stream >> 2 >= MAX_CHANNELS {
            return Err(LinkError::BadField {
                what: "stream",
                found: stream.into(),
                expected: "less than 16384",
            });
        }
        Ok(StreamId(stream))
    }

    fn name_attempt(&mut self, what: &'static str) -> Result<(Name, u8), LinkError> {
        let b: [u8; NAMED] = self.array(what)?;
        let number = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
        Ok((Name { stream: Self::stream(b[2], b[3])?, number }, b[1]))
    }

    fn name(&mut self, what: &'static str) -> Result<(Name, u8), LinkError> {
        let (name, zero) = self.name_attempt(what)?;
        zero_bits(what, zero)?;
        Ok((name, zero))
    }

    fn short(&mut self, what: &'static str, word: bool) -> Result<u16, LinkError> {
        let b: [u8; SHORT] = self.array(what)?;
        zero_bits(what, b[1])?;
        let value = u16::from_le_bytes([b[2], b[3]]);
        if !word && value != 0 {
            return Err(LinkError::BadField { what, found: value.into(), expected: "unused bits 0" });
        }
        Ok(value)
    }

    fn fragment(&mut self, missing: usize) -> Result<Fragment<'a>, LinkError> {
        let [_, flags, l0, l1] = self.array("fragment")?;
        zero_bits("fragment flags", flags & !(FIRST | LAST | HEAD | LENGTH))?;
        let stream = Self::stream(l0, l1)?;
        let number = self.u32("fragment")?;
        let word = self.u32("fragment")?;
        let (len, attempt) = (word & 0xff_ffff, (word >> 24) as u8);
        let offset = if flags & FIRST != 0 { 0 } else { self.u64("fragment offset")? };
        let bad = |what, found, expected| Err(LinkError::BadField { what, found, expected });
        if flags & FIRST == 0 && !(1..=MAX_PAYLOAD).contains(&offset) {
            return bad("fragment offset", offset, "1 to 2^48");
        }
        if flags & FIRST != 0 && flags & HEAD == 0 {
            return bad("fragment flags", flags.into(), "a head in the first fragment");
        }
        if flags & LENGTH != 0 && (flags & LAST != 0 || flags & HEAD == 0) {
            return bad("fragment flags", flags.into(), "a length only beside a head and before the end");
        }
        let end = offset + u64::from(len);
        if end > MAX_PAYLOAD {
            return bad("end of a fragment", end, "at most 2^48");
        }
        if len == 0 && flags & LAST == 0 {
            return bad("fragment length", 0, "bytes, or the end of the payload");
        }
        let head = if flags & HEAD != 0 {
            let handler = HandlerId(self.u32("head")?);
            let mut args = [0; 4];
            for arg in &mut args {
                *arg = self.u32("head")?;
            }
            Some(Head { handler, args })
        } else {
            None
        };
        let total = if flags & LENGTH != 0 { Some(self.u64("payload length")?) } else { None };
        if let Some(total) = total {
            if total <= end || total > MAX_PAYLOAD {
                return bad("payload length", total, "beyond the fragment, at most 2^48");
            }
        }
        let left = self.bytes.len() - self.at;
        let here = if (len as usize) > left && len as usize == left + missing { left } else { len as usize };
        let bytes = self.take("fragment bytes", here)?;
        let name = Name { stream, number };
        Ok(Fragment { name, attempt, offset, len, last: flags & LAST != 0, head, total, bytes })
    }

    fn ack(&mut self) -> Result<Ack<'a>, LinkError> {
        let [_, path, c0, c1] = self.array("ack")?;
        let count = usize::from(u16::from_le_bytes([c0, c1]));
        if count > MAX_ACK_RANGES {
            return Err(LinkError::BadField {
                what: "ranges of an ack",
                found: count as u64,
                expected: "at most 64",
            });
        }
        let delay_us = self.u32("ack")?;
        let largest = self.u64("ack")?;
        let first = self.u32("ack")?;
        let more = self.take("ack ranges", count * 8)?;
        let below = |low: Option<u64>, what, found: u32| {
            low.ok_or(LinkError::BadField {
                what,
                found: found.into(),
                expected: "no more than the numbers below",
            })
        };
        let mut low = below(largest.checked_sub(first.into()), "length of an ack range", first)?;
        for c in more.chunks_exact(8) {
            let gap = u32::from_le_bytes([c[0], c[1], c[2], c[3]]);
            let len = u32::from_le_bytes([c[4], c[5], c[6], c[7]]);
            if gap == 0 {
                return Err(LinkError::BadField { what: "gap of an ack", found: 0, expected: "at least 1" });
            }
            low = below(low.checked_sub(u64::from(gap) + 1), "gap of an ack", gap)?;
            low = below(low.checked_sub(len.into()), "length of an ack range", len)?;
        }
        Ok(Ack { path, delay_us, largest, first, more })
    }
}
