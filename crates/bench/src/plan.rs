//! The cost of planning: must not depend on extents.

use super::case::{median, Case, Rounds, Target};
use polyduct_layout::{Dataset, ElemType, Layout, Mapping, Plan};
use std::time::Instant;

/// Two block-cyclic layouts in three dimensions over 1024 and 768 units.
const FROM: &str = "cyclic(3),cyclic(2),cyclic(2)@16x8x8";
const TO: &str = "cyclic(2),cyclic(3),cyclic(3)@12x8x8";

fn mappings(side: u64) -> Result<(Mapping, Mapping), String> {
    let data = Dataset::new(&[side; 3], ElemType::F32).map_err(|e| e.to_string())?;
    let bind = |text: &str, units| {
        text.parse::<Layout>().and_then(|l| l.bind(&data, units)).map_err(|e| e.to_string())
    };
    Ok((bind(FROM, 1024)?, bind(TO, 768)?))
}

/// Microseconds to plan one unit with all its tables, and the bytes of its largest table.
fn plan(side: u64) -> Result<(f64, usize), String> {
    let (from, to) = mappings(side)?;
    let mut times = Vec::new();
    let mut bytes = 0;
    for unit in (0..768).step_by(37) {
        let start = Instant::now();
        let plan = Plan::to_reader(&from, &to, unit).map_err(|e| e.to_string())?;
        let ops: u64 = plan.transfers().iter().flat_map(|t| t.tables()).map(|t| t.ops().len() as u64).sum();
        times.push(start.elapsed().as_secs_f64() * 1e6);
        if ops == 0 || plan.bytes() != to.local_len_bytes(unit).map_err(|e| e.to_string())? {
            return Err("a plan that does not fill the part".into());
        }
        bytes = bytes.max(plan.transfers().iter().map(|t| t.table_bytes()).max().unwrap_or(0));
    }
    Ok((median(times), bytes))
}

/// The cases. Extents are multiples of the common period, so that every size has the same families.
pub fn cases(rounds: Rounds) -> Vec<Case> {
    vec![
        Case {
            name: "plan of one unit, 3-D block-cyclic, 1024→768 units, 10¹²".into(),
            unit: "µs",
            baseline: "10⁶ elements",
            target: Target::ValueAtMost(1000.0),
            run: Box::new(move || rounds.of(|| Ok((plan(9984)?.0, plan(96)?.0)))),
        },
        Case {
            name: "the same plan, 10⁶ against 10¹² elements".into(),
            unit: "µs",
            baseline: "10⁶ elements",
            target: Target::RatioAtMost(1.1),
            run: Box::new(move || rounds.of(|| Ok((plan(9984)?.0, plan(96)?.0)))),
        },
        Case {
            name: "the same plan, largest table for a partner".into(),
            unit: "bytes",
            baseline: "10⁶ elements",
            target: Target::ValueAtMost(10_240.0),
            run: Box::new(move || Rounds(1).of(|| Ok((plan(10_000)?.1 as f64, plan(96)?.1 as f64)))),
        },
    ]
}
