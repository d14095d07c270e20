//! The way without a closed form: digits against anything whose sizes do not divide. Rows of the digit side's
//! runs are looked up one by one on the other side, and rows that continue each other become loops.

use crate::comb::{intersect, Comb, Family};
use crate::digits::Digits;
use crate::dims::{Dims, IndexBox};
use crate::mapping::{Bound, Piece};
use crate::op::{Loop, OpTable};
use crate::plan::{sends_to, Side, Task};
use crate::transfer::Transfer;
use crate::walk::{digit_runs, run_rows};
use crate::LayoutError;

/// The most rows that planning one unit looks at.
pub(crate) const MAX_ROWS: u64 = 1 << 24;

/// Plans one unit where one side is digits and the other regular or boxes, by looking at every unit of the
/// other.
pub(crate) fn plan(task: Task) -> Result<Vec<Transfer>, LayoutError> {
    let Task { own, other, unit, side, .. } = task;
    let own_digits = matches!(own.bound(), Bound::Digits(_));
    let (digit_map, array) = if own_digits { (own, other) } else { (other, own) };
    let Bound::Digits(digits) = digit_map.bound() else { return Ok(Vec::new()) };
    let other_digits = match array.bound() {
        Bound::Digits(d) => Some(d),
        _ => None,
    };
    let array_reads = (side == Side::Reader) != own_digits;
    let mut walk = Walk { shape: array.dataset().dims(), digits, array_reads, budget: MAX_ROWS };
    let mut transfers = Vec::new();
    for partner in 0..other.units() {
        let (digit_unit, array_unit) = if own_digits { (unit, partner) } else { (partner, unit) };
        if !array_reads && !sends_to(array, array_unit, digit_unit) {
            continue;
        }
        let mut rows = Rows { table: OpTable::new(task.elem_len()), pending: None };
        match other_digits {
            Some(theirs) => walk.merge(digit_unit, theirs, array_unit, &mut rows)?,
            None => {
                for piece in array.pieces(array_unit, array_reads) {
                    walk.pair(digit_unit, &piece, &mut rows)?;
                }
            }
        }
        let table = rows.finish();
        if table.elems() > 0 {
            let (src, dst) = side.ordered(unit, partner);
            transfers.push(Transfer::of_table(src, dst, table));
        }
    }
    Ok(transfers)
}

struct Walk<'a> {
    shape: Dims,
    digits: &'a Digits,
    array_reads: bool,
    /// Rows that may still be looked at.
    budget: u64,
}

impl Walk<'_> {
    /// Counts one row.
    fn spend(&mut self) -> Result<(), LayoutError> {
        let what = "rows of digits that do not divide the other side";
        let over = LayoutError::TooMany { what, count: MAX_ROWS, limit: MAX_ROWS };
        self.budget = self.budget.checked_sub(1).ok_or(over)?;
        Ok(())
    }

    /// Appends what two units of digits share: both as runs in the row-major order, merged.
    fn merge(
        &mut self,
        unit: u64,
        theirs: &Digits,
        their_unit: u64,
        rows: &mut Rows,
    ) -> Result<(), LayoutError> {
        let (mut a, mut b) = (digit_runs(self.digits, unit), digit_runs(theirs, their_unit));
        let (mut x, mut y) = (a.next(), b.next());
        while let (Some(p), Some(q)) = (&x, &y) {
            self.spend()?;
            let (p_end, q_end) = (p.element + p.len, q.element + q.len);
            let (lo, hi) = (p.element.max(q.element), p_end.min(q_end));
            if lo < hi {
                let f = Family { src: 0, dst: 0, len: hi - lo, count: 1, src_step: 0, dst_step: 0 };
                let digit = (p.offset + (lo - p.element) * p.step, p.step);
                let array = (q.offset + (lo - q.element) * q.step, q.step);
                rows.push(&f, digit, array, self.array_reads);
            }
            if p_end <= q_end {
                x = a.next();
            }
            if q_end <= p_end {
                y = b.next();
            }
        }
        Ok(())
    }

    /// Appends what a unit of digits and a piece of an array share.
    fn pair(&mut self, unit: u64, piece: &Piece, rows: &mut Rows) -> Result<(), LayoutError> {
        let bounds = piece.bounds();
        let mut families = Vec::new();
        // Places along the last dimension; a scalar has one.
        let last = self.shape.len().wrapping_sub(1);
        let one = Comb::interval(0, 1, 0);
        let (comb, stride) = match piece.strides.last() {
            Some(&stride) => (piece.combs[last], stride),
            None => (one, 1),
        };
        for run in digit_runs(self.digits, unit) {
            let mut done = 0;
            for row in run_rows(self.shape, run.element, run.len) {
                self.spend()?;
                if let Some(offset) = outer_offset(piece, &bounds, &row) {
                    let (lo, hi) = row.lo.last().copied().zip(row.hi.last().copied()).unwrap_or((0, 1));
                    families.clear();
                    intersect(&Comb::interval(lo, hi, 0), &comb, &mut families);
                    for f in &families {
                        let digit = (run.offset + (done + f.src) * run.step, run.step);
                        rows.push(f, digit, (offset + f.dst * stride, stride), self.array_reads);
                    }
                }
                done += row.len_elems();
            }
        }
        Ok(())
    }
}

/// Where a row of the array begins in a piece, the last dimension left out; `None` when the piece does not
/// meet it.
fn outer_offset(piece: &Piece, bounds: &IndexBox, row: &IndexBox) -> Option<u64> {
    bounds.intersect(row)?;
    (0..row.ndim().saturating_sub(1))
        .try_fold(piece.base, |at, k| Some(at + piece.combs[k].place(row.lo[k])? * piece.strides[k]))
}

/// A table in the making: runs of the same form at equal distances become one operation.
struct Rows {
    table: OpTable,
    pending: Option<Pending>,
}

#[derive(Clone, Copy)]
struct Pending {
    src: i64,
    dst: i64,
    inner: [Loop; 2],
    count: u64,
    step: (i64, i64),
}

impl Rows {
    /// Appends a family between the digit side (`src` of the family) and the array side, each (offset,
    /// stride).
    fn push(&mut self, f: &Family, digit: (u64, u64), array: (u64, u64), array_reads: bool) {
        let ((src, s), (dst, d)) = if array_reads { (digit, array) } else { (array, digit) };
        let (src_step, dst_step) =
            if array_reads { (f.src_step, f.dst_step) } else { (f.dst_step, f.src_step) };
        let inner = [
            Loop { count: f.count, src_step: (src_step * s) as i64, dst_step: (dst_step * d) as i64 },
            Loop { count: f.len, src_step: s as i64, dst_step: d as i64 },
        ];
        let (src, dst) = (src as i64, dst as i64);
        if let Some(p) = self.pending.as_mut().filter(|p| p.inner == inner) {
            let (by, n) = ((src - p.src, dst - p.dst), p.count as i64);
            if n == 1 || by == (n * p.step.0, n * p.step.1) {
                p.step = if n == 1 { by } else { p.step };
                p.count += 1;
                return;
            }
        }
        self.flush();
        self.pending = Some(Pending { src, dst, inner, count: 1, step: (0, 0) });
    }

    fn flush(&mut self) {
        if let Some(p) = self.pending.take() {
            let outer = Loop { count: p.count, src_step: p.step.0, dst_step: p.step.1 };
            self.table.push(p.src as u64, p.dst as u64, &[outer, p.inner[0], p.inner[1]]);
        }
    }

    fn finish(mut self) -> OpTable {
        self.flush();
        self.table
    }
}
