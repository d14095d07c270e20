//! An authenticated connection as a sequence of bytes: plain where both sides trust the network, else sealed records.
//!
//! On it go messages (a length of four bytes and postcard) or the bytes of a step, which plain connections take straight
//! from a writer's slot and give straight into a reader's array.

use super::silence::Silence;
use polyduct_message::handshake::unpack;
use polyduct_message::link::net::{socket, Fault};
use polyduct_message::link::noise::Established;
use polyduct_message::link::seal::{Opener, Sealer, RECORD, RECORD_PLAIN, TAG};
use polyduct_message::LinkError;
use polyduct_os::{clock, socket::tcp, OsError};
use serde::{de::DeserializeOwned, Serialize};
use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The longest message.
const MESSAGE_LIMIT: usize = 8 << 20;
/// Bytes that are read ahead where messages are expected.
const AHEAD: usize = 4 << 10;
/// Sealed bytes that wait for the socket before no more are sealed.
const SEALED_AHEAD: usize = 256 << 10;

/// One end of a connection.
pub struct Channel {
    stream: TcpStream,
    sealer: Sealer,
    opener: Opener,
    silence: Silence,
    /// What the system said first when it would not go on: it says it once, and then that the connection is closed.
    ended: Option<Fault>,
    /// What waits for the socket, from `sent` on.
    out: Vec<u8>,
    sent: usize,
    scratch: Vec<u8>,
    /// Sealed bytes that have come, up to `have`.
    sealed: Vec<u8>,
    have: usize,
    /// Bytes that have come and were not asked for yet.
    ready: Vec<u8>,
    taken: usize,
    /// The beginning of a message.
    message: Vec<u8>,
}

impl Channel {
    /// A connection after its handshake. Its other end may be silent for as long as is `borne`.
    pub fn new(stream: TcpStream, established: Established, borne: Duration) -> Channel {
        let Established { sealer, opener, .. } = established;
        let sealed = if opener.is_plain() { Vec::new() } else { vec![0; 4 * (2 + RECORD)] };
        Channel {
            stream,
            sealer,
            opener,
            silence: Silence::new(borne),
            ended: None,
            out: Vec::new(),
            sent: 0,
            scratch: Vec::new(),
            sealed,
            have: 0,
            ready: Vec::new(),
            taken: 0,
            message: Vec::new(),
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
        self.sent < self.out.len()
    }

    /// Queues a message.
    pub fn post(&mut self, message: &impl Serialize) -> Result<(), Fault> {
        let mut bytes = postcard::to_extend(message, vec![0; 4]).unwrap_or_default();
        let len = bytes.len().saturating_sub(4);
        if len == 0 || len > MESSAGE_LIMIT {
            return Err(OsError::MessageLength { len, limit: MESSAGE_LIMIT }.into());
        }
        bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
        if self.sealer.is_plain() {
            self.out.extend_from_slice(&bytes);
            return Ok(());
        }
        bytes.chunks(RECORD_PLAIN).try_for_each(|chunk| self.seal(chunk))
    }

    /// When [`flush`](Channel::flush) is to be called again though nothing happens, to see whether the other end is there.
    pub fn deadline(&self) -> Option<Duration> {
        self.silence.deadline()
    }

    /// Writes what waits; returns whether all of it went. An error, too, where the other end acknowledges nothing any more.
    pub fn flush(&mut self) -> Result<bool, Fault> {
        if self.is_backed_up() {
            self.silence.sent(clock::now());
        }
        if self.silence.deadline().is_some() {
            let looked = self.silence.look(clock::now(), || tcp::acks(&self.stream));
            first(&mut self.ended, looked)?;
        }
        while self.is_backed_up() {
            let written = socket::write(&self.stream, &[IoSlice::new(&self.out[self.sent..])]);
            match first(&mut self.ended, written)? {
                Some(n) => self.sent += n,
                None => return Ok(false),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Sends the beginning of these bytes; returns how many, `None` where the socket takes nothing now.
    pub fn send(&mut self, parts: &[IoSlice<'_>]) -> Result<Option<usize>, Fault> {
        if !self.flush()? {
            return Ok(None);
        }
        if self.sealer.is_plain() {
            self.silence.sent(clock::now());
            return first(&mut self.ended, socket::write(&self.stream, parts));
        }
        let mut n = 0;
        let mut scratch = std::mem::take(&mut self.scratch);
        for part in parts {
            if self.out.len() >= SEALED_AHEAD {
                break;
            }
            // Short parts share a record, long ones are sealed from where they lie.
            if scratch.len() + part.len() < RECORD_PLAIN {
                scratch.extend_from_slice(part);
                n += part.len();
                continue;
            }
            if !scratch.is_empty() {
                self.seal(&scratch)?;
                scratch.clear();
            }
            for chunk in part.chunks(RECORD_PLAIN).take(SEALED_AHEAD / RECORD_PLAIN) {
                self.seal(chunk)?;
                n += chunk.len();
            }
            if part.len() > RECORD_PLAIN * (SEALED_AHEAD / RECORD_PLAIN) {
                break;
            }
        }
        if !scratch.is_empty() {
            self.seal(&scratch)?;
            scratch.clear();
        }
        self.scratch = scratch;
        self.flush()?;
        Ok(Some(n))
    }

    fn seal(&mut self, plain: &[u8]) -> Result<(), Fault> {
        let (at, len) = (self.out.len(), plain.len() + TAG);
        self.out.resize(at + 2 + len, 0);
        self.out[at..at + 2].copy_from_slice(&(len as u16).to_le_bytes());
        self.sealer.seal(plain, &mut self.out[at + 2..])?;
        Ok(())
    }

    /// Says that nothing more will come.
    pub fn shut(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    // -- in --

    /// Reads what has come into `parts`; returns how many bytes, `None` where there are none now.
    pub fn recv(&mut self, parts: &mut [IoSliceMut<'_>]) -> Result<Option<usize>, Fault> {
        if self.taken == self.ready.len() {
            if self.opener.is_plain() {
                return first(&mut self.ended, socket::read(&self.stream, parts));
            }
            let into = parts.first_mut().map(|p| &mut p[..]).unwrap_or_default();
            match self.open(into)? {
                Opened::Nothing => return Ok(None),
                Opened::There(n) => return Ok(Some(n)),
                Opened::Here => {}
            }
        }
        let mut n = 0;
        for part in parts {
            let left = &self.ready[self.taken..];
            let len = left.len().min(part.len());
            part[..len].copy_from_slice(&left[..len]);
            self.taken += len;
            n += len;
        }
        Ok(Some(n))
    }

    /// The next message, once what waits has been written. What came before the end of a connection counts, though nobody takes
    /// anything there any more.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Fault> {
        match self.flush() {
            Ok(false) => Ok(None),
            Ok(true) => self.next(),
            Err(fault) => self.next().ok().flatten().map_or(Err(fault), |said| Ok(Some(said))),
        }
    }

    /// The next message, if all of it has come.
    // No iterator: each message may be of another type.
    #[allow(clippy::should_implement_trait)]
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Fault> {
        loop {
            let want = match self.message.first_chunk::<4>() {
                None => 4,
                Some(len) => 4 + u32::from_le_bytes(*len) as usize,
            };
            if want > 4 + MESSAGE_LIMIT {
                let (what, found) = ("length of a message", want as u64 - 4);
                return Err(LinkError::BadField { what, found, expected: "at most 8 MiB" }.into());
            }
            if self.message.len() == want && want > 4 {
                let value = unpack(&self.message[4..]);
                self.message.clear();
                let bad = LinkError::BadField {
                    what: "message",
                    found: want as u64,
                    expected: "one of this protocol",
                };
                return value.map(Some).map_err(|_| bad.into());
            }
            if self.message.len() == 4 && want == 4 {
                let (what, expected) = ("length of a message", "at least 1");
                return Err(LinkError::BadField { what, found: 0, expected }.into());
            }
            if self.taken == self.ready.len() && !self.pull()? {
                return Ok(None);
            }
            let left = &self.ready[self.taken..];
            let len = left.len().min(want - self.message.len());
            self.message.extend_from_slice(&left[..len]);
            self.taken += len;
        }
    }

    /// Reads ahead a little. `false`: nothing has come.
    fn pull(&mut self) -> Result<bool, Fault> {
        self.taken = 0;
        if !self.opener.is_plain() {
            self.ready.clear();
            return Ok(!matches!(self.open(&mut [])?, Opened::Nothing));
        }
        self.ready.resize(AHEAD, 0);
        let read = socket::read(&self.stream, &mut [IoSliceMut::new(&mut self.ready)]);
        let n = read.as_ref().map_or(0, |n| n.unwrap_or(0));
        self.ready.truncate(n);
        Ok(first(&mut self.ended, read)?.is_some())
    }

    /// Opens the next record: into `into` where that has room for it, else into `ready`.
    fn open(&mut self, into: &mut [u8]) -> Result<Opened, Fault> {
        loop {
            let have = &self.sealed[..self.have];
            if let Some(len) = have.first_chunk::<2>().map(|l| usize::from(u16::from_le_bytes(*l))) {
                if len <= TAG {
                    let (what, found) = ("length of a record", len as u64);
                    return Err(LinkError::BadField { what, found, expected: "17 to 65535" }.into());
                }
                if let Some(record) = have.get(2..2 + len) {
                    let opened = if into.len() >= len {
                        Opened::There(self.opener.open_next(record, &mut into[..len])?)
                    } else {
                        self.ready.resize(len, 0);
                        let n = self.opener.open_next(record, &mut self.ready)?;
                        self.ready.truncate(n);
                        self.taken = 0;
                        Opened::Here
                    };
                    self.sealed.copy_within(2 + len..self.have, 0);
                    self.have -= 2 + len;
                    return Ok(opened);
                }
            }
            let read = socket::read(&self.stream, &mut [IoSliceMut::new(&mut self.sealed[self.have..])]);
            match first(&mut self.ended, read)? {
                Some(n) => self.have += n,
                None => return Ok(Opened::Nothing),
            }
        }
    }
}

/// The result of a call, or instead of an error the first one.
fn first<T>(ended: &mut Option<Fault>, result: Result<T, OsError>) -> Result<T, Fault> {
    result.map_err(|error| ended.get_or_insert(error.into()).clone())
}

/// Where a record went.
enum Opened {
    Nothing,
    There(usize),
    Here,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::dial::dial;
    use super::super::porch::Porch;
    use super::super::wire::{Ask, First, Tell};
    use super::super::{JobKey, Place, Trust};
    use super::*;
    use crate::serve::HOST;
    use polyduct_os::poll::poll;
    use polyduct_port::Options;

    /// Two ends of a connection.
    pub fn pair(trusted_network: bool) -> (Channel, Channel) {
        let place = Place { host: "127.0.0.1".into(), port: 0, name: "pair".into() };
        let trust = Trust { key: JobKey::from_bytes([7; 32]).unwrap(), trusted_network };
        let options = Options::default();
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut porch = Porch::new(at, &place, &trust, 0, options.silence).unwrap();
        let at = porch.addr();
        std::thread::scope(|s| {
            let dialled = s.spawn(|| {
                let mut channel =
                    dial(&place, &trust, &options, clock::now(), &[at], (HOST, false), || Ok(None)).unwrap();
                channel.post(&First::Lane { program: 0, unit: 0, from: 0, host: None }).unwrap();
                assert!(channel.flush().unwrap());
                channel
            });
            let came = loop {
                let mut items = Vec::new();
                porch.items(&mut items);
                poll(&mut items, None).unwrap();
                if let Some((channel, _)) = porch.serve(clock::now()).unwrap().pop() {
                    break channel;
                }
            };
            (dialled.join().unwrap(), came)
        })
    }

    #[test]
    fn what_was_said_before_the_end_counts_though_nothing_can_be_written() {
        for trusted in [true, false] {
            let (mut leaver, mut host) = pair(trusted);
            // Who goes with words unread breaks the connection, and not only ends it.
            host.post(&Tell::Bye).unwrap();
            assert!(host.flush().unwrap());
            leaver.post(&Ask::Close).unwrap();
            assert!(leaver.flush().unwrap());
            drop(leaver);
            host.post(&Tell::Bye).unwrap();
            let said = host.hear();
            assert!(matches!(said, Ok(Some(Ask::Close))), "trusted {trusted}: {said:?}");
            let end = host.hear::<Ask>();
            assert!(matches!(end, Err(Fault::System(OsError::PeerClosed))), "trusted {trusted}: {end:?}");
        }
    }
}
