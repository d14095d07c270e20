//! Every system call of a pipe fails once, each in a run of its own: no panic, no hang, no wrong byte.
//!
//! `POLYDUCT_FAULTS=all` fails each of them; without it some 80 of each kind, beginning with another one each time.

mod common;

use common::at::{At, Port, Read, Write};
use common::net::Across;
use common::{fill, local_indices, reader_options, unique, writer_options};
use polyduct_layout::{Dataset, ElemType, Mapping};
use polyduct_pipe::{Expect, Given, Options, PipeError};
use polyduct_rig::inject::{self, Fault};
use std::process::Command;
use std::time::Duration;

const CHILD: &str = "POLYDUCT_TEST_FAULTS";
const SHAPE: [u64; 2] = [12, 20];
const STEPS: u64 = 3;
/// What ends a wait in the child, and the child itself.
const PATIENCE: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(15);

fn main() {
    if let Ok(kind) = std::env::var(CHILD) {
        return if kind == "net" { child(&Across::new()) } else { child(&unique("faults")) };
    }
    let cases = [
        ("shm", Fault::Error),
        ("shm", Fault::Interrupted),
        ("net", Fault::Error),
        ("net", Fault::Interrupted),
        ("net", Fault::Short),
    ];
    println!("\nrunning {} tests", cases.len());
    for (kind, fault) in cases {
        let (runs, failed) = every_call_fails_once(kind, fault);
        println!("test {kind}, {fault:?}: {runs} runs, of which {failed} ended in an error ... ok");
    }
    println!("\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n", cases.len());
}

fn command(kind: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CHILD, kind);
    command
}

fn every_call_fails_once(kind: &'static str, fault: Fault) -> (u64, u64) {
    let reference = inject::run(&mut command(kind), fault, None, LIMIT);
    assert_eq!((reference.status, reference.hung), (Some(0), false), "{reference:?}");
    assert!(reference.output.contains("all is well"), "{reference:?}");
    let all = std::env::var("POLYDUCT_FAULTS").is_ok_and(|v| v == "all");
    let stride = if all { 1 } else { reference.calls.div_ceil(80).max(1) };
    let first = 1 + u64::from(std::process::id()) % stride;
    // Two at a time; which call is the Nth differs from run to run, where threads race.
    let half = |parity: u64| {
        move || {
            let (mut runs, mut failed, mut bad) = (0, 0, Vec::new());
            for nth in (first..=reference.calls).step_by(stride as usize).filter(|n| n / stride % 2 == parity)
            {
                let outcome = inject::run(&mut command(kind), fault, Some(nth), LIMIT);
                runs += 1;
                failed += u64::from(!outcome.output.contains("all is well"));
                if outcome.hung || outcome.status != Some(0) {
                    bad.push(format!("{kind}, {fault:?}, call {nth}: {outcome:?}"));
                }
            }
            (runs, failed, bad)
        }
    };
    let other = std::thread::spawn(half(1));
    let (runs, failed, mut bad) = half(0)();
    let (more, of_them, too) = other.join().unwrap();
    bad.extend(too);
    assert!(bad.is_empty(), "{} of {} runs went wrong:\n{}", bad.len(), runs + more, bad.join("\n"));
    (runs + more, failed + of_them)
}

/// Two writer and two reader units, a thread each. Errors are printed; what is wrong is a panic.
fn child<A: At>(at: &A) {
    let with = |options: Options| Options { timeout: Some(PATIENCE), open_timeout: PATIENCE, ..options };
    inject::begin();
    let results: Vec<Result<(), PipeError>> = std::thread::scope(|s| {
        let mut units = Vec::new();
        for unit in 0..2 {
            let (w, r) = (with(writer_options(unit, 2)), with(reader_options("r", unit, 2)));
            // A thread that the system does not give is a unit that never comes.
            units.extend(std::thread::Builder::new().spawn_scoped(s, move || write(at, &w)));
            units.extend(std::thread::Builder::new().spawn_scoped(s, move || read(at, &r)));
        }
        let missing = 4 - units.len();
        let mut results: Vec<_> = units.into_iter().map(|u| u.join().unwrap()).collect();
        results.extend((0..missing).map(|_| Err(PipeError::Closed { pipe: "no thread".into() })));
        results
    });
    let errors: Vec<String> = results.into_iter().filter_map(Result::err).map(|e| e.to_string()).collect();
    match errors.is_empty() {
        true => println!("all is well"),
        false => errors.iter().for_each(|e| println!("{e}")),
    }
}

fn write<A: At>(at: &A, options: &Options) -> Result<(), PipeError> {
    let data = Dataset::new(&SHAPE, ElemType::U64).unwrap();
    let mut w = at.writer(&Given::Dataset(data), "block,*", options)?;
    let indices = local_indices(w.mapping(), options.unit.into());
    for step in 0..STEPS {
        w.step_with(|part| fill(part, &indices, step))?;
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
