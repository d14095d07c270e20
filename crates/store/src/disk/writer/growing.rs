//! A dataset whose size changes from step to step: the bytes of each step follow those before them, whatever row they
//! begin in.
//!
//! The rows that a step touches are cut into windows, which the units put together and write as those of any step. What
//! is left over of the last row waits in unit 0, which has the first window of the next step.

use super::crew::Crew;
use super::output::Output;
use crate::disk::{Fill, StoreError};
use crate::ragged::{Growing, Placed};
use crate::staging::bytes as bytes_of;
use crate::volume::rows::Bytes;
use polyduct_copy::{Dest, Source};
use polyduct_layout::{Loop, OpTable};
use std::ops::Range;

/// What is known of the dataset while it is written.
pub(in crate::disk) struct Grown {
    pub growing: Growing,
    /// What is not written of the last row, in unit 0.
    left_over: Vec<u8>,
}

/// A run of bytes of a step: where it lies in the array, and where in the unit's part.
struct Run {
    to: u64,
    from: u64,
    len: u64,
}

impl Grown {
    pub fn new(growing: Growing) -> Grown {
        Grown { growing, left_over: Vec::new() }
    }
}

impl Output {
    /// Moves this unit's part of the next step of a dataset that grows, together with the other units.
    ///
    /// # Errors
    /// As [`StoreWriter::write`](super::StoreWriter::write).
    pub fn move_grown(&mut self, crew: &mut Crew, placed: &Placed, part: &[u8]) -> Result<(), StoreError> {
        let Some(mut left_over) = self.grown.as_mut().map(|grown| std::mem::take(&mut grown.left_over))
        else {
            return Ok(());
        };
        let (shown, units) = (crew.store.shown.clone(), u64::from(self.units));
        let (row, window) = (self.fill.row_bytes, self.windows.bytes());
        let end = placed.base + placed.len;
        let first = placed.base / row * row;
        // None of a step without bytes.
        let windows = if placed.len == 0 { 0 } else { (end - first).div_ceil(window) };
        let of = |n: u64| first + n * window..(first + (n + 1) * window).min(end);
        let runs = runs(placed);
        let mut able = Ok(());
        if crew.is(0) && windows > 0 {
            let reserved = self.io(&crew.store)?.reserve(first / row..end.div_ceil(row));
            able = reserved.map_err(StoreError::refused(&shown));
        }
        for round in 0..windows.div_ceil(units) {
            let half = crew.turn;
            let here = round * units..((round + 1) * units).min(windows);
            for n in here.clone() {
                let Some(staging) = &mut crew.staging else { return Err(crew.closed()) };
                let to = staging.of((n % units) as u32, half);
                able = able.and(self.copy(&shown, &table(&runs, of(n)), part.into(), to.into()));
                if n == 0 && !left_over.is_empty() {
                    let from = left_over.as_slice();
                    able = able.and(self.copy(&shown, &bytes_of(from.len() as u64), from.into(), to.into()));
                }
            }
            crew.meet(std::mem::replace(&mut able, Ok(())))?;
            crew.turn += 1;
            let unit = crew.team()?.unit();
            let Some(staging) = &mut crew.staging else { return Err(crew.closed()) };
            if unit == 0 && here.end == windows {
                // Before anybody can come back to this half.
                let last = of(windows - 1);
                let from = (last.end / row * row).max(last.start);
                let bytes = staging.of(((windows - 1) % units) as u32, half);
                let bytes = bytes.get((from - last.start) as usize..).unwrap_or_default();
                left_over.resize((last.end - from) as usize, 0);
                let table = bytes_of(left_over.len() as u64);
                self.copy(&shown, &table, bytes.into(), left_over.as_mut_slice().into())?;
            }
            let own = here.start + u64::from(unit);
            if own < here.end {
                let rows = of(own).start / row..of(own).end / row;
                let len = ((rows.end - rows.start) * row) as usize;
                let bytes = staging.mine(half).get(..len).unwrap_or_default();
                if len > 0 {
                    let written = self.io(&crew.store)?.write(rows, Bytes::Shared(bytes));
                    written.map_err(StoreError::refused(&shown))?;
                }
            }
        }
        if let Some(grown) = &mut self.grown {
            grown.left_over = left_over;
        }
        Ok(())
    }

    fn copy(&self, store: &str, table: &OpTable, from: Source<'_>, to: Dest<'_>) -> Result<(), StoreError> {
        self.kernels.execute(table, from, to).map_err(StoreError::plan(store))
    }

    /// Makes a dataset of one step of all that has grown, and writes what is left over.
    ///
    /// # Errors
    /// Those of writing it.
    pub fn end_grown(&mut self, crew: &Crew) -> Result<(), StoreError> {
        let shown = &crew.store.shown;
        let Some(Grown { growing, left_over }) = &mut self.grown else { return Ok(()) };
        let (dataset, left_over) =
            (growing.whole().map_err(StoreError::layout(shown))?, std::mem::take(left_over));
        let at = growing.len_bytes() / self.fill.row_bytes;
        if crew.is(0) && !left_over.is_empty() {
            let written = self.io(&crew.store)?.write(at..at + 1, Bytes::Own(&left_over));
            written.map_err(StoreError::refused(shown))?;
        }
        self.fill = Fill::of(crew.store.geometry(), dataset.len_bytes());
        (self.meta.dataset, self.meta.steps) = (dataset, 1);
        Ok(())
    }
}

/// The runs of a unit's part, by where they lie in the array.
fn runs(placed: &Placed) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for table in placed.plan.transfers().iter().flat_map(|transfer| transfer.tables()) {
        let elem = table.elem_len();
        table.for_each_run(|from, to, len| {
            runs.push(Run { to: placed.base + to * elem, from: from * elem, len: len * elem });
        });
    }
    runs.sort_unstable_by_key(|run| run.to);
    runs
}

/// What of these runs lies in a window, from the unit's part to the window.
fn table(runs: &[Run], window: Range<u64>) -> OpTable {
    let mut table = OpTable::new(1);
    let first = runs.partition_point(|run| run.to + run.len <= window.start);
    for run in runs[first..].iter().take_while(|run| run.to < window.end) {
        let (lo, hi) = (run.to.max(window.start), (run.to + run.len).min(window.end));
        let bytes = Loop { count: hi - lo, src_step: 1, dst_step: 1 };
        table.push(run.from + (lo - run.to), lo - window.start, &[bytes]);
    }
    table
}
