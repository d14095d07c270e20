//! `polyduct pump-in` and `pump-out`, started by `run` where a plain program meets a parallel one: they carry
//! bytes between an ordinary pipe and a port.

use crate::run::READER_GONE;
use crate::text::at_url;
use polyduct::plain::{Steps, StreamError};
use polyduct::{open, Open, Writer};
use polyduct::{Mismatch, PipeError, Refusal};
use std::fs::File;
use std::io::{self, BufReader, Write};
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
    Stream(#[from] StreamError),
    #[error("the system gives no memory for {bytes} bytes, a step of it")]
    NoMemory { bytes: u64 },
    /// The reading program wants no more: the end, but no failure.
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
        polyduct::Error::Pipe(PipeError::Refused { reason: Refusal::Terms(Mismatch::NoDataset), .. }) => {
            "\n  the next stage must say what they are: open(\"-\", \"r\", shape=(480, 640), dtype=\"f4\"), \
                for example"
        }
        _ => "",
    }
}

fn fill(url: &str) -> Result<(), PumpError> {
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(PumpError::Input)?;
    let mut steps = Steps::begin(BufReader::with_capacity(64 << 10, File::from(input)))?;
    let mut port = match steps.header() {
        Some(header) => {
            let (dataset, layout, descr) = (header.dataset, header.layout(), header.npy.descr.clone());
            open(url).descr(descr).write(&dataset, &layout)?
        }
        None => {
            let port = open(url).write_what_is_read()?;
            steps.are_of(port.local_len_bytes() as u64);
            port
        }
    };
    let mut carry = || -> Result<(), PumpError> {
        while steps.next_step()? {
            let mut slot = port.step()?;
            steps.fill(&mut slot)?;
            slot.publish()?;
        }
        Ok(())
    };
    let outcome = carry();
    finish(&mut port, outcome)
}

/// A stream that broke must not look like one that ended.
fn finish(port: &mut Writer, outcome: Result<(), PumpError>) -> Result<(), PumpError> {
    match outcome {
        Ok(()) => Ok(port.close().map(drop)?),
        Err(error) => {
            port.abort_because(&error.to_string());
            Err(error)
        }
    }
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
            // One whose size changes has as many bytes as it has in each step.
            let changes = port.arrays().iter().any(|array| array.open.is_some());
            let mut part = room(port.local_len_bytes() as u64)?;
            loop {
                if changes {
                    port.peek()?;
                    part = room(port.local_len_bytes() as u64)?;
                }
                if port.read(&mut part)?.is_none() {
                    break;
                }
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
