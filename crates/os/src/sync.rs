//! Atomics that loom can stand in for, and the cache line that two processes share.

#[cfg(not(loom))]
pub use core::sync::atomic::{fence, AtomicU32, AtomicU64, AtomicU8, Ordering};
#[cfg(loom)]
pub use loom::sync::atomic::{fence, AtomicU32, AtomicU64, AtomicU8, Ordering};

/// One cache line of control words: seven words of state and a futex with the number of those who sleep on it.
///
/// In a segment it is input: a faulty peer may store anything in any field at any moment, so each word is loaded once,
/// checked, then used.
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

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Line>() == 64 && core::mem::align_of::<Line>() == 64);

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

/// One cache line of eight words, of which a protocol says what they mean. In a segment it is input, as a [`Line`] is.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Words {
    /// The words.
    pub w: [AtomicU64; 8],
}

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Words>() == 64 && core::mem::align_of::<Words>() == 64);

impl Words {
    /// Zeros, as a fresh segment holds them.
    pub fn new() -> Self {
        Words { w: core::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Default for Words {
    fn default() -> Self {
        Words::new()
    }
}

/// Tells the processor (or loom) that this loop waits for another thread: between two looks at what that one will write.
///
/// On x86-64 this is a short wait in which no load begins. `pause` is meant for that, but takes 25 ns and more on present
/// processors, as long as a line takes from one to the other; without either, later looks begin before earlier ones
/// have ended, and all of them are thrown away when the line changes.
#[inline]
pub fn spin_hint() {
    #[cfg(all(not(loom), target_arch = "x86_64"))]
    // SAFETY: every x86-64 has `lfence`; the registers are given back as they were but for a scratch one.
    unsafe {
        core::arch::asm!(
            "lfence",
            "mov {x:e}, 3",
            "imul {x:e}, {x:e}",
            "imul {x:e}, {x:e}",
            "imul {x:e}, {x:e}",
            "imul {x:e}, {x:e}",
            "lfence",
            x = out(reg) _,
            options(nostack)
        );
    }
    #[cfg(all(not(loom), not(target_arch = "x86_64")))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

#[cfg(all(test, not(loom)))]
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
