//! The contents of a ring's line.
//!
//! | word | |
//! |---|---|
//! | 0 | position + 1 (bits 0-31), channel (32-47), kind (48-54), whether the payload begins at the ring's start (55), length of what is in the line (56-63) |
//! | 1-3 | handler and four words; of no meaning in `Next` and `Abandon` |
//! | 3, upper half | bytes of payload in the ring |
//! | 4-7 | `Inline`: payload. `First`: bytes of the whole message. `Posted`: its bytes, its address, and [whose](posted) it is |

use crate::types::{HandlerId, Head};

/// Payload bytes that fit into the line itself.
pub const INLINE: usize = 32;

/// Word 6 of a posted record until one side has it for good: the receiver, which has fetched the payload
/// ([`FETCHED`]), or the sender, which takes it back ([`WITHDRAWN`]). It is looked at only while the line is
/// the record's.
#[inline]
pub fn posted(position: u32) -> u64 {
    0x706f_7374_0000_0000 ^ u64::from(position)
}

/// The receiver has the payload.
pub const FETCHED: u64 = 1;
/// The sender has its payload back: there is no message.
pub const WITHDRAWN: u64 = 2;

/// What kind of record a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message whose payload is in the line.
    Inline = 1,
    /// A message whose payload is in the ring.
    Whole = 2,
    /// The first fragment of a message.
    First = 3,
    /// A further fragment of the channel's message.
    Next = 4,
    /// A message whose payload the receiver pulls out of the sender's memory.
    Posted = 5,
    /// The channel's message will not be completed.
    Abandon = 6,
}

/// The upper half of a line's first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The channel, unchecked.
    pub channel: u16,
    /// The kind, unchecked.
    pub kind: u8,
    /// The payload begins at the ring's start: what was left before that is left out.
    pub anew: bool,
    /// Bytes of payload in the line, unchecked.
    pub inline: u8,
}

impl Tag {
    /// Into a word.
    #[inline]
    pub fn pack(channel: u16, kind: Kind, anew: bool, inline: usize) -> u32 {
        u32::from(channel) | (kind as u32) << 16 | u32::from(anew) << 23 | (inline as u32) << 24
    }

    /// Out of a word.
    #[inline]
    pub fn unpack(tag: u32) -> Tag {
        let (kind, anew) = ((tag >> 16) as u8 & 0x7f, tag & 1 << 23 != 0);
        Tag { channel: tag as u16, kind, anew, inline: (tag >> 24) as u8 }
    }
}

/// The words 1 to 3: head, and bytes in the ring.
#[inline]
pub fn pack_head(head: &Head, ring_bytes: u32) -> [u64; 3] {
    let pair = |a: u32, b: u32| u64::from(b) << 32 | u64::from(a);
    [pair(head.handler.0, head.args[0]), pair(head.args[1], head.args[2]), pair(head.args[3], ring_bytes)]
}

/// The head, and bytes in the ring.
#[inline]
pub fn unpack_head(words: [u64; 3]) -> (Head, u32) {
    let [a, b, c] = words;
    let args = [(a >> 32) as u32, b as u32, (b >> 32) as u32, c as u32];
    (Head { handler: HandlerId(a as u32), args }, (c >> 32) as u32)
}

/// A short payload as words.
#[inline]
pub fn pack_inline(payload: &[u8]) -> [u64; 4] {
    let mut bytes = [0; INLINE];
    bytes[..payload.len()].copy_from_slice(payload);
    core::array::from_fn(|i| u64::from_ne_bytes(core::array::from_fn(|j| bytes[8 * i + j])))
}

/// Words as a short payload.
#[inline]
pub fn unpack_inline(words: [u64; 4]) -> [u8; INLINE] {
    let mut bytes = [0; INLINE];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}
