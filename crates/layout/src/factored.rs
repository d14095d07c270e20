//! Plans between regular layouts and boxes, which share the dataset's dimensions: closed form, dimension by
//! dimension.

use std::sync::Arc;

use crate::boxes::{Boxes, Held};
use crate::comb::{intersect, Comb, Family};
use crate::dims::{Dims, MAX_DIMS};
use crate::mapping::{box_piece, Bound, Piece};
use crate::plan::{sends_to, Side, Task};
use crate::regular::{spread, Regular};
use crate::segments::Segments;
use crate::transfer::{Factor, Product, Transfer};
use crate::walk::odometer;

/// Plans one unit; offsets count in grains of `elem_len` bytes.
pub(crate) fn plan(task: Task, elem_len: u64) -> Vec<Transfer> {
    let mut f = Factored { task, families: Vec::new(), found: Vec::new() };
    let own = task.own.pieces(task.unit, task.side == Side::Reader);
    let own = match task.window {
        None => own,
        Some(window) => own.iter().flat_map(|piece| window.carry(piece, task.side)).collect(),
    };
    for piece in own {
        match task.other.bound() {
            Bound::Regular(r) | Bound::Stripes(r) => f.meet_regular(&piece, r),
            Bound::Boxes(b) => f.meet_boxes(&piece, b),
            Bound::Digits(_) => {}
        }
    }
    let Factored { families, mut found, .. } = f;
    let families = Arc::new(families);
    found.sort_by_key(|f| f.0);
    let mut transfers: Vec<Transfer> = Vec::with_capacity(found.len());
    let mut rest = found.into_iter().peekable();
    while let Some((partner, first)) = rest.next() {
        let mut products = vec![first];
        while let Some((_, next)) = rest.next_if(|f| f.0 == partner) {
            products.push(next);
        }
        let (src, dst) = task.side.ordered(task.unit, partner);
        transfers.push(Transfer::of_products(src, dst, elem_len, families.clone(), products));
    }
    transfers
}

struct Factored<'a> {
    task: Task<'a>,
    families: Vec<Family>,
    /// The partner, and what is shared with it.
    found: Vec<(u64, Product)>,
}

/// A coordinate of the other side along one dimension that shares indices with the own piece.
#[derive(Clone, Copy)]
struct Hit {
    part: u64,
    /// What the coordinate adds to the unit's number.
    unit: u64,
    /// Places of the other side along the dimension.
    len: u64,
    families: Range,
}

/// First and number of the families of one dimension.
type Range = (u32, u32);

impl Factored<'_> {
    fn intersect(&mut self, own: &Comb, others: &[Comb]) -> Range {
        let first = self.families.len();
        for other in others {
            let (src, dst) = self.task.side.ordered(own, other);
            intersect(src, dst, &mut self.families);
        }
        (first as u32, (self.families.len() - first) as u32)
    }

    fn product(&self, own: &Piece, other_base: u64, other_strides: &[u64], ranges: &[Range]) -> Product {
        let side = self.task.side;
        let factors = ranges.iter().enumerate().map(|(k, &(first, n))| {
            let (src_stride, dst_stride) = side.ordered(own.strides[k], other_strides[k]);
            Factor { first, n, src_stride, dst_stride }
        });
        let (src, dst) = side.ordered(own.base, other_base);
        Product::new(src, dst, factors.collect(), &self.families)
    }

    fn meet_regular(&mut self, piece: &Piece, other: &Regular) {
        let reading = self.task.side == Side::Reader;
        let (mut hits, mut parts): (Vec<Hit>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut ends = [0; MAX_DIMS];
        for (k, dim) in other.dims.iter().enumerate() {
            dim.parts_meeting(&piece.combs[k], !reading, &mut parts);
            let begin = hits.len();
            for &part in &parts {
                let held = dim.held(part);
                let combs = if reading { Segments::one(dim.owned(part)) } else { held };
                let families = self.intersect(&piece.combs[k], combs.as_slice());
                if families.1 > 0 {
                    hits.push(Hit { part, unit: spread(&dim.axes, part), len: held.len_elems(), families });
                }
            }
            ends[k] = hits.len();
            if hits.len() == begin {
                return;
            }
        }
        let n = other.dims.len();
        let begin = |k: usize| if k == 0 { 0 } else { ends[k - 1] };
        for choice in odometer(Dims::from_fn(n, |k| (ends[k] - begin(k)) as u64)) {
            let hit = |k: usize| &hits[begin(k) + choice[k] as usize];
            let strides = other.order.strides(&Dims::from_fn(n, |k| hit(k).len));
            let mut ranges = [(0, 0); MAX_DIMS];
            for (k, range) in ranges.iter_mut().enumerate().take(n) {
                *range = hit(k).families;
            }
            let product = self.product(piece, 0, &strides, &ranges[..n]);
            let unit = (0..n).map(|k| hit(k).unit).sum();
            let part_sum = (0..n).map(|k| hit(k).part).sum();
            let Task { own, unit: me, side, .. } = self.task;
            each_replica(other, unit, part_sum, own, me, side, |u| self.found.push((u, product.clone())));
        }
    }

    fn meet_boxes(&mut self, piece: &Piece, boxes: &Boxes) {
        let Task { own, other, unit, side, .. } = self.task;
        let mut near: Vec<Held> = Vec::new();
        boxes.for_each_meeting(&piece.bounds(), |held, _| near.push(*held));
        near.sort_unstable_by_key(|h| (h.unit, h.base));
        for held in near {
            let partner = match side {
                Side::Reader if !boxes.is_first_replica(held.unit) => continue,
                Side::Reader => boxes.replica_for(held.unit, own.reader_number(unit)).into(),
                Side::Writer => u64::from(held.unit),
            };
            if side == Side::Writer && !sends_to(own, unit, other.reader_number(partner)) {
                continue;
            }
            let that = box_piece(&held, boxes);
            let n = piece.strides.len();
            let mut ranges = [(0, 0); MAX_DIMS];
            let mut shared = true;
            for (k, range) in ranges.iter_mut().enumerate().take(n) {
                *range = self.intersect(&piece.combs[k], &that.combs[k..=k]);
                shared &= range.1 > 0;
            }
            if shared {
                let product = self.product(piece, that.base, &that.strides, &ranges[..n]);
                self.found.push((partner, product));
            }
        }
    }
}

/// Calls `f` for the units of a regular layout that a part concerns: as a source the one replica that gives
/// to unit `me`, as a destination all replicas that `me` gives to. `unit` is the part's first replica,
/// `part_sum` the sum of its coordinates.
pub(crate) fn each_replica(
    other: &Regular,
    unit: u64,
    part_sum: u64,
    own: &crate::Mapping,
    me: u64,
    side: Side,
    mut f: impl FnMut(u64),
) {
    match side {
        Side::Reader => {
            f(unit + other.replica_stride(other.replica_for(part_sum, own.reader_number(me))));
        }
        Side::Writer => {
            for reader in (0..other.replicas).map(|i| unit + other.replica_stride(i)) {
                if sends_to(own, me, other.diagonal(reader)) {
                    f(reader);
                }
            }
        }
    }
}
