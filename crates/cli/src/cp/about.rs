//! Attributes and names of dimensions that the user gives the array that is written.

use polyduct::store::zarr::{Dims, MAX_METADATA_BYTES};
use polyduct::store::Attributes;
use std::fs::File;
use std::io::Read;

/// Attributes as they are typed.
#[derive(Clone, Debug, PartialEq)]
pub struct Attrs(pub Attributes);

/// Understands a JSON object, or `@FILE`, a file that holds one.
pub fn attributes(text: &str) -> Result<Attrs, String> {
    let read = |path: &str| {
        let mut content = String::new();
        let limit = MAX_METADATA_BYTES as u64;
        let file = File::open(path).and_then(|file| file.take(limit + 1).read_to_string(&mut content));
        match file {
            Ok(len) if len as u64 > limit => Err(format!("{path}: more than {limit} bytes")),
            Ok(_) => Ok(content),
            Err(error) => Err(format!("{path}: {error}")),
        }
    };
    let content = text.strip_prefix('@').map(read).transpose()?;
    let object = serde_json::from_str(content.as_deref().unwrap_or(text));
    object.map(Attrs).map_err(|error| format!("expected a JSON object: {error}"))
}

/// Names of dimensions as they are typed; those with an empty one have none.
#[derive(Clone, Debug, PartialEq)]
pub struct DimNames(pub Dims);

/// Understands `time,y,x`.
pub fn dims(text: &str) -> Result<DimNames, String> {
    let names: Dims =
        text.split(',').map(|name| Some(name.trim().to_owned()).filter(|name| !name.is_empty())).collect();
    for (at, name) in names.iter().enumerate() {
        if let Some(twice) = name.as_ref().filter(|_| names[..at].contains(name)) {
            return Err(format!("two dimensions are called {twice}"));
        }
    }
    Ok(DimNames(names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_names_are_understood() {
        assert_eq!(attributes("{\"a\": [1]}").unwrap().0["a"][0], 1);
        for text in ["[1]", "a", "", "{\"a\": 1", "@/nowhere/x.json"] {
            assert!(attributes(text).is_err(), "{text}");
        }
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(dims("time, y,x").unwrap().0, [name("time"), name("y"), name("x")]);
        assert_eq!(dims(",x,").unwrap().0, [None, name("x"), None]);
        assert!(dims("x,y,x").unwrap_err().contains("called x"));
    }
}
