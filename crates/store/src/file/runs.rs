//! An operation of a plan as windows of the file.
//!
//! An operation is a nest of loops around a run. Seen from the file, its loops are ordered by their step
//! there, and the innermost of them that together cover a stretch of the file are taken as one window:
//!
//! - a run that is contiguous on both sides and long enough goes straight between file and memory;
//! - shorter ones go through a buffer that holds the window, and a small operation table, the same for all
//!   windows of the operation, carries them on.
//!
//! A reader's window may have gaps, bytes that are read and not used, where that is cheaper than another
//! call. A writer's has none: what lies in them is not its own.

use polyduct_layout::{Loop, Op, OpTable, Plan, MAX_NEST};

/// Runs from this length on go straight between file and memory: a call costs less than a second copy.
const DIRECT_BYTES: u64 = 4096;
/// The longest window, in bytes, and so the bound on the buffer. It fits the second-level cache.
pub const WINDOW_BYTES: u64 = 1 << 20;
/// Gaps that a reader reads through: about what a call costs.
pub const READ_GAP_BYTES: u64 = 2048;

/// How a table's elements lie in the file and in memory.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Bytes of one element in the file: the table's.
    pub file_elem: u64,
    /// Bytes of one element in memory.
    pub mem_elem: u64,
    /// Elements of the file from one element of the step to the next: 1, but in a Fortran-ordered file of
    /// several steps.
    pub stride: u64,
    /// Whether the file is the source of the table.
    pub reading: bool,
    /// The longest gap in a window, in bytes.
    pub gap: u64,
}

/// A stretch of the file and what it has to do with memory. Offsets and lengths are in bytes; those in the
/// file count from the step's first byte.
#[derive(Debug, PartialEq, Eq)]
pub enum Window<'t> {
    /// Contiguous on both sides.
    Direct { file: u64, mem: u64, len: u64 },
    /// By way of a buffer of `len` bytes; the table's offsets count from the buffer's start and from `mem`.
    Buffered { file: u64, mem: u64, len: u64, table: &'t OpTable, dense: bool },
}

/// A loop seen from the file, steps in elements.
#[derive(Clone, Copy, Debug)]
struct Level {
    count: u64,
    file: u64,
    mem: u64,
}

/// The inner loops of an operation that make one window.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// How many of the levels, from the innermost outwards, are taken whole.
    whole: usize,
    /// How many repetitions of the next level out are taken at once: 1 means none of it.
    chunk: u64,
    /// Elements of the file that the window covers, and how many of these belong to it.
    span: u64,
    elems: u64,
}

impl View {
    /// Of what a plan writes into a file that is in the standard order.
    pub fn writing(plan: &Plan) -> View {
        let elem = plan.transfers().first().map_or(1, |t| t.elem_len());
        View { file_elem: elem, mem_elem: elem, stride: 1, reading: false, gap: 0 }
    }

    /// Calls `f` for windows that together carry out the table.
    pub fn windows<E>(
        &self,
        table: &OpTable,
        f: &mut impl FnMut(Window<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for op in table.ops() {
            let (levels, file, mem) = self.levels(table, op);
            let taken = self.take(&levels, WINDOW_BYTES);
            let run = levels.last().filter(|l| l.file == 1 && l.mem == 1).map_or(1, |l| l.count);
            let straight = self.file_elem == self.mem_elem
                && (run * self.file_elem >= DIRECT_BYTES || taken.elems <= run);
            let at = Place { file, mem };
            if straight {
                let outer = &levels[..levels.len() - usize::from(run > 1)];
                let len = run * self.file_elem;
                each(outer, at, &mut |p| {
                    f(Window::Direct { file: p.file * self.file_elem, mem: p.mem * self.mem_elem, len })
                })?;
            } else {
                self.buffered(&levels, taken, at, f)?;
            }
        }
        Ok(())
    }

    /// Into how many stretches of the file the table falls, windows of any length supposed.
    pub fn pieces(&self, table: &OpTable) -> u64 {
        let one = |op| {
            let (levels, ..) = self.levels(table, op);
            let taken = self.take(&levels, u64::MAX);
            levels[..levels.len() - taken.whole].iter().map(|l| l.count).product::<u64>()
        };
        table.ops().iter().map(one).sum()
    }

    /// The loops of an operation, the one with the largest step in the file first, and where it begins.
    fn levels(&self, table: &OpTable, op: &Op) -> (Vec<Level>, u64, u64) {
        let mut levels = Vec::with_capacity(MAX_NEST + 1);
        let mut add = |count: u64, src: u64, dst: u64| {
            let (file, mem) = if self.reading { (src, dst) } else { (dst, src) };
            levels.push(Level { count, file: file * self.stride, mem });
        };
        for l in table.loops(op) {
            // Plans step forwards only: parts are numbered by rising index.
            add(l.count, l.src_step.unsigned_abs(), l.dst_step.unsigned_abs());
        }
        add(op.run, 1, 1);
        levels.retain(|l| l.count > 1);
        levels.sort_by_key(|l| std::cmp::Reverse((l.file, l.mem)));
        fuse(&mut levels);
        let (file, mem) = if self.reading { (op.src, op.dst) } else { (op.dst, op.src) };
        (levels, file * self.stride, mem)
    }

    /// Takes loops from the innermost outwards for as long as they make one window.
    fn take(&self, levels: &[Level], limit_bytes: u64) -> Taken {
        let limit = (limit_bytes / self.file_elem.max(self.mem_elem)).max(1);
        let mut taken = Taken { whole: 0, chunk: 1, span: 1, elems: 1 };
        for l in levels.iter().rev() {
            let gap = l.file.saturating_sub(taken.span);
            // Without gaps each byte of the window is the operation's own.
            let overlaps = l.file < taken.span;
            if gap * self.file_elem > self.gap || (self.gap == 0 && (overlaps || taken.elems != taken.span)) {
                break;
            }
            let chunk = (limit.saturating_sub(taken.span) / l.file.max(1)).saturating_add(1).min(l.count);
            if chunk < l.count {
                // Few repetitions, or none, fit.
                if chunk > 1 {
                    taken.chunk = chunk;
                    taken.span += (chunk - 1) * l.file;
                    taken.elems *= chunk;
                }
                break;
            }
            taken.span += (l.count - 1) * l.file;
            taken.elems *= l.count;
            taken.whole += 1;
        }
        taken
    }

    fn buffered<E>(
        &self,
        levels: &[Level],
        taken: Taken,
        at: Place,
        f: &mut impl FnMut(Window<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (outer, inner) = levels.split_at(levels.len() - taken.whole);
        let (outer, cut) = match outer.split_last() {
            Some((cut, outer)) if taken.chunk > 1 => (outer, Some(*cut)),
            _ => (outer, None),
        };
        let inner_span = inner.iter().map(|l| (l.count - 1) * l.file).sum::<u64>() + 1;
        let mut give = |chunk: u64, first: Place, outer: &[Level]| {
            let cut_level = cut.map(|l| Level { count: chunk, ..l });
            let table = self.table(inner, cut_level);
            let span = inner_span + cut.map_or(0, |l| (chunk - 1) * l.file);
            let dense = table.elems() == span;
            let len = span * self.file_elem;
            each(outer, first, &mut |p| {
                let (file, mem) = (p.file * self.file_elem, p.mem * self.mem_elem);
                f(Window::Buffered { file, mem, len, table: &table, dense })
            })
        };
        let Some(cut) = cut else { return give(1, at, outer) };
        let (chunks, rest) = (cut.count / taken.chunk, cut.count % taken.chunk);
        let of_chunks = Level { count: chunks, file: cut.file * taken.chunk, mem: cut.mem * taken.chunk };
        let mut with_chunks = outer.to_vec();
        with_chunks.push(of_chunks);
        give(taken.chunk, at, &with_chunks)?;
        match rest {
            0 => Ok(()),
            _ => give(rest, at.step(&of_chunks, chunks), outer),
        }
    }

    /// The table of one window.
    fn table(&self, inner: &[Level], cut: Option<Level>) -> OpTable {
        let mut nest = Vec::with_capacity(MAX_NEST + 1);
        for l in cut.iter().chain(inner) {
            let (file, mem) = (l.file as i64, l.mem as i64);
            let (src_step, dst_step) = if self.reading { (file, mem) } else { (mem, file) };
            nest.push(Loop { count: l.count, src_step, dst_step });
        }
        let mut table = OpTable::new(self.file_elem);
        push(&mut table, 0, 0, &nest);
        table
    }
}

/// Pushes a nest; one with more loops than a table takes (the run came to them as one) as several operations.
fn push(table: &mut OpTable, src: u64, dst: u64, nest: &[Loop]) {
    match nest {
        [outer, rest @ ..] if rest.len() >= MAX_NEST => {
            for i in 0..outer.count {
                push(table, src + i * outer.src_step as u64, dst + i * outer.dst_step as u64, rest);
            }
        }
        _ => table.push(src, dst, nest),
    }
}

/// An element in the file and in memory.
#[derive(Clone, Copy, Debug)]
struct Place {
    file: u64,
    mem: u64,
}

impl Place {
    fn step(self, level: &Level, n: u64) -> Place {
        Place { file: self.file + n * level.file, mem: self.mem + n * level.mem }
    }
}

/// Calls `f` for each repetition of the loops, the last of which turns fastest.
fn each<E>(levels: &[Level], at: Place, f: &mut impl FnMut(Place) -> Result<(), E>) -> Result<(), E> {
    match levels.split_first() {
        None => f(at),
        Some((l, rest)) => (0..l.count).try_for_each(|i| each(rest, at.step(l, i), f)),
    }
}

/// Joins neighbours of which the outer continues the inner on both sides.
fn fuse(levels: &mut Vec<Level>) {
    let mut i = levels.len();
    while i >= 2 {
        let (outer, inner) = (levels[i - 2], levels[i - 1]);
        if outer.file == inner.file * inner.count && outer.mem == inner.mem * inner.count {
            levels[i - 2] = Level { count: outer.count * inner.count, ..inner };
            levels.remove(i - 1);
        }
        i -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every (file byte, memory byte) pair that the windows move.
    fn moved(view: &View, table: &OpTable) -> Vec<(u64, u64)> {
        let mut pairs = Vec::new();
        let done: Result<(), ()> = view.windows(table, &mut |w| {
            match w {
                Window::Direct { file, mem, len } => pairs.extend((0..len).map(|i| (file + i, mem + i))),
                Window::Buffered { file, mem, len, table, dense } => {
                    assert!(len <= WINDOW_BYTES.max(view.file_elem));
                    assert!(dense || view.gap > 0);
                    table.for_each_run(|src, dst, run| {
                        let (f, m) = if view.reading { (src, dst) } else { (dst, src) };
                        let e = view.file_elem;
                        assert!((f + run) * e <= len);
                        pairs.extend((0..run * e).map(|i| (file + f * e + i, mem + m * e + i)));
                    });
                }
            }
            Ok(())
        });
        assert_eq!(done, Ok(()));
        pairs.sort_unstable();
        pairs
    }

    fn expected(view: &View, table: &OpTable) -> Vec<(u64, u64)> {
        let mut pairs = Vec::new();
        let e = view.file_elem;
        table.for_each_run(|src, dst, run| {
            let (f, m) = if view.reading { (src, dst) } else { (dst, src) };
            for i in 0..run {
                pairs.extend((0..e).map(|b| ((f + i) * view.stride * e + b, (m + i) * e + b)));
            }
        });
        pairs.sort_unstable();
        pairs
    }

    proptest! {
        #[test]
        fn windows_move_what_the_table_says(
            // Sizes of an array, a piece of it for each dimension, and the order of memory.
            dims in proptest::collection::vec((1u64..9, 1u64..4, 1u64..3), 1..5),
            turn in any::<bool>(),
            reading: bool,
            gap in prop_oneof![Just(0u64), Just(5), Just(2048)],
            stride in 1u64..4,
            file_elem in 1u64..5,
        ) {
            let mut nest = Vec::new();
            let (mut file, mut mem) = (1, 1);
            let mut mems: Vec<u64> = Vec::new();
            for &(count, ..) in &dims {
                mems.push(mem);
                mem *= count;
            }
            if turn {
                // The other order: strides as if the dimensions were listed backwards.
                mem = 1;
                for (k, &(count, ..)) in dims.iter().enumerate().rev() {
                    mems[k] = mem;
                    mem *= count;
                }
            }
            for (k, &(count, step, more)) in dims.iter().enumerate() {
                let (f, m) = (file * step, mems[k]);
                nest.push(Loop {
                    count,
                    src_step: (if reading { f } else { m }) as i64,
                    dst_step: (if reading { m } else { f }) as i64,
                });
                file = f * count * more;
            }
            let mut table = OpTable::new(file_elem);
            table.push(3, 2, &nest);
            let view = View { file_elem, mem_elem: file_elem, stride, reading, gap };
            prop_assert_eq!(moved(&view, &table), expected(&view, &table));
        }
    }

    fn l(count: u64, src_step: i64, dst_step: i64) -> Loop {
        Loop { count, src_step, dst_step }
    }

    fn list(view: &View, table: &OpTable) -> Vec<(char, u64, u64, u64)> {
        let mut windows = Vec::new();
        let _: Result<(), ()> = view.windows(table, &mut |w| {
            windows.push(match w {
                Window::Direct { file, mem, len } => ('d', file, mem, len),
                Window::Buffered { file, mem, len, .. } => ('b', file, mem, len),
            });
            Ok(())
        });
        windows
    }

    const READ: View = View { file_elem: 4, mem_elem: 4, stride: 1, reading: true, gap: READ_GAP_BYTES };
    const WRITE: View = View { reading: false, gap: 0, ..READ };

    #[test]
    fn rows_are_one_call() {
        let mut t = OpTable::new(4);
        t.push(1 << 30, 0, &[l(1000, 1000, 1000), l(1000, 1, 1)]);
        assert_eq!(list(&READ, &t), [('d', 4 << 30, 0, 4_000_000)]);
    }

    #[test]
    fn long_pieces_of_rows_go_straight_and_short_ones_together() {
        let mut t = OpTable::new(4);
        t.push(0, 0, &[l(3, 4096, 2048), l(2048, 1, 1)]);
        assert_eq!(list(&READ, &t), [('d', 0, 0, 8192), ('d', 16384, 8192, 8192), ('d', 32768, 16384, 8192)]);
        let mut t = OpTable::new(4);
        t.push(0, 0, &[l(1000, 64, 32), l(32, 1, 1)]);
        assert_eq!(list(&READ, &t), [('b', 0, 0, (999 * 64 + 32) * 4)]);
    }

    #[test]
    fn a_transpose_is_written_by_whole_rows_of_the_file() {
        // Column-major memory of 512x512 to the row-major file.
        let mut t = OpTable::new(4);
        t.push(0, 0, &[l(512, 1, 512), l(512, 512, 1)]);
        assert_eq!(list(&WRITE, &t), [('b', 0, 0, 1 << 20)]);
        assert_eq!(WRITE.pieces(&t), 1);
        // Twice as many rows are two windows.
        let mut t = OpTable::new(4);
        t.push(0, 0, &[l(1100, 1, 512), l(512, 1100, 1)]);
        assert_eq!(
            list(&WRITE, &t),
            [('b', 0, 0, 1 << 20), ('b', 1 << 20, 2048, 1 << 20), ('b', 2 << 20, 4096, 76 * 2048)]
        );
    }

    #[test]
    fn a_writer_never_covers_what_is_not_its_own() {
        let mut t = OpTable::new(4);
        t.push(0, 0, &[l(3, 1, 2)]);
        assert_eq!(list(&WRITE, &t), [('d', 0, 0, 4), ('d', 8, 4, 4), ('d', 16, 8, 4)]);
        assert_eq!(WRITE.pieces(&t), 3);
    }
}
