//! The peers, in the same run. A peer that is not installed leaves nothing to compare with, which is said and
//! is no pass.

use super::case::{Case, Measured, Rounds, Target};
use super::transfer::{step_seconds, LARGE};
use serde::Deserialize;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Deserialize)]
struct Record {
    peer: String,
    median_s: Option<f64>,
    /// `None` of a tool that checks nothing it moves.
    verified: Option<bool>,
    missing: Option<String>,
    failed: Option<String>,
}

/// Seconds that a peer takes for a case of its script.
pub fn peer_seconds(script: &Path, peer: &str, case: &str) -> Result<Result<f64, String>, String> {
    peer_seconds_with(script, peer, case, &[])
}

/// The same, with more arguments for the script.
pub fn peer_seconds_with(
    script: &Path,
    peer: &str,
    case: &str,
    more: &[&OsStr],
) -> Result<Result<f64, String>, String> {
    if !script.exists() {
        return Ok(Err(format!("{} is not there: run `make bench` in the source tree", script.display())));
    }
    let out = Command::new("python3")
        .arg(script)
        .args(["--case", case, "--peer", peer])
        .args(more)
        .output()
        .map_err(|e| format!("python3: {e}"))?;
    let records: Vec<Record> = serde_json::from_slice(&out.stdout).map_err(|e| {
        format!(
            "{}: {e}: {}",
            script.display(),
            String::from_utf8_lossy(&out.stderr).lines().last().unwrap_or("")
        )
    })?;
    let record =
        records.into_iter().find(|r| r.peer == peer).ok_or_else(|| format!("{peer} has no case {case}"))?;
    match record {
        Record { missing: Some(why), .. } => Ok(Err(format!("{peer} is missing: {why}"))),
        Record { failed: Some(why), .. } => Err(format!("{peer} failed: {why}")),
        Record { median_s: Some(s), verified: None | Some(true), .. } => Ok(Ok(s)),
        _ => Err(format!("{peer} gave no verified time")),
    }
}

/// Rounds of ours against a peer's, both in GB/s of `bytes`.
fn against(
    rounds: Rounds,
    bytes: u64,
    ours: impl Fn() -> Result<f64, String>,
    theirs: impl Fn() -> Result<Result<f64, String>, String>,
) -> Result<Measured, String> {
    paired(rounds, |seconds| bytes as f64 / seconds / 1e9, ours, theirs)
}

/// Rounds of our seconds against a peer's, shown as `figure` has it.
pub fn paired(
    rounds: Rounds,
    figure: impl Fn(f64) -> f64,
    ours: impl Fn() -> Result<f64, String>,
    theirs: impl Fn() -> Result<Result<f64, String>, String>,
) -> Result<Measured, String> {
    let mut all = Vec::new();
    // A peer takes seconds to start: fewer rounds, each with several repetitions of its own.
    for _ in 0..rounds.0.div_ceil(2) {
        match theirs()? {
            Err(missing) => {
                let alone: Result<_, String> =
                    (0..rounds.0.div_ceil(2)).map(|_| Ok(figure(ours()?))).collect();
                return Ok(Measured::Alone(alone?, missing));
            }
            Ok(peer) => all.push((figure(ours()?), figure(peer))),
        }
    }
    Ok(Measured::Rounds(all))
}

/// Seconds that a script between two Python programs says.
pub fn python_seconds(python: &Path, script: &Path, args: &[&str]) -> Result<f64, String> {
    let out = Command::new(python)
        .arg(script)
        .args(args)
        .output()
        .map_err(|e| format!("{}: {e}", python.display()))?;
    #[derive(Deserialize)]
    struct Report {
        median_s: f64,
        verified: bool,
    }
    let report: Report = serde_json::from_slice(&out.stdout).map_err(|e| {
        format!(
            "{}: {e}: {}",
            script.display(),
            String::from_utf8_lossy(&out.stderr).lines().last().unwrap_or("")
        )
    })?;
    if report.verified {
        Ok(report.median_s)
    } else {
        Err("the Python reader found wrong data".into())
    }
}

/// The cases.
pub fn cases(rounds: Rounds, script: &Path, python: &Path) -> Vec<Case> {
    let script: PathBuf = script.to_owned();
    let mut cases = Vec::new();
    // The `-reuse` rows are the peers with glibc told to keep large blocks, which their users must know to
    // do.
    let (one, four) = (
        ("", "pipe-4096x4096-f32", None),
        (" of 4 arrays, 4 values", "bundle4-4096x4096-f32", Some("--variables=4")),
    );
    for (peer, at_least, (what, case, extra)) in [
        ("adios2-sst", 5.0, one),
        ("zmq-ipc", 5.0, one),
        ("adios2-sst-reuse", 1.0, one),
        ("zmq-ipc-reuse", 1.0, one),
        ("adios2-sst", 5.0, four),
        ("adios2-sst-reuse", 1.0, four),
    ] {
        let (script, python) = (script.clone(), python.to_owned());
        let ours = script.with_file_name("../python_pipe.py");
        cases.push(Case {
            name: format!("Python to Python, 64 MiB steps{what}, against {peer}"),
            unit: "GB/s",
            baseline: peer,
            target: Target::RatioAtLeast(at_least),
            run: Box::new(move || {
                let theirs = || peer_seconds(&script, peer, case);
                if !python.exists() {
                    return Ok(Measured::Missing(format!(
                        "{} is not there: run `make build`",
                        python.display()
                    )));
                }
                let args = extra.as_slice();
                against(rounds, LARGE.bytes(), || python_seconds(&python, &ours, args), theirs)
            }),
        });
    }
    let (ours, theirs) = (script.with_file_name("../c_pipe.py"), script.with_file_name("../python_pipe.py"));
    let python = python.to_owned();
    cases.push(Case {
        name: "C to C, 64 MiB steps, against Python to Python".into(),
        unit: "ms",
        baseline: "Python",
        target: Target::RatioAtMost(1.0),
        run: Box::new(move || {
            if !python.exists() {
                return Ok(Measured::Missing(format!("{} is not there: run `make build`", python.display())));
            }
            // Both are nearly the same, and each takes less than a second: more rounds than against peers.
            let rounds = Rounds(4 * rounds.0);
            let theirs = || python_seconds(&python, &theirs, &[]).map(Ok);
            paired(rounds, |seconds| seconds * 1e3, || python_seconds(&python, &ours, &[]), theirs)
        }),
    });
    for (units, at_least) in [(2, 2.0), (4, 1.5)] {
        let script = script.clone();
        cases.push(Case {
            name: format!("rows→columns 4096² f32, {units}→{units}, against MPI_Alltoallw"),
            unit: "GB/s",
            baseline: "Open MPI 5",
            target: Target::RatioAtLeast(at_least),
            run: Box::new(move || {
                let case = format!("rows-cols-4096x4096-f32-n{units}");
                let ours = || step_seconds(LARGE, "block,*", units, "*,block", units);
                against(rounds, LARGE.bytes(), ours, || peer_seconds(&script, "openmpi", &case))
            }),
        });
    }
    for (from, to) in [(64, 96), (96, 64)] {
        let script = script.clone();
        cases.push(Case {
            name: format!("block-cyclic {from}→{to} 4096² f32, 2x2→2x2"),
            unit: "GB/s",
            baseline: "ScaLAPACK p?gemr2d",
            target: Target::RatioAtLeast(5.0),
            run: Box::new(move || {
                let layout = |b: u32| format!("cyclic({b}),cyclic({b})@2x2;order=F");
                let ours = || step_seconds(LARGE, &layout(from), 4, &layout(to), 4);
                let case = format!("cyclic{from}-cyclic{to}-4096x4096-f32-n4");
                against(rounds, LARGE.bytes(), ours, || peer_seconds(&script, "scalapack", &case))
            }),
        });
    }
    cases
}
