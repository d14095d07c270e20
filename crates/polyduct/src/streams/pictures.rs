//! What is shown of an array: all of it where it is small, else pictures of the windows that viewers want.

use super::colour::{self, Colour};
use bytes::Bytes;
use half::f16;
use polyduct_display::reduce::{Grid, Part, Picture, Tile};
use polyduct_display::{Project, Reduce, View, Want, WantId};
use polyduct_layout::{Dataset, ElemType, Mapping};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Elements of a picture for everybody, at most: of a larger array it is coarse, and each viewer asks for what it has
/// room for.
const SHOWN: u64 = 1 << 20;
/// Pixels of a side of the picture that everybody gets of a larger array.
const COARSE: u32 = 768;

/// Memory that is used again: new memory costs more than what is written there.
#[derive(Clone, Default)]
pub struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

/// How many pieces of memory wait to be used again.
const KEPT: usize = 8;

struct Lent {
    bytes: Vec<u8>,
    pool: Pool,
}

impl Pool {
    /// So many bytes, filled by `fill`.
    pub fn fill<E>(&self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = free.iter().position(|bytes| bytes.len() == len);
        let mut bytes = known.map(|at| free.swap_remove(at)).unwrap_or_default();
        drop(free);
        bytes.resize(len, 0);
        fill(&mut bytes)?;
        Ok(Bytes::from_owner(Lent { bytes, pool: self.clone() }))
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut free = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() == KEPT {
            free.remove(0);
        }
        free.push(std::mem::take(&mut self.bytes));
    }
}

/// An array of a step, all of which is here.
pub struct Whole<'a> {
    /// Its name.
    pub name: &'a str,
    /// Shape and element type.
    pub dataset: &'a Dataset,
    /// The bytes of the row-major array.
    pub data: &'a Bytes,
    /// What its last dimension is, where it is a picture.
    pub colour: Option<Colour>,
}

impl Whole<'_> {
    fn elem(&self) -> ElemType {
        self.dataset.elem()
    }

    /// What everybody sees of it: the array, or a coarse picture; of more than two dimensions the middle of the others.
    pub fn for_everybody(&self, pool: &Pool) -> Option<View> {
        let shape = self.dataset.shape();
        let last = if self.colour.is_some() { 0 } else { shape.len().saturating_sub(2) };
        let (others, shown) = shape.split_at(last);
        let elems = shown.iter().product::<u64>();
        let slices = others.iter().product::<u64>();
        let slice = (!others.is_empty()).then_some(slices / 2);
        if elems > SHOWN {
            return self.wanted(None, &coarse(self.name, self.dataset, self.colour, false), pool);
        }
        let bytes = (elems * self.elem().len_bytes()) as usize;
        let at = slice.unwrap_or(0) as usize * bytes;
        let data = self.data.get(at..at + bytes).map(|_| self.data.slice(at..at + bytes))?;
        Some(View {
            slice,
            axes: (last..shape.len()).collect(),
            ..View::whole(self.name, self.elem(), shown, data)
        })
    }

    /// What a viewer wants of it; nothing where that cannot be had.
    pub fn wanted(&self, id: Option<WantId>, want: &Want, pool: &Pool) -> Option<View> {
        let all = Held::all(self.dataset);
        let taken = |want: &Want| {
            let shot = Shot::new(self.dataset, want)?;
            let mut picture = shot.picture();
            if let Some(tile) = shot.of_box(self.elem(), &all, self.data) {
                picture.add(&tile).ok()?;
            }
            Some((shot, picture))
        };
        if let Some(colour) = self.colour {
            let channels = colour.split(want).iter().map(taken).collect::<Option<Vec<_>>>()?;
            return colour::view(self.name, self.elem(), channels, id, pool);
        }
        let (shot, picture) = taken(want)?;
        Some(shot.view(self.name, picture.finish(), id, pool))
    }
}

/// A box of an array as it lies in some unit's memory.
#[derive(Clone, Debug)]
pub struct Held {
    /// Its first element, and one past the last on each axis.
    pub at: (Vec<u64>, Vec<u64>),
    /// Where the first lies, and how far it is to the next on each axis, in elements.
    pub offset: u64,
    /// See there.
    pub strides: Vec<u64>,
}

impl Held {
    /// All of an array, row-major.
    fn all(dataset: &Dataset) -> Held {
        let shape = dataset.shape();
        let mut strides = vec![1; shape.len()];
        for axis in (0..shape.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * shape[axis + 1];
        }
        Held { at: (vec![0; shape.len()], shape.to_vec()), offset: 0, strides }
    }

    /// The boxes that a unit has of an array; `None` where there are more than is worth the while.
    pub fn of(mapping: &Mapping, unit: u64) -> Option<Vec<Held>> {
        let mut held = Vec::new();
        for at in mapping.boxes_iter(unit).ok()? {
            if held.len() == BOXES {
                return None;
            }
            let (lo, hi) = (at.lo.to_vec(), at.hi.to_vec());
            if lo.iter().zip(&hi).any(|(lo, hi)| lo == hi) {
                continue;
            }
            let place = |index: &[u64]| {
                let all = mapping.locate(index).ok()?;
                all.iter().find(|place| place.unit == unit && !place.halo).map(|place| place.offset_elems)
            };
            let offset = place(&lo)?;
            let stride = |axis: usize| {
                let mut next = lo.clone();
                next[axis] += 1;
                if next[axis] == hi[axis] {
                    return Some(0);
                }
                place(&next).map(|at| at - offset)
            };
            let strides = (0..lo.len()).map(stride).collect::<Option<Vec<u64>>>()?;
            held.push(Held { at: (lo, hi), offset, strides });
        }
        Some(held)
    }
}

/// Boxes of a unit, at most: each gives a tile of its own.
const BOXES: usize = 256;

/// What of an array is to be seen, and with how many pixels: checked, and with what follows from it.
pub struct Shot {
    want: Want,
    grid: Grid,
    shape: Vec<u64>,
    others: Vec<usize>,
    slices: Range<u64>,
    reduce: Reduce,
}

impl Shot {
    /// `None` for what cannot be.
    pub fn new(dataset: &Dataset, want: &Want) -> Option<Shot> {
        let shape = dataset.shape().to_vec();
        let two = |values: &[u64], one: u64| match values {
            [x] => Some([one, *x]),
            [y, x] => Some([*y, *x]),
            _ => None,
        };
        let pixels = match want.pixels[..] {
            [x] => [1, x],
            [y, x] => [y, x],
            _ => return None,
        };
        let fits = want.axes.iter().zip(&want.hi).all(|(axis, hi)| shape.get(*axis).is_some_and(|n| hi <= n));
        if want.axes.len() != want.lo.len() || want.lo.len() != want.hi.len() || !fits {
            return None;
        }
        let grid = Grid::new(two(&want.lo, 0)?, two(&want.hi, 1)?, pixels).ok()?;
        let others: Vec<usize> = (0..shape.len()).filter(|axis| !want.axes.contains(axis)).collect();
        let all = others.iter().map(|axis| shape[*axis]).product::<u64>();
        let first = want.slice.unwrap_or(all / 2).min(all.saturating_sub(1));
        // The largest along an axis is shown as the largest of a pixel.
        let projects = want.project == Some(Project::Max);
        let (slices, reduce) = match projects {
            true => (0..all, Reduce::Max),
            false => (first..first + 1, want.reduce),
        };
        Some(Shot { want: want.clone(), grid, shape, others, slices, reduce })
    }

    /// A picture without values.
    pub fn picture(&self) -> Picture {
        Picture::new(self.grid.clone(), self.reduce)
    }

    /// Where the slices that are seen lie on the axes that are not shown, as far as a box has them.
    fn slices_of<'a>(&'a self, held: &'a Held) -> impl Iterator<Item = u64> + 'a {
        self.slices.clone().filter_map(move |slice| {
            let (mut rest, mut offset) = (slice, held.offset);
            for axis in self.others.iter().rev() {
                let index = rest % self.shape[*axis];
                rest /= self.shape[*axis];
                if index < held.at.0[*axis] || index >= held.at.1[*axis] {
                    return None;
                }
                offset += (index - held.at.0[*axis]) * held.strides[*axis];
            }
            Some(offset)
        })
    }

    /// The box on the shown axes, rows first.
    fn shown(&self, held: &Held) -> ([u64; 2], [u64; 2]) {
        match self.want.axes[..] {
            [x] => ([0, held.at.0[x]], [1, held.at.1[x]]),
            [y, x] => ([held.at.0[y], held.at.0[x]], [held.at.1[y], held.at.1[x]]),
            _ => ([0; 2], [0; 2]),
        }
    }

    /// What a box gives to the picture: nothing where it has none of the slices.
    pub fn of_box(&self, elem: ElemType, held: &Held, bytes: &[u8]) -> Option<Tile> {
        let (lo, hi) = self.shown(held);
        let (down, along) = match self.want.axes[..] {
            [x] => (0, held.strides[x]),
            [y, x] => (held.strides[y], held.strides[x]),
            _ => return None,
        };
        let [rows, columns] = [hi[0] - lo[0], hi[1] - lo[1]];
        let len = elem.len_bytes();
        let mut most: Option<Vec<f32>> = None;
        let mut copied = Vec::new();
        for offset in self.slices_of(held) {
            let straight = columns <= 1 || along == 1;
            let part = match straight && (rows <= 1 || down >= columns) {
                true => {
                    let start = (offset * len) as usize;
                    Part::with_stride(elem, lo, hi, down.max(columns), bytes.get(start..)?)
                }
                false => {
                    copied.clear();
                    for y in 0..rows {
                        let row = bytes.get(((offset + y * down) * len) as usize..)?;
                        every(row, len, along as usize, columns as usize, &mut copied)?;
                    }
                    Part::new(elem, lo, hi, &copied)
                }
            };
            let tile = Tile::of(&self.grid, self.reduce, &part.ok()?).ok()?;
            if self.slices.end - self.slices.start == 1 {
                return Some(tile);
            }
            most = Some(match most {
                None => tile.values().to_vec(),
                Some(so_far) => so_far.iter().zip(tile.values()).map(|(a, b)| a.max(*b)).collect(),
            });
        }
        Tile::from_values(&self.grid, self.reduce, lo, hi, most?).ok()
    }

    /// How many values [`of_box`](Shot::of_box) gives.
    pub fn values_of(&self, held: &Held) -> usize {
        let (lo, hi) = self.shown(held);
        let shape = Tile::shape_of(&self.grid, self.reduce, lo, hi);
        self.slices_of(held).next().map_or(0, |_| shape[0] * shape[1])
    }

    /// What a box gives, from its values.
    pub fn tile(&self, held: &Held, values: Vec<f32>) -> Option<Tile> {
        let (lo, hi) = self.shown(held);
        Tile::from_values(&self.grid, self.reduce, lo, hi, values).ok()
    }

    /// What is shown, from the values of its pixels.
    pub fn view(&self, name: &str, values: Vec<f32>, id: Option<WantId>, pool: &Pool) -> View {
        let (elem, data) = encoded(&values, pool);
        View { elem, data, ..self.blank(name, id) }
    }

    /// What is shown, without anything in it.
    pub fn blank(&self, name: &str, id: Option<WantId>) -> View {
        let Want { axes, lo, hi, .. } = &self.want;
        let [rows, columns] = self.grid.shape().map(|n| n as u64);
        let one = self.slices.end - self.slices.start == 1 && !self.others.is_empty();
        View {
            name: name.to_owned(),
            elem: ElemType::F32,
            shape: if axes.len() == 1 { vec![columns] } else { vec![rows, columns] },
            full: axes.iter().map(|axis| self.shape[*axis]).collect(),
            lo: lo.clone(),
            hi: hi.clone(),
            slice: one.then_some(self.slices.start),
            axes: axes.clone(),
            reduce: Some(self.reduce),
            data: Bytes::new(),
            for_want: id,
        }
    }
}

/// Elements of an array of which each is looked at, at most: of a larger one some are.
const LOOKED_AT: u64 = 1 << 26;

/// Puts `columns` elements of `len` bytes behind others: every `along`th of those that begin with `row`.
fn every(row: &[u8], len: u64, along: usize, columns: usize, to: &mut Vec<u8>) -> Option<()> {
    fn of<const N: usize>(row: &[u8], along: usize, columns: usize, to: &mut Vec<u8>) -> Option<()> {
        let elems = row.as_chunks::<N>().0.get(..columns.checked_sub(1)? * along + 1)?;
        elems.iter().step_by(along.max(1)).for_each(|elem| to.extend_from_slice(elem));
        Some(())
    }
    let of = match len {
        1 => of::<1>,
        2 => of::<2>,
        4 => of::<4>,
        8 => of::<8>,
        16 => of::<16>,
        _ => return None,
    };
    of(row, along, columns, to)
}

/// A coarse picture of all of an array, for everybody; `quick` where nobody may see it.
pub fn coarse(name: &str, dataset: &Dataset, colour: Option<Colour>, quick: bool) -> Want {
    let shape = &dataset.shape()[..dataset.shape().len() - usize::from(colour.is_some())];
    let reduce = if quick || dataset.len_elems() > LOOKED_AT { Reduce::Sample } else { Reduce::Mean };
    let last = shape.len().saturating_sub(2);
    let (others, shown) = shape.split_at(last);
    Want {
        view: name.to_owned(),
        axes: (last..shape.len()).collect(),
        lo: vec![0; shown.len()],
        hi: shown.to_vec(),
        pixels: fitted(shown),
        slice: (!others.is_empty()).then_some(others.iter().product::<u64>() / 2),
        project: None,
        reduce,
    }
}

/// Values of pixels: of half the size where that shows no difference.
pub fn encoded(values: &[f32], pool: &Pool) -> (ElemType, Bytes) {
    let most = values
        .iter()
        .fold(0.0_f32, |most, value| if value.is_finite() { most.max(value.abs()) } else { most });
    // A colour scale has a thousand steps; what lies below has the exponents of 16 bits for itself.
    let halves = (1e-2..=65504.0).contains(&most);
    let width = if halves { 2 } else { 4 };
    let filled = pool.fill(values.len() * width, |bytes| {
        match halves {
            true => bytes.chunks_exact_mut(2).zip(values).for_each(|(to, value)| {
                to.copy_from_slice(&f16::from_f32(*value).to_le_bytes());
            }),
            false => bytes.chunks_exact_mut(4).zip(values).for_each(|(to, value)| {
                to.copy_from_slice(&value.to_le_bytes());
            }),
        }
        Ok::<(), std::convert::Infallible>(())
    });
    let Ok(data) = filled;
    (if halves { ElemType::F16 } else { ElemType::F32 }, data)
}

/// As many pixels as a coarse picture has.
fn fitted(shown: &[u64]) -> Vec<u32> {
    let most = shown.iter().copied().max().unwrap_or(1).max(1);
    let pixels = |size: &u64| (size * u64::from(COARSE) / most).clamp(1, u64::from(COARSE)) as u32;
    shown.iter().map(pixels).collect()
}
