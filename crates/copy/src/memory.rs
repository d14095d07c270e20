//! The two memories of a copy.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU8;

/// Memory that a copy reads.
///
/// Made from `&[u8]`, or from `&[AtomicU8]` for memory that **another process may write at the same time**.
/// Kernels read such memory with plain vector loads: each byte is read once, no branch, index or length ever
/// depends on what was read, and so a racing writer can spoil the bytes that are copied and nothing else.
/// (The abstract machine has no name for a race with another process; within one process, the protocol around
/// the slots keeps writers away.)
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub(crate) ptr: *const u8,
    pub(crate) len: usize,
    life: PhantomData<&'a [u8]>,
}

/// Memory that a copy writes.
///
/// Made from `&mut [u8]`, or from `&[AtomicU8]` for shared memory; bytes are written by plain vector stores,
/// see [`Source`] for why that is fine. Streaming stores are fenced before a copy returns, so that a release
/// store or a lock made afterwards publishes them as it does any other store.
#[derive(Debug)]
pub struct Dest<'a> {
    pub(crate) ptr: *mut u8,
    pub(crate) len: usize,
    life: PhantomData<&'a mut [u8]>,
}

// SAFETY: a Source stands for `&[u8]` or `&[AtomicU8]`, both of which may go to other threads.
unsafe impl Send for Source<'_> {}
// SAFETY: as above; a Source has no interior state.
unsafe impl Sync for Source<'_> {}
// SAFETY: a Dest stands for `&mut [u8]` or `&[AtomicU8]`, both of which may go to other threads.
unsafe impl Send for Dest<'_> {}

impl Source<'_> {
    /// Memory given by address.
    ///
    /// # Safety
    /// `len` bytes from `ptr` stay readable for the lifetime that the caller picks, and no thread of this
    /// process writes them while a copy reads them.
    pub unsafe fn from_raw(ptr: *const u8, len: usize) -> Self {
        Source { ptr, len, life: PhantomData }
    }

    /// Has the cache fetch the memory, and does not wait: a hint, for memory of some KiB that is needed soon.
    pub fn prefetch(&self) {
        prefetch::<false>(self.ptr, self.len);
    }
}

/// Where a run of memory begins that the processor did not see coming, the first accesses wait for as long as
/// the memory takes.
fn prefetch<const WRITE: bool>(ptr: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..len).step_by(64) {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_ET0, _MM_HINT_T0};
        let line = ptr.wrapping_add(at).cast();
        // SAFETY: a prefetch touches nothing, whatever it is given.
        unsafe {
            match WRITE {
                true => _mm_prefetch::<_MM_HINT_ET0>(line),
                false => _mm_prefetch::<_MM_HINT_T0>(line),
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (ptr, len);
}

impl Dest<'_> {
    /// Memory given by address.
    ///
    /// # Safety
    /// `len` bytes from `ptr` stay writable for the lifetime that the caller picks, and no other thread of
    /// this process reads or writes those that a copy writes, while it does.
    pub unsafe fn from_raw(ptr: *mut u8, len: usize) -> Self {
        Dest { ptr, len, life: PhantomData }
    }

    /// Has the cache fetch the memory, to be written, and does not wait: a hint, for memory of some KiB that
    /// is needed soon.
    pub fn prefetch(&self) {
        prefetch::<true>(self.ptr, self.len);
    }

    /// The same memory for a shorter time, so that it can be used again afterwards.
    pub fn reborrow(&mut self) -> Dest<'_> {
        Dest { ptr: self.ptr, len: self.len, life: PhantomData }
    }
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Source { ptr: bytes.as_ptr(), len: bytes.len(), life: PhantomData }
    }
}

impl<'a> From<&'a [AtomicU8]> for Source<'a> {
    fn from(bytes: &'a [AtomicU8]) -> Self {
        Source { ptr: bytes.as_ptr().cast(), len: bytes.len(), life: PhantomData }
    }
}

impl<'a> From<&'a mut [u8]> for Dest<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Dest { ptr: bytes.as_mut_ptr(), len: bytes.len(), life: PhantomData }
    }
}

impl<'a> From<&'a [AtomicU8]> for Dest<'a> {
    fn from(bytes: &'a [AtomicU8]) -> Self {
        // AtomicU8 has the size of u8 and may be written through a shared reference.
        Dest { ptr: bytes.as_ptr().cast_mut().cast(), len: bytes.len(), life: PhantomData }
    }
}

/// The same bytes as memory that several threads may write, each its own part of it; see
/// [`crate::execute_part`].
pub fn as_shared(bytes: &mut [u8]) -> &[AtomicU8] {
    // SAFETY: AtomicU8 has the size and alignment of u8, and the exclusive borrow lasts as long as the shared
    // one.
    unsafe { std::slice::from_raw_parts(bytes.as_mut_ptr().cast::<AtomicU8>(), bytes.len()) }
}
