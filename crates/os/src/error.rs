//! The one error of this crate.

use rustix::io::Errno;
use thiserror::Error;

pub use crate::segment::SegmentFault;

/// The result of everything fallible here.
pub type Result<T> = core::result::Result<T, OsError>;

/// The party that has to act on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The calling code asked for something that can never work.
    Caller,
    /// The other process misbehaved, or is gone.
    Peer,
    /// The system refused; the same call may work later or elsewhere.
    System,
}

/// What has to be rebuilt after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Only this call failed.
    Operation,
    /// The connection to (or the segment of) one peer is of no more use.
    Link,
    /// This process can take no more peers until something is freed.
    Endpoint,
}

/// Everything that can go wrong between this crate and the system.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OsError {
    /// A system call failed in a way that has no variant of its own.
    #[error("{op} {what}: {errno}")]
    System {
        /// The system call or the step.
        op: &'static str,
        /// What it was applied to.
        what: String,
        /// What the system answered.
        errno: Errno,
    },
    /// There is not enough memory; nothing was mapped.
    #[error("no memory for {what}: {asked_bytes} bytes asked{}", available(.available_bytes))]
    NoMemory {
        /// What the memory was for.
        what: String,
        /// Bytes asked for.
        asked_bytes: u64,
        /// Bytes that could be had, where known.
        available_bytes: Option<u64>,
    },
    /// The process or the system has no free file descriptor.
    #[error("out of file descriptors in {op} {what}: {}", all_taken(.limit))]
    OutOfDescriptors {
        /// The system call.
        op: &'static str,
        /// What it was applied to.
        what: String,
        /// How many this process may have, and has; `None`: the whole system has no more.
        limit: Option<u32>,
    },
    /// More descriptors of this user are on their way to other processes than the system lets be; it will do
    /// when some have arrived.
    #[error("too many descriptors are on their way to other processes: more than {} (`ulimit -n`)", number(.limit))]
    TooManyInFlight {
        /// How many may be, where that is known.
        limit: Option<u32>,
    },
    /// A range does not lie within what it indexes.
    #[error("range {start}..{end} of {what} is outside its {len} bytes")]
    OutOfRange {
        /// What was indexed.
        what: String,
        /// First byte asked for.
        start: usize,
        /// One past the last byte asked for.
        end: usize,
        /// Bytes there are.
        len: usize,
    },
    /// A range does not start and end at multiples of what the view needs.
    #[error("range {start}..{end} of {what} is not aligned to {align} bytes")]
    Misaligned {
        /// What was indexed.
        what: String,
        /// First byte asked for.
        start: usize,
        /// One past the last byte asked for.
        end: usize,
        /// The alignment needed.
        align: usize,
    },
    /// The same bytes were asked for as atomics and as plain memory.
    #[error(
        "range {start}..{end} of {what} mixes atomic and plain views: atomics end at {atomic_end}, plain \
        starts at {plain_start}"
    )]
    ViewConflict {
        /// What was indexed.
        what: String,
        /// First byte asked for.
        start: usize,
        /// One past the last byte asked for.
        end: usize,
        /// End of the part viewed as atomics.
        atomic_end: usize,
        /// Start of the part viewed as plain memory.
        plain_start: usize,
    },
    /// The mapping does not allow this access.
    #[error("{what} may not be {op}")]
    AccessDenied {
        /// The access asked for.
        op: &'static str,
        /// What was accessed.
        what: String,
    },
    /// A peer handed over a descriptor that cannot be trusted as shared memory.
    #[error("refused a shared segment: {0}")]
    BadSegment(#[from] SegmentFault),
    /// A name is empty, too long or has bytes that cannot be.
    #[error("bad name {name:?}: {reason}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Another socket listens at this name.
    #[error("{name:?} is already in use")]
    AddrInUse {
        /// The name.
        name: String,
    },
    /// Nobody listens at this name.
    #[error("nobody listens at {name:?}")]
    NotListening {
        /// The name.
        name: String,
    },
    /// The listener has too many connections waiting; try again.
    #[error("the listener at {name:?} is busy")]
    ListenerBusy {
        /// The name.
        name: String,
    },
    /// The other end of the connection is closed.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// A message is empty or longer than the limit.
    #[error("a message of {len} bytes is outside 1..={limit}")]
    MessageLength {
        /// Its length.
        len: usize,
        /// The longest allowed.
        limit: usize,
    },
    /// A message arrived that is longer than the buffer given.
    #[error("a message of more than {room} bytes arrived")]
    MessageTruncated {
        /// The length of the buffer.
        room: usize,
    },
    /// More descriptors were given than a message may carry.
    #[error("{given} descriptors in one message, at most {limit} allowed")]
    TooManyDescriptors {
        /// The number given.
        given: usize,
        /// The most allowed.
        limit: usize,
    },
    /// Some descriptors of a message did not arrive; the rest were closed.
    #[error(
        "descriptors were lost: {kept} arrived; the peer sent more than {limit} or this process has none \
        free"
    )]
    DescriptorsTruncated {
        /// How many had arrived.
        kept: usize,
        /// The most allowed.
        limit: usize,
    },
    /// The system does not allow reading the memory of this process.
    #[error("reading the memory of process {pid} is not permitted")]
    RemoteDenied {
        /// The process.
        pid: u32,
    },
    /// The process has exited.
    #[error("process {pid} is gone")]
    PeerGone {
        /// The process.
        pid: u32,
    },
    /// The process has no readable memory at this address.
    #[error("process {pid} has no readable memory at {addr:#x}")]
    BadAddress {
        /// The process.
        pid: u32,
        /// The first address that was not read.
        addr: u64,
    },
    /// A file of the system has a form that is not understood.
    #[error("{path:?} is not understood: {reason}")]
    NotUnderstood {
        /// The file.
        path: String,
        /// What was expected.
        reason: &'static str,
    },
}

fn number(limit: &Option<u32>) -> String {
    limit.map_or_else(|| "are allowed".to_owned(), |n| n.to_string())
}

fn all_taken(limit: &Option<u32>) -> String {
    match limit {
        Some(n) => format!("this process has all {n} that it may have (`ulimit -n` raises the limit)"),
        None => "the whole system has no more (fs.file-max)".to_owned(),
    }
}

fn available(bytes: &Option<u64>) -> String {
    bytes.map_or_else(String::new, |n| format!(", {n} available"))
}

impl OsError {
    /// The error of a system call, with the variants that every call shares.
    pub fn sys(op: &'static str, what: impl Into<String>, errno: Errno) -> Self {
        let what = what.into();
        match errno {
            Errno::MFILE | Errno::NFILE => {
                OsError::OutOfDescriptors { op, what, limit: crate::limits::descriptors_refused(errno) }
            }
            Errno::TOOMANYREFS => {
                OsError::TooManyInFlight { limit: crate::limits::descriptors_refused(Errno::MFILE) }
            }
            _ => OsError::System { op, what, errno },
        }
    }

    /// What the system answered, where this error is a system call's.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            OsError::System { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// The party that has to act.
    pub fn blame(&self) -> Blame {
        use OsError::*;
        match self {
            OutOfRange { .. } | Misaligned { .. } | ViewConflict { .. } | AccessDenied { .. } => {
                Blame::Caller
            }
            BadName { .. } | MessageLength { .. } | TooManyDescriptors { .. } => Blame::Caller,
            BadSegment(_) | PeerClosed | MessageTruncated { .. } | DescriptorsTruncated { .. } => Blame::Peer,
            PeerGone { .. } | BadAddress { .. } | NotListening { .. } | ListenerBusy { .. } => Blame::Peer,
            System { .. } | NoMemory { .. } | OutOfDescriptors { .. } | AddrInUse { .. } => Blame::System,
            RemoteDenied { .. } | NotUnderstood { .. } | TooManyInFlight { .. } => Blame::System,
        }
    }

    /// What has to be rebuilt.
    pub fn scope(&self) -> Scope {
        match self {
            OsError::BadSegment(_)
            | OsError::PeerClosed
            | OsError::PeerGone { .. }
            | OsError::MessageTruncated { .. }
            | OsError::DescriptorsTruncated { .. } => Scope::Link,
            OsError::OutOfDescriptors { .. } => Scope::Endpoint,
            _ => Scope::Operation,
        }
    }

    /// The peer is dead or has hung up, as against having done something wrong.
    pub fn is_peer_gone(&self) -> bool {
        matches!(self, OsError::PeerClosed | OsError::PeerGone { .. })
    }
}
