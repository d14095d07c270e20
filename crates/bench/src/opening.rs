//! Measures the opening of pipes, and what a pipe costs that is named by the address of this host.

use super::case::{Case, Rounds, Target};
use super::transfer::{gigabytes, step_seconds_at, LARGE};
use super::unit::{now, unique, Role, Spec, Team};
use std::net::TcpListener;

/// Seconds until all processes have started, before they open.
const START: f64 = 0.15;
/// And as much more for each of them.
const EACH: f64 = 0.02;

/// Milliseconds from when all begin to open a pipe until all have opened it.
fn opening_ms(units: u32, by_address: bool) -> Result<f64, String> {
    let pipe = if by_address { address()? } else { unique() };
    let at = now() + START + EACH * f64::from(2 * units);
    let spec = |role| Spec {
        pipe: pipe.clone(),
        role,
        shape: vec![512, 512],
        elem: "f32".into(),
        layout: if role == Role::OpenWrite { "block,*".into() } else { "*,block".into() },
        warm: 0,
        steps: 0,
        at,
    };
    let team = Team(vec![(spec(Role::OpenWrite), units), (spec(Role::OpenRead), units)]);
    Ok(team.run()? * 1e3)
}

/// A pipe at a free port of this host.
fn address() -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    Ok(format!("//{}/{}", listener.map_err(|e| e.to_string())?, unique()))
}

/// The cases.
pub fn cases(rounds: Rounds) -> Vec<Case> {
    let open = |name: &str, by_address, most| Case {
        name: name.into(),
        unit: "ms",
        baseline: "4 times 8→8",
        target: Target::ValueAtMost(most),
        run: Box::new(move || {
            rounds.of(|| {
                let eight = opening_ms(8, by_address)?;
                Ok((opening_ms(32, by_address)?, 4.0 * eight))
            })
        }),
    };
    vec![
        open("opening a pipe, 32→32", false, 150.0),
        open("opening a pipe by address, 32→32", true, 300.0),
        Case {
            name: "rows→columns 4096² f32, 2→2, by address".into(),
            unit: "GB/s",
            baseline: "by name",
            target: Target::RatioAtLeast(0.9),
            run: Box::new(move || {
                rounds.of(|| {
                    let by_name = step_seconds_at(&unique(), LARGE, ("block,*", 2), ("*,block", 2))?;
                    let seconds = step_seconds_at(&address()?, LARGE, ("block,*", 2), ("*,block", 2))?;
                    Ok((gigabytes(LARGE, seconds), gigabytes(LARGE, by_name)))
                })
            }),
        },
    ]
}
