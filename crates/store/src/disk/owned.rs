//! A store while one process changes it.

use super::disks::Disks;
use super::manifest::Manifest;
use super::meta::{check_name, Meta};
use super::store::{is_written, nonce, units_of, Store};
use super::turn::{InUse, StoreTurn, ALONE, ALONG, BEING_WRITTEN};
use super::StoreError;
use crate::volume::units::{Cause, File as Named};
use crate::volume::{Entry, Volume, VolumeError};
use polyduct_os::lock::{is_held, Hold};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Names that a line of the log of events has.
const SAID: usize = 10;
/// Repairs that are written down one by one.
const NOTED: usize = 100;

/// A store, for as long as this process is the one who changes it.
pub struct Owned<'a> {
    /// Taken when this is dropped, and never before.
    volume: Option<Volume<Disks>>,
    store: &'a Store,
    turn: StoreTurn,
    /// Whether the next turn may go on with it.
    sound: bool,
}

impl Deref for Owned<'_> {
    type Target = Volume<Disks>;

    fn deref(&self) -> &Volume<Disks> {
        match &self.volume {
            Some(volume) => volume,
            None => unreachable!("it is taken when this is dropped"),
        }
    }
}

impl DerefMut for Owned<'_> {
    fn deref_mut(&mut self) -> &mut Volume<Disks> {
        match &mut self.volume {
            Some(volume) => volume,
            None => unreachable!("it is taken when this is dropped"),
        }
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        if self.turn.only_reads {
            return;
        }
        self.note_repairs();
        if let Some(mut volume) = self.volume.take().filter(|_| self.sound) {
            volume.units_mut().let_go();
            self.store.keep(self.turn.who(), volume);
        }
        // The turn ends after this.
    }
}

impl<'a> Owned<'a> {
    pub(super) fn new(store: &'a Store, volume: Volume<Disks>, turn: StoreTurn) -> Owned<'a> {
        Owned { volume: Some(volume), store, turn, sound: false }
    }

    /// A unit has other directories: they belong to this turn, too.
    ///
    /// # Errors
    /// [`StoreError::Busy`] where another has them. Nobody waits for that: it may wait for others that this
    /// one has.
    pub(super) fn take_also(&mut self, unit: u32) -> Result<(), StoreError> {
        let number = self.turn.who().number();
        match self.units_mut().take_also(unit, number) {
            true => Ok(()),
            false => Err(StoreError::Busy {
                store: self.store.shown.clone(),
                waited: Duration::ZERO,
                by: "another process".into(),
            }),
        }
    }

    /// Everything that was asked went well: the next turn of this [`Store`] goes on from here, if nobody else
    /// had one between.
    pub(super) fn goes_on(&mut self) {
        self.sound = true;
    }

    fn note_repairs(&mut self) {
        let repairs = self.take_repairs();
        for repair in repairs.iter().take(NOTED) {
            let (unit, object, block) = (repair.unit, repair.object, repair.block);
            let what = format!("unit {unit}: block {block} of object {object} was damaged and is made good");
            self.store.note(&what);
        }
        if let Some(more @ 1..) = repairs.len().checked_sub(NOTED) {
            self.store.note(&format!("{more} further blocks were damaged and are made good"));
        }
    }

    /// Looks at the manifest and its copies in the directories of all units that are used, and writes anew
    /// what is damaged, gone, or another than the newest. Gives how many that were, and what could not be
    /// written.
    pub fn mend_manifests(&mut self) -> (u64, Vec<StoreError>) {
        let (store, geometry) = (self.store, self.store.geometry());
        let used: Vec<u32> =
            (0..geometry.units()).filter(|&unit| self.lost().all(|(lost, _)| lost != unit)).collect();
        let copies = |manifest: &Manifest| -> Vec<(u32, PathBuf)> {
            let of_unit =
                |&unit: &u32| manifest.dirs(&store.dir, unit).into_iter().map(move |dir| (unit, dir));
            used.iter().flat_map(of_unit).collect()
        };
        let manifest = store.newest();
        let own = std::iter::once((None, store.dir.to_path_buf()));
        let (mut mended, mut failed) = (0, Vec::new());
        for (unit, dir) in own.chain(copies(&manifest).into_iter().map(|(unit, dir)| (Some(unit), dir))) {
            if Manifest::read(&dir).is_ok_and(|there| there == manifest) {
                continue;
            }
            let whose = unit.map_or("the store's manifest".to_owned(), |unit| {
                format!("unit {unit}: the copy of the manifest in {}", dir.display())
            });
            let written = manifest.write(&dir);
            store.note(&match &written {
                Ok(()) => format!("{whose} was damaged, missing or different, and is written anew"),
                Err(error) => {
                    format!(
                        "{whose} is damaged, missing or different, and could not be written anew: {error}"
                    )
                }
            });
            mended += u64::from(written.is_ok());
            failed.extend(written.err());
        }
        (mended, failed)
    }

    /// The name of what an object holds.
    pub fn name_of(&self, object: u64) -> Option<&str> {
        self.names().iter().find(|(_, entry)| entry.object == object).map(|(name, _)| name.as_str())
    }

    /// Units of which an object is not to be read without the protocol.
    pub(super) fn lost_of(&self, object: u64) -> Vec<u32> {
        match self.units().is_shadowed(object) {
            true => (0..self.store.geometry().units()).collect(),
            false => self.lost().map(|(unit, _)| unit).collect(),
        }
    }

    /// All datasets, by name.
    ///
    /// # Errors
    /// [`StoreError::Manifest`]: what the store says of one makes no sense.
    pub fn datasets(&self) -> Result<BTreeMap<String, Meta>, StoreError> {
        let meta = |(name, entry): (&String, &Entry)| {
            Ok((name.clone(), Meta::parse(&self.store.shown, name, self.store.geometry(), &entry.about)?))
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
            Some(entry) => Ok((
                entry.clone(),
                Meta::parse(&self.store.shown, name, self.store.geometry(), &entry.about)?,
            )),
            None => Err(StoreError::NotThere {
                store: self.store.shown.clone(),
                name: name.into(),
                hint: self.hint(),
            }),
        }
    }

    /// What there is, for who asks for something else.
    pub(super) fn hint(&self) -> String {
        const SHOWN: usize = 10;
        let names: Vec<&str> = self.names().keys().take(SHOWN).map(String::as_str).collect();
        match (names.is_empty(), self.names().len().saturating_sub(SHOWN)) {
            (true, _) => "; the store is empty".into(),
            (false, 0) => format!("; there is {}", names.join(", ")),
            (false, more) => format!("; there is {}, and {more} more", names.join(", ")),
        }
    }

    /// The datasets of a folder, those of folders in it included; all where it has no name.
    pub(super) fn in_folder(&self, folder: &str) -> Vec<String> {
        self.names().keys().filter(|name| lies_in(name, folder)).cloned().collect()
    }

    /// Whether a name may be given: nobody has it, and no dataset is a folder of another. `gone` says of
    /// names that they will not be there.
    ///
    /// # Errors
    /// [`StoreError::Exists`].
    pub fn check_free(&self, name: &str, gone: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        let inside = format!("{name}/");
        let taken = self.names().keys().find(|there| {
            let outside = format!("{there}/");
            let meets = *there == name || there.starts_with(&inside) || name.starts_with(&outside);
            meets && !gone(there)
        });
        match taken {
            None => Ok(()),
            Some(there) => Err(StoreError::Exists {
                store: self.store.shown.clone(),
                what: format!("the dataset {there:?}"),
            }),
        }
    }

    /// Becomes the only program that appends to an object, until what is returned is dropped, whichever
    /// directories others came by.
    pub(super) fn append_alone(&self, object: u64, name: &str) -> Result<Vec<InUse>, StoreError> {
        let os = StoreError::os(&self.store.shown);
        let mut held = vec![self.store.append_alone(object, name)?];
        for unit in (0..self.store.geometry().units()).filter(|&unit| self.uses(unit)) {
            let sums = match self.units().rows(unit, Named::Sums(object), false) {
                Ok((sums, _)) => Arc::new(sums),
                Err(e) if e.cause == Cause::Disk => continue,
                Err(e) => return Err(StoreError::refused(&self.store.shown)(e)),
            };
            let free = !is_held(&sums, ALONG).unwrap_or(false);
            match InUse::hold(sums, ALONE, Hold::Alone).map_err(&os)?.filter(|_| free) {
                Some(alone) => held.push(alone),
                None => return Err(self.store.appends(name)),
            }
        }
        Ok(held)
    }

    /// An object for new data, in use by this process.
    pub(super) fn fresh(&mut self) -> Result<(u64, Vec<InUse>), StoreError> {
        let (store, turn) = (self.store, &self.turn);
        let units = units_of(&store.current()?, store.dir());
        // Numbers are written down at the next epoch only: another may be at work on one that it got before.
        let failed = Cell::new(None);
        let in_use = |object: u64| match turn.is_held(1 + object) {
            Ok(held) => held || is_written(&units, object),
            Err(e) => {
                failed.set(Some(e));
                false
            }
        };
        let Some(volume) = &mut self.volume else { unreachable!("it is taken when this is dropped") };
        let object = volume.new_object_among(&in_use).map_err(StoreError::volume(&store.shown))?;
        failed.take().map_or(Ok(()), Err).map_err(StoreError::os(&store.shown))?;
        let mut in_use = vec![store.use_object(object)?];
        // With a file of it on the units, whoever owns the store next does not give the number out again.
        let lost: Vec<u32> = self.lost().map(|(unit, _)| unit).collect();
        let mut why = None;
        for unit in (0..store.geometry().units()).filter(|unit| !lost.contains(unit)) {
            match self.units().rows(unit, Named::Sums(object), true) {
                Ok((sums, _)) => {
                    let held = InUse::hold(Arc::new(sums), BEING_WRITTEN, Hold::Shared);
                    in_use.extend(held.map_err(StoreError::os(&store.shown))?);
                }
                Err(e) => why = why.or(Some(e)),
            }
        }
        if in_use.len() > 1 {
            return Ok((object, in_use));
        }
        Err(match why {
            Some(e) if e.cause != Cause::Disk => StoreError::refused(&store.shown)(e),
            _ => {
                let what = "make a file of a new object";
                StoreError::sys(&store.shown, what, polyduct_os::Errno::IO)
            }
        })
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
        let said = |(name, entry): &(String, Option<Entry>)| match entry {
            Some(entry) => format!("{name:?} is object {:x}", entry.object),
            None => format!("{name:?} is removed"),
        };
        let mut what: Vec<String> = changes.iter().take(SAID).map(said).collect();
        if let Some(more @ 1..) = changes.len().checked_sub(SAID) {
            what.push(format!("{more} names more"));
        }
        self.commit(changes, nonce()).map_err(StoreError::volume(&self.store.shown))?;
        self.store.note(&what.join("; "));
        Ok(())
    }
}

/// Whether a dataset lies in a folder; in the one without a name lie all.
pub(super) fn lies_in(name: &str, folder: &str) -> bool {
    folder.is_empty() || name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}
