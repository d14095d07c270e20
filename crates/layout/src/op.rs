//! The flat operation table: the seam between plans and the code that moves bytes.
//!
//! A plan ends as a list of [`Op`]s. Each op moves `run` elements that are contiguous on both sides, repeated
//! by a nest of [`Loop`]s, outermost first. Offsets and steps are counted in **elements** of `elem_len`
//! bytes, so the same table serves a plain copy and a conversion between element types of different sizes.
//!
//! Size: 32 bytes an op and 24 bytes a loop, however many runs the nest unrolls to.

use std::ops::Range;

/// One loop of a nest: `count` repetitions (≥ 1), each moving the source and the destination by a step in
/// elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// Repetitions, at least 1.
    pub count: u64,
    /// Elements to advance in the source for each repetition.
    pub src_step: i64,
    /// Elements to advance in the destination for each repetition.
    pub dst_step: i64,
}

/// One operation of the table: a nest of loops around a run that is contiguous on both sides.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// First element in the source part.
    pub src: u64,
    /// First element in the destination part.
    pub dst: u64,
    /// Elements contiguous on both sides, at least 1.
    pub run: u64,
    /// Index of the outermost loop in the table's loops.
    pub first_loop: u32,
    /// Number of loops, outermost first.
    pub loops: u16,
    /// What the innermost loops look like; see [`Shape`].
    pub shape: Shape,
}

/// The form of an operation's innermost part: it selects the kernel.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Loops around runs. The innermost loop, if any, has the smallest destination step.
    Runs = 0,
    /// `run == 1`, and of the two innermost loops the outer steps by 1 in the destination and the inner by 1
    /// in the source: a two-dimensional transpose.
    Transpose = 1,
}

const _: () = assert!(size_of::<Op>() == 32 && size_of::<Loop>() == 24);

/// The operations that carry one unit's part into another's.
///
/// Invariants: every op's `first_loop..first_loop + loops` lies in the loops; counts and runs are at least 1;
/// no element reached lies at or past `src_extent` (source) or `dst_extent` (destination); ops are in
/// destination order of their first element; `elems` is the number of elements moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpTable {
    ops: Vec<Op>,
    loops: Vec<Loop>,
    elem_len: u64,
    elems: u64,
    src_extent: u64,
    dst_extent: u64,
}

impl OpTable {
    /// An empty table over elements of `elem_len` bytes (≥ 1).
    pub fn new(elem_len: u64) -> OpTable {
        OpTable { elem_len, ..OpTable::default() }
    }

    /// Appends one nest after canonicalising it: loops of one are dropped, adjacent loops that are contiguous
    /// on both sides are fused, loops are ordered for the destination, and the common unit stride becomes the
    /// run.
    ///
    /// `nest` lists the loops in any order; the elements moved are the Cartesian product. A loop of count 0
    /// makes the whole nest empty and nothing is appended.
    ///
    /// # Panics
    /// When an element of the nest would lie before the start of either side: a bug of the planner.
    pub fn push(&mut self, src: u64, dst: u64, nest: &[Loop]) {
        let mut buf = [Loop { count: 1, src_step: 0, dst_step: 0 }; MAX_NEST];
        let mut n = 0;
        for l in nest {
            if l.count == 0 {
                return;
            }
            if l.count > 1 {
                buf[n] = *l;
                n += 1;
            }
        }
        let (mut low, mut high) = ((src as i128, dst as i128), (src as i128, dst as i128));
        let mut elems = 1u64;
        for l in &buf[..n] {
            elems *= l.count;
            let reach = |step: i64| (l.count as i128 - 1) * step as i128;
            let (s, d) = (reach(l.src_step), reach(l.dst_step));
            low = (low.0 + s.min(0), low.1 + d.min(0));
            high = (high.0 + s.max(0), high.1 + d.max(0));
        }
        assert!(low.0 >= 0 && low.1 >= 0, "a nest reaches before the start of a part");
        let (run, n, shape) = canonicalise(&mut buf, n);
        let first_loop = u32::try_from(self.loops.len()).expect("fewer than 2^32 loops in a table");
        self.loops.extend_from_slice(&buf[..n]);
        self.ops.push(Op { src, dst, run, first_loop, loops: n as u16, shape });
        self.elems += elems;
        self.src_extent = self.src_extent.max(high.0 as u64 + 1);
        self.dst_extent = self.dst_extent.max(high.1 as u64 + 1);
    }

    /// The operations, in the order in which they are to be carried out.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The loops of one of this table's operations, outermost first.
    pub fn loops(&self, op: &Op) -> &[Loop] {
        &self.loops[Range { start: op.first_loop as usize, end: op.first_loop as usize + op.loops as usize }]
    }

    /// Bytes of one element.
    pub fn elem_len(&self) -> u64 {
        self.elem_len
    }

    /// Elements moved by the whole table.
    pub fn elems(&self) -> u64 {
        self.elems
    }

    /// Bytes moved by the whole table, counted in source elements.
    pub fn len_bytes(&self) -> u64 {
        self.elems * self.elem_len
    }

    /// One past the last source element that any operation reads.
    pub fn src_extent(&self) -> u64 {
        self.src_extent
    }

    /// One past the last destination element that any operation writes.
    pub fn dst_extent(&self) -> u64 {
        self.dst_extent
    }

    /// Bytes of memory that the table itself takes.
    pub fn table_bytes(&self) -> usize {
        self.ops.len() * size_of::<Op>() + self.loops.len() * size_of::<Loop>()
    }

    /// Puts the operations in order of their first destination element.
    pub fn sort(&mut self) {
        self.ops.sort_by_key(|op| op.dst);
    }

    /// Calls `f(src, dst, run)` for each contiguous run, all in elements. The slow and obvious meaning of a
    /// table: the oracle for kernels, and the way to count runs.
    pub fn for_each_run(&self, mut f: impl FnMut(u64, u64, u64)) {
        for op in &self.ops {
            walk(self.loops(op), op.src as i64, op.dst as i64, op.run, &mut f);
        }
    }

    /// Number of contiguous runs that the table unrolls to.
    pub fn runs(&self) -> u64 {
        self.ops.iter().map(|op| self.loops(op).iter().map(|l| l.count).product::<u64>()).sum()
    }
}

/// The most loops a nest may have before canonicalisation: two for each of eight dimensions.
pub const MAX_NEST: usize = 16;

fn walk(loops: &[Loop], src: i64, dst: i64, run: u64, f: &mut impl FnMut(u64, u64, u64)) {
    match loops.split_first() {
        None => f(src as u64, dst as u64, run),
        Some((l, rest)) => {
            for i in 0..l.count as i64 {
                walk(rest, src + i * l.src_step, dst + i * l.dst_step, run, f);
            }
        }
    }
}

/// Orders and fuses `buf[..n]`; returns the run, the number of loops left, and the shape.
fn canonicalise(buf: &mut [Loop; MAX_NEST], mut n: usize) -> (u64, usize, Shape) {
    // Destination order: the largest destination step outermost. Ties (step 0 cannot occur) keep the source
    // order.
    buf[..n].sort_by_key(|l| std::cmp::Reverse((l.dst_step.unsigned_abs(), l.src_step.unsigned_abs())));
    let mut run = 1;
    if n > 0 && buf[n - 1].src_step == 1 && buf[n - 1].dst_step == 1 {
        run = buf[n - 1].count;
        n -= 1;
        while n > 0 && buf[n - 1].src_step == run as i64 && buf[n - 1].dst_step == run as i64 {
            run *= buf[n - 1].count;
            n -= 1;
        }
    }
    // Fuse an outer loop with its inner neighbour when the outer continues the inner on both sides.
    let mut i = n;
    while i >= 2 {
        let (outer, inner) = (buf[i - 2], buf[i - 1]);
        let c = inner.count as i64;
        if outer.src_step == inner.src_step * c && outer.dst_step == inner.dst_step * c {
            buf[i - 2] = Loop { count: outer.count * inner.count, ..inner };
            buf.copy_within(i..n, i - 1);
            n -= 1;
        }
        i -= 1;
    }
    // A transpose: destination unit stride innermost, source unit stride elsewhere. Bring the source's loop
    // inside.
    if run == 1 && n >= 2 && buf[n - 1].dst_step == 1 {
        if let Some(k) = buf[..n - 1].iter().position(|l| l.src_step == 1) {
            let inner = buf[k];
            buf.copy_within(k + 1..n, k);
            buf[n - 1] = inner;
            return (1, n, Shape::Transpose);
        }
    }
    (run, n, Shape::Runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn l(count: u64, src_step: i64, dst_step: i64) -> Loop {
        Loop { count, src_step, dst_step }
    }

    /// Every (src, dst) element pair of a nest, by the definition.
    fn pairs(src: u64, dst: u64, nest: &[Loop]) -> Vec<(u64, u64)> {
        let mut all = vec![(src as i64, dst as i64)];
        for l in nest {
            all = all
                .iter()
                .flat_map(|&(s, d)| {
                    (0..l.count as i64).map(move |i| (s + i * l.src_step, d + i * l.dst_step))
                })
                .collect();
        }
        let mut all: Vec<_> = all.into_iter().map(|(s, d)| (s as u64, d as u64)).collect();
        all.sort_unstable();
        all
    }

    fn unrolled(t: &OpTable) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        t.for_each_run(|s, d, run| all.extend((0..run).map(|i| (s + i, d + i))));
        all.sort_unstable();
        all
    }

    #[test]
    fn whole_array_becomes_one_run() {
        let mut t = OpTable::new(4);
        t.push(0, 0, &[l(3, 20, 20), l(4, 5, 5), l(5, 1, 1)]);
        assert_eq!((t.ops()[0].run, t.ops()[0].loops, t.runs()), (60, 0, 1));
    }

    #[test]
    fn a_column_block_stays_a_strided_run() {
        let mut t = OpTable::new(4);
        t.push(8, 0, &[l(16, 64, 8), l(8, 1, 1)]);
        assert_eq!((t.ops()[0].run, t.runs(), t.ops()[0].shape), (8, 16, Shape::Runs));
    }

    #[test]
    fn an_order_change_becomes_a_transpose() {
        let mut t = OpTable::new(8);
        t.push(0, 0, &[l(3, 64 * 64, 64 * 64), l(64, 64, 1), l(64, 1, 64)]);
        let op = t.ops()[0];
        assert_eq!(op.shape, Shape::Transpose);
        let loops = t.loops(&op);
        assert_eq!((loops[loops.len() - 2].dst_step, loops[loops.len() - 1].src_step), (1, 1));
    }

    #[test]
    fn canonical_form_moves_the_same_elements() {
        let nests: &[&[Loop]] = &[
            &[],
            &[l(1, 7, 9), l(1, 3, 3)],
            &[l(4, 1, 1), l(3, 4, 8), l(2, 12, 16)],
            &[l(4, 1, 3), l(3, 4, 1)],
            &[l(2, 1, 12), l(3, 2, 4), l(4, 6, 1)],
            &[l(5, 2, 2), l(3, 10, 10)],
            &[l(5, 3, 1), l(3, 1, 5), l(2, 15, 15), l(2, 30, 30)],
        ];
        for nest in nests {
            let mut t = OpTable::new(1);
            t.push(5, 6, nest);
            assert_eq!(unrolled(&t), pairs(5, 6, nest), "{nest:?}");
            assert_eq!(t.elems() as usize, pairs(5, 6, nest).len());
            let top = pairs(5, 6, nest).iter().fold((0, 0), |m, p| (m.0.max(p.0 + 1), m.1.max(p.1 + 1)));
            assert_eq!((t.src_extent(), t.dst_extent()), top);
        }
    }

    #[test]
    fn an_empty_loop_adds_nothing() {
        let mut t = OpTable::new(1);
        t.push(0, 0, &[l(4, 1, 1), l(0, 4, 4)]);
        assert!(t.ops().is_empty() && t.elems() == 0);
    }
}
