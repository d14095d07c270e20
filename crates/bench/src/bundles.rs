//! Steps of several arrays, and of arrays whose size changes: the cases, and what their processes do.

use super::case::{Case, Rounds, Target};
use super::unit::{now, unique, Report, Role, Spec, Team};
use polyduct::{open, Array, Changes, Rule};
use polyduct_layout::{Dataset, ElemType};
use std::time::Duration;

/// Seconds until all processes have started, before they open.
const START: f64 = 0.3;
/// Bytes of each array of a model's many small ones where only opening counts.
const TINY: u64 = 64;
/// The most that a unit brings of an open dimension, as a multiple of what it does bring.
const MOST: u64 = 4;

/// The cases.
pub fn cases(rounds: Rounds) -> Vec<Case> {
    vec![
        Case {
            name: "1,000 arrays of 64 KiB in a step, 2→2".into(),
            unit: "GB/s",
            baseline: "one array of as many bytes",
            target: Target::RatioAtLeast(0.8),
            run: Box::new(move || {
                rounds.of(|| {
                    let one = step_seconds(1, 1000 << 16, 2, Role::BundleWrite, 40)?;
                    let many = step_seconds(1000, 64 << 10, 2, Role::BundleWrite, 40)?;
                    let rate = |seconds| f64::from(1000 << 16) / seconds / 1e9;
                    Ok((rate(many), rate(one)))
                })
            }),
        },
        Case {
            name: "10,000 arrays of 64 bytes in a step, 2→2".into(),
            unit: "ms",
            baseline: "one array of as many bytes",
            target: Target::ValueAtMost(2.0),
            run: Box::new(move || {
                rounds.of(|| {
                    let one = step_seconds(1, 10_000 * 64, 2, Role::BundleWrite, 400)?;
                    let many = step_seconds(10_000, 64, 2, Role::BundleWrite, 400)?;
                    Ok((many * 1e3, one * 1e3))
                })
            }),
        },
        Case {
            name: "opening 18,000 arrays, 2→2, first step there".into(),
            unit: "s",
            baseline: "4 times 4,500 arrays",
            target: Target::ValueAtMost(1.0),
            run: Box::new(move || {
                rounds.of(|| Ok((opening_seconds(18_000)?, 4.0 * opening_seconds(4_500)?)))
            }),
        },
        Case {
            name: "an open dimension, 8→8, 1 KiB a unit: more than a fixed one".into(),
            unit: "µs",
            baseline: "a step of a fixed one",
            target: Target::ValueAtMost(5.0),
            run: Box::new(move || {
                Rounds(3 * rounds.0).of(|| {
                    let fixed = step_seconds(1, 8 << 10, 8, Role::BundleWrite, 2000)?;
                    let open = step_seconds(1, 1 << 10, 8, Role::SizedWrite, 2000)?;
                    Ok(((open - fixed) * 1e6, fixed * 1e6))
                })
            }),
        },
    ]
}

fn spec(role: Role, arrays: u64, len: u64, steps: u64) -> Spec {
    Spec {
        pipe: unique(),
        role,
        // As many arrays, of so many bytes.
        shape: vec![arrays, len],
        elem: "u8".into(),
        layout: "block".into(),
        warm: 4,
        steps,
        at: 0.0,
    }
}

/// Seconds of a step of so many arrays of so many bytes between as many units.
fn step_seconds(arrays: u64, len: u64, units: u32, role: Role, steps: u64) -> Result<f64, String> {
    let writer = spec(role, arrays, len, steps);
    let reader = Spec { role: Role::BundleRead, ..writer.clone() };
    Ok(Team(vec![(writer, units), (reader, units)]).run()? / steps as f64)
}

/// Seconds from when all begin to open until every reader unit has the first step.
fn opening_seconds(arrays: u64) -> Result<f64, String> {
    let writer = Spec { at: now() + START, ..spec(Role::BundleWrite, arrays, TINY, 0) };
    let reader = Spec { role: Role::BundleOpenRead, ..writer.clone() };
    Team(vec![(writer, 2), (reader, 2)]).run()
}

/// What every byte of an array's part is in a step.
fn byte(array: usize, step: u64) -> u8 {
    (array as u64 * 31 + step % 2 * 7 + 1) as u8
}

fn wait(spec: &Spec) {
    std::thread::sleep(Duration::try_from_secs_f64(spec.at - now()).unwrap_or_default());
}

fn arrays(spec: &Spec) -> Result<Vec<Array>, String> {
    let sized = spec.role == Role::SizedWrite;
    let len = if sized { spec.shape[1] * MOST } else { spec.shape[1] };
    let dataset = Dataset::new(&[len], ElemType::U8).map_err(|e| e.to_string())?;
    let array = |n| Array {
        name: format!("layers/{n}/weight"),
        dataset,
        layout: if sized { String::new() } else { spec.layout.clone() },
        open: sized.then_some(Changes::Dim(0)),
    };
    Ok((0..spec.shape[0]).map(array).collect())
}

/// Publishes steps whose slots were filled once.
pub fn write(spec: &Spec) -> Result<Report, String> {
    wait(spec);
    let text = |e: polyduct::Error| e.to_string();
    let port = open(&format!("pipe:{}", spec.pipe)).timeout(Duration::from_secs(60));
    let mut out = port.write_arrays(&arrays(spec)?).map_err(text)?;
    let sized = spec.role == Role::SizedWrite;
    for step in 0..spec.warm + spec.steps + spec.warm {
        let mut slot = out.step().map_err(text)?;
        if sized {
            // The sizes of two steps in a row differ, so that each has a plan of its own.
            slot.bring(0, &[spec.shape[1] + step % 2]).map_err(text)?;
        }
        if step < 2 {
            let places: Vec<_> = slot.arrays().iter().map(|part| part.at.clone()).collect();
            places.into_iter().enumerate().for_each(|(array, at)| slot[at].fill(byte(array, step)));
        }
        slot.publish().map_err(text)?;
    }
    out.close().map_err(text)?;
    Ok(Report { start: 0.0, end: 0.0 })
}

/// Reads; checks a byte of each array of every step, and all of the first and the last.
pub fn read(spec: &Spec) -> Result<Report, String> {
    wait(spec);
    let text = |e: polyduct::Error| e.to_string();
    let port = open(&format!("pipe:{}", spec.pipe)).timeout(Duration::from_secs(60));
    let rule = Rule { pattern: "*".into(), layout: "block".into(), ..Rule::default() };
    let mut input = port.read_arrays(&[rule]).map_err(text)?;
    let changes = input.arrays().iter().any(|part| part.open.is_some());
    let mut memory = vec![1; input.local_len_bytes()];
    let mut came = 0;
    let mut next = |all: bool| -> Result<bool, String> {
        if changes {
            if input.peek().map_err(text)?.is_none() {
                return Ok(false);
            }
            memory.resize(input.local_len_bytes(), 0);
        }
        let Some(step) = input.read(&mut memory).map_err(text)? else { return Ok(false) };
        let good = |(array, at): (usize, std::ops::Range<usize>)| {
            let part = &memory[at];
            let checked = if all { part } else { &part[..part.len().min(1)] };
            checked.iter().all(|found| *found == byte(array, step))
        };
        let parts = input.arrays().iter().map(|part| part.at.clone());
        if step != came || !parts.enumerate().all(good) {
            return Err(format!("step {came} came as {step}, or with other bytes"));
        }
        came += 1;
        Ok(true)
    };
    if spec.role == Role::BundleOpenRead {
        next(true)?;
        let end = now();
        while next(false)? {}
        return Ok(Report { start: spec.at, end });
    }
    for step in 0..spec.warm {
        next(step == 0)?;
    }
    let start = now();
    for _ in 0..spec.steps {
        next(false)?;
    }
    let end = now();
    while next(true)? {}
    let all = spec.warm + spec.steps + spec.warm;
    match came == all {
        true => Ok(Report { start, end }),
        false => Err(format!("{came} of {all} steps came")),
    }
}
