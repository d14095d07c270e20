//! Sleeping at a [`Line`]: a futex, and the number of those who sleep there.
//!
//! A change of what others may wait for is followed by a ring, which costs one fence and one load when nobody
//! sleeps. A sleeper killed in its sleep leaves the count too high, which costs later ringers a system call
//! and nothing else.
//!
//! The bell's word also says on which processor it was rung last. Two who answer each other and share a
//! processor, since others keep the rest busy, would each spin in vain until the kernel takes the processor
//! away: who was woken from the processor on which it runs itself gives way at once when it next waits,
//! instead of spinning.

use crate::sync::{change, fence, Line, Ordering};

/// Bits of the bell's word that count its rings. Those above are the processor of the last, from 1; 0 where
/// that is not known.
const COUNT: u32 = (1 << 20) - 1;

/// Wakes all who sleep at the line. What was stored before is visible to them.
pub fn ring(line: &Line) {
    fence(Ordering::SeqCst);
    if line.sleepers.load(Ordering::Relaxed) > 0 {
        let place = place::here() << COUNT.count_ones();
        change(&line.bell, |bell| bell.wrapping_add(1) & COUNT | place);
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

    /// Looks once more (where others must be asked to ring, `ready` asks them first, and nobody did before
    /// this). `Err`: it may [`sleep`](Sleeper::sleep) as long as the bell shows this. A ring that comes later
    /// is one that it has not shown.
    pub fn look<T>(&self, ready: impl FnOnce() -> Option<T>) -> Result<T, u32> {
        let seen = self.0.bell.load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        ready().ok_or(seen)
    }

    /// Sleeps while the bell shows what was `seen`, for `time` at most (`None`: as long as that may be).
    pub fn sleep(&self, seen: u32, time: Option<core::time::Duration>) {
        crate::futex::wait(&self.0.bell, seen, time);
        if let Some(rung) = Some(self.0.bell.load(Ordering::Relaxed)).filter(|&rung| rung != seen) {
            place::woken_from(rung >> COUNT.count_ones());
        }
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.0.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

pub use spin::spin;

/// Whether this thread shares its processor with the one that it waits for.
mod place {
    use std::cell::Cell;

    thread_local! {
        static SHARED: Cell<bool> = const { Cell::new(false) };
    }

    /// The processor of this thread, from 1; 0 for one beyond those that a bell can name.
    pub fn here() -> u32 {
        u32::try_from(crate::cpu::current() + 1).ok().filter(|&cpu| cpu < 1 << 12).unwrap_or(0)
    }

    /// This thread was woken from there.
    pub fn woken_from(cpu: u32) {
        SHARED.set(cpu != 0 && cpu == here());
    }

    pub fn is_shared() -> bool {
        SHARED.get()
    }

    pub fn set_apart() {
        SHARED.set(false);
    }
}

mod spin {
    use super::place;
    use core::time::Duration;

    /// Looks between two looks at the clock.
    const LOOKS: u32 = 64;
    /// How often who shares its processor gives way before it sleeps.
    const GIVES: u32 = 3;

    /// Calls `ready` until it gives something, for about `time` from `start` (a time of
    /// [`crate::clock::now`]) and at least 64 times. No system call, unless the one to be waited for was last
    /// seen on this very processor: then it is given way a few times, and that is all.
    pub fn spin<T>(start: Duration, time: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        if !time.is_zero() && place::is_shared() {
            return give_way(ready);
        }
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

    fn give_way<T>(mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        for given in 0..GIVES {
            if let Some(found) = ready() {
                if given == 0 {
                    // It came while this thread ran.
                    place::set_apart();
                }
                return Some(found);
            }
            std::thread::yield_now();
        }
        ready()
    }
}

#[cfg(test)]
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
    fn who_is_woken_from_its_own_processor_gives_way_until_it_is_woken_from_another() {
        let line = std::sync::Arc::new(Line::new());
        let woken_by = |cpu: usize| {
            let at = line.clone();
            let sleeper = Sleeper::at(&line);
            let seen = sleeper.look(|| None::<()>).unwrap_err();
            let waker = std::thread::spawn(move || {
                crate::cpu::pin_to(cpu).unwrap();
                ring(&at);
            });
            while line.bell.load(Ordering::Relaxed) == seen {
                sleeper.sleep(seen, None);
            }
            // Where the ring came before the sleep.
            sleeper.sleep(seen, None);
            waker.join().unwrap();
        };
        let looks = || {
            let mut looks = 0;
            spin(crate::clock::now(), Duration::from_nanos(1), || {
                looks += 1;
                None::<()>
            });
            looks
        };
        let cpus = crate::cpu::allowed();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                crate::cpu::pin_to(cpus[0]).unwrap();
                assert_eq!(looks(), 64);
                woken_by(cpus[0]);
                assert_eq!(looks(), 4, "it gives way three times");
                assert!(spin(Duration::ZERO, Duration::from_nanos(1), || Some(())).is_some());
                assert_eq!(looks(), 64, "what is there at once was brought meanwhile");
                if let Some(&other) = cpus.get(1) {
                    woken_by(cpus[0]);
                    woken_by(other);
                    assert_eq!(looks(), 64);
                }
            });
        });
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
