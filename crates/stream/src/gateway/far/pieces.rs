//! What is here of a step whose bytes come in any order, in part, and more than once.

use std::collections::BTreeMap;
use std::ops::Range;

/// A step that is being put together.
#[derive(Debug)]
pub struct Pieces {
    /// Bytes of the step.
    pub len: u64,
    /// Something was said of it: of a step without bytes that is all there is.
    begun: bool,
    /// What is here: where it begins and ends, without gaps of no bytes between two.
    here: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Pieces {
    /// Nothing is here yet.
    pub fn new(len: u64) -> Pieces {
        Pieces { len, begun: false, here: BTreeMap::new(), bytes: 0 }
    }

    /// Whether all is here.
    pub fn is_whole(&self) -> bool {
        self.begun && self.bytes == self.len
    }

    /// Whether these bytes are here.
    pub fn has(&self, at: &Range<u64>) -> bool {
        let last = self.here.range(..=at.start).next_back();
        self.begun && (at.is_empty() || last.is_some_and(|(_, &end)| end >= at.end))
    }

    /// These bytes are here, maybe again.
    pub fn add(&mut self, at: &Range<u64>) {
        self.begun = true;
        if at.is_empty() {
            return;
        }
        let Range { mut start, mut end } = at.clone();
        // Those that it touches become one with it; the last of them may reach beyond.
        while let Some((&from, &to)) = self.here.range(..=end).next_back().filter(|(_, &to)| to >= start) {
            self.here.remove(&from);
            self.bytes -= to - from;
            (start, end) = (start.min(from), end.max(to));
        }
        self.here.insert(start, end);
        self.bytes += end - start;
    }

    /// What is here, in order; of a step without bytes no bytes, once.
    pub fn here(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let none = (self.begun && self.len == 0).then_some(0..0);
        none.into_iter().chain(self.here.iter().map(|(&start, &end)| start..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_rig::Random;

    #[test]
    fn it_knows_what_a_bitmap_knows() {
        for seed in 0..200 {
            let (mut random, mut pieces, mut bits) = (Random::new(seed), Pieces::new(60), [false; 60]);
            for _ in 0..40 {
                let start = random.below(60);
                let at = start..start + 1 + random.below((60 - start).min(9));
                let all = |bits: &[bool; 60]| bits[at.start as usize..at.end as usize].iter().all(|&bit| bit);
                assert_eq!(pieces.has(&at), all(&bits), "seed {seed}: {at:?}");
                if random.below(3) > 0 {
                    pieces.add(&at);
                    bits[at.start as usize..at.end as usize].fill(true);
                }
                let here: Vec<_> = pieces.here().collect();
                assert!(here.windows(2).all(|two| two[0].end < two[1].start), "{here:?}");
                let bytes = here.into_iter().flatten().inspect(|&n| assert!(bits[n as usize])).count();
                assert_eq!(bytes, bits.iter().filter(|&&bit| bit).count());
                assert_eq!(pieces.is_whole(), bits.iter().all(|&bit| bit));
            }
        }
    }

    #[test]
    fn a_step_without_bytes_is_here_once_it_was_told_of() {
        let mut pieces = Pieces::new(0);
        assert!(!pieces.is_whole() && !pieces.has(&(0..0)) && pieces.here().next().is_none());
        pieces.add(&(0..0));
        assert!(pieces.is_whole() && pieces.has(&(0..0)) && pieces.here().eq(std::iter::once(0..0)));
    }
}
