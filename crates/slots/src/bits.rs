//! Arrival sets: which of `n` units have come to the end of a round, kept so that a unit may arrive twice.
//!
//! A counter would do for processes that never die. Here a unit can be killed between any two instructions
//! and its replacement must be able to repeat the arrival, so each unit has a bit. The meaning of the bit
//! alternates from round to round (sense reversal), so nothing has to be reset between rounds.

use polyduct_os::sync::{Line, Ordering};

/// Where one arrival set lies among the lines of the control segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    first: usize,
    n: u32,
}

impl Bits {
    /// Lines that a set of `n` units takes: none for one unit, whose arrival is always the last.
    pub const fn lines(n: u32) -> usize {
        match n {
            0 | 1 => 0,
            2..=64 => 1,
            _ => 1 + n.div_ceil(64) as usize,
        }
    }

    /// The set of `n` units (1 to [`MAX_UNITS`](polyduct_port::MAX_UNITS)) whose lines start at `first`.
    pub const fn new(first: usize, n: u32) -> Bits {
        Bits { first, n }
    }

    /// Marks unit `i` as arrived in the round of this sense (the first round has sense `true`). Returns
    /// whether the round is complete as far as this unit can see: exactly one unit, or one unit and its
    /// replacement, get `true`.
    ///
    /// Everything written by the units before they arrived happens before the return of `true`.
    pub fn arrive(&self, lines: &[Line], i: u32, sense: bool) -> bool {
        if self.n <= 1 {
            return true;
        }
        if self.n <= 64 {
            return mark(&lines[self.first], i, self.n, sense);
        }
        let (word, words) = (i / 64, self.n.div_ceil(64));
        let members = (self.n - word * 64).min(64);
        let last_of_word = mark(&lines[self.first + 1 + word as usize], i % 64, members, sense);
        super::death::may_come();
        last_of_word && mark(&lines[self.first], word, words, sense)
    }

    /// Whether unit `i` has already arrived in the round of this sense. A set of one unit keeps no bits:
    /// `None`.
    pub fn has_arrived(&self, lines: &[Line], i: u32, sense: bool) -> Option<bool> {
        let line = match self.n {
            0 | 1 => return None,
            2..=64 => &lines[self.first],
            _ => &lines[self.first + 1 + (i / 64) as usize],
        };
        Some((line.w[0].load(Ordering::Acquire) >> (i % 64) & 1 == 1) == sense)
    }
}

fn mark(line: &Line, bit: u32, members: u32, sense: bool) -> bool {
    let full = u64::MAX >> (64 - members);
    let bit = 1 << bit;
    if sense {
        (line.w[0].fetch_or(bit, Ordering::AcqRel) | bit) & full == full
    } else {
        line.w[0].fetch_and(!bit, Ordering::AcqRel) & !bit & full == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_port::MAX_UNITS;

    #[test]
    fn the_last_arrival_completes_each_round_at_every_size() {
        for n in [1u32, 2, 3, 63, 64, 65, 128, 129, 1000, MAX_UNITS] {
            let lines: Vec<Line> = (0..Bits::lines(n)).map(|_| Line::new()).collect();
            let bits = Bits::new(0, n);
            for sense in [true, false, true] {
                for i in 0..n {
                    // A stride coprime to n visits the units in a scattered order.
                    let unit = (u64::from(i) * 7919 % u64::from(n)) as u32;
                    assert_ne!(bits.has_arrived(&lines, unit, sense), Some(true));
                    assert_eq!(bits.arrive(&lines, unit, sense), i + 1 == n, "n {n}, arrival {i}");
                }
            }
        }
    }

    #[test]
    fn a_replacement_may_arrive_again() {
        let lines: Vec<Line> = (0..Bits::lines(70)).map(|_| Line::new()).collect();
        let bits = Bits::new(0, 70);
        for i in 0..69 {
            assert!(!bits.arrive(&lines, i, true));
            assert!(!bits.arrive(&lines, i, true));
        }
        assert!(bits.arrive(&lines, 69, true));
        assert!(bits.arrive(&lines, 3, true), "a repeated arrival in a complete round sees it complete");
    }
}
