//! Against an oracle that looks at each element of each pixel.

use crate::elem::{for_element, Element, ForElement};
use crate::reduce::{Grid, Part, Picture, Reduce, ReduceError, Tile};
use polyduct_layout::ElemType;
use proptest::prelude::*;

const ELEMS: [ElemType; 15] = [
    ElemType::Bool,
    ElemType::I8,
    ElemType::I16,
    ElemType::I32,
    ElemType::I64,
    ElemType::U8,
    ElemType::U16,
    ElemType::U32,
    ElemType::U64,
    ElemType::F16,
    ElemType::Bf16,
    ElemType::F32,
    ElemType::F64,
    ElemType::C64,
    ElemType::C128,
];

struct Values<'a>(&'a [u8]);

impl ForElement for Values<'_> {
    type Output = Vec<f64>;

    fn run<E: Element<N>, const N: usize>(self) -> Vec<f64> {
        self.0.as_chunks::<N>().0.iter().map(E::value).collect()
    }
}

/// The picture of a whole array, one pixel after another.
fn oracle(grid: &Grid, reduce: Reduce, values: &[f64], columns: u64) -> Vec<f32> {
    let [height, width] = grid.shape();
    let pixel = |at: usize| {
        let [rows, cols] = [grid.cover(0, at / width), grid.cover(1, at % width)];
        let value = |r: u64, c: u64| values[(r * columns + c) as usize];
        let all = || rows.clone().flat_map(|r| cols.clone().map(move |c| value(r, c)));
        (match reduce {
            Reduce::Mean => all().sum::<f64>() / all().count() as f64,
            Reduce::Max => all().filter(|v| !v.is_nan()).reduce(f64::max).unwrap_or(f64::NAN),
            Reduce::Sample => value((rows.start + rows.end) / 2, (cols.start + cols.end) / 2),
        }) as f32
    };
    (0..height * width).map(pixel).collect()
}

fn assert_near(found: &[f32], expected: &[f32], scale: f64) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.len(), expected.len());
    for (at, (f, e)) in found.iter().zip(expected).enumerate() {
        let near = (f64::from(*f) - f64::from(*e)).abs() <= 1e-6 * scale;
        prop_assert!(near || f == e || f.is_nan() && e.is_nan(), "pixel {}: {} for {}", at, f, e);
    }
    Ok(())
}

/// A cut of `0..n` into pieces.
fn cuts(n: u64, at: &[u64]) -> Vec<(u64, u64)> {
    let mut cuts: Vec<u64> = at.iter().map(|c| c % (n + 1)).chain([0, n]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|w| (w[0], w[1])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tiles_of_any_cut_make_the_picture_of_the_whole(
        elem in prop::sample::select(&ELEMS[..]),
        reduce in prop::sample::select(&[Reduce::Mean, Reduce::Max, Reduce::Sample][..]),
        (rows, columns) in (1u64..40, 1u64..60),
        window in prop::array::uniform4(0u64..60),
        pixels in prop::array::uniform2(1u32..50),
        at in prop::array::uniform2(prop::collection::vec(0u64..60, 0..4)),
        halo in 0u64..3,
        seed in any::<u64>(),
        small in any::<bool>(),
    ) {
        let len = elem.len_bytes();
        let mut state = seed | 1;
        let mut bytes: Vec<u8> = (0..rows * columns * len).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        }).collect();
        if small && len > 1 {
            // Numbers near one another, where sums are exact to the last places.
            bytes.chunks_exact_mut(len as usize).for_each(|b| b[len as usize - 1] = 0x3f);
        }
        let values = for_element(elem, Values(&bytes)).unwrap();
        let scale = values.iter().filter(|v| v.is_finite()).fold(0.0f64, |a, v| a.max(v.abs()));
        let span = |a: u64, b: u64, n: u64| {
            let lo = a % n;
            (lo, lo + 1 + b % (n - lo))
        };
        let ((r0, r1), (c0, c1)) = (span(window[0], window[1], rows), span(window[2], window[3], columns));
        let grid = Grid::new([r0, c0], [r1, c1], pixels).unwrap();
        let mut picture = Picture::new(grid.clone(), reduce);
        for (top, bottom) in cuts(rows, &at[0]) {
            for (left, right) in cuts(columns, &at[1]) {
                let stride = right - left + halo;
                let mut own = vec![0u8; ((bottom - top) * stride * len) as usize];
                for row in top..bottom {
                    let [from, to] = [row * columns + left, (row - top) * stride].map(|n| (n * len) as usize);
                    let n = ((right - left) * len) as usize;
                    own[to..to + n].copy_from_slice(&bytes[from..from + n]);
                }
                let part = Part::with_stride(elem, [top, left], [bottom, right], stride, &own).unwrap();
                let tile = Tile::of(&grid, reduce, &part).unwrap();
                let carried = tile.values().to_vec();
                let again = Tile::from_values(&grid, reduce, [top, left], [bottom, right], carried).unwrap();
                prop_assert_eq!(format!("{again:?}"), format!("{tile:?}"));
                picture.add(&again).unwrap();
            }
        }
        let expected = oracle(&grid, reduce, &values, columns);
        // Sums beyond what an f32 or f64 holds depend on the order.
        if reduce != Reduce::Mean || scale < 1e30 {
            assert_near(&picture.finish(), &expected, scale)?;
        }
    }
}

#[test]
fn blocks_end_within_pixels_and_pixels_within_blocks() {
    for columns in [1u64, 2047, 2048, 2049, 5000, 9999] {
        for pixels in [1u32, 2, 3, 700, 2048, 4096] {
            let bytes: Vec<u8> =
                (0..3 * columns).flat_map(|i| ((i * 7919 % 1013) as f32).to_le_bytes()).collect();
            let values = for_element(ElemType::F32, Values(&bytes)).unwrap();
            let grid = Grid::new([0, 0], [3, columns], [2, pixels]).unwrap();
            let part = Part::new(ElemType::F32, [0, 0], [3, columns], &bytes).unwrap();
            for reduce in [Reduce::Mean, Reduce::Max, Reduce::Sample] {
                let tile = Tile::of(&grid, reduce, &part).unwrap();
                assert_eq!(tile.shape(), grid.shape());
                assert_near(tile.values(), &oracle(&grid, reduce, &values, columns), 1.0).unwrap();
            }
        }
    }
}

#[test]
fn what_is_nowhere_is_nan_and_replicas_change_nothing() {
    let grid = Grid::new([0, 0], [1, 4], [1, 4]).unwrap();
    let part = Part::new(ElemType::U8, [0, 1], [1, 3], &[5, 6]).unwrap();
    for reduce in [Reduce::Mean, Reduce::Max, Reduce::Sample] {
        let mut picture = Picture::new(grid.clone(), reduce);
        picture.add(&Tile::of(&grid, reduce, &part).unwrap()).unwrap();
        picture.add(&Tile::of(&grid, reduce, &part).unwrap()).unwrap();
        let values = picture.finish();
        assert!(values[0].is_nan() && values[3].is_nan() && values[1..3] == [5.0, 6.0], "{values:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let grid = Grid::new([0, 0], [8, 8], [2, 2]).unwrap();
    let bytes = [0u8; 64];
    let short = Part::new(ElemType::F32, [0, 0], [4, 8], &bytes).unwrap_err();
    assert!(matches!(short, ReduceError::Bytes { expected: 128, found: 64, .. }), "{short}");
    let countless = Part::new(ElemType::F64, [0, 0], [u64::MAX, u64::MAX], &bytes).unwrap_err();
    assert!(matches!(countless, ReduceError::Bytes { expected: u64::MAX, .. }), "{countless}");
    assert!(Part::with_stride(ElemType::U8, [0, 0], [2, 8], 7, &bytes).is_err());
    let carried = Part::new(ElemType::Bytes(2), [0, 0], [4, 8], &bytes).unwrap();
    assert_eq!(Tile::of(&grid, Reduce::Max, &carried), Err(ReduceError::Elem { elem: ElemType::Bytes(2) }));
    let few = Tile::from_values(&grid, Reduce::Max, [0, 0], [4, 8], vec![0.0]);
    assert!(matches!(few, Err(ReduceError::Values { expected: 2, found: 1, .. })), "{few:?}");

    let part = Part::new(ElemType::U8, [0, 0], [8, 8], &bytes).unwrap();
    let tile = Tile::of(&grid, Reduce::Max, &part).unwrap();
    let finer = Grid::new([0, 0], [8, 8], [4, 4]).unwrap();
    for mut picture in [Picture::new(grid, Reduce::Mean), Picture::new(finer, Reduce::Max)] {
        let why = picture.add(&tile).unwrap_err();
        assert!(matches!(why, ReduceError::Tile { .. }) && !why.to_string().is_empty());
    }
}
