//! Unit 0's thread: brings the units of a program together, notices who is lost, and commits the file.
//!
//! It goes through three phases, in one loop: units join, until all are there and get the file; they write, until each
//! has said after how many steps it closed; the file gets its header and its name. Whatever goes wrong before that is told
//! to all, and nothing is left of the file. Unit 0 itself is a member like the others, over a connection of its own.

use super::form::Form;
use super::target::Draft;
use super::wire::{self, Fault, FromHost, Incoming, Spec, ToHost};
use polyduct_os::poll::{poll, PollItem};
use polyduct_os::process::PidFd;
use polyduct_os::socket::{Conn, Listener, MESSAGE_LIMIT};
use polyduct_os::{clock, Errno, OsError};
use std::os::fd::AsFd;
use std::time::Duration;

/// A process that exits closes its connections a little before it counts as gone.
const EXIT_LAG: Duration = Duration::from_millis(20);

/// Units that come a little later than the one that disagreed are still told why there will be no file.
const LINGER: Duration = Duration::from_millis(500);

/// A unit that has joined.
struct Member {
    conn: Conn,
    pid: u32,
    /// `None` for unit 0, whose process this is, and where the system cannot give one.
    process: Option<PidFd>,
    scattered: bool,
    closed: Option<u64>,
}

/// What unit 0's thread works with.
pub struct Host {
    listener: Listener,
    draft: Draft,
    form: Form,
    spec: Spec,
    program: String,
    members: Vec<Option<Member>>,
    /// Connected, but has not said who it is.
    unknown: Vec<Option<Conn>>,
    welcomed: bool,
    start: Duration,
    open_timeout: Duration,
    buffer: Vec<u8>,
}

/// What has become of a connection.
enum Event {
    Member(usize),
    Unknown(usize),
    Listener,
}

impl Host {
    /// A host for `spec.units` units, the first of which is at the other end of `own`.
    pub fn new(
        listener: Listener,
        draft: Draft,
        form: Form,
        spec: Spec,
        program: &str,
        own: (Conn, bool),
        open_timeout: Duration,
    ) -> Host {
        let (conn, scattered) = own;
        let mut members: Vec<Option<Member>> = (0..spec.units).map(|_| None).collect();
        members[0] = Some(Member { conn, pid: std::process::id(), process: None, scattered, closed: None });
        Host {
            listener,
            draft,
            form,
            spec,
            program: program.to_owned(),
            members,
            unknown: Vec::new(),
            welcomed: false,
            start: clock::now(),
            open_timeout,
            buffer: vec![0; MESSAGE_LIMIT],
        }
    }

    /// Does it all.
    pub fn run(mut self) {
        let end = self.serve();
        if let Err(fault @ Fault::Disagree { .. }) = &end {
            self.linger(fault);
        }
        self.accept();
        let Host { listener, draft, form, members, unknown, .. } = self;
        let message = match end {
            Ok(steps) => match draft.commit(&form, steps) {
                Ok(()) => FromHost::Committed,
                Err(e) => FromHost::Failed(Fault::of(&e)),
            },
            Err(fault) => {
                drop(draft);
                FromHost::Failed(fault)
            }
        };
        // The name is free before anybody hears that this file is over, for those who write it again at once.
        drop(listener);
        for member in members.into_iter().flatten() {
            let _ = wire::send(&member.conn, &message, &[]);
        }
        // Those who came too late, or never said who they are.
        let message = if message == FromHost::Committed { FromHost::Failed(Fault::Busy) } else { message };
        for conn in unknown.into_iter().flatten() {
            let _ = wire::send(&conn, &message, &[]);
        }
    }

    /// Until all units have closed; returns after how many steps.
    fn serve(&mut self) -> Result<u64, Fault> {
        loop {
            if !self.welcomed && self.members.iter().all(Option::is_some) {
                self.welcome()?;
            }
            let closed = self.all_closed()?;
            let timeout = match (closed, self.welcomed) {
                (Some(_), _) => Some(Duration::ZERO),
                (None, true) => None,
                (None, false) => Some(self.time_left()?),
            };
            for event in self.wait(timeout).map_err(host_failed)? {
                match event {
                    Event::Listener => self.accept(),
                    Event::Member(unit) => self.hear(unit)?,
                    Event::Unknown(i) => self.meet(i)?,
                }
            }
            self.unknown.retain(Option::is_some);
            // Nobody has died or given up in the meantime.
            if let Some(steps) = closed {
                return Ok(steps);
            }
        }
    }

    /// Tells the rest of the units about a disagreement as they come.
    fn linger(&mut self, fault: &Fault) {
        let start = clock::now();
        let mut to_come = self.members.iter().filter(|m| m.is_none()).count().saturating_sub(1);
        while to_come > 0 {
            let Some(left) = LINGER.checked_sub(clock::now().saturating_sub(start)) else { return };
            let Ok(events) = self.wait(Some(left)) else { return };
            for event in events {
                let i = match event {
                    Event::Listener => {
                        self.accept();
                        continue;
                    }
                    Event::Unknown(i) => i,
                    // Whatever becomes of those who have joined, they are told in the end.
                    Event::Member(_) => return,
                };
                let Some(conn) = self.unknown.get_mut(i).and_then(Option::take) else { continue };
                match wire::receive::<ToHost>(&conn, &mut self.buffer) {
                    Incoming::Nothing => self.unknown[i] = Some(conn),
                    Incoming::Message(ToHost::Hello { .. }, _) => {
                        let _ = wire::send(&conn, &FromHost::Failed(fault.clone()), &[]);
                        to_come -= 1;
                    }
                    _ => {}
                }
            }
            self.unknown.retain(Option::is_some);
        }
    }

    fn time_left(&self) -> Result<Duration, Fault> {
        let waited = clock::now().saturating_sub(self.start);
        match self.open_timeout.checked_sub(waited).filter(|left| !left.is_zero()) {
            Some(left) => Ok(left),
            None => {
                let missing: Vec<String> = (0..self.members.len())
                    .filter(|&u| self.members[u].is_none())
                    .map(|u| u.to_string())
                    .collect();
                let missing = wire::cut(&missing.join(", "), 200);
                Err(Fault::Missing { missing, waited_ms: waited.as_millis() as u64 })
            }
        }
    }

    /// Gives all units the file.
    fn welcome(&mut self) -> Result<(), Fault> {
        self.welcomed = true;
        let temporary = self.draft.temporary().map(str::to_owned);
        // A temporary name is held by the lock that turns would need; a directory has a file for them.
        let lockable = temporary.is_none() || self.form.slabs.is_some();
        let shared = lockable && self.members.iter().flatten().any(|m| m.scattered);
        let message = FromHost::Welcome { shared, temporary };
        for unit in 0..self.members.len() {
            let Some(member) = &self.members[unit] else { continue };
            if wire::send(&member.conn, &message, &[self.draft.file.as_fd()]).is_err() {
                return Err(self.gone(unit));
            }
        }
        Ok(())
    }

    fn all_closed(&self) -> Result<Option<u64>, Fault> {
        let mut first: Option<(u32, u64)> = None;
        let mut all = true;
        for (unit, member) in self.members.iter().enumerate() {
            match (member.as_ref().and_then(|m| m.closed), first) {
                (None, _) => all = false,
                (Some(steps), None) => first = Some((unit as u32, steps)),
                (Some(steps), Some((other, other_steps))) if steps != other_steps => {
                    return Err(Fault::Uneven { unit: unit as u32, steps, other, other_steps });
                }
                _ => {}
            }
        }
        Ok(first.filter(|_| all).map(|f| f.1))
    }

    /// Waits until something has happened.
    fn wait(&self, timeout: Option<Duration>) -> Result<Vec<Event>, OsError> {
        let mut items = vec![PollItem::readable(&self.listener)];
        let mut events = vec![Event::Listener];
        for (i, conn) in self.unknown.iter().enumerate() {
            let Some(conn) = conn else { continue };
            items.push(PollItem::readable(conn));
            events.push(Event::Unknown(i));
        }
        for (unit, member) in self.members.iter().enumerate() {
            let Some(member) = member else { continue };
            items.push(PollItem::readable(&member.conn));
            events.push(Event::Member(unit));
            if let Some(process) = &member.process {
                items.push(PollItem::readable(process));
                events.push(Event::Member(unit));
            }
        }
        poll(&mut items, timeout)?;
        Ok(events
            .into_iter()
            .zip(&items)
            .filter(|(_, item)| item.is_ready())
            .map(|(event, _)| event)
            .collect())
    }

    fn accept(&mut self) {
        // Without descriptors the listener turns one away; the others go on.
        let refuse = |conn: &Conn, _: &OsError| {
            let fault = Fault::System { op: "accept".into(), errno: Errno::MFILE.raw_os_error() };
            let _ = wire::send(conn, &FromHost::Failed(fault), &[]);
        };
        while let Ok(Some(conn)) = self.listener.accept_or(refuse) {
            if conn.stranger() == Ok(None) && self.unknown.len() < self.members.len() + 16 {
                self.unknown.push(Some(conn));
            }
        }
    }

    /// A unit has said something, or is gone.
    fn hear(&mut self, unit: usize) -> Result<(), Fault> {
        let Some(member) = &mut self.members[unit] else { return Ok(()) };
        match wire::receive::<ToHost>(&member.conn, &mut self.buffer) {
            Incoming::Message(ToHost::Closed { steps }, _) if member.closed.is_none() && self.welcomed => {
                member.closed = Some(steps);
                Ok(())
            }
            Incoming::Message(ToHost::Abort { reason }, _) => {
                Err(Fault::Aborted { unit: unit as u32, reason })
            }
            Incoming::Message(..) => {
                Err(Fault::BadPeer { unit: unit as u32, what: "a message out of turn".into() })
            }
            Incoming::Bad(what) => Err(Fault::BadPeer { unit: unit as u32, what }),
            Incoming::Closed => Err(self.gone(unit)),
            Incoming::Nothing => match member.process.as_ref().is_none_or(PidFd::is_alive) {
                true => Ok(()),
                false => Err(Fault::Lost { unit: unit as u32, pid: member.pid }),
            },
        }
    }

    /// Why a unit's connection is closed.
    fn gone(&self, unit: usize) -> Fault {
        let member = self.members[unit].as_ref();
        let exited = member
            .and_then(|m| m.process.as_ref())
            .is_some_and(|p| p.exited_within(EXIT_LAG).unwrap_or(true));
        let (unit, pid) = (unit as u32, member.map_or(0, |m| m.pid));
        match exited {
            true => Fault::Lost { unit, pid },
            false => Fault::Aborted { unit, reason: "it closed its connection".into() },
        }
    }

    /// Somebody says who it is. Units that disagree end it for all; others are turned away.
    fn meet(&mut self, i: usize) -> Result<(), Fault> {
        let Some(conn) = self.unknown.get_mut(i).and_then(Option::take) else { return Ok(()) };
        let turn_away = |fault| {
            let _ = wire::send(&conn, &FromHost::Failed(fault), &[]);
        };
        let (unit, program, spec, scattered) = match wire::receive::<ToHost>(&conn, &mut self.buffer) {
            Incoming::Nothing => {
                self.unknown[i] = Some(conn);
                return Ok(());
            }
            Incoming::Message(ToHost::Hello { unit, program, spec, scattered }, _) => {
                (unit, program, spec, scattered)
            }
            Incoming::Message(..) => {
                turn_away(Fault::BadPeer { unit: 0, what: "no hello".into() });
                return Ok(());
            }
            Incoming::Bad(what) => {
                turn_away(Fault::BadPeer { unit: 0, what });
                return Ok(());
            }
            Incoming::Closed => return Ok(()),
        };
        if program != self.program {
            turn_away(Fault::Busy);
            return Ok(());
        }
        if let Some((what, expected, found)) = self.spec.difference(&spec) {
            let fault = Fault::Disagree { unit, what: what.to_owned(), expected, found };
            turn_away(fault.clone());
            return Err(fault);
        }
        match self.members.get_mut(unit as usize) {
            None => turn_away(Fault::BadPeer { unit, what: "no such unit".into() }),
            Some(Some(there)) => turn_away(Fault::Duplicate { unit, pid: there.pid }),
            Some(place) => {
                let pid = conn.peer().map_or(0, |p| p.pid);
                let process = conn.peer_pidfd().ok();
                *place = Some(Member { conn, pid, process, scattered, closed: None });
            }
        }
        Ok(())
    }
}

fn host_failed(e: OsError) -> Fault {
    Fault::Aborted { unit: 0, reason: e.to_string() }
}
