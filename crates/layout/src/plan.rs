//! Composing two mappings: which units share elements, and what each gives to each.

use crate::linear_plan::{part_to_stripes, stripes_to_parts};
use crate::mapping::{Bound, Mapping};
use crate::transfer::Transfer;
use crate::window::Window;
use crate::{digit_plan, factored, runs, LayoutError};

/// All transfers that one unit takes part in, as reader or as writer; made by each unit for itself, without
/// communication.
///
/// Both sides see the same transfers: `from_writer(…, s)` has one to `d` if and only if `to_reader(…, d)` has
/// one from `s`, and they move the same elements.
#[derive(Debug)]
pub struct Plan {
    transfers: Vec<Transfer>,
}

/// Which side makes the plan.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Reader,
    Writer,
}

impl Side {
    /// The source's and the destination's, of what belongs to the own side and to the other.
    pub fn ordered<T>(self, own: T, other: T) -> (T, T) {
        match self {
            Side::Reader => (other, own),
            Side::Writer => (own, other),
        }
    }
}

/// One unit, and what it plans for.
#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub own: &'a Mapping,
    pub other: &'a Mapping,
    pub unit: u64,
    pub side: Side,
    /// What the two sides share, where that is not all.
    pub window: Option<&'a Window>,
}

impl Task<'_> {
    /// Bytes of a source element.
    pub fn elem_len(&self) -> u64 {
        self.side.ordered(self.own, self.other).0.elem_len()
    }
}

impl Plan {
    /// The transfers that fill unit `dst_unit` of the reader's mapping, its halo included, by rising source
    /// unit.
    ///
    /// Each element comes once, from a unit that owns it (never from a halo); of replicated sources each
    /// reader asks one, so that the load is even. Elements that the reader holds twice come once for each.
    ///
    /// # Errors
    /// [`LayoutError::ShapesDiffer`]; [`LayoutError::ElemsDiffer`] with stripes;
    /// [`LayoutError::UnitOutOfRange`]; what [`Mapping::check_writer`] says of the source;
    /// [`LayoutError::TooMany`] where there is no closed form (digits that do not divide, stripes against
    /// many uneven rows) and the part falls into too many runs.
    pub fn to_reader(src: &Mapping, dst: &Mapping, dst_unit: u64) -> Result<Plan, LayoutError> {
        check_pair(src, dst)?;
        Plan::make(Task { own: dst, other: src, unit: dst_unit, side: Side::Reader, window: None })
    }

    /// The transfers that empty unit `src_unit` of the writer's mapping, by rising destination unit.
    ///
    /// # Errors
    /// As [`Plan::to_reader`].
    pub fn from_writer(src: &Mapping, dst: &Mapping, src_unit: u64) -> Result<Plan, LayoutError> {
        check_pair(src, dst)?;
        Plan::make(Task { own: src, other: dst, unit: src_unit, side: Side::Writer, window: None })
    }

    /// The transfers that fill what unit `dst_unit` of the reader's mapping has of the window, its halo included,
    /// by rising source unit; the two mappings are of different datasets.
    ///
    /// # Errors
    /// [`LayoutError::WindowOutside`], [`LayoutError::IndexDims`]; [`LayoutError::NoWindow`] for digits and
    /// stripes; [`LayoutError::UnitOutOfRange`]; what [`Mapping::check_writer`] says of the source.
    pub fn window_to_reader(
        src: &Mapping,
        dst: &Mapping,
        dst_unit: u64,
        window: &Window,
    ) -> Result<Plan, LayoutError> {
        let task = Task { own: dst, other: src, unit: dst_unit, side: Side::Reader, window: Some(window) };
        Plan::make_window(task, window)
    }

    /// The transfers that take from unit `src_unit` of the writer's mapping what it has of the window, by rising
    /// destination unit.
    ///
    /// # Errors
    /// As [`Plan::window_to_reader`].
    pub fn window_from_writer(
        src: &Mapping,
        dst: &Mapping,
        src_unit: u64,
        window: &Window,
    ) -> Result<Plan, LayoutError> {
        let task = Task { own: src, other: dst, unit: src_unit, side: Side::Writer, window: Some(window) };
        Plan::make_window(task, window)
    }

    fn make_window(task: Task, window: &Window) -> Result<Plan, LayoutError> {
        let (src, dst) = task.side.ordered(task.own, task.other);
        window.check(src.dataset(), dst.dataset())?;
        for mapping in [src, dst] {
            if let Bound::Digits(_) | Bound::Stripes(_) = mapping.bound() {
                return Err(LayoutError::NoWindow { kind: mapping.layout().kind_name() });
            }
        }
        src.check_writer()?;
        match window.is_empty() {
            true => Ok(Plan { transfers: Vec::new() }),
            false => Plan::make(task),
        }
    }

    fn make(task: Task) -> Result<Plan, LayoutError> {
        task.own.check_unit(task.unit)?;
        if task.own.dataset().len_elems() == 0 {
            return Ok(Plan { transfers: Vec::new() });
        }
        let mut transfers = match (task.own.bound(), task.other.bound()) {
            (Bound::Stripes(_), Bound::Stripes(_)) => factored::plan(task, 1),
            (Bound::Stripes(own), _) => stripes_to_parts(task, own)?,
            (_, Bound::Stripes(other)) => part_to_stripes(task, other)?,
            (Bound::Digits(_), _) | (_, Bound::Digits(_)) => match digit_plan::plan(task) {
                Some(transfers) => transfers,
                None => runs::plan(task)?,
            },
            _ => factored::plan(task, task.elem_len()),
        };
        transfers.sort_by_key(|t| (t.src_unit(), t.dst_unit()));
        Ok(Plan { transfers })
    }

    /// The transfers.
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// The same, for keeping.
    pub fn into_transfers(self) -> Vec<Transfer> {
        self.transfers
    }

    /// Bytes moved by all transfers, counted in source elements.
    pub fn bytes(&self) -> u64 {
        self.transfers.iter().map(Transfer::bytes).sum()
    }

    /// Contiguous runs that all transfers consist of.
    pub fn runs(&self) -> u64 {
        self.transfers.iter().flat_map(Transfer::tables).map(|table| table.runs()).sum()
    }

    /// Bytes of memory that the plan and its tables take; see [`Transfer::table_bytes`].
    pub fn table_bytes(&self) -> usize {
        self.transfers.iter().map(|t| size_of::<Transfer>() + t.table_bytes()).sum()
    }
}

/// Whether data can go from one mapping to the other at all.
pub(crate) fn check_pair(src: &Mapping, dst: &Mapping) -> Result<(), LayoutError> {
    let (a, b) = (src.dataset(), dst.dataset());
    if a.shape() != b.shape() {
        return Err(LayoutError::ShapesDiffer { src: a.shape().to_vec(), dst: b.shape().to_vec() });
    }
    let stripes = |m: &Mapping| matches!(m.bound(), Bound::Stripes(_));
    if a.elem() != b.elem() && (stripes(src) || stripes(dst)) {
        return Err(LayoutError::ElemsDiffer { src: a.elem(), dst: b.elem() });
    }
    src.check_writer()
}

/// Whether, among its replicas, `unit` of a source is the one that gives to the reader with this
/// [number](Mapping::reader_number).
pub(crate) fn sends_to(src: &Mapping, unit: u64, reader: u64) -> bool {
    match src.bound() {
        Bound::Regular(r) => r.replica(unit) == r.replica_for(r.part_sum(unit), reader),
        Bound::Boxes(b) => u64::from(b.replica_for(unit as u32, reader)) == unit,
        Bound::Digits(_) | Bound::Stripes(_) => true,
    }
}
