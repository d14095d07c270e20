//! A window of a step at a time, in the memory of the unit that moves it to or from the disks.
//!
//! The rows of a step are cut into windows, and these are dealt round to the units: one each, and then the
//! next round. Units that have elements of a window copy them there, or from there, directly. There are two
//! halves, used in turn: while one is moved the other is filled. So the memory is small, and stays in the
//! caches, however large the step is.

use super::{Fill, StoreError};
use crate::team::{Stage, Team};
use polyduct_copy::as_shared;
use polyduct_layout::{Dataset, Layout, Mapping, Plan};
use polyduct_message::domain::Region;
use polyduct_os::aligned::zeros;
use polyduct_port::{PortError, PortName};
use std::ops::Range;
use std::sync::atomic::AtomicU8;

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

/// The memory.
pub struct Staging {
    unit: u32,
    half: usize,
    mine: Mine,
    /// Of each other unit.
    theirs: Vec<Option<Region>>,
}

enum Mine {
    Alone(Vec<u8>),
    Shared(Region),
}

impl Staging {
    /// Memory for windows, of which each unit may have any.
    ///
    /// # Errors
    /// [`StoreError::Message`], [`PortError::PeerAborted`], [`StoreError::Bad`] for more than memory can be.
    pub fn new(store: &str, team: &Team, windows: Windows) -> Result<Staging, StoreError> {
        let unit = team.unit();
        let both = usize::try_from(windows.bytes())
            .ok()
            .and_then(|n| n.checked_mul(2))
            .filter(|&n| n <= isize::MAX as usize);
        let Some(both) = both else {
            return Err(StoreError::Bad {
                store: store.to_owned(),
                what: "a row of the store".into(),
                found: format!("{} bytes", windows.bytes()),
                expected: "what memory can hold twice".into(),
            });
        };
        let mine = team.share(both).map(|region| match region {
            Some(region) => Mine::Shared(region),
            None => Mine::Alone(Vec::new()),
        });
        let mine = mine.and_then(|mine| match mine {
            Mine::Alone(_) => {
                zeros(both, "rows of the store").map(Mine::Alone).map_err(StoreError::os(store))
            }
            shared => Ok(shared),
        });
        team.meet(Stage::Memory, mine.as_ref().map(|_| ()).map_err(Clone::clone))?;
        let mut theirs: Vec<Option<Region>> = (0..windows.units).map(|_| None).collect();
        let mut found = Ok(());
        for other in (0..windows.units).filter(|&other| other != unit) {
            let region = team.shared(other).and_then(|region| match region {
                Some(region) if region.len() >= both => Ok(region),
                _ => Err(StoreError::Port(PortError::PeerAborted {
                    port: PortName::Store(store.to_owned()),
                    peer: other.into(),
                    reason: "its memory is not as long as it must be".into(),
                })),
            });
            match region {
                Ok(region) => theirs[other as usize] = Some(region),
                Err(e) => found = Err(e),
            }
        }
        team.meet(Stage::Memory, found)?;
        Ok(Staging { unit, half: both / 2, mine: mine?, theirs })
    }

    /// A half of a unit's memory; nothing of one that this unit has nothing to do with.
    pub fn of(&mut self, unit: u32, half: u64) -> &[AtomicU8] {
        let range = (half % 2) as usize * self.half..(half % 2 + 1) as usize * self.half;
        let all = match (&mut self.mine, self.theirs.get(unit as usize)) {
            (Mine::Alone(bytes), _) if unit == self.unit => as_shared(bytes),
            (Mine::Shared(region), _) if unit == self.unit => region.bytes(),
            (_, Some(Some(region))) => region.bytes(),
            _ => &[],
        };
        all.get(range).unwrap_or(&[])
    }

    /// A half of this unit's memory.
    pub fn mine(&mut self, half: u64) -> &[AtomicU8] {
        self.of(self.unit, half)
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
