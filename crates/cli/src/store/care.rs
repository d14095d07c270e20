//! Looking after a store: checking it, and bringing back what was lost. Each goes in steps, between which
//! others use the store.

use super::{open, Failure, Outcome};
use crate::text::{bytes, print, print_json};
use indicatif::{ProgressBar, ProgressStyle};
use polyduct::store::disk::{Store, StoreError};
use polyduct::store::volume::{Cursor, Progress, Scrub, VolumeError, BLOCK};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Words of a step.
const STEP: u64 = 4096;
/// Datasets with words beyond repair that are named.
const NAMED: usize = 20;

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
    /// Go on with the units that are there although others, which are gone for good, served later: what was
    /// written then is given up.
    #[arg(long)]
    give_up_newer: bool,
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
    /// Take the directory even if it belongs to something else: its content is lost.
    #[arg(long)]
    force: bool,
    /// Give the unit up although it is in use, as when its disk is about to fail: its content is computed
    /// from the others.
    #[arg(long, requires = "with")]
    in_use: bool,
}

#[derive(Serialize)]
struct Found {
    words: u64,
    checked_blocks: u64,
    repaired_blocks: u64,
    /// The same of each unit that had some.
    repaired_by_unit: BTreeMap<u32, u64>,
    /// Blocks that are damaged still, though the others have what they should be: of each unit that has some.
    not_repaired: BTreeMap<u32, NotRepaired>,
    /// Units that are not used, and why: what they have is not checked.
    lost: BTreeMap<u32, String>,
    /// Copies of the manifest that were written anew.
    manifests: u64,
    /// Words that cannot be repaired.
    damaged: u64,
    /// The first of them.
    beyond_repair: Vec<Word>,
}

/// Blocks of a unit that could not be written anew.
#[derive(Serialize)]
struct NotRepaired {
    blocks: u64,
    /// What the first of them came to.
    why: String,
}

/// A word that cannot be repaired: a block of each unit.
#[derive(Serialize)]
struct Word {
    /// The dataset that it is of; none once that is removed.
    name: Option<String>,
    object: u64,
    /// The block in the file of each unit.
    block: u64,
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

/// Checks every block. The status is 1 when something cannot be repaired, or a unit is not there to be
/// checked.
pub fn scrub(args: &ScrubArgs) -> Outcome {
    let store = open(&args.dir)?;
    let bar = bar(args.quiet || args.json, "checking");
    let mut scrub = Scrub::default();
    let (manifests, not_written) = store.own()?.mend_manifests();
    not_written.iter().for_each(|error| crate::text::say!("polyduct: {error}"));
    let owned = loop {
        let mut owned = store.own()?;
        let progress = owned.scrub(&mut scrub, STEP).map_err(|e| owned.error(e))?;
        show(&bar, progress);
        if progress.finished {
            break owned;
        }
    };
    bar.finish_and_clear();
    let report = scrub.report();
    let word = |at: &Cursor| {
        let name = owned.name_of(at.object).map(str::to_owned);
        Word { name, object: at.object, block: at.block }
    };
    let found = Found {
        words: report.words,
        checked_blocks: report.checked.values().sum(),
        repaired_blocks: report.repaired.values().sum(),
        repaired_by_unit: report.repaired.clone(),
        not_repaired: report
            .unrepaired
            .iter()
            .map(|(&unit, (blocks, why))| (unit, NotRepaired { blocks: *blocks, why: why.clone() }))
            .collect(),
        lost: owned.lost().map(|(unit, why)| (unit, why.to_owned())).collect(),
        manifests,
        damaged: report.damaged,
        beyond_repair: report.listed.iter().map(word).collect(),
    };
    drop(owned);
    let (summary, details) = text(&found);
    store.note(&format!("scrubbed: {summary}"));
    details.iter().for_each(|line| store.note(line));
    let printed = match args.json {
        true => print_json(&found),
        false => print(&std::iter::once(summary).chain(details).map(|line| line + "\n").collect::<String>()),
    };
    let is_whole = found.damaged == 0 && found.not_repaired.is_empty() && found.lost.is_empty();
    Ok(u8::from(!is_whole || !not_written.is_empty() || !printed))
}

/// What was found, in a line, and in more where there is more to say.
fn text(found: &Found) -> (String, Vec<String>) {
    let by_unit = found.repaired_by_unit.iter().map(|(unit, n)| format!("{n} of unit {unit}"));
    let by_unit = match by_unit.collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        some => format!(" ({})", some.join(", ")),
    };
    let words = |n: u64| format!("{n} word{}", if n == 1 { "" } else { "s" });
    let summary = format!(
        "{} blocks checked ({}), {} made good{by_unit}, {} beyond repair",
        found.checked_blocks,
        bytes(found.checked_blocks * BLOCK as u64),
        found.repaired_blocks,
        words(found.damaged)
    );
    let blocks = |n: u64| format!("{n} block{}", if n == 1 { "" } else { "s" });
    let not_repaired = found.not_repaired.iter().map(|(unit, NotRepaired { blocks: n, why })| {
        format!("unit {unit}: {} damaged and could not be made good: {why}", blocks(*n))
    });
    let not_used = found.lost.iter().map(|(unit, why)| format!("unit {unit} is not used: {why}"));
    // By dataset: how many, and the first.
    let mut lost: BTreeMap<(&Option<String>, u64), (u64, u64)> = BTreeMap::new();
    for word in &found.beyond_repair {
        lost.entry((&word.name, word.object)).or_insert((0, word.block)).0 += 1;
    }
    let more = lost.len().saturating_sub(NAMED);
    let beyond = lost.into_iter().take(NAMED).map(|((name, object), (n, first))| {
        let name = name.as_ref().map_or(format!("object {object:x}"), |name| format!("{name:?}"));
        format!("beyond repair: {} of {name}, the first is block {first} of each unit", words(n))
    });
    let mut details: Vec<String> = not_repaired.chain(not_used).chain(beyond).collect();
    if more > 0 {
        details.push(format!("beyond repair: words of {more} datasets more"));
    }
    if found.manifests > 0 {
        details.push(format!("copies of the manifest that are written anew: {}", found.manifests));
    }
    let listed = found.beyond_repair.len() as u64;
    if found.damaged > listed {
        details.push(format!("beyond repair: {} more, not listed", words(found.damaged - listed)));
    }
    (summary, details)
}

/// Rebuilds all units that are joining.
pub fn rebuild(args: &RebuildArgs) -> Outcome {
    let store = open(&args.dir)?;
    let (joining, lost) = {
        let owned = if args.give_up_newer { store.own_giving_up()? } else { store.own()? };
        if let (true, Some((found, served))) = (args.give_up_newer, owned.given_up()) {
            crate::text::say!(
                "polyduct: what was written up to epoch {served} is given up; the store goes on from {found}"
            );
        }
        (owned.joining().map(|(unit, _)| unit).collect::<Vec<u32>>(), owned.lost().count())
    };
    if joining.is_empty() {
        crate::text::say!("polyduct: no unit is joining; `polyduct store replace` takes one back");
        // What was asked for is done only where nothing is lost.
        return Ok(u8::from(lost > 0));
    }
    let (mut damaged, mut printed) = (0, true);
    for unit in joining {
        let bar = bar(args.quiet, &format!("rebuilding unit {unit}"));
        let (text, missing) = rebuild_one(&store, unit, &bar)?;
        bar.finish_and_clear();
        printed &= print(&text);
        damaged += missing;
    }
    Ok(u8::from(damaged > 0 || !printed))
}

/// Rebuilds a unit. Gives what there is to say of it, and the words that could not be.
fn rebuild_one(store: &Store, unit: u32, bar: &ProgressBar) -> Result<(String, u64), Failure> {
    store.note(&format!("unit {unit} is being rebuilt"));
    loop {
        let mut owned = store.own()?;
        let progress =
            owned.rebuild(unit, STEP, polyduct::store::disk::nonce()).map_err(|e| owned.error(e))?;
        show(bar, progress);
        if progress.finished {
            let text = format!("unit {unit} is rebuilt: {} words", progress.total);
            let missing = match progress.damaged {
                0 => String::new(),
                n => format!(", of which {n} could not be"),
            };
            store.note(&format!("{text}{missing}"));
            return Ok((format!("{text}{missing}\n"), progress.damaged));
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
    match dirs {
        Some(dirs) if args.in_use => store.replace_in_use(args.unit, dirs, args.force)?,
        dirs => {
            let with = dirs.is_some();
            store.replace(args.unit, dirs, args.force).inspect_err(|error| {
                let in_use = matches!(error, StoreError::Volume { source: VolumeError::InUse { .. }, .. });
                if with && in_use {
                    crate::text::say!("polyduct: to give it up although it is in use: --in-use");
                }
            })?
        }
    };
    super::say(&format!(
        "unit {} is joining; `polyduct store rebuild {}` brings it up\n",
        args.unit,
        args.dir.display()
    ))
}
