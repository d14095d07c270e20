//! The lossless queue: step `n` lives in slot `n % depth`, and every reader program reads every step.
//!
//! One word a slot says the newest step visible in it, one word for each program and slot how many it has
//! released. A step of 8 bytes from one process to another takes three cache lines: the slot's word and its
//! data to the reader, the released word back.

use super::{Next, Slots, Stop, Turn};
use polyduct_os::sync::Ordering;

impl Slots {
    pub(super) fn block_turn(&self, n: u64) -> Turn {
        let depth = u64::from(self.sizes().depth);
        let round = n / depth;
        Turn { step: n, slot: (n % depth) as u32, sense: round.is_multiple_of(2), uses: round + 1 }
    }

    /// The turn of step `n` for a writer that has yet to ask for it, where its slot is free and nothing
    /// speaks against the step. Nothing ends by this.
    pub fn free_turn(&self, n: u64) -> Option<Turn> {
        let is_over = self.fault().is_some() || self.readers_are_gone();
        let is_closed = self.first_close().is_some_and(|(closed_after, _)| n >= closed_after);
        self.poll_begin_block(n).filter(|_| !is_over && !is_closed)
    }

    pub(super) fn poll_begin_block(&self, n: u64) -> Option<Turn> {
        let turn = self.block_turn(n);
        // The slot's previous user is step n - depth.
        self.is_released(Turn { uses: turn.uses - 1, ..turn }).then_some(turn)
    }

    pub(super) fn show_block(&self, turn: Turn) {
        self.line(self.geometry.slot(turn.slot)).w[0].store(turn.step + 1, Ordering::Release);
    }

    pub(super) fn is_shown_block(&self, turn: Turn) -> bool {
        self.line(self.geometry.slot(turn.slot)).w[0].load(Ordering::Acquire) > turn.step
    }

    pub(super) fn poll_next_block(&self, k: u64) -> Result<Option<Next>, Stop> {
        let turn = self.block_turn(k);
        let shown = self.line(self.geometry.slot(turn.slot)).w[0].load(Ordering::Acquire);
        if shown == k + 1 {
            return Ok(Some(Next::Step(turn)));
        }
        let before = (k + 1).saturating_sub(u64::from(self.sizes().depth));
        if shown != before {
            return Err(Stop::Corrupt("a slot shows a step that cannot be in it"));
        }
        Ok(self.ends_before(k).then_some(Next::End))
    }
}
