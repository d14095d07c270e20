//! The names of a store as they stand on each unit: whole, and behind that what has changed since. So what an
//! epoch writes is as long as what has changed, and not as what there is.
//!
//! Additions go behind the newest catalog, which they leave as it is: one that is torn is none, and the logs
//! still count. With as much behind it as it is long itself, all is written anew, in the other slot.

use super::error::VolumeError;
use super::planted::Bug;
use super::rebuild::Team;
use super::roll::Written;
use super::sealed::{checksum, seal, sealed, HEAD};
use super::state::{Addition, Catalog, NameChanges, NameTable, ADDITION, CATALOG};
use super::units::{File, Request, Units};
use super::{Volume, BLOCK};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

/// The most that is read of a catalog and what was added to it.
const READ: usize = 1 << 28;
/// A catalog up to so long is written whole each time.
const SHORT: u64 = 4 * BLOCK as u64;

/// A value in these bytes, and nothing behind it.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// The last generation of a history.
fn last_of(history: &BTreeSet<(u32, u32)>) -> u32 {
    history.last().map_or(0, |&(generation, _)| generation)
}

/// What units say alike: the bytes of a catalog, and of what was added to it, from where they do not differ
/// from unit to unit; and what that comes to.
struct Shared<'a> {
    parts: Vec<&'a [u8]>,
    /// So many of the parts belong to it.
    valid: usize,
    table: NameTable,
}

/// A unit's catalog as it lies there: its parts, each with where it ends.
struct Found<'a> {
    sum: u32,
    len: usize,
    parts: Vec<(&'a [u8], usize)>,
}

/// What a unit is given.
enum Next {
    Whole(Vec<u8>),
    More(Vec<u8>),
}

impl<U: Units> Volume<U> {
    /// The newest catalog that any unit has.
    pub(super) fn read_catalogs(&mut self) -> Result<(), VolumeError> {
        let mut newest: Option<usize> = None;
        let (mut damaged, mut history) = (Vec::new(), BTreeSet::new());
        let mut best = vec![None; self.geometry.units() as usize];
        let slots = [self.read_all(File::Catalog(0), READ)?, self.read_all(File::Catalog(1), READ)?];
        let mut shared = Vec::new();
        for (slot, all) in (0..).zip(&slots) {
            for (unit, bytes) in (0..).zip(all) {
                let bytes = bytes.as_deref().unwrap_or_default();
                let Some((one, written)) = self.catalog_of(unit, bytes, &mut shared) else {
                    if !bytes.is_empty() {
                        damaged.push(unit);
                        self.unreadable
                            .push((unit, "a copy of its catalog could not be read, and is written anew"));
                    }
                    continue;
                };
                let age = (written.tx, written.generation);
                if best[unit as usize].is_none_or(|of| of < age) {
                    let next = if self.has(Bug::OneCatalog) { slot } else { 1 - slot };
                    let of = &mut self.roll[unit];
                    (best[unit as usize], of.catalog, of.written) = (Some(age), next, Some(written));
                }
                if newest.is_none_or(|newest| shared[newest].table.tx < written.tx) {
                    newest = Some(one);
                }
            }
        }
        shared.iter().for_each(|one| history.extend(&one.table.history));
        let newest = newest.map(|newest| shared.swap_remove(newest).table);
        damaged.into_iter().for_each(|unit| self.roll[unit].written = None);
        // An older one may lack names that the logs no longer tell.
        let Some(newest) = newest.filter(|newest| newest.tx >= self.tx) else {
            let read: Vec<u32> = self.roll.read().collect();
            read.into_iter().for_each(|unit| self.lose(unit, "it has no readable catalog"));
            return Err(self.too_many());
        };
        (self.tx, self.next_object) = (self.tx.max(newest.tx), newest.next_object);
        (self.names, self.catalogued) = (newest.names, newest.tx);
        self.recalls(history);
        Ok(())
    }

    /// What catalogs have of the epochs before counts if it reaches to those of the line, so that none is
    /// missing between.
    fn recalls(&mut self, history: BTreeSet<(u32, u32)>) {
        let of_line = || self.line.iter().filter(|past| past.generation != 0);
        let first = of_line().map(|past| past.generation).min().unwrap_or(0);
        let reaches = history.last().is_some_and(|&(last, _)| last >= first);
        let line: Vec<(u32, u32)> = of_line().map(|past| (past.generation, past.epoch.mark())).collect();
        let older = history.into_iter().filter(|_| reaches);
        line.into_iter().chain(older).for_each(|(generation, mark)| self.remembers_mark(generation, mark));
    }

    /// A unit's catalog with what was added to it, among what others say: what units say alike is
    /// understood once, however many say it.
    fn catalog_of<'a>(
        &self,
        unit: u32,
        bytes: &'a [u8],
        shared: &mut Vec<Shared<'a>>,
    ) -> Option<(usize, Written)> {
        let Found { sum, len, parts: found } = self.find_catalog(unit, bytes)?;
        let is_same = |one: &Shared<'_>| one.parts.iter().eq(found.iter().map(|(part, _)| part));
        let at = match shared.iter().position(is_same) {
            Some(at) => at,
            None => {
                let parts: Vec<&[u8]> = found.iter().map(|&(part, _)| part).collect();
                let (table, valid) = self.read_parts(&parts)?;
                shared.push(Shared { parts, valid, table });
                shared.len() - 1
            }
        };
        let Shared { valid, table, .. } = &shared[at];
        let (end, generation) = (found[valid - 1].1 as u64, last_of(&table.history));
        Some((at, Written { sum, len: len as u64, end, tx: table.tx, generation }))
    }

    /// The parts of a unit's catalog that are whole, and its own.
    fn find_catalog<'a>(&self, unit: u32, bytes: &'a [u8]) -> Option<Found<'a>> {
        let value = sealed(CATALOG, bytes)?;
        let (owner, rest) = postcard::take_from_bytes::<([u8; 16], u32)>(value).ok()?;
        if owner != (self.id, unit) {
            return None;
        }
        let (sum, len) = (checksum(bytes), HEAD + value.len());
        let mut end = len.next_multiple_of(BLOCK);
        let mut parts = vec![(rest, end)];
        while let Some(value) = bytes.get(end..).and_then(|rest| sealed(ADDITION, rest)) {
            match postcard::take_from_bytes::<([u8; 16], u32, u32)>(value) {
                Ok((owner, rest)) if owner == (self.id, unit, sum) => {
                    end += (HEAD + value.len()).next_multiple_of(BLOCK);
                    parts.push((rest, end));
                }
                _ => break,
            }
        }
        Some(Found { sum, len, parts })
    }

    /// What parts come to, and how many of them belong together.
    fn read_parts(&self, parts: &[&[u8]]) -> Option<(NameTable, usize)> {
        let (first, more) = parts.split_first()?;
        let mut table = read::<NameTable>(first).filter(|table| table.is_possible(self.geometry))?;
        let mut valid = 1;
        for part in more {
            let Some(changed) = read::<NameChanges>(part) else { break };
            if changed.before != table.tx || !changed.is_possible(self.geometry) {
                break;
            }
            changed.apply(&mut table);
            valid += 1;
        }
        Some((table, valid))
    }

    /// Writes down the names on all who take part, durably: what is decided is in places then where the logs
    /// are not needed any more.
    pub(super) fn write_catalogs(&mut self, team: &Team) -> Result<(), VolumeError> {
        let (mut writes, mut syncs, mut after) = (Vec::new(), Vec::new(), Vec::new());
        let generation = last_of(&self.history);
        for unit in team.all() {
            let of = &self.roll[unit];
            let (slot, at, written, bytes) = match self.next_catalog(unit) {
                Next::Whole(bytes) => {
                    let (sum, len) = (checksum(&bytes), bytes.len() as u64);
                    let end = len.next_multiple_of(BLOCK as u64);
                    (of.catalog, 0, Written { sum, len, end, tx: self.tx, generation }, bytes)
                }
                Next::More(bytes) => {
                    let Some(there) = of.written else { continue };
                    let end = there.end + (bytes.len() as u64).next_multiple_of(BLOCK as u64);
                    (1 - of.catalog, there.end, Written { end, tx: self.tx, generation, ..there }, bytes)
                }
            };
            let file = File::Catalog(slot);
            writes.push(Request::Write { unit, file, at, bytes });
            syncs.push(Request::Sync { unit, file });
            after.push((unit, slot, written));
        }
        self.run(writes)?;
        if !self.has(Bug::CatalogNotSynced) {
            self.run(syncs)?;
        }
        for (unit, slot, written) in after {
            let next = if self.has(Bug::OneCatalog) { slot } else { 1 - slot };
            (self.roll[unit].catalog, self.roll[unit].written) = (next, Some(written));
        }
        self.catalogued = self.tx;
        self.renamed.clear();
        Ok(())
    }

    /// What a unit's catalog lacks; or all of it, where it is short or has as much behind it as it is long,
    /// where it is not known what it lacks, a copy of it is damaged, or the unit is joining and may have
    /// anything.
    fn next_catalog(&self, unit: u32) -> Next {
        let (tx, next_object) = (self.tx, self.next_object);
        let there = self.roll[unit].written.filter(|there| {
            let known = there.tx == self.catalogued && !self.is_joining(unit) && !self.has(Bug::OneCatalog);
            known && there.len > SHORT
        });
        if let Some(there) = there {
            let now = |name: &String| (name.clone(), self.names.get(name).cloned());
            let changes = self.renamed.iter().map(now).collect();
            let (volume, before) = (self.id, there.tx);
            let history = self.history.range((there.generation.saturating_add(1), 0)..).copied().collect();
            let changed = NameChanges { before, tx, next_object, changes, history };
            let bytes = seal(ADDITION, &Addition { volume, unit, catalog: there.sum, changed });
            if there.end + bytes.len() as u64 <= 2 * there.len {
                return Next::More(bytes);
            }
        }
        let (names, history) = (self.names.clone(), self.history.clone());
        let table = NameTable { tx, next_object, names, history };
        Next::Whole(seal(CATALOG, &Catalog { volume: self.id, unit, table }))
    }
}
