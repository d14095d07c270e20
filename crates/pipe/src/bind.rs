//! Binds the arrays and layouts that units say to what this side computes with, and sizes the slots of a
//! writer's unit.

use crate::error::{Mismatch, PipeError, Refusal};
use crate::join::system;
use crate::wire::{self, Array, Gives, Role, Takes, Welcome, Wish, VALUES};
use polyduct_copy::Conversion;
use polyduct_layout::{Dataset, ElemType, Layout, LayoutError, Mapping, Window};
use polyduct_os::segment::{Access, Segment};
use polyduct_port::{check_name, check_names, choose, is_pattern, most_of_all, Places};
use polyduct_port::{ArrayPart, BundleError, Changes, Chosen, Options, PortError};
use polyduct_port::{MAX_ARRAYS, MAX_PATTERNS, NAME_BYTES, VALUES_BYTES};
use polyduct_slots::geometry::MAX_WORDS;
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

/// Slots start at pages, so that a reader can map one by itself.
const SLOT_ALIGN: u64 = 4096;

/// The layout in which each unit has all of an array.
pub(crate) const EVERYTHING: &str = "...";
/// What a reader says in the place of a layout of an open dimension, to take what lies with its partners: of as
/// many writer units, or of so many each, those of its own number.
pub(crate) const PARTNER: &str = "partner";

/// Mappings of many arrays. Those that are alike in shape, type and layout share one: a model has thousands of
/// arrays of a few kinds.
pub(crate) struct Kinds<'a> {
    units: u64,
    known: HashMap<(&'a str, Dataset), usize>,
    /// One of each kind.
    pub mappings: Vec<Mapping>,
    /// The kind of each array.
    pub of: Vec<usize>,
    /// Arrays whose size changes: they lie behind the others.
    open: Vec<usize>,
    /// Bytes that any unit has at most of those that change as a whole.
    whole: HashMap<usize, u64>,
    /// The last array is that of the values, which unit 0 alone brings.
    has_values: bool,
}

impl<'a> Kinds<'a> {
    fn new(units: u32) -> Kinds<'a> {
        Kinds {
            units: units.into(),
            known: HashMap::new(),
            mappings: Vec::new(),
            of: Vec::new(),
            open: Vec::new(),
            whole: HashMap::new(),
            has_values: false,
        }
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

    /// Where the parts of a unit lie.
    pub fn lay_out(&self, unit: u32) -> Result<Places, BundleError> {
        let lens: Result<Vec<u64>, LayoutError> =
            self.mappings.iter().map(|mapping| mapping.local_len_bytes(unit.into())).collect();
        let lens = lens.map_err(unnamed)?;
        let values = self.has_values && unit > 0;
        let len = |array: usize| match values && array + 1 == self.of.len() {
            true => 0,
            false => self.whole.get(&array).copied().unwrap_or(lens[self.of[array]]),
        };
        Places::of((0..self.of.len()).map(len), &self.open).ok_or_else(|| unnamed(LayoutError::PartTooLarge))
    }

    /// The parts of a unit, of arrays that are called so and change so.
    pub fn parts<'n>(
        &self,
        arrays: impl Iterator<Item = (&'n str, Option<Changes>)>,
        unit: u32,
    ) -> Result<Vec<ArrayPart>, BundleError> {
        let places = self.lay_out(unit)?;
        let part = |((name, open), (array, at)): ((&str, _), (usize, Range<usize>))| ArrayPart {
            name: name.to_owned(),
            mapping: self.mapping(array).clone(),
            at,
            open,
        };
        Ok(arrays.zip(places.at.into_iter().enumerate()).map(part).collect())
    }
}

/// An error that speaks of no array by name.
fn unnamed(source: LayoutError) -> BundleError {
    BundleError::Layout { name: String::new(), source }
}

/// The writers' arrays, bound to their units; those whose size changes as the most that a unit holds.
///
/// # Errors
/// The first array that cannot be, or does not fit.
pub(crate) fn bind_writers(arrays: &[Array], units: u32) -> Result<Kinds<'_>, BundleError> {
    let has_values = arrays.last().is_some_and(|array| array.name == VALUES);
    let named = if has_values { &arrays[..arrays.len() - 1] } else { arrays };
    if !matches!(named, [Array { name, .. }] if name.is_empty()) {
        check_names(named.iter().map(|array| array.name.as_str()))?;
    }
    let mut kinds = Kinds { has_values, ..Kinds::new(units) };
    if let Some(values) = arrays.last().filter(|_| has_values) {
        check_values(values)?;
    }
    for (at, array) in arrays.iter().enumerate() {
        let named = |source| BundleError::Layout { name: array.name.clone(), source };
        let dataset = from_wire(array).map_err(named)?;
        let layout = match array.open {
            Some(Changes::Dim(dim)) => {
                check_open(array, dim)?;
                EVERYTHING
            }
            _ => &array.layout,
        };
        kinds.add(layout, dataset, true).map_err(named)?;
        if array.open.is_some() {
            kinds.open.push(at);
        }
        if array.open == Some(Changes::Whole) {
            check_whole(array, &dataset, units)?;
            kinds.whole.insert(at, most_of_all(kinds.mapping(at)).map_err(named)?);
        }
    }
    Ok(kinds)
}

/// Whether a dimension can be open.
fn check_open(array: &Array, dim: u32) -> Result<(), BundleError> {
    let (dims, name) = (array.shape.len(), array.name.clone());
    if dim as usize >= dims {
        let (what, found) = ("its open dimension", dim.to_string());
        return Err(BundleError::Size { name, what, found, expected: format!("one of its {dims}") });
    }
    if array.layout != EVERYTHING {
        let (what, found) = ("its layout", format!("{:?}", array.layout));
        let expected = "none, since units bring their pieces of an open dimension in their order".into();
        return Err(BundleError::Size { name, what, found, expected });
    }
    Ok(())
}

/// Whether the values of steps are what they always are.
fn check_values(array: &Array) -> Result<(), BundleError> {
    let is_right = array.open == Some(Changes::Dim(0))
        && array.shape[..] == [VALUES_BYTES as u64]
        && array.elem == "u8"
        && array.layout == EVERYTHING;
    if is_right {
        return Ok(());
    }
    let (name, what) = (array.name.clone(), "their array");
    let found = format!("{:?} of {}, {:?}, {:?}", array.shape, array.elem, array.layout, array.open);
    Err(BundleError::Size {
        name,
        what,
        found,
        expected: format!("[{VALUES_BYTES}] of u8, open, {EVERYTHING:?}"),
    })
}

/// Whether the layout of an array whose shape changes as a whole fits small shapes as well.
fn check_whole(array: &Array, most: &Dataset, units: u32) -> Result<(), BundleError> {
    let nothing = Dataset::new(&vec![0; most.shape().len()], most.elem()).map_err(unnamed)?;
    let bound = array.layout.parse::<Layout>().and_then(|layout| layout.bind(&nothing, units.into()));
    bound.map(drop).map_err(|why| BundleError::Size {
        name: array.name.clone(),
        what: "its layout",
        found: format!("{:?}, which does not fit every shape: {why}", array.layout),
        expected: format!("one that fits all up to {:?}, such as \"block,...\"", array.shape),
    })
}

/// An array that a reader program takes.
pub(crate) struct Taken<'a> {
    /// What the reader calls it.
    pub name: &'a str,
    /// Its layout, as text.
    pub layout: &'a str,
    /// Whether its size changes: then it is one of the writers' arrays.
    pub open: Option<Changes>,
    /// What comes from where.
    pub from: Vec<From>,
}

/// What comes from one of the writers' arrays.
pub(crate) struct From {
    /// Which it is.
    pub array: usize,
    /// The boxes, unless it is all of the one and all of the other.
    pub window: Option<Window>,
    pub conversion: Option<Conversion>,
}

/// What a reader program takes of the writers' arrays, bound to its units: in its own element types, and in
/// the writers'.
///
/// # Errors
/// What the two do not agree on.
pub(crate) fn bind_readers<'a>(
    arrays: &'a [Array],
    takes: &'a Takes,
    units: u32,
) -> Result<(Vec<Taken<'a>>, Kinds<'a>), Refusal> {
    let (mut taken, mut kinds) = (Vec::new(), Kinds::new(units));
    for Wanted { name, wish, sources } in wanted(arrays, takes)? {
        let (from, dataset) = resolve(arrays, (name, wish), &sources)?;
        let open = arrays[sources[0]].open;
        let layout = match (&wish.layout[..], open) {
            (PARTNER, Some(Changes::Dim(_))) => EVERYTHING,
            (layout, _) => layout,
        };
        kinds.add(layout, dataset, false).map_err(|e| misfit(name, e))?;
        for piece in &from {
            check_layouts(&arrays[piece.array], kinds.mapping(taken.len()), piece)
                .map_err(|e| misfit(name, e))?;
        }
        if open.is_some() {
            kinds.open.push(taken.len());
        }
        taken.push(Taken { name, layout: &wish.layout, open, from });
    }
    Ok((taken, kinds))
}

/// Whether boxes can be taken from, and elements converted on the way between, layouts of these kinds: unit 0
/// refuses what the plan of a unit would.
fn check_layouts(given: &Array, reads: &Mapping, piece: &From) -> Result<(), LayoutError> {
    if piece.window.is_none() && piece.conversion.is_none() {
        return Ok(());
    }
    let writes: Layout = given.layout.parse()?;
    for kind in [writes.kind_name(), reads.layout().kind_name()] {
        match kind {
            "stripe" if piece.conversion.is_some() => {
                let (src, dst) = (given.elem.parse()?, reads.dataset().elem());
                return Err(LayoutError::ElemsDiffer { src, dst });
            }
            "stripe" | "digits" if piece.window.is_some() => return Err(LayoutError::NoWindow { kind }),
            _ => {}
        }
    }
    Ok(())
}

/// What comes from which of these arrays for one that a reader wants, and what it is then; of one whose size
/// changes where it is smallest, as what it is in a step, that step says.
fn resolve(
    arrays: &[Array],
    (name, wish): (&str, &Wish),
    sources: &[usize],
) -> Result<(Vec<From>, Dataset), Refusal> {
    let first = &arrays[sources[0]];
    let assembly = wish.of.as_ref().filter(|of| of.renamed().is_none());
    let (shape, windows) = match assembly {
        None => {
            check_shape(first, wish).map_err(Refusal::Terms)?;
            (smallest(first), vec![None])
        }
        Some(assembly) => {
            let unfit = |error: BundleError| Refusal::Terms(Mismatch::Arrays { error: error.to_string() });
            if let Some(open) = sources.iter().map(|&at| &arrays[at]).find(|array| array.open.is_some()) {
                let (what, found) =
                    ("a piece", format!("of {:?}, whose size changes, or which is constant", open.name));
                let expected = "one of another array; that one is taken whole".into();
                return Err(unfit(BundleError::Size { name: name.to_owned(), what, found, expected }));
            }
            let shapes: Vec<&[u64]> = sources.iter().map(|&at| &arrays[at].shape[..]).collect();
            let resolved = assembly.resolve(name, &shapes, wish.shape.as_deref()).map_err(unfit)?;
            (resolved.0, resolved.1.into_iter().map(Some).collect())
        }
    };
    let elem = wish.elem.as_ref().unwrap_or(&first.elem);
    let mut from = Vec::with_capacity(sources.len());
    for (&array, window) in sources.iter().zip(windows) {
        let conversion = check_elem(&arrays[array], elem, wish.convert).map_err(Refusal::Terms)?;
        from.push(From { array, window, conversion });
    }
    let elem: Result<ElemType, LayoutError> = elem.parse();
    let dataset = elem.and_then(|elem| Dataset::new(&shape, elem));
    Ok((from, dataset.map_err(|source| misfit(name, source))?))
}

/// The shape of an array; of one whose size changes where it is smallest.
fn smallest(array: &Array) -> Vec<u64> {
    let mut shape = array.shape.clone();
    match array.open {
        Some(Changes::Dim(dim)) => shape.iter_mut().skip(dim as usize).take(1).for_each(|n| *n = 0),
        Some(Changes::Whole) => shape.fill(0),
        Some(Changes::Never) | None => {}
    }
    shape
}

/// A layout that does not fit an array; the rendezvous adds whose.
fn misfit(name: &str, source: LayoutError) -> Refusal {
    let error = BundleError::Layout { name: name.to_owned(), source }.to_string();
    Refusal::Terms(Mismatch::Layout { unit: crate::serve::HOST, error })
}

/// An array that a reader program wants.
struct Wanted<'a> {
    name: &'a str,
    wish: &'a Wish,
    /// The writers' arrays from which it comes; at least one.
    sources: Vec<usize>,
}

/// The arrays that a reader program takes, in the writers' order, those that are put together behind them; values
/// come along.
fn wanted<'a>(arrays: &'a [Array], takes: &'a Takes) -> Result<Vec<Wanted<'a>>, Refusal> {
    let unfit = |error: BundleError| Refusal::Terms(Mismatch::Arrays { error: error.to_string() });
    let (named, values) = match arrays {
        [named @ .., last] if last.name == VALUES => (named, Some(arrays.len() - 1)),
        arrays => (arrays, None),
    };
    let mut wanted = match takes {
        Takes::One(wish) if named.len() == 1 => {
            vec![Wanted { name: &named[0].name, wish, sources: vec![0] }]
        }
        Takes::One(_) => {
            let mut names: Vec<String> = named.iter().take(8).map(|a| format!("{:?}", a.name)).collect();
            if named.len() > names.len() {
                names.push("...".into());
            }
            let (n, names) = (named.len(), names.join(", "));
            let error =
                format!("the writer gives {n} arrays ({names}): the reader must say which, by layouts");
            return Err(Refusal::Terms(Mismatch::Arrays { error }));
        }
        Takes::Ask => Vec::new(),
        Takes::Named(rules) => chosen(named, rules).map_err(unfit)?,
    };
    wanted.extend(values.map(|at| Wanted { name: VALUES, wish: values_wish(), sources: vec![at] }));
    Ok(wanted)
}

/// The arrays that rules choose, and those that they put together.
fn chosen<'a>(named: &'a [Array], rules: &'a [(String, Wish)]) -> Result<Vec<Wanted<'a>>, BundleError> {
    let names: Vec<&str> = named.iter().map(|a| a.name.as_str()).collect();
    let texts: Vec<_> = rules.iter().map(|(name, wish)| (name.as_str(), wish.of.as_ref())).collect();
    let wanted = |Chosen { name, rule, sources }| Wanted { name, wish: &rules[rule].1, sources };
    Ok(choose(&names, &texts)?.into_iter().map(wanted).collect())
}

/// Every unit gets all values.
fn values_wish() -> &'static Wish {
    static WISH: OnceLock<Wish> = OnceLock::new();
    WISH.get_or_init(|| Wish::layout(EVERYTHING))
}

/// Whether rules are within their limits.
///
/// # Errors
/// The first that is not.
pub(crate) fn check_rules(rules: &[(String, Wish)]) -> Result<(), BundleError> {
    let patterns = rules.iter().filter(|rule| is_pattern(&rule.0)).count();
    let of = |wish: &Wish| wish.of.as_ref().map_or(0, |of| of.pieces.len());
    match rules.len() - patterns {
        0 if patterns == 0 => return Err(BundleError::Empty),
        found if found > MAX_ARRAYS => return Err(BundleError::TooMany { found }),
        _ if patterns > MAX_PATTERNS => return Err(BundleError::TooMany { found: rules.len() }),
        _ => {}
    }
    let pieces = rules.iter().map(|(_, wish)| of(wish)).sum::<usize>();
    if pieces > MAX_ARRAYS {
        return Err(BundleError::TooMany { found: pieces });
    }
    for (name, wish) in rules {
        if name.len() > NAME_BYTES {
            let name = name.chars().take(80).collect();
            return Err(BundleError::Name { name, why: "it has more than 512 bytes" });
        }
        if let Some(of) = &wish.of {
            check_name(name)?;
            of.check(name)?;
        }
    }
    Ok(())
}

/// Whether an array has the shape that a reader expects, if it expects one.
fn check_shape(given: &Array, wish: &Wish) -> Result<(), Mismatch> {
    let differs = |shape: &&Vec<u64>| match given.open {
        None => **shape != given.shape,
        Some(Changes::Never) => **shape != given.shape,
        Some(Changes::Whole) => shape.len() != given.shape.len(),
        // Of the open dimension nothing can be expected.
        Some(Changes::Dim(open)) => {
            let differs = |(dim, (n, given)): (usize, (&u64, &u64))| dim != open as usize && n != given;
            shape.len() != given.shape.len() || shape.iter().zip(&given.shape).enumerate().any(differs)
        }
    };
    match wish.shape.as_ref().filter(differs) {
        Some(shape) => differ(given, "shape", format!("{:?}", given.shape), format!("{shape:?}")),
        None => Ok(()),
    }
}

/// The conversion of an array's elements into those that a reader wants, if they can be had.
fn check_elem(given: &Array, wanted: &str, convert: bool) -> Result<Option<Conversion>, Mismatch> {
    if given.elem == wanted {
        return Ok(None);
    }
    if !convert {
        return differ(given, "dtype", given.elem.clone(), wanted.to_owned());
    }
    let types = given.elem.parse().ok().zip(wanted.parse().ok());
    match types.and_then(|(from, to)| Conversion::between(from, to)) {
        Some(conversion) => Ok(Some(conversion)),
        None => Err(Mismatch::Conversion { from: given.elem.clone(), to: wanted.to_owned() }),
    }
}

fn differ<T>(given: &Array, what: &str, expected: String, found: String) -> Result<T, Mismatch> {
    let what = match &given.name[..] {
        "" => what.to_owned(),
        name => format!("the {what} of {name:?}"),
    };
    Err(Mismatch::Dataset { what, expected, found })
}

/// The slots of a writer that learns its dataset from a reader.
pub(crate) fn late_segment(welcome: &Welcome, options: &Options) -> Result<Segment, String> {
    let kinds = bind_writers(&welcome.arrays, options.units).map_err(|e| e.to_string())?;
    let places = kinds.lay_out(options.unit).map_err(|e| e.to_string())?;
    slots("", &places, options).map_err(|e| e.to_string())
}

/// Slots for parts that lie so, with memory for those whose size does not change.
pub(crate) fn slots(pipe: &str, places: &Places, options: &Options) -> Result<Segment, PipeError> {
    let (stride, total) = slot_sizes(places.len, options)?;
    let fixed = |slot: usize| slot * stride..slot * stride + places.fixed.max(1);
    let fixed: Vec<_> = (0..options.depth as usize).map(fixed).collect();
    Segment::create_partly("polyduct-slots", total, &fixed).map_err(system(pipe))
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
    let sizes = || -> Result<(usize, usize), PipeError> {
        let places = bind_writers(arrays, hello.units)?.lay_out(hello.unit)?;
        Ok((slot_sizes(places.len, &options)?.1, places.fixed * *depth as usize))
    };
    // What else is wrong with it, the rendezvous says.
    let Ok((total, fixed)) = sizes() else { return Ok(()) };
    let fd = fd.try_clone_to_owned().map_err(|e| e.to_string())?;
    let mapped = Segment::from_fd_partly(fd, total, total, fixed, Access::ReadOnly);
    mapped.map(drop).map_err(|e| e.to_string())
}

/// Bytes from one slot to the next in the segment of a writer unit.
pub(crate) fn slot_stride(local_len: u64) -> Option<u64> {
    local_len.max(1).checked_next_multiple_of(SLOT_ALIGN)
}

/// An array of a writer program, said to others.
pub(crate) fn to_wire(name: &str, dataset: &Dataset, layout: &str, open: Option<Changes>) -> Array {
    let (shape, elem) = (dataset.shape().to_vec(), dataset.elem().to_string());
    Array { name: name.to_owned(), shape, elem, layout: layout.to_owned(), open }
}

/// What an array is.
pub(crate) fn from_wire(array: &Array) -> Result<Dataset, LayoutError> {
    let elem: ElemType = array.elem.parse()?;
    Dataset::new(&array.shape, elem)
}

/// Whether writer units may say so many numbers of each step.
pub(crate) fn check_words(arrays: &[Array], units: u32) -> Result<(), BundleError> {
    let found = wire::words(arrays) as u64 * u64::from(units);
    if found <= MAX_WORDS {
        return Ok(());
    }
    let (what, name) = ("the number of sizes that all units say of a step", String::new());
    Err(BundleError::Size { name, what, found: found.to_string(), expected: format!("at most {MAX_WORDS}") })
}

/// See [`crate::rendezvous::CheckTerms`].
pub(crate) fn check_terms(role: &Role, arrays: &[Array], units: u32) -> Result<(), Refusal> {
    match role {
        Role::Writer { .. } => {
            let unit = crate::serve::HOST;
            let bound = bind_writers(arrays, units).and_then(|_| check_words(arrays, units));
            bound.map_err(|e| Refusal::Terms(Mismatch::Layout { unit, error: e.to_string() }))
        }
        Role::Reader { takes } => {
            if let Takes::Named(rules) = takes {
                let checked = check_rules(rules);
                checked.map_err(|e| Refusal::Terms(Mismatch::Arrays { error: e.to_string() }))?;
            }
            bind_readers(arrays, takes, units).map(drop)
        }
    }
}
