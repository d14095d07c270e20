//! The traffic between two layouts, and the lengths of the runs that it is made of.

use crate::layout::{self, LayoutError, Mapping, Plan};
use crate::text::bytes;
use serde::Serialize;
use std::collections::BTreeMap;

/// What moves from a writer's layout to a reader's.
#[derive(Debug, Serialize)]
pub struct Exchange {
    /// Bytes from each of the writer's units (rows) to each of the reader's (columns).
    pub bytes: Vec<Vec<u64>>,
    /// How many runs of which length, rising in length; none if they are too many to look at.
    pub runs: Option<Vec<Runs>>,
}

/// Runs of one length: bytes that lie together on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Runs {
    pub len_bytes: u64,
    pub count: u64,
}

impl Exchange {
    /// Works the exchange out.
    pub fn between(from: &Mapping, to: &Mapping) -> Result<Exchange, LayoutError> {
        let traffic = layout::traffic(from, to)?;
        let row = |w| (0..to.units()).map(|r| traffic.bytes(w, r)).collect();
        Ok(Exchange { bytes: (0..from.units()).map(row).collect(), runs: runs_between(from, to)? })
    }

    pub fn total(&self) -> u64 {
        self.bytes.iter().flatten().sum()
    }

    pub fn max(&self) -> u64 {
        self.bytes.iter().flatten().copied().max().unwrap_or(0)
    }

    /// Pairs of units that exchange anything.
    pub fn pairs(&self) -> usize {
        self.bytes.iter().flatten().filter(|&&b| b > 0).count()
    }

    /// `36 runs: 12 of 8 B, 24 of 12 B`
    pub fn describe_runs(&self) -> String {
        let Some(runs) = &self.runs else { return "too many runs to count".into() };
        let total: u64 = runs.iter().map(|r| r.count).sum();
        let list = || {
            let each = |r: &Runs| format!("{} of {}", r.count, bytes(r.len_bytes));
            runs.iter().map(each).collect::<Vec<_>>().join(", ")
        };
        match &runs[..] {
            [] => "nothing moves".into(),
            [one] if one.count == 1 => format!("1 run of {}", bytes(one.len_bytes)),
            [one] => format!("{total} runs of {}", bytes(one.len_bytes)),
            few if few.len() <= 4 => format!("{total} runs: {}", list()),
            [least, .., most] => {
                let sum: f64 = runs.iter().map(|r| r.len_bytes as f64 * r.count as f64).sum();
                let mean = bytes((sum / total as f64).round() as u64);
                format!(
                    "{total} runs of {} to {}, mean {mean}",
                    bytes(least.len_bytes),
                    bytes(most.len_bytes)
                )
            }
        }
    }
}

/// The runs of all readers together.
fn runs_between(from: &Mapping, to: &Mapping) -> Result<Option<Vec<Runs>>, LayoutError> {
    let mut counts = BTreeMap::<u64, u64>::new();
    for unit in 0..to.units() {
        match layout::run_sizes(&Plan::to_reader(from, to, unit)?) {
            Ok(sizes) => {
                for (len, count) in sizes.by_bytes {
                    *counts.entry(len).or_default() += count;
                }
            }
            Err(LayoutError::TooMany { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(counts.into_iter().map(|(len_bytes, count)| Runs { len_bytes, count }).collect()))
}
