//! A folder of a store as one thing: several arrays that are written together, and there together.
//!
//! Each array is a dataset of its own, with its steps. What the writer says of the steps is an attribute of the
//! first.

mod find;

use super::writer::commit::{commit, End};
use super::writer::crew::Crew;
use super::writer::output::{self, Output, Wanted};
use super::writer::{dir_id, stretch};
use super::{Store, StoreError};
use crate::file::several::{check_count, WriteArrays};
use crate::file::{values, Attributes, Notes, Options};
use crate::ragged::{self, Growing, Placed, Unsettled};
use crate::{steps, FileError};
use polyduct_layout::LayoutError;
use polyduct_os::{clock, Errno};
use polyduct_port::{
    check_names, fixed, lay_out, Array, ArrayPart, BundleError, Changes, PortError, PortName, Sizes, Stats,
};
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;

pub use find::{find, is_folder};

/// The attribute of the first array with what the writer said of each step.
pub const VALUES: &str = "polyduct_values";
/// Where there are more datasets than these, files of one are open at a time.
const OPEN: usize = 8;
/// The layout of a dataset whose steps have layouts of their own.
const WHOLE: &str = "...";

/// One unit's writing end of a folder.
pub struct FolderWriter {
    crew: Crew,
    folder: String,
    outputs: Vec<Output>,
    arrays: Vec<ArrayPart>,
    /// Of arrays whose size changes, where the next step lies, once all units have said what they bring.
    placed: Vec<Option<Placed>>,
    /// Bytes of this unit's parts, at most.
    len: usize,
    /// As JSON, of each step of this port.
    values: Vec<Value>,
    /// Steps before this port's.
    before: u64,
    steps: u64,
    memory: Vec<u8>,
    stats: Stats,
    closed: bool,
}

/// Checks that no array of a folder to which is appended would have fewer steps than the others from then on. One that
/// has but one step is constant only beside some that have more.
fn all_are_brought(store: &Store, folder: &str, arrays: &[Array]) -> Result<(), StoreError> {
    let owned = store.own_to_read()?;
    let of_folder = |name: String| {
        owned.find(&name).map(|(_, meta)| (name, steps::are_a_dimension(meta.steps, meta.stepped)))
    };
    let there = owned.in_folder(folder).into_iter().map(of_folder).collect::<Result<Vec<_>, _>>()?;
    let some_have_steps = there.iter().any(|&(_, stepped)| stepped);
    let brought: HashSet<String> = arrays.iter().map(|array| format!("{folder}/{}", array.name)).collect();
    match there.iter().find(|(name, stepped)| !brought.contains(name) && (*stepped || !some_have_steps)) {
        None => Ok(()),
        Some((name, _)) => Err(bad(
            &store.shown,
            name,
            "one that does not come with the steps that are appended",
            "all arrays of the folder in each of its steps, but those that are constant",
        )),
    }
}

impl FolderWriter {
    /// Opens a folder to write unit `options.port.unit`'s part of each of its arrays, in place of all that is in it;
    /// with `append` the steps follow those of the arrays that are there. Waits until all units have come.
    ///
    /// # Errors
    /// As [`StoreWriter::open`](super::StoreWriter::open); [`PortError::Bundle`] for names that cannot be;
    /// [`StoreError::Bad`] where one array would lie in another as in a folder, and for arrays whose size changes that
    /// are appended to.
    pub fn open(
        dir: &Path,
        folder: &str,
        arrays: &[Array],
        append: bool,
        options: &Options,
    ) -> Result<FolderWriter, StoreError> {
        let start = clock::now();
        let store = Store::open(dir)?;
        let shown = store.shown.clone();
        let bundle = |source: BundleError| {
            let (port, source) = (PortName::Store(shown.clone()), Box::new(source));
            StoreError::Port(PortError::Bundle { port, source })
        };
        check_names(arrays.iter().map(|array| array.name.as_str())).map_err(bundle)?;
        let units = options.port.units;
        let growing: Result<Vec<_>, _> = arrays.iter().map(|array| Growing::of(array, units)).collect();
        let growing = growing.map_err(bundle)?;
        let changing = arrays.iter().zip(&growing).find(|(_, growing)| growing.is_some());
        if let Some((array, _)) = changing.filter(|_| append) {
            return Err(bad(
                &shown,
                &array.name,
                "one whose size changes, to be appended to",
                "one whose size is the same in all steps; or without append, to be written anew",
            ));
        }
        if append {
            all_are_brought(&store, folder, arrays)?;
        }
        let in_another = |name: &str| {
            let folders = name.match_indices('/').map(|(at, _)| &name[..at]);
            folders
                .into_iter()
                .find(|folder| arrays.iter().any(|other| other.name == **folder))
                .map(str::to_owned)
        };
        if let Some((array, other)) = arrays.iter().find_map(|a| Some((a, in_another(&a.name)?))) {
            let found = format!("in {other:?}, which is an array itself");
            return Err(bad(&shown, &array.name, &found, "in folders only"));
        }
        let wanted = |(array, growing): (&Array, &Option<Growing>)| {
            let is_constant = array.open == Some(Changes::Never);
            let Notes { mut attributes, dims, .. } =
                options.notes.get(&array.name).cloned().unwrap_or_default();
            if let Some(dims) = dims {
                attributes.insert("dims".into(), dims.into());
            }
            let (dataset, layout) = match growing {
                Some(growing) => (growing.whole()?, WHOLE.to_owned()),
                None => (array.dataset, array.layout.clone()),
            };
            Ok(Wanted {
                name: format!("{folder}/{}", array.name),
                dataset,
                layout,
                attributes,
                descr: options.descr_of(array).cloned(),
                stepped: options.stepped && !is_constant && growing.is_none(),
                growing: growing.clone(),
            })
        };
        let wanted: Result<Vec<Wanted>, LayoutError> = arrays.iter().zip(&growing).map(wanted).collect();
        let wanted = wanted.map_err(StoreError::layout(&shown))?;
        let what = format!("w {} {folder}/", dir_id(store.dir()));
        let (crew, mut outputs) = output::open(store, &what, &wanted, (append, Some(folder)), options)?;
        if outputs.len() > OPEN {
            outputs.iter_mut().for_each(Output::rest);
        }
        let unit = options.port.unit;
        let most = |(output, growing): (&Output, &Option<Growing>)| match growing {
            Some(growing) => growing.sizes.most_len(unit),
            None => Ok(output.len as u64),
        };
        let lens: Result<Vec<u64>, BundleError> = outputs.iter().zip(&growing).map(most).collect();
        let laid = lay_out(lens.map_err(bundle)?.into_iter());
        let (places, len) = laid.ok_or_else(|| StoreError::sys(&shown, "allocate", Errno::NOMEM))?;
        let part = |((array, output), at): ((&Array, &Output), _)| ArrayPart {
            name: array.name.clone(),
            mapping: output.mapping.clone(),
            at,
            open: array.open,
        };
        let mut parts: Vec<ArrayPart> = arrays.iter().zip(&outputs).zip(places).map(part).collect();
        for (part, growing) in parts.iter_mut().zip(&growing) {
            if let Some(growing) = growing {
                part.mapping = growing.sizes.part(&growing.sizes.nothing(), unit).map_err(bundle)?.0;
                part.at.end = part.at.start;
            }
        }
        let mut writer = FolderWriter {
            crew,
            folder: folder.to_owned(),
            before: 0,
            outputs,
            placed: growing.iter().map(|_| None).collect(),
            arrays: parts,
            len,
            values: Vec::new(),
            steps: 0,
            memory: Vec::new(),
            stats: Stats { opened: clock::now().saturating_sub(start), ..Stats::default() },
            closed: false,
        };
        writer.before = writer.changing().map(|output| output.before).max().unwrap_or(0);
        let other = writer.changing().find(|output| output.before != writer.before);
        if let Some((name, found)) = other.map(|other| (other.name.clone(), other.before)) {
            let error = StoreError::Bad {
                store: shown,
                what: format!("the number of steps of {name:?}, to which is appended,"),
                found: found.to_string(),
                expected: format!("{}, as another array of the folder has", writer.before),
            };
            return Err(writer.crew.fail(error));
        }
        Ok(writer)
    }

    /// The datasets that have steps.
    fn changing(&self) -> impl Iterator<Item = &Output> {
        let arrays = self.arrays.iter().zip(&self.outputs);
        arrays.filter(|(array, _)| array.open.is_none()).map(|(_, output)| output)
    }

    fn is_constant(&self, array: usize) -> bool {
        self.arrays[array].open == Some(Changes::Never)
    }

    /// Whether one step of a dataset is still to come, the `step`-th of the folder.
    fn is_due(&self, array: usize, step: u64) -> bool {
        let there = self.outputs[array].meta.steps;
        there <= if self.is_constant(array) { 0 } else { step }
    }

    fn check_len(&self, array: usize, expected: u64, found: usize) -> Result<(), FileError> {
        if found as u64 == expected {
            return Ok(());
        }
        Err(FileError::Port(PortError::WrongSize {
            port: self.name(),
            unit: None,
            array: self.arrays[array].name.as_str().into(),
            expected,
            found: found as u64,
        }))
    }

    /// Writes a part of one of the datasets, together with the other units.
    fn move_part(&mut self, array: usize, part: &[u8]) -> Result<(), FileError> {
        let (start, many) = (clock::now(), self.outputs.len() > OPEN);
        let FolderWriter { crew, outputs, stats, placed, .. } = self;
        let output = &mut outputs[array];
        match placed[array].take() {
            Some(placed) => {
                output.move_grown(crew, &placed, part).map_err(|e| crew.fail(e))?;
                output.grown.iter().for_each(|grown| grown.growing.push(&placed));
            }
            None => {
                output.move_step(crew, part).map_err(|e| crew.fail(e))?;
                output.meta.steps += 1;
            }
        }
        if many {
            output.rest();
        }
        stats.copied += clock::now().saturating_sub(start);
        stats.bytes += part.len() as u64;
        Ok(())
    }

    /// Waits until all units have said how much they bring of the next step.
    fn settle(&mut self) -> Result<(), FileError> {
        let name = self.name();
        let FolderWriter { crew, outputs, arrays, placed, .. } = self;
        let growing = arrays.iter().zip(&*outputs).filter_map(|(part, output)| {
            Some((&output.grown.as_ref()?.growing, part.mapping.dataset().shape()))
        });
        let growing: Vec<_> = growing.collect();
        if growing.is_empty() {
            return Ok(());
        }
        let settled = ragged::settle(crew.team()?, &growing);
        let settled = settled.map_err(|e| match e {
            Unsettled::Said(source) => {
                FileError::Port(PortError::Bundle { port: name, source: Box::new(source) })
            }
            Unsettled::Lost(e) => crew.fail(e).into(),
        })?;
        let open = placed.iter_mut().zip(&*outputs).filter(|(_, output)| output.grown.is_some());
        open.zip(settled).for_each(|((place, _), settled)| *place = Some(settled));
        Ok(())
    }

    /// The next step that is written of a dataset is this one of the folder.
    fn come_to(&mut self, array: usize, step: u64) -> Result<(), FileError> {
        self.crew.team()?;
        if self.outputs[array].grown.is_some() {
            let (port, part) = (self.name(), &self.arrays[array]);
            let source = Box::new(fixed(&part.name, part.mapping.dataset().shape()));
            return Err(PortError::Bundle { port, source }.into());
        }
        let (constant, output) = (self.is_constant(array), &mut self.outputs[array]);
        let step = if constant { output.before } else { step };
        // What was written of those before in stretches has been written.
        output.meta.steps = output.meta.steps.max(step);
        if output.meta.steps > step {
            let store = &self.crew.store.shown;
            let (found, expected) =
                (format!("step {step}"), format!("step {} or a later one", output.meta.steps));
            return Err(StoreError::Bad {
                store: store.clone(),
                what: format!("the step of {:?} to write", output.name),
                found,
                expected,
            }
            .into());
        }
        Ok(())
    }
}

impl WriteArrays for FolderWriter {
    fn name(&self) -> PortName {
        PortName::Store(format!("{}/{}", self.crew.store.shown, self.folder))
    }

    fn arrays(&self) -> &[ArrayPart] {
        &self.arrays
    }

    fn next_step(&self) -> u64 {
        self.before + self.steps
    }

    fn stats(&self) -> Stats {
        Stats { waited: self.crew.waited, steps: self.steps, ..self.stats }
    }

    fn set_values_of(&mut self, step: u64, packed: &[u8]) -> Result<(), FileError> {
        let text = values::to_json(packed, &self.name().to_string())?;
        let at = usize::try_from(step.saturating_sub(self.before)).unwrap_or(usize::MAX);
        if self.crew.is(0) && !text.is_empty() && at < values::MOST_STEPS {
            self.values.resize(self.values.len().max(at + 1), Value::Null);
            self.values[at] = serde_json::from_str(&text).unwrap_or_default();
        }
        Ok(())
    }

    fn local_len_bytes(&self) -> usize {
        self.len
    }

    fn bring(&mut self, array: usize, shape: &[u64]) -> Result<(), FileError> {
        let unit = self.crew.team()?.unit();
        let name = self.name();
        let bundle = |source| PortError::Bundle { port: name.clone(), source: Box::new(source) };
        let part = &mut self.arrays[array];
        let Some(grown) = &self.outputs[array].grown else {
            return Err(bundle(fixed(&part.name, shape)).into());
        };
        let (mapping, len) = grown.growing.sizes.part(shape, unit).map_err(bundle)?;
        (part.mapping, part.at.end) = (mapping, part.at.start + len as usize);
        Ok(())
    }

    fn sizes(&self, array: usize) -> Option<&Sizes> {
        self.outputs[array].grown.as_ref().map(|grown| &grown.growing.sizes)
    }

    fn write_arrays(&mut self, parts: &[&[u8]]) -> Result<(), FileError> {
        self.crew.team()?;
        check_count(self.name(), parts.len(), self.arrays.len())?;
        self.fit(parts)?;
        let step = self.next_step();
        for (n, part) in parts.iter().enumerate() {
            if self.is_due(n, step) || !part.is_empty() {
                self.check_len(n, self.arrays[n].at.len() as u64, part.len())?;
            }
        }
        self.settle()?;
        for (n, part) in parts.iter().enumerate() {
            if self.is_due(n, step) {
                self.move_part(n, part)?;
            }
        }
        self.steps += 1;
        Ok(())
    }

    fn write_stretch(&mut self, array: usize, step: u64, at: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.come_to(array, step)?;
        let start = clock::now();
        let FolderWriter { crew, outputs, stats, .. } = self;
        let output = &mut outputs[array];
        stretch::check((&crew.store.shown, &output.name), output.fill, at, bytes.len())?;
        output.move_stretch(crew, at, bytes).map_err(|e| crew.fail(e))?;
        stats.copied += clock::now().saturating_sub(start);
        stats.bytes += bytes.len() as u64;
        Ok(())
    }

    fn write_array(&mut self, array: usize, step: u64, part: &[u8]) -> Result<(), FileError> {
        self.come_to(array, step)?;
        self.check_len(array, self.arrays[array].at.len() as u64, part.len())?;
        self.move_part(array, part)
    }

    fn stretch_unit(&self, array: usize) -> Option<u64> {
        stretch::unit(self.outputs[array].fill)
    }

    fn end_steps(&mut self, steps: u64) -> Result<(), FileError> {
        self.crew.team()?;
        for array in 0..self.outputs.len() {
            if self.outputs[array].grown.is_some() {
                continue;
            }
            let last = if self.is_constant(array) {
                self.outputs[array].before + u64::from(steps > 0)
            } else {
                steps
            };
            let output = &mut self.outputs[array];
            output.meta.steps = output.meta.steps.max(last);
            if self.arrays.len() > OPEN {
                output.rest();
            }
        }
        self.steps = self.steps.max(steps.saturating_sub(self.before));
        Ok(())
    }

    fn check_room(&mut self) -> Result<(), FileError> {
        Ok(self.crew.team().map(drop)?)
    }

    fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }

    fn close(&mut self) -> Result<Stats, FileError> {
        if self.closed || self.crew.is_closed()? {
            return Ok(self.stats());
        }
        let FolderWriter { crew, outputs, values, before, folder, .. } = self;
        let ends: Result<Vec<End>, StoreError> = outputs.iter_mut().map(|output| output.end(crew)).collect();
        let ends = ends.map_err(|e| crew.fail(e))?;
        let outputs = &*outputs;
        let about = |n: usize, attributes: &mut Attributes| {
            if n == 0 {
                say(attributes, *before, values);
            }
            let grown = outputs.get(n).and_then(|output| output.grown.as_ref());
            grown.into_iter().for_each(|grown| grown.growing.steps().note(attributes));
        };
        let appends = outputs.iter().any(|output| output.appends_to.is_some());
        let replaced = Some(folder.as_str()).filter(|_| !appends);
        crew.end(ends, |store, ends| commit(store, outputs, ends, replaced, about))?;
        self.outputs.iter_mut().for_each(Output::let_go);
        self.closed = true;
        Ok(self.stats())
    }

    fn abort(&mut self, _: &str) {
        if !self.closed {
            let e = self.crew.closed();
            let _ = self.crew.fail(e);
        }
    }
}

impl Drop for FolderWriter {
    fn drop(&mut self) {
        if self.crew.team.is_some() {
            self.abort("");
        }
    }
}

/// Adds what is said of steps, of which there were so many before.
fn say(attributes: &mut Attributes, before: u64, values: &[Value]) {
    if values.is_empty() {
        return;
    }
    let old = attributes.remove(VALUES);
    let mut all = old.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    all.resize(usize::try_from(before).unwrap_or(all.len()).min(values::MOST_STEPS), Value::Null);
    all.extend(values.iter().cloned());
    attributes.insert(VALUES.into(), all.into());
}

fn bad(store: &str, array: &str, found: &str, expected: &str) -> StoreError {
    StoreError::Bad {
        store: store.to_owned(),
        what: format!("array {array:?}"),
        found: found.to_owned(),
        expected: expected.to_owned(),
    }
}
