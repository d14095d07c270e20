//! Every system call of a pipe fails once, each in a run of its own; see [`polyduct_rig::faults`].

mod common;

use common::at::{step_with, At};
use common::net::Across;
use common::{fill, local_indices, reader_options, unique, writer_options};
use polyduct_layout::{Dataset, ElemType, Mapping};
use polyduct_pipe::{Expect, Given, Options, PipeError};
use polyduct_rig::faults::{self, PATIENCE};
use polyduct_rig::inject::{self, InjectedFault};

const SHAPE: [u64; 2] = [12, 20];
const STEPS: u64 = 3;

fn main() {
    let cases = [
        ("shm", InjectedFault::Error),
        ("shm", InjectedFault::Interrupted),
        ("net", InjectedFault::Error),
        ("net", InjectedFault::Interrupted),
        ("net", InjectedFault::Short),
    ];
    faults::main(&cases, |kind| match kind {
        "net" => child(&Across::new()),
        _ => child(&unique("faults")),
    });
}

/// Two writer and two reader units.
fn child<A: At>(at: &A) -> Vec<String> {
    let with = |options: Options| Options { timeout: Some(PATIENCE), open_timeout: PATIENCE, ..options };
    inject::begin();
    faults::units(4, |n| match n {
        0 | 1 => write(at, &with(writer_options(n, 2))),
        _ => read(at, &with(reader_options("r", n - 2, 2))),
    })
}

fn write<A: At>(at: &A, options: &Options) -> Result<(), PipeError> {
    let data = Dataset::new(&SHAPE, ElemType::U64).unwrap();
    let mut w = at.writer(&Given::Dataset(data), "block,*", options)?;
    let indices = local_indices(w.mapping(), options.unit.into());
    for step in 0..STEPS {
        // Who gives up a step in time must not end the stream in good order.
        step_with(&mut w, |part| fill(part, &indices, step)).inspect_err(|_| w.abort())?;
    }
    w.close().map(drop)
}

fn read<A: At>(at: &A, options: &Options) -> Result<(), PipeError> {
    let mut r = at.reader("*,block", &Expect::default(), options)?;
    let mut part = vec![0; r.local_len_bytes()];
    let right = expected(r.mapping(), options.unit);
    let mut next = 0;
    while let Some(step) = r.read(&mut part)? {
        assert_eq!(step, next);
        assert_eq!(part, right(step), "step {step}");
        next += 1;
    }
    assert_eq!(next, STEPS, "the stream ended early");
    Ok(())
}

/// What a unit's part of a step must be.
fn expected(mapping: &Mapping, unit: u32) -> impl Fn(u64) -> Vec<u8> {
    let indices = local_indices(mapping, unit.into());
    move |step| {
        let mut part = vec![0; indices.len() * 8];
        fill(&mut part, &indices, step);
        part
    }
}
