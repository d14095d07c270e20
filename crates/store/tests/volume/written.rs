//! Rows written and read as programs do it: by [`RowIo`], on simulated units.

use super::sim::Sim;
use polyduct_store::disk::RowIo;
use polyduct_store::volume::rows::{Bytes, BytesMut};
use polyduct_store::volume::units::{Done, Request, UnitError, Units};
use polyduct_store::volume::{Volume, VolumeError, BLOCK};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// What programs do with rows of objects that nobody changes.
pub trait WholeRows {
    /// Writes rows of an object that nobody reads yet; what is missing of them is zeros. The next commit
    /// makes them durable.
    fn write_rows(&mut self, object: u64, rows: Range<u64>, data: &[u8]) -> Result<(), VolumeError>;

    /// Writes a row.
    fn write_row(&mut self, object: u64, row: u64, data: &[u8]) -> Result<(), VolumeError> {
        self.write_rows(object, row..row + 1, data)
    }

    /// Reads rows. Gives their blocks in order, and none for those that have to be read by the volume.
    fn read_rows(&mut self, object: u64, rows: Range<u64>) -> Vec<Option<Box<[u8; BLOCK]>>>;
}

impl WholeRows for Volume<&mut Sim> {
    fn write_rows(&mut self, object: u64, rows: Range<u64>, data: &[u8]) -> Result<(), VolumeError> {
        let joining: Vec<u32> = (0..self.geometry().units()).filter(|&unit| self.is_joining(unit)).collect();
        let lost: Vec<u32> =
            self.lost().map(|(unit, _)| unit).filter(|unit| !joining.contains(unit)).collect();
        let failed = lent(self, &lost, object, |io| {
            io.join(joining);
            let written = io.write(rows.clone(), Bytes::Own(data));
            io.finish();
            written.map(|()| io.failed())
        });
        self.settle(object, rows, failed.map_err(VolumeError::Refused)?.into_values(), &[])
    }

    fn read_rows(&mut self, object: u64, rows: Range<u64>) -> Vec<Option<Box<[u8; BLOCK]>>> {
        let lost: Vec<u32> = self.lost().map(|(unit, _)| unit).collect();
        let first = rows.start * self.geometry().row_blocks();
        let mut bytes = vec![0; ((rows.end * self.geometry().row_blocks() - first) as usize) * BLOCK];
        let mut bad = Vec::new();
        lent(self, &lost, object, |io| {
            let otherwise = &mut |block, _: BytesMut<'_>| {
                bad.push(block);
                Ok::<(), VolumeError>(())
            };
            io.read(rows, BytesMut::Own(&mut bytes), otherwise).unwrap();
        });
        let (blocks, _) = bytes.as_chunks::<BLOCK>();
        (first..).zip(blocks).map(|(n, block)| (!bad.contains(&n)).then(|| Box::new(*block))).collect()
    }
}

/// Disks that a volume has lent to who writes and reads rows.
#[derive(Clone)]
struct Lent(Arc<Mutex<Sim>>);

impl Units for Lent {
    fn run(&mut self, batch: Vec<Request>) -> Vec<Result<Done, UnitError>> {
        self.0.lock().unwrap().run(batch)
    }
}

/// Does something with the rows of an object, on the disks of a volume that are not `lost`.
fn lent<T>(v: &mut Volume<&mut Sim>, lost: &[u32], object: u64, does: impl FnOnce(&mut RowIo) -> T) -> T {
    let disks = Lent(Arc::new(Mutex::new(std::mem::take(&mut **v.units_mut()))));
    let mut io = RowIo::simulated(Box::new(disks.clone()), v.rows(object), &|unit| lost.contains(&unit));
    let done = does(&mut io);
    drop(io);
    let sim = Arc::into_inner(disks.0).expect("nobody else has them any more");
    **v.units_mut() = sim.into_inner().unwrap();
    done
}
