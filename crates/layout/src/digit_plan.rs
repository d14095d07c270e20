//! Plans between digit layouts, or a digit layout and a regular one whose sizes divide: digit by digit.

use std::sync::Arc;

use crate::comb::Family;
use crate::digits::{refine, Digits};
use crate::factored::each_replica;
use crate::mapping::{Bound, Mapping};
use crate::op::MAX_NEST;
use crate::plan::{sends_to, Side, Task};
use crate::transfer::{Factor, Product, Transfer};

/// A loop in the making: count, elements from one round to the next on the own side and on the other.
type Round = (u64, u64, u64);

/// Plans one unit; `None` when the two sides have no digits in common.
///
/// A digit that makes the own unit's number is fixed; one that makes only the partner's number lists
/// partners; all others are loops, the same for every partner.
pub(crate) fn plan(task: Task) -> Option<Vec<Transfer>> {
    let Task { own, other, unit, side, .. } = task;
    let (a, b) = refine(&digits(own)?, &digits(other)?)?;
    let (mut other_at, mut partner_at) = (0, 0);
    // Radix, what one more adds to the partner's number, and to the own offset.
    let mut partners: Vec<(u64, u64, u64)> = Vec::new();
    let mut loops: Vec<Round> = Vec::new();
    for (x, y) in a.digits.iter().zip(&b.digits) {
        if x.unit != 0 {
            let value = Digits::value(x, unit);
            partner_at += value * y.unit;
            other_at += value * y.offset;
        } else if y.unit != 0 {
            partners.push((x.radix, y.unit, x.offset));
        } else {
            loops.push((x.radix, x.offset, y.offset));
        }
    }
    let (families, factors) = loop_factors(fuse(&loops), side);
    let families = Arc::new(families);
    let mut transfers = Vec::new();
    for n in 0..partners.iter().map(|p| p.0).product() {
        let (mut rest, mut partner, mut own_at) = (n, partner_at, 0);
        for &(radix, unit, offset) in partners.iter().rev() {
            partner += rest % radix * unit;
            own_at += rest % radix * offset;
            rest /= radix;
        }
        let (src, dst) = side.ordered(own_at, other_at);
        let product = Product::new(src, dst, factors.clone(), &families);
        let mut add = |partner: u64| {
            let (s, d) = side.ordered(unit, partner);
            let products = vec![product.clone()];
            transfers.push(Transfer::of_products(s, d, task.elem_len(), families.clone(), products));
        };
        match other.bound() {
            Bound::Regular(r) => each_replica(r, partner, r.part_sum(partner), own, unit, side, add),
            _ if side == Side::Reader || sends_to(own, unit, partner) => add(partner),
            _ => {}
        }
    }
    Some(transfers)
}

fn digits(map: &Mapping) -> Option<Digits> {
    match map.bound() {
        Bound::Digits(d) => Some(d.clone()),
        Bound::Regular(r) => Digits::from_regular(r),
        _ => None,
    }
}

/// Joins neighbouring loops, slowest first, that continue each other on both sides.
fn fuse(loops: &[Round]) -> Vec<Round> {
    let mut out: Vec<Round> = Vec::with_capacity(loops.len());
    for &l in loops {
        match out.last_mut() {
            Some(o) if o.1 == l.0 * l.1 && o.2 == l.0 * l.2 => *o = (o.0 * l.0, l.1, l.2),
            _ => out.push(l),
        }
    }
    out
}

/// Each loop as a factor; where there are too many for one operation the shortest become a family for each
/// round, so that the product has an operation for each.
fn loop_factors(mut loops: Vec<Round>, side: Side) -> (Vec<Family>, Vec<Factor>) {
    loops.sort_by_key(|l| l.0);
    let spill = loops.len().saturating_sub(MAX_NEST);
    let (mut families, mut factors) = (Vec::new(), Vec::new());
    let one = |at: u64, len: u64| Family { src: at, dst: at, len, count: 1, src_step: 0, dst_step: 0 };
    for (i, &(count, own, other)) in loops.iter().enumerate() {
        let (src_stride, dst_stride) = side.ordered(own, other);
        let first = families.len() as u32;
        match i < spill {
            true => families.extend((0..count).map(|k| one(k, 1))),
            false => families.push(one(0, count)),
        }
        factors.push(Factor { first, n: families.len() as u32 - first, src_stride, dst_stride });
    }
    (families, factors)
}
