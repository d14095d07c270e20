//! Receiving all that a peer sends.

mod pull;

use super::cut::OVERLAPS;
use super::layout::{RingView, UNIT};
use super::link::Shared;
use super::record::{unpack_head, unpack_inline, Kind, Tag, INLINE};
use super::sender::copy;
use crate::error::LinkError;
use crate::types::{ChannelId, Head, Priority, MAX_CHANNELS, MAX_PAYLOAD};
use polyduct_os::sync::Ordering;
use polyduct_ring::ring::{alarm, Inlet};
use pull::{Pull, Pulling};
use std::sync::Arc;

/// Records that one look handles, at most: other links wait.
const AT_ONCE: usize = 64;
/// Where much waits, the record that comes so many later is fetched now: it lies in the sender's cache. What
/// is not written yet must not be, since that would take it from the sender.
const SOON: u32 = 8;
/// Looks that find nothing from one question whether senders wait to the next: the answer to a message may
/// come meanwhile.
const IDLE_LOOKS: u32 = 16;
/// Bytes of a fragment that are copied before high priority is looked at again: what high priority may wait
/// for on top. 1 KiB copies as fast as 4 KiB (1.01 times the time), and high priority under bulk takes 0.66
/// times as long.
const PIECE: usize = 1 << 10;
/// Bytes of a message that are asked for ahead of those that are copied.
const AHEAD: usize = 4 << 10;
/// Looks for the next fragment of a brief message before other links get their turn, each with a pause: about
/// as long as a sender takes longer to write a fragment than the receiver to copy it. In a domain, which has
/// more to look at, 48 KiB arrive in 0.98 of the time.
const LINGER: u32 = 16;
/// Which message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The sender's channel.
    pub channel: ChannelId,
    /// Its priority.
    pub priority: Priority,
    /// Its handler and words.
    pub head: Head,
    /// Bytes of its payload.
    pub len: u64,
    /// For one that asks for a buffer: others of its priority are under way, and what they lack lies behind
    /// it. To refuse it holds them up.
    pub holds_up: bool,
}

/// A message's payload.
#[derive(Debug)]
pub enum Payload<'a, B> {
    /// Short enough for one piece: seen where it lies, for as long as the call lasts.
    Bytes(&'a [u8]),
    /// The buffer that was given for it; the payload is its first [`len`](Incoming::len) bytes.
    Buffer(B),
}

/// Receives what a peer sends, on one thread at a time.
#[derive(Debug)]
pub struct Receiver<B> {
    rings: [Inward<B>; 2],
    shared: Arc<Shared>,
    /// Looks that found nothing since the last that found something.
    idle: u32,
    /// Records that the next look handles, at most.
    ahead: usize,
}

/// One ring, as its receiver sees it.
#[derive(Debug)]
struct Inward<B> {
    ring: RingView,
    inlet: Inlet,
    priority: Priority,
    /// The unfinished message of each channel.
    parts: Vec<Option<Part<B>>>,
    /// How many of them there are.
    under_way: usize,
    /// There is one, so short that it ends soon.
    brief: bool,
    /// More is written than one look can handle, and [`SOON`] more.
    behind: bool,
    /// The posted message that is next in the ring.
    pulling: Option<Pulling<B>>,
}

#[derive(Debug)]
struct Part<B> {
    incoming: Incoming,
    buffer: B,
    filled: u64,
}

/// What a look at a ring came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Took,
    Nothing,
}

impl<B: AsMut<[u8]>> Receiver<B> {
    pub(super) fn new(shared: Arc<Shared>, rings: [RingView; 2]) -> Receiver<B> {
        let mut priorities = [Priority::High, Priority::Low].into_iter();
        let rings = rings.map(|ring| Inward {
            ring,
            inlet: Inlet::default(),
            priority: priorities.next().unwrap_or_default(),
            parts: Vec::new(),
            under_way: 0,
            brief: false,
            behind: false,
            pulling: None,
        });
        Receiver { rings, shared, idle: 0, ahead: 1 }
    }

    /// Handles what has come, high priority first: between any two records of low priority, and every 1 KiB
    /// of a fragment. Returns the number of records handled, which need not be all that wait; zero says that
    /// nothing waits, or that what waits was refused.
    ///
    /// For a message that does not come in one piece `give` is asked for a buffer. With `None`, or a buffer
    /// that is too short, it is refused: it and what follows it in its priority stay where they are, and it
    /// is offered again at the next call. `deliver` gets each message once it is complete, and says whether
    /// it took it. One that is [seen where it lies](Payload::Bytes) and was not taken is refused likewise;
    /// one in its buffer is over in any case.
    ///
    /// # Errors
    /// The peer broke the protocol: this link is of no further use. What came before was delivered.
    #[inline]
    pub fn poll(
        &mut self,
        give: &mut impl FnMut(&Incoming) -> Option<B>,
        deliver: &mut impl FnMut(&Incoming, Payload<'_, B>) -> bool,
    ) -> Result<usize, LinkError> {
        if self.is_idle() {
            return Ok(0);
        }
        let [high, low] = &mut self.rings;
        for ring in [&mut *high, &mut *low] {
            ring.behind = self.ahead == AT_ONCE && ring.is_behind();
        }
        let (mut records, mut lingered) = (0, 0);
        while records < self.ahead || low.brief && lingered < LINGER && records < AT_ONCE {
            if high.has_next() && high.step(None, &self.shared, give, deliver)? == Step::Took
                || low.has_next() && low.step(Some(high), &self.shared, give, deliver)? == Step::Took
            {
                records += 1;
            } else if low.brief && lingered < LINGER {
                lingered += 1;
                core::hint::spin_loop();
            } else {
                break;
            }
        }
        // The line behind the last record lies in the sender's cache, and takes as long to come as a message.
        // So a record that comes alone is handled without a look at it; where there are more, more are looked
        // for.
        self.ahead = (2 * records).clamp(1, AT_ONCE);
        // Not while there is something to answer: who waits for room is told at the next look, or at a
        // quarter of the ring.
        match records {
            0 => self.be_idle(),
            _ => self.idle = 0,
        }
        Ok(records)
    }

    /// Whether nothing has come. If so, that was a look as [`poll`](Receiver::poll) is one.
    #[inline]
    pub fn is_idle(&mut self) -> bool {
        let is_idle = !self.rings.iter().any(Inward::has_next);
        if is_idle {
            self.be_idle();
        }
        is_idle
    }

    /// Nothing has come. Senders are told of room at the first such look, and asked at every few whether they
    /// wait for it.
    #[inline]
    fn be_idle(&mut self) {
        if self.idle.is_multiple_of(IDLE_LOOKS) {
            self.rings.iter_mut().for_each(|ring| ring.idle(&self.shared));
        }
        self.idle = self.idle.wrapping_add(1);
        self.ahead = 1;
    }

    /// Messages that have come and were not taken yet, high and low: exact at the time of the call.
    pub fn waiting(&self) -> [u32; 2] {
        self.shared.waiting()
    }

    /// Whether nothing lies there: neither a record that was not looked at, nor one that was refused.
    pub fn is_empty(&self) -> bool {
        !self.rings.iter().any(Inward::has_next)
    }

    /// For a peer that sends no more: drops the buffers of messages that nobody completes. Not while
    /// something [lies there](Receiver::is_empty), which may be the rest of them.
    pub fn forget_unfinished(&mut self) {
        if self.is_empty() {
            self.forget_all();
        }
    }

    /// For a link that is of no further use: drops all buffers.
    pub fn forget_all(&mut self) {
        for ring in &mut self.rings {
            ring.parts.clear();
            (ring.under_way, ring.brief) = (0, false);
            ring.pulling = None;
        }
    }

    /// Asks the peer to call when it sends next, and tells it how far this side is. Look once more after
    /// this, then sleep, or look at this link only when called.
    pub fn ask_for_call(&mut self) {
        for inward in &mut self.rings {
            inward.show(&self.shared);
            // SAFETY: `shared` keeps the area mapped.
            alarm::arm(unsafe { inward.ring.sent() });
        }
    }
}

impl<B: AsMut<[u8]>> Inward<B> {
    /// Whether the next record is there.
    #[inline]
    fn has_next(&self) -> bool {
        // SAFETY: `shared`, which its receiver keeps, keeps the area mapped.
        self.inlet.peek(unsafe { self.ring.line(self.inlet.at().line) }).is_some()
    }

    /// Whether the record is there that is the last to be fetched early in one look. Then so are all before
    /// it.
    #[inline]
    fn is_behind(&self) -> bool {
        let last = self.inlet.at().line.wrapping_add(AT_ONCE as u32 + SOON);
        // SAFETY: `shared` keeps the area mapped.
        let word = unsafe { self.ring.line(last) }.w[0].load(Ordering::Relaxed);
        word as u32 == last.wrapping_add(1)
    }

    /// Handles the next record, if it is there. While it copies, it sees to what comes in ring `before`.
    #[inline]
    fn step(
        &mut self,
        before: Option<&mut Inward<B>>,
        shared: &Shared,
        give: &mut impl FnMut(&Incoming) -> Option<B>,
        deliver: &mut impl FnMut(&Incoming, Payload<'_, B>) -> bool,
    ) -> Result<Step, LinkError> {
        let at = self.inlet.at();
        // SAFETY: `shared` keeps the area mapped.
        let line = unsafe { self.ring.line(at.line) };
        let Some(tag) = self.inlet.peek(line) else { return Ok(Step::Nothing) };
        if self.behind {
            // SAFETY: as above.
            let later = unsafe { self.ring.line(at.line.wrapping_add(SOON)) };
            polyduct_copy::prefetch(core::ptr::from_ref(later).cast());
        }
        let word = |i: usize| line.w[i].load(Ordering::Relaxed);
        let (head, ring_bytes) = unpack_head([word(1), word(2), word(3)]);
        let tag = Tag::unpack(tag);
        let channel = ChannelId(tag.channel);
        let len = tag.inline.into();
        let mut incoming = Incoming { channel, priority: self.priority, head, len, holds_up: false };
        if tag.kind == Kind::Inline as u8 && usize::from(tag.inline) <= INLINE && tag.channel < MAX_CHANNELS {
            let payload = unpack_inline([word(4), word(5), word(6), word(7)]);
            if !deliver(&incoming, Payload::Bytes(&payload[..usize::from(tag.inline)])) {
                return Ok(Step::Nothing);
            }
            self.count(shared);
            self.advance(shared, at.unit, 0);
            return Ok(Step::Took);
        }
        if tag.channel >= MAX_CHANNELS {
            return Err(bad(shared, "a record's channel", tag.channel.into(), "below the limit"));
        }
        let units = ring_bytes.div_ceil(UNIT as u32);
        if units > self.ring.shape.units / 4 {
            return Err(bad(
                shared,
                "a record's payload",
                ring_bytes.into(),
                "at most a quarter of the ring",
            ));
        }
        let Some(start) = self.inlet.start(self.ring.shape, units, tag.anew) else {
            return Err(bad(shared, "a record's payload", ring_bytes.into(), "before the ring's end"));
        };
        let from = self.ring.payload(start);
        let bytes = ring_bytes as usize;
        match tag.kind {
            k if k == Kind::Whole as u8 => {
                incoming.len = ring_bytes.into();
                // SAFETY: `bytes` from `from` on lie in the ring, checked above; the area stays mapped, and
                // no thread of this process writes to a ring that it receives from. The peer should not; see
                // the module.
                let payload = Payload::Bytes(unsafe { core::slice::from_raw_parts(from, bytes) });
                if !deliver(&incoming, payload) {
                    return Ok(Step::Nothing);
                }
                self.count(shared);
            }
            k if k == Kind::First as u8 => {
                incoming.len = word(4);
                if incoming.len > MAX_PAYLOAD {
                    return Err(bad(shared, "a message's length", incoming.len, "at most 2^48"));
                }
                incoming.holds_up = self.under_way > 0;
                self.open_part(shared, &incoming)?;
                let Some(buffer) = offer(give, &incoming) else { return Ok(Step::Nothing) };
                self.parts[usize::from(tag.channel)] = Some(Part { incoming, buffer, filled: 0 });
                self.under_way += 1;
                self.brief = self.under_way == 1 && incoming.len <= OVERLAPS;
                self.fill(before, shared, channel, (from, bytes), give, deliver)?;
            }
            k if k == Kind::Next as u8 => self.fill(before, shared, channel, (from, bytes), give, deliver)?,
            k if k == Kind::Abandon as u8 => {
                if let Some(part) = self.parts.get_mut(usize::from(tag.channel)) {
                    self.under_way -= usize::from(part.take().is_some());
                    self.brief = false;
                }
            }
            k if k == Kind::Posted as u8 => {
                incoming.len = word(4);
                incoming.holds_up = self.under_way > 0;
                match self.pull(shared, &incoming, (word(5), &line.w[6]), give, deliver)? {
                    Pull::Refused => return Ok(Step::Nothing),
                    Pull::Piece => return Ok(Step::Took),
                    Pull::Over => {}
                }
                self.advance(shared, at.unit, 0);
                self.show(shared);
                return Ok(Step::Took);
            }
            k => return Err(bad(shared, "a record's kind", k.into(), "one of this version")),
        }
        self.advance(shared, start, units);
        Ok(Step::Took)
    }

    /// Handles what is there, if it is not without end.
    #[inline]
    fn drain(
        &mut self,
        shared: &Shared,
        give: &mut impl FnMut(&Incoming) -> Option<B>,
        deliver: &mut impl FnMut(&Incoming, Payload<'_, B>) -> bool,
    ) -> Result<(), LinkError> {
        for _ in 0..AT_ONCE {
            if self.step(None, shared, give, deliver)? == Step::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// Makes a place for a channel's unfinished message.
    #[inline]
    fn open_part(&mut self, shared: &Shared, incoming: &Incoming) -> Result<(), LinkError> {
        let index = usize::from(incoming.channel.0);
        if self.parts.len() <= index {
            self.parts.resize_with(index + 1, || None);
        }
        match self.parts[index] {
            None => Ok(()),
            Some(_) => {
                Err(shared.broke(LinkError::OutOfTurn { what: "a message within another of its channel" }))
            }
        }
    }

    /// A fragment of a channel's message. The last one delivers it.
    fn fill(
        &mut self,
        mut before: Option<&mut Inward<B>>,
        shared: &Shared,
        channel: ChannelId,
        (from, bytes): (*const u8, usize),
        give: &mut impl FnMut(&Incoming) -> Option<B>,
        deliver: &mut impl FnMut(&Incoming, Payload<'_, B>) -> bool,
    ) -> Result<(), LinkError> {
        let slot = self.parts.get_mut(usize::from(channel.0));
        let Some(Some(part)) = slot else {
            return Err(shared.broke(LinkError::OutOfTurn { what: "a fragment of no message" }));
        };
        let end = part.filled + bytes as u64;
        if end > part.incoming.len || bytes == 0 {
            let expected = "at least 1, and at most what its message lacks";
            return Err(bad(shared, "a fragment's length", bytes as u64, expected));
        }
        let room = part.buffer.as_mut().get_mut(part.filled as usize..end as usize);
        // The buffer had room for all of it when it was given, and may be of a kind that changes.
        let Some(room) = room else {
            return Err(
                shared.broke(LinkError::OutOfTurn { what: "a fragment for a buffer that has shrunk" })
            );
        };
        for (i, room) in room.chunks_mut(PIECE).enumerate() {
            if let (Some(before), true) = (before.as_deref_mut(), i > 0) {
                before.drain(shared, give, deliver)?;
            }
            // Where the rest of the message may already be on its way past the caches. Where it comes through
            // them this makes no difference.
            if part.incoming.len <= OVERLAPS {
                for line in (0..room.len()).step_by(UNIT) {
                    polyduct_copy::prefetch_far(from.wrapping_add(i * PIECE + line + AHEAD));
                }
            }
            // SAFETY: `bytes` from `from` on lie in the ring (checked by the caller), and the room, which has
            // as many in all, lies elsewhere.
            unsafe { copy(from.add(i * PIECE), room.as_mut_ptr(), room.len(), false) };
        }
        part.filled = end;
        if end == part.incoming.len {
            if let Some(part) = slot.and_then(Option::take) {
                self.under_way -= 1;
                self.brief = false;
                self.count(shared);
                deliver(&part.incoming, Payload::Buffer(part.buffer));
            }
        }
        Ok(())
    }

    /// A message was taken.
    #[inline]
    fn count(&self, shared: &Shared) {
        // This receiver alone writes it.
        let taken = &shared.taken[usize::from(self.priority == Priority::Low)];
        taken.store(taken.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    #[inline]
    fn advance(&mut self, shared: &Shared, start: u32, units: u32) {
        self.inlet.advance(self.ring.shape, start, units);
        if self.inlet.owes_much(self.ring.shape) {
            self.show(shared);
        }
    }

    /// Nothing waits: the sender may as well know, and if it waits it must.
    #[inline]
    fn idle(&mut self, shared: &Shared) {
        // SAFETY: `shared` keeps the area mapped.
        let words = unsafe { self.ring.receiver() };
        if alarm::is_armed(&words[1]) {
            self.show(shared);
        } else if self.inlet.owes() {
            self.inlet.show(&words[0]);
        }
    }

    /// Shows the sender how far this side is, and calls it if it waits.
    #[cold]
    fn show(&mut self, shared: &Shared) {
        // SAFETY: `shared` keeps the area mapped.
        let words = unsafe { self.ring.receiver() };
        self.inlet.show(&words[0]);
        if alarm::count(&words[1], 1) {
            shared.call();
        }
    }
}

fn offer<B: AsMut<[u8]>>(give: &mut impl FnMut(&Incoming) -> Option<B>, incoming: &Incoming) -> Option<B> {
    let mut buffer = give(incoming)?;
    (buffer.as_mut().len() as u64 >= incoming.len).then_some(buffer)
}

#[cold]
fn bad(shared: &Shared, what: &'static str, found: u64, expected: &'static str) -> LinkError {
    shared.broke(LinkError::BadField { what, found, expected })
}
