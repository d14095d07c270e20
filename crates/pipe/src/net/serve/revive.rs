//! A unit 0 that replaces another: the units of the pipe come back to it, each with where it stands, and the
//! state of the steps is made anew out of that.
//!
//! It waits for every unit that lives, as the [doors](Missing) tell that the others know. A unit that died
//! with the earlier unit 0, or is not heard, is lost as it would be at any other time.

use super::{ConnId, FarServer, StepHub};
use crate::error::Refusal;
use crate::net::mend::{Life, Missing};
use crate::net::senders::Senders;
use crate::net::silence::silent_for;
use crate::net::wire::{KnownUnit, Knows, Tell};
use crate::rendezvous::OWN;
use crate::serve::{sizes, HOST};
use crate::wire::{FromHost, Hello, Role, ToHost, Welcome};
use polyduct_os::{clock, poll::PollItem};
use polyduct_port::{Side, UnitName};
use polyduct_slots::fault::Fault;
use polyduct_slots::geometry::Sizes;
use polyduct_slots::rebuild::{Position, Stands};
use polyduct_slots::Slots;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// A start time of a process that is not known: units of other hosts are not looked up by it.
const SOME: u64 = 1;

/// The units that are to come back.
pub(super) struct Revival {
    welcome: Welcome,
    sizes: Sizes,
    senders: Arc<Senders>,
    units: HashMap<UnitName, Survivor>,
}

#[derive(Default)]
struct Survivor {
    known: KnownUnit,
    stands: Option<Stands>,
    conn: Option<ConnId>,
    /// It is looked for.
    missing: Option<Missing>,
    /// It does not come: it has ended (0), or was not heard for so many seconds.
    gone: Option<u8>,
}

impl Survivor {
    /// Whether it may yet come.
    fn is_awaited(&self) -> bool {
        self.conn.is_none() && self.gone.is_none() && self.known.left.is_none()
    }
}

impl Revival {
    fn new(welcome: Welcome, sizes: Sizes, senders: Arc<Senders>) -> Revival {
        let side = |(p, &units): (usize, &u32)| (0..units).map(move |unit| (Side::Reader(p as u32), unit));
        let readers = sizes.readers.iter().enumerate().flat_map(side);
        let names = (0..sizes.writers).map(|unit| (Side::Writer, unit)).chain(readers);
        let names = names.map(|(side, unit)| UnitName { side, unit });
        let mut units: HashMap<_, _> = names.map(|name| (name, Survivor::default())).collect();
        // Nobody waits for the one whose place this is.
        units.entry(HOST).or_default().gone = Some(0);
        Revival { welcome, sizes, senders, units }
    }

    /// Whether another has had the place of this unit since, by what those know who are back.
    fn is_outlived(&self, name: UnitName, knows: &Knows) -> bool {
        self.units.get(&name).is_some_and(|unit| knows.life_of(name) < unit.known.life)
    }

    /// The same of those who are back, by what this unit knows.
    fn outlived(&self, knows: &Knows) -> Vec<(UnitName, ConnId)> {
        let is_outlived = |(name, known): &(UnitName, KnownUnit)| {
            let unit = self.units.get(name).filter(|unit| unit.known.life < known.life)?;
            unit.conn.map(|conn| (*name, conn))
        };
        knows.others.iter().filter_map(is_outlived).collect()
    }

    /// A unit is back.
    fn returns(&mut self, conn: ConnId, name: UnitName, knows: Knows, me: (u32, Option<SocketAddr>)) {
        let life = knows.life_of(name);
        for (other, known) in knows.others {
            let unit = self.units.get_mut(&other).filter(|unit| {
                // Of two that had its place the later counts; and that it has left.
                let is_newer = known.life > unit.known.life || unit.known == KnownUnit::default();
                is_newer || known.life == unit.known.life && known.left.is_some()
            });
            if let Some(unit) = unit.filter(|unit| unit.conn.is_none()) {
                let gone = unit.gone.filter(|_| other == HOST);
                (unit.known, unit.missing, unit.gone) = (known, None, gone);
            }
        }
        if let Some(unit) = self.units.get_mut(&name) {
            let (pid, door) = me;
            unit.known = KnownUnit { life, pid, door, left: None };
            (unit.stands, unit.conn, unit.missing, unit.gone) = (Some(knows.stands), Some(conn), None, None);
        }
    }

    /// A unit that was back is gone: ended, or not heard for so many seconds.
    pub(super) fn lost(&mut self, conn: ConnId, silent: u8) {
        let unit = self.units.values_mut().find(|unit| unit.conn == Some(conn));
        unit.into_iter().for_each(|unit| (unit.conn, unit.gone) = (None, Some(silent)));
    }

    /// Looks for those that have not come. Returns whether nobody is to come any more.
    fn look(&mut self, borne: Duration, now: Duration) -> bool {
        let mut all = true;
        for unit in self.units.values_mut().filter(|unit| unit.is_awaited()) {
            let door = unit.known.door;
            let missing = unit.missing.get_or_insert_with(|| Missing::new(door, borne, now));
            unit.gone = match missing.look(now) {
                Life::Open => None,
                Life::Ended => Some(0),
                Life::Silent => Some(silent_for(borne)),
            };
            all &= unit.gone.is_some();
        }
        all
    }

    fn missing(&self) -> impl Iterator<Item = &Missing> {
        self.units.values().filter(|unit| unit.is_awaited()).filter_map(|unit| unit.missing.as_ref())
    }

    /// What to wait for.
    pub(super) fn items(&self) -> impl Iterator<Item = PollItem<'_>> {
        self.missing().filter_map(Missing::item)
    }

    /// When to look again at the latest.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.missing().filter_map(Missing::deadline).min()
    }

    fn waits(&self, side: Side) -> bool {
        match side {
            Side::Writer => self.welcome.writers_wait,
            Side::Reader(p) => self.welcome.readers_wait.get(p as usize).is_some_and(|waits| *waits),
        }
    }
}

impl FarServer {
    /// Another unit 0 has come in the place of this one, which was not heard: nothing here counts any more.
    pub(super) fn is_replaced(&mut self) {
        tracing::warn!("another has the place of this unit");
        self.shared.replaced.store(true, Ordering::Release);
        if let Some((hub, _)) = &self.open {
            hub.slots().fail(Fault::Lost { unit: HOST, pid: std::process::id() });
        }
    }

    /// A pipe whose units come back is to be opened.
    pub(super) fn revive(&mut self, welcome: Welcome) -> Result<(), String> {
        let sizes = sizes(&welcome).ok_or("sizes out of limits")?;
        let senders =
            Senders::new(&self.pipe, &welcome, HOST.unit).map_err(|e| e.at(&self.pipe, HOST).to_string())?;
        self.revival = Some(Revival::new(welcome, sizes, senders));
        Ok(())
    }

    /// A unit that says it comes back is not taken in.
    pub(super) fn turn_back(&mut self, id: ConnId, why: Refusal) {
        self.send(id, &Tell::Meet(FromHost::Refused(why), 0, None, 0));
        self.conns.remove(&id);
    }

    /// A unit comes from an earlier unit 0, and is found at `addr`.
    pub(super) fn returns(&mut self, id: ConnId, hello: ToHost, knows: Knows, addr: Option<SocketAddr>) {
        let ToHost::Hello(Hello { role, unit, rejoin: Some(welcome), .. }) = &hello else { return };
        let side = match role {
            Role::Writer { .. } => Side::Writer,
            Role::Reader { .. } => Side::Reader(welcome.program),
        };
        let name = UnitName { side, unit: *unit };
        let Some(me) = self.conns.get(&id).map(|conn| (conn.pid, conn.door)) else { return };
        if self.open.is_some() {
            // The pipe has gone on without it.
            return self.turn_back(id, Refusal::Over);
        }
        if let Some(revival) = &self.revival {
            if revival.is_outlived(name, &knows) {
                return self.turn_back(id, Refusal::Replaced { unit: name });
            }
            for (unit, other) in revival.outlived(&knows) {
                tracing::warn!(%unit, "another has had its place since");
                let refused = FromHost::Refused(Refusal::Replaced { unit });
                self.send(other, &Tell::Meet(refused, 0, None, 0));
                self.hang_up(other, 0);
            }
        }
        let at = addr.unwrap_or(self.listener.addr());
        let actions = self.rendezvous.handle(id, me.0, hello, vec![at]);
        self.carry_out(actions);
        let Some(revival) = self.revival.as_mut().filter(|_| self.rendezvous.is_member(id)) else { return };
        revival.returns(id, name, knows, me);
        let left = revival.units.iter().filter(|(_, unit)| unit.known.left.is_some());
        self.rendezvous.closed(left.map(|(name, _)| *name));
        if side == Side::Writer {
            self.rendezvous.set_segment(name.unit, at);
        }
        let actions = self.rendezvous.handle(id, me.0, ToHost::Ready, Vec::new());
        self.carry_out(actions);
    }

    /// Goes on when all that live are back.
    pub(super) fn go_on_if_revived(&mut self) {
        let Some(mut revival) = self.revival.take().filter(|_| !self.rendezvous.is_over()) else { return };
        if !revival.look(self.silence.0, clock::now()) {
            self.revival = Some(revival);
            return;
        }
        let position = |(name, unit): (&UnitName, &Survivor)| Position {
            unit: *name,
            process: (unit.known.pid, SOME),
            stands: unit.known.left.as_ref().or(unit.stands.as_ref()).filter(|_| *name != HOST).cloned(),
        };
        let positions: Vec<Position> = revival.units.iter().map(position).collect();
        let Some((slots, published)) = Slots::rebuild(revival.sizes.clone(), &positions) else {
            let error = "what its units say of their steps does not agree".into();
            let actions = self.rendezvous.abandon(Refusal::System { unit: HOST, error });
            return self.carry_out(actions);
        };
        let programs = (0..revival.sizes.programs()).map(Side::Reader);
        let waiting =
            [Side::Writer].into_iter().chain(programs).filter(|side| revival.waits(*side)).collect();
        let mut hub = StepHub::new(slots, waiting);
        for (name, unit) in &revival.units {
            let (conn, stands) = (unit.conn, unit.stands.as_ref());
            conn.zip(stands).into_iter().for_each(|(conn, at)| hub.returns(conn, *name, published, at));
        }
        for (name, unit) in revival.units.iter().filter(|(name, _)| **name != HOST) {
            match (unit.gone, revival.waits(name.side)) {
                (None, _) => {}
                (Some(_), true) => hub.lacks(*name),
                (Some(silent), false) => hub.slots().fail(Fault::lost(*name, unit.known.pid, silent)),
            }
        }
        self.known = revival.units.iter().map(|(name, unit)| (*name, unit.known.clone())).collect();
        let host = self.known.entry(HOST).or_default();
        *host =
            KnownUnit { life: host.life.saturating_add(1), pid: std::process::id(), ..KnownUnit::default() };
        for (name, known) in self.known.iter().filter(|(name, _)| name.side == Side::Writer) {
            if self.rendezvous.segment(name.unit).is_none() {
                self.rendezvous.set_segment(name.unit, known.door.unwrap_or(self.listener.addr()));
            }
        }
        let life = self.known.get(&HOST).map_or(0, |host| host.life);
        let id = revival.welcome.id;
        (self.own.calls.session, self.own.calls.pipe, self.own.calls.life) = (id, id, life);
        self.welcome = Some((revival.welcome, published));
        self.open = Some((hub, revival.senders));
        let survivors: Vec<ConnId> = revival.units.values().filter_map(|unit| unit.conn).collect();
        let actions = self.rendezvous.revived();
        survivors.into_iter().for_each(|id| self.let_go(id));
        self.note_absent();
        let absent = self.shared.absent().clone();
        absent.into_iter().for_each(|(unit, pid)| self.send_all_but(OWN, &Tell::Lost(unit, pid)));
        self.carry_out(actions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::client::tests::welcome;

    fn writer(unit: u32) -> UnitName {
        UnitName { side: Side::Writer, unit }
    }

    /// What a unit knows of writer unit 1.
    fn knows(life: u32) -> Knows {
        Knows {
            stands: Stands::default(),
            others: vec![(writer(1), KnownUnit { life, ..KnownUnit::default() })],
        }
    }

    #[test]
    fn of_two_that_had_a_place_the_later_has_it_whoever_comes_first() {
        let welcome = Welcome { writers: 3, writers_wait: true, ..welcome() };
        let begin = || {
            let senders = Senders::new("p", &welcome, 0).unwrap();
            Revival::new(welcome.clone(), sizes(&welcome).unwrap(), senders)
        };
        // The earlier comes first: the later takes its place, and so does the word of another.
        let mut revival = begin();
        revival.returns(1, writer(1), knows(0), (10, None));
        assert!(!revival.is_outlived(writer(1), &knows(0)) && revival.outlived(&knows(0)).is_empty());
        assert_eq!(revival.outlived(&knows(1)), [(writer(1), 1)]);
        revival.lost(1, 0);
        revival.returns(2, writer(1), knows(1), (11, None));
        assert!(revival.is_outlived(writer(1), &knows(0)) && !revival.is_outlived(writer(1), &knows(1)));
        assert!(revival.outlived(&knows(1)).is_empty());
        // It comes when another has told.
        let mut revival = begin();
        revival.returns(3, writer(2), knows(1), (12, None));
        assert!(revival.is_outlived(writer(1), &knows(0)));
    }
}
