//! Posted messages: the receiver fetches them from the sender's memory.

use super::{bad, offer, Incoming, Inward, Payload};
use crate::error::LinkError;
use crate::link::shm::link::Shared;
use crate::link::shm::record::{posted, FETCHED};
use crate::types::MAX_PAYLOAD;
use polyduct_os::sync::{AtomicU64, Ordering};

/// Bytes that are pulled before high priority is looked at again: more, since each piece costs two system
/// calls.
const PULL_PIECE: usize = 128 << 10;

/// A posted message, as it was when its first piece was fetched.
#[derive(Debug)]
pub(super) struct Pulling<B> {
    buffer: B,
    len: u64,
    address: u64,
    done: u64,
}

/// What came of a posted message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pull {
    /// There is no buffer for it.
    Refused,
    /// A part of it has come.
    Piece,
    /// It is delivered, or taken back.
    Over,
}

impl<B: AsMut<[u8]>> Inward<B> {
    /// Fetches a piece of a posted message, which lies at an address; after the last one it is delivered,
    /// unless the sender has taken it back. That stands in the word `whose`.
    pub(super) fn pull(
        &mut self,
        shared: &Shared,
        incoming: &Incoming,
        (address, whose): (u64, &AtomicU64),
        give: &mut impl FnMut(&Incoming) -> Option<B>,
        deliver: &mut impl FnMut(&Incoming, Payload<'_, B>) -> bool,
    ) -> Result<Pull, LinkError> {
        let Some(reader) = shared.peer.get() else {
            return Err(shared.broke(LinkError::OutOfTurn { what: "a posted message" }));
        };
        if incoming.len > MAX_PAYLOAD {
            return Err(bad(shared, "a message's length", incoming.len, "at most 2^48"));
        }
        let open = posted(self.inlet.at().line);
        if whose.load(Ordering::Acquire) != open {
            self.pulling = None;
            self.count(shared);
            return Ok(Pull::Over);
        }
        if self.pulling.is_none() {
            let at_first = |buffer| Pulling { buffer, len: incoming.len, address, done: 0 };
            self.pulling = offer(give, incoming).map(at_first);
        }
        let Some(Pulling { buffer, len, address: first, done }) = &mut self.pulling else {
            return Ok(Pull::Refused);
        };
        // The line is read anew for each piece.
        if (*len, *first) != (incoming.len, address) {
            return Err(shared.broke(LinkError::OutOfTurn { what: "a posted message that has changed" }));
        }
        let end = incoming.len.min(*done + PULL_PIECE as u64);
        let room = buffer.as_mut().get_mut(*done as usize..end as usize);
        let read = room.map(|room| reader.read(room, address.wrapping_add(*done)));
        if !matches!(read, Some(Ok(()))) {
            self.pulling = None;
            // It may have been taken back meanwhile.
            if whose.load(Ordering::Acquire) != open {
                self.count(shared);
                return Ok(Pull::Over);
            }
            let expected = "memory of the sender that can be read";
            return Err(bad(shared, "a posted message's address", address, expected));
        }
        *done = end;
        if end < incoming.len {
            return Ok(Pull::Piece);
        }
        let fetched = whose.compare_exchange(open, FETCHED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        let pulled = self.pulling.take();
        self.count(shared);
        if let Some(Pulling { buffer, .. }) = pulled.filter(|_| fetched) {
            deliver(incoming, Payload::Buffer(buffer));
        }
        Ok(Pull::Over)
    }
}
