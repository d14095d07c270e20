//! Files that get their name when they are complete.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, CWD};
use rustix::io::{retry_on_intr, Errno};

use crate::error::{OsError, Result};

pub use rustix::fs::Mode as FileMode;

/// Opens a directory by its path; links in it are followed.
pub fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
        .map_err(|e| OsError::sys("open", path.display().to_string(), e))
}

/// A new file in `dir` that has no name yet and vanishes unless [`link_as`] gives it one; `None` where the file system
/// cannot.
pub fn tmpfile_in(dir: BorrowedFd<'_>, mode: FileMode) -> Result<Option<OwnedFd>> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match retry_on_intr(|| rustix::fs::openat(dir, ".", flags, mode)) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(e) => Err(OsError::sys("open", "an unnamed file", e)),
    }
}

/// Gives an open file the name `name` in `dir`, in place of what had it: at every moment the name is the old file or the new.
/// What has to survive a power cut is the caller's to sync, the file before and the directory after.
pub fn link_as(file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &str) -> Result<()> {
    single(name)?;
    let fail = |op, e| OsError::sys(op, name, e);
    match link(file, dir, name) {
        Err(Errno::EXIST) => {}
        other => return other.map_err(|e| fail("linkat", e)),
    }
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let passing = format!(".polyduct-{}-{serial}.tmp", std::process::id());
        match link(file, dir, &passing) {
            Err(Errno::EXIST) => continue, // left by a process that died here and had our number
            other => other.map_err(|e| fail("linkat", e))?,
        }
        let renamed = retry_on_intr(|| rustix::fs::renameat(dir, &passing, dir, name));
        // Where both names are the same file already, rename leaves them both.
        let _ = rustix::fs::unlinkat(dir, &passing, AtFlags::empty());
        return renamed.map_err(|e| fail("rename", e));
    }
}

fn link(file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    let by_number = format!("/proc/self/fd/{}", file.as_raw_fd());
    retry_on_intr(|| rustix::fs::linkat(CWD, &by_number, dir, name, AtFlags::SYMLINK_FOLLOW))
}

/// Removes the file `name` in `dir`; returns whether there was one.
pub fn remove(dir: BorrowedFd<'_>, name: &str) -> Result<bool> {
    single(name)?;
    match retry_on_intr(|| rustix::fs::unlinkat(dir, name, AtFlags::empty())) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(OsError::sys("unlinkat", name, e)),
    }
}

fn single(name: &str) -> Result<()> {
    if name.is_empty() || name.contains(['/', '\0']) || matches!(name, "." | "..") {
        return Err(OsError::BadName { name: name.into(), reason: "no name of a file in a directory" });
    }
    Ok(())
}
