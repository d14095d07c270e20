//! Standard files as the other end of a port.

use crate::{Error, Target};
use polyduct_port::Array;
use polyduct_store::file::{ArraysWriter, Found, WriteArrays};
use polyduct_store::{disk, Format, Options};
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
        Target::Pipe(_) | Target::Net(_) | Target::Store(_) | Target::Stream(_) => {
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
        (PATH.safetensors.index.json), into PATH.npz, into a group (PATH.zarr), or into a folder of a store \
        (store:DIR/FOLDER); one whose size changes into PATH.npy as well";
    Error::Misuse { what: what.into() }
}

/// The arrays of what holds several, and its path.
///
/// # Errors
/// [`Error::Misuse`] for anything else; what is wrong with it.
pub(crate) fn find_arrays<'a>(target: &'a Target, options: &Options) -> Result<(&'a Path, Found), Error> {
    match target {
        Target::Store(path) => {
            let (dir, folder) = disk::split_folder(path)?;
            Ok((path, disk::folder::find(&dir, &folder, options)?))
        }
        file => {
            let (path, format) = arrays_file(file)?;
            Ok((path, Found::of(path, format, options)?))
        }
    }
}

/// Opens what is to hold several arrays.
///
/// # Errors
/// As [`find_arrays`].
pub(crate) fn write_arrays(
    target: &Target,
    arrays: &[Array],
    append: bool,
    options: &Options,
) -> Result<Box<dyn WriteArrays>, Error> {
    match target {
        Target::Store(path) => {
            let (dir, folder) = disk::split_folder(path)?;
            if folder.is_empty() {
                let what =
                    "several arrays are written into a folder of a store, in place of all that is in it \
                    (store:DIR/FOLDER), and not in place of all that the store has";
                return Err(Error::Misuse { what: what.into() });
            }
            Ok(Box::new(disk::FolderWriter::open(&dir, &folder, arrays, append, options)?))
        }
        file => {
            let (path, format) = arrays_file(file)?;
            Ok(Box::new(ArraysWriter::open(path, format, arrays, options)?))
        }
    }
}

/// A file of several arrays, and its form.
fn arrays_file(target: &Target) -> Result<(&Path, Format), Error> {
    match target {
        Target::Safetensors(path, None) | Target::Set(path) => Ok((path, Format::Safetensors)),
        Target::Npz(path, None) => Ok((path, Format::Npz)),
        Target::Zarr(path) => Ok((path, Format::Zarr)),
        Target::Npy(path) => Ok((path, Format::Npy)),
        _ => Err(no_arrays()),
    }
}

/// Sizes change where there are several arrays, or one with a name.
pub(crate) fn fixed_size() -> Error {
    let what = "the size of an array without a name is the same in all steps: open the port with arrays that have names";
    Error::Misuse { what: what.into() }
}
