//! Blocks that could not be had from their unit alone.

use super::fetch::Blocks;
use super::io::RowIo;
use super::owned::Owned;
use super::{events, Store, StoreError};
use crate::volume::parity::Block;
use crate::volume::rows::BytesMut;
use crate::volume::{VolumeError, BLOCK};
use polyduct_copy::Kernels;
use polyduct_os::aligned::zeros;
use polyduct_port::{PortError, PortName};

/// Rows of which a block is computed by reading all that there is of them, at most so long.
const LONGEST: u64 = 64 << 20;
/// Requests at once, where a row has a chunk on more units.
const DEPTH: u32 = 16;

/// Gives blocks of an object by way of the protocol, which repairs: a process that asks it becomes the
/// store's owner for as long as this lives.
pub struct Repairer<'a> {
    store: &'a Store,
    object: u64,
    owned: Option<Owned<'a>>,
}

impl<'a> Repairer<'a> {
    /// For an object of a store; nobody is asked yet.
    pub fn new(store: &'a Store, object: u64) -> Repairer<'a> {
        Repairer { store, object, owned: None }
    }

    /// A block, checked.
    ///
    /// # Errors
    /// [`PortError::Interrupted`]; as [`Store::own`], and [`Volume::read`](crate::volume::Volume::read).
    pub fn block(&mut self, block: u64) -> Result<Block, StoreError> {
        if self.store.interrupt.as_ref().is_some_and(|ask| ask()) {
            return Err(StoreError::Port(PortError::Interrupted {
                port: PortName::Store(self.store.shown.clone()),
                unit: None,
            }));
        }
        let owned = match &mut self.owned {
            Some(owned) => owned,
            none => none.insert(self.store.own_to_read()?),
        };
        owned.read(self.object, block).map_err(|error| {
            if let VolumeError::Damaged { .. } = error {
                let name = owned.name_of(self.object).unwrap_or("a dataset without a name");
                events::note_once(&self.store.dir, &format!("{name:?} is beyond repair: {error}"));
            }
            owned.error(error)
        })
    }

    /// Copies as much of a block as fits to `to`.
    ///
    /// # Errors
    /// As [`block`](Repairer::block).
    pub fn give(&mut self, block: u64, mut to: BytesMut<'_>) -> Result<(), StoreError> {
        let bytes = self.block(block)?;
        let n = to.len().min(BLOCK);
        let copied = Kernels::detect().memcpy(to.dest(), bytes[..n].into());
        copied.map_err(StoreError::plan(&self.store.shown))
    }
}

/// Finds blocks otherwise, for one call: those of lost units from the rest of their rows, which changes
/// nothing; others, and those for which that is not enough, by way of the protocol, which repairs.
pub struct Mender<'a> {
    store: &'a Store,
    blocks: &'a Blocks,
    /// The rows of the object without those of the units that are lost, which are named.
    remaining: Option<(Vec<u32>, RowIo)>,
    repairer: Repairer<'a>,
    /// The last block.
    block: Option<(u64, Block)>,
    /// The last row.
    row: Option<u64>,
    bytes: Vec<u8>,
}

impl<'a> Mender<'a> {
    /// For blocks of an object of a store.
    pub fn new(store: &'a Store, blocks: &'a Blocks) -> Mender<'a> {
        let repairer = Repairer::new(store, blocks.object());
        Mender { store, blocks, remaining: None, repairer, block: None, row: None, bytes: Vec::new() }
    }

    /// Lets others change the store.
    pub fn pause(&mut self) {
        if let Some(owned) = self.repairer.owned.take() {
            self.blocks.lose(owned.lost().map(|(unit, _)| unit));
        }
    }

    /// A block, checked.
    ///
    /// # Errors
    /// As [`Store::own`], and [`Volume::read`](crate::volume::Volume::read).
    pub fn block(&mut self, block: u64) -> Result<&[u8], StoreError> {
        let g = self.store.geometry();
        let place = g.place(block);
        let row_bytes = g.row_blocks() * BLOCK as u64;
        if self.blocks.is_lost(g.unit(place.row, place.chunk)) && row_bytes <= LONGEST {
            if self.row != Some(place.row) {
                self.read_row(place.row, row_bytes as usize)?;
            }
            let from = (block - place.row * g.row_blocks()) as usize * BLOCK;
            return Ok(&self.bytes[from..from + BLOCK]);
        }
        if self.block.as_ref().is_none_or(|(last, _)| *last != block) {
            self.block = Some((block, self.repairer.block(block)?));
        }
        Ok(self.block.as_ref().map_or(&[], |(_, bytes)| &bytes[..]))
    }

    fn read_row(&mut self, row: u64, len: usize) -> Result<(), StoreError> {
        self.row = None;
        if self.bytes.len() != len {
            self.bytes = zeros(len, "a row of the store").map_err(StoreError::os(&self.store.shown))?;
        }
        let lost = self.blocks.lost();
        let (_, io) = match self.remaining.take().filter(|(of, _)| *of == lost) {
            Some(same) => self.remaining.insert(same),
            None => {
                let g = self.store.geometry();
                let is_lost = |unit| lost.contains(&unit);
                let (disks, object) = (self.store.disks_to_read()?, self.blocks.object());
                // Rows are read one after the other: no more is under way than one has.
                let share = (DEPTH / g.units()).max(1);
                let rows = self.store.rows(object, 0.into());
                let mut io = RowIo::open(&disks, rows, &is_lost, false, share)
                    .map_err(StoreError::refused(&self.store.shown))?;
                io.know(self.blocks.epochs());
                self.remaining.insert((lost, io))
            }
        };
        let repairer = &mut self.repairer;
        io.read(row..row + 1, BytesMut::Own(&mut self.bytes), &mut |b, to| repairer.give(b, to))?;
        self.row = Some(row);
        Ok(())
    }
}

impl Drop for Mender<'_> {
    fn drop(&mut self) {
        self.pause();
    }
}
