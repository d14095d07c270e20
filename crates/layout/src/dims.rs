//! Small fixed lists of numbers, one for each dimension, and half-open boxes made of two of them.

use std::fmt;
use std::ops::Deref;

/// The most dimensions of a dataset and the most axes of a grid.
pub const MAX_DIMS: usize = 8;

/// Up to eight numbers, one for each dimension; it reads as a slice and needs no heap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Dims {
    values: [u64; MAX_DIMS],
    len: u8,
}

impl Dims {
    /// A list of the same number `len` times. At most [`MAX_DIMS`] are kept.
    pub fn filled(value: u64, len: usize) -> Dims {
        let mut d = Dims { values: [0; MAX_DIMS], len: len.min(MAX_DIMS) as u8 };
        d.values[..d.len as usize].fill(value);
        d
    }

    /// A copy of a slice; `None` when it has more than [`MAX_DIMS`] numbers.
    pub fn from_slice(values: &[u64]) -> Option<Dims> {
        (values.len() <= MAX_DIMS).then(|| Dims::from_fn(values.len(), |k| values[k]))
    }

    /// `f(0)`, `f(1)`, … for `len` dimensions. At most [`MAX_DIMS`] are kept.
    pub fn from_fn(len: usize, mut f: impl FnMut(usize) -> u64) -> Dims {
        let mut d = Dims::filled(0, len);
        for (k, v) in d.values[..d.len as usize].iter_mut().enumerate() {
            *v = f(k);
        }
        d
    }

    /// The numbers.
    pub fn as_slice(&self) -> &[u64] {
        &self.values[..self.len as usize]
    }

    /// The numbers, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u64] {
        &mut self.values[..self.len as usize]
    }

    /// Product of all; 1 for none. Wraps past 2^64: callers hold shapes that were checked.
    pub(crate) fn product(&self) -> u64 {
        self.iter().fold(1u64, |p, &n| p.wrapping_mul(n))
    }

    /// Row-major strides of an array of this shape, taking empty dimensions for one.
    pub(crate) fn row_major_strides(&self) -> Dims {
        let mut s = Dims::filled(1, self.len());
        for k in (1..self.len()).rev() {
            s.values[k - 1] = s.values[k] * self.values[k].max(1);
        }
        s
    }

    /// The index with row-major number `linear` in an array of this shape.
    pub(crate) fn unravel(&self, mut linear: u64) -> Dims {
        let mut index = Dims::filled(0, self.len());
        for k in (0..self.len()).rev() {
            let n = self.values[k].max(1);
            index.values[k] = linear % n;
            linear /= n;
        }
        index
    }

    /// Row-major number of an index in an array of this shape.
    pub(crate) fn ravel(&self, index: &[u64]) -> u64 {
        self.iter().zip(index).fold(0, |lin, (&n, &i)| lin * n + i)
    }
}

impl Deref for Dims {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        self.as_slice()
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// A half-open box of indices: `lo[k] ≤ index[k] < hi[k]` in every dimension `k`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IndexBox {
    /// First index inside, for each dimension.
    pub lo: Dims,
    /// One past the last index inside, for each dimension.
    pub hi: Dims,
}

impl IndexBox {
    /// Number of dimensions.
    pub fn ndim(&self) -> usize {
        self.lo.len()
    }

    /// Sizes of the box.
    pub fn shape(&self) -> Dims {
        Dims::from_fn(self.ndim(), |k| self.hi[k].saturating_sub(self.lo[k]))
    }

    /// Number of elements inside.
    pub fn len_elems(&self) -> u64 {
        self.shape().product()
    }

    /// Whether an index lies inside.
    pub fn contains(&self, index: &[u64]) -> bool {
        index.len() == self.ndim()
            && (0..self.ndim()).all(|k| self.lo[k] <= index[k] && index[k] < self.hi[k])
    }

    /// What lies in both; `None` when nothing does.
    pub fn intersect(&self, other: &IndexBox) -> Option<IndexBox> {
        let n = self.ndim();
        let lo = Dims::from_fn(n, |k| self.lo[k].max(other.lo[k]));
        let hi = Dims::from_fn(n, |k| self.hi[k].min(other.hi[k]));
        (0..n).all(|k| lo[k] < hi[k]).then_some(IndexBox { lo, hi })
    }
}
