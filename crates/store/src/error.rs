//! Everything that can go wrong with a file as a port, sorted by who is at fault.

use crate::npy::NpyError;
use crate::safetensors::SafetensorsError;
use crate::zarr::ZarrError;
use polyduct_copy::CopyError;
use polyduct_layout::{ElemType, LayoutError};
use polyduct_os::{socket::whose, Errno, OsError};
use std::time::Duration;

/// How far an error reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This call did nothing that counts; the port is as it was.
    Operation,
    /// The port is of no further use and should be closed. A file that was being written does not appear.
    Port,
}

/// Who has to act on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The caller asked for something that cannot work.
    Caller,
    /// Another unit of the program, or whoever claimed to be one.
    Peer,
    /// The system refused, or time ran out.
    System,
    /// The file does not hold what it must.
    File,
}

/// What can go wrong with a file that is a port. `path` is the file as the caller named it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    // -- the caller's misuse --
    /// A layout does not parse, or does not fit the dataset and the units.
    #[error("{path}: {source}")]
    Layout {
        /// The file.
        path: String,
        /// What is wrong.
        source: LayoutError,
    },
    /// An option has a value that it cannot have.
    #[error("{path}: {option} is {found}; expected {expected}")]
    BadOption {
        /// The file.
        path: String,
        /// The option's name.
        option: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        expected: String,
    },
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
    /// An array of the wrong size was given to a write or a read.
    #[error("{path}: the array has {found} bytes; unit {unit}'s part has {expected}")]
    WrongSize {
        /// The file.
        path: String,
        /// This unit.
        unit: u32,
        /// Bytes of the unit's part.
        expected: u64,
        /// Bytes given.
        found: u64,
    },
    /// The port was closed before.
    #[error("{path}: the port is closed")]
    Closed {
        /// The file.
        path: String,
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
    /// A unit's process ended before the file was complete.
    #[error("{path}: unit {unit} (pid {pid}) died; the file was not written")]
    PeerLost {
        /// The file.
        path: String,
        /// The unit that was lost.
        unit: u32,
        /// Its process.
        pid: u32,
    },
    /// A unit gave up before the file was complete.
    #[error("{path}: unit {unit} gave up{}; the file was not written", because(reason))]
    PeerAborted {
        /// The file.
        path: String,
        /// The unit that gave up.
        unit: u32,
        /// Why, in its words; empty if it did not say.
        reason: String,
    },
    /// The units of a program closed after different numbers of steps.
    #[error("{path}: unit {unit} closed after {steps} steps, unit {other} after {other_steps}; the file was not written")]
    UnevenSteps {
        /// The file.
        path: String,
        /// A unit.
        unit: u32,
        /// Its steps.
        steps: u64,
        /// Another unit.
        other: u32,
        /// Its steps.
        other_steps: u64,
    },
    /// Units of one program disagree.
    #[error("{path}: unit {unit} says {what} {found}; unit 0 of the same program says {expected}")]
    Disagree {
        /// The file.
        path: String,
        /// The unit that disagrees with unit 0.
        unit: u32,
        /// What they disagree on.
        what: String,
        /// What unit 0 said.
        expected: String,
        /// What this unit said.
        found: String,
    },
    /// The unit has joined before and is still there.
    #[error("{path}: unit {unit} is already there (pid {pid})")]
    Duplicate {
        /// The file.
        path: String,
        /// The unit.
        unit: u32,
        /// The process that has its place.
        pid: u32,
    },
    /// Not all units of the program came in time.
    #[error("{path}: units {missing} did not come within {waited:.1?}")]
    Missing {
        /// The file.
        path: String,
        /// Which, in words.
        missing: String,
        /// How long unit 0 waited.
        waited: Duration,
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
    /// A unit broke the protocol.
    #[error("{path}: unit {unit} broke the protocol: {what}")]
    BadPeer {
        /// The file.
        path: String,
        /// The unit.
        unit: u32,
        /// What was found.
        what: String,
    },

    // -- time and the system --
    /// A wait came to its deadline.
    #[error("{path}: timed out after {waited:.1?} waiting for {what}")]
    Timeout {
        /// The file.
        path: String,
        /// What was waited for.
        what: &'static str,
        /// How long.
        waited: Duration,
    },
    /// The caller asked blocking calls to stop (Ctrl-C).
    #[error("{path}: interrupted")]
    Interrupted {
        /// The file.
        path: String,
    },
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
    #[error("{path}: the system gives no memory for {bytes} bytes, this unit's part of a step; divide the array between more units")]
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
        None => "which of its tensors? name one, PATH.safetensors#NAME".into(),
    }
}

fn because(reason: &str) -> String {
    match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    }
}

impl FileError {
    /// How far the error reaches.
    pub fn scope(&self) -> Scope {
        match self {
            FileError::WrongSize { .. } | FileError::Timeout { .. } => Scope::Operation,
            FileError::Interrupted { .. } | FileError::NoMemory { .. } => Scope::Operation,
            _ => Scope::Port,
        }
    }

    /// Who has to act.
    pub fn blame(&self) -> Blame {
        use FileError::*;
        match self {
            Layout { .. } | BadOption { .. } | BadPath { .. } | NeedsDataset { .. } | ShapeDiffers { .. } => {
                Blame::Caller
            }
            NoForm { .. } | NoTensor { .. } => Blame::Caller,
            ElemDiffers { .. } | WrongSize { .. } | Closed { .. } | Busy { .. } | Plan { .. } => {
                Blame::Caller
            }
            PeerLost { .. } | PeerAborted { .. } | UnevenSteps { .. } | Disagree { .. } => Blame::Peer,
            Duplicate { .. } | Missing { .. } | Stranger { .. } | BadPeer { .. } => Blame::Peer,
            Timeout { .. } | Interrupted { .. } | NoSpace { .. } | NoMemory { .. } => Blame::System,
            System { .. } | Os { .. } => Blame::System,
            BadHeader { .. } | BadSafetensors { .. } | BadZarr { .. } => Blame::File,
            Truncated { .. } | BadLength { .. } => Blame::File,
        }
    }

    /// The unit that is named as lost, gone or at fault, if one is.
    pub fn unit(&self) -> Option<u32> {
        use FileError::*;
        match self {
            PeerLost { unit, .. } | PeerAborted { unit, .. } | UnevenSteps { unit, .. } => Some(*unit),
            Disagree { unit, .. } | Duplicate { unit, .. } | BadPeer { unit, .. } => Some(*unit),
            _ => None,
        }
    }

    /// Another program writes the file, and `program` is turned away.
    pub(crate) fn busy(path: &str, program: &str) -> FileError {
        let hint = match polyduct_os::process::is_unnamed(program) {
            true => "; if these are units of one program, started by hand in several shells, give all of them the same program= or POLYDUCT_PROGRAM",
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
        move |source| FileError::Layout { path: path.to_owned(), source }
    }
}
