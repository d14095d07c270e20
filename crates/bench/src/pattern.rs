//! Fills and checks arrays: every element holds its own row-major index and the step, so that any byte out of
//! place is found. Written and checked through the boxes of a layout, not through the plans under test.

use polyduct_layout::{LayoutError, Mapping};

/// Calls `f(offset, index, n)` for each stretch along the last dimension: `n` elements, the first at `offset`
/// of the unit's part with row-major `index`, each `step` elements after the one before in the part.
fn stretches(
    mapping: &Mapping,
    unit: u64,
    mut f: impl FnMut(usize, u64, usize, usize),
) -> Result<(), LayoutError> {
    let shape = mapping.dataset().shape().to_vec();
    let last = shape.len() - 1;
    for piece in mapping.boxes_iter(unit)? {
        let (lo, hi) = (piece.lo.as_slice(), piece.hi.as_slice());
        if lo.iter().zip(hi).any(|(l, h)| l >= h) {
            continue;
        }
        let place = |index: &[u64]| -> Result<usize, LayoutError> {
            let places = mapping.locate(index)?;
            Ok(places.iter().find(|p| p.unit == unit).map_or(0, |p| p.offset_elems as usize))
        };
        let mut index = lo.to_vec();
        loop {
            let offset = place(&index)?;
            let n = (hi[last] - lo[last]) as usize;
            let step = if n > 1 {
                index[last] += 1;
                let step = place(&index)? - offset;
                index[last] -= 1;
                step
            } else {
                1
            };
            let linear = index.iter().zip(&shape).fold(0, |at, (i, n)| at * n + i);
            f(offset, linear, n, step);
            let Some(d) = (0..last).rev().find(|&d| index[d] + 1 < hi[d]) else { break };
            index[d] += 1;
            index[d + 1..last].copy_from_slice(&lo[d + 1..last]);
        }
    }
    Ok(())
}

fn value(index: u64, step: u64, len: usize) -> [u8; 8] {
    // Small elements wrap: mixing makes neighbours and rows differ even then.
    let v = if len < 4 { index ^ index >> 8 ^ index >> 13 } else { index };
    v.wrapping_add(step.wrapping_mul(0x0101_0101)).to_le_bytes()
}

/// Fills a unit's part with the values of a step.
pub fn fill(mapping: &Mapping, unit: u64, part: &mut [u8], step: u64) -> Result<(), LayoutError> {
    let len = mapping.dataset().elem().len_bytes() as usize;
    stretches(mapping, unit, |offset, index, n, stride| {
        for i in 0..n {
            let at = (offset + i * stride) * len;
            part[at..at + len].copy_from_slice(&value(index + i as u64, step, len)[..len]);
        }
    })
}

/// Some elements of a unit's part, spread over all of it: few enough to be checked in every step that is
/// timed.
pub struct Sample {
    unit: u64,
    len: usize,
    /// Offset in the part, in bytes, and row-major index.
    places: Vec<(usize, u64)>,
}

impl Sample {
    /// About this many elements: a microsecond's work where each is a line from memory.
    const PLACES: usize = 16;

    pub fn new(mapping: &Mapping, unit: u64) -> Result<Sample, LayoutError> {
        let len = mapping.dataset().elem().len_bytes() as usize;
        let mut all = 0;
        stretches(mapping, unit, |_, _, n, _| all += n)?;
        // One place in each of as many equal pieces, at another fraction of each: the golden ratio's
        // multiples fall nowhere twice, so that no row or column, and no writer's part, has them all.
        let piece = all.div_ceil(Sample::PLACES).max(1);
        let wanted = |k: usize| {
            let fraction = (k as f64 * 0.618_033_988_75).fract();
            k * piece + (fraction * piece as f64) as usize
        };
        let (mut places, mut before) = (Vec::new(), 0_usize);
        stretches(mapping, unit, |offset, index, n, stride| {
            while wanted(places.len()) < before + n {
                let i = wanted(places.len()) - before;
                places.push(((offset + i * stride) * len, index + i as u64));
            }
            before += n;
        })?;
        Ok(Sample { unit, len, places })
    }

    /// Checks them.
    pub fn check(&self, part: &[u8], step: u64) -> Result<(), String> {
        let right = |&&(at, index): &&(usize, u64)| {
            part[at..at + self.len] == value(index, step, self.len)[..self.len]
        };
        match self.places.iter().find(|place| !right(place)) {
            Some((_, index)) => Err(format!("unit {}: element {index} of step {step} is wrong", self.unit)),
            None => Ok(()),
        }
    }
}

/// Checks every element of a unit's part.
pub fn check(mapping: &Mapping, unit: u64, part: &[u8], step: u64) -> Result<(), String> {
    let len = mapping.dataset().elem().len_bytes() as usize;
    let mut wrong = None;
    let mut seen = 0;
    let walked = stretches(mapping, unit, |offset, index, n, stride| {
        for i in 0..n {
            let at = (offset + i * stride) * len;
            if part[at..at + len] != value(index + i as u64, step, len)[..len] {
                wrong = wrong.or(Some(index + i as u64));
            }
        }
        seen += n;
    });
    walked.map_err(|e| e.to_string())?;
    match wrong {
        Some(index) => Err(format!("unit {unit}: element {index} of step {step} is wrong")),
        None if seen * len != part.len() => {
            Err(format!("unit {unit}: checked {seen} elements of {}", part.len() / len))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_layout::{Dataset, ElemType, Layout};

    #[test]
    fn a_sample_is_spread_over_the_part_and_sees_another_step() {
        // The second is a case of the tables, whose pieces are whole rows.
        for (shape, text) in [
            ([60, 70], "block,*"),
            ([256, 256], "block,*"),
            ([60, 70], "*,cyclic(3)"),
            ([60, 70], "*,block;order=F"),
            ([60, 70], "*,*"),
        ] {
            let data = Dataset::new(&shape, ElemType::F32).unwrap();
            let mapping = text.parse::<Layout>().unwrap().bind(&data, 2).unwrap();
            let mut part = vec![0; mapping.local_len_bytes(1).unwrap() as usize];
            fill(&mapping, 1, &mut part, 1).unwrap();
            let sample = Sample::new(&mapping, 1).unwrap();
            assert!((15..=17).contains(&sample.places.len()), "{text}: {}", sample.places.len());
            // All fourths of the part, of the unit's rows, and of its columns.
            let fourths = |of: &dyn Fn(&(usize, u64)) -> u64| {
                let at: Vec<u64> = sample.places.iter().map(of).collect();
                let (low, high) = (at.iter().min().unwrap(), at.iter().max().unwrap());
                at.iter()
                    .map(|x| (x - low) * 4 / (high - low + 1))
                    .collect::<std::collections::HashSet<_>>()
                    .len()
            };
            assert_eq!(fourths(&|(at, _)| *at as u64), 4, "{text}");
            assert_eq!(fourths(&|(_, index)| index / shape[1]), 4, "{text}");
            assert_eq!(fourths(&|(_, index)| index % shape[1]), 4, "{text}");
            let columns = sample.places.iter().map(|(_, index)| index % shape[1]);
            let (low, high) = (columns.clone().min().unwrap(), columns.max().unwrap());
            assert!(high - low >= shape[1] / 4, "{text}: columns {low} to {high}");
            assert_eq!(sample.check(&part, 1), Ok(()), "{text}");
            assert!(sample.check(&part, 0).is_err(), "{text}");
        }
    }
}
