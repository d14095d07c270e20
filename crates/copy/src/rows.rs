//! Loops around runs: strided two-dimensional copies and what is built of them.

use crate::bulk;
use crate::convert::{convert_run, Convert};
use crate::nest::{Dim, Nest, Walk};
use crate::simd::{Job, Simd};
use std::marker::PhantomData;

/// Copies one run of a length that the loops around it share.
trait Run: Copy {
    /// Whether stores go through the caches and are sooner done where the lines of the destination are there.
    const CACHED: bool = true;

    /// # Safety
    /// A run's bytes at both addresses; the machine has the level. `next` is where the next run begins.
    unsafe fn copy<S: Simd>(self, src: *const u8, dst: *mut u8, next: *const u8);
}

/// `N` bytes.
#[derive(Clone, Copy)]
struct Exact<const N: usize>;

impl<const N: usize> Run for Exact<N> {
    #[inline(always)]
    unsafe fn copy<S: Simd>(self, src: *const u8, dst: *mut u8, _: *const u8) {
        // SAFETY: the caller's.
        unsafe { bulk::fixed::<N>(src, dst) }
    }
}

/// Between `N` and twice `N` bytes.
#[derive(Clone, Copy)]
struct Pair<const N: usize>(usize);

impl<const N: usize> Run for Pair<N> {
    #[inline(always)]
    unsafe fn copy<S: Simd>(self, src: *const u8, dst: *mut u8, _: *const u8) {
        // SAFETY: the caller's.
        unsafe { bulk::pair::<N>(src, dst, self.0) }
    }
}

/// Any number of bytes.
#[derive(Clone, Copy)]
struct Cached(usize);

impl Run for Cached {
    #[inline(always)]
    unsafe fn copy<S: Simd>(self, src: *const u8, dst: *mut u8, _: *const u8) {
        // SAFETY: the caller's.
        unsafe { bulk::cached::<S>(src, dst, self.0) }
    }
}

/// A multiple of 64 bytes to a multiple of 64, past the caches.
#[derive(Clone, Copy)]
struct Lines(usize);

impl Run for Lines {
    const CACHED: bool = false;

    #[inline(always)]
    unsafe fn copy<S: Simd>(self, src: *const u8, dst: *mut u8, _: *const u8) {
        for at in (0..self.0).step_by(64) {
            // SAFETY: the caller's; the length is a multiple of 64.
            unsafe { bulk::lines::<S, 64>(src.add(at), dst.add(at)) }
        }
    }
}

/// Many bytes, past the caches.
#[derive(Clone, Copy)]
struct Streamed(usize);

impl Run for Streamed {
    const CACHED: bool = false;

    #[inline(always)]
    unsafe fn copy<S: Simd>(self, src: *const u8, dst: *mut u8, next: *const u8) {
        // SAFETY: the caller's.
        unsafe { bulk::streamed::<S, { bulk::NEAR }>(src, dst, self.0, next) }
    }
}

/// Elements that change their type.
#[derive(Clone, Copy)]
struct Converted<C> {
    elems: usize,
    stream: bool,
    by: PhantomData<C>,
}

impl<C: Convert> Run for Converted<C> {
    /// Long runs are streamed, and short ones go through a buffer.
    const CACHED: bool = false;

    #[inline(always)]
    unsafe fn copy<S: Simd>(self, src: *const u8, dst: *mut u8, _: *const u8) {
        // SAFETY: the caller's.
        unsafe { convert_run::<S, C>(src, dst, self.elems, self.stream) }
    }
}

/// From which length a run is streamed by itself although its first and last lines may not be whole.
const STREAM_RUN: usize = 1024;

/// Up to which length runs are asked for as wholes, some runs ahead. Longer ones see to it themselves.
const SHORT: usize = 4096;

/// Bytes of source and destination that are asked for ahead of short runs, which lie in pages that the
/// processor does not foresee. Measured: 1 KiB is slower by a third, 8 KiB no faster. Without the lines of
/// the destination, block-cyclic arrays of f32 that do not start at a line moved at 5.7 GB/s, and with them
/// at 10.5.
const AHEAD: usize = 4096;

/// Whether every run of the nest covers whole lines of the destination.
fn whole_lines(nest: &Nest, dst: *mut u8) -> bool {
    let steps = nest.dims().iter().fold(0, |all, dim| all | dim.d.unsigned_abs());
    (dst.addr().wrapping_add(nest.dst) | nest.dst_run() | steps).is_multiple_of(64)
}

/// Whether [`Rows`] would stream this nest, or else store it through the caches.
pub(crate) fn can_stream(nest: &Nest, dst: *mut u8) -> bool {
    nest.dst_run() >= STREAM_RUN || whole_lines(nest, dst)
}

/// A nest of runs. Base addresses are of the memories that the nest was lowered against; they do not overlap.
pub(crate) struct Rows<'a> {
    pub nest: &'a Nest,
    pub src: *const u8,
    pub dst: *mut u8,
    /// The transfer is so large that the destination should bypass the caches.
    pub stream: bool,
    /// Short runs of the source lie in memory and should be asked for in advance.
    pub ahead: bool,
    /// Those of the destination, too, where stores go through the caches.
    pub dst_ahead: bool,
}

impl<'a> Rows<'a> {
    /// A nest between memories that are in the caches, and stay there.
    pub fn new(nest: &'a Nest, src: *const u8, dst: *mut u8) -> Rows<'a> {
        Rows { nest, src, dst, stream: false, ahead: false, dst_ahead: false }
    }
}

impl Job for Rows<'_> {
    #[inline(always)]
    unsafe fn go<S: Simd>(self) {
        let n = self.nest.src_run();
        // SAFETY: the job's conditions are those of `loops`; each arm names a run of `n` bytes.
        unsafe {
            if self.stream && n < SHORT && whole_lines(self.nest, self.dst) {
                return self.loops::<S, _>(Lines(n), true);
            }
            if self.stream && n >= STREAM_RUN {
                return self.loops::<S, _>(Streamed(n), false);
            }
            let ahead = self.ahead && (32..SHORT).contains(&n);
            match n {
                1 => self.loops::<S, _>(Exact::<1>, false),
                2 => self.loops::<S, _>(Exact::<2>, false),
                3 => self.loops::<S, _>(Pair::<2>(n), false),
                4 => self.loops::<S, _>(Exact::<4>, false),
                5..=7 => self.loops::<S, _>(Pair::<4>(n), false),
                8 => self.loops::<S, _>(Exact::<8>, false),
                9..=15 => self.loops::<S, _>(Pair::<8>(n), false),
                16 => self.loops::<S, _>(Exact::<16>, false),
                17..=31 => self.loops::<S, _>(Pair::<16>(n), false),
                32 => self.loops::<S, _>(Exact::<32>, ahead),
                33..=63 => self.loops::<S, _>(Pair::<32>(n), ahead),
                64 => self.loops::<S, _>(Exact::<64>, ahead),
                65..=127 => self.loops::<S, _>(Pair::<64>(n), ahead),
                128 => self.loops::<S, _>(Exact::<128>, ahead),
                _ => self.loops::<S, _>(Cached(n), ahead),
            }
        }
    }
}

impl Rows<'_> {
    /// Carries out the nest.
    ///
    /// # Safety
    /// The nest fits the two memories, `run` is its run, and the machine has the level.
    #[inline(always)]
    unsafe fn loops<S: Simd, R: Run>(&self, run: R, ahead: bool) {
        let one = Dim { n: 1, s: 0, d: 0 };
        let (outer, middle, inner) = match self.nest.dims() {
            [] => (&[][..], one, one),
            [inner] => (&[][..], one, *inner),
            [outer @ .., middle, inner] => (outer, *middle, *inner),
        };
        let len = self.nest.src_run();
        let early = (AHEAD / len).clamp(1, middle.n * inner.n);
        let (src, dst) = (self.src.wrapping_add(self.nest.src), self.dst.wrapping_add(self.nest.dst));
        let plane = Plane { middle, inner, len, early, dst_ahead: R::CACHED && self.dst_ahead };
        let mut walk = Walk::new(outer, src, dst);
        while let Some((s, d)) = walk.next() {
            // SAFETY: the nest's bounds cover each combination of its loops.
            unsafe {
                if ahead {
                    plane.copy::<S, R, true>(run, s, d);
                } else {
                    plane.copy::<S, R, false>(run, s, d);
                }
            }
        }
    }
}

/// The two innermost loops.
struct Plane {
    middle: Dim,
    inner: Dim,
    len: usize,
    /// How many runs ahead they are asked for.
    early: usize,
    /// Whether that goes for the destination, too.
    dst_ahead: bool,
}

/// The run that is asked for.
struct Ahead {
    src: *const u8,
    dst: *const u8,
    /// How many of its row are left; after a last row it goes on as in that row.
    left: usize,
}

impl Plane {
    /// # Safety
    /// As [`Rows::loops`], for one plane.
    #[inline(always)]
    unsafe fn copy<S: Simd, R: Run, const AHEAD: bool>(&self, run: R, src: *const u8, dst: *mut u8) {
        let (middle, inner) = (self.middle, self.inner);
        let mut ahead = self.ahead(src, dst);
        for i in 0..middle.n as isize {
            let mut s = src.wrapping_offset(i.wrapping_mul(middle.s));
            let mut d = dst.wrapping_offset(i.wrapping_mul(middle.d));
            for _ in 0..inner.n {
                if AHEAD {
                    self.ask::<S>(&mut ahead);
                }
                let next = s.wrapping_offset(inner.s);
                // SAFETY: the caller's.
                unsafe { run.copy::<S>(s, d, next) }
                s = next;
                d = d.wrapping_offset(inner.d);
            }
        }
    }
}

impl Plane {
    /// Runs in a row.
    fn turns(&self) -> usize {
        if self.middle.n > 1 {
            self.inner.n
        } else {
            usize::MAX
        }
    }

    /// The run `early` after the first.
    #[inline(always)]
    fn ahead(&self, src: *const u8, dst: *const u8) -> Ahead {
        let turns = self.turns();
        let (row, run) = ((self.early / turns) as isize, (self.early % turns) as isize);
        let step =
            |middle: isize, inner: isize| middle.wrapping_mul(row).wrapping_add(inner.wrapping_mul(run));
        Ahead {
            src: src.wrapping_offset(step(self.middle.s, self.inner.s)),
            dst: dst.wrapping_offset(step(self.middle.d, self.inner.d)),
            left: turns - self.early % turns,
        }
    }

    /// Asks for a run and goes on to the next.
    #[inline(always)]
    fn ask<S: Simd>(&self, ahead: &mut Ahead) {
        for at in (0..self.len).step_by(64) {
            S::prefetch(ahead.src.wrapping_add(at));
            if self.dst_ahead {
                S::prefetch_to_write(ahead.dst.wrapping_add(at));
            }
        }
        if self.dst_ahead {
            S::prefetch_to_write(ahead.dst.wrapping_add(self.len - 1));
        }
        ahead.src = ahead.src.wrapping_offset(self.inner.s);
        ahead.dst = ahead.dst.wrapping_offset(self.inner.d);
        ahead.left -= 1;
        if ahead.left == 0 {
            ahead.left = self.turns();
            let over =
                |middle: isize, inner: isize| middle.wrapping_sub(inner.wrapping_mul(ahead.left as isize));
            ahead.src = ahead.src.wrapping_offset(over(self.middle.s, self.inner.s));
            ahead.dst = ahead.dst.wrapping_offset(over(self.middle.d, self.inner.d));
        }
    }
}

/// A nest of runs whose elements change their type. Conditions as for [`Rows`].
pub(crate) struct ConvertRows<'a, C> {
    pub rows: Rows<'a>,
    pub by: PhantomData<C>,
}

impl<C: Convert> Job for ConvertRows<'_, C> {
    #[inline(always)]
    unsafe fn go<S: Simd>(self) {
        let run = Converted { elems: self.rows.nest.run, stream: self.rows.stream, by: PhantomData::<C> };
        // SAFETY: the job's conditions.
        unsafe { self.rows.loops::<S, _>(run, self.rows.ahead && self.rows.nest.src_run() < SHORT) }
    }
}
