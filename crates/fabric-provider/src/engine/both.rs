//! Long copies on which both ends work.
//!
//! The side that fetches tells the other, which may be in a call of the program's and have nothing to do: it then
//! stores pieces itself. See [`polyduct_message::link::shm::Share`].

use super::long::{Of, Pull, Step, PIECE};
use super::wire::{self, Kind, Remote, READS};
use super::{Engine, Limits, Op, Shared, State, What};
use crate::abi;
use polyduct_message::endpoint::Number;
use polyduct_message::link::shm::{Helped, Helper, Share, ShareTicket};
use polyduct_message::Head;

/// From so many bytes on both work on a copy to or from a window of memory, whose other end is seldom about
/// to compute. Of messages the limits say it.
const WINDOW: usize = 256 << 10;
/// Copies of others that are helped with at a time, of all: more go on without.
const HELPED: usize = 64;

/// Bytes of the pieces of a copy, the last of which may be shorter. There are as many for either end, where
/// they are few.
fn piece(len: usize) -> usize {
    len.div_ceil(2 * len.div_ceil(2 * PIECE)).next_multiple_of(4096)
}

/// How many there are.
fn pieces(len: usize) -> u32 {
    len.div_ceil(piece(len)) as u32
}

/// Where the piece of this number lies, and its bytes.
fn part(len: usize, number: u32) -> (usize, usize) {
    let start = number as usize * piece(len);
    (start, piece(len).min(len - start))
}

/// Whether both ends work on a copy.
pub enum Both {
    /// Not yet, or it is too short.
    No,
    /// They do.
    Yes(Share),
    /// This side could not copy, and waits for what the other has begun.
    Ends(Share),
    /// The other side could not: this one copies all.
    Never,
}

/// A copy from this side's memory that this side helps with.
pub struct Push {
    /// Whose copy it is.
    pub to: Number,
    /// The operation of this side that it is of.
    pub of: Option<u32>,
    /// Whose registered memory it is.
    pub key: Option<u64>,
    ticket: ShareTicket,
    helper: Option<Helper>,
    bytes: *const u8,
    len: usize,
    address: u64,
}

impl Engine {
    /// Fetches pieces of a copy on which both work. `None`: it is none.
    pub(super) fn pull_both(&mut self, pull: &mut Pull) -> Option<Step> {
        let is_new = matches!(pull.both, Both::No) && pull.done == 0;
        let least = self.state.limits.least(matches!(pull.of, Of::Offer(_)));
        if is_new && pull.len >= least && self.ask_for_help(pull) {
            // The question goes before the first piece is copied.
            return Some(Step::Later);
        }
        let len = pull.len;
        let mut fetched = 0;
        let (helped, ends) = loop {
            let taken = match &mut pull.both {
                Both::No | Both::Never => return None,
                Both::Ends(share) => break (share.helped(), true),
                Both::Yes(share) => match share.take() {
                    None => break (share.helped(), false),
                    Some(number) => part(len, number),
                },
            };
            if !self.fetch(pull, taken.0, taken.1) {
                if let Both::Yes(mut share) = std::mem::replace(&mut pull.both, Both::Never) {
                    share.end();
                    pull.both = Both::Ends(share);
                }
            }
            fetched += taken.1;
            if fetched >= PIECE {
                return Some(Step::Later);
            }
        };
        match (helped, ends) {
            (Helped::NotYet, _) => Some(Step::Waits),
            (_, true) => Some(Step::Fails),
            (Helped::All, false) => Some(Step::Over),
            (Helped::Failed, false) => {
                pull.both = Both::Never;
                self.state.peer(pull.from).helps_not = true;
                None
            }
        }
    }

    /// Tells the other end that it may help, if it may. Returns whether it is told.
    fn ask_for_help(&mut self, pull: &mut Pull) -> bool {
        // Not before it is known that its memory can be copied.
        let peer = self.state.peer(pull.from);
        if !peer.is_copied || peer.helps_not || self.endpoint.is_itself(pull.from) {
            return false;
        }
        let Some(share) = self.endpoint.share(pull.from, pieces(pull.len)) else { return false };
        let (number, flags, read) = match pull.of {
            Of::Offer(number) | Of::Put(number) => (number, 0, None),
            Of::Get(number) => match self.state.ops.get(number) {
                Some(Op { what: What::Get { remote, .. }, .. }) => (number, READS, Some(*remote)),
                _ => return false,
            },
        };
        let nothing = Remote { key: 0, offset: 0, len: 0, address: 0 };
        let remote =
            Remote { len: pull.len as u64, address: pull.to as u64, ..read.unwrap_or(nothing) }.to_bytes();
        let ShareTicket { at, turn, pieces } = share.ticket();
        self.state.say(pull.from, wire::head(Kind::Help, flags, [number, at, turn, pieces]), &remote);
        pull.both = Both::Yes(share);
        true
    }

    /// Stores pieces of each copy that this side helps with. Returns whether there was one.
    pub(super) fn push(&mut self) -> bool {
        let Engine { endpoint, state, .. } = self;
        let (mut at, moved) = (0, !state.pushes.is_empty());
        while let Some(push) = state.pushes.get_mut(at) {
            let mut helper = push.helper.take().or_else(|| endpoint.help(push.to, push.ticket));
            let mut stored = 0;
            let is_over = loop {
                let taken = helper.as_mut().and_then(|helper| Some((helper.take()?, helper)));
                let Some((number, helper)) = taken else { break true };
                let (start, n) = part(push.len, number);
                // SAFETY: of an operation of the program's that is not over, or of registered memory: a copy
                // of either that ends is taken out of this list.
                let bytes = unsafe { core::slice::from_raw_parts(push.bytes.add(start), n) };
                let is_stored = endpoint.store(push.to, bytes, push.address + start as u64);
                helper.done(is_stored);
                stored += n;
                if !is_stored || stored >= PIECE {
                    break !is_stored;
                }
            };
            if is_over {
                state.pushes.swap_remove(at);
            } else {
                push.helper = helper;
                at += 1;
            }
        }
        moved
    }
}

impl Limits {
    /// From so many bytes on both ends work on a copy.
    fn least(&self, is_message: bool) -> usize {
        if is_message {
            self.both
        } else {
            self.both.min(WINDOW)
        }
    }
}

impl State {
    /// A peer copies bytes of this side's, and may be helped.
    pub(super) fn help_here(&mut self, shared: &Shared, from: Number, head: &Head, bytes: &[u8]) {
        let Some((remote, _)) = Remote::split(bytes) else { return };
        let ([number, at, turn, said], Ok(len)) = (head.args, usize::try_from(remote.len)) else { return };
        let found = match head.handler.0 & READS {
            0 => self.ops.get(number).and_then(|op| match op.what {
                What::Offered { bytes, len: most } | What::Put { bytes, len: most } => {
                    let is_one = op.pieces.is_none();
                    (op.to == from && !op.is_begun && is_one && len <= most).then_some((
                        bytes,
                        Some(number),
                        None,
                    ))
                }
                _ => None,
            }),
            _ => {
                let part = shared.registry.part(remote.key, remote.offset, remote.len, abi::REMOTE_READ);
                part.ok().map(|at| (at.cast_const(), None, Some(remote.key)))
            }
        };
        let Some((bytes, of, key)) = found else { return };
        let offered = of.and_then(|number| self.ops.get(number));
        let is_message = offered.is_some_and(|op| matches!(op.what, What::Offered { .. }));
        let ends_somewhere = remote.address.checked_add(remote.len).is_some();
        if len < self.limits.least(is_message) || self.pushes.len() >= HELPED || !ends_somewhere {
            return;
        }
        // Another version of this library may divide otherwise, and then goes without.
        let pieces = pieces(len);
        if said != pieces {
            return;
        }
        let ticket = ShareTicket { at, turn, pieces };
        self.pushes.push(Push {
            to: from,
            of,
            key,
            ticket,
            helper: None,
            bytes,
            len,
            address: remote.address,
        });
    }

    /// Registered memory is no longer so. `false`: it is in use, and stays.
    pub(super) fn withdraw(&mut self, key: u64) -> bool {
        let is_it = |of: Option<u64>| of == Some(key);
        let mut streams = self.peers.iter().flat_map(|peer| &peer.streams);
        if self.pulls.iter().any(|pull| is_it(pull.key))
            || streams.any(|streaming| is_it(streaming.key))
            || !super::lock(&self.landings).numbers(|landing| is_it(landing.key)).is_empty()
        {
            return false;
        }
        self.pushes.retain(|push| !is_it(push.key));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_copy_without_a_gap() {
        let near = |len: usize| [len - 1, len, len + 1];
        for len in [64 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 3 << 20, 16 << 20, 1 << 32]
            .into_iter()
            .flat_map(near)
        {
            let pieces = pieces(len);
            let end = (0..pieces).fold(0, |end, number| {
                let (start, n) = part(len, number);
                assert!(start == end && n > 0 && n <= PIECE, "{len}: piece {number}");
                start + n
            });
            assert_eq!(end, len);
            assert!(pieces.is_multiple_of(2) || pieces > 64, "{len}: as many for either end");
        }
    }
}
