//! Messages that wait to be taken by `recv`: matched by sender and tag, first come first taken.

use super::room::{Lease, RoomShare, Rooms};
use crate::types::Address;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

/// A message for `recv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Who sent it.
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

    /// Nobody waits for such a message. Who does all the same says so again at the next look.
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
