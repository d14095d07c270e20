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
        Target::Npz(path, member) => (path, Format::Npz, member),
        Target::Set(_) => {
            let what = "a set of files has several arrays, each with a layout of its own (arrays, layouts)";
            return Err(Error::Misuse { what: what.into() });
        }
        Target::Pipe(_) | Target::Net(_) | Target::Store(_) => {
            return Err(Error::Misuse { what: "a pipe or a store is no file".into() })
        }
    };
    Ok((path, format, Options { tensor: tensor.clone(), ..options.clone() }))
}

pub(crate) fn needs_dataset() -> Error {
    Error::Misuse { what: "a file needs the shape and dtype of what is written".into() }
}

/// Several arrays do not go everywhere.
pub(crate) fn no_arrays() -> Error {
    let what = "several arrays go through a pipe (pipe:NAME), into PATH.safetensors or a set of such files \
        (PATH.safetensors.index.json), into PATH.npz, or into a group (PATH.zarr)";
    Error::Misuse { what: what.into() }
}

/// What holds several arrays, and its form.
///
/// # Errors
/// [`Error::Misuse`] for anything else.
pub(crate) fn arrays_file(target: &Target) -> Result<(&Path, Format), Error> {
    match target {
        Target::Safetensors(path, None) | Target::Set(path) => Ok((path, Format::Safetensors)),
        Target::Npz(path, None) => Ok((path, Format::Npz)),
        Target::Zarr(path) => Ok((path, Format::Zarr)),
        _ => Err(no_arrays()),
    }
}

/// Sizes change in pipes only.
pub(crate) fn only_pipes() -> Error {
    Error::Misuse { what: "sizes change from step to step in a pipe (pipe:NAME), not in a file".into() }
}
