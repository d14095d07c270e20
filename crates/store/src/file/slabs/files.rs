//! The files of a Zarr array that is written: units write its chunks to them, and at the end they get their
//! lengths and names.

use super::{Chunk, Cut, Slabs, Spot};
use crate::file::drafts::Drafts;
use crate::file::io::Io;
use crate::file::Options;
use crate::volume::planted::{self, Bug};
use crate::zarr::Style;
use crate::FileError;
use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::fs::File;

/// Files that a unit keeps open.
const OPEN_FILES: usize = 8;
/// A new file may be read and written by whom the user's mask allows.
const NEW_MODE: Mode = Mode::from_bits_retain(0o666);
/// A new directory likewise.
const NEW_DIR_MODE: Mode = Mode::from_bits_retain(0o777);

impl Slabs {
    /// Gives the chunks their length and their names, makes them and the metadata last.
    ///
    /// # Errors
    /// [`FileError::System`], [`FileError::NoSpace`].
    pub fn complete(
        &self,
        dir: &File,
        path: &str,
        steps: u64,
        (style, documents): &(Style, Vec<(&'static str, Value)>),
    ) -> Result<(), FileError> {
        let options = Options::default();
        let sys = |op: &str, e| FileError::sys(path, op, e);
        let io = |op: &'static str| move |e: std::io::Error| FileError::io(path, op, &e);
        // The files and directories in it, and those in these.
        let mut kept = HashSet::new();
        let mut inner = BTreeSet::new();
        let drafts =
            self.boxes.as_ref().map(|boxes| Drafts::new(boxes, self.dataset, (dir, ""), path)).transpose()?;
        // The last steps may be fewer than a chunk has room for.
        let (whole, rest) = (steps / self.steps_of_a_chunk(), steps % self.steps_of_a_chunk());
        for chunk in self.chunks(steps) {
            let passing = self.passing_name(chunk);
            if let Some(drafts) = drafts.as_ref().filter(|_| chunk.step == whole) {
                let steps_here = if whole == 0 { rest } else { self.steps_of_a_chunk() };
                drafts.encode_drafted(chunk.step, chunk.index, rest, steps_here, path)?;
            }
            let file = match &drafts {
                // It is there, or something was not written.
                Some(_) => open_with(dir, &passing, OFlags::RDWR),
                None => open_chunk(dir, &passing),
            };
            let file = file.map_err(|e| sys("open a chunk", e))?;
            if drafts.is_none() {
                file.set_len(self.chunk_len(steps)).map_err(io("truncate a chunk"))?;
            }
            if !planted::is_planted(Bug::FileFirst) {
                file.sync_all().map_err(io("fsync a chunk"))?;
            }
            let name = style.key(&self.coords(chunk, self.has_steps(steps)));
            for (end, _) in name.match_indices('/') {
                if inner.insert(name[..end].to_owned()) {
                    rustix::fs::mkdirat(dir, &name[..end], NEW_DIR_MODE)
                        .map_err(|e| sys("make a directory", e))?;
                }
            }
            rustix::fs::renameat(dir, &passing, dir, &name).map_err(|e| sys("rename a chunk", e))?;
            kept.insert(name.split('/').next().unwrap_or_default().to_owned());
        }
        for name in inner.into_iter().filter(|_| !planted::is_planted(Bug::FileNotNamed)) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(dir, &name, flags, Mode::empty());
            opened.and_then(rustix::fs::fsync).map_err(|e| sys("fsync a directory", e))?;
        }
        // What was begun and is part of no step.
        for entry in rustix::fs::Dir::read_from(dir).map_err(|e| sys("list", e))? {
            let entry = entry.map_err(|e| sys("list", e))?;
            let known = entry.file_name().to_str().is_ok_and(|n| matches!(n, "." | "..") || kept.contains(n));
            if !known {
                let flags = rustix::fs::AtFlags::empty();
                rustix::fs::unlinkat(dir, entry.file_name(), flags).map_err(|e| sys("remove a chunk", e))?;
            }
        }
        for (name, document) in documents {
            let file = open_chunk(dir, name).map_err(|e| sys("create its metadata", e))?;
            Io { file: &file, path, options: &options }.write(format!("{document:#}\n").as_bytes(), 0)?;
            file.sync_all().map_err(io("fsync its metadata"))?;
        }
        Ok(())
    }
}

/// Opens a file in an array's directory, and makes it where it is not there.
pub fn open_chunk(dir: &File, name: &str) -> Result<File, rustix::io::Errno> {
    open_with(dir, name, OFlags::RDWR | OFlags::CREATE)
}

fn open_with(dir: &File, name: &str, flags: OFlags) -> Result<File, rustix::io::Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(dir, name, flags, NEW_MODE)).map(File::from)
}

/// The files of an array that a unit writes.
pub struct Chunks {
    slabs: Slabs,
    dir: File,
    /// Where the array is in it: empty, or names each with a `/`.
    at: String,
    /// The one used last stands last.
    open: Vec<(Chunk, File)>,
    /// Where chunks are boxes, what is written instead of the files above.
    pub drafts: Option<Drafts>,
}

impl Chunks {
    /// The files of an array in a directory or a place in it (names each with a `/`).
    ///
    /// # Errors
    /// [`FileError::System`].
    pub fn open(slabs: &Slabs, (dir, at): (&File, &str), path: &str) -> Result<Chunks, FileError> {
        let dir = dir.try_clone().map_err(|e| FileError::io(path, "duplicate its descriptor", &e))?;
        let drafts =
            slabs.boxes().map(|boxes| Drafts::new(boxes, slabs.dataset, (&dir, at), path)).transpose()?;
        Ok(Chunks { slabs: slabs.clone(), dir, at: at.to_owned(), open: Vec::new(), drafts })
    }

    /// Writes bytes of a step.
    ///
    /// # Errors
    /// As [`Io::write`].
    pub fn write(
        &mut self,
        mut bytes: &[u8],
        step: u64,
        mut offset: u64,
        path: &str,
        options: &Options,
    ) -> Result<(), FileError> {
        while !bytes.is_empty() {
            let spot = self.slabs.locate(step, offset);
            let now = bytes.len().min(usize::try_from(spot.left).unwrap_or(usize::MAX)).max(1);
            let (piece, rest) = bytes.split_at(now);
            let file = self.file(spot, path, options)?;
            Io { file, path, options }.write(piece, spot.at)?;
            (bytes, offset) = (rest, offset + now as u64);
        }
        Ok(())
    }

    /// The file of a chunk, with room for what this step brings.
    fn file(&mut self, spot: Spot, path: &str, options: &Options) -> Result<&File, FileError> {
        if let Some(at) = self.open.iter().position(|(chunk, _)| *chunk == spot.chunk) {
            let found = self.open.remove(at);
            self.open.push(found);
        } else {
            let name = format!("{}{}", self.at, self.slabs.passing_name(spot.chunk));
            let file = open_chunk(&self.dir, &name).map_err(|e| FileError::sys(path, "create a chunk", e))?;
            if let Cut::Within { .. } = self.slabs.cut {
                let (io, len) = (Io { file: &file, path, options }, self.slabs.chunk_len(1));
                io.reserve(0, len)?;
            }
            if self.open.len() == OPEN_FILES {
                self.open.remove(0);
            }
            self.open.push((spot.chunk, file));
        }
        let (_, file) =
            self.open.last().ok_or_else(|| FileError::sys(path, "open", rustix::io::Errno::IO))?;
        Ok(file)
    }

    /// Makes room for a step that shares its chunk with others; the chunks of longer ones are reserved when
    /// they are first written.
    ///
    /// # Errors
    /// As [`Io::reserve`].
    pub fn reserve(&mut self, step: u64, path: &str, options: &Options) -> Result<(), FileError> {
        let len = self.slabs.dataset.len_bytes();
        if let (Cut::Steps(_), 1..) = (self.slabs.cut, len) {
            let spot = self.slabs.locate(step, 0);
            let file = self.file(spot, path, options)?;
            let io = Io { file, path, options };
            io.reserve(spot.at, len)?;
        }
        Ok(())
    }
}
