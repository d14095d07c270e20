//! `polyduct show`: draws layouts and the traffic between two.

mod exchange;
mod model;
mod palette;
mod raster;
mod svg;
mod terminal;

use crate::layout::{Dataset, ElemType, LayoutError};
use crate::svg::write;
use crate::text::{caret, print, Colour};
use model::{Model, MAX_UNITS};
pub use palette::unit_colour;
use palette::Depth;
use polyduct::gateway::{reshuffling, Reshuffling};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

const AFTER_HELP: &str = "\
Examples:
  polyduct show \"block,*\" --shape 12x8 --units 4
  polyduct show \"block,*\" \"*,block\" --shape 4096x4096 --units 4,3 --svg traffic.svg
  polyduct show \"cyclic(2),block@2x3;order=F\" --shape 16x12 --units 6 --dtype f8
  polyduct show \"block[1],*@2x3\" --shape 12x8 --units 6        (two replicas)
  polyduct show \"boxes(0:2,0:8|2:3,0:8|-)\" --shape 3x8 --units 3
  polyduct show \"*,cyclic(128)\" --shape 4096x16384 --dtype u1 --units 4 --stream

A layout says for each dimension how its indices go to the units:
  *                not distributed                  ...            * for all others
  block            pieces of ceil(N/P) in order     balanced       sizes differ by one at most
  cyclic           dealt round one by one           cyclic(b)      in blocks of b
  cut(0,7,19)      pieces that start there
then, as needed:
  @2x3             the grid of units                block[1]       a dimension uses grid axis 1
  ;order=F         local storage order              ;halo=1,0:2    cells around the piece
  ;order=2,0,1     the same, slowest dimension first ;halo=1~,0    around the ends, as on a torus

Or, for the whole array:
  boxes(0:4,0:8|4:8,0:4+4:8,4:8|-)
                   what each unit has, units with | between: half-open boxes, joined by +, or - for nothing;
                   ;order= may follow
  digits(4x3x8;unit=1;offset=0,2)
                   an element's row-major number in mixed radix, most significant digit first: the digits that
                   make the unit's number, and those that make the offset in it (by default all others)
  stripe(64KiB)    the bytes of the row-major array, dealt round in pieces of that size

With two layouts the first writes and the second reads: each unit of the first sends to each of
the second what both own. Runs are the bytes that lie together on both sides; long ones are fast.";

/// Arguments of `polyduct show`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct ShowArgs {
    /// One layout, or the writer's and the reader's.
    #[arg(required = true, num_args = 1..=2, value_name = "LAYOUT")]
    layouts: Vec<String>,
    /// Shape of the array, slowest dimension first: 12x8.
    #[arg(long, value_parser = parse_shape)]
    shape: Shape,
    /// Number of units; two numbers for two layouts: 4,3.
    #[arg(long, value_parser = parse_units)]
    units: Units,
    /// Element type: f4, f8, u1, c16, float32, bytes(12), ...
    #[arg(long, default_value = "f4")]
    dtype: String,
    /// Draw into this file; - is standard output.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Say how a stream takes what one layout has, on this machine or on one of so many processors.
    #[arg(long, value_name = "PROCESSORS", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    stream: Option<usize>,
    /// Print what is known as JSON instead of drawing it.
    #[arg(long)]
    json: bool,
    /// When to use colour in the terminal.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", alias = "colour")]
    color: Colour,
}

/// Sizes as people type them.
#[derive(Clone)]
pub struct Shape(pub Vec<u64>);

#[derive(Clone)]
struct Units(Vec<u64>);

/// Reads `12x8`.
pub fn parse_shape(text: &str) -> Result<Shape, String> {
    let number = |n: &str| n.trim().parse().map_err(|_| format!("`{n}` is no size; a shape is like 12x8"));
    if text.trim().is_empty() {
        return Err("a single element has no dimension to lay out; give it one: 1".into());
    }
    text.split(['x', '×', ',']).map(number).collect::<Result<_, _>>().map(Shape)
}

fn parse_units(text: &str) -> Result<Units, String> {
    let number = |n: &str| match n.trim().parse() {
        Ok(n @ 1..=MAX_UNITS) => Ok(n),
        _ => Err(format!("`{n}` is no number of units from 1 to {MAX_UNITS}")),
    };
    let units: Vec<u64> = text.split(',').map(number).collect::<Result<_, _>>()?;
    match units.len() {
        1 | 2 => Ok(Units(units)),
        _ => Err("one number of units for each layout".into()),
    }
}

/// Shows; gives the exit status.
pub fn show(args: &ShowArgs) -> u8 {
    if args.json && args.svg.as_deref() == Some(Path::new("-")) {
        crate::text::say!(
            "polyduct: --json and --svg - would both print to standard output: give --svg a file"
        );
        return 2;
    }
    if args.units.0.len() > args.layouts.len() {
        let given: Vec<String> = args.units.0.iter().map(u64::to_string).collect();
        crate::text::say!(
            "polyduct: --units {} is for two layouts, and there is one: give one number, or the reader's \
                layout as well",
            given.join(",")
        );
        return 2;
    }
    let dataset = match dataset(args) {
        Ok(dataset) => dataset,
        Err(error) => {
            crate::text::say!("polyduct: {error}");
            return 2;
        }
    };
    let model = match Model::new(dataset, &args.layouts, &args.units.0) {
        Ok(model) => model,
        Err(model::RefusedLayout { text, error }) => {
            crate::text::say!("polyduct: {error}");
            match error {
                LayoutError::Text { position, .. } => crate::text::say!("{}", caret(&text, position)),
                _ => crate::text::say!("  {text}"),
            }
            return 2;
        }
    };
    match output(args, &model) {
        Ok(written) => u8::from(!written),
        Err(error) => {
            crate::text::say!("polyduct: {error}");
            1
        }
    }
}

fn dataset(args: &ShowArgs) -> Result<Dataset, LayoutError> {
    Dataset::new(&args.shape.0, args.dtype.parse::<ElemType>()?)
}

fn output(args: &ShowArgs, model: &Model) -> Result<bool, LayoutError> {
    let mut written = true;
    if let Some(path) = &args.svg {
        written = write(path, &svg::draw(model)?);
        if path == Path::new("-") {
            return Ok(written);
        }
    }
    let stream = args.stream.map(|processors| {
        let side = &model.sides[0];
        let processors = Some(processors).filter(|given| *given > 0);
        reshuffling(&model.dataset, &side.text, side.parts.len() as u32, processors, None)
    });
    let stream = stream.transpose()?;
    let content = match args.json {
        true => json(model, stream.as_ref()),
        false => {
            terminal::draw(model, width(), depth(args.color))? + &stream.map_or_else(String::new, in_words)
        }
    };
    Ok(print(&content) && written)
}

/// How a gateway takes steps, and why.
fn in_words(stream: Reshuffling) -> String {
    let how = match stream.block {
        Some(block) => format!("its units reshuffle into blocks of {block} bytes"),
        None => "its gateway takes what the units have".to_owned(),
    };
    format!("\nas a stream: {how}, since {}\n", stream.why)
}

fn json(model: &Model, stream: Option<&Reshuffling>) -> String {
    let layouts: Vec<_> = model
        .sides
        .iter()
        .map(|side| {
            serde_json::json!({
                "layout": side.text,
                "units": side.parts.len(),
                "replicas": side.mapping.replicas(),
                "parts": side.parts,
            })
        })
        .collect();
    let mut value = serde_json::json!({
        "shape": model.dataset.shape(),
        "dtype": model.dataset.elem().to_string(),
        "bytes": model.dataset.len_bytes(),
        "layouts": layouts,
    });
    if let Some(Reshuffling { block, run, why }) = stream {
        value["stream"] =
            serde_json::json!({ "reshuffles": block.is_some(), "block": block, "run": run, "why": why });
    }
    if let Some(exchange) = &model.exchange {
        value["traffic"] = serde_json::json!({
            "bytes": exchange.bytes,
            "total": exchange.total(),
            "pairs": exchange.pairs(),
            "runs": exchange.runs,
        });
    }
    format!("{value:#}\n")
}

/// Columns of the terminal, or what $COLUMNS says, or 80.
fn width() -> usize {
    let named = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    let asked = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|w| usize::from(w.ws_col));
    asked.filter(|&w| w > 0).or(named).unwrap_or(80).clamp(20, 400)
}

fn depth(colour: Colour) -> Depth {
    let stdout = io::stdout();
    if !colour.on(&stdout) {
        return Depth::None;
    }
    let deep = std::env::var("COLORTERM").is_ok_and(|v| v == "truecolor" || v == "24bit");
    // Asked for by hand and not on a terminal: whatever shows it later is likely able to.
    if deep || (colour == Colour::Always && !stdout.is_terminal()) {
        Depth::True
    } else {
        Depth::Indexed
    }
}
