//! Sleeping until another process changes a word.
//!
//! The futexes are shared ones: they work on words in a [`segment`](crate::segment) mapped by several processes.
//! Under loom a wait is a yield, which is a legal (spurious) wake-up.

use core::time::Duration;

use crate::sync::AtomicU32;

/// Why [`wait`] came back. Every reason may be spurious: look at the word again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Somebody woke this thread.
    Woken,
    /// The word was not as expected, so nobody slept.
    Mismatch,
    /// The time is over.
    TimedOut,
    /// A signal came.
    Interrupted,
}

/// Sleeps while `*word == expected`, until somebody [`wake`]s it or `timeout` is over (`None`: for ever).
#[cfg(not(loom))]
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wake {
    use rustix::io::Errno;
    use rustix::thread::futex;

    let timeout = crate::clock::timespec(timeout);
    match futex::wait(word, futex::Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) => Wake::Woken,
        Err(Errno::AGAIN) => Wake::Mismatch,
        Err(Errno::TIMEDOUT) => Wake::TimedOut,
        // EINTR; the others cannot happen with a live, aligned word, and a spurious return is always legal.
        Err(_) => Wake::Interrupted,
    }
}

/// Wakes up to `n` sleepers of `word`, in whatever process; returns how many.
#[cfg(not(loom))]
pub fn wake(word: &AtomicU32, n: u32) -> usize {
    use rustix::thread::futex;

    // The kernel takes the count as a signed integer.
    futex::wake(word, futex::Flags::empty(), n.min(i32::MAX as u32)).unwrap_or(0)
}

/// Yields to the other threads of the model.
#[cfg(loom)]
pub fn wait(word: &AtomicU32, expected: u32, _timeout: Option<Duration>) -> Wake {
    if word.load(crate::sync::Ordering::Relaxed) != expected {
        return Wake::Mismatch;
    }
    loom::thread::yield_now();
    Wake::Interrupted
}

/// Nobody sleeps in the model, so nobody is woken.
#[cfg(loom)]
pub fn wake(_word: &AtomicU32, _n: u32) -> usize {
    0
}
