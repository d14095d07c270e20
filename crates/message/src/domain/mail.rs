//! Messages that wait to be taken by `recv`: matched by sender and tag, first come first taken.

use crate::types::Address;
use std::collections::VecDeque;

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

/// The messages that wait, within a limit of bytes. A message that finds no room is refused, and its sender keeps it.
#[derive(Debug)]
pub struct Mailbox {
    mails: VecDeque<Mail>,
    bytes: u64,
    limit: u64,
    /// A message was refused since the last look.
    refused: bool,
}

/// What a waiting message costs beside its payload.
const OVERHEAD: u64 = 64;

impl Mailbox {
    /// An empty one that takes up to `limit` bytes, and one message however large.
    pub fn new(limit: u64) -> Self {
        Mailbox { mails: VecDeque::new(), bytes: 0, limit, refused: false }
    }

    /// Whether a message with so many bytes may come.
    pub fn has_room(&self, len: u64) -> bool {
        self.bytes == 0 || len.saturating_add(OVERHEAD) <= self.limit.saturating_sub(self.bytes)
    }

    /// The same for one that is about to come, and is refused where there is none.
    pub fn makes_room(&mut self, len: u64) -> bool {
        let room = self.has_room(len);
        self.refused |= !room;
        room
    }

    /// Whether half of the room is free again after a message was refused: their senders may be told to go ahead.
    pub fn take_refused(&mut self) -> bool {
        self.bytes <= self.limit / 2 && std::mem::take(&mut self.refused)
    }

    /// A message has come that there was [room](Self::has_room) for when it was announced.
    pub fn put(&mut self, mail: Mail) {
        self.bytes += mail.payload.len() as u64 + OVERHEAD;
        self.mails.push_back(mail);
    }

    /// The first message from this sender (any if `None`) with this tag (any if `None`).
    pub fn take(&mut self, from: Option<Address>, tag: Option<u32>) -> Option<Mail> {
        let fits = |m: &Mail| from.is_none_or(|f| f == m.from) && tag.is_none_or(|t| t == m.tag);
        let at = self.mails.iter().position(fits)?;
        let mail = self.mails.remove(at)?;
        self.bytes -= mail.payload.len() as u64 + OVERHEAD;
        Some(mail)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(from: Address, tag: u32, len: usize) -> Mail {
        Mail { from, tag, words: [0; 2], payload: vec![0; len] }
    }

    #[test]
    fn the_first_that_fits_is_taken() {
        let mut box_ = Mailbox::new(1000);
        for (from, tag) in [(1, 5), (2, 5), (1, 6), (1, 5)] {
            box_.put(mail(from, tag, from as usize));
        }
        assert_eq!(box_.take(Some(1), Some(6)), Some(mail(1, 6, 1)));
        assert_eq!(box_.take(Some(3), None), None);
        assert_eq!(box_.take(None, Some(5)), Some(mail(1, 5, 1)));
        assert_eq!(box_.take(Some(2), None), Some(mail(2, 5, 2)));
        assert_eq!((box_.len(), box_.take(None, None)), (1, Some(mail(1, 5, 1))));
        assert!(box_.is_empty());
    }

    #[test]
    fn there_is_a_limit_but_never_for_the_only_one() {
        let mut box_ = Mailbox::new(1000);
        assert!(box_.has_room(u64::MAX));
        box_.put(mail(0, 0, 500));
        assert!(box_.has_room(372) && !box_.has_room(373) && !box_.has_room(u64::MAX));
        box_.take(None, None);
        assert!(box_.has_room(5000));
    }

    #[test]
    fn who_was_refused_is_told_once_when_half_is_free() {
        let mut box_ = Mailbox::new(1000);
        (0..4).for_each(|_| box_.put(mail(0, 0, 186)));
        assert!(!box_.take_refused(), "nobody was refused");
        assert!(!box_.makes_room(1));
        for (left, told) in [(3, false), (2, true), (1, false)] {
            box_.take(None, None);
            assert_eq!(box_.take_refused(), told, "{left} left");
        }
    }
}
