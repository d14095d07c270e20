//! The laboratory: measures, verifies what it moved, and prints ratios against a baseline taken in the same
//! run.
//!
//! Machines are shared and noisy, so a figure is the median of rounds, and each round measures the baseline
//! and the case one after the other. `polyduct bench` is the short page for users; this has what polyduct is
//! judged by.
#![forbid(unsafe_code)]

mod bundles;
mod case;
mod disk;
mod disk_unit;
mod hosts;
mod kernels;
mod latency;
mod logp;
mod message;
mod opening;
mod overlap;
mod pattern;
mod peers;
mod plan;
mod plot;
mod progress;
mod throttle;
mod transfer;
mod unit;

use case::{Case, Choice};
use clap::{Args, Parser, Subcommand};
use polyduct_cli::{svg, text, unit_colour};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures polyduct against the limits of this machine and against peers.
#[derive(Parser)]
#[command(name = "polyduct-bench", version, max_term_width = 100)]
struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Parallel pipes: layouts, kernels, plans, latency, and the peers if they are installed.
    Pipe(PipeArgs),
    /// Stores over many disks: collective writing and reading, parity, loss, and small writes, against fio,
    /// memcpy and MPI-IO; and over disks held to a rate.
    Disk(disk::DiskArgs),
    /// Messages: latency, rate and bandwidth on every link, against this machine's limits and against peers.
    Message(message::MessageArgs),
    /// Pipes between two hosts, which are network namespaces: far partners, and near and far ones in one
    /// pipe, against iperf3 and bare connections.
    Hosts(hosts::HostsArgs),
    /// The LogP signature of every link: o_s, o_r, g and L.
    Logp(logp::LogpArgs),
    /// A message and the sender's own work at the same time.
    Overlap(overlap::OverlapArgs),
    /// One process of a measurement.
    #[command(hide = true)]
    Unit(unit::UnitArgs),
    /// One measurement of throttled disks, in a mount namespace of its own.
    #[command(hide = true)]
    Throttled(throttle::ThrottledArgs),
    /// One process of a measurement of messages.
    #[command(hide = true)]
    MessageUnit(message::pair::UnitArgs),
}

/// What to measure.
#[derive(Args)]
struct PipeArgs {
    #[command(flatten)]
    choice: Choice,
    /// The script that runs the peers. Cases against a peer are left out where it, or the peer, is missing.
    #[arg(long, default_value = "bench/peers/run.py")]
    peers: PathBuf,
    /// The Python in which polyduct is installed, for the case between two Python programs.
    #[arg(long, default_value = ".venv/bin/python")]
    python: PathBuf,
}

fn main() -> ExitCode {
    let bench = match Bench::try_parse() {
        Ok(bench) => bench,
        Err(words) => return ExitCode::from(text::print_usage(&words)),
    };
    ExitCode::from(match &bench.what {
        What::Unit(args) => unit::run(args),
        What::Throttled(args) => throttle::throttled(args),
        What::MessageUnit(args) => message::pair::run(args),
        What::Message(args) => message::message(args),
        What::Hosts(args) => hosts::hosts(args),
        What::Logp(args) => logp::logp(args),
        What::Overlap(args) => overlap::overlap(args),
        What::Pipe(args) => pipe(args),
        What::Disk(args) => disk::disk(args),
    })
}

fn pipe(args: &PipeArgs) -> u8 {
    let rounds = args.choice.rounds();
    let mut cases: Vec<Case> = Vec::new();
    cases.extend(transfer::cases(rounds));
    cases.extend(kernels::cases(rounds));
    cases.extend(plan::cases(rounds));
    cases.extend(latency::cases(rounds));
    cases.extend(opening::cases(rounds));
    cases.extend(bundles::cases(rounds));
    cases.extend(peers::cases(rounds, &args.peers, &args.python));
    args.choice.measure(cases, "pipe")
}
