//! A writer whose predecessor has taken what it published with it: it fills again what some reader lacks.

use super::lossy::{FILLING, VISIBLE};
use super::{Begin, Poll, Slots, Turn};

impl Slots {
    /// The first step before `n` that some reader lacks, or may, else `n`: what a writer whose memory is gone
    /// begins with.
    pub fn first_needed(&self, n: u64) -> u64 {
        let depth = u64::from(self.sizes().depth);
        let found = match self.is_lossy() {
            false => (n.saturating_sub(depth)..n).find(|&step| !self.is_released(self.block_turn(step))),
            true => (0..self.sizes().depth).filter_map(|slot| self.lacked(slot)).map(|turn| turn.step).min(),
        };
        found.unwrap_or(n).min(n)
    }

    /// As [`poll_begin`](Slots::poll_begin), for a writer whose predecessor published the steps before
    /// `published`, but has taken them with it. What it does with those is not
    /// [published](Slots::publish).
    pub fn poll_begin_again(&self, unit: u32, n: u64, published: u64) -> Poll<Begin> {
        if self.fault().is_some() || n >= published {
            return self.poll_begin(unit, n);
        }
        if !self.is_lossy() {
            return Ok(Some(Begin::Fill(self.block_turn(n))));
        }
        let turn = (0..self.sizes().depth).find_map(|slot| self.lacked(slot).filter(|turn| turn.step == n));
        Ok(Some(turn.map_or(Begin::Drop, Begin::Fill)))
    }

    /// Where steps are dropped: the one that lies in this slot, or is being filled there, if some reader may
    /// yet read it.
    fn lacked(&self, slot: u32) -> Option<Turn> {
        let word = self.word(slot);
        let is_lacked = match word.state() {
            FILLING => true,
            VISIBLE => word.pending() & !self.gone() != 0,
            _ => false,
        };
        is_lacked.then(|| Turn { step: word.step(), slot, sense: word.sense(), uses: 0 })
    }
}
