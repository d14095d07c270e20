//! The reading port of a dataset in a store.

use super::io::RowIo;
use super::mender::Repairer;
use super::meta::Meta;
use super::turn::InUse;
use super::windows::{is_straight, Windows};
use super::writer::dir_id;
use super::{Fill, Store, StoreError, StoredArray};
use crate::file::Options;
use crate::staging::Staging;
use crate::team::{Stage, Team};
use crate::volume::epochs::Epochs;
use crate::volume::rows::BytesMut;
use polyduct_copy::{Conversion, Dest, Kernels, Source};
use polyduct_layout::{Dataset, ElemType, Layout, Mapping, Plan};
use polyduct_os::clock;
use polyduct_port::{Expect, Stats};
use polyduct_port::{PortError, PortName};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::OnceLock;

/// One unit's reading end of a dataset in a store: the version that was there when it was opened.
///
/// Every step is a collective call of the program's units: each reads and checks some rows, and copies what
/// it needs from all.
pub struct StoreReader {
    store: Store,
    name: String,
    options: Options,
    team: Option<Team>,
    meta: Meta,
    /// As this unit reads it.
    dataset: Dataset,
    mapping: Mapping,
    plan: Plan,
    conversion: Option<Conversion>,
    kernels: Kernels,
    fill: Fill,
    windows: Windows,
    /// The transfers of each round, with the unit that moves their window.
    rounds: Vec<Vec<(usize, u32)>>,
    /// Rounds so far: they use the halves in turn.
    turn: u64,
    io: RowIo,
    /// The store's [number](Store::number) then.
    under: u64,
    staging: Option<Staging>,
    next: u64,
    failed: Option<StoreError>,
    len: usize,
    stats: Stats,
    /// The same version for random access, from the first time on.
    array: OnceLock<StoredArray>,
    _in_use: InUse,
}

/// What unit 0 found.
#[derive(Serialize, Deserialize)]
struct Start {
    object: u64,
    lost: Vec<u32>,
    under: u64,
    meta: Vec<u8>,
    epochs: Vec<(u32, u32)>,
}

/// The rows of an object, on the units that are not `lost`.
fn rows_of(store: &Store, object: u64, lost: &[u32], options: &Options) -> Result<RowIo, StoreError> {
    let (disks, rows) = (store.disks_to_read()?, store.rows(object, 0.into()));
    let io = RowIo::open(&disks, rows, &|unit| lost.contains(&unit), false, options.port.units);
    io.map_err(StoreError::refused(&store.shown))
}

impl StoreReader {
    /// Opens a dataset to read unit `options.port.unit`'s part of each of its steps, and waits until all
    /// units have come.
    ///
    /// # Errors
    /// [`StoreError::NotThere`], [`StoreError::BadName`], [`PortError::Layout`],
    /// [`StoreError::ShapeDiffers`], [`StoreError::ElemDiffers`]; [`PortError::Disagree`],
    /// [`PortError::PeerAborted`], [`StoreError::Message`] when the units do not come together; as
    /// [`Store::own`].
    pub fn open(
        dir: &Path,
        name: &str,
        layout: &str,
        expect: &Expect,
        options: &Options,
    ) -> Result<StoreReader, StoreError> {
        let start = clock::now();
        let mut store = Store::open(dir)?;
        (store.timeout, store.interrupt) = (Some(options.port.open_timeout), options.port.interrupt.clone());
        let shown = store.shown.clone();
        let parsed = layout.parse::<Layout>().map_err(StoreError::layout(&shown));
        let team = Team::join(&shown, &format!("r {} {name}", dir_id(dir)), options)?;
        let mut held = None;
        let wish = parsed.as_ref().map(ToString::to_string).map_err(Clone::clone);
        let begun: Start = team.agree(Stage::Open, wish, |layouts: Vec<String>| {
            if let Some((unit, found)) = (0..).zip(&layouts).find(|(_, text)| **text != layouts[0]) {
                let (store, expected, found) = (shown.clone(), layouts[0].clone(), found.clone());
                return Err(StoreError::Port(PortError::Disagree {
                    port: PortName::Store(store),
                    unit,
                    what: "layout".into(),
                    expected: expected.into(),
                    found: found.into(),
                }));
            }
            let owned = store.own_to_read()?;
            let (entry, _) = owned.find(name)?;
            held = Some(store.use_object(entry.object)?);
            let lost = owned.lost_of(entry.object);
            let (epochs, under) = (owned.epochs().pairs(), store.number()?);
            Ok(Start { object: entry.object, lost, under, meta: entry.about, epochs })
        })?;
        let layout = parsed?;
        let opened = || -> Result<_, StoreError> {
            let meta = Meta::parse(&shown, name, store.geometry(), &begun.meta)?;
            let dataset = expected(&shown, name, &meta, expect)?;
            let fill = Fill::of(store.geometry(), meta.dataset.len_bytes());
            let conversion = match dataset.elem() == meta.dataset.elem() {
                true => None,
                false => Conversion::between(meta.dataset.elem(), dataset.elem()),
            };
            let mapping =
                layout.bind(&dataset, options.port.units.into()).map_err(StoreError::layout(&shown))?;
            let windows = Windows::of(fill, options.port.units);
            let rows = windows.mapping(&shown, &meta.dataset)?;
            let plan = Plan::to_reader(&rows, &mapping, options.port.unit.into())
                .map_err(StoreError::layout(&shown))?;
            let in_use = store.use_object(begun.object)?;
            Ok((meta, dataset, (fill, windows), conversion, mapping, plan, in_use))
        };
        let opened = opened();
        team.meet(Stage::Ready, opened.as_ref().map(|_| ()).map_err(Clone::clone))?;
        // Until all have said that they use the object, unit 0 did.
        drop(held);
        let (meta, dataset, (fill, windows), conversion, mapping, plan, in_use) = opened?;
        let mut io = rows_of(&store, begun.object, &begun.lost, options)?;
        io.know(store.knows(Epochs::from_pairs(begun.epochs), &begun.lost)?);
        let rounds = windows.by_round(&plan, |i| plan.transfers()[i].src_unit());
        let staging = match is_straight(&mapping, fill, options.port.units) && conversion.is_none() {
            true => None,
            false => Some(Staging::new(&shown, &team, options.port.units, windows.bytes())?),
        };
        let len =
            mapping.local_len_bytes(options.port.unit.into()).map_err(StoreError::layout(&shown))? as usize;
        let stats = Stats { opened: clock::now().saturating_sub(start), ..Stats::default() };
        Ok(StoreReader {
            name: name.to_owned(),
            options: options.clone(),
            team: Some(team),
            meta,
            dataset,
            mapping,
            plan,
            conversion,
            kernels: Kernels::detect(),
            fill,
            windows,
            rounds,
            turn: 0,
            io,
            under: begun.under,
            staging,
            next: 0,
            failed: None,
            len,
            stats,
            array: OnceLock::new(),
            _in_use: in_use,
            store,
        })
    }

    /// What the store knows of the dataset.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Shape and element type of what this unit reads.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// This program's mapping.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Steps that there are.
    pub fn steps(&self) -> u64 {
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

    /// Reads this unit's part of the next step, together with the other units. Returns the number of the
    /// step, `None` after the last.
    ///
    /// # Errors
    /// [`PortError::WrongSize`]; [`StoreError::Volume`] where more is damaged or lost than there is parity:
    /// wrong bytes are never given; [`PortError::PeerAborted`], [`StoreError::Message`]. After an error the
    /// content of `part` is undefined.
    pub fn read(&mut self, part: &mut [u8]) -> Result<Option<u64>, StoreError> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        if self.team.is_none() {
            return Err(StoreError::Port(PortError::Closed {
                port: PortName::Store(self.store.shown.clone()),
            }));
        }
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
        if self.next >= self.meta.steps {
            return Ok(None);
        }
        if let Some(ask) = &self.options.port.interrupt {
            if ask() {
                return Err(StoreError::Port(PortError::Interrupted {
                    port: PortName::Store(self.store.shown.clone()),
                    unit: None,
                }));
            }
        }
        let start = clock::now();
        let moved = self.renew().and_then(|()| self.move_step(part));
        self.stats.copied += clock::now().saturating_sub(start);
        if let Err(e) = moved {
            self.failed = Some(e.clone());
            self.team = None;
            return Err(e);
        }
        self.next += 1;
        self.stats.steps += 1;
        self.stats.bytes += self.len as u64;
        Ok(Some(self.next - 1))
    }

    /// Units that were lost or replaced may still show their old files, which agree with each other.
    fn renew(&mut self) -> Result<(), StoreError> {
        if self.store.number()? != self.under {
            let owned = self.store.own_to_read()?;
            let lost = owned.lost_of(self.io.object());
            // Nobody changes it meanwhile.
            let (mut io, under) =
                (rows_of(&self.store, self.io.object(), &lost, &self.options)?, self.store.number()?);
            io.know(self.store.knows(owned.epochs(), &lost)?);
            drop(owned);
            (self.io, self.under) = (io, under);
        }
        Ok(())
    }

    fn move_step(&mut self, part: &mut [u8]) -> Result<(), StoreError> {
        let shown = &self.store.shown;
        let Some(team) = &self.team else {
            return Err(StoreError::Port(PortError::Closed { port: PortName::Store(shown.clone()) }));
        };
        let (row, offset) = self.meta.place(self.fill, self.next);
        let object = self.io.object();
        let store = &self.store;
        let wanted_of_row = if self.fill.per_row > 1 { self.wanted_of_row(row) } else { 0 };
        let Some(staging) = &mut self.staging else {
            let mut repairer = Repairer::new(store, object);
            return self
                .io
                .read(row..row + self.fill.rows, BytesMut::Own(part), &mut |b, to| repairer.give(b, to));
        };
        // Several steps of a row are read together.
        let again = self.fill.per_row > 1 && offset > 0 && self.next > 0;
        for (round, transfers) in (0..).zip(&self.rounds) {
            let half = if self.fill.per_row > 1 { row } else { self.turn };
            let (rows, len) = self.windows.rows(round, team.unit());
            let mut able = Ok(());
            if !again && !rows.is_empty() {
                let len = if self.fill.per_row > 1 { wanted_of_row } else { len };
                let bytes = staging.mine(half);
                let bytes = bytes.get(..len as usize).unwrap_or(bytes);
                let rows = row + rows.start..row + rows.end;
                // Not the store's owner any more when the others are waited for: they may have to repair,
                // too.
                let mut repairer = Repairer::new(store, object);
                able = self.io.read(rows, BytesMut::Shared(bytes), &mut |b, to| repairer.give(b, to));
            }
            // The disks work on while this window is handed out.
            let (ahead, _) = self.windows.rows(round + 1, team.unit());
            self.io.ahead(row + ahead.start..row + ahead.end);
            let waiting = clock::now();
            let met = team.meet(Stage::Step, able);
            self.stats.waited += clock::now().saturating_sub(waiting);
            met?;
            self.turn += 1;
            for &(i, unit) in transfers {
                let from = staging.of(unit, half).get(offset as usize..).unwrap_or_default();
                for table in self.plan.transfers()[i].tables() {
                    let (src, dst) = (Source::from(from), Dest::from(&mut *part));
                    let copied = match self.conversion {
                        None => self.kernels.execute(&table, src, dst),
                        Some(to) => self.kernels.execute_convert(&table, to, src, dst),
                    };
                    copied.map_err(StoreError::plan(shown))?;
                }
            }
        }
        Ok(())
    }

    /// Bytes of a row of several steps that steps have filled.
    fn wanted_of_row(&self, row: u64) -> u64 {
        let last =
            (self.next..self.meta.steps).take_while(|&s| self.meta.place(self.fill, s).0 == row).last();
        last.map_or(0, |s| self.meta.place(self.fill, s).1 + self.fill.step_bytes)
    }

    /// The version that this port reads, for any box of it: by this unit alone, at any time while the port is
    /// open. Elements are of the type in which they are stored.
    ///
    /// # Errors
    /// [`PortError::Closed`]; the system's refusals.
    pub fn array(&self) -> Result<&StoredArray, StoreError> {
        if self.team.is_none() {
            return Err(StoreError::Port(PortError::Closed {
                port: PortName::Store(self.store.shown.clone()),
            }));
        }
        if let Some(array) = self.array.get() {
            return Ok(array);
        }
        let object = self.io.object();
        let store = self.store.again()?;
        let in_use = store.use_here(object)?;
        let array = StoredArray::over(store, &self.name, object, self.meta.clone(), in_use);
        Ok(self.array.get_or_init(|| array))
    }

    /// Leaves the dataset.
    pub fn close(&mut self) -> Stats {
        self.team = None;
        self.staging = None;
        self.stats
    }

    /// The dataset's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The dataset as the caller reads it.
fn expected(store: &str, name: &str, meta: &Meta, expect: &Expect) -> Result<Dataset, StoreError> {
    let found = meta.dataset;
    if let Some(shape) = expect.shape.as_ref().filter(|shape| shape[..] != *found.shape()) {
        let (expected, found) = (shape.clone(), found.shape().to_vec());
        return Err(StoreError::ShapeDiffers { store: store.to_owned(), name: name.into(), expected, found });
    }
    let elem: ElemType = expect.elem.unwrap_or(found.elem());
    let converts = expect.convert && Conversion::between(found.elem(), elem).is_some();
    if elem != found.elem() && !converts {
        let (expected, found) = (elem, found.elem());
        return Err(StoreError::ElemDiffers { store: store.to_owned(), name: name.into(), expected, found });
    }
    Dataset::new(found.shape(), elem).map_err(StoreError::layout(store))
}
