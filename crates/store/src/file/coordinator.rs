//! Unit 0's thread: brings the units of a program together, notices who is lost, and commits the file.
//!
//! It goes through three phases, in one loop: units join, until all are there and get the file; they write,
//! until each has said after how many steps it closed; the file gets its header and its name. Whatever goes
//! wrong before that is told to all, and nothing is left of the file. Unit 0 itself is a member like the
//! others, over a connection of its own.

use super::form::Form;
use super::target::Draft;
use super::together::Together;
use super::wire::{unreadable, FileFault, FromHost, Spec, ToHost, PROTOCOL};
use super::Options;
use polyduct_message::meeting::{
    ConnId, Connections, Gathering, Heard, JoinRefusal as Refusal, Member, Shared, Unit,
};
use polyduct_os::socket::{Conn, Listener};
use polyduct_os::{clock, Errno, OsError};
use std::time::Duration;

/// Units that come a little later than the one that disagreed are still told why there will be no file.
const LINGER: Duration = Duration::from_millis(500);

/// What a unit that has joined says of its part: after how many steps it has closed.
#[derive(Default)]
struct Part {
    closed: Option<u64>,
}

/// When a file gets its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placed {
    /// As soon as it is complete.
    #[default]
    Alone,
    /// When unit 0 says so: others are to be complete before.
    Together,
}

/// What unit 0's thread works with.
pub struct Coordinator {
    connections: Connections,
    draft: Draft,
    form: Form,
    spec: Spec,
    program: String,
    gathering: Gathering<Part>,
    /// The files of a set.
    together: Together,
    /// The connection of unit 0.
    own: ConnId,
    welcomed: bool,
    start: Duration,
    open_timeout: Duration,
}

/// Tells unit 0 that a file is complete, and waits for its word. What becomes of the others does not matter any more:
/// their bytes are in the file.
fn may_place(connections: &mut Connections, own: ConnId) -> Result<(), FileFault> {
    connections.send(own, &FromHost::Complete, Vec::new());
    loop {
        match connections.hear::<ToHost>(own) {
            Heard::Message(ToHost::Place, _) => return Ok(()),
            Heard::Message(ToHost::Abort { reason }, _) => {
                return Err(FileFault::Aborted { unit: 0, reason })
            }
            Heard::Message(..) => {
                return Err(FileFault::BadPeer { unit: 0, what: "a message out of turn".into() })
            }
            Heard::Bad(bad) => return Err(FileFault::BadPeer { unit: 0, what: unreadable(&bad) }),
            Heard::Gone => {
                return Err(FileFault::gone(0, connections.pid(own), connections.process(own)));
            }
            Heard::Nothing => {}
        }
        connections.wait(Vec::new(), None).map_err(host_failed)?;
    }
}

impl Coordinator {
    /// A host for the units of a program, the first of which is at the other end of `own`.
    pub fn new(
        listener: Listener,
        draft: Draft,
        form: Form,
        spec: Spec,
        own: Conn,
        together: Together,
        options: &Options,
    ) -> Coordinator {
        let mut connections = Connections::new(listener, PROTOCOL);
        let id = connections.adopt(own);
        connections.admit(id);
        let member = Member { conn: id, pid: connections.pid(id), terms: Part::default() };
        let gathering = Gathering::new(options.port.units, 0..options.port.units, member);
        Coordinator {
            connections,
            draft,
            form,
            spec,
            program: options.port.program.clone(),
            gathering,
            together,
            own: id,
            welcomed: false,
            start: clock::now(),
            open_timeout: options.port.open_timeout,
        }
    }

    /// Does it all.
    pub fn run(mut self) {
        let end = self.serve();
        if let Err(fault @ FileFault::Refused(Refusal::Disagree { .. })) = &end {
            self.linger(fault);
        }
        while self.accept().is_some() {}
        let Coordinator { mut connections, draft, form, gathering, together, own, welcomed, .. } = self;
        let message = match end {
            Ok(steps) => {
                let committed = match together.placed() {
                    Placed::Alone => draft.commit(&form, steps).map_err(|e| FileFault::of(&e)),
                    Placed::Together => draft
                        .complete(&form, steps)
                        .map_err(|e| FileFault::of(&e))
                        .and_then(|()| may_place(&mut connections, own))
                        .and_then(|()| draft.place().map_err(|e| FileFault::of(&e))),
                };
                committed.map_or_else(FromHost::Failed, |()| FromHost::Committed)
            }
            Err(fault) => {
                drop(draft);
                FromHost::Failed(fault)
            }
        };
        // The name is free before anybody hears that this file is over, for those who write it again at once.
        connections.stop_listening();
        for id in gathering.conns() {
            connections.send(id, &message, Vec::new());
            connections.drop(id);
        }
        if welcomed && message != FromHost::Committed {
            together.fail();
        }
        // Those who came too late, or never said who they are.
        let message =
            if message == FromHost::Committed { FromHost::Failed(FileFault::Busy) } else { message };
        for id in connections.all() {
            connections.send(id, &message, Vec::new());
        }
    }

    /// Until all units have closed; returns after how many steps.
    fn serve(&mut self) -> Result<u64, FileFault> {
        loop {
            if !self.welcomed && self.gathering.is_complete() {
                self.welcome()?;
            }
            let closed = self.all_closed()?;
            let timeout = match (closed, self.welcomed) {
                (Some(_), _) => Some(Duration::ZERO),
                (None, true) => None,
                (None, false) => Some(self.time_left()?),
            };
            let ready = self.connections.wait(Vec::new(), timeout).map_err(host_failed)?;
            for id in ready.conns {
                self.hear(id)?;
            }
            while let Some(id) = ready.knocked.then(|| self.accept()).flatten() {
                self.hear(id)?;
            }
            // Nobody has died or given up in the meantime.
            if let Some(steps) = closed {
                return Ok(steps);
            }
        }
    }

    /// Tells the rest of the units about a disagreement as they come.
    fn linger(&mut self, fault: &FileFault) {
        let start = clock::now();
        let mut to_come = self.gathering.lacks().saturating_sub(1);
        while to_come > 0 {
            let Some(left) = LINGER.checked_sub(clock::now().saturating_sub(start)) else { return };
            let Ok(ready) = self.connections.wait(Vec::new(), Some(left)) else { return };
            let mut ids = ready.conns;
            ids.extend(std::iter::from_fn(|| self.accept()));
            for id in ids {
                // Whatever becomes of those who have joined, they are told in the end.
                if self.gathering.has_joined(id) {
                    return;
                }
                match self.connections.hear::<ToHost>(id) {
                    Heard::Nothing => {}
                    Heard::Message(ToHost::Hello { .. }, _) => {
                        self.turn_away(id, fault.clone());
                        to_come -= 1;
                    }
                    _ => self.connections.drop(id),
                }
            }
        }
    }

    fn time_left(&mut self) -> Result<Duration, FileFault> {
        let waited = clock::now().saturating_sub(self.start);
        match self.open_timeout.checked_sub(waited).filter(|left| !left.is_zero()) {
            Some(left) => Ok(left),
            None => Err(FileFault::Refused(self.gathering.handle_deadline(waited.as_millis() as u64))),
        }
    }

    /// Gives all units the file.
    fn welcome(&mut self) -> Result<(), FileFault> {
        self.welcomed = true;
        let temporary = self.draft.temporary().map(str::to_owned);
        let message = FromHost::Welcome { temporary };
        let file = self.draft.file.try_clone().map_err(|e| host_failed(no_descriptor(&e)))?;
        let file = Shared::new(file.into());
        for id in self.gathering.conns() {
            self.connections.send(id, &message, vec![file.clone()]);
        }
        Ok(())
    }

    fn all_closed(&self) -> Result<Option<u64>, FileFault> {
        let mut first: Option<(u32, u64)> = None;
        let mut all = self.gathering.is_complete();
        for (unit, part) in self.gathering.terms() {
            match (part.closed, first) {
                (None, _) => all = false,
                (Some(steps), None) => first = Some((unit, steps)),
                (Some(steps), Some((other, other_steps))) if steps != other_steps => {
                    return Err(FileFault::Uneven { unit, steps, other, other_steps });
                }
                _ => {}
            }
        }
        Ok(first.filter(|_| all).map(|f| f.1))
    }

    /// Takes in one who waits. Without descriptors the listener turns one away; the others go on.
    fn accept(&mut self) -> Option<ConnId> {
        let errno = Errno::MFILE.raw_os_error();
        self.connections.accept(|_| FromHost::Failed(FileFault::System { op: "accept".into(), errno }))
    }

    fn turn_away(&mut self, id: ConnId, fault: FileFault) {
        self.connections.send(id, &FromHost::Failed(fault), Vec::new());
        self.connections.finish(id);
    }

    /// Somebody has said something, or is gone.
    fn hear(&mut self, id: ConnId) -> Result<(), FileFault> {
        let heard = self.connections.hear::<ToHost>(id);
        let Some((unit, part)) = self.gathering.by_conn(id) else {
            match heard {
                Heard::Message(ToHost::Hello { unit, units, program, spec }, _) => {
                    return self.meet(id, (unit, units), program, &spec);
                }
                Heard::Nothing => {}
                Heard::Message(..) => self.turn_away(id, FileFault::Refused(Refusal::Malformed)),
                Heard::Bad(bad) => {
                    self.turn_away(id, FileFault::Refused(bad.refusal(Unit(0))));
                }
                Heard::Gone => self.connections.drop(id),
            }
            return Ok(());
        };
        match heard {
            Heard::Message(ToHost::Closed { steps }, _) if part.closed.is_none() && self.welcomed => {
                part.closed = Some(steps);
                Ok(())
            }
            Heard::Message(ToHost::Abort { reason }, _) => Err(FileFault::Aborted { unit, reason }),
            Heard::Message(..) => Err(FileFault::BadPeer { unit, what: "a message out of turn".into() }),
            Heard::Bad(bad) => Err(FileFault::BadPeer { unit, what: unreadable(&bad) }),
            Heard::Gone => Err(FileFault::gone(unit, self.connections.pid(id), self.connections.process(id))),
            Heard::Nothing => Ok(()),
        }
    }

    /// Somebody says who it is. Units that disagree end it for all; others are turned away.
    fn meet(
        &mut self,
        id: ConnId,
        (unit, units): (u32, u32),
        program: String,
        spec: &Spec,
    ) -> Result<(), FileFault> {
        if program != self.program {
            self.turn_away(id, FileFault::Busy);
            return Ok(());
        }
        let terms = Part::default();
        let member = Member { conn: id, pid: self.connections.pid(id), terms };
        let agree = || match self.spec.difference(spec) {
            Some((what, ours, found)) => Err(Refusal::disagree(Unit(unit), what, found, Unit(0), ours)),
            None => Ok(()),
        };
        let Err(why) = self.gathering.handle_join((unit, units), member, agree) else {
            self.connections.admit(id);
            return Ok(());
        };
        self.turn_away(id, FileFault::Refused(why.clone()));
        match why {
            Refusal::Disagree { .. } => Err(FileFault::Refused(why)),
            _ => Ok(()),
        }
    }
}

fn no_descriptor(e: &std::io::Error) -> OsError {
    OsError::sys("dup", "the file", Errno::from_io_error(e).unwrap_or(Errno::MFILE))
}

fn host_failed(e: OsError) -> FileFault {
    FileFault::Aborted { unit: 0, reason: e.to_string() }
}
