//! How fast arrays are reduced: `cargo run --release -p polyduct-display --example reduce [EDGE]`.
//!
//! A square f32 array of EDGE elements on an edge (default 16384) becomes 1024×1024 pixels. Beside each way
//! stands what reading the same bytes costs, as the sum of their words: the limit of this machine.

use polyduct_display::reduce::{Grid, Part, Reduce, Tile};
use polyduct_layout::ElemType;
use std::time::{Duration, Instant};

fn best<T>(mut work: impl FnMut() -> T) -> (Duration, T) {
    let mut timed = || {
        let start = Instant::now();
        let value = work();
        (start.elapsed(), value)
    };
    let mut best = timed();
    for _ in 0..4 {
        let next = timed();
        if next.0 < best.0 {
            best = next;
        }
    }
    best
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let edge: u64 = std::env::args().nth(1).map_or(Ok(16384), |a| a.parse())?;
    for elem in [ElemType::F32, ElemType::F64, ElemType::U8, ElemType::F16, ElemType::I64] {
        let len = (edge * edge * 4.min(elem.len_bytes()) / elem.len_bytes() * elem.len_bytes()) as usize;
        let rows = len as u64 / elem.len_bytes() / edge;
        // Of floating point the last byte makes it a number of ordinary size.
        let last = elem.len_bytes() as usize - 1;
        let byte = |i: usize| if last > 0 && i & last == last { 0x3f } else { ((i * 31) >> 3) as u8 };
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        let gb = bytes.len() as f64 / 1e9;
        let (read, sum) = best(|| {
            let words = bytes.as_chunks::<8>().0.iter();
            words.fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
        });
        println!("{elem}, {rows}×{edge}: reading {read:.1?}, {:.1} GB/s ({sum:x})", gb / read.as_secs_f64());
        let grid = Grid::new([0, 0], [rows, edge], [1024, 1024])?;
        let part = Part::new(elem, [0, 0], [rows, edge], &bytes)?;
        for reduce in [Reduce::Mean, Reduce::Max, Reduce::Sample] {
            let (took, tile) = best(|| Tile::of(&grid, reduce, &part));
            let value = tile?.values()[0];
            let rate = gb / took.as_secs_f64();
            println!("  {:6} {took:.1?}, {rate:.1} GB/s, first pixel {value}", reduce.name());
        }
    }
    Ok(())
}
