//! Copies that both ends of a link work on: whoever has time takes the next piece.
//!
//! One processor that copies by the kernel is slower than the memory. So the side that copies tells the other
//! what it copies, and both take pieces, each by one atomic operation. The other need not help: who never comes
//! takes no piece, and none is waited for but those that it took.
//!
//! Either end has a few lines of the segment for copies of its own. Words of a line: 0: the turn, which
//! changes with each copy, above the number of pieces taken; 1: pieces that the helper is done with, and
//! [`FAILED`] where it could not copy one.

use super::link::Link;
use polyduct_os::sync::{AtomicU64, Ordering};
use std::time::Duration;

/// The helper could not copy a piece.
const FAILED: u64 = 1 << 63;

/// A copy of this side's.
#[derive(Debug)]
pub struct Share {
    link: Link,
    at: u32,
    turn: u32,
    pieces: u32,
    /// Pieces that this side took.
    mine: u32,
}

/// What the other side is told of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareTicket {
    /// Its line.
    pub at: u32,
    /// Its turn.
    pub turn: u32,
    /// In so many pieces.
    pub pieces: u32,
}

/// How far the other side is with the pieces that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helped {
    /// Pieces are left, or the other side copies one.
    NotYet,
    /// All are copied.
    All,
    /// It could not copy one, and copies none now.
    Failed,
}

/// A copy of the other side's.
#[derive(Debug)]
pub struct Helper {
    link: Link,
    ticket: ShareTicket,
    /// Pieces that this side took.
    took: u32,
}

fn take(word: &AtomicU64, turn: u32, pieces: u32) -> Option<u32> {
    let next = |word: u64| {
        let is_left = (word >> 32) as u32 == turn && (word as u32) < pieces;
        is_left.then(|| word + 1)
    };
    word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok().map(|word| word as u32)
}

impl Share {
    /// A copy of so many pieces, if a line of this side's is free.
    pub(super) fn new(link: &Link, pieces: u32) -> Option<Share> {
        let (at, turn) = link.free_share()?;
        let [taken, done, ..] = link.share_words(at)?;
        done.store(0, Ordering::Relaxed);
        taken.store(u64::from(turn) << 32, Ordering::Release);
        Some(Share { link: link.clone(), at, turn, pieces, mine: 0 })
    }

    /// What the other side is told.
    pub fn ticket(&self) -> ShareTicket {
        ShareTicket { at: self.at, turn: self.turn, pieces: self.pieces }
    }

    /// The next piece, for this side to copy.
    pub fn take(&mut self) -> Option<u32> {
        // A helper that sets the count back has this side copy no more pieces than there are.
        let [taken, ..] = self.link.share_words(self.at).filter(|_| self.mine < self.pieces)?;
        let piece = take(taken, self.turn, self.pieces)?;
        self.mine += 1;
        Some(piece)
    }

    /// The other side is to take no more. Pieces that nobody took are not copied.
    pub fn end(&mut self) {
        let Some([taken, ..]) = self.link.share_words(self.at) else { return };
        let all = u64::from(self.turn) << 32 | u64::from(self.pieces);
        let taken = taken.swap(all, Ordering::AcqRel) as u32;
        self.pieces = taken.clamp(self.mine, self.pieces);
    }

    /// How far the other side is, where all pieces are taken.
    pub fn helped(&self) -> Helped {
        let Some([taken, done, ..]) = self.link.share_words(self.at) else { return Helped::Failed };
        let (taken, done) = (taken.load(Ordering::Acquire) as u32, done.load(Ordering::Acquire));
        // A helper that counts wrongly spoils its own message, or has it wait for its end.
        if taken < self.pieces || done & !FAILED < u64::from(self.pieces.saturating_sub(self.mine)) {
            return Helped::NotYet;
        }
        if done & FAILED == 0 {
            Helped::All
        } else {
            Helped::Failed
        }
    }
}

/// How often the end of a copy looks for a piece that the other side is copying, and how long it rests between:
/// counted, since time goes on for processes that are stopped.
const FAREWELL: (u32, Duration) = (1000, Duration::from_millis(1));

impl Drop for Share {
    /// Waits until the other side copies nothing of this copy any more, or has ended.
    fn drop(&mut self) {
        self.end();
        for _ in 0..FAREWELL.0 {
            if self.helped() != Helped::NotYet || self.link.peer_ends_within(FAREWELL.1) {
                break;
            }
        }
        self.link.end_share(self.at);
    }
}

impl Helper {
    /// Helps with a copy that the other side has told of. `None`: there is no such line.
    pub(super) fn new(link: &Link, ticket: ShareTicket) -> Option<Helper> {
        link.is_peers_share(ticket.at).then(|| Helper { link: link.clone(), ticket, took: 0 })
    }

    /// The next piece. `None`: there is none any more.
    pub fn take(&mut self) -> Option<u32> {
        let ShareTicket { at, turn, pieces } = self.ticket;
        let [taken, ..] = self.link.share_words(at).filter(|_| self.took < pieces)?;
        let piece = take(taken, turn, pieces)?;
        self.took += 1;
        Some(piece)
    }

    /// A piece that was taken is copied, or could not be.
    pub fn done(&self, is_copied: bool) {
        let Some([_, done, ..]) = self.link.share_words(self.ticket.at) else { return };
        if !is_copied {
            done.fetch_or(FAILED, Ordering::Relaxed);
        }
        done.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::SHARES;
    use super::super::Sizes;
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn pair() -> (Link, Link) {
        let sizes = Sizes::least();
        let a = Link::create(&sizes).unwrap();
        let fd = a.fd().try_clone_to_owned().unwrap();
        let b = Link::attach(fd, 1 << 20, &sizes).unwrap();
        (a, b)
    }

    #[test]
    fn each_piece_is_taken_once_whoever_takes_it() {
        let (a, b) = pair();
        for (own, other) in [(&a, &b), (&b, &a)] {
            for round in 0..50 {
                let mut share = Share::new(own, 1000).unwrap();
                let mut helper = Helper::new(other, share.ticket()).unwrap();
                let count: Vec<AtomicU32> = (0..1000).map(|_| AtomicU32::new(0)).collect();
                std::thread::scope(|s| {
                    s.spawn(|| {
                        while let Some(piece) = helper.take() {
                            count[piece as usize].fetch_add(1, Ordering::Relaxed);
                            helper.done(true);
                        }
                    });
                    while let Some(piece) = share.take() {
                        count[piece as usize].fetch_add(1, Ordering::Relaxed);
                    }
                    while share.helped() == Helped::NotYet {
                        std::thread::yield_now();
                    }
                    assert_eq!(share.helped(), Helped::All, "round {round}");
                    assert!(count.iter().all(|n| n.load(Ordering::Relaxed) == 1), "round {round}");
                });
            }
        }
    }

    #[test]
    fn who_helps_with_what_is_over_takes_nothing_of_what_came_after() {
        let (a, b) = pair();
        let first = Share::new(&a, 3).unwrap();
        let mut late = Helper::new(&b, first.ticket()).unwrap();
        assert_eq!(late.take(), Some(0));
        late.done(true);
        drop(first);
        assert_eq!(late.take(), None);
        let mut second = Share::new(&a, 3).unwrap();
        assert_eq!(second.ticket().at, late.ticket.at, "the line is used again");
        assert_eq!((late.take(), second.helped()), (None, Helped::NotYet));
        assert_eq!([(); 4].map(|()| second.take()), [Some(0), Some(1), Some(2), None]);
        assert_eq!(second.helped(), Helped::All);
    }

    #[test]
    fn a_copy_that_ends_early_waits_for_what_was_taken_only() {
        let (a, b) = pair();
        let mut share = Share::new(&a, 10).unwrap();
        let mut helper = Helper::new(&b, share.ticket()).unwrap();
        assert_eq!((share.take(), helper.take()), (Some(0), Some(1)));
        share.end();
        assert_eq!((share.take(), helper.take(), share.helped()), (None, None, Helped::NotYet));
        helper.done(false);
        assert_eq!(share.helped(), Helped::Failed);
    }

    #[test]
    fn a_count_that_is_set_back_ends_all_the_same() {
        let (a, b) = pair();
        let mut share = Share::new(&a, 10).unwrap();
        let mut helper = Helper::new(&b, share.ticket()).unwrap();
        let set_back = || b.share_words(0).unwrap()[0].store(1 << 32, Ordering::Relaxed);
        let mut own = 0;
        while share.take().is_some() {
            set_back();
            own += 1;
        }
        let mut others = 0;
        while helper.take().is_some() {
            set_back();
            others += 1;
        }
        assert_eq!((own, others), (10, 10));
        share.end();
        assert_eq!(share.helped(), Helped::All, "all were copied by this side");
    }

    #[test]
    fn lines_are_bounded_and_each_side_has_its_own() {
        let (a, b) = pair();
        let all: Vec<Share> = std::iter::from_fn(|| Share::new(&a, 1)).collect();
        assert_eq!(all.len(), SHARES);
        assert!(Share::new(&b, 1).is_some());
        let own = Helper::new(&a, all[0].ticket());
        assert!(own.is_none(), "nobody helps himself");
        let beyond = ShareTicket { at: 2 * SHARES as u32, turn: 0, pieces: 1 };
        assert!(Helper::new(&b, beyond).is_none());
    }
}
