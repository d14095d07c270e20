//! `polyduct-bench message`: what messages cost between two processes, each on a processor of its own.
//!
//! Everything is measured through the public interface, [`Domain`](polyduct_message::Domain) and its
//! channels, which is what programs use; where the shared-memory link itself can do the same, a row beside
//! says what the domain adds. Every message is checked where it comes, and a figure of which one was wrong is
//! none.

mod by_size;
mod cases;
mod crowd;
mod domain_carrier;
pub mod end;
pub mod error;
mod link_carrier;
mod net_carrier;
pub mod pair;
mod python;
mod region;
mod relay;
pub mod scenes;
mod slow_link;
mod small;
pub mod tally;
mod theirs;

use super::case::Choice;
use clap::Args;
use std::path::PathBuf;

/// What to measure.
#[derive(Args)]
pub struct MessageArgs {
    #[command(flatten)]
    choice: Choice,
    /// A part of the work, for a quick look; the figures are noisier.
    #[arg(long)]
    quick: bool,
    /// The script that runs the peers. A case says so where it, or the peer, is missing.
    #[arg(long, default_value = "bench/peers/run.py")]
    peers: PathBuf,
    /// The Python in which polyduct is installed, for the cases between two Python programs.
    #[arg(long, default_value = ".venv/bin/python")]
    python: PathBuf,
}

/// Carries out `polyduct-bench message`.
pub fn message(args: &MessageArgs) -> u8 {
    let effort = pair::Effort { quick: args.quick };
    let mut cases = cases::cases(args.choice.rounds(), effort, &args.peers);
    cases.extend(small::cases(args.choice.rounds(), effort));
    cases.extend(by_size::cases(args.choice.rounds(), effort, &args.peers));
    cases.extend(python::cases(args.choice.rounds(), &args.peers, &args.python));
    args.choice.measure(cases, "message")
}
