//! Where the elements of an array are that is read.

use super::archive::Inflated;
use super::chunks::Chunked;
use super::io::Io;
use super::work::Work;
use super::Attributes;
use crate::npy::{self, Header};
use crate::order::read_swapped;
use crate::{safetensors, FileError};
use rustix::fs::{FileType, Mode, OFlags, CWD};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Bytes that are read first: most headers lie within.
const FIRST_BYTES: u64 = 512;

/// Where the elements are.
pub enum Source {
    /// All steps in one stretch of a file, from an offset on. Components of more than one of `component` bytes are
    /// big-endian.
    Whole { file: Arc<File>, data_at: u64, component: usize },
    /// The same in a member of an archive that is compressed.
    Inflated { member: Box<Inflated>, data_at: u64, component: usize },
    /// A Zarr array.
    Chunks(Box<Chunked>),
    /// A dataset of a store.
    Stored(Box<dyn Stored>),
}

/// An array that is neither a file nor made of files, as the bytes of its steps.
pub trait Stored: Send {
    /// Reads bytes of a step, as it lies row-major, from byte `at` on.
    ///
    /// # Errors
    /// Its own.
    fn read(&self, step: u64, bytes: &mut [u8], at: u64) -> Result<(), FileError>;

    /// What is written down of it.
    fn attributes(&self) -> Attributes;
}

impl Source {
    /// Carries a plan out for a step, which begins `step_at` bytes behind the first; the plan's source begins `base`
    /// bytes into that, but for chunks.
    ///
    /// # Errors
    /// As [`FileReader::read`](super::FileReader::read).
    pub fn gather(
        &mut self,
        (step, step_at, base): (u64, u64, u64),
        part: &mut [u8],
        mut work: Work<'_>,
    ) -> Result<(), FileError> {
        let (path, options) = (work.path, work.options);
        match self {
            Source::Whole { file, data_at, component } => {
                let (io, at) = (Io { file, path, options }, *data_at + step_at + base);
                work.stretches(part, *component, |bytes, offset| io.read(bytes, at + offset))
            }
            Source::Inflated { member, data_at, component } => {
                let bytes = member.bytes(path, options)?.get((*data_at + step_at + base) as usize..);
                let bytes = bytes.unwrap_or_default();
                work.stretches(part, *component, |to, offset| {
                    let from = bytes.get(offset as usize..).and_then(|from| from.get(..to.len()));
                    let short = || FileError::Truncated {
                        path: path.to_owned(),
                        expected: offset + to.len() as u64,
                        found: bytes.len() as u64,
                    };
                    to.copy_from_slice(from.ok_or_else(short)?);
                    Ok(())
                })
            }
            Source::Chunks(chunks) => chunks.gather(step, part, work),
            Source::Stored(of) => work.stretches(part, 1, |bytes, at| of.read(step, bytes, base + at)),
        }
    }

    /// Lets go what is held open or in memory until the next step.
    pub fn rest(&mut self) {
        match self {
            Source::Whole { .. } | Source::Stored(_) => {}
            Source::Inflated { member, .. } => member.rest(),
            Source::Chunks(chunks) => chunks.rest(),
        }
    }
}

impl Work<'_> {
    /// Carries the plan out of a file that is one stretch: `read` gives the bytes from an offset on.
    fn stretches(
        &mut self,
        part: &mut [u8],
        component: usize,
        read: impl Fn(&mut [u8], u64) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let plan = self.plan;
        let fill = |buffer: &mut [u8], at| read_swapped(buffer, at, component, &read);
        plan.transfers().iter().try_for_each(|transfer| self.windows(transfer, part, fill))
    }
}

/// Opens a regular file, and not what would block or has no end. Returns its length as well.
pub fn open_regular(path: &Path, name: &str) -> Result<(File, u64), FileError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::io::retry_on_intr(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))
        .map_err(|e| FileError::sys(name, "open", e))?;
    let stat = rustix::fs::fstat(&fd).map_err(|e| FileError::sys(name, "stat", e))?;
    let problem = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok((fd.into(), u64::try_from(stat.st_size).unwrap_or(0))),
        FileType::Directory => "it is a directory",
        FileType::Fifo | FileType::Socket => {
            "it is a pipe or socket; a file is read by all units at once, each at its place"
        }
        _ => "it is not a regular file",
    };
    Err(FileError::BadPath { path: name.to_owned(), problem })
}

/// Reads the header of what is a .npy file of `len` bytes from an offset on; returns how long it is as well.
pub fn read_header(io: &Io, at: u64, len: u64) -> Result<(Header, usize), FileError> {
    let bad = |source| FileError::BadHeader { path: io.path.to_owned(), source };
    let mut bytes = vec![0; len.min(FIRST_BYTES) as usize];
    io.read(&mut bytes, at)?;
    let (_, end) = npy::extent(&bytes).map_err(bad)?;
    if bytes.len() < end && len >= end as u64 {
        // `extent` has checked that this is not too long.
        bytes.resize(end, 0);
        io.read(&mut bytes, at)?;
    }
    let (header, end) = Header::parse(&bytes).map_err(bad)?;
    Ok((header, end))
}

/// Reads the header of a .safetensors file of `len` bytes, and checks that its tensors are there.
pub fn read_tensors(io: &Io, len: u64) -> Result<safetensors::Header, FileError> {
    let bad = |source| FileError::BadSafetensors { path: io.path.to_owned(), source };
    let mut bytes = vec![0; len.min(FIRST_BYTES) as usize];
    io.read(&mut bytes, 0)?;
    let end = safetensors::extent(&bytes).map_err(bad)?;
    if bytes.len() < end && len >= end as u64 {
        // `extent` has checked that this is not too long.
        bytes.resize(end, 0);
        io.read(&mut bytes, 0)?;
    }
    let header = safetensors::Header::parse(&bytes).map_err(bad)?;
    let (expected, found) = (header.data_len(), len - header.len_bytes as u64);
    if found < expected {
        let expected = expected + header.len_bytes as u64;
        return Err(FileError::Truncated { path: io.path.to_owned(), expected, found: len });
    }
    if found > expected {
        return Err(bad(safetensors::SafetensorsError::Trailing { expected, found }));
    }
    Ok(header)
}
