//! The reading port of a `.safetensors` file of several arrays, or of a set of them.

use super::held::named;
use super::index::{is_index, Index};
use super::io::Io;
use super::packed::VALUES_KEY;
use super::reader::{open_regular, read_tensors};
use super::shape::file_mapping;
use super::work::Work;
use super::{timed, values, Options};
use crate::safetensors::{SafetensorsError, Tensor};
use crate::{json, FileError};
use polyduct_copy::Conversion;
use polyduct_layout::{Dataset, ElemType, Layout, LayoutError, Mapping, Plan, Window};
use polyduct_os::{clock, Errno};
use polyduct_port::{choose, lay_out, Array, ArrayPart, BundleError, PortError, PortName, Rule, Stats};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The layout of an array in a file.
const IN_FILE: &str = "...";

/// One unit's reading end of files of several arrays. Each unit reads on its own, only the bytes that it needs.
pub struct ArraysReader {
    path: String,
    options: Options,
    files: Vec<(String, File)>,
    arrays: Vec<ArrayPart>,
    pieces: Vec<Piece>,
    len: usize,
    /// What the writer said of the step, packed.
    values: Vec<u8>,
    is_read: bool,
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
    /// Which of the files, and where the array begins in it.
    file: usize,
    file_at: u64,
    conversion: Option<Conversion>,
}

/// The arrays of files, and where they are.
pub struct Found {
    files: Vec<(String, File)>,
    /// Each with the file that it is in.
    tensors: Vec<(usize, Tensor)>,
    values: Vec<u8>,
}

impl Found {
    /// What a file has, or those of a set that its index names.
    ///
    /// # Errors
    /// [`FileError::BadSafetensors`], [`FileError::Truncated`] for files that are not what they should be;
    /// [`PortError::Bundle`] where two have an array of one name; [`FileError::System`].
    pub fn of(path: &Path, options: &Options) -> Result<Found, FileError> {
        if !is_index(path) {
            return Found::in_files(&[path.to_owned()], options);
        }
        let index = Index::read(path, options)?;
        let mut found = Found::in_files(&index.files(path)?, options)?;
        // What it does not list is not the set's.
        let is_listed = |&(file, ref tensor): &(usize, Tensor)| {
            let name = Path::new(&found.files[file].0).file_name();
            index.file(&tensor.name).is_some_and(|of| name == Some(of.as_ref()))
        };
        let listed: Vec<_> = found.tensors.iter().filter(|at| is_listed(at)).cloned().collect();
        if let Some(lacking) = index
            .arrays()
            .find(|name| listed.binary_search_by(|(_, tensor)| tensor.name.as_str().cmp(name)).is_err())
        {
            let (name, file) =
                (json::shorten(lacking), index.file(lacking).map(json::shorten).unwrap_or_default());
            let source = SafetensorsError::NotThere { name, file };
            return Err(FileError::BadSafetensors { path: path.display().to_string(), source });
        }
        (found.tensors, found.values) = (listed, index.values());
        Ok(found)
    }

    fn in_files(paths: &[PathBuf], options: &Options) -> Result<Found, FileError> {
        let mut found =
            Found { files: Vec::with_capacity(paths.len()), tensors: Vec::new(), values: Vec::new() };
        for path in paths {
            let name = path.display().to_string();
            let (file, len) = open_regular(path, &name)?;
            let header = read_tensors(&Io { file: &file, path: &name, options }, len)?;
            if let Some(text) = header.metadata.get(VALUES_KEY) {
                found.values = values::from_json(text);
            }
            let at = found.files.len();
            found.tensors.extend(header.tensors.into_iter().map(|tensor| (at, tensor)));
            found.files.push((name, file));
        }
        // Their order in a file follows the sizes of elements.
        found.tensors.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        if let Some(twice) = found.tensors.windows(2).find(|two| two[0].1.name == two[1].1.name) {
            let name = json::shorten(&twice[0].1.name);
            let port = PortName::File(found.files[twice[1].0].0.clone());
            let source = Box::new(BundleError::Twice { name });
            return Err(FileError::Port(PortError::Bundle { port, source }));
        }
        Ok(found)
    }

    /// The arrays as a writer would say them, each in the order of the file.
    ///
    /// # Errors
    /// [`FileError::BadSafetensors`] for types of elements that polyduct does not move.
    pub fn describe(&self) -> Result<Vec<Array>, FileError> {
        let array = |(file, tensor): &(usize, Tensor)| {
            let dataset = self.dataset(*file, tensor)?;
            Ok(Array { name: tensor.name.clone(), dataset, layout: IN_FILE.into(), open: None })
        };
        self.tensors.iter().map(array).collect()
    }

    fn dataset(&self, file: usize, tensor: &Tensor) -> Result<Dataset, FileError> {
        let path = &self.files[file].0;
        let bad = |source| FileError::BadSafetensors { path: path.clone(), source };
        Dataset::new(&tensor.shape, tensor.elem().map_err(bad)?).map_err(named(path, &tensor.name))
    }
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
        let bundle = |source| {
            FileError::Port(PortError::Bundle {
                port: PortName::File(path.clone()),
                source: Box::new(source),
            })
        };
        if rules.is_empty() {
            return Err(bundle(BundleError::Empty));
        }
        let names: Vec<&str> = found.tensors.iter().map(|(_, tensor)| tensor.name.as_str()).collect();
        let texts: Vec<_> = rules.iter().map(|rule| (rule.pattern.as_str(), rule.of.as_ref())).collect();
        let (unit, units) = (options.port.unit, options.port.units);
        let mut binding =
            Binding { path: &path, units, unit, mappings: HashMap::new(), plans: HashMap::new() };
        let (mut arrays, mut pieces) = (Vec::new(), Vec::new());
        for chosen in choose(&names, &texts).map_err(bundle)? {
            let rule = &rules[chosen.rule];
            let sources: Result<Vec<(usize, &Tensor, Dataset)>, FileError> = chosen
                .sources
                .iter()
                .map(|&at| {
                    let (file, tensor) = &found.tensors[at];
                    Ok((*file, tensor, found.dataset(*file, tensor)?))
                })
                .collect();
            let sources = sources?;
            let shapes: Vec<&[u64]> = sources.iter().map(|(_, tensor, _)| &tensor.shape[..]).collect();
            let (shape, windows) = match rule.of.as_ref().filter(|of| of.renamed().is_none()) {
                Some(of) => {
                    let made =
                        of.resolve(chosen.name, &shapes, rule.expect.shape.as_deref()).map_err(bundle)?;
                    (made.0, made.1.into_iter().map(Some).collect())
                }
                None => (shapes[0].to_vec(), vec![None]),
            };
            if let Some(expected) = rule.expect.shape.as_ref().filter(|expected| **expected != shape) {
                let (path, expected) = (format!("{path}, array {:?}", chosen.name), expected.clone());
                return Err(FileError::ShapeDiffers { path, expected, found: shape });
            }
            let elem = rule.expect.elem.unwrap_or_else(|| sources[0].2.elem());
            let dataset = Dataset::new(&shape, elem).map_err(named(&path, chosen.name))?;
            let program = binding.mapping(&rule.layout, dataset, chosen.name)?;
            for ((file, tensor, dataset), window) in sources.into_iter().zip(windows) {
                let conversion =
                    binding.conversion(chosen.name, (dataset.elem(), elem), rule.expect.convert)?;
                let plan = binding.plan((&rule.layout, &program), dataset, window, chosen.name)?;
                pieces.push(Piece { array: arrays.len(), plan, file, file_at: tensor.begin, conversion });
            }
            arrays.push((chosen.name.to_owned(), program));
        }
        let lens: Result<Vec<u64>, FileError> = arrays
            .iter()
            .map(|(name, mapping)| mapping.local_len_bytes(unit.into()).map_err(named(&path, name)))
            .collect();
        let laid = lay_out(lens?.into_iter());
        let (places, len) = laid.ok_or_else(|| FileError::sys(&path, "allocate", Errno::NOMEM))?;
        let part = |((name, mapping), at)| ArrayPart { name, mapping, at, open: None };
        Ok(ArraysReader {
            arrays: arrays.into_iter().zip(places).map(part).collect(),
            options: options.clone(),
            files: found.files,
            pieces,
            len,
            values: found.values,
            is_read: false,
            closed: false,
            buffer: Vec::new(),
            stats: Stats { opened: clock::now().saturating_sub(start), ..Stats::default() },
            path,
        })
    }

    /// The arrays, and where this unit's parts of them lie in the memory of a step.
    pub fn arrays(&self) -> &[ArrayPart] {
        &self.arrays
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

    /// What the writer said of the step, [packed](polyduct_port::values).
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// Whether the step was read: there is one.
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    /// Reads this unit's part of each array into `part`, where [`arrays`](Self::arrays) say. Returns 0, and `None`
    /// when it has been read.
    ///
    /// # Errors
    /// As [`FileReader::read`](super::FileReader::read).
    pub fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, FileError> {
        self.check_len("", self.len, part.len())?;
        let (mut parts, mut rest, mut end) = (Vec::with_capacity(self.arrays.len()), part, 0);
        for array in &self.arrays {
            let (_, behind) = std::mem::take(&mut rest).split_at_mut(array.at.start - end);
            let (part, behind) = behind.split_at_mut(array.at.len());
            (rest, end) = (behind, array.at.end);
            parts.push(part);
        }
        self.read_arrays(&mut parts)
    }

    /// The same into several places in memory, one for each of the [arrays](Self::arrays).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_arrays(&mut self, parts: &mut [&mut [u8]]) -> Result<Option<u64>, FileError> {
        if self.closed {
            return Err(FileError::Port(PortError::Closed { port: PortName::File(self.path.clone()) }));
        }
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
        if self.is_read {
            return Ok(None);
        }
        self.options.check_interrupt(&self.path)?;
        let mut copied = std::time::Duration::ZERO;
        timed(&mut copied, || self.gather(parts))?;
        self.stats.copied += copied;
        self.stats.steps += 1;
        self.stats.bytes += self.arrays.iter().map(|array| array.at.len() as u64).sum::<u64>();
        self.is_read = true;
        Ok(Some(0))
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

    fn gather(&mut self, parts: &mut [&mut [u8]]) -> Result<(), FileError> {
        let ArraysReader { files, options, pieces, buffer, stats, .. } = self;
        for Piece { array, plan, file, file_at, conversion } in pieces {
            let (path, file) = &files[*file];
            let io = Io { file, path, options };
            let (plan, conversion) = (plan.as_ref(), *conversion);
            let mut work =
                Work { plan, stride: 1, conversion, buffer: &mut *buffer, stats: &mut *stats, path, options };
            let read = |bytes: &mut [u8], at| io.read(bytes, *file_at + at);
            plan.transfers().iter().try_for_each(|t| work.windows(t, parts[*array], read))?;
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
    plans: HashMap<(Bound<'a>, Dataset, Option<Window>), Arc<Plan>>,
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
        dataset: Dataset,
        window: Option<Window>,
        name: &str,
    ) -> Result<Arc<Plan>, FileError> {
        let key = ((layout, *program.dataset()), dataset, window);
        if let Some(known) = self.plans.get(&key) {
            return Ok(known.clone());
        }
        let make = || -> Result<Plan, LayoutError> {
            let file = file_mapping(&dataset, false)?;
            match &window {
                None => Plan::to_reader(&file, program, self.unit.into()),
                Some(window) => Plan::window_to_reader(&file, program, self.unit.into(), window),
            }
        };
        let plan = Arc::new(make().map_err(named(self.path, name))?);
        self.plans.insert(key, plan.clone());
        Ok(plan)
    }

    fn conversion(
        &self,
        name: &str,
        (found, expected): (ElemType, ElemType),
        convert: bool,
    ) -> Result<Option<Conversion>, FileError> {
        if found == expected {
            return Ok(None);
        }
        let hint = match Conversion::between(found, expected) {
            Some(conversion) if convert => return Ok(Some(conversion)),
            Some(_) => "a program that opens the file with convert=True gets it converted",
            None => "conversions exist for f32↔bf16, f32↔f16, f64↔f32",
        };
        let path = format!("{}, array {name:?}", self.path);
        Err(FileError::ElemDiffers { path, expected, found, hint })
    }
}
