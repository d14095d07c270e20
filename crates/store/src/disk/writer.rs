//! The writing port of a dataset in a store.

mod begin;
mod commit;
mod stretch;

use super::io::RowIo;
use super::meta::{check_name, Meta};
use super::staging::{is_straight, Staging, Windows};
use super::team::{Stage, Team};
use super::turn::InUse;
use super::{Fill, Store, StoreError};
use crate::file::Options;
use crate::npy::Descr;
use crate::volume::rows::Bytes;
use crate::volume::units::UnitError;
use begin::{begin, same, Start, Wish};
use commit::End;
use polyduct_copy::{Dest, Kernels, Source};
use polyduct_layout::{Dataset, Layout, Mapping, Plan};
use polyduct_os::aligned::zeros;
use polyduct_os::clock;
use polyduct_port::Stats;
use polyduct_port::{PortError, PortName};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::atomic::Ordering;

/// One unit's writing end of a dataset in a store.
///
/// All units of the program open it, write the same number of steps, and [close](StoreWriter::close) it; then
/// the dataset is there as a whole, in place of what had its name. Dropped without having been closed, a port
/// gives the dataset up for all units. Every step is a collective call: each unit copies its part to those
/// who move the rows, and they write them.
pub struct StoreWriter {
    store: Store,
    name: String,
    team: Option<Team>,
    mapping: Mapping,
    plan: Plan,
    kernels: Kernels,
    fill: Fill,
    windows: Windows,
    /// The transfers of each round, with the unit that moves their window.
    rounds: Vec<Vec<(usize, u32)>>,
    /// Rounds so far: they use the halves in turn.
    turn: u64,
    meta: Meta,
    object: u64,
    /// Steps that were there before this port.
    before: u64,
    io: RowIo,
    /// `None` where a unit's part is the step as it lies in the rows.
    staging: Option<Staging>,
    /// A row of several steps, of which not all have come.
    open_row: Option<u64>,
    /// The row in which this port's steps begin, if others are in it that were there before.
    read_row: Option<u64>,
    /// Of that row, the bytes of this port's steps: they are overwritten block by block when it closes.
    tail: Vec<u8>,
    /// When appending, the object that the name stood for, if any.
    appends_to: Option<Option<u64>>,
    /// Units that were not used when this port was opened.
    lost: Vec<u32>,
    failed: Option<StoreError>,
    part: Vec<u8>,
    len: usize,
    stats: Stats,
    /// What keeps the object, and others from appending to it, until it is closed.
    kept: Vec<InUse>,
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
        mut store: Store,
        name: &str,
        dataset: &Dataset,
        layout: &str,
        append: bool,
        options: &Options,
    ) -> Result<StoreWriter, StoreError> {
        let start = clock::now();
        (store.timeout, store.interrupt) = (Some(options.port.open_timeout), options.port.interrupt.clone());
        let shown = store.shown.clone();
        let fill = Fill::of(store.geometry(), dataset.len_bytes());
        let windows = Windows::of(fill, options.port.units);
        let planned = || -> Result<_, StoreError> {
            check_name(&shown, name)?;
            if let Some(descr) = options.descr.as_ref().filter(|d| d.elem() != Some(dataset.elem())) {
                let (store, what) = (shown.clone(), "NumPy's type of the elements".into());
                let (found, expected) = (descr.to_string(), format!("one of {}", dataset.elem()));
                return Err(StoreError::Bad { store, what, found, expected });
            }
            let layout: Layout = layout.parse().map_err(StoreError::layout(&shown))?;
            let mapping =
                layout.bind(dataset, options.port.units.into()).map_err(StoreError::layout(&shown))?;
            mapping.check_writer().map_err(StoreError::layout(&shown))?;
            let rows = windows.mapping(&shown, dataset)?;
            let plan = Plan::from_writer(&mapping, &rows, options.port.unit.into())
                .map_err(StoreError::layout(&shown))?;
            Ok((layout, mapping, plan))
        };
        let planned = planned();
        let team = Team::join(&shown, &format!("w {} {name}", dir_id(store.dir())), options)?;
        let wish = planned.as_ref().map_err(Clone::clone).map(|(layout, ..)| Wish {
            shape: dataset.shape().to_vec(),
            elem: dataset.elem().to_string(),
            layout: layout.to_string(),
            append,
            descr: options.descr.as_ref().map(Descr::to_string),
        });
        let mut mine = None;
        let mut appends_to = None;
        let begun: Start = team.agree(Stage::Open, wish, |wishes| {
            same(&shown, &wishes)?;
            let (start, there, held) = begin(&store, name, dataset, append, options)?;
            mine = Some(held);
            appends_to = append.then_some(there);
            Ok(start)
        })?;
        let (_, mapping, plan) = planned?;
        let mut meta = Meta::parse(&shown, name, store.geometry(), &begun.meta)?;
        let (read_row, lost) = (meta.append(fill), begun.lost.clone());
        let along = || append.then(|| store.append_along(begun.object)).transpose();
        let in_use = store.use_object(begun.object).and_then(|in_use| {
            let mut kept = vec![in_use];
            kept.extend(along()?);
            Ok(kept)
        });
        let opened = || -> Result<_, StoreError> {
            let (disks, rows) = (store.disks()?, store.rows(begun.object, begun.stamp));
            let io = RowIo::open(&disks, rows, &|unit| lost.contains(&unit), true, options.port.units);
            let (io, mut kept) = (io.map_err(StoreError::refused(&shown))?, in_use?);
            kept.extend(io.note(append).map_err(StoreError::os(&shown))?);
            Ok((io, kept))
        };
        let opened = opened();
        let len =
            mapping.local_len_bytes(options.port.unit.into()).map_err(StoreError::layout(&shown))? as usize;
        let rounds = windows.by_round(&plan, |i| plan.transfers()[i].dst_unit());
        let mut partners: Vec<u32> = rounds.iter().flatten().map(|&(_, unit)| unit).collect();
        partners.sort_unstable();
        partners.dedup();
        let straight = is_straight(&mapping, fill, options.port.units);
        team.meet(Stage::Ready, opened.as_ref().map(|_| ()).map_err(Clone::clone))?;
        let (mut io, mut kept) = opened?;
        io.join(begun.joining);
        let staging = match straight {
            true => None,
            false => Some(Staging::new(&shown, &team, windows, &partners)?),
        };
        // Unit 0's, from before the others came.
        kept.extend(mine.into_iter().flatten());
        let stats = Stats { opened: clock::now().saturating_sub(start), ..Stats::default() };
        Ok(StoreWriter {
            name: name.to_owned(),
            team: Some(team),
            mapping,
            plan,
            kernels: Kernels::detect(),
            fill,
            windows,
            rounds,
            turn: 0,
            before: meta.steps,
            meta,
            object: begun.object,
            io,
            staging,
            open_row: None,
            read_row,
            tail: Vec::new(),
            appends_to,
            lost,
            failed: None,
            part: Vec::new(),
            len,
            stats,
            kept,
            store,
        })
    }

    /// The dataset and who owns what of it.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Number of the next step: those that were there before count, too.
    pub fn next_step(&self) -> u64 {
        self.meta.steps
    }

    /// Bytes of this unit's part.
    pub fn local_len_bytes(&self) -> usize {
        self.len
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Writes this unit's part of the next step, together with the other units.
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; all others end the port: [`StoreError::Volume`] for a full disk or too many
    /// lost units, [`PortError::PeerAborted`], [`StoreError::Message`].
    pub fn write(&mut self, part: &[u8]) -> Result<(), StoreError> {
        self.check_open()?;
        if part.len() != self.len {
            let (store, expected, found) = (self.store.shown.clone(), self.len as u64, part.len() as u64);
            return Err(StoreError::Port(PortError::WrongSize {
                port: PortName::Store(store),
                unit: None,
                array: Box::default(),
                expected,
                found,
            }));
        }
        let start = clock::now();
        let written = self.move_step(part);
        self.stats.copied += clock::now().saturating_sub(start);
        written.map_err(|e| self.fail(e))?;
        self.stats.steps += 1;
        self.stats.bytes += self.len as u64;
        self.meta.steps += 1;
        Ok(())
    }

    /// Gives this unit's part of the next step to be filled and [published](StoreStepMut::publish). Its
    /// content is undefined. Dropped without publishing, the step is not written.
    ///
    /// # Errors
    /// What ended the port.
    pub fn step_mut(&mut self) -> Result<StoreStepMut<'_>, StoreError> {
        self.check_open()?;
        if self.part.len() != self.len {
            self.part =
                zeros(self.len, "this unit's part of a step").map_err(StoreError::os(&self.store.shown))?;
        }
        Ok(StoreStepMut { writer: self })
    }

    fn move_step(&mut self, part: &[u8]) -> Result<(), StoreError> {
        let Some(team) = &self.team else { return Err(self.closed()) };
        let shown = self.store.shown.clone();
        let (row, offset) = self.meta.place(self.fill, self.meta.steps);
        let rows = row..row.saturating_add(self.fill.rows);
        let mut able = Ok(());
        if team.unit() == 0 {
            able = self.io.reserve(rows.clone()).map_err(|e| self.refused(e));
        }
        let Some(staging) = &mut self.staging else {
            able?;
            return self.io.write(rows, Bytes::Own(part)).map_err(|e| self.refused(e));
        };
        for (round, transfers) in (0..).zip(&self.rounds) {
            // Steps of one row fill the same half.
            let half = if self.fill.per_row > 1 { row } else { self.turn };
            for &(i, unit) in transfers {
                let to = staging.of(unit, half).get(offset as usize..).unwrap_or_default();
                for table in self.plan.transfers()[i].tables() {
                    let copied = self.kernels.execute(&table, Source::from(part), Dest::from(to));
                    able = able.and(copied.map_err(StoreError::plan(&shown)));
                }
            }
            let waiting = clock::now();
            let met = team.meet(Stage::Step, std::mem::replace(&mut able, Ok(())));
            self.stats.waited += clock::now().saturating_sub(waiting);
            met?;
            self.turn += 1;
            if self.fill.per_row > 1 {
                continue;
            }
            let (rows, len) = self.windows.rows(round, team.unit());
            let bytes = staging.mine(half);
            let bytes = bytes.get(..len as usize).unwrap_or(bytes);
            let written = self.io.write(row + rows.start..row + rows.end, Bytes::Shared(bytes));
            written.map_err(StoreError::refused(&shown))?;
        }
        if self.fill.per_row > 1 {
            let last = offset + 2 * self.fill.stride > self.fill.row_bytes;
            self.open_row = (!last).then_some(row);
            if last {
                self.flush_row(row)?;
            }
        }
        Ok(())
    }

    /// Writes a row of several steps, in the unit that has it. What no step has filled is what older rows
    /// left there.
    fn flush_row(&mut self, row: u64) -> Result<(), StoreError> {
        let mine = self.team.as_ref().is_some_and(|team| !self.windows.rows(0, team.unit()).0.is_empty());
        if let Some(staging) = self.staging.as_mut().filter(|_| mine) {
            let bytes = staging.mine(row);
            let bytes = bytes.get(..self.fill.row_bytes as usize).unwrap_or(bytes);
            if self.read_row == Some(row) {
                self.tail = bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
                return Ok(());
            }
            let written = self.io.write(row..row + 1, Bytes::Shared(bytes));
            written.map_err(StoreError::refused(&self.store.shown))?;
        }
        Ok(())
    }

    /// Ends the dataset, and waits until all units have and it is safe from a power cut, under its name. All
    /// must have written the same number of steps.
    ///
    /// # Errors
    /// [`PortError::Disagree`] for other numbers of steps; [`StoreError::NotThere`] where what was appended
    /// to is gone, which goes along when it is renamed; [`StoreError::Volume`], [`PortError::PeerAborted`],
    /// [`StoreError::Message`]: what had the name before is there as it was.
    pub fn close(&mut self) -> Result<Stats, StoreError> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        if self.team.is_none() {
            return Ok(self.stats);
        }
        if let Some(row) = self.open_row.take() {
            self.flush_row(row).map_err(|e| self.fail(e))?;
        }
        self.io.finish();
        let failed = self.io.failed();
        let end = End {
            steps: self.meta.steps,
            failed: failed.into_values().map(|e| (e.unit, e.reason, e.cause)).collect(),
            files: self.io.identities(),
        };
        let Some(team) = self.team.take() else { return Ok(self.stats) };
        let waiting = clock::now();
        let ended = team.agree(Stage::Close, Ok(end), |ends| self.commit(&ends));
        self.stats.waited += clock::now().saturating_sub(waiting);
        ended.map_err(|e| self.fail(e))?;
        (self.part, self.staging, self.kept) = (Vec::new(), None, Vec::new());
        Ok(self.stats)
    }

    /// Gives the dataset up: the other units get an error.
    pub fn abort(&mut self) {
        let e = self.closed();
        let _ = self.fail(e);
    }

    fn refused(&self, e: UnitError) -> StoreError {
        StoreError::refused(&self.store.shown)(e)
    }

    fn closed(&self) -> StoreError {
        StoreError::Port(PortError::Closed { port: PortName::Store(self.store.shown.clone()) })
    }

    fn check_open(&mut self) -> Result<(), StoreError> {
        match (&self.failed, &self.team) {
            (Some(e), _) => Err(e.clone()),
            (None, None) => Err(self.closed()),
            (None, Some(_)) => Ok(()),
        }
    }

    /// Remembers an error that ends the port. Leaving the team tells the others, and the next who owns the
    /// store removes what was written.
    fn fail(&mut self, e: StoreError) -> StoreError {
        self.failed.get_or_insert_with(|| e.clone());
        self.team = None;
        self.staging = None;
        self.store.begin_anew();
        e
    }
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        if self.team.is_some() {
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
