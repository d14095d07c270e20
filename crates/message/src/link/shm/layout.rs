//! The segment of a pair: where what lies, and how large.
//!
//! | offset | content |
//! |---|---|
//! | 0 | header: magic and version, sizes, where each side has mapped it |
//! | 128 + 256 · (2 d + p) | ring of direction d (0: from the creator) and priority p (0: high): the sender's control line; 128 bytes on, the receiver's (processors fetch lines in pairs) |
//! | 1152 + 64 · (4 d + n) | copy n of side d (0: the creator) that both [work on](super::Share) |
//! | then | lines of the four rings, in the same order |
//! | then | payload of the four rings, in the same order |
//!
//! Control lines, words: the sender's 0: alarm of the receiver, counting the messages sent. The receiver's 0:
//! its head; 1: alarm of senders that wait for it; 2: 1 where it can pull.

use crate::error::LinkError;
use crate::types::Priority;
use polyduct_os::segment::{Access, Segment};
use polyduct_os::sync::{AtomicU64, Ordering, Words};
use polyduct_ring::ring::Shape;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// "plyduct", and the version of what lies in the segment in the last byte.
const MAGIC: u64 = u64::from_le_bytes(*b"plyduct\x04");
const HEADER: usize = 0;
const CONTROL: usize = 2;
const SHARED: usize = CONTROL + 16;
const FIRST_LINE: usize = SHARED + 2 * SHARES;

/// Copies of one side that both work on at once, at most.
pub const SHARES: usize = 4;

/// Bytes of a unit of payload.
pub const UNIT: usize = 64;

/// Sizes of a pair's segment, and where one mechanism gives way to the next.
///
/// The ring sizes hold for both directions and are the creator's choice; the other fields are each sender's
/// own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Records of high priority that the ring holds: a power of two, 8 to 2²⁰.
    pub high_lines: u32,
    /// Records of low priority that the ring holds.
    pub low_lines: u32,
    /// Payload bytes of high priority that the ring holds: a power of two, 1 KiB to 1 GiB.
    pub high_bytes: u32,
    /// Payload bytes of low priority that the ring holds.
    ///
    /// Where the two processors share no cache, a longer ring is faster: of what a lap has left in the
    /// reader's cache more has gone when the writer comes round, and need not be fetched back. 2 MiB carry
    /// bulk 1.3 times as fast as 512 KiB there (0.65 of memcpy), 8 MiB 1.7 times. Where they share one, 2 MiB
    /// cost up to 0.1, 8 MiB 0.2 of the rate, which stays above 0.85 of memcpy. What is streamed to a
    /// receiver whose own cache has the ring waits for that cache: with 2 MiB of it, 48 KiB arrive in 0.93 of
    /// the time through a ring of 4 MiB, and no sooner through 8. Prefetching for writing, or reading,
    /// changes neither by more than the noise; stores around the caches come to 1.4 times far, and to half
    /// near.
    pub low_bytes: u32,
    /// Messages up to so many bytes go as one piece, which the receiver's handler sees in the ring.
    pub whole_bytes: u32,
    /// The first fragment of a longer message; each that follows is twice as long, up to a quarter of the
    /// message.
    pub first_fragment: u32,
    /// The longest fragment. At most a quarter of the ring whatever is set here.
    pub max_fragment: u32,
    /// How much the rings on which this process sends may grow by, those of all its links together.
    pub grow_bytes: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            high_lines: 256,
            low_lines: 1024,
            high_bytes: 64 << 10,
            low_bytes: 4 << 20,
            whole_bytes: 8 << 10,
            first_fragment: 8 << 10,
            max_fragment: 64 << 10,
            grow_bytes: 32 << 20,
        }
    }
}

impl Sizes {
    /// The least that works: 8 KiB for a pair. For very many peers, or very little memory.
    pub fn least() -> Sizes {
        Sizes {
            high_lines: 8,
            low_lines: 8,
            high_bytes: 1 << 10,
            low_bytes: 1 << 10,
            whole_bytes: 256,
            first_fragment: 256,
            max_fragment: 256,
            grow_bytes: 0,
        }
    }

    /// Bytes of a pair's segment.
    pub fn segment_bytes(&self) -> usize {
        let ring = (self.high_lines as usize + self.low_lines as usize) * 64;
        FIRST_LINE * 64 + 2 * (ring + self.high_bytes as usize + self.low_bytes as usize)
    }

    fn check(&self) -> Result<(), LinkError> {
        let power = |what, n: u32, from: u32, to: u32| match n.is_power_of_two() && (from..=to).contains(&n) {
            true => Ok(()),
            false => Err(LinkError::BadField {
                what,
                found: n.into(),
                expected: "a power of two within its limits",
            }),
        };
        power("lines of high priority", self.high_lines, 8, 1 << 20)?;
        power("lines of low priority", self.low_lines, 8, 1 << 20)?;
        power("payload bytes of high priority", self.high_bytes, 1 << 10, 1 << 30)?;
        power("payload bytes of low priority", self.low_bytes, 1 << 10, 1 << 30)
    }

    /// Units of a ring's payload that are used at first: what a few messages take that go as one piece.
    pub fn first_window(&self) -> u32 {
        let piece = self.whole_bytes.max(self.first_fragment).clamp(64, 1 << 28);
        4 * piece.next_power_of_two() / UNIT as u32
    }

    /// Bytes of a pair's segment that are used at first: all lines, and the windows of payload.
    pub fn first_bytes(&self) -> u64 {
        let window = self.first_window() * UNIT as u32;
        let lines = (self.high_lines + self.low_lines) * UNIT as u32;
        2 * u64::from(lines + window.min(self.high_bytes) + window.min(self.low_bytes))
    }

    /// Where the payload lies of a direction (0: from the creator) and priority (0: high).
    fn payload(&self, direction: usize, priority: usize) -> Range<usize> {
        let lines = 2 * (self.high_lines as usize + self.low_lines as usize) * 64;
        let (high, low) = (self.high_bytes as usize, self.low_bytes as usize);
        let start = FIRST_LINE * 64 + lines + direction * (high + low) + priority * high;
        start..start + [high, low][priority]
    }

    fn shape(&self, priority: Priority) -> Shape {
        match priority {
            Priority::High => Shape { lines: self.high_lines, units: self.high_bytes / UNIT as u32 },
            Priority::Low => Shape { lines: self.low_lines, units: self.low_bytes / UNIT as u32 },
        }
    }
}

/// Which end of the pair this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Made the segment.
    Creator,
    /// Was handed it.
    Guest,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Creator => Side::Guest,
            Side::Guest => Side::Creator,
        }
    }
}

/// The mapped segment of a pair.
#[derive(Debug)]
pub struct Area {
    segment: Segment,
    sizes: Sizes,
    side: Side,
}

/// One ring of an area: pointers into it, good as long as it is mapped.
#[derive(Clone, Copy, Debug)]
pub struct RingView {
    /// Its sizes.
    pub shape: Shape,
    lines: *const Words,
    payload: *mut u8,
    sender: *const Words,
    receiver: *const Words,
}

// SAFETY: the lines are atomics, and the payload is written and read by pointer under the ring's protocol
// only.
unsafe impl Send for RingView {}
// SAFETY: as above.
unsafe impl Sync for RingView {}

impl RingView {
    /// The line at a position.
    ///
    /// # Safety
    /// The area is still mapped, for as long as the caller uses the line.
    #[inline]
    pub unsafe fn line<'a>(&self, position: u32) -> &'a Words {
        // SAFETY: masked to the ring, whose lines lie in the mapping; all of it is atomics.
        unsafe { &*self.lines.add(self.shape.line(position)) }
    }

    /// The address of the unit at a position. So many units as do not pass the ring's end follow it.
    #[inline]
    pub fn payload(&self, position: u32) -> *mut u8 {
        // Within the mapping; whoever uses it says how it knows that it still is one.
        self.payload.wrapping_add(self.shape.unit(position) * UNIT)
    }

    /// The sender's alarm word.
    ///
    /// # Safety
    /// As [`line`](RingView::line).
    #[inline]
    pub unsafe fn sent<'a>(&self) -> &'a AtomicU64 {
        // SAFETY: a control line in the mapping.
        unsafe { &(*self.sender).w[0] }
    }

    /// The receiver's words: head, alarm, whether it can pull.
    ///
    /// # Safety
    /// As [`line`](RingView::line).
    #[inline]
    pub unsafe fn receiver<'a>(&self) -> &'a [AtomicU64; 8] {
        // SAFETY: a control line in the mapping.
        unsafe { &(*self.receiver).w }
    }
}

impl Area {
    /// Makes the segment of a pair, with memory for the lines and the first windows of payload.
    pub fn create(sizes: &Sizes) -> Result<Area, crate::MessageError> {
        sizes.check().map_err(|error| match error {
            LinkError::BadField { what, found, .. } => {
                crate::MessageError::Limit { what, limit: 1 << 30, found }
            }
            _ => crate::MessageError::Limit { what: "sizes of a link", limit: 0, found: 0 },
        })?;
        let lines = 0..sizes.payload(0, 0).start;
        let window = |(direction, priority)| {
            let Range { start, end } = sizes.payload(direction, priority);
            start..end.min(start + sizes.first_window() as usize * UNIT)
        };
        let rings = [(0, 0), (0, 1), (1, 0), (1, 1)];
        let parts: Vec<_> = [lines].into_iter().chain(rings.map(window)).collect();
        let segment = Segment::create_partly("polyduct link", sizes.segment_bytes(), &parts)?;
        segment.prefault(0..FIRST_LINE * 64)?;
        let area = Area { segment, sizes: sizes.clone(), side: Side::Creator };
        let [magic, lines, bytes, at, ..] = &area.words(HEADER).w;
        lines.store(u64::from(sizes.high_lines) << 32 | u64::from(sizes.low_lines), Ordering::Relaxed);
        bytes.store(u64::from(sizes.high_bytes) << 32 | u64::from(sizes.low_bytes), Ordering::Relaxed);
        at.store(area.segment.address(), Ordering::Relaxed);
        magic.store(MAGIC, Ordering::Release);
        Ok(area)
    }

    /// Maps the segment that a peer made. `mine` gives what each sender chooses for itself.
    pub fn attach(fd: OwnedFd, max_bytes: usize, mine: &Sizes) -> Result<Area, AttachError> {
        let segment =
            Segment::from_fd_partly(fd, Sizes::least().segment_bytes(), max_bytes, 0, Access::ReadWrite)?;
        segment.prefault(0..FIRST_LINE * 64)?;
        let mut area = Area { segment, sizes: mine.clone(), side: Side::Guest };
        let [magic, lines, bytes, _, at, ..] = &area.words(HEADER).w;
        let found = magic.load(Ordering::Acquire);
        if found != MAGIC {
            let expected = "the magic word of this version";
            return Err(LinkError::BadField { what: "the segment's first word", found, expected }.into());
        }
        let (lines, bytes) = (lines.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        at.store(area.segment.address(), Ordering::Relaxed);
        (area.sizes.high_lines, area.sizes.low_lines) = ((lines >> 32) as u32, lines as u32);
        (area.sizes.high_bytes, area.sizes.low_bytes) = ((bytes >> 32) as u32, bytes as u32);
        area.sizes.check()?;
        if area.sizes.segment_bytes() != area.segment.len() {
            let expected = "the length that its sizes need";
            let found = area.segment.len() as u64;
            return Err(LinkError::BadField { what: "the segment's length", found, expected }.into());
        }
        Ok(area)
    }

    fn words(&self, index: usize) -> &Words {
        debug_assert!(index < FIRST_LINE);
        // SAFETY: every segment has these lines (its least length was checked); the mapping is writable and
        // page-aligned, lives as long as `self`, and no other view is made of these lines.
        unsafe { &*(self.segment.address() as *const Words).add(index) }
    }

    /// A ring: one that this side sends on, or receives from.
    pub fn ring(&self, outgoing: bool, priority: Priority) -> RingView {
        let from = if outgoing { self.side } else { self.side.other() };
        let direction = usize::from(from == Side::Guest);
        let (p, sizes) = (usize::from(priority == Priority::Low), &self.sizes);
        let ring = |p: usize| [sizes.high_lines, sizes.low_lines][p] as usize * 64;
        let lines = FIRST_LINE * 64 + direction * (ring(0) + ring(1)) + p * ring(0);
        let payload = sizes.payload(direction, p).start;
        let control = CONTROL + 4 * (2 * direction + p);
        let base = self.segment.address() as *mut u8;
        RingView {
            shape: sizes.shape(priority),
            lines: base.wrapping_add(lines).cast(),
            payload: base.wrapping_add(payload),
            sender: base.wrapping_add(control * 64).cast(),
            receiver: base.wrapping_add(control * 64 + 128).cast(),
        }
    }

    /// The words of a copy that both sides work on, and whether it is the peer's.
    pub fn share(&self, at: u32) -> Option<(&Words, bool)> {
        let at = usize::try_from(at).ok().filter(|&at| at < 2 * SHARES)?;
        Some((self.words(SHARED + at), (at < SHARES) != (self.side == Side::Creator)))
    }

    /// The first copy that is this side's.
    pub fn first_share(&self) -> u32 {
        if self.side == Side::Creator {
            0
        } else {
            SHARES as u32
        }
    }

    /// Where the peer says that it has mapped the segment, and what must be there.
    pub fn peers_mapping(&self) -> (u64, u64) {
        let at = if self.side == Side::Creator { 4 } else { 3 };
        (self.words(HEADER).w[at].load(Ordering::Acquire), MAGIC)
    }

    /// The peer is not to look for the segment in this process any more.
    pub fn withdraw(&self) {
        let at = if self.side == Side::Creator { 3 } else { 4 };
        self.words(HEADER).w[at].store(0, Ordering::SeqCst);
    }

    /// Gives some units of a ring on which this side sends their memory.
    pub fn reserve(&self, priority: Priority, units: Range<u32>) -> polyduct_os::Result<()> {
        let ring = self.ring(true, priority);
        let base = ring.payload as usize - self.segment.address() as usize;
        self.segment.reserve(base + units.start as usize * UNIT..base + units.end as usize * UNIT)
    }

    /// The segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Its sizes.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }
}

/// Why a peer's segment was not taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AttachError {
    /// It is not a segment as peers make them, or the system refused.
    #[error("{0}")]
    System(#[from] polyduct_os::OsError),
    /// It is a segment, and not of a link of this version.
    #[error("{0}")]
    Link(#[from] LinkError),
}
