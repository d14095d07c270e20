//! Seeded chance: a seed that failed can be run again.

use std::time::{Duration, Instant};

/// xorshift64*.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Seeds that lie side by side give series that have nothing in common.
    pub fn new(seed: u64) -> Random {
        // Never 0, where it would stay.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1))
    }

    /// The next of the series, whole.
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        // The lowest bits are the weakest.
        (self.word() >> 11) % n
    }

    /// One of several.
    pub fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Some time below `most`, without sleeping: a sleep ends when the scheduler likes, and mostly at the
    /// same moments.
    pub fn linger(&mut self, most: Duration) {
        let end = Instant::now() + Duration::from_nanos(self.below(most.as_nanos() as u64));
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn every_number_below_comes_and_none_above() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut came = [0; 7];
            (0..1000).for_each(|_| came[random.below(7) as usize] += 1);
            assert!(came.iter().all(|&n| n > 50), "seed {seed}: {came:?}");
        }
    }
}
