//! Regular layouts bound to a shape and a grid: each dimension by itself, and how coordinates make a unit.

use std::sync::Arc;

use crate::comb::Comb;
use crate::dims::{Dims, MAX_DIMS};
use crate::grid::dims_create;
use crate::segments::Segments;
use crate::text::{Dist, Halo, Order, RegularText};
use crate::LayoutError;

/// A regular layout over a shape. Stripes are one too: `cyclic(stripe unit)` over the bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Regular {
    pub dims: Vec<DimMap>,
    pub order: Order,
    pub replicas: u64,
    /// Grid axes that no dimension uses.
    replica_axes: Vec<Axis>,
}

/// One dimension: how its indices are dealt to `parts` coordinates.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct DimMap {
    pub size: u64,
    pub dist: BoundDist,
    pub parts: u64,
    /// Cells before and after each piece; none for cyclic ones.
    pub halo: Halo,
    /// The grid axes used, most significant first.
    pub axes: Vec<Axis>,
}

/// A grid axis: its size and the distance in unit numbers of neighbours along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Axis {
    pub size: u64,
    pub stride: u64,
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) enum BoundDist {
    /// One piece, also for `*`: pieces of so many indices (≥ 1) in order.
    Block(u64),
    /// The first `extra` pieces have `small + 1` indices, the others `small`.
    Balanced { small: u64, extra: u64 },
    /// Block size (≥ 1) and period (≥ block size).
    Cyclic { block: u64, period: u64 },
    /// Starts of the pieces; one for each part.
    Cut(Arc<[u64]>),
}

impl Regular {
    /// Binds a text to a shape of elements of so many bytes.
    pub fn bind(text: &RegularText, shape: Dims, elem_len: u64, units: u64) -> Result<Regular, LayoutError> {
        let text = &*text.written_out(shape.len())?;
        // A scalar has no dimension to say anything about: `*` stands for it.
        let scalar = shape.is_empty() && text.dims.len() == 1 && text.dims[0].dist == Dist::Whole;
        if text.dims.len() != shape.len() && !scalar {
            return Err(LayoutError::DimsDiffer { layout: text.dims.len(), dataset: shape.len() });
        }
        let axes = grid_axes(text, units)?;
        let used = assign_axes(text, axes.len())?;
        let mut dims = Vec::with_capacity(shape.len());
        for (k, &size) in shape.iter().enumerate() {
            let own: Vec<Axis> = used[k].iter().map(|&a| axes[a as usize]).collect();
            let halo = text.halo.get(k).copied().unwrap_or_default();
            dims.push(DimMap::bind(k, &text.dims[k].dist, size, own, halo)?);
        }
        let taken: Vec<u8> = used.concat();
        let replica_axes: Vec<Axis> =
            (0..axes.len()).filter(|&a| !taken.contains(&(a as u8))).map(|a| axes[a]).collect();
        let replicas = replica_axes.iter().map(|a| a.size).product();
        let order = if scalar { Order::C } else { text.order.clone() };
        // What is cut off at the ends is never more than the array, whose bytes are known to be countable.
        if dims.iter().any(|d: &DimMap| d.halo.periodic) {
            let bytes = dims.iter().try_fold(elem_len, |n, d| n.checked_mul(d.most_held().max(1)));
            bytes.filter(|&b| b <= i64::MAX as u64).ok_or(LayoutError::PartTooLarge)?;
        }
        Ok(Regular { dims, order, replicas, replica_axes })
    }

    /// `len` bytes dealt round to `units` in stripe units of `bytes` (≥ 1).
    pub fn stripes(bytes: u64, len: u64, units: u64) -> Regular {
        let axes = vec![Axis { size: units, stride: 1 }];
        let dim = DimMap { size: len, dist: cyclic(bytes, units, len), parts: units, halo: Halo::NONE, axes };
        Regular { dims: vec![dim], order: Order::C, replicas: 1, replica_axes: Vec::new() }
    }

    /// The coordinate of a unit along dimension `k`.
    pub fn part(&self, k: usize, unit: u64) -> u64 {
        combine(&self.dims[k].axes, unit)
    }

    /// Which of the replicas a unit is.
    pub fn replica(&self, unit: u64) -> u64 {
        combine(&self.replica_axes, unit)
    }

    /// What a replica's number adds to the unit's number.
    pub fn replica_stride(&self, replica: u64) -> u64 {
        spread(&self.replica_axes, replica)
    }

    /// The sum of a unit's coordinates, which numbers the parts for [`replica_for`](Regular::replica_for).
    pub fn part_sum(&self, unit: u64) -> u64 {
        (0..self.dims.len()).map(|k| self.part(k, unit)).sum()
    }

    /// Which replica of a part a reader with this number asks: neighbours among readers, and one reader for
    /// neighbouring parts, ask different ones.
    pub fn replica_for(&self, part_sum: u64, reader: u64) -> u64 {
        (reader % self.replicas + part_sum % self.replicas) % self.replicas
    }

    /// Shape of a unit's part with its halo. A dimension may be empty.
    pub fn local_shape(&self, unit: u64) -> Dims {
        Dims::from_fn(self.dims.len(), |k| self.dims[k].held(self.part(k, unit)).len_elems())
    }

    /// Cells along a diagonal: a number that differs between neighbours along every axis.
    pub fn diagonal(&self, unit: u64) -> u64 {
        self.dims
            .iter()
            .flat_map(|d| &d.axes)
            .chain(&self.replica_axes)
            .map(|a| unit / a.stride % a.size)
            .sum()
    }
}

/// The number that a unit's coordinates along some axes make together.
fn combine(axes: &[Axis], unit: u64) -> u64 {
    axes.iter().fold(0, |n, a| n * a.size + unit / a.stride % a.size)
}

/// The inverse of [`combine`]: what a coordinate adds to the unit's number.
pub(crate) fn spread(axes: &[Axis], mut coordinate: u64) -> u64 {
    let mut unit = 0;
    for a in axes.iter().rev() {
        unit += coordinate % a.size * a.stride;
        coordinate /= a.size;
    }
    unit
}

/// The grid given or made, its axes row-major.
fn grid_axes(text: &RegularText, units: u64) -> Result<Vec<Axis>, LayoutError> {
    let distributed = text.dims.iter().filter(|d| d.dist != Dist::Whole).count();
    let sizes = match &text.grid {
        Some(g) => g.clone(),
        // Nothing is distributed: every unit holds everything.
        None if distributed == 0 => vec![units],
        None => dims_create(units, distributed),
    };
    let grid = sizes.iter().try_fold(1u64, |p, &n| p.checked_mul(n)).unwrap_or(u64::MAX);
    if grid != units {
        return Err(LayoutError::GridSize { grid, units });
    }
    let mut axes = vec![Axis { size: 1, stride: 1 }; sizes.len()];
    let mut stride = 1;
    for (axis, &size) in axes.iter_mut().zip(&sizes).rev() {
        *axis = Axis { size, stride };
        stride *= size;
    }
    Ok(axes)
}

/// The axes of each dimension: those in brackets, and for the others the axes that no bracket names, in
/// order.
fn assign_axes(text: &RegularText, axes: usize) -> Result<Vec<Vec<u8>>, LayoutError> {
    let mut owner = [None; MAX_DIMS];
    for (dim, d) in text.dims.iter().enumerate() {
        for &axis in d.axes.iter().flatten() {
            let axis = axis as usize;
            if axis >= axes {
                return Err(LayoutError::AxisOutOfRange { dim, axis, axes });
            }
            if let Some(first) = owner[axis].replace(dim) {
                return Err(LayoutError::AxisUsedTwice { axis, first, second: dim });
            }
        }
    }
    let mut free = (0..axes).filter(|&a| owner[a].is_none());
    let mut used = Vec::with_capacity(text.dims.len());
    for (dim, d) in text.dims.iter().enumerate() {
        used.push(match (&d.axes, &d.dist) {
            (Some(named), _) => named.clone(),
            (None, Dist::Whole) => Vec::new(),
            (None, _) => vec![free.next().ok_or(LayoutError::NoAxisLeft { dim, axes })? as u8],
        });
    }
    Ok(used)
}

fn cyclic(block: u64, parts: u64, size: u64) -> BoundDist {
    // A block larger than the dimension is the dimension; this keeps periods small.
    let block = block.min(size.max(1));
    BoundDist::Cyclic { block, period: block.saturating_mul(parts) }
}

impl DimMap {
    fn bind(dim: usize, dist: &Dist, size: u64, axes: Vec<Axis>, halo: Halo) -> Result<DimMap, LayoutError> {
        let width = halo.before.max(halo.after);
        if halo.periodic && size > 0 && width > size {
            return Err(LayoutError::HaloTooWide { dim, width, size });
        }
        let parts: u64 = axes.iter().map(|a| a.size).product();
        let bound = match dist {
            Dist::Whole | Dist::Rest | Dist::Block => BoundDist::Block(size.div_ceil(parts).max(1)),
            Dist::Balanced => BoundDist::Balanced { small: size / parts, extra: size % parts },
            Dist::Cyclic(block) => cyclic(*block, parts, size),
            Dist::Cut(starts) => {
                if starts.len() as u64 != parts {
                    return Err(LayoutError::CutCount { dim, pieces: starts.len(), parts });
                }
                if let Some(&cut) = starts.iter().find(|&&s| s > size) {
                    return Err(LayoutError::CutPastEnd { dim, cut, size });
                }
                BoundDist::Cut(starts.clone())
            }
        };
        // The parser lets no halo through on a cyclic dimension.
        Ok(DimMap { size, dist: bound, parts, halo, axes })
    }

    /// The half-open piece of a part; only for distributions of one piece each.
    fn piece(&self, part: u64) -> (u64, u64) {
        match &self.dist {
            BoundDist::Block(b) => {
                let lo = part.saturating_mul(*b).min(self.size);
                (lo, lo.saturating_add(*b).min(self.size))
            }
            BoundDist::Balanced { small, extra } => {
                let lo = part * small + part.min(*extra);
                (lo, lo + small + u64::from(part < *extra))
            }
            BoundDist::Cut(starts) => {
                let at = part as usize;
                (starts[at], starts.get(at + 1).copied().unwrap_or(self.size))
            }
            BoundDist::Cyclic { .. } => (0, 0),
        }
    }

    /// What a part owns, at its places in local memory (so past the halo before it).
    pub fn owned(&self, part: u64) -> Comb {
        if let BoundDist::Cyclic { block, period } = self.dist {
            return Comb::periodic(part.saturating_mul(block), block, period, self.size);
        }
        let (lo, hi) = self.piece(part);
        let before = if self.halo.periodic { self.halo.before } else { lo.min(self.halo.before) };
        Comb::interval(lo, hi, before)
    }

    /// What a part holds, its halo included. A part that owns nothing has no halo either.
    pub fn held(&self, part: u64) -> Segments {
        let Halo { before, after, periodic } = self.halo;
        let (lo, hi) = match self.dist {
            BoundDist::Cyclic { .. } => return Segments::one(self.owned(part)),
            _ => self.piece(part),
        };
        if lo == hi || !periodic {
            let (from, to) = (lo.saturating_sub(before), hi.saturating_add(after).min(self.size));
            return Segments::one(if lo == hi { Comb::EMPTY } else { Comb::interval(from, to, 0) });
        }
        Segments::around(lo, hi, self.size, before, after)
    }

    /// No part holds more along this dimension.
    fn most_held(&self) -> u64 {
        match self.halo {
            // Widths are at most the size here, and that is below 2^63 bytes.
            Halo { before, after, periodic: true } => {
                (self.size.saturating_add(before)).saturating_add(after)
            }
            _ => self.size,
        }
    }

    /// The part that owns an index.
    pub fn owner(&self, index: u64) -> u64 {
        match &self.dist {
            BoundDist::Block(b) => index / b,
            BoundDist::Balanced { small, extra } => match extra * (small + 1) {
                long if index < long => index / (small + 1),
                long => extra + (index - long) / small,
            },
            BoundDist::Cyclic { block, period } => index % period / block,
            BoundDist::Cut(starts) => starts.partition_point(|&s| s <= index) as u64 - 1,
        }
    }

    /// Parts that may own (or, with `halo`, hold) an index of `comb`: rising, each once, few besides the
    /// right ones.
    ///
    /// Looks at the comb's blocks through one common period and sees whose they are; never at every part when
    /// only few can meet the comb.
    pub fn parts_meeting(&self, comb: &Comb, halo: bool, out: &mut Vec<u64>) {
        out.clear();
        if comb.is_empty() {
            return;
        }
        let Halo { before, after, periodic } = if halo { self.halo } else { Halo::NONE };
        if let BoundDist::Cyclic { block, period } = self.dist {
            return cyclic_parts(comb, block, period, self.parts, out);
        }
        // An index is in a halo of parts up to `after` below it and `before` above it.
        let range = |lo: u64, hi: u64| {
            let hi = hi.saturating_add(before).min(self.size);
            (self.owner(lo.saturating_sub(after)), self.owner(hi - 1))
        };
        if periodic {
            self.parts_around(comb, out);
        }
        let around = out.len();
        let (first, last) = range(comb.start, comb.upper());
        if comb.blocks() >= last - first {
            out.extend(first..=last);
        } else {
            for i in 0..comb.blocks() {
                let (lo, hi) = comb.block(i);
                let (a, b) = range(lo, hi);
                let next = out[around..].last().map_or(a, |&l| a.max(l + 1));
                out.extend(next..=b);
            }
        }
        if around > 0 {
            out.sort_unstable();
            out.dedup();
        }
    }

    /// The parts at each end whose halo goes around it to indices of `comb`.
    fn parts_around(&self, comb: &Comb, out: &mut Vec<u64>) {
        let Halo { before, after, .. } = self.halo;
        // The last index is in the halo before parts that start below `before`; the comb's nearness to it
        // decides.
        let to_end = self.size - comb.upper();
        if before > to_end {
            out.extend(self.owner(0)..=self.owner((before - to_end).min(self.size) - 1));
        }
        if after > comb.start {
            out.extend(self.owner(self.size - (after - comb.start))..=self.owner(self.size - 1));
        }
    }
}

/// The parts of a cyclic dimension that blocks of `comb` fall to.
fn cyclic_parts(comb: &Comb, block: u64, period: u64, parts: u64, out: &mut Vec<u64>) {
    // Starts of the comb's blocks modulo the period are at most `period / gcd` positions, `gcd` apart.
    let g = gcd(period, comb.period);
    let positions = if comb.blocks() > 1 { period / g } else { 1 };
    let dense = g <= block && comb.blocks() >= positions;
    if dense || comb.width >= period || comb.blocks().min(positions) >= parts {
        out.extend(0..parts);
        return;
    }
    let n = comb.blocks().min(positions);
    for i in 0..n {
        let (lo, hi) = comb.block(i);
        // A block cut short by the end stands for others of its position that are not; look at its whole
        // width.
        let hi = if i + 1 == comb.blocks() { hi } else { lo + comb.width };
        let (a, b) = (lo / block, (hi - 1) / block);
        for p in a..=b.min(a.saturating_add(parts - 1)) {
            out.push(p % parts);
        }
        if out.len() as u64 > 4 * parts.saturating_add(16) {
            out.sort_unstable();
            out.dedup();
            if out.len() as u64 == parts {
                return;
            }
        }
    }
    out.sort_unstable();
    out.dedup();
}

pub(crate) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
