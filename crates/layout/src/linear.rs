//! Parts of arrays against stripes: both as sets in the linear order of the row-major file.
//!
//! A part is loops around a comb in that order. A loop whose step is no multiple of the stripes' period
//! shifts the comb against the stripes, but after `period / gcd(step, period)` rounds the picture repeats
//! exactly: so each loop is split into at most so many starting places, each with a loop that repeats the
//! same picture. The cost then does not depend on extents; from there on one comb meets another in closed
//! form.
//!
//! Where no unit has a second stripe, as with the windows of a file, nothing repeats and nothing has to: a
//! stripe is one interval, and the loops are cut by it one inside the other, which takes some operations for
//! each loop, however many runs there are.

use std::sync::Arc;

use crate::comb::{intersect, Comb, Family};
use crate::digits::{Digit, Digits};
use crate::leaves::{Leaf, Leaves};
use crate::mapping::{Bound, Mapping, Piece};
use crate::op::{Loop, OpTable, MAX_NEST};
use crate::regular::{gcd, DimMap};
use crate::LayoutError;

/// The most starting places, stripes and operations that planning one unit looks at.
pub(crate) const MAX_STARTS: u64 = 1 << 22;

/// How stripes lie, in grains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stripes {
    pub width: u64,
    pub period: u64,
    /// Bytes of one grain: an element when stripe units hold whole elements, else 1.
    pub grain: u64,
    /// Whether no unit has a second stripe of the array.
    pub once: bool,
}

/// One part as loops around a comb, in grains.
#[derive(Debug)]
pub(crate) struct Nest {
    /// Places where the leaf begins.
    pub at: u64,
    /// Offset in the part's memory of the leaf's place 0.
    pub offset: u64,
    pub loops: Vec<Shifts>,
    pub leaf: Comb,
    /// From one place of the leaf to the next in the part's memory.
    leaf_stride: u64,
}

/// A loop split so that what repeats does not move against the stripes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shifts {
    pub count: u64,
    /// Grains of the linear order from one round to the next.
    pub step: u64,
    /// Grains of the part's memory.
    pub local: u64,
    /// Different starting places; round `i + starts` looks like round `i`. Equal to `count` when nothing
    /// repeats.
    starts: u64,
}

impl Shifts {
    fn new(count: u64, step: u64, local: u64, period: u64) -> Shifts {
        let repeat = period / gcd(step, period);
        Shifts { count, step, local, starts: repeat.min(count) }
    }

    /// Rounds that look like round `i` (below `starts`), that one included.
    fn repeats(&self, i: u64) -> u64 {
        (self.count - i).div_ceil(self.starts)
    }
}

impl Stripes {
    /// What stripes of an array of `len_bytes` look like to elements of `elem_len` bytes.
    pub fn new(dim: &DimMap, elem_len: u64, units: u64, len_bytes: u64) -> Stripes {
        let width = dim.owned(0).width.max(1);
        // One unit, or one stripe unit for each at most: the period is never passed, any common multiple will
        // do.
        let (width, grain) =
            if width.is_multiple_of(elem_len) { (width / elem_len, elem_len) } else { (width, 1) };
        let period = width.saturating_mul(units);
        Stripes { width, period, grain, once: period >= len_bytes / grain }
    }

    /// What a unit holds of the linear order, as if that had no end; or of one pass, where there is no other.
    pub fn comb(&self, unit: u64) -> Comb {
        if self.once {
            let from = unit.saturating_mul(self.width);
            return Comb::interval(from, from.saturating_add(self.width), 0);
        }
        let end = (i64::MAX as u64).max(self.period);
        Comb::periodic(unit.saturating_mul(self.width), self.width, self.period, end)
    }
}

/// The part of a unit as nests, for one that owns or (with `halo`) holds it.
pub(crate) fn nests(
    map: &Mapping,
    unit: u64,
    halo: bool,
    stripes: &Stripes,
) -> Result<Vec<Nest>, LayoutError> {
    let bytes_in_grains = map.elem_len() / stripes.grain;
    let mut out = Vec::new();
    match map.bound() {
        Bound::Digits(d) => out.push(digit_nest(d, unit, bytes_in_grains, stripes)),
        _ => {
            let strides = map.dataset().dims().row_major_strides();
            for piece in map.pieces(unit, halo) {
                piece_nests(&piece, &strides, bytes_in_grains, stripes, &mut out);
            }
        }
    }
    let starts = out.iter().fold(0u64, |n, nest| n.saturating_add(nest.starts()));
    if starts > MAX_STARTS && !stripes.once {
        return Err(LayoutError::TooMany {
            what: "runs of a part against stripes",
            count: starts,
            limit: MAX_STARTS,
        });
    }
    Ok(out)
}

/// A dimension of a piece in grains: places, distance of neighbours in the linear order, and in memory.
#[derive(Clone, Copy)]
struct Level {
    comb: Comb,
    linear: u64,
    local: u64,
}

fn piece_nests(piece: &Piece, strides: &[u64], e: u64, stripes: &Stripes, out: &mut Vec<Nest>) {
    let mut levels: Vec<Level> = (0..strides.len())
        .map(|k| Level { comb: piece.combs[k], linear: strides[k] * e, local: piece.strides[k] * e })
        .collect();
    levels.push(Level { comb: Comb::interval(0, e, 0), linear: 1, local: 1 });
    let leaf = collapse(&mut levels);
    // Each outer dimension: its whole blocks, and the last one when it is cut. A nest for each choice.
    let mut partial = vec![Nest {
        at: 0,
        offset: piece.base * e,
        loops: Vec::new(),
        leaf: leaf.comb,
        leaf_stride: leaf.local,
    }];
    for l in &levels {
        let mut next = Vec::new();
        for nest in &partial {
            for (first, blocks, width) in block_groups(&l.comb) {
                let mut loops = nest.loops.clone();
                for (count, step, local) in [(blocks, l.comb.period, l.comb.width), (width, 1, 1)] {
                    if count > 1 {
                        loops.push(Shifts::new(count, step * l.linear, local * l.local, stripes.period));
                    }
                }
                next.push(Nest {
                    at: nest.at + l.comb.block(first).0 * l.linear,
                    offset: nest.offset + (l.comb.base + first * l.comb.width) * l.local,
                    loops,
                    leaf: nest.leaf,
                    leaf_stride: nest.leaf_stride,
                });
            }
        }
        partial = next;
    }
    out.append(&mut partial);
}

/// Takes the innermost levels off that together are one comb of the linear order with one stride in memory.
fn collapse(levels: &mut Vec<Level>) -> Level {
    let mut leaf = levels.pop().unwrap_or(Level { comb: Comb::interval(0, 1, 0), linear: 1, local: 1 });
    while let Some(outer) = levels.last() {
        let whole = leaf.comb.count == 1 && leaf.comb.start == 0 && leaf.comb.width == outer.linear;
        let one = leaf.comb.count == 1 && leaf.comb.width == 1 && leaf.comb.start == 0 && outer.linear == 1;
        if !whole || (!one && outer.local != leaf.local * leaf.comb.width) || leaf.comb.base != 0 {
            break;
        }
        let (w, c) = (leaf.comb.width, outer.comb);
        // Places of the merged comb are those of the outer one times the inner width.
        let comb = Comb {
            start: c.start * w,
            width: c.width * w,
            period: c.period * w,
            count: c.count,
            end: c.end * w,
            base: c.base * w,
        };
        leaf = Level { comb, linear: 1, local: if one { outer.local } else { leaf.local } };
        levels.pop();
    }
    leaf
}

/// A comb as groups of equal blocks: (first block, number of blocks, width).
fn block_groups(comb: &Comb) -> impl Iterator<Item = (u64, u64, u64)> {
    let last = comb.blocks() - 1;
    let (lo, hi) = comb.block(last);
    let cut = u64::from(hi - lo < comb.width);
    let whole = (comb.blocks() > cut).then_some((0, comb.blocks() - cut, comb.width));
    whole.into_iter().chain((cut == 1).then_some((last, 1, hi - lo)))
}

fn digit_nest(digits: &Digits, unit: u64, e: u64, stripes: &Stripes) -> Nest {
    let mut at = 0;
    let mut loops = Vec::new();
    let (mut leaf, mut leaf_stride, mut inside) = (e, 1, true);
    let mut weight = e;
    for d in digits.digits.iter().rev() {
        let Digit { radix, offset, .. } = *d;
        if d.unit != 0 {
            at += Digits::value(d, unit) * weight;
            inside &= radix == 1;
        } else if inside && (leaf == 1 || offset * e == leaf * leaf_stride) {
            leaf_stride = if leaf == 1 && radix > 1 { offset * e } else { leaf_stride };
            leaf *= radix;
        } else if radix > 1 {
            inside = false;
            loops.push(Shifts::new(radix, weight, offset * e, stripes.period));
        }
        weight *= radix;
    }
    loops.reverse();
    Nest { at, offset: 0, loops, leaf: Comb::interval(0, leaf, 0), leaf_stride }
}

impl Nest {
    pub fn starts(&self) -> u64 {
        self.loops.iter().fold(1, |n, l| n.saturating_mul(l.starts))
    }

    /// The leaf at start number `n`.
    pub fn start(&self, mut n: u64, stripes: &Stripes, into: &mut Leaf) {
        into.loops.clear();
        let (mut at, mut offset) = (self.at, self.offset);
        for l in self.loops.iter().rev() {
            let i = n % l.starts;
            n /= l.starts;
            at += i * l.step;
            offset += i * l.local;
            // A loop that repeats the picture passes whole periods; each is one stripe unit's width in the
            // stripes.
            let in_stripes = l.step * l.starts / stripes.period * stripes.width;
            into.repeat(l.repeats(i), l.local * l.starts, in_stripes);
        }
        into.loops.reverse();
        into.place(self, at, offset);
    }

    /// Calls `f` for the leaf at each start.
    pub fn for_each_leaf(&self, stripes: &Stripes, mut f: impl FnMut(&Comb)) {
        let mut leaf = Leaf::new();
        for n in 0..self.starts() {
            self.start(n, stripes, &mut leaf);
            f(&leaf.comb);
        }
    }

    /// From the first index to one past the last, of the loops from `level` on around the leaf, where these
    /// begin at 0.
    pub fn span(&self, level: usize) -> (u64, u64) {
        let reach: u64 = self.loops[level..].iter().map(|l| (l.count - 1) * l.step).sum();
        (self.leaf.start, reach + self.leaf.upper())
    }

    /// One past the last index.
    pub fn upper(&self) -> u64 {
        self.at + self.span(0).1
    }

    /// The first index.
    pub fn lower(&self) -> u64 {
        self.at + self.leaf.start
    }
}

/// What a part shares with one unit of stripes.
#[derive(Debug)]
pub(crate) struct LinearPart {
    nests: Arc<Vec<Nest>>,
    stripe: Comb,
    stripes: Stripes,
    /// Whether the stripes are the source.
    stripes_send: bool,
    grains: u64,
    ops: u64,
}

impl LinearPart {
    /// `None` when nothing is shared. `grains` and `ops` are counted here.
    pub fn new(
        nests: &Arc<Vec<Nest>>,
        stripes: Stripes,
        unit: u64,
        stripes_send: bool,
    ) -> Result<Option<LinearPart>, LayoutError> {
        let stripe = stripes.comb(unit);
        let (mut grains, mut ops) = (0u64, 0u64);
        let mut families = Vec::new();
        let mut leaf = Leaf::new();
        for nest in nests.iter() {
            let mut leaves = Leaves::of(nest, &stripes, &stripe);
            while leaves.next(nest, &stripes, &mut leaf) {
                families.clear();
                intersect(&leaf.comb, &stripe, &mut families);
                grains += families.iter().map(Family::len_elems).sum::<u64>() * leaf.repeats();
                let count = (families.len() as u64).saturating_mul(spill(&leaf));
                if count > MAX_STARTS {
                    let what = "operations of a part against stripes";
                    return Err(LayoutError::TooMany { what, count, limit: MAX_STARTS });
                }
                ops = ops.saturating_add(count);
            }
        }
        let part = LinearPart { nests: nests.clone(), stripe, stripes, stripes_send, grains, ops };
        Ok((grains > 0).then_some(part))
    }

    pub fn bytes(&self) -> u64 {
        self.grains * self.stripes.grain
    }

    pub fn ops(&self) -> u64 {
        self.ops
    }

    pub fn memory_bytes(&self) -> usize {
        let nest = |n: &Nest| size_of::<Nest>() + n.loops.len() * size_of::<Shifts>();
        size_of::<LinearPart>() + self.nests.iter().map(nest).sum::<usize>()
    }

    pub fn cursor(&self) -> LinearCursor<'_> {
        LinearCursor { part: self, nest: 0, leaves: None, leaf: Leaf::new(), families: Vec::new(), next: 0 }
    }
}

/// Makes the operations of a [`LinearPart`] one at a time.
pub(crate) struct LinearCursor<'a> {
    part: &'a LinearPart,
    nest: usize,
    /// Of this nest; `None` before it is begun.
    leaves: Option<Leaves>,
    leaf: Leaf,
    /// What the leaf shares with the stripes, and which of that is next.
    families: Vec<Family>,
    next: usize,
}

impl LinearCursor<'_> {
    pub fn push_next(&mut self, table: &mut OpTable) -> bool {
        let LinearPart { stripes, stripe, .. } = self.part;
        loop {
            let Some(nest) = self.part.nests.get(self.nest) else { return false };
            if let Some(family) = self.families.get(self.next) {
                self.part.push(nest, &self.leaf, family, table);
                self.next += 1;
                return true;
            }
            self.families.clear();
            self.next = 0;
            let leaves = self.leaves.get_or_insert_with(|| Leaves::of(nest, stripes, stripe));
            match leaves.next(nest, stripes, &mut self.leaf) {
                true => intersect(&self.leaf.comb, stripe, &mut self.families),
                false => (self.nest, self.leaves) = (self.nest + 1, None),
            }
        }
    }
}

impl LinearPart {
    fn push(&self, nest: &Nest, leaf: &Leaf, f: &Family, table: &mut OpTable) {
        let g = self.stripes.grain;
        let mut loops: Vec<(u64, u64, u64)> = Vec::with_capacity(leaf.loops.len() + 3);
        loops.extend(
            leaf.loops.iter().map(|&(rounds, local, in_stripes)| (rounds, local * g, in_stripes * g)),
        );
        loops.push((f.count, f.src_step * nest.leaf_stride * g, f.dst_step * g));
        loops.push((f.len, nest.leaf_stride * g, g));
        loops.push((g, 1, 1));
        loops.retain(|l| l.0 > 1);
        let (part, stripe) = ((leaf.offset + f.src * nest.leaf_stride) * g, f.dst * g);
        push_long(table, part, stripe, &mut loops, self.stripes_send);
    }
}

/// Operations that a leaf takes, since one has no more than [`MAX_NEST`] loops: of these, three are for what
/// is in it.
fn spill(leaf: &Leaf) -> u64 {
    let over = (leaf.loops.len() + 3).saturating_sub(MAX_NEST);
    leaf.loops[..over.min(leaf.loops.len())].iter().fold(1, |n, l| n.saturating_mul(l.0))
}

/// Pushes a nest (count, step in the part, step in the stripes); one with too many loops as several
/// operations.
fn push_long(table: &mut OpTable, part: u64, stripe: u64, loops: &mut [(u64, u64, u64)], stripes_send: bool) {
    if let [outer, rest @ ..] = loops {
        if rest.len() >= MAX_NEST {
            for i in 0..outer.0 {
                push_long(table, part + i * outer.1, stripe + i * outer.2, &mut rest.to_vec(), stripes_send);
            }
            return;
        }
    }
    let mut nest = [Loop { count: 1, src_step: 0, dst_step: 0 }; MAX_NEST];
    for (l, &(count, part, stripe)) in nest.iter_mut().zip(loops.iter()) {
        let (src, dst) = if stripes_send { (stripe, part) } else { (part, stripe) };
        *l = Loop { count, src_step: src as i64, dst_step: dst as i64 };
    }
    let (src, dst) = if stripes_send { (stripe, part) } else { (part, stripe) };
    table.push(src, dst, &nest[..loops.len()]);
}
