//! Boxes of datasets in stores, by way of a port.

use crate::Error;
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

    /// Reads the box of a step into `out`, in row-major order, from the blocks in which it lies and no others.
    ///
    /// # Errors
    /// No such step; `out` of another size; more damaged or lost than there is parity. After an error the content of `out` is
    /// undefined.
    pub fn read(&self, step: u64, out: &mut [u8]) -> Result<(), Error> {
        Ok(self.array.read_box(step..step.saturating_add(1), &self.lo, &self.hi, out)?)
    }

    /// Overwrites the box of a step with `from`, in row-major order. When this returns it is durable, and readable whichever units
    /// are lost later, up to the parity; until then each block of 4 KiB is as before or after.
    ///
    /// # Errors
    /// As [`read`](At::read); the dataset was removed or replaced meanwhile.
    pub fn write(&self, step: u64, from: &[u8]) -> Result<(), Error> {
        Ok(self.array.write_box(step..step.saturating_add(1), &self.lo, &self.hi, from)?)
    }
}
