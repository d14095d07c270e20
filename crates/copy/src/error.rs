//! Why a copy was refused.

/// A copy that was refused.
///
/// The first four are the caller's misuse and found before a byte moves; [`Malformed`](CopyError::Malformed)
/// is a bug of whoever made the table. The scope is always the one operation: nothing has to be rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The source is shorter than the table reaches.
    #[error("the source holds {have_bytes} bytes, the table reads up to {need_bytes}")]
    SourceTooShort {
        /// One past the last byte that the table reads.
        need_bytes: u128,
        /// Bytes that the source has.
        have_bytes: usize,
    },
    /// The destination is shorter than the table reaches.
    #[error("the destination holds {have_bytes} bytes, the table writes up to {need_bytes}")]
    DestTooShort {
        /// One past the last byte that the table writes.
        need_bytes: u128,
        /// Bytes that the destination has.
        have_bytes: usize,
    },
    /// Source and destination share memory.
    #[error("the source and the destination overlap")]
    Overlap,
    /// The table's elements are not what the conversion reads.
    #[error(
        "the table counts elements of {table_bytes} bytes, the conversion reads elements of \
        {conversion_bytes}"
    )]
    ElementSize {
        /// Bytes of one element of the table.
        table_bytes: u64,
        /// Bytes of one element that the conversion reads.
        conversion_bytes: u64,
    },
    /// The part does not exist.
    #[error("part {part} of {parts}")]
    NoSuchPart {
        /// The part asked for, from 0.
        part: usize,
        /// How many there are.
        parts: usize,
    },
    /// An operation breaks the invariants of its table; operations before it may have been carried out.
    #[error("operation {op} of the table reaches outside of it")]
    Malformed {
        /// Index of the operation.
        op: usize,
    },
}
