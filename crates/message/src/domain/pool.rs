//! Buffers for messages that come in pieces. First touch of fresh memory is slow, so they are used again.

use std::sync::Mutex;

use super::peer::lock;

/// Buffers kept, at most.
const KEPT: usize = 16;
/// Bytes kept in all, at most.
const KEPT_BYTES: usize = 256 << 20;

/// The buffers of a domain.
#[derive(Debug, Default)]
pub struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    /// A buffer of exactly `len` bytes; its content is undefined. `None` where the system has not so much.
    pub fn take(&self, len: usize) -> Option<Vec<u8>> {
        let mut free = lock(&self.free);
        // The smallest that is large enough, and not so large that it would be missed elsewhere.
        let fits = |b: &Vec<u8>| b.capacity() >= len && b.capacity() / 4 <= len.max(4096);
        let best = (0..free.len()).filter(|&i| fits(&free[i])).min_by_key(|&i| free[i].capacity());
        let mut buffer = best.map(|i| free.swap_remove(i)).unwrap_or_default();
        drop(free);
        if buffer.capacity() < len {
            // Zeroed memory comes untouched from the system, but where there is none the process would be
            // ended: a peer says how long its message is.
            return Vec::<u8>::new().try_reserve_exact(len).is_ok().then(|| vec![0; len]);
        }
        buffer.resize(len, 0);
        Some(buffer)
    }

    /// Takes back a buffer.
    pub fn give_back(&self, buffer: Vec<u8>) {
        let mut free = lock(&self.free);
        let held: usize = free.iter().map(Vec::capacity).sum();
        if buffer.capacity() >= 4096 && free.len() < KEPT && held + buffer.capacity() <= KEPT_BYTES {
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back() {
        let pool = Pool::default();
        assert_eq!(pool.take(isize::MAX as usize), None);
        let first = pool.take(100_000).unwrap();
        let at = first.as_ptr();
        pool.give_back(first);
        let again = pool.take(90_000).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (at, 90_000));
        pool.give_back(again);
        for (len, why) in [(10, "too large for that"), (100_001, "too small for that")] {
            let other = pool.take(len).unwrap();
            assert_ne!(other.as_ptr(), at, "{why}");
        }
        for _ in 0..100 {
            pool.give_back(vec![0; 5000]);
        }
        assert!(lock(&pool.free).len() <= KEPT);
    }
}
