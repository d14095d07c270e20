//! The file that is being written: unnamed until it is complete.

use super::io::Io;
use super::wire;
use super::{Format, Options};
use crate::npy::Header;
use crate::FileError;
use polyduct_layout::Dataset;
use polyduct_os::{dir, Errno, OsError};
use rustix::fs::{Access, AtFlags, FileType, FlockOperation, Mode, OFlags};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

/// A new file may be read and written by whom the user's mask allows.
const NEW_MODE: Mode = Mode::from_bits_retain(0o666);
/// The least number of bytes set aside for a .npy header; NumPy itself writes that many for small arrays.
const HEADER_BYTES: usize = 128;

/// A name in a directory, looked up once: nothing that happens to the path later leads elsewhere.
#[derive(Debug)]
pub struct Target {
    /// As the caller gave it.
    pub path: String,
    dir: OwnedFd,
    name: String,
    /// Permissions of the file that is to be replaced.
    mode: Option<Mode>,
}

impl Target {
    /// Looks a path up.
    ///
    /// # Errors
    /// [`FileError::BadPath`] for what cannot become a regular file, [`FileError::System`] where the directory is not
    /// there or may not be written.
    pub fn open(path: &Path) -> Result<Target, FileError> {
        let shown = path.display().to_string();
        let bad = |problem| FileError::BadPath { path: shown.clone(), problem };
        let text = path.as_os_str().as_encoded_bytes();
        let name = match path.components().next_back() {
            _ if text.ends_with(b"/") || text.ends_with(b"/.") => return Err(bad("it names a directory")),
            Some(Component::Normal(name)) => {
                name.to_str().ok_or_else(|| bad("its name is not UTF-8"))?.to_owned()
            }
            None => return Err(bad("it is empty")),
            Some(_) => return Err(bad("it names a directory")),
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let sys = |op: &str, e| FileError::sys(&shown, op, e);
        let dir = dir::open_dir(parent).map_err(|e| match e.errno() {
            Some(errno) => sys("open its directory", errno),
            None => FileError::os(&shown)(e),
        })?;
        let mode = match rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(s) => match FileType::from_raw_mode(s.st_mode) {
                FileType::RegularFile => Some(Mode::from_raw_mode(s.st_mode)),
                FileType::Directory => return Err(bad("it is a directory")),
                FileType::Symlink => {
                    return Err(bad("it is a symbolic link; name the file that it stands for"))
                }
                _ => return Err(bad("it is not a regular file")),
            },
            Err(Errno::NOENT) => None,
            Err(e) => return Err(sys("stat", e)),
        };
        rustix::fs::accessat(&dir, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .or_else(|e| match e {
                // The question with effective ids is not known everywhere.
                Errno::INVAL | Errno::NOSYS => Ok(()),
                e => Err(e),
            })
            .map_err(|e| sys("write in its directory", e))?;
        Ok(Target { path: shown, dir, name, mode })
    }

    /// The name at which unit 0 of the program that writes this file listens.
    pub fn socket_name(&self) -> Result<Vec<u8>, FileError> {
        let s =
            rustix::fs::fstat(&self.dir).map_err(|e| FileError::sys(&self.path, "stat its directory", e))?;
        let (uid, hash) = (polyduct_os::process::user_id(), wire::hash(self.name.as_bytes()));
        Ok(format!("polyduct/{uid}/file/{:x}-{:x}/{hash:016x}", s.st_dev, s.st_ino).into_bytes())
    }

    /// Whether a file has this name now, and for good: unit 0 may have died just after it gave it the name.
    pub fn names(&self, file: &File) -> bool {
        let same = |a: rustix::fs::Stat, b: rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
        let here = rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let named = here.is_ok_and(|here| rustix::fs::fstat(file).is_ok_and(|ours| same(here, ours)));
        named && rustix::fs::fsync(&self.dir).is_ok()
    }

    /// Removes what a process that died left in the directory: the temporary name that unit 0 had told, and the one that a
    /// commit passes through.
    pub fn sweep(&self, temporary: Option<&str>, pid: u32) {
        if let Some(name) = temporary {
            let _ = dir::remove(self.dir.as_fd(), name);
        }
        let passing = format!(".polyduct-{pid}-");
        let Ok(entries) = rustix::fs::Dir::read_from(&self.dir) else { return };
        for entry in entries.flatten() {
            match entry.file_name().to_str() {
                Ok(name) if name.starts_with(&passing) && name.ends_with(".tmp") => {
                    let _ = dir::remove(self.dir.as_fd(), name);
                }
                _ => {}
            }
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
        match dir::tmpfile_in(target.dir.as_fd(), NEW_MODE) {
            Ok(Some(fd)) => Ok(Draft { target, file: fd.into(), temporary: None }),
            Ok(None) => Draft::named(target),
            Err(OsError::System { errno, .. }) => Err(FileError::sys(&target.path, "create", errno)),
            Err(e) => Err(FileError::os(&target.path)(e)),
        }
    }

    /// The same with a temporary name. Whoever holds the file holds a lock on it, so that one left behind by processes
    /// that were all killed is known as such.
    fn named(target: Target) -> Result<Draft, FileError> {
        let fail = |op: &str, e| FileError::sys(&target.path, op, e);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let hash = wire::hash(target.name.as_bytes());
        for serial in 0..64 {
            let name = format!(".polyduct-{hash:016x}-{serial}.part");
            for _ in 0..2 {
                match rustix::fs::openat(&target.dir, &name, flags, NEW_MODE) {
                    Ok(fd) => {
                        // Where there are no locks, others take it for one left behind; then this one has lost its name
                        // and the commit says so.
                        let _ = rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive);
                        return Ok(Draft { target, file: fd.into(), temporary: Some(name) });
                    }
                    Err(Errno::EXIST) if abandoned(&target.dir, &name) => {
                        let _ = dir::remove(target.dir.as_fd(), &name);
                    }
                    Err(Errno::EXIST) => break,
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
        let path = self.target.path.clone();
        let io = |op: &'static str| {
            let path = path.clone();
            move |e: std::io::Error| FileError::io(&path, op, &e)
        };
        self.file.set_len(form.file_len(steps)).map_err(io("truncate"))?;
        let options = Options::default();
        let writer = Io { file: &self.file, path: &path, options: &options };
        writer.write(&form.header(steps), 0)?;
        if let Some(mode) = self.target.mode {
            rustix::fs::fchmod(&self.file, mode).map_err(|e| FileError::sys(&path, "set permissions", e))?;
        }
        self.file.sync_all().map_err(io("fsync"))?;
        let (dir, name) = (self.target.dir.as_fd(), self.target.name.as_str());
        match &self.temporary {
            None => dir::link_as(self.file.as_fd(), dir, name).map_err(|e| match e.errno() {
                Some(errno) => FileError::sys(&path, "give it its name", errno),
                None => FileError::os(&path)(e),
            })?,
            Some(temporary) => rustix::fs::renameat(dir, temporary, dir, name)
                .map_err(|e| FileError::sys(&path, "give it its name", e))?,
        }
        self.temporary = None;
        // The name is there; where a directory cannot be synced, as on some network file systems, that is all.
        match rustix::fs::fsync(dir) {
            Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::ROFS) => Ok(()),
            Err(e) => Err(FileError::sys(&path, "fsync its directory", e)),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            let _ = dir::remove(self.target.dir.as_fd(), name);
        }
    }
}

/// Whether nobody holds the temporary file any more.
fn abandoned(dir: &OwnedFd, name: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
        .is_ok_and(|fd| rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// What the file is to look like.
#[derive(Clone, Debug)]
pub struct Form {
    pub format: Format,
    pub dataset: Dataset,
    /// Where the data begin.
    pub data_at: u64,
}

impl Form {
    /// Sets aside room for the header before the number of steps is known.
    pub fn new(format: Format, dataset: Dataset) -> Form {
        let data_at = match format {
            Format::Raw => 0,
            Format::Npy => npy_header(&dataset, u64::MAX).len_bytes().max(HEADER_BYTES),
        };
        Form { format, dataset, data_at: data_at as u64 }
    }

    /// Offset of a step in the file; the largest number where it cannot be counted.
    pub fn step_at(&self, step: u64) -> u64 {
        self.dataset.len_bytes().saturating_mul(step).saturating_add(self.data_at)
    }

    /// Length of the whole file.
    pub fn file_len(&self, steps: u64) -> u64 {
        self.step_at(steps)
    }

    fn header(&self, steps: u64) -> Vec<u8> {
        match self.format {
            Format::Raw => Vec::new(),
            // It fits: the room was counted for the longest number.
            Format::Npy => npy_header(&self.dataset, steps).print(self.data_at as usize).unwrap_or_default(),
        }
    }
}

/// One step is the array itself; any other number of steps is its first dimension.
fn npy_header(dataset: &Dataset, steps: u64) -> Header {
    let mut shape = dataset.shape().to_vec();
    if steps != 1 {
        shape.insert(0, steps);
    }
    Header { elem: dataset.elem(), fortran: false, shape }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_layout::ElemType;

    #[test]
    fn the_header_has_room_for_any_number_of_steps() {
        for dims in 0..=8 {
            for size in [0, 1, 7, 1 << 40] {
                let shape: Vec<u64> = (0..dims).map(|k| if k == 0 { size } else { 3 }).collect();
                let form = Form::new(Format::Npy, Dataset::new(&shape, ElemType::Bytes(99)).unwrap());
                for steps in [0, 1, 2, u64::MAX] {
                    let header = form.header(steps);
                    assert_eq!(header.len() as u64, form.data_at);
                    let (parsed, at) = Header::parse(&header).unwrap();
                    assert_eq!((parsed, at as u64), (npy_header(&form.dataset, steps), form.data_at));
                }
            }
        }
        let small = Form::new(Format::Npy, Dataset::new(&[512, 512], ElemType::F32).unwrap());
        assert_eq!(small.data_at, 128);
        assert_eq!(Form::new(Format::Raw, small.dataset).data_at, 0);
    }

    #[test]
    fn paths_that_cannot_become_files() {
        for (path, what) in [
            ("/tmp/", "it names a directory"),
            ("/", "it names a directory"),
            ("", "it is empty"),
            ("..", "it names a directory"),
            ("/tmp/.", "it names a directory"),
            ("/tmp", "it is a directory"),
            ("/dev/null", "it is not a regular file"),
        ] {
            match Target::open(Path::new(path)) {
                Err(FileError::BadPath { problem, .. }) => assert_eq!(problem, what, "{path:?}"),
                other => panic!("{path:?}: {other:?}"),
            }
        }
        let gone = Target::open(Path::new("/nowhere/x.npy")).unwrap_err();
        assert_eq!(gone, FileError::sys("/nowhere/x.npy", "open its directory", Errno::NOENT));
    }

    #[test]
    fn without_unnamed_files_a_temporary_name_serves_and_is_cleaned_up() {
        let root = std::env::temp_dir().join(format!("polyduct-store-named-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let path = root.join("a.raw");
        let names = || std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
        let form = Form::new(Format::Raw, Dataset::new(&[2], ElemType::U8).unwrap());
        let draft = || Draft::named(Target::open(&path).unwrap()).unwrap();

        let (one, two) = (draft(), draft());
        assert_ne!(one.temporary, two.temporary);
        drop(two);
        assert_eq!(names().len(), 1);
        one.commit(&form, 1).unwrap();
        assert_eq!(names(), ["a.raw"]);

        // As a killed process leaves it: the name, but no lock. The next one takes the name over.
        let name = draft().temporary.clone().unwrap();
        std::fs::write(root.join(&name), "left behind").unwrap();
        let again = draft();
        assert_eq!(again.temporary.as_ref(), Some(&name));
        Target::open(&path).unwrap().sweep(again.temporary(), 0);
        assert_eq!(names(), ["a.raw"]);
        drop(again);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
