//! Copying one part with several threads, where there are more processors than units.

use polyduct_os::{cpu, threads};

/// Bytes for each thread from which it is worth its start: about 30 µs, and 4 MiB are copied in 300.
const EACH: usize = 4 << 20;

/// So many threads copy as fast as the memory of most machines goes.
const MOST: usize = 8;

/// The threads of one unit.
#[derive(Clone, Copy, Debug)]
pub struct Threads(usize);

impl Threads {
    /// This unit's share of the processors that it may use, when `units` of its program use them, too.
    pub fn of(units: u32) -> Threads {
        Threads((cpu::allowed().len() / units.max(1) as usize).clamp(1, MOST))
    }

    /// Calls `work(piece, pieces)` for each piece of `bytes` bytes, at once, and gives the first error in
    /// their order.
    pub fn share<E: Send>(
        self,
        bytes: usize,
        work: impl Fn(usize, usize) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let pieces = self.0.min(bytes / EACH).max(1);
        if pieces == 1 {
            return work(0, 1);
        }
        threads::each(pieces, 0..pieces, |piece| work(piece, pieces)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn pieces(threads: usize, bytes: usize) -> (usize, usize) {
        let (seen, of) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let done: Result<(), ()> = Threads(threads).share(bytes, |piece, pieces| {
            assert_eq!(seen.fetch_or(1 << piece, Ordering::Relaxed) & 1 << piece, 0);
            of.store(pieces, Ordering::Relaxed);
            Ok(())
        });
        done.unwrap();
        (seen.into_inner(), of.into_inner())
    }

    #[test]
    fn every_piece_is_done_once_and_small_ones_by_one_thread() {
        assert_eq!(pieces(4, 0), (1, 1));
        assert_eq!(pieces(4, EACH * 2 - 1), (1, 1));
        assert_eq!(pieces(4, EACH * 3), (0b111, 3));
        assert_eq!(pieces(4, usize::MAX), (0b1111, 4));
        assert_eq!(pieces(1, usize::MAX), (1, 1));
    }

    #[test]
    fn an_error_of_any_piece_is_the_answer() {
        for bad in 0..4 {
            let done = Threads(4).share(EACH * 4, |piece, _| if piece == bad { Err(piece) } else { Ok(()) });
            assert_eq!(done, Err(bad));
        }
        assert!(Threads::of(u32::MAX).0 == 1 && Threads::of(0).0 >= 1);
    }
}
