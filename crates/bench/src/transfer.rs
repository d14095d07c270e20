//! Steps between processes: pairs of layouts, numbers of units, against memcpy and against each other.

use super::case::{Case, Rounds, Target};
use super::kernels::threads_memcpy;
use super::unit::{unique, Role, Spec, Team};

/// What is moved.
#[derive(Clone, Copy)]
pub struct Data {
    /// Rows and columns.
    pub side: u64,
    /// Element type.
    pub elem: &'static str,
    /// Bytes of an element.
    pub len: u64,
}

/// 64 MiB of f32.
pub const LARGE: Data = Data { side: 4096, elem: "f32", len: 4 };
/// 1 MiB of bytes.
pub const SMALL: Data = Data { side: 1024, elem: "u8", len: 1 };

impl Data {
    /// Bytes of a step.
    pub fn bytes(self) -> u64 {
        self.side * self.side * self.len
    }

    /// Steps that are timed.
    pub fn steps(self) -> u64 {
        ((3 << 30) / self.bytes()).clamp(8, 1000)
    }

    fn name(self) -> String {
        format!("{}² {}", self.side, self.elem)
    }
}

/// Seconds of one step from `from` in `writers` units to `to` in `readers` units.
pub fn step_seconds(data: Data, from: &str, writers: u32, to: &str, readers: u32) -> Result<f64, String> {
    step_seconds_at(&unique(), data, (from, writers), (to, readers))
}

/// The same through the pipe of this name or address.
pub fn step_seconds_at(
    pipe: &str,
    data: Data,
    (from, writers): (&str, u32),
    (to, readers): (&str, u32),
) -> Result<f64, String> {
    let pair = team(pipe, data, (from, writers), (to, readers));
    Ok(pair.run()? / data.steps() as f64)
}

/// The programs that move all steps from `from` to `to`: those that are timed, and some around them.
pub fn team(pipe: &str, data: Data, (from, writers): (&str, u32), (to, readers): (&str, u32)) -> Team {
    let spec = |role, layout: &str| Spec {
        pipe: pipe.into(),
        role,
        shape: vec![data.side; 2],
        elem: data.elem.into(),
        layout: layout.into(),
        warm: 4,
        steps: data.steps(),
        at: 0.0,
    };
    Team(vec![(spec(Role::Write, from), writers), (spec(Role::Read, to), readers)])
}

/// Gigabytes a second, of a step of so many seconds.
pub fn gigabytes(data: Data, seconds: f64) -> f64 {
    data.bytes() as f64 / seconds / 1e9
}

/// The cases.
pub fn cases(rounds: Rounds) -> Vec<Case> {
    let mut cases = vec![
        Case {
            name: "rows→columns 4096² f32, 2→2, from slots".into(),
            unit: "GB/s",
            baseline: "two threads' memcpy",
            target: Target::RatioAtLeast(0.80),
            run: Box::new(move || {
                rounds.of(|| {
                    let limit = threads_memcpy(2, LARGE.bytes() as usize);
                    let seconds = step_seconds(LARGE, "block,*", 2, "*,block", 2)?;
                    Ok((gigabytes(LARGE, seconds), LARGE.bytes() as f64 / limit / 1e9))
                })
            }),
        },
        Case {
            name: "rows→columns 4096² f32, 8→8".into(),
            unit: "GB/s",
            baseline: "2→2",
            target: Target::RatioAtLeast(0.7),
            run: Box::new(move || {
                rounds.of(|| {
                    let two = step_seconds(LARGE, "block,*", 2, "*,block", 2)?;
                    let eight = step_seconds(LARGE, "block,*", 8, "*,block", 8)?;
                    Ok((gigabytes(LARGE, eight), gigabytes(LARGE, two)))
                })
            }),
        },
    ];
    for data in [SMALL, LARGE] {
        for (writers, readers, most) in [(2, 2, 1.5), (4, 4, 1.5), (4, 3, 1.5), (16, 16, 3.0)] {
            // How long a step of little data takes depends on where the system happens to put the processes.
            let rounds = if data.bytes() < LARGE.bytes() { Rounds(3 * rounds.0) } else { rounds };
            for (from, from_name) in LAYOUTS {
                for (to, to_name) in LAYOUTS {
                    if (from, to) == ("block,*", "block,*") {
                        continue;
                    }
                    cases.push(Case {
                        name: format!("{from_name}→{to_name} {}, {writers}→{readers}", data.name()),
                        unit: "ms",
                        baseline: "row→row",
                        target: Target::RatioAtMost(most),
                        run: Box::new(move || {
                            rounds.of(|| {
                                let base = step_seconds(data, "block,*", writers, "block,*", readers)?;
                                let this = step_seconds(data, from, writers, to, readers)?;
                                Ok((this * 1e3, base * 1e3))
                            })
                        }),
                    });
                }
            }
        }
    }
    cases
}

const LAYOUTS: [(&str, &str); 3] = [("block,*", "row"), ("*,block", "column"), ("block,block", "block")];
