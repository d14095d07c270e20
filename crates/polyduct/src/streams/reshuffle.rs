//! Reshuffling: the units bring each step into large blocks among themselves, and the gateway sends those from where they
//! lie (iWarp's network interface, section 6).
//!
//! A gateway that gathers short runs itself is one processor at work; units are many. In front of the gateway's pipe
//! there is then another: its readers are the units, each with one block of the row-major array, read straight into the
//! slot that the gateway sends it from. So each byte is copied as often as by a gateway that gathers.

use super::meet::Pipe;
use super::StreamTarget;
use polyduct_layout::{Dataset, Layout, LayoutError, Plan};
use polyduct_os::cpu;
use polyduct_pipe::{Given, PipeError, Reader, Writer};
use polyduct_port::{Expect, Options, Policy, PortError};
use polyduct_stream::StreamError;

/// Runs from this length on cost a gateway no more than bytes that lie together.
const LONG_RUN: u64 = 4096;
/// Bytes of a step for which units are woken, at least.
const LARGE_STEP: u64 = 4 << 20;
/// Processors that the gateway, the receiver and the program leave to gathering, at least.
const PROCESSORS: usize = 4;

/// Whether units reshuffle, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshuffling {
    /// Bytes of each unit's block; `None` where the gateway takes steps as the program has them.
    pub block: Option<u64>,
    /// Mean bytes that lie together, both in the units and in the row-major array.
    pub run: u64,
    /// In words.
    pub why: String,
}

/// Decides for an array that `units` units have in a layout, on a host of so many processors (this one's, where
/// that is not said), unless the user has:
/// `asked`. Blocks are of whole transfer units of `tu` bytes.
///
/// ```
/// use polyduct::gateway::reshuffling;
/// use polyduct::layout::{Dataset, ElemType};
///
/// let field = Dataset::new(&[4096, 16384], ElemType::U8)?;
/// assert_eq!(reshuffling(&field, "*,cyclic(128)", 4, Some(16), None)?.block, Some(16 << 20));
/// assert_eq!(reshuffling(&field, "block,*", 4, Some(16), None)?.block, None);
/// # Ok::<(), polyduct::layout::LayoutError>(())
/// ```
///
/// # Errors
/// [`LayoutError`] where the layout does not fit the array.
pub fn reshuffling(
    dataset: &Dataset,
    layout: &str,
    units: u32,
    processors: Option<usize>,
    asked: Option<bool>,
) -> Result<Reshuffling, LayoutError> {
    let (bytes, whole) = (dataset.len_bytes(), "...".parse::<Layout>()?);
    let mapping = layout.parse::<Layout>()?.bind(dataset, units.into())?;
    let runs = Plan::to_reader(&mapping, &whole.bind(dataset, 1)?, 0)?.runs();
    let run = bytes / runs.max(1);
    let processors = processors.unwrap_or_else(cpu::online);
    let (reshuffles, why) = match asked {
        Some(asked) => (asked, "as the place says".to_owned()),
        None if units < 2 => (false, "there is one unit".to_owned()),
        None if bytes < LARGE_STEP => (false, format!("steps of {bytes} bytes are small")),
        None if run >= LONG_RUN => (false, format!("runs of {run} bytes are long")),
        None if processors < PROCESSORS => {
            (false, format!("runs of {run} bytes are short, but {processors} processors are few"))
        }
        None => {
            (true, format!("runs of {run} bytes are short, and {units} units gather faster than one gateway"))
        }
    };
    let block = bytes.div_ceil(u64::from(units).max(1)).next_multiple_of(BLOCK);
    Ok(Reshuffling { block: reshuffles.then_some(block), run, why })
}

/// What units of a stream do: all the same.
pub fn decide(target: &StreamTarget, dataset: &Dataset, layout: &str, units: u32) -> Reshuffling {
    let known = reshuffling(dataset, layout, units, None, target.reshuffle);
    // A layout that does not fit the pipe refuses.
    known.unwrap_or_else(|e| Reshuffling { block: None, run: 0, why: e.to_string() })
}

/// Blocks are multiples of this: no transfer unit lies in two.
const BLOCK: u64 = super::work::TU_BYTES;

/// The pipe behind that of the program, with the blocks.
pub fn blocks(pipe: &Pipe) -> Pipe {
    pipe.beside("blocks")
}

/// A unit's thread: brings its block of each step, until the program ends, or the gateway.
///
/// # Errors
/// [`StreamError::Program`].
pub fn forward(pipe: &Pipe, dataset: &Dataset, block: u64, options: &Options) -> Result<(), StreamError> {
    let program = |error: PipeError| StreamError::Program(error.into());
    let layout = format!("stripe({block})");
    let own = Options {
        program: "reshuffle".into(),
        policy: Policy::Block,
        readers: 1.into(),
        depth: 2,
        ..options.clone()
    };
    let mut from = Reader::open(pipe, &layout, &Expect::default(), &own).map_err(program)?;
    let opened = Writer::open(&blocks(pipe), &Given::Dataset(*dataset), &layout, &own);
    let mut to = opened.inspect_err(|e| from.abort_because(&why(e))).map_err(program)?;
    let mut bring = || {
        while from.peek()?.is_some() {
            let mut slot = to.step()?;
            if from.read(&mut slot)?.is_some() {
                slot.publish()?;
            }
        }
        Ok(())
    };
    let brought = bring().and_then(|()| to.close().map(drop)).and_then(|()| from.close().map(drop));
    brought.map_err(|error| {
        // The gateway's words are for the program, and the program's for the gateway.
        let why = why(&error);
        to.abort_because(&why);
        from.abort_because(&why);
        program(error)
    })
}

/// Why one of the two pipes broke: of one that was given up in the words of who did.
fn why(error: &PipeError) -> String {
    match error {
        PipeError::Port(PortError::PeerAborted { reason, .. }) if !reason.is_empty() => reason.clone(),
        error => error.to_string(),
    }
}
