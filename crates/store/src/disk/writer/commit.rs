//! Closes a dataset for the units of a writing program, and gives it its name.

use super::output::Output;
use crate::disk::io::{identity, replaced, Identity};
use crate::disk::owned::{lies_in, Owned};
use crate::disk::store::nonce;
use crate::disk::{Store, StoreError};
use crate::volume::units::{Cause, File as Named, UnitError};
use crate::volume::{Entry, BLOCK};
use polyduct_port::{PortError, PortName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// What each unit says of a dataset when it closes: its steps, the units of the store that failed it, and which files it
/// has written of each.
#[derive(Serialize, Deserialize)]
pub struct End {
    pub steps: u64,
    pub failed: Vec<(u32, String, Cause)>,
    pub files: Vec<Option<Identity>>,
}

/// Unit 0's part of closing: each dataset gets its name, all at once. Datasets of the names in `but` go.
/// `ends` are what each unit says of each; `about` may say more of what is known of each.
pub(in crate::disk) fn commit(
    store: &Store,
    outputs: &[Output],
    ends: &[Vec<End>],
    folder: Option<&str>,
    about: impl Fn(usize, &mut Map<String, Value>),
) -> Result<(), StoreError> {
    let mut owned = store.own()?;
    let mut changes = Vec::with_capacity(outputs.len());
    let mut replaces = false;
    for (n, output) in outputs.iter().enumerate() {
        let of: Vec<&End> = ends.iter().filter_map(|ends| ends.get(n)).collect();
        let (name, entry) =
            output.entry(store, &mut owned, folder, &of, |attributes| about(n, attributes))?;
        replaces |= owned.names().get(&name).is_some_and(|there| there.object != entry.object);
        changes.push((name, Some(entry)));
    }
    let new: HashSet<String> = changes.iter().map(|(name, _)| name.clone()).collect();
    for old in folder.map(|folder| owned.in_folder(folder)).unwrap_or_default() {
        if !new.contains(&old) {
            changes.push((old, None));
            replaces = true;
        }
    }
    owned.commit_names(changes)?;
    // What is replaced is removed by who begins anew.
    if !replaces {
        owned.goes_on();
    }
    Ok(())
}

impl Output {
    /// What the name is to stand for, and the name.
    fn entry(
        &self,
        store: &Store,
        owned: &mut Owned<'_>,
        folder: Option<&str>,
        ends: &[&End],
        about: impl Fn(&mut Map<String, Value>),
    ) -> Result<(String, Entry), StoreError> {
        let shown = &store.shown;
        if let Some((unit, end)) = (0..).zip(ends).find(|(_, end)| end.steps != self.meta.steps) {
            return Err(StoreError::Port(PortError::Disagree {
                port: PortName::Store(shown.clone()),
                unit,
                what: "that it wrote this many steps:".into(),
                expected: (self.meta.steps - self.before).to_string().into(),
                found: end.steps.saturating_sub(self.before).to_string().into(),
            }));
        }
        // A unit that was replaced meanwhile has other files, or none: what it came to before does not
        // matter.
        let mut now = Vec::new();
        for unit in 0..store.geometry().units() {
            now.push(match owned.units().rows(unit, Named::Data(self.object), false) {
                Ok((file, _)) => identity(&file),
                Err(e) if matches!(e.cause, Cause::Caller(_)) => return Err(StoreError::refused(shown)(e)),
                Err(_) => None,
            });
        }
        let replaced = replaced(ends.iter().map(|end| &end.files[..]), |unit| now[unit as usize]);
        let mut late: Vec<u32> = replaced.into_iter().chain(self.lost.iter().copied()).collect();
        // One that was not there when a writer wanted to open it may be by now.
        let unopened = |end: &End, unit: u32| end.files.get(unit as usize).is_none_or(Option::is_none);
        for end in ends {
            let failed = end.failed.iter().filter(|(_, _, cause)| *cause == Cause::Disk);
            late.extend(failed.map(|&(unit, ..)| unit).filter(|&unit| unopened(end, unit)));
        }
        late.sort_unstable();
        late.dedup();
        let of_late = |(unit, ..): &&(u32, String, Cause)| late.contains(unit);
        let failed = ends.iter().flat_map(|end| &end.failed).filter(|of| !of_late(of));
        let failed =
            failed.map(|&(unit, ref reason, cause)| UnitError { unit, reason: reason.clone(), cause });
        let rows = self.meta.place(self.fill, self.before).0..self.meta.rows(self.fill);
        owned.settle(self.object, rows, failed, &late).map_err(StoreError::volume(shown))?;
        let name = self.name_now(store, owned, folder)?;
        let mut meta = self.meta.clone();
        if let Some(Some(_)) = self.appends_to {
            let (_, there) = owned.find(&name)?;
            // Whose steps were acknowledged would lose them.
            if there.steps != self.before {
                return Err(StoreError::Bad {
                    store: shown.clone(),
                    what: format!("the number of steps of {name:?}, to which another program has appended,"),
                    found: there.steps.to_string(),
                    expected: format!("{}, as when this one began to append", self.before),
                });
            }
            // Others may have changed them meanwhile.
            meta.attributes = there.attributes;
        }
        about(&mut meta.attributes);
        self.fill_row(store, owned)?;
        let blocks = self.meta.rows(self.fill).saturating_mul(store.geometry().row_blocks());
        Ok((name, Entry { object: self.object, blocks, about: meta.to_bytes(shown)? }))
    }

    /// Puts this port's first steps into the row that has others of before. Nobody reads these blocks before
    /// the name says that there are more steps; and those beside them are right all the time, as wherever a
    /// block is overwritten.
    fn fill_row(&self, store: &Store, owned: &mut Owned<'_>) -> Result<(), StoreError> {
        let Some(row) = self.read_row.filter(|_| !self.tail.is_empty()) else { return Ok(()) };
        let (_, from) = self.meta.place(self.fill, self.before);
        let (last, at) = self.meta.place(self.fill, self.meta.steps);
        let end = if last == row { at } else { self.fill.per_row * self.fill.stride };
        let bytes = self.tail.get(from as usize..end as usize).unwrap_or_default();
        let first = row * store.geometry().row_blocks() + from / BLOCK as u64;
        let written = owned.overwrite_run(self.object, first, bytes, nonce());
        written.map_err(StoreError::volume(&store.shown))
    }

    /// The name that is to stand for what was written: of what was appended to, that which it has now.
    fn name_now(&self, store: &Store, owned: &Owned<'_>, folder: Option<&str>) -> Result<String, StoreError> {
        match self.appends_to {
            Some(Some(object)) => {
                owned.name_of(object).map(str::to_owned).ok_or_else(|| StoreError::NotThere {
                    store: store.shown.clone(),
                    name: self.name.clone(),
                    hint: " any more: it was removed or written anew since it was opened to be appended to"
                        .into(),
                })
            }
            Some(None) => owned.check_free(&self.name, |_| false).map(|()| self.name.clone()),
            None => {
                let gone =
                    |there: &str| there == self.name || folder.is_some_and(|folder| lies_in(there, folder));
                owned.check_free(&self.name, gone).map(|()| self.name.clone())
            }
        }
    }
}
