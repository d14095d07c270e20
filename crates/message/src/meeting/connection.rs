//! A unit's connection to another of its host.

use super::CROWDED;
use crate::handshake::{Bad, Incoming, Protocol};
use polyduct_os::{
    clock,
    poll::{poll, EventFd, PollItem},
    process::PidFd,
    socket::{Conn, Sent, MESSAGE_LIMIT},
    OsError,
};
use serde::{de::DeserializeOwned, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How often a name is tried while nobody serves it, at first and at most.
pub const RETRY: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(20));
/// How much longer than the unit that all come to the others wait for its word on who is missing.
pub const GRACE: Duration = Duration::from_millis(500);
/// How often a wait looks for an interrupt.
pub const SLICE: Duration = Duration::from_millis(100);

/// How long to wait, and what may end a wait before.
#[derive(Clone, Copy)]
pub struct Within<'a> {
    /// The longest wait.
    pub most: Duration,
    /// Asked now and then: give up?
    pub gives_up: &'a dyn Fn() -> bool,
}

impl Within<'_> {
    /// No longer than this, and nothing ends it before.
    pub fn time(most: Duration) -> Within<'static> {
        Within { most, gives_up: &|| false }
    }

    /// What is left of a wait since then; `None` where it is over.
    pub fn left(&self, since: Duration) -> Option<Self> {
        let most = self.most.checked_sub(clock::now().saturating_sub(since))?;
        (!most.is_zero() && !(self.gives_up)()).then_some(Within { most, ..*self })
    }

    /// The time of one look, after which [`gives_up`](Within::gives_up) is asked again.
    pub fn slice(&self) -> Duration {
        self.most.min(SLICE)
    }
}

/// Why a connection is of no further use.
#[derive(Debug)]
pub enum Failure {
    /// The system refused something.
    System(OsError),
    /// The process at the other end is this user's.
    Stranger(u32),
    /// The other end is gone.
    HungUp,
    /// It speaks this version of the protocol.
    Version(u16),
    /// It said something that is no message.
    Malformed,
}

/// How long a unit waits, and what its errors are called.
pub trait Patience {
    /// What a wait fails with.
    type Error;

    /// The time that is left to wait for `what`.
    ///
    /// # Errors
    /// There is none, or the caller asked to stop.
    fn left(&self, what: &str) -> Result<Duration, Self::Error>;

    /// Ends waits early.
    fn stop(&self) -> Option<&EventFd> {
        None
    }

    /// The error for what went wrong.
    fn failed(&self, why: Failure) -> Self::Error;
}

/// The pause until the next attempt, which the one after that follows later.
pub fn later(pause: &mut Duration) -> Duration {
    let later = (*pause * 2).min(RETRY.1);
    std::mem::replace(pause, later)
}

/// Rests until the next attempt, which the one after that follows [`later`].
///
/// # Errors
/// As [`Patience::left`].
pub fn pause<P: Patience>(patience: &P, pause: &mut Duration, what: &str) -> Result<(), P::Error> {
    let rest = patience.left(what)?.min(later(pause));
    match patience.stop() {
        None => std::thread::sleep(rest),
        Some(stop) => drop(poll(&mut [PollItem::readable(stop)], Some(rest))),
    }
    Ok(())
}

/// A connection to a process of this user.
pub struct Connection {
    conn: Conn,
    protocol: Protocol,
    process: Option<PidFd>,
    pid: u32,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects to who serves `name`, once somebody does; asks now and then whether that is still to be
    /// expected.
    ///
    /// # Errors
    /// As [`Patience::left`]; [`Failure::HungUp`] where nobody is expected; [`Failure::Stranger`]; the
    /// system's.
    pub fn open<P: Patience>(
        protocol: Protocol,
        name: &[u8],
        patience: &P,
        what: &str,
        is_expected: &dyn Fn() -> bool,
    ) -> Result<Connection, P::Error> {
        let mut rest = RETRY.0;
        loop {
            match Conn::connect(name) {
                Ok(conn) => return Connection::over(conn, protocol).map_err(|why| patience.failed(why)),
                Err(OsError::NotListening { .. } | OsError::ListenerBusy { .. }) => {}
                Err(e) => return Err(patience.failed(Failure::System(e))),
            }
            if !is_expected() {
                return Err(patience.failed(Failure::HungUp));
            }
            pause(patience, &mut rest, what)?;
        }
    }

    /// A connection that stands.
    ///
    /// # Errors
    /// [`Failure::Stranger`]; the system's.
    pub fn over(conn: Conn, protocol: Protocol) -> Result<Connection, Failure> {
        match conn.stranger() {
            Ok(None) => {}
            Ok(Some(found)) => return Err(Failure::Stranger(found)),
            Err(e) => return Err(Failure::System(e)),
        }
        let (process, pid) =
            (conn.peer_pidfd().ok().map(PidFd::shared), conn.peer().map_or(0, |peer| peer.pid));
        Ok(Connection { conn, protocol, process, pid, buffer: vec![0; MESSAGE_LIMIT] })
    }

    /// The number of the process at the other end, as this process sees it; 0 where it has none here.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The process at the other end, where the system gives a descriptor of it.
    pub fn process(&self) -> Option<&PidFd> {
        self.process.as_ref()
    }

    /// Whether the process at the other end is known to have ended.
    pub fn has_ended(&self) -> bool {
        self.process.as_ref().is_some_and(|process| !process.is_alive())
    }

    /// What becomes ready when the other end says something, hangs up or ends.
    pub fn items(&self) -> impl Iterator<Item = PollItem<'_>> {
        [PollItem::readable(&self.conn)].into_iter().chain(self.process.as_ref().map(PollItem::readable))
    }

    /// Sends a message. That the other end is gone is no error: it may have said why, and is received next.
    ///
    /// # Errors
    /// As [`Patience::left`]; the system's.
    pub fn send<T: Serialize, P: Patience>(
        &self,
        message: &T,
        fds: &[BorrowedFd<'_>],
        patience: &P,
        what: &str,
    ) -> Result<(), P::Error> {
        let system = |e| patience.failed(Failure::System(e));
        let message = self.protocol.encode(message).map_err(system)?;
        loop {
            match message.send(&self.conn, fds) {
                Ok(Sent::Done) | Err(OsError::PeerClosed) => return Ok(()),
                Ok(Sent::WouldBlock) => self.wait(patience, what, PollItem::writable(&self.conn))?,
                // They arrive as their receivers read.
                Err(e @ OsError::TooManyInFlight { .. }) => {
                    pause(patience, &mut CROWDED.clone(), &format!("room to hand over descriptors ({e})"))?;
                }
                Err(e) => return Err(system(e)),
            }
        }
    }

    /// Sends a message if there is room, and waits for nothing.
    pub fn post<T: Serialize>(&self, message: &T) {
        let _ = self.protocol.encode(message).and_then(|message| message.send(&self.conn, &[]));
    }

    /// Waits for the next message, and the descriptors that come along.
    ///
    /// # Errors
    /// As [`Patience::left`]; every [`Failure`] but a stranger.
    pub fn receive<T: DeserializeOwned, P: Patience>(
        &mut self,
        patience: &P,
        what: &str,
    ) -> Result<(T, Vec<OwnedFd>), P::Error> {
        loop {
            // A process that has ended says no more than what it has said.
            let ended = self.has_ended();
            match self.try_receive().map_err(|why| patience.failed(why))? {
                Some(message) => return Ok(message),
                None if ended => return Err(patience.failed(Failure::HungUp)),
                None => self.wait(patience, what, PollItem::readable(&self.conn))?,
            }
        }
    }

    /// The next message, if there is one.
    ///
    /// # Errors
    /// Every [`Failure`] but a stranger.
    pub fn try_receive<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<OwnedFd>)>, Failure> {
        match self.protocol.receive(&self.conn, &mut self.buffer) {
            Incoming::Message(message, fds) => Ok(Some((message, fds))),
            Incoming::Nothing => Ok(None),
            Incoming::Closed => Err(Failure::HungUp),
            Incoming::Bad(Bad::Version(found)) => Err(Failure::Version(found)),
            Incoming::Bad(Bad::NoDescriptor) => Err(Failure::System(crate::handshake::no_descriptor())),
            Incoming::Bad(Bad::Malformed) => Err(Failure::Malformed),
        }
    }

    fn wait<P: Patience>(&self, patience: &P, what: &str, item: PollItem<'_>) -> Result<(), P::Error> {
        loop {
            let left = patience.left(what)?.min(SLICE);
            let mut items = vec![item.clone()];
            items.extend(self.process.as_ref().map(PollItem::readable));
            items.extend(patience.stop().map(PollItem::readable));
            if poll(&mut items, Some(left)).map_err(|e| patience.failed(Failure::System(e)))? > 0 {
                return Ok(());
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.conn.as_fd()
    }
}
