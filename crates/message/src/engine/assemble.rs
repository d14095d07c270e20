//! Messages made of fragments: buffers, refusals, order, receipts.

use super::incoming::{Incoming, Message, Reassembly, Slot};
use super::path::{Body, Control};
use super::planted::Bug;
use super::ranges::Ranges;
use super::receive::{Give, Kept};
use super::{rank, PathId, Session};
use crate::error::LinkError;
use crate::types::Order;
use crate::wire::{Fragment, Name, StreamId};

impl<B: AsMut<[u8]>> Session<B> {
    /// The place of a message among its stream's slots, made if need be; `None` if the message was dealt with
    /// before.
    pub(super) fn slot_for(&mut self, name: &Name) -> Result<Option<usize>, LinkError> {
        let channel = name.stream.channel().0;
        if channel >= self.config.channels {
            return Err(LinkError::Unknown { what: "channel", found: channel.into() });
        }
        let index = name.stream.index();
        let stream = self.inn.make(index);
        let Some(at) = stream.index(name.number) else { return Ok(None) };
        let more = (at + 1).saturating_sub(stream.slots.len() as u64);
        if more > u64::from(self.config.messages_in_flight).saturating_sub(self.slots) {
            return Err(LinkError::BadField {
                what: "message number",
                found: name.number.into(),
                expected: "no more messages in flight than agreed",
            });
        }
        self.slots += more;
        stream.slots.resize_with(stream.slots.len() + more as usize, || Slot::Empty);
        Ok(Some(at as usize))
    }

    pub(super) fn fragment(
        &mut self,
        path: PathId,
        f: &Fragment<'_>,
        give: Give<'_, B>,
    ) -> Result<Kept, LinkError> {
        let stream = f.name.stream;
        let end = f.offset + u64::from(f.len);
        let total = f.payload_len();
        let least = total.unwrap_or(end);
        if least > self.config.max_payload {
            return Err(LinkError::BadField {
                what: "payload length",
                found: least,
                expected: "at most the session's limit",
            });
        }
        if f.bytes.len() < f.len as usize {
            // What is missing is skipped unless a place is found below.
            self.expect_body(path, f, u64::MAX);
        }
        let Some(at) = self.slot_for(&f.name)? else {
            self.counters.fragments_spare += 1;
            self.take_twice(f, give);
            return Ok(Kept::Yes);
        };
        let number = self.inn[stream.index()].base + at as u64;
        let fresh = match &self.inn[stream.index()].slots[at] {
            Slot::Empty => true,
            Slot::Refused { attempt, .. } => f.attempt.wrapping_sub(*attempt) as i8 > 0,
            Slot::Open(_) => {
                if f.head.is_some() && f.attempt > 0 && self.config.lossless {
                    // The answer to its first coming may have been lost with the path.
                    self.say_accepted(stream, number);
                }
                return self.add(path, at, f, give);
            }
            Slot::Done | Slot::Ready(..) => false,
        };
        // Without a head it is a straggler of an attempt that was refused.
        let Some(head) = f.head.filter(|_| fresh) else {
            self.counters.fragments_spare += 1;
            return Ok(Kept::Yes);
        };
        let ask = Incoming {
            channel: stream.channel(),
            priority: stream.priority(),
            order: stream.order(),
            head,
            len: total,
            at_least: least,
        };
        match self.place(stream, at, &ask, give) {
            Some(place) => {
                let r = Reassembly {
                    head,
                    total,
                    place,
                    have: Ranges::default(),
                    attempt: f.attempt,
                    accept_queued: false,
                };
                self.inn[stream.index()].set(at, Slot::Open(r));
                let kept = self.add(path, at, f, give);
                if f.attempt > 0 {
                    // It was refused before: the sender waits for this.
                    self.say_accepted(stream, number);
                }
                kept
            }
            None => {
                self.refuse(stream, at, f.attempt);
                Ok(Kept::Yes)
            }
        }
    }

    /// Tells the sender that a message refused before has its place.
    fn say_accepted(&mut self, stream: StreamId, number: u64) {
        let queued = match self.inn[stream.index()].slot_mut(number) {
            Some(Slot::Open(r)) => std::mem::replace(&mut r.accept_queued, true),
            // Complete at once. Buffers may come and go while nobody takes our answers: then it is left
            // unsaid.
            Some(Slot::Ready(..)) => self.urgent.len() > 2 * self.config.messages_in_flight as usize,
            _ => return,
        };
        if !queued {
            self.urgent.push_back(Control::Accepted(stream, number));
        }
    }

    fn expect_body(&mut self, path: PathId, f: &Fragment<'_>, number: u64) {
        if let Some(known) = self.path_mut(path) {
            known.body = Some(Body {
                stream: f.name.stream,
                number,
                start: f.offset,
                at: f.offset + f.bytes.len() as u64,
                end: f.offset + u64::from(f.len),
            });
        }
    }

    /// A buffer for a message, or that it needs none; `None` if it is to be refused.
    fn place(&mut self, stream: StreamId, at: usize, ask: &Incoming, give: Give<'_, B>) -> Option<Option<B>> {
        let ordered = stream.order() == Order::Ordered;
        if self.received[rank(stream.priority())].len() >= self.config.waiting {
            self.refused_waiting = true;
            return None;
        }
        let inn = &self.inn[stream.index()];
        if ordered && inn.refused > 0 {
            // An earlier one has no buffer: this one would keep it from getting one.
            if inn.slots.iter().take(at).any(|slot| matches!(slot, Slot::Refused { .. })) {
                return None;
            }
        }
        let needed = ask.len.unwrap_or(ask.at_least);
        loop {
            if let Some(mut place) = give(ask) {
                if ask.len == Some(0) {
                    // It needs none; the user only had to have a place for it.
                    return Some(None);
                }
                return (place.as_mut().len() as u64 >= needed).then_some(Some(place));
            }
            // The next of its stream goes before those that have to wait for others.
            if !(ordered && at == 0 && self.evict(stream)) {
                return None;
            }
        }
    }

    /// Takes a buffer back from an ordered message that waits for others, the last of its stream first. The
    /// sender sends that message again.
    fn evict(&mut self, stream: StreamId) -> bool {
        if self.config.planted(Bug::NoEviction) {
            return false;
        }
        let own = stream.index();
        let others = self.inn.indices().into_iter().filter(|&index| index != own);
        for index in std::iter::once(own).chain(others) {
            if StreamId::from_index(index).order() != Order::Ordered {
                continue;
            }
            let Some(at) = self.inn[index].slots.iter().rposition(Slot::holds_buffer).filter(|&at| at > 0)
            else {
                continue;
            };
            let attempt = match &self.inn[index].slots[at] {
                Slot::Open(r) => r.attempt,
                Slot::Ready(_, attempt) => *attempt,
                _ => continue,
            };
            self.counters.evicted += 1;
            self.refuse(StreamId::from_index(index), at, attempt);
            return true;
        }
        false
    }

    fn refuse(&mut self, stream: StreamId, at: usize, attempt: u8) {
        let inn = &mut self.inn[stream.index()];
        let number = inn.base + at as u64;
        // What paths have begun of it went into the buffer that goes now.
        for body in self.paths.iter_mut().flatten().filter_map(|path| path.body.as_mut()) {
            if (body.stream, body.number) == (stream, number) {
                body.number = u64::MAX;
            }
        }
        let queued = matches!(inn.slots[at], Slot::Refused { queued: true, .. });
        let old = inn.set(at, Slot::Refused { attempt, queued: true });
        match self.config.planted(Bug::BufferLeak) {
            true => std::mem::forget(old),
            false => drop(old),
        }
        self.counters.refused += 1;
        if !queued {
            self.urgent.push_back(Control::Refused(stream, number, attempt));
        }
    }

    /// Adds a fragment to a message that has its place.
    fn add(
        &mut self,
        path: PathId,
        at: usize,
        f: &Fragment<'_>,
        give: Give<'_, B>,
    ) -> Result<Kept, LinkError> {
        let stream = f.name.stream;
        let end = f.offset + u64::from(f.len);
        let inn = &mut self.inn[stream.index()];
        let number = inn.base + at as u64;
        let Slot::Open(r) = &mut inn.slots[at] else { return Ok(Kept::Yes) };
        if let Some(head) = f.head.filter(|&head| head != r.head) {
            return Err(LinkError::BadField {
                what: "head of a message",
                found: head.handler.0.into(),
                expected: "what its other fragments say",
            });
        }
        let highest = r.have.last().map_or(0, |last| last.1).max(end);
        let total = match (r.total, f.payload_len()) {
            (Some(a), Some(b)) if a != b => Err(b),
            (Some(total), _) | (None, Some(total)) if total < highest => Err(highest),
            (a, b) => Ok(a.or(b)),
        };
        let total = total.map_err(|found| LinkError::BadField {
            what: "payload length",
            found,
            expected: "what its other fragments say",
        })?;
        if f.attempt.wrapping_sub(r.attempt) as i8 > 0 {
            r.attempt = f.attempt;
        }
        if r.have.covers(f.offset, end) && f.len > 0 {
            self.counters.fragments_spare += 1;
            return Ok(Kept::Yes);
        }
        // The start of a message always finds room: then so does what is missing next, and it gets done.
        if f.offset > 0 && r.have.would_grow(f.offset, end) && r.have.len() >= self.config.max_ranges {
            return if self.config.lossless {
                Err(LinkError::BadField {
                    what: "holes in a message",
                    found: r.have.len() as u64,
                    expected: "fewer than agreed",
                })
            } else {
                Ok(Kept::No)
            };
        }
        r.total = total;
        let needed = total.unwrap_or(end);
        let have = r.place.as_mut().map_or(0, |place| place.as_mut().len() as u64);
        if have < needed && !self.grow(stream, at, needed, give) {
            return Ok(Kept::Yes);
        }
        let inn = &mut self.inn[stream.index()];
        let Slot::Open(r) = &mut inn.slots[at] else { return Ok(Kept::Yes) };
        let here = f.offset..f.offset + f.bytes.len() as u64;
        if let Some(place) = &mut r.place {
            place.as_mut()[here.start as usize..here.end as usize].copy_from_slice(f.bytes);
        }
        if here.end < end {
            self.expect_body(path, f, number);
            return Ok(Kept::Yes);
        }
        r.have.insert(here.start, here.end);
        if r.complete() {
            self.complete(stream, at);
        }
        Ok(Kept::Yes)
    }

    /// Moves a message whose length was not known to a longer buffer. Returns whether there is one.
    fn grow(&mut self, stream: StreamId, at: usize, needed: u64, give: Give<'_, B>) -> bool {
        let Slot::Open(r) = &self.inn[stream.index()].slots[at] else { return false };
        let attempt = r.attempt;
        let ask = Incoming {
            channel: stream.channel(),
            priority: stream.priority(),
            order: stream.order(),
            head: r.head,
            len: r.total,
            at_least: needed,
        };
        let Some(Some(mut place)) = self.place(stream, at, &ask, give) else {
            self.refuse(stream, at, attempt);
            return false;
        };
        let Slot::Open(r) = &mut self.inn[stream.index()].slots[at] else { return false };
        if let Some(old) = &mut r.place {
            // All of it: a fragment that another path has begun is there in part, and counts only when it is
            // whole.
            let old = old.as_mut();
            place.as_mut()[..old.len()].copy_from_slice(old);
        }
        r.place = Some(place);
        true
    }

    /// All of a message is here.
    pub(super) fn complete(&mut self, stream: StreamId, at: usize) {
        let Slot::Open(r) = self.inn[stream.index()].set(at, Slot::Done) else { return };
        let message = Message {
            channel: stream.channel(),
            priority: stream.priority(),
            order: stream.order(),
            head: r.head,
            len: r.total.unwrap_or(0),
            payload: r.place,
        };
        let waits = stream.order() == Order::Ordered && at > 0;
        if waits && !self.config.planted(Bug::AnyOrder) {
            self.inn[stream.index()].set(at, Slot::Ready(message, r.attempt));
        } else {
            self.deliver(stream, message);
            self.advance(stream, at);
        }
    }

    fn deliver(&mut self, stream: StreamId, message: Message<B>) {
        self.received[rank(stream.priority())].push_back(message);
        self.unreported += 1;
    }

    /// A slot became done: delivers what waited for it, moves the base, and sees to the receipt.
    pub(super) fn advance(&mut self, stream: StreamId, at: usize) {
        let index = stream.index();
        let number = self.inn[index].base + at as u64;
        while matches!(self.inn[index].slots.front(), Some(Slot::Done | Slot::Ready(..))) {
            if let Some(Slot::Ready(message, _)) = self.inn[index].slots.pop_front() {
                self.deliver(stream, message);
            }
            self.inn[index].base += 1;
            self.slots -= 1;
        }
        if self.inn[index].base > number {
            self.taken(stream);
        } else {
            self.lazy.push_back(Control::Done(stream, number));
            self.lazy_soon();
        }
    }

    /// A receipt for all below the base is to go out.
    pub(super) fn taken(&mut self, stream: StreamId) {
        let inn = &mut self.inn[stream.index()];
        if !inn.taken_queued {
            inn.taken_queued = true;
            self.lazy.push_back(Control::Taken(stream));
        }
        self.lazy_soon();
    }

    fn lazy_soon(&mut self) {
        let many = self.unreported * 8 >= u64::from(self.config.messages_in_flight);
        let due = if many { self.now } else { self.now + self.config.ack_delay };
        self.lazy_at = Some(self.lazy_at.map_or(due, |at| at.min(due)));
    }

    /// Takes a message again that came before; nothing where that bug is not planted.
    fn take_twice(&mut self, f: &Fragment<'_>, give: Give<'_, B>) {
        let whole = f.offset == 0 && f.last && f.bytes.len() == f.len as usize;
        if !self.config.planted(Bug::TakeTwice) || !whole {
            return;
        }
        let (Some(head), stream) = (f.head, f.name.stream) else { return };
        let (channel, priority, order) = (stream.channel(), stream.priority(), stream.order());
        let len = u64::from(f.len);
        let ask = Incoming { channel, priority, order, head, len: Some(len), at_least: len };
        let mut payload = if len > 0 { give(&ask) } else { None };
        if let Some(place) = &mut payload {
            place.as_mut()[..f.bytes.len()].copy_from_slice(f.bytes);
        }
        if payload.is_some() || len == 0 {
            self.deliver(stream, Message { channel, priority, order, head, len, payload });
        }
    }
}
