//! Messages between processes of one host that share no memory yet: values over a Unix socket, with
//! descriptors.
//!
//! A message is a header of 8 bytes: a magic of four, the version (u16, little endian), where the body is (0
//! it follows, 1 it lies in the segment that is the last descriptor) and what meets (a pipe, a domain, the
//! writers of a file); then the body in [postcard] form. The version is looked at before anything else, so
//! that two versions can tell each other apart for ever.

use crate::error::Refusal;
use polyduct_os::{
    segment::{Access, Segment},
    socket::{Conn, Received, Sent, MESSAGE_LIMIT},
    OsError,
};
use serde::{de::DeserializeOwned, Serialize};
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest body; one that does not fit a message travels in a segment.
pub const BODY_LIMIT: usize = 64 << 20;
const HEADER: usize = 8;

/// What every message begins with.
const MAGIC: [u8; 4] = *b"PDUC";
/// The version of all meetings: of what is said in these messages, whatever meets, and where units meet
/// across hosts.
pub const VERSION: u16 = 21;

/// What the header of a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// What meets: those of different kinds never understand each other.
    pub kind: u8,
    /// Processes of different versions do not, either, but are told so.
    pub version: u16,
}

/// The units of a pipe.
pub const PIPE: Protocol = Protocol { kind: 1, version: VERSION };
/// The units of a domain.
pub const DOMAIN: Protocol = Protocol { kind: 2, version: VERSION };
/// The units that write a file.
pub const FILE: Protocol = Protocol { kind: 3, version: VERSION };
/// Programs and gateways.
pub const GATEWAY: Protocol = Protocol { kind: 4, version: VERSION };
/// Endpoints that reach each other by their places.
pub const ENDPOINT: Protocol = Protocol { kind: 5, version: VERSION };

/// Why a message could not be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Bad {
    /// Not a message of this protocol.
    Malformed,
    /// Another version of it.
    Version(u16),
    /// This process had no descriptor free for one that came along.
    NoDescriptor,
}

impl Bad {
    /// What the unit `asked`, which could not read the message, answers.
    pub fn refusal<P: Display, T: Display>(self, asked: P) -> Refusal<P, T> {
        match self {
            Bad::Malformed => Refusal::Malformed,
            Bad::NoDescriptor => Refusal::System { unit: asked, error: no_descriptor().to_string() },
            Bad::Version(found) => Refusal::Version { expected: VERSION.into(), found: found.into() },
        }
    }
}

/// What this unit takes an answer in the version `expected` for: the unit that it asked cannot read it.
pub fn other_version<P: Display, T: Display>(expected: u16) -> Refusal<P, T> {
    Refusal::Version { expected: expected.into(), found: VERSION.into() }
}

/// A message ready to send: its bytes, and the segment of a body that is too long for them.
pub struct Encoded {
    bytes: Vec<u8>,
    body: Option<Segment>,
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

/// A value in postcard's form, and nothing behind it.
///
/// # Errors
/// For any other bytes.
pub fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, postcard::Error> {
    match postcard::take_from_bytes(bytes)? {
        (value, []) => Ok(value),
        _ => Err(postcard::Error::DeserializeBadEncoding),
    }
}

impl Protocol {
    /// Takes a message apart: its body, or `None` when the body lies in a segment.
    ///
    /// # Errors
    /// [`Bad`], for any bytes that are no message.
    pub fn decode<T: DeserializeOwned>(&self, message: &[u8]) -> Result<Option<T>, Bad> {
        let (header, body) = message.split_at_checked(HEADER).ok_or(Bad::Malformed)?;
        if header[..4] != MAGIC {
            return Err(Bad::Malformed);
        }
        let version = u16::from_le_bytes([header[4], header[5]]);
        if version != self.version {
            return Err(Bad::Version(version));
        }
        if header[7] != self.kind {
            return Err(Bad::Malformed);
        }
        match header[6] {
            0 => unpack(body).map(Some).map_err(|_| Bad::Malformed),
            1 if body.is_empty() => Ok(None),
            _ => Err(Bad::Malformed),
        }
    }

    fn header(&self, body: u8) -> Vec<u8> {
        let mut m = MAGIC.to_vec();
        m.extend(self.version.to_le_bytes());
        m.extend([body, self.kind]);
        m
    }

    /// Puts a message together.
    ///
    /// # Errors
    /// [`OsError::MessageLength`] beyond [`BODY_LIMIT`]; the system's refusal of a segment.
    pub fn encode<T: Serialize>(&self, value: &T) -> Result<Encoded, OsError> {
        let message = postcard::to_extend(value, self.header(0)).unwrap_or_default();
        if message.len() <= MESSAGE_LIMIT && !message.is_empty() {
            return Ok(Encoded { bytes: message, body: None });
        }
        let body = message.get(HEADER..).unwrap_or_default();
        if body.is_empty() || body.len() > BODY_LIMIT {
            return Err(OsError::MessageLength { len: body.len(), limit: BODY_LIMIT });
        }
        let mut segment = Segment::create("polyduct-handshake", body.len())?;
        segment.slice_mut(0..body.len())?.copy_from_slice(body);
        Ok(Encoded { bytes: self.header(1), body: Some(segment) })
    }

    /// Receives a message if there is one. A message that breaks the rules of sockets counts as malformed.
    /// `buffer` has room for [`MESSAGE_LIMIT`] bytes.
    pub fn receive<T: DeserializeOwned>(&self, conn: &Conn, buffer: &mut [u8]) -> Incoming<T> {
        // A peer that hangs up with something of ours unread resets the connection, and the system tells that
        // before it gives out what the peer had said last: an end is believed when it is met twice.
        let received = match conn.recv(buffer) {
            Ok(Received::Closed) => conn.recv(buffer),
            other => other,
        };
        let (len, mut fds) = match received {
            Ok(Received::Message { len, fds }) => (len, fds),
            Ok(Received::WouldBlock) => return Incoming::Nothing,
            Ok(Received::Closed) => return Incoming::Closed,
            Err(OsError::DescriptorsTruncated { kept, limit }) if kept < limit => {
                return Incoming::Bad(Bad::NoDescriptor)
            }
            Err(_) => return Incoming::Bad(Bad::Malformed),
        };
        let body = match self.decode(&buffer[..len]) {
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
            .and_then(|body| unpack(&body).ok());
        match value {
            Some(value) => Incoming::Message(value, fds),
            None => Incoming::Bad(Bad::Malformed),
        }
    }
}

/// The length of a message's body, in bytes.
pub fn len_bytes<T: Serialize>(value: &T) -> usize {
    postcard::experimental::serialized_size(value).unwrap_or(usize::MAX)
}

/// No descriptor was free for one that came along with a message.
pub fn no_descriptor() -> OsError {
    OsError::sys("recvmsg", "a message of the handshake", polyduct_os::Errno::MFILE)
}

impl Encoded {
    /// Sends it with these descriptors.
    ///
    /// # Errors
    /// As [`Conn::send`].
    pub fn send(&self, conn: &Conn, fds: &[BorrowedFd<'_>]) -> Result<Sent, OsError> {
        let mut fds = fds.to_vec();
        fds.extend(self.body.as_ref().map(|s| s.fd()));
        conn.send(&self.bytes, &fds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const P: Protocol = Protocol { kind: 9, version: 3 };

    #[test]
    fn messages_of_any_length_arrive() {
        let (a, b) = Conn::pair().unwrap();
        let mut buffer = vec![0; MESSAGE_LIMIT];
        for len in [0, 10, 60_000, 70_000, 3 << 20] {
            let sent = ("x".repeat(len), Some(7u32));
            assert_eq!(P.encode(&sent).unwrap().send(&a, &[]).unwrap(), Sent::Done);
            match P.receive::<(String, Option<u32>)>(&b, &mut buffer) {
                Incoming::Message(got, fds) => assert!(got == sent && fds.is_empty()),
                _ => panic!("length {len} did not arrive"),
            }
        }
        assert!(P.encode(&"x".repeat(BODY_LIMIT + 1)).is_err());
    }

    #[test]
    fn another_version_is_told_apart() {
        let mut message = P.encode(&5u32).unwrap().bytes;
        message[4] = 9;
        assert_eq!(P.decode::<u32>(&message).unwrap_err(), Bad::Version(9));
        message[0] = b'X';
        assert_eq!(P.decode::<u32>(&message).unwrap_err(), Bad::Malformed);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..300), valid in any::<bool>()) {
            if valid && bytes.len() >= HEADER {
                bytes[..HEADER].copy_from_slice(&P.header(0));
            }
            let _ = P.decode::<Vec<String>>(&bytes);
            let _ = P.decode::<(u64, Option<String>)>(&bytes);
        }
    }
}
