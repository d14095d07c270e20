//! When a program that looks again and again for something gives its processor to others: soon where that was
//! of use lately, and else seldom.
//!
//! Where there are more ranks than processors, what a rank waits for may need the processor on which it
//! looks. A library whose own transport gives way there does not always do so with a provider: Open MPI 5.0
//! does not.

use polyduct_message::endpoint::clock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The fewest and the most looks without anything found before the processor is given away: about a
/// microsecond, and some fifty. The first are few, so that of many ranks on one processor each finds out
/// soon.
const LOOKS: (u32, u32) = (8, 1024);
/// What a processor that is given away takes until it is back, where another process had it and waits for
/// something itself: a system call alone takes less, a process that computes keeps it for longer.
const OF_USE: (Duration, Duration) = (Duration::from_nanos(1500), Duration::from_micros(700));

/// Threads that look at once may lose each other's counts, which does no harm.
#[derive(Debug)]
pub(super) struct Patience {
    looks: AtomicU32,
    most: AtomicU32,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { looks: AtomicU32::new(0), most: AtomicU32::new(LOOKS.0) }
    }
}

impl Patience {
    /// Something was looked for. Gives the processor to others where nothing was found often enough.
    #[inline]
    pub fn looked(&self, found: bool) {
        if self.is_over(found) {
            let start = clock::now();
            std::thread::yield_now();
            self.gave(clock::now() - start);
        }
    }

    #[inline]
    fn is_over(&self, found: bool) -> bool {
        let looks = if found { 0 } else { self.looks.load(Ordering::Relaxed) + 1 };
        let is_over = looks >= self.most.load(Ordering::Relaxed);
        self.looks.store(if is_over { 0 } else { looks }, Ordering::Relaxed);
        is_over
    }

    /// The processor was given away and is back after this time.
    fn gave(&self, took: Duration) {
        let is_of_use = (OF_USE.0..OF_USE.1).contains(&took);
        let more = (self.most.load(Ordering::Relaxed) * 2).min(LOOKS.1);
        self.most.store(if is_of_use { LOOKS.0 } else { more }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until the processor is given away.
    fn looks(patience: &Patience) -> u32 {
        1 + (0..).take_while(|_| !patience.is_over(false)).count() as u32
    }

    #[test]
    fn others_get_the_processor_soon_where_that_was_of_use_lately() {
        let patience = Patience::default();
        assert_eq!(looks(&patience), LOOKS.0);
        patience.gave(Duration::from_nanos(400));
        assert_eq!(looks(&patience), 2 * LOOKS.0);
        for took in [30, 3] {
            patience.gave(Duration::from_micros(took));
            assert_eq!(looks(&patience), LOOKS.0);
        }
    }

    #[test]
    fn who_is_alone_or_beside_a_process_that_computes_keeps_the_processor() {
        for took in [Duration::from_nanos(400), Duration::from_millis(3)] {
            let patience = Patience::default();
            patience.gave(Duration::from_micros(30));
            for _ in 0..20 {
                patience.gave(took);
            }
            assert_eq!(looks(&patience), LOOKS.1, "{took:?}");
        }
    }

    #[test]
    fn what_is_found_begins_the_count_anew() {
        let patience = Patience::default();
        for _ in 0..10 * LOOKS.1 {
            assert!(!patience.is_over(false));
            assert!(!patience.is_over(true));
        }
    }
}
