//! Changing which index is contiguous: a two-dimensional transpose inside any outer loops.
//!
//! The plane is cut into blocks of 64 source columns and a few hundred destination bytes. Register tiles
//! transpose a block into a buffer in the first-level cache, while finished rows of the block before leave
//! for the destination and the lines of the next tiles are on their way. So each source line is read once and
//! each destination line is written once and whole, whatever the leading dimensions are: powers of two would
//! make lines evict each other. Destination rows that do not start on lines share one with each neighbour,
//! which costs up to half of the speed.

use crate::bulk;
use crate::convert::{convert_run, Convert};
use crate::nest::{Dim, Nest, Walk};
use crate::simd::{Job, Simd};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Source columns of a block.
const COLS: usize = 64;

/// Bytes of a block's row in the buffer when they make whole lines of the destination; more when elements
/// shrink on the way.
const ROW_BYTES: usize = 256;

/// Bytes of a block's row in the buffer when its ends share lines with their neighbours.
const LONG_ROW_BYTES: usize = 512;

/// A transpose found in a nest.
#[derive(Clone, Copy)]
pub(crate) struct Transpose {
    /// The loops around it.
    pub outer: Nest,
    /// The loop that is contiguous in the destination: over source rows.
    rows: Dim,
    /// The loop that is contiguous in the source: over source columns.
    cols: Dim,
}

impl Transpose {
    /// The transpose in a nest, if it has one of less than a line for each element.
    pub fn find(nest: &Nest) -> Option<Transpose> {
        let (at_row, at_col) = Transpose::position(nest)?;
        let dims = nest.dims();
        let mut outer = nest.with_dims(&[]);
        let mut kept = [Dim::default(); polyduct_layout::MAX_NEST];
        let mut n = 0;
        for (i, dim) in dims.iter().enumerate() {
            if i != at_row && i != at_col {
                kept[n] = *dim;
                n += 1;
            }
        }
        outer = outer.with_dims(&kept[..n]);
        Some(Transpose { outer, rows: dims[at_row], cols: dims[at_col] })
    }

    /// Which loops are contiguous in the destination and in the source, when these are two.
    pub fn position(nest: &Nest) -> Option<(usize, usize)> {
        let (src_run, dst_run) = (nest.src_run(), nest.dst_run());
        if src_run >= 64 || dst_run >= 64 {
            return None;
        }
        let dims = nest.dims();
        let row = dims.iter().rposition(|dim| dim.d == dst_run as isize)?;
        let col = dims.iter().rposition(|dim| dim.s == src_run as isize)?;
        (row != col).then_some((row, col))
    }
}

/// How a finished piece of a destination row leaves the buffer.
pub(crate) trait Emit: Copy {
    /// Bytes of the only element that is worth code of its own, or 0 for the usual ones.
    const SRC: usize;
    /// Whether all usual elements are.
    const ANY: bool = Self::SRC == 0;

    /// Writes `n` elements that lie in the buffer.
    ///
    /// # Safety
    /// The elements lie at `from` and have room at `to`; the machine has the level.
    unsafe fn emit<S: Simd>(self, from: *const u8, to: *mut u8, n: usize);

    /// Whether the caches are bypassed.
    fn stream(self) -> bool;
}

/// Elements of so many bytes as they are.
#[derive(Clone, Copy)]
pub(crate) struct AsTheyAre {
    pub elem: usize,
    pub stream: bool,
}

impl Emit for AsTheyAre {
    const SRC: usize = 0;

    #[inline(always)]
    unsafe fn emit<S: Simd>(self, from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: the caller's.
        unsafe {
            let bytes = n * self.elem;
            if !self.stream {
                bulk::cached::<S>(from, to, bytes);
            } else if bytes == ROW_BYTES && to.addr().is_multiple_of(64) {
                bulk::lines::<S, ROW_BYTES>(from, to);
            } else {
                bulk::streamed::<S, 0>(from, to, bytes, from);
            }
        }
    }

    fn stream(self) -> bool {
        self.stream
    }
}

/// Elements of `run` numbers each, which change their type.
#[derive(Clone, Copy)]
pub(crate) struct ConvertedBy<C> {
    pub run: usize,
    pub stream: bool,
    pub by: PhantomData<C>,
}

impl<C: Convert> Emit for ConvertedBy<C> {
    const SRC: usize = C::SRC;

    #[inline(always)]
    unsafe fn emit<S: Simd>(self, from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: the caller's.
        unsafe { convert_run::<S, C>(from, to, n * self.run, self.stream) }
    }

    fn stream(self) -> bool {
        self.stream
    }
}

/// A transpose to carry out. Base addresses are of the memories that the nest was lowered against; they do
/// not overlap.
pub(crate) struct TransposeJob<E> {
    pub what: Transpose,
    pub src: *const u8,
    pub dst: *mut u8,
    pub emit: E,
}

impl<E: Emit> Job for TransposeJob<E> {
    #[inline(always)]
    unsafe fn go<S: Simd>(self) {
        // SAFETY: the job's conditions.
        unsafe {
            match self.what.outer.src_run() {
                1 if E::ANY => self.planes::<S, 1>(),
                2 if E::ANY || E::SRC == 2 => self.planes::<S, 2>(),
                4 if E::ANY || E::SRC == 4 => self.planes::<S, 4>(),
                8 if E::ANY || E::SRC == 8 => self.planes::<S, 8>(),
                16 if E::ANY => self.planes::<S, 16>(),
                _ => self.planes::<S, 0>(),
            }
        }
    }
}

#[repr(C, align(64))]
struct Buffer([MaybeUninit<u8>; 2 * COLS * LONG_ROW_BYTES]);

impl<E: Emit> TransposeJob<E> {
    /// Carries out the planes of elements of `W` bytes, or of any size when `W` is 0.
    ///
    /// # Safety
    /// As [`Job::go`].
    #[inline(always)]
    unsafe fn planes<S: Simd, const W: usize>(&self) {
        let outer = &self.what.outer;
        let (src, dst) = (self.src.wrapping_add(outer.src), self.dst.wrapping_add(outer.dst));
        let mut buffer = MaybeUninit::<Buffer>::uninit();
        let mut walk = Walk::new(outer.dims(), src, dst);
        while let Some((s, d)) = walk.next() {
            // SAFETY: the nest's bounds cover each combination of its loops.
            unsafe { self.plane::<S, W>(s, d, buffer.as_mut_ptr().cast()) }
        }
    }

    /// One plane.
    ///
    /// # Safety
    /// As [`Job::go`]; the buffer has the size and alignment of [`Buffer`].
    #[inline(always)]
    unsafe fn plane<S: Simd, const W: usize>(&self, src: *const u8, dst: *mut u8, buffer: *mut u8) {
        let (rows, cols) = (self.what.rows, self.what.cols);
        let elem = if W == 0 { self.what.outer.src_run() } else { W };
        let dst_elem = self.what.outer.dst_run();
        // First blocks that end where a line does, so that the others are whole lines on both sides.
        let lined_up = cols.d % 64 == 0 && 64 % dst_elem == 0 && dst.addr().is_multiple_of(dst_elem);
        let piece = match elem {
            2.. if lined_up => (ROW_BYTES / dst_elem * elem).clamp(ROW_BYTES, LONG_ROW_BYTES),
            _ => LONG_ROW_BYTES,
        };
        let most = piece / elem;
        // Destination rows that follow one another leave as one piece.
        let joined = rows.n <= most && cols.d == (rows.n * dst_elem) as isize;
        let row_bytes = if joined { rows.n * elem } else { piece };
        let most_cols = if joined { COLS * piece / row_bytes / 64 * 64 } else { COLS };
        let first_row = if lined_up && !joined { dst.addr().wrapping_neg() % 64 / dst_elem } else { 0 };
        let first_col = to_line(src.addr(), rows.s, elem);
        let at = |j: usize, i: usize| src.wrapping_offset(j as isize * rows.s).wrapping_add(i * elem);
        let mut pending =
            Pending { emit: self.emit, from: buffer, from_step: 0, to: dst, to_step: 0, elems: 0, left: 0 };
        let mut half = 0;
        let (mut j, mut i) = (0, 0);
        while j < rows.n {
            let height = if j < first_row { first_row } else { most }.min(rows.n - j);
            let width = if i < first_col { first_col } else { most_cols }.min(cols.n - i);
            let (next_j, next_i) = if i + width < cols.n { (j, i + width) } else { (j + height, 0) };
            let to = dst.wrapping_offset(i as isize * cols.d).wrapping_add(j * dst_elem);
            let buffer = buffer.wrapping_add(half);
            half = COLS * piece - half;
            let block =
                Block { src: at(j, i), src_step: rows.s, dst: buffer, dst_step: row_bytes as isize, elem };
            // SAFETY: the block lies within the plane, and its `width` rows of at most `row_bytes` in one
            // half of the buffer; what is pending lies in the other half, and its rows in the plane.
            unsafe {
                block.transpose::<S, E, W>(height, width, at(next_j, next_i), &mut pending);
                pending.emit::<S>(usize::MAX);
                let (elems, left) = if joined { (height * width, 1) } else { (height, width) };
                pending =
                    Pending { from: buffer, from_step: piece, to, to_step: cols.d, elems, left, ..pending };
                if !lined_up && self.emit.stream() {
                    pending.ask::<S>(dst_elem);
                }
            }
            (j, i) = (next_j, next_i);
        }
        // SAFETY: as above.
        unsafe { pending.emit::<S>(usize::MAX) }
    }
}

/// Rows of a finished block that are to leave the buffer, a few after each tile of the next block: so the
/// stores of one go on while the other is computed.
struct Pending<E> {
    emit: E,
    from: *const u8,
    from_step: usize,
    to: *mut u8,
    to_step: isize,
    elems: usize,
    left: usize,
}

impl<E: Emit> Pending<E> {
    /// Asks for the lines that the rows share with their neighbours: those are stored, not streamed.
    #[inline(always)]
    fn ask<S: Simd>(&self, dst_elem: usize) {
        let mut to = self.to;
        for _ in 0..self.left {
            S::prefetch(to);
            S::prefetch(to.wrapping_add(self.elems * dst_elem - 1));
            to = to.wrapping_offset(self.to_step);
        }
    }

    /// Lets at most `n` rows go.
    ///
    /// # Safety
    /// The rows that are left lie in the buffer and have room in the destination; the machine has the level.
    #[inline(always)]
    unsafe fn emit<S: Simd>(&mut self, n: usize) {
        for _ in 0..n.min(self.left) {
            // SAFETY: the caller's.
            unsafe { self.emit.emit::<S>(self.from, self.to, self.elems) }
            self.from = self.from.wrapping_add(self.from_step);
            self.to = self.to.wrapping_offset(self.to_step);
            self.left -= 1;
        }
    }
}

/// Elements up to the next line, where steps keep the place in a line and elements do not straddle it; else
/// 0.
fn to_line(at: usize, step: isize, elem: usize) -> usize {
    let off = at.wrapping_neg() % 64;
    if step % 64 == 0 && off.is_multiple_of(elem) {
        off / elem
    } else {
        0
    }
}

/// A block that is transposed by register tiles, and at its edges by smaller ones and single elements.
#[derive(Clone, Copy)]
struct Block {
    src: *const u8,
    src_step: isize,
    dst: *mut u8,
    dst_step: isize,
    elem: usize,
}

impl Block {
    /// The block without its first `rows` and `cols`.
    #[inline(always)]
    fn skip(self, rows: usize, cols: usize) -> Block {
        Block {
            src: self.src.wrapping_offset(rows as isize * self.src_step).wrapping_add(cols * self.elem),
            dst: self.dst.wrapping_offset(cols as isize * self.dst_step).wrapping_add(rows * self.elem),
            ..self
        }
    }

    /// Transposes `rows` by `cols` elements of `W` bytes (0: any). The next block is at `next`.
    ///
    /// # Safety
    /// The block lies within both memories; the machine has the level.
    #[inline(always)]
    unsafe fn transpose<S: Simd, E: Emit, const W: usize>(
        self,
        rows: usize,
        cols: usize,
        next: *const u8,
        pending: &mut Pending<E>,
    ) {
        // SAFETY: each part lies within the block.
        unsafe {
            if W == 0 {
                return self.each::<W>(rows, cols);
            }
            let (rows_done, cols_done) = self.tiles::<S, E, W>(rows, cols, Some((next, pending)));
            self.skip(0, cols_done).edge::<S, E, W>(rows_done, cols - cols_done);
            self.skip(rows_done, 0).edge::<S, E, W>(rows - rows_done, cols);
        }
    }

    /// Transposes by the next narrower tiles and then element by element.
    ///
    /// # Safety
    /// As [`Block::transpose`].
    #[inline(always)]
    unsafe fn edge<S: Simd, E: Emit, const W: usize>(self, rows: usize, cols: usize) {
        if rows == 0 || cols == 0 {
            return;
        }
        // SAFETY: each part lies within the block; a machine with a level has the narrower ones.
        unsafe {
            let (rows_done, cols_done) = self.tiles::<S::Narrower, E, W>(rows, cols, None);
            self.skip(0, cols_done).each::<W>(rows_done, cols - cols_done);
            self.skip(rows_done, 0).each::<W>(rows - rows_done, cols);
        }
    }

    /// Transposes the whole tiles; returns how many rows and columns these cover.
    ///
    /// Meanwhile it asks for the next row of tiles, which for the last one is the first of the block at
    /// `next`. No further ahead: where rows lie a power of two apart their lines compete for few places in
    /// the caches, and a whole block's would be gone again before their turn.
    ///
    /// # Safety
    /// As [`Block::transpose`].
    #[inline(always)]
    unsafe fn tiles<S: Simd, E: Emit, const W: usize>(
        self,
        rows: usize,
        cols: usize,
        mut next: Option<(*const u8, &mut Pending<E>)>,
    ) -> (usize, usize) {
        let side = S::tile_side(W);
        let (rows, cols) = (rows / side * side, cols / side * side);
        let share = COLS.div_ceil((rows / side * (cols / side)).max(1));
        let mut j = 0;
        while j < rows {
            let below = self.skip(j + side, 0).src;
            let mut i = 0;
            while i < cols {
                if let Some((next, pending)) = &mut next {
                    let ahead = if j + side < rows { below } else { *next };
                    for k in 0..side {
                        S::prefetch(ahead.wrapping_offset(k as isize * self.src_step).wrapping_add(i * W));
                    }
                    // SAFETY: the caller's.
                    unsafe { pending.emit::<S>(share) }
                }
                let tile = self.skip(j, i);
                // SAFETY: the tile lies within the block.
                unsafe { S::tile::<W>(tile.src, self.src_step, tile.dst, self.dst_step) }
                i += side;
            }
            j += side;
        }
        (rows, cols)
    }

    /// Transposes element by element.
    ///
    /// # Safety
    /// As [`Block::transpose`].
    #[inline(always)]
    unsafe fn each<const W: usize>(self, rows: usize, cols: usize) {
        let (inner, outer) = if rows < cols { (cols, rows) } else { (rows, cols) };
        for i in 0..outer {
            let (from, s_step, d_step) = if rows < cols {
                (self.skip(i, 0), self.elem as isize, self.dst_step)
            } else {
                (self.skip(0, i), self.src_step, self.elem as isize)
            };
            let (mut s, mut d) = (from.src, from.dst);
            for _ in 0..inner {
                // SAFETY: the element lies within the block; elements of any size have less than 64 bytes.
                unsafe {
                    if W == 0 {
                        bulk::small(s, d, self.elem);
                    } else {
                        bulk::fixed::<W>(s, d);
                    }
                }
                s = s.wrapping_offset(s_step);
                d = d.wrapping_offset(d_step);
            }
        }
    }
}
