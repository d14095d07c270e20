//! The record layer of a connection that keeps order and loses nothing: one sequence of bytes each way, for
//! frames, for messages of the steps of a pipe, and for the bytes of those.
//!
//! Plain it goes as it is. Sealed it is cut into records wherever it suits the sender, each with its length
//! in two bytes in front: small things that are written together share a record, a long one takes several.
//! Nothing is copied that need not be: long bytes go [from where they lie](RecordWriter::send), plain ones to
//! where they belong, and sealed ones are [opened there](RecordReader::recv).

mod reader;
mod writer;

pub use reader::{Received, RecordReader};
pub use writer::{Piece, RecordWriter};

use crate::link::seal::RECORD;

/// What a buffer has at first: one that is filled is doubled, so that many connections that carry little take
/// little.
pub const SMALL: usize = 4 << 10;
/// Bytes of a sealed record on the way, at most.
pub const SEALED: usize = 2 + RECORD;
