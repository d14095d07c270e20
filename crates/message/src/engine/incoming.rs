//! Messages on their way in: one [`InLane`] for each channel, priority and order.

use super::ranges::Ranges;
use crate::types::{ChannelId, Head, Order, Priority};
use std::collections::VecDeque;

/// A message that asks for a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Its channel.
    pub channel: ChannelId,
    /// Its priority.
    pub priority: Priority,
    /// Whether it keeps its place among the others.
    pub order: Order,
    /// What it says beside its payload.
    pub head: Head,
    /// Bytes of its payload, if the sender knows already. A buffer must have as many; a longer one is used
    /// from its start.
    pub len: Option<u64>,
    /// Bytes that a buffer must have in any case. If `len` is not known and more come later, a longer buffer
    /// is asked for and what came is copied.
    pub at_least: u64,
}

/// A message that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<B> {
    /// Its channel.
    pub channel: ChannelId,
    /// Its priority.
    pub priority: Priority,
    /// Whether it kept its place among the others.
    pub order: Order,
    /// What it says beside its payload.
    pub head: Head,
    /// Bytes of its payload.
    pub len: u64,
    /// The buffer, with the payload at its start; none if the payload is empty.
    pub payload: Option<B>,
}

#[derive(Debug)]
pub(crate) struct Reassembly<B> {
    pub head: Head,
    pub total: Option<u64>,
    pub place: Option<B>,
    pub have: Ranges,
    pub attempt: u8,
    /// That it was accepted, after refusals, stands in the queue to be said.
    pub accept_queued: bool,
}

impl<B> Reassembly<B> {
    pub fn complete(&self) -> bool {
        self.total.is_some_and(|total| self.have.covers(0, total))
    }
}

#[derive(Debug)]
pub(crate) enum Slot<B> {
    /// Nothing of it came, or nothing was kept.
    Empty,
    Open(Reassembly<B>),
    /// Complete, and waits for those before it.
    Ready(Message<B>, u8),
    /// There was no buffer. `queued`: the refusal stands in the queue.
    Refused {
        attempt: u8,
        queued: bool,
    },
    /// Delivered, or given up by the sender.
    Done,
}

impl<B> Slot<B> {
    pub fn holds_buffer(&self) -> bool {
        match self {
            Slot::Open(r) => r.place.is_some(),
            Slot::Ready(m, _) => m.payload.is_some(),
            _ => false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct InLane<B> {
    /// All messages below this number are done.
    pub base: u64,
    /// The messages from `base` on.
    pub slots: VecDeque<Slot<B>>,
    /// Refused ones among them.
    pub refused: usize,
    /// A receipt for `base` is to be sent and stands in the queue.
    pub taken_queued: bool,
    /// That there are buffers again stands in the queue to be said.
    pub go_queued: bool,
}

impl<B> Default for InLane<B> {
    fn default() -> Self {
        InLane { base: 0, slots: VecDeque::new(), refused: 0, taken_queued: false, go_queued: false }
    }
}

impl<B> InLane<B> {
    /// The full number for its low 32 bits: the one nearest to what is expected; `None` below the base.
    pub fn index(&self, low: u32) -> Option<u64> {
        let distance = low.wrapping_sub(self.base as u32);
        (distance < 1 << 31).then_some(distance.into())
    }

    pub fn slot_mut(&mut self, number: u64) -> Option<&mut Slot<B>> {
        self.slots.get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    /// Puts something into a slot and returns what was there; keeps the count of refused ones.
    pub fn set(&mut self, at: usize, slot: Slot<B>) -> Slot<B> {
        self.refused += usize::from(matches!(slot, Slot::Refused { .. }));
        let old = std::mem::replace(&mut self.slots[at], slot);
        self.refused -= usize::from(matches!(old, Slot::Refused { .. }));
        old
    }

    /// Number of the first refused message.
    pub fn first_refused(&self) -> Option<(u64, u8)> {
        if self.refused == 0 {
            return None;
        }
        let found = self.slots.iter().enumerate().find_map(|(at, slot)| match slot {
            Slot::Refused { attempt, .. } => Some((at, *attempt)),
            _ => None,
        });
        found.map(|(at, attempt)| (self.base + at as u64, attempt))
    }
}
