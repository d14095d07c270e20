//! Vectors of one level, and the way into code compiled for it.
//!
//! Kernels are written once, generic over [`Simd`], as `#[inline(always)]` functions; [`run`] inlines them
//! into a function that is compiled with the level's instructions.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use crate::convert::Convert;
use crate::Level;

/// The vectors and the few level-specific steps that kernels are made of.
///
/// # Safety
/// All functions need the level's instructions (see [`run`]) and addresses that are good for what they say.
pub(crate) trait Simd {
    /// One vector.
    type V: Copy;
    /// Its bytes.
    const WIDTH: usize;
    /// The next narrower level, for what is left at the edges of a matrix.
    type Narrower: Simd;

    /// Reads `WIDTH` bytes at any address.
    unsafe fn load(p: *const u8) -> Self::V;
    /// Writes `WIDTH` bytes at any address.
    unsafe fn store(p: *mut u8, v: Self::V);
    /// Writes `WIDTH` bytes past the caches; `p` is a multiple of `WIDTH`. Needs a [`Fence`] around it.
    unsafe fn stream(p: *mut u8, v: Self::V);
    /// Asks for a cache line; any address will do.
    fn prefetch(p: *const u8);
    /// Asks for a cache line that will be written; any address will do.
    fn prefetch_to_write(p: *const u8);

    /// Side in elements of the square that [`Simd::tile`] transposes, for elements of 1, 2, 4, 8 or 16 bytes.
    fn tile_side(elem: usize) -> usize {
        (Self::WIDTH / elem).max(1)
    }

    /// Transposes a square of elements of `E` bytes: row `j` of the source, `src_step` bytes after row `j -
    /// 1`, becomes column `j` of the destination, whose rows lie `dst_step` bytes apart.
    unsafe fn tile<const E: usize>(src: *const u8, src_step: isize, dst: *mut u8, dst_step: isize);

    /// Converts as many elements as make 64 bytes in the destination; to stream, `dst` is a multiple of 64.
    unsafe fn convert_line<C: Convert, const STREAM: bool>(src: *const u8, dst: *mut u8);
}

/// Work that is compiled once for each level.
pub(crate) trait Job {
    /// Does the work.
    ///
    /// # Safety
    /// The machine has the level `S`; implementations add what their fields must uphold.
    unsafe fn go<S: Simd>(self);
}

/// Runs a job with the instructions of a level.
///
/// # Safety
/// The machine has the level, and the job's own conditions hold.
#[inline]
pub(crate) unsafe fn run<J: Job>(level: Level, job: J) {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl")]
            unsafe fn avx512<J: Job>(job: J) {
                // SAFETY: the caller's.
                unsafe { job.go::<avx512::Avx512>() }
            }
            // SAFETY: the caller says that the machine has the level.
            unsafe { avx512(job) }
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => {
            #[target_feature(enable = "avx2,f16c")]
            unsafe fn avx2<J: Job>(job: J) {
                // SAFETY: the caller's.
                unsafe { job.go::<avx2::Avx2>() }
            }
            // SAFETY: the caller says that the machine has the level.
            unsafe { avx2(job) }
        }
        // SAFETY: aarch64 always has these vectors.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => unsafe { job.go::<neon::Neon>() },
        // SAFETY: every machine has this level.
        _ => unsafe { job.go::<portable::Portable>() },
    }
}

/// Asks for a cache line, where the machine has an instruction for it; any address will do.
#[inline(always)]
pub fn prefetch(p: *const u8) {
    ask::<false>(p);
}

/// Asks for a cache line that is needed a little later: it comes into the second-level cache, where the
/// machine has an instruction for that; any address will do.
#[inline(always)]
pub fn prefetch_far(p: *const u8) {
    ask::<true>(p);
}

#[inline(always)]
fn ask<const FAR: bool>(p: *const u8) {
    // SAFETY: a prefetch does nothing with the address but ask for its line, and every x86_64 has it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0, _MM_HINT_T1};
        match FAR {
            true => _mm_prefetch::<_MM_HINT_T1>(p.cast()),
            false => _mm_prefetch::<_MM_HINT_T0>(p.cast()),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// Asks for a cache line that will be written, where the machine has an instruction for it; any address will
/// do.
#[inline(always)]
pub fn prefetch_to_write(p: *const u8) {
    // SAFETY: as `prefetch`; a machine without this one does nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) p, options(nostack, preserves_flags, readonly))
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// Makes streamed stores visible before later ones, when it goes out of scope. One for a whole transfer: each
/// waits for all that is on its way to memory.
pub(crate) struct Fence {
    /// Whether anything was streamed.
    pub needed: bool,
}

impl Drop for Fence {
    #[inline]
    fn drop(&mut self) {
        if self.needed {
            // SAFETY: every x86_64 has it.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                core::arch::x86_64::_mm_sfence()
            }
        }
    }
}
