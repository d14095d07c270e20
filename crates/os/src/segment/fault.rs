//! Faults of a segment that a peer handed over.

use thiserror::Error;

/// Why a descriptor that a peer handed over is not taken as a segment.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SegmentFault {
    /// Not memory made by `memfd_create` with ordinary pages.
    #[error("it is not an ordinary memfd")]
    NotMemfd,
    /// Its length could still change beneath the mapping.
    #[error("its size is not sealed (seals {found:#x}, needed {needed:#x})")]
    Unsealed {
        /// The seals that must be set.
        needed: u32,
        /// The seals that are set.
        found: u32,
    },
    /// Shorter than the protocol needs.
    #[error("it has {found_bytes} bytes, at least {min_bytes} were expected")]
    TooShort {
        /// The smallest acceptable length.
        min_bytes: usize,
        /// The length of the file.
        found_bytes: u64,
    },
    /// Longer than the caller is ready to map.
    #[error("it has {found_bytes} bytes, at most {max_bytes} were expected")]
    TooLong {
        /// The largest acceptable length.
        max_bytes: usize,
        /// The length of the file.
        found_bytes: u64,
    },
    /// Its pages were not reserved, so that touching them could fail with SIGBUS.
    #[error("only {reserved_bytes} of its {len_bytes} bytes are reserved")]
    NotReserved {
        /// Bytes that the kernel holds for it.
        reserved_bytes: u64,
        /// The length of the file.
        len_bytes: u64,
    },
}
