//! The dependence resolver: what each stream's next step has to wait for (iWarp's network interface, section 5.3.2).
//!
//! * The streams of a connection move one after the other, in the order of registration.
//! * *Sequencing*: a stream begins when those that it comes after have ended.
//! * *Synchronisation*: of a group nobody begins step k+1 before all have moved step k; of one that has a number
//!   of members nobody begins before so many have come.
//!
//! Waits that would never end are refused when a stream is registered: see [`Dependences::check`].

use crate::{ConnectionId, ControlError, GroupId, StreamId, WaitsFor};
use std::collections::{BTreeMap, BTreeSet};

/// What has to be known of a stream.
#[derive(Clone, Debug)]
struct Node {
    connection: ConnectionId,
    after: Vec<StreamId>,
    group: Option<GroupId>,
    /// At which step of its group it came.
    first: u64,
    moved: u64,
}

/// A group in lock step.
#[derive(Clone, Debug, Default)]
struct Group {
    /// Those that have not ended.
    there: BTreeSet<StreamId>,
    /// How many there are to be before any begins; 0 where all that come are.
    members: u32,
    /// How many have come.
    came: u32,
}

/// The order of all streams that have not ended.
#[derive(Clone, Debug, Default)]
pub struct Dependences {
    nodes: BTreeMap<StreamId, Node>,
    /// Those of each connection, and of each group.
    lines: BTreeMap<ConnectionId, BTreeSet<StreamId>>,
    groups: BTreeMap<GroupId, Group>,
}

impl Dependences {
    /// Whether a stream with these ties could ever move.
    ///
    /// A group waits for each of its streams, at each step; so a stream must not come after one that, over any
    /// number of ties, waits for the stream's own group.
    ///
    /// # Errors
    /// [`ControlError::Cycle`].
    pub fn check(
        &self,
        connection: ConnectionId,
        after: &[StreamId],
        group: Option<GroupId>,
    ) -> Result<(), ControlError> {
        let Some(group) = group else { return Ok(()) };
        let last = self.lines.get(&connection).and_then(BTreeSet::last);
        for &first in after.iter().chain(last) {
            let (mut to_see, mut seen) = (vec![first], BTreeSet::new());
            while let Some(id) = to_see.pop() {
                let Some(node) = self.nodes.get(&id).filter(|_| seen.insert(id)) else { continue };
                if node.group == Some(group) {
                    let (group_name, place) = (String::new(), String::new());
                    return Err(ControlError::Cycle { group, group_name, stream: first, place });
                }
                to_see.extend(&node.after);
                to_see.extend(self.lines.get(&node.connection).and_then(|line| line.range(..id).next_back()));
                to_see.extend(self.members(node.group));
            }
        }
        Ok(())
    }

    fn members(&self, group: Option<GroupId>) -> impl Iterator<Item = &StreamId> {
        group.and_then(|group| self.groups.get(&group)).into_iter().flat_map(|group| &group.there)
    }

    /// How many the group is to have, and how many have come; `None` where none of it is there.
    pub fn group(&self, group: GroupId) -> Option<(u32, u32)> {
        self.groups.get(&group).map(|group| (group.members, group.came))
    }

    /// Of the group nobody begins before so many have come: said before the first of them.
    pub fn expect(&mut self, group: GroupId, members: u32) {
        self.groups.entry(group).or_default().members = members;
    }

    /// Adds a stream that was [checked](Self::check), with a number above all others'. Those that it comes after and that
    /// there are not have ended. One that comes to a group that moves goes on from there.
    pub fn add(
        &mut self,
        id: StreamId,
        connection: ConnectionId,
        after: &[StreamId],
        group: Option<GroupId>,
    ) {
        self.lines.entry(connection).or_default().insert(id);
        let last = |id: &StreamId| self.nodes.get(id).map(|node| node.first + node.moved);
        let first = self.members(group).filter_map(last).min().unwrap_or(0);
        if let Some(group) = group {
            let group = self.groups.entry(group).or_default();
            group.there.insert(id);
            group.came += 1;
        }
        self.nodes.insert(id, Node { connection, after: after.to_vec(), group, first, moved: 0 });
    }

    /// What the stream's step number `begun`, the next one, waits for; `None` where it may begin.
    pub fn waits(&self, id: StreamId, begun: u64) -> Option<WaitsFor> {
        let node = self.nodes.get(&id)?;
        let before = self.lines.get(&node.connection).and_then(BTreeSet::first).filter(|first| **first < id);
        let mut after = node.after.iter().filter(|id| self.nodes.contains_key(id));
        if let Some(first) = before.or_else(|| after.next()) {
            return Some(WaitsFor::Stream(*first));
        }
        let group = self.groups.get(&node.group?)?;
        if group.came < group.members {
            return Some(WaitsFor::Members(group.members - group.came));
        }
        let step = node.first + begun;
        let behind =
            |other: &&StreamId| self.nodes.get(other).is_some_and(|node| node.first + node.moved < step);
        group.there.iter().find(behind).map(|other| WaitsFor::Group(*other))
    }

    /// One more step of the stream was moved.
    pub fn moved(&mut self, id: StreamId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.moved += 1;
        }
    }

    /// The stream takes no part after all: its group waits for another in its place.
    pub fn withdrawn(&mut self, id: StreamId) {
        let group = self.nodes.get(&id).and_then(|node| node.group);
        if let Some(group) = group.and_then(|group| self.groups.get_mut(&group)) {
            group.came = group.came.saturating_sub(1);
        }
        self.ended(id);
    }

    /// The stream has ended: nobody waits for it any more.
    pub fn ended(&mut self, id: StreamId) {
        let Some(node) = self.nodes.remove(&id) else { return };
        if let Some(line) = self.lines.get_mut(&node.connection) {
            line.remove(&id);
            if line.is_empty() {
                self.lines.remove(&node.connection);
            }
        }
        let Some((name, group)) = node.group.and_then(|name| Some((name, self.groups.get_mut(&name)?)))
        else {
            return;
        };
        group.there.remove(&id);
        if group.there.is_empty() {
            self.groups.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: Option<GroupId> = Some(GroupId(0));
    const H: Option<GroupId> = Some(GroupId(1));

    fn add(d: &mut Dependences, id: u32, connection: u32, after: &[u32], group: Option<GroupId>) -> bool {
        let after: Vec<_> = after.iter().map(|&id| StreamId(id)).collect();
        let fine = d.check(ConnectionId(connection), &after, group).is_ok();
        if fine {
            d.add(StreamId(id), ConnectionId(connection), &after, group);
        }
        fine
    }

    #[test]
    fn a_connection_is_in_order_and_sequences_cross() {
        let mut d = Dependences::default();
        assert!(
            add(&mut d, 0, 0, &[], None) && add(&mut d, 1, 0, &[], None) && add(&mut d, 2, 1, &[1], None)
        );
        let waits = |d: &Dependences, id| d.waits(StreamId(id), 0);
        assert_eq!((waits(&d, 0), waits(&d, 1)), (None, Some(WaitsFor::Stream(StreamId(0)))));
        assert_eq!(waits(&d, 2), Some(WaitsFor::Stream(StreamId(1))));
        d.ended(StreamId(0));
        assert_eq!(waits(&d, 1), None);
        d.ended(StreamId(1));
        assert_eq!(waits(&d, 2), None);
    }

    #[test]
    fn a_group_moves_in_lock_step() {
        let mut d = Dependences::default();
        assert!(add(&mut d, 0, 0, &[], G) && add(&mut d, 1, 1, &[], G));
        assert_eq!(d.waits(StreamId(0), 0), None);
        d.moved(StreamId(0));
        assert_eq!(d.waits(StreamId(0), 1), Some(WaitsFor::Group(StreamId(1))));
        d.moved(StreamId(1));
        assert_eq!(d.waits(StreamId(0), 1), None);
        d.moved(StreamId(0));
        d.ended(StreamId(1));
        assert_eq!(d.waits(StreamId(0), 2), None, "nobody waits for one that has ended");
    }

    #[test]
    fn another_may_come_in_the_place_of_one_that_takes_no_part() {
        let mut d = Dependences::default();
        d.expect(GroupId(0), 2);
        assert!(add(&mut d, 0, 0, &[], G) && add(&mut d, 1, 1, &[], G));
        d.withdrawn(StreamId(1));
        assert_eq!(d.waits(StreamId(0), 0), Some(WaitsFor::Members(1)));
        assert!(add(&mut d, 2, 2, &[], G));
        assert_eq!((d.waits(StreamId(0), 0), d.waits(StreamId(2), 0)), (None, None));
        // One that has come and ended has taken part.
        d.ended(StreamId(2));
        assert_eq!(d.waits(StreamId(0), 0), None);
    }

    #[test]
    fn a_group_begins_when_its_members_have_come_and_who_comes_later_goes_on_from_there() {
        let mut d = Dependences::default();
        d.expect(GroupId(0), 2);
        assert!(add(&mut d, 0, 0, &[], G));
        assert_eq!(d.waits(StreamId(0), 0), Some(WaitsFor::Members(1)));
        assert!(add(&mut d, 1, 1, &[], G));
        assert_eq!((d.group(GroupId(0)), d.waits(StreamId(0), 0)), (Some((2, 2)), None));
        d.ended(StreamId(1));
        assert_eq!(d.waits(StreamId(0), 0), None, "it was there");
        (0..5).for_each(|_| d.moved(StreamId(0)));
        assert!(add(&mut d, 2, 2, &[], G));
        assert_eq!((d.waits(StreamId(0), 5), d.waits(StreamId(2), 0)), (None, None));
        d.moved(StreamId(0));
        assert_eq!(d.waits(StreamId(0), 6), Some(WaitsFor::Group(StreamId(2))));
        d.moved(StreamId(2));
        assert_eq!((d.waits(StreamId(0), 6), d.waits(StreamId(2), 1)), (None, None));
        d.ended(StreamId(0));
        d.ended(StreamId(2));
        assert_eq!(d.group(GroupId(0)), None);
    }

    #[test]
    fn waits_that_never_end_are_refused() {
        let mut d = Dependences::default();
        assert!(add(&mut d, 0, 0, &[], G));
        assert!(!add(&mut d, 1, 0, &[], G), "behind one of its own group on a connection");
        assert!(!add(&mut d, 1, 1, &[0], G), "after one of its own group");
        // Over another group.
        assert!(add(&mut d, 1, 1, &[], H) && add(&mut d, 2, 0, &[], H));
        assert!(!add(&mut d, 3, 1, &[], G), "1 waits for 2, which waits for 0");
        d.ended(StreamId(0));
        d.ended(StreamId(1));
        assert!(add(&mut d, 3, 1, &[], G));
    }
}
