//! The resource scheduler: which streams have buffers and lanes (iWarp's network interface, section 5.3.2).
//!
//! A stream that has been swapped in keeps what it has for its quantum of steps, and for as long as nobody else waits.
//! Those that wait go by priority and then by how long they have waited; who was passed over often enough goes
//! before all others, and nobody slips in before it any more. Permanent streams never give theirs back, so
//! one that would leave another too little is refused at once.

use crate::{ControlError, StreamId};
use std::collections::BTreeMap;

/// Whoever was passed over so often goes first.
pub const PATIENCE: u32 = 8;

/// What there is to share out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes of buffers.
    pub buffer_bytes: u64,
    /// Lanes.
    pub lanes: u32,
}

impl Capacity {
    fn fits(self, in_: Capacity) -> bool {
        self.buffer_bytes <= in_.buffer_bytes && self.lanes <= in_.lanes
    }

    fn minus(self, other: Capacity) -> Capacity {
        Capacity { buffer_bytes: self.buffer_bytes - other.buffer_bytes, lanes: self.lanes - other.lanes }
    }

    fn plus(self, other: Capacity) -> Capacity {
        Capacity {
            buffer_bytes: self.buffer_bytes.saturating_add(other.buffer_bytes),
            lanes: self.lanes.saturating_add(other.lanes),
        }
    }

    fn most(self, other: Capacity) -> Capacity {
        Capacity {
            buffer_bytes: self.buffer_bytes.max(other.buffer_bytes),
            lanes: self.lanes.max(other.lanes),
        }
    }
}

#[derive(Clone, Debug)]
struct Claim {
    need: Capacity,
    priority: i32,
    quantum: u32,
    permanent: bool,
    held: bool,
    /// Steps since it was swapped in, or since nobody else waited.
    used: u32,
    /// Waits since this turn, if it does.
    since: Option<u64>,
    passed: u32,
}

/// Who has what.
#[derive(Clone, Debug)]
pub struct Resources {
    all: Capacity,
    free: Capacity,
    claims: BTreeMap<StreamId, Claim>,
    turn: u64,
}

impl Resources {
    /// All of this is free.
    pub fn new(all: Capacity) -> Resources {
        Resources { all, free: all, claims: BTreeMap::new(), turn: 0 }
    }

    /// What there is, and what of it is free.
    pub fn capacity(&self) -> (Capacity, Capacity) {
        (self.all, self.free)
    }

    /// A stream that will want this. A permanent one gets it when what others hold is free again, and then keeps it.
    ///
    /// # Errors
    /// [`ControlError::NoRoom`] where it, or another, could never be served.
    pub fn add(
        &mut self,
        id: StreamId,
        need: Capacity,
        (priority, quantum, permanent): (i32, u32, bool),
    ) -> Result<(), ControlError> {
        let none = Capacity { buffer_bytes: 0, lanes: 0 };
        let permanents = self.claims.values().filter(|claim| claim.permanent);
        let mut kept = permanents.fold(none, |sum, claim| sum.plus(claim.need));
        let mut others = self
            .claims
            .values()
            .filter(|claim| !claim.permanent)
            .fold(none, |most, claim| most.most(claim.need));
        let before = (kept, others);
        match permanent {
            true => kept = kept.plus(need),
            false => others = others.most(need),
        }
        let sum = kept.plus(others);
        let short = |what, need, all, permanent, others| {
            Err(ControlError::NoRoom { what, need, all, permanent, others })
        };
        if sum.buffer_bytes > self.all.buffer_bytes {
            let (kept, others) = (before.0.buffer_bytes, before.1.buffer_bytes);
            return short("bytes of buffers", need.buffer_bytes, self.all.buffer_bytes, kept, others);
        }
        if sum.lanes > self.all.lanes {
            let (kept, others) = (before.0.lanes.into(), before.1.lanes.into());
            return short("lanes", need.lanes.into(), self.all.lanes.into(), kept, others);
        }
        let claim = Claim {
            need,
            priority,
            quantum: quantum.max(1),
            permanent,
            held: false,
            used: 0,
            since: None,
            passed: 0,
        };
        self.claims.insert(id, claim);
        if permanent {
            self.want(id);
        }
        Ok(())
    }

    /// The stream wants to move a step.
    pub fn want(&mut self, id: StreamId) {
        self.turn += 1;
        let turn = self.turn;
        if let Some(claim) = self.claims.get_mut(&id).filter(|claim| !claim.held) {
            claim.since.get_or_insert(turn);
        }
    }

    /// The stream wants nothing, for now.
    pub fn want_no_more(&mut self, id: StreamId) {
        if let Some(claim) = self.claims.get_mut(&id).filter(|claim| !claim.permanent) {
            (claim.since, claim.passed) = (None, 0);
        }
    }

    /// Whether the stream has its buffers and lanes.
    pub fn holds(&self, id: StreamId) -> bool {
        self.claims.get(&id).is_some_and(|claim| claim.held)
    }

    /// Whether a stream that holds may begin another step: its quantum is not over, or nobody waits for what it has.
    pub fn may_go_on(&mut self, id: StreamId) -> bool {
        let waits = self.somebody_waits();
        let Some(claim) = self.claims.get_mut(&id).filter(|claim| claim.held) else { return false };
        if claim.permanent {
            return true;
        }
        if !waits {
            claim.used = 0;
        }
        claim.used < claim.quantum
    }

    /// A stream begins a step.
    pub fn begin(&mut self, id: StreamId) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.used += 1;
        }
    }

    /// Whether a stream that moves nothing just now is to give back what it has: somebody waits, and its quantum is over or
    /// it cannot go on.
    pub fn should_yield(&self, id: StreamId, can_go_on: bool) -> bool {
        let Some(claim) = self.claims.get(&id).filter(|claim| claim.held && !claim.permanent) else {
            return false;
        };
        self.somebody_waits() && (!can_go_on || claim.used >= claim.quantum)
    }

    /// The stream gives back what it has.
    pub fn give_back(&mut self, id: StreamId) {
        if let Some(claim) = self.claims.get_mut(&id).filter(|claim| claim.held) {
            (claim.held, claim.used) = (false, 0);
            self.free = self.free.plus(claim.need);
        }
    }

    /// The next stream that gets its buffers and lanes, if there is one.
    pub fn swap_in(&mut self) -> Option<StreamId> {
        let mut order: Vec<(&StreamId, &Claim)> =
            self.claims.iter().filter(|(_, claim)| claim.since.is_some()).collect();
        // Permanent streams first: they ask once.
        order.sort_by_key(|(_, claim)| {
            let patient = claim.passed < PATIENCE;
            (!claim.permanent, patient, if patient { -i64::from(claim.priority) } else { 0 }, claim.since)
        });
        let mut chosen = None;
        for (&id, claim) in order {
            if claim.need.fits(self.free) {
                chosen = Some(id);
                break;
            }
            // What becomes free is for this one.
            if claim.permanent || claim.passed >= PATIENCE {
                return None;
            }
        }
        let chosen = chosen?;
        let since = self.claims[&chosen].since;
        for (id, claim) in &mut self.claims {
            if *id == chosen {
                self.free = self.free.minus(claim.need);
                (claim.held, claim.used, claim.since, claim.passed) = (true, 0, None, 0);
            } else if claim.since.is_some_and(|waits| Some(waits) < since) {
                claim.passed += 1;
            }
        }
        Some(chosen)
    }

    fn somebody_waits(&self) -> bool {
        self.claims.values().any(|claim| claim.since.is_some())
    }

    /// Changes the quantum.
    pub fn set_quantum(&mut self, id: StreamId, quantum: u32) {
        self.claims.get_mut(&id).into_iter().for_each(|claim| claim.quantum = quantum.max(1));
    }

    /// Changes the priority.
    pub fn set_priority(&mut self, id: StreamId, priority: i32) {
        self.claims.get_mut(&id).into_iter().for_each(|claim| claim.priority = priority);
    }

    /// The stream is gone, with all that it had.
    pub fn remove(&mut self, id: StreamId) {
        self.give_back(id);
        self.claims.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(buffer_bytes: u64, lanes: u32) -> Capacity {
        Capacity { buffer_bytes, lanes }
    }

    const USUAL: (i32, u32, bool) = (0, 1, false);

    #[test]
    fn the_first_that_waits_is_the_first_served_and_priorities_go_before() {
        let mut r = Resources::new(of(10, 4));
        for (id, priority) in [(0, 0), (1, 0), (2, 5)] {
            r.add(StreamId(id), of(10, 1), (priority, 1, false)).unwrap();
            r.want(StreamId(id));
        }
        assert_eq!(r.swap_in(), Some(StreamId(2)));
        assert_eq!(r.swap_in(), None);
        r.begin(StreamId(2));
        assert!(!r.may_go_on(StreamId(2)) && r.should_yield(StreamId(2), true));
        r.give_back(StreamId(2));
        assert_eq!(r.swap_in(), Some(StreamId(0)));
    }

    #[test]
    fn who_was_passed_over_goes_before_all_others() {
        let mut r = Resources::new(of(10, 4));
        r.add(StreamId(0), of(10, 1), USUAL).unwrap();
        r.add(StreamId(1), of(5, 1), (9, 1, false)).unwrap();
        r.add(StreamId(2), of(5, 1), (9, 1, false)).unwrap();
        r.want(StreamId(0));
        r.want(StreamId(1));
        r.want(StreamId(2));
        assert_eq!((r.swap_in(), r.swap_in()), (Some(StreamId(1)), Some(StreamId(2))));
        for _ in 0..PATIENCE {
            r.give_back(StreamId(1));
            r.want(StreamId(1));
            match r.swap_in() {
                Some(next) => assert_eq!(next, StreamId(1)),
                None => break,
            }
        }
        assert_eq!(r.swap_in(), None, "what is free is kept for the first");
        r.give_back(StreamId(2));
        assert_eq!(r.swap_in(), Some(StreamId(0)));
    }

    #[test]
    fn permanent_streams_leave_enough_for_the_others() {
        let mut r = Resources::new(of(10, 4));
        r.add(StreamId(0), of(6, 1), USUAL).unwrap();
        let refused = r.add(StreamId(1), of(5, 1), (0, 1, true));
        assert_eq!(
            refused,
            Err(ControlError::NoRoom { what: "bytes of buffers", need: 5, all: 10, permanent: 0, others: 6 })
        );
        r.add(StreamId(1), of(4, 1), (0, 1, true)).unwrap();
        assert_eq!(r.swap_in(), Some(StreamId(1)));
        r.want(StreamId(0));
        assert_eq!(r.swap_in(), Some(StreamId(0)));
        assert!(r.may_go_on(StreamId(1)) && !r.should_yield(StreamId(1), false));
        assert!(matches!(
            r.add(StreamId(2), of(1, 4), USUAL),
            Err(ControlError::NoRoom { what: "lanes", .. })
        ));
        r.remove(StreamId(1));
        assert_eq!(r.capacity().1, of(4, 3));
    }
}
