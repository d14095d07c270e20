//! One message of the handshake, as it comes in pieces over a stream: in a fixed buffer, and never a byte
//! beyond it.

use super::{socket, LinkFault};
use crate::error::LinkError;
use crate::link::hello::{check_start, Header, HEADER, MESSAGE_LIMIT};
use std::io::IoSliceMut;
use std::net::TcpStream;

#[derive(Debug)]
pub struct Inbox {
    bytes: [u8; MESSAGE_LIMIT],
    have: usize,
}

impl Inbox {
    pub fn new() -> Inbox {
        Inbox { bytes: [0; MESSAGE_LIMIT], have: 0 }
    }

    /// The whole message, once it is there; what is wrong with it is known as early as its bytes show it.
    pub fn read(&mut self, stream: &TcpStream) -> Result<Option<&[u8]>, LinkFault> {
        loop {
            let want = self.want()?;
            if want == 0 {
                return Ok(Some(&self.bytes[..self.have]));
            }
            let room = &mut self.bytes[self.have..self.have + want];
            match socket::read(stream, &mut [IoSliceMut::new(room)]) {
                Ok(Some(n)) => self.have += n,
                Ok(None) => return Ok(None),
                Err(polyduct_os::OsError::PeerClosed) => return Err(LinkError::Closed.into()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Bytes that are still missing, as far as is known.
    fn want(&self) -> Result<usize, LinkError> {
        let have = &self.bytes[..self.have];
        check_start(have)?;
        if self.have < HEADER {
            return Ok(HEADER - self.have);
        }
        let len = usize::from(Header::decode(have)?.len);
        Ok(HEADER + len - self.have)
    }

    pub fn clear(&mut self) {
        self.have = 0;
    }

    /// Anything has come.
    pub fn has_begun(&self) -> bool {
        self.have > 0
    }
}
