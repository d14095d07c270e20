//! Describes a part along one dimension where its halo may go around the ends: a few combs in a row.

use crate::comb::Comb;

/// The combs of a part along one dimension, in the order of its memory: one, or around the ends up to three.
/// Those may share indices: a part of a short dimension holds some of them twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments {
    combs: [Comb; 3],
    count: usize,
}

impl Segments {
    /// One comb; none where that is empty.
    pub fn one(comb: Comb) -> Segments {
        let mut all = Segments { combs: [Comb::EMPTY; 3], count: 0 };
        all.push(comb);
        all
    }

    /// The piece `lo..hi` (not empty) of a ring of `size` indices, with so many cells (at most `size` each)
    /// before and after it.
    pub fn around(lo: u64, hi: u64, size: u64, before: u64, after: u64) -> Segments {
        // What lies before the first index and past the last one, counted from the other end.
        let (under, over) = (before.saturating_sub(lo), (hi + after).saturating_sub(size));
        let (from, to) = (lo.saturating_sub(before), size.min(hi + after));
        let mut all = Segments::one(Comb::interval(size - under, size, 0));
        all.push(Comb::interval(from, to, under));
        all.push(Comb::interval(0, over, under + (to - from)));
        all
    }

    fn push(&mut self, comb: Comb) {
        if !comb.is_empty() {
            self.combs[self.count] = comb;
            self.count += 1;
        }
    }

    /// The combs; none is empty.
    pub fn as_slice(&self) -> &[Comb] {
        &self.combs[..self.count]
    }

    /// Number of places.
    pub fn len_elems(&self) -> u64 {
        self.as_slice().iter().map(Comb::len_elems).sum()
    }
}
