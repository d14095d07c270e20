//! Keeps forked children out of what is their parent's alone.
//!
//! A child has copies of all descriptors of its parent, closed only when it runs another program. One that
//! goes on as it is, as Python's `multiprocessing` makes them, would keep connections and listeners alive
//! after its parent's end: the kernel would go on answering for it, nobody would learn of its death, and its
//! names would stay taken. And what it wrote into memory that is mapped shared would be written in its
//! parent's.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Once;

mod mapped;

pub(crate) use mapped::OwnInChildren;

/// Numbers of descriptors that are kept; what has a higher one, which few systems allow, a child shares.
const NUMBERS: usize = 1 << 16;

/// For each number the inode of the socket that had it when it was kept, or 0. The number may mean something
/// else by now.
static KEPT: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];
/// One more than the highest of these numbers.
static END: AtomicUsize = AtomicUsize::new(0);

/// Keeps a socket from children that are forked from now on: in them its number stands for a socket without a
/// peer, so that copies of what owns it stay harmless. Nothing is to be done when it is closed.
///
/// Where the system cannot tell which socket it is, children share it.
///
/// ```
/// # use std::net::TcpListener;
/// let listener = TcpListener::bind(("127.0.0.1", 0))?;
/// polyduct_os::fork::keep(&listener);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn keep(socket: &impl AsFd) {
    watch();
    let fd = socket.as_fd();
    let number = fd.as_raw_fd() as usize;
    if let (Some(kept), Some(inode)) = (KEPT.get(number), socket_inode(fd.as_raw_fd())) {
        kept.store(inode, Ordering::Release);
        END.fetch_max(number + 1, Ordering::AcqRel);
    }
}

/// Has children set right what they have of this process.
fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: `in_child` does only what is allowed in a child of a program with threads: it reads and
        // writes atomics, and makes system calls. A library that is unloaded takes back what it registered.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    mapped::in_child();
    let mut nowhere = -1;
    for (number, kept) in KEPT.iter().enumerate().take(END.load(Ordering::Acquire)) {
        let (number, inode) = (number as libc::c_int, kept.swap(0, Ordering::AcqRel));
        if inode == 0 || socket_inode(number) != Some(inode) {
            continue;
        }
        // SAFETY: system calls on numbers. The child has one thread, and what owns this number here is a copy
        // that goes on owning it.
        unsafe {
            if nowhere < 0 {
                nowhere = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            }
            if nowhere < 0 || libc::dup3(nowhere, number, libc::O_CLOEXEC) < 0 {
                libc::close(number);
            }
        }
    }
    if nowhere >= 0 {
        // SAFETY: made above.
        unsafe { libc::close(nowhere) };
    }
}

/// Which socket a descriptor is, if it is one.
fn socket_inode(number: libc::c_int) -> Option<u64> {
    // SAFETY: a structure of integers, which the system fills in; a number that is none is refused.
    let (found, stat) = unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        (libc::fstat(number, &mut stat) == 0, stat)
    };
    (found && stat.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(stat.st_ino)
}
