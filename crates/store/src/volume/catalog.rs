//! The names of a store as they stand on each unit: whole, and behind that what has changed since. So what an
//! epoch writes is as long as what has changed, and not as what there is.
//!
//! Additions go behind the newest catalog, which they leave as it is: one that is torn is none, and the logs
//! still count. With as much behind it as it is long itself, all is written anew, in the other slot.

use super::error::VolumeError;
use super::planted::Bug;
use super::rebuild::Team;
use super::roll::Written;
use super::sealed::{checksum, seal, unseal};
use super::state::{Addition, Catalog, ADDITION, CATALOG};
use super::units::{File, Request, Units};
use super::{Volume, BLOCK};
use std::collections::BTreeSet;

/// The most that is read of a catalog and what was added to it.
const READ: usize = 1 << 28;
/// A catalog up to so long is written whole each time.
const SHORT: u64 = 4 * BLOCK as u64;

/// The last generation of a history.
fn last_of(history: &BTreeSet<(u32, u32)>) -> u32 {
    history.last().map_or(0, |&(generation, _)| generation)
}

/// What a unit is given.
enum Next {
    Whole(Vec<u8>),
    More(Vec<u8>),
}

impl<U: Units> Volume<U> {
    /// The newest catalog that any unit has.
    pub(super) fn read_catalogs(&mut self) -> Result<(), VolumeError> {
        let mut newest: Option<Catalog> = None;
        let (mut damaged, mut history) = (Vec::new(), BTreeSet::new());
        let mut best = vec![None; self.geometry.units() as usize];
        for slot in 0..2 {
            let all = self.read_all(File::Catalog(slot), READ)?;
            for (unit, bytes) in (0..).zip(all) {
                let bytes = bytes.unwrap_or_default();
                let Some((catalog, written)) = self.catalog_of(unit, &bytes) else {
                    if !bytes.is_empty() {
                        damaged.push(unit);
                        self.unreadable
                            .push((unit, "a copy of its catalog could not be read, and is written anew"));
                    }
                    continue;
                };
                history.extend(&catalog.history);
                let age = (catalog.tx, written.generation);
                if best[unit as usize].is_none_or(|of| of < age) {
                    let next = if self.has(Bug::OneCatalog) { slot } else { 1 - slot };
                    let of = &mut self.roll[unit];
                    (best[unit as usize], of.catalog, of.written) = (Some(age), next, Some(written));
                }
                if newest.as_ref().is_none_or(|n| n.tx < catalog.tx) {
                    newest = Some(catalog);
                }
            }
        }
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

    /// A unit's catalog with what was added to it.
    fn catalog_of(&self, unit: u32, bytes: &[u8]) -> Option<(Catalog, Written)> {
        let own = |c: &Catalog| c.volume == self.id && c.unit == unit && c.is_possible(self.geometry);
        let (mut catalog, len) = unseal::<Catalog>(CATALOG, bytes).filter(|(catalog, _)| own(catalog))?;
        let (sum, mut end) = (checksum(bytes), len.next_multiple_of(BLOCK));
        while let Some((more, len)) = bytes
            .get(end..)
            .and_then(|rest| unseal::<Addition>(ADDITION, rest))
            .filter(|(more, _)| more.follows(&catalog, sum) && more.is_possible(self.geometry))
        {
            more.apply(&mut catalog);
            end += len.next_multiple_of(BLOCK);
        }
        let generation = last_of(&catalog.history);
        let written = Written { sum, len: len as u64, end: end as u64, tx: catalog.tx, generation };
        Some((catalog, written))
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
            let more =
                Addition { volume, unit, catalog: there.sum, before, tx, next_object, changes, history };
            let bytes = seal(ADDITION, &more);
            if there.end + bytes.len() as u64 <= 2 * there.len {
                return Next::More(bytes);
            }
        }
        let (names, history) = (self.names.clone(), self.history.clone());
        Next::Whole(seal(CATALOG, &Catalog { volume: self.id, unit, tx, next_object, names, history }))
    }
}
