//! Links between partners, made when first used, and what the library sends on them.

use super::ask::{ask_for_link, out_of_turn};
use super::host::{Events, Handed, Whereabouts};
use super::peer::{lock, Gone};
use super::Inner;
use crate::link::net::socket::sys;
use crate::link::shm::{AttachError, Bell, Link};
use crate::types::{Address, Head};
use crate::MessageError;
use polyduct_os::Errno;
use std::sync::atomic::Ordering;
use std::sync::Arc;

impl Inner {
    /// The link to a unit, made now if it is the first time.
    pub(super) fn link(&self, to: Address) -> Result<&Link, MessageError> {
        let peer = self.peer(to)?;
        if let Some(link) = peer.link.get() {
            return match self.gone_error(to) {
                None => Ok(link),
                Some(e) => Err(e),
            };
        }
        if to == self.options.unit {
            return Err(MessageError::ToSelf { unit: to });
        }
        if let Some(e) = self.gone_error(to) {
            return Err(e);
        }
        let mine = self.hand(to)?;
        let gone = || self.gone_error(to).is_some();
        let theirs = ask_for_link(&self.who(), to, &mine, &gone).map_err(|e| self.why(to, e))?;
        self.take_link(to, theirs)?;
        peer.link.get().ok_or(MessageError::PeerLeft { unit: to })
    }

    /// What this unit hands to a partner. The unit with the lower address makes the segment, once.
    ///
    /// # Errors
    /// What this process's system refuses.
    pub(super) fn hand(&self, to: Address) -> Result<Handed, MessageError> {
        let owned = |fd: std::os::fd::BorrowedFd<'_>| {
            fd.try_clone_to_owned().map_err(|e| {
                sys("dup", format!("what unit {to} is to map"), Errno::from_io_error(&e).unwrap_or(Errno::IO))
            })
        };
        let bell = owned(self.bell.fd())?;
        if self.options.unit > to {
            return Ok(Handed { bell, segment: None });
        }
        let peer = &self.peers[to as usize];
        // Under the lock: the other thread may just have made it stand.
        let mut making = lock(&peer.connecting);
        if let Some(link) = peer.link.get() {
            return Ok(Handed { bell, segment: Some(owned(link.fd())?) });
        }
        let link = match &*making {
            Some(link) => link,
            None => making.insert(Link::create(&self.sizes)?),
        };
        Ok(Handed { bell, segment: Some(owned(link.fd())?) })
    }

    /// Takes what a partner handed over. The second time, when both asked at once, does nothing. What was
    /// made for the partner is kept until the link stands: the partner may have taken it, and has no use for
    /// another.
    ///
    /// # Errors
    /// What this process's system refuses; [`MessageError::BadPeer`].
    pub(super) fn take_link(&self, unit: Address, theirs: Handed) -> Result<(), MessageError> {
        let peer = &self.peers[unit as usize];
        let mut making = lock(&peer.connecting);
        if peer.link.get().is_some() {
            return Ok(());
        }
        let bell = Bell::attach(theirs.bell)?;
        let link = match (theirs.segment, &*making) {
            (Some(fd), _) => {
                Link::attach(fd, 1 << 30, &self.sizes).map_err(|error| not_attached(unit, error))?
            }
            (None, Some(link)) => link.clone(),
            (None, None) => return Err(out_of_turn(unit, "a link without its segment")),
        };
        let receiver = link.receiver().ok_or_else(|| out_of_turn(unit, "a second receiver of a link"))?;
        // Nothing fails from here on.
        // The number of a link at a bell is the unit that rings.
        link.ring_at(Arc::new(bell), self.options.unit);
        if let Some(Ok(process)) = self.members.watch(unit) {
            // Where this process may not read the partner's memory, all goes through the rings.
            let _ = link.pull_from(process);
        }
        lock(&self.fresh).push((unit, receiver));
        let _ = peer.link.set(link);
        *making = None;
        self.epoch.fetch_add(1, Ordering::Release);
        self.bell.calls().ring();
        Ok(())
    }

    /// Whether a message may be as long as that. All units of a domain should have the same limit.
    pub(super) fn check_len(&self, len: usize) -> Result<(), MessageError> {
        match self.longest {
            limit if len as u64 > limit => {
                Err(MessageError::Limit { what: "bytes of a message", limit, found: len as u64 })
            }
            _ => Ok(()),
        }
    }

    /// Sends on the library's channel; does not wait, but for the first connection.
    pub(super) fn push(&self, to: Address, head: Head, payload: Vec<u8>) -> Result<(), MessageError> {
        self.check_len(payload.len())?;
        self.peer(to)?;
        if let Some(net) = self.net.as_ref().filter(|_| self.hosts.is_far(to)) {
            return match self.gone_error(to) {
                None => net.push(self, to, head, payload),
                Some(e) => Err(e),
            };
        }
        self.link(to)?;
        self.peers[to as usize].push(head, payload)?;
        if self.peers[to as usize].flush() {
            self.backlog.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Sends what waits, as far as there is room. Returns whether anything still waits.
    pub(super) fn flush_backlog(&self) -> bool {
        self.backlog.store(false, Ordering::Release);
        let mut waits = false;
        for (unit, peer) in (0..).zip(&self.peers) {
            if peer.gone().is_none() && self.board.has_left(unit) {
                peer.set_gone(Gone::Left);
            }
            waits |= peer.flush();
        }
        waits |= self.net.as_ref().is_some_and(|net| net.flush(self));
        if waits {
            self.backlog.store(true, Ordering::Release);
        }
        waits
    }
}

fn not_attached(unit: Address, error: AttachError) -> MessageError {
    match error {
        AttachError::System(error) => error.into(),
        AttachError::Link(error) => MessageError::BadPeer { unit, error },
    }
}

/// What the host's thread tells the domain.
pub(super) struct HostEvents(pub(super) Arc<Inner>);

impl Events for HostEvents {
    fn linked(&mut self, unit: Address, theirs: Handed) -> Result<Handed, String> {
        let mine = self.0.hand(unit).map_err(|e| e.to_string())?;
        self.0.take_link(unit, theirs).map_err(|e| e.to_string())?;
        Ok(mine)
    }

    fn region(&mut self, id: u32) -> Result<Whereabouts, String> {
        self.0.regions.whereabouts(id)
    }

    fn gone(&mut self, unit: Address, left: bool) {
        // Before anybody here can learn of it, and leave.
        if let Some(net) = self.0.net.as_ref().filter(|_| !left) {
            net.tell_far(&self.0, unit);
        }
        self.0.set_gone(unit, if left { Gone::Left } else { Gone::Lost });
    }

    fn gave_up(&mut self) {
        // Who gives up tells those whom it is connected to: all are connected to unit 0.
        let first = self.0.board.first_to_give_up().filter(|&first| !self.0.hosts.is_far(first));
        if let (Some(net), Some(first), 0) = (&self.0.net, first, self.0.options.unit) {
            net.tell_far(&self.0, first);
        }
        self.0.stir();
    }
}
