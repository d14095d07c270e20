//! Steps written in stretches: whole rows of a step at a time, whoever's part they are, so that nobody has to
//! hold a step.
//!
//! Rows are written independently of each other, so a unit that has all bytes of some hands them to the disks
//! by itself. Steps of which several share a row are small: those are written as a whole.

use super::StoreWriter;
use crate::disk::{Fill, StoreError};
use polyduct_os::clock;

/// Bytes of which a stretch of a dataset has a whole number, and begins at one.
pub(in crate::disk) fn unit(fill: Fill) -> Option<u64> {
    (fill.per_row == 1).then_some(fill.row_bytes)
}

/// Whether bytes from `at` on are a stretch of the dataset of this name.
///
/// # Errors
/// [`StoreError::Bad`].
pub(in crate::disk) fn check(
    (store, name): (&str, &str),
    fill: Fill,
    at: u64,
    bytes: usize,
) -> Result<(), StoreError> {
    let (end, len) = (at.saturating_add(bytes as u64), fill.step_bytes);
    let falls = |unit: u64| at.is_multiple_of(unit) && end <= len && (end.is_multiple_of(unit) || end == len);
    match unit(fill) {
        Some(unit) if falls(unit) => Ok(()),
        unit => Err(StoreError::Bad {
            store: store.to_owned(),
            what: format!("a stretch of {name:?}"),
            found: format!("bytes {at} to {end}"),
            expected: match unit {
                Some(unit) => format!("a multiple of {unit} bytes from one on, or the rest of {len}"),
                None => "a whole step: several share a row".into(),
            },
        }),
    }
}

impl StoreWriter {
    /// Bytes of which a [stretch](Self::write_stretch) has a whole number, and begins at one; `None` where
    /// only whole steps can be written, of which several share a row.
    pub fn stretch_unit(&self) -> Option<u64> {
        unit(self.output.fill)
    }

    /// Writes a stretch of the next step, whoever's part it is: bytes of the row-major array from byte `at`
    /// on, up to a multiple of [`stretch_unit`](Self::stretch_unit) or the step's end. Together the units
    /// write each byte of it, and then each [ends](Self::end_step) the step. Does not wait for the disks, nor
    /// for the other units.
    ///
    /// # Errors
    /// [`StoreError::Bad`] for anything but a stretch; then as [`write`](Self::write).
    pub fn write_stretch(&mut self, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.crew.team()?;
        let StoreWriter { crew, output, stats, .. } = self;
        check((&crew.store.shown, &output.name), output.fill, at, bytes.len())?;
        let start = clock::now();
        output.move_stretch(crew, at, bytes).map_err(|e| crew.fail(e))?;
        stats.copied += clock::now().saturating_sub(start);
        stats.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Ends a step that was written in [stretches](Self::write_stretch).
    ///
    /// # Errors
    /// What ended the port.
    pub fn end_step(&mut self) -> Result<(), StoreError> {
        self.crew.team()?;
        self.stats.steps += 1;
        self.output.meta.steps += 1;
        Ok(())
    }
}
