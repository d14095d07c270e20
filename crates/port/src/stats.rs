//! Counters.

use std::time::Duration;

/// Counters of one port, from its opening on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Steps written or read.
    pub steps: u64,
    /// Steps that a lossy queue dropped: of a writer, those that the queue did not take; of a reader, those
    /// between the steps that it read. A file has no queue.
    pub dropped: u64,
    /// Bytes of this unit's part that were written or read.
    pub bytes: u64,
    /// Contiguous runs that they came in (readers of pipes), or pieces of a file, each with a call of its
    /// own.
    pub runs: u64,
    /// Time spent waiting for the other side, or for the other units of the program that has a file.
    pub waited: Duration,
    /// Time spent moving bytes; through pipes, of parts of 16 KiB and more.
    pub copied: Duration,
    /// Time from the call of open to its return.
    pub opened: Duration,
}
