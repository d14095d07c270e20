//! The units of a domain, as one of them sees them: who is there, how each is reached, what has become of it.

use super::board::Board;
use super::host::Who;
use super::host_map::{Hosts, Processes};
use super::net::Net;
use super::peer::{Gone, Peer};
use super::{OnLoss, Options};
use crate::link::shm::Link;
use crate::types::{Address, Head};
use crate::{LinkError, MessageError};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a process may take to die once its memory is gone.
const LAST_GASP: Duration = Duration::from_millis(100);

/// All units, this one too.
pub(super) struct Units {
    options: Options,
    /// The units that are near, and those that are far: for good.
    hosts: Arc<Hosts>,
    /// What stands for the domain in the names of this host's sockets.
    place: String,
    /// The processes of those who are near.
    processes: Arc<Processes>,
    board: Board,
    peers: Vec<Peer>,
    losses: Vec<Loss>,
    /// Something waits for room on a library channel.
    backlog: AtomicBool,
    /// The first unit that was lost, and one; zero while there is none.
    first_lost: AtomicU32,
    /// This unit has begun to leave.
    leaves: AtomicBool,
    /// This unit takes no part any more.
    away: AtomicBool,
}

/// What is known of the loss of a unit.
#[derive(Default)]
struct Loss {
    /// How it broke the protocol, if it did.
    broken: OnceLock<LinkError>,
    /// How it was lost, across hosts.
    lost_by: OnceLock<MessageError>,
    /// How it was lost, in the words of another that left because of it.
    hearsay: OnceLock<String>,
    /// This unit has told others of it.
    told: AtomicBool,
}

impl Units {
    /// All are there.
    pub fn new(
        options: Options,
        hosts: Arc<Hosts>,
        place: String,
        processes: Processes,
        board: Board,
    ) -> Units {
        Units {
            peers: (0..options.units).map(|_| Peer::default()).collect(),
            losses: (0..options.units).map(|_| Loss::default()).collect(),
            options,
            hosts,
            place,
            processes: Arc::new(processes),
            board,
            backlog: AtomicBool::new(false),
            first_lost: AtomicU32::new(0),
            leaves: AtomicBool::new(false),
            away: AtomicBool::new(false),
        }
    }

    /// How this unit joined.
    #[inline]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// This unit.
    #[inline]
    pub fn me(&self) -> Address {
        self.options.unit
    }

    /// The addresses of all.
    pub fn all(&self) -> std::ops::Range<Address> {
        0..self.options.units
    }

    /// The units that are near, and those that are far.
    #[inline]
    pub fn hosts(&self) -> &Arc<Hosts> {
        &self.hosts
    }

    /// The processes of those who are near.
    pub fn processes(&self) -> &Arc<Processes> {
        &self.processes
    }

    /// What units say of themselves.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// What this unit says to those of its host.
    pub fn who(&self) -> Who<'_> {
        self.options.who(&self.hosts, &self.place)
    }

    /// A unit.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`].
    #[inline]
    pub fn peer(&self, unit: Address) -> Result<&Peer, MessageError> {
        self.peers.get(unit as usize).ok_or(MessageError::NoUnit { to: unit, units: self.options.units })
    }

    /// All by their addresses.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Whether something waits for room on a library channel.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::Acquire)
    }

    /// Something waits for room on a library channel.
    pub fn note_backlog(&self) {
        self.backlog.store(true, Ordering::Release);
    }

    /// Sends on the library's channel to a unit, now or when there is room: to those of other hosts by `net`,
    /// to those of this one by their links, which stand.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`]; as [`Peer::push`].
    pub fn push(
        &self,
        net: Option<&Net>,
        to: Address,
        head: Head,
        payload: Vec<u8>,
    ) -> Result<(), MessageError> {
        let (peer, far) = (self.peer(to)?, net.filter(|_| self.hosts.is_far(to)).map(|net| (net, to)));
        peer.push(far, head, payload)?;
        if peer.flush(far) {
            self.note_backlog();
        }
        Ok(())
    }

    /// Sends what waits, as far as there is room. Returns whether anything still waits.
    pub fn flush(&self, net: Option<&Net>) -> bool {
        self.backlog.store(false, Ordering::Release);
        let mut waits = net.is_some_and(|net| self.flush_far(net));
        for &unit in self.hosts.near() {
            let peer = &self.peers[unit as usize];
            if peer.gone().is_none() && self.board.has_left(unit) {
                peer.set_gone(Gone::Left);
            }
            waits |= peer.flush(None);
        }
        if waits {
            self.note_backlog();
        }
        waits
    }

    /// The same for what waits for units of other hosts.
    pub fn flush_far(&self, net: &Net) -> bool {
        self.hosts.far().filter(|&to| self.peers[to as usize].flush(Some((net, to)))).count() > 0
    }

    /// Whether something waits for room to a unit.
    pub fn owes(&self, to: Address) -> bool {
        self.peer(to).is_ok_and(|peer| peer.owes(|_| true))
    }

    /// This unit begins to leave. Returns whether it had before.
    pub fn begin_to_leave(&self) -> bool {
        self.leaves.swap(true, Ordering::AcqRel)
    }

    /// Whether this unit has begun to leave.
    pub fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Acquire)
    }

    /// This unit leaves in order, and its links end. Returns the loss that it leaves because of: none where
    /// it goes on after losses.
    pub fn leave(&self) -> Option<Address> {
        let because = self.leaves_because_of().filter(|_| self.options.on_loss == OnLoss::Raise);
        self.board.leave(self.me(), because);
        self.go_away();
        because
    }

    /// This unit gives up, and its links end: to the others it is lost.
    pub fn give_up(&self) {
        self.board.give_up(self.me(), self.leaves_because_of());
        self.go_away();
    }

    fn go_away(&self) {
        self.away.store(true, Ordering::Release);
        self.peers.iter().filter_map(Peer::link).for_each(Link::close);
    }

    /// What ends every wait: a loss, or that this unit has left.
    pub fn ends_waits(&self) -> Option<MessageError> {
        let left = || self.away.load(Ordering::Acquire);
        self.lost().or_else(|| left().then_some(MessageError::PeerLeft { unit: self.me() }))
    }

    /// What there is to say of a unit that takes no part any more.
    #[inline]
    pub fn gone_error(&self, unit: Address) -> Option<MessageError> {
        if unit == self.me() {
            return None;
        }
        self.gone(unit).map(|gone| self.why_gone(unit, gone))
    }

    /// The same for who hears and answers nothing any more, though what it sent before may still be on its
    /// way.
    pub fn deaf_error(&self, unit: Address) -> Option<MessageError> {
        let leaves = || unit != self.me() && self.board.is_leaving(unit);
        self.gone_error(unit).or_else(|| leaves().then(|| self.why_gone(unit, Gone::Left)))
    }

    /// Where a unit has gone that takes no part any more.
    #[inline]
    fn gone(&self, unit: Address) -> Option<Gone> {
        // A unit of this very process is not watched, but it says when it leaves.
        self.peers.get(unit as usize)?.gone().or_else(|| self.board.gone(unit))
    }

    #[cold]
    fn why_gone(&self, unit: Address, gone: Gone) -> MessageError {
        // A unit that leaves because of a loss is not the one to be named.
        if gone == Gone::Left || self.board.has_given_up(unit) {
            // It may have heard before this unit.
            let because = self.board.because(unit).filter(|_| self.options.on_loss == OnLoss::Raise);
            if let Some(error) = self.lost().or_else(|| because.map(|lost| self.lost_error(lost))) {
                return error;
            }
        }
        match gone {
            Gone::Left => MessageError::PeerLeft { unit },
            Gone::Lost => self.lost_error(unit),
        }
    }

    /// Whether a unit takes no part any more.
    pub fn is_gone(&self, unit: Address) -> bool {
        self.gone(unit).is_some()
    }

    /// How a unit was lost, as far as this one knows.
    pub fn lost_error(&self, unit: Address) -> MessageError {
        let loss = &self.losses[unit as usize];
        if let Some(error) = loss.lost_by.get() {
            return error.clone();
        }
        if let Some(error) = loss.broken.get() {
            return MessageError::BadPeer { unit, error: error.clone() };
        }
        let pid = self.processes.pid(unit).map_or(String::new(), |pid| format!(" (pid {pid})"));
        let reason = if unit == self.me() {
            "the other units have given this unit up".to_owned()
        } else if self.board.has_given_up(unit) {
            format!("it gave up{pid}")
        } else if self.hosts.is_far(unit) {
            loss.hearsay.get().map_or("another unit has lost it", String::as_str).to_owned()
        } else {
            format!("its process{pid} died")
        };
        MessageError::PeerLost { unit, reason }
    }

    /// The first unit that was lost, as far as this one knows.
    fn first_lost(&self) -> Option<Address> {
        let first = self.first_lost.load(Ordering::Acquire).checked_sub(1);
        first.or_else(|| self.board.first_to_give_up())
    }

    /// The same for who takes its leave: it may have heard of it only by others that did.
    fn leaves_because_of(&self) -> Option<Address> {
        let mut left = self.all().filter(|&unit| self.board.is_leaving(unit));
        self.first_lost().or_else(|| left.find_map(|unit| self.board.because(unit)))
    }

    /// The loss that all who wait are told of, if there is one.
    pub fn lost(&self) -> Option<MessageError> {
        let first = self.first_lost()?;
        (self.options.on_loss == OnLoss::Raise).then(|| self.lost_error(first))
    }

    /// A unit broke the protocol, once. Returns where it has gone: its process may have died of it, and who
    /// has left in order, with something half sent because of the loss of another, is not the one that is
    /// lost.
    pub fn note_breach(&self, unit: Address, error: LinkError) -> Gone {
        if self.is_dying(unit) {
            return self.gone_dead(unit);
        }
        tracing::warn!(unit, %error, "broke the protocol");
        let _ = self.losses[unit as usize].broken.set(error);
        Gone::Lost
    }

    /// Where a unit has gone whose process is dead.
    pub fn gone_dead(&self, unit: Address) -> Gone {
        match self.board.has_left(unit) {
            true => Gone::Left,
            false => Gone::Lost,
        }
    }

    /// A unit is lost, as this error says. Returns whether that is new.
    pub fn note_loss(&self, unit: Address, error: MessageError) -> bool {
        let is_new = self.peer(unit).is_ok_and(|peer| peer.gone() != Some(Gone::Lost));
        if is_new {
            let _ = self.losses[unit as usize].lost_by.set(error);
        }
        is_new
    }

    /// Whether others are to be told now that a unit is lost: once.
    pub fn tell_loss(&self, unit: Address) -> bool {
        !self.losses[unit as usize].told.swap(true, Ordering::AcqRel)
    }

    /// Another unit has said how this one was lost.
    pub fn note_hearsay(&self, unit: Address, words: String) {
        let _ = self.losses[unit as usize].hearsay.set(words);
    }

    /// A unit takes no part any more. Returns whether there is such a unit.
    pub fn set_gone(&self, unit: Address, how: Gone) -> bool {
        let Ok(peer) = self.peer(unit) else { return false };
        if how == Gone::Lost {
            // A unit that gave up because of a loss is not the one to be named, though its end be noticed
            // first.
            let root = self.board.because(unit).filter(|_| self.board.has_given_up(unit)).unwrap_or(unit);
            let _ = self.first_lost.compare_exchange(0, root + 1, Ordering::AcqRel, Ordering::Relaxed);
        }
        peer.set_gone(how);
        true
    }

    /// Whether a unit broke the protocol.
    pub fn has_broken(&self, unit: Address) -> bool {
        self.losses[unit as usize].broken.get().is_some()
    }

    /// Whether a unit's process is dead, or dies in a moment: its memory and its sockets go before that is
    /// known.
    pub fn is_dying(&self, unit: Address) -> bool {
        // Nothing is known of the processes of other hosts.
        self.processes.watch(unit).is_some_and(|process| match process {
            Ok(process) => process.exited_within(LAST_GASP).unwrap_or(false),
            Err(e) => e.is_peer_gone(),
        })
    }

    /// The first of all others, when there are others and none takes part any more.
    pub fn all_gone(&self) -> Option<MessageError> {
        let mut others = self.all().filter(|&unit| unit != self.me());
        let first = self.gone_error(others.next()?)?;
        others.all(|unit| self.gone_error(unit).is_some()).then_some(first)
    }
}
