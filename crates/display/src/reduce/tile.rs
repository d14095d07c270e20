//! A part of an array, and what it gives to a picture.

use super::{kernel, Grid, Reduce, ReduceError};
use polyduct_layout::ElemType;

/// A part of a 2-D array in memory: a box of the whole array, row-major.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    pub(super) elem: ElemType,
    pub(super) lo: [u64; 2],
    pub(super) hi: [u64; 2],
    /// From the beginning of one row to that of the next.
    pub(super) stride_bytes: usize,
    pub(super) bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// The box `lo..hi` of the whole array, whose rows lie one behind another in `bytes`.
    ///
    /// # Errors
    /// [`ReduceError::Bytes`] when there are fewer bytes than the box needs.
    pub fn new(elem: ElemType, lo: [u64; 2], hi: [u64; 2], bytes: &'a [u8]) -> Result<Part<'a>, ReduceError> {
        Part::with_stride(elem, lo, hi, hi[1].saturating_sub(lo[1]), bytes)
    }

    /// The same with `stride_elems` elements from row to row, where rows have a halo beside them.
    ///
    /// # Errors
    /// [`ReduceError::Bytes`], as [`new`](Part::new); also when the stride is less than a row.
    pub fn with_stride(
        elem: ElemType,
        lo: [u64; 2],
        hi: [u64; 2],
        stride_elems: u64,
        bytes: &'a [u8],
    ) -> Result<Part<'a>, ReduceError> {
        let [rows, columns] = [0, 1].map(|axis| hi[axis].saturating_sub(lo[axis]));
        let needed = match (rows, columns) {
            (0, _) | (_, 0) => Some(0),
            _ if stride_elems < columns => None,
            _ => (rows - 1)
                .checked_mul(stride_elems)
                .and_then(|n| n.checked_add(columns))
                .and_then(|n| n.checked_mul(elem.len_bytes())),
        };
        let found = bytes.len() as u64;
        let expected = needed.unwrap_or(u64::MAX);
        if expected > found {
            return Err(ReduceError::Bytes { lo, hi, expected, found });
        }
        // With one row or none it may be any number, and is not used.
        let stride_bytes =
            if rows > 1 && columns > 0 { (stride_elems * elem.len_bytes()) as usize } else { 0 };
        Ok(Part { elem, lo, hi, stride_bytes, bytes })
    }
}

/// What a part gives to the pixels of a grid: of each, row by row, the mean, the largest or the middle one of
/// the elements that the part has of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tile {
    pub(super) reduce: Reduce,
    /// The part's box.
    pub(super) lo: [u64; 2],
    pub(super) hi: [u64; 2],
    pub(super) first: [usize; 2],
    pub(super) shape: [usize; 2],
    values: Vec<f32>,
}

impl Tile {
    /// Reduces a part.
    ///
    /// # Errors
    /// [`ReduceError::Elem`] when its elements are only carried.
    pub fn of(grid: &Grid, reduce: Reduce, part: &Part<'_>) -> Result<Tile, ReduceError> {
        let mut tile = Tile::place(grid, reduce, part.lo, part.hi);
        tile.values = kernel::reduce(grid, &tile, part).ok_or(ReduceError::Elem { elem: part.elem })?;
        Ok(tile)
    }

    /// A tile that another process made of its part `lo..hi`: [its values](Tile::values) are all that has to
    /// be carried, since the rest follows from the grid and the part.
    ///
    /// # Errors
    /// [`ReduceError::Values`] when there are more or fewer than such a part gives.
    pub fn from_values(
        grid: &Grid,
        reduce: Reduce,
        lo: [u64; 2],
        hi: [u64; 2],
        values: Vec<f32>,
    ) -> Result<Tile, ReduceError> {
        let tile = Tile::place(grid, reduce, lo, hi);
        let [expected, found] = [tile.shape[0] * tile.shape[1], values.len()].map(|n| n as u64);
        if expected != found {
            return Err(ReduceError::Values { lo, hi, expected, found });
        }
        Ok(Tile { values, ..tile })
    }

    fn place(grid: &Grid, reduce: Reduce, lo: [u64; 2], hi: [u64; 2]) -> Tile {
        let pixels = [0, 1].map(|axis| grid.pixels(axis, reduce, lo[axis], hi[axis]));
        let (first, shape) = (pixels.clone().map(|p| p.start), pixels.map(|p| p.len()));
        Tile { reduce, lo, hi, first, shape, values: Vec::new() }
    }

    /// Rows and columns of pixels that the part `lo..hi` has something of.
    pub fn shape_of(grid: &Grid, reduce: Reduce, lo: [u64; 2], hi: [u64; 2]) -> [usize; 2] {
        Tile::place(grid, reduce, lo, hi).shape
    }

    /// The first pixel, as row and column of the grid.
    pub fn first(&self) -> [usize; 2] {
        self.first
    }

    /// Rows and columns of pixels; none where the part lies outside the window.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// A value for each pixel, row by row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }
}
