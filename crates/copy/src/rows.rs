//! Loops around runs: strided two-dimensional copies and what is built of them.

use crate::bulk;
use crate::convert::{convert_run, Convert};
use crate::nest::{Dim, Nest, Walk};
use crate::simd::{self, Job, Simd};
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

/// Many bytes, past the caches, each run asked for so many bytes in advance.
#[derive(Clone, Copy)]
struct Streamed<const AHEAD: usize>(usize);

impl<const AHEAD: usize> Run for Streamed<AHEAD> {
    const CACHED: bool = false;

    #[inline(always)]
    unsafe fn copy<S: Simd>(self, src: *const u8, dst: *mut u8, next: *const u8) {
        // SAFETY: the caller's.
        unsafe { bulk::streamed::<S, AHEAD>(src, dst, self.0, next) }
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

/// Longer runs between gaps, past the caches, are asked for line by line of so many runs in turn. Asked for one
/// run after the other, the processor takes them for a stream and fetches the gaps as well: half rows of 2 KiB,
/// read by two cores, moved at 0.71 of what a plain copy did, and so at 0.97. Measured: 4 runs are slower for
/// runs of 1 KiB, and 16 for all; runs of 512 bytes are no faster so. Into the first-level cache, which waits
/// for the lines, half rows came at 0.87.
const COMB: usize = 8;

/// Up to which length they are.
const COMBED: usize = 16 << 10;

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
            let comb = (STREAM_RUN..COMBED).contains(&n) && self.nest.has_gaps();
            if self.stream && n < SHORT && whole_lines(self.nest, self.dst) {
                return self.loops::<S, _>(Lines(n), if comb { Ask::Lines } else { Ask::Runs });
            }
            if self.stream && n >= STREAM_RUN {
                return match comb {
                    true => self.loops::<S, _>(Streamed::<0>(n), Ask::Lines),
                    false => self.loops::<S, _>(Streamed::<{ bulk::NEAR }>(n), Ask::Nothing),
                };
            }
            let ahead = if self.ahead && (32..SHORT).contains(&n) { Ask::Runs } else { Ask::Nothing };
            match n {
                1 => self.loops::<S, _>(Exact::<1>, Ask::Nothing),
                2 => self.loops::<S, _>(Exact::<2>, Ask::Nothing),
                3 => self.loops::<S, _>(Pair::<2>(n), Ask::Nothing),
                4 => self.loops::<S, _>(Exact::<4>, Ask::Nothing),
                5..=7 => self.loops::<S, _>(Pair::<4>(n), Ask::Nothing),
                8 => self.loops::<S, _>(Exact::<8>, Ask::Nothing),
                9..=15 => self.loops::<S, _>(Pair::<8>(n), Ask::Nothing),
                16 => self.loops::<S, _>(Exact::<16>, Ask::Nothing),
                17..=31 => self.loops::<S, _>(Pair::<16>(n), Ask::Nothing),
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
    unsafe fn loops<S: Simd, R: Run>(&self, run: R, ask: Ask) {
        let one = Dim { n: 1, s: 0, d: 0 };
        let (outer, middle, inner) = match self.nest.dims() {
            [] => (&[][..], one, one),
            [inner] => (&[][..], one, *inner),
            [outer @ .., middle, inner] => (outer, *middle, *inner),
        };
        let len = self.nest.src_run();
        let runs = middle.n * inner.n;
        let early = (AHEAD / len).clamp(1, runs);
        // Of few runs most would be asked for that are none of them.
        let ask = if runs < 2 * COMB && matches!(ask, Ask::Lines) { Ask::Runs } else { ask };
        let (src, dst) = (self.src.wrapping_add(self.nest.src), self.dst.wrapping_add(self.nest.dst));
        let plane = Plane { middle, inner, len, early, dst_ahead: R::CACHED && self.dst_ahead };
        let mut walk = Walk::new(outer, src, dst);
        while let Some((s, d)) = walk.next() {
            // SAFETY: the nest's bounds cover each combination of its loops.
            unsafe {
                match ask {
                    Ask::Nothing => plane.copy::<S, R>(run, s, d, &mut ()),
                    Ask::Runs => plane.copy::<S, R>(run, s, d, &mut plane.run_at(plane.early, s, d)),
                    Ask::Lines => plane.copy::<S, R>(run, s, d, &mut Comb::new::<S>(&plane, s, d)),
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

/// How the source is asked for ahead of where it is read.
#[derive(Clone, Copy)]
enum Ask {
    /// The processor sees to it, or the copy of a run.
    Nothing,
    /// Run by run.
    Runs,
    /// Line by line of [`COMB`] runs in turn.
    Lines,
}

/// What asks, once before each run.
trait Asks {
    fn ask<S: Simd>(&mut self, plane: &Plane);
}

impl Asks for () {
    #[inline(always)]
    fn ask<S: Simd>(&mut self, _: &Plane) {}
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
    unsafe fn copy<S: Simd, R: Run>(&self, run: R, src: *const u8, dst: *mut u8, asks: &mut impl Asks) {
        let (middle, inner) = (self.middle, self.inner);
        for i in 0..middle.n as isize {
            let mut s = src.wrapping_offset(i.wrapping_mul(middle.s));
            let mut d = dst.wrapping_offset(i.wrapping_mul(middle.d));
            for _ in 0..inner.n {
                asks.ask::<S>(self);
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

    /// The run `early` after the first, which is at these addresses.
    #[inline(always)]
    fn run_at(&self, early: usize, src: *const u8, dst: *const u8) -> Ahead {
        let turns = self.turns();
        let (row, run) = ((early / turns) as isize, (early % turns) as isize);
        let step =
            |middle: isize, inner: isize| middle.wrapping_mul(row).wrapping_add(inner.wrapping_mul(run));
        Ahead {
            src: src.wrapping_offset(step(self.middle.s, self.inner.s)),
            dst: dst.wrapping_offset(step(self.middle.d, self.inner.d)),
            left: turns - early % turns,
        }
    }
}

impl Asks for Ahead {
    #[inline(always)]
    fn ask<S: Simd>(&mut self, plane: &Plane) {
        for at in (0..plane.len).step_by(64) {
            S::prefetch(self.src.wrapping_add(at));
            if plane.dst_ahead {
                S::prefetch_to_write(self.dst.wrapping_add(at));
            }
        }
        if plane.dst_ahead {
            S::prefetch_to_write(self.dst.wrapping_add(plane.len - 1));
        }
        self.go_on(plane);
    }
}

impl Ahead {
    /// Goes on to the next run.
    #[inline(always)]
    fn go_on(&mut self, plane: &Plane) {
        self.src = self.src.wrapping_offset(plane.inner.s);
        self.dst = self.dst.wrapping_offset(plane.inner.d);
        self.left -= 1;
        if self.left == 0 {
            self.left = plane.turns();
            let over =
                |middle: isize, inner: isize| middle.wrapping_sub(inner.wrapping_mul(self.left as isize));
            self.src = self.src.wrapping_offset(over(plane.middle.s, plane.inner.s));
            self.dst = self.dst.wrapping_offset(over(plane.middle.d, plane.inner.d));
        }
    }
}

/// While so many runs are copied, the lines of the next are asked for.
struct Comb {
    teeth: [*const u8; COMB],
    /// What part of their lines comes next.
    turn: usize,
    behind: Ahead,
    /// Runs of the plane that are not among the teeth yet.
    left: usize,
}

impl Comb {
    fn new<S: Simd>(plane: &Plane, src: *const u8, dst: *const u8) -> Comb {
        let left = plane.middle.n * plane.inner.n;
        let mut comb = Comb { teeth: [src; COMB], turn: 0, behind: plane.run_at(0, src, dst), left };
        comb.move_on(plane);
        // The first runs have none before them.
        (0..COMB).for_each(|_| comb.ask::<S>(plane));
        comb
    }

    fn move_on(&mut self, plane: &Plane) {
        // Behind the last run nothing is asked for.
        self.turn = if self.left == 0 { COMB } else { 0 };
        self.left = self.left.saturating_sub(COMB);
        for tooth in &mut self.teeth {
            *tooth = self.behind.src;
            self.behind.go_on(plane);
        }
    }
}

impl Asks for Comb {
    #[inline(always)]
    fn ask<S: Simd>(&mut self, plane: &Plane) {
        if self.turn == COMB {
            return;
        }
        let lines = plane.len.div_ceil(64);
        for line in self.turn * lines..(self.turn + 1) * lines {
            simd::prefetch_far(self.teeth[line % COMB].wrapping_add(line / COMB * 64));
        }
        self.turn += 1;
        if self.turn == COMB {
            self.move_on(plane);
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
        let ahead = self.rows.ahead && self.rows.nest.src_run() < SHORT;
        // SAFETY: the job's conditions.
        unsafe { self.rows.loops::<S, _>(run, if ahead { Ask::Runs } else { Ask::Nothing }) }
    }
}
