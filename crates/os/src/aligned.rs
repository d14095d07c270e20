//! Memory for requests that go past the system's cache, which need it aligned.

use crate::error::{OsError, Result};

/// So many zeros, for something.
///
/// # Errors
/// [`OsError::NoMemory`].
pub fn zeros(len: usize, what: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let none = |_| OsError::NoMemory { what: what.into(), asked_bytes: len as u64, available_bytes: None };
    bytes.try_reserve_exact(len).map_err(none)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// What the memory is aligned to, in bytes: no disk has larger sectors.
pub const ALIGN: usize = 4096;

/// Bytes that begin at a multiple of [`ALIGN`]. They stay where they are when the value moves.
///
/// ```
/// use polyduct_os::aligned::{Aligned, ALIGN};
///
/// let mut bytes = Aligned::default();
/// bytes.resize(10_000)?;
/// assert_eq!((bytes.as_slice().len(), bytes.as_slice().as_ptr().addr() % ALIGN), (10_000, 0));
/// # Ok::<(), polyduct_os::OsError>(())
/// ```
#[derive(Debug, Default)]
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Makes it so long, in bytes. What it has then is any of what it had, or zeros.
    ///
    /// # Errors
    /// [`OsError::NoMemory`]; then it has none.
    pub fn resize(&mut self, len: usize) -> Result<()> {
        if self.bytes.len() < len.saturating_add(ALIGN) {
            *self = Aligned::default();
            self.bytes = zeros(len.saturating_add(ALIGN), "requests that go past the system's cache")?;
            self.start = self.bytes.as_ptr().addr().wrapping_neg() % ALIGN;
        }
        self.len = len;
        Ok(())
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
