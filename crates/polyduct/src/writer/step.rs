//! A step that is filled in place, of whatever a URL names.

use crate::files::{fixed_size, no_arrays};
use crate::Error;
use polyduct_pipe as pipe;
use polyduct_port::ArrayPart;
use polyduct_store::file::ArraysStepMut;
use polyduct_store::{self as store, disk};
use std::ops::{Deref, DerefMut};

/// This unit's part of one step, to be filled in place.
pub struct StepMut<'a>(pub(super) StepEnd<'a>);

pub(super) enum StepEnd<'a> {
    Pipe(pipe::StepMut<'a>),
    File(store::StepMut<'a>),
    Arrays(ArraysStepMut<'a>),
    Store(disk::StoreStepMut<'a>),
}

impl StepMut<'_> {
    /// Says how large an array is in this step: see [`Writer::bring`](super::Writer::bring).
    ///
    /// # Errors
    /// As there.
    pub fn bring(&mut self, array: usize, shape: &[u64]) -> Result<(), Error> {
        match &mut self.0 {
            StepEnd::Pipe(step) => Ok(step.bring(array, shape)?),
            StepEnd::Arrays(step) => Ok(step.bring(array, shape)?),
            StepEnd::File(_) | StepEnd::Store(_) => Err(fixed_size()),
        }
    }

    /// The arrays, and where this unit's parts of them lie in the step; of a file or a store none.
    pub fn arrays(&self) -> &[ArrayPart] {
        match &self.0 {
            StepEnd::Pipe(step) => step.arrays(),
            StepEnd::Arrays(step) => step.arrays(),
            StepEnd::File(_) | StepEnd::Store(_) => &[],
        }
    }

    /// Has these values go with this step: see [`Writer::set_values`](super::Writer::set_values).
    ///
    /// # Errors
    /// As there.
    pub fn set_values(&mut self, packed: &[u8]) -> Result<(), Error> {
        match &mut self.0 {
            StepEnd::Pipe(step) => Ok(step.set_values(packed)?),
            StepEnd::Arrays(step) => Ok(step.set_values(packed)?),
            StepEnd::File(_) | StepEnd::Store(_) => Err(no_arrays()),
        }
    }

    /// Makes the part visible together with those of the other units. Returns `false` when a lossy queue
    /// dropped it.
    ///
    /// # Errors
    /// Those of writing a file, and the loss of unit 0 on another host.
    pub fn publish(self) -> Result<bool, Error> {
        match self.0 {
            StepEnd::Pipe(step) => Ok(step.publish()?),
            StepEnd::File(step) => Ok(step.publish().map(|()| true)?),
            StepEnd::Arrays(step) => Ok(step.publish().map(|()| true)?),
            StepEnd::Store(step) => Ok(step.publish().map(|()| true)?),
        }
    }
}

impl Deref for StepMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            StepEnd::Pipe(step) => step,
            StepEnd::File(step) => step,
            StepEnd::Arrays(step) => step,
            StepEnd::Store(step) => step,
        }
    }
}

impl DerefMut for StepMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            StepEnd::Pipe(step) => step,
            StepEnd::File(step) => step,
            StepEnd::Arrays(step) => step,
            StepEnd::Store(step) => step,
        }
    }
}
