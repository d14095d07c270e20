//! The words as the processor and the kernel have them.

use super::{Line, Wake, Words};
pub use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use rustix::io::Errno;
use rustix::thread::futex;

/// Whether a model stands in for the machine.
pub const IS_MODEL: bool = false;

const _: () = assert!(core::mem::size_of::<Line>() == 64 && core::mem::align_of::<Line>() == 64);
const _: () = assert!(core::mem::size_of::<Words>() == 64 && core::mem::align_of::<Words>() == 64);

pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wake {
    let timeout = crate::clock::timespec(timeout);
    match futex::wait(word, futex::Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) => Wake::Woken,
        Err(Errno::AGAIN) => Wake::Mismatch,
        Err(Errno::TIMEDOUT) => Wake::TimedOut,
        // EINTR; the others cannot happen with a live, aligned word, and a spurious return is always legal.
        Err(_) => Wake::Interrupted,
    }
}

pub fn wake(word: &AtomicU32, n: u32) -> usize {
    // The kernel takes the count as a signed integer.
    futex::wake(word, futex::Flags::empty(), n.min(i32::MAX as u32)).unwrap_or(0)
}

/// Changes the word to what `next` makes of it.
pub fn change(word: &AtomicU32, next: impl Fn(u32) -> u32) {
    // It never fails.
    let _ = word.fetch_update(Ordering::Release, Ordering::Relaxed, |old| Some(next(old)));
}

/// On x86-64 this is a short wait in which no load begins. `pause` is meant for that, but takes 25 ns and
/// more on present processors, as long as a line takes from one to the other; without either, later looks
/// begin before earlier ones have ended, and all of them are thrown away when the line changes.
#[inline]
pub fn spin_hint() {
    #[cfg(target_arch = "x86_64")]
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
    #[cfg(not(target_arch = "x86_64"))]
    core::hint::spin_loop();
}

/// Stores the words 1 to 7 of a line, in any order. The reader of the line looks at it all the while and
/// takes it away between any two stores, so few wide ones are more than twice as fast as seven.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn store_rest(line: &Words, words: [u64; 7]) {
    use core::arch::x86_64::{__m128i, _mm_set_epi64x};
    let pair = |i: usize| -> __m128i {
        // SAFETY: every x86-64 has SSE2.
        unsafe { _mm_set_epi64x(words[i + 1] as i64, words[i] as i64) }
    };
    // SAFETY: 48 bytes within the line, which is aligned; they are atomics, and each half of these stores is
    // what a relaxed store of that word is.
    unsafe {
        core::arch::asm!(
            "movaps [{line} + 48], {c}",
            "movaps [{line} + 32], {b}",
            "movaps [{line} + 16], {a}",
            line = in(reg) line.w.as_ptr(),
            a = in(xmm_reg) pair(1),
            b = in(xmm_reg) pair(3),
            c = in(xmm_reg) pair(5),
            options(nostack, preserves_flags)
        );
    }
    line.w[1].store(words[0], Ordering::Relaxed);
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) use super::store_each as store_rest;
