//! Small things from Python: what two Python programs of one host pay for them.

use super::theirs::Peers;
use crate::case::{Case, Measured, Rounds, Target};
use crate::latency::line_one_way;
use crate::peers::{paired, python_seconds};
use std::path::{Path, PathBuf};

/// What there is to compare with, in microseconds.
const LINE: &str = "cache line between threads";

/// Rows whose base is what the processor takes, with what is wanted of them, quiet and beside a busy process.
const ALONE: [(&str, &str, f64); 3] = [
    ("step of 8 bytes, Python to Python", "step", 3.0),
    ("call of a function and its result, Python", "call", 5.0),
    ("post to a handler, one way, Python", "post", 3.0),
];

/// The cases.
pub fn cases(rounds: Rounds, script: &Path, python: &Path) -> Vec<Case> {
    let small = script.with_file_name("../python_small.py");
    let mut cases = Vec::new();
    for (busy, words) in [(false, ""), (true, ", beside a busy process")] {
        let more: &[&str] = if busy { &["--busy"] } else { &[] };
        let peers = Peers::new(script);
        cases.push(Case {
            name: format!("array of 8 bytes, one way, Python{words}"),
            unit: "µs",
            baseline: "mpi4py",
            target: Target::RatioAtMost(1.0),
            run: with_python(python, &small, move |python, small| {
                let ours = || python_seconds(python, small, &[&["message-out"], more].concat());
                paired(rounds, |s| s * 1e6, ours, || peers.array_latency(8, busy))
            }),
        });
        let peers = Peers::new(script);
        cases.push(Case {
            name: format!("put and get of 8 bytes, Python{words}"),
            unit: "µs",
            baseline: "mpi4py",
            target: Target::RatioAtMost(1.0),
            run: with_python(python, &small, move |python, small| {
                let ours = || python_seconds(python, small, &[&["put-get"], more].concat());
                paired(rounds, |s| s * 1e6, ours, || peers.array_put_get(8, busy))
            }),
        });
        for (name, case, most) in ALONE {
            cases.push(Case {
                name: format!("{name}{words}"),
                unit: "µs",
                baseline: LINE,
                target: Target::ValueAtMost(most),
                run: with_python(python, &small, move |python, small| {
                    rounds.of(|| {
                        let seconds = python_seconds(python, small, &[&[case], more].concat())?;
                        Ok((seconds * 1e6, line_one_way(true)))
                    })
                }),
            });
        }
    }
    cases
}

type Run = Box<dyn Fn() -> Result<Measured, String>>;

fn with_python(
    python: &Path,
    script: &Path,
    run: impl Fn(&Path, &Path) -> Result<Measured, String> + 'static,
) -> Run {
    let (python, script): (PathBuf, PathBuf) = (python.to_owned(), script.to_owned());
    Box::new(move || match python.exists() && script.exists() {
        true => run(&python, &script),
        false => Err(format!("{} or {} is not there: run `make bench`", python.display(), script.display())),
    })
}
