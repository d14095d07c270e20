//! The datasets of a store by name: listed, removed, renamed, described anew.

use super::Store;
use crate::disk::meta::{check_name, Meta};
use crate::disk::StoreError;
use std::collections::{BTreeMap, BTreeSet};

impl Store {
    /// All datasets, by name.
    ///
    /// # Errors
    /// As [`own`](Store::own).
    pub fn datasets(&self) -> Result<BTreeMap<String, Meta>, StoreError> {
        self.own_to_read()?.datasets()
    }

    /// Removes datasets, with `folder` also all those of folders; all or, where one is not there, none.
    /// Returns how many. Programs that read one go on.
    ///
    /// # Errors
    /// [`StoreError::NotThere`]; as [`own`](Store::own).
    pub fn remove(&self, names: &[&str], folder: bool) -> Result<usize, StoreError> {
        names.iter().try_for_each(|name| check_name(&self.shown, name))?;
        let mut owned = self.own()?;
        let mut gone = BTreeSet::new();
        for &name in names {
            let inside = format!("{name}/");
            let of_this = |there: &&String| *there == name || folder && there.starts_with(&inside);
            let mut found = owned.names().keys().filter(of_this).cloned().peekable();
            if found.peek().is_none() {
                let hint = match owned.names().keys().any(|there| there.starts_with(&inside)) {
                    true => "; it is a folder: remove it with all that it has (-r)".into(),
                    false => owned.hint(),
                };
                return Err(StoreError::NotThere { store: self.shown.clone(), name: name.into(), hint });
            }
            gone.extend(found);
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
        owned.check_free(to, |_| false)?;
        let n = changes.len() / 2;
        owned.commit_names(changes)?;
        Ok(n)
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
