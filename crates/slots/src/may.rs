//! Tells whether asking for a step would find something. Nothing is decided by that: programs that poll look
//! long before they ask.

use super::Slots;

impl Slots {
    /// Whether [`poll_begin`](Slots::poll_begin) would say something. Decides nothing: whether a queue finds
    /// room for a step or drops it waits until the step is asked for.
    pub fn may_begin(&self, unit: u32, n: u64) -> bool {
        if !self.is_lossy() || unit != 0 || self.fault().is_some() {
            return !matches!(self.poll_begin(unit, n), Ok(None));
        }
        let closed = self.first_close().is_some_and(|(closed_after, _)| n >= closed_after);
        closed || self.readers_are_gone() || self.may_choose(n)
    }

    /// Whether [`poll_next`](Slots::poll_next) would say something. Decides nothing: under `latest` the step
    /// that is read is the newest when it is asked for.
    pub fn may_next(&self, program: u32, unit: u32, k: u64) -> bool {
        match self.is_lossy() && unit == 0 {
            true => self.may_take(program, k) || self.no_next(program, k).is_some(),
            false => !matches!(self.poll_next(program, unit, k), Ok(None)),
        }
    }

    /// Whether the writers have all closed, after as many steps.
    pub fn has_ended(&self) -> bool {
        self.ends_before(u64::MAX)
    }

    /// Whether the stream has ended, and a queue that drops steps has none any more that a program could take
    /// as its `k`-th. Decides nothing.
    pub fn has_all(&self, program: u32, k: u64) -> bool {
        self.has_ended() && self.taken(program, k).is_none() && !self.has_fresh(program, k)
    }
}
