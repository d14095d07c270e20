//! Buffers for payloads that are used again: the first touch of fresh memory costs more than a network link
//! takes.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers within a limit, for the payloads of received messages.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    /// Bytes of buffers given out.
    out: usize,
    free: Vec<Vec<u8>>,
    free_bytes: usize,
}

/// Bytes of the smallest buffer.
const LEAST: usize = 4 << 10;

impl Pool {
    /// Gives out at most `limit` bytes at a time, and keeps at most as many for later.
    pub fn new(limit: usize) -> Pool {
        Pool(Arc::new(Mutex::new(Inner { limit, out: 0, free: Vec::new(), free_bytes: 0 })))
    }

    /// A buffer of `len` bytes, with old content; `None` where the limit does not allow it now. One that is
    /// longer than the whole limit is given where nothing else is out, so that every message can come.
    pub fn take(&self, len: usize) -> Option<Buffer> {
        let capacity = len.max(LEAST).checked_next_power_of_two()?;
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.out > 0 && inner.out + capacity > inner.limit {
            return None;
        }
        inner.out += capacity;
        let found = inner.free.iter().rposition(|b| b.len() == capacity);
        let bytes = match found {
            Some(at) => {
                inner.free_bytes -= capacity;
                inner.free.swap_remove(at)
            }
            None => vec![0; capacity],
        };
        Some(Buffer { bytes, len, pool: self.clone() })
    }
}

/// Bytes from a [`Pool`]; they go back to it when dropped.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    len: usize,
    pool: Pool,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut inner = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.out -= bytes.len();
        if inner.free_bytes + bytes.len() <= inner.limit {
            inner.free_bytes += bytes.len();
            inner.free.push(bytes);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}
