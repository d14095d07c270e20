//! A case of a benchmark: how it is measured, compared and printed.

use super::progress;
use crate::text::{print, print_json};
use clap::Args;
use serde::Serialize;

/// Which cases are measured, how often, and how they are printed.
#[derive(Args)]
pub struct Choice {
    /// Only cases whose name contains this; may be given several times.
    #[arg(long, alias = "case")]
    only: Vec<String>,
    /// Rounds of each case; the median counts.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print a JSON list instead of a table.
    #[arg(long)]
    json: bool,
    /// List the cases and stop.
    #[arg(long)]
    list: bool,
}

impl Choice {
    /// How many rounds.
    pub fn rounds(&self) -> Rounds {
        Rounds(self.rounds)
    }

    /// Whether the cases are listed only.
    pub fn lists(&self) -> bool {
        self.list
    }

    /// Measures those of the cases of `polyduct-bench COMMAND` that are wanted, or lists them. Returns the
    /// exit status.
    pub fn measure(&self, mut cases: Vec<Case>, command: &str) -> u8 {
        cases.retain(|c| self.only.is_empty() || self.only.iter().any(|part| c.name.contains(part.as_str())));
        if self.list {
            let names: String = cases.iter().map(|c| format!("{}\n", c.name)).collect();
            return u8::from(!print(&names));
        }
        if cases.is_empty() {
            crate::text::say!(
                "polyduct-bench: no case has such a name; `polyduct-bench {command} --list` names them"
            );
            return 2;
        }
        measure(cases, self.json)
    }
}

/// How many rounds a case is measured in.
#[derive(Clone, Copy)]
pub struct Rounds(pub u32);

/// One figure to measure.
pub struct Case {
    /// What is measured.
    pub name: String,
    /// Unit of value and baseline.
    pub unit: &'static str,
    /// What it is compared with.
    pub baseline: &'static str,
    /// What must be reached.
    pub target: Target,
    /// Measures all rounds.
    pub run: Box<dyn Fn() -> Result<Measured, String>>,
}

/// What a case must reach.
#[derive(Clone, Copy)]
pub enum Target {
    /// The ratio to the baseline, at least.
    RatioAtLeast(f64),
    /// The ratio to the baseline, at most.
    RatioAtMost(f64),
    /// The value itself, at most.
    ValueAtMost(f64),
    /// The value itself, at least.
    ValueAtLeast(f64),
    /// Nothing but right answers: the figures are there to be looked at.
    Right,
}

/// What the rounds of a case gave: value and baseline of each.
pub enum Measured {
    /// Value and baseline, round by round.
    Rounds(Vec<(f64, f64)>),
    /// Cannot be measured here, and why.
    Missing(String),
    /// Values without anything to compare them with, and why.
    Alone(Vec<f64>, String),
}

#[derive(Serialize)]
struct Row {
    name: String,
    value: Option<f64>,
    unit: &'static str,
    baseline: &'static str,
    baseline_value: Option<f64>,
    ratio: Option<f64>,
    target: String,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl Rounds {
    /// Measures value and baseline in every round.
    pub fn of(self, mut round: impl FnMut() -> Result<(f64, f64), String>) -> Result<Measured, String> {
        (0..self.0).map(|_| round()).collect::<Result<_, _>>().map(Measured::Rounds)
    }
}

/// The median of some numbers; of an even count the mean of the middle two.
pub fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    match v.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => v[n / 2],
        n => (v[n / 2 - 1] + v[n / 2]) / 2.0,
    }
}

impl Target {
    fn met(self, value: f64, ratio: f64) -> bool {
        match self {
            Target::RatioAtLeast(t) => ratio >= t,
            Target::RatioAtMost(t) => ratio <= t,
            Target::ValueAtMost(t) => value <= t,
            Target::ValueAtLeast(t) => value >= t,
            Target::Right => true,
        }
    }

    fn words(self, unit: &str) -> String {
        match self {
            Target::RatioAtLeast(t) => format!("≥ {t} x"),
            Target::RatioAtMost(t) => format!("≤ {t} x"),
            Target::ValueAtMost(t) => format!("≤ {t} {unit}"),
            Target::ValueAtLeast(t) => format!("≥ {t} {unit}"),
            Target::Right => "right".into(),
        }
    }
}

/// Measures cases and prints them. Returns the exit status: 1 when a figure falls short or an answer was
/// wrong.
fn measure(cases: Vec<Case>, json: bool) -> u8 {
    let mut rows = Vec::new();
    let mut well = true;
    if !json {
        well &= print(&format!(
            "{:<58} {:>10} {:>10} {:>7}  {:<9} baseline\n",
            "case", "value", "baseline", "ratio", "target"
        ));
    }
    for case in cases {
        progress::show(&case.name);
        let row = row(&case);
        progress::clear();
        let failed = row.note.as_deref().is_some_and(|n| n.starts_with("failed"));
        well &= !failed && (row.ok || row.ratio.is_none());
        if !json {
            well &= print(&line(&row));
        }
        rows.push(row);
    }
    if json {
        well &= print_json(&rows);
    }
    u8::from(!well)
}

fn row(case: &Case) -> Row {
    let blank = Row {
        name: case.name.clone(),
        value: None,
        unit: case.unit,
        baseline: case.baseline,
        baseline_value: None,
        ratio: None,
        target: case.target.words(case.unit),
        ok: false,
        note: None,
    };
    match (case.run)() {
        Err(why) => Row { note: Some(format!("failed: {why}")), ..blank },
        Ok(Measured::Missing(why)) => Row { note: Some(why), ..blank },
        Ok(Measured::Alone(values, why)) => {
            let value = median(values);
            let ok = case.target.met(value, f64::NAN);
            Row { value: Some(value), ok, note: Some(why), ..blank }
        }
        Ok(Measured::Rounds(rounds)) => {
            let value = median(rounds.iter().map(|r| r.0).collect());
            let baseline = median(rounds.iter().map(|r| r.1).collect());
            // The ratio round by round: the two of a round saw the same machine.
            let ratio = median(rounds.iter().map(|r| r.0 / r.1).collect());
            let ok = case.target.met(value, ratio);
            Row { value: Some(value), baseline_value: Some(baseline), ratio: Some(ratio), ok, ..blank }
        }
    }
}

fn line(row: &Row) -> String {
    let number = |v: Option<f64>| match v {
        None => "-".to_owned(),
        Some(v) if v.abs() >= 100.0 => format!("{v:.0}"),
        Some(v) if v.abs() >= 1.0 => format!("{v:.2}"),
        Some(v) => format!("{v:.3}"),
    };
    let mark = match (row.ok, row.ratio) {
        (true, _) => "ok",
        (false, Some(_)) => "SHORT",
        (false, None) => "-",
    };
    format!(
        "{:<58} {:>10} {:>10} {:>7}  {:<9} {} ({}) {} {}\n",
        row.name,
        number(row.value),
        number(row.baseline_value),
        number(row.ratio),
        row.target,
        row.baseline,
        row.unit,
        mark,
        row.note.as_deref().unwrap_or("")
    )
}
