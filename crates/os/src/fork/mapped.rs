//! Shared memory that a process fills, and that its children have for themselves: they see what lies in it,
//! and what they write there stays theirs.

use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Mappings that are noted at once; what is beyond, children share.
const MAPPINGS: usize = 4096;

/// What a child needs to map it again. A child of a program with threads may not take a lock, and so these
/// are atomics.
struct Mapped {
    /// Where it lies; 0: the entry is free; 1: it is being written.
    base: AtomicUsize,
    len: AtomicUsize,
    fd: AtomicUsize,
    /// Of the file behind it: its number may mean something else by the time of the fork.
    inode: AtomicU64,
}

const FREE: usize = 0;
const BUSY: usize = 1;

static MAPPED: [Mapped; MAPPINGS] = [const {
    Mapped {
        base: AtomicUsize::new(FREE),
        len: AtomicUsize::new(0),
        fd: AtomicUsize::new(0),
        inode: AtomicU64::new(0),
    }
}; MAPPINGS];

/// Notes, for as long as it lives, that children get a mapping for themselves.
#[derive(Debug)]
pub(crate) struct OwnInChildren {
    entry: usize,
    base: usize,
}

impl OwnInChildren {
    /// Of the whole of a file that is mapped shared and writable at `base`. `None` where too many are noted.
    ///
    /// # Safety
    /// `base` and `len` are such a mapping of this file, until this is dropped.
    pub(crate) unsafe fn new(base: *mut u8, len: usize, fd: BorrowedFd<'_>) -> Option<OwnInChildren> {
        super::watch();
        let inode = inode(fd.as_raw_fd())?;
        let free = |entry: &Mapped| {
            entry.base.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let entry = MAPPED.iter().position(free)?;
        let Mapped { base: at, len: bytes, fd: number, inode: file } = &MAPPED[entry];
        bytes.store(len, Ordering::Relaxed);
        number.store(fd.as_raw_fd() as usize, Ordering::Relaxed);
        file.store(inode, Ordering::Relaxed);
        at.store(base as usize, Ordering::Release);
        Some(OwnInChildren { entry, base: base as usize })
    }
}

impl Drop for OwnInChildren {
    fn drop(&mut self) {
        // In a child it may be another mapping's by now.
        let entry = &MAPPED[self.entry].base;
        let _ = entry.compare_exchange(self.base, FREE, Ordering::Release, Ordering::Relaxed);
    }
}

/// Maps all of them anew, for this process alone. Only atomics and system calls.
pub(super) fn in_child() {
    for entry in &MAPPED {
        // Its own children have copies of what it has, as of any other memory.
        let base = entry.base.swap(FREE, Ordering::Acquire);
        if base <= BUSY {
            continue;
        }
        let (len, fd) = (entry.len.load(Ordering::Relaxed), entry.fd.load(Ordering::Relaxed) as libc::c_int);
        let is_it = inode(fd) == Some(entry.inode.load(Ordering::Relaxed));
        let (base, allowed) = (base as *mut libc::c_void, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: whoever noted it says that this is a whole mapping of the file; the new one has the same
        // place, size and content. Where it is not to be had, reading goes on, and writing is an error here
        // rather than harm to others.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
            if !is_it || libc::mmap(base, len, allowed, flags, fd, 0) == libc::MAP_FAILED {
                libc::mprotect(base, len, libc::PROT_READ);
            }
        }
    }
}

/// The inode of a file; memfds of all processes have different ones.
fn inode(fd: libc::c_int) -> Option<u64> {
    // SAFETY: a structure of integers, which the system fills in; a number that is none is refused.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        (libc::fstat(fd, ptr::from_mut(&mut stat)) == 0).then_some(stat.st_ino)
    }
}
