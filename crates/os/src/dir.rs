//! Files that get their name when they are complete, and files beneath a directory.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, CWD};
use rustix::io::{retry_on_intr, Errno};

use crate::error::{OsError, Result};

pub use rustix::fs::Mode as FileMode;

/// Opens a directory by its path; links in it are followed.
pub fn open_dir(path: &Path) -> Result<OwnedFd> {
    open_dir_at(CWD, path)
}

/// The same from a directory that is open.
pub fn open_dir_at(dir: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(dir, path, flags, Mode::empty()))
        .map_err(|e| OsError::sys("open", path.display().to_string(), e))
}

/// A new file in `dir` that has no name yet and vanishes unless [`link_as`] gives it one; `None` where the
/// file system cannot.
pub fn tmpfile_in(dir: BorrowedFd<'_>, mode: FileMode) -> Result<Option<OwnedFd>> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match retry_on_intr(|| rustix::fs::openat(dir, ".", flags, mode)) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(e) => Err(OsError::sys("open", "an unnamed file", e)),
    }
}

/// Gives an open file the name `name` in `dir`, in place of what had it: at every moment the name is the old
/// file or the new. What has to survive a power cut is the caller's to sync, the file before and the
/// directory after. Where there is a file, the new one is called `passing` for a moment: what a process left there
/// that was killed is taken away.
pub fn link_as(file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &str, passing: &str) -> Result<()> {
    single(name)?;
    single(passing)?;
    let fail = |op, e| OsError::sys(op, name, e);
    match link(file, dir, name) {
        Err(Errno::EXIST) => {}
        other => return other.map_err(|e| fail("linkat", e)),
    }
    for _ in 0..MAX_ROUNDS {
        match link(file, dir, passing) {
            Err(Errno::EXIST) => {
                let _ = rustix::fs::unlinkat(dir, passing, AtFlags::empty());
                continue;
            }
            other => other.map_err(|e| fail("linkat", e))?,
        }
        match retry_on_intr(|| rustix::fs::renameat(dir, passing, dir, name)) {
            // Another process that replaces the file took it for left behind.
            Err(Errno::NOENT) => {}
            renamed => {
                // Where both names are the same file already, rename leaves them both.
                let _ = rustix::fs::unlinkat(dir, passing, AtFlags::empty());
                return renamed.map_err(|e| fail("rename", e));
            }
        }
    }
    Err(fail("rename", Errno::AGAIN))
}

fn link(file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    let by_number = format!("/proc/self/fd/{}", file.as_raw_fd());
    retry_on_intr(|| rustix::fs::linkat(CWD, &by_number, dir, name, AtFlags::SYMLINK_FOLLOW))
}

/// Makes the names in a directory last. Where one cannot be synced, as on some network file systems, they are
/// there and that is all.
///
/// # Errors
/// The system's.
pub fn sync(dir: impl AsFd) -> core::result::Result<(), Errno> {
    match retry_on_intr(|| rustix::fs::fsync(&dir)) {
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::ROFS) => Ok(()),
        synced => synced,
    }
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

/// Directories in each other that [`remove_tree`] goes into.
const MAX_DEPTH: usize = 64;
/// Rounds of [`remove_tree`] while others still put files there.
const MAX_ROUNDS: usize = 64;

/// Removes the directory `name` in `dir` with all that is in it; returns whether there was one. Links are
/// removed, not followed. What others put there meanwhile is removed, too.
pub fn remove_tree(dir: BorrowedFd<'_>, name: &str) -> Result<bool> {
    remove_tree_from(dir, name, &[])
}

/// The same, of each directory in it files of these names first.
///
/// # Errors
/// As [`remove_tree`].
pub fn remove_tree_from(dir: BorrowedFd<'_>, name: &str, first: &[&str]) -> Result<bool> {
    single(name)?;
    match remove_beneath(dir, name.as_ref(), MAX_DEPTH, first) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(OsError::sys("remove", name, e)),
    }
}

fn remove_beneath(dir: BorrowedFd<'_>, name: &OsStr, depth: usize, first: &[&str]) -> rustix::io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..MAX_ROUNDS {
        let inner = retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?;
        for file in first {
            let _ = rustix::fs::unlinkat(&inner, *file, AtFlags::empty());
        }
        for entry in rustix::fs::Dir::read_from(&inner)? {
            let entry = entry?;
            let child = OsStr::from_bytes(entry.file_name().to_bytes());
            if child == "." || child == ".." {
                continue;
            }
            let removed = match retry_on_intr(|| rustix::fs::unlinkat(&inner, child, AtFlags::empty())) {
                Err(Errno::ISDIR | Errno::PERM) if depth == 0 => Err(Errno::LOOP),
                Err(Errno::ISDIR | Errno::PERM) => remove_beneath(inner.as_fd(), child, depth - 1, first),
                other => other,
            };
            match removed {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
        }
        match retry_on_intr(|| rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            other => return other,
        }
    }
    Err(Errno::NOTEMPTY)
}

/// Bytes that are free, and that there are, on the disk of a directory.
///
/// # Errors
/// [`OsError::System`].
pub fn room(path: &Path) -> Result<(u64, u64)> {
    let s = retry_on_intr(|| rustix::fs::statvfs(path))
        .map_err(|e| OsError::sys("statvfs", path.display().to_string(), e))?;
    Ok((s.f_bavail.saturating_mul(s.f_frsize), s.f_blocks.saturating_mul(s.f_frsize)))
}

/// How a file beneath a directory is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// To be read.
    Read,
    /// To be read and written.
    Write,
    /// The same; it is made where it is not there.
    Make,
}

/// Opens the file `path` beneath `dir`: nothing in the path leads out of it, by `..`, an absolute path, or a
/// symbolic link. With `direct` its bytes go past the system's cache where the file system can do that;
/// whether they do is the second value.
///
/// # Errors
/// [`OsError::BadName`] for a path that leads out or through a link, or to anything but a file: a pipe would
/// keep whoever reads it; [`OsError::System`].
pub fn open_beneath(dir: BorrowedFd<'_>, path: &str, how: Open, direct: bool) -> Result<(OwnedFd, bool)> {
    let access = match how {
        Open::Read => OFlags::RDONLY,
        Open::Write => OFlags::RDWR,
        Open::Make => OFlags::RDWR | OFlags::CREATE,
    };
    let mode = if how == Open::Make { Mode::from_bits_retain(0o666) } else { Mode::empty() };
    let with =
        |more| file(path, beneath(dir, path, access | more | OFlags::NONBLOCK | OFlags::NOCTTY, mode)?);
    if direct {
        match with(OFlags::DIRECT) {
            Err(OsError::System { errno: Errno::INVAL, .. }) => {}
            other => return other.map(|fd| (fd, true)),
        }
    }
    with(OFlags::empty()).map(|fd| (fd, false))
}

/// What was opened without waiting for it, if it is a file.
fn file(path: &str, fd: OwnedFd) -> Result<OwnedFd> {
    let sys = |op| move |e| OsError::sys(op, path, e);
    let found = FileType::from_raw_mode(rustix::fs::fstat(&fd).map_err(sys("fstat"))?.st_mode);
    if found != FileType::RegularFile {
        return Err(OsError::BadName { name: path.into(), reason: "is not a file" });
    }
    // Requests to a ring would be refused where they cannot be done at once.
    let flags = rustix::fs::fcntl_getfl(&fd).map_err(sys("fcntl"))?;
    rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK).map_err(sys("fcntl"))?;
    Ok(fd)
}

/// Opens the directory `path` beneath `dir`; with `make` it is made where it is not there.
///
/// # Errors
/// As [`open_beneath`].
pub fn open_dir_beneath(dir: BorrowedFd<'_>, path: &str, make: bool) -> Result<OwnedFd> {
    if make {
        single(path)?;
        match retry_on_intr(|| rustix::fs::mkdirat(dir, path, Mode::from_bits_retain(0o777))) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(OsError::sys("mkdir", path, e)),
        }
    }
    beneath(dir, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

fn beneath(dir: BorrowedFd<'_>, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match retry_on_intr(|| rustix::fs::openat2(dir, path, flags | OFlags::CLOEXEC, mode, resolve)) {
        Ok(fd) => Ok(fd),
        Err(Errno::XDEV | Errno::LOOP) => Err(OsError::BadName {
            name: path.into(),
            reason: "leads out of its directory, or through a link",
        }),
        // Before Linux 5.6, and where a sandbox does not know it: names without `/` need no more than this.
        Err(Errno::NOSYS | Errno::PERM) if single(path).is_ok() => {
            retry_on_intr(|| rustix::fs::openat(dir, path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode))
                .map_err(|e| OsError::sys("open", path, e))
        }
        Err(e) => Err(OsError::sys("open", path, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out_of_a_directory() {
        let root = std::env::temp_dir().join(format!("polyduct-os-beneath-{}", std::process::id()));
        std::fs::create_dir_all(root.join("in")).unwrap();
        std::fs::write(root.join("outside"), "x").unwrap();
        std::os::unix::fs::symlink("../outside", root.join("in/link")).unwrap();
        let dir = open_dir(&root.join("in")).unwrap();
        let absolute = root.join("outside").display().to_string();
        for path in ["../outside", "link", "sub/../../outside", &absolute, "/proc/self/root"] {
            let error = open_beneath(dir.as_fd(), path, Open::Read, false).unwrap_err();
            assert!(matches!(error, OsError::BadName { .. } | OsError::System { .. }), "{path}: {error}");
            assert!(open_beneath(dir.as_fd(), path, Open::Make, true).is_err(), "{path}");
        }
        assert!(open_beneath(dir.as_fd(), "file", Open::Read, false).is_err());
        let (file, _) = open_beneath(dir.as_fd(), "file", Open::Make, true).unwrap();
        drop(file);
        let sub = open_dir_beneath(dir.as_fd(), "sub", true).unwrap();
        open_beneath(sub.as_fd(), "deep", Open::Make, false).unwrap();
        open_beneath(dir.as_fd(), "sub/deep", Open::Read, false).unwrap();
        assert!(open_dir_beneath(dir.as_fd(), "../other", true).is_err());
        // A directory, and a pipe at whose other end nobody is.
        rustix::fs::mknodat(&dir, "pipe", FileType::Fifo, Mode::from_bits_retain(0o600), 0).unwrap();
        for (path, how) in
            [("sub", Open::Read), ("pipe", Open::Read), ("pipe", Open::Write), ("pipe", Open::Make)]
        {
            let error = open_beneath(dir.as_fd(), path, how, true).unwrap_err();
            assert!(matches!(error, OsError::BadName { reason: "is not a file", .. }), "{path}: {error}");
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
