//! Arrays of which units have short pieces: they are put together in memory before they are written.
//!
//! A call for each piece costs more than the piece, and takes the file's lock. So the row-major array is cut into
//! windows, and these are dealt round to the units, as for the rows of a store. That is collective: a step of such an
//! array is written when all units have come to it.
//!
//! Source: two-phase I/O, Thakur, Gropp and Lusk, "Data Sieving and Collective I/O in ROMIO", 1999.

use super::runs::View;
use polyduct_layout::{Layout, LayoutError, Mapping, Plan, Transfer};
use std::sync::Arc;

/// Bytes of a window, unless that makes more of them than a plan should have transfers. Both halves of all units
/// together stay in the caches.
const WINDOW_BYTES: u64 = 512 << 10;
/// The most windows of an array.
const MAX_WINDOWS: u64 = 4096;
/// Pieces that are shorter on average are short.
const SHORT_BYTES: u64 = 8 << 10;
/// So many of them are written one by one nevertheless: to meet the others costs as much.
const FEW: u64 = 64;

/// An array in windows, as one unit has it.
#[derive(Debug)]
pub struct Staged {
    /// Bytes of a window, and of the array.
    window: u64,
    len: u64,
    /// From this unit's part to the windows.
    plan: Plan,
    /// The transfer of each window, where this unit has something of it.
    transfers: Vec<Option<usize>>,
}

impl Staged {
    /// The windows of an array of which some unit's pieces are short, for unit `unit`. Gives the same to all units.
    ///
    /// # Errors
    /// Those of making plans.
    pub fn of(mapping: &Mapping, file: &Mapping, unit: u32) -> Result<Option<Arc<Staged>>, LayoutError> {
        let units = mapping.units();
        if units < 2 || !short(mapping, file)? {
            return Ok(None);
        }
        let len = mapping.dataset().len_bytes();
        let window = WINDOW_BYTES.max(len.div_ceil(MAX_WINDOWS).next_multiple_of(4096));
        let count = len.div_ceil(window);
        let windows = format!("stripe({window})").parse::<Layout>()?.bind(mapping.dataset(), count)?;
        let plan = Plan::from_writer(mapping, &windows, unit.into())?;
        let mut transfers = vec![None; count as usize];
        for (n, transfer) in plan.transfers().iter().enumerate() {
            transfers[transfer.dst_unit() as usize] = Some(n);
        }
        Ok(Some(Arc::new(Staged { window, len, plan, transfers })))
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.transfers.len() as u64
    }

    /// Bytes of a window but for the last.
    pub fn window_bytes(&self) -> u64 {
        self.window
    }

    /// Where a window begins in the array, and how long it is.
    pub fn extent(&self, window: u64) -> (u64, u64) {
        let at = window * self.window;
        (at, self.window.min(self.len.saturating_sub(at)))
    }

    /// What this unit has of a window.
    pub fn transfer(&self, window: u64) -> Option<&Transfer> {
        self.plan.transfers().get((*self.transfers.get(window as usize)?)?)
    }
}

/// Whether pieces are short of the first unit, of one in the middle, or of the last: layouts are alike for all but the
/// last few, where they do not list boxes.
fn short(mapping: &Mapping, file: &Mapping) -> Result<bool, LayoutError> {
    let units = mapping.units();
    for unit in [0, units / 2, units - 1] {
        let plan = Plan::from_writer(mapping, file, unit)?;
        let view = View::writing(&plan);
        let tables = plan.transfers().iter().flat_map(|transfer| transfer.tables());
        let pieces: u64 = tables.map(|table| view.pieces(&table)).sum();
        if pieces > FEW && plan.bytes() / pieces < SHORT_BYTES {
            return Ok(true);
        }
    }
    Ok(false)
}
