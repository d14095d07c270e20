//! Sleeping until another process changes a word.
//!
//! The futexes are shared ones: they work on words in a [`segment`](crate::segment) mapped by several
//! processes.

use crate::sync::{self, AtomicU32};
use core::time::Duration;

pub use crate::sync::Wake;

/// Sleeps while `*word == expected`, until somebody [`wake`]s it or `timeout` is over (`None`: for ever).
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wake {
    sync::wait(word, expected, timeout)
}

/// Wakes up to `n` sleepers of `word`, in whatever process; returns how many.
pub fn wake(word: &AtomicU32, n: u32) -> usize {
    sync::wake(word, n)
}
