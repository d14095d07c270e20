//! Memory that rows are written from and read into.

use polyduct_copy::{Dest, Source};
use std::ops::Range;
use std::sync::atomic::AtomicU8;

/// Memory of this process alone, or memory that others may write at the same time.
#[derive(Clone, Copy, Debug)]
pub enum Bytes<'a> {
    /// This process's.
    Own(&'a [u8]),
    /// Shared.
    Shared(&'a [AtomicU8]),
}

/// The same, to be written.
#[derive(Debug)]
pub enum BytesMut<'a> {
    /// This process's.
    Own(&'a mut [u8]),
    /// Shared.
    Shared(&'a [AtomicU8]),
}

impl<'a> Bytes<'a> {
    /// How many they are.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(self) -> usize {
        match self {
            Bytes::Own(bytes) => bytes.len(),
            Bytes::Shared(bytes) => bytes.len(),
        }
    }

    /// Some of them: those that there are.
    pub fn part(self, range: Range<usize>) -> Bytes<'a> {
        let end = range.end.min(self.len());
        let range = range.start.min(end)..end;
        match self {
            Bytes::Own(bytes) => Bytes::Own(&bytes[range]),
            Bytes::Shared(bytes) => Bytes::Shared(&bytes[range]),
        }
    }

    /// For a copy.
    pub fn source(self) -> Source<'a> {
        match self {
            Bytes::Own(bytes) => bytes.into(),
            Bytes::Shared(bytes) => bytes.into(),
        }
    }
}

impl BytesMut<'_> {
    /// How many they are.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            BytesMut::Own(bytes) => bytes.len(),
            BytesMut::Shared(bytes) => bytes.len(),
        }
    }

    /// Some of them: those that there are.
    pub fn part(&mut self, range: Range<usize>) -> BytesMut<'_> {
        let end = range.end.min(self.len());
        let range = range.start.min(end)..end;
        match self {
            BytesMut::Own(bytes) => BytesMut::Own(&mut bytes[range]),
            BytesMut::Shared(bytes) => BytesMut::Shared(&bytes[range]),
        }
    }

    /// For a copy.
    pub fn dest(&mut self) -> Dest<'_> {
        match self {
            BytesMut::Own(bytes) => (&mut **bytes).into(),
            BytesMut::Shared(bytes) => (&**bytes).into(),
        }
    }
}
