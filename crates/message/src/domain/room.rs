//! Room for messages that come: how many bytes of them this unit holds, those included that are still coming.
//!
//! There are three shares, each with the limit of the setting `inbox`: one of the messages for `recv`, and
//! one for each priority of all others, which are the handlers' and the library's own (calls, answers, words
//! of barriers). So a program that takes no messages while it waits for an answer gets the answer, and low
//! priority never takes the room of high. A fourth has room for one message: one that a `recv` waits for,
//! whatever else waits to be taken.
//!
//! 1. Bytes are held from the moment a buffer is given out until the message was taken by `recv`, until its
//!    handler has returned, or until it is abandoned. A [`Lease`] gives them back when it is dropped, so no
//!    way out forgets them. An answer is its call's once it is here: a program may wait for any of its calls
//!    first.
//! 2. Where a share holds nothing, a message finds room however large it is.
//! 3. A message that finds none is refused, and its sender keeps it. When half of a share that refused
//!    something is free again, whoever receives is [told](Rooms::take_again).
//! 4. What is refused in shared memory holds up all behind it in its ring, and that can be the rest of
//!    messages that hold room. So one that is not for `recv` finds room there in any case: those go on to
//!    their handlers by themselves, and there are as many as the threads of one unit send side by side.
//!    Messages for `recv` come one after the other from each unit, so none of them holds up another that has
//!    begun.

use crate::domain::system;
use crate::link::shm::Bell;
use crate::types::{HandlerId, Priority};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

/// What a message takes beside its payload.
pub const OVERHEAD: u64 = 64;

/// Whose share it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomShare {
    /// Messages for `recv`.
    Mail,
    /// One that finds no room among them, and that a `recv` waits for: without it that would wait for ever.
    Awaited,
    /// All others of high priority.
    High,
    /// All others of low priority.
    Low,
}

impl RoomShare {
    /// The share of a message.
    pub fn message(handler: HandlerId, priority: Priority) -> RoomShare {
        match priority {
            _ if handler == system::MAIL => RoomShare::Mail,
            Priority::High => RoomShare::High,
            Priority::Low => RoomShare::Low,
        }
    }
}

#[derive(Debug, Default)]
struct ShareState {
    held: AtomicU64,
    /// A message was refused, and nobody was told since that there is room.
    refused: AtomicBool,
}

/// The shares of a unit.
#[derive(Debug)]
pub struct Rooms {
    limit: u64,
    shares: [ShareState; 4],
    /// Those who were refused may go ahead.
    again: AtomicBool,
    /// Where whoever receives sleeps.
    bell: Arc<Bell>,
}

impl Rooms {
    /// Shares of `limit` bytes each. Threads that receive sleep at `bell`.
    pub fn new(limit: u64, bell: Arc<Bell>) -> Rooms {
        Rooms { limit, shares: Default::default(), again: AtomicBool::new(false), bell }
    }

    /// Bytes of a share: none stands for one message.
    pub fn limit(&self, of: RoomShare) -> u64 {
        if of == RoomShare::Awaited {
            return 0;
        }
        self.limit
    }

    /// Bytes that are held.
    pub fn held(&self, of: RoomShare) -> u64 {
        self.share(of).held.load(Ordering::Relaxed)
    }

    /// Whether there is room again for what was refused; once.
    #[inline]
    pub fn take_again(&self) -> bool {
        self.again.load(Ordering::Acquire) && self.again.swap(false, Ordering::AcqRel)
    }

    /// A `recv` waits for a message that may have been refused: it has room now.
    pub fn note_awaited(&self) {
        let share = self.share(RoomShare::Mail);
        if share.refused.load(Ordering::SeqCst) {
            self.tell(share);
        }
    }

    fn share(&self, of: RoomShare) -> &ShareState {
        &self.shares[of as usize]
    }

    fn hold(&self, of: RoomShare, bytes: u64) -> bool {
        let limit = self.limit(of);
        let more = |held: u64| (held == 0 || bytes <= limit.saturating_sub(held)).then(|| held + bytes);
        self.share(of).held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    #[cold]
    fn refuse(&self, of: RoomShare, bytes: u64) -> bool {
        self.share(of).refused.store(true, Ordering::SeqCst);
        // A thread that gave back before that told nobody.
        !self.hold(of, bytes)
    }

    pub(super) fn give_back(&self, of: RoomShare, bytes: u64) {
        let share = self.share(of);
        let left = share.held.fetch_sub(bytes, Ordering::SeqCst) - bytes;
        if share.refused.load(Ordering::SeqCst) && left <= self.limit(of) / 2 {
            self.tell(share);
        }
    }

    #[cold]
    fn tell(&self, share: &ShareState) {
        if share.refused.swap(false, Ordering::SeqCst) {
            self.again.store(true, Ordering::Release);
            self.bell.calls().ring();
        }
    }
}

/// Room that a message holds, until it is dropped. `R` is how the shares are reached: what stays with a
/// message on its way has an [`Arc`] of them, what ends with the call that made it a reference.
#[derive(Debug)]
pub struct Lease<R: Deref<Target = Rooms> = Arc<Rooms>> {
    rooms: R,
    of: RoomShare,
    bytes: u64,
}

impl<R: Deref<Target = Rooms>> Lease<R> {
    /// Room for a message with a payload of `len` bytes; `None` refuses it. If it `must` be there is.
    #[inline]
    pub fn ask(rooms: R, of: RoomShare, len: u64, must: bool) -> Option<Lease<R>> {
        let bytes = len.saturating_add(OVERHEAD);
        if must {
            rooms.share(of).held.fetch_add(bytes, Ordering::SeqCst);
        } else if !rooms.hold(of, bytes) && rooms.refuse(of, bytes) {
            return None;
        }
        Some(Lease { rooms, of, bytes })
    }

    /// Leaves it to the caller to give so many bytes back. What found room because somebody waits for it
    /// counts among the others from here on: who waits may be gone, and the next must find that room.
    pub(super) fn into_parts(mut self) -> (RoomShare, u64) {
        if self.of == RoomShare::Awaited {
            self.rooms.share(RoomShare::Mail).held.fetch_add(self.bytes, Ordering::SeqCst);
            self.rooms.give_back(RoomShare::Awaited, self.bytes);
            self.of = RoomShare::Mail;
        }
        (self.of, std::mem::take(&mut self.bytes))
    }
}

impl<R: Deref<Target = Rooms>> Drop for Lease<R> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.rooms.give_back(self.of, self.bytes);
        }
    }
}

/// Memory for a message that comes in pieces, and the room that it holds.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    lease: Lease,
}

impl Buffer {
    /// The two together.
    pub fn new(bytes: Vec<u8>, lease: Lease) -> Buffer {
        Buffer { bytes, lease }
    }

    /// Leaves the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// The two by themselves.
    pub fn into_parts(self) -> (Vec<u8>, Lease) {
        (self.bytes, self.lease)
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(limit: u64) -> Rooms {
        Rooms::new(limit, Arc::new(Bell::create(1).unwrap()))
    }

    fn ask(rooms: &Rooms, of: RoomShare, len: u64) -> Option<Lease<&Rooms>> {
        Lease::ask(rooms, of, len, false)
    }

    #[test]
    fn there_is_a_limit_but_never_for_the_only_one() {
        let rooms = rooms(1000);
        let large = ask(&rooms, RoomShare::Mail, 1 << 48);
        assert!(large.is_some() && ask(&rooms, RoomShare::Mail, 0).is_none());
        drop(large);
        let _some = ask(&rooms, RoomShare::Mail, 500).unwrap();
        assert!(ask(&rooms, RoomShare::Mail, 373).is_none());
        assert!(ask(&rooms, RoomShare::Mail, u64::MAX).is_none());
        let _more = ask(&rooms, RoomShare::Mail, 372).unwrap();
        assert_eq!(rooms.held(RoomShare::Mail), 1000);
        let must = Lease::ask(&rooms, RoomShare::Mail, 36, true);
        assert_eq!(rooms.held(RoomShare::Mail), 1100);
        drop(must);
        assert_eq!(rooms.held(RoomShare::Mail), 1000);
    }

    #[test]
    fn a_share_has_no_part_in_the_others() {
        let rooms = rooms(1000);
        let all = [RoomShare::Mail, RoomShare::Awaited, RoomShare::High, RoomShare::Low];
        let leases = all.map(|of| ask(&rooms, of, 5000).unwrap());
        assert_eq!(all.map(|of| rooms.held(of)), [5064; 4]);
        assert!(all.iter().all(|&of| ask(&rooms, of, 0).is_none()));
        drop(leases);
        assert_eq!(all.map(|of| rooms.held(of)), [0; 4]);
    }

    #[test]
    fn who_was_refused_is_told_once_when_half_is_free() {
        let rooms = rooms(1000);
        let mut held: Vec<_> = (0..4).map(|_| ask(&rooms, RoomShare::Low, 186).unwrap()).collect();
        held.pop();
        assert!(!rooms.take_again(), "nobody was refused");
        assert!(ask(&rooms, RoomShare::Low, 187).is_none());
        for (left, told) in [(2, true), (1, false), (0, false)] {
            held.pop();
            assert_eq!((held.len(), rooms.take_again()), (left, told));
        }
    }
}
