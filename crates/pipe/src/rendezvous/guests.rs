//! Reader programs that come and go: where [any](crate::Readers::Any) may read, they have no part in the
//! opening of the pipe.
//!
//! Each gathers like a pipe of its own, is welcomed when all its units have come and the writers run, and
//! reads when all are ready. It has a place until the last of its units has left; a program of the same name
//! that comes before that gets another.

use super::admit::{agree, among, check_dataset, check_hello, named};
use super::{Action, ConnId, Ending, Member, Phase, Rendezvous};
use crate::error::Refusal;
use crate::wire::{FromHost, Hello, Role};
use polyduct_port::{OnLoss, Side, UnitName, MAX_PROGRAMS};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The programs that are there.
#[derive(Default)]
pub(super) struct Guests {
    places: [Option<Guest>; MAX_PROGRAMS as usize],
    by_conn: HashMap<ConnId, (u32, u32)>,
    /// The place that is given out first: one that a killed program has left still pins what it held, which
    /// its successor would not be offered there.
    next: u32,
}

struct Guest {
    members: BTreeMap<u32, Member>,
    /// Units that have left in good order: the others will, too.
    closed: BTreeSet<u32>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Gathering,
    Readying,
    Reading,
    /// A unit was lost, and is not waited for.
    Failed,
}

fn name(place: u32, unit: u32) -> UnitName {
    UnitName { side: Side::Reader(place), unit }
}

impl Guest {
    fn first(&self) -> Option<(u32, &Hello)> {
        self.members.iter().next().map(|(&unit, m)| (unit, &m.hello))
    }

    /// Whether a unit of that name belongs to it: not when it has begun to leave.
    fn is(&self, program: &str) -> bool {
        let stays = self.closed.is_empty() && self.stage != Stage::Failed;
        stays && self.first().is_some_and(|(_, hello)| hello.program == program)
    }

    fn waits(&self) -> bool {
        self.first().is_some_and(|(_, hello)| hello.on_loss == OnLoss::Wait)
    }

    fn conns(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.members.values().map(|m| m.conn)
    }
}

impl Guests {
    fn get(&self, place: u32) -> Option<&Guest> {
        self.places.get(place as usize)?.as_ref()
    }

    fn get_mut(&mut self, place: u32) -> Option<&mut Guest> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    pub fn knows(&self, conn: ConnId) -> bool {
        self.by_conn.contains_key(&conn)
    }

    /// Whether this connection is one of a program that was welcomed.
    pub fn may_ask(&self, conn: ConnId) -> bool {
        let guest = self.by_conn.get(&conn).and_then(|&(place, _)| self.get(place));
        guest.is_some_and(|guest| matches!(guest.stage, Stage::Readying | Stage::Reading))
    }

    pub fn member(&self, unit: UnitName) -> Option<&Member> {
        match unit.side {
            Side::Reader(place) => self.get(place)?.members.get(&unit.unit),
            Side::Writer => None,
        }
    }

    /// A unit does not wait any longer for the others of its program.
    pub fn give_up(&mut self, conn: ConnId) {
        let Some(&(place, unit)) = self.by_conn.get(&conn) else { return };
        let Some(guest) = self.get_mut(place).filter(|guest| guest.stage == Stage::Gathering) else { return };
        guest.members.remove(&unit);
        if guest.members.is_empty() {
            self.places[place as usize] = None;
        }
        self.by_conn.remove(&conn);
    }

    /// Takes all of them away; gives their connections.
    pub fn drain(&mut self) -> Vec<ConnId> {
        self.places = Default::default();
        self.by_conn.drain().map(|(conn, _)| conn).collect()
    }
}

impl<F> Rendezvous<F> {
    /// Whether reader programs come and go.
    pub(super) fn is_open(&self) -> bool {
        self.readers == 0
    }

    pub(super) fn guest_hello(&mut self, conn: ConnId, pid: u32, hello: Hello, actions: &mut Vec<Action>) {
        let place = match self.place_for(&hello) {
            Ok(place) => place,
            Err(why) => {
                self.turned_away(&why.to_string());
                return actions.extend([Action::Send(conn, FromHost::Refused(why)), Action::Drop(conn)]);
            }
        };
        let (unit, start_time) = (hello.unit, hello.start_time);
        let guest = self.guests.places[place as usize].get_or_insert_with(|| Guest {
            members: BTreeMap::new(),
            closed: BTreeSet::new(),
            stage: Stage::Gathering,
        });
        guest.members.insert(unit, Member { conn, pid, hello, ready: false, given_up: false });
        let replaces = guest.stage == Stage::Reading;
        self.guests.by_conn.insert(conn, (place, unit));
        if replaces {
            actions.push(Action::Join(conn, name(place, unit), pid, start_time));
            actions.extend(self.welcome_guest(place, conn));
        } else {
            self.seat_if_complete(place, actions);
        }
    }

    /// The place that a unit gets, if it may come.
    fn place_for(&self, hello: &Hello) -> Result<u32, Refusal> {
        if self.phase == Phase::Over {
            return Err(self.ended.clone().unwrap_or(Refusal::Over));
        }
        if self.ending != Ending::No {
            return Err(Refusal::Over);
        }
        check_hello(hello)?;
        let places = || (0..MAX_PROGRAMS).map(|i| (self.guests.next + i) % MAX_PROGRAMS);
        let own = places().find(|&p| self.guests.get(p).is_some_and(|guest| guest.is(&hello.program)));
        let place = match own.or_else(|| places().find(|&p| self.guests.get(p).is_none())) {
            Some(place) => place,
            None => return Err(Refusal::Full { programs: MAX_PROGRAMS, found: hello.program.clone() }),
        };
        let me = name(place, hello.unit);
        if let Some((guest, (other, first))) = self.guests.get(place).and_then(|g| Some((g, g.first()?))) {
            agree(me, other, first, hello).map_err(|why| among(why, MAX_PROGRAMS))?;
            if let Some(there) = guest.members.get(&hello.unit) {
                let (pid, programs) = (there.pid, MAX_PROGRAMS);
                return Err(Refusal::Duplicate { unit: me, pid, programs });
            }
        }
        if let (Role::Reader { shape, elem, convert }, Some(given)) = (&hello.role, self.dataset()) {
            check_dataset(&given, shape.as_deref(), elem.as_deref(), *convert)?;
            (self.check_layout)(&hello.layout, &given, hello.units, false).map_err(|e| named(e, me))?;
        }
        Ok(place)
    }

    /// The writers run: who has come meanwhile may join them.
    pub(super) fn seat_all(&mut self, actions: &mut Vec<Action>) {
        (0..MAX_PROGRAMS).for_each(|place| self.seat_if_complete(place, actions));
    }

    fn seat_if_complete(&mut self, place: u32, actions: &mut Vec<Action>) {
        let running = self.phase == Phase::Running;
        let Some(guest) = self.guests.get_mut(place).filter(|g| running && g.stage == Stage::Gathering)
        else {
            return;
        };
        let units = guest.first().map_or(0, |(_, hello)| hello.units);
        if guest.members.len() != units as usize {
            return;
        }
        guest.stage = Stage::Readying;
        actions.push(Action::Seat(place, units));
        for (&unit, m) in &guest.members {
            actions.push(Action::Join(m.conn, name(place, unit), m.pid, m.hello.start_time));
        }
        let conns: Vec<ConnId> = guest.conns().collect();
        actions.extend(conns.into_iter().filter_map(|conn| self.welcome_guest(place, conn)));
    }

    fn welcome_guest(&self, place: u32, to: ConnId) -> Option<Action> {
        let mut welcome = self.welcome.clone()?;
        welcome.program = place;
        Some(Action::Welcome { to, welcome, segment: None })
    }

    pub(super) fn guest_ready(&mut self, conn: ConnId, actions: &mut Vec<Action>) {
        let Some(&(place, unit)) = self.guests.by_conn.get(&conn) else { return };
        let Some(guest) = self.guests.get_mut(place) else { return };
        if let Some(member) = guest.members.get_mut(&unit) {
            member.ready = true;
        }
        match guest.stage {
            Stage::Readying if guest.members.values().all(|m| m.ready) => {
                guest.stage = Stage::Reading;
                actions.push(Action::Enter(place));
                actions.extend(guest.conns().map(|conn| Action::Send(conn, FromHost::Go)));
            }
            // In the place of one that was lost.
            Stage::Reading => actions.push(Action::Send(conn, FromHost::Go)),
            _ => {}
        }
    }

    pub(super) fn guest_hangup(&mut self, conn: ConnId, closed: bool) -> Vec<Action> {
        let Some((place, unit)) = self.guests.by_conn.remove(&conn) else { return Vec::new() };
        let Some(guest) = self.guests.get_mut(place) else { return Vec::new() };
        let (waits, stage) = (guest.waits(), guest.stage);
        let Some(member) = guest.members.remove(&unit) else { return Vec::new() };
        let mut actions = Vec::new();
        match stage {
            Stage::Gathering if waits => {}
            // It never came to read, and the others of it will not.
            Stage::Gathering | Stage::Readying => {
                let why = Refusal::Lost { unit: name(place, unit), pid: member.pid };
                let others: Vec<ConnId> = guest.conns().collect();
                guest.members.clear();
                for conn in others {
                    self.guests.by_conn.remove(&conn);
                    actions.extend([Action::Send(conn, FromHost::Refused(why.clone())), Action::Drop(conn)]);
                }
            }
            Stage::Reading | Stage::Failed if closed => {
                guest.closed.insert(unit);
            }
            Stage::Reading if waits => tracing::info!(place, unit, "lost; waiting for a replacement"),
            Stage::Reading => {
                guest.stage = Stage::Failed;
                actions.push(Action::Lost(name(place, unit), member.pid));
            }
            Stage::Failed => {}
        }
        if self.guests.get(place).is_some_and(|guest| guest.members.is_empty()) {
            self.guests.places[place as usize] = None;
            if stage != Stage::Gathering {
                self.guests.next = (place + 1) % MAX_PROGRAMS;
                actions.push(Action::Vacate(place));
            }
        }
        actions
    }
}
