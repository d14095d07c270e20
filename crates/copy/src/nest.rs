//! One operation of a table, checked and counted in bytes.

use crate::CopyError;
use polyduct_layout::{Op, OpTable, MAX_NEST};

/// One loop in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dim {
    /// Repetitions, at least 2.
    pub n: usize,
    /// Bytes to advance in the source.
    pub s: isize,
    /// Bytes to advance in the destination.
    pub d: isize,
}

/// Loops around a run of elements, in bytes from the starts of the two memories.
///
/// Invariant, checked by [`Nest::lower`] and kept by everything that derives one nest from another: each byte
/// that it reaches lies within the two lengths that it was lowered against, and these do not exceed
/// `isize::MAX`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nest {
    pub src: usize,
    pub dst: usize,
    /// Elements in a run, at least 1.
    pub run: usize,
    /// Bytes of an element in the source and in the destination.
    pub src_elem: usize,
    pub dst_elem: usize,
    dims: [Dim; MAX_NEST],
    len: usize,
}

/// What a nest is lowered against: element sizes and lengths of the two sides, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub src_elem: usize,
    pub dst_elem: usize,
    pub src_len: usize,
    pub dst_len: usize,
}

impl Nest {
    /// Checks operation `index` of the table and turns it into bytes; `None` when it moves nothing.
    ///
    /// The table's own invariants would make this check needless; made again here, the bounds of every access
    /// rest on this function alone. It costs a few multiplications for each loop.
    #[inline]
    pub fn lower(table: &OpTable, op: &Op, index: usize, frame: &Frame) -> Result<Option<Nest>, CopyError> {
        let mut nest = Nest::NOTHING;
        Ok(nest.become_op(table, op, index, frame)?.then_some(nest))
    }

    /// A place for a nest.
    pub const NOTHING: Nest = Nest {
        src: 0,
        dst: 0,
        run: 0,
        src_elem: 1,
        dst_elem: 1,
        dims: [Dim { n: 0, s: 0, d: 0 }; MAX_NEST],
        len: 0,
    };

    /// [`Nest::lower`] in place, for a nest is large to move; false when the operation moves nothing.
    pub fn become_op(
        &mut self,
        table: &OpTable,
        op: &Op,
        index: usize,
        frame: &Frame,
    ) -> Result<bool, CopyError> {
        let nest = self;
        let bad = CopyError::Malformed { op: index };
        let (src_elem, dst_elem) = (frame.src_elem, frame.dst_elem);
        let bytes = |elems: u64, elem: usize| usize::try_from(elems as u128 * elem as u128).ok();
        let run = usize::try_from(op.run).map_err(|_| bad)?;
        (nest.src, nest.dst) = (bytes(op.src, src_elem).ok_or(bad)?, bytes(op.dst, dst_elem).ok_or(bad)?);
        (nest.run, nest.src_elem, nest.dst_elem, nest.len) = (run, src_elem, dst_elem, 0);
        let end = |at: usize, elem: usize| at.checked_add(bytes(op.run, elem)?).map(|end| end as i128);
        let (mut src_low, mut src_high) = (nest.src as i128, end(nest.src, src_elem).ok_or(bad)?);
        let (mut dst_low, mut dst_high) = (nest.dst as i128, end(nest.dst, dst_elem).ok_or(bad)?);
        let mut empty = run == 0 || src_elem == 0 || dst_elem == 0;
        for l in table.loops(op) {
            empty |= l.count == 0;
            if l.count <= 1 {
                continue;
            }
            let dim = Dim {
                n: usize::try_from(l.count).map_err(|_| bad)?,
                s: isize::try_from(l.src_step as i128 * src_elem as i128).map_err(|_| bad)?,
                d: isize::try_from(l.dst_step as i128 * dst_elem as i128).map_err(|_| bad)?,
            };
            let reach = |step: isize| (dim.n as i128 - 1) * step as i128;
            let (s, d) = (reach(dim.s), reach(dim.d));
            // Each below 2^63 in size, so that the sums over at most MAX_NEST loops cannot overflow.
            if s.unsigned_abs() > isize::MAX as u128
                || d.unsigned_abs() > isize::MAX as u128
                || nest.len == MAX_NEST
            {
                return Err(bad);
            }
            src_low += s.min(0);
            src_high += s.max(0);
            dst_low += d.min(0);
            dst_high += d.max(0);
            nest.dims[nest.len] = dim;
            nest.len += 1;
        }
        if empty {
            return Ok(false);
        }
        if src_low < 0 || dst_low < 0 || src_high > frame.src_len as i128 || dst_high > frame.dst_len as i128
        {
            return Err(bad);
        }
        Ok(true)
    }

    /// The loops, outermost first.
    pub fn dims(&self) -> &[Dim] {
        &self.dims[..self.len]
    }

    /// Bytes of a run in the source.
    pub fn src_run(&self) -> usize {
        self.run * self.src_elem
    }

    /// Bytes of a run in the destination.
    pub fn dst_run(&self) -> usize {
        self.run * self.dst_elem
    }

    /// Whether something lies between its runs in the source.
    pub fn has_gaps(&self) -> bool {
        self.dims().last().is_some_and(|inner| inner.s.unsigned_abs() > self.src_run())
    }

    /// Elements that the nest moves.
    pub fn elems(&self) -> usize {
        self.dims().iter().fold(self.run, |n, dim| n.saturating_mul(dim.n))
    }

    /// The same place and run with other loops. Loops of one repetition are dropped.
    pub fn with_dims(&self, dims: &[Dim]) -> Nest {
        let mut nest = Nest { len: 0, ..*self };
        for dim in dims.iter().filter(|dim| dim.n > 1) {
            nest.dims[nest.len] = *dim;
            nest.len += 1;
        }
        nest
    }

    /// Moved by `n` repetitions of a loop.
    pub fn advanced(&self, dim: &Dim, n: usize) -> Nest {
        let src = self.src.wrapping_add_signed(dim.s.wrapping_mul(n as isize));
        let dst = self.dst.wrapping_add_signed(dim.d.wrapping_mul(n as isize));
        Nest { src, dst, ..*self }
    }

    /// The first `elems` elements of the run after the first `skip`, without loops.
    fn within_run(&self, skip: usize, elems: usize) -> Nest {
        Nest {
            src: self.src + skip * self.src_elem,
            dst: self.dst + skip * self.dst_elem,
            run: elems,
            len: 0,
            ..*self
        }
    }

    /// The repetitions `from..to` of the outermost loop.
    pub fn outer(&self, from: usize, to: usize) -> Nest {
        let mut nest = self.advanced(&self.dims[0], from);
        nest.dims[0].n = to - from;
        let dims = nest.dims;
        nest.with_dims(&dims[..self.len])
    }

    /// Calls `f` with nests that together move the elements `from..to` of this one, counted in the order of
    /// the loops, and in that order. There are at most two for each loop and one more.
    pub fn cut(
        &self,
        from: usize,
        to: usize,
        f: &mut impl FnMut(&Nest) -> Result<(), CopyError>,
    ) -> Result<(), CopyError> {
        if from >= to {
            return Ok(());
        }
        let Some((outer, inner)) = self.dims().split_first() else {
            return f(&self.within_run(from, to - from));
        };
        let inside = self.with_dims(inner);
        let each = inside.elems();
        let (mut at, last) = (from / each, to / each);
        if at == last {
            return inside.advanced(outer, at).cut(from % each, to % each, f);
        }
        if !from.is_multiple_of(each) {
            inside.advanced(outer, at).cut(from % each, each, f)?;
            at += 1;
        }
        if at < last {
            f(&self.outer(at, last))?;
        }
        inside.advanced(outer, last).cut(0, to % each, f)
    }

    /// Calls `f` with nests of at most `limit` elements (≥ 1) that together are this one, in the order of the
    /// loops.
    pub fn boxes(
        &self,
        limit: usize,
        f: &mut impl FnMut(&Nest) -> Result<(), CopyError>,
    ) -> Result<(), CopyError> {
        if self.elems() <= limit {
            return f(self);
        }
        let Some((outer, inner)) = self.dims().split_first() else {
            return (0..self.run)
                .step_by(limit)
                .try_for_each(|at| f(&self.within_run(at, limit.min(self.run - at))));
        };
        let inside = self.with_dims(inner);
        let each = inside.elems();
        if each > limit {
            return (0..outer.n).try_for_each(|i| inside.advanced(outer, i).boxes(limit, f));
        }
        let step = limit / each;
        (0..outer.n).step_by(step).try_for_each(|i| f(&self.outer(i, (i + step).min(outer.n))))
    }

    /// The two halves of this nest by way of a dense buffer in the order of its loops: the gathering one
    /// writes the buffer in source elements, the scattering one reads it in destination elements.
    pub fn through_buffer(&self) -> (Nest, Nest) {
        let (mut gather, mut scatter) = (*self, *self);
        (gather.dst, gather.dst_elem) = (0, self.src_elem);
        (scatter.src, scatter.src_elem) = (0, self.dst_elem);
        let mut elems = self.run;
        for i in (0..self.len).rev() {
            gather.dims[i].d = (elems * self.src_elem) as isize;
            scatter.dims[i].s = (elems * self.dst_elem) as isize;
            elems *= self.dims[i].n;
        }
        gather.fuse();
        scatter.fuse();
        (gather, scatter)
    }

    /// Whether the destination is one contiguous piece in the order of the loops.
    pub fn dst_is_dense(&self) -> bool {
        let mut bytes = self.dst_run() as isize;
        self.dims().iter().rev().all(|dim| {
            let dense = dim.d == bytes;
            bytes = bytes.saturating_mul(dim.n as isize);
            dense
        })
    }

    /// Joins loops that continue one another on both sides.
    pub fn fuse(&mut self) {
        while self.len > 0 {
            let inner = self.dims[self.len - 1];
            if inner.s != self.src_run() as isize || inner.d != self.dst_run() as isize {
                break;
            }
            self.run *= inner.n;
            self.len -= 1;
        }
        for i in (1..self.len).rev() {
            let (outer, inner) = (self.dims[i - 1], self.dims[i]);
            let n = inner.n as isize;
            if outer.s == inner.s.wrapping_mul(n) && outer.d == inner.d.wrapping_mul(n) {
                self.dims[i - 1] = Dim { n: outer.n * inner.n, ..inner };
                self.dims.copy_within(i + 1..self.len, i);
                self.len -= 1;
            }
        }
    }
}

/// The two addresses for each combination of some loops, in order. Addresses are moved with wrapping
/// arithmetic: they may leave the memory between one combination and the next.
///
/// Not a function that takes a closure: a closure would be compiled without the instructions of the level
/// that it is written in.
pub(crate) struct Walk<'a> {
    dims: &'a [Dim],
    at: [usize; MAX_NEST],
    next: Option<(*const u8, *mut u8)>,
}

impl<'a> Walk<'a> {
    #[inline(always)]
    pub fn new(dims: &'a [Dim], src: *const u8, dst: *mut u8) -> Walk<'a> {
        Walk { dims, at: [0; MAX_NEST], next: Some((src, dst)) }
    }

    #[inline(always)]
    pub fn next(&mut self) -> Option<(*const u8, *mut u8)> {
        let now = self.next?;
        if self.dims.is_empty() {
            self.next = None;
        } else {
            self.step(now);
        }
        Some(now)
    }

    #[inline(never)]
    fn step(&mut self, (mut s, mut d): (*const u8, *mut u8)) {
        for (dim, at) in self.dims.iter().zip(&mut self.at[..self.dims.len()]).rev() {
            *at += 1;
            (s, d) = (s.wrapping_offset(dim.s), d.wrapping_offset(dim.d));
            if *at < dim.n {
                self.next = Some((s, d));
                return;
            }
            *at = 0;
            let back = (dim.n as isize).wrapping_neg();
            (s, d) =
                (s.wrapping_offset(dim.s.wrapping_mul(back)), d.wrapping_offset(dim.d.wrapping_mul(back)));
        }
        self.next = None;
    }
}
