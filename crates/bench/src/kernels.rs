//! Kernels on one core, against memcpy of the same bytes.

use super::case::{Case, Measured, Rounds, Target};
use super::pattern;
use polyduct_cli::limits;
use polyduct_copy::{self as copy, Conversion, Dest, Source};
use polyduct_layout::{Dataset, ElemType, Layout, Mapping, Plan};
use std::time::Instant;

fn seconds(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

/// Seconds that `threads` threads take to memcpy `bytes` together, each its share.
pub fn threads_memcpy(threads: usize, bytes: usize) -> f64 {
    limits::copy(threads, bytes, (3 << 30) / bytes)
}

fn bind(layout: &str, data: &Dataset) -> Result<Mapping, String> {
    layout.parse::<Layout>().and_then(|l| l.bind(data, 1)).map_err(|e| e.to_string())
}

/// The cases.
pub fn cases(rounds: Rounds) -> Vec<Case> {
    let order = |elem: ElemType, name: &str| Case {
        name: format!("order C→F, 4096² {name}, one core"),
        unit: "GB/s",
        baseline: "memcpy",
        target: Target::RatioAtLeast(0.5),
        run: Box::new(move || order_change(rounds, elem)),
    };
    vec![
        order(ElemType::F32, "f32"),
        order(ElemType::F64, "f64"),
        Case {
            name: "f32→bf16 on the way, 4096², one core, source bytes".into(),
            unit: "GB/s",
            baseline: "plain copy",
            target: Target::RatioAtLeast(0.8),
            run: Box::new(move || convert(rounds)),
        },
    ]
}

fn order_change(rounds: Rounds, elem: ElemType) -> Result<Measured, String> {
    let data = Dataset::new(&[4096, 4096], elem).map_err(|e| e.to_string())?;
    let (c, f) = (bind("*,*", &data)?, bind("*,*;order=F", &data)?);
    let plan = Plan::to_reader(&c, &f, 0).map_err(|e| e.to_string())?;
    let (mut from, mut to) = (vec![0; data.len_bytes() as usize], vec![0; data.len_bytes() as usize]);
    pattern::fill(&c, 0, &mut from, 1).map_err(|e| e.to_string())?;
    let gb = data.len_bytes() as f64 / 1e9;
    rounds.of(|| {
        let limit = seconds(|| to.copy_from_slice(&from));
        to[..4096].fill(0);
        let mut failed = None;
        let taken = seconds(|| {
            for table in plan.transfers().iter().flat_map(|t| t.tables()) {
                failed = copy::execute(&table, Source::from(&from[..]), Dest::from(&mut to[..]))
                    .err()
                    .or(failed.take());
            }
        });
        if let Some(e) = failed {
            return Err(e.to_string());
        }
        pattern::check(&f, 0, &to, 1)?;
        Ok((gb / taken, gb / limit))
    })
}

fn convert(rounds: Rounds) -> Result<Measured, String> {
    let data = Dataset::new(&[4096, 4096], ElemType::F32).map_err(|e| e.to_string())?;
    let whole = bind("*,*", &data)?;
    let plan = Plan::to_reader(&whole, &whole, 0).map_err(|e| e.to_string())?;
    let n = data.len_elems() as usize;
    // Whole numbers up to 255 are the same in both types.
    let from: Vec<u8> = (0..n).flat_map(|i| ((i % 251) as f32).to_le_bytes()).collect();
    let (mut to, mut plain) = (vec![0; 2 * n], vec![0; 4 * n]);
    let gb = data.len_bytes() as f64 / 1e9;
    rounds.of(|| {
        let limit = seconds(|| plain.copy_from_slice(&from));
        to.fill(0);
        let mut failed = None;
        let taken = seconds(|| {
            for table in plan.transfers().iter().flat_map(|t| t.tables()) {
                let (src, dst) = (Source::from(&from[..]), Dest::from(&mut to[..]));
                failed =
                    copy::execute_convert(&table, Conversion::F32ToBf16, src, dst).err().or(failed.take());
            }
        });
        let right = |i: usize| to[2 * i..2 * i + 2] == from[4 * i + 2..4 * i + 4];
        if failed.is_some() || !(0..n).all(right) {
            return Err(failed.map_or("a converted element is wrong".into(), |e| e.to_string()));
        }
        Ok((gb / taken, gb / limit))
    })
}
