//! Pictures of arrays that are too large to be sent: each unit reduces its part to a [`Tile`] of a [`Grid`]
//! of pixels, and a [`Picture`] is composed of the tiles of all units.
//!
//! Pure functions over bytes. A pixel at the boundary of parts has something of each: its tiles bring the
//! mean of *their* elements, and what each weighs follows from the geometry alone.
//!
//! ```
//! use polyduct_display::reduce::{Grid, Part, Picture, Reduce, Tile};
//! use polyduct_layout::ElemType;
//!
//! // 2×6 elements of two units, 2×3 each, as 1×2 pixels.
//! let grid = Grid::new([0, 0], [2, 6], [1, 2])?;
//! let mut picture = Picture::new(grid.clone(), Reduce::Mean);
//! for (unit, bytes) in [[1u8, 2, 3, 1, 2, 3], [7, 8, 9, 7, 8, 9]].iter().enumerate() {
//!     let first = 3 * unit as u64;
//!     let part = Part::new(ElemType::U8, [0, first], [2, first + 3], bytes)?;
//!     picture.add(&Tile::of(&grid, Reduce::Mean, &part)?)?;
//! }
//! assert_eq!(picture.finish(), [2.0, 8.0]);
//! # Ok::<(), polyduct_display::reduce::ReduceError>(())
//! ```

mod grid;
mod kernel;
mod picture;
mod tile;

pub use grid::{Grid, MAX_PIXELS};
pub use picture::Picture;
pub use tile::{Part, Tile};

use polyduct_layout::ElemType;
use thiserror::Error;

/// What becomes of the elements that one pixel covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Their mean; NaN where one of them is.
    Mean,
    /// The largest of them; NaN only where all of them are.
    Max,
    /// The one in the middle; no other is touched.
    Sample,
}

impl Reduce {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Reduce::Mean => "mean",
            Reduce::Max => "max",
            Reduce::Sample => "sample",
        }
    }

    /// The one of that name.
    pub fn of_name(name: &str) -> Option<Reduce> {
        [Reduce::Mean, Reduce::Max, Reduce::Sample].into_iter().find(|r| r.name() == name)
    }
}

/// Why a grid, a part or a tile cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReduceError {
    /// The window has no element.
    #[error("the window {lo:?}..{hi:?} is empty")]
    Window {
        /// Its first element.
        lo: [u64; 2],
        /// One past its last element.
        hi: [u64; 2],
    },
    /// No pixel, or too many.
    #[error("{pixels:?} pixels: 1 to {MAX_PIXELS} on each axis are expected")]
    Pixels {
        /// Rows and columns asked for.
        pixels: [u32; 2],
    },
    /// The elements are only carried, and have no value.
    #[error("elements of type {elem} have no value that can be shown")]
    Elem {
        /// Their type.
        elem: ElemType,
    },
    /// A part has fewer bytes than its box needs.
    #[error("the part {lo:?}..{hi:?} needs {expected} bytes, {found} found")]
    Bytes {
        /// The part's first element.
        lo: [u64; 2],
        /// One past its last element.
        hi: [u64; 2],
        /// Bytes needed; `u64::MAX` when they are more than can be counted.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// A tile has another number of values than its part gives.
    #[error("a tile of the part {lo:?}..{hi:?} has {expected} values, {found} found")]
    Values {
        /// The part's first element.
        lo: [u64; 2],
        /// One past its last element.
        hi: [u64; 2],
        /// Values that it has.
        expected: u64,
        /// Values found.
        found: u64,
    },
    /// A tile belongs to another grid, or is reduced in another way, than the picture.
    #[error(
        "a {} tile of {shape:?} pixels from {first:?} does not fit a {} picture",
        .found.name(),
        .expected.name()
    )]
    Tile {
        /// How the picture is reduced.
        expected: Reduce,
        /// How the tile is.
        found: Reduce,
        /// The tile's first pixel.
        first: [usize; 2],
        /// Its rows and columns.
        shape: [usize; 2],
    },
}
