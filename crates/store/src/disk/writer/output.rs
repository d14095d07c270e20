//! A dataset that is written: its plan, and the rows that its steps fill.

use super::begin::{begin, same, Start, Wish};
use super::commit::End;
use super::crew::Crew;
use super::growing::Grown;
use crate::disk::io::{Identity, RowIo};
use crate::disk::meta::{check_name, Meta};
use crate::disk::turn::InUse;
use crate::disk::windows::{is_straight, Windows};
use crate::disk::{Fill, Store, StoreError};
use crate::file::Options;
use crate::npy::Descr;
use crate::ragged::Growing;
use crate::team::{Stage, Team};
use crate::volume::rows::Bytes;
use crate::volume::sums::Stamp;
use crate::volume::units::UnitError;
use polyduct_copy::{Dest, Kernels, Source};
use polyduct_layout::{Dataset, Layout, Mapping, Plan};
use polyduct_os::aligned::zeros;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A dataset that a program wants to write.
pub(in crate::disk) struct Wanted {
    pub name: String,
    pub dataset: Dataset,
    pub layout: String,
    /// What is written down of one that is new.
    pub attributes: Map<String, Value>,
    /// What NumPy takes the elements for.
    pub descr: Option<Descr>,
    pub stepped: bool,
    /// Of one whose size changes, what is known of its steps.
    pub growing: Option<Growing>,
}

/// One unit's part of it.
pub(in crate::disk) struct Output {
    pub name: String,
    pub mapping: Mapping,
    plan: Plan,
    pub(super) kernels: Kernels,
    pub fill: Fill,
    pub(super) windows: Windows,
    /// The transfers of each round, with the unit that moves their window.
    rounds: Vec<Vec<(usize, u32)>>,
    pub meta: Meta,
    pub object: u64,
    stamp: Stamp,
    /// Steps that were there before this port.
    pub before: u64,
    /// `None` while nothing is moved, where there are many datasets.
    io: Option<RowIo>,
    pub(super) units: u32,
    /// Units that join the store: they are written to, and may fail.
    joining: Vec<u32>,
    /// Whether the part of the only unit is the step as it lies in the rows.
    pub is_straight: bool,
    /// A row of several steps, of which not all have come, and what has, in the unit that has it.
    open_row: Option<u64>,
    row: Vec<u8>,
    /// The row in which this port's steps begin, if others are in it that were there before.
    pub read_row: Option<u64>,
    /// Of that row, the bytes of this port's steps: they are overwritten block by block when it closes.
    pub tail: Vec<u8>,
    /// When appending, the object that the name stood for, if any.
    pub appends_to: Option<Option<u64>>,
    /// Units that were not used when this port was opened.
    pub lost: Vec<u32>,
    /// Units of the store that have failed since, and which files of each were written.
    failed: BTreeMap<u32, UnitError>,
    files: Vec<Option<Identity>>,
    /// What is known of one whose size changes.
    pub grown: Option<Grown>,
    pub len: usize,
    /// What keeps the object, and others from appending to it, until it is closed.
    kept: Vec<InUse>,
}

/// What a unit works out by itself.
struct Planned {
    layout: Layout,
    mapping: Mapping,
    plan: Plan,
    fill: Fill,
    windows: Windows,
}

impl Planned {
    fn of(store: &Store, wanted: &Wanted, options: &Options) -> Result<Planned, StoreError> {
        let (shown, dataset) = (&store.shown, &wanted.dataset);
        check_name(shown, &wanted.name)?;
        if let Some(descr) = wanted.descr.as_ref().filter(|d| d.elem() != Some(dataset.elem())) {
            let (store, what) = (shown.clone(), "NumPy's type of the elements".into());
            let (found, expected) = (descr.to_string(), format!("one of {}", dataset.elem()));
            return Err(StoreError::Bad { store, what, found, expected });
        }
        // As many bytes as have windows of the usual length, where nobody knows how many there will be.
        let bytes = if wanted.growing.is_some() { u64::from(u32::MAX) } else { dataset.len_bytes() };
        let fill = Fill::of(store.geometry(), bytes);
        let windows = Windows::of(fill, options.port.units);
        let layout: Layout = wanted.layout.parse().map_err(StoreError::layout(shown))?;
        let mapping = layout.bind(dataset, options.port.units.into()).map_err(StoreError::layout(shown))?;
        mapping.check_writer().map_err(StoreError::layout(shown))?;
        let rows = windows.mapping(shown, dataset)?;
        let plan = Plan::from_writer(&mapping, &rows, options.port.unit.into())
            .map_err(StoreError::layout(shown))?;
        Ok(Planned { layout, mapping, plan, fill, windows })
    }
}

/// Opens datasets of a store to write unit `options.port.unit`'s part of each of their steps, and waits until
/// all units have come; `what` they open together is the same in all. Where they are those of a `folder`, others in
/// it are to be gone when these are there, unless they are appended to.
///
/// # Errors
/// As [`StoreWriter::open`](super::StoreWriter::open).
pub(in crate::disk) fn open(
    mut store: Store,
    what: &str,
    wanted: &[Wanted],
    (append, folder): (bool, Option<&str>),
    options: &Options,
) -> Result<(Crew, Vec<Output>), StoreError> {
    (store.timeout, store.interrupt) = (Some(options.port.open_timeout), options.port.interrupt.clone());
    let shown = store.shown.clone();
    let planned: Result<Vec<Planned>, StoreError> =
        wanted.iter().map(|one| Planned::of(&store, one, options)).collect();
    let team = Team::join(&shown, what, options)?;
    let wish = |(one, planned): (&Wanted, &Planned)| Wish {
        name: one.name.clone(),
        shape: one.dataset.shape().to_vec(),
        elem: one.dataset.elem().to_string(),
        layout: one.growing.as_ref().map_or_else(|| planned.layout.to_string(), Growing::text),
        append,
        descr: one.descr.as_ref().map(Descr::to_string),
    };
    let wishes = planned.as_ref().map_err(Clone::clone);
    let wishes = wishes.map(|planned| wanted.iter().zip(planned).map(wish).collect::<Vec<_>>());
    // Unit 0's, from before the others came.
    let (mut mine, mut there) = (Vec::new(), Vec::new());
    let begun: Vec<Start> = team.agree(Stage::Open, wishes, |wishes| {
        same(&shown, &wishes)?;
        let mut owned = store.own()?;
        let mut starts = Vec::with_capacity(wanted.len());
        for one in wanted {
            let (start, was, held) = begin(&store, &mut owned, one, (append, folder))?;
            starts.push(start);
            there.push(was);
            mine.push(held);
        }
        // Where nobody else has a turn until it closes, no epoch begins for that.
        owned.goes_on();
        Ok(starts)
    })?;
    let mut crew = Crew::new(store, team);
    let mut outputs = Vec::with_capacity(wanted.len());
    let opened = || -> Result<(), StoreError> {
        if begun.len() != wanted.len() {
            return Err(crew.closed());
        }
        for ((one, planned), begun) in wanted.iter().zip(planned?).zip(begun) {
            outputs.push(Output::new(&crew.store, one, planned, begun, append, options)?);
        }
        Ok(())
    };
    let opened = opened();
    crew.team()?.meet(Stage::Ready, opened.as_ref().map(|_| ()).map_err(Clone::clone))?;
    opened?;
    for ((output, held), was) in outputs.iter_mut().zip(mine).zip(there) {
        output.kept.extend(held);
        output.appends_to = append.then_some(was);
    }
    let staged = outputs.iter().filter(|output| !output.is_straight).map(|output| output.windows);
    crew.share_memory(staged, options.port.units)?;
    Ok((crew, outputs))
}

impl Output {
    fn new(
        store: &Store,
        wanted: &Wanted,
        planned: Planned,
        begun: Start,
        append: bool,
        options: &Options,
    ) -> Result<Output, StoreError> {
        let shown = &store.shown;
        let Planned { mapping, plan, fill, windows, .. } = planned;
        let units = options.port.units;
        let mut meta = Meta::parse(shown, &wanted.name, store.geometry(), &begun.meta)?;
        let read_row = meta.append(fill);
        let mut kept = vec![store.use_object(begun.object)?];
        if append {
            kept.push(store.append_along(begun.object)?);
        }
        let len = mapping.local_len_bytes(options.port.unit.into()).map_err(StoreError::layout(shown))?;
        let mut output = Output {
            name: wanted.name.clone(),
            is_straight: wanted.growing.is_none() && is_straight(&mapping, fill, units),
            rounds: windows.by_round(&plan, |i| plan.transfers()[i].dst_unit()),
            mapping,
            plan,
            kernels: Kernels::detect(),
            fill,
            windows,
            before: meta.steps,
            meta,
            object: begun.object,
            stamp: begun.stamp,
            io: None,
            units,
            joining: begun.joining,
            open_row: None,
            row: Vec::new(),
            read_row,
            tail: Vec::new(),
            appends_to: None,
            lost: begun.lost,
            failed: BTreeMap::new(),
            files: Vec::new(),
            grown: wanted.growing.clone().map(Grown::new),
            len: len as usize,
            kept,
        };
        let noted = output.io(store)?.note(append).map_err(StoreError::os(shown))?;
        output.kept.extend(noted);
        Ok(output)
    }

    /// The rows on the disks.
    pub(super) fn io(&mut self, store: &Store) -> Result<&mut RowIo, StoreError> {
        if self.io.is_none() {
            let (disks, rows) = (store.disks()?, store.rows(self.object, self.stamp));
            let is_lost = |unit: u32| self.lost.contains(&unit) || self.failed.contains_key(&unit);
            let io = RowIo::open(&disks, rows, &is_lost, true, self.units);
            let mut io = io.map_err(StoreError::refused(&store.shown))?;
            io.join(self.joining.clone());
            self.io = Some(io);
        }
        self.io.as_mut().ok_or_else(|| {
            StoreError::Port(polyduct_port::PortError::Closed {
                port: polyduct_port::PortName::Store(store.shown.clone()),
            })
        })
    }

    /// Waits until the disks have what they were given, and lets their files go until the next step.
    pub fn rest(&mut self) {
        let Some(mut io) = self.io.take() else { return };
        io.finish();
        self.failed.extend(io.failed());
        for (unit, file) in io.identities().into_iter().enumerate() {
            self.files.resize(self.files.len().max(unit + 1), None);
            self.files[unit] = file.or(self.files[unit]);
        }
    }

    /// Where the next step lies.
    fn place(&self) -> (Range<u64>, u64) {
        let (row, offset) = self.meta.place(self.fill, self.meta.steps);
        (row..row.saturating_add(self.fill.rows), offset)
    }

    /// Makes room for the next step.
    fn reserve(&mut self, crew: &Crew) -> Result<(), StoreError> {
        if !crew.is(0) {
            return Ok(());
        }
        let (rows, _) = self.place();
        let reserved = self.io(&crew.store)?.reserve(rows);
        reserved.map_err(StoreError::refused(&crew.store.shown))
    }

    /// Moves this unit's part of the next step, together with the other units.
    ///
    /// # Errors
    /// As [`StoreWriter::write`](super::StoreWriter::write).
    pub fn move_step(&mut self, crew: &mut Crew, part: &[u8]) -> Result<(), StoreError> {
        let shown = crew.store.shown.clone();
        let (rows, offset) = self.place();
        let mut able = self.reserve(crew);
        if self.is_straight {
            able?;
            let written = self.io(&crew.store)?.write(rows, Bytes::Own(part));
            return written.map_err(StoreError::refused(&shown));
        }
        for round in 0..self.rounds.len() {
            let half = crew.turn;
            for &(i, unit) in &self.rounds[round] {
                let Some(staging) = &mut crew.staging else { return Err(crew.closed()) };
                let to = staging.of(unit, half).get(offset as usize..).unwrap_or_default();
                for table in self.plan.transfers()[i].tables() {
                    let copied = self.kernels.execute(&table, Source::from(part), Dest::from(to));
                    able = able.and(copied.map_err(StoreError::plan(&shown)));
                }
            }
            crew.meet(std::mem::replace(&mut able, Ok(())))?;
            crew.turn += 1;
            let unit = crew.team()?.unit();
            let Some(staging) = &mut crew.staging else { return Err(crew.closed()) };
            let (in_step, len) = self.windows.rows(round as u64, unit);
            if in_step.is_empty() {
                continue;
            }
            let bytes = staging.mine(half);
            if self.fill.per_row > 1 {
                let step = offset as usize..(offset + self.fill.step_bytes) as usize;
                self.row.resize((offset + self.fill.stride) as usize, 0);
                for (to, from) in self.row[step.clone()].iter_mut().zip(&bytes[step]) {
                    *to = from.load(Ordering::Relaxed);
                }
                continue;
            }
            let bytes = bytes.get(..len as usize).unwrap_or(bytes);
            let rows = rows.start + in_step.start..rows.start + in_step.end;
            let written = self.io(&crew.store)?.write(rows, Bytes::Shared(bytes));
            written.map_err(StoreError::refused(&shown))?;
        }
        if self.fill.per_row > 1 {
            let last = offset + 2 * self.fill.stride > self.fill.row_bytes;
            self.open_row = Some(rows.start);
            if last {
                self.flush_row(crew)?;
            }
        }
        Ok(())
    }

    /// Writes a row of several steps, in the unit that has it.
    fn flush_row(&mut self, crew: &Crew) -> Result<(), StoreError> {
        let (Some(row), bytes) = (self.open_row.take(), std::mem::take(&mut self.row)) else { return Ok(()) };
        if self.windows.rows(0, crew.team()?.unit()).0.is_empty() {
            return Ok(());
        }
        if self.read_row == Some(row) {
            self.tail = bytes;
            return Ok(());
        }
        let written = self.io(&crew.store)?.write(row..row + 1, Bytes::Own(&bytes));
        written.map_err(StoreError::refused(&crew.store.shown))
    }

    /// Writes a stretch of the next step: see [`StoreWriter::write_stretch`](super::StoreWriter::write_stretch).
    ///
    /// # Errors
    /// As there.
    pub fn move_stretch(&mut self, crew: &Crew, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.reserve(crew)?;
        let (rows, unit) = (self.place().0, self.fill.row_bytes);
        let end = at.saturating_add(bytes.len() as u64);
        let rows = rows.start + at / unit..rows.start + end.div_ceil(unit);
        let written = self.io(&crew.store)?.write(rows, Bytes::Own(bytes));
        written.map_err(StoreError::refused(&crew.store.shown))
    }

    /// All steps have come: what this unit says of them.
    ///
    /// # Errors
    /// Those of writing the last row.
    pub fn end(&mut self, crew: &Crew) -> Result<End, StoreError> {
        self.flush_row(crew)?;
        self.end_grown(crew)?;
        self.rest();
        let failed = std::mem::take(&mut self.failed);
        Ok(End {
            steps: self.meta.steps,
            failed: failed.into_values().map(|e| (e.unit, e.reason, e.cause)).collect(),
            files: std::mem::take(&mut self.files),
        })
    }

    /// The object may go.
    pub fn let_go(&mut self) {
        self.kept = Vec::new();
    }

    /// Memory for this unit's part of a step.
    ///
    /// # Errors
    /// There is none.
    pub fn memory(&self, store: &Store) -> Result<Vec<u8>, StoreError> {
        zeros(self.len, "this unit's part of a step").map_err(StoreError::os(&store.shown))
    }
}
