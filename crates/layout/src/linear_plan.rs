//! Plans between parts of arrays and stripes.

use std::sync::Arc;

use crate::linear::{nests, LinearPart, Nest, Stripes, MAX_STARTS};
use crate::plan::{sends_to, Side, Task};
use crate::regular::Regular;
use crate::transfer::Transfer;
use crate::LayoutError;

/// The own side is stripes: every unit of the other is looked at.
pub(crate) fn stripes_to_parts(task: Task, own: &Regular) -> Result<Vec<Transfer>, LayoutError> {
    let Task { own: mine, other, unit, side, .. } = task;
    let stripes = Stripes::new(&own.dims[0], mine.elem_len(), mine.units(), mine.dataset().len_bytes());
    let writing = side == Side::Writer;
    let mut transfers = Vec::new();
    for partner in 0..other.units() {
        if !writing && !sends_to(other, partner, unit) {
            continue;
        }
        let part = Arc::new(nests(other, partner, writing, &stripes)?);
        if let Some(shared) = LinearPart::new(&part, stripes, unit, writing)? {
            let (src, dst) = side.ordered(unit, partner);
            transfers.push(Transfer::of_linear(src, dst, shared));
        }
    }
    Ok(transfers)
}

/// The other side is stripes: those that the own part's runs fall to.
pub(crate) fn part_to_stripes(task: Task, other: &Regular) -> Result<Vec<Transfer>, LayoutError> {
    let Task { own, other: theirs, unit, side, .. } = task;
    let stripes = Stripes::new(&other.dims[0], own.elem_len(), theirs.units(), own.dataset().len_bytes());
    let reading = side == Side::Reader;
    let part = Arc::new(nests(own, unit, reading, &stripes)?);
    let mut transfers = Vec::new();
    for partner in touched(&part, &stripes, theirs.units())? {
        if !reading && !sends_to(own, unit, partner) {
            continue;
        }
        if let Some(shared) = LinearPart::new(&part, stripes, partner, reading)? {
            let (src, dst) = side.ordered(unit, partner);
            transfers.push(Transfer::of_linear(src, dst, shared));
        }
    }
    Ok(transfers)
}

/// Units of stripes that a part may meet, rising.
fn touched(part: &[Nest], stripes: &Stripes, units: u64) -> Result<Vec<u64>, LayoutError> {
    if stripes.once {
        let stripe = |at: u64| at / stripes.width;
        let ranges = || part.iter().map(|nest| stripe(nest.lower())..stripe(nest.upper() - 1) + 1);
        let count = ranges().fold(0u64, |n, r| n.saturating_add(r.end - r.start));
        if count > MAX_STARTS {
            return Err(LayoutError::TooMany { what: "stripes for one part", count, limit: MAX_STARTS });
        }
        let mut all: Vec<u64> = ranges().flatten().collect();
        all.sort_unstable();
        all.dedup();
        return Ok(all);
    }
    let endless = Regular::stripes(stripes.width, i64::MAX as u64, units);
    let (mut all, mut some): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    let mut tidy_at = 1024;
    for nest in part {
        nest.for_each_leaf(stripes, |leaf| {
            endless.dims[0].parts_meeting(leaf, false, &mut some);
            all.append(&mut some);
            if all.len() > tidy_at {
                all.sort_unstable();
                all.dedup();
                tidy_at = 1024.max(2 * all.len());
            }
        });
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}
