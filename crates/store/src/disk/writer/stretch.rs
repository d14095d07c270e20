//! Steps written in stretches: whole rows of a step at a time, whoever's part they are, so that nobody has to
//! hold a step.
//!
//! Rows are written independently of each other, so a unit that has all bytes of some hands them to the disks
//! by itself. Steps of which several share a row are small: those are written as a whole.

use super::StoreWriter;
use crate::disk::StoreError;
use crate::volume::rows::Bytes;
use polyduct_os::clock;

impl StoreWriter {
    /// Bytes of which a [stretch](Self::write_stretch) has a whole number, and begins at one; `None` where
    /// only whole steps can be written, of which several share a row.
    pub fn stretch_unit(&self) -> Option<u64> {
        (self.fill.per_row == 1).then_some(self.fill.row_bytes)
    }

    /// Writes a stretch of the next step, whoever's part it is: bytes of the row-major array from byte `at`
    /// on, up to a multiple of [`stretch_unit`](Self::stretch_unit) or the step's end. Together the units
    /// write each byte of it, and then each [ends](Self::end_step) the step. Does not wait for the disks, nor
    /// for the other units.
    ///
    /// # Errors
    /// [`StoreError::Bad`] for anything but a stretch; then as [`write`](Self::write).
    pub fn write_stretch(&mut self, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.check_open()?;
        let (end, len) = (at.saturating_add(bytes.len() as u64), self.fill.step_bytes);
        let falls =
            |unit: u64| at.is_multiple_of(unit) && end <= len && (end.is_multiple_of(unit) || end == len);
        let Some(unit) = self.stretch_unit().filter(|&unit| falls(unit)) else {
            return Err(StoreError::Bad {
                store: self.store.shown.clone(),
                what: format!("a stretch of {:?}", self.name),
                found: format!("bytes {at} to {end}"),
                expected: match self.stretch_unit() {
                    Some(unit) => format!("a multiple of {unit} bytes from one on, or the rest of {len}"),
                    None => "a whole step: several share a row".into(),
                },
            });
        };
        if self.team.as_ref().is_some_and(|team| team.unit() == 0) {
            let (row, _) = self.meta.place(self.fill, self.meta.steps);
            let reserved = self.io.reserve(row..row.saturating_add(self.fill.rows));
            reserved.map_err(|e| self.refused(e)).map_err(|e| self.fail(e))?;
        }
        let start = clock::now();
        let (row, _) = self.meta.place(self.fill, self.meta.steps);
        let written = self.io.write(row + at / unit..row + end.div_ceil(unit), Bytes::Own(bytes));
        written.map_err(|e| self.refused(e)).map_err(|e| self.fail(e))?;
        self.stats.copied += clock::now().saturating_sub(start);
        self.stats.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Ends a step that was written in [stretches](Self::write_stretch).
    ///
    /// # Errors
    /// What ended the port.
    pub fn end_step(&mut self) -> Result<(), StoreError> {
        self.check_open()?;
        self.stats.steps += 1;
        self.meta.steps += 1;
        Ok(())
    }
}
