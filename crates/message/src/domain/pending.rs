//! Calls that wait for their answer: numbers, deadlines, cancellation. A state machine without I/O.
//!
//! A call is a message with a number, and so is its answer (StarT-X, "non-blocking remote procedure call,
//! shared by the threads of a node"). The caller's table holds what is asked and not yet fetched; a late
//! answer finds no entry and is dropped. Numbers are not used again before 2³² others.

pub use crate::error::CallError;
use crate::types::Address;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Calls that a unit has under way at once, at most.
pub const MAX_CALLS: usize = 65_536;

/// A call that is under way, or whose outcome nobody has fetched yet.
struct Entry<A> {
    to: Address,
    name: String,
    asked: Duration,
    deadline: Option<Duration>,
    outcome: Option<Result<A, CallError>>,
}

/// The calls of a unit. `A` is an answer.
pub struct Calls<A> {
    entries: HashMap<u32, Entry<A>>,
    /// Deadlines of the calls under way, with their numbers: every wait asks for the first.
    deadlines: BTreeSet<(Duration, u32)>,
    next: u32,
}

impl<A> Default for Calls<A> {
    fn default() -> Self {
        Calls { entries: HashMap::new(), deadlines: BTreeSet::new(), next: 0 }
    }
}

impl<A> Calls<A> {
    /// Notes a call that begins at `now`: its number, or `None` when [`MAX_CALLS`] are under way.
    pub fn ask(&mut self, to: Address, name: &str, now: Duration, deadline: Option<Duration>) -> Option<u32> {
        if self.entries.len() >= MAX_CALLS {
            return None;
        }
        while self.entries.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let name = name.to_owned();
        self.entries.insert(number, Entry { to, name, asked: now, deadline, outcome: None });
        self.deadlines.extend(deadline.map(|at| (at, number)));
        Some(number)
    }

    /// A call that is under way ends; `None` where there is none. `of`: how, for its entry.
    fn end(
        &mut self,
        number: u32,
        of: impl FnOnce(&Entry<A>) -> Option<Result<A, CallError>>,
    ) -> Option<Address> {
        let entry = self.entries.get_mut(&number).filter(|e| e.outcome.is_none())?;
        entry.outcome = Some(of(entry)?);
        let (to, deadline) = (entry.to, entry.deadline);
        if let Some(at) = deadline {
            self.deadlines.remove(&(at, number));
        }
        Some(to)
    }

    /// Calls under way, and outcomes that nobody has fetched.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// An answer came from `from`. What nobody asks for any more, or somebody else was asked for, is dropped:
    /// `false`.
    pub fn handle_answer(&mut self, from: Address, number: u32, answer: Result<A, String>) -> bool {
        let outcome = |entry: &Entry<A>| {
            let name = || entry.name.clone();
            let failed = |error| CallError::Failed { unit: from, name: name(), error };
            (entry.to == from).then(|| answer.map_err(failed))
        };
        self.end(number, outcome).is_some()
    }

    /// A unit is gone: so are the calls to it.
    pub fn handle_gone(&mut self, unit: Address) {
        let under_way = self.entries.iter().filter(|(_, e)| e.to == unit && e.outcome.is_none());
        let numbers: Vec<u32> = under_way.map(|(&number, _)| number).collect();
        for number in numbers {
            self.end(number, |entry| Some(Err(CallError::PeerGone { unit, name: entry.name.clone() })));
        }
    }

    /// Time has passed: returns the calls that came to their deadline, whose callees are to be told.
    pub fn handle_time(&mut self, now: Duration) -> Vec<(Address, u32)> {
        let mut late = Vec::new();
        while let Some(&(_, number)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            let to = self.end(number, |entry| {
                let waited = now.saturating_sub(entry.asked);
                Some(Err(CallError::Deadline { unit: entry.to, name: entry.name.clone(), waited }))
            });
            late.extend(to.map(|to| (to, number)));
        }
        late
    }

    /// The caller gives a call up. Returns whether the callee is to be told.
    pub fn cancel(&mut self, number: u32) -> Option<Address> {
        self.end(number, |entry| Some(Err(CallError::Cancelled { unit: entry.to, name: entry.name.clone() })))
    }

    /// Whether there is an outcome that nobody has fetched.
    pub fn has_outcome(&self, number: u32) -> bool {
        self.entries.get(&number).is_some_and(|entry| entry.outcome.is_some())
    }

    /// The outcome, once; `None` while the call is under way.
    pub fn poll_outcome(&mut self, number: u32) -> Option<Result<A, CallError>> {
        self.entries.get(&number)?.outcome.as_ref()?;
        self.entries.remove(&number)?.outcome
    }

    /// Nobody will fetch the outcome. Returns whom to tell, if the call is still under way.
    pub fn forget(&mut self, number: u32) -> Option<Address> {
        let entry = self.entries.remove(&number)?;
        if let Some(at) = entry.deadline {
            self.deadlines.remove(&(at, number));
        }
        entry.outcome.is_none().then_some(entry.to)
    }

    /// When [`handle_time`](Self::handle_time) is due next.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn answers_find_their_calls_whatever_their_order() {
        let mut calls = Calls::default();
        let numbers: Vec<u32> = (0..3).map(|to| calls.ask(to, "f", MS, None).unwrap()).collect();
        for &i in &[2, 0, 1] {
            assert_eq!(calls.poll_outcome(numbers[i as usize]), None);
            assert!(!calls.handle_answer(i + 1, numbers[i as usize], Ok(9)), "somebody else answered");
            assert!(calls.handle_answer(i, numbers[i as usize], Ok(i)));
            assert!(!calls.handle_answer(i, numbers[i as usize], Ok(9)), "answered twice");
            assert_eq!(calls.poll_outcome(numbers[i as usize]), Some(Ok(i)));
        }
        assert!(calls.is_empty());
        assert!(!calls.handle_answer(0, numbers[0], Ok(1)), "nobody asks any more");
    }

    #[test]
    fn every_call_ends_by_answer_death_deadline_or_cancellation() {
        let mut calls: Calls<()> = Calls::default();
        let ask = |calls: &mut Calls<()>, to, deadline: u32| {
            calls.ask(to, "f", 2 * MS, Some(deadline * MS)).unwrap()
        };
        let (late, dead, cancelled, failed) =
            (ask(&mut calls, 1, 5), ask(&mut calls, 2, 9), ask(&mut calls, 3, 9), ask(&mut calls, 4, 9));
        assert_eq!(calls.next_deadline(), Some(5 * MS));
        assert_eq!(calls.handle_time(4 * MS), []);
        assert_eq!(calls.handle_time(5 * MS), [(1, late)]);
        calls.handle_gone(2);
        assert_eq!(calls.cancel(cancelled), Some(3));
        assert_eq!(calls.cancel(cancelled), None);
        assert!(calls.handle_answer(4, failed, Err("no".into())));
        assert_eq!(calls.next_deadline(), None);
        let name = || "f".to_owned();
        let outcomes = [late, dead, cancelled, failed].map(|n| calls.poll_outcome(n).unwrap().unwrap_err());
        assert_eq!(
            outcomes,
            [
                CallError::Deadline { unit: 1, name: name(), waited: 3 * MS },
                CallError::PeerGone { unit: 2, name: name() },
                CallError::Cancelled { unit: 3, name: name() },
                CallError::Failed { unit: 4, name: name(), error: "no".into() }
            ]
        );
        assert!(calls.is_empty());
        let forgotten = ask(&mut calls, 5, 9);
        assert_eq!((calls.forget(forgotten), calls.forget(forgotten)), (Some(5), None));
    }

    #[test]
    fn the_table_has_a_limit_and_numbers_wrap() {
        let mut calls: Calls<()> = Calls { next: u32::MAX - 1, ..Calls::default() };
        for _ in 0..MAX_CALLS {
            calls.ask(0, "f", MS, None).unwrap();
        }
        assert_eq!(calls.ask(0, "f", MS, None), None);
        assert_eq!(calls.forget(5), Some(0));
        assert!(calls.ask(0, "f", MS, None).is_some());
    }
}
