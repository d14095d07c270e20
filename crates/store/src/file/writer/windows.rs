//! Arrays of which units have short pieces: all units put a window together, and one writes it.

use super::FileWriter;
use crate::disk::StoreError;
use crate::file::scatter::What;
use crate::file::staged::Staged;
use crate::file::stretch;
use crate::file::together::Meeting;
use crate::staging;
use crate::team::Stage;
use crate::FileError;
use polyduct_copy::{Kernels, Source};
use polyduct_os::clock;
use std::sync::Arc;

impl FileWriter {
    /// Writes this unit's parts of those arrays that are put together, together with the other units.
    ///
    /// # Errors
    /// What has become of the others, and those of writing; after which nothing can be written.
    pub(super) fn write_windows(&mut self, parts: &[&[u8]]) -> Result<(), FileError> {
        let is_due = |array: usize| self.next == 0 || !self.form.is_constant(array);
        let staged = self.held.iter().enumerate().filter(|(array, _)| is_due(*array));
        let staged: Vec<(usize, Arc<Staged>)> =
            staged.filter_map(|(array, held)| Some((array, held.staged.clone()?))).collect();
        if staged.is_empty() {
            return Ok(());
        }
        let Some(mut meeting) = self.together.take() else { return Err(self.nobody()) };
        let moved = self.move_windows(&mut meeting, &staged, parts);
        self.together.give(meeting);
        // Others may have come further, or not so far: nobody can do it again.
        moved.map_err(|e| self.end_with(e))
    }

    fn move_windows(
        &mut self,
        meeting: &mut Meeting,
        staged: &[(usize, Arc<Staged>)],
        parts: &[&[u8]],
    ) -> Result<(), FileError> {
        let (units, unit) = (self.options.port.units as usize, meeting.team.unit() as usize);
        let longest = self.together.longest();
        let kernels = Kernels::detect();
        let windows: Vec<(usize, &Staged, u64)> = staged
            .iter()
            .flat_map(|(array, staged)| (0..staged.count()).map(|window| (*array, &**staged, window)))
            .collect();
        let mut bytes = Vec::new();
        for here in windows.chunks(units) {
            let half = meeting.rounds;
            let staging = meeting.staging(&self.path, units as u32, longest)?;
            let mut able = Ok(());
            for (owner, &(array, staged, window)) in (0..).zip(here) {
                let Some(transfer) = staged.transfer(window) else { continue };
                let to = staging.of(owner, half);
                for table in transfer.tables() {
                    let copied = kernels.execute(&table, parts[array].into(), to.into());
                    able = able.and(copied.map_err(StoreError::plan(&self.path)));
                }
            }
            let waiting = clock::now();
            let met = meeting.team.meet(Stage::Step, able);
            self.stats.waited += clock::now().saturating_sub(waiting);
            met?;
            meeting.rounds += 1;
            let staging = meeting.staging(&self.path, units as u32, longest)?;
            let Some(&(array, staged, window)) = here.get(unit) else { continue };
            let (at, len) = staged.extent(window);
            stretch::resize(&mut bytes, len as usize, &self.path)?;
            let (from, to) = (Source::from(staging.mine(half)), bytes.as_mut_slice().into());
            let copied = kernels.execute(&staging::bytes(len), from, to);
            copied.map_err(StoreError::plan(&self.path))?;
            self.scatter(array, self.next, What::Stretch { at, bytes: &bytes })?;
        }
        // Chunks of several steps count what was written as a whole.
        match self.chunks.as_mut().and_then(|chunks| chunks.drafts.as_mut()) {
            Some(drafts) => drafts.count(&mut self.stats.waited, &self.path, &self.options),
            None => Ok(()),
        }
    }
}
