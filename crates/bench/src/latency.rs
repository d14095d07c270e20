//! The smallest step, against a cache line handed back and forth by two threads.

use super::case::{Case, Rounds, Target};
use super::unit::{unique, Role, Spec, Team};
use polyduct_cli::limits;

/// Microseconds for a cache line to go from one thread to another; each on a processor of its own if
/// `pinned`.
pub fn line_one_way(pinned: bool) -> f64 {
    limits::line(pinned) * 1e6
}

/// The cases.
pub fn cases(rounds: Rounds) -> Vec<Case> {
    vec![Case {
        name: "8-byte step, one way, 1→1".into(),
        unit: "µs",
        baseline: "cache line between threads",
        target: Target::ValueAtMost(1.0),
        run: Box::new(move || {
            rounds.of(|| {
                let steps = 50_000;
                let spec = |role, pipe: &str| Spec {
                    pipe: pipe.into(),
                    role,
                    shape: vec![8],
                    elem: "u8".into(),
                    layout: "*".into(),
                    warm: 1000,
                    steps,
                    at: 0.0,
                };
                let pipe = unique();
                let team = Team(vec![(spec(Role::Ping, &pipe), 1), (spec(Role::Pong, &pipe), 1)]);
                Ok((team.run()? * 1e6 / (2 * steps) as f64, line_one_way(false)))
            })
        }),
    }]
}
