//! `polyduct-bench logp`: o_s, o_r, g and L of every link, and the signature that they are read from.

mod estimate;
pub mod scene;
mod sim;

use super::message::pair::{Play, Scene, Way};
use super::plot::{Chart, Line, Scale};
use super::progress;
use crate::text::{print, print_json, table};
use clap::{Args, ValueEnum};
use estimate::{estimate, Burst, LogP, Signature};
use serde::Serialize;
use std::path::PathBuf;

/// Measure a link's LogP parameters.
#[derive(Args)]
pub struct LogpArgs {
    /// Which link.
    #[arg(long, value_enum, default_value_t = Which::All)]
    link: Which,
    /// Draw the signatures into this file; - is standard output.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Repetitions of each burst; the median counts.
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Sizes to measure, in bytes; 16 is a message of four words.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(16..=1 << 20), default_values_t = [16, 64, 8192, 65536])]
    len: Vec<u32>,
}

/// The links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Shared memory, by a domain's channels.
    Shm,
    /// TCP on loopback, trusted.
    Tcp,
    /// UDP on loopback, trusted.
    Udp,
    /// A simulated network of 100 Gbit/s and 1 µs, in virtual time.
    Sim,
    /// All of them.
    All,
}

/// What is measured, if it is not simulated.
const LINKS: [(Which, &str, Option<Way>); 4] = [
    (Which::Shm, "shm", Some(Way::Domain)),
    (Which::Tcp, "tcp", Some(Way::Tcp { trusted: true })),
    (Which::Udp, "udp", Some(Way::Udp { trusted: true, lost: None })),
    (Which::Sim, "sim", None),
];

/// What is known of a link at one size.
#[derive(Serialize)]
struct Row {
    link: &'static str,
    len_bytes: u32,
    verified: bool,
    #[serde(flatten)]
    found: Option<LogP>,
    #[serde(flatten)]
    signature: Option<Signature>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

/// Carries out `polyduct-bench logp`.
pub fn logp(args: &LogpArgs) -> u8 {
    let mut rows = Vec::new();
    for (which, link, way) in LINKS {
        if args.link != Which::All && args.link != which {
            continue;
        }
        for &len in &args.len {
            progress::show(&format!("{link}, {len} bytes"));
            rows.push(match measure(way, len, args.rounds) {
                Ok(signature) => Row {
                    link,
                    len_bytes: len,
                    verified: true,
                    found: estimate(&signature),
                    signature: Some(signature),
                    failed: None,
                },
                Err(error) => Row {
                    link,
                    len_bytes: len,
                    verified: false,
                    found: None,
                    signature: None,
                    failed: Some(error.to_string()),
                },
            });
        }
    }
    progress::clear();
    let printed = match args.svg.as_deref() {
        _ if args.json => print_json(&rows),
        Some(path) if path == std::path::Path::new("-") => true,
        _ => print(&words(&rows)),
    };
    for row in &rows {
        if let Some(why) = &row.failed {
            crate::text::say!("polyduct-bench: {}, {} bytes: {why}", row.link, row.len_bytes);
        }
    }
    let drawn = args.svg.as_ref().is_none_or(|path| crate::svg::write(path, &draw(&rows)));
    u8::from(!printed || !drawn || rows.iter().any(|row| row.failed.is_some()))
}

/// The payload: a message of 16 bytes is its four words.
fn payload(len: u32) -> usize {
    if len <= 16 {
        0
    } else {
        len as usize
    }
}

/// 1, 2, 4 and so on.
fn doubling(most: u64) -> Vec<u64> {
    std::iter::successors(Some(1), |m| Some(m * 2)).take_while(|&m| m <= most).collect()
}

fn measure(way: Option<Way>, len: u32, rounds: u32) -> Result<Signature, super::message::error::BenchError> {
    let network = way != Some(Way::Domain);
    // A burst of long messages is shorter: it fills what the link holds sooner, and a network is slower.
    let most = match (network, len) {
        (false, ..=4096) => 2048,
        (false, _) => 128,
        (true, ..=4096) => 256,
        (true, _) => 64,
    };
    let bursts = doubling(most);
    let messages = ((16_u64 << 20) / u64::from(len)).clamp(64, if network { 5000 } else { 100_000 });
    let Some(way) = way else { return sim::signature(len, messages) };
    let times = if network { 100 } else { 1000 };
    let play = Play::new(way, Scene::Signature(scene::Script { bursts }), payload(len), times, rounds);
    let outcome = play.run()?;
    let stream = Play::new(way, Scene::Stream, payload(len), messages, rounds.min(7)).run()?;
    let bursts = outcome.curves.into_iter().map(|c| Burst { pause: c.parameter, points: c.points }).collect();
    Ok(Signature { bursts, half_round_trip: outcome.value, stream: stream.value })
}

fn micros(seconds: f64) -> String {
    match seconds * 1e6 {
        us if us >= 100.0 => format!("{us:.0}"),
        us if us >= 1.0 => format!("{us:.2}"),
        us => format!("{us:.3}"),
    }
}

fn words(rows: &[Row]) -> String {
    let heading = ["link", "bytes", "o_s", "o_r", "g", "g, replies", "L", "½ round trip"];
    let mut lines = vec![heading.map(str::to_owned)];
    for row in rows {
        let mut line: [String; 8] = std::array::from_fn(|_| "-".to_owned());
        line[0] = row.link.to_owned();
        line[1] = row.len_bytes.to_string();
        if let (Some(found), Some(signature)) = (&row.found, &row.signature) {
            let figures = [
                found.send,
                found.receive,
                found.gap,
                found.gap_with_replies,
                found.latency,
                signature.half_round_trip,
            ];
            for (cell, figure) in line[2..].iter_mut().zip(figures) {
                *cell = micros(figure);
            }
        }
        lines.push(line);
    }
    let right = [false, true, true, true, true, true, true, true];
    format!("{}times in µs; every message was checked where it came\n", table(&lines, &right))
}

/// One chart for each link and size.
fn draw(rows: &[Row]) -> String {
    let charts: Vec<Chart> = rows
        .iter()
        .filter_map(|row| {
            let (found, signature) = (row.found?, row.signature.as_ref()?);
            let lines = signature.bursts.iter().map(|burst| Line {
                name: match burst.pause > 0.0 {
                    true => format!("pause {} µs", micros(burst.pause)),
                    false => "no pause".to_owned(),
                },
                points: burst.points.iter().map(|&(m, t)| (m, t * 1e6)).collect(),
            });
            Some(Chart {
                title: format!("{}, {} bytes", row.link, row.len_bytes),
                note: format!(
                    "o_s {}  o_r {}  g {}  L {} µs",
                    micros(found.send),
                    micros(found.receive),
                    micros(found.gap),
                    micros(found.latency)
                ),
                x: ("messages of a burst", Scale::Log),
                y: ("µs for each", Scale::Log),
                lines: lines.collect(),
            })
        })
        .collect();
    super::plot::page("LogP signatures", &charts, LINKS_ACROSS)
}

/// Charts beside each other.
const LINKS_ACROSS: usize = 2;
