//! An authenticated connection: [records](super::record), on which go messages (postcard) or plain bytes, straight from
//! where they lie and to where they belong; and whether its other end is there (`silence`).

use super::record::{Piece, RecordReader, RecordWriter, SEALED, SMALL};
use super::silence::Silence;
use super::LinkFault;
use crate::error::LinkError;
use crate::handshake::{unpack, BODY_LIMIT};
use crate::link::noise::Established;
use polyduct_os::{clock, socket::tcp, OsError};
use serde::{de::DeserializeOwned, Serialize};
use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The longest message.
const MESSAGE_LIMIT: usize = BODY_LIMIT;

/// One end of a connection.
pub struct Channel {
    stream: TcpStream,
    writer: RecordWriter,
    reader: RecordReader,
    silence: Silence,
    /// What the system said first when it would not go on: it says it once, and then that the connection is
    /// closed.
    ended: Option<LinkFault>,
}

impl Channel {
    /// A connection after its handshake. Its other end may be silent for as long as is `borne`.
    pub fn new(stream: TcpStream, established: Established, borne: Duration) -> Channel {
        let Established { sealer, opener, .. } = established;
        // Behind a message may come the bytes of a step, which plain go straight to their place.
        let reader = RecordReader::new(opener, SMALL, 4 * SEALED);
        Channel {
            stream,
            writer: RecordWriter::new(sealer),
            reader,
            silence: Silence::new(borne),
            ended: None,
        }
    }

    /// The address of the other end.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }

    /// The address of this end.
    pub fn local(&self) -> Result<SocketAddr, OsError> {
        self.stream.local_addr().map_err(|e| OsError::System {
            op: "getsockname",
            what: "a connection".into(),
            errno: polyduct_os::Errno::from_io_error(&e).unwrap_or(polyduct_os::Errno::IO),
        })
    }

    // -- out --

    /// Whether bytes wait for the socket to take them.
    pub fn is_backed_up(&self) -> bool {
        self.writer.queued_bytes() > 0
    }

    /// Queues a message.
    pub fn post(&mut self, message: &impl Serialize) -> Result<(), LinkFault> {
        let bytes = postcard::to_extend(message, Vec::new()).unwrap_or_default();
        let len = bytes.len();
        if len == 0 || len > MESSAGE_LIMIT {
            return Err(OsError::MessageLength { len, limit: MESSAGE_LIMIT }.into());
        }
        Ok(self.writer.push(len, std::iter::once(Piece::Copy(&bytes)))?)
    }

    /// When [`flush`](Channel::flush) is to be called again though nothing happens, to see whether the other
    /// end is there.
    pub fn deadline(&self) -> Option<Duration> {
        self.silence.deadline()
    }

    /// Writes what waits; returns whether all of it went. An error, too, where the other end acknowledges
    /// nothing any more.
    pub fn flush(&mut self) -> Result<bool, LinkFault> {
        if self.is_backed_up() {
            self.silence.sent(clock::now());
        }
        if self.silence.deadline().is_some() {
            let looked = self.silence.look(clock::now(), || tcp::acks(&self.stream));
            first(&mut self.ended, looked)?;
        }
        first(&mut self.ended, self.writer.write(&self.stream))
    }

    /// Sends the beginning of these bytes; returns how many, `None` where the socket takes nothing now.
    pub fn send(&mut self, parts: &[IoSlice<'_>]) -> Result<Option<usize>, LinkFault> {
        if !self.flush()? {
            return Ok(None);
        }
        self.silence.sent(clock::now());
        first(&mut self.ended, self.writer.send(&self.stream, parts))
    }

    /// Says that nothing more will come.
    pub fn shut(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    // -- in --

    /// Reads what has come into `parts`; returns how many bytes, `None` where there are none now.
    pub fn recv(&mut self, parts: &mut [IoSliceMut<'_>]) -> Result<Option<usize>, LinkFault> {
        first(&mut self.ended, self.reader.recv(&self.stream, parts))
    }

    /// The next message, once what waits has been written. What came before the end of a connection counts,
    /// though nobody takes anything there any more.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>, LinkFault> {
        match self.flush() {
            Ok(false) => Ok(None),
            Ok(true) => self.next(),
            Err(fault) => self.next().ok().flatten().map_or(Err(fault), |said| Ok(Some(said))),
        }
    }

    /// The next message, if all of it has come.
    // No iterator: each message may be of another type.
    #[allow(clippy::should_implement_trait)]
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, LinkFault> {
        let message = first(&mut self.ended, self.reader.message(&self.stream, MESSAGE_LIMIT))?;
        let Some(bytes) = message else { return Ok(None) };
        let (what, found, expected) = ("message", bytes.len() as u64, "one of this protocol");
        unpack(bytes).map(Some).map_err(|_| LinkError::BadField { what, found, expected }.into())
    }
}

/// The result of a call, or instead of an error the first one.
fn first<T>(ended: &mut Option<LinkFault>, result: Result<T, impl Into<LinkFault>>) -> Result<T, LinkFault> {
    result.map_err(|error| ended.get_or_insert(error.into()).clone())
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
