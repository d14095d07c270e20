//! The messages before a network link is open: their header in clear, refusals, and who a side says it is.
//!
//! The first eight bytes of the header stay as they are in every version, so that any two versions can refuse
//! each other with both names. All numbers are little-endian; `docs/wire.md` has the tables.

use crate::error::LinkError;
use crate::types::Address;

/// What the first message starts with.
pub const MAGIC: [u8; 4] = *b"PDNT";
/// The version of the handshake and of all that follows it on a network link.
pub const VERSION: u16 = 2;
/// How errors call it.
pub const PROTOCOL: &str = "polyduct's network link";
/// Bytes of the header.
pub const HEADER: usize = 20;
/// Bytes after the header, at most.
pub const BODY_LIMIT: usize = 128;
/// Bytes of a whole message, at most.
pub const MESSAGE_LIMIT: usize = HEADER + BODY_LIMIT;
/// Bytes of a refusal.
pub const REFUSAL: usize = HEADER + 12;

/// Which message of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// From the side that connects.
    First = 1,
    /// From the side that listens.
    Answer = 2,
    /// From the side that connects: only who knows the key *now* can make it, so a replayed first message
    /// leads nowhere.
    Confirm = 3,
    /// Instead of an answer.
    HandshakeRefusal = 4,
    /// Over datagrams, from the side that connects: asks for a cookie.
    Knock = 5,
    /// Over datagrams, from the side that listens, which keeps nothing meanwhile: the cookie that a first
    /// message must have.
    Cookie = 6,
}

/// What carries the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// A connection that keeps order and loses nothing (TCP).
    Stream,
    /// Datagrams that may be lost, doubled, reordered and damaged (UDP).
    Datagrams,
}

/// What both sides must agree on before anything is secret. Goes into the proof, so that nobody on the way
/// can change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which message.
    pub kind: Kind,
    /// The network needs no encryption: frames go plain after the proof.
    pub trusted: bool,
    /// What carries the link.
    pub carrier: Carrier,
    /// The side that connects.
    pub from: Address,
    /// The side that listens.
    pub to: Address,
    /// Bytes after the header.
    pub len: u16,
}

const TRUSTED: u8 = 1;
const DATAGRAMS: u8 = 2;

impl Header {
    /// As it goes over the wire.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[6] = self.kind as u8;
        out[7] = u8::from(self.trusted) * TRUSTED + u8::from(self.carrier == Carrier::Datagrams) * DATAGRAMS;
        out[8..12].copy_from_slice(&self.from.to_le_bytes());
        out[12..16].copy_from_slice(&self.to.to_le_bytes());
        out[16..18].copy_from_slice(&self.len.to_le_bytes());
        out
    }

    /// Reads a header.
    ///
    /// # Errors
    /// The first thing that is wrong, from the front; [`LinkError::Truncated`] only where what is there is
    /// right.
    pub fn decode(bytes: &[u8]) -> Result<Header, LinkError> {
        check_start(bytes)?;
        let Some(bytes) = bytes.first_chunk::<HEADER>() else {
            let (expected, found) = (HEADER as u64, bytes.len() as u64);
            return Err(LinkError::Truncated { what: "header", at: 0, expected, found });
        };
        let kind = match bytes[6] {
            1 => Kind::First,
            2 => Kind::Answer,
            3 => Kind::Confirm,
            4 => Kind::HandshakeRefusal,
            5 => Kind::Knock,
            6 => Kind::Cookie,
            found => return Err(bad("kind of message", found, "1 to 6")),
        };
        let flags = bytes[7];
        if flags & !(TRUSTED | DATAGRAMS) != 0 {
            return Err(bad("flags", flags, "bits 0 and 1"));
        }
        let len = u16::from_le_bytes([bytes[16], bytes[17]]);
        if usize::from(len) > BODY_LIMIT {
            return Err(bad("length of a handshake message", len, "at most 128"));
        }
        if bytes[18..20] != [0, 0] {
            let found = u16::from_le_bytes([bytes[18], bytes[19]]);
            return Err(bad("reserved bytes", found, "0"));
        }
        let carrier = if flags & DATAGRAMS == 0 { Carrier::Stream } else { Carrier::Datagrams };
        let (from, to) = (u32_at(bytes, 8), u32_at(bytes, 12));
        Ok(Header { kind, trusted: flags & TRUSTED != 0, carrier, from, to, len })
    }
}

fn bad(what: &'static str, found: impl Into<u64>, expected: &'static str) -> LinkError {
    LinkError::BadField { what, found: found.into(), expected }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// Looks at the bytes that have come so far: a stranger that speaks something else is known by its first
/// byte.
pub fn check_start(bytes: &[u8]) -> Result<(), LinkError> {
    let n = bytes.len().min(4);
    if bytes[..n] != MAGIC[..n] {
        let mut word = [0; 4];
        word[..n].copy_from_slice(&bytes[..n]);
        return Err(bad("magic number", u32::from_le_bytes(word), "\"PDNT\""));
    }
    match bytes.get(4..6) {
        Some(v) if v != VERSION.to_le_bytes() => Err(LinkError::Version {
            protocol: PROTOCOL,
            expected: VERSION.into(),
            found: u16::from_le_bytes([v[0], v[1]]).into(),
        }),
        _ => Ok(()),
    }
}

/// What a side tells the other when it turns it away. It is not authenticated: an attacker who can write on
/// the wire could have cut the connection as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeRefusal {
    /// Another version.
    Version {
        /// Of the side that refuses.
        mine: u32,
        /// Of the side that is refused.
        yours: u32,
    },
    /// One side declares the network trusted, the other does not.
    Trust {
        /// Whether the side that refuses does.
        mine: bool,
    },
    /// Another unit listens here.
    Unit {
        /// Which.
        mine: Address,
        /// Which was asked for.
        asked: Address,
    },
    /// The proof of the key failed.
    Key,
    /// No room for another connection.
    Busy,
    /// Another job.
    Domain,
    /// The same life of this unit was lost before, and lost units do not come back.
    Dead,
    /// Another life of this unit is connected, and keeps its place.
    Taken,
    /// Another life of this unit was here before, in a domain that is not over yet.
    Earlier,
}

impl HandshakeRefusal {
    /// What to answer a stranger whose message was wrong in this way; `None` where it does not speak this
    /// protocol.
    pub fn of(error: &LinkError) -> Option<HandshakeRefusal> {
        Some(match *error {
            LinkError::Version { expected, found, .. } => {
                HandshakeRefusal::Version { mine: expected, yours: found }
            }
            LinkError::Trust { mine } => HandshakeRefusal::Trust { mine },
            LinkError::WrongUnit { asked, found } => HandshakeRefusal::Unit { mine: found, asked },
            LinkError::Unauthentic => HandshakeRefusal::Key,
            LinkError::Busy => HandshakeRefusal::Busy,
            LinkError::WrongDomain => HandshakeRefusal::Domain,
            LinkError::Dead { .. } => HandshakeRefusal::Dead,
            LinkError::Taken { .. } => HandshakeRefusal::Taken,
            LinkError::Earlier { .. } => HandshakeRefusal::Earlier,
            _ => return None,
        })
    }

    /// What it means for the side that is refused.
    pub fn error(self, me: &Header) -> LinkError {
        match self {
            HandshakeRefusal::Version { mine, .. } => {
                LinkError::Version { protocol: PROTOCOL, expected: VERSION.into(), found: mine }
            }
            HandshakeRefusal::Trust { mine } => LinkError::Trust { mine: !mine },
            HandshakeRefusal::Unit { mine, asked } => LinkError::WrongUnit { asked, found: mine },
            HandshakeRefusal::Key => LinkError::Unauthentic,
            HandshakeRefusal::Busy => LinkError::Busy,
            HandshakeRefusal::Domain => LinkError::WrongDomain,
            HandshakeRefusal::Dead => LinkError::Dead { unit: me.from },
            HandshakeRefusal::Taken => LinkError::Taken { unit: me.from },
            HandshakeRefusal::Earlier => LinkError::Earlier { unit: me.from },
        }
    }

    /// As it goes over the wire, in answer to `to`.
    pub fn encode(self, carrier: Carrier, trusted: bool) -> [u8; REFUSAL] {
        let (code, a, b) = match self {
            HandshakeRefusal::Version { mine, yours } => (1, mine, yours),
            HandshakeRefusal::Trust { mine } => (2, mine.into(), (!mine).into()),
            HandshakeRefusal::Unit { mine, asked } => (3, mine, asked),
            HandshakeRefusal::Key => (4, 0, 0),
            HandshakeRefusal::Busy => (5, 0, 0),
            HandshakeRefusal::Domain => (6, 0, 0),
            HandshakeRefusal::Dead => (7, 0, 0),
            HandshakeRefusal::Taken => (8, 0, 0),
            HandshakeRefusal::Earlier => (9, 0, 0),
        };
        let header = Header { kind: Kind::HandshakeRefusal, trusted, carrier, from: 0, to: 0, len: 12 };
        let mut out = [0; REFUSAL];
        out[..HEADER].copy_from_slice(&header.encode());
        for (i, word) in [code, a, b].into_iter().enumerate() {
            out[HEADER + 4 * i..][..4].copy_from_slice(&u32::to_le_bytes(word));
        }
        out
    }

    /// Reads what follows the header of a refusal.
    ///
    /// # Errors
    /// [`LinkError::Truncated`], [`LinkError::BadField`].
    pub fn decode(body: &[u8]) -> Result<HandshakeRefusal, LinkError> {
        if body.len() != 12 {
            let found = body.len() as u64;
            return Err(LinkError::Truncated { what: "refusal", at: HEADER, expected: 12, found });
        }
        let (a, b) = (u32_at(body, 4), u32_at(body, 8));
        Ok(match u32_at(body, 0) {
            1 => HandshakeRefusal::Version { mine: a, yours: b },
            2 => HandshakeRefusal::Trust { mine: a != 0 },
            3 => HandshakeRefusal::Unit { mine: a, asked: b },
            4 => HandshakeRefusal::Key,
            5 => HandshakeRefusal::Busy,
            6 => HandshakeRefusal::Domain,
            7 => HandshakeRefusal::Dead,
            8 => HandshakeRefusal::Taken,
            9 => HandshakeRefusal::Earlier,
            found => return Err(bad("code of a refusal", found, "1 to 9")),
        })
    }
}

/// The identity that a side states: under the proof of the key, so it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The job's domain: units of one key but of two domains do not meet.
    pub domain: u64,
    /// Its address.
    pub unit: Address,
    /// Which life of the unit: a replacement has another.
    pub incarnation: u64,
    /// What it can do beyond this version; both sides use what both have.
    pub features: u32,
    /// The longest frame it takes, in bytes.
    pub frame_limit: u32,
    /// Datagrams: what the other side writes in front of each, so that it is found whatever address it comes
    /// from.
    pub index: u32,
}

/// Bytes of an [`Identity`].
pub const IDENTITY: usize = 32;

impl Identity {
    /// As it goes over the wire.
    pub fn encode(&self) -> [u8; IDENTITY] {
        let mut out = [0; IDENTITY];
        out[..8].copy_from_slice(&self.domain.to_le_bytes());
        out[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        out[16..20].copy_from_slice(&self.unit.to_le_bytes());
        out[20..24].copy_from_slice(&self.features.to_le_bytes());
        out[24..28].copy_from_slice(&self.frame_limit.to_le_bytes());
        out[28..].copy_from_slice(&self.index.to_le_bytes());
        out
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`LinkError::Truncated`] for any other length.
    pub fn decode(bytes: &[u8]) -> Result<Identity, LinkError> {
        if bytes.len() != IDENTITY {
            let (expected, found) = (IDENTITY as u64, bytes.len() as u64);
            return Err(LinkError::Truncated { what: "identity", at: HEADER, expected, found });
        }
        let long = |at| u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32;
        Ok(Identity {
            domain: long(0),
            incarnation: long(8),
            unit: u32_at(bytes, 16),
            features: u32_at(bytes, 20),
            frame_limit: u32_at(bytes, 24),
            index: u32_at(bytes, 28),
        })
    }
}
