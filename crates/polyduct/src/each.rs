//! Several arrays in files, each opened for itself: what is copied need not be in memory.

use crate::files::find_arrays;
use crate::reader::ReadEnd;
use crate::{stats, Error, Keeps, Mode, Reader, Target};
use polyduct_layout::Dataset;
use polyduct_port::Expect;
use polyduct_store::disk::{self, folder::is_folder};
use polyduct_store::file::{is_group, Found, FoundArray, Notes};
use polyduct_store::{self as store, Attributes, FileReader};
use std::collections::BTreeMap;

/// The arrays of a file, of a set of files or of a group: see [`Open::each`](crate::Open::each).
pub struct Each {
    target: Target,
    options: store::Options,
    expect: Expect,
    found: Found,
}

impl Each {
    pub(crate) fn find(target: Target, options: store::Options, expect: Expect) -> Result<Each, Error> {
        let (path, found) = find_arrays(&target, &options)?;
        options.check(|| polyduct_port::PortName::File(path.display().to_string()))?;
        Ok(Each { target, options, expect, found })
    }

    /// Steps of those arrays that have steps.
    pub fn steps(&self) -> u64 {
        self.found.steps()
    }

    /// What the writer said of each step from the first on, [packed](crate::values), as far as it said something.
    pub fn values(&self) -> &[Vec<u8>] {
        self.found.values()
    }

    /// Leaves those that are not wanted.
    pub fn retain(&mut self, wanted: impl FnMut(&str) -> bool) {
        self.found.retain(wanted);
    }

    /// Each with its name, one step of it as it is read, and whether it has steps: one that has none is the same in all.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn arrays(&self) -> Result<Vec<(&str, Dataset, bool)>, Error> {
        self.list().map(|(name, found)| found.map(|(dataset, stepped)| (name, dataset, stepped))).collect()
    }

    /// The same, of each array that is no such one what is wrong with it.
    pub fn list(&self) -> impl Iterator<Item = (&str, Result<(Dataset, bool), Error>)> {
        let of = |array: &FoundArray| {
            let found = array.dataset()?;
            let elem = self.expected(array).elem.unwrap_or(found.elem());
            Ok((Dataset::new(found.shape(), elem)?, array.stepped()))
        };
        self.found.arrays().iter().map(move |array| (array.name(), of(array)))
    }

    /// Of each the shape of each step, where their sizes differ: it is one array of all, one behind the other.
    pub fn step_shapes(&self) -> impl Iterator<Item = Option<Vec<Vec<u64>>>> + '_ {
        self.found.arrays().iter().map(FoundArray::step_shapes)
    }

    /// What the writer said of a step, as JSON.
    pub fn said(&self, step: u64) -> Attributes {
        self.found.said(step)
    }

    /// Whether a copy says of a step, and of the whole, as far as it keeps that, what these arrays and it say themselves.
    pub fn says_the_same(&self, step: u64, copy: &Each) -> bool {
        self.found.says_no_more(step, &copy.found, copy.keeps().whole)
            && copy.found.says_no_more(step, &self.found, self.keeps().whole)
    }

    /// What they are in has a place for this besides data.
    pub fn keeps(&self) -> Keeps {
        self.target.keeps()
    }

    /// Attributes of the groups that the arrays are in, by their names, as far as they have some; the empty name is that
    /// of the whole.
    pub fn groups(&self) -> &BTreeMap<String, Attributes> {
        self.found.groups()
    }

    /// What is written down of each.
    pub fn notes(&self) -> impl Iterator<Item = Notes> + '_ {
        self.found.arrays().iter().map(FoundArray::notes)
    }

    /// What is expected of an array: the type that was asked for, where elements of its own can become that.
    fn expected(&self, array: &FoundArray) -> Expect {
        let own = Expect { elem: None, ..self.expect.clone() };
        if array.fits(&self.expect) {
            self.expect.clone()
        } else {
            own
        }
    }

    /// The arrays as ports of their own, in the order of [`arrays`](Self::arrays), each in the layout that is told of it.
    /// A port holds a file open from when it is first read.
    pub fn read(
        self,
        layout: impl Fn(&str, &Dataset) -> String,
    ) -> impl Iterator<Item = Result<Reader, Error>> {
        let Each { target, options, expect, found } = self;
        let steps = found.steps();
        let own = Each { target, options, expect, found: Found::default() };
        found.into_arrays().into_iter().map(move |array| {
            let (layout, expect) = (layout(array.name(), array.dataset()?), own.expected(&array));
            let port = FileReader::of(array, steps, &layout, &expect, &own.options)?;
            let told = stats::Sink::new(&own.target, Mode::Read, &own.options.port);
            Ok(Reader { end: ReadEnd::File(Box::new(port)), carrier: None, told })
        })
    }
}

/// Whether what a target names has several arrays, with names; `None` where that is not known before it is opened.
pub(crate) fn has_names(target: &Target) -> Result<Option<bool>, Error> {
    match target {
        Target::Npz(_, None) | Target::Set(_) => Ok(Some(true)),
        Target::Npy(path) => {
            let found = Found::of(path, store::Format::Npy, &store::Options::default())?;
            Ok(Some(found.arrays().iter().any(|array| array.step_shapes().is_some())))
        }
        Target::Zarr(path) => Ok(Some(is_group(path)?)),
        Target::Safetensors(path, None) => {
            let found = Found::of(path, store::Format::Safetensors, &store::Options::default())?;
            Ok(Some(found.arrays().len() != 1))
        }
        Target::Store(path) => {
            let (dir, folder) = disk::split_folder(path)?;
            Ok(Some(is_folder(&dir, &folder)?))
        }
        Target::Pipe(_) | Target::Net(_) | Target::Stream(_) => Ok(None),
        _ => Ok(Some(false)),
    }
}
