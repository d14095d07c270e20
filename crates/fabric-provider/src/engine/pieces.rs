//! Messages that lie in many pieces of memory: copied from where they are to where they belong, once.
//!
//! Who offers one tells where the list of its pieces is, and who receives it copies from piece to piece, as many
//! as the system takes in a call. Pieces of a few bytes cost more in that list than in a copy of their own: those
//! are put together first, by whichever side has them.

use super::long::{Pull, Step};
use super::Engine;
use polyduct_message::endpoint::{copy_bytes, Piece};

/// Pieces of a message, at most.
pub const MOST: usize = 4096;
/// Pieces that have fewer bytes on average are put together.
const FEW: usize = 512;
/// Pieces that the system takes at once.
const AT_ONCE: usize = 1024;
/// Bytes that are copied before other things are looked at.
const BYTES: usize = 1 << 20;

/// Bytes of all pieces; `None` where there are more than memory has.
pub fn total(pieces: &[Piece]) -> Option<usize> {
    pieces.iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.len))
}

/// Whether the pieces of a message of so many bytes are put together first.
pub fn are_few(pieces: &[Piece], len: usize) -> bool {
    len / pieces.len().max(1) < FEW
}

/// Puts pieces together.
///
/// # Safety
/// They can be read, and `to` has their bytes.
pub unsafe fn put_together(pieces: &[Piece], to: &mut [u8]) {
    let mut at = 0;
    for piece in pieces {
        let n = piece.len.min(to.len() - at);
        // SAFETY: the caller's.
        unsafe { copy_bytes(piece.at as *const u8, to[at..].as_mut_ptr(), n) };
        at += n;
    }
}

/// Puts bytes into pieces, as many as there are of both.
///
/// # Safety
/// The pieces can be written.
pub unsafe fn put_apart(mut bytes: &[u8], pieces: &[Piece]) {
    for piece in pieces {
        let (now, rest) = bytes.split_at(piece.len.min(bytes.len()));
        // SAFETY: the caller's.
        unsafe { copy_bytes(now.as_ptr(), piece.at as *mut u8, now.len()) };
        bytes = rest;
    }
}

/// Memory in pieces that is received into.
pub struct Here {
    /// Where the bytes belong.
    pub pieces: Box<[Piece]>,
    /// Where they are put together before.
    pub whole: Option<Box<[u8]>>,
}

impl Here {
    /// Nothing has come yet.
    pub fn new(pieces: Box<[Piece]>) -> Here {
        Here { pieces, whole: None }
    }

    /// The pieces of so many bytes.
    pub fn first(&self, len: usize) -> Vec<Piece> {
        let mut left = len;
        let pieces = self.pieces.iter().map(|piece| {
            let len = piece.len.min(left);
            left -= len;
            Piece { len, ..*piece }
        });
        pieces.filter(|piece| piece.len > 0).collect()
    }

    /// Puts what has come where it belongs.
    pub fn put_apart(&self) {
        if let Some(whole) = &self.whole {
            // SAFETY: the program's memory, which it gave for this.
            unsafe { put_apart(whole, &self.pieces) };
        }
    }
}

/// A copy from pieces to pieces.
pub struct Lists {
    /// What is left here,
    here: Vec<Piece>,
    /// and there.
    there: Vec<Piece>,
    /// Pieces whose list is still to be fetched, from where the message is said to be.
    unknown: usize,
}

impl Lists {
    /// Of a message that lies in so many pieces there, or in one where that is 0.
    pub fn new(here: Vec<Piece>, (address, pieces, len): (u64, u32, usize)) -> Lists {
        let one = Piece { at: address as usize, len };
        let there = if pieces == 0 { vec![one] } else { Vec::new() };
        Lists { here, there, unknown: pieces as usize }
    }
}

impl Engine {
    /// Copies some pieces.
    pub(super) fn pull_lists(&mut self, pull: &mut Pull) -> Step {
        let Some(mut lists) = pull.lists.take() else { return Step::Fails };
        let step = self.pull_some_of(pull, &mut lists);
        pull.lists = Some(lists);
        step
    }

    fn pull_some_of(&mut self, pull: &Pull, lists: &mut Lists) -> Step {
        if lists.unknown > 0 {
            lists.there = vec![Piece { at: 0, len: 0 }; std::mem::take(&mut lists.unknown)];
            let n = size_of_val(&lists.there[..]);
            if !self.fetch_into(pull.from, lists.there.as_mut_ptr().cast(), pull.address, n) {
                return Step::Fails;
            }
        }
        let mut left = BYTES;
        let (mut here, mut there) = (&mut lists.here[..], &mut lists.there[..]);
        while let (Some(first), 1..) = (here.first().copied(), left) {
            let mut bytes = 0;
            let many = here.iter().take(AT_ONCE).take_while(|piece| {
                bytes += piece.len;
                bytes <= left
            });
            let many = many.count();
            let cut = [Piece { len: first.len.min(left), ..first }];
            let now = if many == 0 { &cut[..] } else { &here[..many] };
            if first.len > 0 {
                let Some(n) = self.copy_pieces(pull, now, there) else { return Step::Fails };
                left = left.saturating_sub(n);
                here = Piece::advance(here, n);
                there = Piece::advance(there, n);
            } else {
                here = &mut here[1..];
            }
        }
        let (here, there) = (here.len(), there.len());
        lists.here.drain(..lists.here.len() - here);
        lists.there.drain(..lists.there.len() - there);
        match here {
            0 => Step::Over,
            _ => Step::Later,
        }
    }

    /// Copies some bytes, if there are any.
    fn copy_pieces(&mut self, pull: &Pull, here: &[Piece], there: &[Piece]) -> Option<usize> {
        if !self.endpoint.is_itself(pull.from) {
            let there = &there[..there.len().min(AT_ONCE)];
            // SAFETY: the program's memory, which it gave for this.
            return unsafe { self.endpoint.gather(pull.from, here, there) }.filter(|&n| n > 0);
        }
        let (to, from) = (here.first()?, there.iter().find(|piece| piece.len > 0)?);
        let n = to.len.min(from.len);
        // SAFETY: both are this program's, and belong to operations under way; they may overlap.
        unsafe { core::ptr::copy(from.at as *const u8, to.at as *mut u8, n) };
        Some(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_apart_as_they_were_put_together() {
        let bytes: Vec<u8> = (0..100).collect();
        let pieces = |of: &[u8], cuts: &[usize]| {
            let mut at = 0;
            let piece = |&len: &usize| {
                let piece = Piece { at: of[at..].as_ptr() as usize, len };
                at += len;
                piece
            };
            cuts.iter().map(piece).collect::<Vec<_>>()
        };
        let from = pieces(&bytes, &[7, 0, 50, 43]);
        assert_eq!(total(&from), Some(100));
        let (mut whole, mut there) = (vec![0; 100], vec![0; 100]);
        let to = pieces(&there, &[1, 98, 0, 1]);
        // SAFETY: all of it is here.
        unsafe {
            put_together(&from, &mut whole);
            put_apart(&whole, &to);
        }
        assert_eq!((&whole, &*std::hint::black_box(&mut there)), (&bytes, &bytes));
        assert_eq!(total(&[Piece { at: 0, len: usize::MAX }, Piece { at: 0, len: 1 }]), None);
    }
}
