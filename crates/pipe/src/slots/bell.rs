//! Waiting: spin for a moment, then sleep at a bell.
//!
//! A bell is a futex word and a count of sleepers. Whoever changes what others may wait for rings; ringing costs one
//! fence and one load when nobody sleeps. A sleeper killed in its sleep leaves the count too high, which costs later
//! ringers a system call and nothing else.

use polyduct_os::sync::{fence, Line, Ordering};
use std::sync::Arc;
#[cfg(not(loom))]
use std::time::Duration;

/// A question asked now and then by every blocking call: shall it give up?
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// Wakes everybody who sleeps at the bell. What was stored before is visible to them.
pub fn ring(bell: &Line) {
    fence(Ordering::SeqCst);
    if bell.sleepers.load(Ordering::Relaxed) > 0 {
        bell.bell.fetch_add(1, Ordering::Release);
        polyduct_os::futex::wake(&bell.bell, u32::MAX >> 1);
    }
}

/// How long to spin and to wait.
#[cfg(not(loom))]
#[derive(Clone)]
pub struct Patience {
    /// Time to spin before sleeping.
    pub spin: Duration,
    /// Longest wait; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Asked now and then whether to give up.
    pub interrupt: Option<Interrupt>,
}

#[cfg(not(loom))]
/// How a wait ended when it did not end with what was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// The deadline came.
    Timeout,
    /// The interrupt said so.
    Interrupted,
}

#[cfg(not(loom))]
/// A sleeper looks for an interrupt this often, since a signal may arrive just before it falls asleep.
const INTERRUPT_SLICE: Duration = Duration::from_millis(100);

#[cfg(not(loom))]
/// Calls `ready` until it gives something, sleeping at `bell` in between. `waited` grows by the time spent.
pub fn wait_for<T>(
    bell: &Line,
    patience: &Patience,
    waited: &mut Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<T, Unmet> {
    if let Some(t) = ready() {
        return Ok(t);
    }
    let start = polyduct_os::clock::now();
    let end = loop {
        for _ in 0..64 {
            if let Some(t) = ready() {
                *waited += polyduct_os::clock::now() - start;
                return Ok(t);
            }
            polyduct_os::sync::spin_hint();
        }
        if polyduct_os::clock::now() - start >= patience.spin {
            break sleep_for(bell, patience, start, &mut ready);
        }
    };
    *waited += polyduct_os::clock::now() - start;
    end
}

#[cfg(not(loom))]
#[cold]
fn sleep_for<T>(
    bell: &Line,
    patience: &Patience,
    start: Duration,
    ready: &mut impl FnMut() -> Option<T>,
) -> Result<T, Unmet> {
    let sleeper = Sleeper::at(bell);
    loop {
        let seen = match sleeper.look(&mut *ready) {
            Ok(t) => return Ok(t),
            Err(seen) => seen,
        };
        if patience.interrupt.as_ref().is_some_and(|ask| ask()) {
            return Err(Unmet::Interrupted);
        }
        let mut slice = patience.interrupt.as_ref().map(|_| INTERRUPT_SLICE);
        if let Some(timeout) = patience.timeout {
            let left = (start + timeout).saturating_sub(polyduct_os::clock::now());
            if left.is_zero() {
                return Err(Unmet::Timeout);
            }
            slice = Some(slice.map_or(left, |s| s.min(left)));
        }
        polyduct_os::futex::wait(&bell.bell, seen, slice);
    }
}

/// One who sleeps at a bell, or is about to.
pub struct Sleeper<'a>(&'a Line);

impl<'a> Sleeper<'a> {
    /// From now on whoever rings wakes this one.
    pub fn at(bell: &'a Line) -> Self {
        bell.sleepers.fetch_add(1, Ordering::SeqCst);
        Sleeper(bell)
    }

    /// Looks once more. `Err`: it may sleep as long as the bell shows this.
    pub fn look<T>(&self, ready: impl FnOnce() -> Option<T>) -> Result<T, u32> {
        let seen = self.0.bell.load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        ready().ok_or(seen)
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.0.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
