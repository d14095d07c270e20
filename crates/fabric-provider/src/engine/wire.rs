//! What endpoints say to each other.
//!
//! | kind | words | payload |
//! |---|---|---|
//! | `Tagged`, `Plain` | tag (0, 1), data (2) | the message |
//! | `TaggedOffer`, `PlainOffer` | tag, data | [`Offer`] |
//! | `Take` | offer (0), landing (1), bytes (2, 3) | – |
//! | `Land` | landing (0) | the bytes, as a stream |
//! | `Taken` | offer (0), error (1) | – |
//! | `Credit` | messages (0), bytes (1) | – |
//! | `Put` | number (0), data (1) | [`Remote`], and the bytes where they are few |
//! | `Get` | number (0), landing (1) where it is to be streamed | [`Remote`] |
//! | `Got` | number (0), error (1), address (2, 3) or 0 | the bytes where they are few |
//! | `Atomic` | number (0), type and operation (1), data (2) | [`Remote`], operands, what to compare with |
//! | `Done` | number (0), error (1) | what was there before, of an atomic |
//! | `Help` | offer, or write (0), ticket of the copy (1-3) | [`Remote`]: what is read, of a read; where to |
//!
//! The upper bits of the handler say whether there is data, and what kind of an atomic it is.

use polyduct_message::{HandlerId, Head};

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message with a tag, and its bytes.
    Tagged = 1,
    /// A message without a tag, and its bytes.
    Plain,
    /// A long message with a tag.
    TaggedOffer,
    /// A long message without a tag.
    PlainOffer,
    /// The bytes of an offer, or of a write, are to be streamed.
    Take,
    /// They are.
    Land,
    /// The other end has what was offered.
    Taken,
    /// Messages that are kept no more.
    Credit,
    /// A write.
    Put,
    /// A read.
    Get,
    /// The answer to a read.
    Got,
    /// An atomic operation.
    Atomic,
    /// The answer to a write, or to an atomic operation.
    Done,
    /// The other end copies bytes of this one's, and may be helped.
    Help,
}

const KINDS: [Kind; 14] = [
    Kind::Tagged,
    Kind::Plain,
    Kind::TaggedOffer,
    Kind::PlainOffer,
    Kind::Take,
    Kind::Land,
    Kind::Taken,
    Kind::Credit,
    Kind::Put,
    Kind::Get,
    Kind::Got,
    Kind::Atomic,
    Kind::Done,
    Kind::Help,
];

/// There is data with the message.
pub const HAS_DATA: u32 = 1 << 8;
/// An atomic wants what was there before.
pub const FETCHES: u32 = 1 << 9;
/// An atomic compares first.
pub const COMPARES: u32 = 1 << 10;
/// What is copied is a read.
pub const READS: u32 = 1 << 12;
/// The bytes of a read are to be streamed.
pub const STREAMED: u32 = 1 << 11;

/// A head of this kind.
#[inline]
pub fn head(kind: Kind, flags: u32, args: [u32; 4]) -> Head {
    Head { handler: HandlerId(kind as u32 | flags), args }
}

/// The head of a message that is matched.
#[inline]
pub fn matched(kind: Kind, tag: u64, data: Option<u64>) -> Head {
    let flags = if data.is_some() { HAS_DATA } else { 0 };
    head(kind, flags, [tag as u32, (tag >> 32) as u32, data.unwrap_or(0) as u32, 0])
}

/// What kind a message says it is.
#[inline]
pub fn kind(head: &Head) -> Option<Kind> {
    KINDS.get((head.handler.0 & 0xff).checked_sub(1)? as usize).copied()
}

/// Two words of a head.
#[inline]
pub fn wide(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// A long message that lies ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its bytes.
    pub len: u64,
    /// Where they are, in the sender's memory.
    pub address: u64,
    /// What the sender calls it.
    pub number: u32,
    /// In how many pieces they are, whose list is at the address; 0: the bytes themselves are.
    pub pieces: u32,
}

impl Offer {
    /// On the wire.
    pub const BYTES: usize = 24;

    /// As it is sent.
    pub fn to_bytes(self) -> [u8; Offer::BYTES] {
        let mut bytes = [0; Offer::BYTES];
        bytes[..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.number.to_le_bytes());
        bytes[20..].copy_from_slice(&self.pieces.to_le_bytes());
        bytes
    }

    /// As it came.
    pub fn from_bytes(bytes: &[u8]) -> Option<Offer> {
        let bytes: &[u8; Offer::BYTES] = bytes.try_into().ok()?;
        Some(Offer {
            len: u64::from_le_bytes(bytes[..8].try_into().ok()?),
            address: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
            number: u32::from_le_bytes(bytes[16..20].try_into().ok()?),
            pieces: u32::from_le_bytes(bytes[20..].try_into().ok()?),
        })
    }
}

/// A part of memory that its owner has registered, and where the bytes are that go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Whose memory it is, among the owner's.
    pub key: u64,
    /// Where in it.
    pub offset: u64,
    /// How many bytes; of an atomic, how many elements.
    pub len: u64,
    /// Where the bytes are, in the memory of who asks; 0 where they follow.
    pub address: u64,
}

impl Remote {
    /// On the wire.
    pub const BYTES: usize = 32;

    /// As it is sent.
    pub fn to_bytes(self) -> [u8; Remote::BYTES] {
        let mut bytes = [0; Remote::BYTES];
        let words = [self.key, self.offset, self.len, self.address];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// As it came, and what follows it.
    pub fn split(bytes: &[u8]) -> Option<(Remote, &[u8])> {
        let (own, rest) = bytes.split_at_checked(Remote::BYTES)?;
        let word = |at: usize| Some(u64::from_le_bytes(own[8 * at..8 * at + 8].try_into().ok()?));
        Some((Remote { key: word(0)?, offset: word(1)?, len: word(2)?, address: word(3)? }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for (n, &expected) in KINDS.iter().enumerate() {
            let head = head(expected, HAS_DATA | FETCHES, [1, 2, 3, 4]);
            assert_eq!((expected as usize, kind(&head)), (n + 1, Some(expected)));
        }
        for n in [0, 15, 255] {
            assert_eq!(kind(&Head { handler: HandlerId(n), args: [0; 4] }), None);
        }
        let offer = Offer { len: 1 << 40, address: u64::MAX, number: 7, pieces: 9 };
        assert_eq!(Offer::from_bytes(&offer.to_bytes()), Some(offer));
        assert_eq!(Offer::from_bytes(&[0; 23]), None);
        let remote = Remote { key: 1, offset: 2, len: 3, address: 4 };
        let mut bytes = remote.to_bytes().to_vec();
        bytes.push(9);
        assert_eq!(Remote::split(&bytes), Some((remote, &[9][..])));
        assert_eq!(Remote::split(&bytes[..31]), None);
    }
}
