//! Finds the receive for a message, and the message for a receive: in the order in which each came.

use super::list::List;
use super::wire::Offer;
use polyduct_message::endpoint::Number;
use std::ffi::c_void;

/// From anybody.
pub const ANYBODY: Number = Number::MAX;
/// Bytes of a message that are kept without memory of their own.
const FEW: usize = 32;

/// A receive that waits for its message.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    /// From whom, or [`ANYBODY`].
    pub from: Number,
    /// With which tag,
    pub tag: u64,
    /// in which these bits do not matter.
    pub ignore: u64,
    /// To where.
    pub to: *mut u8,
    /// How many bytes.
    pub len: usize,
    /// What the program gave with it.
    pub context: *mut c_void,
    /// The program wants to know when it is done.
    pub tells: bool,
    /// It takes messages until less is left than this.
    pub multi: Option<usize>,
    /// What it is called among those of several messages.
    pub of: Option<u32>,
    /// The list of its pieces, where it has several.
    pub list: Option<u32>,
}

/// What a message says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Who sent it.
    pub from: Number,
    /// Its tag.
    pub tag: u64,
    /// Its data.
    pub data: Option<u64>,
    /// Its bytes.
    pub len: usize,
}

/// Where a message's bytes are.
#[derive(Debug)]
pub enum Body {
    /// Here.
    Few([u8; FEW]),
    /// In memory of their own.
    Kept(Box<[u8]>),
    /// With the sender.
    Offered(Offer),
}

impl Body {
    /// Keeps bytes.
    pub fn keep(bytes: &[u8]) -> Body {
        match bytes.len() {
            n if n <= FEW => {
                let mut few = [0; FEW];
                few[..n].copy_from_slice(bytes);
                Body::Few(few)
            }
            _ => Body::Kept(bytes.into()),
        }
    }

    /// How many bytes of a message of this length are kept here.
    pub fn held(&self, len: usize) -> u64 {
        self.bytes(len).map_or(0, |bytes| bytes.len() as u64)
    }

    /// The bytes that are here.
    pub fn bytes(&self, len: usize) -> Option<&[u8]> {
        match self {
            Body::Few(few) => few.get(..len),
            Body::Kept(bytes) => Some(bytes),
            Body::Offered(_) => None,
        }
    }
}

/// A message that no receive was there for.
#[derive(Debug)]
pub struct Unexpected {
    /// What it says of itself.
    pub arrived: Arrived,
    /// Its bytes.
    pub body: Body,
    /// Kept for who looked at it, by this context.
    pub claimed: Option<*mut c_void>,
}

/// Receives and messages that have not found each other.
#[derive(Default)]
pub struct Matching {
    posted: List<Posted>,
    unexpected: List<Unexpected>,
}

impl Matching {
    /// The receive for a message, taken out; one that takes several stays, and is given as it was.
    #[inline]
    pub fn receive_for(&mut self, arrived: &Arrived) -> Option<Posted> {
        let at = self.posted.find(|posted| {
            (posted.from == ANYBODY || posted.from == arrived.from)
                && (posted.tag ^ arrived.tag) & !posted.ignore == 0
        })?;
        match self.posted.at(at) {
            Some(posted) if posted.multi.is_some() => {
                let was = *posted;
                let taken = arrived.len.min(posted.len);
                posted.to = posted.to.wrapping_add(taken);
                posted.len -= taken;
                if posted.multi.is_some_and(|least| posted.len < least) {
                    self.posted.take(at);
                    // The last of it, which the program is told.
                    return Some(Posted { multi: Some(usize::MAX), ..was });
                }
                Some(was)
            }
            _ => self.posted.take(at),
        }
    }

    /// The message for a receive, taken out.
    #[inline]
    pub fn message_for(&mut self, posted: &Posted) -> Option<Unexpected> {
        if self.unexpected.is_empty() {
            return None;
        }
        self.unexpected.take_first(|message| fits(posted, message))
    }

    /// Looks for the message for a receive; `claim` keeps it for who asks.
    pub fn peek(&mut self, posted: &Posted, claim: bool) -> Option<Arrived> {
        let at = self.unexpected.find(|message| fits(posted, message))?;
        let message = self.unexpected.at(at)?;
        if claim {
            message.claimed = Some(posted.context);
        }
        Some(message.arrived)
    }

    /// The message that was kept for this context, taken out.
    pub fn claimed(&mut self, context: *mut c_void) -> Option<Unexpected> {
        self.unexpected.take_first(|message| message.claimed == Some(context))
    }

    /// A receive waits.
    #[inline]
    pub fn post(&mut self, posted: Posted) {
        self.posted.push(posted);
    }

    /// A message waits.
    pub fn keep(&mut self, arrived: Arrived, body: Body) {
        self.unexpected.push(Unexpected { arrived, body, claimed: None });
    }

    /// The first of such receives, taken out.
    pub fn take_back(&mut self, is_it: impl Fn(&Posted) -> bool) -> Option<Posted> {
        self.posted.take_first(is_it)
    }

    /// How many receives wait.
    pub fn waiting(&self) -> usize {
        self.posted.len()
    }

    /// Offers of a peer that is gone, taken out: nobody can fetch them any more.
    pub fn forget(&mut self, from: Number) {
        let is_lost = |m: &Unexpected| m.arrived.from == from && matches!(m.body, Body::Offered(_));
        while self.unexpected.take_first(is_lost).is_some() {}
    }
}

#[inline]
fn fits(posted: &Posted, Unexpected { arrived, claimed, .. }: &Unexpected) -> bool {
    claimed.is_none()
        && (posted.from == ANYBODY || posted.from == arrived.from)
        && (posted.tag ^ arrived.tag) & !posted.ignore == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(from: Number, tag: u64, ignore: u64) -> Posted {
        let (to, context) = (core::ptr::null_mut(), core::ptr::without_provenance_mut(tag as usize + 1));
        Posted { from, tag, ignore, to, len: 100, context, tells: true, multi: None, of: None, list: None }
    }

    fn message(from: Number, tag: u64, len: usize) -> Arrived {
        Arrived { from, tag, data: None, len }
    }

    #[test]
    fn the_first_that_fits_is_found_on_either_side() {
        let mut m = Matching::default();
        m.post(posted(3, 7, 0));
        m.post(posted(ANYBODY, 0, u64::MAX));
        m.post(posted(3, 7, 0));
        assert_eq!(m.receive_for(&message(3, 8, 1)).unwrap().from, ANYBODY);
        assert_eq!(m.receive_for(&message(3, 7, 1)).unwrap().from, 3);
        assert!(m.receive_for(&message(2, 7, 1)).is_none());
        m.keep(message(2, 7, 1), Body::keep(b"a"));
        m.keep(message(2, 7, 1), Body::keep(b"b"));
        m.keep(message(1, 9, 1), Body::keep(b"c"));
        assert!(m.peek(&posted(5, 7, 0), false).is_none());
        let claims = posted(2, 7, 0);
        assert_eq!(m.peek(&claims, true).unwrap().from, 2);
        let said = |found: Option<Unexpected>| found.map(|u| u.body.bytes(1).unwrap().to_vec());
        assert_eq!(
            said(m.message_for(&posted(ANYBODY, 7, 0))),
            Some(b"b".to_vec()),
            "what is claimed is not"
        );
        assert_eq!(said(m.message_for(&posted(ANYBODY, 0, u64::MAX))), Some(b"c".to_vec()));
        assert_eq!(said(m.claimed(claims.context)), Some(b"a".to_vec()));
        assert!(m.message_for(&posted(ANYBODY, 0, u64::MAX)).is_none());
        assert!(m.take_back(|one| one.context == posted(0, 7, 0).context).is_some() && m.waiting() == 0);
    }

    #[test]
    fn a_receive_of_several_takes_them_until_too_little_is_left() {
        let mut m = Matching::default();
        m.post(Posted { multi: Some(40), ..posted(ANYBODY, 0, u64::MAX) });
        let first = m.receive_for(&message(1, 0, 30)).unwrap();
        assert_eq!((first.len, first.multi), (100, Some(40)));
        let second = m.receive_for(&message(1, 0, 30)).unwrap();
        assert_eq!((second.len, second.to as usize, second.multi), (70, 30, Some(40)));
        let last = m.receive_for(&message(1, 0, 1)).unwrap();
        assert_eq!((last.len, last.multi), (40, Some(usize::MAX)));
        assert!(m.receive_for(&message(1, 0, 1)).is_none());
    }
}
