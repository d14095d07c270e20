//! Everything that can go wrong with a file as a port, sorted by who is at fault.

use crate::disk::StoreError;
use crate::npy::NpyError;
use crate::safetensors::SafetensorsError;
use crate::zarr::ZarrError;
use polyduct_copy::CopyError;
use polyduct_layout::{ElemType, LayoutError};
use polyduct_message::meeting::JoinRefusal;
use polyduct_os::{socket::whose, Errno, OsError};
use polyduct_port::{PortError, PortName, Scope};

/// What can go wrong with a file that is a port. `path` is the file as the caller named it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// What can go wrong with any port.
    #[error(transparent)]
    Port(#[from] PortError),

    // -- the caller's misuse --
    /// A path that does not name a file that can be read or written.
    #[error("{path}: {problem}")]
    BadPath {
        /// The path.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A file of plain bytes does not say what they are.
    #[error("{path}: a raw file does not say what it holds: give its shape and dtype")]
    NeedsDataset {
        /// The file.
        path: String,
    },
    /// The file holds an array of another shape than was expected.
    #[error(
        "{path}: expected shape {expected:?}, alone or behind one dimension of steps; the file has {found:?}"
    )]
    ShapeDiffers {
        /// The file.
        path: String,
        /// What the caller expects.
        expected: Vec<u64>,
        /// What the file's header says.
        found: Vec<u64>,
    },
    /// The file holds elements of another type, and a conversion was not asked for or does not exist.
    #[error("{path}: expected elements {expected}, the file has {found}; {hint}")]
    ElemDiffers {
        /// The file.
        path: String,
        /// What the caller expects.
        expected: ElemType,
        /// What the file has.
        found: ElemType,
        /// What can be done.
        hint: &'static str,
    },
    /// A format has no name for elements of this type.
    #[error("{path}: {format} has no elements of type {elem}")]
    NoForm {
        /// The file.
        path: String,
        /// The format.
        format: &'static str,
        /// The element type.
        elem: ElemType,
    },
    /// The file has no such tensor, or several and none was chosen.
    #[error("{path}: {}; it has {names}", no_tensor(asked.as_deref()))]
    NoTensor {
        /// The file.
        path: String,
        /// The name that was asked for, if one was.
        asked: Option<String>,
        /// The names that there are, 20 at most.
        names: String,
    },
    /// Another program of this user is writing the same file.
    #[error("{path}: another program of this user is writing it{hint}")]
    Busy {
        /// The file.
        path: String,
        /// What can be done, if the name of the refused program tells.
        hint: &'static str,
    },

    // -- the peers --
    /// The units of the program do not meet.
    #[error("{path}: {reason}")]
    Refused {
        /// The file.
        path: String,
        /// Why.
        reason: Box<JoinRefusal>,
    },
    /// The process that claims to be unit 0 belongs to another user.
    #[error("{path}: the process that claims to be unit 0 {}", whose(*found, *expected))]
    Stranger {
        /// The file.
        path: String,
        /// This user.
        expected: u32,
        /// The other's user.
        found: u32,
    },

    // -- time and the system --
    /// There is no room for the file; what had its name before is unchanged.
    #[error("{path}: no space: {needed} bytes more are needed, {available} are free")]
    NoSpace {
        /// The file.
        path: String,
        /// Bytes that the step needs.
        needed: u64,
        /// Bytes that this user may still write there.
        available: u64,
    },
    /// There is no memory for so many bytes at once.
    #[error(
        "{path}: the system gives no memory for {bytes} bytes, this unit's part of a step; divide the \
        array between more units"
    )]
    NoMemory {
        /// The file.
        path: String,
        /// Bytes that are needed.
        bytes: u64,
    },
    /// The system refused something.
    #[error("{path}: {op}: {errno}")]
    System {
        /// The file.
        path: String,
        /// What it refused.
        op: String,
        /// Its answer.
        errno: Errno,
    },
    /// The system refused something that is not one call on the file.
    #[error("{path}: {source}")]
    Os {
        /// The file.
        path: String,
        /// What it refused.
        source: OsError,
    },

    // -- the file --
    /// The header of a .npy file is not understood.
    #[error("{path}: not a .npy file that can be read: {source}")]
    BadHeader {
        /// The file.
        path: String,
        /// What is wrong.
        source: NpyError,
    },
    /// The header of a .safetensors file is not understood.
    #[error("{path}: not a .safetensors file that can be read: {source}")]
    BadSafetensors {
        /// The file.
        path: String,
        /// What is wrong.
        source: SafetensorsError,
    },
    /// An archive of arrays is not understood, or one of its members.
    #[error("{path}: not an archive that can be read: {problem}")]
    BadArchive {
        /// The file.
        path: String,
        /// What is wrong, and with which member.
        problem: String,
    },
    /// A Zarr array is not understood, or one of its chunks.
    #[error("{path}: not a Zarr array that can be read: {source}")]
    BadZarr {
        /// The array's directory.
        path: String,
        /// What is wrong.
        source: ZarrError,
    },
    /// The file is shorter than its header, or the length at opening, says.
    #[error("{path}: truncated: expected {expected} bytes, found {found}")]
    Truncated {
        /// The file.
        path: String,
        /// Bytes that there should be.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// A raw file whose length is not a whole number of steps.
    #[error("{path}: {found} bytes are no whole number of steps of {step} bytes")]
    BadLength {
        /// The file.
        path: String,
        /// Bytes of the file.
        found: u64,
        /// Bytes of one step.
        step: u64,
    },
    /// What only stores meet, of arrays that lie in one.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// A plan does not fit the memory it is for: a defect of polyduct.
    #[error("{path}: a plan does not fit: {source}")]
    Plan {
        /// The file.
        path: String,
        /// What does not fit.
        source: CopyError,
    },
}

fn no_tensor(asked: Option<&str>) -> String {
    match asked {
        Some(name) => format!("no tensor {name:?}"),
        None => "which of its arrays? name one, PATH#NAME".into(),
    }
}

impl From<StoreError> for FileError {
    fn from(e: StoreError) -> FileError {
        match e {
            StoreError::Port(e) => FileError::Port(e),
            e => FileError::Store(Box::new(e)),
        }
    }
}

impl FileError {
    /// How far the error reaches.
    pub fn scope(&self) -> Scope {
        match self {
            FileError::Port(e) => e.scope(),
            FileError::NoMemory { .. } => Scope::Operation,
            _ => Scope::Port,
        }
    }

    /// Another program writes the file, and `program` is turned away.
    pub(crate) fn busy(path: &str, program: &str) -> FileError {
        let hint = match polyduct_os::process::is_unnamed(program) {
            true => {
                "; if these are units of one program, started by hand in several shells, give all of \
                them the same program= or POLYDUCT_PROGRAM"
            }
            false => "",
        };
        FileError::Busy { path: path.to_owned(), hint }
    }

    /// A refusal by the system of something done to `path`.
    pub(crate) fn io(path: &str, op: &str, error: &std::io::Error) -> FileError {
        FileError::sys(path, op, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    pub(crate) fn sys(path: &str, op: &str, errno: Errno) -> FileError {
        FileError::System { path: path.to_owned(), op: op.to_owned(), errno }
    }

    pub(crate) fn os(path: &str) -> impl Fn(OsError) -> FileError + '_ {
        move |source| FileError::Os { path: path.to_owned(), source }
    }

    pub(crate) fn layout(path: &str) -> impl Fn(LayoutError) -> FileError + '_ {
        move |source| PortError::Layout { port: PortName::File(path.to_owned()), source }.into()
    }
}
