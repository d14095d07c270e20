//! `polyduct pump-in` and `pump-out`, started by `run` where a plain program meets a parallel one: they carry
//! bytes between an ordinary pipe and a port.

mod header;

use crate::run::READER_GONE;
use crate::text::at_url;
use header::{Header, HeaderError, MAGIC};
use polyduct::pipe::{PipeError, Refusal};
use polyduct::{open, Open, Writer};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;

/// The standard file as one unit sees it: all its bytes, whatever the shape.
const WHOLE: &str = "stripe(1024MiB)";

/// Arguments of both.
#[derive(clap::Args)]
pub struct PumpArgs {
    /// The port: store:DIR/NAME, PATH.npy, pipe:NAME, ...
    url: String,
}

/// Arguments of `polyduct cat`.
#[derive(clap::Args)]
pub struct CatArgs {
    #[command(flatten)]
    port: PumpArgs,
    /// Shape of a step of a port that does not tell it: 480x640.
    #[arg(long, value_parser = crate::show::parse_shape)]
    shape: Option<crate::show::Shape>,
    /// Element type of a port that does not tell it: u1, f4, float64, S12, ...
    #[arg(long)]
    dtype: Option<crate::cp::Dtype>,
}

/// Why a pump stopped.
#[derive(Debug, thiserror::Error)]
enum PumpError {
    #[error(transparent)]
    Port(Box<polyduct::Error>),
    #[error("standard input: {0}")]
    Input(io::Error),
    #[error("standard output: {0}")]
    Output(io::Error),
    #[error("standard input: {0}")]
    Header(#[from] HeaderError),
    #[error("standard input ends within step {step}: {found} of {expected} bytes are there")]
    Partial { step: u64, found: usize, expected: usize },
    #[error("standard input: the array of step {step} has another shape, type or order than the first")]
    Changed { step: u64 },
    #[error("standard input: {0} bytes of arrays without elements")]
    Endless(usize),
    #[error("the system gives no memory for {bytes} bytes, a step of it")]
    NoMemory { bytes: u64 },
    /// Whoever reads wants no more: the end, but no failure.
    #[error("nobody reads any more")]
    ReaderGone,
}

impl From<polyduct::Error> for PumpError {
    fn from(error: polyduct::Error) -> PumpError {
        match error {
            polyduct::Error::Pipe(PipeError::ReadersGone { .. }) => PumpError::ReaderGone,
            error => PumpError::Port(error.into()),
        }
    }
}

/// Carries standard input into the port; gives the exit status.
pub fn pump_in(args: &PumpArgs) -> u8 {
    status(&args.url, fill(&args.url))
}

/// Carries what comes from the port to standard output; gives the exit status.
pub fn pump_out(args: &PumpArgs) -> u8 {
    status(&args.url, empty(open(&args.url)))
}

/// Writes an array's bytes to standard output; gives the exit status.
pub fn cat(args: &CatArgs) -> u8 {
    let mut port = open(&args.port.url);
    if let Some(shape) = &args.shape {
        port = port.shape(&shape.0);
    }
    if let Some(dtype) = &args.dtype {
        port = port.elem(dtype.elem);
    }
    status(&args.port.url, empty(port))
}

fn status(url: &str, result: Result<(), PumpError>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(PumpError::ReaderGone) => READER_GONE as u8,
        Err(PumpError::Port(e)) if matches!(*e, polyduct::Error::Pipe(PipeError::ReadersGone { .. })) => {
            READER_GONE as u8
        }
        Err(error) => {
            let what = match &error {
                PumpError::Port(error) => at_url(url, error) + hint(error),
                error => format!("{url}: {error}"),
            };
            // In one piece: the programs beside it fail at the same moment, and write to the same place.
            let _ = io::stderr().write_all(format!("polyduct: {what}\n").as_bytes());
            1
        }
    }
}

/// What the reader of plain bytes has to write.
fn hint(error: &polyduct::Error) -> &'static str {
    match error {
        polyduct::Error::Pipe(PipeError::Refused { reason: Refusal::NoDataset, .. }) => {
            "\n  the next stage must say what they are: open(\"-\", \"r\", shape=(480, 640), dtype=\"f4\"), for example"
        }
        _ => "",
    }
}

fn fill(url: &str) -> Result<(), PumpError> {
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(PumpError::Input)?;
    let mut input = BufReader::with_capacity(64 << 10, File::from(input));
    // The magic may come in pieces; what was read of it belongs to the data if it is none.
    let mut start = [0; MAGIC.len()];
    let len = read_fully(&mut input, &mut start).map_err(PumpError::Input)?;
    if start[..len] == *MAGIC {
        return arrays(url, &mut input);
    }
    let mut port = open(url).write_what_is_read()?;
    let mut input = start[..len].chain(input);
    let outcome = steps(&mut port, &mut input);
    finish(&mut port, outcome)
}

/// One step after another, as long as there are bytes.
fn steps(port: &mut Writer, input: &mut impl BufRead) -> Result<(), PumpError> {
    let expected = port.local_len_bytes();
    for step in 0.. {
        let waiting = input.fill_buf().map_err(PumpError::Input)?.len();
        match (waiting, expected) {
            (0, _) => break,
            (waiting, 0) => return Err(PumpError::Endless(waiting)),
            _ => one_step(port, input, step)?,
        }
    }
    Ok(())
}

/// A sequence of `.npy` arrays of one kind, the first without its magic.
fn arrays(url: &str, input: &mut impl BufRead) -> Result<(), PumpError> {
    let header = Header::read(input)?;
    let stars = vec!["*"; header.dataset.shape().len()].join(",");
    let layout = stars + if header.fortran { ";order=F" } else { "" };
    let mut port = open(url).write(&header.dataset, &layout)?;
    let mut following = || -> Result<(), PumpError> {
        for step in 0.. {
            one_step(&mut port, input, step)?;
            let mut magic = [0; MAGIC.len()];
            match read_fully(input, &mut magic).map_err(PumpError::Input)? {
                0 => break,
                len if magic[..len] == *MAGIC && Header::read(input)? == header => {}
                _ => return Err(PumpError::Changed { step: step + 1 }),
            }
        }
        Ok(())
    };
    let outcome = following();
    finish(&mut port, outcome)
}

fn one_step(port: &mut Writer, input: &mut impl Read, step: u64) -> Result<(), PumpError> {
    let mut slot = port.step()?;
    let (found, expected) = (read_fully(input, &mut slot).map_err(PumpError::Input)?, slot.len());
    if found < expected {
        return Err(PumpError::Partial { step, found, expected });
    }
    slot.publish()?;
    Ok(())
}

/// A stream that broke must not look like one that ended.
fn finish(port: &mut Writer, outcome: Result<(), PumpError>) -> Result<(), PumpError> {
    match outcome {
        Ok(()) => Ok(port.close().map(drop)?),
        Err(error) => {
            port.abort();
            Err(error)
        }
    }
}

/// Fills `part` unless the input ends before; gives the number of bytes read.
fn read_fully(input: &mut impl Read, part: &mut [u8]) -> io::Result<usize> {
    let mut found = 0;
    while found < part.len() {
        match input.read(&mut part[found..]) {
            Ok(0) => break,
            Ok(len) => found += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn empty(port: Open) -> Result<(), PumpError> {
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(PumpError::Output)?;
    let mut output = File::from(output);
    let mut port = port.read(WHOLE)?;
    let mut give = |bytes: &[u8]| {
        output.write_all(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => PumpError::ReaderGone,
            _ => PumpError::Output(error),
        })
    };
    match port.stretch_len().zip(port.steps()) {
        Some((stretch, steps)) => {
            let len = port.dataset().len_bytes();
            let mut bytes = room(stretch.min(len))?;
            for step in 0..steps {
                let mut at = 0;
                while at < len {
                    bytes.truncate(stretch.min(len - at) as usize);
                    port.read_stretch(step, at, &mut bytes)?;
                    give(&bytes)?;
                    at += bytes.len() as u64;
                }
                bytes.resize(stretch.min(len) as usize, 0);
            }
        }
        None => {
            let mut part = room(port.local_len_bytes() as u64)?;
            while port.read(&mut part)?.is_some() {
                give(&part)?;
            }
        }
    }
    port.close()?;
    Ok(())
}

/// A buffer; an error where the system gives no memory for it.
fn room(bytes: u64) -> Result<Vec<u8>, PumpError> {
    let none = || PumpError::NoMemory { bytes };
    let len = usize::try_from(bytes).map_err(|_| none())?;
    let mut room = Vec::new();
    room.try_reserve_exact(len).map_err(|_| none())?;
    room.resize(len, 0);
    Ok(room)
}
