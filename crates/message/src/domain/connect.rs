//! Links between partners, made when first used, and what the library sends on them.

use super::ask::{ask_for_link, out_of_turn};
use super::host::{Events, Handed, Whereabouts};
use super::peer::Gone;
use super::Inner;
use crate::link::net::socket::sys;
use crate::link::shm::{AttachError, Bell, Link};
use crate::types::{Address, Head};
use crate::MessageError;
use polyduct_os::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

impl Inner {
    /// The link to a unit, made now if it is the first time.
    pub(super) fn link(&self, to: Address) -> Result<&Link, MessageError> {
        let peer = self.units.peer(to)?;
        if let Some(link) = peer.link() {
            return self.units.gone_error(to).map_or(Ok(link), Err);
        }
        if to == self.units.me() {
            return Err(MessageError::ToSelf { unit: to });
        }
        if let Some(e) = self.units.gone_error(to) {
            return Err(e);
        }
        let mine = self.hand(to)?;
        let gone = || self.units.gone_error(to).is_some();
        let theirs = ask_for_link(&self.units.who(), to, &mine, &gone).map_err(|e| self.why(to, e))?;
        self.take_link(to, theirs)?;
        peer.link().ok_or(MessageError::PeerLeft { unit: to })
    }

    /// What this unit hands to a partner. The unit with the lower address makes the segment, once.
    ///
    /// # Errors
    /// What this process's system refuses.
    pub(super) fn hand(&self, to: Address) -> Result<Handed, MessageError> {
        let owned = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned().map_err(|e| {
                sys("dup", format!("what unit {to} is to map"), Errno::from_io_error(&e).unwrap_or(Errno::IO))
            })
        };
        let bell = owned(self.receiving.bell().fd())?;
        let segment = match self.units.me() > to {
            true => None,
            false => Some(owned(self.units.peer(to)?.made(&self.units.options().link_sizes())?.fd())?),
        };
        Ok(Handed { bell, segment })
    }

    /// Takes what a partner handed over. The second time, when both asked at once, does nothing.
    ///
    /// # Errors
    /// What this process's system refuses; [`MessageError::BadPeer`].
    pub(super) fn take_link(&self, unit: Address, theirs: Handed) -> Result<(), MessageError> {
        let stood = self.units.peer(unit)?.stand(|made| {
            let bell = Bell::attach(theirs.bell)?;
            let link = match (theirs.segment, made) {
                (Some(fd), _) => Link::attach(fd, 1 << 30, &self.units.options().link_sizes())
                    .map_err(|error| not_attached(unit, error))?,
                (None, Some(link)) => link.clone(),
                (None, None) => return Err(out_of_turn(unit, "a link without its segment")),
            };
            let receiver = link.receiver().ok_or_else(|| out_of_turn(unit, "a second receiver of a link"))?;
            // Nothing fails from here on.
            // The number of a link at a bell is the unit that rings.
            link.ring_at(Arc::new(bell), self.units.me());
            if let Some(Ok(process)) = self.units.processes().watch(unit) {
                // Where this process may not read the partner's memory, all goes through the rings.
                let _ = link.pull_from(process);
            }
            Ok((link, receiver))
        })?;
        if let Some(receiver) = stood {
            self.receiving.add_link(unit, receiver);
        }
        Ok(())
    }

    /// Sends on the library's channel; does not wait, but for the first connection.
    pub(super) fn push(&self, to: Address, head: Head, payload: Vec<u8>) -> Result<(), MessageError> {
        self.inbox.check_len(payload.len())?;
        match self.units.hosts().is_far(to) {
            true => self.units.gone_error(to).map_or(Ok(()), Err)?,
            false => drop(self.link(to)?),
        }
        self.units.push(self.net.as_ref(), to, head, payload)
    }

    /// Sends what waits, as far as there is room. Returns whether anything still waits.
    pub(super) fn flush_backlog(&self) -> bool {
        self.units.flush(self.net.as_ref())
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
            net.tell_far(&self.0.units, unit);
        }
        self.0.set_gone(unit, if left { Gone::Left } else { Gone::Lost });
    }

    fn gave_up(&mut self) {
        // A unit that gives up tells those whom it is connected to: all are connected to unit 0.
        let Inner { units, net, receiving, .. } = &*self.0;
        let first = units.board().first_to_give_up().filter(|&first| !units.hosts().is_far(first));
        if let (Some(net), Some(first), 0) = (net, first, units.me()) {
            net.tell_far(units, first);
        }
        receiving.stir();
    }
}
