//! Sending on a channel.

use super::cut::{Cut, Pace, Stores};
use super::layout::{RingView, UNIT};
use super::link::Shared;
use super::record::{pack_head, pack_inline, posted, Kind, Tag, INLINE, WITHDRAWN};
use crate::error::LinkError;
use crate::types::{ChannelId, Head, Priority, MAX_PAYLOAD};
use polyduct_copy::{Dest, Source};
use polyduct_os::clock;
use polyduct_ring::ring::{alarm, publish, Claim, NoRoom, RingPosition};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The peer has not taken enough of what was sent before; nothing was sent now.
    #[error("the peer has not taken what was sent before")]
    Full,
    /// The channel has a message that is not complete; [`extend`](Sender::extend) or
    /// [`abandon`](Sender::abandon) it.
    #[error("the channel's last message lacks {left} bytes")]
    Unfinished {
        /// Bytes missing.
        left: u64,
    },
    /// More than a message can have.
    #[error("a message of {len} bytes; at most {MAX_PAYLOAD} are possible")]
    TooLong {
        /// Bytes asked for.
        len: u64,
    },
    /// The peer cannot read this process's memory: send the message instead.
    #[error("the peer cannot read this process's memory")]
    NoPull,
    /// [`Link::close`](super::Link::close) was called.
    #[error("the link is closed")]
    Closed,
    /// The peer broke the protocol.
    #[error("{0}")]
    Broken(#[from] LinkError),
}

/// A record that comes so many later has its line fetched now: every claim waits for what was stored before,
/// and so for lines that the receiver has. The next line would be fetched in vain, since the receiver looks
/// at it.
const SOON: u32 = 4;

/// Units of a payload that is rather written into memory that the receiver's cache has not: what is shorter
/// goes round the window, which is in the caches of both then.
const LONG: u32 = 16;

/// Names a record until the receiver has taken it. Good for 2³² further records of the same ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

/// What can be sent for certain, counted exactly: the peer has made so much room. It may have made more by
/// now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Messages of at most 32 bytes that will be taken, if no other channel of this priority sends.
    pub messages: u32,
    /// Payload bytes of longer ones.
    pub payload_bytes: u64,
}

/// Sends on one channel; its one writer. Other channels' senders may be used by other threads at the same
/// time.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
    ring: RingView,
    channel: ChannelId,
    priority: Priority,
    /// The message that is not complete.
    open: Option<Open>,
    /// There was no room to say that it is given up.
    owes: bool,
    last: u32,
    can_post: bool,
    cut: Cut,
    pace: Pace,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    head: Head,
    len: u64,
    sent: u64,
    /// How long the next fragment shall be.
    fragment: u32,
    /// Which stores write its fragments.
    stores: Stores,
}

/// What of a message goes into one record.
struct Piece<'a> {
    payload: &'a [u8],
    stores: Stores,
    /// The message ends with it.
    ends: bool,
}

impl Sender {
    pub(super) fn new(shared: Arc<Shared>, ring: RingView, channel: ChannelId, priority: Priority) -> Sender {
        let sizes = shared.area.sizes();
        let (whole_bytes, first_fragment) = (sizes.whole_bytes, sizes.first_fragment);
        let cut = Cut { whole_bytes, first_fragment, max_fragment: sizes.max_fragment }.within(&ring);
        let (open, pace) = (None, Pace::default());
        Sender { shared, ring, channel, priority, open, owes: false, last: 0, can_post: false, cut, pace }
    }

    /// How messages are cut.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// Cuts messages otherwise from now on; what the ring cannot hold is made smaller.
    pub fn set_cut(&mut self, cut: Cut) {
        self.cut = cut.within(&self.ring);
    }

    /// The channel.
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Its priority.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Bytes that the message begun last still lacks.
    pub fn left(&self) -> u64 {
        self.open.map_or(0, |open| open.len - open.sent)
    }

    /// The record sent last.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.last)
    }

    /// Whether the receiver is done with a record: it has handled it, or copied its fragment. The receiver
    /// tells from time to time, and when it has nothing else to do; at once for posted messages.
    #[inline]
    pub fn is_taken(&self, ticket: Ticket) -> bool {
        // SAFETY: `shared` keeps the area mapped.
        self.outlet().passed(ticket.0, unsafe { &self.ring.receiver()[0] })
    }

    /// Sends a message without payload.
    ///
    /// # Errors
    /// [`SendError::Full`] and the others: nothing was sent.
    #[inline]
    pub fn short(&mut self, head: Head) -> Result<(), SendError> {
        self.inline(head, &[])
    }

    /// Sends a message, or as much of it as there is room for. Returns the bytes of payload taken; where
    /// these are not all, give the rest to [`extend`](Sender::extend).
    ///
    /// # Errors
    /// [`SendError::Full`] and the others: nothing was sent.
    #[inline]
    pub fn send(&mut self, head: Head, payload: &[u8]) -> Result<usize, SendError> {
        if payload.len() <= INLINE {
            self.inline(head, payload)?;
        } else if payload.len() <= self.cut.whole_bytes as usize {
            self.whole_message(head, payload)?;
        } else {
            self.begin(head, payload.len() as u64)?;
            let taken = self.extend(payload);
            if taken.is_err() {
                self.open = None; // not one fragment was taken, so the receiver knows nothing of it
            }
            return taken;
        }
        Ok(payload.len())
    }

    /// Begins a message of `len` bytes, which [`extend`](Sender::extend) brings. Nothing is sent yet, unless
    /// it has none.
    pub fn begin(&mut self, head: Head, len: u64) -> Result<(), SendError> {
        self.check_closed_message()?;
        if len > MAX_PAYLOAD {
            return Err(SendError::TooLong { len });
        }
        if len == 0 {
            return self.inline(head, &[]);
        }
        let stores = match self.cut.overlaps(len) && self.receiver_waits() {
            true => self.pace.stores(),
            false => Stores::CACHED,
        };
        self.open = Some(Open { head, len, sent: 0, fragment: self.cut.first_fragment, stores });
        Ok(())
    }

    /// Sends the next bytes of the message begun, as fragments: the receiver copies one while the next is
    /// being written. Returns how many were taken; at most what the message lacks. Give many at a time: each
    /// call ends a fragment.
    ///
    /// # Errors
    /// [`SendError::Full`] and the others: nothing was taken.
    pub fn extend(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        let Some(mut open) = self.open else { return Ok(0) };
        if self.owes {
            // It may have been said since that it is given up.
            return Err(SendError::Unfinished { left: open.len - open.sent });
        }
        let want = u64::min(bytes.len() as u64, open.len - open.sent) as usize;
        let mut taken = 0;
        let max = self.cut.longest(open.len);
        while taken < want {
            let n = (want - taken).min(self.longest(open.fragment) as usize);
            let (kind, words) = match open.sent {
                0 => (Kind::First, [open.len, 0, 0, 0]),
                _ => (Kind::Next, [0; 4]),
            };
            let ends = open.sent + n as u64 == open.len;
            let piece = Piece { payload: &bytes[taken..taken + n], stores: open.stores, ends };
            match self.record(kind, open.head, piece, words) {
                Ok(()) => {}
                Err(SendError::Full) if taken > 0 => break,
                Err(e) => return Err(e),
            }
            taken += n;
            open.sent += n as u64;
            open.fragment = open.fragment.saturating_mul(2).min(max);
            self.open = (!ends).then_some(open);
        }
        Ok(taken)
    }

    /// Gives up the message begun. The receiver forgets what it has of it.
    ///
    /// # Errors
    /// [`SendError::Full`]: try again before anything else is sent, or leave it to
    /// [`Link::say_abandoned`](super::Link::say_abandoned); and the others.
    pub fn abandon(&mut self) -> Result<(), SendError> {
        if self.open.is_some_and(|open| open.sent > 0) {
            match self.shared.abandon(self.channel, self.priority, self.owes) {
                Ok(last) => self.last = last.unwrap_or(self.last),
                Err(reason) => {
                    self.owes = true;
                    return Err(self.no_room(reason));
                }
            }
        }
        (self.open, self.owes) = (None, false);
        Ok(())
    }

    /// Sends a message whose payload the receiver fetches from this process's memory, on its own processor
    /// and when it comes to it. The payload must stay as it is until the ticket [is taken](Sender::is_taken)
    /// or [withdrawn](Sender::withdraw); else the receiver gets what lies there then.
    ///
    /// # Errors
    /// [`SendError::NoPull`] where the peer cannot do that (or has not said yet that it can); the others as
    /// for `send`.
    pub fn post(&mut self, head: Head, payload: &[u8]) -> Result<Ticket, SendError> {
        self.check_closed_message()?;
        if !self.can_post() {
            return Err(SendError::NoPull);
        }
        let [a, b, c] = pack_head(&head, 0);
        let at = self.claim(0)?.at;
        let words = [a, b, c, payload.len() as u64, payload.as_ptr() as u64, posted(at.line), 0];
        self.publish(at, Tag::pack(self.channel.0, Kind::Posted, false, 0), words, 1);
        Ok(self.ticket())
    }

    /// Takes a posted message back, if the receiver has not fetched all of it. Returns whether there is no
    /// message; else the receiver has it. The payload is the caller's again in both cases.
    pub fn withdraw(&mut self, ticket: Ticket) -> bool {
        // The line may be another record's by now, whose payload may say anything.
        if self.is_taken(ticket) {
            return false;
        }
        // SAFETY: `shared` keeps the area mapped.
        let line = unsafe { self.ring.line(ticket.0) };
        let whose =
            line.w[6].compare_exchange(posted(ticket.0), WITHDRAWN, Ordering::AcqRel, Ordering::Acquire);
        whose.is_ok()
    }

    /// Whether the peer can fetch from this process's memory.
    pub fn can_post(&mut self) -> bool {
        // SAFETY: `shared` keeps the area mapped.
        self.can_post = self.can_post || unsafe { &self.ring.receiver()[2] }.load(Ordering::Acquire) == 1;
        self.can_post
    }

    /// What can be sent for certain.
    pub fn room(&self) -> Result<Room, SendError> {
        // SAFETY: `shared` keeps the area mapped.
        let shown = unsafe { &self.ring.receiver()[0] };
        let (messages, units) = self.outlet().room(self.ring.shape, shown).map_err(|e| self.no_room(e))?;
        Ok(Room { messages, payload_bytes: u64::from(units) * UNIT as u64 })
    }

    /// Asks the peer to call this side's bell when it has taken more. Look once more after this, then sleep.
    pub fn ask_for_call(&self) {
        // SAFETY: `shared` keeps the area mapped.
        alarm::arm(unsafe { &self.ring.receiver()[1] });
    }

    /// Whether the receiver has taken all that was sent, found nothing since, and looks for what comes next,
    /// awake.
    fn receiver_waits(&self) -> bool {
        // SAFETY: `shared` keeps the area mapped.
        let (head, sent) = unsafe { (&self.ring.receiver()[0], self.ring.sent()) };
        self.outlet().is_empty(head) && !alarm::is_armed(sent)
    }

    /// The stores that write the message begun.
    #[cfg(test)]
    pub(super) fn stores(&self) -> Option<Stores> {
        self.open.map(|open| open.stores)
    }

    fn outlet(&self) -> &polyduct_ring::ring::Outlet {
        self.shared.outlet(self.priority)
    }

    fn check_closed_message(&mut self) -> Result<(), SendError> {
        if self.owes {
            self.abandon()?;
        }
        match self.left() {
            0 => Ok(()),
            left => Err(SendError::Unfinished { left }),
        }
    }

    #[inline]
    fn inline(&mut self, head: Head, payload: &[u8]) -> Result<(), SendError> {
        if self.open.is_some() {
            self.check_closed_message()?;
        }
        let at = self.claim(0)?.at;
        let ([a, b, c], [p, q, r, s]) = (pack_head(&head, 0), pack_inline(payload));
        let tag = Tag::pack(self.channel.0, Kind::Inline, false, payload.len());
        self.publish(at, tag, [a, b, c, p, q, r, s], 1);
        Ok(())
    }

    #[inline]
    fn whole_message(&mut self, head: Head, payload: &[u8]) -> Result<(), SendError> {
        if self.open.is_some() {
            self.check_closed_message()?;
        }
        self.record(Kind::Whole, head, Piece { payload, stores: Stores::CACHED, ends: true }, [0; 4])
    }

    /// A record with payload in the ring.
    #[inline]
    fn record(
        &mut self,
        kind: Kind,
        head: Head,
        Piece { payload, stores, ends }: Piece<'_>,
        [p, q, r, s]: [u64; 4],
    ) -> Result<(), SendError> {
        let Claim { at, anew } = self.claim(payload.len().div_ceil(UNIT) as u32)?;
        let start = stores.timed.then(clock::now);
        // SAFETY: the claim gave this sender alone the units from `at.unit` on, enough for the payload and
        // contiguous in the ring; `shared` keeps the area mapped.
        unsafe { copy(payload.as_ptr(), self.ring.payload(at.unit), payload.len(), stores.streamed) };
        if let Some(start) = start {
            self.pace.took(stores, payload.len(), ends, clock::now().saturating_sub(start));
        }
        let units = payload.len().div_ceil(UNIT) as u32;
        polyduct_copy::prefetch_to_write(self.ring.payload(at.unit.wrapping_add(SOON * units)));
        let [a, b, c] = pack_head(&head, payload.len() as u32);
        let tag = Tag::pack(self.channel.0, kind, anew, 0);
        self.publish(at, tag, [a, b, c, p, q, r, s], u64::from(ends));
        Ok(())
    }

    #[inline]
    fn claim(&self, units: u32) -> Result<Claim, SendError> {
        // SAFETY: `shared` keeps the area mapped.
        let shown = unsafe { &self.ring.receiver()[0] };
        let (outlet, shape) = (self.outlet(), self.ring.shape);
        let mut claimed = outlet.claim(shape, units, shown, || units >= LONG && self.widen(units));
        if claimed == Err(NoRoom::Full) && units > 0 && self.widen(units) {
            claimed = outlet.claim(shape, units, shown, || self.widen(units));
        }
        claimed.map_err(|e| self.no_room(e))
    }

    /// The window's end is reached, by a long payload or before the receiver has made room at its start: it
    /// becomes twice as wide, as far as there is memory for it.
    #[cold]
    fn widen(&self, units: u32) -> bool {
        let window = self.outlet().window(self.ring.shape);
        let must = 2 * units > window;
        let wider = if must { (2 * units).next_power_of_two() } else { 2 * window };
        window < self.ring.shape.units && self.shared.widen(self.priority, wider, must)
    }

    /// How long a fragment may be now: at most a quarter of the window, which is made wider for it where
    /// there is memory.
    #[inline]
    fn longest(&self, fragment: u32) -> u32 {
        let quarter = |s: &Sender| s.outlet().window(s.ring.shape) / 4 * UNIT as u32;
        let most = quarter(self);
        if fragment <= most {
            return fragment;
        }
        let wider = fragment.div_ceil(UNIT as u32).next_power_of_two() * 4;
        self.shared.widen(self.priority, wider, false);
        fragment.min(quarter(self))
    }

    #[cold]
    fn no_room(&self, reason: NoRoom) -> SendError {
        let error = match reason {
            NoRoom::Full => match self.shared.end() {
                None => return SendError::Full,
                Some(None) => return SendError::Closed,
                Some(Some(broken)) => broken,
            },
            NoRoom::Broken(found) => {
                let expected = "between what was shown before and what was sent";
                self.shared.broke(LinkError::BadField { what: "the receiver's head", found, expected })
            }
        };
        SendError::Broken(error)
    }

    /// Shows a record, counts the messages that end with it, and calls the receiver if it asked for it.
    #[inline]
    fn publish(&mut self, at: RingPosition, tag: u32, words: [u64; 7], messages: u64) {
        self.last = at.line;
        // SAFETY: `shared` keeps the area mapped.
        let later = unsafe { self.ring.line(at.line.wrapping_add(SOON)) };
        polyduct_copy::prefetch_to_write(core::ptr::from_ref(later).cast());
        // SAFETY: `shared` keeps the area mapped.
        let (line, sent) = unsafe { (self.ring.line(at.line), self.ring.sent()) };
        publish(line, at.line, tag, words);
        if alarm::count(sent, messages) {
            self.shared.call();
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // Where there is no room to say so, it is said later, and nobody may use the channel again.
        if self.abandon().is_ok() {
            self.shared.release_sender(self.channel, self.priority);
        }
    }
}

/// Copies payload between this process's memory and the ring. `streamed`: into the ring, for a receiver that
/// waits for it.
///
/// # Safety
/// `n` bytes at both addresses, which do not overlap; no other thread of this process writes the source or
/// uses the destination. The peer may write either: it then spoils what is copied, and nothing else.
#[inline]
pub(super) unsafe fn copy(src: *const u8, dst: *mut u8, n: usize, streamed: bool) {
    if n <= 512 {
        // SAFETY: the caller's.
        unsafe { core::ptr::copy_nonoverlapping(src, dst, n) };
        return;
    }
    // SAFETY: the caller's.
    let (src, dst) = unsafe { (Source::from_raw(src, n), Dest::from_raw(dst, n)) };
    let copied = match streamed {
        true => polyduct_copy::hand_over(dst, src),
        false => polyduct_copy::memcpy(dst, src),
    };
    debug_assert!(copied.is_ok(), "equal lengths that do not overlap");
}
