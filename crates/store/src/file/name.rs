//! The name that a path means in the end, in its directory: links are followed once, and from then on the
//! directory is held open.

use crate::FileError;
use polyduct_os::{dir, Errno};
use rustix::fs::{AtFlags, FileType, Stat, CWD};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The most links that are followed one after the other, as many as the system follows.
const MAX_LINKS: usize = 40;

/// A name that is no symbolic link, and what has it.
pub struct Name {
    pub dir: OwnedFd,
    pub name: String,
    /// `None` where nothing has it.
    pub stat: Option<Stat>,
}

impl Name {
    /// Looks a path up. Where it is a symbolic link, what has the name is what the link stands for, also
    /// where that is not there yet.
    ///
    /// # Errors
    /// [`FileError::BadPath`] for what cannot be a file's name, and links that lead to no end;
    /// [`FileError::System`] where a directory on the way is not there.
    pub fn find(path: &Path, shown: &str) -> Result<Name, FileError> {
        let bad = |problem| FileError::BadPath { path: shown.to_owned(), problem };
        let sys = |op: &str, e| FileError::sys(shown, op, e);
        // Of a link, what it stands for is relative to the directory that it is in.
        let mut inner: Option<OwnedFd> = None;
        let mut path = path.to_owned();
        for links in 0..=MAX_LINKS {
            let name = last(&path).map_err(bad)?.to_owned();
            let parent = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            let from = inner.as_ref().map_or(CWD, AsFd::as_fd);
            let open =
                if links == 0 { "open its directory" } else { "open the directory that its link leads to" };
            let dir = dir::open_dir_at(from, parent).map_err(|e| match e.errno() {
                Some(errno) => sys(open, errno),
                None => FileError::os(shown)(e),
            })?;
            let stat = match rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                    let to = rustix::fs::readlinkat(&dir, &name, Vec::new())
                        .map_err(|e| sys("read its link", e))?;
                    (path, inner) = (PathBuf::from(OsStr::from_bytes(to.as_bytes())), Some(dir));
                    continue;
                }
                Ok(stat) => Some(stat),
                Err(Errno::NOENT) => None,
                Err(e) => return Err(sys("stat", e)),
            };
            return Ok(Name { dir, name, stat });
        }
        Err(bad("its symbolic links lead to one another, or there are more than 40"))
    }
}

/// The last part of a path, which is to be a file's name.
fn last(path: &Path) -> Result<&str, &'static str> {
    let text = path.as_os_str().as_encoded_bytes();
    match path.components().next_back() {
        _ if text.ends_with(b"/") || text.ends_with(b"/.") => Err("it names a directory"),
        Some(Component::Normal(name)) => name.to_str().ok_or("its name is not UTF-8"),
        None => Err("it is empty"),
        Some(_) => Err("it names a directory"),
    }
}
