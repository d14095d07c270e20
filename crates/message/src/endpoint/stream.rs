//! Streams of bytes, and copies from and to the memory of peers.

use super::far::Lent;
use super::{Endpoint, Gone, Number, Sent, Way};
use crate::link::shm::{Helper, Link, SendError, Share, ShareTicket};
use crate::types::Head;
use polyduct_os::remote::Piece;

/// A message that goes as a stream of bytes.
#[derive(Debug)]
pub struct Stream {
    head: Head,
    len: usize,
    sent: usize,
    /// Over the network: told when the memory is free.
    lent: Option<Lent>,
}

impl Stream {
    /// A message of these bytes.
    pub fn new(head: Head, len: usize) -> Stream {
        Stream { head, len, sent: 0, lent: None }
    }
}

impl<B: AsMut<[u8]> + Send + 'static> Endpoint<B> {
    /// Sends more of a stream: the bytes of all of it must be given each time. Streams to one endpoint go one
    /// after the other: begin none before the last is [sent](Sent::All).
    ///
    /// # Safety
    /// `bytes` stays readable, at its place and unchanged, until this returned [`Sent::All`] or
    /// [`Sent::Gone`], or the endpoint was dropped.
    pub unsafe fn stream(&mut self, to: Number, stream: &mut Stream, bytes: *const u8) -> Sent {
        let peer = &mut self.peers[to as usize];
        // SAFETY: the caller's.
        let rest = |sent: usize| unsafe { core::slice::from_raw_parts(bytes.add(sent), stream.len - sent) };
        match &mut peer.way {
            _ if peer.gone == Gone::Noticed && stream.lent.is_none() => Sent::Later,
            _ if peer.gone == Gone::Told && stream.lent.is_none() => Sent::Gone,
            Way::Near(Some(out)) => {
                if stream.sent == 0 {
                    match out.stream.begin(stream.head, stream.len as u64) {
                        Ok(()) if stream.len == 0 => return Sent::All,
                        Ok(()) => {}
                        Err(SendError::Full | SendError::Unfinished { .. }) => return Sent::Later,
                        Err(_) => {
                            self.note_gone(to);
                            return Sent::Later;
                        }
                    }
                }
                match out.stream.extend(rest(stream.sent)) {
                    Ok(taken) => stream.sent += taken,
                    Err(SendError::Full | SendError::Unfinished { .. }) => {
                        if stream.sent == 0 {
                            // Nothing was said of it yet.
                            let _ = out.stream.abandon();
                        }
                    }
                    Err(_) => {
                        self.note_gone(to);
                        return Sent::Later;
                    }
                }
                if stream.sent == stream.len {
                    Sent::All
                } else {
                    Sent::Later
                }
            }
            Way::Near(None) => match self.connect(to) {
                // SAFETY: as above.
                Sent::All => unsafe { self.stream(to, stream, bytes) },
                other => other,
            },
            Way::Itself => {
                self.itself.push_back((stream.head, rest(0).to_vec()));
                Sent::All
            }
            Way::Far(unit) => match &self.net {
                // SAFETY: the caller's.
                Some(net) => unsafe { net.stream(*unit, stream.head, bytes, stream.len, &mut stream.lent) },
                None => Sent::Gone,
            },
            Way::Nowhere => Sent::Gone,
        }
    }

    /// Copies from the memory of a peer of this host. `false`: this process cannot, or there is no such
    /// memory.
    pub fn fetch(&mut self, from: Number, dst: &mut [u8], address: u64) -> bool {
        self.remote(from, |link| link.fetch(dst, address))
    }

    /// Copies from pieces of a peer's memory into pieces of this process's, some bytes of them: how many. `None`:
    /// this process cannot, or there is no such memory.
    ///
    /// # Safety
    /// The pieces here may be written, and nobody else uses them.
    pub unsafe fn gather(&mut self, from: Number, here: &[Piece], there: &[Piece]) -> Option<usize> {
        let mut copied = None;
        // SAFETY: the caller's.
        self.remote(from, |link| unsafe { link.gather(here, there) }.map(|n| copied = Some(n)));
        copied
    }

    /// Copies into the memory of a peer of this host. `false`: this process cannot, or there is no such
    /// memory.
    pub fn store(&mut self, to: Number, src: &[u8], address: u64) -> bool {
        self.remote(to, |link| link.store(src, address))
    }

    /// A copy from or to a peer's memory, in so many pieces, that the peer may help with once it is told the
    /// ticket. `None`: it shares no memory with this endpoint, or has as many to help with as there may be.
    pub fn share(&self, with: Number, pieces: u32) -> Option<Share> {
        self.peers[with as usize].links.first()?.share(pieces)
    }

    /// Helps with a copy of a peer's. `None`: there is none of this ticket.
    pub fn help(&self, whom: Number, ticket: ShareTicket) -> Option<Helper> {
        self.peers[whom as usize].links.iter().find_map(|link| link.help(ticket))
    }

    fn remote(&mut self, of: Number, mut copy: impl FnMut(&Link) -> polyduct_os::Result<()>) -> bool {
        let peer = &self.peers[of as usize];
        if peer.links.iter().any(|link| copy(link).is_ok()) {
            return true;
        }
        // Of a link that this side made it is known where the other has mapped it once that uses it.
        let Some(process) = &peer.process else { return false };
        peer.links.iter().any(|link| {
            let process = process.try_clone();
            process.is_ok_and(|process| link.pull_from(process) == Ok(true)) && copy(link).is_ok()
        })
    }
}
