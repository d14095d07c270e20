//! Memory for requests that go past the system's cache, which need it aligned.

/// What the memory is aligned to, in bytes: no disk has larger sectors.
pub const ALIGN: usize = 4096;

/// Bytes that begin at a multiple of [`ALIGN`]. They stay where they are when the value moves.
///
/// ```
/// use polyduct_os::aligned::{Aligned, ALIGN};
///
/// let mut bytes = Aligned::default();
/// bytes.resize(10_000);
/// assert_eq!((bytes.as_slice().len(), bytes.as_slice().as_ptr().addr() % ALIGN), (10_000, 0));
/// ```
#[derive(Debug, Default)]
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Makes it so long, in bytes. What it has then is any of what it had, or zeros.
    pub fn resize(&mut self, len: usize) {
        if self.bytes.len() < len + ALIGN {
            self.bytes = vec![0; len + ALIGN];
            self.start = self.bytes.as_ptr().addr().wrapping_neg() % ALIGN;
        }
        self.len = len;
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
