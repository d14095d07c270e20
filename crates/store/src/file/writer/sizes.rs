//! Arrays whose size changes: what a unit brings of the next step, and what all units have said of it.

use super::{FileWriter, State};
use crate::file::held::Held;
use crate::file::packed::bundle;
use crate::ragged::{self, Growing, Unsettled};
use crate::FileError;
use polyduct_os::clock;
use polyduct_port::{fixed, PortError, PortName, Sizes};

impl FileWriter {
    /// Says how large an array is in the next step, and in those after it until it is said again: see
    /// [`WriteArrays::bring`](crate::file::WriteArrays::bring).
    pub(in crate::file) fn bring(&mut self, array: usize, shape: &[u64]) -> Result<(), FileError> {
        let bundle = bundle(&self.path);
        let Some((held, part)) = self.held.get_mut(array).zip(self.arrays.get_mut(array)) else {
            return Err(FileError::Port(PortError::Closed { port: PortName::File(self.path.clone()) }));
        };
        let Some(growing) = &held.growing else { return Err(bundle(fixed(&part.name, shape))) };
        let (mapping, len) = growing.sizes.part(shape, self.options.port.unit).map_err(bundle)?;
        held.at.end = held.at.start + len as usize;
        (part.at, part.mapping) = (held.at.clone(), mapping.clone());
        held.mapping = mapping;
        Ok(())
    }

    /// What may be said of an array whose size changes.
    pub(in crate::file) fn sizes(&self, array: usize) -> Option<&Sizes> {
        self.held.get(array)?.growing.as_ref().map(|growing| &growing.sizes)
    }

    /// Waits until all units have said how much they bring of the next step, and finds where it lies.
    pub(super) fn settle(&mut self) -> Result<(), FileError> {
        if !self.held.iter().any(|held| held.growing.is_some() && held.placed.is_none()) {
            return Ok(());
        }
        let Some(meeting) = self.together.take() else { return Err(self.nobody()) };
        let shape = |held: &'_ Held| held.mapping.dataset().shape().to_vec();
        let shapes: Vec<Vec<u64>> = self.held.iter().map(shape).collect();
        let growing = self.held.iter().zip(&shapes);
        let growing: Vec<(&Growing, &[u64])> =
            growing.filter_map(|(held, shape)| Some((held.growing.as_ref()?, &shape[..]))).collect();
        let start = clock::now();
        let settled = ragged::settle(&meeting.team, &growing);
        self.together.give(meeting);
        self.stats.waited += clock::now().saturating_sub(start);
        let settled = settled.map_err(|e| match e {
            Unsettled::Said(e) => bundle(&self.path)(e),
            // Whoever has said what it brings cannot say it again.
            Unsettled::Lost(e) => self.end_with(e.into()),
        })?;
        let growing = self.held.iter_mut().filter(|held| held.growing.is_some());
        growing.zip(settled).for_each(|(held, placed)| held.place(placed));
        Ok(())
    }

    /// The step is written.
    pub(super) fn grow(&mut self) {
        for held in &mut self.held {
            if let (Some(growing), Some(placed)) = (&held.growing, held.placed.take()) {
                growing.push(&placed);
            }
        }
    }

    /// Joins the others, where the sizes of arrays change, and units say what they bring of each step, or where they
    /// put arrays together.
    pub(super) fn meet_team(&mut self, name: &[u8]) -> Result<(), FileError> {
        if self.held.iter().any(|held| held.growing.is_some() || held.staged.is_some()) {
            let name: String = name.iter().map(|&byte| char::from(byte)).collect();
            let staged = self.held.iter().filter_map(|held| held.staged.as_deref());
            let joined = self.together.join(staged, (&self.path, &name), &self.options);
            joined.map_err(|e| self.end_with(e))?;
        }
        Ok(())
    }

    /// An error after which nothing can be written, because the units do not know of each other how far they are.
    /// Others may have failed before.
    pub(super) fn end_with(&mut self, error: FileError) -> FileError {
        let error = self.news(error);
        match std::mem::replace(&mut self.state, State::Failed(error.clone())) {
            State::Open(link) | State::Closing(link) => link.leave(&error),
            State::Closed | State::Failed(_) => {}
        }
        self.chunks = None;
        self.together.leave();
        error
    }

    /// The others have been left, for this file or another of the set.
    pub(super) fn nobody(&self) -> FileError {
        FileError::Port(PortError::Closed { port: PortName::File(self.path.clone()) })
    }
}
