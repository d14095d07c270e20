//! Looking after a store: checking it, and bringing back what was lost. Each goes in steps, between which others use the store.

use super::{open, Failure, Outcome};
use crate::text::{bytes, print_json};
use indicatif::{ProgressBar, ProgressStyle};
use polyduct::store::disk::Store;
use polyduct::store::volume::{Progress, Scrub, BLOCK};
use serde::Serialize;
use std::path::PathBuf;

/// Words of a step.
const STEP: u64 = 4096;

/// `store scrub`.
#[derive(clap::Args)]
pub struct ScrubArgs {
    /// The store's directory.
    dir: PathBuf,
    /// Print what was found as JSON.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
}

/// `store rebuild`.
#[derive(clap::Args)]
pub struct RebuildArgs {
    /// The store's directory.
    dir: PathBuf,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
}

/// `store replace`.
#[derive(clap::Args)]
pub struct ReplaceArgs {
    /// The store's directory.
    dir: PathBuf,
    /// The unit.
    unit: u32,
    /// Its new directory, or directories, A+B; without it the unit has come back where it was.
    #[arg(long, value_name = "DIR")]
    with: Option<String>,
    /// Take the directory even where it belongs to something else: what it has is lost.
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Found {
    words: u64,
    checked_blocks: u64,
    repaired_blocks: u64,
    /// Words that cannot be repaired.
    damaged: u64,
}

fn bar(quiet: bool, what: &str) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta}");
    ProgressBar::new(0)
        .with_message(what.to_owned())
        .with_style(style.unwrap_or(ProgressStyle::default_bar()))
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.total);
    bar.set_position(progress.done);
}

/// Checks every block. The status is 1 when something cannot be repaired.
pub fn scrub(args: &ScrubArgs) -> Outcome {
    let store = open(&args.dir)?;
    let bar = bar(args.quiet || args.json, "checking");
    let mut scrub = Scrub::default();
    loop {
        let mut owned = store.own()?;
        let progress = owned.scrub(&mut scrub, STEP).map_err(|e| owned.error(e))?;
        show(&bar, progress);
        if progress.finished {
            break;
        }
    }
    bar.finish_and_clear();
    let report = scrub.report();
    let found = Found {
        words: report.words,
        checked_blocks: report.checked.values().sum(),
        repaired_blocks: report.repaired.values().sum(),
        damaged: report.damaged,
    };
    let text = format!(
        "{} blocks checked ({}), {} made good, {} words beyond repair",
        found.checked_blocks,
        bytes(found.checked_blocks * BLOCK as u64),
        found.repaired_blocks,
        found.damaged
    );
    store.note(&format!("scrubbed: {text}"));
    match args.json {
        true => drop(print_json(&found)),
        false => drop(super::say(&format!("{text}\n"))),
    }
    Ok(u8::from(found.damaged > 0))
}

/// Rebuilds all units that are joining.
pub fn rebuild(args: &RebuildArgs) -> Outcome {
    let store = open(&args.dir)?;
    let joining: Vec<u32> = store.own()?.joining().map(|(unit, _)| unit).collect();
    if joining.is_empty() {
        crate::text::say!("polyduct: no unit is joining; `polyduct store replace` takes one back");
        return Ok(0);
    }
    let mut damaged = 0;
    for unit in joining {
        let bar = bar(args.quiet, &format!("rebuilding unit {unit}"));
        damaged += rebuild_one(&store, unit, &bar)?;
        bar.finish_and_clear();
    }
    Ok(u8::from(damaged > 0))
}

fn rebuild_one(store: &Store, unit: u32, bar: &ProgressBar) -> Result<u64, Failure> {
    store.note(&format!("unit {unit} is being rebuilt"));
    loop {
        let mut owned = store.own()?;
        let now = polyduct::store::disk::now();
        let progress = owned.rebuild(unit, STEP, now).map_err(|e| owned.error(e))?;
        show(bar, progress);
        if progress.finished {
            let text = format!("unit {unit} is rebuilt: {} words", progress.total);
            let missing = match progress.damaged {
                0 => String::new(),
                n => format!(", of which {n} could not be"),
            };
            store.note(&format!("{text}{missing}"));
            let _ = super::say(&format!("{text}{missing}\n"));
            return Ok(progress.damaged);
        }
    }
}

/// Takes a unit back, or another directory in its place.
pub fn replace(args: &ReplaceArgs) -> Outcome {
    let mut store = open(&args.dir)?;
    let dirs: Option<Vec<PathBuf>> = args.with.as_ref().map(|text| {
        let absolute = |dir: &str| std::path::absolute(dir).unwrap_or_else(|_| dir.into());
        text.split('+').map(absolute).collect()
    });
    store.replace(args.unit, dirs, args.force)?;
    super::say(&format!(
        "unit {} is joining; `polyduct store rebuild {}` brings it up\n",
        args.unit,
        args.dir.display()
    ))
}
