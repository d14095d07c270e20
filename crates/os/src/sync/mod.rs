//! Atomics that loom can stand in for, and the cache lines that two processes share.
//!
//! This is the one place that knows of models: what is built on these words is checked as it is.

#[cfg(loom)]
#[path = "model.rs"]
mod machine;
#[cfg(not(loom))]
#[path = "real.rs"]
mod machine;

pub(crate) use machine::{change, wait, wake};
pub use machine::{fence, AtomicU32, AtomicU64, Ordering, IS_MODEL};

/// Why a [wait](crate::futex::wait) came back. Every reason may be spurious: look at the word again.
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

/// One cache line of control words: seven words of state and a futex with the number of those who sleep on
/// it.
///
/// In a segment it is input: a faulty peer may store anything in any field at any moment, so each word is
/// loaded once, checked, then used.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Line {
    /// State words, whatever the protocol says.
    pub w: [AtomicU64; 7],
    /// The futex: raised when a word has changed and somebody may sleep.
    pub bell: AtomicU32,
    /// How many sleep, or are about to; zero saves the waker a system call.
    pub sleepers: AtomicU32,
}

impl Line {
    /// A line of zeros, as a fresh segment holds it.
    pub fn new() -> Self {
        Line {
            w: core::array::from_fn(|_| AtomicU64::new(0)),
            bell: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }
}

impl Default for Line {
    fn default() -> Self {
        Line::new()
    }
}

/// One cache line of eight words, of which a protocol says what they mean. In a segment it is input, as a
/// [`Line`] is.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Words {
    /// The words.
    pub w: [AtomicU64; 8],
}

impl Words {
    /// Zeros, as a fresh segment holds them.
    pub fn new() -> Self {
        Words { w: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Stores the words 1 to 7, in any order and relaxed.
    #[inline]
    pub fn store_rest(&self, words: [u64; 7]) {
        machine::store_rest(self, words);
    }
}

/// One after the other, where nothing does it at once.
#[allow(dead_code)]
fn store_each(line: &Words, words: [u64; 7]) {
    for (to, word) in line.w[1..].iter().zip(words) {
        to.store(word, Ordering::Relaxed);
    }
}

impl Default for Words {
    fn default() -> Self {
        Words::new()
    }
}

/// Tells the processor (or loom) that this loop waits for another thread: between two looks at what that one
/// will write.
#[inline]
pub fn spin_hint() {
    machine::spin_hint();
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn a_line_lies_in_memory_as_peers_expect() {
        assert_eq!((offset_of!(Line, w), offset_of!(Line, bell), offset_of!(Line, sleepers)), (0, 56, 60));
        let line = Line::default();
        assert!(line.w.iter().all(|w| w.load(Ordering::Relaxed) == 0));
        assert_eq!((line.bell.load(Ordering::Relaxed), line.sleepers.load(Ordering::Relaxed)), (0, 0));
        spin_hint();
    }
}
