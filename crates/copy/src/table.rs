//! Carrying out tables: whole, in parts, converting, with a checksum.

use crate::bulk::{Bulk, HandOver};
use crate::exec::{disjoint, Transfer};
use crate::nest::Nest;
use crate::simd::Fence;
use crate::transpose::Transpose;
use crate::{simd, Conversion, CopyError, Dest, Kernels, Source};
use polyduct_layout::{Op, OpTable};

/// Bytes that one turn through interleaved operations moves.
const BAND: usize = 64 << 10;

impl Kernels {
    /// Carries out a table: each of its runs is copied from its place in the source to its place in the
    /// destination.
    ///
    /// Source and destination are the parts that the table's offsets count from, and must hold its extents.
    #[inline]
    pub fn execute(self, table: &OpTable, src: Source<'_>, dst: Dest<'_>) -> Result<(), CopyError> {
        let transfer = Transfer::new(self, table, table.elem_len(), &src, &dst)?;
        let _fence = Fence { needed: transfer.stream };
        let ops = table.ops();
        let mut at = 0;
        while at < ops.len() {
            if ops[at].loops == 0 {
                transfer.copy_run(&ops[at], at)?;
                at += 1;
            } else {
                at += copy_group(table, &transfer, at)?;
            }
        }
        Ok(())
    }

    /// Carries out part `part` of `parts` of a table. The parts are about equal, and together they are the
    /// table, each element in one of them: threads may carry them out at once when no byte is the destination
    /// of two elements.
    ///
    /// Give each thread the same memories, the destination by way of [`crate::as_shared`] or
    /// [`Dest::from_raw`].
    pub fn execute_part(
        self,
        table: &OpTable,
        part: usize,
        parts: usize,
        src: Source<'_>,
        dst: Dest<'_>,
    ) -> Result<(), CopyError> {
        let transfer = Transfer::new(self, table, table.elem_len(), &src, &dst)?;
        let _fence = Fence { needed: transfer.stream };
        // SAFETY: `each_of_part` lowers against the transfer's frame.
        each_of_part(table, &transfer, part, parts, &mut |nest| unsafe { transfer.copy(nest) })
    }

    /// Carries out a table whose elements change their type on the way. The table counts elements of
    /// [`Conversion::src_len`] bytes; in the destination its offsets count elements of
    /// [`Conversion::dst_len`] bytes.
    pub fn execute_convert(
        self,
        table: &OpTable,
        conversion: Conversion,
        src: Source<'_>,
        dst: Dest<'_>,
    ) -> Result<(), CopyError> {
        self.execute_convert_part(table, conversion, 0, 1, src, dst)
    }

    /// Carries out part `part` of `parts` of a table whose elements change their type; see
    /// [`Kernels::execute_part`].
    pub fn execute_convert_part(
        self,
        table: &OpTable,
        conversion: Conversion,
        part: usize,
        parts: usize,
        src: Source<'_>,
        dst: Dest<'_>,
    ) -> Result<(), CopyError> {
        if table.elem_len() != conversion.src_len() {
            return Err(CopyError::ElementSize {
                table_bytes: table.elem_len(),
                conversion_bytes: conversion.src_len(),
            });
        }
        let transfer = Transfer::new(self, table, conversion.dst_len(), &src, &dst)?;
        let _fence = Fence { needed: transfer.stream };
        // SAFETY: `each_of_part` lowers against the transfer's frame.
        each_of_part(table, &transfer, part, parts, &mut |nest| unsafe { transfer.convert(nest, conversion) })
    }

    /// Carries out a table and returns the CRC32C (Castagnoli, as in iSCSI and RFC 3720; 0 of nothing) of the
    /// bytes copied, taken over the concatenation of its runs **in the order of [`OpTable::for_each_run`]**.
    /// For operations of shape `Runs`, that is the order of the destination; for transposes, the order of the
    /// source.
    ///
    /// Each byte is read from the source once: the checksum is of what was stored, even while another process
    /// writes the source.
    pub fn execute_crc(self, table: &OpTable, src: Source<'_>, dst: Dest<'_>) -> Result<u32, CopyError> {
        let transfer = Transfer::new(self, table, table.elem_len(), &src, &dst)?;
        let _fence = Fence { needed: transfer.stream };
        let mut crc = 0;
        for (index, op) in table.ops().iter().enumerate() {
            if let Some(nest) = Nest::lower(table, op, index, &transfer.frame)? {
                // SAFETY: lowered against the transfer's frame.
                unsafe { transfer.copy_seen(&nest, &mut |bytes| crc = crc32c::crc32c_append(crc, bytes)) }
            }
        }
        Ok(crc)
    }

    /// Copies all of the source to the start of the destination.
    ///
    /// # Errors
    /// [`CopyError::DestTooShort`]; [`CopyError::Overlap`]. Nothing was copied.
    pub fn memcpy(self, dst: Dest<'_>, src: Source<'_>) -> Result<(), CopyError> {
        holds(&dst, &src)?;
        let job = Bulk { src: src.ptr, dst: dst.ptr, n: src.len, stream: src.len >= self.stream_from };
        let _fence = Fence { needed: job.stream };
        // SAFETY: both hold the length and do not overlap; kernels exist only for levels that the machine
        // has.
        unsafe { simd::run(self.level, job) }
        Ok(())
    }

    /// Copies all of the source to the start of the destination, whose lines another processor has looked at
    /// and reads again as soon as they are written. The stores bypass the caches, whatever the length: those
    /// lines need not be fetched from the reader first, and while both work neither takes them from the
    /// other.
    ///
    /// # Errors
    /// As [`memcpy`](Kernels::memcpy).
    pub fn hand_over(self, dst: Dest<'_>, src: Source<'_>) -> Result<(), CopyError> {
        holds(&dst, &src)?;
        let _fence = Fence { needed: true };
        // SAFETY: as in `memcpy`.
        unsafe { simd::run(self.level, HandOver { src: src.ptr, dst: dst.ptr, n: src.len }) }
        Ok(())
    }
}

/// Refuses a destination that is shorter than the source, or shares bytes with it.
#[inline]
fn holds(dst: &Dest<'_>, src: &Source<'_>) -> Result<(), CopyError> {
    if src.len > dst.len {
        return Err(CopyError::DestTooShort { need_bytes: src.len as u128, have_bytes: dst.len });
    }
    disjoint(src, dst)
}

/// Copies operation `at` and those that go with it; returns how many these are. Apart from
/// [`Kernels::execute`], which is inlined for the sake of tables of single runs: the kernels for nests are
/// compiled here, not in every crate that copies.
fn copy_group(table: &OpTable, transfer: &Transfer, at: usize) -> Result<usize, CopyError> {
    // SAFETY: `group` lowers against the transfer's frame.
    group(table, transfer, at, &mut |nest| unsafe { transfer.copy(nest) })
}

/// Calls `f` with nests that together are the operation `at` of the table, and those after it that go with
/// it; returns how many these are.
///
/// Neighbours whose outermost loops advance alike (the families of a block-cyclic transfer) are taken in
/// turns, a band of that loop at a time: each alone would pass over both memories and use only part of each
/// page.
fn group(
    table: &OpTable,
    transfer: &Transfer,
    at: usize,
    f: &mut impl FnMut(&Nest),
) -> Result<usize, CopyError> {
    let ops = table.ops();
    let alike = alike(table, at);
    if alike == 1 {
        let mut nest = Nest::NOTHING;
        if nest.become_op(table, &ops[at], at, &transfer.frame)? {
            f(&nest);
        }
    } else {
        let turns = ops[at..at + alike].iter().map(|op| outermost(table, op)).max().unwrap_or(0);
        bands(table, transfer, at..at + alike, 0..turns, f)?;
    }
    Ok(alike)
}

/// Repetitions of an operation's outermost loop.
fn outermost(table: &OpTable, op: &Op) -> u64 {
    table.loops(op).first().map_or(1, |l| l.count)
}

/// How many operations from `at` have outermost loops with the same steps; at least 1.
#[inline]
fn alike(table: &OpTable, at: usize) -> usize {
    let ops = &table.ops()[at..];
    let Some(first) = table.loops(&ops[0]).first() else { return 1 };
    // Bands of a loop that is contiguous on one side would be thin slices.
    if ops[0].run == first.src_step.unsigned_abs() || ops[0].run == first.dst_step.unsigned_abs() {
        return 1;
    }
    let same = |op: &&Op| {
        table.loops(op).first().is_some_and(|l| l.src_step == first.src_step && l.dst_step == first.dst_step)
    };
    ops.iter().take_while(same).count().max(1)
}

/// Takes the repetitions `turns` of the outermost loops of some operations, in turns.
fn bands(
    table: &OpTable,
    transfer: &Transfer,
    ops: std::ops::Range<usize>,
    turns: std::ops::Range<u64>,
    f: &mut impl FnMut(&Nest),
) -> Result<(), CopyError> {
    let elems = |op: &Op| table.loops(op).iter().skip(1).fold(op.run, |n, l| n.saturating_mul(l.count));
    let turn = table.ops()[ops.clone()].iter().fold(0u64, |n, op| n.saturating_add(elems(op)));
    let step = (BAND as u64 / turn.saturating_mul(transfer.frame.src_elem as u64).max(1)).max(1);
    let mut from = turns.start;
    while from < turns.end {
        let to = from.saturating_add(step).min(turns.end);
        for index in ops.clone() {
            let op = &table.ops()[index];
            let count = outermost(table, op);
            if let Some(nest) = Nest::lower(table, op, index, &transfer.frame)? {
                if count == 1 && from == 0 {
                    f(&nest);
                } else if from < count {
                    // Lowering kept the loop, whose count is more than 1, and made sure that it fits.
                    f(&nest.outer(from as usize, to.min(count) as usize));
                }
            }
        }
        from = to;
    }
    Ok(())
}

/// Calls `f` with nests that together are a part of the table.
fn each_of_part(
    table: &OpTable,
    transfer: &Transfer,
    part: usize,
    parts: usize,
    f: &mut impl FnMut(&Nest),
) -> Result<(), CopyError> {
    if part >= parts {
        return Err(CopyError::NoSuchPart { part, parts });
    }
    if parts == 1 || table.ops().is_empty() {
        let mut at = 0;
        while at < table.ops().len() {
            at += group(table, transfer, at, f)?;
        }
        return Ok(());
    }
    let share = |n: u64, part: usize| (n as u128 * part as u128 / parts as u128) as u64;
    let ops = table.ops();
    if ops.len() > 1 && alike(table, 0) == ops.len() {
        let turns = ops.iter().map(|op| outermost(table, op)).max().unwrap_or(0);
        if turns / 4 >= parts as u64 {
            return bands(table, transfer, 0..ops.len(), share(turns, part)..share(turns, part + 1), f);
        }
    }
    let (from, to) = (share(table.elems(), part), share(table.elems(), part + 1));
    let mut before = 0u64;
    for (index, op) in ops.iter().enumerate() {
        let Some(nest) = Nest::lower(table, op, index, &transfer.frame)? else { continue };
        let elems = nest.elems();
        let within = |at: u64| at.saturating_sub(before).min(elems as u64) as usize;
        let (from, to) = (boundary(&nest, within(from)), boundary(&nest, within(to)));
        nest.cut(from, to, &mut |nest| {
            f(nest);
            Ok(())
        })?;
        before = before.saturating_add(elems as u64);
    }
    Ok(())
}

/// The place at or before element `at` of a nest where it is best cut: between runs, or between whole blocks
/// of a transpose, or within a long run between pages. Grows with `at`, and is `at` at both ends.
fn boundary(nest: &Nest, at: usize) -> usize {
    if at >= nest.elems() {
        return nest.elems();
    }
    let grain = match Transpose::position(nest) {
        Some((row, _)) => {
            let each = |dims: &[crate::nest::Dim]| dims.iter().fold(nest.run, |n, dim| n * dim.n);
            let turn = each(&nest.dims()[row + 1..]);
            let rows = (512 / nest.src_run()).max(1);
            let around = turn * nest.dims()[row].n;
            return at / around * around + at % around / (turn * rows) * (turn * rows);
        }
        None if nest.dst_run() >= 8 << 10 => ((4 << 10) / nest.dst_elem).max(1),
        None => return at / nest.run * nest.run,
    };
    at / nest.run * nest.run + at % nest.run / grain * grain
}
