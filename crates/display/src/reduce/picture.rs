//! A whole picture, composed of the tiles of several units.

use super::{Grid, Reduce, ReduceError, Tile};

/// A picture that becomes whole as tiles come, in any order.
#[derive(Debug, Clone)]
pub struct Picture {
    grid: Grid,
    reduce: Reduce,
    /// Of each pixel: the value, or the sum of means times their weights.
    values: Vec<f64>,
    /// Elements that the sums are of; nothing unless means are composed.
    weights: Vec<f64>,
}

impl Picture {
    /// A picture without any value.
    pub fn new(grid: Grid, reduce: Reduce) -> Picture {
        let len = grid.shape().iter().product();
        let (start, weights) = match reduce {
            Reduce::Mean => (0.0, len),
            Reduce::Max | Reduce::Sample => (f64::NAN, 0),
        };
        Picture { grid, reduce, values: vec![start; len], weights: vec![0.0; weights] }
    }

    /// Adds what one part gives. Parts that are there twice, as equal replicas, change nothing.
    ///
    /// # Errors
    /// [`ReduceError::Tile`] when it is no tile of this grid, or reduced in another way.
    pub fn add(&mut self, tile: &Tile) -> Result<(), ReduceError> {
        let Tile { reduce, first, shape, lo, hi, .. } = *tile;
        let fits = |axis: usize| {
            let pixels = self.grid.pixels(axis, reduce, lo[axis], hi[axis]);
            (pixels.start, pixels.len()) == (first[axis], shape[axis])
        };
        if reduce != self.reduce || !fits(0) || !fits(1) {
            return Err(ReduceError::Tile { expected: self.reduce, found: reduce, first, shape });
        }
        let weights = |axis: usize, count: usize| -> Vec<f64> {
            let weight = |pixel| self.grid.weight(axis, first[axis] + pixel, lo[axis], hi[axis]) as f64;
            (0..count).map(weight).collect()
        };
        let (rows, columns) = match reduce {
            Reduce::Mean => (weights(0, shape[0]), weights(1, shape[1])),
            Reduce::Max | Reduce::Sample => (Vec::new(), Vec::new()),
        };
        let width = self.grid.shape()[1];
        for (row, new) in tile.values().chunks_exact(shape[1].max(1)).enumerate() {
            let start = (first[0] + row) * width + first[1];
            let values = &mut self.values[start..start + shape[1]];
            match reduce {
                Reduce::Mean => {
                    let sums = values.iter_mut().zip(&mut self.weights[start..start + shape[1]]);
                    for (((sum, all), new), column) in sums.zip(new).zip(&columns) {
                        let weight = rows[row] * column;
                        *sum += f64::from(*new) * weight;
                        *all += weight;
                    }
                }
                Reduce::Max => values.iter_mut().zip(new).for_each(|(v, new)| *v = v.max(f64::from(*new))),
                Reduce::Sample => values.iter_mut().zip(new).for_each(|(v, new)| *v = f64::from(*new)),
            }
        }
        Ok(())
    }

    /// The values row by row; NaN where no tile gave one.
    pub fn finish(self) -> Vec<f32> {
        match self.reduce {
            // Of nothing, 0/0 is NaN.
            Reduce::Mean => {
                self.values.iter().zip(&self.weights).map(|(sum, all)| (sum / all) as f32).collect()
            }
            Reduce::Max | Reduce::Sample => self.values.iter().map(|v| *v as f32).collect(),
        }
    }
}
