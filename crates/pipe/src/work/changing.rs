//! Arrays whose size changes from step to step: their part of the work is made anew when it has changed, from
//! the numbers that the writer units said of the step, without asking anybody.

use super::{Leg, Supply, Work};
use crate::bind::{from_wire, Kinds, Taken, PARTNER};
use crate::wire::{firsts, words, Array, VALUES};
use polyduct_copy::Conversion;
use polyduct_layout::{Dataset, ElemType, Layout, LayoutError, Plan};
use polyduct_port::{BundleError, Changes, Places, Sizes, StepSize};
use std::sync::Arc;

/// What changes of a reader unit's work.
pub(super) struct Changing {
    unit: u32,
    units: u32,
    writers: usize,
    /// Numbers of each writer unit.
    words: usize,
    /// Those of the step at hand; none before the first.
    said: Option<Vec<u64>>,
    arrays: Vec<Sized>,
    /// Indices of those in the reader's arrays.
    open: Vec<usize>,
    /// Of each supply, what does not change: legs, and their bytes.
    fixed: Vec<(usize, u64)>,
}

/// An array whose size changes.
struct Sized {
    name: String,
    /// Its index in the reader's arrays.
    array: usize,
    /// The first of its numbers among those of a unit.
    word: usize,
    open: Changes,
    /// What the writers may say of it; the reader's elements.
    sizes: Sizes,
    elem: ElemType,
    /// The reader's; none takes what lies with partners.
    dst: Option<Layout>,
    /// Where the part of each writer unit begins in its slot.
    slots: Vec<usize>,
    conversion: Option<Conversion>,
    /// What was said last, and all that follows from it; of a constant array there is nothing else.
    last: Option<(Vec<u64>, Planned)>,
}

impl Changing {
    pub fn new(
        arrays: &[Array],
        (src, dst): (&Kinds<'_>, &Kinds<'_>),
        taken: &[Taken<'_>],
        supplies: &[Supply],
        (unit, units): (u32, u32),
    ) -> Result<Changing, BundleError> {
        let places: Result<Vec<_>, BundleError> =
            supplies.iter().map(|supply| Ok(src.lay_out(supply.unit)?.at)).collect();
        let places = places?;
        let firsts = firsts(arrays);
        let sized = |(array, taken): (usize, &Taken<'_>)| {
            let from = taken.from.first()?;
            let (given, open) = (&arrays[from.array], taken.open?);
            let named = |source| BundleError::Layout { name: given.name.clone(), source };
            let sizes = |most| Sizes::new(taken.name, most, &given.layout, open, supplies.len() as u32);
            let make = |sizes| {
                let elem = dst.mapping(array).dataset().elem();
                let dst = (taken.layout != PARTNER).then(|| taken.layout.parse()).transpose()?;
                let slots = places.iter().map(|places| places[from.array].start).collect();
                Ok(Sized {
                    name: taken.name.to_owned(),
                    array,
                    word: firsts[from.array],
                    open,
                    sizes,
                    elem,
                    dst,
                    slots,
                    conversion: from.conversion,
                    last: None,
                })
            };
            let sizes = from_wire(given).map_err(named).and_then(sizes);
            Some(sizes.and_then(|sizes| make(sizes).map_err(named)))
        };
        let mut sized = taken.iter().enumerate().filter_map(sized).collect::<Result<Vec<_>, _>>()?;
        for sized in sized.iter_mut().filter(|sized| sized.open == Changes::Never) {
            let planned = sized.plan(&vec![&[1][..]; supplies.len()], unit, units)?;
            sized.last = Some((Vec::new(), planned));
        }
        Ok(Changing {
            unit,
            units,
            writers: supplies.len(),
            words: words(arrays),
            said: None,
            open: sized.iter().map(|sized| sized.array).collect(),
            arrays: sized,
            fixed: supplies.iter().map(|supply| (supply.legs.len(), supply.bytes)).collect(),
        })
    }

    /// Sizes everything for a step of which this was said. Returns whether it is another than the last.
    pub fn apply(&mut self, said: &[u64], work: &mut Work) -> Result<bool, BundleError> {
        if self.said.as_deref() == Some(said) {
            return Ok(false);
        }
        if said.len() != self.words * self.writers {
            let (what, found) = ("what the writers say of a step", format!("{} numbers", said.len()));
            let expected = (self.words * self.writers).to_string();
            return Err(BundleError::Size { name: String::new(), what, found, expected });
        }
        let numbers = |sized: &Sized| -> Vec<&[u64]> {
            let each = said.chunks_exact(self.words.max(1));
            each.map(|said| &said[sized.word..][..sized.open.words(sized.sizes.most().shape().len())])
                .collect()
        };
        let mut plans = Vec::with_capacity(self.arrays.len());
        for sized in &mut self.arrays {
            let numbers = numbers(sized);
            let planned = sized.plan(&numbers, self.unit, self.units)?;
            if sized.open != Changes::Never && !sized.is_last(&numbers) {
                sized.last = Some((numbers.concat(), planned.clone()));
            }
            plans.push(planned);
        }
        let mut lens: Vec<u64> = work.arrays.iter().map(|array| array.at.len() as u64).collect();
        for (sized, (_, dst, _)) in self.arrays.iter().zip(&plans) {
            let len = dst.local_len_bytes(self.unit.into());
            lens[sized.array] = len.map_err(|source| sized.named(source))?;
        }
        let places = Places::of(lens.into_iter(), &self.open);
        let too_large = || BundleError::Layout { name: String::new(), source: LayoutError::PartTooLarge };
        let places = places.ok_or_else(too_large)?;
        for (supply, &(legs, bytes)) in work.supplies.iter_mut().zip(&self.fixed) {
            supply.legs.truncate(legs);
            supply.bytes = bytes;
        }
        for (sized, (plan, dst, lens)) in self.arrays.iter().zip(plans) {
            for (transfer, t) in plan.transfers().iter().enumerate().filter(|(_, t)| t.bytes() > 0) {
                let from = t.src_unit() as usize;
                // What is constant comes once.
                if sized.open == Changes::Never && said.get(from * self.words + sized.word) == Some(&0) {
                    continue;
                }
                let (Some(supply), Some(&start)) = (work.supplies.get_mut(from), sized.slots.get(from))
                else {
                    continue;
                };
                let slot = start..start + lens[from];
                let leg = Leg {
                    array: sized.array,
                    slot,
                    plan: plan.clone(),
                    transfer,
                    conversion: sized.conversion,
                };
                supply.bytes += t.bytes();
                supply.legs.push(leg);
            }
            work.arrays[sized.array].mapping = dst;
        }
        for (array, at) in work.arrays.iter_mut().zip(places.at) {
            array.at = at;
        }
        self.said = Some(said.to_vec());
        Ok(true)
    }
}

impl Changing {
    /// The constant arrays, by their number among those that the reader takes.
    pub fn constants(&self) -> impl Iterator<Item = usize> + '_ {
        self.arrays.iter().filter(|sized| sized.open == Changes::Never).map(|sized| sized.array)
    }

    /// Has writer units say that constant arrays do not come with a step.
    pub fn without_constants(&self, said: &mut [u64]) {
        for sized in self.arrays.iter().filter(|sized| sized.open == Changes::Never) {
            let words = said.chunks_exact_mut(self.words.max(1));
            words.filter_map(|words| words.get_mut(sized.word)).for_each(|word| *word = 0);
        }
    }
}

/// What moves of an array in a step, how the reader has it, and the bytes of each writer unit's part.
type Planned = (Arc<Plan>, polyduct_layout::Mapping, Vec<usize>);

impl Sized {
    fn named(&self, source: LayoutError) -> BundleError {
        BundleError::Layout { name: self.name.clone(), source }
    }

    /// Whether each writer unit says what it said last.
    fn is_last(&self, said: &[&[u64]]) -> bool {
        self.last.as_ref().is_some_and(|(last, _)| said.iter().copied().flatten().eq(last))
    }

    /// The plan of a step of which each writer unit said these numbers.
    fn plan(&self, said: &[&[u64]], unit: u32, units: u32) -> Result<Planned, BundleError> {
        if let Some((_, planned)) = self.last.as_ref().filter(|_| self.open == Changes::Never) {
            if let Some(unit) = said.iter().position(|said| said[0] > 1) {
                return Err(self.sizes.beyond(unit, said[unit][0].to_string(), "0 or 1".into()));
            }
            return Ok(planned.clone());
        }
        if let Some((_, planned)) = self.last.as_ref().filter(|_| self.is_last(said)) {
            return Ok(planned.clone());
        }
        // Values are unit 0's to say.
        let stray = said.iter().skip(1).position(|said| self.name == VALUES && said[0] > 0);
        if let Some(other) = stray.map(|at| at + 1) {
            return Err(self.sizes.beyond(other, said[other][0].to_string(), "at most 0".into()));
        }
        let step = self.sizes.step(said)?;
        let make = || -> Result<Planned, LayoutError> {
            let given = Dataset::new(&step.shape, self.sizes.most().elem())?;
            let wanted = Dataset::new(&step.shape, self.elem)?;
            let src = step.layout(&self.sizes)?.bind(&given, said.len() as u64)?;
            let dst = match &self.dst {
                Some(layout) => layout.clone(),
                None => {
                    let of = |unit: u64| (unit * said.len() as u64 / u64::from(units)) as usize;
                    let first = |unit| step.starts.get(of(unit)).copied().unwrap_or(0);
                    let starts = (0..units.into()).map(first).collect();
                    StepSize { shape: step.shape.clone(), starts }.layout(&self.sizes)?
                }
            };
            let dst = dst.bind(&wanted, units.into())?;
            let lens: Result<Vec<usize>, LayoutError> =
                (0..said.len() as u64).map(|unit| Ok(src.local_len_bytes(unit)? as usize)).collect();
            let plan = Plan::to_reader(&src, &dst, unit.into())?;
            Ok((Arc::new(plan), dst, lens?))
        };
        make().map_err(|source| self.named(source))
    }
}
