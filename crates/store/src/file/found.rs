//! The arrays that files hold, and what was said of their steps.

use super::archive;
use super::index::{is_index, Index};
use super::io::Io;
use super::packed::{FORMAT, FORMAT_KEY, VALUES_KEY};
use super::source::{open_regular, read_header, read_tensors, Source};
use super::tree;
use super::{shape, values, Attributes, Format, Notes, Options};
use crate::npy::{Descr, Header};
use crate::ragged::Steps;
use crate::safetensors::SafetensorsError;
use crate::zarr::Dims;
use crate::{json, FileError};
use polyduct_layout::{Dataset, ElemType, Mapping};
use polyduct_port::{Array, BundleError, Changes, Expect, PortError, PortName};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often a set is opened that is replaced meanwhile.
const TRIES: usize = 8;
/// The layout of an array in a file.
const IN_FILE: &str = "...";
/// Bytes of the longest array that says where steps begin.
const MOST_BYTES: u64 = (values::MOST_STEPS as u64 + 1) * 8 * 9;

/// The arrays of a file, of a set of files or of a group, and where they are.
#[derive(Default)]
pub struct Found {
    /// By name.
    pub(crate) arrays: Vec<FoundArray>,
    /// What the writer said of each step, packed, as far as it said something.
    pub(crate) values: Vec<Vec<u8>>,
    /// How many steps there are of the arrays that have steps.
    pub(crate) steps: u64,
    /// Attributes of the groups that the arrays are in, by their names, as far as they have some; the empty name is that
    /// of the whole.
    pub(crate) groups: BTreeMap<String, Attributes>,
}

/// An array that was found.
pub struct FoundArray {
    pub(crate) name: String,
    /// The file that it is in.
    pub(crate) path: Arc<str>,
    /// What it is, unless that is nothing that polyduct moves.
    pub(crate) held: Result<Held, FileError>,
}

/// What an array is, and where.
pub struct Held {
    /// One step of it, as the file has it.
    pub(crate) mapping: Mapping,
    pub(crate) source: Source,
    /// Whether it has a first dimension of steps.
    pub(crate) stepped: bool,
    /// Whether it is in Fortran's order.
    pub(crate) fortran: bool,
    /// Where its steps lie that have sizes of their own; the mapping is of all.
    pub(crate) ragged: Option<Steps>,
    /// What NumPy takes its elements for.
    pub(crate) descr: Option<Descr>,
}

impl Held {
    /// The whole of a file, or a part that is an array.
    fn whole(header: &Header, source: Source, path: &str) -> Result<Held, FileError> {
        let dataset = Dataset::new(&header.shape, header.elem).map_err(FileError::layout(path))?;
        let mapping = shape::file_mapping(&dataset, header.fortran).map_err(FileError::layout(path))?;
        let (fortran, descr) = (header.fortran, header.descr.clone());
        Ok(Held { mapping, source, stepped: false, fortran, ragged: None, descr })
    }
}

impl Found {
    /// What a file or a group has, or the files of a set that its index names.
    ///
    /// # Errors
    /// [`FileError::BadSafetensors`], [`FileError::BadArchive`], [`FileError::BadZarr`], [`FileError::Truncated`] for
    /// what is not what it should be; [`PortError::Bundle`] where two arrays have one name; [`FileError::System`].
    /// What is wrong with one array is told where that is read.
    pub fn of(path: &Path, format: Format, options: &Options) -> Result<Found, FileError> {
        let name = path.display().to_string();
        let mut found = match format {
            Format::Npz => {
                let (file, len) = open_regular(path, &name)?;
                let (members, said) = archive::read(&file.into(), &name, len, options)?;
                let path: Arc<str> = name.as_str().into();
                let array = |archive::Member { name, held }| FoundArray {
                    held: held.and_then(|(header, source)| Held::whole(&header, source, &path)),
                    name,
                    path: path.clone(),
                };
                let arrays = members.into_iter().map(array).collect();
                Found { arrays, values: vec![said], steps: 1, ..Found::default() }
            }
            Format::Zarr => tree::find(path, options)?,
            Format::Npy => Found::in_npy(path, options)?,
            _ if is_index(path) => Found::in_set(path, options)?,
            _ => Found::in_files(&[path.to_owned()], options)?,
        };
        // Their order in a file follows the sizes of elements, or nothing.
        found.arrays.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(twice) = found.arrays.windows(2).find(|two| two[0].name == two[1].name) {
            let name = json::shorten(&twice[0].name);
            let port = PortName::File(twice[1].path.to_string());
            let source = Box::new(BundleError::Twice { name });
            return Err(FileError::Port(PortError::Bundle { port, source }));
        }
        Ok(found)
    }

    /// A `.npy` file as one array, called as the file is.
    fn in_npy(path: &Path, options: &Options) -> Result<Found, FileError> {
        let name = path.display().to_string();
        let (file, len) = open_regular(path, &name)?;
        let io = Io { file: &file, path: &name, options };
        let (header, data_at) = read_header(&io, 0, len)?;
        let end = header.data_len().saturating_add(data_at as u64);
        if end > len {
            return Err(FileError::Truncated { path: name, expected: end, found: len });
        }
        let ragged = read_steps(&io, &header, end, len)?;
        let source =
            Source::Whole { file: file.into(), data_at: data_at as u64, component: header.component() };
        let held = Held::whole(&header, source, &name).map(|held| Held { ragged, ..held });
        let called = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let array = FoundArray { name: called, path: name.into(), held };
        let steps = array.ragged().map_or(1, Steps::count);
        Ok(Found { arrays: vec![array], steps, ..Found::default() })
    }

    /// The files of a set, all of one version: a set that is replaced loses its index before its first file changes.
    fn in_set(path: &Path, options: &Options) -> Result<Found, FileError> {
        for _ in 0..TRIES {
            // Held open its number is nobody else's.
            let (held, _) = open_regular(path, &path.display().to_string())?;
            let found = Found::in_set_once(path, options);
            let here = std::fs::metadata(path).ok();
            let own = held.metadata().ok();
            let id = |of: &std::fs::Metadata| (of.dev(), of.ino());
            if here.is_some() && here.as_ref().map(id) == own.as_ref().map(id) {
                return found;
            }
        }
        let problem = "it was replaced or removed while it was read";
        Err(FileError::BadPath { path: path.display().to_string(), problem })
    }

    fn in_set_once(path: &Path, options: &Options) -> Result<Found, FileError> {
        let index = Index::read(path, options)?;
        let mut found = Found::in_files(&index.files(path)?, options)?;
        // What it does not list is not the set's.
        found.arrays.retain(|array| {
            let name = Path::new(&*array.path).file_name();
            index.file(&array.name).is_some_and(|of| name == Some(of.as_ref()))
        });
        let there: std::collections::HashSet<&str> = found.arrays.iter().map(|a| a.name.as_str()).collect();
        if let Some(lacking) = index.arrays().find(|name| !there.contains(name)) {
            let (name, file) =
                (json::shorten(lacking), index.file(lacking).map(json::shorten).unwrap_or_default());
            let source = SafetensorsError::NotThere { name, file };
            return Err(FileError::BadSafetensors { path: path.display().to_string(), source });
        }
        found.values = vec![index.values()];
        found.note("", index.attributes());
        Ok(found)
    }

    fn in_files(paths: &[PathBuf], options: &Options) -> Result<Found, FileError> {
        let mut found = Found { steps: 1, ..Found::default() };
        for path in paths {
            let name = path.display().to_string();
            let (file, len) = open_regular(path, &name)?;
            let header = read_tensors(&Io { file: &file, path: &name, options }, len)?;
            for (key, text) in header.metadata {
                match &key[..] {
                    VALUES_KEY => found.values = vec![values::from_json(&text)],
                    // As nearly every file has it.
                    FORMAT_KEY if text == FORMAT => {}
                    _ => found.note("", Attributes::from_iter([(key, text.into())])),
                }
            }
            let (file, path): (_, Arc<str>) = (Arc::new(file), name.into());
            found.arrays.extend(header.tensors.into_iter().map(|tensor| {
                let bad = |source| FileError::BadSafetensors { path: path.to_string(), source };
                let held = tensor.elem().map_err(bad).and_then(|elem| {
                    let shape = tensor.shape;
                    let header = Header { elem, descr: None, big_endian: false, fortran: false, shape };
                    let file = Arc::clone(&file);
                    Held::whole(&header, Source::Whole { file, data_at: tensor.begin, component: 1 }, &path)
                });
                FoundArray { name: tensor.name, path: path.clone(), held }
            }));
        }
        Ok(found)
    }

    /// The arrays as a writer would say them, each in the order of the file.
    ///
    /// # Errors
    /// What is wrong with one of them: an element type that polyduct does not move.
    pub fn describe(&self) -> Result<Vec<Array>, FileError> {
        let array = |array: &FoundArray| {
            let held = array.held.as_ref().map_err(Clone::clone)?;
            let (name, layout) = (array.name.clone(), IN_FILE.into());
            let whole = *held.mapping.dataset();
            let Some(steps) = &held.ragged else {
                let open = (self.steps > 1 && !held.stepped).then_some(Changes::Never);
                return Ok(Array { name, dataset: whole, layout, open });
            };
            let dataset =
                Dataset::new(&steps.most(), whole.elem()).map_err(FileError::layout(&array.path))?;
            Ok(Array { name, dataset, layout, open: Some(steps.open()) })
        };
        self.arrays.iter().map(array).collect()
    }
}

impl Found {
    /// How many steps there are of the arrays that have steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Attributes of the groups that the arrays are in, by their names; the empty name is that of the whole.
    pub fn groups(&self) -> &BTreeMap<String, Attributes> {
        &self.groups
    }

    /// What the writer said of a step, as JSON.
    pub fn said(&self, step: u64) -> Attributes {
        let values = usize::try_from(step).ok().and_then(|step| self.values.get(step));
        let values = values.and_then(|packed| values::to_json(packed, "").ok()).unwrap_or_default();
        serde_json::from_str(&values).unwrap_or_default()
    }

    /// Whether others that are a copy of these say of a step, or of the whole, what these say of the step, and, where they
    /// keep that, of the whole: which of the two it is, formats differ in.
    pub fn says_no_more(&self, step: u64, copy: &Found, keeps_whole: bool) -> bool {
        let whole = self.groups.get("").filter(|_| keeps_whole);
        let theirs = (copy.said(step), copy.groups.get(""));
        let there =
            |(key, value): (&String, &Value)| theirs.0.get(key).or_else(|| theirs.1?.get(key)) == Some(value);
        self.said(step).iter().all(there) && whole.into_iter().flatten().all(there)
    }

    /// Has a group have these attributes, too.
    pub(crate) fn note(&mut self, group: &str, attributes: Attributes) {
        if !attributes.is_empty() {
            self.groups.entry(group.to_owned()).or_default().extend(attributes);
        }
    }

    /// What the writer said of each step from the first on, [packed](polyduct_port::values), as far as it said
    /// something.
    pub fn values(&self) -> &[Vec<u8>] {
        &self.values
    }

    /// Takes those arrays whose steps have sizes of their own, but are no part of the same steps as the others, for what
    /// they are as a whole.
    pub(crate) fn settle_ragged(&mut self) {
        let steps = self.steps;
        let held = self.arrays.iter_mut().filter_map(|array| array.held.as_mut().ok());
        held.for_each(|held| {
            held.ragged.take_if(|ragged| ragged.count() != steps);
        });
    }

    /// The arrays, by name.
    pub fn arrays(&self) -> &[FoundArray] {
        &self.arrays
    }

    /// Leaves those that are not wanted.
    pub fn retain(&mut self, mut wanted: impl FnMut(&str) -> bool) {
        self.arrays.retain(|array| wanted(&array.name));
    }

    /// The arrays, by name.
    pub fn into_arrays(self) -> Vec<FoundArray> {
        self.arrays
    }
}

impl FoundArray {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One step of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn dataset(&self) -> Result<&Dataset, FileError> {
        self.held.as_ref().map(|held| held.mapping.dataset()).map_err(Clone::clone)
    }

    /// What is written down of it.
    pub fn notes(&self) -> Notes {
        let (mut attributes, dims) = self.all_about();
        if self.ragged().is_some() {
            Steps::forget(&mut attributes);
        }
        Notes { attributes, dims, descr: self.held.as_ref().ok().and_then(|held| held.descr.clone()) }
    }

    fn all_about(&self) -> (Attributes, Option<Dims>) {
        match &self.held {
            Ok(Held { source: Source::Chunks(chunks), stepped, .. }) => {
                let dims = chunks.dims().map(|dims| dims[usize::from(*stepped)..].to_vec());
                (chunks.attributes().clone(), dims)
            }
            Ok(Held { source: Source::Stored(of), .. }) => (of.attributes(), None),
            _ => (Attributes::new(), None),
        }
    }

    /// The shape of each step, where their sizes differ: the [dataset](Self::dataset) is that of all, one behind the
    /// other.
    pub fn step_shapes(&self) -> Option<Vec<Vec<u64>>> {
        self.ragged().map(Steps::shapes)
    }

    /// Where its steps lie that have sizes of their own.
    pub(crate) fn ragged(&self) -> Option<&Steps> {
        self.held.as_ref().ok()?.ragged.as_ref()
    }

    /// Whether its elements are what is expected, or can be converted to that.
    pub fn fits(&self, expect: &Expect) -> bool {
        self.held.as_ref().is_ok_and(|held| shape::fits(held.mapping.dataset().elem(), expect))
    }

    /// Whether it has steps: one that has none is the same in all.
    pub fn stepped(&self) -> bool {
        self.held.as_ref().is_ok_and(|held| held.stepped)
    }
}

/// Where the steps lie of an array in a `.npy` file, if another array behind it says so: from byte `at` on, of `len`.
fn read_steps(io: &Io<'_>, of: &Header, at: u64, len: u64) -> Result<Option<Steps>, FileError> {
    // What is no such array is something that NumPy does not look at either.
    if at == len || of.fortran || of.shape.is_empty() {
        return Ok(None);
    }
    let Ok((header, begin)) = read_header(io, at, len - at) else { return Ok(None) };
    let fits = header.elem == ElemType::I64 && !header.big_endian && !header.fortran;
    let bytes = header.data_len();
    let rest = len - at - begin as u64;
    if !fits || bytes > rest || bytes > MOST_BYTES {
        return Ok(None);
    }
    let mut numbers = vec![0; bytes as usize];
    io.read(&mut numbers, at + begin as u64)?;
    let numbers: Vec<i64> = numbers.as_chunks().0.iter().map(|n| i64::from_le_bytes(*n)).collect();
    Ok(Steps::from_array(&header.shape, &numbers, &of.shape))
}
