//! What a reader unit gets from each writer unit, whichever way the bytes come: for each array that both
//! have, the operations from the writer's slot to the reader's part.

mod changing;

use crate::bind::{bind_readers, bind_writers, Kinds, Taken};
use crate::error::{Mismatch, Refusal};
use crate::port::kernels;
use crate::threads::Threads;
use crate::wire::{Array, Takes, Wish, VALUES};
use changing::Changing;
use polyduct_copy::{as_shared, Conversion, CopyError, Dest, Kernels, Source};
use polyduct_layout::{LayoutError, Loop, OpTable, Plan, Transfer, Window};
use polyduct_port::{ArrayPart, BundleError};
use std::collections::{btree_map, hash_map, BTreeMap, HashMap};
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
    /// The first of them, of arrays whose size does not change.
    pub fixed: usize,
    /// None is empty.
    pub legs: Vec<Leg>,
    /// Bytes of all legs, of the writer's elements.
    pub bytes: u64,
    /// The legs that are but runs, as one table of bytes from the slot to the memory of a step: thousands of
    /// small arrays that lie alike on both sides are one copy. The others, by their index; those that follow
    /// behind are of arrays whose size changes.
    packed: Option<Arc<(OpTable, Vec<usize>)>>,
    /// How many legs that speaks of.
    packs: usize,
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

impl Supply {
    /// Copies what there is of one array alone.
    ///
    /// # Errors
    /// As [`copy`](Supply::copy).
    pub fn copy_array(
        &self,
        array: usize,
        kernels: Kernels,
        slot: &[u8],
        part: &mut [u8],
    ) -> Result<(), CopyError> {
        let part = as_shared(part);
        let mut legs = self.legs.iter().filter(|leg| leg.array == array);
        legs.try_for_each(|leg| leg.execute(kernels, (0, 1), slot, part))
    }
}

impl Supply {
    /// Makes the table of all legs that there are so far.
    fn pack(&mut self, arrays: &[ArrayPart]) {
        let (mut runs, mut rest) = (Vec::<(u64, u64, u64)>::new(), Vec::new());
        for (index, leg) in self.legs.iter().enumerate() {
            let table = leg
                .transfer()
                .table()
                .filter(|table| leg.conversion.is_none() && table.ops().iter().all(|op| op.loops == 0));
            let Some(table) = table else {
                rest.push(index);
                continue;
            };
            let (slot, memory) = (leg.slot.start as u64, arrays[leg.array].at.start as u64);
            for op in table.ops() {
                let [src, dst, len] = [op.src, op.dst, op.run].map(|n| n * table.elem_len());
                let (src, dst) = (slot + src, memory + dst);
                match runs.last_mut().filter(|(s, d, n)| (s + n, d + n) == (src, dst)) {
                    Some((_, _, n)) => *n += len,
                    None => runs.push((src, dst, len)),
                }
            }
        }
        let mut table = OpTable::new(1);
        let run = |len| [Loop { count: len, src_step: 1, dst_step: 1 }];
        runs.into_iter().for_each(|(src, dst, len)| table.push(src, dst, &run(len)));
        self.packs = self.legs.len();
        self.packed = Some(Arc::new((table, rest)));
    }

    /// Copies all of it from the writer's slot into the memory of a step, and the values beside it.
    ///
    /// # Errors
    /// As [`copy`](Supply::copy).
    pub fn copy_memory(
        &self,
        work: &Work,
        slot: &[u8],
        memory: &mut [u8],
        values: &mut [u8],
    ) -> Result<(), CopyError> {
        let (memory, values) = (as_shared(memory), as_shared(values));
        let packed = self.packed.as_deref();
        if let Some((table, _)) = packed {
            work.threads.share(table.len_bytes() as usize, |piece, pieces| {
                let (src, dst) = (Source::from(slot), Dest::from(memory));
                work.kernels.execute_part(table, piece, pieces, src, dst)
            })?;
        }
        let rest = packed.into_iter().flat_map(|(_, rest)| rest.iter().copied());
        let named = work.named().len();
        rest.chain(self.packs..self.legs.len()).try_for_each(|index| {
            let leg = &self.legs[index];
            let part = match leg.array < named {
                true => memory.get(work.arrays[leg.array].at.clone()).unwrap_or_default(),
                false => values,
            };
            work.threads.share(leg.transfer().bytes() as usize, |piece, pieces| {
                leg.execute(work.kernels, (piece, pieces), slot, part)
            })
        })
    }
}

/// What a reader unit gets, and how its bytes are moved.
pub struct Work {
    /// The arrays as this unit reads them, in the writers' order, and the [values](crate::wire::VALUES) behind
    /// them where there are some. Those whose size changes are as in the [step](Work::at_step) at hand.
    pub arrays: Vec<ArrayPart>,
    /// Bytes of this unit's parts together, without the values.
    pub len: usize,
    /// Who has something of them, by rising unit. Where sizes change these are all writer units.
    pub supplies: Vec<Supply>,
    /// Where the parts lie in the slot of the only supply as they do here.
    pub direct: Option<Range<usize>>,
    /// Contiguous runs that a step consists of.
    pub runs: u64,
    /// How often sizes have changed.
    pub generation: u64,
    /// What moves the bytes.
    pub kernels: Kernels,
    /// Who does.
    pub threads: Threads,
    /// What changes from step to step.
    changing: Option<Box<Changing>>,
    /// What the writers bring, where it is one array whose size does not change, and how many they are.
    single: Option<Box<(Array, u32)>>,
}

impl Work {
    /// What unit `unit` of `units` of a reader program that takes these arrays gets.
    ///
    /// # Errors
    /// What does not fit: unit 0 refuses that before the welcome.
    pub fn bind(
        arrays: &[Array],
        writers: u32,
        takes: &Takes,
        (unit, units): (u32, u32),
    ) -> Result<Work, Refusal> {
        let src = bind_writers(arrays, writers).map_err(misfit)?;
        let (taken, dst) = bind_readers(arrays, takes, units)?;
        let parts = dst.parts(taken.iter().map(|taken| (taken.name, taken.open)), unit).map_err(misfit)?;
        let changes = arrays.iter().any(|array| array.open.is_some());
        let all = changes.then_some(writers);
        let supplies = supplies(&src, (&taken, &dst), unit, all).map_err(misfit)?;
        let changing = changes.then(|| Changing::new(arrays, (&src, &dst), &taken, &supplies, (unit, units)));
        let changing = changing.transpose().map_err(misfit)?.map(Box::new);
        let (kernels, threads) = (kernels(&src), Threads::of(units));
        let mut work = Work {
            arrays: parts,
            len: 0,
            supplies,
            direct: None,
            runs: 0,
            generation: 0,
            kernels,
            threads,
            changing,
            single: None,
        };
        if let ([array], false) = (arrays, work.changes()) {
            work.single = Some(Box::new((array.clone(), writers)));
        }
        if work.arrays.len() > 1 {
            let Work { supplies, arrays, .. } = &mut work;
            supplies.iter_mut().for_each(|supply| supply.pack(arrays));
        }
        work.settle();
        Ok(work)
    }

    /// What a unit gets that has the bytes of the row-major array from `index` times `len` on, `len` of them: the part of
    /// one unit of many, each of which has one stripe. `None` where there is no single array whose size does not change.
    ///
    /// # Errors
    /// As [`bind`](Work::bind).
    pub fn stretch(&self, len: u64, index: u32) -> Option<Result<Work, Refusal>> {
        let (array, writers) = self.single.as_deref()?;
        let dataset = self.arrays.first()?.mapping.dataset();
        let count = u32::try_from(dataset.len_bytes().div_ceil(len.max(1))).ok()?.max(1);
        let elem = Some(dataset.elem().to_string());
        let wish = Wish { layout: format!("stripe({len})"), shape: None, elem, convert: true, of: None };
        let work = Work::bind(std::slice::from_ref(array), *writers, &Takes::One(wish), (index, count));
        Some(work.map(|work| Work { threads: self.threads, ..work }))
    }

    /// Whether sizes change from step to step.
    pub fn changes(&self) -> bool {
        self.changing.is_some()
    }

    /// The arrays without the values.
    pub fn named(&self) -> &[ArrayPart] {
        let values = usize::from(self.values().is_some());
        &self.arrays[..self.arrays.len() - values]
    }

    /// The values' array, where there is one.
    pub fn values(&self) -> Option<&ArrayPart> {
        self.arrays.last().filter(|array| array.name == VALUES)
    }

    /// Bytes that a step adds to this unit's counters.
    pub fn bytes(&self) -> u64 {
        self.named().iter().map(|array| array.at.len() as u64).sum()
    }

    /// From now on sizes are those of a step of which the writer units have said these numbers. Returns whether
    /// that changed anything.
    ///
    /// # Errors
    /// They are more than was declared, or units differ where they may not; nothing has changed then.
    pub fn at_step(&mut self, said: &[u64]) -> Result<bool, BundleError> {
        let Some(mut changing) = self.changing.take() else { return Ok(false) };
        let changed = changing.apply(said, self);
        self.changing = Some(changing);
        if changed? {
            self.generation += 1;
            self.settle();
            return Ok(true);
        }
        Ok(false)
    }

    /// The constant arrays that this unit takes, by their index.
    pub fn constants(&self) -> Vec<usize> {
        self.changing.iter().flat_map(|changing| changing.constants()).collect()
    }

    /// Has the writer units say that constant arrays do not come with a step.
    pub fn without_constants(&self, said: &mut [u64]) {
        self.changing.iter().for_each(|changing| changing.without_constants(said));
    }

    /// Works out what follows from arrays and supplies.
    fn settle(&mut self) {
        self.len = self.named().iter().map(|array| array.at.end).max().unwrap_or(0);
        // Arrays that are alike are counted once.
        let mut known = HashMap::new();
        let legs = self.supplies.iter().flat_map(|supply| &supply.legs);
        let runs = |leg: &Leg| leg.transfer().tables().map(|table| table.runs()).sum::<u64>();
        let runs =
            legs.map(|leg| *known.entry((Arc::as_ptr(&leg.plan), leg.transfer)).or_insert_with(|| runs(leg)));
        self.runs = runs.sum();
        self.direct = self.find_direct();
    }

    /// This unit's parts, in memory of [`len`](Work::len) bytes.
    pub fn split<'a>(&self, memory: &'a mut [u8]) -> Vec<&'a mut [u8]> {
        let mut order: Vec<usize> = (0..self.named().len()).collect();
        // Those whose size changes lie behind the others.
        order.sort_by_key(|&array| (self.arrays[array].open.is_some(), array));
        let mut parts: Vec<&mut [u8]> = order.iter().map(|_| &mut [][..]).collect();
        let (mut rest, mut end) = (memory, 0);
        for array in order {
            let at = &self.arrays[array].at;
            let gap = at.start.saturating_sub(end).min(rest.len());
            let (_, behind) = std::mem::take(&mut rest).split_at_mut(gap);
            let (part, behind) = behind.split_at_mut(at.len().min(behind.len()));
            (parts[array], rest, end) = (part, behind, at.end);
        }
        parts
    }

    /// Bytes of memory that [`split_kept`](Work::split_kept) takes.
    pub fn kept_len(&self) -> usize {
        self.len + self.values().map_or(0, |values| values.at.len())
    }

    /// This unit's parts, and the values behind them, in memory of [`kept_len`](Work::kept_len) bytes.
    pub fn split_kept<'a>(&self, memory: &'a mut [u8]) -> Vec<&'a mut [u8]> {
        let (parts, values) = memory.split_at_mut(self.len.min(memory.len()));
        let mut parts = self.split(parts);
        parts.extend(self.values().map(|_| values));
        parts
    }

    fn find_direct(&self) -> Option<Range<usize>> {
        let [supply] = &self.supplies[..] else { return None };
        let mut base = None;
        for leg in supply.legs.iter().filter(|leg| leg.array < self.named().len()) {
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
        let mut there = vec![false; self.arrays.len()];
        supply.legs.iter().for_each(|leg| there[leg.array] = true);
        let covered = self.named().iter().zip(there).all(|(array, there)| there || array.at.is_empty());
        let base = base.filter(|_| covered)?;
        Some(base..base + self.len)
    }
}

/// Unit 0 refuses it, with words that do not speak of the unit.
fn misfit(error: BundleError) -> Refusal {
    Refusal::Terms(Mismatch::Arrays { error: error.to_string() })
}

/// What a writer unit has for unit `unit` of `units` of a reader program, whatever the step; `None` where that
/// is nothing.
///
/// # Errors
/// What does not fit: unit 0 refuses that before the welcome.
pub fn supply_of(
    arrays: &[Array],
    (writer, writers): (u32, u32),
    takes: &Takes,
    reader: (u32, u32),
) -> Result<Option<Supply>, Refusal> {
    let work = Work::bind(arrays, writers, takes, reader)?;
    Ok(work.supplies.into_iter().find(|supply| supply.unit == writer && !supply.legs.is_empty()))
}

/// What writer units have for a reader unit of arrays whose size does not change: those that have something, or
/// `all` of so many.
fn supplies(
    src: &Kinds<'_>,
    (taken, dst): (&[Taken<'_>], &Kinds<'_>),
    unit: u32,
    all: Option<u32>,
) -> Result<Vec<Supply>, BundleError> {
    // Between arrays that are alike plans are the same.
    let mut plans: HashMap<(usize, usize, Option<Window>), Arc<Plan>> = HashMap::new();
    let mut supplies: BTreeMap<u32, (Supply, Vec<Range<usize>>)> = BTreeMap::new();
    let supply_of = |from: u32| {
        let places = src.lay_out(from)?;
        let supply = Supply {
            unit: from,
            slot_len: places.len,
            fixed: places.fixed,
            legs: Vec::new(),
            bytes: 0,
            packed: None,
            packs: 0,
        };
        Ok::<_, BundleError>((supply, places.at))
    };
    for from in 0..all.unwrap_or(0) {
        supplies.insert(from, supply_of(from)?);
    }
    let fixed = taken.iter().enumerate().filter(|(_, taken)| taken.open.is_none());
    let pieces =
        fixed.flat_map(|(array, taken)| taken.from.iter().map(move |from| (array, taken.name, from)));
    for (array, name, piece) in pieces {
        let named = |source: LayoutError| BundleError::Layout { name: name.to_owned(), source };
        let plan = match plans.entry((src.of[piece.array], dst.of[array], piece.window)) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(new) => {
                let (src, dst, unit) = (src.mapping(piece.array), dst.mapping(array), unit.into());
                let plan = match &piece.window {
                    None => Plan::to_reader(src, dst, unit),
                    Some(window) => Plan::window_to_reader(src, dst, unit, window),
                };
                new.insert(Arc::new(plan.map_err(named)?))
            }
        };
        for (transfer, t) in plan.transfers().iter().enumerate().filter(|(_, t)| t.bytes() > 0) {
            let from = t.src_unit() as u32;
            let (supply, slots) = match supplies.entry(from) {
                btree_map::Entry::Occupied(known) => known.into_mut(),
                btree_map::Entry::Vacant(new) => new.insert(supply_of(from)?),
            };
            let slot = slots[piece.array].clone();
            let (plan, conversion) = (plan.clone(), piece.conversion);
            supply.bytes += t.bytes();
            supply.legs.push(Leg { array, slot, plan, transfer, conversion });
        }
    }
    Ok(supplies.into_values().map(|(supply, _)| supply).collect())
}
