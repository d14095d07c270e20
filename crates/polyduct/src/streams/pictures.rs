//! What is shown of an array: all of it where it is small, else pictures of the windows that viewers want.

use bytes::Bytes;
use half::f16;
use polyduct_display::reduce::{Grid, Part, Picture, Tile};
use polyduct_display::{Project, Reduce, View, Want, WantId};
use polyduct_layout::{Dataset, ElemType};
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
}

impl Whole<'_> {
    fn elem(&self) -> ElemType {
        self.dataset.elem()
    }

    /// What everybody sees of it: the array, or a coarse picture; of more than two dimensions the middle of the others.
    pub fn for_everybody(&self, pool: &Pool) -> Option<View> {
        let shape = self.dataset.shape();
        let last = shape.len().saturating_sub(2);
        let (others, shown) = shape.split_at(last);
        let elems = shown.iter().product::<u64>();
        let slices = others.iter().product::<u64>();
        let slice = (!others.is_empty()).then_some(slices / 2);
        if elems > SHOWN && shown.len() == 2 {
            let want = Want {
                view: self.name.to_owned(),
                axes: vec![last, last + 1],
                lo: vec![0, 0],
                hi: shown.to_vec(),
                pixels: fitted(shown),
                slice,
                project: None,
                reduce: Reduce::Mean,
            };
            return self.wanted(None, &want, pool);
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
        let shape = self.dataset.shape();
        let (row, column) = match want.axes[..] {
            [column] => (None, column),
            [row, column] => (Some(row), column),
            _ => return None,
        };
        let size = |axis: usize| shape.get(axis).copied();
        let full = want.axes.iter().map(|axis| size(*axis)).collect::<Option<Vec<u64>>>()?;
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
        let grid = Grid::new(two(&want.lo, 0)?, two(&want.hi, 1)?, pixels).ok()?;
        let mut picture = Picture::new(grid.clone(), want.reduce);
        let mut strides = vec![1u64; shape.len()];
        for axis in (0..shape.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * shape[axis + 1];
        }
        let others: Vec<usize> = (0..shape.len()).filter(|axis| !want.axes.contains(axis)).collect();
        let slices = others.iter().map(|axis| shape[*axis]).product::<u64>();
        let first = want.slice.unwrap_or(slices / 2).min(slices.saturating_sub(1));
        let which = if want.project == Some(Project::Max) { 0..slices } else { first..first + 1 };
        let mut most: Option<Vec<f32>> = None;
        for slice in which {
            let (mut rest, mut base) = (slice, 0);
            for axis in others.iter().rev() {
                base += rest % shape[*axis] * strides[*axis];
                rest /= shape[*axis];
            }
            let plane = self.plane(base, (row, column), &strides, pool)?;
            let rows = row.map_or(1, |axis| shape[axis]);
            let part = Part::new(self.elem(), [0, 0], [rows, shape[column]], &plane).ok()?;
            let tile = Tile::of(&grid, want.reduce, &part).ok()?;
            if want.project.is_none() {
                picture.add(&tile).ok()?;
                break;
            }
            let mut one = Picture::new(grid.clone(), want.reduce);
            one.add(&tile).ok()?;
            let values = one.finish();
            most = Some(match most {
                None => values,
                Some(so_far) => so_far.iter().zip(&values).map(|(a, b)| a.max(*b)).collect(),
            });
        }
        let values = most.unwrap_or_else(|| picture.finish());
        let shown = match grid.shape() {
            [_, x] if row.is_none() => vec![x as u64],
            [y, x] => vec![y as u64, x as u64],
        };
        let (elem, data) = encoded(&values, pool);
        Some(View {
            name: self.name.to_owned(),
            elem,
            shape: shown,
            full,
            lo: want.lo.clone(),
            hi: want.hi.clone(),
            slice: want.project.is_none().then_some(first).filter(|_| !others.is_empty()),
            axes: want.axes.clone(),
            reduce: Some(want.reduce),
            data,
            for_want: id,
        })
    }

    /// Two axes of it, or one, row-major, with the others as `base` says: without a copy where they lie so.
    fn plane(
        &self,
        base: u64,
        (row, column): (Option<usize>, usize),
        strides: &[u64],
        pool: &Pool,
    ) -> Option<Bytes> {
        let (shape, elem) = (self.dataset.shape(), self.elem().len_bytes() as usize);
        let rows = row.map_or(1, |axis| shape[axis]) as usize;
        let columns = shape[column] as usize;
        let down = row.map_or(0, |axis| strides[axis]) as usize;
        let along = strides[column] as usize;
        let start = base as usize * elem;
        if along == 1 && (rows == 1 || down == columns) {
            let end = start + rows * columns * elem;
            return self.data.get(start..end).map(|_| self.data.slice(start..end));
        }
        let copied = pool.fill(rows * columns * elem, |bytes| {
            for (y, line) in bytes.chunks_exact_mut((columns * elem).max(1)).enumerate() {
                for (x, to) in line.chunks_exact_mut(elem).enumerate() {
                    let at = start + (y * down + x * along) * elem;
                    to.copy_from_slice(self.data.get(at..at + elem).ok_or(())?);
                }
            }
            Ok::<(), ()>(())
        });
        copied.ok()
    }
}

/// Values of pixels: of half the size where that shows no difference, since browsers take but some tens of MB/s.
fn encoded(values: &[f32], pool: &Pool) -> (ElemType, Bytes) {
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
