//! Boxes of datasets in stores, by way of a port.

use crate::Error;
use polyduct_layout::Dataset;
use polyduct_store::disk::StoredArray;

/// A box of a dataset in a store; [`Reader::at`](crate::Reader::at) gives it.
pub struct At<'a> {
    array: &'a StoredArray,
    lo: Vec<u64>,
    hi: Vec<u64>,
    len: usize,
}

impl<'a> At<'a> {
    pub(crate) fn new(array: &'a StoredArray, lo: &[u64], hi: &[u64]) -> Result<At<'a>, Error> {
        let len = array.box_len_bytes(lo, hi)? as usize;
        Ok(At { array, lo: lo.to_vec(), hi: hi.to_vec(), len })
    }

    /// Bytes of the box.
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    /// Reads the box of a step into `out`, in row-major order, from the blocks in which it lies and no
    /// others.
    ///
    /// # Errors
    /// No such step; `out` of another size; more damaged or lost than there is parity. After an error the
    /// content of `out` is undefined.
    pub fn read(&self, step: u64, out: &mut [u8]) -> Result<(), Error> {
        Ok(self.array.read_box(step..step.saturating_add(1), &self.lo, &self.hi, out)?)
    }

    /// Overwrites the box of a step with `from`, in row-major order. When this returns it is durable, and
    /// readable whichever units are lost later, up to the parity; until then each block of 4 KiB is as before
    /// or after.
    ///
    /// # Errors
    /// As [`read`](At::read); the dataset was removed or replaced meanwhile.
    pub fn write(&self, step: u64, from: &[u8]) -> Result<(), Error> {
        Ok(self.array.write_box(step..step.saturating_add(1), &self.lo, &self.hi, from)?)
    }
}

/// Bytes of rows that are read together.
const TOGETHER_BYTES: u64 = 4 << 20;

/// Some rows at a time: boxes that are each a stretch of the row-major array.
pub(crate) struct Rows {
    /// The first dimension with more than one index, how many of these are taken together, and the bytes of
    /// one.
    dim: usize,
    rows: u64,
    plane: u64,
}

impl Rows {
    pub(crate) fn of(dataset: &Dataset) -> Rows {
        let shape = dataset.shape();
        let dim = shape.iter().position(|&n| n > 1).unwrap_or(0);
        // A dataset's bytes can be counted.
        let plane = shape.iter().skip(dim + 1).product::<u64>().max(1) * dataset.elem().len_bytes();
        Rows { dim, rows: (TOGETHER_BYTES / plane.max(1)).max(1), plane: plane.max(1) }
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.rows * self.plane
    }

    /// The box that begins at a byte; `None` where none does.
    pub(crate) fn at(&self, dataset: &Dataset, at: u64) -> Option<(Vec<u64>, Vec<u64>)> {
        let (mut lo, mut hi) = (vec![0; dataset.shape().len()], dataset.shape().to_vec());
        if !at.is_multiple_of(self.len_bytes()) || at >= dataset.len_bytes() {
            return None;
        }
        if let (Some(lo), Some(hi)) = (lo.get_mut(self.dim), hi.get_mut(self.dim)) {
            *lo = at / self.plane;
            *hi = (*lo + self.rows).min(*hi);
        }
        Some((lo, hi))
    }
}
