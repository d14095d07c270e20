//! What the units of a writing program say when it closes, and how the dataset gets its name.

use super::StoreWriter;
use crate::disk::io::{identity, replaced, Identity};
use crate::disk::owned::Owned;
use crate::disk::StoreError;
use crate::volume::units::{File as Named, UnitError};
use crate::volume::Entry;
use serde::{Deserialize, Serialize};

/// What each unit says when it closes: its steps, the units of the store that failed it, and which files it has written of each.
#[derive(Serialize, Deserialize)]
pub struct End {
    pub steps: u64,
    pub failed: Vec<(u32, String, bool)>,
    pub files: Vec<Option<Identity>>,
}

impl StoreWriter {
    /// Unit 0's part of closing.
    pub(super) fn commit(&self, ends: &[End]) -> Result<(), StoreError> {
        let shown = &self.store.shown;
        if let Some((unit, end)) = (0..).zip(ends).find(|(_, end)| end.steps != self.meta.steps) {
            return Err(StoreError::Disagree {
                store: shown.clone(),
                unit,
                what: "that it wrote this many steps:",
                expected: (self.meta.steps - self.before).to_string(),
                found: end.steps.saturating_sub(self.before).to_string(),
            });
        }
        let mut owned = self.store.own()?;
        for (unit, reason, full) in ends.iter().flat_map(|end| &end.failed) {
            if *full {
                let reason = reason.clone();
                return Err(self.refused(UnitError { unit: *unit, reason, full: true }));
            }
            owned.report(UnitError { unit: *unit, reason: reason.clone(), full: false });
        }
        // What is used now and was not when the rows were written, lacks them.
        let used_again: Vec<u32> = {
            let lost: Vec<u32> =
                owned.lost().map(|(unit, _)| unit).filter(|&unit| !owned.is_joining(unit)).collect();
            self.lost.iter().copied().filter(|unit| !lost.contains(unit)).collect()
        };
        for unit in used_again {
            let reason = "it lacks what was written while it was not used".to_owned();
            owned.report(UnitError { unit, reason, full: false });
        }
        // A unit that was replaced meanwhile has other files, or none.
        let now = |unit| identity(&owned.units().rows(unit, Named::Data(self.object), false).ok()?.0);
        for unit in replaced(ends.iter().map(|end| &end.files[..]), now) {
            let reason = "it was replaced while this was written, and lacks it".to_owned();
            owned.report(UnitError { unit, reason, full: false });
        }
        let name = self.name_now(&owned)?;
        let mut meta = self.meta.clone();
        if let Some(Some(_)) = self.appends_to {
            // Others may have changed them meanwhile.
            meta.attributes = owned.find(&name)?.1.attributes;
        }
        owned.settle(self.object);
        let blocks = self.meta.rows(self.fill).saturating_mul(self.store.geometry().row_blocks());
        let entry = Entry { object: self.object, blocks, about: meta.to_bytes(shown)? };
        owned.commit_names(vec![(name, Some(entry))])
    }

    /// The name that is to stand for what was written: of what was appended to, that which it has now.
    fn name_now(&self, owned: &Owned<'_>) -> Result<String, StoreError> {
        match self.appends_to {
            Some(Some(object)) => {
                owned.name_of(object).map(str::to_owned).ok_or_else(|| StoreError::NotThere {
                    store: self.store.shown.clone(),
                    name: self.name.clone(),
                    hint: " any more: it was removed or written anew since it was opened to be appended to"
                        .into(),
                })
            }
            Some(None) => owned.check_free(&self.name, &[]).map(|()| self.name.clone()),
            None => owned.check_free(&self.name, &[&self.name]).map(|()| self.name.clone()),
        }
    }
}
