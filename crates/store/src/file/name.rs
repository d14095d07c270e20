//! The name that a path means in the end, in its directory: links are followed once, and from then on the
//! directory is held open.

use crate::FileError;
use polyduct_os::{dir, Errno};
use rustix::fs::{AtFlags, FileType, Mode, Stat, CWD};
use rustix::process::geteuid;
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
    /// The directory of the path itself, where that is a symbolic link.
    pub link_dir: Option<OwnedFd>,
}

impl Name {
    /// Looks a path up. Where it is a symbolic link, what has the name is what the link stands for, also
    /// where that is not there yet.
    ///
    /// # Errors
    /// [`FileError::BadPath`] for what cannot be a file's name, links that lead to no end, and links of other
    /// users in directories where all may write; [`FileError::System`] where a directory on the way is not
    /// there.
    pub fn find(path: &Path, shown: &str) -> Result<Name, FileError> {
        let bad = |problem| FileError::BadPath { path: shown.to_owned(), problem };
        let sys = |op: &str, e| FileError::sys(shown, op, e);
        // Of a link, what it stands for is relative to the directory that it is in.
        let mut inner: Option<OwnedFd> = None;
        let mut link_dir = None;
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
                    let held = rustix::fs::fstat(&dir).map_err(|e| sys("stat its directory", e))?;
                    if !may_follow((held.st_mode, held.st_uid), stat.st_uid, geteuid().as_raw()) {
                        return Err(bad(
                            "it is another user's symbolic link, in a directory where all may write",
                        ));
                    }
                    if links == 0 {
                        link_dir = dir.try_clone().ok();
                    }
                    let to = rustix::fs::readlinkat(&dir, &name, Vec::new())
                        .map_err(|e| sys("read its link", e))?;
                    (path, inner) = (PathBuf::from(OsStr::from_bytes(to.as_bytes())), Some(dir));
                    continue;
                }
                Ok(stat) => Some(stat),
                Err(Errno::NOENT) => None,
                Err(e) => return Err(sys("stat", e)),
            };
            return Ok(Name { dir, name, stat, link_dir });
        }
        Err(bad("its symbolic links lead to one another, or there are more than 40"))
    }
}

/// Whether a link is followed by whom the system would let write through it where it protects links
/// (`fs.protected_symlinks`): the name is looked up here, so the system is not asked.
fn may_follow((dir_mode, dir_owner): (u32, u32), link_owner: u32, user: u32) -> bool {
    let shared = (Mode::SVTX | Mode::WOTH).as_raw_mode();
    dir_mode & shared != shared || link_owner == user || link_owner == dir_owner
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

#[cfg(test)]
mod tests {
    use super::may_follow;

    #[test]
    fn links_of_others_are_not_followed_where_all_may_write() {
        let (tmp, home) = ((0o41777, 0), (0o40755, 1000));
        assert!(
            may_follow(tmp, 1000, 1000) && may_follow(tmp, 0, 1000),
            "one's own, and the directory's owner's"
        );
        assert!(!may_follow(tmp, 2000, 1000) && !may_follow(tmp, 2000, 0));
        assert!(may_follow(home, 2000, 1000) && may_follow((0o40777, 0), 2000, 1000), "as the system does");
    }
}
