//! The rows of a step as windows, which [units put together](crate::staging) and move to or from the disks.

use super::{Fill, StoreError};
use polyduct_layout::{Dataset, Layout, Mapping, Plan};
use std::ops::Range;

/// Bytes of a window, where a row has less.
const WINDOW: u64 = 4 << 20;
/// The most windows of a step: a plan has a table for each. Longer steps have longer windows.
const MAX_WINDOWS: u64 = 4096;

/// How the rows of a step are cut.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    fill: Fill,
    units: u32,
    /// Rows of a window.
    rows: u64,
}

impl Windows {
    /// For the units of a program.
    pub fn of(fill: Fill, units: u32) -> Windows {
        let most = fill.rows.div_ceil(MAX_WINDOWS);
        let rows = (WINDOW / fill.row_bytes).max(most).clamp(1, fill.rows.max(1));
        Windows { fill, units: units.max(1), rows }
    }

    /// Windows of a step.
    fn count(self) -> u64 {
        self.fill.rows.div_ceil(self.rows).max(1)
    }

    /// How often each unit has one.
    pub fn rounds(self) -> u64 {
        self.count().div_ceil(self.units.into())
    }

    /// Bytes of a window.
    pub fn bytes(self) -> u64 {
        self.rows.saturating_mul(self.fill.row_bytes)
    }

    /// The window of a unit in a round: rows of the step, and the bytes of them that the step fills.
    pub fn rows(self, round: u64, unit: u32) -> (Range<u64>, u64) {
        let start =
            (round * u64::from(self.units) + u64::from(unit)).saturating_mul(self.rows).min(self.fill.rows);
        let end = (start + self.rows).min(self.fill.rows);
        let left = self.fill.step_bytes.saturating_sub(start.saturating_mul(self.fill.row_bytes));
        (start..end, left.min(self.bytes()))
    }

    /// The windows as units of a layout: one each.
    ///
    /// # Errors
    /// [`PortError::Layout`].
    pub fn mapping(self, store: &str, dataset: &Dataset) -> Result<Mapping, StoreError> {
        let text = format!("stripe({})", self.bytes());
        let bind = || text.parse::<Layout>()?.bind(dataset, self.count());
        bind().map_err(StoreError::layout(store))
    }

    /// The transfers of a plan by round, each with the unit that has the window: `window` says which one a
    /// transfer is of.
    pub fn by_round(self, plan: &Plan, window: impl Fn(usize) -> u64) -> Vec<Vec<(usize, u32)>> {
        let mut rounds = vec![Vec::new(); self.rounds() as usize];
        for i in 0..plan.transfers().len() {
            let (round, unit) = (window(i) / u64::from(self.units), window(i) % u64::from(self.units));
            rounds[round as usize].push((i, unit as u32));
        }
        rounds
    }
}

/// Whether the part of the only unit is the step as it lies in the rows: there is nothing to stage.
pub fn is_straight(mapping: &Mapping, fill: Fill, units: u32) -> bool {
    let whole = || -> Option<bool> {
        let row_major = "stripe(1024MiB)".parse::<Layout>().ok()?.bind(mapping.dataset(), 1).ok()?;
        let plan = Plan::from_writer(mapping, &row_major, 0).ok()?;
        let [transfer] = plan.transfers() else { return Some(false) };
        let table = transfer.table()?;
        let [op] = table.ops() else { return Some(false) };
        Some(op.loops == 0 && op.src == 0 && op.dst == 0 && op.run * table.elem_len() == fill.step_bytes)
    };
    units == 1 && fill.per_row == 1 && whole() == Some(true)
}
