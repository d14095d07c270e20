//! A store on disks: made, opened, looked at, and changed by one process at a time.

use super::disks::Disks;
use super::log;
use super::manifest::{self, Manifest};
use super::meta::{check_name, Meta};
use super::StoreError;
use crate::file::Interrupt;
use crate::volume::units::{File as Named, UnitError};
use crate::volume::{Entry, Geometry, Progress, Volume, VolumeError};
use polyduct_os::lock::{hold, is_held, Hold};
use polyduct_os::{clock, dir};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The file whose bytes are locked: byte 0 by who changes the store, byte 1 + n by who uses object n, and another by who appends
/// to it.
const LOCK: &str = "lock";
/// Entries of a directory that are looked at in search of a manifest.
const MAX_LOOKED_AT: usize = 1024;
/// Repairs that are written down one by one.
const NOTED: usize = 100;
/// Numbers of objects are below this.
const APPENDING: u64 = 1 << 50;
/// The same for all units of a program that appends.
const APPENDERS: u64 = 1 << 51;
/// Pauses between attempts to become the one who changes the store.
const RETRY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// A store: a directory with a manifest, and the directories of its units.
///
/// Any number of processes may have it open. Changes are made by one at a time, and it becomes the
/// [owner](Store::own) for as long as that takes.
pub struct Store {
    /// As the caller named it.
    pub(super) shown: String,
    dir: PathBuf,
    manifest: Manifest,
    lock: File,
    /// How long to wait for another owner; `None` waits as long as it lives.
    pub timeout: Option<Duration>,
    /// Asked during waits: give up?
    pub interrupt: Option<Interrupt>,
}

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
    /// that is not empty; [`StoreError::System`]. What was made till then is removed.
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
        let mut seen = std::collections::HashSet::new();
        for path in all.iter().flatten() {
            if !seen.insert(path) {
                let (store, what) = (shown.clone(), format!("{}, named twice,", path.display()));
                return Err(StoreError::Exists { store, what });
            }
        }
        if dir.join(manifest::NAME).exists() {
            return Err(StoreError::Exists { store: shown, what: "a store".into() });
        }
        let mut made = Made::default();
        made.dir(dir).map_err(|e| sys(dir, "make the directory", &e))?;
        for path in all.iter().flatten() {
            made.dir(path).map_err(|e| sys(path, "make the directory", &e))?;
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
            all.iter().flatten().for_each(|path| made.empty(path));
            return Err(e);
        }
        made.keep();
        let store = Store::open(dir)?;
        store.note(&format!("created with {data} data and {} parity units", how.parity));
        Ok(store)
    }

    /// Opens a store.
    ///
    /// # Errors
    /// [`StoreError::NoStore`], [`StoreError::Manifest`], [`StoreError::System`].
    pub fn open(dir: &Path) -> Result<Store, StoreError> {
        let shown = dir.display().to_string();
        let manifest = Manifest::read(dir).or_else(|e| {
            let manifest = manifest_elsewhere(dir).ok_or(e)?;
            if manifest.write(dir).is_ok() {
                log::note(dir, "the manifest was damaged or gone, and is written anew from a unit's");
            }
            Ok::<_, StoreError>(manifest)
        })?;
        let fd = dir::open_dir(dir).map_err(StoreError::os(&shown))?;
        let lock = dir::open_beneath(fd.as_fd(), LOCK, dir::Open::Make, false);
        let lock = File::from(lock.map_err(StoreError::os(&shown))?.0);
        Ok(Store { shown, dir: dir.to_owned(), manifest, lock, timeout: None, interrupt: None })
    }

    /// How the store is cut.
    pub fn geometry(&self) -> Geometry {
        self.manifest.geometry
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
    pub fn disks(&self) -> Disks {
        let units = self.geometry().units();
        let manifest = self.current();
        Disks::open(&(0..units).map(|unit| manifest.dirs(&self.dir, unit)).collect::<Vec<_>>())
    }

    /// The manifest as it is now, which names other directories once a unit was replaced.
    fn current(&self) -> Manifest {
        let same = |now: &Manifest| now.id == self.manifest.id && now.geometry == self.manifest.geometry;
        Manifest::read(&self.dir).ok().filter(same).unwrap_or_else(|| self.manifest.clone())
    }

    /// Becomes the one who changes the store; whoever was it and did not finish is made up for.
    ///
    /// # Errors
    /// [`StoreError::Busy`] after [`timeout`](Store::timeout), [`StoreError::Interrupted`]; [`StoreError::Volume`] when too many
    /// units are lost.
    pub fn own(&self) -> Result<Owned<'_>, StoreError> {
        let lock = self.turn()?;
        let in_use = |object: u64| is_held(&self.lock, 1 + object).unwrap_or(true);
        let (id, geometry) = (self.manifest.id, self.geometry());
        // As it is now: units may have other directories than when this store was opened.
        let volume = Volume::open_among(self.disks(), id, geometry, now(), &in_use);
        let volume =
            volume.map_err(StoreError::volume(&self.shown)).inspect_err(|e| self.note(&e.to_string()))?;
        for (unit, why) in volume.lost().filter(|&(unit, _)| !volume.is_joining(unit)) {
            log::note_once(&self.dir, &format!("unit {unit} is not used: {why}"));
        }
        Ok(Owned { volume, store: self, turn: lock })
    }

    /// Writes an event down.
    pub fn note(&self, what: &str) {
        log::note(&self.dir, what);
    }

    /// Waits for the lock of byte 0, over a description of its own: this process's threads exclude each other, too.
    fn turn(&self) -> Result<File, StoreError> {
        let lock = self.lock_file()?;
        let (start, mut pause) = (clock::now(), RETRY.0);
        while !hold(&lock, 0, Hold::Alone).map_err(StoreError::os(&self.shown))? {
            if self.interrupt.as_ref().is_some_and(|ask| ask()) {
                return Err(StoreError::Interrupted { store: self.shown.clone() });
            }
            let waited = clock::now().saturating_sub(start);
            if self.timeout.is_some_and(|limit| waited >= limit) {
                return Err(StoreError::Busy { store: self.shown.clone(), waited });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(RETRY.1);
        }
        Ok(lock)
    }

    /// The same store, opened once more.
    pub(super) fn again(&self) -> Result<Store, StoreError> {
        let lock = self.lock_file()?;
        let Store { shown, dir, manifest, timeout, interrupt, .. } = self;
        let (shown, dir, manifest) = (shown.clone(), dir.clone(), manifest.clone());
        Ok(Store { shown, dir, manifest, lock, timeout: *timeout, interrupt: interrupt.clone() })
    }

    /// Notes that an object is in use, until what is returned is dropped.
    pub(super) fn use_object(&self, object: u64) -> Result<InUse, StoreError> {
        self.share(1 + object)
    }

    /// Holds a byte that nobody ever holds alone.
    fn share(&self, byte: u64) -> Result<InUse, StoreError> {
        let lock = self.lock_file()?;
        hold(&lock, byte, Hold::Shared).map_err(StoreError::os(&self.shown))?;
        Ok(InUse { lock, byte })
    }

    /// Becomes the only program that appends to an object, until what is returned is dropped. Nobody of another that did is
    /// left: what such a one still wrote would go where this one writes.
    pub(super) fn append_alone(&self, object: u64, name: &str) -> Result<InUse, StoreError> {
        let (lock, os) = (self.lock_file()?, StoreError::os(&self.shown));
        let alone = hold(&lock, APPENDING + object, Hold::Alone).map_err(&os)?
            && !is_held(&lock, APPENDERS + object).map_err(&os)?;
        match alone {
            true => Ok(InUse { lock, byte: APPENDING + object }),
            false => Err(StoreError::Exists {
                store: self.shown.clone(),
                what: format!("another program that appends to {name:?}"),
            }),
        }
    }

    /// Notes that this unit's program appends to an object, until what is returned is dropped.
    pub(super) fn append_along(&self, object: u64) -> Result<InUse, StoreError> {
        self.share(APPENDERS + object)
    }

    /// The file of locks, opened anew: what holds a lock lets it go when it is closed.
    fn lock_file(&self) -> Result<File, StoreError> {
        let fd = dir::open_dir(&self.dir).map_err(StoreError::os(&self.shown))?;
        let lock = dir::open_beneath(fd.as_fd(), LOCK, dir::Open::Make, false);
        Ok(File::from(lock.map_err(StoreError::os(&self.shown))?.0))
    }

    /// All datasets, by name.
    ///
    /// # Errors
    /// As [`own`](Store::own).
    pub fn datasets(&self) -> Result<BTreeMap<String, Meta>, StoreError> {
        self.own()?.datasets()
    }

    /// Removes a dataset, or all those of a folder; returns how many. Who reads one goes on.
    ///
    /// # Errors
    /// [`StoreError::NotThere`]; as [`own`](Store::own).
    pub fn remove(&self, name: &str, folder: bool) -> Result<usize, StoreError> {
        check_name(&self.shown, name)?;
        let mut owned = self.own()?;
        let inside = format!("{name}/");
        let gone: Vec<String> = owned
            .names()
            .keys()
            .filter(|n| *n == name || folder && n.starts_with(&inside))
            .cloned()
            .collect();
        if gone.is_empty() {
            let hint = match owned.names().keys().any(|n| n.starts_with(&inside)) {
                true => "; it is a folder: remove it with all that it has (-r)".into(),
                false => owned.hint(),
            };
            return Err(StoreError::NotThere { store: self.shown.clone(), name: name.into(), hint });
        }
        let n = gone.len();
        owned.commit_names(gone.into_iter().map(|name| (name, None)).collect())?;
        Ok(n)
    }

    /// Gives a dataset, or a folder, another name.
    ///
    /// # Errors
    /// [`StoreError::NotThere`], [`StoreError::Exists`], [`StoreError::BadName`]; as [`own`](Store::own).
    pub fn rename(&self, from: &str, to: &str) -> Result<usize, StoreError> {
        check_name(&self.shown, from)?;
        check_name(&self.shown, to)?;
        let mut owned = self.own()?;
        let inside = format!("{from}/");
        let mut changes = Vec::new();
        for (name, entry) in owned.names() {
            if let Some(rest) = name.strip_prefix(from).filter(|_| name == from || name.starts_with(&inside))
            {
                check_name(&self.shown, &format!("{to}{rest}"))?;
                changes.push((name.clone(), None));
                changes.push((format!("{to}{rest}"), Some(entry.clone())));
            }
        }
        if changes.is_empty() {
            let hint = owned.hint();
            return Err(StoreError::NotThere { store: self.shown.clone(), name: from.into(), hint });
        }
        if from == to {
            return Ok(changes.len() / 2);
        }
        if to.starts_with(&inside) {
            let (store, name) = (self.shown.clone(), to.to_owned());
            return Err(StoreError::BadName { store, name, problem: "it lies in what is to be renamed" });
        }
        owned.check_free(to, &[])?;
        let n = changes.len() / 2;
        owned.commit_names(changes)?;
        Ok(n)
    }

    /// Takes a lost unit back, or other directories in its place: it joins, and is [rebuilt](Volume::rebuild). With `force` also
    /// directories that belong to something else.
    ///
    /// # Errors
    /// [`StoreError::Volume`] for a unit that is in use, or a directory that is another's; [`StoreError::System`]; as
    /// [`own`](Store::own).
    pub fn replace(
        &mut self,
        unit: u32,
        with: Option<Vec<PathBuf>>,
        force: bool,
    ) -> Result<Progress, StoreError> {
        let mut owned = self.own()?;
        let mut manifest = self.current();
        if let (Some(dirs), Some(chain)) = (with, manifest.units.get_mut(unit as usize)) {
            if owned.is_joining(unit) && *chain != dirs {
                // In other directories it begins anew.
                owned.report(UnitError { unit, reason: "it is replaced again".into(), full: false });
            }
            *chain = dirs;
        }
        if owned.lost().all(|(lost, _)| lost != unit) {
            // It says why not.
            return owned.replace(unit, force, now()).map_err(|e| owned.error(e));
        }
        let mut made = Made::default();
        let dirs = manifest.dirs(&self.dir, unit);
        for dir in &dirs {
            let sys = |e: std::io::Error| {
                StoreError::sys(&dir.display().to_string(), "make the directory", manifest::errno(&e))
            };
            made.dir(dir).map_err(sys)?;
        }
        owned.units_mut().move_to(unit, &dirs);
        let progress = owned.replace(unit, force, now()).map_err(|e| owned.error(e))?;
        made.keep();
        // The unit says of itself that it joins: from here on the manifest may name it.
        for unit in 0..manifest.geometry.units() {
            for dir in manifest.dirs(&self.dir, unit) {
                // A unit that is lost is told when it comes back.
                let _ = manifest.write(&dir);
            }
        }
        let written = manifest.write(&self.dir);
        owned.store.note(&format!(
            "unit {unit} is joining, in {}",
            dirs.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(" + ")
        ));
        drop(owned);
        written?;
        self.manifest = manifest;
        Ok(progress)
    }

    /// Changes what is written down of a dataset.
    ///
    /// # Errors
    /// [`StoreError::NotThere`]; [`StoreError::Bad`] for more than 1 MiB; as [`own`](Store::own).
    pub fn set_attributes(
        &self,
        name: &str,
        attributes: serde_json::Map<String, serde_json::Value>,
    ) -> Result<(), StoreError> {
        let mut owned = self.own()?;
        let (mut entry, mut meta) = owned.find(name)?;
        meta.attributes = attributes;
        entry.about = meta.to_bytes(&self.shown)?;
        owned.commit_names(vec![(name.to_owned(), Some(entry))])
    }
}

/// An object that is in use: its files stay, with or without a name.
#[derive(Debug)]
pub(super) struct InUse {
    lock: File,
    byte: u64,
}

impl Drop for InUse {
    fn drop(&mut self) {
        // Not only closed: a process that was forked meanwhile has the same description.
        let _ = hold(&self.lock, self.byte, Hold::Not);
    }
}

/// A store, for as long as this process is the one who changes it.
pub struct Owned<'a> {
    volume: Volume<Disks>,
    store: &'a Store,
    turn: File,
}

impl Deref for Owned<'_> {
    type Target = Volume<Disks>;

    fn deref(&self) -> &Volume<Disks> {
        &self.volume
    }
}

impl DerefMut for Owned<'_> {
    fn deref_mut(&mut self) -> &mut Volume<Disks> {
        &mut self.volume
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        self.note_repairs();
        // Not only closed: a process that was forked meanwhile has the same description.
        let _ = hold(&self.turn, 0, Hold::Not);
    }
}

impl Owned<'_> {
    fn note_repairs(&mut self) {
        let repairs = self.volume.take_repairs();
        for repair in repairs.iter().take(NOTED) {
            let (unit, object, block) = (repair.unit, repair.object, repair.block);
            let what = format!("unit {unit}: block {block} of object {object} was damaged and is made good");
            self.store.note(&what);
        }
        if let Some(more @ 1..) = repairs.len().checked_sub(NOTED) {
            self.store.note(&format!("{more} further blocks were damaged and are made good"));
        }
    }
}

impl Owned<'_> {
    /// All datasets, by name.
    ///
    /// # Errors
    /// [`StoreError::Manifest`]: what the store says of one makes no sense.
    pub fn datasets(&self) -> Result<BTreeMap<String, Meta>, StoreError> {
        let meta = |(name, entry): (&String, &Entry)| {
            Ok((name.clone(), Meta::parse(&self.store.shown, name, &entry.about)?))
        };
        self.names().iter().map(meta).collect()
    }

    /// A dataset.
    ///
    /// # Errors
    /// [`StoreError::NotThere`], [`StoreError::BadName`].
    pub fn find(&self, name: &str) -> Result<(Entry, Meta), StoreError> {
        check_name(&self.store.shown, name)?;
        match self.names().get(name) {
            Some(entry) => Ok((entry.clone(), Meta::parse(&self.store.shown, name, &entry.about)?)),
            None => Err(StoreError::NotThere {
                store: self.store.shown.clone(),
                name: name.into(),
                hint: self.hint(),
            }),
        }
    }

    /// What there is, for who asks for something else.
    fn hint(&self) -> String {
        const SHOWN: usize = 10;
        let names: Vec<&str> = self.names().keys().take(SHOWN).map(String::as_str).collect();
        match (names.is_empty(), self.names().len().saturating_sub(SHOWN)) {
            (true, _) => "; the store is empty".into(),
            (false, 0) => format!("; there is {}", names.join(", ")),
            (false, more) => format!("; there is {}, and {more} more", names.join(", ")),
        }
    }

    /// Whether a name may be given: nobody has it, and no dataset is a folder of another. `but` are names that will not be there.
    ///
    /// # Errors
    /// [`StoreError::Exists`].
    pub fn check_free(&self, name: &str, but: &[&str]) -> Result<(), StoreError> {
        let inside = format!("{name}/");
        let taken = self.names().keys().find(|there| {
            let outside = format!("{there}/");
            let meets = *there == name || there.starts_with(&inside) || name.starts_with(&outside);
            meets && !but.contains(&there.as_str())
        });
        match taken {
            None => Ok(()),
            Some(there) => Err(StoreError::Exists {
                store: self.store.shown.clone(),
                what: format!("the dataset {there:?}"),
            }),
        }
    }

    /// An object for new data, in use by this process.
    pub(super) fn fresh(&mut self) -> Result<(u64, InUse), StoreError> {
        loop {
            let object = self.volume.new_object().map_err(StoreError::volume(&self.store.shown))?;
            // Numbers are written down at the next epoch only: another may be at work on one that it got before.
            let taken = is_held(&self.store.lock, 1 + object).map_err(StoreError::os(&self.store.shown))?;
            if !taken {
                let in_use = self.store.use_object(object)?;
                // With a file of it on some unit, whoever owns the store next does not give the number out again.
                let lost: Vec<u32> = self.lost().map(|(unit, _)| unit).collect();
                let made = (0..self.store.geometry().units())
                    .filter(|unit| !lost.contains(unit))
                    .any(|unit| self.units().rows(unit, Named::Sums(object), true).is_ok());
                return match made {
                    true => Ok((object, in_use)),
                    false => Err(StoreError::sys(
                        &self.store.shown,
                        "make a file of a new object",
                        polyduct_os::Errno::IO,
                    )),
                };
            }
        }
    }

    /// The error of this store for one of its protocol.
    pub fn error(&self, source: VolumeError) -> StoreError {
        StoreError::Volume { store: self.store.shown.clone(), source }
    }

    /// Makes names stand for something else, durably.
    ///
    /// # Errors
    /// As [`Volume::commit`].
    pub fn commit_names(&mut self, changes: Vec<(String, Option<Entry>)>) -> Result<(), StoreError> {
        self.volume.commit(changes, now()).map_err(StoreError::volume(&self.store.shown))
    }
}

/// Where a path leads: to a store, and a dataset in it. The store is the first directory on the way that is one.
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
        let problem = "no directory on this path is a store".into();
        return Err(StoreError::NoStore { store: shown, problem });
    };
    let Some(name) = path.strip_prefix(dir).unwrap_or(path).to_str() else {
        return Err(StoreError::BadName { store: shown.clone(), name: shown, problem: "it is not UTF-8" });
    };
    Ok((dir.to_owned(), name.to_owned()))
}

/// The time in µs, for epochs.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |t| t.as_micros() as u64)
}

/// The manifest as a unit in the store's directory has it, where the store's own is damaged or gone.
fn manifest_elsewhere(dir: &Path) -> Option<Manifest> {
    let entries = std::fs::read_dir(dir).ok()?;
    let of_unit = |entry: std::fs::DirEntry| {
        let manifest = Manifest::read(&entry.path()).ok()?;
        let here = std::fs::canonicalize(entry.path()).ok()?;
        let mut dirs = (0..manifest.geometry.units()).flat_map(|unit| manifest.dirs(dir, unit));
        // Else it is a store of its own, which only lies there.
        dirs.any(|unit| std::fs::canonicalize(unit).is_ok_and(|unit| unit == here)).then_some(manifest)
    };
    let mut found = entries.flatten().take(MAX_LOOKED_AT).filter_map(of_unit);
    let manifest = found.next()?;
    // Units of two stores: nobody knows which is meant.
    found.all(|other| other.id == manifest.id).then_some(manifest)
}

/// Directories that were made, and are removed again unless they are kept.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    fn dir(&mut self, path: &Path) -> std::io::Result<()> {
        let missing: Vec<&Path> =
            path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
        for path in missing.into_iter().rev() {
            std::fs::create_dir(path)?;
            self.0.push(path.to_owned());
        }
        Ok(())
    }

    /// Removes what a unit that came to nothing has.
    fn empty(&self, unit: &Path) {
        for name in ["superblock", "log", "catalog0", "catalog1", manifest::NAME] {
            let _ = std::fs::remove_file(unit.join(name));
        }
        let _ = std::fs::remove_dir(unit.join("objects"));
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            let _ = std::fs::remove_dir(path);
        }
    }
}
