//! A box of some steps of a dataset, as pieces of blocks of its object: in the order of the box and of the
//! object at once.

use super::{Fill, Meta};
use crate::volume::{Geometry, BLOCK};
use polyduct_layout::Dataset;
use std::ops::Range;

/// Indices of a dimension: `count` of them, the first `start`, each `step` after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The first.
    pub start: u64,
    /// How many.
    pub count: u64,
    /// From one to the next: at least 1 where there is a next.
    pub step: u64,
}

impl Slice {
    /// Whether all of them are below `n`, and no two the same.
    pub fn is_within(self, n: u64) -> bool {
        let last =
            self.count.saturating_sub(1).checked_mul(self.step).and_then(|n| n.checked_add(self.start));
        match self.count {
            0 => self.start <= n,
            1 => self.start < n,
            _ => self.step > 0 && last.is_some_and(|last| last < n),
        }
    }

    fn indices(self) -> impl Iterator<Item = u64> + Clone {
        (0..self.count).map(move |i| self.start + i * self.step)
    }

    /// Whether they follow each other without gaps.
    fn is_dense(self) -> bool {
        self.step == 1 || self.count <= 1
    }
}

impl From<Range<u64>> for Slice {
    fn from(range: Range<u64>) -> Slice {
        Slice { start: range.start, count: range.end.saturating_sub(range.start), step: 1 }
    }
}

/// Some bytes of a block, and where they are in the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The block of the object.
    pub block: u64,
    /// The first of its bytes.
    pub from: usize,
    /// How many.
    pub len: usize,
    /// Where they are in the box, whose elements lie in row-major order.
    pub at: usize,
}

/// The pieces of a box of some steps. It must lie within them, and they must be there.
pub fn pieces<'a>(
    meta: &'a Meta,
    geometry: Geometry,
    steps: Slice,
    of: &[Slice],
) -> impl Iterator<Item = Piece> + 'a {
    let fill = Fill::of(geometry, meta.dataset.len_bytes());
    let runs = Runs::new(&meta.dataset, of);
    let all = steps.indices().flat_map(move |step| {
        let (row, offset) = meta.place(fill, step);
        let first = row * geometry.row_blocks() + offset / BLOCK as u64;
        runs.clone().flat_map(move |run| blocks(first, run))
    });
    let mut at = 0;
    all.map(move |(block, from, len)| {
        at += len;
        Piece { block, from, len, at: at - len }
    })
}

/// The pieces of a run of a step's bytes, which must lie within it.
pub fn run(meta: &Meta, geometry: Geometry, step: u64, run: Range<u64>) -> impl Iterator<Item = Piece> {
    let fill = Fill::of(geometry, meta.dataset.len_bytes());
    let (row, offset) = meta.place(fill, step);
    let mut at = 0;
    blocks(row * geometry.row_blocks() + offset / BLOCK as u64, run).map(move |(block, from, len)| {
        at += len;
        Piece { block, from, len, at: at - len }
    })
}

/// The blocks of a run of bytes, of which byte 0 is the first of block `first`.
fn blocks(first: u64, run: Range<u64>) -> impl Iterator<Item = (u64, usize, usize)> {
    let size = BLOCK as u64;
    (run.start / size..run.end.div_ceil(size)).map(move |n| {
        let (start, end) = (run.start.max(n * size), run.end.min((n + 1) * size));
        (first + n, (start - n * size) as usize, (end - start) as usize)
    })
}

/// The contiguous bytes of a box of an array in row-major order.
#[derive(Clone)]
struct Runs {
    /// The dimensions that the runs do not cover, and the bytes from one index to the next.
    outer: Vec<(Slice, u64)>,
    /// Which of their indices is next.
    next: Vec<u64>,
    /// Bytes before a run within the dimensions that it covers.
    start: u64,
    len: u64,
    over: bool,
}

impl Runs {
    fn new(dataset: &Dataset, of: &[Slice]) -> Runs {
        let shape = dataset.shape();
        let mut strides = vec![dataset.elem().len_bytes(); shape.len()];
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d].saturating_mul(shape[d]);
        }
        let empty = of.iter().any(|slice| slice.count == 0);
        // Runs cover all dimensions behind one, and of that a part.
        let all = |d: usize| of[d].is_dense() && of[d].count == shape[d];
        let part = (0..shape.len()).rev().find(|&d| d == 0 || !all(d));
        let (start, len, outer) = match part {
            _ if empty => (0, 0, 0),
            Some(d) if of[d].is_dense() => (of[d].start * strides[d], of[d].count * strides[d], d),
            Some(d) => (0, strides[d], d + 1),
            None => (0, dataset.elem().len_bytes(), 0),
        };
        let outer: Vec<_> = of[..outer].iter().copied().zip(strides).collect();
        Runs { next: vec![0; outer.len()], outer, start, len, over: empty }
    }
}

impl Iterator for Runs {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        if self.over {
            return None;
        }
        let place = |(n, (of, stride)): (&u64, &(Slice, u64))| (of.start + n * of.step) * stride;
        let at: u64 = self.start + self.next.iter().zip(&self.outer).map(place).sum::<u64>();
        self.over = true;
        for (n, (of, _)) in self.next.iter_mut().zip(&self.outer).rev() {
            *n += 1;
            if *n < of.count {
                self.over = false;
                break;
            }
            *n = 0;
        }
        Some(at..at + self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_layout::ElemType;

    /// The bytes of a box, one by one.
    fn oracle(shape: &[u64], elem: u64, of: &[Slice]) -> Vec<u64> {
        let mut bytes = Vec::new();
        for n in 0..shape.iter().product() {
            let mut rest = n;
            let inside = (0..shape.len()).rev().all(|d| {
                let i = rest % shape[d];
                rest /= shape[d];
                of[d].indices().any(|index| index == i)
            });
            if inside {
                bytes.extend(n * elem..(n + 1) * elem);
            }
        }
        bytes
    }

    #[test]
    fn the_pieces_of_a_box_are_its_bytes_in_order() {
        let g = Geometry::new(2, 1, 2 * BLOCK as u64).unwrap();
        for (shape, elem) in [
            (&[][..], ElemType::F64),
            (&[5000], ElemType::U8),
            (&[3, 700], ElemType::F64),
            (&[2, 3, 4, 5], ElemType::F32),
            (&[40, 1, 100], ElemType::Bytes(3)),
            (&[0, 3], ElemType::U8),
        ] {
            let dataset = Dataset::new(shape, elem).unwrap();
            let mut meta = Meta::new(dataset);
            let fill = Fill::of(g, dataset.len_bytes());
            for appended in [2, 3] {
                meta.append(fill);
                meta.steps += appended;
            }
            // Each dimension: all, a part, with gaps, one, none.
            let ways = |n: u64| {
                let some = [
                    (0, n, 1),
                    (n / 3, n - n / 3 - n / 4, 1),
                    (n / 5, n.div_ceil(4), 2),
                    (n / 2, 1, 0),
                    (0, 0, 1),
                ];
                some.map(|(start, count, step)| Slice { start, count, step })
            };
            for code in 0..5_usize.pow(shape.len() as u32) {
                let of: Vec<Slice> =
                    (0..shape.len()).map(|d| ways(shape[d])[code / 5_usize.pow(d as u32) % 5]).collect();
                if !of.iter().zip(shape).all(|(of, &n)| of.is_within(n)) {
                    continue;
                }
                let steps = [Slice::from(1..4), Slice { start: 0, count: 3, step: 2 }][code % 2];
                let mut expected = Vec::new();
                let inside = oracle(shape, elem.len_bytes(), &of);
                for step in steps.indices() {
                    let (row, offset) = meta.place(fill, step);
                    expected.extend(inside.iter().map(|b| row * fill.row_bytes + offset + b));
                }
                let mut found = Vec::new();
                for p in pieces(&meta, g, steps, &of) {
                    assert!(p.len > 0 && p.from + p.len <= BLOCK && p.at == found.len());
                    let first = p.block * BLOCK as u64 + p.from as u64;
                    found.extend(first..first + p.len as u64);
                }
                assert_eq!(found, expected, "{shape:?} {of:?}");
            }
        }
    }

    #[test]
    fn what_is_not_within_is_known() {
        let of = |start, count, step| Slice { start, count, step };
        for (slice, n, within) in [
            (of(0, 0, 0), 0, true),
            (of(3, 0, 1), 2, false),
            (of(2, 1, 0), 3, true),
            (of(3, 1, 0), 3, false),
            (of(0, 2, 0), 3, false),
            (of(0, 2, 2), 3, true),
            (of(1, 2, 2), 3, false),
            (of(1, u64::MAX, u64::MAX), u64::MAX, false),
        ] {
            assert_eq!(slice.is_within(n), within, "{slice:?} {n}");
        }
    }
}
