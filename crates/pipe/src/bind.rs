//! Binds the arrays and layouts that units say to what this side computes with, and sizes the slots of a
//! writer's unit.

use crate::error::{Mismatch, PipeError, Refusal};
use crate::wire::{self, Array, Gives, Role, Takes, Welcome, Wish};
use polyduct_copy::Conversion;
use polyduct_layout::{Dataset, ElemType, Layout, LayoutError, Mapping};
use polyduct_os::segment::{Access, Segment};
use polyduct_port::{check_names, is_pattern, lay_out, select, ArrayPart, BundleError};
use polyduct_port::{Options, PortError, MAX_ARRAYS, MAX_PATTERNS, NAME_BYTES};
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Slots start at pages, so that a reader can map one by itself.
const SLOT_ALIGN: u64 = 4096;

/// Mappings of many arrays. Those that are alike in shape, type and layout share one: a model has thousands of
/// arrays of a few kinds.
pub(crate) struct Kinds<'a> {
    units: u64,
    known: HashMap<(&'a str, Dataset), usize>,
    /// One of each kind.
    pub mappings: Vec<Mapping>,
    /// The kind of each array.
    pub of: Vec<usize>,
}

impl<'a> Kinds<'a> {
    fn new(units: u32) -> Kinds<'a> {
        Kinds { units: units.into(), known: HashMap::new(), mappings: Vec::new(), of: Vec::new() }
    }

    fn add(&mut self, layout: &'a str, dataset: Dataset, is_writer: bool) -> Result<(), LayoutError> {
        let kind = match self.known.get(&(layout, dataset)) {
            Some(&kind) => kind,
            None => {
                let mapping = layout.parse::<Layout>()?.bind(&dataset, self.units)?;
                if is_writer {
                    mapping.check_writer()?;
                }
                self.mappings.push(mapping);
                self.known.insert((layout, dataset), self.mappings.len() - 1);
                self.mappings.len() - 1
            }
        };
        self.of.push(kind);
        Ok(())
    }

    /// The mapping of an array.
    pub fn mapping(&self, array: usize) -> &Mapping {
        &self.mappings[self.of[array]]
    }

    /// Where the parts of a unit lie in its memory of a step, and the bytes of that.
    pub fn lay_out(&self, unit: u32) -> Result<(Vec<Range<usize>>, usize), BundleError> {
        let lens: Result<Vec<u64>, LayoutError> =
            self.mappings.iter().map(|mapping| mapping.local_len_bytes(unit.into())).collect();
        let lens = lens.map_err(unnamed)?;
        lay_out(self.of.iter().map(|&kind| lens[kind])).ok_or_else(|| unnamed(LayoutError::PartTooLarge))
    }

    /// The parts of a unit, of arrays of these names.
    pub fn parts<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        unit: u32,
    ) -> Result<Vec<ArrayPart>, BundleError> {
        let (places, _) = self.lay_out(unit)?;
        let part = |(name, (array, at)): (&str, (usize, Range<usize>))| ArrayPart {
            name: name.to_owned(),
            mapping: self.mapping(array).clone(),
            at,
        };
        Ok(names.zip(places.into_iter().enumerate()).map(part).collect())
    }
}

/// An error that speaks of no array by name.
fn unnamed(source: LayoutError) -> BundleError {
    BundleError::Layout { name: String::new(), source }
}

/// The writers' arrays, bound to their units.
///
/// # Errors
/// The first array that cannot be, or does not fit.
pub(crate) fn bind_writers(arrays: &[Array], units: u32) -> Result<Kinds<'_>, BundleError> {
    if !matches!(arrays, [Array { name, .. }] if name.is_empty()) {
        check_names(arrays.iter().map(|array| array.name.as_str()))?;
    }
    let mut kinds = Kinds::new(units);
    for array in arrays {
        let bound = from_wire(array).and_then(|dataset| kinds.add(&array.layout, dataset, true));
        bound.map_err(|source| BundleError::Layout { name: array.name.clone(), source })?;
    }
    Ok(kinds)
}

/// An array that a reader program takes.
pub(crate) struct Taken {
    /// Which of the writers' arrays it is.
    pub array: usize,
    pub conversion: Option<Conversion>,
}

/// What a reader program takes of the writers' arrays, bound to its units: in its own element types, and in
/// the writers'.
///
/// # Errors
/// What the two do not agree on.
pub(crate) fn bind_readers<'a>(
    arrays: &[Array],
    takes: &'a Takes,
    units: u32,
) -> Result<(Vec<Taken>, Kinds<'a>), Refusal> {
    let (mut taken, mut kinds) = (Vec::new(), Kinds::new(units));
    for (array, wish) in wanted(arrays, takes).map_err(Refusal::Terms)? {
        let given = &arrays[array];
        let fit = || from_wire(given).map_err(|source| misfit(&given.name, source));
        let given_data = fit()?;
        let (elem, conversion) = check_wish(given, given_data.elem(), wish).map_err(Refusal::Terms)?;
        let dataset = Dataset::new(given_data.shape(), elem).map_err(|e| misfit(&given.name, e))?;
        kinds.add(&wish.layout, dataset, false).map_err(|e| misfit(&given.name, e))?;
        taken.push(Taken { array, conversion });
    }
    Ok((taken, kinds))
}

/// A layout that does not fit an array; the rendezvous adds whose.
fn misfit(name: &str, source: LayoutError) -> Refusal {
    let error = BundleError::Layout { name: name.to_owned(), source }.to_string();
    Refusal::Terms(Mismatch::Layout { unit: crate::serve::HOST, error })
}

/// The arrays that a reader program takes, and what it wants of each.
fn wanted<'a>(arrays: &[Array], takes: &'a Takes) -> Result<Vec<(usize, &'a Wish)>, Mismatch> {
    match takes {
        Takes::One(wish) if arrays.len() == 1 => Ok(vec![(0, wish)]),
        Takes::One(_) => {
            let mut names: Vec<String> = arrays.iter().take(8).map(|a| format!("{:?}", a.name)).collect();
            if arrays.len() > names.len() {
                names.push("...".into());
            }
            let (n, names) = (arrays.len(), names.join(", "));
            let error =
                format!("the writer gives {n} arrays ({names}): the reader must say which, by layouts");
            Err(Mismatch::Arrays { error })
        }
        Takes::Named(rules) => {
            let (names, patterns): (Vec<&str>, Vec<&str>) = (
                arrays.iter().map(|a| a.name.as_str()).collect(),
                rules.iter().map(|r| r.0.as_str()).collect(),
            );
            let selected =
                select(&names, &patterns).map_err(|e| Mismatch::Arrays { error: e.to_string() })?;
            Ok(selected.into_iter().map(|(array, rule)| (array, &rules[rule].1)).collect())
        }
    }
}

/// Whether rules are within their limits.
///
/// # Errors
/// The first that is not.
pub(crate) fn check_rules<'a>(rules: impl Iterator<Item = &'a str> + Clone) -> Result<(), BundleError> {
    let (all, patterns) = (rules.clone().count(), rules.clone().filter(|rule| is_pattern(rule)).count());
    match all - patterns {
        0 if patterns == 0 => return Err(BundleError::Empty),
        found if found > MAX_ARRAYS => return Err(BundleError::TooMany { found }),
        _ if patterns > MAX_PATTERNS => return Err(BundleError::TooMany { found: all }),
        _ => {}
    }
    match rules.clone().find(|rule| rule.len() > NAME_BYTES) {
        Some(long) => Err(BundleError::Name {
            name: long.chars().take(80).collect(),
            why: "it has more than 512 bytes",
        }),
        None => Ok(()),
    }
}

/// The element type that a reader gets, and the conversion to it, if what it wants of an array can be had.
fn check_wish(
    given: &Array,
    elem: ElemType,
    wish: &Wish,
) -> Result<(ElemType, Option<Conversion>), Mismatch> {
    let refuse = |what: &str, expected: String, found: String| {
        let what = match &given.name[..] {
            "" => what.to_owned(),
            name => format!("the {what} of {name:?}"),
        };
        Err(Mismatch::Dataset { what, expected, found })
    };
    if let Some(shape) = wish.shape.as_ref().filter(|shape| **shape != given.shape) {
        return refuse("shape", format!("{:?}", given.shape), format!("{shape:?}"));
    }
    let Some(wanted) = wish.elem.as_ref().filter(|wanted| **wanted != given.elem) else {
        return Ok((elem, None));
    };
    if !wish.convert {
        return refuse("dtype", given.elem.clone(), wanted.clone());
    }
    let to = wanted.parse().ok();
    match to.and_then(|to| Some((to, Conversion::between(elem, to)?))) {
        Some((to, conversion)) => Ok((to, Some(conversion))),
        None => Err(Mismatch::Conversion { from: given.elem.clone(), to: wanted.clone() }),
    }
}

/// The slots of a writer that learns its dataset from a reader.
pub(crate) fn late_segment(welcome: &Welcome, options: &Options) -> Result<Segment, String> {
    let kinds = bind_writers(&welcome.arrays, options.units).map_err(|e| e.to_string())?;
    let (_, len) = kinds.lay_out(options.unit).map_err(|e| e.to_string())?;
    let (_, total) = slot_sizes(len, options).map_err(|e| e.to_string())?;
    Segment::create("polyduct-slots", total).map_err(|e| e.to_string())
}

/// Bytes of one slot and of all slots of a unit whose parts have so many.
pub(crate) fn slot_sizes(len: usize, options: &Options) -> Result<(usize, usize), PipeError> {
    let slot = slot_stride(len as u64);
    let total = slot.and_then(|s| s.checked_mul(u64::from(options.depth)));
    match (slot, total) {
        (Some(slot), Some(total)) if total <= isize::MAX as u64 => Ok((slot as usize, total as usize)),
        _ => Err(PipeError::Port(PortError::BadOption {
            port: None,
            option: "depth",
            found: options.depth.to_string(),
            expected: format!("slots that fit the address space, of {len} bytes each").into(),
        })),
    }
}

/// Whether the slots that a writer unit hands over are what it says of itself asks for.
pub(crate) fn check_slots(hello: &wire::Hello, fd: BorrowedFd<'_>) -> Result<(), String> {
    let Role::Writer { gives: Gives::Arrays(arrays), depth, .. } = &hello.role else { return Ok(()) };
    let options = Options { unit: hello.unit, units: hello.units, depth: *depth, ..Options::default() };
    let total = || -> Result<usize, PipeError> {
        let (_, len) = bind_writers(arrays, hello.units)?.lay_out(hello.unit)?;
        Ok(slot_sizes(len, &options)?.1)
    };
    // What else is wrong with it, the rendezvous says.
    let Ok(total) = total() else { return Ok(()) };
    let fd = fd.try_clone_to_owned().map_err(|e| e.to_string())?;
    Segment::from_fd(fd, total, total, Access::ReadOnly).map(drop).map_err(|e| e.to_string())
}

/// Bytes from one slot to the next in the segment of a writer unit.
pub(crate) fn slot_stride(local_len: u64) -> Option<u64> {
    local_len.max(1).checked_next_multiple_of(SLOT_ALIGN)
}

/// An array of a writer program, said to others.
pub(crate) fn to_wire(name: &str, dataset: &Dataset, layout: &str) -> Array {
    let (shape, elem) = (dataset.shape().to_vec(), dataset.elem().to_string());
    Array { name: name.to_owned(), shape, elem, layout: layout.to_owned() }
}

/// What an array is.
fn from_wire(array: &Array) -> Result<Dataset, LayoutError> {
    let elem: ElemType = array.elem.parse()?;
    Dataset::new(&array.shape, elem)
}

/// See [`crate::rendezvous::CheckTerms`].
pub(crate) fn check_terms(role: &Role, arrays: &[Array], units: u32) -> Result<(), Refusal> {
    match role {
        Role::Writer { .. } => {
            let unit = crate::serve::HOST;
            let bound = bind_writers(arrays, units);
            bound.map(drop).map_err(|e| Refusal::Terms(Mismatch::Layout { unit, error: e.to_string() }))
        }
        Role::Reader { takes } => {
            if let Takes::Named(rules) = takes {
                let checked = check_rules(rules.iter().map(|rule| rule.0.as_str()));
                checked.map_err(|e| Refusal::Terms(Mismatch::Arrays { error: e.to_string() }))?;
            }
            bind_readers(arrays, takes, units).map(drop)
        }
    }
}
