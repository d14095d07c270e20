//! Messages to a unit, in the order in which they were sent: for whoever receives there, or for a handler.

use super::channel::{ChannelOptions, RawChannel};
use super::directory::HandlerError;
use super::handlers::in_handler;
use super::inbox::Mail;
use super::room::{Lease, RoomShare};
use super::{system, Domain, Inner};
use crate::types::{Address, Head};
use crate::MessageError;
use std::time::Duration;

impl Domain {
    /// Sends a message for [`recv`](Domain::recv) at the other end, waiting for room. Messages of all threads
    /// to a unit arrive in the order in which they were sent. In a handler it does not wait, and keeps no
    /// order with others.
    ///
    /// Units that send each other more than the setting `inbox` before any receives wait for each other:
    /// [`send_recv`](Domain::send_recv) is for that.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`]; [`MessageError::PeerLost`], [`MessageError::PeerLeft`];
    /// [`MessageError::Timeout`]; [`MessageError::Limit`] for more to this unit itself, or from handlers,
    /// than may wait.
    pub fn send(&self, to: Address, tag: u32, words: [u32; 2], payload: &[u8]) -> Result<(), MessageError> {
        if to == self.unit() {
            let (rooms, found) = (self.inner.inbox.rooms(), payload.len() as u64);
            let Some(lease) = Lease::ask(rooms, RoomShare::Mail, found, false) else {
                let (what, limit) = ("bytes of messages to this unit itself", rooms.limit(RoomShare::Mail));
                return Err(MessageError::Limit { what, limit, found });
            };
            let mail = Mail { from: to, tag, words, payload: payload.to_vec() };
            self.inner.inbox.mailbox().put(mail, lease);
            // Another thread may wait for it.
            self.inner.receiving.stir();
            return Ok(());
        }
        self.send_in_order(to, Head { handler: system::MAIL, args: [tag, words[0], words[1], 0] }, payload)
    }

    /// Sends a message to a handler of a unit, waiting for room: as [`send`](Domain::send), and in order with
    /// that. To this unit itself, the handler has run when it returns.
    ///
    /// # Errors
    /// As [`send`](Domain::send); [`MessageError::Handler`]: there is no such handler there, or it is a
    /// function.
    pub fn post(&self, to: Address, name: &str, args: [u32; 4], payload: &[u8]) -> Result<(), MessageError> {
        self.inner.units.peer(to)?;
        let head = Head { handler: self.lookup(name, to)?, args };
        if to != self.unit() {
            return self.send_in_order(to, head, payload);
        }
        match self.inner.post_self(head, payload) {
            true => Ok(()),
            false => Err(HandlerError::NotThere { name: name.to_owned(), unit: to }.into()),
        }
    }

    fn send_in_order(&self, to: Address, head: Head, payload: &[u8]) -> Result<(), MessageError> {
        if in_handler() {
            // This very thread may hold the channel, or be the one that would have to receive before there is
            // room.
            return self.inner.push(to, head, payload.to_vec());
        }
        // A channel for each call would not keep the order between calls; one for all keeps it. Another
        // thread may hold it for as long as its receiver makes no room.
        let peer = self.inner.units.peer(to)?;
        let mut mail = match peer.mail_turn() {
            Some(mail) => mail,
            None => self.inner.wait("another thread to have sent", None, |inner| match peer.mail_turn() {
                Some(mail) => Some(Ok(mail)),
                None => inner.units.gone_error(to).map(Err),
            })?,
        };
        let channel = match &mut *mail {
            Some(channel) => channel,
            none => none.insert(RawChannel::new(&self.inner, to, ChannelOptions::default())?),
        };
        let sent = channel.send(&self.inner, head, payload);
        drop(mail);
        self.inner.end_mail_turn();
        sent
    }

    /// Takes the first message from a unit (any if `None`) with a tag (any if `None`), waiting for it. Where
    /// those that were not taken fill the inbox, it finds room all the same, unless others of its sender are
    /// refused before it.
    ///
    /// # Errors
    /// [`MessageError::PeerLost`] and [`MessageError::PeerLeft`] when the unit is gone and nothing more of it
    /// waits; [`MessageError::Timeout`], [`MessageError::Interrupted`].
    pub fn recv(&self, from: Option<Address>, tag: Option<u32>) -> Result<Mail, MessageError> {
        if let Some(from) = from {
            self.inner.units.peer(from)?;
        }
        let taken = self.inner.wait("a message", None, |inner| {
            if let Some(mail) = inner.take_or_await_mail(from, tag) {
                return Some(Ok(mail));
            }
            match from {
                Some(from) => inner.units.gone_error(from).map(Err),
                // Somebody may still send, if it be this unit itself in another thread.
                None => inner.units.all_gone().map(Err),
            }
        });
        if taken.is_err() {
            self.inner.inbox.mailbox().forget_awaited(from, tag);
        }
        taken
    }

    /// Sends a message as [`send`](Domain::send) does, then takes one as [`recv`](Domain::recv), for which
    /// there is room from the beginning: units that do so in a ring or in pairs do not wait for each other in
    /// a circle, however long their messages are and whatever else waits to be taken.
    ///
    /// # Errors
    /// As the two.
    pub fn send_recv(
        &self,
        (to, tag): (Address, u32),
        words: [u32; 2],
        payload: &[u8],
        (from, its): (Option<Address>, Option<u32>),
    ) -> Result<Mail, MessageError> {
        self.inner.inbox.mailbox().expect(from, its);
        if let Err(error) = self.send(to, tag, words, payload) {
            self.inner.inbox.mailbox().forget_awaited(from, its);
            return Err(error);
        }
        self.recv(from, its)
    }

    /// Handles what comes, asleep in between, until [`recv`](Domain::recv) would not wait for one of these
    /// (from a unit, any if `None`, with a tag, any if `None`), or until `done`, which is asked after
    /// everything that came, or until `deadline`, a time of [`clock::now`](polyduct_os::clock::now). Returns
    /// whether it was over before that.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`], [`MessageError::Interrupted`], [`MessageError::InHandler`]; a loss that ends
    /// all waits.
    pub fn wait_any(
        &self,
        wanted: &[(Option<Address>, Option<u32>)],
        deadline: Option<Duration>,
        mut done: impl FnMut() -> bool,
    ) -> Result<bool, MessageError> {
        for from in wanted.iter().filter_map(|&(from, _)| from) {
            self.inner.units.peer(from)?;
        }
        let is_gone = |from: Option<Address>| match from {
            Some(from) => self.inner.units.gone_error(from).is_some(),
            None => self.inner.units.all_gone().is_some(),
        };
        let waited = self.inner.wait("any of several", deadline, |inner| {
            let there = inner.inbox.mailbox().has_or_await(wanted);
            (there || done() || wanted.iter().any(|&(from, _)| is_gone(from))).then_some(Ok(()))
        });
        let mut mailbox = self.inner.inbox.mailbox();
        wanted.iter().for_each(|&(from, tag)| mailbox.forget_awaited(from, tag));
        match waited {
            Ok(()) => Ok(true),
            Err(MessageError::Timeout { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The first message that waits and fits, if there is one.
    pub fn try_recv(&self, from: Option<Address>, tag: Option<u32>) -> Option<Mail> {
        self.poll();
        self.inner.take_mail(from, tag)
    }

    /// Takes back the payload of a message, so that its memory is used again.
    pub fn give_back(&self, payload: Vec<u8>) {
        self.inner.inbox.pool().give_back(payload);
    }
}

impl Inner {
    /// This thread has sent to a unit, and others may.
    pub(super) fn end_mail_turn(&self) {
        if self.units.has_backlog() {
            // Of what handlers sent meanwhile, messages for `recv` waited for this one.
            self.flush_backlog();
        }
        self.receiving.stir();
    }
}
