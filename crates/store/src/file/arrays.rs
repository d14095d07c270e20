//! The reading port of several arrays: of a file, of a set of files, or of a group.

use super::found::{Found, Held};
use super::held::named;
use super::packed::bundle;
use super::sized::{Part, Sized};
use super::stretch;
use super::work::Work;
use super::{shape, timed, Options};
use crate::npy::Descr;
use crate::FileError;
use polyduct_copy::Conversion;
use polyduct_layout::{Dataset, Layout, LayoutError, Mapping, Plan, Window};
use polyduct_os::{clock, Errno};
use polyduct_port::{choose, ArrayPart, BundleError, Expect, Places, PortError, PortName, Rule, Stats};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// One unit's reading end of files of several arrays. Each unit reads on its own, only the bytes that it needs.
pub struct ArraysReader {
    path: String,
    options: Options,
    /// The arrays that something comes from, each with the file that it is in.
    sources: Vec<(Arc<str>, Held)>,
    arrays: Vec<ArrayPart>,
    pieces: Vec<Piece>,
    /// Those whose size changes, and the step that all are sized for.
    sized: Vec<Sized>,
    sized_for: u64,
    descrs: Vec<Option<Descr>>,
    len: usize,
    /// What the writer said of each step, packed, as far as it said something.
    values: Vec<Vec<u8>>,
    steps: u64,
    next: u64,
    closed: bool,
    /// A window of a file.
    buffer: Vec<u8>,
    stats: Stats,
}

/// What comes from one array of the files for one that is read.
struct Piece {
    /// Which of those that are read.
    array: usize,
    plan: Arc<Plan>,
    /// Which of the sources.
    source: usize,
    conversion: Option<Conversion>,
    /// See [`Part`].
    base: u64,
    through: Option<Arc<Plan>>,
}

impl ArraysReader {
    /// Opens files to read unit `options.port.unit`'s part of those arrays that rules choose or put together.
    /// `path` names all of them.
    ///
    /// # Errors
    /// As [`Found::of`]; [`PortError::Bundle`] for names that there are not, layouts and boxes that do not fit;
    /// [`FileError::ShapeDiffers`], [`FileError::ElemDiffers`] for expectations that are not met.
    pub fn open(
        path: &Path,
        found: Found,
        rules: &[Rule],
        options: &Options,
    ) -> Result<ArraysReader, FileError> {
        let start = clock::now();
        let path = path.display().to_string();
        options.check(|| PortName::File(path.clone()))?;
        let bundle = bundle(&path);
        if rules.is_empty() {
            return Err(bundle(BundleError::Empty));
        }
        let names: Vec<&str> = found.arrays.iter().map(|array| array.name.as_str()).collect();
        let texts: Vec<_> = rules.iter().map(|rule| (rule.pattern.as_str(), rule.of.as_ref())).collect();
        let (unit, units) = (options.port.unit, options.port.units);
        let mut binding =
            Binding { path: &path, units, unit, mappings: HashMap::new(), plans: HashMap::new() };
        let (mut arrays, mut pieces, mut sized) = (Vec::new(), Vec::new(), Vec::new());
        let mut descrs = Vec::new();
        // Which of the sources each of those is that were found.
        let mut used: HashMap<usize, usize> = HashMap::new();
        for chosen in choose(&names, &texts).map_err(&bundle)? {
            let rule = &rules[chosen.rule];
            let held = |at: &usize| found.arrays[*at].held.as_ref().map_err(Clone::clone);
            let sources: Vec<&Held> = chosen.sources.iter().map(held).collect::<Result<_, _>>()?;
            let same = sources.iter().all(|held| held.descr == sources[0].descr);
            descrs.push(sources[0].descr.clone().filter(|_| same));
            let renamed = rule.of.as_ref().is_none_or(|of| of.renamed().is_some());
            if let Some((held, steps)) = sources.iter().find_map(|held| Some((held, held.ragged.as_ref()?))) {
                if !renamed {
                    let (what, found) = ("a piece", "of an array whose size changes".into());
                    let (name, expected) =
                        (chosen.name.to_owned(), "one of another array; that one is taken whole".into());
                    return Err(bundle(BundleError::Size { name, what, found, expected }));
                }
                let of = Sized::of(held, steps, (chosen.name, rule), (arrays.len(), pieces.len()), &path)?;
                let Part { mapping, plan, base, through } = of.part(0, (unit, units), &path)?;
                let next = used.len();
                let source = *used.entry(chosen.sources[0]).or_insert(next);
                let conversion = of.conversion;
                pieces.push(Piece { array: arrays.len(), plan, source, conversion, base, through });
                arrays.push((chosen.name.to_owned(), mapping));
                sized.push(of);
                continue;
            }
            let datasets: Vec<Dataset> = sources.iter().map(|held| *held.mapping.dataset()).collect();
            let shapes: Vec<&[u64]> = datasets.iter().map(Dataset::shape).collect();
            let (shape, windows) = match rule.of.as_ref().filter(|of| of.renamed().is_none()) {
                Some(of) => {
                    let made =
                        of.resolve(chosen.name, &shapes, rule.expect.shape.as_deref()).map_err(&bundle)?;
                    (made.0, made.1.into_iter().map(Some).collect())
                }
                None => (shapes[0].to_vec(), vec![None]),
            };
            if let Some(expected) = rule.expect.shape.as_ref().filter(|expected| **expected != shape) {
                let (path, expected) = (format!("{path}, array {:?}", chosen.name), expected.clone());
                return Err(FileError::ShapeDiffers { path, expected, found: shape });
            }
            let elem = rule.expect.elem.unwrap_or_else(|| datasets[0].elem());
            let dataset = Dataset::new(&shape, elem).map_err(named(&path, chosen.name))?;
            let program = binding.mapping(&rule.layout, dataset, chosen.name)?;
            for ((&at, held), window) in chosen.sources.iter().zip(sources).zip(windows) {
                let shown = format!("{path}, array {:?}", chosen.name);
                let expect = Expect { elem: Some(elem), ..rule.expect.clone() };
                let (file, conversion) = shape::expected(&shown, &held.mapping, &expect)?;
                let plan = binding.plan((&rule.layout, &program), &file, window, chosen.name)?;
                let next = used.len();
                let source = *used.entry(at).or_insert(next);
                let (base, through) = (0, None);
                pieces.push(Piece { array: arrays.len(), plan, source, conversion, base, through });
            }
            arrays.push((chosen.name.to_owned(), program));
        }
        let lens: Result<Vec<u64>, FileError> = arrays
            .iter()
            .map(|(name, mapping)| mapping.local_len_bytes(unit.into()).map_err(named(&path, name)))
            .collect();
        let open: Vec<usize> = sized.iter().map(|sized| sized.array).collect();
        let places = Places::of(lens?.into_iter(), &open);
        let places = places.ok_or_else(|| FileError::sys(&path, "allocate", Errno::NOMEM))?;
        let changes =
            |array: usize| sized.iter().find(|sized: &&Sized| sized.array == array).map(Sized::open);
        let part = |(n, ((name, mapping), at))| ArrayPart { name, mapping, at, open: changes(n) };
        let parts = arrays.into_iter().zip(places.at).enumerate().map(part).collect();
        let (values, steps) = (found.values, found.steps);
        let mut sources: Vec<_> = found.arrays.into_iter().enumerate().collect();
        sources.retain(|(at, _)| used.contains_key(at));
        sources.sort_by_key(|(at, _)| used[at]);
        let sources: Result<Vec<_>, FileError> =
            sources.into_iter().map(|(_, array)| Ok((array.path, array.held?))).collect();
        Ok(ArraysReader {
            arrays: parts,
            descrs,
            sized,
            sized_for: 0,
            options: options.clone(),
            sources: sources?,
            pieces,
            len: places.len,
            values,
            steps,
            next: 0,
            closed: false,
            buffer: Vec::new(),
            stats: Stats { opened: clock::now().saturating_sub(start), ..Stats::default() },
            path: path.clone(),
        })
    }

    /// The arrays, and where this unit's parts of them lie in the memory of a step.
    pub fn arrays(&self) -> &[ArrayPart] {
        &self.arrays
    }

    /// What NumPy takes the elements of each of the [arrays](Self::arrays) for, where they are bytes to polyduct.
    pub fn descrs(&self) -> &[Option<Descr>] {
        &self.descrs
    }

    /// The mapping of the first array.
    pub fn mapping(&self) -> &Mapping {
        &self.arrays[0].mapping
    }

    /// Bytes of this unit's parts and what lies between them.
    pub fn local_len_bytes(&self) -> usize {
        self.len
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// What the writer said of the step that was read last, [packed](polyduct_port::values).
    pub fn values(&self) -> &[u8] {
        let read = usize::try_from(self.next.saturating_sub(1)).ok();
        read.and_then(|step| self.values.get(step)).map_or(&[], Vec::as_slice)
    }

    /// Number of the next step, for which the [arrays](Self::arrays) are then sized; `None` where there is none any
    /// more.
    ///
    /// # Errors
    /// Layouts that do not fit what the step is; [`PortError::Closed`].
    pub fn peek(&mut self) -> Result<Option<u64>, FileError> {
        if self.closed {
            return Err(FileError::Port(PortError::Closed { port: PortName::File(self.path.clone()) }));
        }
        if self.next >= self.steps {
            return Ok(None);
        }
        if self.sized_for != self.next {
            self.size()?;
        }
        Ok(Some(self.next))
    }

    /// Has the arrays as they are in the next step.
    fn size(&mut self) -> Result<(), FileError> {
        let place = (self.options.port.unit, self.options.port.units);
        let parts: Result<Vec<Part>, FileError> =
            self.sized.iter().map(|sized| sized.part(self.next, place, &self.path)).collect();
        let mut lens: Vec<u64> = self.arrays.iter().map(|array| array.at.len() as u64).collect();
        for (sized, part) in self.sized.iter().zip(parts?) {
            let len = part.mapping.local_len_bytes(place.0.into());
            lens[sized.array] = len.map_err(FileError::layout(&self.path))?;
            self.arrays[sized.array].mapping = part.mapping;
            let piece = &mut self.pieces[sized.piece];
            (piece.plan, piece.base, piece.through) = (part.plan, part.base, part.through);
        }
        let open: Vec<usize> = self.sized.iter().map(|sized| sized.array).collect();
        let places = Places::of(lens.into_iter(), &open);
        let places = places.ok_or_else(|| FileError::sys(&self.path, "allocate", Errno::NOMEM))?;
        self.arrays.iter_mut().zip(places.at).for_each(|(array, at)| array.at = at);
        (self.len, self.sized_for) = (places.len, self.next);
        Ok(())
    }

    /// Reads this unit's part of each array into `part`, where [`arrays`](Self::arrays) say. Returns the number
    /// of the step, `None` after the last.
    ///
    /// # Errors
    /// As [`FileReader::read`](super::FileReader::read).
    pub fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, FileError> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        self.check_len("", self.len, part.len())?;
        // Those whose size changes lie behind all others.
        let mut order: Vec<usize> = (0..self.arrays.len()).collect();
        order.sort_by_key(|&array| (self.arrays[array].at.start, self.arrays[array].at.end));
        let mut parts: Vec<&mut [u8]> = self.arrays.iter().map(|_| Default::default()).collect();
        let (mut rest, mut end) = (part, 0);
        for array in order {
            let at = &self.arrays[array].at;
            let (_, behind) = std::mem::take(&mut rest).split_at_mut(at.start - end);
            (parts[array], rest) = behind.split_at_mut(at.len());
            end = at.end;
        }
        self.read_arrays(&mut parts)
    }

    /// The same into several places in memory, one for each of the [arrays](Self::arrays).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_arrays(&mut self, parts: &mut [&mut [u8]]) -> Result<Option<u64>, FileError> {
        let Some(step) = self.peek()? else { return Ok(None) };
        if parts.len() != self.arrays.len() {
            return Err(FileError::Port(PortError::BadOption {
                port: Some(PortName::File(self.path.clone())),
                option: "arrays",
                found: parts.len().to_string(),
                expected: format!("one for each of the {} arrays", self.arrays.len()).into(),
            }));
        }
        for (part, array) in parts.iter().zip(&self.arrays) {
            self.check_len(&array.name, array.at.len(), part.len())?;
        }
        self.options.check_interrupt(&self.path)?;
        let mut copied = std::time::Duration::ZERO;
        timed(&mut copied, || self.gather(step, parts))?;
        self.stats.copied += copied;
        self.stats.steps += 1;
        self.stats.bytes += self.arrays.iter().map(|array| array.at.len() as u64).sum::<u64>();
        self.next += 1;
        Ok(Some(step))
    }

    /// Closes the port; later reads fail.
    pub fn close(&mut self) -> Stats {
        self.closed = true;
        self.buffer = Vec::new();
        self.stats
    }

    fn check_len(&self, array: &str, expected: usize, found: usize) -> Result<(), FileError> {
        if found == expected {
            return Ok(());
        }
        Err(FileError::Port(PortError::WrongSize {
            port: PortName::File(self.path.clone()),
            unit: Some(self.options.port.unit),
            array: array.into(),
            expected: expected as u64,
            found: found as u64,
        }))
    }

    fn gather(&mut self, step: u64, parts: &mut [&mut [u8]]) -> Result<(), FileError> {
        let ArraysReader { sources, options, pieces, buffer, stats, .. } = self;
        for (n, piece) in pieces.iter().enumerate() {
            let Piece { array, plan, source, conversion, base, through } = piece;
            // Where the next piece is of the same, it is not opened or unpacked twice.
            let goes_on = pieces.get(n + 1).is_some_and(|next| next.source == *source);
            let (path, Held { source, stepped, .. }) = &mut sources[*source];
            let step = if *stepped { step } else { 0 };
            let (plan, conversion, path) = (plan.as_ref(), *conversion, &**path);
            let work =
                Work { plan, stride: 1, conversion, buffer: &mut *buffer, stats: &mut *stats, path, options };
            if let Some(through) = through {
                let mut packed = Vec::new();
                stretch::resize(&mut packed, through.bytes() as usize, path)?;
                let own = Work {
                    plan: through,
                    conversion: None,
                    buffer: &mut *work.buffer,
                    stats: &mut *work.stats,
                    ..work
                };
                source.gather((step, 0, 0), &mut packed, own)?;
                for table in plan.transfers().iter().flat_map(|transfer| transfer.tables()) {
                    work.copy(&table, &packed, parts[*array])?;
                }
            } else {
                // Only chunks have steps.
                source.gather((step, 0, *base), parts[*array], work)?;
            }
            if !goes_on {
                source.rest();
            }
        }
        Ok(())
    }
}

/// A layout of an array, or of arrays that are alike.
type Bound<'a> = (&'a str, Dataset);

/// Binds layouts and makes plans, once for arrays that are alike.
struct Binding<'a> {
    path: &'a str,
    unit: u32,
    units: u32,
    mappings: HashMap<Bound<'a>, Mapping>,
    plans: HashMap<(Bound<'a>, Mapping, Option<Window>), Arc<Plan>>,
}

impl<'a> Binding<'a> {
    fn mapping(&mut self, layout: &'a str, dataset: Dataset, name: &str) -> Result<Mapping, FileError> {
        if let Some(known) = self.mappings.get(&(layout, dataset)) {
            return Ok(known.clone());
        }
        let bind = || layout.parse::<Layout>()?.bind(&dataset, self.units.into());
        let mapping = bind().map_err(named(self.path, name))?;
        self.mappings.insert((layout, dataset), mapping.clone());
        Ok(mapping)
    }

    fn plan(
        &mut self,
        (layout, program): (&'a str, &Mapping),
        file: &Mapping,
        window: Option<Window>,
        name: &str,
    ) -> Result<Arc<Plan>, FileError> {
        let key = ((layout, *program.dataset()), file.clone(), window);
        if let Some(known) = self.plans.get(&key) {
            return Ok(known.clone());
        }
        let make = || -> Result<Plan, LayoutError> {
            match &window {
                None => Plan::to_reader(file, program, self.unit.into()),
                Some(window) => Plan::window_to_reader(file, program, self.unit.into(), window),
            }
        };
        let plan = Arc::new(make().map_err(named(self.path, name))?);
        self.plans.insert(key, plan.clone());
        Ok(plan)
    }
}
