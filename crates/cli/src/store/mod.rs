//! `polyduct store`: makes stores over many disks, looks at them, and looks after them.

mod care;
mod names;
mod status;

use crate::text::print;
use clap::{Args, Subcommand};
use polyduct::store::disk::{Create, Store, StoreError};
use std::path::{Path, PathBuf};

const AFTER_HELP: &str = "\
Examples:
  polyduct store create /data/s --units 5 --parity 1
  polyduct store create /data/s --units /mnt/a/s,/mnt/b/s,/mnt/c/s+/mnt/d/s --parity 1 --stripe 4MiB
  polyduct cp field.npy store:/data/s/runs/field
  polyduct store ls /data/s -l
  polyduct store status /data/s
  polyduct store replace /data/s 2 --with /mnt/e/s && polyduct store rebuild /data/s

Programs open store:DIR/NAME like any file. A folder comes to be when a dataset is named in it.";

/// Arguments of `polyduct store`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct StoreArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make a store.
    Create(CreateArgs),
    /// Say what a store is made of, which units are used, and how full it is.
    Status(status::StatusArgs),
    /// List the datasets.
    Ls(names::LsArgs),
    /// Remove datasets.
    Rm(names::RmArgs),
    /// Give a dataset, or a folder, another name.
    Mv(names::MvArgs),
    /// Check every block, and make good what is damaged.
    Scrub(care::ScrubArgs),
    /// Bring units that were replaced to what the others have.
    Rebuild(care::RebuildArgs),
    /// Take a lost unit back, or a new directory in its place.
    Replace(care::ReplaceArgs),
}

/// How a store is made.
#[derive(Args)]
struct CreateArgs {
    /// The store's directory.
    dir: PathBuf,
    /// How many units, in folders of the store; or their directories, A,B,C. A unit of several directories is
    /// A+B.
    #[arg(long, value_name = "N|A,B,C")]
    units: String,
    /// How many units may be lost: 0 none, 1 by XOR, more by Reed-Solomon.
    #[arg(long, default_value_t = 0)]
    parity: u32,
    /// Bytes that lie together on a unit: a multiple of 4 KiB.
    #[arg(long, default_value = "1MiB")]
    stripe: String,
}

/// Carries out `polyduct store`; gives the exit status.
pub fn store(args: &StoreArgs) -> u8 {
    let done = match &args.what {
        What::Create(args) => create(args),
        What::Status(args) => status::status(args),
        What::Ls(args) => names::ls(args),
        What::Rm(args) => names::rm(args),
        What::Mv(args) => names::mv(args),
        What::Scrub(args) => care::scrub(args),
        What::Rebuild(args) => care::rebuild(args),
        What::Replace(args) => care::replace(args),
    };
    match done {
        Ok(status) => status,
        Err(Failure::Usage(text)) => {
            crate::text::say!("polyduct: {text}");
            2
        }
        Err(Failure::Store(error)) => {
            crate::text::say!("polyduct: {error}");
            1
        }
    }
}

/// Why a command failed.
enum Failure {
    /// What was asked for makes no sense.
    Usage(String),
    /// The store says no.
    Store(Box<StoreError>),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Store(Box::new(error))
    }
}

type Outcome = Result<u8, Failure>;

/// Prints; a reader that is gone is no failure of the store.
fn say(text: &str) -> Outcome {
    Ok(u8::from(!print(text)))
}

fn open(dir: &Path) -> Result<Store, Failure> {
    Ok(Store::open(dir)?)
}

/// The directories of units, as they are given.
fn units_of(text: &str) -> Result<Vec<Vec<PathBuf>>, Failure> {
    if let Ok(count) = text.parse::<u32>() {
        return match count {
            1..=128 => Ok((0..count).map(|unit| vec![PathBuf::from(format!("unit{unit}"))]).collect()),
            _ => Err(Failure::Usage(format!("--units {count}: expected 1 to 128"))),
        };
    }
    let unit = |unit: &str| {
        let dirs: Vec<PathBuf> = unit.split('+').map(PathBuf::from).collect();
        match dirs.iter().any(|dir| dir.as_os_str().is_empty()) {
            true => Err(Failure::Usage(format!("--units {text}: a directory has no name"))),
            false => Ok(dirs),
        }
    };
    text.split(',').map(unit).collect()
}

fn create(args: &CreateArgs) -> Outcome {
    let stripe = polyduct::message::config::parse_bytes(&args.stripe).ok_or_else(|| {
        Failure::Usage(format!("--stripe {}: expected a number of bytes, as 1MiB or 65536", args.stripe))
    })?;
    // Relative names are those of the shell; inside the manifest they would count from the store.
    let from_here = |dir: PathBuf| std::path::absolute(&dir).unwrap_or(dir);
    let mut units = units_of(&args.units)?;
    if args.units.parse::<u32>().is_err() {
        units = units.into_iter().map(|chain| chain.into_iter().map(from_here).collect()).collect();
    }
    let store = Store::create(&args.dir, &Create { units, parity: args.parity, stripe })?;
    let g = store.geometry();
    say(&format!("{}: {} data and {} parity units\n", args.dir.display(), g.data(), g.parity()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_a_number_or_directories() {
        let of = |text| units_of(text).ok();
        assert_eq!(of("2"), Some(vec![vec!["unit0".into()], vec!["unit1".into()]]));
        assert_eq!(of("a,b+c"), Some(vec![vec!["a".into()], vec!["b".into(), "c".into()]]));
        for bad in ["", "0", "129", "a,,b", "a+", "+"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
