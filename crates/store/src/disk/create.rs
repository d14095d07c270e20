//! A store is made: in directories that are empty, by one process at a time, and whole or not at all.

use super::disks::Disks;
use super::manifest::{self, Manifest};
use super::store::{now, Store};
use super::StoreError;
use crate::volume::{Geometry, Volume};
use polyduct_os::Errno;
use rustix::fs::{flock, FlockOperation};
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    /// Makes a store in `dir`, which is made too if it is not there.
    ///
    /// # Errors
    /// [`StoreError::Volume`] for units, parity or stripe that cannot be; [`StoreError::Exists`] where there is a store, or a unit
    /// that is not empty; [`StoreError::Bad`] for a directory that is used twice, or in which another is just making a store;
    /// [`StoreError::System`]. What was made till then is removed.
    pub fn create(dir: &Path, how: &Create) -> Result<Store, StoreError> {
        let shown = dir.display().to_string();
        let sys = |what: &Path, op: &str, e: &std::io::Error| {
            StoreError::sys(&what.display().to_string(), op, manifest::errno(e))
        };
        let units = u32::try_from(how.units.len()).unwrap_or(u32::MAX);
        let data = units.saturating_sub(how.parity);
        let geometry = Geometry::new(data, how.parity, how.stripe).map_err(StoreError::volume(&shown))?;
        let mut id = [0; 16];
        polyduct_message::link::key::random(&mut id).map_err(StoreError::os(&shown))?;
        let manifest = Manifest { id, geometry, units: how.units.clone() };
        let all: Vec<Vec<PathBuf>> = (0..units).map(|unit| manifest.dirs(dir, unit)).collect();
        let mut made = Made::default();
        for path in std::iter::once(dir).chain(all.iter().flatten().map(PathBuf::as_path)) {
            made.dir(&shown, path)?;
        }
        if dir.join(manifest::NAME).exists() {
            return Err(StoreError::Exists { store: shown, what: "a store".into() });
        }
        for path in all.iter().flatten() {
            let mut inside = std::fs::read_dir(path).map_err(|e| sys(path, "read the directory", &e))?;
            if inside.next().is_some() {
                let what = format!("something in {}, which is to be a new unit,", path.display());
                return Err(StoreError::Exists { store: shown, what });
            }
        }
        let create = || -> Result<(), StoreError> {
            let volume = Volume::create(Disks::make(&all), id, geometry, now());
            volume.map_err(StoreError::volume(&shown))?;
            all.iter().flatten().try_for_each(|path| manifest.write(path))?;
            // Last: a store is there when its manifest is.
            manifest.write(dir)
        };
        if let Err(e) = create() {
            // They were empty before.
            all.iter().flatten().for_each(|path| empty(path));
            let _ = std::fs::remove_file(dir.join(manifest::NAME));
            return Err(e);
        }
        made.keep();
        let store = Store::open(dir)?;
        store.note(&format!("created with {data} data and {} parity units", how.parity));
        Ok(store)
    }
}

/// Removes what a unit has of which nothing came.
fn empty(unit: &Path) {
    for name in ["superblock", "log", "catalog0", "catalog1", manifest::NAME] {
        let _ = std::fs::remove_file(unit.join(name));
    }
    let _ = std::fs::remove_dir(unit.join("objects"));
}

/// A directory may go away under its maker so often.
const ATTEMPTS: u32 = 100;

fn identity(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// Directories that were made, and are removed again unless they are kept; nobody else makes a store in them, or in those that
/// were there, as long as this lives.
#[derive(Default)]
pub(super) struct Made {
    new: Vec<PathBuf>,
    /// Device and inode of each, and what holds its lock.
    locked: Vec<((u64, u64), File)>,
}

impl Made {
    /// Makes a directory for a store if it is not there.
    ///
    /// # Errors
    /// [`StoreError::Bad`] where another makes a store, or this one was given the directory twice; [`StoreError::System`].
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
            if flock(&dir, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
                // Whoever has it needs what it lies in.
                self.new.retain(|made| !path.starts_with(made));
                return Err(bad("taken by another store that is being made"));
            }
            self.locked.push((which, dir));
            // One that made it and came to nothing may have removed it meanwhile.
            if std::fs::metadata(path).is_ok_and(|now| identity(&now) == which) {
                return Ok(());
            }
        }
        Err(bad("removed again and again"))
    }

    pub fn keep(mut self) {
        self.new.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in self.new.iter().rev() {
            // Of a unit that was to be there is nothing else in it.
            let _ = std::fs::remove_dir(path.join("objects"));
            let _ = std::fs::remove_dir(path);
        }
        for (_, dir) in &self.locked {
            // Not only closed: a process that was forked meanwhile has the same description.
            let _ = flock(dir, FlockOperation::Unlock);
        }
    }
}
