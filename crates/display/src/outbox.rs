//! What waits to be written to one connection. Arrays are written from where they lie.

use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};

/// Pieces that one call writes at most.
const GATHER: usize = 16;
/// Bytes that one connection gets before the others have their turn.
const TURN_BYTES: usize = 8 << 20;

/// What a piece is the end of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Nothing,
    Text,
    Frame,
}

/// A queue of pieces. How long it is others bound, by what it tells of itself.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<(Bytes, End)>,
    /// Bytes of the first piece that are written.
    written: usize,
    texts: usize,
    frames: usize,
    text_bytes: usize,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Texts that are not wholly written.
    pub(crate) fn texts(&self) -> usize {
        self.texts
    }

    /// Bytes of these.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Frames that are not wholly written.
    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    /// A small message, as it goes out.
    pub(crate) fn push_text(&mut self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        if !bytes.is_empty() {
            self.texts += 1;
            self.text_bytes += bytes.len();
            self.queue.push_back((bytes, End::Text));
        }
    }

    /// A large message in pieces.
    pub(crate) fn push_frame(&mut self, pieces: impl IntoIterator<Item = Bytes>) {
        let before = self.queue.len();
        self.queue.extend(pieces.into_iter().filter(|p| !p.is_empty()).map(|p| (p, End::Nothing)));
        if self.queue.len() > before {
            self.frames += 1;
            self.queue.back_mut().into_iter().for_each(|last| last.1 = End::Frame);
        }
    }

    /// Writes what the other side takes; returns how much, and how much of it was frames. That it takes no
    /// more now is no error.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn write_to(&mut self, to: &mut impl Write) -> io::Result<Written> {
        let mut all = Written::default();
        while !self.queue.is_empty() && all.bytes < TURN_BYTES {
            let mut slices = [IoSlice::new(&[]); GATHER];
            let mut count = 0;
            for (slice, (piece, _)) in slices.iter_mut().zip(&self.queue) {
                let start = if count == 0 { self.written } else { 0 };
                *slice = IoSlice::new(&piece[start..]);
                count += 1;
            }
            match to.write_vectored(&slices[..count]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => {
                    all.bytes += n;
                    all.frame_bytes += if self.frames > 0 { n } else { 0 };
                    self.advance(n);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(all)
    }

    fn advance(&mut self, mut n: usize) {
        while let Some((piece, end)) = self.queue.front() {
            let left = piece.len() - self.written;
            if n < left {
                self.written += n;
                return;
            }
            n -= left;
            self.written = 0;
            match end {
                End::Nothing => {}
                End::Text => {
                    self.texts -= 1;
                    self.text_bytes -= piece.len();
                }
                End::Frame => self.frames -= 1,
            }
            self.queue.pop_front();
        }
    }
}

/// What one turn wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// All of it.
    pub(crate) bytes: usize,
    /// What was written while frames were waiting.
    pub(crate) frame_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes so many bytes at each call, and then none.
    struct Reluctant(Vec<usize>, Vec<u8>);

    impl Write for Reluctant {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = self.0.pop().filter(|n| *n > 0).ok_or(ErrorKind::WouldBlock)?.min(bytes.len());
            self.1.extend(&bytes[..n]);
            Ok(n)
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            self.write(&slices.iter().flat_map(|s| s.iter().copied()).collect::<Vec<_>>())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn everything_arrives_in_order_however_little_is_taken(
            messages in
                prop::collection::vec((any::<bool>(), prop::collection::vec(0usize..40, 0..30)), 0..8),
            takes in prop::collection::vec(0usize..60, 0..40),
        ) {
            let (mut outbox, mut expected, mut next) = (Outbox::default(), Vec::new(), 0u8);
            let (mut texts, mut frames) = (0, 0);
            for (is_frame, pieces) in messages {
                let pieces: Vec<Bytes> = pieces.into_iter().map(|len| {
                    next = next.wrapping_add(1);
                    Bytes::from(vec![next; len])
                }).collect();
                let all = pieces.concat();
                expected.extend(&all);
                if is_frame {
                    frames += usize::from(!all.is_empty());
                    outbox.push_frame(pieces);
                } else {
                    texts += usize::from(!all.is_empty());
                    outbox.push_text(all);
                }
            }
            prop_assert_eq!((outbox.texts(), outbox.frames()), (texts, frames));
            let mut to = Reluctant(takes, Vec::new());
            let mut total = 0;
            while !outbox.is_empty() {
                if to.0.is_empty() {
                    to.0.push(usize::MAX);
                }
                total += outbox.write_to(&mut to).unwrap().bytes;
                prop_assert!(expected.starts_with(&to.1) && total == to.1.len());
            }
            prop_assert_eq!(&to.1, &expected);
            prop_assert_eq!((outbox.texts(), outbox.frames(), outbox.text_bytes()), (0, 0, 0));
        }
    }
}
