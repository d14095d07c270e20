//! `polyduct-bench overlap`: a message and the sender's own work at the same time (SCI-MPICH, Fig. 10 and
//! 11).

use super::message::error::BenchError;
use super::message::pair::{Play, Scene, Way};
use super::plot::{Chart, Line, Scale};
use super::progress;
use crate::text::{bytes, print, print_json, seconds, table};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// The total may rise by so much and still be flat.
const FLAT: f64 = 1.1;
/// Sizes whose flat part must reach as far as the transfer takes.
const MUST: u32 = 1 << 20;

/// Measure what work beside a transfer costs.
#[derive(Args)]
pub struct OverlapArgs {
    /// Draw the curves into this file; - is standard output.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Repetitions of each total; the median counts.
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Sizes to measure, in bytes.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(4096..=1 << 28), default_values_t = [65536, 1 << 20, 16 << 20])]
    len: Vec<u32>,
}

/// What is known at one size.
#[derive(Serialize)]
struct Row {
    len_bytes: u32,
    verified: bool,
    #[serde(flatten)]
    curves: Option<Curves>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

/// Total time over the work's, in seconds.
#[derive(Clone, Debug, Serialize)]
struct Curves {
    /// First the message, then the work.
    blocking: Vec<(f64, f64)>,
    /// Both at once.
    overlapped: Vec<(f64, f64)>,
    /// The transfer without work.
    transfer_s: f64,
    /// The longest work up to which the total is flat.
    flat_until_s: f64,
    /// The total where the work is as long as the transfer, over the transfer's.
    rise: f64,
    /// Whether that is flat; for a megabyte and more it must be.
    met: bool,
}

/// Carries out `polyduct-bench overlap`.
pub fn overlap(args: &OverlapArgs) -> u8 {
    let mut rows = Vec::new();
    for &len in &args.len {
        progress::show(&bytes(len.into()));
        let measured = measure(len, args.rounds);
        let failed = measured.as_ref().err().map(BenchError::to_string);
        rows.push(Row { len_bytes: len, verified: failed.is_none(), curves: measured.ok(), failed });
    }
    progress::clear();
    let printed = match args.svg.as_deref() {
        _ if args.json => print_json(&rows),
        Some(path) if path == std::path::Path::new("-") => true,
        _ => print(&words(&rows)),
    };
    for row in &rows {
        if let Some(why) = &row.failed {
            crate::text::say!("polyduct-bench: {} bytes: {why}", row.len_bytes);
        }
    }
    let drawn = args.svg.as_ref().is_none_or(|path| crate::svg::write(path, &draw(&rows)));
    let good = |row: &Row| row.curves.as_ref().is_some_and(|c| c.met);
    u8::from(!printed || !drawn || !rows.iter().all(good))
}

fn measure(len: u32, rounds: u32) -> Result<Curves, BenchError> {
    let outcome = Play::new(Way::Domain, Scene::Overlap, len as usize, 1, rounds).run()?;
    let mut curves = outcome.curves.into_iter().map(|c| c.points);
    let (blocking, overlapped) = (curves.next().unwrap_or_default(), curves.next().unwrap_or_default());
    let rise = outcome.value / outcome.base;
    let flat_until_s = flat_until(&overlapped, outcome.base);
    let met = rise <= FLAT || len < MUST;
    Ok(Curves { blocking, overlapped, transfer_s: outcome.base, flat_until_s, rise, met })
}

/// The end of the part that stays within [`FLAT`] times the transfer alone.
fn flat_until(points: &[(f64, f64)], alone: f64) -> f64 {
    points.iter().take_while(|p| p.1 <= FLAT * alone).last().map_or(0.0, |p| p.0)
}

fn words(rows: &[Row]) -> String {
    let heading = ["message", "transfer", "work", "blocking", "overlapped", "over the transfer"];
    let mut lines = vec![heading.map(str::to_owned)];
    let mut ends = String::new();
    for row in rows {
        let Some(curves) = &row.curves else { continue };
        for (i, (blocking, overlapped)) in curves.blocking.iter().zip(&curves.overlapped).enumerate() {
            let first = |text: String| if i == 0 { text } else { String::new() };
            lines.push([
                first(bytes(row.len_bytes.into())),
                first(seconds(curves.transfer_s)),
                seconds(overlapped.0),
                seconds(blocking.1),
                seconds(overlapped.1),
                format!("{:.2}", overlapped.1 / curves.transfer_s),
            ]);
        }
        ends += &format!(
            "{}: flat until {}; with work as long as the transfer {:.2} of it (≤ {FLAT}{}): {}\n",
            bytes(row.len_bytes.into()),
            seconds(curves.flat_until_s),
            curves.rise,
            if row.len_bytes < MUST { ", not asked of so few bytes" } else { "" },
            if curves.met { "ok" } else { "SHORT" },
        );
    }
    table(&lines, &[false, true, true, true, true, true]) + &ends
}

fn draw(rows: &[Row]) -> String {
    let charts: Vec<Chart> = rows
        .iter()
        .filter_map(|row| {
            let curves = row.curves.as_ref()?;
            // In one unit that leaves readable numbers.
            let (unit, factor) = if curves.transfer_s < 1e-3 { ("µs", 1e6) } else { ("ms", 1e3) };
            let line = |name: &str, points: &[(f64, f64)]| Line {
                name: name.to_owned(),
                points: points.iter().map(|&(x, y)| (x * factor, y * factor)).collect(),
            };
            let (x, y) = match unit {
                "µs" => ("work, µs", "total, µs"),
                _ => ("work, ms", "total, ms"),
            };
            Some(Chart {
                title: bytes(row.len_bytes.into()),
                note: format!("flat until {}", seconds(curves.flat_until_s)),
                x: (x, Scale::Linear),
                y: (y, Scale::Linear),
                lines: vec![line("blocking", &curves.blocking), line("overlapped", &curves.overlapped)],
            })
        })
        .collect();
    super::plot::page("A message and work at once", &charts, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flat_part_ends_where_it_first_rises() {
        let points = [(0.0, 10.0), (4.0, 10.5), (8.0, 10.9), (10.0, 11.2), (12.0, 10.9), (20.0, 21.0)];
        assert_eq!(flat_until(&points, 10.0), 8.0);
        assert_eq!(flat_until(&points[..3], 10.0), 8.0);
        assert_eq!(flat_until(&points, 1.0), 0.0);
        assert_eq!(flat_until(&[], 1.0), 0.0);
    }
}
