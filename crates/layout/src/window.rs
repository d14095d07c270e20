//! Windows: a box of one array that is a box of another, so that parts of several arrays make one, or one array
//! becomes several. A unit's own part is cut to its side of the window and takes the coordinates of the other
//! array; from there on a plan is made as between two mappings of one dataset.

use crate::comb::Comb;
use crate::dims::{Dims, IndexBox, MAX_DIMS};
use crate::mapping::Piece;
use crate::plan::Side;
use crate::walk::odometer;
use crate::{Dataset, LayoutError};

/// A box of a source and the box of a destination that has its elements, in the same order.
///
/// Both have the same sizes but for dimensions of size 1, which may be on one side alone: a matrix is a plane of
/// an array of three dimensions.
///
/// ```
/// use polyduct_layout::{Dataset, Dims, IndexBox, Layout, Plan, Window};
///
/// // The second of three matrices in a row, each held in rows by two units, for a unit that has half the columns
/// // of all.
/// let part = Dataset::new(&[10, 8], "f4".parse()?)?;
/// let all = Dataset::new(&[30, 8], "f4".parse()?)?;
/// let bounds = |lo: [u64; 2], hi: [u64; 2]| IndexBox { lo: Dims::from_fn(2, |k| lo[k]), hi: Dims::from_fn(2, |k| hi[k]) };
/// let second = Window::new(bounds([0, 0], [10, 8]), bounds([10, 0], [20, 8]))?;
/// let src = "block,*".parse::<Layout>()?.bind(&part, 2)?;
/// let dst = "*,block".parse::<Layout>()?.bind(&all, 2)?;
/// let plan = Plan::window_to_reader(&src, &dst, 0, &second)?;
/// assert_eq!(plan.bytes(), 10 * 4 * 4);
/// # Ok::<(), polyduct_layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    src: IndexBox,
    dst: IndexBox,
}

impl Window {
    /// The elements of `src` are those of `dst`.
    ///
    /// # Errors
    /// [`LayoutError::ShapesDiffer`] where sizes other than 1 differ.
    pub fn new(src: IndexBox, dst: IndexBox) -> Result<Window, LayoutError> {
        let (a, b) = (src.shape(), dst.shape());
        match wide(&a).eq(wide(&b)) {
            true => Ok(Window { src, dst }),
            false => Err(LayoutError::ShapesDiffer { src: a.to_vec(), dst: b.to_vec() }),
        }
    }

    /// The box of the source.
    pub fn src(&self) -> &IndexBox {
        &self.src
    }

    /// The box of the destination.
    pub fn dst(&self) -> &IndexBox {
        &self.dst
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.src.shape().contains(&0)
    }

    /// Whether the boxes lie in these datasets.
    pub(crate) fn check(&self, src: &Dataset, dst: &Dataset) -> Result<(), LayoutError> {
        for (window, dataset) in [(&self.src, src), (&self.dst, dst)] {
            let (mine, theirs) = (window.ndim(), dataset.shape().len());
            if mine != theirs {
                return Err(LayoutError::IndexDims { index: mine, dataset: theirs });
            }
            for (dim, (&hi, &size)) in window.hi.iter().zip(dataset.shape()).enumerate() {
                if hi > size {
                    return Err(LayoutError::WindowOutside { dim, hi, size });
                }
            }
        }
        Ok(())
    }

    /// A piece of the own side, cut to the window and in the coordinates of the other side: as many pieces as cut
    /// blocks make, and none where nothing is left.
    pub(crate) fn carry(&self, piece: &Piece, side: Side) -> Vec<Piece> {
        let (other, own) = side.ordered(&self.dst, &self.src);
        let n = other.ndim();
        let mut base = piece.base;
        let mut along = [[Comb::EMPTY; 2]; MAX_DIMS];
        let mut strides = Dims::filled(0, n);
        let sizes = own.shape();
        let mut own_dims = (0..own.ndim()).filter(|&dim| sizes[dim] != 1);
        for (k, size) in other.shape().iter().copied().enumerate() {
            if size == 1 {
                along[k][0] = Comb::interval(other.lo[k], other.hi[k], 0);
                continue;
            }
            let Some(dim) = own_dims.next() else { return Vec::new() };
            along[k] = piece.combs[dim].carried(own.lo[dim], own.hi[dim], other.lo[k]);
            strides.as_mut_slice()[k] = piece.strides[dim];
        }
        for dim in (0..own.ndim()).filter(|&dim| sizes[dim] == 1) {
            let Some(place) = piece.combs[dim].place(own.lo[dim]) else { return Vec::new() };
            base += place * piece.strides[dim];
        }
        // A comb that is cut at neither end is one, one that is cut in its first block is two.
        let counts = Dims::from_fn(n, |k| along[k].iter().filter(|comb| !comb.is_empty()).count() as u64);
        let pieces = odometer(counts).map(|choice| {
            let mut combs = [Comb::EMPTY; MAX_DIMS];
            for k in 0..n {
                combs[k] = along[k][choice[k] as usize];
            }
            Piece { combs, strides, base }
        });
        pieces.collect()
    }
}

/// Sizes other than 1.
fn wide(shape: &[u64]) -> impl Iterator<Item = u64> + '_ {
    shape.iter().copied().filter(|&size| size != 1)
}
