//! Pixels over a window of an array.

use super::{Reduce, ReduceError};
use std::ops::Range;

/// Pixels on one edge of a grid at most.
pub const MAX_PIXELS: u32 = 4096;

/// A grid of pixels that covers a window of a 2-D array.
///
/// Pixel `i` of `p` on an axis of `n` elements covers elements `i·n/p .. (i+1)·n/p` of the window, rounded
/// down: every element lies in one pixel, and every pixel has one element at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// Where the pixels begin, and behind the last where it ends, on each axis.
    edges: [Vec<u64>; 2],
}

impl Grid {
    /// A grid over the half-open box `lo..hi` with `pixels` rows and columns, or fewer where the window has
    /// fewer elements. A 1-D array is one row.
    ///
    /// # Errors
    /// [`ReduceError::Window`] for an empty window, [`ReduceError::Pixels`] for no pixel or more than
    /// [`MAX_PIXELS`] on an axis.
    pub fn new(lo: [u64; 2], hi: [u64; 2], pixels: [u32; 2]) -> Result<Grid, ReduceError> {
        if (0..2).any(|axis| lo[axis] >= hi[axis]) {
            return Err(ReduceError::Window { lo, hi });
        }
        if pixels.iter().any(|p| *p == 0 || *p > MAX_PIXELS) {
            return Err(ReduceError::Pixels { pixels });
        }
        let edges = [0, 1].map(|axis| {
            let n = hi[axis] - lo[axis];
            let p = u64::from(pixels[axis]).min(n);
            let edge = |i: u64| lo[axis] + (u128::from(i) * u128::from(n) / u128::from(p)) as u64;
            (0..=p).map(edge).collect()
        });
        Ok(Grid { edges })
    }

    /// Rows and columns of pixels.
    pub fn shape(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.edges[axis].len() - 1)
    }

    /// The window's first element on each axis.
    pub fn lo(&self) -> [u64; 2] {
        [0, 1].map(|axis| self.edges[axis][0])
    }

    /// One past the window's last element on each axis.
    pub fn hi(&self) -> [u64; 2] {
        [0, 1].map(|axis| self.edges[axis][self.edges[axis].len() - 1])
    }

    /// The elements that a pixel covers on an axis.
    pub(super) fn cover(&self, axis: usize, pixel: usize) -> Range<u64> {
        self.edges[axis][pixel]..self.edges[axis][pixel + 1]
    }

    /// How many elements of `lo..hi` a pixel covers on an axis.
    pub(super) fn weight(&self, axis: usize, pixel: usize, lo: u64, hi: u64) -> u64 {
        let cover = self.cover(axis, pixel);
        cover.end.min(hi).saturating_sub(cover.start.max(lo))
    }

    /// The element in the middle of a pixel on an axis.
    pub(super) fn middle(&self, axis: usize, pixel: usize) -> u64 {
        let cover = self.cover(axis, pixel);
        cover.start + (cover.end - cover.start) / 2
    }

    /// The pixels of an axis to which the elements `lo..hi` give something.
    pub(super) fn pixels(&self, axis: usize, reduce: Reduce, lo: u64, hi: u64) -> Range<usize> {
        let count = self.shape()[axis];
        let (first, end) = match reduce {
            Reduce::Sample => {
                let before = |at| partition(count, |i| self.middle(axis, i) < at);
                (before(lo), before(hi))
            }
            Reduce::Mean | Reduce::Max => (
                partition(count, |i| self.cover(axis, i).end <= lo),
                partition(count, |i| self.cover(axis, i).start < hi),
            ),
        };
        if lo < hi && first < end {
            first..end
        } else {
            0..0
        }
    }
}

/// How many of `0..count` come before those for which `before` no longer holds.
fn partition(count: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut lo, mut hi) = (0, count);
    while lo < hi {
        let middle = lo + (hi - lo) / 2;
        if before(middle) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    lo
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn grids_that_cannot_be_are_refused() {
        assert!(matches!(Grid::new([0, 3], [4, 3], [1, 1]), Err(ReduceError::Window { .. })));
        assert!(matches!(Grid::new([5, 0], [4, 3], [1, 1]), Err(ReduceError::Window { .. })));
        assert!(matches!(Grid::new([0, 0], [4, 3], [0, 1]), Err(ReduceError::Pixels { .. })));
        assert!(matches!(Grid::new([0, 0], [4, 3], [1, MAX_PIXELS + 1]), Err(ReduceError::Pixels { .. })));
        let huge = Grid::new([1, 0], [u64::MAX, u64::MAX], [MAX_PIXELS, 3]).unwrap();
        assert_eq!((huge.lo(), huge.hi()), ([1, 0], [u64::MAX, u64::MAX]));
    }

    proptest! {
        #[test]
        fn pixels_are_found_as_looking_at_each_finds_them(
            lo in 0u64..50, n in 1u64..200, p in 1u32..200, part in (0u64..300, 0u64..300),
        ) {
            let grid = Grid::new([0, lo], [1, lo + n], [1, p]).unwrap();
            let (part_lo, part_hi) = (part.0.min(part.1), part.0.max(part.1));
            for reduce in [Reduce::Mean, Reduce::Max, Reduce::Sample] {
                let gives = |i: &usize| match reduce {
                    Reduce::Sample => (part_lo..part_hi).contains(&grid.middle(1, *i)),
                    _ => grid.weight(1, *i, part_lo, part_hi) > 0,
                };
                let naive: Vec<usize> = (0..grid.shape()[1]).filter(gives).collect();
                let found: Vec<usize> = grid.pixels(1, reduce, part_lo, part_hi).collect();
                prop_assert_eq!(found, naive);
            }
            let all: u64 = (0..grid.shape()[1]).map(|i| grid.weight(1, i, 0, u64::MAX)).sum();
            prop_assert_eq!(all, n);
        }
    }
}
