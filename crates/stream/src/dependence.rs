//! The dependence resolver: what each stream's next step has to wait for (iWarp's network interface, section 5.3.2).
//!
//! * The streams of a connection move one after the other, in the order of registration.
//! * *Sequencing*: a stream begins when those that it comes after have ended.
//! * *Synchronisation*: of a group nobody begins step k+1 before all have moved step k.
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
    moved: u64,
}

/// The order of all streams that have not ended.
#[derive(Clone, Debug, Default)]
pub struct Dependences {
    nodes: BTreeMap<StreamId, Node>,
    /// Those of each connection, and of each group.
    lines: BTreeMap<ConnectionId, BTreeSet<StreamId>>,
    groups: BTreeMap<GroupId, BTreeSet<StreamId>>,
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
                    return Err(ControlError::Cycle { group, stream: first });
                }
                to_see.extend(&node.after);
                to_see.extend(self.lines.get(&node.connection).and_then(|line| line.range(..id).next_back()));
                to_see.extend(node.group.and_then(|group| self.groups.get(&group)).into_iter().flatten());
            }
        }
        Ok(())
    }

    /// Adds a stream that was [checked](Self::check), with a number above all others'. Those that it comes after and that
    /// there are not have ended.
    pub fn add(
        &mut self,
        id: StreamId,
        connection: ConnectionId,
        after: &[StreamId],
        group: Option<GroupId>,
    ) {
        self.lines.entry(connection).or_default().insert(id);
        if let Some(group) = group {
            self.groups.entry(group).or_default().insert(id);
        }
        self.nodes.insert(id, Node { connection, after: after.to_vec(), group, moved: 0 });
    }

    /// What the stream's step number `begun`, the next one, waits for; `None` where it may begin.
    pub fn waits(&self, id: StreamId, begun: u64) -> Option<WaitsFor> {
        let node = self.nodes.get(&id)?;
        let before = self.lines.get(&node.connection).and_then(BTreeSet::first).filter(|first| **first < id);
        let mut after = node.after.iter().filter(|id| self.nodes.contains_key(id));
        if let Some(first) = before.or_else(|| after.next()) {
            return Some(WaitsFor::Stream(*first));
        }
        let mut members = self.groups.get(&node.group?)?.iter();
        let behind = |other: &&StreamId| self.nodes.get(other).is_some_and(|node| node.moved < begun);
        members.find(behind).map(|other| WaitsFor::Group(*other))
    }

    /// One more step of the stream was moved.
    pub fn moved(&mut self, id: StreamId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.moved += 1;
        }
    }

    /// The stream has ended: nobody waits for it any more.
    pub fn ended(&mut self, id: StreamId) {
        let Some(node) = self.nodes.remove(&id) else { return };
        leave(&mut self.lines, node.connection, id);
        node.group.into_iter().for_each(|group| leave(&mut self.groups, group, id));
    }
}

fn leave<K: Ord>(sets: &mut BTreeMap<K, BTreeSet<StreamId>>, key: K, id: StreamId) {
    let Some(set) = sets.get_mut(&key) else { return };
    set.remove(&id);
    if set.is_empty() {
        sets.remove(&key);
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
