//! The rows of a step, each in the memory of the unit that moves it to or from the disks.
//!
//! A unit has a stretch of each step: rows that lie one after the other. Whoever has elements of it copies them there, or from
//! there, directly. There are two halves, used in turn: while one is moved the other is filled.

use super::team::{Stage, Team};
use super::{Fill, StoreError};
use polyduct_copy::as_shared;
use polyduct_layout::{Dataset, Layout, Mapping, Plan};
use polyduct_message::domain::Region;
use std::ops::Range;
use std::sync::atomic::AtomicU8;

/// The memory, and who has which rows.
pub struct Staging {
    /// Rows of a step that each unit has.
    each: u64,
    units: u32,
    unit: u32,
    fill: Fill,
    half: usize,
    mine: Mine,
    /// Of each unit that this one has to do with.
    theirs: Vec<Option<Region>>,
}

enum Mine {
    Alone(Vec<u8>),
    Shared(Region),
}

impl Staging {
    /// Which unit has what of a step, as a layout of it.
    ///
    /// # Errors
    /// [`StoreError::Layout`].
    pub fn mapping(store: &str, dataset: &Dataset, fill: Fill, units: u32) -> Result<Mapping, StoreError> {
        let text = format!("stripe({})", stretch(fill, units).saturating_mul(fill.row_bytes));
        let bind = || text.parse::<Layout>()?.bind(dataset, units.into());
        bind().map_err(StoreError::layout(store))
    }

    /// Memory for the units of a program, of which `plan` says whom this one has to do with.
    ///
    /// # Errors
    /// [`StoreError::Message`], [`StoreError::Bad`] for more than memory can be.
    pub fn new(
        store: &str,
        team: &Team,
        fill: Fill,
        units: u32,
        partners: &[u32],
    ) -> Result<Staging, StoreError> {
        let each = stretch(fill, units);
        let unit = team.unit();
        let rows = rows_of(each, fill, unit);
        let len = (rows.end - rows.start).checked_mul(fill.row_bytes).and_then(|n| usize::try_from(n).ok());
        let both = len.and_then(|len| len.checked_mul(2)).filter(|&n| n <= isize::MAX as usize);
        let (Some(half), Some(both)) = (len, both) else {
            return Err(StoreError::Bad {
                store: store.to_owned(),
                what: "this unit's part of a step".into(),
                found: format!("{} rows of {} bytes", rows.end - rows.start, fill.row_bytes),
                expected: "what memory can hold twice".into(),
            });
        };
        let mine = team.share(both).map(|region| match region {
            Some(region) => Mine::Shared(region),
            None => Mine::Alone(vec![0; both]),
        });
        team.meet(Stage::Memory, mine.as_ref().map(|_| ()).map_err(Clone::clone))?;
        let mut theirs: Vec<Option<Region>> = (0..units).map(|_| None).collect();
        let mut found = Ok(());
        for &other in partners.iter().filter(|&&other| other != unit) {
            let region = team.shared(other).and_then(|region| {
                let rows = rows_of(each, fill, other);
                let expected = 2 * (rows.end - rows.start) * fill.row_bytes;
                match region {
                    Some(region) if region.len() as u64 >= expected => Ok(region),
                    _ => Err(StoreError::PeerFailed {
                        store: store.to_owned(),
                        unit: other,
                        reason: "its memory is not as long as it must be".into(),
                    }),
                }
            });
            match region {
                Ok(region) => theirs[other as usize] = Some(region),
                Err(e) => found = Err(e),
            }
        }
        team.meet(Stage::Memory, found)?;
        Ok(Staging { each, units, unit, fill, half, mine: mine?, theirs })
    }

    /// Rows of each step that this unit moves.
    pub fn rows(&self) -> Range<u64> {
        rows_of(self.each, self.fill, self.unit)
    }

    /// A half of this unit's memory.
    pub fn mine(&mut self, half: u64) -> &[AtomicU8] {
        let range = (half % 2) as usize * self.half..(half % 2 + 1) as usize * self.half;
        match &mut self.mine {
            Mine::Alone(bytes) => &as_shared(bytes)[range],
            Mine::Shared(region) => &region.bytes()[range],
        }
    }

    /// A half of a unit's memory; nothing of one that this unit has nothing to do with.
    pub fn of(&mut self, unit: u32, half: u64) -> &[AtomicU8] {
        if unit == self.unit || unit >= self.units {
            return self.mine(half);
        }
        let rows = rows_of(self.each, self.fill, unit);
        let len = ((rows.end - rows.start) * self.fill.row_bytes) as usize;
        match &self.theirs[unit as usize] {
            Some(region) => {
                region.bytes().get((half % 2) as usize * len..(half % 2 + 1) as usize * len).unwrap_or(&[])
            }
            None => &[],
        }
    }
}

/// Rows of a step that each unit has, the last ones fewer or none.
fn stretch(fill: Fill, units: u32) -> u64 {
    fill.rows.div_ceil(units.max(1).into()).max(1)
}

fn rows_of(each: u64, fill: Fill, unit: u32) -> Range<u64> {
    let start = each.saturating_mul(unit.into()).min(fill.rows);
    start..start.saturating_add(each).min(fill.rows)
}

/// Whether the plan moves a whole step, in its order, between this unit and itself: there is nothing to stage.
pub fn is_straight(plan: &Plan, fill: Fill, units: u32) -> bool {
    let [transfer] = plan.transfers() else { return false };
    let Some(table) = transfer.table() else { return false };
    let [op] = table.ops() else { return false };
    let whole = op.loops == 0 && op.src == 0 && op.dst == 0 && op.run * table.elem_len() == fill.step_bytes;
    units == 1 && whole && fill.per_row == 1
}
