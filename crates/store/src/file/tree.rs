//! A group of Zarr arrays that is read: which arrays it has, in groups in it as well, and how many steps.

use super::chunks::{self, Chunked};
use super::found::{Found, FoundArray, Held};
use super::source::Source;
use super::{values, Attributes, Options};
use crate::ragged::Steps;
use crate::zarr::{self, ZarrError};
use crate::{json, FileError};
use polyduct_layout::Dataset;
use polyduct_port::{PortError, PortName};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// The attribute of a group that says how many steps its arrays have, where those are a dimension.
pub const STEPS: &str = "polyduct_steps";
/// What the first dimension of an array is called that has them.
pub const STEP: &str = "step";
/// Groups in each other.
const MAX_DEPTH: usize = 32;
/// Arrays of a group.
const MAX_ARRAYS: usize = 100_000;

/// What is in a group.
///
/// # Errors
/// [`FileError::BadZarr`], [`FileError::BadPath`] for what is none; [`FileError::System`].
pub fn find(path: &Path, options: &Options) -> Result<Found, FileError> {
    let name = path.display().to_string();
    let dir = Arc::new(chunks::open_dir(path, &name)?);
    let bad = |problem| Err(FileError::BadPath { path: name.clone(), problem });
    let attributes = match node(&dir, "", &name, options)? {
        Some(Node::Group(attributes)) => attributes,
        Some(Node::Array(_)) => {
            return bad("it is one array, without a name; open it without arrays or layouts")
        }
        None => return bad("it is no Zarr group: it has no zarr.json and no .zgroup"),
    };
    let steps = attributes.get(STEPS).and_then(Value::as_u64);
    let mut walk =
        Walk { dir, path: name.as_str().into(), steps, options, arrays: Vec::new(), groups: BTreeMap::new() };
    walk.group("", 0)?;
    if node(&walk.dir, "", &name, options)?.is_none() {
        // A group that is removed loses this first: of what is in it, some may be gone.
        return bad("it was replaced or removed while it was read");
    }
    // A number that no array bears out says nothing.
    let has_steps = |array: &FoundArray| array.stepped() || array.ragged().is_some();
    let steps = steps.filter(|_| walk.arrays.iter().any(has_steps));
    let (values, whole) = said(attributes, steps);
    let mut found = Found { arrays: walk.arrays, values, steps: steps.unwrap_or(1), groups: walk.groups };
    found.note("", whole);
    found.settle_ragged();
    Ok(found)
}

/// What a group's attributes say of each step: all of the only one; of several, one after the other, in lists. Then what
/// they say of the whole.
fn said(mut attributes: Attributes, steps: Option<u64>) -> (Vec<Vec<u8>>, Attributes) {
    attributes.remove(STEPS);
    let Some(steps) = steps else {
        return (vec![values::from_json(&Value::Object(attributes).to_string())], Attributes::new());
    };
    let (attributes, whole): (Attributes, Attributes) =
        attributes.into_iter().partition(|(_, value)| value.is_array());
    let most = attributes.values().filter_map(Value::as_array).map(Vec::len).max().unwrap_or(0);
    let of_step = |step: usize| {
        let of = |(name, all): (&String, &Value)| {
            let one = all.as_array()?.get(step).filter(|one| !one.is_null())?;
            Some((name.clone(), one.clone()))
        };
        values::from_json(&Value::Object(attributes.iter().filter_map(of).collect()).to_string())
    };
    ((0..most.min(usize::try_from(steps).unwrap_or(usize::MAX))).map(of_step).collect(), whole)
}

/// Whether values have a place among a group's attributes.
///
/// # Errors
/// [`PortError::BadOption`]: one is called as the attribute that says how many steps there are.
pub fn check_said(values: &str, path: &str) -> Result<(), FileError> {
    match serde_json::from_str(values) {
        Ok(Value::Object(named)) if named.contains_key(STEPS) => Err(FileError::Port(PortError::BadOption {
            port: Some(PortName::File(path.to_owned())),
            option: "values",
            found: format!("{STEPS:?}"),
            expected: "other names, in a group: it says how many steps there are".into(),
        })),
        _ => Ok(()),
    }
}

/// What the values of steps are as attributes of a group: those of the only step, or lists of those of each where the
/// steps are a dimension.
pub fn attributes(values: &[String], steps: Option<u64>) -> Attributes {
    let object = |text: &String| match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object,
        _ => Attributes::new(),
    };
    let Some(steps) = steps else { return values.first().map(object).unwrap_or_default() };
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (step, one) in values.iter().map(object).enumerate() {
        for (name, value) in one {
            let list = all.entry(name).or_default();
            list.resize(step, Value::Null);
            list.push(value);
        }
    }
    let mut attributes: Attributes = all.into_iter().map(|(name, list)| (name, list.into())).collect();
    attributes.insert(STEPS.into(), steps.into());
    attributes
}

/// What a directory is.
enum Node {
    Group(Attributes),
    Array(Box<Result<zarr::Array, ZarrError>>),
}

/// What the directory is that has a name beneath another; `None` where it is neither array nor group.
fn node(dir: &OwnedFd, at: &str, path: &str, options: &Options) -> Result<Option<Node>, FileError> {
    let text = |key| chunks::document(dir, at, key, path, zarr::MAX_METADATA_BYTES, options);
    let object = |text: Vec<u8>| match json::parse(&text) {
        Ok(Value::Object(object)) => object,
        _ => Attributes::new(),
    };
    if let Some(text) = text("zarr.json")? {
        let document = object(text.clone());
        return Ok(Some(match document.get("node_type").and_then(Value::as_str) {
            Some("group") => {
                let attributes = document.get("attributes").and_then(Value::as_object).cloned();
                Node::Group(attributes.unwrap_or_default())
            }
            _ => Node::Array(zarr::Array::parse(&text).into()),
        }));
    }
    if let Some(array) = text(".zarray")? {
        let array = zarr::Array::parse_v2(&array, text(".zattrs")?.as_deref());
        return Ok(Some(Node::Array(array.into())));
    }
    match text(".zgroup")? {
        Some(_) => Ok(Some(Node::Group(text(".zattrs")?.map(object).unwrap_or_default()))),
        None => Ok(None),
    }
}

/// A walk through a group.
struct Walk<'a> {
    dir: Arc<OwnedFd>,
    path: Arc<str>,
    steps: Option<u64>,
    options: &'a Options,
    arrays: Vec<FoundArray>,
    /// Attributes of the groups in it, as far as they have some.
    groups: BTreeMap<String, Attributes>,
}

impl Walk<'_> {
    /// Goes through the group that is at `at`, the names of the groups above it each with a `/`.
    fn group(&mut self, at: &str, depth: usize) -> Result<(), FileError> {
        let path = self.path.clone();
        let system = |e| FileError::sys(&path, "list its arrays", e);
        let inner = match at {
            "" => ".",
            at => at,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = match rustix::fs::openat2(&*self.dir, inner, flags, Mode::empty(), resolve) {
            Err(rustix::io::Errno::NOSYS) => rustix::fs::openat(&*self.dir, inner, flags, Mode::empty()),
            opened => opened,
        };
        let entries = rustix::fs::Dir::new(opened.map_err(system)?).map_err(system)?;
        for entry in entries {
            let entry = entry.map_err(system)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name.starts_with('.') || !may_be_dir(entry.file_type()) {
                continue;
            }
            self.options.check_interrupt(&path)?;
            let name = format!("{at}{name}");
            match node(&self.dir, &format!("{name}/"), &path, self.options)? {
                Some(Node::Group(attributes)) if depth < MAX_DEPTH => {
                    self.group(&format!("{name}/"), depth + 1)?;
                    if !attributes.is_empty() {
                        self.groups.insert(name, attributes);
                    }
                }
                Some(Node::Array(array)) if self.arrays.len() < MAX_ARRAYS => {
                    let held = self.array(&name, *array);
                    self.arrays.push(FoundArray { name, path: path.clone(), held });
                }
                Some(_) => {
                    let problem = "it has more than 100000 arrays, or more than 32 groups in each other";
                    return Err(FileError::BadPath { path: path.to_string(), problem });
                }
                None => {}
            }
        }
        Ok(())
    }

    fn array(&self, name: &str, array: Result<zarr::Array, ZarrError>) -> Result<Held, FileError> {
        let path = format!("{}/{name}", self.path);
        let array = array.map_err(|source| FileError::BadZarr { path: path.clone(), source })?;
        let first = array.dims.as_ref().and_then(|dims| dims.first()).and_then(|dim| dim.as_deref());
        let stepped =
            self.steps.is_some() && self.steps == array.shape.first().copied() && first == Some(STEP);
        let shape = &array.shape[usize::from(stepped)..];
        let dataset = Dataset::new(shape, array.elem).map_err(FileError::layout(&path))?;
        let (mapping, grid) = chunks::mapping(&array, &dataset, &path)?;
        let ragged = Steps::noted(&array.attributes, &array.shape).filter(|_| !stepped);
        let chunked = Chunked::new(self.dir.clone(), format!("{name}/"), array, grid);
        Ok(Held {
            mapping,
            source: Source::Chunks(Box::new(chunked)),
            stepped,
            fortran: false,
            ragged,
            descr: None,
        })
    }
}

/// Whether a directory may be what a name is: where the file system does not tell, it is looked at.
fn may_be_dir(file_type: rustix::fs::FileType) -> bool {
    matches!(file_type, rustix::fs::FileType::Directory | rustix::fs::FileType::Unknown)
}

/// Whether what has a path is a group of Zarr: then it holds arrays that have names.
///
/// # Errors
/// [`FileError::System`], [`FileError::BadPath`], [`FileError::BadZarr`].
pub fn is_group(path: &Path) -> Result<bool, FileError> {
    let name = path.display().to_string();
    let dir = chunks::open_dir(path, &name)?;
    Ok(matches!(node(&dir, "", &name, &Options::default())?, Some(Node::Group(_))))
}
