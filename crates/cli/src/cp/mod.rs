//! `polyduct cp`: copies an array, or several with names, from one standard file, store, pipe or stream to another.

mod about;
mod ends;
mod ports;
mod progress;
mod sets;
mod stream;
mod stretches;

use crate::layout::LayoutError;
use crate::run::READER_GONE;
use crate::text::{at_url, bytes, caret, seconds};
use polyduct::host::{together, OsError};
use polyduct::layout::ElemType;
use polyduct::plain::StreamError;
use polyduct::store::npy::Descr;
use polyduct::store::zarr::Compression;
use polyduct::PortError;
use polyduct::{open, url, Error, Mode, Open, Target};
use ports::at_open;
use progress::Moved;
use std::path::Path;
use std::time::Instant;

/// Divides an array of any shape: its bytes, dealt round.
const ANY_SHAPE: &str = "stripe(4MiB)";
/// Most units; each is a thread.
const MAX_UNITS: u32 = 256;

const AFTER_HELP: &str = "\
Examples:
  polyduct cp frame.npy frame.raw
  polyduct cp frame.raw frame.npy --shape 480x640 --dtype u1
  polyduct cp big.npy copy.npy --units 4 --verify
  polyduct cp pipe:field snapshot.npy
  polyduct cp big.npy store:/data/s/big --units 4
  polyduct cp model.safetensors#layers.0.weight weight.npy
  polyduct cp big.npy big.zarr --units 4
  polyduct cp double.npy single.npy --convert --dtype f4
  polyduct cp big.npy big.zarr --dims time,y,x --attrs '{\"units\": \"K\"}'
  polyduct cp big.npy big.zarr --compress zstd --chunks 256x256 --units 4
  polyduct cp model.safetensors.index.json model.zarr --units 4 --verify
  polyduct cp model.safetensors half.safetensors --convert --dtype bf16
  polyduct cp pipe:state results.npz --layout 'flow/*=...'
  polyduct cp store:/data/s/big - | ssh node7 polyduct cp - big.npy

SRC and DST are
  PATH.npy                NumPy's form
  PATH.raw                the bytes of the row-major array and nothing else
  PATH.safetensors#NAME   a tensor; without #NAME the only one of the file (a new one: data).
                          Writing replaces that tensor and keeps the others
  PATH.safetensors        all tensors of a file, where there are several
  PATH.safetensors.index.json
                          a set of such files, PATH-00001-of-00002.safetensors and so on
  PATH.npz                NumPy's archive of several arrays; PATH.npz#NAME is one of them, as SRC
  PATH.zarr               a directory, Zarr version 3 or 2: an array, or a group of several;
                          PATH.zarr/NAME is an array in a group. One array is written like its group or the array that it replaces, in chunks of
                          up to 32 MiB, not compressed, unless --chunks and --compress say
                          otherwise. Any chunks can be read, also in shards, and those of
                          gzip, zstd and blosc
  store:DIR/NAME          a dataset in a store over many disks
  pipe:NAME               a pipe
  -                       standard input or output; in a run what the run gave
  a named pipe            a stream, like -: .npy arrays one after the other, each a step. SRC may
                          also be plain bytes, if --shape and --dtype say what they are; a DST
                          whose name ends in .raw gets plain bytes
DST may also be a directory that exists: the file in it gets the name of SRC.
A file or directory appears under its name when it is complete, not before.";

/// Arguments of `polyduct cp`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct CpArgs {
    /// The source.
    src: String,
    /// The destination.
    dst: String,
    /// How the units divide the array between them (default: pieces of its bytes). Between files it
    /// says only which dimensions a step has: they copy a few MiB at a time. Of several arrays,
    /// PATTERN=LAYOUT says it of those whose names fit, encoder/*=block,*; it may come several times,
    /// the first that fits counts, and arrays that none fits are not copied.
    #[arg(long, value_name = "[PATTERN=]LAYOUT")]
    layout: Vec<String>,
    /// Units that copy at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_UNITS)))]
    units: u32,
    /// Shape of a source that does not tell it: 480x640.
    #[arg(long, value_parser = crate::show::parse_shape)]
    shape: Option<crate::show::Shape>,
    /// Element type of a source that does not tell it: u1, f4, float64, S12, ... With --convert the
    /// type that elements get.
    #[arg(long)]
    dtype: Option<Dtype>,
    /// Convert the elements to --dtype. A step is held in memory then, a part of it in each unit.
    #[arg(long, requires = "dtype")]
    convert: bool,
    /// Attributes of the array, besides those of the source and in place of those with the same name: a JSON
    /// object, or the file that holds one. For Zarr and stores.
    #[arg(long, value_name = "JSON|@FILE", value_parser = about::attributes)]
    attrs: Option<about::Attrs>,
    /// Names of the dimensions, that of the steps included: time,y,x. For Zarr.
    #[arg(long, value_name = "NAMES", value_parser = about::dims)]
    dims: Option<about::DimNames>,
    /// Compress the chunks: zstd, gzip, gzip:0 to gzip:9, blosc (LZ4 of shuffled bytes), or none. For Zarr.
    #[arg(long, value_name = "CODEC", default_value_t)]
    compress: Compression,
    /// Shape of a chunk, 256x256: a size for each dimension of a step, and maybe one of steps before them
    /// (default: whole rows, 32 MiB of them, or 2 MiB before they are compressed). For Zarr.
    #[arg(long, value_name = "SHAPE", value_parser = crate::show::parse_shape)]
    chunks: Option<crate::show::Shape>,
    /// Read both again afterwards and compare. For files only.
    #[arg(long)]
    verify: bool,
    /// Print no progress and no summary.
    #[arg(long, short)]
    quiet: bool,
}

impl CpArgs {
    /// The layout that is said of no pattern.
    fn plain_layout(&self) -> Option<&str> {
        self.layout.iter().map(String::as_str).find(|layout| of_pattern(layout).is_none())
    }

    fn layout(&self) -> &str {
        match self.plain_layout() {
            Some(layout) => layout,
            // Bytes have no type that could change.
            None if self.convert && self.units == 1 => "...",
            None if self.convert => "block,...",
            None => ANY_SHAPE,
        }
    }
}

/// What went wrong, and on which side.
#[derive(Debug, thiserror::Error)]
enum CpError {
    #[error("{}", at_url(url, source))]
    Port { url: String, source: Box<Error> },
    #[error("--layout: {0}")]
    Layout(LayoutError),
    #[error("--layout {text}: {error}")]
    LayoutOf { text: String, error: LayoutError },
    #[error("--convert needs a source that tells its element type; for {src} it is told by --dtype")]
    ConvertRaw { src: String },
    #[error("--verify reads both sides again, and a pipe or a stream can be read only once")]
    VerifyStream,
    #[error("a stream is read or written as a whole, by one unit: --{option} cannot be used with it")]
    StreamShared { option: &'static str },
    #[error("--convert cannot be used with a stream; copy it into a file first")]
    ConvertStream,
    #[error("{}: it is no .npy stream; plain bytes need --shape and --dtype", stream::name(src, Mode::Read))]
    StreamUntold { src: String },
    #[error("{}: it is {says}, and not what --shape and --dtype say", stream::name(src, Mode::Read))]
    StreamDiffers { src: String, says: String },
    #[error("--shape, --dtype: {0}")]
    Shape(LayoutError),
    #[error("{src}: {error}")]
    Stream { src: String, error: StreamError },
    #[error("{dst}: {error}")]
    Output { dst: String, error: std::io::Error },
    #[error("{dst} cannot store what --{option} gives")]
    NoPlace { dst: String, option: &'static str },
    #[error("--dims: {named} names; {src} has {dims} dimensions, its steps included")]
    Dims { src: String, named: usize, dims: usize },
    #[error("--layout {layout}: {src} is one array, without a name that a pattern could fit")]
    Pattern { src: String, layout: String },
    #[error("{src} has several arrays; --{option} is for one, {src}#NAME or {src}/NAME")]
    OneArray { src: String, option: &'static str },
    #[error("verification failed: {what}")]
    SetsDiffer { what: String },
    #[error("{src}: no array has a name that one of the patterns of --layout fits")]
    NoneFits { src: String },
    #[error("{src}: there are no arrays in it")]
    NoArrays { src: String },
    /// The reading program wants no more: the end, but no failure.
    #[error("nobody reads any more")]
    ReaderGone,
    #[error("verification failed: {src} and {dst} differ in step {step}, from {place} on")]
    Differ { src: String, dst: String, step: u64, place: String },
    #[error("verification failed: {src} and {dst} differ in their number of steps")]
    Steps { src: String, dst: String },
    #[error(
        "{url}: the system gives no memory for {bytes} bytes, a unit's part of a step; copy with more \
        --units"
    )]
    NoMemory { url: String, bytes: u64 },
    #[error("cannot start a thread for each unit: {0}")]
    Threads(#[from] OsError),
}

/// Copies; gives the exit status.
pub fn cp(mut args: CpArgs) -> u8 {
    if let Some(inside) = in_directory(&args.src, &args.dst) {
        args.dst = inside;
    }
    match copy(&args) {
        Ok(()) => 0,
        Err(CpError::ReaderGone) => READER_GONE as u8,
        Err(error) => {
            crate::text::say!("polyduct: {error}");
            match error {
                CpError::Layout(error) => {
                    match error {
                        LayoutError::Text { position, .. } => {
                            crate::text::say!("{}", caret(args.layout(), position))
                        }
                        _ => crate::text::say!("  {}", args.layout()),
                    }
                    2
                }
                CpError::VerifyStream
                | CpError::LayoutOf { .. }
                | CpError::Pattern { .. }
                | CpError::OneArray { .. }
                | CpError::StreamShared { .. }
                | CpError::ConvertStream
                | CpError::NoPlace { .. }
                | CpError::Dims { .. }
                | CpError::StreamUntold { .. }
                | CpError::ConvertRaw { .. } => 2,
                CpError::Port { source, .. }
                    if matches!(*source, Error::Port(PortError::BadOption { .. })) =>
                {
                    2
                }
                _ => 1,
            }
        }
    }
}

/// Where the target is a directory, and no array that is one: a file in it, called as the source is.
fn in_directory(src: &str, dst: &str) -> Option<String> {
    let is_plain = url::file(dst).is_none() && Path::new(dst).is_dir();
    let src = src.strip_prefix("file:").unwrap_or(src).trim_end_matches('/');
    let name = url::file(src).filter(|_| is_plain).and_then(|_| Path::new(src).file_name()?.to_str())?;
    Some(Path::new(dst).join(name).display().to_string())
}

fn copy(args: &CpArgs) -> Result<(), CpError> {
    let streams = [stream::of(&args.src, Mode::Read), stream::of(&args.dst, Mode::Write)];
    let has_stream = streams.iter().any(Option::is_some);
    let is_pipe = |url: &&String| url.starts_with("pipe:") || *url == "-";
    if args.verify && (has_stream || [&args.src, &args.dst].iter().any(is_pipe)) {
        return Err(CpError::VerifyStream);
    }
    if has_stream && (args.units > 1 || !args.layout.is_empty()) {
        return Err(CpError::StreamShared { option: if args.units > 1 { "units" } else { "layout" } });
    }
    if args.convert && streams[0].is_some() {
        return Err(CpError::ConvertStream);
    }
    if args.convert && matches!(url::file(&args.src), Some(Target::Raw(_))) {
        return Err(CpError::ConvertRaw { src: args.src.clone() });
    }
    let begin = Instant::now();
    let moved = Moved::default();
    let words = format!("{} → {}", args.src, args.dst);
    let set = sets::Set::of(args)?;
    if let (None, Some(pattern)) = (&set, args.layout.iter().find(|layout| of_pattern(layout).is_some())) {
        return Err(CpError::Pattern { src: args.src.clone(), layout: pattern.clone() });
    }
    let copied = || {
        all_units(args, |unit| match &set {
            Some(set) => set.copy_unit(unit, &moved),
            None => ports::copy_unit(args, unit, &moved),
        })
    };
    let steps = moved.shown(args.quiet, &words, copied)?;
    let took = begin.elapsed();
    if args.verify {
        let compared = Moved::default();
        let words = format!("{} = {}", args.src, args.dst);
        let compare = || {
            all_units(args, |unit| match &set {
                Some(set) => set.compare_unit(unit, &compared),
                None => ports::compare_unit(args, unit, &compared),
            })
        };
        compared.shown(args.quiet, &words, compare)?;
    }
    if !args.quiet {
        let total = moved.bytes();
        let rate = total as f64 / took.as_secs_f64() / 1e9;
        let plural = if steps == 1 { "" } else { "s" };
        let arrays = set.as_ref().map_or(String::new(), |set| set.count());
        let verified = if args.verify { ", verified" } else { "" };
        let took = seconds(took.as_secs_f64());
        crate::text::say!(
            "{}{arrays} in {steps} step{plural}, {took}, {rate:.2} GB/s{verified}",
            bytes(total)
        );
    }
    Ok(())
}

/// The pattern and the layout of `PATTERN=LAYOUT`; other layouts have a `=` only behind a `;`.
fn of_pattern(text: &str) -> Option<(&str, &str)> {
    text.split_once('=').filter(|(pattern, _)| !pattern.contains(';'))
}

/// Does `work` for each unit at once; the first error, or the number of steps.
fn all_units(args: &CpArgs, work: impl Fn(u32) -> Result<u64, CpError> + Sync) -> Result<u64, CpError> {
    // They wait for one another: with fewer threads than units none would get anywhere.
    let results = together(0..args.units, work)?;
    results.into_iter().try_fold(0, |most, steps| Ok(most.max(steps?)))
}

/// An element type, and what NumPy takes such elements for where they are bytes to polyduct.
#[derive(Clone)]
pub struct Dtype {
    pub elem: ElemType,
    descr: Option<Descr>,
}

impl std::str::FromStr for Dtype {
    type Err = <ElemType as std::str::FromStr>::Err;

    fn from_str(name: &str) -> Result<Dtype, Self::Err> {
        Ok(Dtype { elem: name.parse()?, descr: Descr::of_name(name) })
    }
}

fn port(args: &CpArgs, url: &str, unit: u32, purpose: &str) -> Open {
    // Each opening is a program of its own: the source is read twice when it is verified.
    let program = format!("cp-{}-{purpose}", std::process::id());
    open(url).unit(unit).units(args.units).program(&program)
}

/// An error of reading from a stream.
fn stream_error(src: &str) -> impl Fn(StreamError) -> CpError + '_ {
    move |error| CpError::Stream { src: stream::name(src, Mode::Read).to_owned(), error }
}
