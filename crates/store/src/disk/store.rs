//! A store on disks: opened, looked at, and owned to be changed.

mod locks;
mod names;

use super::disks::{self, Disks};
use super::events;
use super::home::{self, StoreDir};
use super::manifest::{self, Manifest};
use super::owned::Owned;
use super::shelf::Shelf;
use super::turn::{Before, StoreTurn, TurnHolder, BEING_WRITTEN};
use super::StoreError;
use crate::volume::epochs::{told_by, Epochs};
use crate::volume::rows::Rows;
use crate::volume::sums::{ObjectId, Stamp};
use crate::volume::units::{Cause, UnitError};
use crate::volume::{Geometry, Volume, VolumeError};
use locks::open_lock;
use polyduct_os::lock::{is_held, Hold};
use polyduct_os::{clock, dir, Errno, OsError};
use polyduct_port::Interrupt;
use rustix::fs::StatVfsMountFlags;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Entries of a directory that are looked at in search of a manifest.
const MAX_LOOKED_AT: usize = 1024;

/// A store: a directory with a manifest, and the directories of its units.
///
/// Any number of processes may have it open. Changes are made by one at a time, and it becomes the
/// [owner](Store::own) for as long as that takes.
pub struct Store {
    /// As the caller named it.
    pub(super) shown: String,
    pub(super) dir: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) lock: Arc<File>,
    /// Why nothing can be changed, if so: the file of locks cannot be written.
    read_only: Option<Errno>,
    /// The directory.
    fd: Arc<OwnedFd>,
    /// The holder of this store's last turn, and the protocol as that one left it.
    kept: Shelf<(TurnHolder, Volume<Disks>)>,
    /// How long to wait for another owner; `None` waits as long as it lives.
    pub timeout: Option<Duration>,
    /// Asked during waits: give up?
    pub interrupt: Option<Interrupt>,
}

impl Store {
    /// Opens a store.
    ///
    /// # Errors
    /// [`StoreError::NoStore`], [`StoreError::Manifest`], [`StoreError::System`].
    pub fn open(dir: &Path) -> Result<Store, StoreError> {
        let shown = dir.display().to_string();
        let manifest = Manifest::read(dir).or_else(|e| {
            let elsewhere = manifest::is_lost(&e).then(|| manifest_elsewhere(dir)).flatten();
            let manifest = elsewhere.ok_or(e)?;
            if manifest.write(dir).is_ok() {
                events::note(dir, "the manifest was damaged or gone, and is written anew from a unit's copy");
            }
            Ok::<_, StoreError>(manifest)
        })?;
        let fd = dir::open_dir(dir).map_err(StoreError::os(&shown))?;
        let (lock, read_only) = open_lock(&fd).map_err(StoreError::os(&shown))?;
        Ok(Store {
            shown,
            dir: dir.to_owned(),
            manifest,
            lock: Arc::new(lock),
            read_only,
            fd: Arc::new(fd),
            kept: Shelf::default(),
            timeout: None,
            interrupt: None,
        })
    }

    /// How the store is cut.
    pub fn geometry(&self) -> Geometry {
        self.manifest.geometry
    }

    /// One of its objects.
    pub(super) fn object(&self, object: u64) -> ObjectId {
        ObjectId { store: self.manifest.id, object }
    }

    /// Codes the rows of one; `stamp` is for rows that are written.
    pub(super) fn rows(&self, object: u64, stamp: Stamp) -> Rows {
        Rows::new(self.geometry(), self.object(object), stamp)
    }

    /// What the store is made of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The store's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directories of its units, opened anew.
    ///
    /// # Errors
    /// [`StoreError::System`]: the manifest cannot be read.
    pub fn disks(&self) -> Result<Disks, StoreError> {
        Ok(self.disks_of(&self.current()?))
    }

    fn disks_of(&self, manifest: &Manifest) -> Disks {
        Disks::open(&self.dirs_of(manifest))
    }

    /// The same, of which nothing is written.
    pub(super) fn disks_to_read(&self) -> Result<Disks, StoreError> {
        Ok(Disks::to_read(&self.dirs_of(&self.current()?)))
    }

    /// What is known of the store's epochs, for who reads units that are not `lost` without owning it.
    pub(super) fn knows(&self, epochs: Epochs, lost: &[u32]) -> Result<Arc<Epochs>, StoreError> {
        let (id, geometry, lost) = (self.manifest.id, self.geometry(), lost.to_vec());
        let dirs = self.dirs_of(&self.current()?);
        let ask = move || told_by(&mut Disks::to_read(&dirs), id, geometry, &lost);
        Ok(Arc::new(epochs.asking(Box::new(ask))))
    }

    fn dirs_of(&self, manifest: &Manifest) -> Vec<Vec<PathBuf>> {
        (0..self.geometry().units()).map(|unit| manifest.dirs(&self.dir, unit)).collect()
    }

    /// The manifest as it is now, which names other directories once a unit was replaced.
    pub(super) fn current(&self) -> Result<Manifest, StoreError> {
        match Manifest::read(&self.dir) {
            Ok(now) if now.is_of_same(&self.manifest) => Ok(now),
            Err(e) if !manifest::is_lost(&e) => Err(e),
            _ => Ok(self.newest()),
        }
    }

    /// The newest manifest of this store that anybody has: the store's own, this process or a unit.
    pub(super) fn newest(&self) -> Manifest {
        let same = |found: &Manifest| found.is_of_same(&self.manifest);
        let own = Manifest::read(&self.dir).ok().filter(same);
        let known = own.iter().cloned().chain(manifest_elsewhere(&self.dir).filter(same));
        let newest = Manifest::newest(&self.dir, known.chain([self.manifest.clone()]));
        let newest = newest.unwrap_or_else(|| self.manifest.clone());
        own.filter(|own| own.serial >= newest.serial).unwrap_or(newest)
    }

    /// What changes with who is read, and where that is. A caller that compares it opens the files of units
    /// anew when it differs: what a unit has that is not read any more may be old.
    pub(super) fn number(&self) -> Result<u64, StoreError> {
        home::number(&self.lock)
            .map_err(|e| StoreError::sys(&self.shown, "read which units are read", manifest::errno(&e)))
    }

    /// Becomes the process that changes the store, and finishes what an earlier one had begun.
    ///
    /// # Errors
    /// [`StoreError::Busy`] after [`timeout`](Store::timeout),
    /// [`PortError::Interrupted`](polyduct_port::PortError::Interrupted); [`StoreError::Volume`] when too
    /// many units are lost, or only such are there that missed what others served
    /// ([`Outdated`](crate::volume::VolumeError::Outdated)).
    pub fn own(&self) -> Result<Owned<'_>, StoreError> {
        self.own_with(false)
    }

    /// The same with the units that are there, although others served later
    /// ([`Outdated`](crate::volume::VolumeError::Outdated)): what was acknowledged then is given up, and the
    /// events say so. For stores with as much parity as data, or more, whose newer units are gone for good.
    ///
    /// # Errors
    /// As [`own`](Store::own).
    pub fn own_giving_up(&self) -> Result<Owned<'_>, StoreError> {
        self.own_with(true)
    }

    /// The same for who only reads: where the store can be changed it is brought into order; where not, as on
    /// a medium that is only read, be it that of one unit, or without the rights, what stands in the logs is
    /// done again in memory, and nothing changes.
    ///
    /// # Errors
    /// As [`own`](Store::own).
    pub fn own_to_read(&self) -> Result<Owned<'_>, StoreError> {
        if self.read_only.is_none() && !self.has_units_to_read()? {
            match self.own() {
                Err(StoreError::Volume { source: VolumeError::Refused(e), .. })
                    if is_for_want_of_rights(&e) => {}
                owned => return owned,
            }
        }
        let turn = StoreTurn::to_read(self.turn(Hold::Shared)?);
        let manifest = self.current()?;
        let mut disks = Disks::to_read(&self.dirs_of(&manifest)).at(StoreDir::to_read(Arc::clone(&self.fd)));
        self.take_units(&mut disks)?;
        let volume = Volume::open_among(disks, self.manifest.id, self.geometry(), nonce(), &|_| true);
        Ok(Owned::new(self, volume.map_err(StoreError::volume(&self.shown))?, turn))
    }

    /// Whether nothing can be written to a file system of some unit. A process that only reads must not make
    /// such a unit stale: none could bring it up to date, and where all units are so nothing would be left.
    fn has_units_to_read(&self) -> Result<bool, StoreError> {
        let is_to_read = |dir: &PathBuf| {
            rustix::fs::statvfs(dir).is_ok_and(|of| of.f_flag.contains(StatVfsMountFlags::RDONLY))
        };
        Ok(units_of(&self.current()?, &self.dir).iter().any(is_to_read))
    }

    fn own_with(&self, give_up: bool) -> Result<Owned<'_>, StoreError> {
        if let Some(errno) = self.read_only {
            let what = "change the store, which this process can only read";
            return Err(StoreError::sys(&self.shown, what, errno));
        }
        let byte = self.turn(Hold::Alone)?;
        let mut kept = self.kept.take();
        if let Some((_, volume)) = &mut kept {
            self.take_units(volume.units_mut())?;
        }
        // Somebody who came by another directory with this manifest had a turn of the units, and not of this
        // one.
        let of_units =
            |(who, volume): &(TurnHolder, Volume<Disks>)| volume.units().are_of(who.number()).then_some(*who);
        let (mut turn, before) = StoreTurn::begin(byte, kept.as_ref().and_then(of_units))
            .map_err(|e| StoreError::sys(&self.shown, "note whose turn it is", manifest::errno(&e)))?;
        if let Some((_, volume)) = kept.filter(|_| before == Before::Same) {
            turn.ends_well = true;
            return Ok(Owned::new(self, volume, turn));
        }
        let (id, geometry) = (self.manifest.id, self.geometry());
        // As it is now: units may have other directories than when this store was opened.
        let manifest = self.current()?;
        let home = StoreDir::new(Arc::clone(&self.fd)).telling(self.lock_file()?, manifest.places()?);
        let mut disks = self.disks_of(&manifest).at(home);
        self.take_units(&mut disks)?;
        disks.mark(turn.who().number());
        let in_use = |object: u64| {
            turn.is_held(1 + object).unwrap_or(true) || is_written(&units_of(&manifest, &self.dir), object)
        };
        let volume = match give_up {
            true => Volume::open_giving_up(disks, id, geometry, nonce(), &in_use),
            false => Volume::open_among(disks, id, geometry, nonce(), &in_use),
        };
        let volume =
            volume.map_err(StoreError::volume(&self.shown)).inspect_err(|e| self.note(&e.to_string()))?;
        turn.ends_well = true;
        if let (changes @ 1.., Before::Unfinished) = (volume.replayed(), before) {
            self.note(&format!(
                "the process that changed the store last did not finish; changes of the logs that were done \
                    again: {changes}"
            ));
        }
        if let Some((found, served)) = volume.given_up() {
            self.note(&format!(
                "what was written up to epoch {served} is given up: the units that are there were last used in epoch {found}, and \
                 go on from there"
            ));
        }
        volume.forgotten().into_iter().for_each(|what| self.note(what));
        for (unit, what) in volume.unreadable() {
            self.note(&format!("unit {unit}: {what}"));
        }
        for (unit, why) in volume.lost().filter(|&(unit, _)| !volume.is_joining(unit)) {
            events::note_once(&self.dir, &format!("unit {unit} is not used: {why}"));
        }
        Ok(Owned::new(self, volume, turn))
    }

    /// Where the protocol stood at the end of a turn: until somebody else has one, it is opened so, and
    /// nothing is to be made up for.
    pub(super) fn keep(&self, who: TurnHolder, volume: Volume<Disks>) {
        let files = volume.units().files();
        self.kept.put((who, volume), files);
    }

    /// The next turn begins anew: what was left undone is found then.
    pub(super) fn begin_anew(&self) {
        drop(self.kept.take());
    }

    /// Writes an event down.
    pub fn note(&self, what: &str) {
        events::note(&self.dir, what);
    }

    /// The same store, opened once more. Where one of the two leaves off the other goes on, unless somebody
    /// else had a turn: so a program that makes many datasets reads what there is but once.
    ///
    /// ```
    /// use polyduct_layout::{Dataset, ElemType};
    /// use polyduct_store::{disk::{Create, Store, StoreWriter}, Options};
    /// # let dir = std::env::temp_dir().join(format!("polyduct-again-doc-{}", std::process::id()));
    /// let store = Store::create(&dir, &Create { units: vec![vec!["unit0".into()]], parity: 0, stripe: 4096 })?;
    /// let data = Dataset::new(&[3], ElemType::U8)?;
    /// for name in ["a", "b", "c"] {
    ///     let mut out = StoreWriter::of(store.again()?, name, &data, "*", false, &Options::default())?;
    ///     out.write(&[1, 2, 3])?;
    ///     out.close()?;
    /// }
    /// assert_eq!(store.datasets()?.len(), 3);
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Os`]: its file of locks cannot be opened.
    pub fn again(&self) -> Result<Store, StoreError> {
        let lock = Arc::new(self.lock_file()?);
        let Store { shown, dir, manifest, fd, timeout, interrupt, read_only, .. } = self;
        let read_only = *read_only;
        let fd = Arc::clone(fd);
        let (shown, dir, manifest) = (shown.clone(), dir.clone(), manifest.clone());
        let (kept, timeout, interrupt) = (self.kept.clone(), *timeout, interrupt.clone());
        Ok(Store { shown, dir, manifest, lock, read_only, fd, kept, timeout, interrupt })
    }
}

/// Where a path leads: to a store, and a dataset in it. The store is the first directory on the way that is
/// one.
///
/// # Errors
/// [`StoreError::NoStore`]; [`StoreError::BadName`] for what is not UTF-8.
pub fn split(path: &Path) -> Result<(PathBuf, String), StoreError> {
    let ways = || {
        let mut ways: Vec<&Path> = path.ancestors().skip(1).collect();
        ways.reverse();
        ways.into_iter().map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir })
    };
    let is_store = |dir: &&Path| dir.join(manifest::NAME).is_file();
    // Where the store's own manifest is gone, a unit's tells of it.
    let found = ways().find(is_store).or_else(|| ways().find(|dir| manifest_elsewhere(dir).is_some()));
    let shown = path.display().to_string();
    let Some(dir) = found else {
        let problem = match is_store(&path) {
            true => "it is a store; a dataset in it is named behind that, DIR/NAME".into(),
            false => "no directory on this path is a store".into(),
        };
        return Err(StoreError::NoStore { store: shown, problem });
    };
    let Some(name) = path.strip_prefix(dir).unwrap_or(path).to_str() else {
        return Err(StoreError::BadName { store: shown.clone(), name: shown, problem: "it is not UTF-8" });
    };
    Ok((dir.to_owned(), name.to_owned()))
}

/// The same of a folder: of a store itself, the one without a name, which has all datasets.
///
/// # Errors
/// As [`split`].
pub fn split_folder(path: &Path) -> Result<(PathBuf, String), StoreError> {
    match path.join(manifest::NAME).is_file() || manifest_elsewhere(path).is_some() {
        true => Ok((path.to_owned(), String::new())),
        false => split(path),
    }
}

/// Whether the system refuses something for ever.
fn is_for_want_of_rights(error: &UnitError) -> bool {
    [Errno::ACCESS, Errno::PERM].map(|errno| Cause::Caller(errno.raw_os_error())).contains(&error.cause)
}

/// All directories of units.
pub(super) fn units_of(manifest: &Manifest, dir: &Path) -> Vec<PathBuf> {
    (0..manifest.geometry.units()).flat_map(|unit| manifest.dirs(dir, unit)).collect()
}

/// Whether somebody writes an object, who may have come by another directory.
pub(super) fn is_written(units: &[PathBuf], object: u64) -> bool {
    let held = |dir: &PathBuf| -> Result<bool, OsError> {
        let sums = disks::sums_of(object);
        let (file, _) = dir::open_beneath(dir::open_dir(dir)?.as_fd(), &sums, dir::Open::Read, false)?;
        is_held(&file, BEING_WRITTEN)
    };
    units.iter().any(|dir| held(dir).unwrap_or(false))
}

/// A number that nobody else draws, for an epoch that may begin.
pub fn nonce() -> u64 {
    let mut drawn = [0; 8];
    match polyduct_message::link::key::random(&mut drawn) {
        Ok(()) => u64::from_le_bytes(drawn),
        // What a system without a source of chance has that others do not.
        Err(_) => clock::now().as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(32),
    }
}

/// The newest manifest that units have, as those in the store's directory tell, where the store's own is
/// damaged or gone.
fn manifest_elsewhere(dir: &Path) -> Option<Manifest> {
    let entries = std::fs::read_dir(dir).ok()?;
    // Only one that its manifest names so, without a path. Else any directory with a unit of a store that
    // lies elsewhere would be a second door to that, with a lock of its own.
    let of_unit = |entry: std::fs::DirEntry| {
        let manifest = Manifest::read(&entry.path()).ok()?;
        let name = PathBuf::from(entry.file_name());
        manifest.units.iter().flatten().any(|unit| *unit == name).then_some(manifest)
    };
    let found: Vec<Manifest> = entries.flatten().take(MAX_LOOKED_AT).filter_map(of_unit).collect();
    // Units of two stores: nobody knows which is meant.
    found.iter().all(|other| other.id == found[0].id).then(|| Manifest::newest(dir, found)).flatten()
}
