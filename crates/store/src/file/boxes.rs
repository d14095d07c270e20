//! The chunks of a Zarr array that are boxes of any shape, or compressed: where a byte of a step belongs.
//!
//! The elements of a chunk that are in the array, of one step, are a box, packed in row-major order. In a
//! step the boxes follow one another as their chunks do: that is how a draft holds them. A chunk's file has
//! all that the chunk's shape has room for, whatever of that is in the array.

use crate::zarr::{Compression, ZarrError, MAX_CHUNK_BYTES};
use crate::FileError;
use polyduct_layout::{Dataset, Layout, LayoutError, Mapping};
use polyduct_port::{PortError, PortName};

/// The most chunks of a step: units keep a count for each.
pub const MAX_CHUNKS: u64 = 1 << 24;

/// The longest chunk that is asked for in one stretch.
const STRETCH_BYTES: u64 = 32 << 20;

/// How the steps of a dataset fall into chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boxes {
    dataset: Dataset,
    /// The sizes of a chunk in a step, at least 1 and at most the array's.
    pub chunk: Vec<u64>,
    /// Steps of a chunk.
    pub steps: u64,
    pub compression: Compression,
    /// Chunks in each dimension.
    grid: Vec<u64>,
    /// The array and its chunks in bytes, with the dimensions that chunks do not cut joined to the one
    /// before.
    folded: Vec<(u64, u64)>,
}

/// Where a byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The chunk's number in its step.
    pub chunk: u64,
    /// Offset in its box.
    pub at: u64,
    /// Bytes that follow one another in the array and in the box.
    pub left: u64,
}

impl Boxes {
    /// Chunks of this shape; with one number more than the dataset has dimensions the first is of steps.
    ///
    /// # Errors
    /// [`PortError::BadOption`] for a shape that no chunk can have.
    pub fn new(
        dataset: Dataset,
        shape: &[u64],
        compression: Compression,
        path: &str,
    ) -> Result<Boxes, FileError> {
        let sizes = dataset.shape();
        let bad = |expected: String| {
            let found: Vec<String> = shape.iter().map(u64::to_string).collect();
            let path = path.to_owned();
            let port = Some(PortName::File(path));
            Err(FileError::Port(PortError::BadOption {
                port,
                option: "chunks",
                found: found.join("x"),
                expected: expected.into(),
            }))
        };
        let (steps, of_step) = match shape.len().checked_sub(sizes.len()) {
            Some(0) => (1, shape),
            Some(1) => (shape[0], &shape[1..]),
            _ => {
                return bad(format!("a number for each dimension of {sizes:?}, and maybe one of steps first"))
            }
        };
        if shape.contains(&0) {
            return bad("numbers above 0".into());
        }
        let chunk: Vec<u64> = of_step.iter().zip(sizes).map(|(&c, &n)| c.min(n).max(1)).collect();
        let grid: Vec<u64> = sizes.iter().zip(&chunk).map(|(n, c)| n.div_ceil(*c)).collect();
        let elem = dataset.elem().len_bytes();
        let len = chunk.iter().chain([&steps]).try_fold(elem, |len, &n| len.checked_mul(n));
        if len.is_none_or(|len| len > MAX_CHUNK_BYTES) {
            return bad(format!("chunks of at most {MAX_CHUNK_BYTES} bytes"));
        }
        if grid.iter().try_fold(1u64, |all, &n| all.checked_mul(n)).is_none_or(|all| all > MAX_CHUNKS) {
            return bad(format!("at most {MAX_CHUNKS} chunks of a step"));
        }
        let uncut = sizes.iter().zip(&chunk).rev().take_while(|(n, c)| n == c).count();
        let kept = sizes.len().saturating_sub(uncut + 1);
        let bytes = |sizes: &[u64]| sizes[kept..].iter().product::<u64>() * elem;
        let mut folded: Vec<(u64, u64)> =
            sizes[..kept].iter().copied().zip(chunk[..kept].iter().copied()).collect();
        folded.push((bytes(sizes), bytes(&chunk)));
        Ok(Boxes { dataset, chunk, steps, compression, grid, folded })
    }

    /// Chunks of one step, or of those that share theirs.
    pub fn per_step(&self) -> u64 {
        if self.dataset.len_bytes() == 0 {
            0
        } else {
            self.grid.iter().product()
        }
    }

    /// The place of a chunk in the grid.
    pub fn coords(&self, chunk: u64) -> Vec<u64> {
        let mut rest = chunk;
        let mut coords = vec![0; self.grid.len()];
        for (c, &n) in coords.iter_mut().zip(&self.grid).rev() {
            (*c, rest) = (rest % n.max(1), rest / n.max(1));
        }
        coords
    }

    /// The mapping of one step: each chunk is a unit, and holds its box.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn mapping(&self) -> Result<Mapping, LayoutError> {
        grid_mapping(&self.dataset, &self.chunk, "")
    }

    /// The sizes of a chunk's box.
    fn extents(&self, chunk: u64) -> Vec<u64> {
        let inside = |((c, chunk), n): ((u64, &u64), &u64)| (*chunk).min(n - c * chunk);
        self.coords(chunk).into_iter().zip(&self.chunk).zip(self.dataset.shape()).map(inside).collect()
    }

    /// Bytes of a chunk's box.
    pub fn box_len(&self, chunk: u64) -> u64 {
        self.extents(chunk).iter().product::<u64>() * self.dataset.elem().len_bytes()
    }

    /// Bytes of the boxes before a chunk's.
    pub fn box_at(&self, chunk: u64) -> u64 {
        let (coords, extents, shape) = (self.coords(chunk), self.extents(chunk), self.dataset.shape());
        let mut before = 0;
        for d in 0..coords.len() {
            let outer: u64 = extents[..d].iter().product();
            let inner: u64 = shape[d + 1..].iter().product();
            before += outer * coords[d] * self.chunk[d] * inner;
        }
        before * self.dataset.elem().len_bytes()
    }

    /// Where a byte of the row-major array belongs.
    pub fn locate(&self, offset: u64) -> Spot {
        let mut spot = Spot { chunk: 0, at: 0, left: 0 };
        // The places of all dimensions, the fastest first.
        let mut rest = offset;
        let mut index = vec![0; self.folded.len()];
        for (i, &(n, _)) in index.iter_mut().zip(&self.folded).rev() {
            (*i, rest) = (rest % n.max(1), rest / n.max(1));
        }
        for (i, &(n, chunk)) in index.into_iter().zip(&self.folded) {
            let (c, within) = (i / chunk.max(1), i % chunk.max(1));
            let extent = chunk.min(n - c * chunk);
            spot.chunk = spot.chunk * n.div_ceil(chunk.max(1)) + c;
            spot.at = spot.at * extent + within;
            spot.left = extent - within;
        }
        spot
    }

    /// The bytes of which a stretch should have a whole number, so that it holds chunks whole: those of a
    /// chunk that is one stretch of the array, and not so long that nobody wants to hold it.
    pub fn stretch_unit(&self) -> u64 {
        match self.folded.split_last() {
            Some((&(_, chunk @ 1..=STRETCH_BYTES), outer))
                if self.steps == 1 && outer.iter().all(|&(_, c)| c == 1) =>
            {
                chunk
            }
            _ => 1,
        }
    }

    /// The bytes of a chunk's file, not compressed, of the boxes of so many steps, which follow one another
    /// in `boxes`.
    pub fn padded(&self, chunk: u64, boxes: Vec<u8>, steps: u64) -> Vec<u8> {
        let extents = self.extents(chunk);
        if extents == self.chunk {
            return boxes;
        }
        let elem = self.dataset.elem().len_bytes() as usize;
        let whole = self.chunk.iter().product::<u64>() as usize * elem;
        let mut padded = vec![0; whole * steps as usize];
        let row = extents.last().map_or(1, |&n| n as usize) * elem;
        let outer = extents.len().saturating_sub(1);
        let rows = extents[..outer].iter().product::<u64>().max(1);
        let all = boxes.chunks_exact(row.max(1)).zip((0..steps).flat_map(|s| (0..rows).map(move |r| (s, r))));
        for (from, (step, number)) in all {
            let (mut rest, mut at, mut stride) = (number, 0, self.chunk.last().copied().unwrap_or(1));
            for d in (0..outer).rev() {
                at += rest % extents[d] * stride;
                rest /= extents[d];
                stride *= self.chunk[d];
            }
            let at = step as usize * whole + at as usize * elem;
            padded[at..at + row].copy_from_slice(from);
        }
        padded
    }
}

/// The mapping of an array in chunks of a shape: each chunk is a unit, and holds its elements in `order`
/// (`;order=…`).
///
/// # Errors
/// [`LayoutError`].
pub fn grid_mapping(dataset: &Dataset, chunk: &[u64], order: &str) -> Result<Mapping, LayoutError> {
    let shape = dataset.shape();
    if shape.is_empty() {
        return "*".parse::<Layout>()?.bind(dataset, 1);
    }
    let grid: Vec<u64> = shape.iter().zip(chunk).map(|(n, c)| n.div_ceil(*c).max(1)).collect();
    let join = |all: Vec<String>, by: &str| all.join(by);
    let sizes = shape.iter().zip(chunk).map(|(&n, &c)| format!("cyclic({})", c.min(n).max(1))).collect();
    let axes = join(grid.iter().map(u64::to_string).collect(), "x");
    let units = grid.iter().product();
    format!("{}@{axes}{order}", join(sizes, ",")).parse::<Layout>()?.bind(dataset, units)
}

/// Makes sure that the chunks of a step can be counted.
///
/// # Errors
/// [`FileError::BadZarr`].
pub fn check_count(grid: &[u64], path: &str) -> Result<(), FileError> {
    let chunks = grid.iter().try_fold(1u64, |all, &n| all.checked_mul(n)).unwrap_or(u64::MAX);
    let limit = polyduct_layout::MAX_UNITS;
    match chunks > limit {
        true => {
            Err(FileError::BadZarr { path: path.to_owned(), source: ZarrError::ManyChunks { chunks, limit } })
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_layout::ElemType;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_byte_lies_where_the_format_says(
            sizes in proptest::collection::vec((1u64..7, 1u64..9), 0..4), steps in 1u64..4,
        ) {
            let (shape, chunk): (Vec<u64>, Vec<u64>) = sizes.into_iter().unzip();
            let dataset = Dataset::new(&shape, ElemType::I16).unwrap();
            let all = [&[steps], chunk.as_slice()].concat();
            let boxes = Boxes::new(dataset, &all, Compression::None, "x").unwrap();
            // The chunks by the oracle: each element put to its place in a padded chunk.
            let elems: u64 = shape.iter().product();
            let whole = boxes.chunk.iter().product::<u64>() as usize * 2;
            let per_step = boxes.per_step() as usize;
            let mut expected = vec![vec![0u8; whole * steps as usize]; per_step];
            let mut draft = vec![0u8; (dataset.len_bytes() * steps) as usize];
            for step in 0..steps {
                for element in 0..elems {
                    let mut rest = element;
                    let (mut number, mut at, mut across, mut stride) = (0, 0, 1, 1);
                    for (&n, &c) in shape.iter().zip(&boxes.chunk).rev() {
                        let i = rest % n;
                        rest /= n;
                        (number, across) = (number + i / c * across, across * n.div_ceil(c));
                        (at, stride) = (at + i % c * stride, stride * c);
                    }
                    let value = ((step * 1000 + element) as u16).to_le_bytes();
                    expected[number as usize][step as usize * whole + at as usize * 2..][..2].copy_from_slice(&value);
                    for (half, byte) in value.into_iter().enumerate() {
                        let spot = boxes.locate(element * 2 + half as u64);
                        prop_assert_eq!(spot.chunk, number);
                        prop_assert!(spot.left >= 1 && spot.at + spot.left <= boxes.box_len(number));
                        let to = step * dataset.len_bytes() + boxes.box_at(number) + spot.at;
                        draft[to as usize] = byte;
                    }
                }
            }
            for number in 0..per_step as u64 {
                let part = |step: u64| {
                    let at = (step * dataset.len_bytes() + boxes.box_at(number)) as usize;
                    draft[at..at + boxes.box_len(number) as usize].to_vec()
                };
                let packed = (0..steps).flat_map(part).collect();
                prop_assert_eq!(&boxes.padded(number, packed, steps), &expected[number as usize]);
            }
        }
    }

    #[test]
    fn shapes_that_no_chunk_has_are_refused() {
        let dataset = Dataset::new(&[1 << 20, 1 << 20], ElemType::F64).unwrap();
        for shape in [&[][..], &[1], &[0, 5], &[1, 1], &[1 << 20, 1 << 20], &[2, 2, 2, 2]] {
            let refused = Boxes::new(dataset, shape, Compression::Zstd, "x");
            assert!(
                matches!(refused, Err(FileError::Port(PortError::BadOption { option: "chunks", .. }))),
                "{shape:?}"
            );
        }
        assert_eq!(
            Boxes::new(dataset, &[3, 1024, 1 << 30], Compression::Zstd, "x").map(|b| b.steps),
            Err(FileError::Port(PortError::BadOption {
                port: Some(PortName::File("x".into())),
                option: "chunks",
                found: "3x1024x1073741824".into(),
                expected: format!("chunks of at most {MAX_CHUNK_BYTES} bytes").into(),
            }))
        );
    }
}
