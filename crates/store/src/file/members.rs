//! A group of Zarr arrays that is written, version 3.
//!
//! All of it is one directory that gets its name when it is complete. What the writer says of the steps are the
//! group's attributes.

use super::form::slabs;
use super::packed::{bundle, refused};
use super::said::Said;
use super::slabs::{open_chunk, Slabs};
use super::tree::{self, STEP};
use super::{io::Io, Attributes, Options};
use crate::ragged::Growing;
use crate::zarr::{About, Compression, Surroundings};
use crate::{steps, FileError};
use polyduct_layout::Dataset;
use polyduct_message::hash::fnv1a;
use polyduct_port::{Array, Changes, PortError, PortName};
use rustix::fs::{Mode, OFlags};
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

/// A new directory may be read and written by whom the user's mask allows.
const NEW_DIR_MODE: Mode = Mode::from_bits_retain(0o777);

/// The arrays of a group.
#[derive(Clone, Debug)]
pub struct Members {
    pub arrays: Vec<Member>,
    /// The groups in it, each behind the one that it is in, with what is written down of them.
    groups: BTreeMap<String, Attributes>,
    /// What is written down of the whole, besides values.
    whole: Attributes,
    stepped: bool,
    said: Said,
}

/// An array of a group.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name, which is where it is.
    pub name: String,
    dataset: Dataset,
    pub slabs: Slabs,
    about: About,
    /// Whether it is written with the first step, and has no others.
    pub constant: bool,
    /// Of one whose size changes, its steps: they are all in one array, as if it had one step.
    pub growing: Option<Growing>,
}

impl Members {
    /// Lays the arrays out in chunks.
    ///
    /// # Errors
    /// [`PortError::Bundle`] for names that cannot be; [`FileError::NoForm`] for elements that Zarr does not have;
    /// [`PortError::BadOption`] for chunks of a shape.
    pub fn new(arrays: &[Array], options: &Options, path: &str) -> Result<Members, FileError> {
        if let Some(chunks) = &options.chunks {
            return Err(FileError::Port(PortError::BadOption {
                port: Some(PortName::File(path.to_owned())),
                option: "chunks",
                found: format!("{chunks:?}"),
                expected: "none: the arrays of a group have shapes of their own".into(),
            }));
        }
        let names: BTreeSet<&str> = arrays.iter().map(|array| array.name.as_str()).collect();
        let mut members = Members {
            arrays: Vec::with_capacity(arrays.len()),
            groups: BTreeMap::new(),
            whole: options.attributes_of(""),
            stepped: options.stepped,
            said: Said::default(),
        };
        for array in arrays {
            let Array { name, dataset, open, .. } = array;
            for (end, _) in name.match_indices('/') {
                if names.contains(&name[..end]) {
                    return Err(refused(path, name, "it would be in another array; expected names of which none is the beginning of another"));
                }
                let group = &name[..end];
                members.groups.entry(group.to_owned()).or_insert_with(|| options.attributes_of(group));
            }
            if name
                .split('/')
                .any(|level| level.starts_with('.') || level.starts_with("__") || level == "zarr.json")
            {
                return Err(refused(
                    path,
                    name,
                    "Zarr has no names that begin with '.' or '__', and zarr.json is its own",
                ));
            }
            let about = options.about_of(name);
            let growing = Growing::of(array, options.port.units).map_err(bundle(path))?;
            if growing.is_some() && options.compression != Compression::None {
                return Err(refused(path, name, "its size changes, and chunks that grow are not compressed"));
            }
            let dataset =
                growing.as_ref().map_or(Ok(*dataset), Growing::room).map_err(FileError::layout(path))?;
            members.arrays.push(Member {
                name: name.clone(),
                dataset,
                slabs: slabs(dataset, about.clone(), options, path)?,
                about,
                constant: *open == Some(Changes::Never),
                growing,
            });
        }
        Ok(members)
    }

    /// What all units must agree on besides the layouts.
    pub fn text(&self) -> String {
        let of = |m: &Member| {
            let growing = m.growing.as_ref().map_or(String::new(), Growing::text);
            format!("{:?} {} {:?} {} {growing};", m.name, m.dataset.elem(), m.dataset.shape(), m.constant)
        };
        let all: String = self.arrays.iter().map(of).collect();
        format!(", group of {} arrays ({:x})", self.arrays.len(), fnv1a(all.bytes()))
    }

    /// Has a step have these values, as JSON.
    pub fn say(&self, step: u64, values: &str) {
        if let (Ok(step), false) = (usize::try_from(step), values.is_empty()) {
            self.said.say(step, values);
        }
    }

    /// Makes the directories of the groups and arrays, unless another unit has.
    ///
    /// # Errors
    /// [`FileError::System`].
    pub fn make_dirs(&self, dir: &File, path: &str) -> Result<(), FileError> {
        for name in self.groups.keys().chain(self.arrays.iter().map(|member| &member.name)) {
            match rustix::fs::mkdirat(dir, name.as_str(), NEW_DIR_MODE) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(e) => return Err(FileError::sys(path, "make a directory", e)),
            }
        }
        Ok(())
    }

    /// Gives the chunks their lengths and names, and makes them and the metadata last, the group's at the end.
    ///
    /// # Errors
    /// [`FileError::System`], [`FileError::NoSpace`].
    pub fn complete(&self, dir: &File, path: &str, steps: u64) -> Result<(), FileError> {
        for member in &self.arrays {
            let has_steps = !member.constant && member.growing.is_none();
            let (steps, stepped) = if has_steps { (steps, self.stepped) } else { (1, false) };
            let mut about = About { dims: Some(member.dims(steps, stepped)), ..member.about.clone() };
            let mut slabs = member.slabs.clone();
            if let Some(growing) = &member.growing {
                growing.steps().note(&mut about.attributes);
                slabs = slabs.of_all(growing.whole().map_err(FileError::layout(path))?);
            }
            let slabs = slabs.about(about, stepped);
            let place = Surroundings { name: member.name.clone(), ..Surroundings::default() };
            let style = slabs.style(&place, steps);
            let inner = open_dir(dir, &member.name, path)?;
            slabs.complete(&inner, path, steps, &style)?;
            sync(&inner, path)?;
        }
        let values =
            tree::attributes(&self.said.all(), steps::are_a_dimension(steps, self.stepped).then_some(steps));
        for (group, attributes) in self.groups.iter().rev() {
            let inner = open_dir(dir, group, path)?;
            write_group(&inner, attributes.clone(), path)?;
            sync(&inner, path)?;
        }
        write_group(dir, self.whole.clone().into_iter().chain(values).collect(), path)
    }
}

impl Member {
    /// What its dimensions are called, all of them: programs that read a group by names need them.
    fn dims(&self, steps: u64, stepped: bool) -> Vec<Option<String>> {
        let own = self.dataset.shape().len();
        let with_steps = steps::are_a_dimension(steps, stepped);
        let mut dims =
            self.about.dims.clone().filter(|dims| dims.len() == own).unwrap_or_else(|| vec![None; own]);
        let name = self.name.replace('/', "_");
        for (axis, dim) in dims.iter_mut().enumerate() {
            dim.get_or_insert_with(|| format!("{name}_dim_{axis}"));
        }
        if with_steps {
            dims.insert(0, Some(STEP.into()));
        }
        dims
    }
}

fn open_dir(dir: &File, name: &str, path: &str) -> Result<File, FileError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(dir, name, flags, Mode::empty());
    opened.map(File::from).map_err(|e| FileError::sys(path, "open a directory", e))
}

fn sync(dir: &File, path: &str) -> Result<(), FileError> {
    rustix::fs::fsync(dir).map_err(|e| FileError::sys(path, "fsync a directory", e))
}

fn write_group(dir: &File, attributes: Attributes, path: &str) -> Result<(), FileError> {
    let document: Value = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
    let file = open_chunk(dir, "zarr.json").map_err(|e| FileError::sys(path, "create its metadata", e))?;
    Io { file: &file, path, options: &Options::default() }.write(format!("{document:#}\n").as_bytes(), 0)?;
    file.sync_all().map_err(|e| FileError::io(path, "fsync its metadata", &e))
}
