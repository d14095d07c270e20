//! What each writer unit says of its part of a step, in numbers: how much it brings of arrays whose size changes.
//!
//! They lie beside the state of the slot, are said before the part is published, and are read after the step
//! has become visible. A number is stored as one more than it is: zero is one that nobody has said, as in a
//! [state made anew](super::rebuild) after the unit that said it was lost.

use super::{Slots, Turn};
use polyduct_os::sync::Ordering;

impl Slots {
    /// Says the numbers of writer `unit`'s part of a step that it fills, as many as the
    /// [sizes](super::geometry::Sizes::words) say, each below `u64::MAX`. Before [`publish`](Self::publish).
    pub fn bring(&self, unit: u32, turn: Turn, numbers: &[u64]) {
        let is_slot = turn.slot < self.sizes().depth;
        for (word, &number) in (0..self.sizes().words).zip(numbers).filter(|_| is_slot) {
            let (line, at) = self.geometry.brought(turn.slot, unit, word);
            self.line(line).w[at].store(number.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Whether a unit has said other numbers of a step in a slot than these.
    pub fn said_others(&self, unit: u32, turn: Turn, numbers: &[u64]) -> bool {
        self.said(unit, turn).is_some_and(|said| said != numbers)
    }

    /// The numbers that a unit has said of a step in a slot; `None` where it has not said all.
    fn said(&self, unit: u32, turn: Turn) -> Option<Vec<u64>> {
        let number = |word| {
            let (line, at) = self.geometry.brought(turn.slot, unit, word);
            self.line(line).w[at].load(Ordering::Relaxed).checked_sub(1)
        };
        (0..self.sizes().words).map(number).collect()
    }

    /// The numbers of all writer units of a visible step, one unit behind the other; `None` where one of them
    /// was not said.
    pub fn brought(&self, turn: Turn) -> Option<Vec<u64>> {
        let each = (0..self.sizes().writers).map(|unit| self.said(unit, turn));
        Some(each.collect::<Option<Vec<_>>>()?.concat())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::geometry::Sizes;
    use crate::{Begin, Next, Slots};
    use polyduct_port::Policy;

    #[test]
    fn numbers_of_all_units_come_with_the_step() {
        for policy in [Policy::Block, Policy::Latest] {
            let slots = Slots::on_heap(Sizes { writers: 3, readers: vec![1], depth: 2, policy, words: 3 });
            for step in 0..5u64 {
                for unit in 0..3 {
                    let Ok(Some(Begin::Fill(turn))) = slots.poll_begin(unit, step) else { panic!("no slot") };
                    slots.bring(unit, turn, &[step, unit.into(), u64::MAX - 1]);
                    slots.publish(unit, turn);
                }
                let Ok(Some(Next::Step(turn))) = slots.poll_next(0, 0, step) else { panic!("no step") };
                let all = (0..3).flat_map(|unit| [step, unit, u64::MAX - 1]).collect::<Vec<_>>();
                assert_eq!(slots.brought(turn), Some(all));
                slots.release(0, 0, step, turn);
            }
        }
    }

    #[test]
    fn a_number_that_nobody_has_said_is_none() {
        let sizes = Sizes { writers: 2, readers: vec![1], depth: 1, policy: Policy::Block, words: 1 };
        let slots = Slots::on_heap(sizes);
        let Ok(Some(Begin::Fill(turn))) = slots.poll_begin(1, 0) else { panic!("no slot") };
        slots.bring(1, turn, &[0]);
        assert_eq!(slots.brought(turn), None);
        slots.bring(0, turn, &[7]);
        assert_eq!(slots.brought(turn), Some(vec![7, 0]));
    }
}
