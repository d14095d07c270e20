//! Asks other units of this host, and waits for their answers with a limit.

use super::board::Board;
use super::host::{socket_name, Answer, Ask, Handed, Whereabouts, Who, PROTOCOL};
use crate::handshake::other_version;
use crate::meeting::{self, Connection, Failure, JoinRefusal, SLICE};
use crate::types::Address;
use crate::{LinkError, MessageError};
use polyduct_os::{
    clock,
    process::{user_id, PidFd},
    socket::Conn,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Asked now and then by who waits for the others of its host: what it fails with ends the wait.
pub type Watch<'a> = &'a dyn Fn() -> Result<(), MessageError>;

/// The time that is left for joining.
pub(super) struct JoinTime<'a> {
    pub(super) who: &'a Who<'a>,
    pub(super) start: Duration,
    pub(super) grace: Duration,
    /// Whether the one that is asked is known to be gone.
    pub(super) gone: &'a dyn Fn() -> bool,
    pub(super) watch: Option<Watch<'a>>,
    /// The process that was asked last.
    pub(super) asked: RefCell<Option<PidFd>>,
    /// What it has handed over before its answer: processes of units that have no number here.
    pub(super) handed: RefCell<BTreeMap<Address, PidFd>>,
}

impl<'a> JoinTime<'a> {
    pub(super) fn new(who: &'a Who<'a>) -> Self {
        JoinTime {
            who,
            start: clock::now(),
            grace: Duration::ZERO,
            gone: &|| false,
            watch: None,
            asked: RefCell::default(),
            handed: RefCell::default(),
        }
    }

    /// Whether the one that is asked is known to be gone: by others, or as its process has ended after it
    /// hung up.
    pub(super) fn is_gone(&self) -> bool {
        (self.gone)() || self.asked.borrow().as_ref().is_some_and(|process| !process.is_alive())
    }

    /// A slice of what is left, at most; `None` when it is over.
    pub(super) fn slice(&self) -> Result<Option<Duration>, MessageError> {
        if self.who.interrupt.as_ref().is_some_and(|ask| ask()) {
            return Err(MessageError::Interrupted);
        }
        self.watch.map_or(Ok(()), |watch| watch())?;
        let left = self.who.timeout.saturating_add(self.grace).saturating_sub(self.waited());
        Ok((!left.is_zero()).then_some(left.min(SLICE)))
    }

    pub(super) fn waited(&self) -> Duration {
        clock::now() - self.start
    }

    pub(super) fn over(&self, what: &str) -> MessageError {
        MessageError::Timeout { what: what.to_owned(), waited: self.waited() }
    }
}

/// A question to a unit, for as long as there is patience.
pub(super) struct Asking<'a> {
    pub(super) patience: &'a JoinTime<'a>,
    pub(super) to: Address,
}

impl meeting::Patience for Asking<'_> {
    type Error = MessageError;

    fn left(&self, what: &str) -> Result<Duration, MessageError> {
        self.patience.slice()?.ok_or_else(|| self.patience.over(what))
    }

    fn failed(&self, why: Failure) -> MessageError {
        let unit = self.to;
        match why {
            Failure::System(e) => e.into(),
            Failure::Stranger(found) => MessageError::Stranger { unit, expected: user_id(), found },
            Failure::HungUp => {
                MessageError::PeerLost { unit, reason: "it hung up while it was asked".into() }
            }
            Failure::Version(found) => MessageError::refused(self.patience.who.name, other_version(found)),
            Failure::Malformed => out_of_turn(unit, "an unreadable answer"),
        }
    }
}

/// Connects to another unit's socket and asks it something; waits for the answer.
pub(super) fn ask(
    patience: &JoinTime<'_>,
    to: Address,
    question: &Ask,
    fds: &[BorrowedFd<'_>],
) -> Result<(Answer, Vec<OwnedFd>), MessageError> {
    let (name, asking) = (socket_name(patience.who.place, to), Asking { patience, to });
    let listens = format!("unit {to} to listen");
    let mut conn = Connection::open(PROTOCOL, &name, &asking, &listens, &|| !patience.is_gone())?;
    *patience.asked.borrow_mut() = conn.process().cloned();
    let answers = format!("an answer of unit {to}");
    conn.send(question, fds, &asking, &answers)?;
    loop {
        let (units, fds) = match conn.receive(&asking, &answers)? {
            (Answer::Processes(units), fds) => (units, fds),
            answered => return Ok(answered),
        };
        let mut handed = patience.handed.borrow_mut();
        if units.len() != fds.len() || handed.len() + fds.len() > patience.who.near.len() {
            return Err(out_of_turn(to, "processes of no known unit"));
        }
        for (unit, fd) in units.into_iter().zip(fds) {
            handed.insert(unit, PidFd::handed(fd)?);
        }
    }
}

/// Asks a partner for a link: hands over `mine`, returns what the partner hands over. `gone` is asked while
/// it does not listen: whether it ever will.
///
/// # Errors
/// What the partner refuses it for; [`MessageError::PeerLost`] where it is gone.
pub fn ask_for_link(
    who: &Who<'_>,
    to: Address,
    mine: &Handed,
    gone: &dyn Fn() -> bool,
) -> Result<Handed, MessageError> {
    let patience = JoinTime { gone, ..JoinTime::new(who) };
    match ask(&patience, to, &Ask::Link { unit: who.unit }, &mine.fds())? {
        (Answer::Refused(reason), _) => Err(MessageError::refused(who.name, reason)),
        (Answer::Linked, fds) => match Handed::from_fds(fds) {
            // The unit with the lower address makes the segment.
            Some(theirs) if theirs.segment.is_some() == (to < who.unit) => Ok(theirs),
            _ => Err(out_of_turn(to, "a link without its segment")),
        },
        _ => Err(out_of_turn(to, "an answer to another question")),
    }
}

/// Asks a partner where one of its regions lies.
///
/// # Errors
/// As [`ask_for_link`]; [`MessageError::Region`] where there is none.
pub fn ask_for_region(
    who: &Who<'_>,
    to: Address,
    id: u32,
    gone: &dyn Fn() -> bool,
) -> Result<Whereabouts, MessageError> {
    let patience = JoinTime { gone, ..JoinTime::new(who) };
    match ask(&patience, to, &Ask::Region { unit: who.unit, id }, &[])? {
        (Answer::Region, mut fds) if fds.len() == 1 => Ok(Whereabouts::Segment(fds.remove(0))),
        (Answer::Memory { address, len }, mut fds) if fds.len() == 1 => {
            Ok(Whereabouts::Memory { address, len, gate: fds.remove(0) })
        }
        (Answer::Refused(JoinRefusal::System { error, .. }), _) => {
            Err(MessageError::Region { id, reason: format!("unit {to}: {error}") })
        }
        (Answer::Refused(reason), _) => Err(MessageError::refused(who.name, reason)),
        _ => Err(out_of_turn(to, "an answer to another question")),
    }
}

/// Tells all other units of this host that this one has given up, as the board says. Those who have no link
/// to it are told, too, and nobody is waited for: who has no place for one more connection looks at the board
/// by itself before long.
pub fn knock(who: &Who<'_>, board: &Board) {
    for &unit in who.near.iter().filter(|&&unit| unit != who.unit && !board.is_leaving(unit)) {
        // A connection that says nothing and ends is all that it takes.
        drop(Conn::connect(&socket_name(who.place, unit)));
    }
}

pub(super) fn out_of_turn(unit: Address, what: &'static str) -> MessageError {
    MessageError::BadPeer { unit, error: LinkError::OutOfTurn { what } }
}
