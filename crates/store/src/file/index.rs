//! The index of a set of `.safetensors` files, `PATH.safetensors.index.json`: which array is in which of them.
//!
//! The files are called `PATH-00001-of-0000N.safetensors`, as Hugging Face's libraries write and read them.

use super::io::Io;
use super::source::open_regular;
use super::values::from_json;
use super::{Attributes, Options};
use crate::safetensors::SafetensorsError;
use crate::{json, FileError};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How the name of an index ends.
pub const ENDING: &str = ".safetensors.index.json";
/// The longest index that is read.
const MAX_BYTES: u64 = 64 << 20;
/// The most files of a set.
pub const MAX_FILES: usize = 99_999;
/// What the values of the step are called in the metadata.
const VALUES: &str = "polyduct";
/// What the bytes of all arrays are called there.
const TOTAL: &str = "total_size";

/// An index, as it was read.
#[derive(Debug, Default, Deserialize)]
pub struct Index {
    #[serde(default)]
    metadata: Map<String, Value>,
    /// The file of each array.
    weight_map: BTreeMap<String, String>,
}

/// Whether a path names a set, by its index.
pub fn is_index(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.strip_suffix(ENDING).is_some_and(|stem| !stem.is_empty()))
}

/// The path of one of the files of a set, counted from 0.
pub fn file_of(index: &Path, file: usize, of: usize) -> PathBuf {
    let name = index.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = name.strip_suffix(ENDING).unwrap_or(name);
    index.with_file_name(format!("{stem}-{:05}-of-{of:05}.safetensors", file + 1))
}

/// The text of an index: in which file each array is, the bytes of all, what is said of the step, as JSON, and of the
/// whole.
pub fn print<'a>(
    places: impl Iterator<Item = (&'a str, String)>,
    total: u64,
    values: &str,
    whole: &Attributes,
) -> String {
    let mut metadata = whole.clone();
    metadata.insert(TOTAL.to_owned(), total.into());
    if let Ok(values @ Value::Object(_)) = serde_json::from_str(values) {
        metadata.insert(VALUES.to_owned(), values);
    }
    let map: Map<String, Value> = places.map(|(name, file)| (name.to_owned(), file.into())).collect();
    let index =
        Map::from_iter([("metadata".to_owned(), metadata.into()), ("weight_map".to_owned(), map.into())]);
    serde_json::to_string_pretty(&index).unwrap_or_default() + "\n"
}

impl Index {
    /// Reads an index.
    ///
    /// # Errors
    /// [`FileError::System`]; [`FileError::BadSafetensors`] for what is none, and for files in other places.
    pub fn read(path: &Path, options: &Options) -> Result<Index, FileError> {
        let name = path.display().to_string();
        let bad = |source| FileError::BadSafetensors { path: name.clone(), source };
        let (file, len) = open_regular(path, &name)?;
        if len > MAX_BYTES {
            return Err(bad(SafetensorsError::TooLong { len, limit: MAX_BYTES as usize }));
        }
        let mut text = vec![0; len as usize];
        Io { file: &file, path: &name, options }.read(&mut text, 0)?;
        let index: Index = serde_json::from_slice(&text).map_err(|e| {
            bad(SafetensorsError::Syntax { position: json::position(&text, &e), problem: json::problem(&e) })
        })?;
        let elsewhere =
            |file: &&String| Path::new(file).components().count() != 1 || file.contains(['/', '\\']);
        let is_dir = |file: &str| matches!(file, "." | "..");
        if let Some(file) = index.weight_map.values().find(|file| elsewhere(file) || is_dir(file)) {
            let problem = format!("the file {:?} is not beside it", json::shorten(file));
            return Err(bad(SafetensorsError::Syntax { position: 0, problem }));
        }
        Ok(index)
    }

    /// The files of the set.
    ///
    /// # Errors
    /// [`FileError::BadSafetensors`] for more than there may be.
    pub fn files(&self, path: &Path) -> Result<Vec<PathBuf>, FileError> {
        let files: BTreeSet<&String> = self.weight_map.values().collect();
        if files.len() > MAX_FILES {
            let problem = format!("{} files; expected at most {MAX_FILES}", files.len());
            let source = SafetensorsError::Syntax { position: 0, problem };
            return Err(FileError::BadSafetensors { path: path.display().to_string(), source });
        }
        Ok(files.into_iter().map(|file| path.with_file_name(file)).collect())
    }

    /// The file of an array.
    pub fn file(&self, array: &str) -> Option<&str> {
        self.weight_map.get(array).map(String::as_str)
    }

    /// The arrays that it lists.
    pub fn arrays(&self) -> impl Iterator<Item = &str> {
        self.weight_map.keys().map(String::as_str)
    }

    /// What it says of the whole besides.
    pub fn attributes(&self) -> Attributes {
        let others = self.metadata.iter().filter(|(key, _)| ![VALUES, TOTAL].contains(&key.as_str()));
        others.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// What was said of the step, packed.
    pub fn values(&self) -> Vec<u8> {
        self.metadata.get(VALUES).map_or_else(Vec::new, |values| from_json(&values.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_called_as_others_call_them() {
        let path = Path::new("/models/model.safetensors.index.json");
        assert!(is_index(path) && !is_index(Path::new("model.json")) && !is_index(Path::new(ENDING)));
        let file = file_of(path, 1, 12);
        assert_eq!(file, Path::new("/models/model-00002-of-00012.safetensors"));
        let whole = Attributes::from_iter([("who".to_owned(), "me".into())]);
        let text = print([("a", "x".to_owned())].into_iter(), 7, r#"{"time":0.5}"#, &whole);
        let index: Index = serde_json::from_str(&text).unwrap();
        assert_eq!((index.file("a"), index.file("b")), (Some("x"), None));
        assert_eq!((index.metadata["total_size"].as_u64(), index.values().is_empty()), (Some(7), false));
        assert_eq!(index.attributes(), whole);
    }
}
