//! The datasets of a store: listed, removed, renamed.

use super::{open, say, Outcome};
use crate::text::{bytes, print_json, table};
use polyduct::store::disk::Meta;
use serde::Serialize;
use std::path::PathBuf;

/// `store ls`.
#[derive(clap::Args)]
pub struct LsArgs {
    /// The store's directory.
    dir: PathBuf,
    /// Only this dataset, or those of this folder.
    name: Option<String>,
    /// Shape, type, steps and size of each.
    #[arg(long, short)]
    long: bool,
    /// Print a list as JSON.
    #[arg(long)]
    json: bool,
}

/// `store rm`.
#[derive(clap::Args)]
pub struct RmArgs {
    /// The store's directory.
    dir: PathBuf,
    /// The datasets.
    #[arg(required = true)]
    names: Vec<String>,
    /// Folders too, with all that they have.
    #[arg(long, short)]
    recursive: bool,
}

/// `store mv`.
#[derive(clap::Args)]
pub struct MvArgs {
    /// The store's directory.
    dir: PathBuf,
    /// The dataset, or the folder.
    from: String,
    /// Its new name.
    to: String,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    /// Of one step.
    shape: &'a [u64],
    dtype: String,
    steps: u64,
    bytes: u64,
    attributes: &'a serde_json::Map<String, serde_json::Value>,
}

fn size(meta: &Meta) -> u64 {
    meta.dataset.len_bytes().saturating_mul(meta.steps)
}

/// Lists.
pub fn ls(args: &LsArgs) -> Outcome {
    let all = open(&args.dir)?.datasets()?;
    let wanted = |name: &str| match args.name.as_deref().map(|n| n.trim_end_matches('/')) {
        None | Some("") => true,
        Some(given) => name == given || name.strip_prefix(given).is_some_and(|rest| rest.starts_with('/')),
    };
    let shown: Vec<_> = all.iter().filter(|(name, _)| wanted(name)).collect();
    if let (Some(given), true) = (&args.name, shown.is_empty()) {
        crate::text::say!("polyduct: {}: there is nothing called {given:?}", args.dir.display());
        return Ok(1);
    }
    if args.json {
        let rows: Vec<Row> = shown
            .iter()
            .map(|(name, meta)| Row {
                name,
                shape: meta.dataset.shape(),
                dtype: meta.dataset.elem().to_string(),
                steps: meta.steps,
                bytes: size(meta),
                attributes: &meta.attributes,
            })
            .collect();
        return Ok(u8::from(!print_json(&rows)));
    }
    if !args.long {
        return say(&shown.iter().map(|(name, _)| format!("{name}\n")).collect::<String>());
    }
    let mut rows = vec![["NAME", "SHAPE", "DTYPE", "STEPS", "SIZE"].map(str::to_owned)];
    for (name, meta) in shown {
        let shape: Vec<String> = meta.dataset.shape().iter().map(u64::to_string).collect();
        let dtype = meta.dataset.elem().to_string();
        rows.push([name.clone(), shape.join("x"), dtype, meta.steps.to_string(), bytes(size(meta))]);
    }
    say(&table(&rows, &[false, true, false, true, true]))
}

/// Removes.
pub fn rm(args: &RmArgs) -> Outcome {
    let store = open(&args.dir)?;
    let names: Vec<&str> = args.names.iter().map(|name| name.trim_end_matches('/')).collect();
    store.remove(&names, args.recursive)?;
    Ok(0)
}

/// Renames.
pub fn mv(args: &MvArgs) -> Outcome {
    let store = open(&args.dir)?;
    store.rename(args.from.trim_end_matches('/'), args.to.trim_end_matches('/'))?;
    Ok(0)
}
