//! Reader programs that come and go: where [any](crate::Readers::Any) may read, they have no part in the
//! opening of the pipe.
//!
//! Each gathers like a pipe of its own, is welcomed when all its units have come and the writers run, and
//! reads when all are ready. It has a place until the last of its units has left; a program of the same name
//! that comes before that gets another.

use super::admit::{agree, among};
use super::{places, Action, ConnId, Ending, Member, Part, Phase, Rendezvous};
use crate::error::{Mismatch, Refusal};
use crate::wire::{FromHost, Hello};
use polyduct_port::{Side, UnitName, MAX_PROGRAMS};
use std::collections::BTreeSet;

/// The programs that are there; their units stand in the roll of all.
#[derive(Default)]
pub(super) struct Guests {
    places: [Option<Guest>; MAX_PROGRAMS as usize],
    /// The place that is given out first: one that a killed program has left still pins what it held, which
    /// its successor would not be offered there.
    next: u32,
}

struct Guest {
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

impl Guests {
    fn get(&self, place: u32) -> Option<&Guest> {
        self.places.get(place as usize)?.as_ref()
    }

    fn get_mut(&mut self, place: u32) -> Option<&mut Guest> {
        self.places.get_mut(place as usize)?.as_mut()
    }
}

impl<F> Rendezvous<F> {
    /// Whether reader programs come and go.
    pub(super) fn is_open(&self) -> bool {
        self.readers == 0
    }

    pub(super) fn is_guest(&self, unit: UnitName) -> bool {
        self.is_open() && unit.side != Side::Writer
    }

    /// The unit of a guest that came by a connection, and the place of its program.
    pub(super) fn guest(&self, conn: ConnId) -> Option<(UnitName, u32)> {
        match self.roll.place(conn)? {
            unit @ UnitName { side: Side::Reader(place), .. } if self.is_open() => Some((unit, place)),
            _ => None,
        }
    }

    /// Whether this connection is one of a guest that was welcomed.
    pub(super) fn guest_may_ask(&self, conn: ConnId) -> bool {
        let guest = self.guest(conn).and_then(|(_, place)| self.guests.get(place));
        guest.is_some_and(|guest| matches!(guest.stage, Stage::Readying | Stage::Reading))
    }

    /// A unit does not wait any longer for the others of its program.
    pub(super) fn guest_gives_up(&mut self, conn: ConnId, place: u32) {
        if self.guests.get(place).is_some_and(|guest| guest.stage == Stage::Gathering) {
            self.roll.leave(conn);
            if self.first_of(Side::Reader(place)).is_none() {
                self.guests.places[place as usize] = None;
            }
        }
    }

    /// No guest is known any more.
    pub(super) fn lose_guests(&mut self) {
        self.guests.places = Default::default();
        let conns: Vec<ConnId> = self.roll.conns().filter(|&conn| self.guest(conn).is_some()).collect();
        conns.into_iter().for_each(|conn| drop(self.roll.leave(conn)));
    }

    pub(super) fn guest_hello(&mut self, conn: ConnId, pid: u32, hello: Hello, actions: &mut Vec<Action>) {
        let place = match self.place_for(&hello) {
            Ok(place) => place,
            Err(why) => return self.refuse(conn, why, actions),
        };
        let (name, start_time) = (UnitName { side: Side::Reader(place), unit: hello.unit }, hello.start_time);
        let guest = self.guests.places[place as usize]
            .get_or_insert_with(|| Guest { closed: BTreeSet::new(), stage: Stage::Gathering });
        let replaces = guest.stage == Stage::Reading;
        self.enter(name, conn, pid, hello);
        if replaces {
            actions.push(Action::Join(conn, name, pid, start_time));
            actions.extend(self.welcome_to(name, true));
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
        self.check_hello(hello)?;
        let place = match self.guest_place(&hello.program).or_else(|| self.free_place()) {
            Some(place) => place,
            None => {
                let (programs, found) = (MAX_PROGRAMS, hello.program.clone());
                return Err(Refusal::Terms(Mismatch::Full { programs, found }));
            }
        };
        let me = UnitName { side: Side::Reader(place), unit: hello.unit };
        if let Some((other, first)) = self.first_of(me.side) {
            let agreed = agree(me, other.unit, &first.terms.hello, hello);
            agreed.and_then(|()| self.roll.check_free(me)).map_err(|why| among(why, MAX_PROGRAMS))?;
        }
        self.check_reader(me, hello)?;
        Ok(place)
    }

    /// Places in the order in which they are given out.
    fn places(&self) -> impl Iterator<Item = u32> + use<'_, F> {
        (0..MAX_PROGRAMS).map(|i| (self.guests.next + i) % MAX_PROGRAMS)
    }

    /// The place that the next program gets.
    pub(super) fn free_place(&self) -> Option<u32> {
        self.places().find(|&p| self.guests.get(p).is_none())
    }

    /// The place of a program of this name. One that has begun to leave is another.
    pub(super) fn guest_place(&self, program: &str) -> Option<u32> {
        let stays = |guest: &Guest| guest.closed.is_empty() && guest.stage != Stage::Failed;
        self.places().find(|&p| {
            let named = self.first_of(Side::Reader(p)).map(|(_, first)| &*first.terms.hello.program);
            named == Some(program) && self.guests.get(p).is_some_and(stays)
        })
    }

    /// The writers run: who has come meanwhile may join them.
    pub(super) fn seat_all(&mut self, actions: &mut Vec<Action>) {
        (0..MAX_PROGRAMS).for_each(|place| self.seat_if_complete(place, actions));
    }

    /// The units of the guest in a place.
    fn units_in(&self, place: u32) -> impl Iterator<Item = (UnitName, &Member<Part>)> {
        self.roll.range(places(Side::Reader(place)))
    }

    fn seat_if_complete(&mut self, place: u32, actions: &mut Vec<Action>) {
        let units = self.units_of(Side::Reader(place)).unwrap_or(0);
        let complete = self.phase == Phase::Running && self.units_in(place).count() == units as usize;
        let Some(guest) = self.guests.get_mut(place).filter(|g| complete && g.stage == Stage::Gathering)
        else {
            return;
        };
        guest.stage = Stage::Readying;
        actions.push(Action::Seat(place, units));
        let joined = |(name, m): (UnitName, &Member<Part>)| {
            Action::Join(m.conn, name, m.pid, m.terms.hello.start_time)
        };
        actions.extend(self.units_in(place).map(joined));
        actions.extend(self.units_in(place).filter_map(|(name, _)| self.welcome_to(name, false)));
    }

    pub(super) fn guest_ready(&mut self, conn: ConnId, actions: &mut Vec<Action>) {
        let Some((_, place)) = self.guest(conn) else { return };
        self.roll.by_conn_mut(conn).into_iter().for_each(|member| member.terms.ready = true);
        let all_are_ready = self.units_in(place).all(|(_, member)| member.terms.ready);
        let Some(guest) = self.guests.get_mut(place) else { return };
        match guest.stage {
            Stage::Readying if all_are_ready => {
                guest.stage = Stage::Reading;
                actions.push(Action::Enter(place));
                actions.extend(self.units_in(place).map(|(_, m)| Action::Send(m.conn, FromHost::Go)));
            }
            // In the place of one that was lost.
            Stage::Reading => actions.push(Action::Send(conn, FromHost::Go)),
            _ => {}
        }
    }

    pub(super) fn guest_hangup(&mut self, conn: ConnId, closed: bool) -> Vec<Action> {
        let Some((name, member)) = self.roll.leave(conn) else { return Vec::new() };
        let Side::Reader(place) = name.side else { return Vec::new() };
        let waits = member.terms.waits();
        let Some(guest) = self.guests.get_mut(place) else { return Vec::new() };
        let stage = guest.stage;
        let mut actions = Vec::new();
        match stage {
            Stage::Gathering if waits => {}
            // It never came to read, and the others of it will not.
            Stage::Gathering | Stage::Readying => {
                let why = Refusal::Lost { unit: name, pid: member.pid, silent_s: None };
                let others: Vec<ConnId> = self.units_in(place).map(|(_, other)| other.conn).collect();
                for conn in others {
                    self.roll.leave(conn);
                    actions.extend([Action::Send(conn, FromHost::Refused(why.clone())), Action::Drop(conn)]);
                }
            }
            Stage::Reading | Stage::Failed if closed => {
                guest.closed.insert(name.unit);
            }
            Stage::Reading if waits => tracing::info!(%name, "lost; waiting for a replacement"),
            Stage::Reading => {
                guest.stage = Stage::Failed;
                actions.push(Action::Lost(name, member.pid));
            }
            Stage::Failed => {}
        }
        if self.units_in(place).next().is_none() {
            self.guests.places[place as usize] = None;
            if stage != Stage::Gathering {
                self.guests.next = (place + 1) % MAX_PROGRAMS;
                actions.push(Action::Vacate(place));
            }
        }
        actions
    }
}
