//! What a reader unit gets from each writer unit, whichever way the bytes come: for each array that both
//! have, the operations from the writer's slot to the reader's part.

use crate::bind::{bind_readers, bind_writers, Kinds, Taken};
use crate::error::{PipeError, Refusal};
use crate::port::kernels;
use crate::threads::Threads;
use crate::wire::{Array, Takes, Welcome};
use polyduct_copy::{as_shared, Conversion, CopyError, Dest, Kernels, Source};
use polyduct_layout::{LayoutError, Plan, Transfer};
use polyduct_port::{ArrayPart, BundleError};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::AtomicU8;
use std::sync::Arc;

/// Several threads share the bytes of an array from this size on; smaller arrays go to one of them each.
const SHARED_FROM: usize = 1 << 20;

/// What moves of one array between two units.
#[derive(Clone, Debug)]
pub struct Leg {
    /// Which of the arrays that the reader takes.
    pub array: usize,
    /// Where the writer unit's part of it lies in that one's slot.
    pub slot: Range<usize>,
    /// Between arrays that are alike the same.
    plan: Arc<Plan>,
    transfer: usize,
    /// The conversion to the reader's element type, if one is needed.
    pub conversion: Option<Conversion>,
}

impl Leg {
    /// The operations, from the writer's part to the reader's.
    pub fn transfer(&self) -> &Transfer {
        &self.plan.transfers()[self.transfer]
    }

    fn execute(
        &self,
        kernels: Kernels,
        (piece, pieces): (usize, usize),
        slot: &[u8],
        part: &[AtomicU8],
    ) -> Result<(), CopyError> {
        let slot = slot.get(self.slot.clone()).unwrap_or_default();
        self.transfer().tables().try_for_each(|table| {
            let (src, dst) = (Source::from(slot), Dest::from(part));
            match self.conversion {
                None => kernels.execute_part(&table, piece, pieces, src, dst),
                Some(to) => kernels.execute_convert_part(&table, to, piece, pieces, src, dst),
            }
        })
    }
}

/// All that one writer unit has for one reader unit, in the order of the reader's arrays.
#[derive(Clone, Debug)]
pub struct Supply {
    /// The writer unit.
    pub unit: u32,
    /// Bytes of its slot.
    pub slot_len: usize,
    /// None is empty.
    pub legs: Vec<Leg>,
    /// Bytes of all legs, of the writer's elements.
    pub bytes: u64,
}

impl Supply {
    /// Copies all of it from the writer's slot into the reader's parts.
    ///
    /// # Errors
    /// The slot or a part is shorter than the plan.
    pub fn copy(
        &self,
        (kernels, threads): (Kernels, Threads),
        slot: &[u8],
        parts: &mut [&mut [u8]],
    ) -> Result<(), CopyError> {
        let (one, many);
        let parts: &[&[AtomicU8]] = match parts {
            [part] => {
                one = [as_shared(part)];
                &one
            }
            parts => {
                many = parts.iter_mut().map(|part| as_shared(part)).collect::<Vec<_>>();
                &many
            }
        };
        let part = |leg: &Leg| parts.get(leg.array).copied().unwrap_or_default();
        let bytes = self.bytes as usize;
        threads.share(bytes, |piece, pieces| {
            let mut before = 0;
            self.legs.iter().try_for_each(|leg| {
                let len = leg.transfer().bytes() as usize;
                let turn = (before / (bytes / pieces).max(1)).min(pieces - 1);
                before += len;
                match pieces > 1 && len < SHARED_FROM {
                    false => leg.execute(kernels, (piece, pieces), slot, part(leg)),
                    true if turn == piece => leg.execute(kernels, (0, 1), slot, part(leg)),
                    true => Ok(()),
                }
            })
        })
    }
}

/// What a reader unit gets, and how its bytes are moved.
pub(crate) struct Work {
    /// The arrays as this unit reads them, in the writers' order.
    pub arrays: Vec<ArrayPart>,
    /// Bytes of this unit's parts together.
    pub len: usize,
    /// Who has something of them, by rising unit.
    pub supplies: Vec<Supply>,
    pub kernels: Kernels,
    pub threads: Threads,
}

impl Work {
    /// What unit `unit` of `units` of a reader program that takes these arrays gets.
    ///
    /// # Errors
    /// What does not fit: unit 0 refuses that before the welcome.
    pub fn bind(
        pipe: &str,
        welcome: &Welcome,
        takes: &Takes,
        (unit, units): (u32, u32),
    ) -> Result<Work, PipeError> {
        let src = bind_writers(&welcome.arrays, welcome.writers)?;
        let refused = |why: Refusal| PipeError::bad_peer(pipe, why.to_string());
        let (taken, dst) = bind_readers(&welcome.arrays, takes, units).map_err(refused)?;
        let names = taken.iter().map(|taken| welcome.arrays[taken.array].name.as_str());
        let arrays = dst.parts(names, unit)?;
        let (_, len) = dst.lay_out(unit)?;
        let supplies = supplies(&welcome.arrays, &src, (&taken, &dst), unit, None)?;
        let (kernels, threads) = (kernels(&src), Threads::of(units));
        Ok(Work { arrays, len, supplies, kernels, threads })
    }

    /// Contiguous runs that a step consists of.
    pub fn runs(&self) -> u64 {
        // Arrays that are alike are counted once.
        let mut known = HashMap::new();
        let legs = self.supplies.iter().flat_map(|supply| &supply.legs);
        let runs = |leg: &Leg| leg.transfer().tables().map(|table| table.runs()).sum::<u64>();
        legs.map(|leg| *known.entry((Arc::as_ptr(&leg.plan), leg.transfer)).or_insert_with(|| runs(leg)))
            .sum()
    }

    /// This unit's parts, in memory of [`len`](Work::len) bytes.
    pub fn split<'a>(&self, memory: &'a mut [u8]) -> Vec<&'a mut [u8]> {
        let (mut rest, mut end) = (memory, 0);
        let part = |array: &ArrayPart| {
            let gap = array.at.start.saturating_sub(end).min(rest.len());
            let (_, behind) = std::mem::take(&mut rest).split_at_mut(gap);
            let (part, behind) = behind.split_at_mut(array.at.len().min(behind.len()));
            (rest, end) = (behind, array.at.end);
            part
        };
        self.arrays.iter().map(part).collect()
    }

    /// Where this unit's parts lie in one slot as they do here: which supply that is of, and where in the slot
    /// they begin.
    pub fn direct(&self) -> Option<Range<usize>> {
        let [supply] = &self.supplies[..] else { return None };
        let mut base = None;
        for leg in &supply.legs {
            let table = leg.transfer().table()?;
            let ([op], None) = (table.ops(), leg.conversion) else { return None };
            let (part, elem) = (&self.arrays[leg.array].at, table.elem_len());
            let whole = op.loops == 0 && op.dst == 0 && (op.run * elem) as usize == part.len();
            let start = (leg.slot.start + (op.src * elem) as usize).checked_sub(part.start)?;
            if !whole || *base.get_or_insert(start) != start {
                return None;
            }
        }
        // An array of which this unit has a part that nobody brings is left as it is.
        let filled = self.arrays.iter().filter(|array| !array.at.is_empty()).count();
        let base = base.filter(|_| filled == supply.legs.len())?;
        Some(base..base + self.len)
    }
}

/// What unit `writer` of `writers` has for unit `unit` of `units` of a reader program; `None` where that is nothing.
///
/// # Errors
/// What does not fit: unit 0 refuses that before the welcome.
pub fn supply_of(
    arrays: &[Array],
    (writer, writers): (u32, u32),
    takes: &Takes,
    (unit, units): (u32, u32),
) -> Result<Option<Supply>, Refusal> {
    let src = bind_writers(arrays, writers).map_err(|_| Refusal::Malformed)?;
    let (taken, dst) = bind_readers(arrays, takes, units)?;
    let found = supplies(arrays, &src, (&taken, &dst), unit, Some(writer));
    Ok(found.map_err(|_| Refusal::Malformed)?.pop())
}

/// What writer units have for a reader unit: `only` one, or all.
fn supplies(
    arrays: &[Array],
    src: &Kinds<'_>,
    (taken, dst): (&[Taken], &Kinds<'_>),
    unit: u32,
    only: Option<u32>,
) -> Result<Vec<Supply>, BundleError> {
    let mut plans: HashMap<(usize, usize), Arc<Plan>> = HashMap::new();
    let mut supplies: BTreeMap<u32, (Supply, Vec<Range<usize>>)> = BTreeMap::new();
    for (array, taken) in taken.iter().enumerate() {
        let named =
            |source: LayoutError| BundleError::Layout { name: arrays[taken.array].name.clone(), source };
        let plan = match plans.entry((src.of[taken.array], dst.of[array])) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                let plan = Plan::to_reader(src.mapping(taken.array), dst.mapping(array), unit.into());
                new.insert(Arc::new(plan.map_err(named)?))
            }
        };
        for (transfer, t) in plan.transfers().iter().enumerate() {
            let from = t.src_unit() as u32;
            if t.bytes() == 0 || only.is_some_and(|only| only != from) {
                continue;
            }
            let (supply, slots) = match supplies.entry(from) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(new) => {
                    let (slots, slot_len) = src.lay_out(from)?;
                    let supply = Supply { unit: from, slot_len, legs: Vec::new(), bytes: 0 };
                    new.insert((supply, slots))
                }
            };
            let slot = slots[taken.array].clone();
            let (plan, conversion) = (plan.clone(), taken.conversion);
            supply.bytes += t.bytes();
            supply.legs.push(Leg { array, slot, plan, transfer, conversion });
        }
    }
    Ok(supplies.into_values().map(|(supply, _)| supply).collect())
}
