//! The file that is being written: unnamed until it is complete.

use super::form::{Body, Form};
use super::group::{self, Group};
use super::io::Io;
use super::name::Name;
use super::{Format, Options};
use crate::volume::planted::{self, Bug};
use crate::zarr::Version;
use crate::FileError;
use polyduct_message::hash::fnv1a;
use polyduct_os::{dir, Errno, OsError};
use rustix::fs::{Access, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A new file may be read and written by whom the user's mask allows.
const NEW_MODE: Mode = Mode::from_bits_retain(0o666);
/// A new directory likewise.
const NEW_DIR_MODE: Mode = Mode::from_bits_retain(0o777);

/// A name in a directory, looked up once: nothing that happens to the path later leads elsewhere.
#[derive(Debug)]
pub struct Target {
    /// As the caller gave it.
    pub path: String,
    pub dir: OwnedFd,
    pub name: String,
    /// Permissions of the file that is to be replaced.
    mode: Option<Mode>,
    /// Whether it is to be a directory: a Zarr array.
    tree: bool,
    /// The version that a Zarr array is written in.
    pub version: Option<Version>,
}

impl Target {
    /// Looks a path up, of an array or of a group of arrays. What a symbolic link stands for is written, and the link
    /// stays.
    ///
    /// # Errors
    /// [`FileError::BadPath`] for what cannot become a regular file, [`FileError::System`] where the
    /// directory is not there or may not be written.
    pub fn open(path: &Path, format: Format, group: bool) -> Result<Target, FileError> {
        let shown = path.display().to_string();
        let tree = format == Format::Zarr;
        let bad = |problem| FileError::BadPath { path: shown.clone(), problem };
        let Name { dir, name, stat, link_dir } = Name::find(path, &shown)?;
        if tree && link_dir.as_ref().is_some_and(is_group) {
            return Err(bad(
                "it is a symbolic link in a Zarr group, which would go on describing what was there",
            ));
        }
        if group && is_group(&dir) {
            return Err(bad(
                "its directory is a Zarr group, and groups are written as a whole: name the outermost",
            ));
        }
        if tree && Holds::what(&dir) == Holds::Array {
            return Err(bad("its directory is a Zarr array, and no group"));
        }
        let mode = match stat {
            Some(s) => match FileType::from_raw_mode(s.st_mode) {
                FileType::RegularFile if !tree => Some(Mode::from_raw_mode(s.st_mode)),
                FileType::Directory if tree && may_replace(&dir, &name, group) => {
                    Some(Mode::from_raw_mode(s.st_mode))
                }
                FileType::Directory if tree => {
                    return Err(bad(match group {
                        true => "it is a directory that holds something else than Zarr arrays",
                        false => "it is a directory that holds something else than a Zarr array",
                    }))
                }
                FileType::Directory => return Err(bad("it is a directory")),
                _ if tree => return Err(bad("it is not a directory")),
                _ => return Err(bad("it is not a regular file")),
            },
            None => None,
        };
        rustix::fs::accessat(&dir, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .or_else(|e| match e {
                // The question with effective ids is not known everywhere.
                Errno::INVAL | Errno::NOSYS => Ok(()),
                e => Err(e),
            })
            .map_err(|e| FileError::sys(&shown, "write in its directory", e))?;
        let version = tree.then(|| group::version(&dir, &name));
        Ok(Target { path: shown, dir, name, mode, tree, version })
    }

    /// A file in a directory that is open; `path` is what errors name.
    pub fn beneath(dir: OwnedFd, name: &str, path: &str) -> Target {
        let mode = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let mode = mode.ok().map(|s| Mode::from_raw_mode(s.st_mode));
        Target { path: path.to_owned(), dir, name: name.to_owned(), mode, tree: false, version: None }
    }

    /// The name at which unit 0 of the program that writes this file listens.
    pub fn socket_name(&self) -> Result<Vec<u8>, FileError> {
        let s =
            rustix::fs::fstat(&self.dir).map_err(|e| FileError::sys(&self.path, "stat its directory", e))?;
        let (uid, hash) = (polyduct_os::process::user_id(), fnv1a(self.name.bytes()));
        Ok(format!("polyduct/{uid}/file/{:x}-{:x}/{hash:016x}", s.st_dev, s.st_ino).into_bytes())
    }

    /// Whether a file has this name now, and for good: unit 0 may have died just after it gave it the name.
    pub fn names(&self, file: &File) -> bool {
        self.holds(file) && rustix::fs::fsync(&self.dir).is_ok()
    }

    /// The file that has the name.
    pub fn existing(&self) -> Result<Option<File>, FileError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(fd.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(FileError::sys(&self.path, "open", e)),
        }
    }

    /// Whether a file has this name now.
    pub fn holds(&self, file: &File) -> bool {
        is_same(&self.dir, &self.name, file)
    }

    /// Removes what a process that died left in the directory: the temporary name that unit 0 had told, and
    /// the one that a commit passes through. `held` is what was being written, where this unit has it.
    pub fn sweep(&self, temporary: Option<&str>, held: Option<&File>) {
        if self.tree {
            if let (Some(name), Some(held)) = (temporary, held) {
                self.remove_own_tree(name, held);
            }
            return self.sweep_trees();
        }
        if let Some(name) = temporary {
            let _ = dir::remove(self.dir.as_fd(), name);
        }
        let _ = dir::remove(self.dir.as_fd(), &self.passing_name());
    }

    /// What a file is called for a moment that takes the place of another.
    fn passing_name(&self) -> String {
        format!("{}passing.tmp", self.temporary_prefix())
    }

    /// Removes a temporary directory that is still the one that is held: the name may be another program's by
    /// now.
    fn remove_own_tree(&self, name: &str, held: &File) {
        if is_same(&self.dir, name, held) {
            let _ = dir::remove_tree(self.dir.as_fd(), name);
        }
    }

    /// Temporary names of this target begin so.
    fn temporary_prefix(&self) -> String {
        format!(".polyduct-{:016x}-", fnv1a(self.name.bytes()))
    }

    /// What the array that is replaced is called for a moment, where two names cannot change places.
    fn aside_name(&self) -> String {
        format!("{}old{PART}", self.temporary_prefix())
    }

    /// Removes temporary directories of this target that nobody holds: those of programs that were killed,
    /// and arrays that a program had replaced when it was killed.
    fn sweep_trees(&self) {
        let prefix = self.temporary_prefix();
        let Ok(entries) = rustix::fs::Dir::read_from(&self.dir) else { return };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().to_str() else { continue };
            if !name.starts_with(&prefix) || !name.ends_with(PART) || !abandoned(&self.dir, name) {
                continue;
            }
            if name == self.aside_name() {
                // Where two names cannot change places, a program may have been killed between the two
                // renames.
                let flags = RenameFlags::NOREPLACE;
                if rustix::fs::renameat_with(&self.dir, name, &self.dir, &self.name, flags).is_ok() {
                    continue;
                }
            }
            discard(self.dir.as_fd(), name);
        }
    }
}

/// What temporary names end with.
const PART: &str = ".part";

/// Removes an array or a group, of each array its metadata first: who reads it and misses a chunk sees that it is no
/// array any more.
fn discard(dir: BorrowedFd<'_>, name: &str) {
    let _ = dir::remove_tree_from(dir, name, &["zarr.json", ".zarray", ".zgroup"]);
}

/// Whether a name in a directory is what is open here.
fn is_same(dir: &OwnedFd, name: &str, file: &File) -> bool {
    let same = |a: rustix::fs::Stat, b: rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    let here = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    here.is_ok_and(|here| rustix::fs::fstat(file).is_ok_and(|ours| same(here, ours)))
}

/// Whether what a directory holds may be replaced by an array, or by a group.
fn may_replace(dir: &OwnedFd, name: &str, group: bool) -> bool {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = rustix::fs::openat(dir, name, flags, Mode::empty());
    inner.is_ok_and(|inner| match Holds::what(&inner) {
        Holds::Array | Holds::Nothing => true,
        Holds::Group => group,
        Holds::Other => false,
    })
}

/// What is in a directory.
#[derive(PartialEq)]
enum Holds {
    /// An array of any version of Zarr.
    Array,
    /// A group.
    Group,
    Nothing,
    Other,
}

impl Holds {
    fn what(dir: &OwnedFd) -> Holds {
        if rustix::fs::statat(dir, ".zarray", AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Holds::Array;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(fd) = rustix::fs::openat(dir, "zarr.json", flags, Mode::empty()) {
            let limit = crate::zarr::MAX_METADATA_BYTES as u64 + 1;
            let mut text = Vec::new();
            let read = std::io::Read::read_to_end(&mut std::io::Read::take(File::from(fd), limit), &mut text);
            let document = crate::json::parse(&text);
            let kind = document.ok().and_then(|d| Some(d.get("node_type")?.as_str()?.to_owned()));
            return match kind.filter(|_| read.is_ok()).as_deref() {
                Some("array") => Holds::Array,
                Some("group") => Holds::Group,
                _ => Holds::Other,
            };
        }
        if rustix::fs::statat(dir, ".zgroup", AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Holds::Group;
        }
        let is_empty = rustix::fs::Dir::read_from(dir)
            .is_ok_and(|entries| entries.flatten().all(|e| matches!(e.file_name().to_bytes(), b"." | b"..")));
        if is_empty {
            Holds::Nothing
        } else {
            Holds::Other
        }
    }
}

/// A file without its name. Dropped without [`commit`](Draft::commit), nothing is left of it.
#[derive(Debug)]
pub struct Draft {
    target: Target,
    pub file: File,
    /// Where the file system knows no unnamed files.
    temporary: Option<String>,
}

impl Draft {
    /// Makes the file.
    pub fn new(target: Target) -> Result<Draft, FileError> {
        if target.tree {
            target.sweep_trees();
            return Draft::named(target);
        }
        match dir::tmpfile_in(target.dir.as_fd(), NEW_MODE) {
            Ok(Some(fd)) => Ok(Draft { target, file: fd.into(), temporary: None }),
            Ok(None) => Draft::named(target),
            Err(OsError::System { errno, .. }) => Err(FileError::sys(&target.path, "create", errno)),
            Err(e) => Err(FileError::os(&target.path)(e)),
        }
    }

    /// The same with a temporary name. The process that holds the file holds a lock on it, so that one left
    /// behind by processes that were all killed is known as such.
    fn named(target: Target) -> Result<Draft, FileError> {
        let fail = |op: &str, e| FileError::sys(&target.path, op, e);
        let prefix = target.temporary_prefix();
        for serial in 0..64 {
            let name = format!("{prefix}{serial}{PART}");
            for _ in 0..2 {
                match create(&target, &name) {
                    // Where there are no locks, others take it for one left behind; then this one has lost
                    // its name and the commit says so.
                    Ok(fd) => {
                        let file = File::from(fd);
                        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                            // Somebody who found it before it was locked removes it.
                            Err(Errno::AGAIN) => break,
                            _ if !is_same(&target.dir, &name, &file) => break,
                            _ => return Ok(Draft { target, file, temporary: Some(name) }),
                        }
                    }
                    Err(Errno::EXIST) if abandoned(&target.dir, &name) => {
                        let _ = match target.tree {
                            true => dir::remove_tree(target.dir.as_fd(), &name),
                            false => dir::remove(target.dir.as_fd(), &name),
                        };
                    }
                    Err(Errno::EXIST | Errno::NOENT) => break,
                    Err(e) => return Err(fail("create", e)),
                }
            }
        }
        Err(fail("create a temporary file", Errno::EXIST))
    }

    /// The file as it is called for the time being.
    pub fn temporary(&self) -> Option<&str> {
        self.temporary.as_deref()
    }

    /// Gives the file its size, its header and its name, and makes it last.
    ///
    /// # Errors
    /// [`FileError::System`]: what had the name before is unchanged.
    pub fn commit(mut self, form: &Form, steps: u64) -> Result<(), FileError> {
        if form.is_tree() {
            return self.commit_tree(form, steps);
        }
        self.complete(form, steps)?;
        self.place()
    }

    /// Gives the file its size and its header, and makes it last: what is left is to [place](Self::place) it.
    ///
    /// # Errors
    /// [`FileError::System`].
    pub fn complete(&self, form: &Form, steps: u64) -> Result<(), FileError> {
        let path = self.target.path.clone();
        let io = |op: &'static str| {
            let path = path.clone();
            move |e: std::io::Error| FileError::io(&path, op, &e)
        };
        self.file.set_len(form.file_len(steps)).map_err(io("truncate"))?;
        let options = Options::default();
        let writer = Io { file: &self.file, path: &path, options: &options };
        form.finish(&writer, steps)?;
        self.sync()?;
        if let Some(kept) = form.kept() {
            kept.check(&self.target)?;
        }
        Ok(())
    }

    /// Makes its bytes and its permissions last.
    fn sync(&self) -> Result<(), FileError> {
        let path = &self.target.path;
        if let Some(mode) = self.target.mode {
            rustix::fs::fchmod(&self.file, mode).map_err(|e| FileError::sys(path, "set permissions", e))?;
        }
        if planted::is_planted(Bug::FileFirst) {
            return Ok(());
        }
        self.file.sync_all().map_err(|e| FileError::io(path, "fsync", &e))
    }

    /// Gives a file that is complete its name.
    ///
    /// # Errors
    /// [`FileError::System`]: what had the name before is unchanged.
    pub fn place(mut self) -> Result<(), FileError> {
        let path = self.target.path.clone();
        let (dir, name) = (self.target.dir.as_fd(), self.target.name.as_str());
        match &self.temporary {
            None => {
                dir::link_as(self.file.as_fd(), dir, name, &self.target.passing_name()).map_err(
                    |e| match e.errno() {
                        Some(errno) => FileError::sys(&path, "give it its name", errno),
                        None => FileError::os(&path)(e),
                    },
                )?
            }
            Some(temporary) => rustix::fs::renameat(dir, temporary, dir, name)
                .map_err(|e| FileError::sys(&path, "give it its name", e))?,
        }
        self.temporary = None;
        sync_dir(self.target.dir.as_fd(), &path)
    }

    /// Makes a file of these bytes, and gives it its name.
    ///
    /// # Errors
    /// [`FileError::System`], [`FileError::NoSpace`].
    pub fn write(target: Target, bytes: &[u8]) -> Result<(), FileError> {
        let draft = Draft::new(target)?;
        Io { file: &draft.file, path: &draft.target.path, options: &Options::default() }.write(bytes, 0)?;
        draft.sync()?;
        draft.place()
    }

    /// The same for a directory: it changes places with what has the name, and that is removed.
    fn commit_tree(&mut self, form: &Form, steps: u64) -> Result<(), FileError> {
        let path = self.target.path.clone();
        let renewal = match &form.body {
            Body::Group(members) => {
                members.complete(&self.file, &path, steps)?;
                None
            }
            _ => {
                let Some(slabs) = form.slabs() else { return Ok(()) };
                let group = Group::enter(&self.target)?;
                let style = slabs.style(group.place(), steps);
                slabs.complete(&self.file, &path, steps, &style)?;
                Some(group.renewal(&style.1))
            }
        };
        if let Some(mode) = self.target.mode {
            rustix::fs::fchmod(&self.file, mode).map_err(|e| FileError::sys(&path, "set permissions", e))?;
        }
        sync_dir(self.file.as_fd(), &path)?;
        renewal.iter().try_for_each(|renewal| renewal.forget(&path))?;
        let Some(temporary) = self.temporary.clone() else { return Ok(()) };
        let (dir, name) = (self.target.dir.as_fd(), self.target.name.as_str());
        // Over an empty directory, or none, a plain one is enough.
        let named = match rustix::fs::renameat(dir, &temporary, dir, name) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                match rustix::fs::renameat_with(dir, &temporary, dir, name, RenameFlags::EXCHANGE) {
                    // Not at once, then: for a moment there is nothing under the name.
                    Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                        let aside = self.target.aside_name();
                        let moved = rustix::fs::renameat(dir, name, dir, &aside).and_then(|()| {
                            let named = rustix::fs::renameat(dir, &temporary, dir, name);
                            if named.is_err() {
                                let _ = rustix::fs::renameat(dir, &aside, dir, name);
                            }
                            named
                        });
                        moved.map(|()| self.temporary = Some(aside))
                    }
                    other => other,
                }
            }
            other => other.map(|()| self.temporary = None),
        };
        named.map_err(|e| FileError::sys(&path, "give it its name", e))?;
        let synced = sync_dir(dir, &path);
        if let Some(old) = self.temporary.take() {
            discard(dir, &old);
        }
        synced?;
        renewal.map_or(Ok(()), |renewal| renewal.finish(&path))
    }
}

/// Makes names last.
fn sync_dir(dir: BorrowedFd<'_>, path: &str) -> Result<(), FileError> {
    if planted::is_planted(Bug::FileNotNamed) {
        return Ok(());
    }
    dir::sync(dir).map_err(|e| FileError::sys(path, "fsync its directory", e))
}

impl Drop for Draft {
    fn drop(&mut self) {
        let Some(name) = &self.temporary else { return };
        match self.target.tree {
            true => self.target.remove_own_tree(name, &self.file),
            false => {
                let _ = dir::remove(self.target.dir.as_fd(), name);
            }
        }
    }
}

/// Makes what has a temporary name.
fn create(target: &Target, name: &str) -> rustix::io::Result<OwnedFd> {
    if target.tree {
        rustix::fs::mkdirat(&target.dir, name, NEW_DIR_MODE)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        return rustix::fs::openat(&target.dir, name, flags, Mode::empty());
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&target.dir, name, flags, NEW_MODE)
}

/// Whether nobody holds the temporary file any more.
fn abandoned(dir: &OwnedFd, name: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
        .is_ok_and(|fd| rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Whether a directory is a Zarr group.
fn is_group(dir: &OwnedFd) -> bool {
    let has = |name| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    has("zarr.json") || has(".zgroup")
}

#[cfg(test)]
mod tests;
