//! A Zarr array that is written: which file holds which stretch of the row-major array.
//!
//! Where nobody asks for other or for compressed chunks, each chunk is a slab: some indices of one dimension,
//! with all of the dimensions behind it, at one index of each before it. So it is one stretch of the array,
//! and its file is a piece of what would be one file. Short steps share a chunk. A step's first chunks are
//! named as if it were the only one; at the end all get the names that they have in an array of so many
//! steps.

use super::boxes::Boxes;
use super::drafts::{self, Drafts};
use super::io::Io;
use super::Options;
use crate::volume::planted::{self, Bug};
use crate::zarr::{self, About, Style};
use crate::FileError;
use polyduct_layout::Dataset;
use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::fs::File;

/// What units lock for their turns while the array is written.
const LOCK: &str = "lock";
/// Files that a unit keeps open.
const OPEN_FILES: usize = 8;
/// A new file may be read and written by whom the user's mask allows.
const NEW_MODE: Mode = Mode::from_bits_retain(0o666);
/// A new directory likewise.
const NEW_DIR_MODE: Mode = Mode::from_bits_retain(0o777);

/// How an array falls into chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slabs {
    dataset: Dataset,
    cut: Cut,
    /// What its users say of it.
    about: About,
    /// Whether the steps are a dimension even if there is just one.
    stepped: bool,
    /// Chunks that are no slabs, or compressed: they are encoded from drafts.
    boxes: Option<Boxes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// A chunk holds so many whole steps.
    Steps(u64),
    /// A chunk holds so many indices of a dimension; `plane` is the bytes of one of them.
    Within { dim: usize, rows: u64, plane: u64 },
}

/// A chunk: the step, or the number of the chunk of steps, and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    step: u64,
    index: u64,
}

/// A place in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    pub chunk: Chunk,
    /// Offset in its file.
    pub at: u64,
    /// Bytes from there to the end of the chunk, or of the step.
    pub left: u64,
}

impl Slabs {
    /// Chunks of at most `chunk_bytes` bytes, and not much less where there is more.
    pub fn new(dataset: Dataset, chunk_bytes: u64) -> Slabs {
        let step = dataset.len_bytes();
        if step <= chunk_bytes {
            let cut = Cut::Steps((chunk_bytes / step.max(1)).max(1));
            return Slabs { dataset, cut, about: About::default(), stepped: false, boxes: None };
        }
        let shape = dataset.shape();
        let plane_of = |dim: usize| shape[dim + 1..].iter().product::<u64>() * dataset.elem().len_bytes();
        // The step is not empty, so no size is 0.
        let dim =
            (0..shape.len()).find(|&d| plane_of(d) <= chunk_bytes).unwrap_or(shape.len().saturating_sub(1));
        let (size, plane) = match shape.get(dim) {
            Some(&size) => (size, plane_of(dim)),
            None => (1, step),
        };
        // All about the same, and not one that is padded most of all.
        let pieces = (size * plane).div_ceil(chunk_bytes).clamp(1, size);
        let cut = Cut::Within { dim, rows: size.div_ceil(pieces), plane };
        Slabs { dataset, cut, about: About::default(), stepped: false, boxes: None }
    }

    /// With what its users say of it, and whether its steps are a dimension even if there is just one.
    pub fn about(self, about: About, stepped: bool) -> Slabs {
        Slabs { about, stepped, ..self }
    }

    /// The same as boxes: of the shape that is told, or of the slabs'.
    ///
    /// # Errors
    /// As [`Boxes::new`].
    pub fn boxed(mut self, shape: Option<&[u64]>, path: &str) -> Result<Slabs, FileError> {
        let many = match self.cut {
            Cut::Steps(many) if self.dataset.len_bytes() > 0 => many,
            _ => 1,
        };
        let own = [&[many], self.slab().as_slice()].concat();
        let boxes = Boxes::new(self.dataset, shape.unwrap_or(&own), self.about.compression, path)?;
        self.boxes = Some(boxes);
        Ok(self)
    }

    /// What is encoded from drafts.
    pub fn boxes(&self) -> Option<&Boxes> {
        self.boxes.as_ref()
    }

    /// Whether so many steps are a dimension.
    fn has_steps(&self, steps: u64) -> bool {
        crate::steps::are_a_dimension(steps, self.stepped)
    }

    /// Where a byte of a step lies.
    pub fn locate(&self, step: u64, offset: u64) -> Spot {
        match self.cut {
            Cut::Steps(many) => {
                let len = self.dataset.len_bytes();
                let chunk = Chunk { step: step / many, index: 0 };
                Spot { chunk, at: step % many * len + offset, left: len.saturating_sub(offset) }
            }
            Cut::Within { dim, rows, plane } => {
                let whole = self.dataset.shape().get(dim).copied().unwrap_or(1) * plane;
                let (outer, within) = (offset / whole, offset % whole);
                let len = rows * plane;
                let index = outer * whole.div_ceil(len) + within / len;
                let at = within % len;
                Spot { chunk: Chunk { step, index }, at, left: (len - at).min(whole - within) }
            }
        }
    }

    /// Bytes of a chunk's file when there are so many steps.
    fn chunk_len(&self, steps: u64) -> u64 {
        match self.cut {
            Cut::Steps(many) => many.min(steps).saturating_mul(self.dataset.len_bytes()),
            Cut::Within { rows, plane, .. } => rows * plane,
        }
    }

    /// Chunks of one step, or of those steps that share one.
    fn per_step(&self) -> u64 {
        if let Some(boxes) = &self.boxes {
            return boxes.per_step();
        }
        match (self.dataset.len_bytes(), self.cut) {
            (0, _) => 0,
            (_, Cut::Steps(_)) => 1,
            (len, Cut::Within { dim, plane, .. }) => {
                let whole = self.dataset.shape().get(dim).copied().unwrap_or(1) * plane;
                len / whole * whole.div_ceil(self.chunk_len(1))
            }
        }
    }

    fn steps_of_a_chunk(&self) -> u64 {
        match (&self.boxes, self.cut) {
            (Some(boxes), _) => boxes.steps,
            (None, Cut::Steps(many)) => many,
            (None, Cut::Within { .. }) => 1,
        }
    }

    /// All chunks of so many steps.
    fn chunks(&self, steps: u64) -> impl Iterator<Item = Chunk> {
        let per_step = self.per_step();
        let outer = steps.div_ceil(self.steps_of_a_chunk());
        (0..outer).flat_map(move |step| (0..per_step).map(move |index| Chunk { step, index }))
    }

    /// The place of a chunk in the grid: with the step as the first dimension, or of an array of one step.
    fn coords(&self, chunk: Chunk, steps: bool) -> Vec<u64> {
        let shape = self.dataset.shape();
        let mut coords = vec![0; shape.len()];
        if let Some(boxes) = &self.boxes {
            coords = boxes.coords(chunk.index);
        } else if let Cut::Within { dim, rows, .. } = self.cut {
            let mut rest = chunk.index;
            for d in (0..=dim).rev().filter(|&d| d < shape.len()) {
                let size = if d == dim { shape[d].div_ceil(rows) } else { shape[d] };
                coords[d] = rest % size;
                rest /= size;
            }
        }
        if steps {
            coords.insert(0, chunk.step);
        }
        coords
    }

    /// The name while the array is written, when it is not known how many steps there will be.
    fn passing_name(&self, chunk: Chunk) -> String {
        drafts::passing_name(&self.coords(chunk, false), chunk.step)
    }

    /// `zarr.json` of so many steps, where nothing says how it is to be.
    pub fn metadata(&self, steps: u64) -> String {
        let (shape, chunk) = self.sizes(steps);
        zarr::print(self.dataset.elem(), &shape, &chunk, &self.about.attributes)
    }

    /// How an array of so many steps is written down in a place, and its metadata.
    pub fn style(&self, place: &zarr::Place, steps: u64) -> (Style, Vec<(&'static str, Value)>) {
        let (elem, (shape, chunk)) = (self.dataset.elem(), self.sizes(steps));
        let style = Style::new(place, &self.about, elem, &shape);
        let documents = style.documents(elem, &shape, &chunk);
        (style, documents)
    }

    /// The sizes of an array of so many steps, and of its chunks.
    fn sizes(&self, steps: u64) -> (Vec<u64>, Vec<u64>) {
        let mut shape = self.dataset.shape().to_vec();
        let mut chunk = self.boxes.as_ref().map_or_else(|| self.slab(), |boxes| boxes.chunk.clone());
        if self.has_steps(steps) {
            shape.insert(0, steps);
            chunk.insert(0, self.steps_of_a_chunk().min(steps).max(1));
        }
        (shape, chunk)
    }

    /// The sizes of a slab.
    fn slab(&self) -> Vec<u64> {
        let mut chunk: Vec<u64> = self.dataset.shape().iter().map(|&n| n.max(1)).collect();
        if let Cut::Within { dim, rows, .. } = self.cut {
            chunk.iter_mut().take(dim).for_each(|c| *c = 1);
            chunk.iter_mut().skip(dim).take(1).for_each(|c| *c = rows);
        }
        chunk
    }

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
            self.boxes.as_ref().map(|boxes| Drafts::new(boxes, self.dataset, dir, path)).transpose()?;
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
    /// The one used last stands last.
    open: Vec<(Chunk, File)>,
    /// Units write whole windows in turns, and so read what lies in them.
    shared: bool,
    /// Where chunks are boxes, what is written instead of the files above.
    pub drafts: Option<Drafts>,
}

impl Chunks {
    /// The files in an array's directory, and where units write in turns the file that they lock.
    ///
    /// # Errors
    /// [`FileError::System`].
    pub fn open(
        slabs: &Slabs,
        dir: &File,
        shared: bool,
        path: &str,
    ) -> Result<(Chunks, Option<File>), FileError> {
        let dir = dir.try_clone().map_err(|e| FileError::io(path, "duplicate its descriptor", &e))?;
        let lock = shared.then(|| open_chunk(&dir, LOCK)).transpose();
        let lock = lock.map_err(|e| FileError::sys(path, "create a file to lock", e))?;
        let drafts = slabs.boxes().map(|boxes| Drafts::new(boxes, slabs.dataset, &dir, path)).transpose()?;
        Ok((Chunks { slabs: slabs.clone(), dir, open: Vec::new(), shared, drafts }, lock))
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

    /// Reads bytes of a step, where units write in turns.
    ///
    /// # Errors
    /// As [`Io::read`].
    pub fn read(
        &mut self,
        mut bytes: &mut [u8],
        step: u64,
        mut offset: u64,
        path: &str,
        options: &Options,
    ) -> Result<(), FileError> {
        while !bytes.is_empty() {
            let spot = self.slabs.locate(step, offset);
            let now = bytes.len().min(usize::try_from(spot.left).unwrap_or(usize::MAX)).max(1);
            let (piece, rest) = bytes.split_at_mut(now);
            let file = self.file(spot, path, options)?;
            Io { file, path, options }.read(piece, spot.at)?;
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
            let name = self.slabs.passing_name(spot.chunk);
            let file = open_chunk(&self.dir, &name).map_err(|e| FileError::sys(path, "create a chunk", e))?;
            if let Cut::Within { .. } = self.slabs.cut {
                let (io, len) = (Io { file: &file, path, options }, self.slabs.chunk_len(1));
                io.reserve(0, len)?;
                // All make it as long as this.
                if self.shared {
                    io.extend(len)?;
                }
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
    pub fn reserve(
        &mut self,
        step: u64,
        shared: bool,
        path: &str,
        options: &Options,
    ) -> Result<(), FileError> {
        let len = self.slabs.dataset.len_bytes();
        if let (Cut::Steps(_), 1..) = (self.slabs.cut, len) {
            let spot = self.slabs.locate(step, 0);
            let file = self.file(spot, path, options)?;
            let io = Io { file, path, options };
            io.reserve(spot.at, len)?;
            if shared {
                io.extend(spot.at + len)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_layout::ElemType;
    use proptest::prelude::*;

    fn slabs(shape: &[u64], chunk_bytes: u64) -> Slabs {
        Slabs::new(Dataset::new(shape, ElemType::I16).unwrap(), chunk_bytes)
    }

    /// The chunk that holds an index, and the offset in it, by the format's rules.
    fn by_the_book(index: &[u64], chunk: &[u64]) -> (Vec<u64>, u64) {
        let coords = index.iter().zip(chunk).map(|(i, c)| i / c).collect();
        let offset = index.iter().zip(chunk).fold(0, |at, (i, c)| at * c + i % c);
        (coords, offset)
    }

    proptest! {
        #[test]
        fn each_byte_lies_where_the_format_says(
            shape in proptest::collection::vec(0u64..7, 0..4), chunk_bytes in 1u64..200, steps in 0u64..5,
            stepped: bool,
        ) {
            let slabs = slabs(&shape, chunk_bytes).about(About::default(), stepped);
            let array = zarr::Array::parse(slabs.metadata(steps).as_bytes()).unwrap();
            let with_steps = stepped || steps != 1;
            prop_assert_eq!(array.shape.len(), shape.len() + usize::from(with_steps));
            let mut names = std::collections::BTreeSet::new();
            let elems: u64 = shape.iter().product();
            for step in 0..steps {
                for element in 0..elems {
                    let mut rest = element;
                    let mut index: Vec<u64> = shape.iter().rev().map(|n| {
                        let i = rest % n;
                        rest /= n;
                        i
                    }).collect();
                    index.reverse();
                    if with_steps {
                        index.insert(0, step);
                    }
                    let (coords, offset) = by_the_book(&index, &array.chunk);
                    let spot = slabs.locate(step, element * 2);
                    prop_assert_eq!(slabs.coords(spot.chunk, with_steps), coords.clone());
                    prop_assert_eq!(spot.at, offset * 2);
                    prop_assert!(spot.left >= 2 && spot.at + 2 <= slabs.chunk_len(steps));
                    names.insert(array.key(&coords));
                }
            }
            let all: std::collections::BTreeSet<String> =
                slabs.chunks(steps).map(|c| array.key(&slabs.coords(c, with_steps))).collect();
            prop_assert_eq!(all, names);
            prop_assert_eq!(slabs.chunk_len(steps.max(1)), array.chunk_len() * u64::from(elems > 0));
        }
    }

    #[test]
    fn chunks_are_neither_small_nor_padded_much() {
        let cut = |shape: &[u64], elem| Slabs::new(Dataset::new(shape, elem).unwrap(), 32 << 20).cut;
        for (shape, rows) in [(&[16384, 16384][..], 1024), (&[100, 1 << 20], 15), (&[3, 5, 1 << 23], 2)] {
            let Cut::Within { rows: found, .. } = cut(shape, ElemType::I16) else { panic!("{shape:?}") };
            assert_eq!(found, rows, "{shape:?}");
        }
        // A row that is longer than a chunk should be is cut, too.
        let long = cut(&[2, 1 << 30], ElemType::U8);
        assert_eq!(long, Cut::Within { dim: 1, rows: 32 << 20, plane: 1 });
        assert_eq!(cut(&[], ElemType::F64), Cut::Steps(4 << 20));
    }
}
