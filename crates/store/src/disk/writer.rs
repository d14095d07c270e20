//! The writing port of a dataset in a store.

mod begin;
pub(super) mod commit;
pub(super) mod crew;
pub(super) mod growing;
pub(super) mod output;
pub(super) mod stretch;

use super::{Store, StoreError};
use crate::file::Options;
use commit::{commit, End};
use crew::Crew;
use output::{Output, Wanted};
use polyduct_layout::{Dataset, Mapping};
use polyduct_os::clock;
use polyduct_port::Stats;
use polyduct_port::{PortError, PortName};
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// One unit's writing end of a dataset in a store.
///
/// All units of the program open it, write the same number of steps, and [close](StoreWriter::close) it; then
/// the dataset is there as a whole, in place of what had its name. Dropped without having been closed, a port
/// gives the dataset up for all units. Every step is a collective call: each unit copies its part to those
/// who move the rows, and they write them.
pub struct StoreWriter {
    crew: Crew,
    output: Output,
    part: Vec<u8>,
    stats: Stats,
}

impl StoreWriter {
    /// Opens a dataset to write unit `options.port.unit`'s part of each of its steps, and waits until all
    /// units have come. With `append` the steps follow those that are there, if it is there.
    ///
    /// # Errors
    /// [`PortError::Layout`], [`StoreError::BadName`], [`StoreError::Exists`] where a folder has the name, or
    /// another program appends; [`StoreError::ShapeDiffers`], [`StoreError::ElemDiffers`] when appending to
    /// something else; [`PortError::Disagree`], [`PortError::PeerAborted`], [`StoreError::Message`] when the
    /// units do not come together; as [`Store::own`].
    pub fn open(
        dir: &Path,
        name: &str,
        dataset: &Dataset,
        layout: &str,
        append: bool,
        options: &Options,
    ) -> Result<StoreWriter, StoreError> {
        StoreWriter::of(Store::open(dir)?, name, dataset, layout, append, options)
    }

    /// The same in a store that is open.
    ///
    /// # Errors
    /// As [`open`](StoreWriter::open).
    pub fn of(
        store: Store,
        name: &str,
        dataset: &Dataset,
        layout: &str,
        append: bool,
        options: &Options,
    ) -> Result<StoreWriter, StoreError> {
        let start = clock::now();
        let wanted = Wanted {
            name: name.to_owned(),
            dataset: *dataset,
            layout: layout.to_owned(),
            attributes: options.attributes.clone(),
            descr: options.descr.clone(),
            stepped: options.stepped,
            growing: None,
        };
        let what = format!("w {} {name}", dir_id(store.dir()));
        let (crew, outputs) = output::open(store, &what, &[wanted], (append, None), options)?;
        let Some(output) = outputs.into_iter().next() else { return Err(crew.closed()) };
        let stats = Stats { opened: clock::now().saturating_sub(start), ..Stats::default() };
        Ok(StoreWriter { crew, output, part: Vec::new(), stats })
    }

    /// The dataset and who owns what of it.
    pub fn mapping(&self) -> &Mapping {
        &self.output.mapping
    }

    /// Number of the next step: those that were there before count, too.
    pub fn next_step(&self) -> u64 {
        self.output.meta.steps
    }

    /// Bytes of this unit's part.
    pub fn local_len_bytes(&self) -> usize {
        self.output.len
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        Stats { waited: self.crew.waited, ..self.stats }
    }

    /// Writes this unit's part of the next step, together with the other units.
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; all others end the port: [`StoreError::Volume`] for a full disk or too many
    /// lost units, [`PortError::PeerAborted`], [`StoreError::Message`].
    pub fn write(&mut self, part: &[u8]) -> Result<(), StoreError> {
        self.crew.team()?;
        let StoreWriter { crew, output, stats, .. } = self;
        if part.len() != output.len {
            let (store, expected, found) = (crew.store.shown.clone(), output.len as u64, part.len() as u64);
            return Err(StoreError::Port(PortError::WrongSize {
                port: PortName::Store(store),
                unit: None,
                array: Box::default(),
                expected,
                found,
            }));
        }
        let start = clock::now();
        let written = output.move_step(crew, part);
        stats.copied += clock::now().saturating_sub(start);
        written.map_err(|e| crew.fail(e))?;
        stats.steps += 1;
        stats.bytes += output.len as u64;
        output.meta.steps += 1;
        Ok(())
    }

    /// Gives this unit's part of the next step to be filled and [published](StoreStepMut::publish). Its
    /// content is undefined. Dropped without publishing, the step is not written.
    ///
    /// # Errors
    /// What ended the port.
    pub fn step_mut(&mut self) -> Result<StoreStepMut<'_>, StoreError> {
        self.crew.team()?;
        if self.part.len() != self.output.len {
            self.part = self.output.memory(&self.crew.store)?;
        }
        Ok(StoreStepMut { writer: self })
    }

    /// Ends the dataset, and waits until all units have and it is safe from a power cut, under its name. All
    /// must have written the same number of steps.
    ///
    /// # Errors
    /// [`PortError::Disagree`] for other numbers of steps; [`StoreError::NotThere`] where what was appended
    /// to is gone, which goes along when it is renamed; [`StoreError::Volume`], [`PortError::PeerAborted`],
    /// [`StoreError::Message`]: what had the name before is there as it was.
    pub fn close(&mut self) -> Result<Stats, StoreError> {
        if self.crew.is_closed()? {
            return Ok(self.stats());
        }
        let StoreWriter { crew, output, .. } = self;
        let end = output.end(crew).map_err(|e| crew.fail(e))?;
        let outputs = std::slice::from_ref(&*output);
        let nothing = |_: usize, _: &mut serde_json::Map<_, _>| {};
        crew.end(vec![end], |store, ends: &[Vec<End>]| commit(store, outputs, ends, None, nothing))?;
        self.part = Vec::new();
        self.output.let_go();
        Ok(self.stats())
    }

    /// Gives the dataset up: the other units get an error.
    pub fn abort(&mut self) {
        let e = self.crew.closed();
        let _ = self.crew.fail(e);
    }
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        if self.crew.team.is_some() {
            self.abort();
        }
    }
}

/// This unit's part of one step, to be filled in place.
pub struct StoreStepMut<'a> {
    writer: &'a mut StoreWriter,
}

impl StoreStepMut<'_> {
    /// Writes it, together with the other units.
    ///
    /// # Errors
    /// As [`StoreWriter::write`].
    pub fn publish(self) -> Result<(), StoreError> {
        let part = std::mem::take(&mut self.writer.part);
        let written = self.writer.write(&part);
        self.writer.part = part;
        written
    }
}

impl Deref for StoreStepMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.writer.part
    }
}

impl DerefMut for StoreStepMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.writer.part
    }
}

/// The same for the same directory, however it is named.
pub(super) fn dir_id(dir: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(dir)
        .map_or_else(|_| dir.display().to_string(), |m| format!("{:x}-{:x}", m.dev(), m.ino()))
}
