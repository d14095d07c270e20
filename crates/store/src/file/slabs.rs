//! A Zarr array that is written: which file holds which stretch of the row-major array.
//!
//! Where nobody asks for other or for compressed chunks, each chunk is a slab: some indices of one dimension,
//! with all of the dimensions behind it, at one index of each before it. So it is one stretch of the array,
//! and its file is a piece of what would be one file. Short steps share a chunk. A step's first chunks are
//! named as if it were the only one; at the end all get the names that they have in an array of so many
//! steps.

mod files;

pub use files::{open_chunk, Chunks};

use super::boxes::Boxes;
use super::drafts;
use crate::zarr::{self, About, Style};
use crate::FileError;
use polyduct_layout::Dataset;
use serde_json::Value;

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

    /// The same of an array that has fewer indices in its first dimension.
    pub fn of_all(mut self, dataset: Dataset) -> Slabs {
        if let Cut::Within { dim: 0, rows, .. } = &mut self.cut {
            // Of a single chunk no more than there is.
            *rows = (*rows).min(dataset.shape().first().copied().unwrap_or(1)).max(1);
        }
        Slabs { dataset, ..self }
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
    pub fn style(&self, place: &zarr::Surroundings, steps: u64) -> (Style, Vec<(&'static str, Value)>) {
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
