//! A unit: a chain of directories, its files in them, and what it does of a batch.

use super::{broken, cause_of, errno_of, failed, failed_with, lacks, Unopened};
use crate::disk::home;
use crate::disk::manifest;
use crate::disk::turn::Share;
use crate::disk::unit_logs::Log;
use crate::volume::planted::{self, Bug};
use crate::volume::units::{Cause, Done, File as Named, Request, UnitError};
use crate::volume::{BLOCK, MAX_OBJECTS};
use polyduct_os::aligned::zeros;
use polyduct_os::dir::{self, Open};
use polyduct_os::{Errno, OsError};
use rustix::fs::{Advice, AtFlags};
use rustix::io::retry_on_intr;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Where the objects of a unit are.
const OBJECTS: &str = "objects";
/// Bytes that are read without asking first how long the file is.
const SHORT: usize = 1 << 20;
/// Files that are kept open, at most.
const MAX_OPEN: usize = 256;

/// One directory of a unit, and its objects.
#[derive(Debug)]
struct Link {
    path: PathBuf,
    dir: OwnedFd,
    objects: OwnedFd,
}

impl Link {
    /// Where objects lie, or all else.
    fn of(&self, is_object: bool) -> BorrowedFd<'_> {
        if is_object {
            self.objects.as_fd()
        } else {
            self.dir.as_fd()
        }
    }

    /// Opens a file.
    fn open(&self, is_object: bool, name: &str, how: Open, direct: bool) -> Result<(OwnedFd, bool), OsError> {
        let shown = || {
            let dir = if is_object { self.path.join(OBJECTS) } else { self.path.clone() };
            dir.join(name).display().to_string()
        };
        dir::open_beneath(self.of(is_object), name, how, direct).map_err(|e| match e {
            OsError::System { op, errno, .. } => OsError::System { op, what: shown(), errno },
            OsError::OutOfDescriptors { op, limit, .. } => {
                OsError::OutOfDescriptors { op, what: shown(), limit }
            }
            other => other,
        })
    }
}

/// A unit: its directories, of which the first has everything but most objects.
#[derive(Debug)]
pub(super) struct Unit {
    chain: Vec<Link>,
    open: HashMap<Named, File>,
    /// Files whose names are known to be durable.
    named: HashSet<Named>,
    /// The log, once it was written to.
    log: Option<Log>,
    /// Its part of the turn, for who changes the store.
    pub(super) share: Option<Share>,
    /// Nothing of it is written.
    pub(super) read_only: bool,
}

/// The name of a file beneath its directory, and whether that is the one of objects.
pub(super) fn name(file: Named) -> (bool, String) {
    match file {
        Named::Superblock => (false, "superblock".into()),
        Named::Log => (false, "log".into()),
        Named::Catalog(slot) => (false, format!("catalog{slot}")),
        Named::Data(object) => (true, format!("{object:x}.data")),
        Named::Sums(object) => (true, format!("{object:x}.sums")),
        Named::Served => (false, home::SERVED.into()),
    }
}

/// The file of an object's checksums, beneath a directory of a unit.
pub(in crate::disk) fn sums_of(object: u64) -> String {
    format!("{OBJECTS}/{}", name(Named::Sums(object)).1)
}

/// The object whose file has this name: others than stores give are nobody's.
fn object_of(file: &str) -> Option<u64> {
    let object = u64::from_str_radix(file.split_once('.')?.0, 16).ok().filter(|&n| n < MAX_OBJECTS)?;
    [Named::Data(object), Named::Sums(object)].into_iter().any(|of| name(of).1 == file).then_some(object)
}

impl Unit {
    /// The words are the system's.
    pub(super) fn open(dirs: &[PathBuf], make: bool) -> Result<Unit, Unopened> {
        let link = |path: &PathBuf| -> Result<Link, OsError> {
            let dir = dir::open_dir(path)?;
            let objects = dir::open_dir_beneath(dir.as_fd(), OBJECTS, make)?;
            Ok(Link { path: path.clone(), dir, objects })
        };
        let chain = dirs.iter().map(link).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|e| Unopened::of(&e, cause_of(errno_of(&e))))?;
        match chain.is_empty() {
            true => Err(Unopened::of(&"it has no directory", Cause::Disk)),
            false => Ok(Unit {
                chain,
                open: HashMap::new(),
                named: HashSet::new(),
                log: None,
                share: None,
                read_only: false,
            }),
        }
    }

    /// Files and directories that are open.
    pub(super) fn files(&self) -> usize {
        let few = usize::from(self.log.is_some()) + usize::from(self.share.is_some());
        2 * self.chain.len() + self.open.len() + few
    }

    /// Where everything but most objects lies.
    pub(super) fn first(&self) -> Option<BorrowedFd<'_>> {
        self.chain.first().map(|link| link.dir.as_fd())
    }

    /// Does a request.
    pub(super) fn one(&mut self, unit: u32, request: &Request) -> Result<Done, UnitError> {
        let io = |e: std::io::Error| failed_with(unit, e.to_string(), manifest::errno(&e));
        match *request {
            Request::Read { file, at, len, .. } => {
                let Some(file) = self.file(unit, file, false)? else { return Ok(Done::Bytes(Vec::new())) };
                // No more than there is: lengths come from the protocol's limits.
                let there = match len {
                    0..=SHORT => len,
                    _ => usize::try_from(file.metadata().map_err(io)?.len().saturating_sub(at))
                        .unwrap_or(usize::MAX),
                };
                let len = len.min(there);
                let bytes = zeros(len, "what a unit has");
                let mut bytes = bytes.map_err(|e| failed_with(unit, e.to_string(), errno_of(&e)))?;
                let done = read_up_to(file, &mut bytes, at).map_err(io)?;
                bytes.truncate(done);
                Ok(Done::Bytes(bytes))
            }
            Request::ReadBack { file, at, len, .. } => {
                if let Some(file) = self.file(unit, file, false)? {
                    // Whole pages: of others the system keeps what it has.
                    let from = at / BLOCK as u64 * BLOCK as u64;
                    let len = NonZeroU64::new(at.saturating_add(len as u64).saturating_sub(from));
                    let _ = rustix::fs::fadvise(file, from, len, Advice::DontNeed);
                }
                self.one(unit, &Request::Read { unit, file, at, len })
            }
            Request::Log { at, ref bytes, .. } => {
                self.log(unit, at.saturating_add(bytes.len() as u64))?.write(unit, at, bytes)
            }
            Request::Write { file, at, ref bytes, .. } => {
                let there = self.file(unit, file, true)?.ok_or_else(|| lacks(unit, file))?;
                there.write_all_at(bytes, at).map_err(io)?;
                Ok(Done::Yes)
            }
            Request::Sync { file, .. } => {
                if let Some(file) = self.file(unit, file, false)? {
                    file.sync_data().map_err(|e| broken(unit, &e))?;
                }
                self.sync_name(unit, file)?;
                Ok(Done::Yes)
            }
            Request::List { .. } => {
                let sys = |e: Errno| failed_with(unit, e.to_string(), e);
                let mut objects = Vec::new();
                for link in &self.chain {
                    for entry in rustix::fs::Dir::read_from(&link.objects).map_err(sys)? {
                        let entry = entry.map_err(sys)?;
                        objects.extend(entry.file_name().to_str().ok().and_then(object_of));
                    }
                }
                objects.sort_unstable();
                objects.dedup();
                Ok(Done::Objects(objects))
            }
            Request::Remove { object, .. } => {
                for file in [Named::Data(object), Named::Sums(object)] {
                    self.open.remove(&file);
                    self.named.remove(&file);
                    for link in &self.chain {
                        dir::remove(link.objects.as_fd(), &name(file).1).map_err(|e| failed(unit, &e))?;
                    }
                }
                Ok(Done::Yes)
            }
        }
    }

    /// Makes durable that a file is there, if that is not known.
    fn sync_name(&mut self, unit: u32, file: Named) -> Result<(), UnitError> {
        if !self.named.contains(&file) && !planted::is_planted(Bug::NameNotSynced) {
            let (is_object, _) = name(file);
            for link in &self.chain {
                retry_on_intr(|| rustix::fs::fsync(link.of(is_object))).map_err(|e| broken(unit, &e))?;
            }
            self.named.insert(file);
        }
        Ok(())
    }

    /// The log, with room up to `end` if there is any.
    pub(super) fn log(&mut self, unit: u32, end: u64) -> Result<&mut Log, UnitError> {
        let log = match self.log.take() {
            Some(log) => log,
            None => {
                let found = self.place(Named::Log, true, true).map_err(|e| failed(unit, &e))?;
                let (file, direct) = found.ok_or_else(|| lacks(unit, Named::Log))?;
                Log::new(file, direct)
            }
        };
        self.sync_name(unit, Named::Log)?;
        let log = self.log.insert(log);
        log.make_room(end).map_err(|e| match e.raw_os_error() {
            Some(errno) if errno == Errno::NOMEM.raw_os_error() => {
                failed_with(unit, e.to_string(), Errno::NOMEM)
            }
            _ => broken(unit, &e),
        })?;
        Ok(log)
    }

    /// A file, open; `None` where it is not and need not be.
    pub(super) fn file(&mut self, unit: u32, file: Named, make: bool) -> Result<Option<&File>, UnitError> {
        if !self.open.contains_key(&file) {
            let Some((found, _)) = self.place(file, make, false).map_err(|e| failed(unit, &e))? else {
                return Ok(None);
            };
            if self.open.len() >= MAX_OPEN {
                self.open.clear();
            }
            self.open.insert(file, found);
        }
        Ok(self.open.get(&file))
    }

    /// The file, where it is or is to be.
    pub(super) fn place(
        &self,
        file: Named,
        make: bool,
        direct: bool,
    ) -> Result<Option<(File, bool)>, OsError> {
        let (is_object, name) = name(file);
        let links = if is_object { &self.chain[..] } else { &self.chain[..1] };
        for link in links {
            let how = if self.read_only { Open::Read } else { Open::Write };
            match link.open(is_object, &name, how, direct) {
                Ok((fd, direct)) => return Ok(Some((fd.into(), direct))),
                Err(OsError::System { errno: Errno::NOENT, .. }) => {}
                Err(e) => return Err(e),
            }
        }
        if !make {
            return Ok(None);
        }
        // Both files of an object lie together.
        let beside = match file {
            Named::Data(object) => Some(self::name(Named::Sums(object)).1),
            Named::Sums(object) => Some(self::name(Named::Data(object)).1),
            _ => None,
        };
        let has = |link: &&Link| {
            let there = |name| rustix::fs::statat(&link.objects, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            beside.as_deref().is_some_and(there)
        };
        let room = |link: &&Link| {
            rustix::fs::fstatvfs(&link.objects).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize))
        };
        let link = links.iter().find(has).or_else(|| links.iter().rev().max_by_key(room));
        let Some(link) = link else { return Ok(None) };
        let (fd, direct) = link.open(is_object, &name, Open::Make, direct)?;
        Ok(Some((fd.into(), direct)))
    }
}

/// Fills as much of `bytes` as the file has from `at` on; returns how many that are.
pub fn read_up_to(file: &File, bytes: &mut [u8], at: u64) -> std::io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
