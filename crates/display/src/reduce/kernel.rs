//! The loops: rows of a part are put together element by element, which vectorises whatever a pixel's width
//! is, and then once for all rows of a pixel the columns are.

use super::{Grid, Part, Reduce, Tile};
use crate::elem::{for_element, largest, Element, ForElement};
use std::ops::Range;

/// Rows that are put together at a time.
const AT_ONCE: usize = 4;
/// Columns that are put together at a time: they stay in the first cache.
const BLOCK: usize = 2048;

/// The values of the tile's pixels; `None` when the part's elements have none.
pub(super) fn reduce(grid: &Grid, tile: &Tile, part: &Part<'_>) -> Option<Vec<f32>> {
    let mut out = vec![0.0; tile.shape[0] * tile.shape[1]];
    let over = Over { grid, tile, part, out: &mut out };
    match tile.reduce {
        Reduce::Mean => for_element(part.elem, Whole::<Sum>(over, Sum)),
        Reduce::Max => for_element(part.elem, Whole::<Largest>(over, Largest)),
        Reduce::Sample => for_element(part.elem, Sampled(over)),
    }?;
    Some(out)
}

struct Over<'a> {
    grid: &'a Grid,
    tile: &'a Tile,
    part: &'a Part<'a>,
    out: &'a mut [f32],
}

/// How two values become one.
trait Fold {
    /// What changes nothing.
    const START: f64;
    /// Puts a value to others.
    fn add(so_far: f64, value: f64) -> f64;
    /// Puts four elements together.
    fn four<E: Element<N>, const N: usize>(four: [&[u8; N]; 4]) -> f64;
    /// The value of a pixel that so many elements were put together for.
    fn finish(all: f64, count: f64) -> f32;
}

struct Sum;
struct Largest;

impl Fold for Sum {
    const START: f64 = 0.0;

    fn add(so_far: f64, value: f64) -> f64 {
        so_far + value
    }

    fn four<E: Element<N>, const N: usize>(four: [&[u8; N]; 4]) -> f64 {
        E::mean4(four) * 4.0
    }

    fn finish(all: f64, count: f64) -> f32 {
        (all / count) as f32
    }
}

impl Fold for Largest {
    const START: f64 = f64::NAN;

    fn add(so_far: f64, value: f64) -> f64 {
        largest(so_far, value)
    }

    fn four<E: Element<N>, const N: usize>(four: [&[u8; N]; 4]) -> f64 {
        E::largest4(four)
    }

    fn finish(all: f64, _: f64) -> f32 {
        all as f32
    }
}

struct Whole<'a, F>(Over<'a>, F);

impl<F: Fold> ForElement for Whole<'_, F> {
    type Output = ();

    fn run<E: Element<N>, const N: usize>(self) {
        let Over { grid, tile, part, out } = self.0;
        let [_, width] = tile.shape;
        if width == 0 {
            return;
        }
        // What the part has of each column of pixels, counted from the part's first column.
        let clip = |axis: usize, pixel: usize| {
            let cover = grid.cover(axis, tile.first[axis] + pixel);
            let [start, end] = [cover.start.max(part.lo[axis]), cover.end.min(part.hi[axis])];
            (start - part.lo[axis]) as usize..(end - part.lo[axis]) as usize
        };
        let columns: Vec<_> = (0..width).map(|pixel| clip(1, pixel)).collect();
        let (first, end) = (columns[0].start, columns[width - 1].end);
        let mut block = [0.0; BLOCK];
        let mut pixels = vec![F::START; width];
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            let rows = clip(0, row);
            pixels.fill(F::START);
            let mut pixel = 0;
            let mut at = first;
            while at < end {
                let stop = end.min(at + BLOCK);
                let len = stop - at;
                let block = &mut block[..len];
                let bytes = |row: usize| {
                    let start = row * part.stride_bytes + at * N;
                    part.bytes[start..start + len * N].as_chunks::<N>().0
                };
                down::<E, N, F>(block, rows.clone(), bytes);
                // A pixel may go on in the next block.
                while let Some(cover) = columns.get(pixel).filter(|cover| cover.start < stop) {
                    let here = &block[cover.start.max(at) - at..cover.end.min(stop) - at];
                    pixels[pixel] = F::add(pixels[pixel], across::<F>(here));
                    if cover.end > stop {
                        break;
                    }
                    pixel += 1;
                }
                at = stop;
            }
            for ((out, all), cover) in out.iter_mut().zip(&pixels).zip(&columns) {
                *out = F::finish(*all, rows.len() as f64 * cover.len() as f64);
            }
        }
    }
}

/// Puts the elements of all `rows` together, column by column. Several rows at a time, so that what they
/// become is loaded and stored but once for them.
fn down<'a, E: Element<N>, const N: usize, F: Fold>(
    out: &mut [f64],
    rows: Range<usize>,
    bytes: impl Fn(usize) -> &'a [[u8; N]],
) {
    let mut row = rows.start;
    if !rows.len().is_multiple_of(AT_ONCE) {
        out.iter_mut().zip(bytes(row)).for_each(|(all, value)| *all = E::value(value));
        row += 1;
    } else {
        out.fill(F::START);
    }
    while rows.end - row >= AT_ONCE {
        let [a, b, c, d] = [0, 1, 2, 3].map(|n| bytes(row + n));
        for ((((all, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *all = F::add(*all, F::four::<E, N>([a, b, c, d]));
        }
        row += AT_ONCE;
    }
    for row in row..rows.end {
        out.iter_mut().zip(bytes(row)).for_each(|(all, value)| *all = F::add(*all, E::value(value)));
    }
}

/// Puts all of `values` together, in four chains that do not wait for one another.
fn across<F: Fold>(values: &[f64]) -> f64 {
    let (chunks, rest) = values.as_chunks::<4>();
    let mut lanes = [F::START; 4];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = F::add(*lane, *value);
        }
    }
    lanes.iter().chain(rest).fold(F::START, |all, value| F::add(all, *value))
}

struct Sampled<'a>(Over<'a>);

impl ForElement for Sampled<'_> {
    type Output = ();

    fn run<E: Element<N>, const N: usize>(self) {
        let Over { grid, tile, part, out } = self.0;
        let middle = |axis: usize, pixel: usize| {
            (grid.middle(axis, tile.first[axis] + pixel) - part.lo[axis]) as usize
        };
        let columns: Vec<usize> = (0..tile.shape[1]).map(|pixel| middle(1, pixel)).collect();
        for (row, out) in out.chunks_exact_mut(tile.shape[1].max(1)).enumerate() {
            let bytes = part.bytes[middle(0, row) * part.stride_bytes..].as_chunks::<N>().0;
            for (out, column) in out.iter_mut().zip(&columns) {
                *out = E::value(&bytes[*column]) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests;
