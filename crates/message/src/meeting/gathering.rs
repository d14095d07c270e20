//! Gathers the units of one program: the state machine of the unit that the others come to. No sockets, no
//! time.
//!
//! Every unit says which it is, of how many, and its terms, which are its users' own: a domain's units on one
//! host, its units across hosts, the units that write a file.

use super::{ConnId, Member, Roll};
use crate::error::{JoinRefusal, Unit};

/// The units of one program that have come, out of those that are expected.
pub struct Gathering<T> {
    /// Units of the program.
    units: u32,
    /// Those of them that are to come, in order; the first is the one that they come to.
    near: Vec<Unit>,
    roll: Roll<Unit, T>,
    over: bool,
}

impl<T> Gathering<T> {
    /// A gathering of the units `near` of a program of `units`, in order, by the first of them, which has
    /// come.
    pub fn new(units: u32, near: impl IntoIterator<Item = u32>, own: Member<T>) -> Gathering<T> {
        let mut gathering = Gathering {
            units,
            near: near.into_iter().map(Unit).collect(),
            roll: Roll::default(),
            over: false,
        };
        gathering.roll.enter(gathering.first(), own);
        gathering.over = gathering.is_complete();
        gathering
    }

    /// A unit, one of so many as it knows them, asks for its place; `agree` looks at the rest of what all
    /// have to say alike.
    ///
    /// # Errors
    /// Why it has none. A unit that asks a second time by one connection loses its place.
    pub fn handle_join(
        &mut self,
        (unit, units): (u32, u32),
        member: Member<T>,
        agree: impl FnOnce() -> Result<(), JoinRefusal>,
    ) -> Result<(), JoinRefusal> {
        let checked = self.check((unit, units), &member, agree);
        match &checked {
            Ok(()) => {
                self.roll.enter(Unit(unit), member);
                self.over = self.is_complete();
            }
            Err(why) => {
                self.turned_away(why);
                self.handle_hangup(member.conn);
            }
        }
        checked
    }

    fn check(
        &self,
        (unit, units): (u32, u32),
        &Member { conn, pid, .. }: &Member<T>,
        agree: impl FnOnce() -> Result<(), JoinRefusal>,
    ) -> Result<(), JoinRefusal> {
        let place = Unit(unit);
        if self.has_joined(conn) {
            return Err(JoinRefusal::Malformed);
        }
        if units != self.units {
            return Err(JoinRefusal::disagree(place, "units", units, self.first(), self.units));
        }
        agree()?;
        JoinRefusal::check_range(unit, units)?;
        if self.near.binary_search(&place).is_err() {
            return Err(JoinRefusal::NotAMember { unit: place, pid });
        }
        self.roll.check_free(place)?;
        if self.over {
            Err(JoinRefusal::Over)
        } else {
            Ok(())
        }
    }

    /// A connection hung up: its unit's place is free again, until all have come.
    pub fn handle_hangup(&mut self, conn: ConnId) {
        if !self.over {
            self.roll.leave(conn);
        }
    }

    /// The time to gather is over before all have come: what those who came are told.
    pub fn handle_deadline(&mut self, waited_ms: u64) -> JoinRefusal {
        self.over = true;
        let missing = self.roll.absent(self.near.iter().copied());
        self.roll.missing(missing, waited_ms, "")
    }

    /// Notes why somebody was turned away: that may explain who is missing.
    pub fn turned_away(&mut self, why: &impl ToString) {
        self.roll.turned_away(why);
    }

    /// How many have not come.
    pub fn lacks(&self) -> usize {
        self.near.len().saturating_sub(self.roll.len())
    }

    /// Whether all have come.
    pub fn is_complete(&self) -> bool {
        self.lacks() == 0
    }

    /// Whether a unit came by this connection.
    pub fn has_joined(&self, conn: ConnId) -> bool {
        self.roll.place(conn).is_some()
    }

    /// The unit that came by a connection.
    pub fn by_conn(&mut self, conn: ConnId) -> Option<(u32, &mut T)> {
        let Unit(unit) = self.roll.place(conn)?;
        self.roll.by_conn_mut(conn).map(|member| (unit, &mut member.terms))
    }

    /// What each has said that has come, in order.
    pub fn terms(&self) -> impl Iterator<Item = (u32, &T)> {
        self.roll.iter().map(|(Unit(unit), member)| (unit, &member.terms))
    }

    /// The connections by which the others came, in the order of their units.
    pub fn conns(&self) -> Vec<ConnId> {
        self.roll.conns().collect()
    }

    fn first(&self) -> Unit {
        self.near.first().copied().unwrap_or(Unit(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meeting::OWN;
    use proptest::prelude::*;

    fn member(conn: ConnId) -> Member<ConnId> {
        Member { conn, pid: 10 + conn as u32, terms: conn }
    }

    fn gathering(units: u32, near: &[u32]) -> Gathering<ConnId> {
        Gathering::new(units, near.iter().copied(), member(OWN))
    }

    /// A unit comes by a connection, and says nothing that it would have to agree on.
    fn join(g: &mut Gathering<ConnId>, conn: ConnId, unit: u32, units: u32) -> Result<(), JoinRefusal> {
        g.handle_join((unit, units), member(conn), || Ok(()))
    }

    #[test]
    fn all_come_in_any_order() {
        let mut g = gathering(3, &[0, 1, 2]);
        assert_eq!((join(&mut g, 7, 2, 3), g.is_complete(), g.lacks()), (Ok(()), false, 1));
        assert_eq!((join(&mut g, 8, 1, 3), g.is_complete(), g.lacks()), (Ok(()), true, 0));
        assert_eq!(g.terms().collect::<Vec<_>>(), [(0, &OWN), (1, &8), (2, &7)]);
        assert_eq!(g.conns(), [8, 7]);
        g.handle_hangup(7);
        assert!(g.is_complete(), "who goes then is lost, and keeps its place");
        assert_eq!(g.by_conn(7), Some((2, &mut 7)));
        assert_eq!(join(&mut g, 9, 2, 3), Err(JoinRefusal::duplicate(Unit(2), 17)));
        assert!(gathering(1, &[0]).is_complete());
    }

    #[test]
    fn only_those_who_are_near_are_waited_for() {
        let mut g = gathering(9, &[3, 5, 8]);
        assert_eq!(join(&mut g, 1, 8, 9), Ok(()));
        let not = JoinRefusal::NotAMember { unit: Unit(4), pid: 12 };
        assert_eq!(join(&mut g, 2, 4, 9), Err(not));
        assert_eq!((join(&mut g, 3, 5, 9), g.conns()), (Ok(()), vec![3, 1]));
        let why = gathering(9, &[3, 5, 8]).handle_deadline(5);
        assert_eq!(why.to_string(), "unit 5, unit 8 did not come within 5 ms");
    }

    #[test]
    fn strangers_are_refused_and_named_to_those_who_wait() {
        let mut g = gathering(8, &[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(join(&mut g, 1, 1, 4), Err(JoinRefusal::disagree(Unit(1), "units", 4, Unit(0), 8)));
        assert_eq!(join(&mut g, 2, 8, 8), Err(JoinRefusal::UnitRange { unit: 8, units: 8 }));
        assert_eq!(join(&mut g, 3, 0, 8), Err(JoinRefusal::duplicate(Unit(0), 10)));
        let other = || JoinRefusal::disagree(Unit(0), "shape", 1, Unit(0), 2);
        assert_eq!(g.handle_join((0, 8), member(3), || Err(other())), Err(other()), "before its place");
        assert_eq!(join(&mut g, 4, 1, 8), Ok(()));
        assert_eq!(join(&mut g, 4, 2, 8), Err(JoinRefusal::Malformed));
        assert_eq!(join(&mut g, 5, 1, 8), Ok(()), "the place was free again");
        let why = g.handle_deadline(50);
        assert_eq!(g.conns(), [5]);
        assert_eq!(
            why.to_string(),
            "unit 2, unit 3, unit 4, unit 5, unit 6, 1 more did not come within 50 ms; turned away was one because the \
             first message of this unit could not be read"
        );
        assert_eq!(join(&mut g, 6, 3, 8), Err(JoinRefusal::Over));
    }

    proptest! {
        /// Whatever is said, a place has who came first and stayed.
        #[test]
        fn whoever_comes_and_goes(said in prop::collection::vec((1u64..5, 0u32..5, 3u32..5, any::<bool>()), 0..40)) {
            let mut g = gathering(4, &[0, 1, 3]);
            let mut there = std::collections::BTreeMap::from([(0, OWN)]);
            for (conn, unit, units, goes) in said {
                let is_complete = there.len() == 3;
                let held = there.values().any(|&other| other == conn);
                if goes {
                    g.handle_hangup(conn);
                } else {
                    let is_free = [1, 3].contains(&unit) && units == 4 && !there.contains_key(&unit);
                    prop_assert_eq!(join(&mut g, conn, unit, units).is_ok(), is_free && !held);
                    if is_free && !held {
                        there.insert(unit, conn);
                    }
                }
                if (goes || held) && !is_complete {
                    there.retain(|_, other| *other != conn);
                }
                prop_assert_eq!(g.terms().map(|(unit, &conn)| (unit, conn)).collect::<Vec<_>>(),
                    there.clone().into_iter().collect::<Vec<_>>());
                prop_assert_eq!(g.is_complete(), there.len() == 3);
            }
        }
    }
}
