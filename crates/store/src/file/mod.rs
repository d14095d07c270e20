//! One standard file as a port of a parallel program.
//!
//! | module | idea |
//! |---|---|
//! | `shape` | what dataset a file holds, and how many steps of it |
//! | `runs` | an operation of a plan as windows of the file |
//! | `io` | bytes to and from the file: whole, reserved, in bounded pieces |
//! | `form` | what the file is to look like: its header and its length |
//! | `beside` | what stays of a file in which one tensor is written |
//! | `name` | what a path means in the end, and the directory that it is in |
//! | `target` | the unnamed file that becomes the named one, and the directory likewise |
//! | `group` | what a Zarr array is written into: how its neighbours are written down, and metadata of all of them |
//! | `slabs`, `chunks` | the chunks of a Zarr array, written and read |
//! | `boxes`, `drafts` | chunks of any shape, and compressed ones: where a byte belongs, and how a chunk becomes a file |
//! | `wire`, `host`, `member`, `link` | how the units of a writing program agree, and notice who is lost |
//! | `stretch` | a step in stretches, so that nobody has to hold all of it |
//! | `work`, `scatter` | a transfer from a file to memory, and a unit's part or a stretch to files |
//! | `reader`, `writer` | the two ports |

mod beside;
mod boxes;
mod chunks;
mod drafts;
mod form;
mod group;
mod host;
mod io;
mod link;
mod member;
mod name;
mod reader;
mod runs;
mod scatter;
mod shape;
mod slabs;
mod stretch;
mod target;
#[doc(hidden)]
pub mod wire;
mod work;
mod writer;

use crate::npy::Descr;
use crate::zarr::{About, Compression, Dims};
use crate::FileError;
use polyduct_layout::ElemType;
use polyduct_os::clock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use reader::FileReader;
pub use writer::{FileWriter, StepMut};

/// The most units of a program that writes one file.
pub const MAX_UNITS: u32 = 4096;
/// The most bytes of a chunk, unless the caller says another number.
const CHUNK_BYTES: u64 = 32 << 20;
/// The same of one that is compressed, before that.
const COMPRESSED_CHUNK_BYTES: u64 = 2 << 20;
/// Blocking calls ask this often whether they shall stop.
const SLICE: Duration = Duration::from_millis(100);

/// A question asked now and then by every blocking call: shall it give up?
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// The form of a standard file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// NumPy's `.npy`: a header, then the elements.
    Npy,
    /// The elements and nothing else, in row-major order, little-endian.
    Raw,
    /// One tensor of a `.safetensors` file: [`Options::tensor`] names it.
    Safetensors,
    /// A Zarr array: a directory with its metadata and a file for each chunk. Written, it has the version of the group that it
    /// is in, or of the array that it replaces, and else 3.
    Zarr,
}

impl Format {
    /// The format that a path's ending names: `.npy`, `.raw`, `.safetensors` or `.zarr`.
    pub fn of_path(path: &std::path::Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "npy" => Some(Format::Npy),
            "raw" => Some(Format::Raw),
            "safetensors" => Some(Format::Safetensors),
            "zarr" => Some(Format::Zarr),
            _ => None,
        }
    }
}

/// What a reader expects of the file's dataset.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// The shape of one step; any if `None`. Needed for a raw file.
    pub shape: Option<Vec<u64>>,
    /// The element type; any if `None`. Needed for a raw file.
    pub elem: Option<ElemType>,
    /// Whether another element type may be converted into [`elem`](Expect::elem) on the way. A raw file always has the
    /// expected type.
    pub convert: bool,
}

/// What the users of an array wrote down of it: a JSON object.
pub type Attributes = serde_json::Map<String, serde_json::Value>;

/// What a unit says when it opens its side of a file.
#[derive(Clone)]
pub struct Options {
    /// Number of this unit, from 0.
    pub unit: u32,
    /// Units of this program.
    pub units: u32,
    /// Name of this program, the same in all its units: keeps two programs apart that write one file by mistake.
    pub program: String,
    /// Longest wait for the other units at closing; `None` waits as long as they live.
    pub timeout: Option<Duration>,
    /// Longest wait for the other units when opening a file to be written.
    pub open_timeout: Duration,
    /// Name of the tensor in a safetensors file: the one that is read, where there are several, or the one that is written
    /// (`data` if `None`, and then the file's only one). The
    /// others of a file stay.
    pub tensor: Option<String>,
    /// The most bytes of a chunk of a Zarr array that is written (default 32 MiB): a few rows, or several short steps.
    pub chunk_bytes: u64,
    /// The sizes of a chunk of a Zarr array that is written, one for each dimension of a step, and before them, if there is one more, how
    /// many steps it holds (1 if that is not said). `None`: as `chunk_bytes` says, of at most 2 MiB where they are compressed.
    pub chunks: Option<Vec<u64>>,
    /// What the chunks of a Zarr array that is written are compressed with. All units say the same of this and of the two before.
    pub compression: Compression,
    /// What its users write down of an array that is written, where its form has a place for that: Zarr, and a store's new
    /// dataset. Unit 0's count.
    pub attributes: Attributes,
    /// What they call its dimensions, that of the steps included, where its form has a place for that: Zarr. Unit 0's count.
    pub dims: Option<Dims>,
    /// What NumPy takes the elements of an array that is written for, where they are bytes to polyduct. Kept by `.npy` files, where all
    /// units must say the same, and by a store.
    pub descr: Option<Descr>,
    /// Whether the steps of an array that is written are its first dimension even where there is just one. Unit 0's counts.
    pub stepped: bool,
    /// Asked every 100 ms during blocking calls, and between pieces of large transfers.
    pub interrupt: Option<Interrupt>,
    /// For measurements alone.
    #[doc(hidden)]
    pub without: Without,
}

/// What a port of a store leaves out, to see what it costs. Nothing that is to be kept may be written so.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// What is written is neither made durable nor named.
    pub commit: bool,
    /// Checksums are neither made nor looked at.
    pub sums: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            unit: 0,
            units: 1,
            program: String::new(),
            timeout: None,
            open_timeout: Duration::from_secs(60),
            tensor: None,
            chunk_bytes: CHUNK_BYTES,
            chunks: None,
            compression: Compression::None,
            attributes: Attributes::new(),
            dims: None,
            descr: None,
            stepped: false,
            interrupt: None,
            without: Without::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { unit, units, program, timeout, open_timeout, .. } = self;
        write!(f, "unit {unit} of {units} of program {program:?}, timeout {timeout:?}, open timeout {open_timeout:?}")
    }
}

impl Options {
    fn check(&self, path: &str) -> Result<(), FileError> {
        let bad = |option, found: String, expected: &str| {
            Err(FileError::BadOption { path: path.to_owned(), option, found, expected: expected.to_owned() })
        };
        if self.units == 0 || self.units > MAX_UNITS {
            return bad("units", self.units.to_string(), "1 to 4096");
        }
        if self.unit >= self.units {
            return bad("unit", self.unit.to_string(), &format!("a number below units, {}", self.units));
        }
        if self.chunk_bytes == 0 {
            return bad("chunk_bytes", "0".into(), "at least 1");
        }
        if self.program.len() > 256 {
            return bad("program", self.program.chars().take(40).collect(), "at most 256 bytes");
        }
        Ok(())
    }

    /// Refuses what only the chunks of a Zarr array have, where something else is written.
    ///
    /// # Errors
    /// [`FileError::BadOption`].
    pub fn check_unchunked(&self, path: &str) -> Result<(), FileError> {
        let refused = |option, found: String| {
            let expected = "none: only Zarr arrays, PATH.zarr, have chunks".into();
            Err(FileError::BadOption { path: path.to_owned(), option, found, expected })
        };
        match (self.compression, &self.chunks) {
            (Compression::None, None) => Ok(()),
            (Compression::None, Some(chunks)) => refused("chunks", format!("{chunks:?}")),
            (compression, _) => refused("compress", compression.to_string()),
        }
    }

    /// A format and what belongs to it, which must be the same in all units.
    fn format_text(&self, format: Format) -> String {
        match (format, &self.tensor) {
            // The header may be longer for it: then the data begin elsewhere.
            (Format::Npy, _) => self.descr.as_ref().map_or("npy".into(), |descr| {
                let text = descr.as_str();
                format!("npy of {} ({:x})", wire::cut(text, 80), wire::hash(text.as_bytes()))
            }),
            (Format::Raw, _) => "raw".into(),
            (Format::Safetensors, None) => "safetensors".into(),
            (Format::Safetensors, Some(tensor)) => format!("safetensors#{tensor}"),
            (Format::Zarr, _) => {
                let mut text = "zarr".to_owned();
                if self.chunk_bytes != CHUNK_BYTES {
                    text += &format!(", {} bytes a chunk", self.chunk_bytes);
                }
                if let Some(chunks) = &self.chunks {
                    text += &format!(", chunks of {chunks:?}");
                }
                if self.compression != Compression::None {
                    text += &format!(", {}", self.compression);
                }
                text
            }
        }
    }

    fn about(&self) -> About {
        About { attributes: self.attributes.clone(), dims: self.dims.clone(), compression: self.compression }
    }

    fn check_interrupt(&self, path: &str) -> Result<(), FileError> {
        match self.interrupt.as_ref().is_some_and(|ask| ask()) {
            true => Err(FileError::Interrupted { path: path.to_owned() }),
            false => Ok(()),
        }
    }

    /// The time for the next sleep of a wait that began at `start`; an error when none is left, or the caller wants to
    /// stop.
    fn patience(
        &self,
        path: &str,
        start: Duration,
        limit: Option<Duration>,
        what: &'static str,
    ) -> Result<Duration, FileError> {
        self.check_interrupt(path)?;
        let waited = clock::now().saturating_sub(start);
        match limit {
            Some(limit) if waited >= limit => Err(FileError::Timeout { path: path.to_owned(), what, waited }),
            Some(limit) => Ok(SLICE.min(limit - waited)),
            None => Ok(SLICE),
        }
    }
}

/// Counters of one port, from its opening on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Steps written or read.
    pub steps: u64,
    /// Always 0: a file has no queue. (Pipes drop steps.)
    pub dropped: u64,
    /// Bytes of this unit's part that were written or read.
    pub bytes: u64,
    /// Contiguous pieces of the file that were read or written, each by a call of its own.
    pub runs: u64,
    /// Time spent waiting for the other units.
    pub waited: Duration,
    /// Time spent moving bytes.
    pub copied: Duration,
    /// Time from the call of open to its return.
    pub opened: Duration,
}

/// Runs `f` and adds the time it took.
fn timed<T>(total: &mut Duration, f: impl FnOnce() -> T) -> T {
    let start = clock::now();
    let t = f();
    *total += clock::now().saturating_sub(start);
    t
}
