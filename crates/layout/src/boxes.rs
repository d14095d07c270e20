//! Explicit boxes bound to a shape: who holds an index, and whether every element is held just once.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::dims::{Dims, IndexBox};
use crate::text::{BoxesText, Order};
use crate::LayoutError;

/// Boxes of all units, with an index over them.
#[derive(Debug)]
pub(crate) struct Boxes {
    /// Non-empty boxes, unit by unit in the order of the text.
    pub all: Vec<Held>,
    /// Where each unit's boxes begin in `all`; one more entry at the end.
    first: Vec<u32>,
    pub order: Order,
    index: Index,
    groups: Groups,
}

/// One box of a unit, and where it begins in the unit's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub unit: u32,
    pub at: IndexBox,
    /// Offset of the box's first element in elements.
    pub base: u64,
}

/// Boxes by where they begin along one dimension, and how far those before them reach.
#[derive(Debug, Default)]
struct Index {
    dim: usize,
    /// Numbers in `all`, by lower end along `dim`.
    by_lo: Vec<u32>,
    /// The highest upper end among the boxes up to here.
    reach: Vec<u64>,
}

/// Units that hold equal lists of boxes: replicas of each other.
#[derive(Debug, Default)]
struct Groups {
    /// For each unit the number of its group, and which of the group it is.
    of_unit: Vec<(u32, u32)>,
    /// Units of each group, rising.
    members: Vec<Vec<u32>>,
}

impl Boxes {
    pub fn bind(text: &BoxesText, shape: Dims, elem_len: u64, units: u64) -> Result<Boxes, LayoutError> {
        let listed = text.units.len() as u64;
        if listed != units {
            return Err(LayoutError::BoxUnits { listed, units });
        }
        let mut all = Vec::new();
        let mut first = Vec::with_capacity(text.units.len() + 1);
        for (unit, boxes) in text.units.iter().enumerate() {
            first.push(all.len() as u32);
            let mut base = 0u64;
            for (index, b) in boxes.iter().enumerate() {
                if b.ndim() != shape.len() {
                    return Err(LayoutError::DimsDiffer { layout: b.ndim(), dataset: shape.len() });
                }
                if let Some(dim) = (0..shape.len()).find(|&k| b.hi[k] > shape[k]) {
                    let (unit, hi, size) = (unit as u64, b.hi[dim], shape[dim]);
                    return Err(LayoutError::BoxOutside { unit, index, dim, hi, size });
                }
                let len = b.len_elems();
                if len > 0 {
                    all.push(Held { unit: unit as u32, at: *b, base });
                }
                base = base
                    .checked_add(len)
                    .filter(|b| b.checked_mul(elem_len).is_some_and(|n| n <= i64::MAX as u64))
                    .ok_or(LayoutError::BoxesTooLarge { unit: unit as u64 })?;
            }
        }
        first.push(all.len() as u32);
        let index = Index::new(&all, shape.len());
        let mut boxes = Boxes { all, first, order: text.order.clone(), index, groups: Groups::default() };
        boxes.groups = Groups::new(&boxes, text.units.len());
        Ok(boxes)
    }

    /// The boxes of a unit.
    pub fn of(&self, unit: u64) -> &[Held] {
        &self.all[self.first[unit as usize] as usize..self.first[unit as usize + 1] as usize]
    }

    /// Elements that a unit holds.
    pub fn local_len(&self, unit: u64) -> u64 {
        self.of(unit).last().map_or(0, |h| h.base + h.at.len_elems())
    }

    /// Calls `f` for each box that meets `range`, in no order.
    pub fn for_each_meeting(&self, range: &IndexBox, mut f: impl FnMut(&Held, IndexBox)) {
        let ix = &self.index;
        let Some((lo, hi)) = range.lo.get(ix.dim).zip(range.hi.get(ix.dim)) else { return };
        let upto = ix.by_lo.partition_point(|&b| self.all[b as usize].at.lo[ix.dim] < *hi);
        for i in (0..upto).rev() {
            if ix.reach[i] <= *lo {
                break;
            }
            let held = &self.all[ix.by_lo[i] as usize];
            if let Some(common) = held.at.intersect(range) {
                f(held, common);
            }
        }
    }

    /// The smallest number of units that hold equal boxes, of those that hold any.
    pub fn replicas(&self) -> u64 {
        let held = self.groups.members.iter().filter(|m| !self.of(m[0].into()).is_empty());
        held.map(|m| m.len() as u64).min().unwrap_or(1)
    }

    /// Of the units that hold the same boxes as `unit`, the one to ask for a reader whose number among
    /// readers is `reader`.
    pub fn replica_for(&self, unit: u32, reader: u64) -> u32 {
        let group = self.groups.of_unit[unit as usize].0 as usize;
        let members = &self.groups.members[group];
        members[((reader % members.len() as u64 + group as u64) % members.len() as u64) as usize]
    }

    /// Whether a unit is the first that holds its boxes.
    pub fn is_first_replica(&self, unit: u32) -> bool {
        self.groups.of_unit[unit as usize].1 == 0
    }

    /// Whether every element is held once, or by units that all hold the same boxes.
    pub fn check_cover(&self, shape: Dims) -> Result<(), LayoutError> {
        if shape.product() == 0 {
            return Ok(());
        }
        let boxes: Vec<&Held> = self.all.iter().filter(|h| self.is_first_replica(h.unit)).collect();
        let whole = IndexBox { lo: Dims::filled(0, shape.len()), hi: shape };
        let mut worst = None;
        first_fault(whole, &boxes, &mut worst);
        match worst {
            None => Ok(()),
            Some((index, holders)) => {
                let (element, index) = (shape.ravel(&index), index.to_vec());
                Err(match holders {
                    None => LayoutError::Hole { element, index },
                    Some((first, second)) => LayoutError::Overlap { element, index, first, second },
                })
            }
        }
    }
}

impl Index {
    fn new(all: &[Held], ndim: usize) -> Index {
        // The dimension in which boxes begin at the most different places tells most.
        let places = |k: usize| {
            let mut lo: Vec<u64> = all.iter().map(|h| h.at.lo[k]).collect();
            lo.sort_unstable();
            lo.dedup();
            lo.len()
        };
        let dim = (0..ndim).max_by_key(|&k| (places(k), std::cmp::Reverse(k))).unwrap_or(0);
        let mut by_lo: Vec<u32> = (0..all.len() as u32).collect();
        by_lo.sort_by_key(|&b| all[b as usize].at.lo.get(dim).copied());
        let mut reach = Vec::with_capacity(all.len());
        let mut top = 0;
        for &b in &by_lo {
            top = top.max(all[b as usize].at.hi[dim]);
            reach.push(top);
        }
        Index { dim, by_lo, reach }
    }
}

impl Groups {
    fn new(boxes: &Boxes, units: usize) -> Groups {
        let mut groups = Groups::default();
        let mut seen: HashMap<Vec<IndexBox>, u32> = HashMap::new();
        for unit in 0..units {
            let key = boxes.of(unit as u64).iter().map(|h| h.at).collect();
            let group = *seen.entry(key).or_insert_with(|| {
                groups.members.push(Vec::new());
                groups.members.len() as u32 - 1
            });
            let members = &mut groups.members[group as usize];
            groups.of_unit.push((group, members.len() as u32));
            members.push(unit as u32);
        }
        groups
    }
}

/// The first index in row-major order that is not held just once: by nobody, or by these two units.
type Fault = (Dims, Option<(u64, u64)>);

/// Finds the first fault within `space`, given the boxes that meet it, and keeps it in `first` when it is
/// earlier.
///
/// Halves the space at a face of a box until each box covers it whole. Depth: each step takes a face in the
/// middle of all, so it is logarithmic in the number of boxes. Spaces that lie after a fault already found
/// are left out.
fn first_fault(space: IndexBox, boxes: &[&Held], first: &mut Option<Fault>) {
    let after = |first: &Option<Fault>, at: &Dims| {
        first.is_some_and(|(f, _)| f.as_slice().cmp(at) != Ordering::Greater)
    };
    if after(first, &space.lo) {
        return;
    }
    match boxes {
        [] => return *first = Some((space.lo, None)),
        [only] if covers(only, &space) => return,
        [a, b, ..] => {
            // A cheap look at two of them finds gross overlaps early, which bounds the work for bad layouts.
            if let Some(both) = a.at.intersect(&b.at).and_then(|both| both.intersect(&space)) {
                if !after(first, &both.lo) {
                    let (a, b) = (a.unit.min(b.unit), a.unit.max(b.unit));
                    *first = Some((both.lo, Some((a.into(), b.into()))));
                }
                if after(first, &space.lo) {
                    return;
                }
            }
        }
        _ => {}
    }
    let Some((dim, cut)) = middle_face(&space, boxes) else { return };
    let (mut below, mut above) = (space, space);
    below.hi.as_mut_slice()[dim] = cut;
    above.lo.as_mut_slice()[dim] = cut;
    for half in [below, above] {
        let inside: Vec<&Held> = boxes
            .iter()
            .copied()
            .filter(|h| h.at.lo[dim] < half.hi[dim] && h.at.hi[dim] > half.lo[dim])
            .collect();
        first_fault(half, &inside, first);
    }
}

fn covers(held: &Held, space: &IndexBox) -> bool {
    (0..space.ndim()).all(|k| held.at.lo[k] <= space.lo[k] && held.at.hi[k] >= space.hi[k])
}

/// The middle one of the box faces inside `space`, in the dimension that has most.
fn middle_face(space: &IndexBox, boxes: &[&Held]) -> Option<(usize, u64)> {
    let mut best: Option<(usize, Vec<u64>)> = None;
    for k in 0..space.ndim() {
        let inside = |x: &u64| *x > space.lo[k] && *x < space.hi[k];
        let faces: Vec<u64> = boxes.iter().flat_map(|h| [h.at.lo[k], h.at.hi[k]]).filter(inside).collect();
        if faces.len() > best.as_ref().map_or(0, |(_, f)| f.len()) {
            best = Some((k, faces));
        }
    }
    best.map(|(k, mut faces)| {
        let middle = faces.len() / 2;
        (k, *faces.select_nth_unstable(middle).1)
    })
}
