//! Standard files as the other end of a port.

use crate::open::About;
use crate::{Error, Target};
use polyduct_pipe::{self as pipe, Expect, Given, OnLoss, PipeError, Stats};
use polyduct_store::{self as store, FileError, Format};
use std::path::Path;

/// A file, its form, and what of it.
pub(crate) struct StandardFile<'a> {
    path: &'a Path,
    format: Format,
    tensor: Option<&'a str>,
}

pub(crate) fn standard_file(target: &Target) -> Result<StandardFile<'_>, Error> {
    let (path, format, tensor) = match target {
        Target::Npy(path) => (path, Format::Npy, None),
        Target::Raw(path) => (path, Format::Raw, None),
        Target::Safetensors(path, tensor) => (path, Format::Safetensors, tensor.as_deref()),
        Target::Zarr(path) => (path, Format::Zarr, None),
        Target::Pipe(_) | Target::Net(_) | Target::Store(_) => {
            return Err(Error::Misuse { what: "a pipe or a store is no file".into() })
        }
    };
    Ok(StandardFile { path, format, tensor })
}

/// What a file's port was told, in its own terms. What only a pipe has a use for must make sense all the same: the same program
/// may be given a pipe next time.
pub(crate) fn file_options(
    path: &Path,
    options: &pipe::Options,
    tensor: Option<&str>,
    about: &About,
) -> Result<store::Options, Error> {
    let bad = |option, found: String, expected: &str| {
        let path = path.display().to_string();
        Error::File(FileError::BadOption { path, option, found, expected: expected.into() })
    };
    options.check_counts().map_err(|e| match e {
        PipeError::BadOption { option, found, expected } => bad(option, found, &expected),
        e => e.into(),
    })?;
    if options.on_loss == OnLoss::Wait {
        let expected = "raise: a lost unit of a file cannot be replaced; start the program again";
        return Err(bad("on_loss", "wait".into(), expected));
    }
    Ok(store::Options {
        tensor: tensor.map(str::to_owned),
        attributes: about.attributes.clone(),
        dims: about.dims.clone(),
        chunks: about.chunks.clone(),
        compression: about.compression,
        descr: about.descr.clone(),
        stepped: about.stepped,
        unit: options.unit,
        units: options.units,
        program: options.program.clone(),
        timeout: options.timeout,
        open_timeout: options.open_timeout,
        interrupt: options.interrupt.clone(),
        ..store::Options::default()
    })
}

pub(crate) fn write_file(
    file: &StandardFile<'_>,
    given: &Given,
    layout: &str,
    about: &About,
    options: &pipe::Options,
) -> Result<store::FileWriter, Error> {
    match given {
        Given::Dataset(data) => {
            let options = file_options(file.path, options, file.tensor, about)?;
            Ok(store::FileWriter::open(file.path, file.format, data, layout, &options)?)
        }
        Given::ByReader => Err(needs_dataset()),
    }
}

pub(crate) fn needs_dataset() -> Error {
    Error::Misuse { what: "a file needs the shape and dtype of what is written".into() }
}

pub(crate) fn read_file(
    file: &StandardFile<'_>,
    layout: &str,
    expect: &Expect,
    options: &pipe::Options,
) -> Result<store::FileReader, Error> {
    let options = file_options(file.path, options, file.tensor, &About::default())?;
    Ok(store::FileReader::open(file.path, file.format, layout, &file_expect(expect), &options)?)
}

pub(crate) fn file_expect(expect: &Expect) -> store::Expect {
    store::Expect { shape: expect.shape.clone(), elem: expect.elem, convert: expect.convert }
}

pub(crate) fn file_stats(s: store::Stats) -> Stats {
    let store::Stats { steps, dropped, bytes, runs, waited, copied, opened } = s;
    Stats { steps, dropped, bytes, runs, waited, copied, opened }
}
