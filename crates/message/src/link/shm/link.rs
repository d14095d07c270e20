//! The two ends of a pair.

use super::bell::Bell;
use super::layout::{Area, AttachError, RingView, Sizes, SHARES, UNIT};
use super::receiver::Receiver;
use super::record::{Kind, Tag};
use super::sender::Sender;
use super::share::{Helper, Share, ShareTicket};
use crate::error::{LinkError, MessageError};
use crate::types::{ChannelId, Priority, MAX_CHANNELS};
use polyduct_os::process::PidFd;
use polyduct_os::remote::{Piece, RemoteReader};
use polyduct_os::OsError;
use polyduct_ring::ring::{alarm, publish, Claim, NoRoom, Outlet};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// One end of a pair. Cheap to clone; the segment goes with the last of its clones, senders and receivers.
#[derive(Clone, Debug)]
pub struct Link {
    shared: Arc<Shared>,
}

/// What all handles of one end share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The sending side of both rings, high first.
    pub outlets: [Outlet; 2],
    /// What the rings of this link have of [`GROWN`].
    grown: Mutex<u64>,
    pub area: Area,
    /// Messages that this side has taken, high and low, modulo 2³².
    pub taken: [AtomicU32; 2],
    /// What reads the peer's memory, where that is allowed.
    pub peer: OnceLock<RemoteReader>,
    bell: OnceLock<(Arc<Bell>, u32)>,
    closed: AtomicBool,
    broken: OnceLock<LinkError>,
    handles: Mutex<Handles>,
    /// Channels with a message that was given up, which there was no room to say.
    abandoned: Mutex<Vec<(ChannelId, Priority)>>,
    /// This side's copies that both work on.
    shares: Mutex<Shares>,
}

/// Bytes that the rings on which this process sends have grown by, in all its links.
static GROWN: AtomicU64 = AtomicU64::new(0);

impl Drop for Shared {
    fn drop(&mut self) {
        let grown = self.grown.get_mut().unwrap_or_else(PoisonError::into_inner);
        GROWN.fetch_sub(*grown, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Shares {
    used: [bool; SHARES],
    turn: u32,
}

#[derive(Debug, Default)]
struct Handles {
    receiver: bool,
    senders: Vec<(ChannelId, Priority)>,
}

impl Shared {
    /// Calls the peer, which may be asleep.
    #[cold]
    pub fn call(&self) {
        if let Some((bell, slot)) = self.bell.get() {
            bell.calls().call(*slot);
        }
    }

    /// Messages that have come and were not taken, high and low.
    pub fn waiting(&self) -> [u32; 2] {
        let of = |priority, taken: &AtomicU32| {
            let ring = self.area.ring(false, priority);
            // SAFETY: `self` keeps the area mapped.
            let sent = alarm::deeds(unsafe { ring.sent() });
            // A peer that counts wrongly announces no more than the ring holds.
            sent.wrapping_sub(taken.load(Ordering::Relaxed)).min(ring.shape.lines)
        };
        [of(Priority::High, &self.taken[0]), of(Priority::Low, &self.taken[1])]
    }

    /// Makes the window of a ring as wide, if all links together may take so much, or if it `must` be.
    /// Returns whether it is.
    #[cold]
    pub fn widen(&self, priority: Priority, window: u32, must: bool) -> bool {
        let (outlet, shape) = (self.outlet(priority), self.area.ring(true, priority).shape);
        let mut grown = self.grown.lock().unwrap_or_else(PoisonError::into_inner);
        let (old, new) = (outlet.window(shape), window.min(shape.units));
        if new <= old {
            return window <= old;
        }
        let bytes = u64::from(new - old) * UNIT as u64;
        let most = self.area.sizes().grow_bytes;
        let take = |all: u64| (must || all + bytes <= most).then_some(all + bytes);
        if GROWN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return false;
        }
        if self.area.reserve(priority, old..new).is_err() {
            GROWN.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        *grown += bytes;
        outlet.widen(new);
        true
    }

    pub fn outlet(&self, priority: Priority) -> &Outlet {
        &self.outlets[usize::from(priority == Priority::Low)]
    }

    /// Why there is no use in going on, if there is none. `None` inside: it was closed on this side.
    pub fn end(&self) -> Option<Option<LinkError>> {
        let broken = self.broken.get().cloned();
        (broken.is_some() || self.closed.load(Ordering::Acquire)).then_some(broken)
    }

    /// The peer broke the protocol. The first reason stands.
    #[cold]
    pub fn broke(&self, error: LinkError) -> LinkError {
        self.broken.get_or_init(|| error).clone()
    }

    /// Says that a channel's message is given up, unless that was `owed` and has been said since. Returns the
    /// record that says so; where there is no room, it is owed.
    pub fn abandon(&self, channel: ChannelId, priority: Priority, owed: bool) -> Result<Option<u32>, NoRoom> {
        let mut abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        let at = abandoned.iter().position(|&a| a == (channel, priority));
        if owed && at.is_none() {
            return Ok(None);
        }
        let said = self.write_abandon(channel, priority);
        match (&said, at) {
            (Ok(_), Some(at)) => drop(abandoned.swap_remove(at)),
            (Err(_), None) => abandoned.push((channel, priority)),
            _ => {}
        }
        said.map(Some)
    }

    fn write_abandon(&self, channel: ChannelId, priority: Priority) -> Result<u32, NoRoom> {
        let ring = self.area.ring(true, priority);
        // SAFETY: `self` keeps the area mapped.
        let (receiver, sent) = unsafe { (ring.receiver(), ring.sent()) };
        let Claim { at, .. } = self.outlet(priority).claim(ring.shape, 0, &receiver[0], || false)?;
        let tag = Tag::pack(channel.0, Kind::Abandon, false, 0);
        // SAFETY: as above.
        publish(unsafe { ring.line(at.line) }, at.line, tag, [0; 7]);
        if alarm::count(sent, 0) {
            self.call();
        }
        Ok(at.line)
    }

    pub fn release_sender(&self, channel: ChannelId, priority: Priority) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.senders.retain(|&s| s != (channel, priority));
    }
}

impl Link {
    /// Makes the segment of a pair. Hand [`fd`](Link::fd) to the peer.
    ///
    /// # Errors
    /// [`MessageError::Limit`] for sizes that cannot be; [`MessageError::System`] without memory or
    /// descriptor.
    pub fn create(sizes: &Sizes) -> Result<Link, MessageError> {
        Area::create(sizes).map(Link::of)
    }

    /// Maps the segment that a peer made, if it has at most `max_bytes`. Of `sizes` only those count that a
    /// sender chooses for itself; the ring sizes are the creator's.
    ///
    /// # Errors
    /// [`AttachError`]: it is not such a segment, or the system refuses. The descriptor is closed.
    pub fn attach(fd: OwnedFd, max_bytes: usize, sizes: &Sizes) -> Result<Link, AttachError> {
        Area::attach(fd, max_bytes, sizes).map(Link::of)
    }

    fn of(area: Area) -> Link {
        let window = area.sizes().first_window();
        Link {
            shared: Arc::new(Shared {
                outlets: [(); 2].map(|()| Outlet::new(window)),
                grown: Mutex::default(),
                area,
                taken: Default::default(),
                peer: OnceLock::new(),
                bell: OnceLock::new(),
                closed: AtomicBool::new(false),
                broken: OnceLock::new(),
                handles: Mutex::default(),
                abandoned: Mutex::default(),
                shares: Mutex::default(),
            }),
        }
    }

    /// The segment's descriptor, to hand to the peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.area.segment().fd()
    }

    /// The sizes in use.
    pub fn sizes(&self) -> &Sizes {
        self.shared.area.sizes()
    }

    /// Where the peer sleeps, and the number that this link has there. Without it a peer that sleeps is not
    /// woken. Only the first call counts.
    pub fn ring_at(&self, bell: Arc<Bell>, slot: u32) {
        let _ = self.shared.bell.set((bell, slot));
    }

    /// Tries to read the peer's memory, and tells the peer if that is possible: from then on it may
    /// [post](Sender::post) messages. Returns whether it is. The peer must have permitted it where the system
    /// asks for that (see [`polyduct_os::remote::permit_readers`]).
    ///
    /// # Errors
    /// The peer has exited.
    pub fn pull_from(&self, peer: PidFd) -> Result<bool, MessageError> {
        let reader = RemoteReader::of(peer);
        let (at, expected) = self.shared.area.peers_mapping();
        let mut found = [0; 8];
        match reader.read(&mut found, at) {
            // It is the process that mapped this very segment.
            Ok(()) if u64::from_le_bytes(found) == expected => {}
            Err(e) if e.is_peer_gone() => return Err(e.into()),
            _ => return Ok(false),
        }
        let _ = self.shared.peer.set(reader);
        for priority in [Priority::High, Priority::Low] {
            // SAFETY: `self` keeps the area mapped.
            let words = unsafe { self.ring(false, priority).receiver() };
            words[2].store(1, Ordering::Release);
        }
        Ok(true)
    }

    /// Copies from the memory of the peer, which [`pull_from`](Link::pull_from) can read.
    ///
    /// # Errors
    /// [`OsError::RemoteDenied`] where this process cannot; the peer's end, or an address that is none;
    /// [`OsError::PeerClosed`] where the peer has [withdrawn](Link::withdraw) its memory.
    pub fn fetch(&self, dst: &mut [u8], address: u64) -> Result<(), OsError> {
        self.remote(|peer| peer.read(dst, address))
    }

    /// Copies from pieces of the peer's memory into pieces of this process's: see [`RemoteReader::gather`].
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As [`fetch`](Link::fetch).
    pub unsafe fn gather(&self, here: &[Piece], there: &[Piece]) -> Result<usize, OsError> {
        // SAFETY: the caller's.
        self.remote(|peer| unsafe { peer.gather(here, there) })
    }

    /// Copies into the memory of the peer, which [`pull_from`](Link::pull_from) can read.
    ///
    /// # Errors
    /// As [`fetch`](Link::fetch).
    pub fn store(&self, src: &[u8], address: u64) -> Result<(), OsError> {
        self.remote(|peer| peer.write(src, address))
    }

    /// Memory of this process is from now on not what the peer takes it for: what it copies from then on is
    /// an error there.
    pub fn withdraw(&self) {
        self.shared.area.withdraw();
    }

    fn remote<T>(&self, copy: impl FnOnce(&RemoteReader) -> Result<T, OsError>) -> Result<T, OsError> {
        let peer = self.shared.peer.get().ok_or(OsError::RemoteDenied { pid: 0 })?;
        let is_there = || match self.shared.area.peers_mapping().0 {
            0 => Err(OsError::PeerClosed),
            _ => Ok(()),
        };
        is_there()?;
        let copied = copy(peer)?;
        // What was copied before the word went was the peer's still.
        is_there().map(|()| copied)
    }

    /// A copy of so many pieces that the peer may help with, once it is told the
    /// [ticket](Share::ticket). `None`: this side has as many as there may be.
    pub fn share(&self, pieces: u32) -> Option<Share> {
        Share::new(self, pieces)
    }

    /// Helps with a copy of the peer's. `None`: the ticket is none of this link.
    pub fn help(&self, ticket: ShareTicket) -> Option<Helper> {
        Helper::new(self, ticket)
    }

    /// Whether the process of the peer has ended, or does within this time; not, where it is not known.
    pub(super) fn peer_ends_within(&self, time: Duration) -> bool {
        match self.shared.peer.get() {
            Some(peer) => peer.process().exited_within(time).unwrap_or(true),
            None => {
                std::thread::sleep(time);
                false
            }
        }
    }

    pub(super) fn free_share(&self) -> Option<(u32, u32)> {
        let mut shares = self.shared.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let at = shares.used.iter().position(|used| !used)?;
        shares.used[at] = true;
        shares.turn = shares.turn.wrapping_add(1);
        Some((self.shared.area.first_share() + at as u32, shares.turn))
    }

    pub(super) fn end_share(&self, at: u32) {
        let mut shares = self.shared.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let at = at.saturating_sub(self.shared.area.first_share()) as usize;
        shares.used.get_mut(at).into_iter().for_each(|used| *used = false);
    }

    pub(super) fn share_words(&self, at: u32) -> Option<&[AtomicU64; 8]> {
        self.shared.area.share(at).map(|(words, _)| &words.w)
    }

    pub(super) fn is_peers_share(&self, at: u32) -> bool {
        self.shared.area.share(at).is_some_and(|(_, is_peers)| is_peers)
    }

    /// The sender of a channel. There is one at a time for each channel and priority: `None` while it lives,
    /// and for a channel number beyond the limit.
    pub fn sender(&self, channel: ChannelId, priority: Priority) -> Option<Sender> {
        let mut handles = self.shared.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if channel.0 >= MAX_CHANNELS || handles.senders.contains(&(channel, priority)) {
            return None;
        }
        handles.senders.push((channel, priority));
        Some(Sender::new(self.shared.clone(), self.ring(true, priority), channel, priority))
    }

    /// What receives all that the peer sends; there is one. `B` is what the caller gives for long messages to
    /// be put into.
    pub fn receiver<B: AsMut<[u8]>>(&self) -> Option<Receiver<B>> {
        let mut handles = self.shared.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if core::mem::replace(&mut handles.receiver, true) {
            return None;
        }
        let rings = [self.ring(false, Priority::High), self.ring(false, Priority::Low)];
        Some(Receiver::new(self.shared.clone(), rings))
    }

    /// Messages that have come and were not taken yet, high and low: exact at the time of the call, for every
    /// thread.
    pub fn waiting(&self) -> [u32; 2] {
        self.shared.waiting()
    }

    /// Short messages that are sure to be taken now, if nobody else sends, high and low.
    pub fn sends(&self) -> [u32; 2] {
        let of = |priority, outlet: &Outlet| {
            let ring = self.ring(true, priority);
            // SAFETY: `self` keeps the area mapped.
            let room = outlet.room(ring.shape, unsafe { &ring.receiver()[0] });
            room.map_or(0, |(messages, _)| messages)
        };
        let [high, low] = &self.shared.outlets;
        [of(Priority::High, high), of(Priority::Low, low)]
    }

    /// Says which messages were given up, where there was no room for it before. Returns whether all is said;
    /// until then the receiver keeps what it has of them. It is asked to call when there is room.
    pub fn say_abandoned(&self) -> bool {
        let mut abandoned = self.shared.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        abandoned.retain(|&(channel, priority)| match self.shared.write_abandon(channel, priority) {
            Ok(_) => false,
            Err(_) => {
                // SAFETY: `self` keeps the area mapped.
                alarm::arm(unsafe { &self.ring(true, priority).receiver()[1] });
                self.shared.end().is_none()
            }
        });
        abandoned.is_empty()
    }

    fn ring(&self, outgoing: bool, priority: Priority) -> RingView {
        self.shared.area.ring(outgoing, priority)
    }

    /// Ends this side's use: senders that find no room get [`SendError::Closed`](super::SendError). For a
    /// peer that has died or left; what it sent before can still be received. Senders asleep see it when this
    /// endpoint's own bell rings.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
    }
}
