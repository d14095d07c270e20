//! Sleeping at a [`Line`]: a futex, and the number of those who sleep there.
//!
//! Whoever changes what others may wait for rings, which costs one fence and one load when nobody sleeps. A sleeper killed in
//! its sleep leaves the count too high, which costs later ringers a system call and nothing else.

use crate::sync::{fence, Line, Ordering};

/// Wakes all who sleep at the line. What was stored before is visible to them.
pub fn ring(line: &Line) {
    fence(Ordering::SeqCst);
    if line.sleepers.load(Ordering::Relaxed) > 0 {
        line.bell.fetch_add(1, Ordering::Release);
        crate::futex::wake(&line.bell, u32::MAX >> 1);
    }
}

/// One who sleeps at a line, or is about to.
pub struct Sleeper<'a>(&'a Line);

impl<'a> Sleeper<'a> {
    /// From now on whoever rings wakes this one.
    pub fn at(line: &'a Line) -> Self {
        line.sleepers.fetch_add(1, Ordering::SeqCst);
        Sleeper(line)
    }

    /// Looks once more (where others must be asked to ring, `ready` asks them first, and nobody did before this). `Err`: it
    /// may [`sleep`](Sleeper::sleep) as long as the bell shows this. A ring that comes later is one that it has not shown.
    pub fn look<T>(&self, ready: impl FnOnce() -> Option<T>) -> Result<T, u32> {
        let seen = self.0.bell.load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        ready().ok_or(seen)
    }

    /// Sleeps while the bell shows what was `seen`, for `time` at most (`None`: as long as that may be).
    pub fn sleep(&self, seen: u32, time: Option<core::time::Duration>) {
        crate::futex::wait(&self.0.bell, seen, time);
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.0.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(not(loom))]
pub use spin::spin;

#[cfg(not(loom))]
mod spin {
    use core::time::Duration;

    /// Looks between two looks at the clock.
    const LOOKS: u32 = 64;

    /// Calls `ready` until it gives something, for about `time` from `start` (a time of [`crate::clock::now`]) and at least
    /// 64 times. No system call.
    pub fn spin<T>(start: Duration, time: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            for _ in 0..LOOKS {
                if let Some(found) = ready() {
                    return Some(found);
                }
                crate::sync::spin_hint();
            }
            if crate::clock::now() - start >= time {
                return None;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn a_ring_after_the_look_ends_the_sleep() {
        let line = Line::new();
        ring(&line);
        assert_eq!(line.bell.load(Ordering::Relaxed), 0, "nobody was there");
        let sleeper = Sleeper::at(&line);
        assert_eq!(sleeper.look(|| Some(1)), Ok(1));
        let seen = sleeper.look(|| None::<()>).unwrap_err();
        ring(&line);
        sleeper.sleep(seen, None);
        drop(sleeper);
        assert_eq!(line.sleepers.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_spin_ends_with_what_it_looks_for_or_with_its_time() {
        let (start, mut looks) = (crate::clock::now(), 0);
        let third = || {
            looks += 1;
            (looks == 3).then_some(looks)
        };
        assert_eq!(spin(start, Duration::from_secs(60), third), Some(3));
        assert_eq!(spin(start, Duration::ZERO, || None::<()>), None);
    }
}
