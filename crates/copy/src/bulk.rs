//! Copying one contiguous run.

use crate::simd::{self, Job, Simd};

/// Bytes of source that are asked for ahead of a streaming copy.
pub(crate) const NEAR: usize = 2048;
/// The same where another processor reads what is written meanwhile: further ahead, and into the second-level
/// cache. Lines that wait for memory must not fill the buffers of the first one, where the stores wait, too:
/// 0.9 of the time.
pub(crate) const FAR: usize = 4096;

/// Copies `N` bytes, which the compiler turns into a few moves.
///
/// # Safety
/// `N` bytes at both addresses; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn fixed<const N: usize>(src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's; an array of bytes has no alignment.
    unsafe { dst.cast::<[u8; N]>().write(src.cast::<[u8; N]>().read()) }
}

/// Copies `n` bytes, `N ≤ n ≤ 2 N`, as two pieces that overlap.
///
/// # Safety
/// `n` bytes at both addresses; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn pair<const N: usize>(src: *const u8, dst: *mut u8, n: usize) {
    // SAFETY: the caller's: both pieces lie within `n` bytes.
    unsafe {
        fixed::<N>(src, dst);
        fixed::<N>(src.add(n - N), dst.add(n - N));
    }
}

/// Copies up to 128 bytes.
///
/// # Safety
/// `n ≤ 128` bytes at both addresses; they do not overlap.
#[inline(always)]
pub(crate) unsafe fn small(src: *const u8, dst: *mut u8, n: usize) {
    // SAFETY: the caller's; the ranges are those of `pair`.
    unsafe {
        match n {
            0 => {}
            1 => fixed::<1>(src, dst),
            2..=3 => pair::<2>(src, dst, n),
            4..=7 => pair::<4>(src, dst, n),
            8..=15 => pair::<8>(src, dst, n),
            16..=31 => pair::<16>(src, dst, n),
            32..=63 => pair::<32>(src, dst, n),
            _ => pair::<64>(src, dst, n),
        }
    }
}

/// Copies `n` bytes through the caches.
///
/// # Safety
/// `n` bytes at both addresses, which do not overlap; the machine has the level.
#[inline(always)]
pub(crate) unsafe fn cached<S: Simd>(src: *const u8, dst: *mut u8, n: usize) {
    // SAFETY: the caller's; each access lies below `n`, checked by the loops, and 128 < n after the first
    // test.
    unsafe {
        if n <= 128 {
            return small(src, dst, n);
        }
        // The first and the last vector lie as they may. Between them stores begin at lines: one that crosses
        // a line takes the time of several.
        S::store(dst, S::load(src));
        let mut at = S::WIDTH - dst.addr() % S::WIDTH;
        while n - at > 4 * S::WIDTH {
            let (s, d) = (src.add(at), dst.add(at));
            for i in 0..4 {
                S::store(d.add(i * S::WIDTH), S::load(s.add(i * S::WIDTH)));
            }
            at += 4 * S::WIDTH;
        }
        while n - at > S::WIDTH {
            S::store(dst.add(at), S::load(src.add(at)));
            at += S::WIDTH;
        }
        S::store(dst.add(n - S::WIDTH), S::load(src.add(n - S::WIDTH)));
    }
}

/// Copies `n` bytes with stores that bypass the caches, but for the first and the last line where these are
/// not whole. The source is asked for so many bytes in advance, [`NEAR`], [`FAR`] or 0; `next` is where it
/// goes on after this run.
///
/// # Safety
/// `n` bytes at both addresses, which do not overlap; the machine has the level. The caller fences.
#[inline(always)]
pub(crate) unsafe fn streamed<S: Simd, const AHEAD: usize>(
    src: *const u8,
    dst: *mut u8,
    n: usize,
    next: *const u8,
) {
    // SAFETY: the caller's; `at` never passes `n`, and is such that `dst + at` is a multiple of 64 in the
    // loops.
    unsafe {
        if n <= 128 {
            return small(src, dst, n);
        }
        let mut at = dst.addr().wrapping_neg() % 64;
        // Not more than the part of a line: a line that is both stored and streamed is fetched to be thrown
        // out.
        small(src, dst, at);
        // One line is asked for and one written at a time: asking for four together was slower where memory
        // is the limit.
        while n - at >= 64 {
            ask::<S, AHEAD>(src, n, next, at);
            lines::<S, 64>(src.add(at), dst.add(at));
            at += 64;
        }
        small(src.add(at), dst.add(at), n - at);
    }
}

/// Asks for what lies some way ahead of `at` in the source, or in what follows it.
#[inline(always)]
fn ask<S: Simd, const AHEAD: usize>(src: *const u8, n: usize, next: *const u8, at: usize) {
    let to = at + AHEAD;
    let line = if to < n { src.wrapping_add(to) } else { next.wrapping_add(to - n) };
    match AHEAD {
        0 => {}
        FAR => simd::prefetch_far(line),
        _ => S::prefetch(line),
    }
}

/// Streams `N` bytes, a multiple of 64, to a multiple of 64.
///
/// # Safety
/// `N` bytes at both addresses; the machine has the level. The caller fences.
#[inline(always)]
pub(crate) unsafe fn lines<S: Simd, const N: usize>(src: *const u8, dst: *mut u8) {
    let mut i = 0;
    while i < N {
        // SAFETY: the caller's; 64 is a multiple of the width of every level.
        unsafe { S::stream(dst.add(i), S::load(src.add(i))) }
        i += S::WIDTH;
    }
}

/// Copies a run.
///
/// # Safety
/// `n` bytes at both addresses, which do not overlap; the machine has the level. The caller fences if
/// `stream`.
#[inline(always)]
pub(crate) unsafe fn copy<S: Simd>(src: *const u8, dst: *mut u8, n: usize, stream: bool) {
    // SAFETY: the caller's.
    unsafe {
        if stream {
            streamed::<S, NEAR>(src, dst, n, src.wrapping_add(n));
        } else {
            cached::<S>(src, dst, n);
        }
    }
}

/// One run, alone. Its addresses must be good for `n` bytes and must not overlap.
pub(crate) struct Bulk {
    pub src: *const u8,
    pub dst: *mut u8,
    pub n: usize,
    pub stream: bool,
}

impl Job for Bulk {
    #[inline(always)]
    unsafe fn go<S: Simd>(self) {
        // SAFETY: the job's conditions.
        unsafe { copy::<S>(self.src, self.dst, self.n, self.stream) }
    }
}

/// One run that another processor reads as soon as it is there, under the conditions of [`Bulk`].
pub(crate) struct HandOver {
    pub src: *const u8,
    pub dst: *mut u8,
    pub n: usize,
}

impl Job for HandOver {
    #[inline(always)]
    unsafe fn go<S: Simd>(self) {
        // SAFETY: the job's conditions.
        unsafe { streamed::<S, FAR>(self.src, self.dst, self.n, self.src.wrapping_add(self.n)) }
    }
}
