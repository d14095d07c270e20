//! A store is made: in directories that are empty, by one process at a time, and whole or not at all.

use super::disks::Disks;
use super::home::{self, StoreDir};
use super::manifest::{self, Manifest};
use super::store::{nonce, Store};
use super::turn::TURN;
use super::StoreError;
use crate::volume::planted::{self, Bug};
use crate::volume::{Geometry, Volume};
use polyduct_os::Errno;
use rustix::fs::{flock, FlockOperation};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// In a directory of a unit that is being made: the directory of its store. So what a maker has left that
/// died is known.
const MAKING: &str = "making";

/// How a store is to be made.
#[derive(Clone, Debug)]
pub struct Create {
    /// The directories of each unit; relative ones count from the store's.
    pub units: Vec<Vec<PathBuf>>,
    /// How many of the units may be lost.
    pub parity: u32,
    /// Bytes of a stripe unit: a multiple of 4 KiB.
    pub stripe: u64,
}

impl Store {
    /// Makes a store in `dir`, which is made too if it is not there. Of one that was begun there, and whose
    /// maker died, nothing is left then.
    ///
    /// # Errors
    /// [`StoreError::Bad`] for no units, or parity that leaves none for data; [`StoreError::Volume`] for more
    /// than 128 units, or a stripe that cannot be; [`StoreError::Manifest`] for a unit without directories,
    /// or of more than 64, and for what is no path; [`StoreError::Exists`] where there is a store, or a unit
    /// that is not empty; [`StoreError::Bad`] for a directory that is used twice, or in which another is just
    /// making a store; [`StoreError::System`]. What was made till then is removed.
    pub fn create(dir: &Path, how: &Create) -> Result<Store, StoreError> {
        let shown = dir.display().to_string();
        let sys = |what: &Path, op: &str, e: &std::io::Error| {
            StoreError::sys(&what.display().to_string(), op, manifest::errno(e))
        };
        let units = u32::try_from(how.units.len()).unwrap_or(u32::MAX);
        let data = data_of(&shown, units, how.parity)?;
        let geometry = Geometry::new(data, how.parity, how.stripe).map_err(StoreError::volume(&shown))?;
        let mut id = [0; 16];
        polyduct_message::link::key::random(&mut id).map_err(StoreError::os(&shown))?;
        let manifest = Manifest { id, geometry, units: how.units.clone(), serial: 0 };
        // Programs that read it must take its units for paths.
        Manifest::parse(&shown, &manifest.to_text()?)?;
        let all: Vec<Vec<PathBuf>> = (0..units).map(|unit| manifest.dirs(dir, unit)).collect();
        let mut made = Made::default();
        for path in std::iter::once(dir).chain(all.iter().flatten().map(PathBuf::as_path)) {
            made.dir(&shown, path)?;
        }
        if dir.join(manifest::NAME).exists() {
            return Err(StoreError::Exists { store: shown, what: "a store".into() });
        }
        let here = std::fs::canonicalize(dir).map_err(|e| sys(dir, "find the directory", &e))?;
        let here = here.as_os_str().as_bytes();
        for path in all.iter().flatten() {
            let free = made.clear(path, here).map_err(|e| sys(path, "read the directory", &e))?;
            if !free {
                let what = format!("something in {}, which is to be a new unit,", path.display());
                return Err(StoreError::Exists { store: shown, what });
            }
        }
        let create = || -> Result<(), StoreError> {
            // Before anything else, and it lasts: what a cut leaves is known, and can be made again.
            let mark = |path: &PathBuf| -> std::io::Result<()> {
                let mut file = File::create(path.join(MAKING))?;
                file.write_all(here)?;
                file.sync_all()?;
                Ok(polyduct_os::dir::sync(File::open(path)?)?)
            };
            for path in all.iter().flatten() {
                mark(path).map_err(|e| sys(path, "write into the directory", &e))?;
            }
            // While there is room for it.
            for path in all.iter().filter_map(|chain| chain.first()) {
                let made = std::fs::write(path.join(TURN), [0; 16]);
                made.map_err(|e| sys(path, "write into the directory", &e))?;
            }
            if planted::is_planted(Bug::StoreFirst) {
                manifest.write(dir)?;
            }
            let here = polyduct_os::dir::open_dir(dir).map_err(StoreError::os(&shown))?;
            let disks = Disks::make(&all).at(StoreDir::new(Arc::new(here)));
            let volume = Volume::create(disks, id, geometry, nonce());
            volume.map_err(StoreError::volume(&shown))?;
            all.iter().flatten().try_for_each(|path| manifest.write(path))?;
            made.settle()?;
            // Last: a store is there when its manifest is.
            manifest.write(dir)
        };
        if let Err(e) = create() {
            // They were empty before.
            all.iter().flatten().for_each(|path| empty(path));
            let _ = std::fs::remove_file(dir.join(manifest::NAME));
            let _ = std::fs::remove_file(dir.join(home::SERVED));
            return Err(e);
        }
        made.keep();
        // One that stays does no harm: there is a store.
        all.iter().flatten().for_each(|path| drop(std::fs::remove_file(path.join(MAKING))));
        let store = Store::open(dir)?;
        store.note(&format!("created with {data} data and {} parity units", how.parity));
        Ok(store)
    }
}

/// Units that are left for data.
fn data_of(store: &str, units: u32, parity: u32) -> Result<u32, StoreError> {
    let bad = |what: &str, found, expected| {
        Err(StoreError::Bad { store: store.to_owned(), what: what.into(), found, expected })
    };
    match units.checked_sub(parity) {
        _ if units == 0 => bad("the number of units", "0".into(), "1 to 128".into()),
        Some(data @ 1..) => Ok(data),
        _ => bad(
            "the number of units that may be lost (parity)",
            format!("{parity} of {units}"),
            format!("at most {}, so that one is left for data: give more units, or less parity", units - 1),
        ),
    }
}

/// Removes what a unit has of which nothing came; last what tells that it is such a one.
fn empty(unit: &Path) {
    let passing = std::fs::read_dir(unit).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let passing = passing.filter(|name| manifest::is_passing(name));
    for name in passing.collect::<Vec<_>>() {
        let _ = std::fs::remove_file(unit.join(name));
    }
    let _ = std::fs::remove_dir(unit.join("objects"));
    for name in ["superblock", "log", "catalog0", "catalog1", TURN, manifest::NAME, MAKING] {
        let _ = std::fs::remove_file(unit.join(name));
    }
}

/// Whether nothing is in a directory; none has nothing in it.
fn is_empty(dir: &Path) -> std::io::Result<bool> {
    match std::fs::read_dir(dir) {
        Ok(mut inside) => Ok(inside.next().is_none()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(true),
        Err(e) => Err(e),
    }
}

/// Whether there is more in a directory than what a unit has before it says what it is. Then it stays as it
/// is: without what it has for objects it could not be taken again.
fn is_more(dir: &Path) -> bool {
    // One that cannot be read may be one.
    let Ok(mut inside) = std::fs::read_dir(dir) else { return true };
    inside
        .any(|entry| entry.map_or(true, |entry| entry.file_name() != "objects" && entry.file_name() != TURN))
}

/// A directory may go away under its maker so often.
const ATTEMPTS: u32 = 100;

fn identity(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// Directories that were made, and are removed again unless they are kept; nobody else makes a store in them,
/// or in those that were there, as long as this lives.
#[derive(Default)]
pub(super) struct Made {
    new: Vec<PathBuf>,
    /// Device and inode of each, and what holds its lock.
    locked: Vec<((u64, u64), File)>,
    /// Some could not be locked: others may make a store there, too.
    shared: bool,
}

impl Made {
    /// Makes a directory for a store if it is not there.
    ///
    /// # Errors
    /// [`StoreError::Bad`] where another makes a store, or this one was given the directory twice;
    /// [`StoreError::System`].
    pub fn dir(&mut self, store: &str, path: &Path) -> Result<(), StoreError> {
        let sys = |e: &std::io::Error| {
            StoreError::sys(&path.display().to_string(), "make the directory", manifest::errno(e))
        };
        let bad = |found: &str| StoreError::Bad {
            store: store.to_owned(),
            what: format!("the directory {}", path.display()),
            found: found.into(),
            expected: "one that nothing else uses".into(),
        };
        for _ in 0..ATTEMPTS {
            let missing: Vec<&Path> =
                path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
            for path in missing.into_iter().rev() {
                match std::fs::create_dir(path) {
                    Ok(()) => self.new.push(path.to_owned()),
                    // Another was faster.
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                    Err(e) => return Err(sys(&e)),
                }
            }
            let dir = File::open(path).map_err(|e| sys(&e))?;
            let which = identity(&dir.metadata().map_err(|e| sys(&e))?);
            if self.locked.iter().any(|(of, _)| *of == which) {
                return Err(bad("named twice"));
            }
            // Any other error: stores can be made where directories cannot be locked, too.
            match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {
                    // A process that has it needs what it lies in.
                    self.new.retain(|made| !path.starts_with(made));
                    return Err(bad("taken by another store that is being made"));
                }
                Err(_) => self.shared = true,
                Ok(()) => {}
            }
            self.locked.push((which, dir));
            // One that made it and came to nothing may have removed it meanwhile.
            if std::fs::metadata(path).is_ok_and(|now| identity(&now) == which) {
                return Ok(());
            }
        }
        Err(bad("removed again and again"))
    }

    /// Whether a unit can be made in a directory: nothing is in it. What a maker of the same store has left
    /// there that died is removed, unless there are data: then somebody has used it.
    fn clear(&self, unit: &Path, store: &[u8]) -> std::io::Result<bool> {
        let (mark, mut of) = (unit.join(MAKING), Vec::new());
        let is_file = std::fs::symlink_metadata(&mark).is_ok_and(|found| found.is_file());
        let mut read = || File::open(&mark)?.take(1 + store.len() as u64).read_to_end(&mut of);
        if is_file && read().is_ok() && !self.shared {
            if of == store && is_empty(&unit.join("objects"))? {
                empty(unit);
            } else if store.starts_with(&of) && std::fs::read_dir(unit)?.count() == 1 {
                // It died while it wrote this, before there was anything else.
                std::fs::remove_file(&mark)?;
            }
        }
        is_empty(unit)
    }

    /// Makes durable that the new directories are there, as far as that [can be asked
    /// for](polyduct_os::dir::sync): not where the one that they lie in may be written and not read.
    ///
    /// # Errors
    /// [`StoreError::System`].
    pub fn settle(&self) -> Result<(), StoreError> {
        for path in self.new.iter().filter(|_| !planted::is_planted(Bug::DirsNotSynced)) {
            let above = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let sys = |e| StoreError::sys(&above.display().to_string(), "fsync the directory", e);
            match File::open(above) {
                Ok(dir) => polyduct_os::dir::sync(&dir).map_err(sys)?,
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {}
                Err(e) => return Err(sys(manifest::errno(&e))),
            }
        }
        Ok(())
    }

    pub fn keep(mut self) {
        self.new.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in self.new.iter().rev().filter(|path| !is_more(path)) {
            let _ = std::fs::remove_dir(path.join("objects"));
            let _ = std::fs::remove_file(path.join(TURN));
            let _ = std::fs::remove_dir(path);
        }
        for (_, dir) in &self.locked {
            // Not only closed: a process that was forked meanwhile has the same description.
            let _ = flock(dir, FlockOperation::Unlock);
        }
    }
}
