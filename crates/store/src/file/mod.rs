//! One standard file as a port of a parallel program.
//!
//! | module | idea |
//! |---|---|
//! | `shape` | what dataset a file holds, and how many steps of it |
//! | `runs` | an operation of a plan as windows of the file |
//! | `io` | bytes to and from the file: whole, reserved, in bounded pieces |
//! | `form` | what the file is to look like: its header and its length |
//! | `packed`, `held` | several arrays in a file, and what a unit has of each |
//! | `values` | what is said of a step, as a file keeps it |
//! | `beside` | what stays of a file in which one tensor is written |
//! | `name` | what a path means in the end, and the directory that it is in |
//! | `target` | the unnamed file that becomes the named one, and the directory likewise |
//! | `group` | what a Zarr array is written into: how its neighbours are written down, and metadata of all of them |
//! | `slabs`, `chunks` | the chunks of a Zarr array, written and read |
//! | `boxes`, `drafts` | chunks of any shape, and compressed ones: where a byte belongs, and how a chunk becomes a file |
//! | `wire`, `coordinator`, `member`, `link` | how the units of a writing program agree, and notice who is lost |
//! | `stretch` | a step in stretches, so that nobody has to hold all of it |
//! | `staged`, `together` | arrays of which units have short pieces, put together in memory, and by whom |
//! | `ahead` | the disk begins before a file is closed |
//! | `work`, `scatter` | a transfer from a file to memory, and a unit's part or a stretch to files |
//! | `reader`, `writer` | the two ports |
//! | `sized` | arrays that are read whose size changes |
//! | `several`, `set`, `arrays` | the two ports of several arrays; those in one file or a set of them |
//! | `index` | which array is in which file of a set |

mod ahead;
mod archive;
mod arrays;
mod beside;
mod boxes;
mod chunks;
mod coordinator;
mod drafts;
mod form;
pub(crate) mod found;
mod group;
mod held;
mod index;
mod io;
mod link;
mod member;
mod members;
mod name;
mod packed;
mod reader;
mod runs;
mod said;
mod scatter;
mod set;
pub(crate) mod several;
pub(crate) mod shape;
mod sized;
mod slabs;
pub(crate) mod source;
mod staged;
mod stretch;
mod target;
mod together;
mod tree;
pub mod values;
#[doc(hidden)]
pub mod wire;
mod work;
mod writer;

use crate::npy::Descr;
use crate::zarr::{About, Compression, Dims};
use crate::FileError;
use polyduct_message::hash::fnv1a;
use polyduct_os::clock;
use polyduct_port::{OnLoss, PortError, PortName, INTERRUPT_SLICE};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

pub use arrays::ArraysReader;
pub use found::{Found, FoundArray};
pub use index::is_index;
pub use reader::FileReader;
pub use set::ArraysWriter;
pub use several::{ArraysStepMut, WriteArrays};
pub use tree::is_group;
pub use writer::{FileWriter, StepMut};

/// The most bytes of a chunk, unless the caller says another number.
const CHUNK_BYTES: u64 = 32 << 20;
/// The most bytes of data of a file of a set, as Hugging Face's libraries have it.
const SHARD_BYTES: u64 = 5_000_000_000;
/// The same of one that is compressed, before that.
const COMPRESSED_CHUNK_BYTES: u64 = 2 << 20;

/// The form of a standard file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// NumPy's `.npy`: a header, then the elements.
    Npy,
    /// The elements and nothing else, in row-major order, little-endian.
    Raw,
    /// One tensor of a `.safetensors` file: [`Options::tensor`] names it.
    Safetensors,
    /// NumPy's `.npz`: an archive of `.npy` files, for several arrays.
    Npz,
    /// A Zarr array: a directory with its metadata and a file for each chunk. Written, it has the version of
    /// the group that it is in, or of the array that it replaces, and else 3.
    Zarr,
}

impl Format {
    /// The format that a path's ending names: `.npy`, `.npz`, `.raw`, `.safetensors` or `.zarr`.
    pub fn of_path(path: &std::path::Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "npy" => Some(Format::Npy),
            "npz" => Some(Format::Npz),
            "raw" => Some(Format::Raw),
            "safetensors" => Some(Format::Safetensors),
            "zarr" => Some(Format::Zarr),
            _ => None,
        }
    }
}

/// What the users of an array wrote down of it: a JSON object.
pub type Attributes = serde_json::Map<String, serde_json::Value>;

/// What is written down of one of several arrays besides its data, or of a group that they are in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    /// What its users wrote down: kept by groups of Zarr, and folders of stores.
    pub attributes: Attributes,
    /// What they call its dimensions, without that of the steps: kept there as well.
    pub dims: Option<Dims>,
    /// What NumPy takes its elements for, where they are bytes to polyduct: kept by `.npy` and `.npz` files, where all
    /// units must say the same, and by folders of stores.
    pub descr: Option<Descr>,
}

/// What a unit says when it opens its side of a file.
#[derive(Clone)]
pub struct Options {
    /// What it says whatever it opens.
    pub port: polyduct_port::Options,
    /// Name of the tensor in a safetensors file: the one that is read, where there are several, or the one
    /// that is written (`data` if `None`, and then the file's only one). The others of a file stay.
    pub tensor: Option<String>,
    /// The most bytes of a chunk of a Zarr array that is written (default 32 MiB): a few rows, or several
    /// short steps.
    pub chunk_bytes: u64,
    /// The sizes of a chunk of a Zarr array that is written, one for each dimension of a step, and before
    /// them, if there is one more, how many steps it holds (1 if that is not said). `None`: as `chunk_bytes`
    /// says, of at most 2 MiB where they are compressed.
    pub chunks: Option<Vec<u64>>,
    /// What the chunks of a Zarr array that is written are compressed with. All units say the same of this
    /// and of the two before.
    pub compression: Compression,
    /// The most bytes of data of a file of a set (default 5 GB, 10⁹ each), unless it has one array of more.
    pub shard_bytes: u64,
    /// What its users write down of an array that is written, where its form has a place for that: Zarr, and
    /// a store's new dataset. Unit 0's count.
    pub attributes: Attributes,
    /// What is written down of each of several arrays and of the groups that they are in, by its name; the empty name
    /// is that of the whole, of which groups of Zarr and safetensors files keep attributes. Unit 0's count; where data
    /// begin depends on it, in `.npy`, `.npz` and safetensors files, all units must say the same.
    pub notes: BTreeMap<String, Notes>,
    /// What they call its dimensions, that of the steps included, where its form has a place for that: Zarr.
    /// Unit 0's count.
    pub dims: Option<Dims>,
    /// What NumPy takes the elements of an array that is written for, where they are bytes to polyduct. Kept
    /// by `.npy` files, where all units must say the same, and by a store.
    pub descr: Option<Descr>,
    /// Whether the steps of an array that is written are its first dimension even where there is just one.
    /// Unit 0's counts.
    pub stepped: bool,
}

impl Default for Options {
    fn default() -> Options {
        polyduct_port::Options::default().into()
    }
}

impl From<polyduct_port::Options> for Options {
    fn from(port: polyduct_port::Options) -> Options {
        Options {
            port,
            tensor: None,
            chunk_bytes: CHUNK_BYTES,
            chunks: None,
            compression: Compression::None,
            shard_bytes: SHARD_BYTES,
            attributes: Attributes::new(),
            notes: BTreeMap::new(),
            dims: None,
            descr: None,
            stepped: false,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.port.fmt(f)
    }
}

impl Options {
    /// Of unit `unit` of `units`; all else as usual.
    pub fn of(unit: u32, units: u32) -> Options {
        polyduct_port::Options { unit, units, ..Default::default() }.into()
    }

    /// Checks what has the same limits whatever is opened. What only a pipe has a use for must make sense all
    /// the same.
    ///
    /// # Errors
    /// [`PortError::BadOption`], of the port that `of` names.
    pub fn check(&self, of: impl Fn() -> PortName) -> Result<(), PortError> {
        self.port.check().map_err(|e| e.of(of()))?;
        let bad = |option, found: &str, expected: &'static str| {
            let (found, expected) = (found.to_owned(), expected.into());
            Err(PortError::BadOption { port: Some(of()), option, found, expected })
        };
        if self.port.on_loss == OnLoss::Wait {
            let expected = "raise: a lost unit of a file cannot be replaced; start the program again";
            return bad("on_loss", "wait", expected);
        }
        if self.chunk_bytes == 0 {
            return bad("chunk_bytes", "0", "at least 1");
        }
        Ok(())
    }

    /// Refuses what only the chunks of a Zarr array have, where something else is written.
    ///
    /// # Errors
    /// [`PortError::BadOption`].
    pub fn check_unchunked(&self, path: &str) -> Result<(), FileError> {
        let refused = |option, found: String| {
            let expected = "none: only Zarr arrays, PATH.zarr, have chunks".into();
            let port = Some(PortName::File(path.to_owned()));
            Err(FileError::Port(PortError::BadOption { port, option, found, expected }))
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
                format!("npy of {} ({:x})", wire::cut(text, 80), fnv1a(text.bytes()))
            }),
            (Format::Raw, _) => "raw".into(),
            (Format::Npz, _) => "npz".into(),
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

    /// The same of an array of a group.
    fn about_of(&self, name: &str) -> About {
        let Notes { attributes, dims, .. } = self.notes.get(name).cloned().unwrap_or_default();
        About { attributes, dims, compression: self.compression }
    }

    /// The attributes of a group, or of the whole.
    fn attributes_of(&self, group: &str) -> Attributes {
        self.notes.get(group).map(|notes| notes.attributes.clone()).unwrap_or_default()
    }

    /// What NumPy takes the elements of one of several arrays for, where they are as long as that says.
    pub(crate) fn descr_of(&self, array: &polyduct_port::Array) -> Option<&Descr> {
        let descr = self.notes.get(&array.name)?.descr.as_ref()?;
        (descr.elem() == Some(array.dataset.elem())).then_some(descr)
    }

    fn check_interrupt(&self, path: &str) -> Result<(), FileError> {
        match self.port.is_interrupted() {
            true => Err(FileError::Port(PortError::Interrupted {
                port: PortName::File(path.to_owned()),
                unit: None,
            })),
            false => Ok(()),
        }
    }

    /// The time for the next sleep of a wait that began at `start`; an error when none is left, or the caller
    /// wants to stop.
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
            Some(limit) if waited >= limit => Err(FileError::Port(PortError::Timeout {
                port: PortName::File(path.to_owned()),
                unit: None,
                what: what.into(),
                waited,
            })),
            Some(limit) => Ok(INTERRUPT_SLICE.min(limit - waited)),
            None => Ok(INTERRUPT_SLICE),
        }
    }
}

/// Runs `f` and adds the time it took.
fn timed<T>(total: &mut Duration, f: impl FnOnce() -> T) -> T {
    let start = clock::now();
    let t = f();
    *total += clock::now().saturating_sub(start);
    t
}
