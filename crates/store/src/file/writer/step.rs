//! A step of a file that is filled in place.

use super::FileWriter;
use crate::FileError;
use std::ops::{Deref, DerefMut};

/// This unit's part of one step, to be filled in place.
pub struct StepMut<'a> {
    pub(super) writer: &'a mut FileWriter,
}

impl StepMut<'_> {
    /// Writes the part to the file.
    ///
    /// # Errors
    /// As [`FileWriter::write`].
    pub fn publish(self) -> Result<(), FileError> {
        let part = std::mem::take(&mut self.writer.part);
        let written = self.writer.write(&part);
        self.writer.part = part;
        written
    }

    /// Number of the step, from 0.
    pub fn number(&self) -> u64 {
        self.writer.next
    }
}

impl Deref for StepMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.writer.part
    }
}

impl DerefMut for StepMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.writer.part
    }
}
