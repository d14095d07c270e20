//! Counts the traffic between units, and the lengths of its runs: for pictures and decisions, not for moving
//! data.

use std::collections::BTreeMap;

use crate::plan::check_pair;
use crate::{LayoutError, Mapping, Plan};

/// The most cells of a traffic matrix.
pub const MAX_TRAFFIC_CELLS: u64 = 1 << 22;
/// The most operations that are looked at for run sizes.
const MAX_OPS: u64 = 1 << 24;

/// Bytes that each source unit gives to each destination unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    src_units: u64,
    dst_units: u64,
    elem_len: u64,
    bytes: Vec<u64>,
}

impl Traffic {
    /// Number of source units.
    pub fn src_units(&self) -> u64 {
        self.src_units
    }

    /// Number of destination units.
    pub fn dst_units(&self) -> u64 {
        self.dst_units
    }

    /// Bytes from one unit to another, counted in source elements; 0 for units that do not exist.
    pub fn bytes(&self, src_unit: u64, dst_unit: u64) -> u64 {
        match src_unit < self.src_units && dst_unit < self.dst_units {
            true => self.bytes[(src_unit * self.dst_units + dst_unit) as usize],
            false => 0,
        }
    }

    /// Elements from one unit to another; where stripes split elements, rounded down.
    pub fn elems(&self, src_unit: u64, dst_unit: u64) -> u64 {
        self.bytes(src_unit, dst_unit) / self.elem_len
    }

    /// Bytes in all.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Number of pairs of units that exchange anything.
    pub fn pairs(&self) -> u64 {
        self.bytes.iter().filter(|&&b| b > 0).count() as u64
    }
}

/// The matrix of bytes between all units.
///
/// # Errors
/// [`LayoutError::TooMany`] above [`MAX_TRAFFIC_CELLS`] cells; else as [`Plan::to_reader`].
pub fn traffic(src: &Mapping, dst: &Mapping) -> Result<Traffic, LayoutError> {
    check_pair(src, dst)?;
    let (count, limit) = (src.units().saturating_mul(dst.units()), MAX_TRAFFIC_CELLS);
    if count > limit {
        return Err(LayoutError::TooMany { what: "cells of a traffic matrix", count, limit });
    }
    let mut bytes = vec![0; count as usize];
    for d in 0..dst.units() {
        for t in Plan::to_reader(src, dst, d)?.transfers() {
            bytes[(t.src_unit() * dst.units() + d) as usize] += t.bytes();
        }
    }
    Ok(Traffic { src_units: src.units(), dst_units: dst.units(), elem_len: src.elem_len(), bytes })
}

/// How long the contiguous runs of a plan are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSizes {
    /// Bytes of a run → number of runs.
    pub by_bytes: BTreeMap<u64, u64>,
}

impl RunSizes {
    /// Number of runs.
    pub fn runs(&self) -> u64 {
        self.by_bytes.values().sum()
    }

    /// Bytes of all runs.
    pub fn bytes(&self) -> u64 {
        self.by_bytes.iter().map(|(b, n)| b * n).sum()
    }
}

/// Counts the runs (contiguous on both sides) of a plan by size. Looks at operations, not at single runs.
///
/// # Errors
/// [`LayoutError::TooMany`] when the plan has more than 2^24 operations.
pub fn run_sizes(plan: &Plan) -> Result<RunSizes, LayoutError> {
    let count = plan.transfers().iter().fold(0u64, |n, t| n.saturating_add(t.ops()));
    if count > MAX_OPS {
        return Err(LayoutError::TooMany { what: "operations of a plan", count, limit: MAX_OPS });
    }
    let mut sizes = RunSizes::default();
    for table in plan.transfers().iter().flat_map(|t| t.tables()) {
        for op in table.ops() {
            let runs: u64 = table.loops(op).iter().map(|l| l.count).product();
            *sizes.by_bytes.entry(op.run * table.elem_len()).or_default() += runs;
        }
    }
    Ok(sizes)
}
