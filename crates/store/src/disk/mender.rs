//! Blocks that could not be had from their unit alone.

use super::fetch::Blocks;
use super::io::RowIo;
use super::store::Owned;
use super::{Store, StoreError};
use crate::volume::parity::Block;
use crate::volume::rows::BytesMut;
use crate::volume::BLOCK;
use polyduct_copy::Kernels;

/// Rows of which a block is computed by reading all that there is of them, at most so long.
const LONGEST: u64 = 64 << 20;
/// Requests at once, where a row has a chunk on more units.
const DEPTH: u32 = 16;

/// Finds blocks otherwise, for one call: those of lost units from the rest of their rows, which changes nothing; others, and
/// those for which that is not enough, by way of the protocol, which repairs.
pub struct Mender<'a> {
    store: &'a Store,
    blocks: &'a Blocks,
    /// The rows of the object without those of the units that are lost, which are named.
    remaining: Option<(Vec<u32>, RowIo)>,
    owned: Option<Owned<'a>>,
    /// The last block.
    block: Option<(u64, Block)>,
    /// The last row.
    row: Option<u64>,
    bytes: Vec<u8>,
}

impl<'a> Mender<'a> {
    /// For blocks of an object of a store.
    pub fn new(store: &'a Store, blocks: &'a Blocks) -> Mender<'a> {
        Mender { store, blocks, remaining: None, owned: None, block: None, row: None, bytes: Vec::new() }
    }

    /// Lets others change the store.
    pub fn pause(&mut self) {
        if let Some(owned) = self.owned.take() {
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
            self.block = Some((block, ask(&mut self.owned, self.store, self.blocks, block)?));
        }
        Ok(self.block.as_ref().map_or(&[], |(_, bytes)| &bytes[..]))
    }

    fn read_row(&mut self, row: u64, len: usize) -> Result<(), StoreError> {
        self.row = None;
        self.bytes.resize(len, 0);
        let lost = self.blocks.lost();
        let (_, io) = match self.remaining.take().filter(|(of, _)| *of == lost) {
            Some(same) => self.remaining.insert(same),
            None => {
                let g = self.store.geometry();
                let is_lost = |unit| lost.contains(&unit);
                let (disks, object) = (self.store.disks(), self.blocks.object());
                // Rows are read one after the other: no more is under way than one has.
                let share = (DEPTH / g.units()).max(1);
                let io = RowIo::open(&disks, g, object, 0, &is_lost, false, share);
                self.remaining.insert((lost, io))
            }
        };
        let (owned, store, blocks) = (&mut self.owned, self.store, self.blocks);
        let mut otherwise = |block: u64, mut to: BytesMut<'_>| {
            let bytes = ask(owned, store, blocks, block)?;
            let n = to.len().min(BLOCK);
            let copied = Kernels::detect().memcpy(to.dest(), bytes[..n].into());
            copied.map_err(StoreError::plan(&store.shown))
        };
        io.read(row..row + 1, BytesMut::Own(&mut self.bytes), &mut otherwise)?;
        self.row = Some(row);
        Ok(())
    }
}

impl Drop for Mender<'_> {
    fn drop(&mut self) {
        self.pause();
    }
}

/// Asks the protocol.
fn ask<'a>(
    owned: &mut Option<Owned<'a>>,
    store: &'a Store,
    blocks: &Blocks,
    block: u64,
) -> Result<Block, StoreError> {
    if store.interrupt.as_ref().is_some_and(|ask| ask()) {
        return Err(StoreError::Interrupted { store: store.shown.clone() });
    }
    let owned = match owned {
        Some(owned) => owned,
        none => none.insert(store.own()?),
    };
    owned.read(blocks.object(), block).map_err(StoreError::volume(&store.shown))
}
