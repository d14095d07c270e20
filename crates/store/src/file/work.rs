//! Carries out the plan of one transfer, window by window.

use super::runs::{View, Window, READ_GAP_BYTES};
use super::Options;
use crate::FileError;
use polyduct_copy::{self as copy, Conversion, CopyError};
use polyduct_layout::{OpTable, Plan, Transfer};
use polyduct_port::Stats;

/// What a reading port has for it.
pub struct Work<'a> {
    pub plan: &'a Plan,
    /// Elements of the file from one element of a step to the next.
    pub stride: u64,
    pub conversion: Option<Conversion>,
    pub buffer: &'a mut Vec<u8>,
    pub stats: &'a mut Stats,
    pub path: &'a str,
    pub options: &'a Options,
}

impl Work<'_> {
    /// Carries a transfer out: `fill` gives the bytes of its source from an offset on.
    ///
    /// # Errors
    /// Those of `fill`; [`FileError::Plan`].
    pub fn windows(
        &mut self,
        transfer: &Transfer,
        part: &mut [u8],
        mut fill: impl FnMut(&mut [u8], u64) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let file_elem = transfer.elem_len();
        let mem_elem = self.conversion.map_or(file_elem, |c| c.dst_len());
        let view = View { file_elem, mem_elem, stride: self.stride, reading: true, gap: READ_GAP_BYTES };
        for table in transfer.tables() {
            view.windows(&table, &mut |window| {
                self.stats.runs += 1;
                match window {
                    Window::Direct { file, mem, len } => {
                        let have_bytes = part.len();
                        let need_bytes = u128::from(mem) + u128::from(len);
                        let run = part.get_mut(mem as usize..).and_then(|p| p.get_mut(..len as usize));
                        let short = || self.misfit(CopyError::DestTooShort { need_bytes, have_bytes });
                        fill(run.ok_or_else(short)?, file)
                    }
                    Window::Buffered { file, mem, len, table, .. } => {
                        let len = len as usize;
                        if self.buffer.len() < len {
                            super::stretch::resize(self.buffer, len, self.path)?;
                        }
                        fill(&mut self.buffer[..len], file)?;
                        self.copy(
                            table,
                            &self.buffer[..len],
                            part.get_mut(mem as usize..).unwrap_or_default(),
                        )
                    }
                }
            })?;
        }
        Ok(())
    }

    /// Carries an operation table out whose source is in memory.
    ///
    /// # Errors
    /// [`FileError::Plan`].
    pub fn copy(&self, table: &OpTable, from: &[u8], to: &mut [u8]) -> Result<(), FileError> {
        match self.conversion {
            None => copy::execute(table, from.into(), to.into()),
            Some(conversion) => copy::execute_convert(table, conversion, from.into(), to.into()),
        }
        .map_err(|source| self.misfit(source))
    }

    fn misfit(&self, source: CopyError) -> FileError {
        FileError::Plan { path: self.path.to_owned(), source }
    }
}
