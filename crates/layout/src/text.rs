//! A layout as people type it: parsed, not yet bound to a dataset or a number of units.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::dims::IndexBox;
use crate::{parse, LayoutError, MAX_DIMS};

/// The longest text of a layout, in bytes; see [`MAX_BOXES_TEXT_BYTES`] for explicit boxes.
pub const MAX_TEXT_BYTES: usize = 64 << 10;
/// The longest text of a layout of explicit boxes, in bytes.
pub const MAX_BOXES_TEXT_BYTES: usize = 4 << 20;
/// The most digits of a digit layout.
pub const MAX_DIGITS: usize = 64;

/// A parsed layout. Cheap to clone.
///
/// Regular layouts (`block,*`, `cyclic(64),block@2x3;order=F`, `*,block;halo=1,1`). `...`, once, stands for
/// `*` in as many dimensions as the array has besides those named. A halo with `~` (`block,block;halo=1~,1`)
/// goes on around the ends of its dimension, as on a ring or a torus; one without is cut off there. And:
///
/// - `boxes(0:4,0:8|4:8,0:4+4:8,4:8|-)`: half-open boxes; `|` between units, `+` between the boxes of one
///   unit, which lie one after another in its memory, `-` for a unit with nothing;
/// - `digits(4x3x8;unit=1;offset=0,2)`: an element's row-major number in mixed radix, most significant digit
///   first; the digits named by `unit` make the unit's number, those of `offset` (by default all others in
///   order) the offset;
/// - `stripe(64KiB)`: the bytes of the row-major array dealt round in pieces of so many bytes.
///
/// `Display` prints the canonical text, which parses to an equal layout.
///
/// ```
/// use polyduct_layout::Layout;
/// let l: Layout = " cyclic( 1 ) , block [0] @ 2x3 ; order = 1,0".parse()?;
/// assert_eq!(l.to_string(), "cyclic,block[0]@2x3;order=F");
/// # Ok::<(), polyduct_layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    pub(crate) kind: Arc<Kind>,
}

#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    Regular(RegularText),
    Boxes(BoxesText),
    Digits(DigitsText),
    /// Bytes of a stripe unit, at least 1.
    Stripes(u64),
}

/// One distribution for each dimension over the axes of a grid.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RegularText {
    /// At least one.
    pub dims: Vec<DimText>,
    pub grid: Option<Vec<u64>>,
    pub order: Order,
    /// Empty, or one for each dimension, not all of them nothing.
    pub halo: Vec<Halo>,
}

/// Cells that a part has besides its own along one dimension.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Halo {
    pub before: u64,
    pub after: u64,
    /// Whether it goes on around the ends; never where both widths are 0.
    pub periodic: bool,
}

impl Halo {
    /// No cells.
    pub const NONE: Halo = Halo { before: 0, after: 0, periodic: false };
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct DimText {
    pub dist: Dist,
    /// The axes in brackets.
    pub axes: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Dist {
    Whole,
    /// `...`: [`Whole`](Dist::Whole) for all dimensions that are not named, at most once in a text.
    Rest,
    Block,
    Balanced,
    /// Block size, at least 1.
    Cyclic(u64),
    /// Starts: from 0, never falling, at least one.
    Cut(Arc<[u64]>),
}

/// Local storage order. The identity is always `C`, and the reversal of two dimensions or more always `F`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Order {
    C,
    F,
    /// Slowest dimension first; a permutation.
    Perm(Vec<u8>),
}

impl Order {
    /// The shortest form of a permutation.
    pub fn from_perm(perm: Vec<u8>) -> Order {
        if perm.iter().enumerate().all(|(k, &d)| k == d as usize) {
            Order::C
        } else if perm.iter().rev().enumerate().all(|(k, &d)| k == d as usize) {
            Order::F
        } else {
            Order::Perm(perm)
        }
    }

    /// Strides in elements of an array of this shape stored in this order.
    pub fn strides(&self, shape: &[u64]) -> crate::Dims {
        let n = shape.len();
        let mut strides = crate::Dims::filled(1, n);
        let mut step = 1;
        for k in (0..n).rev() {
            let dim = match self {
                Order::C => k,
                Order::F => n - 1 - k,
                Order::Perm(p) => p[k] as usize,
            };
            strides.as_mut_slice()[dim] = step;
            step *= shape[dim].max(1);
        }
        strides
    }
}

#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct BoxesText {
    /// Boxes of each unit; all of the same number of dimensions, at least one.
    pub units: Vec<Vec<IndexBox>>,
    /// Not `C` only when each unit has one box at most.
    pub order: Order,
}

#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct DigitsText {
    /// Most significant first; each at least 1.
    pub radices: Vec<u64>,
    /// Digits that make the unit number, most significant first.
    pub unit: Vec<u8>,
    /// All other digits, most significant of the offset first.
    pub offset: Vec<u8>,
}

impl DigitsText {
    /// The offset digits when the text names none: all others in order.
    pub fn remaining(digits: usize, unit: &[u8]) -> Vec<u8> {
        (0..digits as u8).filter(|d| !unit.contains(d)).collect()
    }
}

impl Layout {
    /// What kind of layout it is: `regular`, `boxes`, `digits` or `stripe`.
    pub fn kind_name(&self) -> &'static str {
        match *self.kind {
            Kind::Regular(_) => "regular",
            Kind::Boxes(_) => "boxes",
            Kind::Digits(_) => "digits",
            Kind::Stripes(_) => "stripe",
        }
    }
}

/// # Errors
/// [`LayoutError::Text`] with the byte position, what was expected there and what was found;
/// [`LayoutError::TextTooLong`].
impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Layout, LayoutError> {
        parse::layout(text).map(|kind| Layout { kind: Arc::new(kind) })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.kind {
            Kind::Regular(r) => r.fmt(f),
            Kind::Boxes(b) => b.fmt(f),
            Kind::Digits(d) => d.fmt(f),
            Kind::Stripes(bytes) => match bytes {
                b if b % (1 << 20) == 0 => write!(f, "stripe({}MiB)", b >> 20),
                b if b % (1 << 10) == 0 => write!(f, "stripe({}KiB)", b >> 10),
                b => write!(f, "stripe({b})"),
            },
        }
    }
}

impl Layout {
    /// One dimension of `ndim` in pieces, one for each unit, in order: piece i begins at index `starts[i]`, and ends
    /// where the next begins. The same as the text `*,cut(0,3,7),*`, for sizes that change too often to be written
    /// and read.
    ///
    /// ```
    /// use polyduct_layout::Layout;
    /// assert_eq!(Layout::cut(3, 1, &[0, 3, 7])?, "*,cut(0,3,7),*".parse()?);
    /// assert!(Layout::cut(1, 0, &[0, 5, 3]).is_err());
    /// # Ok::<(), polyduct_layout::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Text`] for starts that fall or do not begin with 0, and for more dimensions than there can be;
    /// [`LayoutError::DimsDiffer`] for another dimension than there is.
    pub fn cut(ndim: usize, dim: usize, starts: &[u64]) -> Result<Layout, LayoutError> {
        let whole = || DimText { dist: Dist::Whole, axes: None };
        let mut dims: Vec<DimText> = (0..ndim).map(|_| whole()).collect();
        let good = starts.first() == Some(&0) && starts.is_sorted() && ndim <= MAX_DIMS;
        let cut = dims.get_mut(dim).filter(|_| good);
        let Some(cut) = cut else {
            let starts: Vec<String> = starts.iter().map(u64::to_string).collect();
            // The text says what is wrong with it.
            let text = format!("{}cut({})", "*,".repeat(dim.min(ndim)), starts.join(","));
            let wrong = LayoutError::DimsDiffer { layout: dim + 1, dataset: ndim };
            return text.parse::<Layout>().and(Err(wrong));
        };
        cut.dist = Dist::Cut(starts.into());
        let text = RegularText { dims, grid: None, order: Order::C, halo: Vec::new() };
        Ok(Layout { kind: Arc::new(Kind::Regular(text)) })
    }
}

/// Prints items with a separator between them.
fn list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    separator: &str,
    items: impl IntoIterator<Item = T>,
) -> fmt::Result {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            f.write_str(separator)?;
        }
        item.fmt(f)?;
    }
    Ok(())
}

impl fmt::Display for Dist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dist::Whole => f.write_str("*"),
            Dist::Rest => f.write_str("..."),
            Dist::Block => f.write_str("block"),
            Dist::Balanced => f.write_str("balanced"),
            Dist::Cyclic(1) => f.write_str("cyclic"),
            Dist::Cyclic(b) => write!(f, "cyclic({b})"),
            Dist::Cut(starts) => {
                f.write_str("cut(")?;
                list(f, ",", starts.iter())?;
                f.write_str(")")
            }
        }
    }
}

impl fmt::Display for DimText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dist.fmt(f)?;
        if let Some(axes) = &self.axes {
            f.write_str("[")?;
            list(f, ",", axes)?;
            f.write_str("]")?;
        }
        Ok(())
    }
}

/// `;order=…`, or nothing for the default.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::C => Ok(()),
            Order::F => f.write_str(";order=F"),
            Order::Perm(p) => {
                f.write_str(";order=")?;
                list(f, ",", p)
            }
        }
    }
}

impl fmt::Display for RegularText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, ",", &self.dims)?;
        if let Some(grid) = &self.grid {
            f.write_str("@")?;
            list(f, "x", grid)?;
        }
        self.order.fmt(f)?;
        for (k, halo) in self.halo.iter().enumerate() {
            f.write_str(if k == 0 { ";halo=" } else { "," })?;
            halo.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Halo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Halo { before, after, periodic } = *self;
        match before == after {
            true => before.fmt(f)?,
            false => write!(f, "{before}:{after}")?,
        }
        f.write_str(if periodic { "~" } else { "" })
    }
}

impl RegularText {
    /// The text with `...` written out for an array of so many dimensions.
    ///
    /// # Errors
    /// [`LayoutError::DimsDiffer`] where it names more dimensions than there are.
    pub fn written_out(&self, ndim: usize) -> Result<Cow<'_, RegularText>, LayoutError> {
        let Some(rest) = self.dims.iter().position(|d| d.dist == Dist::Rest) else {
            return Ok(Cow::Borrowed(self));
        };
        let named = self.dims.len() - 1;
        if named > ndim {
            return Err(LayoutError::DimsDiffer { layout: named, dataset: ndim });
        }
        let mut text = self.clone();
        let whole = std::iter::repeat_n(DimText { dist: Dist::Whole, axes: None }, ndim - named);
        text.dims.splice(rest..=rest, whole);
        if let Some(&halo) = text.halo.get(rest) {
            text.halo.splice(rest..=rest, std::iter::repeat_n(halo, ndim - named));
        }
        Ok(Cow::Owned(text))
    }
}

impl fmt::Display for BoxesText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("boxes(")?;
        for (unit, boxes) in self.units.iter().enumerate() {
            f.write_str(if unit > 0 { "|" } else { "" })?;
            f.write_str(if boxes.is_empty() { "-" } else { "" })?;
            for (i, b) in boxes.iter().enumerate() {
                f.write_str(if i > 0 { "+" } else { "" })?;
                for k in 0..b.ndim() {
                    write!(f, "{}{}:{}", if k > 0 { "," } else { "" }, b.lo[k], b.hi[k])?;
                }
            }
        }
        f.write_str(")")?;
        self.order.fmt(f)
    }
}

impl fmt::Display for DigitsText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("digits(")?;
        list(f, "x", &self.radices)?;
        if !self.unit.is_empty() {
            f.write_str(";unit=")?;
            list(f, ",", &self.unit)?;
        }
        if self.offset != DigitsText::remaining(self.radices.len(), &self.unit) {
            f.write_str(";offset=")?;
            list(f, ",", &self.offset)?;
        }
        f.write_str(")")
    }
}
