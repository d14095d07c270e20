//! Choosing a kernel for each nest of a table.

use crate::bulk::{self, Bulk};
use crate::convert::{self, Conversion, Convert};
use crate::nest::{Frame, Nest, Walk};
use crate::rows::{can_stream, ConvertRows, Rows};
use crate::transpose::{AsTheyAre, ConvertedBy, Transpose, TransposeJob};
use crate::{simd, CopyError, Dest, Kernels, Level, Source};
use polyduct_layout::{Op, OpTable};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Bytes of the buffer through which small pieces go; fits in the first-level cache.
pub(crate) const BUFFER: usize = 16 << 10;

/// From how many bytes a transfer's source is asked for in advance. Less than the caches of a core keep: what
/// another core has just written lies in that core's. Measured: runs of 512 bytes, 256 KiB of each writer,
/// took 43 µs where they take 39.
const AHEAD_FROM: u128 = 128 << 10;

/// From how many bytes a run is looked at by itself.
const LONG: usize = 1 << 10;

/// Bytes of a long run that are looked at together.
const SEEN: usize = 16 << 10;

/// Bytes of them that are looked at while as many of the next piece are on their way.
const SLICE: usize = 1 << 10;

/// A buffer on the stack, aligned to lines.
#[repr(C, align(64))]
pub(crate) struct Buffer<const N: usize>(MaybeUninit<[u8; N]>);

impl<const N: usize> Buffer<N> {
    pub fn new() -> Self {
        Buffer(MaybeUninit::uninit())
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// The two memories of a checked transfer, and how to move bytes between them.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    pub level: Level,
    pub src: *const u8,
    pub dst: *mut u8,
    /// The destination bypasses the caches.
    pub stream: bool,
    /// The source is likely not in the nearer caches.
    pub ahead: bool,
    pub frame: Frame,
}

impl Transfer {
    /// Checks the lengths, once for a table.
    #[inline]
    pub fn new(
        kernels: Kernels,
        table: &OpTable,
        dst_elem: u64,
        src: &Source<'_>,
        dst: &Dest<'_>,
    ) -> Result<Transfer, CopyError> {
        let src_elem = table.elem_len();
        let need_bytes = table.src_extent() as u128 * src_elem as u128;
        if need_bytes > src.len as u128 {
            return Err(CopyError::SourceTooShort { need_bytes, have_bytes: src.len });
        }
        let need_bytes = table.dst_extent() as u128 * dst_elem as u128;
        if need_bytes > dst.len as u128 {
            return Err(CopyError::DestTooShort { need_bytes, have_bytes: dst.len });
        }
        disjoint(src, dst)?;
        let bytes = table.elems() as u128 * dst_elem as u128;
        Ok(Transfer {
            level: kernels.level,
            src: src.ptr,
            dst: dst.ptr,
            stream: bytes >= kernels.stream_from as u128,
            ahead: bytes >= AHEAD_FROM,
            frame: Frame {
                // A size that does not fit goes with an empty table, or else did not pass the checks above.
                src_elem: src_elem as usize,
                dst_elem: dst_elem as usize,
                src_len: src.len,
                dst_len: dst.len,
            },
        })
    }

    /// Checks and copies operation `index`, which has no loops: [`Nest::lower`] and [`Transfer::copy`] in a
    /// few instructions, for tables of small pieces.
    #[inline]
    pub fn copy_run(&self, op: &Op, index: usize) -> Result<(), CopyError> {
        let elem = self.frame.src_elem as u128;
        let (src, dst, n) = (op.src as u128 * elem, op.dst as u128 * elem, op.run as u128 * elem);
        if src + n > self.frame.src_len as u128 || dst + n > self.frame.dst_len as u128 {
            return Err(CopyError::Malformed { op: index });
        }
        // SAFETY: both ranges lie within the memories, as was just checked.
        unsafe {
            let (src, dst, n) = (self.src.add(src as usize), self.dst.add(dst as usize), n as usize);
            if n <= 128 {
                bulk::small(src, dst, n);
            } else {
                self.bulk(src, dst, n);
            }
        }
        Ok(())
    }

    /// Copies `n` bytes that lie together.
    ///
    /// # Safety
    /// Both ranges lie within the memories.
    unsafe fn bulk(&self, src: *const u8, dst: *mut u8, n: usize) {
        // SAFETY: the caller's; kernels exist only for levels that the machine has.
        unsafe { simd::run(self.level, Bulk { src, dst, n, stream: self.stream }) }
    }

    /// Copies a nest by the kernel that suits it.
    ///
    /// # Safety
    /// The nest was lowered against this transfer's frame, or was derived from one that was.
    pub unsafe fn copy(&self, nest: &Nest) {
        let (src, dst) = (self.src, self.dst);
        // SAFETY: the caller's; kernels exist only for levels that the machine has.
        unsafe {
            if nest.dims().is_empty() {
                return self.bulk(src.add(nest.src), dst.add(nest.dst), nest.src_run());
            }
            if let Some(what) = Transpose::find(nest) {
                let emit = AsTheyAre { elem: nest.src_run(), stream: self.stream };
                return simd::run(self.level, TransposeJob { what, src, dst, emit });
            }
            if self.stream && !can_stream(nest, dst) && nest.dst_is_dense() {
                return self.copy_through_buffer(nest);
            }
            let (stream, ahead) = (self.stream, self.ahead);
            simd::run(self.level, Rows { stream, ahead, dst_ahead: ahead, ..Rows::new(nest, src, dst) });
        }
    }

    /// Copies short runs to a contiguous destination: gathered in the first-level cache, streamed from there.
    ///
    /// # Safety
    /// As [`Transfer::copy`], and the destination is dense.
    unsafe fn copy_through_buffer(&self, nest: &Nest) {
        let mut buffer = Buffer::<BUFFER>::new();
        let buffer = buffer.as_mut_ptr();
        let limit = BUFFER / nest.src_elem;
        let _ = nest.boxes(limit, &mut |piece| {
            let (gather, _) = piece.through_buffer();
            let n = piece.elems() * nest.src_elem;
            // SAFETY: a piece has at most `limit` elements; what is gathered is dense in the buffer, and so
            // is the piece in the destination, from its start.
            unsafe {
                let rows = Rows { ahead: self.ahead, ..Rows::new(&gather, self.src, buffer) };
                simd::run(self.level, rows);
                let out = Bulk { src: buffer, dst: self.dst.add(piece.dst), n, stream: true };
                simd::run(self.level, out);
            }
            Ok(())
        });
    }

    /// Copies a nest, changing the type of its elements.
    ///
    /// # Safety
    /// As [`Transfer::copy`].
    pub unsafe fn convert(&self, nest: &Nest, conversion: Conversion) {
        // SAFETY: the caller's.
        unsafe {
            match conversion {
                Conversion::F32ToBf16 => self.convert_by::<convert::F32ToBf16>(nest),
                Conversion::Bf16ToF32 => self.convert_by::<convert::Bf16ToF32>(nest),
                Conversion::F32ToF16 => self.convert_by::<convert::F32ToF16>(nest),
                Conversion::F16ToF32 => self.convert_by::<convert::F16ToF32>(nest),
                Conversion::F64ToF32 => self.convert_by::<convert::F64ToF32>(nest),
                Conversion::F32ToF64 => self.convert_by::<convert::F32ToF64>(nest),
            }
        }
    }

    /// # Safety
    /// As [`Transfer::copy`].
    unsafe fn convert_by<C: Convert>(&self, nest: &Nest) {
        let (src, dst, stream, by) = (self.src, self.dst, self.stream, PhantomData::<C>);
        // SAFETY: the caller's.
        unsafe {
            if let Some(what) = Transpose::find(nest) {
                let emit = ConvertedBy { run: nest.run, stream, by };
                simd::run(self.level, TransposeJob { what, src, dst, emit });
            } else if nest.dims().is_empty() || nest.dst_run() >= if stream { 1024 } else { 128 } {
                simd::run(
                    self.level,
                    ConvertRows { rows: Rows { stream, ahead: self.ahead, ..Rows::new(nest, src, dst) }, by },
                );
            } else {
                self.convert_through_buffers::<C>(nest);
            }
        }
    }

    /// Converts short runs: gathered, converted as one run, and scattered.
    ///
    /// # Safety
    /// As [`Transfer::copy`].
    unsafe fn convert_through_buffers<C: Convert>(&self, nest: &Nest) {
        let (mut before, mut after) = (Buffer::<BUFFER>::new(), Buffer::<BUFFER>::new());
        let (before, after) = (before.as_mut_ptr(), after.as_mut_ptr());
        let _ = nest.boxes(BUFFER / C::SRC.max(C::DST), &mut |piece| {
            let (gather, scatter) = piece.through_buffer();
            let dense = piece.dst_is_dense();
            let mut whole = piece.with_dims(&[]);
            (whole.src, whole.run) = (0, piece.elems());
            let to = if dense { self.dst } else { after };
            whole.dst = if dense { piece.dst } else { 0 };
            let cached = Transfer { stream: false, ahead: false, ..*self };
            // SAFETY: a piece fits both buffers in its elements of either type; what is gathered is dense in
            // the first buffer, what is scattered in the second, and a dense piece goes to the destination
            // from its start.
            unsafe {
                let rows = Rows { ahead: self.ahead, ..Rows::new(&gather, self.src, before) };
                simd::run(self.level, rows);
                let rows = Rows { stream: self.stream && dense, ..Rows::new(&whole, before, to) };
                simd::run(self.level, ConvertRows { rows, by: PhantomData::<C> });
                if !dense {
                    Transfer { src: after, ..cached }.copy(&scatter);
                }
            }
            Ok(())
        });
    }

    /// Copies a nest by way of a buffer that `seen` looks at, in the order of the nest's loops.
    ///
    /// # Safety
    /// As [`Transfer::copy`].
    pub unsafe fn copy_seen(&self, nest: &Nest, seen: &mut impl FnMut(&[u8])) {
        let mut buffer = Buffer::<{ 4 * BUFFER }>::new();
        let buffer = buffer.as_mut_ptr();
        let cached = Transfer { stream: false, ..*self };
        if nest.src_run() >= LONG {
            // SAFETY: the caller's; the buffer has more than `SEEN` bytes.
            return unsafe { self.copy_runs_seen(nest, buffer, seen) };
        }
        let limit = 4 * BUFFER;
        let _ = nest.boxes(limit / nest.src_elem, &mut |piece| {
            let (gather, scatter) = piece.through_buffer();
            // SAFETY: a piece fits the buffer; the first copy writes all of its bytes, densely.
            unsafe {
                Transfer { dst: buffer, ..cached }.copy(&gather);
                seen(std::slice::from_raw_parts(buffer, piece.elems() * piece.src_elem));
                Transfer { src: buffer, ..*self }.copy(&scatter);
            }
            Ok(())
        });
    }
}

impl Transfer {
    /// [`Transfer::copy_seen`] for long runs, piece by piece.
    ///
    /// # Safety
    /// As [`Transfer::copy`]; `buffer` has room for `SEEN` bytes.
    unsafe fn copy_runs_seen(&self, nest: &Nest, buffer: *mut u8, seen: &mut impl FnMut(&[u8])) {
        let n = nest.src_run();
        let step = nest.dims().last().map_or(0, |dim| dim.s);
        let mut walk =
            Walk::new(nest.dims(), self.src.wrapping_add(nest.src), self.dst.wrapping_add(nest.dst));
        while let Some((src, dst)) = walk.next() {
            for at in (0..n).step_by(SEEN) {
                let len = SEEN.min(n - at);
                let next = src.wrapping_offset(if at + len < n { (at + len) as isize } else { step });
                // SAFETY: the nest's bounds cover each run, and `at + len` does not pass its end.
                let piece = unsafe {
                    simd::run(self.level, Bulk { src: src.add(at), dst: buffer, n: len, stream: false });
                    std::slice::from_raw_parts(buffer, len)
                };
                // The next piece comes while this one is looked at, a few lines at a time: more would wait in
                // line.
                for (i, part) in piece.chunks(SLICE).enumerate() {
                    if self.ahead {
                        (0..SLICE)
                            .step_by(64)
                            .for_each(|line| simd::prefetch(next.wrapping_add(i * SLICE + line)));
                    }
                    seen(part);
                }
                let out = Bulk { src: buffer, dst: dst.wrapping_add(at), n: len, stream: self.stream };
                // SAFETY: as above.
                unsafe { simd::run(self.level, out) }
            }
        }
    }
}

/// Refuses memories that share bytes.
#[inline]
pub(crate) fn disjoint(src: &Source<'_>, dst: &Dest<'_>) -> Result<(), CopyError> {
    let (s, d) = (src.ptr.addr(), dst.ptr.addr());
    // Neither wraps around: both are memory.
    if src.len > 0 && dst.len > 0 && s < d + dst.len && d < s + src.len {
        return Err(CopyError::Overlap);
    }
    Ok(())
}
