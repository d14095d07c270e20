//! The roll of a meeting: who has come, kept alike by all who decide. No sockets, no time.

use super::ConnId;
use crate::error::Refusal;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::hash::Hash;
use std::ops::RangeBounds;

/// The connection that stands for the deciding unit itself.
pub const OWN: ConnId = 0;

/// Places that the words about who is missing name, at most.
const NAMED: usize = 5;
/// Characters kept of the reason for which a unit was turned away.
const REASON_CHARS: usize = 400;

/// A unit that has come.
#[derive(Debug)]
pub struct Member<T> {
    /// The connection by which it came; [`OWN`] for the deciding unit.
    pub conn: ConnId,
    /// Its process.
    pub pid: u32,
    /// What it said.
    pub terms: T,
}

/// The units that have come, by place and by connection, and why the last one was turned away.
#[derive(Debug)]
pub struct Roll<P, T> {
    members: BTreeMap<P, Member<T>>,
    by_conn: HashMap<ConnId, P>,
    turned_away: Option<String>,
}

impl<P, T> Default for Roll<P, T> {
    fn default() -> Self {
        Roll { members: BTreeMap::new(), by_conn: HashMap::new(), turned_away: None }
    }
}

impl<P: Copy + Ord + Hash + Display, T> Roll<P, T> {
    /// Gives a place to a connection; returns who had it before.
    pub fn enter(&mut self, place: P, member: Member<T>) -> Option<Member<T>> {
        let before = self.remove(place);
        self.by_conn.insert(member.conn, place);
        self.members.insert(place, member);
        before
    }

    /// Takes the place that a connection has away from it.
    pub fn leave(&mut self, conn: ConnId) -> Option<(P, Member<T>)> {
        let place = self.by_conn.remove(&conn)?;
        Some((place, self.members.remove(&place)?))
    }

    /// Frees a place.
    pub fn remove(&mut self, place: P) -> Option<Member<T>> {
        let member = self.members.remove(&place)?;
        if self.place(member.conn) == Some(place) {
            self.by_conn.remove(&member.conn);
        }
        Some(member)
    }

    /// A connection is gone, and its unit keeps the place: nobody else gets it.
    pub fn hang_up(&mut self, conn: ConnId) {
        self.by_conn.remove(&conn);
    }

    /// Takes everybody's place away; returns who they were.
    pub fn drain(&mut self) -> impl Iterator<Item = (P, Member<T>)> {
        self.by_conn.clear();
        std::mem::take(&mut self.members).into_iter()
    }

    /// The place of a connection.
    pub fn place(&self, conn: ConnId) -> Option<P> {
        self.by_conn.get(&conn).copied()
    }

    /// The unit that has a place.
    pub fn get(&self, place: P) -> Option<&Member<T>> {
        self.members.get(&place)
    }

    /// The unit that has a place.
    pub fn get_mut(&mut self, place: P) -> Option<&mut Member<T>> {
        self.members.get_mut(&place)
    }

    /// The unit that came by a connection.
    pub fn by_conn_mut(&mut self, conn: ConnId) -> Option<&mut Member<T>> {
        self.members.get_mut(self.by_conn.get(&conn)?)
    }

    /// All of them, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (P, &Member<T>)> {
        self.members.iter().map(|(&place, member)| (place, member))
    }

    /// Those with these places, in their order.
    pub fn range(&self, places: impl RangeBounds<P>) -> impl Iterator<Item = (P, &Member<T>)> {
        self.members.range(places).map(|(&place, member)| (place, member))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether nobody is there.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The connections of those who are there, in the order of their places; not the deciding unit's own.
    pub fn conns(&self) -> impl Iterator<Item = ConnId> + '_ {
        let there = self.iter().filter(|(place, member)| self.place(member.conn) == Some(*place));
        there.map(|(_, member)| member.conn).filter(|conn| *conn != OWN)
    }

    /// Whether a place can be given to one more.
    ///
    /// # Errors
    /// [`Refusal::Duplicate`] where somebody has it.
    pub fn check_free<X: Display>(&self, place: P) -> Result<(), Refusal<P, X>> {
        match self.members.get(&place) {
            Some(there) => Err(Refusal::duplicate(place, there.pid)),
            None => Ok(()),
        }
    }

    /// Notes why one was turned away: the last of them may explain who is missing.
    pub fn turned_away(&mut self, why: &impl ToString) {
        self.turned_away = Some(why.to_string().chars().take(REASON_CHARS).collect());
    }

    /// Those of these units that have not come, in words; nothing where all have.
    pub fn absent(&self, expected: impl IntoIterator<Item = P>) -> String {
        let mut absent = expected.into_iter().filter(|place| !self.members.contains_key(place));
        let mut words: Vec<String> = absent.by_ref().take(NAMED).map(|place| place.to_string()).collect();
        match absent.count() {
            0 => {}
            more => words.push(format!("{more} more")),
        }
        words.join(", ")
    }

    /// What is said when the time is over: who is missing, and why that may be (`hint` where nobody was
    /// turned away).
    pub fn missing<X: Display>(&mut self, missing: String, waited_ms: u64, hint: &str) -> Refusal<P, X> {
        let turned_away = self.turned_away.take();
        let hint = turned_away.map_or(hint.into(), |why| format!("; turned away was one because {why}"));
        Refusal::Missing { missing, waited_ms, hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{JoinRefusal, NoTerms, Unit};

    fn member(conn: ConnId) -> Member<char> {
        Member { conn, pid: 40 + conn as u32, terms: 'x' }
    }

    #[test]
    fn a_place_has_one_connection_and_a_connection_one_place() {
        let mut roll = Roll::default();
        assert!(roll.enter(Unit(1), member(OWN)).is_none() && roll.enter(Unit(0), member(7)).is_none());
        assert_eq!(roll.check_free::<NoTerms>(Unit(0)), Err(JoinRefusal::duplicate(Unit(0), 47)));
        assert_eq!(roll.enter(Unit(0), member(8)).map(|before| before.conn), Some(7));
        assert_eq!((roll.place(7), roll.place(8), roll.len()), (None, Some(Unit(0)), 2));
        assert_eq!(roll.conns().collect::<Vec<_>>(), [8], "not its own");
        assert_eq!(roll.leave(7).map(|left| left.0), None);
        roll.enter(Unit(2), member(9));
        roll.hang_up(9);
        assert_eq!((roll.place(9), roll.conns().collect::<Vec<_>>()), (None, vec![8]));
        assert!(roll.check_free::<NoTerms>(Unit(2)).is_err(), "it keeps its place");
        // The number of a connection that is gone may be another's.
        roll.enter(Unit(3), member(9));
        roll.remove(Unit(2));
        assert_eq!((roll.place(9), roll.leave(9).map(|left| left.0)), (Some(Unit(3)), Some(Unit(3))));
        roll.enter(Unit(2), member(9));
        roll.hang_up(9);
        assert_eq!(roll.leave(8).map(|left| left.0), Some(Unit(0)));
        assert_eq!(roll.check_free::<NoTerms>(Unit(0)), Ok(()));
        assert_eq!(roll.drain().map(|left| left.0).collect::<Vec<_>>(), [Unit(1), Unit(2)]);
        assert!(roll.is_empty() && roll.place(OWN).is_none());
    }

    #[test]
    fn who_is_missing_is_named_and_why() {
        let mut roll = Roll::default();
        roll.enter(Unit(0), member(OWN));
        let absent = roll.absent((0..9).map(Unit));
        assert_eq!(absent, "unit 1, unit 2, unit 3, unit 4, unit 5, 3 more");
        assert_eq!(roll.absent([Unit(0)]), "");
        let said = |roll: &mut Roll<Unit, char>| {
            roll.missing::<NoTerms>("unit 1".into(), 30, "; is it there?").to_string()
        };
        assert_eq!(said(&mut roll), "unit 1 did not come within 30 ms; is it there?");
        roll.turned_away(&"of this");
        assert_eq!(said(&mut roll), "unit 1 did not come within 30 ms; turned away was one because of this");
    }
}
