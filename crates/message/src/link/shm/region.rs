//! Memory that peers put into and get from, without the owner's processor.
//!
//! A [`Region`] is a segment: units that have mapped it copy to and from it directly, at the speed of memory.
//! Memory that was not made for sharing is reached through the kernel ([`RemoteMemory`]).
//!
//! A put or a get is done when the call returns. Two at once on the same bytes, or one at the same time as
//! the owner's own use, give a mixture of bytes; a message that says "done"
//! ([`Sender::short`](super::Sender::short), after the put) is the order that programs need: what was put
//! before a message was sent is there when it is handled.

use polyduct_copy::{Dest, Source};
use polyduct_os::remote::RemoteReader;
use polyduct_os::segment::{Access, Segment};
use polyduct_os::{OsError, Result};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU8;

/// Shared memory, its owner's or as a peer has mapped it.
#[derive(Debug)]
pub struct Region {
    segment: Segment,
    base: *mut u8,
}

// SAFETY: the memory is only reached by copies between it and memory that the caller borrows; it belongs to
// no thread.
unsafe impl Send for Region {}
// SAFETY: as above. Copies by several threads may mix bytes, as those of several processes may; no reference
// is ever made.
unsafe impl Sync for Region {}

impl Region {
    /// A region of `len` bytes, zero and in place.
    ///
    /// # Errors
    /// [`OsError::NoMemory`], or no descriptor.
    pub fn create(len: usize) -> Result<Region> {
        Region::of(Segment::create("polyduct region", len)?)
    }

    /// A peer's region, by the descriptor that it handed over, if it has at most `max_bytes`. It is mapped
    /// here, once.
    ///
    /// # Errors
    /// [`OsError::BadSegment`]; the system refuses.
    pub fn attach(fd: OwnedFd, max_bytes: usize) -> Result<Region> {
        Region::of(Segment::from_fd(fd, 1, max_bytes, Access::ReadWrite)?)
    }

    fn of(segment: Segment) -> Result<Region> {
        segment.prefault(0..segment.len())?;
        let base = segment.address() as *mut u8;
        Ok(Region { segment, base })
    }

    /// The descriptor, to hand to peers.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.segment.fd()
    }

    /// Its length in bytes; never zero.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.segment.len()
    }

    /// Its first byte in this process, for those who use it in place. As long as the region lives,
    /// [`len`](Region::len) bytes from there are readable and writable, and every process that has the region
    /// may change them at any time.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// The same as bytes that anybody may write at any time: for copies with the kernels of `polyduct-copy`.
    pub fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: as long as the region lives, so many bytes are there, readable and writable; AtomicU8 is a
        // byte that others may write.
        unsafe { std::slice::from_raw_parts(self.base.cast::<AtomicU8>(), self.len()) }
    }

    /// Copies `src` to `offset`. Done when it returns.
    ///
    /// # Errors
    /// [`OsError::OutOfRange`]: nothing was copied.
    #[inline]
    pub fn put(&self, offset: usize, src: &[u8]) -> Result<()> {
        fits(offset, src.len(), self.len())?;
        // SAFETY: the range lies in the mapping, which lives as long as `self` and is writable; `src` is the
        // caller's own memory, of which no part can be borrowed from here.
        unsafe { copy(src.as_ptr(), self.base.add(offset), src.len()) };
        Ok(())
    }

    /// Copies from `offset` into `dst`. Done when it returns.
    ///
    /// # Errors
    /// [`OsError::OutOfRange`]: nothing was copied.
    #[inline]
    pub fn get(&self, offset: usize, dst: &mut [u8]) -> Result<()> {
        fits(offset, dst.len(), self.len())?;
        // SAFETY: as in `put`.
        unsafe { copy(self.base.add(offset), dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }
}

/// Ordinary memory of a peer, that it has told the address of.
///
/// The kernel lets this process copy to and from all of the peer's memory, not only this: the bounds are
/// checked here, by the one who copies. A peer that tells a wrong address spoils its own memory and nothing
/// of this process.
#[derive(Debug)]
pub struct RemoteMemory {
    process: RemoteReader,
    address: u64,
    len: usize,
}

impl RemoteMemory {
    /// `len` bytes at `address` of a process. They are the peer's word: nothing else of it is ever touched.
    pub fn new(process: RemoteReader, address: u64, len: usize) -> RemoteMemory {
        RemoteMemory { process, address, len }
    }

    /// Copies `src` to `offset`. Done when it returns.
    ///
    /// # Errors
    /// [`OsError::OutOfRange`]; those of [`RemoteReader::write`].
    pub fn put(&self, offset: usize, src: &[u8]) -> Result<()> {
        self.process.write(src, self.at(offset, src.len())?)
    }

    /// Copies from `offset` into `dst`. Done when it returns.
    ///
    /// # Errors
    /// [`OsError::OutOfRange`]; those of [`RemoteReader::read`].
    pub fn get(&self, offset: usize, dst: &mut [u8]) -> Result<()> {
        self.process.read(dst, self.at(offset, dst.len())?)
    }

    fn at(&self, offset: usize, bytes: usize) -> Result<u64> {
        fits(offset, bytes, self.len)?;
        Ok(self.address.wrapping_add(offset as u64))
    }
}

/// Whether `bytes` bytes from `start` lie within `len`.
///
/// # Errors
/// [`OsError::OutOfRange`].
#[inline]
pub(super) fn fits(start: usize, bytes: usize, len: usize) -> Result<()> {
    match start.checked_add(bytes).filter(|&end| end <= len) {
        Some(_) => Ok(()),
        None => Err(out_of_range(start, bytes, len)),
    }
}

#[cold]
fn out_of_range(start: usize, bytes: usize, len: usize) -> OsError {
    OsError::OutOfRange { what: "a region".into(), start, end: start.saturating_add(bytes), len }
}

/// So few bytes are left to `memcpy`. It takes more by a string instruction, which on some processors is 15
/// times as slow where what is written lies less than 32 behind what is read but for whole pages.
const SHORT: usize = 2 << 10;
/// From so many bytes on a copy goes past the caches. Less stays in them: somebody will soon look at it.
const STREAM_FROM: usize = 4 << 20;
/// Nor do so many where what is written lies less than `ALIKE` behind what is read but for whole pages.
/// Processors that tell addresses apart by their last 12 bits hold each read up for the write before it, and
/// a copy through the caches takes 1.2 times as long. Arrays that `malloc` gives begin 16 bytes into a page,
/// regions with one.
const STREAM_ALIKE_FROM: usize = 128 << 10;
const ALIKE: usize = 256;

/// Copies `n` bytes of memory of this process, shared or its own, as fast as it can.
///
/// # Safety
/// `n` bytes at both addresses, which do not overlap; what other threads and processes do to the shared ones
/// only spoils bytes.
#[inline]
pub unsafe fn copy(src: *const u8, dst: *mut u8, n: usize) {
    if n <= SHORT {
        // SAFETY: the caller's.
        return unsafe { core::ptr::copy_nonoverlapping(src, dst, n) };
    }
    let alike = (1..ALIKE).contains(&(dst.addr().wrapping_sub(src.addr()) % 4096));
    // SAFETY: the caller's.
    let (src, dst) = unsafe { (Source::from_raw(src, n), Dest::from_raw(dst, n)) };
    let from = if alike { STREAM_ALIKE_FROM } else { STREAM_FROM };
    let copied = polyduct_copy::Kernels::detect().stream_from(from).memcpy(dst, src);
    debug_assert!(copied.is_ok(), "equal lengths that do not overlap");
}
