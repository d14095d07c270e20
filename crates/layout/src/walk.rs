//! Going through parts piece by piece, lazily: boxes of combs, runs of digits, boxes of runs.

use crate::digits::Digits;
use crate::dims::{Dims, IndexBox};
use crate::mapping::Piece;

/// The boxes of a piece, the last dimension fastest. The combs must not be empty.
pub(crate) fn piece_boxes(piece: Piece) -> impl Iterator<Item = IndexBox> {
    let n = piece.strides.len();
    let counts = Dims::from_fn(n, |k| piece.combs[k].blocks());
    odometer(counts).map(move |at| IndexBox {
        lo: Dims::from_fn(n, |k| piece.combs[k].block(at[k]).0),
        hi: Dims::from_fn(n, |k| piece.combs[k].block(at[k]).1),
    })
}

/// All indices below `counts`, the last dimension fastest; one empty index for no dimension.
pub(crate) fn odometer(counts: Dims) -> impl Iterator<Item = Dims> {
    let first = counts.iter().all(|&c| c > 0).then(|| Dims::filled(0, counts.len()));
    std::iter::successors(first, move |at| {
        let mut at = *at;
        for k in (0..counts.len()).rev() {
            at.as_mut_slice()[k] += 1;
            if at[k] < counts[k] {
                return Some(at);
            }
            at.as_mut_slice()[k] = 0;
        }
        None
    })
}

/// The boxes that `len` elements from number `first` of the row-major order make: at most two for each
/// dimension but one.
pub(crate) fn run_boxes(shape: Dims, first: u64, len: u64) -> impl Iterator<Item = IndexBox> {
    let strides = shape.row_major_strides();
    let (mut at, end) = (first, first + len);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let index = shape.unravel(at);
        // The slowest dimension along which whole slices begin here and fit.
        let fits = |k: &usize| at % strides[*k] == 0 && end - at >= strides[*k];
        let Some(dim) = (0..shape.len()).find(fits) else {
            at = end;
            return Some(IndexBox { lo: index, hi: index });
        };
        let slices = (shape[dim] - index[dim]).min((end - at) / strides[dim]);
        at += slices * strides[dim];
        let hi = Dims::from_fn(shape.len(), |k| match k.cmp(&dim) {
            std::cmp::Ordering::Less => index[k] + 1,
            std::cmp::Ordering::Equal => index[k] + slices,
            std::cmp::Ordering::Greater => shape[k],
        });
        Some(IndexBox { lo: index, hi })
    })
}

/// The rows along the last dimension that `len` elements from number `first` of the row-major order make.
pub(crate) fn run_rows(shape: Dims, first: u64, len: u64) -> impl Iterator<Item = IndexBox> {
    let last = shape.last().copied().unwrap_or(1).max(1);
    let (mut at, end) = (first, first + len);
    std::iter::from_fn(move || {
        let n = (last - at % last).min(end.saturating_sub(at));
        let lo = shape.unravel(at);
        let fastest = shape.len().wrapping_sub(1);
        let hi = Dims::from_fn(shape.len(), |k| lo[k] + if k == fastest { n } else { 1 });
        at += n;
        (n > 0).then_some(IndexBox { lo, hi })
    })
}

/// Elements that follow each other in the row-major order, at equal distances in the part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Row-major number of the first.
    pub element: u64,
    pub len: u64,
    /// Offset of the first in the part, in elements.
    pub offset: u64,
    /// Elements of the part from one to the next.
    pub step: u64,
}

/// The runs of a unit of a digit mapping, in row-major order; the lowest digits that make one step are one
/// run.
pub(crate) fn digit_runs(digits: &Digits, unit: u64) -> impl Iterator<Item = Run> + '_ {
    let mut run = Run { element: 0, len: 1, offset: 0, step: 1 };
    // Loops from the fastest digit on: count, elements, offset.
    let mut loops: Vec<(u64, u64, u64)> = Vec::new();
    let mut weight = 1;
    let mut inside = true;
    for d in digits.digits.iter().rev() {
        if d.unit != 0 || d.radix == 1 {
            run.element += if d.unit == 0 { 0 } else { Digits::value(d, unit) * weight };
            inside &= d.radix == 1;
        } else if inside && (run.len == 1 || d.offset == run.step * run.len) {
            run.step = if run.len == 1 { d.offset } else { run.step };
            run.len *= d.radix;
        } else {
            inside = false;
            loops.push((d.radix, weight, d.offset));
        }
        weight *= d.radix;
    }
    let mut at = Some(vec![0u64; loops.len()]);
    std::iter::from_fn(move || {
        let now = at.as_mut()?;
        let mut this = run;
        for (i, l) in now.iter().zip(&loops) {
            this.element += i * l.1;
            this.offset += i * l.2;
        }
        match (0..loops.len()).find(|&k| now[k] + 1 < loops[k].0) {
            None => at = None,
            Some(k) => {
                now[..k].fill(0);
                now[k] += 1;
            }
        }
        Some(this)
    })
}
