//! A Zarr array that is read: its chunks are the units of a mapping, and a plan says what of each goes where.
//!
//! A chunk's elements that are inside the array (and in one step) are a box, packed in the chunk's own order:
//! that is what the plan counts in. Where that box lies in one piece in a file whose bytes are the array's
//! own, it is read as any file is, window by window. Otherwise the chunk is decoded as a whole, and the box
//! is packed.

use super::boxes;
use super::io::Io;
use super::work::Work;
use super::Attributes;
use super::Options;
use crate::zarr::{self, index_entries, index_len, Array, Dims, Shard, ZarrError, MAX_CHUNK_BYTES};
use crate::FileError;
use polyduct_layout::{Dataset, Mapping, Transfer};
use polyduct_os::Errno;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, CWD};
use rustix::io::retry_on_intr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// Decoded chunks that hold several steps are kept for the next one, up to so many bytes.
const KEPT_BYTES: u64 = 256 << 20;

/// An array in a directory, and what has been read of it.
pub struct Chunked {
    dir: Arc<OwnedFd>,
    /// Where it is in that directory: empty, or names each with a `/`.
    at: String,
    array: Array,
    /// Whether its first dimension counts steps.
    steps: bool,
    /// Chunks in each dimension of a step.
    grid: Vec<u64>,
    /// The file used last: a chunk, or a shard with its index.
    file: Option<Store>,
    /// Chunks of the steps around the one read last.
    kept: Vec<(Vec<u64>, Arc<Vec<u8>>)>,
    kept_bytes: u64,
}

/// A file of the array; `None` where there is none.
struct Store {
    key: String,
    file: Option<(File, u64)>,
    /// Of the shards used last, each in the one before.
    indices: Vec<Index>,
}

/// Where the chunks of a shard lie in the extent that it fills.
struct Index {
    of: Extent,
    entries: Vec<Option<(u64, u64)>>,
}

/// Where the bytes of a chunk lie.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Extent {
    at: u64,
    len: u64,
}

/// A box of elements in a chunk.
struct Inside {
    /// Elements from the chunk's first to the box's.
    first: u64,
    /// How many and how far apart, the slowest dimension first.
    loops: Vec<(u64, u64)>,
}

/// Opens an array's directory and reads its metadata.
///
/// # Errors
/// [`FileError::System`], [`FileError::BadPath`], [`FileError::BadZarr`].
pub fn open(path: &Path, name: &str, options: &Options) -> Result<(OwnedFd, Array), FileError> {
    let dir = open_dir(path, name)?;
    let bad = |source| FileError::BadZarr { path: name.to_owned(), source };
    let text = |key| document(&dir, "", key, name, zarr::MAX_METADATA_BYTES, options);
    let array = match (text("zarr.json")?, text(".zarray")?) {
        (Some(text), _) => Array::parse(&text),
        (None, Some(array)) => Array::parse_v2(&array, text(".zattrs")?.as_deref()),
        (None, None) => {
            let problem = match open_beneath(&dir, ".zgroup", name)? {
                Some(_) => return Err(bad(ZarrError::Group)),
                None => "it has no zarr.json and no .zarray",
            };
            return Err(FileError::BadPath { path: name.to_owned(), problem });
        }
    };
    array.map(|array| (dir, array)).map_err(bad)
}

/// Opens a directory.
///
/// # Errors
/// [`FileError::System`], [`FileError::BadPath`] for something else.
pub fn open_dir(path: &Path, name: &str) -> Result<OwnedFd, FileError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    retry_on_intr(|| rustix::fs::openat(CWD, path, flags, Mode::empty())).map_err(|e| match e {
        Errno::NOTDIR => FileError::BadPath { path: name.to_owned(), problem: "it is not a directory" },
        e => FileError::sys(name, "open", e),
    })
}

/// Reads a document in a directory or a place in it (names each with a `/`), of `limit` bytes at most; `None` where there is none.
///
/// # Errors
/// [`FileError::System`], [`FileError::BadZarr`].
pub fn document(
    dir: &OwnedFd,
    at: &str,
    key: &'static str,
    path: &str,
    limit: usize,
    options: &Options,
) -> Result<Option<Vec<u8>>, FileError> {
    let Some((file, len)) = open_beneath(dir, &format!("{at}{key}"), path)? else { return Ok(None) };
    if len > limit as u64 {
        let source = ZarrError::TooLong { file: key, len, limit };
        return Err(FileError::BadZarr { path: path.to_owned(), source });
    }
    let mut text = vec![0; len as usize];
    Io { file: &file, path, options }.read(&mut text, 0)?;
    Ok(Some(text))
}

/// Opens a regular file in the array; `None` where there is none. No link leads out of it.
fn open_beneath(dir: &OwnedFd, key: &str, path: &str) -> Result<Option<(File, u64)>, FileError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let opened = match retry_on_intr(|| rustix::fs::openat2(dir, key, flags, Mode::empty(), resolve)) {
        Err(Errno::NOSYS) => retry_on_intr(|| rustix::fs::openat(dir, key, flags, Mode::empty())),
        other => other,
    };
    let fd = match opened {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(FileError::sys(path, &format!("open {key}"), e)),
    };
    let stat = rustix::fs::fstat(&fd).map_err(|e| FileError::sys(path, &format!("stat {key}"), e))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Some((fd.into(), u64::try_from(stat.st_size).unwrap_or(0)))),
        _ => Err(FileError::BadZarr {
            path: path.to_owned(),
            source: ZarrError::Chunk { key: key.to_owned(), problem: "it is not a regular file".into() },
        }),
    }
}

/// The mapping of one step: each chunk is a unit, and holds its box in its own order. With it the chunks in
/// each dimension.
///
/// # Errors
/// [`FileError::BadZarr`] for more chunks than can be counted,
/// [`PortError::Layout`](polyduct_port::PortError).
pub fn mapping(array: &Array, dataset: &Dataset, path: &str) -> Result<(Mapping, Vec<u64>), FileError> {
    let shape = dataset.shape();
    let behind = array.shape.len().saturating_sub(shape.len());
    let chunk = &array.chunk[behind..];
    let grid: Vec<u64> = shape.iter().zip(chunk).map(|(n, c)| n.div_ceil(*c).max(1)).collect();
    boxes::check_count(&grid, path)?;
    let order: Vec<String> =
        array.order.iter().filter(|&&d| d >= behind).map(|d| (d - behind).to_string()).collect();
    let order = if shape.len() > 1 { format!(";order={}", order.join(",")) } else { String::new() };
    let mapping = boxes::grid_mapping(dataset, chunk, &order).map_err(FileError::layout(path))?;
    Ok((mapping, grid))
}

impl Chunked {
    /// What is written down of the array.
    pub fn attributes(&self) -> &Attributes {
        &self.array.attributes
    }

    /// What its dimensions are called.
    pub fn dims(&self) -> Option<&Dims> {
        self.array.dims.as_ref()
    }

    /// The shape of its chunks in a step.
    pub fn chunk(&self) -> &[u64] {
        &self.array.chunk[usize::from(self.steps)..]
    }

    /// One of an open directory, or of a place in it: empty, or names each with a `/`.
    pub fn new(dir: Arc<OwnedFd>, at: String, array: Array, grid: Vec<u64>) -> Chunked {
        let steps = array.shape.len() > grid.len();
        Chunked { dir, at, array, steps, grid, file: None, kept: Vec::new(), kept_bytes: 0 }
    }

    /// Closes the file that was used last: of many arrays that are read in turn, that would be one for each.
    pub fn rest(&mut self) {
        self.file = None;
    }

    /// Reads what the plan says of one step.
    ///
    /// # Errors
    /// [`FileError::BadZarr`], [`FileError::Truncated`], [`FileError::System`],
    /// [`PortError::Interrupted`](polyduct_port::PortError).
    pub fn gather(&mut self, step: u64, part: &mut [u8], mut work: Work<'_>) -> Result<(), FileError> {
        let within = match (self.steps, self.array.chunk.first()) {
            (true, Some(&of_steps)) => {
                if step.is_multiple_of(of_steps) {
                    self.kept.clear();
                    self.kept_bytes = 0;
                }
                Some((step / of_steps, step % of_steps))
            }
            _ => None,
        };
        for transfer in work.plan.transfers() {
            work.options.check_interrupt(work.path)?;
            let mut coords = self.coords(transfer.src_unit());
            let inside = self.inside(&coords, within.map_or(0, |w| w.1));
            coords.splice(0..0, within.map(|w| w.0));
            self.read(&coords, &inside, transfer, part, &mut work)?;
        }
        Ok(())
    }

    /// The place of a chunk in the grid of a step.
    fn coords(&self, unit: u64) -> Vec<u64> {
        let mut rest = unit;
        let mut coords = vec![0; self.grid.len()];
        for (c, n) in coords.iter_mut().zip(&self.grid).rev() {
            (*c, rest) = (rest % n, rest / n);
        }
        coords
    }

    /// The elements of a chunk that are in the array and in a step, `step` of those that it holds.
    fn inside(&self, coords: &[u64], step: u64) -> Inside {
        let behind = usize::from(self.steps);
        let mut inside = Inside { first: 0, loops: Vec::with_capacity(coords.len()) };
        let mut stride = 1u64;
        for &d in self.array.order.iter().rev() {
            let chunk = self.array.chunk[d];
            if d < behind {
                inside.first = step.saturating_mul(stride);
            } else {
                let left = self.array.shape[d].saturating_sub(coords[d - behind].saturating_mul(chunk));
                inside.loops.push((chunk.min(left), stride));
            }
            // Chunks that cannot be counted are as long as nothing that is read.
            stride = stride.saturating_mul(chunk);
        }
        inside.loops.reverse();
        inside
    }

    fn read(
        &mut self,
        coords: &[u64],
        inside: &Inside,
        transfer: &Transfer,
        part: &mut [u8],
        work: &mut Work<'_>,
    ) -> Result<(), FileError> {
        let elem = self.array.elem.len_bytes();
        let kept = self.kept.iter().find(|(key, _)| key == coords).map(|(_, bytes)| Arc::clone(bytes));
        let bytes = match kept {
            Some(bytes) => bytes,
            None => {
                let Some(extent) = self.find(coords, work)? else {
                    let fill = &self.array.fill;
                    return work.windows(transfer, part, |buffer, at| {
                        let phase = (at % fill.len() as u64) as usize;
                        let pattern = fill.iter().cycle().skip(phase);
                        buffer.iter_mut().zip(pattern).for_each(|(to, from)| *to = *from);
                        Ok(())
                    });
                };
                if self.array.chain.is_plain() && inside.is_dense() {
                    return self.read_plain(extent, inside.first.saturating_mul(elem), transfer, part, work);
                }
                self.decode(coords, extent, work)?
            }
        };
        let mut room = Vec::new();
        super::stretch::reserve(&mut room, inside.room(elem as usize), work.path)?;
        let packed = inside.pack(&bytes, elem as usize, room).ok_or_else(|| FileError::BadZarr {
            path: work.path.to_owned(),
            source: ZarrError::Chunk { key: self.array.key(coords), problem: "too short".into() },
        })?;
        work.stats.runs += 1;
        transfer.tables().try_for_each(|table| work.copy(&table, &packed, part))
    }

    /// Reads a box that lies in one piece, only what is needed of it.
    fn read_plain(
        &self,
        extent: Extent,
        first: u64,
        transfer: &Transfer,
        part: &mut [u8],
        work: &mut Work<'_>,
    ) -> Result<(), FileError> {
        let Some(Store { key, file: Some((file, _)), .. }) = &self.file else { return Ok(()) };
        let shown = format!("{}/{key}", work.path);
        // The file may be cut, or say that a chunk lies where nothing can.
        let expected = self.array.chunk_len();
        if extent.len != expected {
            return Err(FileError::Truncated { path: shown, expected, found: extent.len });
        }
        let options = work.options;
        work.windows(transfer, part, |buffer, at| {
            let at = extent.at.saturating_add(first).saturating_add(at);
            Io { file, path: &shown, options }.read(buffer, at)
        })
    }

    /// The bytes of a chunk, row-major in its own order.
    fn decode(
        &mut self,
        coords: &[u64],
        extent: Extent,
        work: &mut Work<'_>,
    ) -> Result<Arc<Vec<u8>>, FileError> {
        let Some(Store { key, file: Some((file, _)), .. }) = &self.file else {
            return Err(FileError::sys(work.path, "read", Errno::NOENT));
        };
        let bad = |source| FileError::BadZarr { path: work.path.to_owned(), source };
        let of_chunk = |problem| bad(ZarrError::Chunk { key: key.clone(), problem });
        let len = self.array.chunk_len();
        if len > MAX_CHUNK_BYTES {
            return Err(bad(ZarrError::LargeChunk { len, limit: MAX_CHUNK_BYTES }));
        }
        let limit = self.array.chain.limit(len);
        if extent.len > limit {
            return Err(of_chunk(format!("{} bytes; expected {limit} at most", extent.len)));
        }
        let mut encoded = Vec::new();
        super::stretch::resize(&mut encoded, extent.len as usize, work.path)?;
        let shown = format!("{}/{key}", work.path);
        Io { file, path: &shown, options: work.options }.read(&mut encoded, extent.at)?;
        let bytes = Arc::new(self.array.decode(encoded).map_err(of_chunk)?);
        let several_steps = self.steps && self.array.chunk.first() > Some(&1);
        if several_steps && self.kept_bytes + len <= KEPT_BYTES {
            self.kept_bytes += len;
            self.kept.push((coords.to_vec(), Arc::clone(&bytes)));
        }
        Ok(bytes)
    }

    /// Where a chunk lies, in the file that is opened for it; `None` for one that is not there.
    fn find(&mut self, coords: &[u64], work: &Work<'_>) -> Result<Option<Extent>, FileError> {
        // Its number in the innermost shard, that one's number in the next, and so on to the file's place in
        // the grid.
        let mut coords = coords.to_vec();
        let mut numbers = Vec::with_capacity(self.array.shards.len());
        for shard in self.array.shards.iter().rev() {
            numbers.push(coords.iter().zip(&shard.per).fold(0, |at, (c, n)| at * n + c % n));
            coords.iter_mut().zip(&shard.per).for_each(|(c, n)| *c /= n);
        }
        let key = format!("{}{}", self.at, self.array.key(&coords));
        let document = format!("{}{}", self.at, self.array.document);
        let store = open_store(&mut self.file, &self.dir, key, &document, work)?;
        let Some((_, len)) = store.file else { return Ok(None) };
        let mut extent = Extent { at: 0, len };
        for (level, (shard, number)) in self.array.shards.iter().zip(numbers.into_iter().rev()).enumerate() {
            let index = store.index(level, shard, extent, work)?;
            let Some((at, len)) = index.get(number as usize).copied().flatten() else { return Ok(None) };
            if at.checked_add(len).is_none_or(|end| end > extent.len) {
                let problem =
                    format!("a shard of {} bytes, and its index has {len} from {at} on", extent.len);
                return Err(store.bad(problem, work));
            }
            extent = Extent { at: extent.at + at, len };
        }
        Ok(Some(extent))
    }
}

/// Opens a chunk's file, unless it is the one that is open.
fn open_store<'s>(
    open: &'s mut Option<Store>,
    dir: &OwnedFd,
    key: String,
    document: &str,
    work: &Work<'_>,
) -> Result<&'s mut Store, FileError> {
    if open.as_ref().is_none_or(|store| store.key != key) {
        *open = None;
        let file = open_beneath(dir, &key, work.path)?;
        if file.is_none() && open_beneath(dir, document, work.path)?.is_none() {
            // An array that is removed loses this first.
            let problem = "it was replaced or removed while it was read";
            return Err(FileError::BadPath { path: work.path.to_owned(), problem });
        }
        *open = Some(Store { key, file, indices: Vec::new() });
    }
    open.as_mut().ok_or_else(|| FileError::sys(work.path, "open", Errno::IO))
}

impl Store {
    fn bad(&self, problem: String, work: &Work<'_>) -> FileError {
        let source = ZarrError::Chunk { key: self.key.clone(), problem };
        FileError::BadZarr { path: work.path.to_owned(), source }
    }

    /// Where the chunks of a shard lie that fills an extent; `level` is how many others it is in.
    fn index(
        &mut self,
        level: usize,
        shard: &Shard,
        extent: Extent,
        work: &Work<'_>,
    ) -> Result<&[Option<(u64, u64)>], FileError> {
        if self.indices.get(level).is_none_or(|index| index.of != extent) {
            self.indices.truncate(level);
            let Some((file, _)) = &self.file else { return Ok(&[]) };
            let need = index_len(shard);
            let Some(behind) = extent.len.checked_sub(need) else {
                let problem = format!("expected an index of {need} bytes, found {} bytes", extent.len);
                return Err(self.bad(problem, work));
            };
            let mut bytes = Vec::new();
            super::stretch::resize(&mut bytes, need as usize, work.path)?;
            let shown = format!("{}/{}", work.path, self.key);
            let at = extent.at + if shard.at_end { behind } else { 0 };
            Io { file, path: &shown, options: work.options }.read(&mut bytes, at)?;
            let entries = index_entries(shard, bytes).map_err(|problem| self.bad(problem, work))?;
            self.indices.push(Index { of: extent, entries });
        }
        Ok(self.indices.get(level).map_or(&[], |index| index.entries.as_slice()))
    }
}

impl Inside {
    /// Whether the box is one stretch of the chunk.
    fn is_dense(&self) -> bool {
        let mut span = 1;
        self.loops.iter().rev().filter(|(count, _)| *count > 1).all(|&(count, stride)| {
            let next = stride == span;
            span = span.saturating_mul(count);
            next
        })
    }

    /// Elements of the box.
    fn count(&self) -> usize {
        self.loops.iter().map(|l| l.0).product::<u64>() as usize
    }

    /// Bytes that packing takes.
    fn room(&self, elem: usize) -> usize {
        if self.is_dense() {
            0
        } else {
            self.count() * elem
        }
    }

    /// The box's elements of `elem` bytes, packed, in memory that has room for them; `None` where the chunk
    /// has fewer.
    fn pack<'a>(
        &self,
        chunk: &'a [u8],
        elem: usize,
        mut packed: Vec<u8>,
    ) -> Option<std::borrow::Cow<'a, [u8]>> {
        let count = self.count();
        let first = usize::try_from(self.first).ok()?;
        if self.is_dense() {
            return Some(chunk.get(first * elem..(first + count) * elem)?.into());
        }
        // The innermost loops that are one run.
        let mut run = 1u64;
        let mut outer = self.loops.as_slice();
        while let Some((&(n, stride), rest)) = outer.split_last() {
            if n > 1 && stride != run {
                break;
            }
            run *= n;
            outer = rest;
        }
        let mut at = vec![0u64; outer.len()];
        let run = run as usize * elem;
        while packed.len() < count * elem {
            let offset = self.first + at.iter().zip(outer).map(|(i, (_, stride))| i * stride).sum::<u64>();
            packed.extend_from_slice(chunk.get(offset as usize * elem..)?.get(..run)?);
            for (i, (n, _)) in at.iter_mut().zip(outer).rev() {
                *i += 1;
                if *i < *n {
                    break;
                }
                *i = 0;
            }
        }
        Some(packed.into())
    }
}
