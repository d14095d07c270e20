//! What a store is made of, and how it is.

use super::{open, Outcome};
use crate::text::{bytes, print, print_json, table};
use polyduct::store::disk::log;
use polyduct::store::volume::BLOCK;
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
    epoch: u64,
    /// Units that may still be lost.
    spare: u32,
    datasets: usize,
    bytes: u64,
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
    free_bytes: u64,
    size_bytes: u64,
}

/// Shows it. The status is 1 when a unit is lost.
pub fn status(args: &StatusArgs) -> Outcome {
    let store = open(&args.dir)?;
    let owned = store.own()?;
    let (g, lost) = (store.geometry(), owned.lost().map(|(u, why)| (u, why.to_owned())).collect::<Vec<_>>());
    let joining: Vec<_> = owned.joining().collect();
    let of_unit = |unit: u32| {
        let dirs = store.manifest().dirs(store.dir(), unit);
        let why = lost.iter().find(|(u, _)| *u == unit).map(|(_, why)| why.clone());
        let progress = joining.iter().find(|(u, _)| *u == unit).map(|(_, p)| *p);
        let (free_bytes, size_bytes) = room(&dirs);
        Unit {
            unit: unit as usize,
            directories: dirs.iter().map(|d| d.display().to_string()).collect(),
            state: match (&why, &progress) {
                (None, _) => "ok",
                (Some(_), Some(_)) => "joining",
                (Some(_), None) => "lost",
            },
            why: match progress {
                Some(p) => Some(format!("{} of {} words rebuilt", p.done, p.total)),
                None => why,
            },
            free_bytes,
            size_bytes,
        }
    };
    let datasets = owned.datasets()?;
    let status = Status {
        store: args.dir.display().to_string(),
        id: store.manifest().id.iter().map(|b| format!("{b:02x}")).collect(),
        data: g.data(),
        parity: g.parity(),
        stripe: u64::from(g.chunk_blocks()) * BLOCK as u64,
        epoch: owned.epoch(),
        spare: g.parity().saturating_sub(lost.len() as u32),
        datasets: datasets.len(),
        bytes: datasets.values().map(|m| m.dataset.len_bytes().saturating_mul(m.steps)).sum(),
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
    let mut text = format!(
        "{}: {} data, {parity}, stripe unit {}\n{} dataset{}, {}\n\n",
        s.store,
        s.data,
        bytes(s.stripe),
        s.datasets,
        if s.datasets == 1 { "" } else { "s" },
        bytes(s.bytes)
    );
    let mut rows = vec![["UNIT", "STATE", "FREE", "OF", "DIRECTORY"].map(str::to_owned)];
    for unit in &s.units {
        let dirs = unit.directories.join(" + ");
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
    let lost = s.units.iter().filter(|u| u.state != "ok").count();
    match lost {
        0 => {}
        _ if s.units.iter().any(|u| u.state == "joining") => {
            text += "\n\n`polyduct store rebuild` goes on with what is joining.\n";
        }
        _ => {
            text += &format!(
                "\n\nEverything is readable; {} more may be lost. Bring the unit back, then: polyduct store replace {} UNIT\n",
                s.spare, s.store
            );
        }
    }
    let log = std::fs::read_to_string(dir.join(log::NAME)).unwrap_or_default();
    let events: Vec<&str> = log.lines().rev().take(EVENTS).collect();
    if !events.is_empty() {
        text += &format!("\nlast events ({}):\n", dir.join(log::NAME).display());
        events.into_iter().rev().for_each(|line| text += &format!("  {line}\n"));
    }
    text
}

/// Bytes that are free on the disks of some directories, and their size.
fn room(dirs: &[PathBuf]) -> (u64, u64) {
    dirs.iter()
        .filter_map(|dir| polyduct::os::dir::room(dir).ok())
        .fold((0, 0), |(f, s), (free, size)| (f + free, s + size))
}
