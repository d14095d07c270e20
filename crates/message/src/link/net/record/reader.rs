//! The incoming half.

use super::super::{socket, LinkFault};
use super::{SEALED, SMALL};
use crate::error::LinkError;
use crate::link::seal::{Opener, RECORD, TAG};
use polyduct_os::OsError;
use std::io::IoSliceMut;
use std::net::TcpStream;

/// Bytes in front of a message, which say how long it is.
const LEN: usize = 4;

/// The incoming half of a connection. What is read ahead is bounded.
pub struct RecordReader {
    opener: Opener,
    /// What has come and was not taken, or not opened: from `start` up to `have`.
    buf: Vec<u8>,
    start: usize,
    have: usize,
    /// It grows up to this.
    most: usize,
    /// A record, opened, and what of it was not taken.
    opened: Vec<u8>,
    left: std::ops::Range<usize>,
    /// The beginning of a message.
    message: Vec<u8>,
    /// It was whole, and given.
    given: bool,
}

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes in the place where they belong.
    pub body: usize,
    /// Bytes in all.
    pub all: usize,
    /// There was room for more: just then the socket had no more.
    pub short: bool,
}

/// Where a record went.
enum Opened {
    Nothing,
    There(usize),
    Here,
}

impl RecordReader {
    /// A reader after the handshake, which reads `plain` or `sealed` bytes ahead, at most.
    pub fn new(opener: Opener, plain: usize, sealed: usize) -> RecordReader {
        let most = if opener.is_plain() { plain } else { sealed.max(2 * SEALED) };
        let (buf, opened, message) = (vec![0; SMALL.min(most)], Vec::new(), Vec::new());
        RecordReader { opener, buf, start: 0, have: 0, most, opened, left: 0..0, message, given: false }
    }

    /// Whether nothing is sealed.
    pub fn is_plain(&self) -> bool {
        self.opener.is_plain()
    }

    /// What has come and was not opened, as it came.
    pub fn came(&self) -> &[u8] {
        &self.buf[self.start..self.have]
    }

    /// What can be taken.
    pub fn ready(&self) -> &[u8] {
        match self.is_plain() {
            true => self.came(),
            false => &self.opened[self.left.clone()],
        }
    }

    /// The first `n` bytes of what was [ready](RecordReader::ready) are taken.
    pub fn took(&mut self, n: usize) {
        match self.is_plain() {
            true => self.start = (self.start + n).min(self.have),
            false => self.left.start = (self.left.start + n).min(self.left.end),
        }
    }

    /// Reads once: plain bytes into `body`, as far as it goes, and `ahead` of them; sealed ones ahead only.
    /// `None`: nothing has come.
    ///
    /// # Errors
    /// [`OsError::PeerClosed`] at the end, or the system's.
    pub fn read(
        &mut self,
        stream: &TcpStream,
        body: &mut [u8],
        ahead: usize,
    ) -> Result<Option<Received>, OsError> {
        if self.start > 0 {
            self.buf.copy_within(self.start..self.have, 0);
            (self.start, self.have) = (0, self.have - self.start);
        }
        let missing = if self.is_plain() { body.len() } else { 0 };
        let end = self.have.saturating_add(ahead).min(self.buf.len());
        let mut parts = [IoSliceMut::new(body), IoSliceMut::new(&mut self.buf[self.have..end])];
        let room = missing + end - self.have;
        let Some(all) = socket::read(stream, &mut parts[usize::from(missing == 0)..])? else {
            return Ok(None);
        };
        let (body, short) = (all.min(missing), all < room);
        self.have += all - body;
        if self.have == self.buf.len() {
            // The next may bring more.
            let len = (2 * self.buf.len()).min(self.most);
            self.buf.resize(len, 0);
        }
        Ok(Some(Received { body, all, short }))
    }

    /// Makes more of what has come [ready](RecordReader::ready), where all that was is taken: the next
    /// record. Returns whether there is something.
    ///
    /// # Errors
    /// [`LinkError::BadField`] and [`LinkError::Unauthentic`]: the connection is of no further use.
    pub fn open(&mut self) -> Result<bool, LinkError> {
        if self.is_plain() || !self.left.is_empty() {
            return Ok(!self.ready().is_empty());
        }
        Ok(matches!(self.open_into(&mut [])?, Opened::Here))
    }

    /// Opens the next record: into `into` where that has room for it and its tag.
    fn open_into(&mut self, into: &mut [u8]) -> Result<Opened, LinkError> {
        let came = &self.buf[self.start..self.have];
        let Some(len) = came.first_chunk::<2>() else { return Ok(Opened::Nothing) };
        let len = usize::from(u16::from_le_bytes(*len));
        if len <= TAG {
            let (what, expected) = ("length of a record", "17 to 65535");
            return Err(LinkError::BadField { what, found: len as u64, expected });
        }
        let Some(record) = came.get(2..2 + len) else { return Ok(Opened::Nothing) };
        let opened = if into.len() >= len {
            Opened::There(self.opener.open_next(record, &mut into[..len])?)
        } else {
            if self.opened.len() < len {
                self.opened.resize(len.next_power_of_two().min(RECORD), 0);
            }
            self.left = 0..self.opener.open_next(record, &mut self.opened[..len])?;
            Opened::Here
        };
        self.start += 2 + len;
        Ok(opened)
    }

    /// Takes what has come into `parts`, which are not all empty: straight into them where nothing was read
    /// ahead, and sealed where a record has room in the first. Returns how many bytes, `None` where there are
    /// none now.
    ///
    /// # Errors
    /// Those of [`read`](RecordReader::read) and [`open`](RecordReader::open).
    pub fn recv(
        &mut self,
        stream: &TcpStream,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<Option<usize>, LinkFault> {
        if self.ready().is_empty() {
            if self.is_plain() {
                return Ok(socket::read(stream, parts)?);
            }
            loop {
                let into = parts.first_mut().map(|part| &mut part[..]).unwrap_or_default();
                match self.open_into(into)? {
                    Opened::There(n) => return Ok(Some(n)),
                    Opened::Here => break,
                    Opened::Nothing if self.read(stream, &mut [], usize::MAX)?.is_none() => return Ok(None),
                    Opened::Nothing => {}
                }
            }
        }
        let mut n = 0;
        for part in parts {
            let ready = self.ready();
            let len = ready.len().min(part.len());
            part[..len].copy_from_slice(&ready[..len]);
            self.took(len);
            n += len;
        }
        Ok(Some(n))
    }

    /// The next message of 1 to `limit` bytes, if all of it has come.
    ///
    /// # Errors
    /// [`LinkError::BadField`] where its length cannot be; those of [`recv`](RecordReader::recv).
    pub fn message(&mut self, stream: &TcpStream, limit: usize) -> Result<Option<&[u8]>, LinkFault> {
        if std::mem::take(&mut self.given) {
            self.message.clear();
        }
        loop {
            let len = self.message.first_chunk::<LEN>().map(|len| u32::from_le_bytes(*len) as usize);
            if let Some(found) = len.filter(|len| *len == 0 || *len > limit) {
                let (what, expected) = ("length of a message", "1 up to the limit of messages here");
                return Err(LinkError::BadField { what, found: found as u64, expected }.into());
            }
            let want = LEN + len.unwrap_or(0);
            if len.is_some() && self.message.len() == want {
                self.given = true;
                return Ok(Some(&self.message[LEN..]));
            }
            while !self.open()? {
                if self.read(stream, &mut [], usize::MAX)?.is_none() {
                    return Ok(None);
                }
            }
            let ready = match self.is_plain() {
                true => &self.buf[self.start..self.have],
                false => &self.opened[self.left.clone()],
            };
            let n = ready.len().min(want - self.message.len());
            self.message.extend_from_slice(&ready[..n]);
            self.took(n);
        }
    }
}
