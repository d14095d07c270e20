//! Standard files as the other end of a port.

use crate::{Error, Target};
use polyduct_store::{Format, Options};
use std::path::Path;

/// A file's path and form, and the options of a port on it.
pub(crate) fn standard_file<'a>(
    target: &'a Target,
    options: &Options,
) -> Result<(&'a Path, Format, Options), Error> {
    let (path, format, tensor) = match target {
        Target::Npy(path) => (path, Format::Npy, &None),
        Target::Raw(path) => (path, Format::Raw, &None),
        Target::Safetensors(path, tensor) => (path, Format::Safetensors, tensor),
        Target::Zarr(path) => (path, Format::Zarr, &None),
        Target::Pipe(_) | Target::Net(_) | Target::Store(_) => {
            return Err(Error::Misuse { what: "a pipe or a store is no file".into() })
        }
    };
    Ok((path, format, Options { tensor: tensor.clone(), ..options.clone() }))
}

pub(crate) fn needs_dataset() -> Error {
    Error::Misuse { what: "a file needs the shape and dtype of what is written".into() }
}

/// Several arrays go through pipes only.
pub(crate) fn only_pipes() -> Error {
    Error::Misuse { what: "several arrays in a step go through a pipe (pipe:NAME)".into() }
}
