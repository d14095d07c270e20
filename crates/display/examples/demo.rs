//! Something to look at: `cargo run --release -p polyduct-display --example demo [PORT [STEPS]]`.
//!
//! A bundle of a wave, a curve and an array of 8192×8192 elements in four parts, which is sent reduced: as an
//! overview for everybody, and as the windows that viewers want.

use bytes::Bytes;
use polyduct_display::reduce::{Grid, Part, Picture, Reduce, Tile};
use polyduct_display::{Display, Frame, Options, Owner, Show, View, ViewInfo};
use polyduct_layout::ElemType;
use polyduct_os::poll::{poll, PollItem};
use serde_json::json;
use std::error::Error;
use std::time::{Duration, SystemTime};

const WAVE: [u64; 2] = [270, 480];
const LARGE: u64 = 8192;
const HALF: u64 = LARGE / 2;
const OVERVIEW: [u32; 2] = [512, 512];

fn bytes(values: impl Iterator<Item = f32>) -> Bytes {
    values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>().into()
}

fn info(name: &str, shape: &[u64], elem: ElemType, owners: Vec<Owner>) -> ViewInfo {
    ViewInfo { name: name.into(), shape: shape.to_vec(), elem, owners: Some(owners) }
}

/// The four parts of the large array: where each begins, and its bytes.
fn parts() -> Vec<([u64; 2], Vec<u8>)> {
    let part = |[top, left]: [u64; 2]| {
        let element = move |at: u64| (((top + at / HALF) ^ (left + at % HALF)) >> 5) as u8;
        ([top, left], (0..HALF * HALF).map(element).collect())
    };
    [[0, 0], [0, HALF], [HALF, 0], [HALF, HALF]].map(part).into()
}

fn reduce(parts: &[([u64; 2], Vec<u8>)], grid: Grid, how: Reduce) -> Result<View, Box<dyn Error>> {
    let mut picture = Picture::new(grid.clone(), how);
    for (lo, bytes) in parts {
        let part = Part::new(ElemType::U8, *lo, lo.map(|n| n + HALF), bytes)?;
        picture.add(&Tile::of(&grid, how, &part)?)?;
    }
    let shape = grid.shape().map(|n| n as u64);
    let data = bytes(picture.finish().into_iter());
    let whole = View::whole("large", ElemType::F32, &shape, data);
    let (full, lo, hi) = (vec![LARGE; 2], grid.lo().into(), grid.hi().into());
    Ok(View { full, lo, hi, reduce: Some(how), ..whole })
}

fn publish(show: &Show, step: u64, overview: &View, windows: &[View]) -> Result<(), Box<dyn Error>> {
    let t = step as f32 / 30.0;
    let wave = (0..WAVE[0] * WAVE[1]).map(|at| {
        let [y, x] = [(at / WAVE[1]) as f32 - 135.0, (at % WAVE[1]) as f32 - 240.0];
        (0.1 * (x * x + y * y).sqrt() - 4.0 * t).sin() * (-x * x / 4e4).exp()
    });
    let curve = (0..500).map(|x| (x as f32 / 40.0 + t).sin() + (x as f32 / 7.0).cos() / 5.0);
    let mut views = vec![
        View::whole("wave", ElemType::F32, &WAVE, bytes(wave)),
        View::whole("curve", ElemType::F32, &[500], bytes(curve)),
        overview.clone(),
    ];
    views.extend(windows.iter().cloned());
    let mut values = serde_json::Map::new();
    values.insert("t".into(), json!(t));
    values.insert("phase".into(), json!(if step % 200 < 100 { "rising" } else { "falling" }));
    Ok(show.publish(Frame { step, time: SystemTime::now(), values, views, exact: Vec::new() })?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let port = args.next().map_or(Ok(0), |a| a.parse())?;
    let steps = args.next().map_or(Ok(u64::MAX), |a| a.parse())?;
    let display = Display::listen(&Options { port, ..Options::default() })?;
    let boxes = |lo: [u64; 2], hi: [u64; 2]| vec![(lo.to_vec(), hi.to_vec())];
    let parts = parts();
    let quarter = |(unit, (lo, _)): (usize, &([u64; 2], Vec<u8>))| Owner {
        unit: unit as u32,
        boxes: boxes(*lo, lo.map(|n| n + HALF)),
    };
    let show = display.enter(
        "demo",
        vec![
            info("wave", &WAVE, ElemType::F32, vec![Owner { unit: 0, boxes: boxes([0, 0], WAVE) }]),
            info("curve", &[500], ElemType::F32, vec![]),
            info("large", &[LARGE; 2], ElemType::U8, parts.iter().enumerate().map(quarter).collect()),
        ],
    )?;
    println!("{}", display.address("demo"));
    let overview = reduce(&parts, Grid::new([0; 2], [LARGE; 2], OVERVIEW)?, Reduce::Mean)?;
    let mut windows = Vec::new();
    for step in 0..steps {
        let changed = show.changed();
        if poll(&mut [PollItem::readable(&changed)], Some(Duration::from_millis(33)))? > 0 {
            windows.clear();
            for (id, want) in show.wants().windows {
                if want.view == "large" && want.axes == [0, 1] {
                    windows.push(View { for_want: Some(id), ..reduce(&parts, want.grid()?, want.reduce)? });
                }
            }
        }
        publish(&show, step, &overview, &windows)?;
    }
    Ok(())
}
