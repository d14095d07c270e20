//! Unnamed shared memory whose size cannot change.
//!
//! A segment is a memfd: no name that could be left behind, and it is gone with its last holder. Its creator
//! reserves every page and seals the size, and who receives it checks both, so that no access can end in
//! SIGBUS.
//!
//! # What the views promise
//!
//! Within one mapping the views keep Rust's rules. [`Segment::lines`] and [`Segment::bytes`] are atomics and
//! may be shared freely. [`Segment::slice_mut`] borrows the segment alone. [`Segment::slice`] is plain
//! memory, and so no byte is ever given both as an atomic and as plain memory while the segment is shared:
//! atomics lie below plain memory, and the first view that would cross is a [`OsError::ViewConflict`].
//!
//! *Another* mapping of the same memory, in another process or in this one, is beyond Rust's rules. A plain
//! view is accepted all the same, for zero copy: only processes of the same user get the descriptor, and the
//! protocol above gives each slot to its writer or to its readers, never both. A peer that breaks the
//! protocol can make the *content* of a view change while it is read. Content in shared memory is data, never
//! trusted for indexing: what steers the program is loaded once from an atomic view, checked, then used.

use core::mem::ManuallyDrop;
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use rustix::io::{retry_on_intr, Errno};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::error::{OsError, Result};
use crate::fork::OwnInChildren;
use crate::memory;

mod fault;
mod views;

pub use fault::SegmentFault;

/// What a mapping allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only plain reading; also for descriptors that cannot be written.
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

const NEEDED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// Long calls are cut into pieces of this size, so that a signal (which undoes a piece) cannot stop them for
/// ever.
const PIECE: usize = 64 << 20;

/// A mapped, sealed memfd. The mapping goes with the value, the memory with its last holder. One that nobody
/// asks for its descriptor any more need not [have it](Segment::into_parts): `Segment<()>`.
#[derive(Debug)]
pub struct Segment<D = OwnedFd> {
    fd: D,
    base: NonNull<u8>,
    len: usize,
    access: Access,
    created: bool,
    /// End of the bytes given as atomics, and start of those given as plain memory, through a shared
    /// reference. Invariant: `atomic_end <= plain_start`. Under `dividing` they move towards each other; only
    /// the segment alone resets them.
    atomic_end: AtomicUsize,
    plain_start: AtomicUsize,
    dividing: Mutex<()>,
    own_in_children: Option<OwnInChildren>,
}

// SAFETY: the mapping belongs to the value and not to a thread; every access is through the views, which keep
// the rules.
unsafe impl<D: Send> Send for Segment<D> {}
// SAFETY: through a shared reference there are only atomics and read-only memory, and no byte is both.
unsafe impl<D: Sync> Sync for Segment<D> {}

impl Segment {
    /// Makes a segment of `len` zero bytes, reserved and sealed. `name` is only what tools show.
    ///
    /// # Errors
    /// [`OsError::NoMemory`] where `len` bytes cannot be had now, without touching the memory of others.
    pub fn create(name: &str, len: usize) -> Result<Segment> {
        Segment::create_partly(name, len, core::slice::from_ref(&(0..len)))
    }

    /// The same with memory for some `parts` only; the rest is to be [reserved](Segment::reserve) before it
    /// is used.
    ///
    /// # Errors
    /// As [`create`](Segment::create), for what the parts take.
    pub fn create_partly(name: &str, len: usize, parts: &[Range<usize>]) -> Result<Segment> {
        let taken = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let (obtainable, file_size) = (memory::obtainable_bytes(), memory::file_size_limit_bytes());
        let under = match file_size < obtainable {
            true => " under the limit of file sizes (RLIMIT_FSIZE, `ulimit -f`)",
            false => "",
        };
        let refuse = |available_bytes| OsError::NoMemory {
            what: format!("segment {name:?}{under}"),
            asked_bytes: taken,
            available_bytes,
        };
        if len == 0 || name.len() > 200 || name.contains('\0') {
            let reason = if len == 0 { "a segment needs at least one byte" } else { "no memfd can have it" };
            return Err(OsError::BadName { name: name.into(), reason });
        }
        // The kernel would fill a memfd until it kills somebody, so ask first what there is.
        if taken > obtainable || len as u64 > file_size || len > isize::MAX as usize {
            return Err(refuse(Some(obtainable.min(file_size))));
        }
        let fail = |op, errno| match errno {
            Errno::NOSPC | Errno::NOMEM | Errno::FBIG => refuse(None),
            errno => OsError::sys(op, format!("segment {name:?} of {len} bytes"), errno),
        };
        let base = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = match rustix::fs::memfd_create(name, base | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => rustix::fs::memfd_create(name, base), // before Linux 6.3
            other => other,
        }
        .map_err(|e| fail("memfd_create", e))?;
        crate::limits::made(&fd);
        retry_on_intr(|| rustix::fs::ftruncate(&fd, len as u64)).map_err(|e| fail("ftruncate", e))?;
        for part in parts {
            reserve(&fd, part.clone()).map_err(|e| fail("fallocate", e))?;
        }
        rustix::fs::fcntl_add_seals(&fd, NEEDED | SealFlags::SEAL).map_err(|e| fail("seal", e))?;
        let base = map(&fd, len, Access::ReadWrite).map_err(|e| fail("mmap", e))?;
        Ok(Segment::new(fd, base, len, Access::ReadWrite, true))
    }

    /// Maps a segment that a peer handed over, after checking that it is one: an ordinary memfd, its size
    /// sealed and within `min_len..=max_len`, its pages reserved.
    ///
    /// # Errors
    /// [`OsError::BadSegment`] says what is wrong with it; the descriptor is closed.
    pub fn from_fd(fd: OwnedFd, min_len: usize, max_len: usize, access: Access) -> Result<Segment> {
        Segment::map_fd(fd, min_len, max_len, None, access)
    }

    /// The same of one that has memory for [parts](Segment::create_partly) only, of `least_bytes` together.
    ///
    /// # Errors
    /// As [`from_fd`](Segment::from_fd).
    pub fn from_fd_partly(
        fd: OwnedFd,
        min_len: usize,
        max_len: usize,
        least_bytes: usize,
        access: Access,
    ) -> Result<Segment> {
        Segment::map_fd(fd, min_len, max_len, Some(least_bytes), access)
    }

    /// The segment, if it has memory for so many bytes, or for all.
    fn map_fd(
        fd: OwnedFd,
        min_len: usize,
        max_len: usize,
        least_bytes: Option<usize>,
        access: Access,
    ) -> Result<Segment> {
        let fail = |op, errno| OsError::sys(op, "a segment from a peer", errno);
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| SegmentFault::NotMemfd)?;
        let fs = rustix::fs::fstatfs(&fd).map_err(|e| fail("fstatfs", e))?;
        if fs.f_type as i64 != TMPFS_MAGIC {
            return Err(SegmentFault::NotMemfd.into()); // huge pages of hugetlbfs are not reserved by length
        }
        if !seals.contains(NEEDED) {
            let (needed, found) = (NEEDED.bits(), seals.bits());
            return Err(SegmentFault::Unsealed { needed, found }.into());
        }
        // The size is final from here on.
        let stat = rustix::fs::fstat(&fd).map_err(|e| fail("fstat", e))?;
        let found_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        if found_bytes < min_len.max(1) as u64 {
            return Err(SegmentFault::TooShort { min_bytes: min_len.max(1), found_bytes }.into());
        }
        let max_bytes = max_len.min(isize::MAX as usize);
        if found_bytes > max_bytes as u64 {
            return Err(SegmentFault::TooLong { max_bytes, found_bytes }.into());
        }
        let len = found_bytes as usize;
        let reserved_bytes = held_bytes(&fd).map_err(|e| fail("fstat", e))?;
        let len_bytes = least_bytes.unwrap_or(len) as u64;
        if reserved_bytes < len_bytes {
            return Err(SegmentFault::NotReserved { reserved_bytes, len_bytes }.into());
        }
        let base = map(&fd, len, access).map_err(|e| match e {
            Errno::NOMEM => OsError::NoMemory {
                what: "mapping a segment from a peer".into(),
                asked_bytes: found_bytes,
                available_bytes: None,
            },
            e => fail("mmap", e),
        })?;
        Ok(Segment::new(fd, base, len, access, false))
    }

    /// Gives a part its memory, as far as it has none yet. Where that fails some of it may have memory.
    ///
    /// # Errors
    /// [`OsError::NoMemory`]; a range beyond the end.
    pub fn reserve(&self, part: Range<usize>) -> Result<()> {
        self.check(&part)?;
        // What has been written is there, and not asked for again.
        let hole = rustix::fs::seek(&self.fd, SeekFrom::Hole(part.start as u64));
        let start = hole.map_or(part.start, |hole| (hole as usize).clamp(part.start, part.end));
        let part = start..part.end;
        let asked_bytes = part.len() as u64;
        if asked_bytes > memory::obtainable_bytes() {
            return Err(OsError::NoMemory { what: "a segment".into(), asked_bytes, available_bytes: None });
        }
        reserve(&self.fd, part).map_err(|errno| match errno {
            Errno::NOSPC | Errno::NOMEM | Errno::FBIG => {
                OsError::NoMemory { what: "a segment".into(), asked_bytes, available_bytes: None }
            }
            errno => OsError::sys("fallocate", "a segment", errno),
        })
    }

    /// Gives the memory back of the pages that lie in a part as wholes: they are zero from then on, and have
    /// none until they are [reserved](Segment::reserve) again.
    ///
    /// # Errors
    /// A range beyond the end; the system's refusal.
    pub fn release(&self, part: Range<usize>) -> Result<()> {
        self.check(&part)?;
        let page = rustix::param::page_size();
        let (start, end) = (part.start.next_multiple_of(page), part.end / page * page);
        if start >= end {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| rustix::fs::fallocate(&self.fd, flags, start as u64, (end - start) as u64))
            .map_err(|errno| OsError::sys("fallocate", "a segment", errno))
    }

    /// Bytes of memory that it has now.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn held_bytes(&self) -> Result<u64> {
        held_bytes(&self.fd).map_err(|errno| OsError::sys("fstat", "a segment", errno))
    }

    /// Maps a segment that a predecessor of this process made and filled, to go on filling it in place.
    /// Checked as by [`from_fd_partly`](Segment::from_fd_partly); it must have `len` bytes.
    pub fn take_over(fd: OwnedFd, len: usize) -> Result<Segment> {
        let mut segment = Segment::from_fd_partly(fd, len, len, 0, Access::ReadWrite)?;
        segment.created = true;
        Ok(segment)
    }

    fn new(fd: OwnedFd, base: NonNull<u8>, len: usize, access: Access, created: bool) -> Segment {
        let (atomic_end, plain_start) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        Segment {
            fd,
            base,
            len,
            access,
            created,
            atomic_end,
            plain_start,
            dividing: Mutex::new(()),
            own_in_children: None,
        }
    }

    /// Lets children that are forked from now on have this memory for themselves: what they write into it,
    /// here or elsewhere nobody sees. They see what this process writes, page by page until they write there.
    /// For memory that this process fills while it may fork; where thousands of segments are kept so,
    /// children share the rest.
    pub fn keep_from_children(&mut self) {
        if self.access == Access::ReadWrite && self.own_in_children.is_none() {
            // SAFETY: the whole mapping of this descriptor, from which `drop` takes this before the mapping
            // goes.
            let own = unsafe { OwnInChildren::new(self.base.as_ptr(), self.len, self.fd()) };
            self.own_in_children = own;
        }
    }

    /// The descriptor, to hand to a peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The mapping without the descriptor, and the descriptor.
    pub fn into_parts(mut self) -> (Segment<()>, OwnedFd) {
        // Children would need it to have the memory for themselves.
        self.own_in_children = None;
        let whole = ManuallyDrop::new(self);
        // SAFETY: read once each; what they are read from is not dropped. The other fields are copied or own
        // nothing.
        let (fd, dividing) = unsafe { (ptr::read(&whole.fd), ptr::read(&whole.dividing)) };
        let mapping = Segment {
            fd: (),
            base: whole.base,
            len: whole.len,
            access: whole.access,
            created: whole.created,
            atomic_end: AtomicUsize::new(whole.atomic_end.load(Relaxed)),
            plain_start: AtomicUsize::new(whole.plain_start.load(Relaxed)),
            dividing,
            own_in_children: None,
        };
        (mapping, fd)
    }
}

impl<D> Segment<D> {
    /// Its length in bytes; never zero.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// What this mapping allows.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The address of the first byte in this process, for peers that read it with [`crate::remote`].
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Brings the pages of `range` into this process's tables, so that the first use does not pay for it.
    /// Large ranges may be split over threads. Content does not change.
    pub fn prefault(&self, range: Range<usize>) -> Result<()> {
        self.check(&range)?;
        let page = rustix::param::page_size();
        let advice = match self.access {
            Access::ReadWrite => Advice::LinuxPopulateWrite,
            Access::ReadOnly => Advice::LinuxPopulateRead,
        };
        let first = range.start / page * page;
        for at in (first..range.end).step_by(PIECE) {
            let piece = PIECE.min(range.end - at);
            // SAFETY: page-aligned and within the mapping; populating changes no content.
            match retry_on_intr(|| unsafe { rustix::mm::madvise(self.at(at).cast(), piece, advice) }) {
                Ok(()) => {}
                Err(Errno::INVAL) => {
                    // Before Linux 5.14; and where that is not allowed either, the first use pays.
                    let _ = self.prefault_by_reading(first..range.end, page);
                    return Ok(());
                }
                Err(Errno::NOMEM | Errno::FAULT) => {
                    let what = "touching a segment".into();
                    return Err(OsError::NoMemory { what, asked_bytes: piece as u64, available_bytes: None });
                }
                Err(e) => return Err(OsError::sys("madvise", "a segment", e)),
            }
        }
        Ok(())
    }

    /// Lets the kernel touch one byte of every page: no access of ours, so no race with the other views.
    fn prefault_by_reading(&self, range: Range<usize>, page: usize) -> Result<()> {
        let me = crate::remote::RemoteReader::new(std::process::id())?;
        let mut sink = [0_u8; 1];
        let runs = range.step_by(page).map(|at| (0, self.address() + at as u64, 1));
        me.read_runs(&mut sink, runs).map(|_| ())
    }
}

impl<D> Drop for Segment<D> {
    fn drop(&mut self) {
        self.own_in_children = None;
        // SAFETY: the mapping is this value's own, and every view borrowed from it has ended. It cannot fail
        // for a whole mapping; were it to, the mapping would only stay.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn held_bytes(fd: &OwnedFd) -> rustix::io::Result<u64> {
    let blocks = rustix::fs::fstat(fd)?.st_blocks;
    Ok(u64::try_from(blocks).unwrap_or(0).saturating_mul(512))
}

fn reserve(fd: &OwnedFd, part: Range<usize>) -> rustix::io::Result<()> {
    for at in part.clone().step_by(PIECE) {
        let piece = PIECE.min(part.end - at) as u64;
        retry_on_intr(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), at as u64, piece))?;
    }
    Ok(())
}

fn map(fd: &OwnedFd, len: usize, access: Access) -> rustix::io::Result<NonNull<u8>> {
    let prot = match access {
        Access::ReadOnly => ProtFlags::READ,
        Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
    };
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
    let at = unsafe { rustix::mm::mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0) }?;
    NonNull::new(at.cast()).ok_or(Errno::NOMEM)
}
