//! A unit 0 that replaces another: the survivors come back to it with what they kept of the pipe.

use super::admit::same_pipe;
use super::{Action, ConnId, Early, Ending, Member, Part, Phase, Rendezvous, FIRST, OWN};
use crate::error::Refusal;
use crate::wire::{FromHost, Hello, Role};
use polyduct_port::{Side, UnitName};

/// Why survivors were refused, for a unit 0 that waits for others in vain.
const OTHER_TERMS: &str =
    "it belongs to a pipe that has lost its unit 0, and in which that had another layout, \
                           shape, dtype, depth, policy or number of units or readers";

impl<F> Rendezvous<F> {
    /// Whether survivors of an earlier pipe are coming back.
    pub fn is_reviving(&self) -> bool {
        self.phase == Phase::Reviving
    }

    /// Whether a process asks for a place as if it had had none: a survivor that had not been told to go.
    pub fn is_early(&self, pid: u32, space: u32) -> bool {
        self.early.iter().any(|e| e.pid == pid && e.hello.space == space)
    }

    /// These units have come to their end: nobody takes their places.
    pub fn closed(&mut self, units: impl Iterator<Item = UnitName>) {
        // A guest's place is another's when it has left.
        let guests = self.is_open();
        self.closed.extend(units.filter(|unit| !guests || unit.side == Side::Writer));
    }

    /// Whether the pipe comes to its end: who finds no place in it then is told so, and comes again for the
    /// next one.
    pub fn ends(&mut self, ending: Ending) {
        self.ending = ending;
    }

    /// All survivors are back, or unit 0 has all it needs of them: it may go.
    pub fn revived(&mut self) -> Vec<Action> {
        if self.phase != Phase::Reviving {
            return Vec::new();
        }
        self.phase = Phase::Running;
        let mut actions = vec![Action::Go];
        for Early { conn, pid, hello, fds } in std::mem::take(&mut self.early) {
            self.hello(conn, pid, hello, fds, &mut actions);
        }
        actions
    }

    /// Whether this connection is one of a survivor that has more to hand over.
    pub(super) fn is_back(&self, conn: ConnId) -> bool {
        let member = self.roll.place(conn).and_then(|place| self.roll.get(place));
        let more = |part: &Part| part.hello.rejoin.is_some() && !part.ready;
        self.phase != Phase::Over && member.is_some_and(|member| more(&member.terms))
    }

    /// Keeps slots of writer units, where there are none of theirs yet.
    pub(super) fn keep(&mut self, slots: impl Iterator<Item = (u32, F)>) {
        let writers = self.welcome.as_ref().map_or(0, |w| w.writers);
        for (unit, slots) in slots.filter(|(unit, _)| *unit < writers) {
            self.segments.entry(unit).or_insert(slots);
        }
    }

    /// A survivor of a pipe that lost its unit 0, which this one replaces.
    pub(super) fn rejoin(
        &mut self,
        conn: ConnId,
        pid: u32,
        hello: Hello,
        mut fds: Vec<F>,
        actions: &mut Vec<Action>,
    ) {
        let first = self.phase == Phase::Gathering && self.revives;
        let known = hello.rejoin.clone().filter(|w| match &self.welcome {
            None => first && self.welcomes_me(w),
            Some(mine) => matches!(self.phase, Phase::Reviving | Phase::Running) && same_pipe(mine, w),
        });
        if first && known.is_none() {
            self.turned_away(OTHER_TERMS);
        }
        let mut refuse =
            |why| actions.extend([Action::Send(conn, FromHost::Refused(why)), Action::Drop(conn)]);
        let (Some(welcome), Some(control)) = (known, fds.pop()) else { return refuse(Refusal::Over) };
        let (side, units) = match hello.role {
            Role::Writer { .. } => (Side::Writer, Some(welcome.writers)),
            Role::Reader { .. } => {
                let units = welcome.readers.get(welcome.program as usize).copied();
                (Side::Reader(welcome.program), units)
            }
        };
        let place = UnitName { side, unit: hello.unit };
        if units.is_none_or(|units| hello.unit >= units || hello.units != units) {
            return refuse(Refusal::UnitRange { unit: hello.unit, units: hello.units });
        }
        if let Err(why) = self.roll.check_free(place) {
            return refuse(why);
        }
        if self.welcome.is_none() {
            self.control = Some(control);
            self.programs.clone_from(&welcome.reader_programs);
            self.phase = Phase::Reviving;
            self.welcome = Some(welcome.clone());
            actions.push(Action::Revive(welcome.clone()));
            if let Some(me) = self.roll.get_mut(FIRST) {
                me.terms.ready = true;
                actions.push(Action::Join(OWN, FIRST, me.pid, me.terms.hello.start_time));
            }
            // The slots that unit 0 came with are of no use where readers have its predecessor's mapped.
            self.segments.clear();
            // Other units that came before replace somebody, too.
            let others: Vec<ConnId> = self.roll.conns().collect();
            for (_, Member { conn, pid, terms }) in
                others.into_iter().filter_map(|conn| self.roll.leave(conn))
            {
                self.early.push(Early { conn, pid, hello: terms.hello, fds: Vec::new() });
            }
        }
        actions.push(Action::Join(conn, place, pid, hello.start_time));
        self.enter(place, conn, pid, hello);
    }
}
