//! Files beneath a directory, and only there.
//!
//! Names come from manifests, users and peers. Whatever they hold, nothing outside the directory is opened and no symbolic
//! link is followed.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, CWD};
use rustix::io::{retry_on_intr, Errno};

use crate::error::{OsError, Result};

pub use rustix::fs::{Mode as FileMode, OFlags as OpenFlags};

/// Opens a directory by its path, to work beneath it. The path is the user's own: links in it are followed.
pub fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
        .map_err(|e| OsError::sys("open", path.display().to_string(), e))
}

/// Opens `path` beneath `dir`, closed on exec.
///
/// # Errors
/// [`OsError::PathEscapes`] for an absolute path or one with `..`, [`OsError::SymbolicLink`] where it meets a link.
pub fn open_beneath(dir: BorrowedFd<'_>, path: &str, flags: OpenFlags, mode: FileMode) -> Result<OwnedFd> {
    let parts = parts(path)?;
    let flags = flags | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // This call, unlike its elders, refuses a mode that it has no use for.
    let mode = if flags.intersects(OFlags::CREATE | OFlags::TMPFILE) { mode } else { Mode::empty() };
    match retry_on_intr(|| rustix::fs::openat2(dir, path, flags, mode, resolve)) {
        Ok(fd) => Ok(fd),
        Err(Errno::NOSYS | Errno::PERM) => walk_beneath(dir, path, &parts, flags, mode),
        Err(e) => Err(refused(path, e)),
    }
}

/// The same where the kernel (before 5.6) or a sandbox has no `openat2`: one part at a time, following no link.
fn walk_beneath(
    dir: BorrowedFd<'_>,
    path: &str,
    parts: &[&str],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd> {
    let (last, above) = parts.split_last().ok_or_else(|| OsError::PathEscapes { path: path.into() })?;
    let step = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::PATH | OFlags::CLOEXEC;
    let mut held: Option<OwnedFd> = None;
    for part in above {
        let at = held.as_ref().map_or(dir, AsFd::as_fd);
        let next = retry_on_intr(|| rustix::fs::openat(at, *part, step, Mode::empty()));
        held = Some(next.map_err(|e| link_or(at, part, path, e))?);
    }
    let at = held.as_ref().map_or(dir, AsFd::as_fd);
    // What follows the last name says that it is a directory.
    let of_directory = path.ends_with('/') || path.ends_with("/.");
    let flags = if of_directory { flags | OFlags::DIRECTORY } else { flags };
    let found = retry_on_intr(|| rustix::fs::openat(at, *last, flags | OFlags::NOFOLLOW, mode))
        .map_err(|e| link_or(at, last, path, e))?;
    // With O_PATH a link itself would have been opened.
    let stat = rustix::fs::fstat(&found).map_err(|e| refused(path, e))?;
    match FileType::from_raw_mode(stat.st_mode).is_symlink() {
        true => Err(refused(path, Errno::LOOP)),
        false => Ok(found),
    }
}

/// A link met with `O_DIRECTORY` reads as "not a directory"; say what it is.
fn link_or(at: BorrowedFd<'_>, part: &str, path: &str, errno: Errno) -> OsError {
    let is_link = errno == Errno::NOTDIR
        && rustix::fs::statat(at, part, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_symlink());
    refused(path, if is_link { Errno::LOOP } else { errno })
}

fn refused(path: &str, errno: Errno) -> OsError {
    match errno {
        Errno::LOOP => OsError::SymbolicLink { path: path.into() },
        Errno::XDEV => OsError::PathEscapes { path: path.into() },
        e => OsError::sys("open", path, e),
    }
}

fn parts(path: &str) -> Result<Vec<&str>> {
    if path.is_empty() || path.contains('\0') {
        return Err(OsError::BadName { name: path.into(), reason: "empty, or with a zero byte" });
    }
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
    if path.starts_with('/') || parts.is_empty() || parts.contains(&"..") {
        return Err(OsError::PathEscapes { path: path.into() });
    }
    Ok(parts)
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
    match parts(name)?.as_slice() {
        [only] if *only == name => Ok(()),
        _ => Err(OsError::BadName { name: name.into(), reason: "not a single name" }),
    }
}

/// The directory for what belongs to this user's running programs: `$XDG_RUNTIME_DIR/polyduct`, else `/tmp/polyduct-UID`.
/// Made if needed.
///
/// # Errors
/// [`OsError::NotPrivate`] where it is not this user's alone, as when another user made it first.
pub fn runtime_dir() -> Result<(PathBuf, OwnedFd)> {
    let uid = rustix::process::geteuid().as_raw();
    let path = match std::env::var_os("XDG_RUNTIME_DIR").filter(|d| Path::new(d).is_absolute()) {
        Some(dir) => Path::new(&dir).join("polyduct"),
        None => PathBuf::from(format!("/tmp/polyduct-{uid}")),
    };
    private_dir(&path).map(|fd| (path, fd))
}

/// Opens a directory that only this user can enter, and makes it if needed.
pub fn private_dir(path: &Path) -> Result<OwnedFd> {
    let shown = || path.display().to_string();
    match retry_on_intr(|| rustix::fs::mkdir(path, Mode::RWXU)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(OsError::sys("mkdir", shown(), e)),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())).map_err(|e| match e {
        Errno::LOOP | Errno::NOTDIR if path.is_symlink() => OsError::SymbolicLink { path: shown() },
        e => OsError::sys("open", shown(), e),
    })?;
    let stat = rustix::fs::fstat(&fd).map_err(|e| OsError::sys("fstat", shown(), e))?;
    let mode = stat.st_mode & 0o777;
    if stat.st_uid != rustix::process::geteuid().as_raw() || mode & 0o077 != 0 {
        return Err(OsError::NotPrivate { path: shown(), uid: stat.st_uid, mode });
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn walking_refuses_what_openat2_refuses() {
        let root = std::env::temp_dir().join(format!("polyduct-os-walk-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "x").unwrap();
        symlink("a", root.join("in")).unwrap();
        symlink("/etc/passwd", root.join("a/out")).unwrap();
        let dir = open_dir(&root).unwrap();
        let mut answers = Vec::new();
        for path in [
            "a/b/file",
            "a",
            "in",
            "in/b/file",
            "a/out",
            "a/out/x",
            "none",
            "a/b/file/x",
            "a/b/file/",
            "a/b/file/.",
            "in/",
            "a/./b/",
        ] {
            for flags in [OFlags::RDONLY, OFlags::PATH, OFlags::RDONLY | OFlags::DIRECTORY] {
                let kernel = open_beneath(dir.as_fd(), path, flags, Mode::empty()).map(drop);
                let parts = parts(path).unwrap();
                let walked =
                    walk_beneath(dir.as_fd(), path, &parts, flags | OFlags::CLOEXEC, Mode::empty()).map(drop);
                answers.push((path, flags, kernel, walked));
            }
        }
        fs::remove_dir_all(&root).unwrap();
        for (path, flags, kernel, walked) in answers {
            assert_eq!(kernel, walked, "{path} {flags:?}");
        }
    }
}
