//! The one error type of this crate.

use crate::ElemType;

/// Why a text, a dataset, a layout or a plan was refused. Every case is the caller's: nothing was allocated
/// for it and nothing was moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A layout text that does not parse.
    #[error("layout text, byte {position}: expected {expected}, found {found}")]
    Text {
        /// Byte position in the text where parsing stopped.
        position: usize,
        /// What would have been right there.
        expected: &'static str,
        /// What stood there, shortened; `end of text` at the end.
        found: String,
    },
    /// A layout text above the limit.
    #[error("layout text of {len} bytes; the limit is {limit}")]
    TextTooLong {
        /// Length of the text in bytes.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// An element type that is not known.
    #[error("unknown element type {text:?}")]
    UnknownElem {
        /// The text, shortened.
        text: String,
    },
    /// A big-endian element type: polyduct moves little-endian data only.
    #[error("element type {text:?} is big-endian; polyduct moves little-endian data only")]
    BigEndian {
        /// The text, shortened.
        text: String,
    },
    /// A shape with too many dimensions.
    #[error("{dims} dimensions; the limit is {limit}")]
    TooManyDims {
        /// Dimensions asked for.
        dims: usize,
        /// The limit.
        limit: usize,
    },
    /// A dataset whose bytes cannot be counted in 63 bits.
    #[error("a dataset of this shape has more than 2^63-1 bytes (counted up to dimension {dim})")]
    DatasetTooLarge {
        /// The dimension at which the count passed the limit.
        dim: usize,
    },
    /// A layout for another number of dimensions than the dataset's.
    #[error("the layout has {}, the dataset {dataset}", dimensions(*layout))]
    DimsDiffer {
        /// Dimensions of the layout.
        layout: usize,
        /// Dimensions of the dataset.
        dataset: usize,
    },
    /// No units, or more than can be numbered.
    #[error("{units} units; there must be 1 to {limit}")]
    UnitCount {
        /// Units asked for.
        units: u64,
        /// The limit.
        limit: u64,
    },
    /// A grid of another size than the number of units.
    #[error("the grid has {} places for {units} units", count(.grid))]
    GridSize {
        /// Product of the grid's sizes (the largest `u64` when it overflows).
        grid: u64,
        /// Units given.
        units: u64,
    },
    /// A dimension names a grid axis that does not exist.
    #[error("dimension {dim} names grid axis {axis}, but the grid has {axes} ax{}s", if *axes == 1 { "i" } else { "e" })]
    AxisOutOfRange {
        /// The dimension.
        dim: usize,
        /// The axis that it names.
        axis: usize,
        /// Axes of the grid.
        axes: usize,
    },
    /// Two uses of one grid axis.
    #[error("grid axis {axis} is used by dimension {first} and by dimension {second}")]
    AxisUsedTwice {
        /// The axis.
        axis: usize,
        /// The dimension that used it first.
        first: usize,
        /// The dimension that used it again.
        second: usize,
    },
    /// A distributed dimension finds no free grid axis.
    #[error("dimension {dim} is distributed, but none of the {axes} grid axes is left for it")]
    NoAxisLeft {
        /// The dimension.
        dim: usize,
        /// Axes of the grid.
        axes: usize,
    },
    /// `cut` with another number of pieces than units on its axis.
    #[error("dimension {dim} is cut into {pieces} pieces for {parts} units on its axes")]
    CutCount {
        /// The dimension.
        dim: usize,
        /// Pieces named in the text.
        pieces: usize,
        /// Units on the dimension's axes.
        parts: u64,
    },
    /// `cut` at an index past the end.
    #[error("dimension {dim} is cut at {cut}, past its size {size}")]
    CutPastEnd {
        /// The dimension.
        dim: usize,
        /// The offending index.
        cut: u64,
        /// The dimension's size.
        size: u64,
    },
    /// A halo around the ends of a dimension that would meet itself.
    #[error("the halo of dimension {dim} goes {width} around its ends; it has {size}, which is the most")]
    HaloTooWide {
        /// The dimension.
        dim: usize,
        /// Cells of the halo's wider side.
        width: u64,
        /// The dimension's size.
        size: u64,
    },
    /// A part that is larger than the array, by a halo around its ends, and has more bytes than can be
    /// counted.
    #[error("with halos around the ends a unit's part has more than 2^63-1 bytes")]
    PartTooLarge,
    /// `boxes(...)` with another number of units than given.
    #[error("the layout lists boxes for {listed} units, but there are {units}")]
    BoxUnits {
        /// Units listed.
        listed: u64,
        /// Units given.
        units: u64,
    },
    /// A box that leaves the dataset.
    #[error("box {index} of unit {unit} ends at {hi} in dimension {dim}, past its size {size}")]
    BoxOutside {
        /// The unit.
        unit: u64,
        /// Which of the unit's boxes.
        index: usize,
        /// The dimension.
        dim: usize,
        /// The box's upper end there.
        hi: u64,
        /// The dimension's size.
        size: u64,
    },
    /// The boxes of one unit together need more bytes than can be counted.
    #[error("the boxes of unit {unit} hold more than 2^63-1 bytes together")]
    BoxesTooLarge {
        /// The unit.
        unit: u64,
    },
    /// `digits(...)` for another number of elements than the dataset's.
    #[error("the digits count {} elements, the dataset has {elems}", count(.product))]
    DigitElems {
        /// Product of the radices (the largest `u64` when it overflows).
        product: u64,
        /// Elements of the dataset.
        elems: u64,
    },
    /// `digits(...)` for another number of units than given.
    #[error("the unit digits count {product} units, but there are {units}")]
    DigitUnits {
        /// Product of the unit digits' radices.
        product: u64,
        /// Units given.
        units: u64,
    },
    /// A unit number past the last unit.
    #[error("there is no unit {unit}; expected 0 to {}", .units.saturating_sub(1))]
    UnitOutOfRange {
        /// The unit.
        unit: u64,
        /// Number of units.
        units: u64,
    },
    /// An index with another number of dimensions than the dataset's.
    #[error("the index has {}, the array {dataset}", dimensions(*index))]
    IndexDims {
        /// Dimensions of the index.
        index: usize,
        /// Dimensions of the dataset.
        dataset: usize,
    },
    /// An index outside the dataset.
    #[error("index {index} in dimension {dim} of size {size}")]
    IndexOutOfRange {
        /// The dimension.
        dim: usize,
        /// The index there.
        index: u64,
        /// The dimension's size.
        size: u64,
    },
    /// A question about strides put to a layout whose parts are not arrays.
    #[error("a part of a {kind} layout has no strides in the dataset's dimensions")]
    NoStrides {
        /// The kind of the layout.
        kind: &'static str,
    },
    /// A writer's layout leaves an element out.
    #[error("no unit holds element {index:?} (number {element} in row-major order)")]
    Hole {
        /// Row-major number of the first such element.
        element: u64,
        /// Its index.
        index: Vec<u64>,
    },
    /// A writer's layout has an element twice.
    #[error("units {first} and {second} both hold element {index:?} (number {element} in row-major order)")]
    Overlap {
        /// Row-major number of the first such element.
        element: u64,
        /// Its index.
        index: Vec<u64>,
        /// A unit that holds it.
        first: u64,
        /// Another unit that holds it; the same when two boxes of one unit overlap.
        second: u64,
    },
    /// A window past the end of an array.
    #[error("a window ends at {hi} in dimension {dim}, past its size {size}")]
    WindowOutside {
        /// The dimension.
        dim: usize,
        /// Where the window ends.
        hi: u64,
        /// The size.
        size: u64,
    },
    /// A layout of which no box can be taken alone.
    #[error("a part of a {kind} layout has no boxes: only a whole array can be taken from or into it")]
    NoWindow {
        /// `digits` or `stripe`.
        kind: &'static str,
    },
    /// Two mappings over datasets of different shapes.
    #[error("the source has shape {src:?}, the destination {dst:?}")]
    ShapesDiffer {
        /// The source's shape.
        src: Vec<u64>,
        /// The destination's shape.
        dst: Vec<u64>,
    },
    /// Stripes count bytes, so both sides must have elements of one type.
    #[error("stripes count bytes: the source has elements {src}, the destination {dst}")]
    ElemsDiffer {
        /// The source's element type.
        src: ElemType,
        /// The destination's element type.
        dst: ElemType,
    },
    /// An answer that would grow past a limit.
    #[error("{what}: {count} or more; the limit is {limit}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much was counted before giving up.
        count: u64,
        /// The limit.
        limit: u64,
    },
}

impl LayoutError {
    /// The case, in a word that programs can compare: the variant's name in snake case.
    pub fn reason(&self) -> &'static str {
        match self {
            LayoutError::Text { .. } => "text",
            LayoutError::TextTooLong { .. } => "text_too_long",
            LayoutError::UnknownElem { .. } => "unknown_elem",
            LayoutError::BigEndian { .. } => "big_endian",
            LayoutError::TooManyDims { .. } => "too_many_dims",
            LayoutError::DatasetTooLarge { .. } => "dataset_too_large",
            LayoutError::DimsDiffer { .. } => "dims_differ",
            LayoutError::UnitCount { .. } => "unit_count",
            LayoutError::GridSize { .. } => "grid_size",
            LayoutError::AxisOutOfRange { .. } => "axis_out_of_range",
            LayoutError::AxisUsedTwice { .. } => "axis_used_twice",
            LayoutError::NoAxisLeft { .. } => "no_axis_left",
            LayoutError::CutCount { .. } => "cut_count",
            LayoutError::CutPastEnd { .. } => "cut_past_end",
            LayoutError::HaloTooWide { .. } => "halo_too_wide",
            LayoutError::PartTooLarge => "part_too_large",
            LayoutError::BoxUnits { .. } => "box_units",
            LayoutError::BoxOutside { .. } => "box_outside",
            LayoutError::BoxesTooLarge { .. } => "boxes_too_large",
            LayoutError::DigitElems { .. } => "digit_elems",
            LayoutError::DigitUnits { .. } => "digit_units",
            LayoutError::UnitOutOfRange { .. } => "unit_out_of_range",
            LayoutError::IndexDims { .. } => "index_dims",
            LayoutError::IndexOutOfRange { .. } => "index_out_of_range",
            LayoutError::NoStrides { .. } => "no_strides",
            LayoutError::Hole { .. } => "hole",
            LayoutError::Overlap { .. } => "overlap",
            LayoutError::ShapesDiffer { .. } => "shapes_differ",
            LayoutError::ElemsDiffer { .. } => "elems_differ",
            LayoutError::WindowOutside { .. } => "window_outside",
            LayoutError::NoWindow { .. } => "no_window",
            LayoutError::TooMany { .. } => "too_many",
        }
    }
}

/// A product that stops at the largest `u64`, as words.
fn count(product: &u64) -> String {
    match *product {
        u64::MAX => "2^64-1 or more".into(),
        n => n.to_string(),
    }
}

fn dimensions(count: usize) -> String {
    format!("{count} dimension{}", if count == 1 { "" } else { "s" })
}

/// Shortens hostile text for an error.
pub(crate) fn shorten(text: &str) -> String {
    const KEEP: usize = 24;
    // What a terminal would obey is shown as it is written.
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let rest = if text.chars().nth(KEEP).is_some() { "…" } else { "" };
    text.chars().take(KEEP).map(shown).collect::<String>() + rest
}

const _: () = {
    const fn shareable<T: Send + Sync + Clone + PartialEq>() {}
    shareable::<LayoutError>();
};
