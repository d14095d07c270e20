//! The writing port of several arrays: a file, a set of files with its index, or a group of Zarr.

use super::index::{self, Index, MAX_FILES};
use super::packed::bundle;
use super::scatter::What;
use super::several::{check_count, WriteArrays};
use super::together::Together;
use super::{values, FileWriter, Format, Options};
use crate::FileError;
use polyduct_os::Errno;
use polyduct_port::{check_names, lay_out, Array, ArrayPart, PortError, PortName, Sizes, Stats};
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
    /// Bytes of this unit's parts, at most.
    len: usize,
    /// Bytes of all arrays.
    total: u64,
    values: String,
    /// Memory for a step.
    part: Vec<u8>,
    /// Whether the set that is replaced has gone.
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
        let together = if is_set { Together::of_set() } else { Together::default() };
        let mut files = Vec::with_capacity(count);
        for file in 0..count {
            let of = |(place, array): (&usize, &Array)| (*place == file).then(|| array.clone());
            let own: Vec<Array> = places.iter().zip(arrays).filter_map(of).collect();
            let path = if is_set { index::file_of(path, file, count) } else { path.to_owned() };
            match FileWriter::open_arrays(&path, format, &own, options, together.clone()) {
                Ok(file) => files.push(file),
                Err(error) => return Err(told_by_another(&mut files).unwrap_or(error)),
            }
        }
        let index = is_set.then(|| FileWriter::open_text(path, options)).transpose()?;
        let mut parts: Vec<ArrayPart> = Vec::with_capacity(arrays.len());
        let mut next = vec![0; count];
        for &place in &places {
            parts.push(files[place].arrays()[next[place]].clone());
            next[place] += 1;
        }
        let mut len = files[0].local_len_bytes();
        if count > 1 {
            let laid = lay_out(parts.iter().map(|part| part.at.len() as u64));
            let (ranges, all) = laid.ok_or_else(|| FileError::sys(&name, "allocate", Errno::NOMEM))?;
            parts.iter_mut().zip(ranges).for_each(|(part, at)| part.at = at);
            len = all;
        }
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

    /// The file of an array, and which of its arrays it is.
    fn place(&self, array: usize) -> (usize, usize) {
        let file = self.places[array];
        (file, array - self.places.partition_point(|&other| other < file))
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
}

impl WriteArrays for ArraysWriter {
    fn name(&self) -> PortName {
        PortName::File(self.path.display().to_string())
    }

    fn arrays(&self) -> &[ArrayPart] {
        &self.arrays
    }

    fn next_step(&self) -> u64 {
        self.files.last().map_or(0, FileWriter::next_step)
    }

    fn stats(&self) -> Stats {
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

    fn set_values_of(&mut self, step: u64, packed: &[u8]) -> Result<(), FileError> {
        match self.index {
            Some(_) => self.values = values::to_json(packed, &self.path.display().to_string())?,
            None => self.files[0].set_values(step, packed)?,
        }
        Ok(())
    }

    fn local_len_bytes(&self) -> usize {
        self.len
    }

    fn bring(&mut self, array: usize, shape: &[u64]) -> Result<(), FileError> {
        let (file, own) = self.place(array);
        self.files[file].bring(own, shape)?;
        // Where sizes change there is one file.
        self.arrays[array] = self.files[file].arrays()[own].clone();
        Ok(())
    }

    fn sizes(&self, array: usize) -> Option<&Sizes> {
        let (file, own) = self.place(array);
        self.files[file].sizes(own)
    }

    fn write_arrays(&mut self, parts: &[&[u8]]) -> Result<(), FileError> {
        check_count(self.name(), parts.len(), self.places.len())?;
        self.fit(parts)?;
        // In the same order in all units: they put short pieces together.
        for (file, writer) in self.files.iter_mut().enumerate() {
            let own = self.places.iter().zip(parts).filter(|(place, _)| **place == file);
            let own: Vec<&[u8]> = own.map(|(_, part)| *part).collect();
            writer.write_arrays(&own)?;
        }
        if let Some((index, _)) = &mut self.index {
            index.write(&[])?;
        }
        Ok(())
    }

    fn write_stretch(&mut self, array: usize, step: u64, at: u64, bytes: &[u8]) -> Result<(), FileError> {
        let (file, own) = self.place(array);
        self.files[file].write_of(own, step, What::Stretch { at, bytes })
    }

    fn write_array(&mut self, array: usize, step: u64, part: &[u8]) -> Result<(), FileError> {
        let (file, own) = self.place(array);
        self.files[file].write_of(own, step, What::Part(part))
    }

    fn stretch_unit(&self, array: usize) -> Option<u64> {
        let (file, own) = self.place(array);
        self.files[file].stretch_unit_of(own)
    }

    fn end_steps(&mut self, steps: u64) -> Result<(), FileError> {
        self.files.iter_mut().try_for_each(|file| file.end_steps(steps))?;
        match &mut self.index {
            Some((index, _)) => index.end_steps(steps),
            None => Ok(()),
        }
    }

    fn check_room(&mut self) -> Result<(), FileError> {
        self.files[0].step_mut().map(drop)
    }

    fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.part
    }

    fn close(&mut self) -> Result<Stats, FileError> {
        if let (Some((_, text)), 1, false) = (&self.index, self.next_step(), self.settled) {
            let count = self.files.len();
            let file_of = |file| {
                let path = index::file_of(&self.path, file, count);
                path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            };
            let places =
                self.arrays.iter().zip(&self.places).map(|(array, &file)| (&array.name[..], file_of(file)));
            let said = index::print(places, self.total, &self.values, &self.options.attributes_of(""));
            *text.lock().unwrap_or_else(PoisonError::into_inner) = said;
        }
        if self.next_step() > 0 {
            // All at once: each waits for the disk.
            self.files.iter_mut().try_for_each(FileWriter::begin_close)?;
            self.files.iter_mut().try_for_each(FileWriter::complete)?;
            if self.index.is_some() && self.options.port.unit == 0 && !self.settled {
                self.forget_old()?;
                self.settled = true;
            }
        }
        self.files.iter_mut().try_for_each(|file| file.close().map(drop))?;
        if let Some((index, _)) = &mut self.index {
            index.close()?;
        }
        Ok(self.stats())
    }

    fn abort(&mut self, reason: &str) {
        self.files.iter_mut().for_each(|file| file.abort(reason));
        if let Some((index, _)) = &mut self.index {
            index.abort(reason);
        }
    }
}

/// What became of another unit, as one of these files knows.
fn told_by_another(files: &mut [FileWriter]) -> Option<FileError> {
    let mut known = files.iter_mut().filter_map(|file| file.check_open().err());
    known.find(|error| {
        matches!(error, FileError::Port(PortError::PeerLost { .. } | PortError::PeerAborted { .. }))
    })
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
