//! The arrays of a folder of a store, to be read.

use super::VALUES;
use crate::disk::meta::Meta;
use crate::disk::{Store, StoreError, StoredArray};
use crate::file::found::{Found, FoundArray, Held};
use crate::file::source::{Source, Stored};
use crate::file::{shape, values, Attributes, Options};
use crate::{steps, FileError};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// Whether datasets of a store lie in this folder; the empty one has all.
///
/// # Errors
/// As [`Store::open`] and [`Store::datasets`].
pub fn is_folder(dir: &Path, folder: &str) -> Result<bool, StoreError> {
    let store = Store::open(dir)?;
    let owned = store.own_to_read()?;
    let there = owned.in_folder(folder);
    Ok(!there.is_empty() && !owned.names().contains_key(folder))
}

/// What is in a folder of a store, the arrays of folders in it included: those that are there now, whatever
/// becomes of their names.
///
/// # Errors
/// [`StoreError::NotThere`]; as [`Store::own_to_read`]. What is wrong with one array is told where that is read.
pub fn find(dir: &Path, folder: &str, options: &Options) -> Result<Found, StoreError> {
    let mut store = Store::open(dir)?;
    (store.timeout, store.interrupt) = (Some(options.port.open_timeout), options.port.interrupt.clone());
    let arrays = StoredArray::all_of(&store, folder)?;
    if arrays.is_empty() {
        let (shown, name) = (store.shown.clone(), folder.to_owned());
        return Err(StoreError::NotThere { store: shown, name, hint: store.own_to_read()?.hint() });
    }
    let is_stepped = |meta: &Meta| steps::are_a_dimension(meta.steps, meta.stepped);
    // As most have; others are no part of the same steps.
    let steps =
        arrays.iter().map(|(_, array)| array.meta()).filter(|meta| is_stepped(meta)).map(|meta| meta.steps);
    let ragged = arrays.iter().filter_map(|(_, array)| array.meta().ragged()).map(|ragged| ragged.count());
    let steps = steps.max().or_else(|| ragged.max());
    let said = arrays.iter().find_map(|(_, array)| array.meta().attributes.get(VALUES).cloned());
    let shown = format!("{}/{folder}", dir.display());
    let path: Arc<str> = shown.trim_end_matches('/').into();
    let found = |(name, array): (String, StoredArray)| {
        let (meta, stepped) = (array.meta().clone(), is_stepped(array.meta()));
        let held = || {
            if let Some(steps) = steps.filter(|&steps| stepped && steps != meta.steps) {
                return Err(FileError::Store(Box::new(StoreError::Bad {
                    store: path.to_string(),
                    what: format!("the number of steps of {name:?}"),
                    found: meta.steps.to_string(),
                    expected: format!("{steps}, as another array of the folder has; read it alone"),
                })));
            }
            let mapping = shape::file_mapping(&meta.dataset, false).map_err(FileError::layout(&path))?;
            let ragged = meta.ragged();
            let source = Source::Stored(Box::new(InStore(array)));
            Ok(Held { mapping, source, stepped, fortran: false, ragged, descr: meta.descr })
        };
        FoundArray { held: held(), path: path.clone(), name }
    };
    let arrays = arrays.into_iter().map(found).collect();
    let of_step = |said: &Value| match said {
        Value::Object(_) => values::from_json(&said.to_string()),
        _ => Vec::new(),
    };
    let values = said.as_ref().and_then(Value::as_array).map(|all| all.iter().map(of_step).collect());
    let (values, steps) = (values.unwrap_or_default(), steps.unwrap_or(1));
    let mut found = Found { arrays, values, steps, ..Found::default() };
    found.settle_ragged();
    Ok(found)
}

/// A dataset as bytes of its steps.
struct InStore(StoredArray);

impl Stored for InStore {
    fn read(&self, step: u64, bytes: &mut [u8], at: u64) -> Result<(), FileError> {
        Ok(self.0.read_bytes(step, at, bytes)?)
    }

    fn attributes(&self) -> Attributes {
        let mut attributes = self.0.meta().attributes.clone();
        attributes.remove(VALUES);
        attributes
    }
}
