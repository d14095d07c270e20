//! The inbox: what has come and is not done with, its room and its memory, and the messages that wait for
//! `recv`, which are matched by sender and tag, first come first taken.

use super::peer::lock;
use super::pool::Pool;
use super::room::{Buffer, Lease, RoomShare, Rooms};
use crate::link::shm::{Incoming, Payload};
use crate::types::Address;
use crate::MessageError;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

/// What the messages of a unit hold.
pub(super) struct Inbox {
    /// Bytes of a message, at most: settings are found by name, and this one is needed for each message.
    longest: u64,
    rooms: Arc<Rooms>,
    pool: Pool,
    mailbox: Mutex<Mailbox>,
}

impl Inbox {
    /// An empty one, for messages of up to `longest` bytes, which all have their room in `rooms`.
    pub fn new(longest: u64, rooms: Arc<Rooms>) -> Inbox {
        Inbox { longest, mailbox: Mutex::new(Mailbox::new(rooms.clone())), rooms, pool: Pool::default() }
    }

    /// Bytes of a message, at most.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Whether a message may be as long as that. All units of a domain should have the same limit.
    pub fn check_len(&self, len: usize) -> Result<(), MessageError> {
        match self.longest {
            limit if len as u64 > limit => {
                Err(MessageError::Limit { what: "bytes of a message", limit, found: len as u64 })
            }
            _ => Ok(()),
        }
    }

    /// The shares of all messages.
    #[inline]
    pub fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    /// Memory of messages that are done with, to be used again.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The messages that wait for `recv`.
    pub fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        lock(&self.mailbox)
    }

    /// A buffer for a message that comes in pieces; `None` refuses it for now.
    pub fn buffer(&self, from: Address, m: &Incoming) -> Option<Buffer> {
        let lease = match RoomShare::message(m.head.handler, m.priority) {
            RoomShare::Mail => self.room_for_mail(&self.rooms, from, m)?,
            of => Lease::ask(self.rooms.clone(), of, m.len, m.holds_up)?,
        };
        if m.len == 0 {
            return Some(Buffer::new(Vec::new(), lease));
        }
        let bytes = self.pool.take(usize::try_from(m.len).ok()?);
        if bytes.is_none() {
            tracing::warn!(from, bytes = m.len, "no memory for a message: it waits");
        }
        Some(Buffer::new(bytes?, lease))
    }

    /// Room for a message for `recv`.
    fn room_for_mail<R: Deref<Target = Rooms> + Clone>(
        &self,
        rooms: &R,
        from: Address,
        m: &Incoming,
    ) -> Option<Lease<R>> {
        let ask = |of| Lease::ask(rooms.clone(), of, m.len, false);
        let is_awaited = || self.mailbox().is_awaited(from, m.head.args[0]);
        ask(RoomShare::Mail).or_else(|| is_awaited().then(|| ask(RoomShare::Awaited)).flatten())
    }

    /// A message for `recv` has come. Returns whether it was taken: one in one piece that finds no room is
    /// not, unless it `must` be.
    pub fn put(&self, from: Address, m: &Incoming, payload: Payload<'_, Buffer>, must: bool) -> bool {
        let [tag, first, second, _] = m.head.args;
        let mail = |payload| Mail { from, tag, words: [first, second], payload };
        if let Payload::Buffer(buffer) = payload {
            let (bytes, lease) = buffer.into_parts();
            self.mailbox().put(mail(bytes), lease);
            return true;
        }
        let rooms = self.rooms();
        let lease = match must {
            true => Lease::ask(rooms, RoomShare::Mail, m.len, true),
            false => self.room_for_mail(&rooms, from, m),
        };
        let Some(lease) = lease else { return false };
        let bytes = self.own(payload);
        self.mailbox().put(mail(bytes), lease);
        true
    }

    /// The payload in memory that outlives its delivery.
    pub fn own(&self, payload: Payload<'_, Buffer>) -> Vec<u8> {
        match payload {
            Payload::Bytes(bytes) => {
                let Some(mut buffer) = self.pool.take(bytes.len()) else { return bytes.to_vec() };
                buffer.copy_from_slice(bytes);
                buffer
            }
            Payload::Buffer(buffer) => buffer.into_parts().0,
        }
    }

    /// The memory of a payload that was handled is used again.
    pub fn recycle(&self, payload: Payload<'_, Buffer>) {
        if let Payload::Buffer(buffer) = payload {
            self.pool.give_back(buffer.into_parts().0);
        }
    }
}

/// A message for `recv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// The unit that sent it.
    pub from: Address,
    /// What it is about, as the sender says.
    pub tag: u32,
    /// Two words of the sender's.
    pub words: [u32; 2],
    /// What it carries.
    pub payload: Vec<u8>,
}

/// The messages that wait. Each has [room](Rooms) until it is taken.
#[derive(Debug)]
pub struct Mailbox {
    rooms: Arc<Rooms>,
    /// Each with what it holds.
    mails: VecDeque<(Mail, (RoomShare, u64))>,
    /// What somebody waits for: sender and tag, any if `None`.
    awaited: Vec<(Option<Address>, Option<u32>)>,
}

impl Mailbox {
    /// An empty one.
    pub fn new(rooms: Arc<Rooms>) -> Self {
        Mailbox { rooms, mails: VecDeque::new(), awaited: Vec::new() }
    }

    /// A message has come that was given room.
    pub fn put<R: Deref<Target = Rooms>>(&mut self, mail: Mail, lease: Lease<R>) {
        // One for each who waits: who still does says so again.
        self.awaited.retain(|&wanted| !fits(wanted, mail.from, mail.tag));
        self.mails.push_back((mail, lease.into_parts()));
    }

    /// The first message from this sender (any if `None`) with this tag (any if `None`).
    pub fn take(&mut self, from: Option<Address>, tag: Option<u32>) -> Option<Mail> {
        let at = self.mails.iter().position(|(m, _)| fits((from, tag), m.from, m.tag))?;
        let (mail, (of, bytes)) = self.mails.remove(at)?;
        self.rooms.give_back(of, bytes);
        if !self.awaited.is_empty() {
            self.forget_awaited(from, tag);
        }
        Some(mail)
    }

    /// Drops all that wait: nobody takes them any more.
    pub fn clear(&mut self) {
        for (_, (of, bytes)) in self.mails.drain(..) {
            self.rooms.give_back(of, bytes);
        }
    }

    /// As [`take`](Self::take), and where there is none, somebody waits for it: until it is taken, or
    /// [forgotten](Self::forget_awaited).
    pub fn take_or_await(&mut self, from: Option<Address>, tag: Option<u32>) -> Option<Mail> {
        let mail = self.take(from, tag);
        if mail.is_none() {
            self.expect(from, tag);
        }
        mail
    }

    /// Whether one of these messages is there; where none is, somebody waits for each: should one find no
    /// room when it comes, it comes all the same.
    pub fn has_or_await(&mut self, wanted: &[(Option<Address>, Option<u32>)]) -> bool {
        let there = wanted.iter().any(|&(from, tag)| self.has(from, tag));
        if !there {
            wanted.iter().for_each(|&(from, tag)| self.expect(from, tag));
        }
        there
    }

    /// Somebody waits for such a message, or will as soon as it may: one finds room when it comes.
    pub fn expect(&mut self, from: Option<Address>, tag: Option<u32>) {
        if !self.awaited.contains(&(from, tag)) {
            self.awaited.push((from, tag));
            self.rooms.note_awaited();
        }
    }

    /// Whether such a message is there.
    pub fn has(&self, from: Option<Address>, tag: Option<u32>) -> bool {
        self.mails.iter().any(|(m, _)| fits((from, tag), m.from, m.tag))
    }

    /// Nobody waits for such a message. A call that does all the same says so again at the next look.
    pub fn forget_awaited(&mut self, from: Option<Address>, tag: Option<u32>) {
        self.awaited.retain(|&a| a != (from, tag));
    }

    /// Whether somebody waits for a message from this sender, with this tag.
    pub fn is_awaited(&self, from: Address, tag: u32) -> bool {
        self.awaited.iter().any(|&wanted| fits(wanted, from, tag))
    }

    /// Messages that wait.
    pub fn len(&self) -> usize {
        self.mails.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.mails.is_empty()
    }
}

fn fits((from, tag): (Option<Address>, Option<u32>), sender: Address, its: u32) -> bool {
    from.is_none_or(|from| from == sender) && tag.is_none_or(|tag| tag == its)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::shm::Bell;

    fn mail(from: Address, tag: u32, len: usize) -> Mail {
        Mail { from, tag, words: [0; 2], payload: vec![0; len] }
    }

    #[test]
    fn the_first_that_fits_is_taken_and_its_room_is_free() {
        let rooms = Arc::new(Rooms::new(1000, Arc::new(Bell::create(1).unwrap())));
        let mut box_ = Mailbox::new(rooms.clone());
        for (from, tag) in [(1, 5), (2, 5), (1, 6), (1, 5)] {
            let lease = Lease::ask(&*rooms, RoomShare::Mail, from.into(), false).unwrap();
            box_.put(mail(from, tag, from as usize), lease);
        }
        assert_eq!(rooms.held(RoomShare::Mail), 4 * 64 + 5);
        assert_eq!(box_.take(Some(1), Some(6)), Some(mail(1, 6, 1)));
        assert_eq!(box_.take(Some(3), None), None);
        assert_eq!(box_.take(None, Some(5)), Some(mail(1, 5, 1)));
        assert_eq!(box_.take(Some(2), None), Some(mail(2, 5, 2)));
        assert_eq!((box_.len(), rooms.held(RoomShare::Mail)), (1, 65));
        assert_eq!(box_.take(None, None), Some(mail(1, 5, 1)));
        assert_eq!((box_.is_empty(), rooms.held(RoomShare::Mail)), (true, 0));
        for len in [10, 20] {
            box_.put(mail(1, 5, len), Lease::ask(&*rooms, RoomShare::Mail, len as u64, false).unwrap());
        }
        box_.clear();
        assert_eq!((box_.is_empty(), rooms.held(RoomShare::Mail)), (true, 0));
    }

    #[test]
    fn what_somebody_waits_for_is_known_until_it_is_taken() {
        let rooms = Arc::new(Rooms::new(1000, Arc::new(Bell::create(1).unwrap())));
        let mut box_ = Mailbox::new(rooms.clone());
        let large = Lease::ask(&*rooms, RoomShare::Mail, 5000, false).unwrap();
        assert!(Lease::ask(&*rooms, RoomShare::Mail, 1, false).is_none());
        for _ in 0..2 {
            assert_eq!(box_.take_or_await(Some(1), Some(7)), None);
        }
        assert!(rooms.take_again(), "who was refused may have what is waited for");
        assert!(box_.is_awaited(1, 7) && !box_.is_awaited(1, 8) && !box_.is_awaited(2, 7));
        let awaited = Lease::ask(&*rooms, RoomShare::Awaited, 1, false).unwrap();
        assert!(Lease::ask(&*rooms, RoomShare::Awaited, 0, false).is_none());
        box_.put(mail(1, 7, 1), awaited);
        let held = [rooms.held(RoomShare::Awaited), rooms.held(RoomShare::Mail)];
        assert_eq!(held, [0, 5064 + 65], "it is one of the others now, should its waiter be gone");
        assert!(!box_.is_awaited(1, 7), "nor does a second one come for the same wait");
        assert_eq!(box_.take_or_await(Some(1), Some(7)), Some(mail(1, 7, 1)));
        assert_eq!((box_.is_awaited(1, 7), rooms.held(RoomShare::Mail)), (false, 5064));
        assert_eq!(box_.take_or_await(None, Some(3)), None);
        assert!(box_.is_awaited(9, 3));
        box_.forget_awaited(None, Some(3));
        assert!(!box_.is_awaited(9, 3));
        drop(large);
    }
}
