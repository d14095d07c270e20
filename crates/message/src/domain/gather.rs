//! Gathers the units of a domain on one host: the state machine of the lowest of them. No sockets, no time.
//!
//! Every unit says [`Join`]. When all have come, each gets the [board](super::board) with the numbers of all
//! processes, and the lowest has no further part: units watch each other, and partners connect when they
//! first need to. In a domain across hosts the units of each host do so by themselves.

use crate::meeting::{ConnId, JoinRefusal, Member, Roll, Unit, OWN};
use crate::types::Address;
pub use crate::types::MAX_UNITS;
use polyduct_os::process::{number_space, ProcessId};
use polyduct_os::OsError;
use serde::{Deserialize, Serialize};

/// What a unit says first to the lowest of its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Its address.
    pub unit: Address,
    /// Units of the domain, as it knows them.
    pub units: u32,
    /// Its process.
    pub process: Process,
}

/// The process of a unit, as it is known by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The process namespace of that number; zero where the unit cannot look numbers up.
    pub space: u32,
    /// When it started, in clock ticks since the machine did.
    pub start_time: u64,
}

impl Process {
    /// This process.
    ///
    /// # Errors
    /// The system's, where it does not say.
    pub fn current() -> Result<Process, OsError> {
        let ProcessId { pid, start_time } = ProcessId::current()?;
        Ok(Process { pid, space: number_space(), start_time })
    }

    /// Whether the two mean the same process by a number.
    pub fn shares_numbers(&self, other: &Process) -> bool {
        self.space != 0 && self.space == other.space
    }
}

/// Who is who: the process of each unit of a host, in the order of their addresses.
pub type Members = Vec<Process>;

/// What the driver has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Refuse this connection and close it.
    Refuse(ConnId, JoinRefusal),
    /// All are there: hand the board to these connections, and go.
    Complete(Members, Vec<ConnId>),
    /// The domain cannot come to be: tell these connections, and fail.
    Fail(JoinRefusal, Vec<ConnId>),
}

/// The state machine.
pub struct Gathering {
    units: u32,
    me: Process,
    /// Who is to come, in order.
    near: Vec<Unit>,
    roll: Roll<Unit, Process>,
    over: bool,
}

impl Gathering {
    /// A gathering of the units `near` of a domain of `units`, in order, by the first of them, which is the
    /// process `me`. Complete at once where there is no other.
    pub fn new(units: u32, near: &[Address], me: Process) -> (Self, Option<Action>) {
        let near: Vec<Unit> = near.iter().copied().map(Unit).collect();
        let mut roll = Roll::default();
        let own = Member { conn: OWN, pid: me.pid, terms: me };
        roll.enter(near.first().copied().unwrap_or(Unit(0)), own);
        let mut gathering = Gathering { units, me, near, roll, over: false };
        let action = gathering.complete();
        (gathering, action)
    }

    /// A unit asks to join; `pid` is the number of its process by the socket.
    pub fn handle_join(&mut self, conn: ConnId, pid: u32, join: &Join) -> Option<Action> {
        match self.admit(conn, pid, join) {
            Ok(()) => {
                let mut process = join.process;
                if process.shares_numbers(&self.me) {
                    process.pid = pid;
                }
                self.roll.enter(Unit(join.unit), Member { conn, pid: process.pid, terms: process });
                self.complete()
            }
            Err(why) => {
                self.roll.turned_away(&why);
                Some(Action::Refuse(conn, why))
            }
        }
    }

    /// A connection hung up: its unit's place is free again.
    pub fn handle_hangup(&mut self, conn: ConnId) {
        if !self.over {
            self.roll.leave(conn);
        }
    }

    /// Whether the next one that joins may be the last.
    pub fn lacks_one(&self) -> bool {
        !self.over && self.roll.len() + 1 == self.near.len()
    }

    /// Whether a unit came by this connection.
    pub fn has_joined(&self, conn: ConnId) -> bool {
        self.roll.place(conn).is_some()
    }

    /// The time to gather is over.
    pub fn handle_deadline(&mut self, waited_ms: u64) -> Option<Action> {
        if self.over {
            return None;
        }
        self.over = true;
        let missing = self.roll.absent(self.near.iter().copied());
        Some(Action::Fail(self.roll.missing(missing, waited_ms, ""), self.conns()))
    }

    fn admit(&self, conn: ConnId, pid: u32, join: &Join) -> Result<(), JoinRefusal> {
        let unit = Unit(join.unit);
        if self.over || self.has_joined(conn) {
            return Err(JoinRefusal::Malformed);
        }
        if join.units != self.units {
            let first = self.near.first().copied().unwrap_or(Unit(0));
            return Err(JoinRefusal::disagree(unit, "units", join.units, first, self.units));
        }
        if join.unit >= self.units {
            return Err(JoinRefusal::UnitRange { unit: join.unit, units: self.units });
        }
        if self.near.binary_search(&unit).is_err() {
            return Err(JoinRefusal::NotAMember { unit, pid });
        }
        self.roll.check_free(unit)
    }

    fn complete(&mut self) -> Option<Action> {
        if self.roll.len() < self.near.len() {
            return None;
        }
        self.over = true;
        Some(Action::Complete(self.roll.iter().map(|(_, member)| member.terms).collect(), self.conns()))
    }

    /// The connections by which units came.
    pub fn conns(&self) -> Vec<ConnId> {
        self.roll.conns().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(unit: u32, units: u32) -> Join {
        Join { unit, units, process: process(0, 100 + u64::from(unit)) }
    }

    fn process(pid: u32, start_time: u64) -> Process {
        Process { pid, space: 1, start_time }
    }

    #[test]
    fn all_come_in_any_order() {
        let (mut g, action) = Gathering::new(3, &[0, 1, 2], process(10, 100));
        assert_eq!(action, None);
        assert_eq!(g.handle_join(7, 12, &join(2, 3)), None);
        let all = vec![process(10, 100), process(11, 101), process(12, 102)];
        assert_eq!(g.handle_join(8, 11, &join(1, 3)), Some(Action::Complete(all, vec![8, 7])));
        assert_eq!(g.handle_deadline(5), None);
        assert_eq!(
            Gathering::new(1, &[0], process(10, 100)).1,
            Some(Action::Complete(vec![process(10, 100)], vec![]))
        );
    }

    #[test]
    fn only_those_of_this_host_are_waited_for() {
        let (mut g, _) = Gathering::new(9, &[3, 5, 8], process(10, 100));
        assert_eq!(g.handle_join(1, 11, &join(8, 9)), None);
        let not = JoinRefusal::NotAMember { unit: Unit(4), pid: 12 };
        assert_eq!(g.handle_join(2, 12, &join(4, 9)), Some(Action::Refuse(2, not)));
        let all = vec![process(10, 100), process(13, 105), process(11, 108)];
        assert_eq!(g.handle_join(3, 13, &join(5, 9)), Some(Action::Complete(all, vec![3, 1])));
        let (mut g, _) = Gathering::new(9, &[3, 5, 8], process(10, 100));
        let Some(Action::Fail(why, _)) = g.handle_deadline(5) else { panic!("no failure") };
        assert_eq!(why.to_string(), "unit 5, unit 8 did not come within 5 ms");
    }

    #[test]
    fn strangers_are_refused_and_named_to_those_who_wait() {
        let (mut g, _) = Gathering::new(8, &[0, 1, 2, 3, 4, 5, 6, 7], process(10, 100));
        let mut refused = |conn, join: Join| match g.handle_join(conn, 11, &join) {
            Some(Action::Refuse(c, why)) if c == conn => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(1, join(1, 4)), JoinRefusal::disagree(Unit(1), "units", 4, Unit(0), 8));
        assert_eq!(refused(2, join(8, 8)), JoinRefusal::UnitRange { unit: 8, units: 8 });
        assert_eq!(refused(3, join(0, 8)), JoinRefusal::duplicate(Unit(0), 10));
        assert_eq!(g.handle_join(4, 11, &join(1, 8)), None);
        assert_eq!(g.handle_join(4, 11, &join(2, 8)), Some(Action::Refuse(4, JoinRefusal::Malformed)));
        g.handle_hangup(4);
        assert_eq!(g.handle_join(5, 12, &join(1, 8)), None, "the place was free again");
        let Some(Action::Fail(why, conns)) = g.handle_deadline(50) else { panic!("no failure") };
        assert_eq!(conns, [5]);
        assert_eq!(
            why.to_string(),
            "unit 2, unit 3, unit 4, unit 5, unit 6, 1 more did not come within 50 ms; turned away was one because the \
             first message of this unit could not be read"
        );
        assert!(matches!(g.handle_join(6, 13, &join(3, 8)), Some(Action::Refuse(6, JoinRefusal::Malformed))));
    }

    #[test]
    fn who_lives_in_another_process_namespace_has_its_own_number() {
        let (mut g, _) = Gathering::new(3, &[0, 1, 2], process(10, 100));
        let other = Process { pid: 1, space: 2, start_time: 7 };
        assert_eq!(g.handle_join(1, 0, &Join { unit: 1, units: 3, process: other }), None);
        let all = vec![process(10, 100), other, process(12, 102)];
        assert_eq!(g.handle_join(2, 12, &join(2, 3)), Some(Action::Complete(all, vec![1, 2])));
        let blind = Process { space: 0, ..other };
        assert!(
            !blind.shares_numbers(&blind) && !blind.shares_numbers(&other) && other.shares_numbers(&other)
        );
    }
}
