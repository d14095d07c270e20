//! The writing port of several arrays: a file, a set of files with its index, or a group of Zarr.

use super::index::{self, Index, MAX_FILES};
use super::packed::bundle;
use super::scatter::What;
use super::{stretch, values, FileWriter, Format, Options};
use crate::FileError;
use polyduct_layout::Mapping;
use polyduct_os::Errno;
use polyduct_port::{check_names, lay_out, Array, ArrayPart, PortError, PortName, Stats};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// One unit's writing end of several arrays: in files, of which there is one step, or in a group of Zarr.
///
/// All units of the program open it, write their parts, each straight to its place, and close it; then the files
/// are there under their names. A set is there when its index is, which comes last: one that it replaces has gone
/// before its first file is replaced.
pub struct ArraysWriter {
    path: PathBuf,
    options: Options,
    files: Vec<FileWriter>,
    /// Of a set the index, and what it will say.
    index: Option<(FileWriter, Arc<Mutex<String>>)>,
    /// In which of the files each array is; in a file they have the same order.
    places: Vec<usize>,
    arrays: Vec<ArrayPart>,
    len: usize,
    /// Bytes of all arrays.
    total: u64,
    values: String,
    /// The part that [`step_mut`](ArraysWriter::step_mut) gives to be filled.
    part: Vec<u8>,
    /// Whether what the index says is settled, and the old one gone.
    settled: bool,
}

impl ArraysWriter {
    /// Opens what is to hold them, to write unit `options.port.unit`'s part of each array, and waits until all units
    /// have come: with [`Format::Safetensors`] a file, or a set where `path` ends in `.safetensors.index.json`, whose
    /// files have at most `options.shard_bytes` of data, or one array; with [`Format::Npz`] a file; with
    /// [`Format::Zarr`] a group, which has any number of steps.
    ///
    /// # Errors
    /// As [`FileWriter::open`]; [`PortError::Bundle`] for names that cannot be, arrays whose size changes, and layouts
    /// that do not fit.
    pub fn open(
        path: &Path,
        format: Format,
        arrays: &[Array],
        options: &Options,
    ) -> Result<ArraysWriter, FileError> {
        let name = path.display().to_string();
        check_names(arrays.iter().map(|array| array.name.as_str())).map_err(bundle(&name))?;
        let is_set = format == Format::Safetensors && index::is_index(path);
        let places = if is_set { shards(arrays, options.shard_bytes) } else { vec![0; arrays.len()] };
        let count = places.last().map_or(1, |last| last + 1);
        if count > MAX_FILES {
            return Err(FileError::Port(PortError::BadOption {
                port: Some(PortName::File(name)),
                option: "shard_bytes",
                found: format!("{}, which makes {count} files", options.shard_bytes),
                expected: format!("a number that makes at most {MAX_FILES}").into(),
            }));
        }
        let mut files = Vec::with_capacity(count);
        for file in 0..count {
            let of = |(place, array): (&usize, &Array)| (*place == file).then(|| array.clone());
            let own: Vec<Array> = places.iter().zip(arrays).filter_map(of).collect();
            let path = if is_set { index::file_of(path, file, count) } else { path.to_owned() };
            files.push(FileWriter::open_arrays(&path, format, &own, options)?);
        }
        let index = is_set.then(|| FileWriter::open_text(path, options)).transpose()?;
        let mut parts: Vec<ArrayPart> = Vec::with_capacity(arrays.len());
        let mut next = vec![0; count];
        for &place in &places {
            parts.push(files[place].arrays()[next[place]].clone());
            next[place] += 1;
        }
        let laid = lay_out(parts.iter().map(|part| part.at.len() as u64));
        let (ranges, len) = laid.ok_or_else(|| FileError::sys(&name, "allocate", Errno::NOMEM))?;
        parts.iter_mut().zip(ranges).for_each(|(part, at)| part.at = at);
        Ok(ArraysWriter {
            path: path.to_owned(),
            options: options.clone(),
            files,
            index,
            places,
            arrays: parts,
            len,
            total: arrays.iter().map(|array| array.dataset.len_bytes()).sum(),
            values: String::new(),
            part: Vec::new(),
            settled: false,
        })
    }

    /// The arrays, and where this unit's parts of them lie in the memory of the step.
    pub fn arrays(&self) -> &[ArrayPart] {
        &self.arrays
    }

    /// The mapping of the first array.
    pub fn mapping(&self) -> &Mapping {
        &self.arrays[0].mapping
    }

    /// Number of the next step, from 0.
    pub fn next_step(&self) -> u64 {
        self.files.last().map_or(0, FileWriter::next_step)
    }

    /// Bytes of this unit's parts and what lies between them.
    pub fn local_len_bytes(&self) -> usize {
        self.len
    }

    /// Counters since opening, of all files.
    pub fn stats(&self) -> Stats {
        let mut all = Stats::default();
        for stats in self.files.iter().map(FileWriter::stats) {
            all.bytes += stats.bytes;
            all.runs += stats.runs;
            all.waited += stats.waited;
            all.copied += stats.copied;
            all.opened += stats.opened;
            all.steps = stats.steps;
        }
        all
    }

    /// Has these values, [packed](polyduct_port::values), go with the next step, as JSON: in a file's header, a
    /// set's index, or the attributes of a group. Those of unit 0 count.
    ///
    /// # Errors
    /// [`PortError::BadOption`] for what JSON cannot have, and for more than a file has room for.
    pub fn set_values(&mut self, packed: &[u8]) -> Result<(), FileError> {
        self.set_values_of(self.next_step(), packed)
    }

    /// The same of any step.
    ///
    /// # Errors
    /// As [`set_values`](Self::set_values).
    pub fn set_values_of(&mut self, step: u64, packed: &[u8]) -> Result<(), FileError> {
        match self.index {
            Some(_) => self.values = values::to_json(packed, &self.path.display().to_string())?,
            None => self.files[0].set_values(step, packed)?,
        }
        Ok(())
    }

    /// Writes this unit's parts, which lie in `part` where [`arrays`](Self::arrays) say.
    ///
    /// # Errors
    /// As [`FileWriter::write`], and for a second step of a file.
    pub fn write(&mut self, part: &[u8]) -> Result<(), FileError> {
        if part.len() != self.len {
            return Err(FileError::Port(PortError::WrongSize {
                port: PortName::File(self.path.display().to_string()),
                unit: Some(self.options.port.unit),
                array: Box::default(),
                expected: self.len as u64,
                found: part.len() as u64,
            }));
        }
        let places: Vec<_> = self.arrays.iter().map(|array| array.at.clone()).collect();
        self.write_arrays(&places.into_iter().map(|at| &part[at]).collect::<Vec<_>>())
    }

    /// The same from several places in memory, one for each of the [arrays](Self::arrays).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_arrays(&mut self, parts: &[&[u8]]) -> Result<(), FileError> {
        if parts.len() != self.places.len() {
            return Err(FileError::Port(PortError::BadOption {
                port: Some(PortName::File(self.path.display().to_string())),
                option: "arrays",
                found: parts.len().to_string(),
                expected: format!("one for each of the {} arrays", self.places.len()).into(),
            }));
        }
        for file in 0..self.files.len() {
            let own = self.places.iter().zip(parts).filter(|(place, _)| **place == file);
            let own: Vec<&[u8]> = own.map(|(_, part)| *part).collect();
            self.files[file].write_arrays(&own)?;
        }
        if let Some((index, _)) = &mut self.index {
            index.write(&[])?;
        }
        Ok(())
    }

    /// Writes a stretch of one of the arrays, whoever's part it is: bytes of it, row-major, from byte `at` on, of a step
    /// that has not been ended. The units together write each byte of each array and step, in any order, and then
    /// [end](Self::end_steps) all steps.
    ///
    /// # Errors
    /// [`PortError::WrongSize`] for what is not in it; then as [`write`](Self::write).
    ///
    /// # Panics
    /// Where there is no such array.
    pub fn write_stretch(&mut self, array: usize, step: u64, at: u64, bytes: &[u8]) -> Result<(), FileError> {
        let (file, own) = self.place(array);
        self.files[file].write_of(own, step, What::Stretch { at, bytes })
    }

    /// The same of this unit's part of one of the arrays, for all units.
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; then as [`write`](Self::write).
    ///
    /// # Panics
    /// Where there is no such array.
    pub fn write_array(&mut self, array: usize, step: u64, part: &[u8]) -> Result<(), FileError> {
        let (file, own) = self.place(array);
        self.files[file].write_of(own, step, What::Part(part))
    }

    /// Bytes of which a [stretch](Self::write_stretch) of an array should have a whole number; `None` where only whole
    /// [parts](Self::write_array) of it can be written.
    ///
    /// # Panics
    /// Where there is no such array.
    pub fn stretch_unit(&self, array: usize) -> Option<u64> {
        let (file, own) = self.place(array);
        self.files[file].stretch_unit_of(own)
    }

    /// Ends so many steps, of which all arrays are written.
    ///
    /// # Errors
    /// What has become of other units.
    pub fn end_steps(&mut self, steps: u64) -> Result<(), FileError> {
        self.files.iter_mut().try_for_each(|file| file.end_steps(steps))?;
        match &mut self.index {
            Some((index, _)) => index.end_steps(steps),
            None => Ok(()),
        }
    }

    /// The file of an array, and which of its arrays it is.
    fn place(&self, array: usize) -> (usize, usize) {
        let file = self.places[array];
        (file, array - self.places.partition_point(|&other| other < file))
    }

    /// Gives this unit's parts to be filled and [published](ArraysStepMut::publish); their content is undefined.
    ///
    /// # Errors
    /// What has become of other units; a second step of a file.
    pub fn step_mut(&mut self) -> Result<ArraysStepMut<'_>, FileError> {
        self.files[0].step_mut()?;
        stretch::resize(&mut self.part, self.len, &self.path.display().to_string())?;
        Ok(ArraysStepMut { writer: self })
    }

    /// Ends the files and waits until all units have: see [`FileWriter::close`].
    ///
    /// # Errors
    /// As there; where nothing was written.
    pub fn close(&mut self) -> Result<Stats, FileError> {
        if let (Some((_, text)), 1, false) = (&self.index, self.next_step(), self.settled) {
            let count = self.files.len();
            let file_of = |file| {
                let path = index::file_of(&self.path, file, count);
                path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            };
            let places =
                self.arrays.iter().zip(&self.places).map(|(array, &file)| (&array.name[..], file_of(file)));
            let said = index::print(places, self.total, &self.values);
            *text.lock().unwrap_or_else(PoisonError::into_inner) = said;
            if self.options.port.unit == 0 {
                self.forget_old()?;
            }
            self.settled = true;
        }
        self.files.iter_mut().try_for_each(|file| file.close().map(drop))?;
        if let Some((index, _)) = &mut self.index {
            index.close()?;
        }
        Ok(self.stats())
    }

    /// Has the set that is replaced not be there any more, before a file of it changes.
    fn forget_old(&self) -> Result<(), FileError> {
        let old = Index::read(&self.path, &self.options);
        match std::fs::remove_file(&self.path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(FileError::io(&self.path.display().to_string(), "remove the old index", &e))
            }
            _ => {}
        }
        // Files of another number of them would stay for ever. What is not called so is not this set's alone.
        let Ok(files) = old.and_then(|old| old.files(&self.path)) else { return Ok(()) };
        let (of, count) = (files.len(), self.files.len());
        if of != count {
            let theirs: Vec<PathBuf> = (0..of).map(|file| index::file_of(&self.path, file, of)).collect();
            for file in files.iter().filter(|file| theirs.contains(file)) {
                let _ = std::fs::remove_file(file);
            }
        }
        Ok(())
    }

    /// Gives the files up: all other units get [`PortError::PeerAborted`] with this reason, which may be empty.
    pub fn abort(&mut self, reason: &str) {
        self.files.iter_mut().for_each(|file| file.abort(reason));
        if let Some((index, _)) = &mut self.index {
            index.abort(reason);
        }
    }
}

/// The file of each array: as many in a row as have at most so many bytes.
fn shards(arrays: &[Array], most: u64) -> Vec<usize> {
    let (mut file, mut filled) = (0, 0u64);
    let place = |array: &Array| {
        let len = array.dataset.len_bytes();
        if filled > 0 && filled.saturating_add(len) > most {
            (file, filled) = (file + 1, 0);
        }
        filled = filled.saturating_add(len);
        file
    };
    arrays.iter().map(place).collect()
}

/// This unit's parts of the step, to be filled in place.
pub struct ArraysStepMut<'a> {
    writer: &'a mut ArraysWriter,
}

impl ArraysStepMut<'_> {
    /// The arrays, and where this unit's parts lie.
    pub fn arrays(&self) -> &[ArrayPart] {
        &self.writer.arrays
    }

    /// Has these values go with the step: see [`ArraysWriter::set_values`].
    ///
    /// # Errors
    /// As there.
    pub fn set_values(&mut self, packed: &[u8]) -> Result<(), FileError> {
        self.writer.set_values(packed)
    }

    /// Writes the parts to the files.
    ///
    /// # Errors
    /// As [`ArraysWriter::write`].
    pub fn publish(self) -> Result<(), FileError> {
        let part = std::mem::take(&mut self.writer.part);
        let written = self.writer.write(&part);
        self.writer.part = part;
        written
    }
}

impl Deref for ArraysStepMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.writer.part
    }
}

impl DerefMut for ArraysStepMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.writer.part
    }
}
