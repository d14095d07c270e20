//! Describes a store: its units, its state, and how full it is.

use super::{open, Outcome};
use crate::text::{bytes, plain, print, print_json, table};
use polyduct::message::config::show_bytes;
use polyduct::store::disk::{events, StoreError};
use polyduct::store::volume::{Progress, VolumeError, BLOCK};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Events that are shown.
const EVENTS: usize = 5;

/// `store status`.
#[derive(clap::Args)]
pub struct StatusArgs {
    /// The store's directory.
    dir: PathBuf,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Status {
    store: String,
    id: String,
    data: u32,
    parity: u32,
    stripe: u64,
    /// Whether enough units are there.
    readable: bool,
    /// Units that may still be lost.
    spare: u32,
    /// What can be known only where it is readable.
    epoch: Option<u64>,
    datasets: Option<usize>,
    bytes: Option<u64>,
    units: Vec<Unit>,
}

#[derive(Serialize)]
struct Unit {
    unit: usize,
    directories: Vec<String>,
    /// `ok`, `lost`, or `joining`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Of a unit that is joining: what is rebuilt, and of how much.
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuilt_words: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<u64>,
    free_bytes: u64,
    size_bytes: u64,
}

/// Shows it. The status is 1 when a unit is lost.
pub fn status(args: &StatusArgs) -> Outcome {
    let store = open(&args.dir)?;
    let g = store.geometry();
    type Found = (Vec<(u32, String)>, Vec<(u32, Option<Progress>)>);
    let (owned, (lost, joining)): (_, Found) = match store.own_to_read() {
        Ok(owned) => {
            let lost = owned.lost().map(|(unit, why)| (unit, why.to_owned())).collect();
            let joining = owned.joining().map(|(unit, progress)| (unit, Some(progress))).collect();
            (Some(owned), (lost, joining))
        }
        Err(StoreError::Volume { source: VolumeError::TooManyLost { lost, joining, .. }, .. }) => {
            (None, (lost, joining.into_iter().map(|unit| (unit, None)).collect()))
        }
        Err(error) => return Err(error.into()),
    };
    let of_unit = |unit: u32| {
        let dirs = store.manifest().dirs(store.dir(), unit);
        let why = lost.iter().find(|(u, _)| *u == unit).map(|(_, why)| why.clone());
        let joins = joining.iter().find(|(u, _)| *u == unit);
        let progress = joins.and_then(|(_, progress)| *progress);
        let (free_bytes, size_bytes) = room(&dirs);
        Unit {
            unit: unit as usize,
            directories: dirs.iter().map(|d| d.display().to_string()).collect(),
            state: match (&why, &joins) {
                (None, _) => "ok",
                (Some(_), Some(_)) => "joining",
                (Some(_), None) => "lost",
            },
            why: match progress {
                Some(p) => Some(format!("{} of {} words rebuilt", p.done, p.total)),
                None => why,
            },
            rebuilt_words: progress.map(|p| p.done),
            words: progress.map(|p| p.total),
            free_bytes,
            size_bytes,
        }
    };
    let datasets = owned.as_ref().map(|owned| owned.datasets()).transpose()?;
    let status = Status {
        store: args.dir.display().to_string(),
        id: store.manifest().id.iter().map(|b| format!("{b:02x}")).collect(),
        data: g.data(),
        parity: g.parity(),
        stripe: u64::from(g.chunk_blocks()) * BLOCK as u64,
        readable: owned.is_some(),
        spare: g.parity().saturating_sub(lost.len() as u32),
        epoch: owned.as_ref().map(|owned| owned.epoch()),
        datasets: datasets.as_ref().map(|all| all.len()),
        bytes: datasets
            .as_ref()
            .map(|all| all.values().map(|m| m.dataset.len_bytes().saturating_mul(m.steps)).sum()),
        units: (0..g.units()).map(of_unit).collect(),
    };
    let all_there = lost.is_empty();
    drop(owned);
    let printed = match args.json {
        true => print_json(&status),
        false => print(&text(&status, store.dir())),
    };
    Ok(u8::from(!all_there || !printed))
}

fn text(s: &Status, dir: &Path) -> String {
    let parity = match s.parity {
        0 => "no parity".to_owned(),
        1 => "1 parity unit (XOR)".to_owned(),
        n => format!("{n} parity units (Reed-Solomon)"),
    };
    let stripe = show_bytes(s.stripe);
    let mut text = format!("{}: {} data, {parity}, stripe unit {stripe}\n", plain(&s.store), s.data);
    if let (Some(datasets), Some(len)) = (s.datasets, s.bytes) {
        text += &format!("{datasets} dataset{}, {}\n", if datasets == 1 { "" } else { "s" }, bytes(len));
    }
    text.push('\n');
    let mut rows = vec![["UNIT", "STATE", "FREE", "OF", "DIRECTORY"].map(str::to_owned)];
    for unit in &s.units {
        let dirs = plain(&unit.directories.join(" + "));
        rows.push([
            unit.unit.to_string(),
            unit.state.into(),
            bytes(unit.free_bytes),
            bytes(unit.size_bytes),
            dirs,
        ]);
    }
    text += &table(&rows, &[true, false, true, true, false]);
    for unit in s.units.iter().filter(|u| u.state != "ok") {
        text += &format!("\nunit {}: {}", unit.unit, unit.why.as_deref().unwrap_or(unit.state));
    }
    let lost: Vec<usize> = s.units.iter().filter(|u| u.state == "lost").map(|u| u.unit).collect();
    if s.units.iter().any(|u| u.state == "joining") {
        let store = plain(&s.store);
        text += &format!("\n\nWhat is joining is brought up by: polyduct store rebuild {store}\n");
    }
    if let (Some(first), true) = (lost.first(), s.readable) {
        text += &format!(
            "\n\nEverything is readable; {} more may be lost. Bring the unit back where it was, or give it another directory \
             (--with), by: polyduct store replace {} {first}\n",
            s.spare,
            plain(&s.store)
        );
    } else if !s.readable {
        let missing = s.units.iter().filter(|u| u.state != "ok").count() as u32 - s.parity;
        let of: Vec<String> = lost.iter().map(usize::to_string).collect();
        text += &format!(
            "\n\nNothing can be read until {missing} of the units {} are back where they were; then they are \
                used again by themselves.\n",
            of.join(", ")
        );
    }
    let log = std::fs::read_to_string(dir.join(events::NAME)).unwrap_or_default();
    let events: Vec<&str> = log.lines().rev().take(EVENTS).collect();
    if !events.is_empty() {
        text += &format!("\nlast events ({}):\n", dir.join(events::NAME).display());
        events.into_iter().rev().for_each(|line| text += &format!("  {line}\n"));
    }
    text
}

/// Bytes that are free on the disks of some directories, and their size.
fn room(dirs: &[PathBuf]) -> (u64, u64) {
    dirs.iter()
        .filter_map(|dir| polyduct::host::room(dir).ok())
        .fold((0, 0), |(f, s), (free, size)| (f + free, s + size))
}
