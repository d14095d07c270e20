//! The words as loom has them: it tries every order in which threads may see them.

use super::Wake;
use core::time::Duration;
pub use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

/// Whether a model stands in for the machine.
pub const IS_MODEL: bool = true;

/// Yields to the other threads of the model, which is a legal (spurious) wake-up.
pub fn wait(word: &AtomicU32, expected: u32, _timeout: Option<Duration>) -> Wake {
    if word.load(Ordering::Relaxed) != expected {
        return Wake::Mismatch;
    }
    loom::thread::yield_now();
    Wake::Interrupted
}

/// Nobody sleeps in the model, so nobody is woken.
pub fn wake(_word: &AtomicU32, _n: u32) -> usize {
    0
}

/// In one step, so that loom has no more to try than there is: nobody reads the word for more than whether it
/// has changed.
pub fn change(word: &AtomicU32, _next: impl Fn(u32) -> u32) {
    word.fetch_add(1, Ordering::Release);
}

pub fn spin_hint() {
    loom::thread::yield_now();
}

pub(super) use super::store_each as store_rest;
