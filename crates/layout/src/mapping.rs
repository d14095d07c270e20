//! A layout bound to a dataset and a number of units: dataset index → (unit, offset).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use crate::boxes::Boxes;
use crate::comb::Comb;
use crate::digits::Digits;
use crate::dims::{Dims, IndexBox, MAX_DIMS};
use crate::regular::{spread, Regular};
use crate::segments::Segments;
use crate::text::{Halo, Kind};
use crate::walk;
use crate::{Dataset, Layout, LayoutError};

/// The most units of a mapping.
pub const MAX_UNITS: u64 = 1 << 32;
/// The most boxes that [`Mapping::boxes`] lists; [`Mapping::boxes_iter`] has no limit.
pub const MAX_BOXES_LISTED: usize = 1 << 16;

/// A layout bound to a dataset and a number of units. Cheap to clone, compared and hashed by those three.
///
/// ```
/// use polyduct_layout::{Dataset, ElemType, Layout};
/// let data = Dataset::new(&[10, 4], ElemType::F32)?;
/// let map = "block,*;halo=1,0".parse::<Layout>()?.bind(&data, 3)?;
/// assert_eq!(&map.local_shape(1)?[..], [6, 4]);
/// let places = map.locate(&[4, 2])?;
/// assert_eq!((places[0].unit, places[0].halo), (0, true));
/// assert_eq!((places[1].unit, places[1].offset_elems, places[1].halo), (1, 6, false));
/// # Ok::<(), polyduct_layout::LayoutError>(())
/// ```
#[derive(Clone)]
pub struct Mapping {
    inner: Arc<Inner>,
}

struct Inner {
    layout: Layout,
    dataset: Dataset,
    units: u64,
    bound: Bound,
    writer: OnceLock<Result<(), LayoutError>>,
}

/// What a layout becomes once sizes are known.
#[derive(Debug)]
pub(crate) enum Bound {
    Regular(Regular),
    Boxes(Boxes),
    Digits(Digits),
    /// One dimension, the bytes of the dataset.
    Stripes(Regular),
}

/// One place where an element lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// The unit.
    pub unit: u64,
    /// Offset in the unit's part in whole elements; for a stripe unit that splits elements, rounded down.
    pub offset_elems: u64,
    /// Whether it is a copy in the unit's halo, which the unit does not own.
    pub halo: bool,
    offset_bytes: u64,
    first_byte: u32,
    len_bytes: u32,
}

impl Location {
    /// Offset in the unit's part in bytes.
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// The bytes of the element that lie here, as a half-open range: all of them, unless a stripe unit splits
    /// it.
    pub fn bytes_of_elem(&self) -> (u32, u32) {
        (self.first_byte, self.first_byte + self.len_bytes)
    }
}

/// One array of a unit: a comb for each dimension of the dataset, and how places along them make an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub combs: [Comb; MAX_DIMS],
    /// Elements of local memory from one place to the next, for each dimension.
    pub strides: Dims,
    /// Offset of the piece's first element.
    pub base: u64,
}

impl Piece {
    /// The smallest box around it.
    pub fn bounds(&self) -> IndexBox {
        let n = self.strides.len();
        IndexBox {
            lo: Dims::from_fn(n, |k| self.combs[k].start),
            hi: Dims::from_fn(n, |k| self.combs[k].upper()),
        }
    }
}

impl Layout {
    /// Binds the layout to a dataset and a number of units.
    ///
    /// # Errors
    /// When the layout does not fit the dataset or the number of units: the variant says how.
    pub fn bind(&self, dataset: &Dataset, units: u64) -> Result<Mapping, LayoutError> {
        if units == 0 || units > MAX_UNITS {
            return Err(LayoutError::UnitCount { units, limit: MAX_UNITS });
        }
        let bound = match &*self.kind {
            Kind::Regular(text) => {
                let elem_len = dataset.elem().len_bytes();
                Bound::Regular(Regular::bind(text, dataset.dims(), elem_len, units)?)
            }
            Kind::Boxes(text) => {
                Bound::Boxes(Boxes::bind(text, dataset.dims(), dataset.elem().len_bytes(), units)?)
            }
            Kind::Digits(text) => Bound::Digits(Digits::bind(text, dataset.len_elems(), units)?),
            Kind::Stripes(bytes) => Bound::Stripes(Regular::stripes(*bytes, dataset.len_bytes(), units)),
        };
        let inner = Inner { layout: self.clone(), dataset: *dataset, units, bound, writer: OnceLock::new() };
        Ok(Mapping { inner: Arc::new(inner) })
    }
}

impl Mapping {
    /// The layout that was bound.
    pub fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    /// The dataset.
    pub fn dataset(&self) -> &Dataset {
        &self.inner.dataset
    }

    /// Number of units.
    pub fn units(&self) -> u64 {
        self.inner.units
    }

    /// Shape of a unit's part with its clipped halo, in the dataset's dimension order.
    ///
    /// The part of a unit with several boxes and of a digit layout is one dimension of packed elements, that
    /// of a stripe layout one dimension of bytes. A unit without any box has size 0 in every dimension.
    ///
    /// # Errors
    /// [`LayoutError::UnitOutOfRange`].
    pub fn local_shape(&self, unit: u64) -> Result<Dims, LayoutError> {
        self.check_unit(unit)?;
        Ok(match &self.inner.bound {
            Bound::Regular(r) => r.local_shape(unit),
            Bound::Boxes(b) => match b.of(unit) {
                [] => Dims::filled(0, self.dataset().shape().len()),
                [only] => only.at.shape(),
                _ => Dims::filled(b.local_len(unit), 1),
            },
            Bound::Digits(_) => Dims::filled(self.dataset().len_elems() / self.units(), 1),
            Bound::Stripes(r) => r.local_shape(unit),
        })
    }

    /// Strides of a unit's part in elements, one for each dimension of the dataset, as `order=` says.
    ///
    /// # Errors
    /// [`LayoutError::UnitOutOfRange`]; [`LayoutError::NoStrides`] for digits, stripes and units of several
    /// boxes.
    pub fn local_strides(&self, unit: u64) -> Result<Dims, LayoutError> {
        let shape = self.local_shape(unit)?;
        match &self.inner.bound {
            Bound::Regular(r) => Ok(r.order.strides(&shape)),
            Bound::Boxes(b) if b.of(unit).len() <= 1 => Ok(b.order.strides(&shape)),
            _ => Err(LayoutError::NoStrides { kind: self.layout().kind_name() }),
        }
    }

    /// Elements of a unit's part, its halo included. For stripes, whole elements that its bytes amount to,
    /// rounded up.
    ///
    /// # Errors
    /// [`LayoutError::UnitOutOfRange`].
    pub fn local_len_elems(&self, unit: u64) -> Result<u64, LayoutError> {
        let len = self.local_shape(unit)?.product();
        Ok(match &self.inner.bound {
            Bound::Stripes(_) => len.div_ceil(self.elem_len()),
            _ => len,
        })
    }

    /// Bytes of a unit's part, its halo included.
    ///
    /// # Errors
    /// [`LayoutError::UnitOutOfRange`].
    pub fn local_len_bytes(&self, unit: u64) -> Result<u64, LayoutError> {
        let len = self.local_shape(unit)?.product();
        Ok(match &self.inner.bound {
            Bound::Stripes(_) => len,
            _ => len * self.elem_len(),
        })
    }

    /// Every place where an element lies: owners, replicas and halo copies, by unit. An element that a stripe
    /// unit splits has a place for each piece of it.
    ///
    /// # Errors
    /// [`LayoutError::IndexDims`] and [`LayoutError::IndexOutOfRange`].
    pub fn locate(&self, index: &[u64]) -> Result<Vec<Location>, LayoutError> {
        let shape = self.inner.dataset.dims();
        if index.len() != shape.len() {
            return Err(LayoutError::IndexDims { index: index.len(), dataset: shape.len() });
        }
        if let Some(dim) = (0..shape.len()).find(|&k| index[k] >= shape[k]) {
            return Err(LayoutError::IndexOutOfRange { dim, index: index[dim], size: shape[dim] });
        }
        let mut places = Vec::new();
        match &self.inner.bound {
            Bound::Regular(r) => self.locate_regular(r, index, &mut places),
            Bound::Boxes(b) => {
                let lo = Dims::from_fn(shape.len(), |k| index[k]);
                let hi = Dims::from_fn(shape.len(), |k| index[k] + 1);
                b.for_each_meeting(&IndexBox { lo, hi }, |held, _| {
                    let strides = b.order.strides(&held.at.shape());
                    let at: u64 = (0..shape.len()).map(|k| (index[k] - held.at.lo[k]) * strides[k]).sum();
                    places.push(self.whole(held.unit.into(), held.base + at, false));
                });
            }
            Bound::Digits(d) => {
                let (unit, offset) = d.locate(shape.ravel(index));
                places.push(self.whole(unit, offset, false));
            }
            Bound::Stripes(r) => {
                let e = self.elem_len();
                let first = shape.ravel(index) * e;
                let mut at = first;
                while at < first + e {
                    let unit = r.dims[0].owner(at);
                    let comb = r.dims[0].owned(unit);
                    let offset_bytes = comb.place(at).unwrap_or_default();
                    let len = (comb.width - offset_bytes % comb.width).min(first + e - at);
                    places.push(Location {
                        unit,
                        offset_elems: offset_bytes / e,
                        halo: false,
                        offset_bytes,
                        first_byte: (at - first) as u32,
                        len_bytes: len as u32,
                    });
                    at += len;
                }
                return Ok(places);
            }
        }
        places.sort_unstable();
        Ok(places)
    }

    fn locate_regular(&self, r: &Regular, index: &[u64], places: &mut Vec<Location>) {
        // (unit number so far, place for each dimension, whether in a halo)
        let n = index.len();
        let mut found = vec![(0u64, Dims::filled(0, n), Dims::filled(0, n), false)];
        let mut parts = Vec::new();
        for (k, dim) in r.dims.iter().enumerate() {
            dim.parts_meeting(&Comb::interval(index[k], index[k] + 1, 0), true, &mut parts);
            let mut next = Vec::with_capacity(found.len());
            for &p in &parts {
                let held = dim.held(p);
                let own = dim.owned(p).place(index[k]);
                for place in held.as_slice().iter().filter_map(|comb| comb.place(index[k])) {
                    for &(unit, mut at, mut shape, halo) in &found {
                        at.as_mut_slice()[k] = place;
                        shape.as_mut_slice()[k] = held.len_elems();
                        next.push((unit + spread(&dim.axes, p), at, shape, halo || own != Some(place)));
                    }
                }
            }
            found = next;
        }
        for (unit, at, shape, halo) in found {
            // A coordinate may hold this index and yet own nothing in another dimension; then it is not found
            // there.
            let strides = r.order.strides(&shape);
            let offset = (0..n).map(|k| at[k] * strides[k]).sum();
            places.extend((0..r.replicas).map(|i| self.whole(unit + r.replica_stride(i), offset, halo)));
        }
    }

    fn whole(&self, unit: u64, offset_elems: u64, halo: bool) -> Location {
        let e = self.elem_len();
        Location {
            unit,
            offset_elems,
            halo,
            offset_bytes: offset_elems * e,
            first_byte: 0,
            len_bytes: e as u32,
        }
    }

    /// The boxes that a unit owns, without halo, each once, in the order of its memory (row-major for regular
    /// layouts). Digits and stripes give the boxes that their runs of the row-major order make; an element
    /// that a stripe unit splits counts where its first byte lies.
    ///
    /// # Errors
    /// [`LayoutError::UnitOutOfRange`]; [`LayoutError::TooMany`] above [`MAX_BOXES_LISTED`].
    pub fn boxes(&self, unit: u64) -> Result<Vec<IndexBox>, LayoutError> {
        let list: Vec<IndexBox> = self.boxes_iter(unit)?.take(MAX_BOXES_LISTED + 1).collect();
        if list.len() > MAX_BOXES_LISTED {
            let (count, limit) = (list.len() as u64, MAX_BOXES_LISTED as u64);
            return Err(LayoutError::TooMany { what: "boxes in a unit's part", count, limit });
        }
        Ok(list)
    }

    /// As [`boxes`](Mapping::boxes), made one at a time and without a limit.
    ///
    /// # Errors
    /// [`LayoutError::UnitOutOfRange`].
    pub fn boxes_iter(&self, unit: u64) -> Result<impl Iterator<Item = IndexBox> + '_, LayoutError> {
        self.check_unit(unit)?;
        let shape = self.inner.dataset.dims();
        let iter: Box<dyn Iterator<Item = IndexBox> + '_> = match &self.inner.bound {
            Bound::Regular(_) | Bound::Boxes(_) => {
                Box::new(self.pieces(unit, false).into_iter().flat_map(walk::piece_boxes))
            }
            Bound::Digits(d) => Box::new(
                walk::digit_runs(d, unit).flat_map(move |r| walk::run_boxes(shape, r.element, r.len)),
            ),
            Bound::Stripes(r) => {
                let (comb, e) = (r.dims[0].owned(unit), self.elem_len());
                Box::new((0..comb.blocks()).flat_map(move |i| {
                    let (lo, hi) = comb.block(i);
                    let (lo, hi) = (lo.div_ceil(e), hi.div_ceil(e));
                    walk::run_boxes(shape, lo, hi - lo)
                }))
            }
        };
        Ok(iter)
    }

    /// What a unit holds, halo included, as one box for each contiguous piece: the shape to allocate and
    /// fill.
    ///
    /// # Errors
    /// As [`boxes`](Mapping::boxes).
    pub fn boxes_with_halo(&self, unit: u64) -> Result<Vec<IndexBox>, LayoutError> {
        match &self.inner.bound {
            Bound::Regular(r) if r.dims.iter().any(|d| d.halo != Halo::NONE) => {
                self.check_unit(unit)?;
                // Halos make intervals of the dimensions that have them; the others may still be cyclic.
                let list: Vec<IndexBox> = self
                    .pieces(unit, true)
                    .into_iter()
                    .flat_map(walk::piece_boxes)
                    .take(MAX_BOXES_LISTED + 1)
                    .collect();
                let (count, limit) = (list.len() as u64, MAX_BOXES_LISTED as u64);
                match count > limit {
                    true => Err(LayoutError::TooMany { what: "boxes in a unit's part", count, limit }),
                    false => Ok(list),
                }
            }
            _ => self.boxes(unit),
        }
    }

    /// Whether several units hold the same part.
    pub fn is_replicated(&self) -> bool {
        self.replicas() > 1
    }

    /// Number of units that hold each part: the product of the grid axes that no dimension uses; for boxes
    /// the smallest number of units with equal boxes.
    pub fn replicas(&self) -> u64 {
        match &self.inner.bound {
            Bound::Regular(r) => r.replicas,
            Bound::Boxes(b) => b.replicas(),
            Bound::Digits(_) | Bound::Stripes(_) => 1,
        }
    }

    /// Whether a writer may have this mapping: every element is held once, or by units with equal parts.
    /// Regular layouts, digits and stripes always pass. The answer is kept.
    ///
    /// # Errors
    /// [`LayoutError::Hole`] or [`LayoutError::Overlap`] with the first offending element in row-major order.
    pub fn check_writer(&self) -> Result<(), LayoutError> {
        match &self.inner.bound {
            Bound::Boxes(b) => {
                self.inner.writer.get_or_init(|| b.check_cover(self.inner.dataset.dims())).clone()
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn bound(&self) -> &Bound {
        &self.inner.bound
    }

    pub(crate) fn elem_len(&self) -> u64 {
        self.inner.dataset.elem().len_bytes()
    }

    pub(crate) fn check_unit(&self, unit: u64) -> Result<(), LayoutError> {
        match unit < self.units() {
            true => Ok(()),
            false => Err(LayoutError::UnitOutOfRange { unit, units: self.units() }),
        }
    }

    /// A number of a reader that differs between neighbours along every axis of its grid, so that readers who
    /// share a part of the source spread over its replicas.
    pub(crate) fn reader_number(&self, unit: u64) -> u64 {
        match &self.inner.bound {
            Bound::Regular(r) => r.diagonal(unit),
            _ => unit,
        }
    }

    /// The arrays that a unit owns or, with `halo`, holds; only for regular layouts and boxes. Empty ones are
    /// left out.
    pub(crate) fn pieces(&self, unit: u64, halo: bool) -> Vec<Piece> {
        match &self.inner.bound {
            Bound::Regular(r) | Bound::Stripes(r) => {
                let n = r.dims.len();
                let mut along = [Segments::one(Comb::EMPTY); MAX_DIMS];
                for (k, d) in r.dims.iter().enumerate() {
                    let part = r.part(k, unit);
                    along[k] = if halo { d.held(part) } else { Segments::one(d.owned(part)) };
                }
                let counts = Dims::from_fn(n, |k| along[k].as_slice().len() as u64);
                let strides = r.order.strides(&r.local_shape(unit));
                let piece = |choice: Dims| {
                    let mut combs = [Comb::EMPTY; MAX_DIMS];
                    for k in 0..n {
                        combs[k] = along[k].as_slice()[choice[k] as usize];
                    }
                    Piece { combs, strides, base: 0 }
                };
                walk::odometer(counts).map(piece).collect()
            }
            Bound::Boxes(b) => b.of(unit).iter().map(|h| box_piece(h, b)).collect(),
            Bound::Digits(_) => Vec::new(),
        }
    }
}

/// An explicit box as a piece.
pub(crate) fn box_piece(held: &crate::boxes::Held, boxes: &Boxes) -> Piece {
    let mut combs = [Comb::EMPTY; MAX_DIMS];
    for (k, c) in combs.iter_mut().enumerate().take(held.at.ndim()) {
        *c = Comb::interval(held.at.lo[k], held.at.hi[k], 0);
    }
    Piece { combs, strides: boxes.order.strides(&held.at.shape()), base: held.base }
}

impl PartialEq for Mapping {
    fn eq(&self, other: &Mapping) -> bool {
        let (a, b) = (&*self.inner, &*other.inner);
        std::ptr::eq(a, b) || (a.units == b.units && a.dataset == b.dataset && a.layout == b.layout)
    }
}

impl Eq for Mapping {}

impl Hash for Mapping {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.inner.units, self.inner.dataset).hash(state);
        self.inner.layout.hash(state);
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { layout, dataset, units, .. } = &*self.inner;
        write!(f, "Mapping({layout} over {:?} {} in {units} units)", dataset.shape(), dataset.elem())
    }
}
