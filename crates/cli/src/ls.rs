//! `polyduct ls`: the arrays of files, sets, groups, stores and pipes.

use crate::layout::Dataset;
use crate::text::{at_url, bytes, plain, print, print_json, table};
use polyduct::store::disk::{self, Store};
use polyduct::{open, Array, Changes, Error, Mode, Target};
use serde::Serialize;

const AFTER_HELP: &str = "\
Examples:
  polyduct ls model.safetensors.index.json
  polyduct ls results.zarr --json
  polyduct ls store:/data/s
  polyduct ls pipe:state

URL is what polyduct cp takes as SRC, a store, or a folder of one. Of a pipe it lists what its writers bring, once
they are there; it takes no place among the readers.";

/// Arguments of `polyduct ls`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct LsArgs {
    /// What has the arrays.
    url: String,
    /// Print a list as JSON.
    #[arg(long)]
    json: bool,
}

/// How an array changes whose steps have sizes of their own.
const SIZE: &str = "size";

/// The element type of what cannot be read.
const UNKNOWN: &str = "?";

#[derive(Serialize)]
struct Row {
    /// Empty for the only array of what has no names.
    name: String,
    /// Of one step; of one whose size changes the most in a pipe, and of all steps together in files.
    shape: Vec<u64>,
    dtype: String,
    /// None where it is not known before the end.
    steps: Option<u64>,
    /// Of all steps, or of one.
    bytes: u64,
    /// How the writers of a pipe hold it.
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
    /// Whether its size changes from step to step, or it is constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<&'static str>,
    /// Why it is nothing that can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Row {
    fn new(name: &str, dataset: &Dataset, steps: Option<u64>) -> Row {
        Row {
            name: name.to_owned(),
            shape: dataset.shape().to_vec(),
            dtype: dataset.elem().to_string(),
            steps,
            bytes: dataset.len_bytes().saturating_mul(steps.unwrap_or(1)),
            layout: None,
            changes: None,
            error: None,
        }
    }

    /// Of what cannot be read.
    fn bad(url: &str, name: &str, error: &Error) -> Row {
        Row {
            name: name.to_owned(),
            shape: Vec::new(),
            dtype: UNKNOWN.into(),
            steps: None,
            bytes: 0,
            layout: None,
            changes: None,
            error: Some(at_url(url, error)),
        }
    }

    /// Of an array in which steps of these shapes lie one behind the other, if there are such.
    fn of_sizes(self, shapes: Option<Vec<Vec<u64>>>) -> Row {
        match shapes {
            Some(shapes) => Row { steps: Some(shapes.len() as u64), changes: Some(SIZE), ..self },
            None => self,
        }
    }

    fn of_pipe(array: &Array) -> Row {
        let changes = array.open.map(|changes| match changes {
            Changes::Dim(_) | Changes::Whole => SIZE,
            Changes::Never => "never: constant",
        });
        Row { layout: Some(array.layout.clone()), changes, ..Row::new(&array.name, &array.dataset, None) }
    }
}

/// Lists; gives the exit status.
pub fn ls(args: &LsArgs) -> u8 {
    let rows = match rows(&args.url) {
        Ok(rows) => rows,
        Err(error) => {
            crate::text::say!("polyduct: {}", at_url(&args.url, &error));
            return 1;
        }
    };
    if args.json {
        return u8::from(!print_json(&rows));
    }
    let is_pipe = rows.iter().any(|row| row.layout.is_some());
    let mut lines =
        vec![["NAME", "SHAPE", "DTYPE", if is_pipe { "LAYOUT" } else { "STEPS" }, "SIZE"].map(str::to_owned)];
    for row in rows {
        if let Some(error) = &row.error {
            crate::text::say!("polyduct: {error}");
        }
        let shape: Vec<String> = row.shape.iter().map(u64::to_string).collect();
        let known = row.layout.or(row.steps.map(|steps| steps.to_string())).unwrap_or_default();
        let name = if row.name.is_empty() { "-".into() } else { plain(&row.name) };
        lines.push([name, shape.join("x"), row.dtype, known, bytes(row.bytes)]);
    }
    u8::from(!print(&table(&lines, &[false, true, false, !is_pipe, true])))
}

fn rows(url: &str) -> Result<Vec<Row>, Error> {
    let target = polyduct::url::parse(url, Mode::Read, |name| std::env::var(name).ok())?;
    if let Target::Store(path) = &target {
        return in_store(path);
    }
    let port = open(url).unit(0).units(1).program(&format!("ls-{}", std::process::id()));
    match port.has_names()? {
        Some(true) => {
            let each = port.each()?;
            let row = |name, (dataset, stepped): (Dataset, bool)| {
                Row::new(name, &dataset, Some(if stepped { each.steps() } else { 1 }))
            };
            let rows = each.list().zip(each.step_shapes()).map(|((name, found), shapes)| match found {
                Ok(found) => row(name, found).of_sizes(shapes),
                Err(error) => Row::bad(url, name, &error),
            });
            Ok(rows.collect())
        }
        Some(false) => {
            let port = port.read("...")?;
            Ok(vec![Row::new("", port.dataset(), port.steps())])
        }
        None => Ok(port.describe()?.iter().map(Row::of_pipe).collect()),
    }
}

/// The datasets of a store, of a folder of it, or one.
fn in_store(path: &std::path::Path) -> Result<Vec<Row>, Error> {
    let (dir, folder) = disk::split_folder(path)?;
    let (store, folder) = (Store::open(&dir)?, folder.trim_end_matches('/'));
    let all = store.datasets()?;
    let inside = format!("{folder}/");
    let wanted = |name: &str| folder.is_empty() || name == folder || name.starts_with(&inside);
    let row = |(name, meta): (&String, &disk::Meta)| {
        Row::new(name, &meta.dataset, Some(meta.steps)).of_sizes(meta.step_shapes())
    };
    let rows: Vec<Row> = all.iter().filter(|(name, _)| wanted(name)).map(row).collect();
    if rows.is_empty() && !folder.is_empty() {
        // Says what there is.
        store.own_to_read()?.find(folder)?;
    }
    Ok(rows)
}
