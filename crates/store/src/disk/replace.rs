//! Units in other directories: of those that are lost, and of those that are given up.

use super::create::Made;
use super::disks::Disks;
use super::manifest::{self, Manifest};
use super::owned::Owned;
use super::store::{nonce, Store};
use super::StoreError;
use crate::volume::units::{Cause, UnitError};
use crate::volume::Progress;
use std::path::PathBuf;

impl Store {
    /// Takes a lost unit back, or other directories in its place: it joins, and is
    /// [rebuilt](crate::volume::Volume::rebuild). With `force` also directories that belong to something
    /// else.
    ///
    /// # Errors
    /// [`StoreError::Volume`] for a unit that is in use, or a directory that is another's; also with `force`,
    /// [`StoreError::Manifest`] for what is no path and [`StoreError::Bad`] for a directory that other units
    /// use; [`StoreError::System`]; as [`own`](Store::own).
    pub fn replace(
        &mut self,
        unit: u32,
        with: Option<Vec<PathBuf>>,
        force: bool,
    ) -> Result<Progress, StoreError> {
        self.move_unit(unit, with, force, false)
    }

    /// The same for a unit that is in use, of which its user knows that it will not be for long: it is given
    /// up, and what it had is computed from the others.
    ///
    /// # Errors
    /// [`StoreError::Bad`] where it stays in its directories, or where no unit may be missing meanwhile; as
    /// [`replace`](Store::replace).
    pub fn replace_in_use(
        &mut self,
        unit: u32,
        with: Vec<PathBuf>,
        force: bool,
    ) -> Result<Progress, StoreError> {
        self.move_unit(unit, Some(with), force, true)
    }

    fn move_unit(
        &mut self,
        unit: u32,
        with: Option<Vec<PathBuf>>,
        force: bool,
        in_use: bool,
    ) -> Result<Progress, StoreError> {
        let (mut owned, mut manifest) = (self.own()?, self.newest());
        let before = manifest.dirs(&self.dir, unit);
        let gives_up = in_use && owned.lost().all(|(lost, _)| lost != unit);
        // A unit that is joining does so in other directories.
        let mut begins_anew = false;
        if let (Some(dirs), Some(chain)) = (with, manifest.units.get_mut(unit as usize)) {
            let places = |dirs: &[PathBuf]| -> Vec<PathBuf> {
                dirs.iter().map(|dir| manifest::place_of(&self.dir.join(dir))).collect()
            };
            let is_elsewhere = places(chain) != places(&dirs);
            *chain = dirs;
            manifest.check_moved(&self.dir, &self.shown, unit)?;
            begins_anew = is_elsewhere && owned.is_joining(unit);
            if gives_up && !is_elsewhere {
                let (what, found) = ("the directories of a unit that is in use", "the same".to_owned());
                return Err(self.bad(what, found, "others, which it does not have yet"));
            }
        }
        if gives_up && owned.lost().count() >= self.geometry().parity() as usize {
            let what = format!("the number of units that may be missing while unit {unit} is rebuilt");
            let expected = "1 or more; copy the datasets to another store instead";
            return Err(self.bad(&what, "0".to_owned(), expected));
        }
        if !gives_up && owned.lost().all(|(lost, _)| lost != unit) {
            // It says why not.
            return owned.replace(unit, force, nonce()).map_err(|e| owned.error(e));
        }
        let (mut made, dirs) = (Made::default(), manifest.dirs(&self.dir, unit));
        dirs.iter().try_for_each(|dir| made.dir(&self.shown, dir))?;
        // A refusal must not cost what there is, here or there.
        self.check_place(&mut owned, unit, &dirs, force)?;
        made.settle()?;
        if gives_up || begins_anew {
            let reason = if gives_up { "it is given up" } else { "it is replaced again" };
            owned.report(UnitError { unit, reason: reason.into(), cause: Cause::Disk });
        }
        owned.units_mut().move_to(unit, &dirs);
        owned.take_also(unit)?;
        let progress = owned.replace(unit, force, nonce()).map_err(|e| owned.error(e))?;
        made.keep();
        manifest.serial += 1;
        // The unit says of itself that it joins: from here on the manifest may name it.
        for unit in 0..manifest.geometry.units() {
            for dir in manifest.dirs(&self.dir, unit) {
                // A unit that is lost is told when it comes back.
                let _ = manifest.write(&dir);
            }
        }
        let written = manifest.write(&self.dir);
        if written.is_ok() {
            self.take_manifests(before, &dirs);
        }
        owned.units_mut().moved(manifest.places()?);
        let told = owned.tell_anew().map_err(|e| owned.error(e));
        self.note(&format!(
            "unit {unit} is joining, in {}",
            dirs.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(" + ")
        ));
        drop(owned);
        written?;
        told?;
        self.manifest = manifest;
        Ok(progress)
    }

    /// Directories that are given up say no more that they belong to this store, where they can be written.
    fn take_manifests(&self, before: Vec<PathBuf>, now: &[PathBuf]) {
        let now: Vec<PathBuf> = now.iter().map(|dir| manifest::place_of(dir)).collect();
        for dir in before.iter().filter(|dir| !now.contains(&manifest::place_of(dir))) {
            if Manifest::read(dir).is_ok_and(|of| of.is_of_same(&self.manifest)) {
                let _ = std::fs::remove_file(dir.join(manifest::NAME));
            }
        }
    }

    /// Whether a unit can be in these directories: nobody else's, and such as can be written.
    fn check_place(
        &self,
        owned: &mut Owned<'_>,
        unit: u32,
        dirs: &[PathBuf],
        force: bool,
    ) -> Result<(), StoreError> {
        let places =
            || (0..=unit).map(|of| if of == unit { dirs.to_vec() } else { Vec::new() }).collect::<Vec<_>>();
        let is_unit = |dir: &PathBuf| ["superblock", "objects"].iter().any(|name| dir.join(name).exists());
        if !force && dirs.iter().any(is_unit) {
            let fits = owned.check_place(&mut Disks::open(&places()), unit, false);
            fits.map_err(|e| owned.error(e))?;
        }
        for dir in dirs {
            let probe = dir.join(format!(".{}.probe", manifest::NAME));
            let tried = std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe));
            tried.map_err(|e| {
                StoreError::sys(&dir.display().to_string(), "write into the directory", manifest::errno(&e))
            })?;
        }
        let fits = owned.check_place(&mut Disks::make(&places()), unit, true);
        fits.map_err(|e| owned.error(e))
    }

    fn bad(&self, what: &str, found: String, expected: &str) -> StoreError {
        let (store, what) = (self.shown.clone(), what.to_owned());
        StoreError::Bad { store, what, found, expected: expected.to_owned() }
    }
}
