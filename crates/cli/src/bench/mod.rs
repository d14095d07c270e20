//! `polyduct bench`: one page of what this machine's memory, links and disk can do, and what polyduct reaches
//! of it.
//!
//! Each figure is the median of a few rounds, and each round measures the machine and polyduct one after the
//! other. There are no targets here: the laboratory, `make bench`, has those.

pub mod limits;
mod work;

use crate::text::{print, print_json, table};
use clap::Args;
use polyduct::layout::{Dataset, ElemType};
use serde::Serialize;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Instant;
use work::{run, Work};
pub use work::{unit, UnitArgs};

const EXAMPLES: &str = "\
Examples:
  polyduct bench
  polyduct bench --dir /mnt/scratch
  polyduct bench --json | jq '.[] | select(.ratio and .ratio < 0.8)'

Each ratio compares a figure with the limit of the machine that stands beside it: a rate of 1 reaches the limit and
less is slower; a time of 1 reaches it and more is slower. Other programs on the machine make all figures noisy.";

/// Measure this machine.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// Measure the disk of this directory, too. Up to 1 GiB is written there, and removed.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Rounds of each figure; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Print a list of figures as JSON.
    #[arg(long)]
    json: bool,
}

/// Rows and columns of the array that pipes move: 64 MiB of bytes.
const SIDE: u64 = 8192;
/// Bytes of a file.
const FILE: usize = 256 << 20;

/// A figure, and the limit of this machine that it is compared with.
#[derive(Serialize)]
struct Row {
    part: &'static str,
    name: &'static str,
    value: f64,
    unit: &'static str,
    limit: Option<&'static str>,
    limit_value: Option<f64>,
    ratio: Option<f64>,
}

/// What one round found.
type Round = Result<Vec<Row>, String>;

fn row(part: &'static str, name: &'static str, value: f64, unit: &'static str) -> Row {
    Row { part, name, value, unit, limit: None, limit_value: None, ratio: None }
}

impl Row {
    fn of(self, limit: &'static str, value: f64) -> Row {
        Row { limit: Some(limit), limit_value: Some(value), ratio: Some(self.value / value), ..self }
    }
}

/// Carries out `polyduct bench`; gives the exit status.
pub fn bench(args: &BenchArgs) -> u8 {
    if let Some(dir) = args.dir.as_ref().filter(|dir| !dir.is_dir()) {
        crate::text::say!("polyduct: bench: --dir {}: there is no such directory", dir.display());
        return 2;
    }
    let mut rows = Vec::new();
    type Part<'a> = (&'static str, Box<dyn Fn() -> Round + 'a>);
    let mut parts: Vec<Part<'_>> = vec![("memory and pipes", Box::new(memory)), ("links", Box::new(links))];
    if let Some(dir) = &args.dir {
        parts.push(("disk", Box::new(|| disk(dir))));
    }
    for (name, part) in parts {
        crate::text::say!("measuring {name} ...");
        match (0..args.rounds).map(|_| part()).collect::<Result<Vec<_>, _>>() {
            Ok(rounds) => rows.extend(medians(rounds)),
            Err(why) => {
                crate::text::say!("polyduct: bench: {name}: {why}");
                return 1;
            }
        }
    }
    u8::from(!if args.json { print_json(&rows) } else { print(&page(&rows)) })
}

/// The rows of several rounds as one: medians of value, limit and ratio.
fn medians(mut rounds: Vec<Vec<Row>>) -> Vec<Row> {
    let Some(last) = rounds.pop() else { return Vec::new() };
    let median = |of: &dyn Fn(&Row) -> Option<f64>, at: usize, last: &Row| {
        let mut all: Vec<f64> = rounds.iter().map(|round| &round[at]).chain([last]).filter_map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    let rows = last.iter().enumerate().map(|(at, row)| Row {
        value: median(&|row| Some(row.value), at, row).unwrap_or(row.value),
        limit_value: median(&|row| row.limit_value, at, row),
        ratio: median(&|row| row.ratio, at, row),
        ..*row
    });
    rows.collect()
}

fn memory() -> Round {
    let bytes = (SIDE * SIDE) as f64;
    let copies = |threads, rounds| bytes / limits::copy(threads, bytes as usize, rounds) / 1e9;
    let (one, two) = (copies(1, 12), copies(2, 24));
    let line = limits::line(false);
    let name = format!("bench-{}", std::process::id());
    let step = rows_to_columns(&format!("pipe:{name}"), 40, &[])?;
    let key: String = key()?;
    let by_address =
        rows_to_columns(&format!("pipe://{}/{name}", address()?), 40, &[("POLYDUCT_JOB_KEY", key.as_str())])?;
    let ping = Work::Ping { name: name.clone(), steps: 20_000 };
    let [one_way] = run(&[(ping, 1), (Work::Pong { name }, 1)], &[])?[..] else {
        return Err("no figure of small steps".into());
    };
    Ok(vec![
        row("memory", "copy, one core", one, "GB/s"),
        row("memory", "copy, two cores", two, "GB/s"),
        row("memory", "cache line from core to core", line * 1e9, "ns"),
        row("pipe", "rows to columns, 2 to 2 processes, 64 MiB", bytes / step / 1e9, "GB/s")
            .of("copy, two cores", two),
        row("pipe", "the same by the address of this host", bytes / by_address / 1e9, "GB/s")
            .of("copy, two cores", two),
        row("pipe", "a step of 8 bytes, one way", one_way * 1e9, "ns")
            .of("cache line from core to core", line * 1e9),
    ])
}

fn links() -> Round {
    let line = limits::line(false) * 1e9;
    let copy = (SIDE * SIDE) as f64 / limits::copy(1, (SIDE * SIDE) as usize, 12) / 1e9;
    let raw = limits::connection(512 << 20).map_err(|e| format!("a connection on loopback: {e}"))?;
    let key: String = key()?;
    let trusted = [
        ("POLYDUCT_JOB_KEY", key.as_str()),
        ("POLYDUCT_TRUSTED_NETWORK", "1"),
        ("POLYDUCT_MESSAGE_NEAR", "0"),
    ];
    let sealed = [
        ("POLYDUCT_JOB_KEY", key.as_str()),
        ("POLYDUCT_TRUSTED_NETWORK", "0"),
        ("POLYDUCT_MESSAGE_NEAR", "0"),
    ];
    let talk = |domain: String, turns, flood, environment: &[(&str, &str)]| {
        let bytes = 512 << 20;
        match run(&[(Work::Talk { domain, turns, flood, bytes }, 2)], environment)?[..] {
            [one_way, of_many, bulk] => Ok((one_way * 1e9, 1e-6 / of_many, bytes as f64 / bulk / 1e9)),
            _ => Err("no figures of messages".to_owned()),
        }
    };
    let (near, near_rate, near_bulk) = talk(format!("bench-{}", std::process::id()), 50_000, 4_000_000, &[])?;
    let (far, far_rate, far_bulk) = talk(format!("tcp://{}", address()?), 5_000, 200_000, &trusted)?;
    let (_, _, sealed_bulk) = talk(format!("tcp://{}", address()?), 500, 1_000, &sealed)?;
    let bytes = (SIDE * SIDE) as f64;
    let pipe = rows_to_columns(&format!("pipe://{}/bench", address()?), 12, &trusted)?;
    let near_limit = "cache line from core to core";
    let far_limit = "one TCP connection";
    Ok(vec![
        row("messages", "8 bytes, one way, shared memory", near, "ns").of(near_limit, line),
        row("messages", "8 bytes, in a row, shared memory", near_rate, "M/s"),
        row("messages", "1 MiB, in a row, shared memory", near_bulk, "GB/s").of("copy, one core", copy),
        row("loopback", "one TCP connection, without polyduct", raw, "GB/s"),
        row("loopback", "8 bytes, one way", far, "ns"),
        row("loopback", "8 bytes, in a row", far_rate, "M/s"),
        row("loopback", "1 MiB, in a row, trusted network", far_bulk, "GB/s").of(far_limit, raw),
        row("loopback", "1 MiB, in a row, encrypted", sealed_bulk, "GB/s").of(far_limit, raw),
        row("loopback", "pipe, rows to columns, 2 to 2, trusted", bytes / pipe / 1e9, "GB/s")
            .of(far_limit, raw),
    ])
}

fn disk(dir: &Path) -> Round {
    let scratch = Scratch::new(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let failed = |e: std::io::Error| format!("{}: {e}", scratch.0.display());
    let (write, read) = limits::file(&scratch.0.join("plain"), FILE).map_err(failed)?;
    let npy = through(&scratch.0.join("bench.npy").display().to_string())?;
    let store = scratch.0.join("store");
    let units = (0..3).map(|unit| vec![PathBuf::from(format!("unit{unit}"))]).collect();
    let how = polyduct::store::disk::Create { units, parity: 1, stripe: 1 << 20 };
    polyduct::store::disk::Store::create(&store, &how).map_err(|e| e.to_string())?;
    let stored = through(&format!("store:{}/bench", store.display()))?;
    let (written, read_back) = ("a plain file, written and synchronised", "a plain file, read back");
    Ok(vec![
        row("disk", written, write, "GB/s"),
        row("disk", read_back, read, "GB/s"),
        row("disk", ".npy, written, durable", npy.0, "GB/s").of(written, write),
        row("disk", ".npy, read back", npy.1, "GB/s").of(read_back, read),
        row("disk", "store of 2 + 1 units, written, durable", stored.0, "GB/s").of(written, write),
        row("disk", "store of 2 + 1 units, read back", stored.1, "GB/s").of(read_back, read),
    ])
}

/// GB/s of writing an array to a file or store with its close, and of reading it back, by one process.
fn through(url: &str) -> Result<(f64, f64), String> {
    let text = |e: polyduct::Error| crate::text::at_url(url, &e);
    let data = Dataset::new(&[FILE as u64], ElemType::U8).map_err(|e| e.to_string())?;
    let alone = || polyduct::open(url).unit(0).units(1);
    let mut part = vec![7; FILE];
    let start = Instant::now();
    let mut out = alone().write(&data, "*").map_err(text)?;
    out.write(&part).map_err(text)?;
    out.close().map_err(text)?;
    let written = start.elapsed().as_secs_f64();
    part.fill(0);
    let start = Instant::now();
    alone().read("*").and_then(|mut input| input.read(&mut part)).map_err(text)?;
    let read = start.elapsed().as_secs_f64();
    if part.iter().any(|byte| *byte != 7) {
        return Err(format!("{url}: what was read is not what was written"));
    }
    Ok((FILE as f64 / written / 1e9, FILE as f64 / read / 1e9))
}

/// Seconds of a step of [`SIDE`]² bytes from two processes to two.
fn rows_to_columns(url: &str, steps: u64, environment: &[(&str, &str)]) -> Result<f64, String> {
    let (side, url) = (SIDE, url.to_owned());
    let read = Work::Read { url: url.clone(), side, steps };
    run(&[(Work::Write { url, side, steps }, 2), (read, 2)], environment)?
        .first()
        .copied()
        .ok_or_else(|| "no figure of steps".into())
}

/// A key that nobody else has.
fn key() -> Result<String, String> {
    let mut bytes = [0; 32];
    polyduct::message::link::key::random(&mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// An address of loopback where nobody listens.
fn address() -> Result<String, String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    free.map(|address| address.to_string()).map_err(|e| format!("no port of loopback: {e}"))
}

/// A directory in one that the user named, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &Path) -> std::io::Result<Scratch> {
        let path = std::path::absolute(dir)?.join(format!("polyduct-bench-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next run takes another name, and the user can see it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn page(rows: &[Row]) -> String {
    let number = |value: f64| match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    };
    let mut part = "";
    let cells: Vec<[String; 6]> = rows
        .iter()
        .map(|row| {
            let first = if row.part == part { "" } else { row.part };
            part = row.part;
            let ratio = row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
            let limit = row.limit.map_or(String::new(), |limit| format!("of {limit}"));
            [first.into(), row.name.into(), number(row.value), row.unit.into(), ratio, limit]
        })
        .collect();
    table(&cells, &[false, false, true, false, true, false])
}
