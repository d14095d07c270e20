//! The writing port of a file.

mod end;
mod sizes;
mod step;
mod windows;

use super::ahead::Ahead;
use super::boxes::Boxes;
use super::form::{Body, Form};
use super::held::{hold, Given, Held};
use super::io::Io;
use super::link::{meet, WriteEnd};
use super::members::Member;
use super::scatter::{Scatter, What};
use super::slabs::{Chunks, Slabs};
use super::target::{Draft, Target};
use super::together::Together;
use super::wire::{self, Spec};
use super::Options;
use super::{stretch, tree, values};
use super::{timed, Format};
use crate::FileError;
use polyduct_layout::{Dataset, Layout, Mapping};
use polyduct_message::hash::fnv1a;
use polyduct_os::clock;
use polyduct_port::{fixed, Array, ArrayPart, PortError, PortName, Stats};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use step::StepMut;

/// One unit's writing end of a file.
///
/// All units of the program open it, write the same number of steps, and [close](FileWriter::close) it; then
/// it appears under its name, complete, in place of what was there. Dropped without having been closed, a
/// port gives the file up for all units.
///
/// A file of exactly one step is the array itself; one of any other number of steps has them as its first
/// dimension.
pub struct FileWriter {
    state: State,
    /// The others, where all write together.
    together: Together,
    path: String,
    options: Options,
    /// What this unit has of each array: of one, or of several in a `.safetensors` file.
    held: Vec<Held>,
    /// The same for others; none where there is one array without a name.
    arrays: Vec<ArrayPart>,
    form: Form,
    /// The files of a Zarr array.
    chunks: Option<Chunks>,
    ahead: Ahead,
    len: usize,
    next: u64,
    /// Whether there is room for the next step, of which stretches are written.
    reserved: bool,
    /// How many arrays of the next step are written.
    done: usize,
    completion: Completion,
    /// A window of the file.
    buffer: Vec<u8>,
    /// The part that [`step_mut`](FileWriter::step_mut) gives to be filled.
    part: Vec<u8>,
    stats: Stats,
}

/// How far a file has come that is placed with others, as unit 0 knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Completion {
    Not,
    /// But for its name.
    Complete,
    /// Its coordinator was told to give it its name.
    Placing,
}

/// Where a port stands.
enum State {
    Open(WriteEnd),
    /// This unit has said that it is done; the others are waited for.
    Closing(WriteEnd),
    Closed,
    Failed(FileError),
}

impl FileWriter {
    /// Opens a file to write unit `options.port.unit`'s part of each of its steps, and waits until all units
    /// have come. The file is in row-major order, whatever the layout's.
    ///
    /// # Errors
    /// [`PortError::Layout`], [`PortError::BadOption`], [`FileError::BadPath`], [`FileError::NoForm`] before
    /// anything is done; [`FileError::System`] where the directory cannot be written; [`FileError::Busy`];
    /// [`PortError::Disagree`], [`FileError::Refused`], [`PortError::PeerLost`]
    /// when the units do not come together.
    pub fn open(
        path: &Path,
        format: Format,
        dataset: &Dataset,
        layout: &str,
        options: &Options,
    ) -> Result<FileWriter, FileError> {
        let name = path.display().to_string();
        options.check(|| PortName::File(name.clone()))?;
        // What is wrong with the layout is told first.
        let bound = || layout.parse::<Layout>()?.bind(dataset, options.port.units.into());
        bound().map_err(FileError::layout(&name))?;
        let form = Form::new(format, *dataset, options, &name)?;
        FileWriter::begin(path, form, &[("", *dataset, layout)], options, Together::default())
    }

    /// Opens a `.safetensors` or `.npz` file, which has one step, or a group of Zarr to write unit
    /// `options.port.unit`'s part of each of several arrays, each straight to its place, and waits until all units
    /// have come. The files of a set are written `together` with the same units.
    ///
    /// # Errors
    /// As [`open`](FileWriter::open); [`PortError::Bundle`] for names that cannot be, arrays whose size changes, and
    /// layouts that do not fit; [`FileError::NoForm`] for element types that the format does not have.
    pub(super) fn open_arrays(
        path: &Path,
        format: Format,
        arrays: &[Array],
        options: &Options,
        together: Together,
    ) -> Result<FileWriter, FileError> {
        let name = path.display().to_string();
        options.check(|| PortName::File(name.clone()))?;
        let form = Form::of_arrays(format, arrays, options, &name)?;
        let given: Vec<Given<'_>> =
            arrays.iter().map(|array| (&array.name[..], array.dataset, &array.layout[..])).collect();
        FileWriter::begin(path, form, &given, options, together)
    }

    /// Opens a file of text, which unit 0 says before it closes, and waits until all units have come. Each writes one
    /// step of no bytes.
    ///
    /// # Errors
    /// As [`open`](FileWriter::open).
    pub(super) fn open_text(
        path: &Path,
        options: &Options,
    ) -> Result<(FileWriter, Arc<Mutex<String>>), FileError> {
        let (form, text) = Form::of_text(&path.display().to_string())?;
        let nothing = form.dataset;
        let given = [("", nothing, "block")];
        Ok((FileWriter::begin(path, form, &given, options, Together::default())?, text))
    }

    fn begin(
        path: &Path,
        form: Form,
        given: &[Given<'_>],
        options: &Options,
        together: Together,
    ) -> Result<FileWriter, FileError> {
        let start = clock::now();
        let name = path.display().to_string();
        let (held, len, text) = hold(given, &form, (options.port.unit, options.port.units), &name)?;
        let format = form.format;
        let target = Target::open(path, format, matches!(form.body, Body::Group(_)))?;
        let socket = target.socket_name()?;
        let form = form.beside(&target, options)?;
        let mut stats = Stats::default();
        let link = match options.port.units {
            1 => WriteEnd::Alone(Draft::new(target)?),
            _ => {
                let spec = Spec {
                    format: form.text(options),
                    shape: form.dataset.shape().to_vec(),
                    elem: form.dataset.elem().to_string(),
                    layout: wire::cut(&text, 1000),
                    layout_hash: fnv1a(text.bytes()),
                };
                meet(target, spec, &form, together.clone(), &together.options(options), &mut stats.waited)?
            }
        };
        let opened = match &form.body {
            Body::Group(members) => members.make_dirs(link.file(), &name).map(|()| None),
            _ => form.slabs().map(|slabs| Chunks::open(slabs, (link.file(), ""), &name)).transpose(),
        };
        let chunks = match opened {
            Ok(opened) => opened,
            Err(e) => {
                link.abort(&e.to_string());
                return Err(e);
            }
        };
        stats.opened = clock::now().saturating_sub(start);
        let part = |(n, (&(name, ..), held)): (usize, (&Given<'_>, &Held))| ArrayPart {
            name: name.to_owned(),
            mapping: held.mapping.clone(),
            at: held.at.clone(),
            open: form.changes(n),
        };
        let arrays = match form.has_names() {
            true => given.iter().zip(&held).enumerate().map(part).collect(),
            false => Vec::new(),
        };
        let mut writer = FileWriter {
            state: State::Open(link),
            together,
            path: name,
            options: options.clone(),
            held,
            arrays,
            form,
            chunks,
            ahead: Ahead::default(),
            len,
            next: 0,
            reserved: false,
            done: 0,
            completion: Completion::Not,
            buffer: Vec::new(),
            part: Vec::new(),
            stats,
        };
        writer.meet_team(&socket)?;
        Ok(writer)
    }

    /// Shape and element type of one step.
    pub fn dataset(&self) -> &Dataset {
        self.mapping().dataset()
    }

    /// The arrays of a file of several, and where this unit's parts of them lie in a step.
    pub fn arrays(&self) -> &[ArrayPart] {
        &self.arrays
    }

    /// Has these values, packed, go with a step of several arrays. Those of unit 0 count.
    pub(super) fn set_values(&mut self, step: u64, packed: &[u8]) -> Result<(), FileError> {
        let values = values::to_json(packed, &self.path)?;
        match &self.form.body {
            Body::Packed(packed) => return packed.say(&values, &self.options, &self.path),
            Body::Group(members) => {
                tree::check_said(&values, &self.path)?;
                if self.options.port.unit == 0 {
                    members.say(step, &values);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The form of the file.
    pub fn format(&self) -> Format {
        self.form.format
    }

    /// The dataset and who owns what of it; of several arrays those of the first.
    pub fn mapping(&self) -> &Mapping {
        &self.held[0].mapping
    }

    /// Number of the next step, from 0.
    pub fn next_step(&self) -> u64 {
        self.next
    }

    /// Bytes of this unit's part, its halo included.
    pub fn local_len_bytes(&self) -> usize {
        self.len
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Writes this unit's part of the next step. Does not wait for the other units, but for those arrays that all
    /// write together: of which units have pieces of less than 8 KiB, or whose size changes.
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; [`PortError::Interrupted`] and [`PortError::Timeout`], after which the step
    /// can be written again, but for what all write together; [`FileError::NoSpace`], [`FileError::System`], and what has become of other
    /// units, after which there will be no file.
    pub fn write(&mut self, part: &[u8]) -> Result<(), FileError> {
        self.check_open()?;
        if part.len() != self.len {
            return Err(self.wrong_size(usize::MAX, self.len as u64, part.len() as u64));
        }
        let parts: Vec<&[u8]> = self.held.iter().map(|held| &part[held.at.clone()]).collect();
        self.write_parts(&parts)
    }

    /// The same from several places in memory: this unit's part of each of the [arrays](Self::arrays). A constant
    /// one counts with the first step, and may be empty in the others.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_arrays(&mut self, parts: &[&[u8]]) -> Result<(), FileError> {
        self.check_open()?;
        if parts.len() != self.held.len() {
            return Err(FileError::Port(PortError::BadOption {
                port: Some(PortName::File(self.path.clone())),
                option: "arrays",
                found: parts.len().to_string(),
                expected: format!("one for each of the {} arrays", self.held.len()).into(),
            }));
        }
        for (n, (part, held)) in parts.iter().zip(&self.held).enumerate() {
            let is_given = self.next > 0 && self.form.is_constant(n);
            if part.len() != held.at.len() && !(is_given && part.is_empty()) {
                return Err(self.wrong_size(n, held.at.len() as u64, part.len() as u64));
            }
        }
        self.write_parts(parts)
    }

    fn write_parts(&mut self, parts: &[&[u8]]) -> Result<(), FileError> {
        self.check_room(self.next)?;
        self.settle()?;
        // What was compressed is not written twice.
        if self.form.slabs_of(0).and_then(Slabs::boxes).is_none() {
            self.done = 0;
        }
        let mut copied = Duration::ZERO;
        let written = timed(&mut copied, || {
            while let Some(part) = parts.get(self.done) {
                if self.held[self.done].staged.is_none() {
                    self.scatter(self.done, self.next, What::Part(part))?;
                }
                self.done += 1;
            }
            self.write_windows(parts)
        });
        self.stats.copied += copied;
        written.map_err(|e| self.reason(e)).map_err(|e| self.fail(e))?;
        (self.reserved, self.done) = (false, 0);
        self.grow();
        self.stats.steps += 1;
        self.stats.bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        self.next += 1;
        Ok(())
    }

    /// Whether the file has room for another step.
    fn check_room(&self, step: u64) -> Result<(), FileError> {
        match matches!(self.form.body, Body::Packed(_)) && step > 0 {
            true => Err(FileError::Port(PortError::BadOption {
                port: Some(PortName::File(self.path.clone())),
                option: "steps",
                found: "a second one".into(),
                expected: "one, in a file of several arrays; a group, PATH.zarr, has any number".into(),
            })),
            false => Ok(()),
        }
    }

    /// Gives this unit's part of the next step to be filled and [published](StepMut::publish). Its content is
    /// undefined (an older step's). Dropped without publishing, the step is not written and the next call
    /// gives it again.
    ///
    /// # Errors
    /// What has become of other units.
    pub fn step_mut(&mut self) -> Result<StepMut<'_>, FileError> {
        self.check_open()?;
        self.check_room(self.next)?;
        stretch::resize(&mut self.part, self.len, &self.path)?;
        Ok(StepMut { writer: self })
    }

    /// Writes a stretch of the next step, whoever's part it is: bytes of the row-major array from byte `at`
    /// on. The units together write each of its bytes, and then [end](Self::end_step) the step; none writes
    /// its [part](Self::write) of it as well.
    ///
    /// # Errors
    /// [`PortError::WrongSize`] for what is not in a step; then as [`write`](Self::write).
    pub fn write_stretch(&mut self, at: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.write_of(0, self.next, What::Stretch { at, bytes })
    }

    /// Writes of one of the arrays, in a step that has not been ended: a stretch of it, whoever's part it is, or this
    /// unit's part.
    pub(super) fn write_of(&mut self, array: usize, step: u64, what: What<'_>) -> Result<(), FileError> {
        self.check_open()?;
        let held = &self.held[array];
        if held.growing.is_some() {
            let what = fixed(&self.arrays[array].name, held.mapping.dataset().shape());
            return Err(super::packed::bundle(&self.path)(what));
        }
        let (found, expected, most) = match what {
            What::Part(part) => (part.len() as u64, held.at.len() as u64, held.at.len() as u64),
            What::Stretch { at, bytes } => {
                (bytes.len() as u64, held.mapping.dataset().len_bytes().saturating_sub(at), 0)
            }
        };
        if found > expected || found < most {
            return Err(self.wrong_size(array, expected, found));
        }
        let mut copied = Duration::ZERO;
        self.check_room(step)?;
        let written = timed(&mut copied, || self.scatter(array, step, what));
        self.stats.copied += copied;
        written.map_err(|e| self.reason(e)).map_err(|e| self.fail(e))?;
        self.stats.bytes += found;
        Ok(())
    }

    fn wrong_size(&self, array: usize, expected: u64, found: u64) -> FileError {
        FileError::Port(PortError::WrongSize {
            port: PortName::File(self.path.clone()),
            unit: Some(self.options.port.unit),
            array: self.arrays.get(array).map_or("", |array| &array.name).into(),
            expected,
            found,
        })
    }

    /// Ends the next step, of which the units have written all [stretches](Self::write_stretch).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn end_step(&mut self) -> Result<(), FileError> {
        self.check_open()?;
        if let Some(drafts) = self.chunks.as_mut().and_then(|chunks| chunks.drafts.as_mut()) {
            let counted = drafts.count(&mut self.stats.waited, &self.path, &self.options);
            counted.map_err(|e| self.reason(e)).map_err(|e| self.fail(e))?;
        }
        self.reserved = false;
        self.stats.steps += 1;
        self.next += 1;
        Ok(())
    }

    /// Ends so many steps, of which all arrays are written.
    pub(super) fn end_steps(&mut self, steps: u64) -> Result<(), FileError> {
        self.check_open()?;
        self.stats.steps += steps.saturating_sub(self.next);
        self.next = self.next.max(steps);
        Ok(())
    }

    /// Bytes of which a [stretch](Self::write_stretch) should have a whole number, so that fewest are written
    /// twice; any does.
    pub fn stretch_unit(&self) -> u64 {
        self.form.slabs().and_then(Slabs::boxes).map_or(1, Boxes::stretch_unit)
    }

    /// The same for one of the arrays; `None` where only parts of it can be written: its chunks hold several steps and
    /// are encoded.
    pub(super) fn stretch_unit_of(&self, array: usize) -> Option<u64> {
        match self.form.slabs_of(array).and_then(Slabs::boxes) {
            Some(boxes) => (boxes.steps == 1).then(|| boxes.stretch_unit()),
            None => Some(1),
        }
    }

    /// Carries the plan out for the next step, or writes a stretch of it.
    fn scatter(&mut self, array: usize, step: u64, what: What<'_>) -> Result<(), FileError> {
        let FileWriter { state, path, options, held, form, chunks, buffer, stats, reserved, ahead, .. } =
            self;
        let State::Open(link) = state else {
            return Err(FileError::Port(PortError::Closed { port: PortName::File(path.clone()) }));
        };
        let io = Io { file: link.file(), path, options };
        let Held { plan, view, file_at, placed, .. } = &held[array];
        // Steps of which each has a size of its own are one array, as of one step.
        let (base, len) = placed.as_ref().map_or((0, 0), |placed| (placed.base, placed.len));
        let step = if placed.is_some() { 0 } else { step };
        let mut opened = None;
        let mut own = false;
        if let Body::Group(members) = &form.body {
            let Member { name, slabs, .. } = &members.arrays[array];
            if step > 0 && form.is_constant(array) {
                return Ok(());
            }
            // Thousands of arrays would keep as many files open.
            opened = Some(Chunks::open(slabs, (io.file, &format!("{name}/")), path)?);
        }
        let (chunks, reserved) = match &mut opened {
            Some(chunks) => (Some(chunks), &mut own),
            None => (chunks.as_mut(), reserved),
        };
        let mut scatter = Scatter { plan, view: *view, io, buffer, stats, step, reserved };
        match chunks {
            Some(Chunks { drafts: Some(drafts), .. }) => scatter.fill_drafts(what, drafts),
            Some(chunks) => scatter.fill_chunks(what, chunks, base),
            None if placed.is_some() => scatter.fill_file(what, (form.data_at + base, len), 0),
            None => scatter.fill_file(what, (form.step_at(step), form.dataset.len_bytes()), *file_at),
        }?;
        // One of the units is enough.
        if options.port.unit == 0 && !form.is_tree() {
            ahead.wrote(io.file, what.len());
        }
        Ok(())
    }
}
