//! The handshake: what units say to the writer's unit 0 before data flows, and how it lies in messages.
//!
//! A message is a header of 8 bytes, `b"PDUC"`, the version (u16, little endian), a kind (0 the body follows, 1 the body
//! lies in the segment that is the last descriptor) and a zero, then the body in [postcard] form. The version is looked
//! at before anything else, so that two versions can tell each other apart for ever.

use crate::config::{OnLoss, Policy};
use crate::error::Refusal;
use polyduct_os::{
    segment::{Access, Segment},
    socket::{Conn, Received, Sent, MESSAGE_LIMIT},
    OsError,
};
use serde::{de::DeserializeOwned, Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Version of the handshake.
pub const VERSION: u16 = 1;
/// The longest body; one that does not fit a message travels in a segment.
pub const BODY_LIMIT: usize = 8 << 20;
/// The most segments that one message may ask for, so that the answers on their way stay few.
pub const SEGMENTS_AT_ONCE: usize = 64;
const MAGIC: &[u8; 4] = b"PDUC";
const HEADER: usize = 8;

/// Shape and element type in a form that crosses the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// Extents.
    pub shape: Vec<u64>,
    /// Element type as text.
    pub elem: String,
}

/// What a unit says first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Name of its program.
    pub program: String,
    /// Its number.
    pub unit: u32,
    /// Units of its program.
    pub units: u32,
    /// Layout of its program.
    pub layout: String,
    /// Start time of its process (the pid comes with the socket).
    pub start_time: u64,
    /// What losing this unit means.
    pub on_loss: OnLoss,
    /// The rest depends on the side.
    pub role: Role,
    /// Set by a survivor that comes to the replacement of unit 0 of the writers: what it was told when it joined. With
    /// it come the control segment and, from a writer its own slots, from a reader those of unit 0 if it reads them.
    pub rejoin: Option<Welcome>,
}

/// What only one side says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A writer: comes with its segment of slots, except as a replacement.
    Writer {
        /// The dataset; `None` takes the readers'.
        dataset: Option<Dataset>,
        /// Slots.
        depth: u32,
        /// Queue policy.
        policy: Policy,
        /// Reader programs to wait for.
        readers: u32,
    },
    /// A reader.
    Reader {
        /// The shape it expects.
        shape: Option<Vec<u64>>,
        /// The element type it expects.
        elem: Option<String>,
        /// Whether the element type may be converted on the way.
        convert: bool,
    },
}

/// What a unit may ask of unit 0.
// One at a time, and never kept: not worth a box.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHost {
    /// I want to join.
    Hello(Hello),
    /// A reader: send me the segments of these writers, at most [`SEGMENTS_AT_ONCE`].
    Segments(Vec<u32>),
    /// I have all I need.
    Ready,
}

/// What unit 0 answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromHost {
    /// You may not join.
    Refused(Refusal),
    /// You have joined; the control segment comes with this, and for a replaced writer its predecessor's slots.
    Welcome(Welcome),
    /// The segment of this writer.
    Segment(u32),
    /// All units are ready.
    Go,
}

/// Everything that a unit must know of the pipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// For a reader: which of the reader programs it belongs to.
    pub program: u32,
    /// Units of the writer program.
    pub writers: u32,
    /// Units of each reader program.
    pub readers: Vec<u32>,
    /// Slots.
    pub depth: u32,
    /// Queue policy.
    pub policy: Policy,
    /// What moves.
    pub dataset: Dataset,
    /// The writers' layout.
    pub layout: String,
    /// Whether the writers wait for a replacement of a lost unit, unit 0 included.
    pub writers_wait: bool,
    /// The layout of each reader program.
    pub reader_layouts: Vec<String>,
    /// Whether a reader may convert the element type.
    pub converts: bool,
}

/// Why a message could not be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Bad {
    /// Not a message of this protocol.
    Malformed,
    /// Another version of it.
    Version(u16),
}

/// Takes a message apart: its body, or `None` when the body lies in a segment.
pub fn decode<T: DeserializeOwned>(message: &[u8]) -> Result<Option<T>, Bad> {
    let (header, body) = message.split_at_checked(HEADER).ok_or(Bad::Malformed)?;
    if &header[..4] != MAGIC {
        return Err(Bad::Malformed);
    }
    let version = u16::from_le_bytes([header[4], header[5]]);
    if version != VERSION {
        return Err(Bad::Version(version));
    }
    match header[6] {
        0 => postcard::from_bytes(body).map(Some).map_err(|_| Bad::Malformed),
        1 if body.is_empty() => Ok(None),
        _ => Err(Bad::Malformed),
    }
}

fn header(kind: u8) -> Vec<u8> {
    let mut m = MAGIC.to_vec();
    m.extend(VERSION.to_le_bytes());
    m.extend([kind, 0]);
    m
}

/// A message ready to send: its bytes, and the segment of a body that is too long for them.
pub struct Encoded {
    bytes: Vec<u8>,
    body: Option<Segment>,
}

/// Puts a message together.
pub fn encode<T: Serialize>(value: &T) -> Result<Encoded, OsError> {
    let message = postcard::to_extend(value, header(0)).unwrap_or_default();
    if message.len() <= MESSAGE_LIMIT && !message.is_empty() {
        return Ok(Encoded { bytes: message, body: None });
    }
    let body = message.get(HEADER..).unwrap_or_default();
    if body.is_empty() || body.len() > BODY_LIMIT {
        return Err(OsError::MessageLength { len: body.len(), limit: BODY_LIMIT });
    }
    let mut segment = Segment::create("polyduct-handshake", body.len())?;
    segment.slice_mut(0..body.len())?.copy_from_slice(body);
    Ok(Encoded { bytes: header(1), body: Some(segment) })
}

impl Encoded {
    /// Sends it with these descriptors.
    pub fn send(&self, conn: &Conn, fds: &[BorrowedFd<'_>]) -> Result<Sent, OsError> {
        let mut fds = fds.to_vec();
        fds.extend(self.body.as_ref().map(|s| s.fd()));
        conn.send(&self.bytes, &fds)
    }
}

/// What came in.
pub enum Incoming<T> {
    /// A message and its descriptors.
    Message(T, Vec<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// The other end has gone.
    Closed,
    /// Something else than a message.
    Bad(Bad),
}

/// Receives a message if there is one. A message that breaks the rules of sockets counts as malformed.
pub fn receive<T: DeserializeOwned>(conn: &Conn, buffer: &mut [u8]) -> Incoming<T> {
    let (len, mut fds) = match conn.recv(buffer) {
        Ok(Received::Message { len, fds }) => (len, fds),
        Ok(Received::WouldBlock) => return Incoming::Nothing,
        Ok(Received::Closed) => return Incoming::Closed,
        Err(_) => return Incoming::Bad(Bad::Malformed),
    };
    let body = match decode(&buffer[..len]) {
        Ok(Some(value)) => return Incoming::Message(value, fds),
        Ok(None) => fds.pop(),
        Err(bad) => return Incoming::Bad(bad),
    };
    let value = body
        .and_then(|fd| {
            Segment::from_fd(fd.as_fd().try_clone_to_owned().ok()?, 1, BODY_LIMIT, Access::ReadOnly).ok()
        })
        // Copied out first: the sender could still write it.
        .and_then(|segment| segment.slice(0..segment.len()).ok().map(<[u8]>::to_vec))
        .and_then(|body| postcard::from_bytes(&body).ok());
    match value {
        Some(value) => Incoming::Message(value, fds),
        None => Incoming::Bad(Bad::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello(layout: &str) -> ToHost {
        ToHost::Hello(Hello {
            program: "p".into(),
            unit: 1,
            units: 2,
            layout: layout.into(),
            start_time: 7,
            on_loss: OnLoss::Raise,
            role: Role::Reader { shape: Some(vec![3, 4]), elem: None, convert: false },
            rejoin: None,
        })
    }

    #[test]
    fn messages_of_any_length_arrive() {
        let (a, b) = Conn::pair().unwrap();
        let mut buffer = vec![0; MESSAGE_LIMIT];
        for len in [0, 10, 60_000, 70_000, 3 << 20] {
            let sent = hello(&"x".repeat(len));
            assert_eq!(encode(&sent).unwrap().send(&a, &[]).unwrap(), Sent::Done);
            match receive::<ToHost>(&b, &mut buffer) {
                Incoming::Message(got, fds) => assert!(got == sent && fds.is_empty()),
                _ => panic!("length {len} did not arrive"),
            }
        }
        assert!(encode(&hello(&"x".repeat(BODY_LIMIT + 1))).is_err());
    }

    #[test]
    fn another_version_is_told_apart() {
        let mut message = encode(&hello("*")).unwrap().bytes;
        message[4] = 9;
        assert_eq!(decode::<ToHost>(&message).unwrap_err(), Bad::Version(9));
        message[0] = b'X';
        assert_eq!(decode::<ToHost>(&message).unwrap_err(), Bad::Malformed);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..300), valid in any::<bool>()) {
            if valid && bytes.len() >= HEADER {
                bytes[..HEADER].copy_from_slice(&header(0));
            }
            let _ = decode::<ToHost>(&bytes);
            let _ = decode::<FromHost>(&bytes);
        }

        #[test]
        fn a_damaged_message_is_no_crash(at in 0usize..60, byte in any::<u8>()) {
            let mut message = encode(&hello("block,*")).unwrap().bytes;
            let at = at % message.len();
            message[at] = byte;
            let _ = decode::<ToHost>(&message);
        }
    }
}
