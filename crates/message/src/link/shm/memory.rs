//! Ordinary memory that a process lends to its peers.

use super::region::{copy, fits};
use polyduct_os::Result;
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;

/// Memory that was not made for sharing: a vector's, or that of another owner who is kept for as long. While
/// it is here, nobody in Rust has a reference to it; peers and this process reach it by copies.
pub struct Memory {
    base: *mut u8,
    len: usize,
    keeper: Keeper,
}

enum Keeper {
    /// A vector of so many bytes of capacity.
    Vec(usize),
    /// The owner of the memory.
    Other(Box<dyn Any + Send + Sync>),
}

// SAFETY: the memory is only reached by copies between it and memory that the caller borrows; it belongs to
// no thread, and the keeper may move.
unsafe impl Send for Memory {}
// SAFETY: as above. Copies by several threads may mix bytes, as those of several processes may; no reference
// is ever made.
unsafe impl Sync for Memory {}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes at {:p})", self.len, self.base)
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Memory {
        let mut bytes = ManuallyDrop::new(bytes);
        Memory { base: bytes.as_mut_ptr(), len: bytes.len(), keeper: Keeper::Vec(bytes.capacity()) }
    }
}

impl Memory {
    /// `len` bytes at `base`, which belong to `keeper`.
    ///
    /// # Safety
    /// Until `keeper` is dropped, the bytes can be read and written by any thread of this process, stay where
    /// they are, and no reference to them exists whose bytes may not change.
    pub unsafe fn of(base: *mut u8, len: usize, keeper: Box<dyn Any + Send + Sync>) -> Memory {
        Memory { base, len, keeper: Keeper::Other(keeper) }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it lies in this process.
    pub fn address(&self) -> u64 {
        self.base as u64
    }

    /// Copies `src` to `offset`.
    ///
    /// # Errors
    /// [`polyduct_os::OsError::OutOfRange`]: nothing was copied.
    pub fn put(&self, offset: usize, src: &[u8]) -> Result<()> {
        fits(offset, src.len(), self.len)?;
        // SAFETY: the range lies in the memory, which lives as long as `self` and is writable (a vector's, or
        // the promise of `of`); `src` is the caller's own memory, of which no part can be borrowed from here.
        unsafe { copy(src.as_ptr(), self.base.add(offset), src.len()) };
        Ok(())
    }

    /// Copies from `offset` into `dst`.
    ///
    /// # Errors
    /// As [`put`](Memory::put).
    pub fn get(&self, offset: usize, dst: &mut [u8]) -> Result<()> {
        fits(offset, dst.len(), self.len)?;
        // SAFETY: as in `put`.
        unsafe { copy(self.base.add(offset), dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    /// The vector again, or the keeper of what was no vector.
    ///
    /// # Errors
    /// The value that kept the memory.
    pub fn into_vec(self) -> std::result::Result<Vec<u8>, Box<dyn Any + Send + Sync>> {
        let mut memory = ManuallyDrop::new(self);
        match std::mem::replace(&mut memory.keeper, Keeper::Vec(0)) {
            Keeper::Other(keeper) => Err(keeper),
            // SAFETY: these are the parts of the vector that `from` took apart, and `memory`, which is not
            // dropped, was the only one that had them.
            Keeper::Vec(capacity) => Ok(unsafe { Vec::from_raw_parts(memory.base, memory.len, capacity) }),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Keeper::Vec(capacity) = self.keeper {
            // SAFETY: as in `into_vec`, which does not come here.
            drop(unsafe { Vec::from_raw_parts(self.base, self.len, capacity) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_vector_comes_back_as_it_was_and_changed_by_copies_only() {
        let mut bytes = Vec::with_capacity(100);
        bytes.extend(0..50);
        let at = bytes.as_ptr() as u64;
        let memory = Memory::from(bytes);
        assert_eq!((memory.len(), memory.is_empty(), memory.address()), (50, false, at));
        memory.put(48, &[7, 8]).unwrap();
        for (offset, len) in [(49, 2), (51, 0), (usize::MAX, 1), (0, 51)] {
            assert!(memory.put(offset, &vec![0; len]).is_err());
            assert!(memory.get(offset, &mut vec![0; len]).is_err());
        }
        let mut got = [0; 3];
        memory.get(47, &mut got).unwrap();
        assert_eq!(got, [47, 7, 8]);
        let back = memory.into_vec().unwrap();
        assert_eq!((back.as_ptr() as u64, back.capacity(), &back[46..]), (at, 100, &[46, 47, 7, 8][..]));
        assert!(Memory::from(Vec::new()).into_vec().unwrap().is_empty());
    }

    #[test]
    fn a_keeper_goes_with_the_memory_or_comes_back() {
        let keeper = Arc::new(vec![0_u8; 8]);
        let lend = || {
            // SAFETY: nothing is copied, and the vector lives on.
            unsafe { Memory::of(keeper.as_ptr().cast_mut(), 0, Box::new(keeper.clone())) }
        };
        drop(lend());
        assert_eq!(Arc::strong_count(&keeper), 1);
        let back = lend().into_vec().unwrap_err();
        assert_eq!(Arc::strong_count(&keeper), 2);
        assert!(back.downcast::<Arc<Vec<u8>>>().is_ok());
    }
}
