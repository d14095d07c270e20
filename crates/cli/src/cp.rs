//! `polyduct cp`: copies an array from one standard file or pipe to another.

use crate::layout::LayoutError;
use crate::text::{at_url, bytes, caret, seconds};
use indicatif::{ProgressBar, ProgressStyle};
use polyduct::layout::ElemType;
use polyduct::os::{threads, OsError};
use polyduct::pipe::PipeError;
use polyduct::store::disk::StoreError;
use polyduct::store::npy::Descr;
use polyduct::store::FileError;
use polyduct::{open, Error, Open};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::Builder;
use std::time::{Duration, Instant};

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

SRC and DST are
  PATH.npy                NumPy's form
  PATH.raw                the bytes of the row-major array and nothing else
  PATH.safetensors#NAME   a tensor; without #NAME the only one of the file (data). Written, it
                          replaces that one, and the others stay
  PATH.zarr               a directory, Zarr version 3 or 2; PATH.zarr/NAME in a group. Written,
                          with chunks of up to 32 MiB, not compressed, and else as the group
                          or the array that is replaced; read, any chunks, also in shards,
                          and of gzip, zstd and blosc
  store:DIR/NAME          a dataset in a store over many disks
  pipe:NAME               a pipe
A file or directory appears under its name when it is complete, not before.";

/// Arguments of `polyduct cp`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct CpArgs {
    /// Where the array is.
    src: String,
    /// Where it shall be.
    dst: String,
    /// How the units divide the array between them (default: pieces of its bytes).
    #[arg(long, default_value = ANY_SHAPE, hide_default_value = true)]
    layout: String,
    /// Units that copy at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_UNITS)))]
    units: u32,
    /// Shape of a source that does not tell it: 480x640.
    #[arg(long, value_parser = crate::show::parse_shape)]
    shape: Option<crate::show::Shape>,
    /// Element type of a source that does not tell it: u1, f4, float64, S12, ...
    #[arg(long)]
    dtype: Option<Dtype>,
    /// Read both again afterwards and compare. For files only.
    #[arg(long)]
    verify: bool,
    /// Print no progress and no summary.
    #[arg(long, short)]
    quiet: bool,
}

/// What went wrong, and on which side.
#[derive(Debug, thiserror::Error)]
enum CpError {
    #[error("{}", at_url(url, source))]
    Port { url: String, source: Box<Error> },
    #[error("--layout: {0}")]
    Layout(LayoutError),
    #[error("--verify reads both sides again, which a pipe cannot give")]
    VerifyPipe,
    #[error("verification failed: {src} and {dst} differ in step {step}, in the part of unit {unit}, from its byte {at}")]
    Differ { src: String, dst: String, step: u64, unit: u32, at: usize },
    #[error("verification failed: {src} and {dst} differ in their number of steps")]
    Steps { src: String, dst: String },
    #[error("cannot have a thread for each of the units: {0}")]
    Threads(#[from] OsError),
}

/// Copies; gives the exit status.
pub fn cp(args: &CpArgs) -> u8 {
    match copy(args) {
        Ok(()) => 0,
        Err(error) => {
            crate::text::say!("polyduct: {error}");
            match error {
                CpError::Layout(error) => {
                    match error {
                        LayoutError::Text { position, .. } => {
                            crate::text::say!("{}", caret(&args.layout, position))
                        }
                        _ => crate::text::say!("  {}", args.layout),
                    }
                    2
                }
                CpError::VerifyPipe => 2,
                _ => 1,
            }
        }
    }
}

fn copy(args: &CpArgs) -> Result<(), CpError> {
    if args.verify && [&args.src, &args.dst].iter().any(|url| url.starts_with("pipe:") || *url == "-") {
        return Err(CpError::VerifyPipe);
    }
    let begin = Instant::now();
    let moved = AtomicU64::new(0);
    let steps = with_progress(args, &moved, || all_units(args, |unit| copy_unit(args, unit, &moved)))?;
    let took = begin.elapsed();
    if args.verify {
        all_units(args, |unit| compare_unit(args, unit))?;
    }
    if !args.quiet {
        let total = moved.load(Relaxed);
        let rate = total as f64 / took.as_secs_f64() / 1e9;
        let plural = if steps == 1 { "" } else { "s" };
        let verified = if args.verify { ", verified" } else { "" };
        let took = seconds(took.as_secs_f64());
        crate::text::say!("{} in {steps} step{plural}, {took}, {rate:.2} GB/s{verified}", bytes(total));
    }
    Ok(())
}

/// Does `work` for each unit at once; the first error, or the number of steps.
fn all_units(args: &CpArgs, work: impl Fn(u32) -> Result<u64, CpError> + Sync) -> Result<u64, CpError> {
    // They wait for one another: with fewer threads than units none would get anywhere.
    let results = threads::together(0..args.units, work)?;
    results.into_iter().try_fold(0, |most, steps| Ok(most.max(steps?)))
}

/// An element type, and what NumPy takes such elements for where they are bytes to polyduct.
#[derive(Clone)]
struct Dtype {
    elem: ElemType,
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

fn source(args: &CpArgs, unit: u32, purpose: &str) -> Open {
    let mut port = port(args, &args.src, unit, purpose);
    if let Some(shape) = &args.shape {
        port = port.shape(&shape.0);
    }
    if let Some(Dtype { elem, .. }) = args.dtype {
        port = port.elem(elem);
    }
    port
}

/// An error at opening `url`, where a layout that is wrong is the option's fault and not the array's.
fn at_open(url: &str) -> impl Fn(Error) -> CpError + '_ {
    use LayoutError::{DatasetTooLarge, TooManyDims};
    move |error| {
        let of_layout = match &error {
            Error::Layout(e)
            | Error::Pipe(PipeError::Layout { source: e, .. })
            | Error::File(FileError::Layout { source: e, .. }) => Some(e),
            Error::Store(e) => match &**e {
                StoreError::Layout { source, .. } => Some(source),
                _ => None,
            },
            _ => None,
        };
        match of_layout.filter(|e| !matches!(e, DatasetTooLarge { .. } | TooManyDims { .. })) {
            Some(e) => CpError::Layout(e.clone()),
            None => CpError::Port { url: url.to_owned(), source: error.into() },
        }
    }
}

fn copy_unit(args: &CpArgs, unit: u32, moved: &AtomicU64) -> Result<u64, CpError> {
    let of_src = |error: Error| CpError::Port { url: args.src.clone(), source: error.into() };
    let of_dst = |error: Error| CpError::Port { url: args.dst.clone(), source: error.into() };
    let mut reader = source(args, unit, "in").read(&args.layout).map_err(at_open(&args.src))?;
    let dataset = *reader.dataset();
    let attributes = reader.attributes();
    let some = !attributes.is_empty();
    let descr = reader.descr().cloned();
    let told = args.dtype.as_ref().and_then(|dtype| dtype.descr.clone());
    let out = port(args, &args.dst, unit, "out").attributes(attributes).dims(reader.dims().cloned());
    let out = out.descr(descr.clone().or(told));
    let writer = out.stepped(reader.stepped()).write(&dataset, &args.layout);
    let mut writer = writer.map_err(at_open(&args.dst))?;
    if unit == 0 && some && !writer.keeps_attributes() {
        let (src, dst) = (&args.src, &args.dst);
        crate::text::say!("polyduct: {dst} has no place for the attributes of {src}: they are not copied");
    }
    if let Some(descr) = descr.filter(|_| unit == 0 && !writer.keeps_descr()) {
        let (src, dst) = (&args.src, &args.dst);
        crate::text::say!(
            "polyduct: {dst} has no place for NumPy's type of {src}, {descr}: its bytes are copied"
        );
    }
    let mut count = 0;
    let outcome = loop {
        let mut step = match writer.step() {
            Ok(step) => step,
            Err(error) => break Err(of_dst(error)),
        };
        match reader.read(&mut step) {
            Ok(Some(_)) => {}
            Ok(None) => break Ok(()),
            Err(error) => break Err(of_src(error)),
        }
        let len = step.len() as u64;
        if let Err(error) = step.publish() {
            break Err(of_dst(error));
        }
        moved.fetch_add(len, Relaxed);
        count += 1;
    };
    if let Err(error) = outcome {
        // What is not whole must not appear under its name.
        writer.abort();
        return Err(error);
    }
    writer.close().map_err(of_dst)?;
    reader.close().map_err(of_src)?;
    Ok(count)
}

fn compare_unit(args: &CpArgs, unit: u32) -> Result<u64, CpError> {
    let of_src = |error: Error| CpError::Port { url: args.src.clone(), source: error.into() };
    let of_dst = |error: Error| CpError::Port { url: args.dst.clone(), source: error.into() };
    let mut left = source(args, unit, "verify-in").read(&args.layout).map_err(of_src)?;
    let dataset = *left.dataset();
    let right = port(args, &args.dst, unit, "verify-out").shape(dataset.shape()).elem(dataset.elem());
    let mut right = right.read(&args.layout).map_err(of_dst)?;
    let (mut a, mut b) = (vec![0; left.local_len_bytes()], vec![0; right.local_len_bytes()]);
    for step in 0.. {
        let (src, dst) = (args.src.clone(), args.dst.clone());
        match (left.read(&mut a).map_err(of_src)?, right.read(&mut b).map_err(of_dst)?) {
            (None, None) => return Ok(step),
            (Some(_), Some(_)) if a == b => {}
            (Some(_), Some(_)) => {
                let at = a.iter().zip(&b).position(|(x, y)| x != y).unwrap_or(a.len().min(b.len()));
                return Err(CpError::Differ { src, dst, step, unit, at });
            }
            _ => return Err(CpError::Steps { src, dst }),
        }
    }
    Ok(0)
}

/// Shows what has moved while `work` goes on, if somebody looks.
fn with_progress<T>(args: &CpArgs, moved: &AtomicU64, work: impl FnOnce() -> T) -> T {
    if args.quiet {
        return work();
    }
    // indicatif draws on standard error, and only on a terminal.
    let style = ProgressStyle::with_template("{spinner} {msg}  {bytes}  {bytes_per_sec}  {elapsed}");
    let bar = ProgressBar::new_spinner().with_message(format!("{} → {}", args.src, args.dst));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    std::thread::scope(|scope| {
        let (done, finished) = std::sync::mpsc::channel::<()>();
        let bar = &bar;
        let show = move || {
            while finished.recv_timeout(Duration::from_millis(100))
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                bar.set_position(moved.load(Relaxed));
            }
            bar.finish_and_clear();
        };
        // Where the system gives no thread nobody is shown anything.
        let _ = Builder::new().spawn_scoped(scope, show);
        let result = work();
        drop(done);
        result
    })
}
