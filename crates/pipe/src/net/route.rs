//! The bytes of one writer unit for one reader unit as a sequence: both sides walk the same operations in the
//! same order, outermost loop first, and so no byte needs an address.
//!
//! Each side sees the sequence as [pieces](Piece): runs that lie together in its own memory, or frames that
//! kernels gather or scatter while they stay in the cache.

use crate::threads::Threads;
use polyduct_copy::{as_shared, Conversion, Dest, Kernels, Source};
use polyduct_layout::{LayoutError, Loop, Mapping, Op, OpTable, Plan};
use polyduct_message::LinkError;

/// Runs from this length on (bytes) go between memory and socket by themselves.
const DIRECT_FROM: u64 = 1 << 10;
/// Bytes of a frame, at most.
pub const FRAME: u64 = 256 << 10;

/// Which side walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// From memory into the sequence.
    Gather,
    /// From the sequence into memory; with a conversion no run goes by itself.
    Scatter {
        /// Whether elements change on the way.
        convert: bool,
    },
}

/// The next bytes of the sequence.
#[derive(Debug)]
pub enum Piece {
    /// They lie together in this side's memory.
    Run {
        /// Where, in bytes.
        at: usize,
        /// How many.
        len: usize,
    },
    /// They are gathered into a frame, or scattered from it, by this table.
    Frame {
        /// From memory to frame, or from frame to memory.
        table: OpTable,
        /// Bytes of the frame.
        len: usize,
    },
}

/// All operations from one unit to another.
#[derive(Debug)]
pub struct Route {
    tables: Vec<OpTable>,
    elem_len: u64,
    bytes: u64,
    end: End,
}

/// How far a walk has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    table: usize,
    op: usize,
    piece: u64,
}

/// An operation as one side sees it.
struct View {
    start: u64,
    /// Loops around runs: count and step.
    outer: Vec<(u64, i64)>,
    run: u64,
}

impl Route {
    /// What writer unit `from` has for reader unit `to`; `None` where that is nothing. Both sides ask the
    /// reader's plan, so that they agree on the order.
    pub fn new(
        src: &Mapping,
        dst: &Mapping,
        from: u64,
        to: u64,
        end: End,
    ) -> Result<Option<Route>, LayoutError> {
        let plan = Plan::to_reader(src, dst, to)?;
        let transfer = plan.transfers().iter().find(|t| t.src_unit() == from && t.bytes() > 0);
        Ok(transfer.map(|t| Route {
            tables: t.tables().map(|table| table.clone().into_owned()).collect(),
            elem_len: t.elem_len(),
            bytes: t.bytes(),
            end,
        }))
    }

    /// Bytes of the whole sequence.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies all of it from the writer's slot to where it belongs in the reader's part.
    ///
    /// # Errors
    /// The slot or the part is shorter than the plan.
    pub fn copy(
        &self,
        (kernels, conversion, threads): (Kernels, Option<Conversion>, Threads),
        slot: &[u8],
        part: &mut [u8],
    ) -> Result<(), LinkError> {
        let part = as_shared(part);
        let copied = threads.share(self.bytes as usize, |piece, pieces| {
            self.tables.iter().try_for_each(|table| {
                let (src, dst) = (Source::from(slot), Dest::from(part));
                match conversion {
                    None => kernels.execute_part(table, piece, pieces, src, dst),
                    Some(to) => kernels.execute_convert_part(table, to, piece, pieces, src, dst),
                }
            })
        });
        copied.map_err(|_| LinkError::OutOfTurn { what: "a route that leaves its array" })
    }

    /// The next piece, and moves the cursor behind it.
    pub fn next(&self, cursor: &mut Cursor) -> Option<Piece> {
        let mut frame = OpTable::new(self.elem_len);
        let mut filled = 0;
        while let Some(table) = self.tables.get(cursor.table) {
            let Some(op) = table.ops().get(cursor.op) else {
                *cursor = Cursor { table: cursor.table + 1, ..Cursor::default() };
                continue;
            };
            let view = self.view(table, op);
            let direct = self.end != (End::Scatter { convert: true });
            if direct && (view.run * self.elem_len >= DIRECT_FROM) {
                if filled > 0 {
                    break;
                }
                let pieces = view.outer.iter().map(|l| l.0).product();
                let at = (view.place(&view.outer, cursor.piece) * self.elem_len) as usize;
                cursor.step(pieces);
                return Some(Piece::Run { at, len: (view.run * self.elem_len) as usize });
            }
            let (nest, block, depth, at_once) = self.split(&view);
            let around = nest[..depth].iter().map(|l| l.0).product::<u64>();
            let (count, step) = nest[depth];
            let slices = count.div_ceil(at_once);
            let first = cursor.piece % slices * at_once;
            let len = (count - first).min(at_once) * block;
            if filled > 0 && (filled + len) * self.elem_len > FRAME {
                break;
            }
            let at = view.place(&nest[..depth], cursor.piece / slices) as i64 + first as i64 * step;
            let mut inner = nest[depth..].to_vec();
            inner[0].0 = (count - first).min(at_once);
            self.push(&mut frame, at as u64, filled, &inner);
            filled += len;
            cursor.step(around * slices);
        }
        (filled > 0).then(|| Piece::Frame { table: frame, len: (filled * self.elem_len) as usize })
    }

    fn view(&self, table: &OpTable, op: &Op) -> View {
        let (start, gather) = match self.end {
            End::Gather => (op.src, true),
            End::Scatter { .. } => (op.dst, false),
        };
        let own = |l: &Loop| (l.count, if gather { l.src_step } else { l.dst_step });
        let mut outer: Vec<(u64, i64)> = table.loops(op).iter().map(own).collect();
        let mut run = op.run;
        while let Some(&(count, step)) = outer.last().filter(|l| l.1 == run as i64) {
            debug_assert_eq!(step, run as i64);
            run *= count;
            outer.pop();
        }
        View { start, outer, run }
    }

    /// Cuts an operation into frames: its loops (the run is the last), the elements of what lies within loop
    /// `depth`, that loop, and how many of its turns go into a frame.
    fn split(&self, view: &View) -> (Vec<(u64, i64)>, u64, usize, u64) {
        let mut nest = view.outer.clone();
        nest.push((view.run, 1));
        let (mut depth, mut block) = (nest.len() - 1, 1);
        while depth > 0 && block * nest[depth].0 * self.elem_len <= FRAME {
            block *= nest[depth].0;
            depth -= 1;
        }
        let at_once = (FRAME / (block * self.elem_len)).clamp(1, nest[depth].0);
        (nest, block, depth, at_once)
    }

    fn push(&self, frame: &mut OpTable, own: u64, packed: u64, nest: &[(u64, i64)]) {
        let mut step = 1;
        let mut loops: Vec<Loop> = nest
            .iter()
            .rev()
            .map(|&(count, own_step)| {
                let packed_step = step;
                step *= count as i64;
                match self.end {
                    End::Gather => Loop { count, src_step: own_step, dst_step: packed_step },
                    End::Scatter { .. } => Loop { count, src_step: packed_step, dst_step: own_step },
                }
            })
            .collect();
        loops.retain(|l| l.count > 1);
        match self.end {
            End::Gather => frame.push(own, packed, &loops),
            End::Scatter { .. } => frame.push(packed, own, &loops),
        }
    }
}

impl View {
    /// Where the `index`-th turn of these outermost loops starts.
    fn place(&self, outer: &[(u64, i64)], mut index: u64) -> u64 {
        let mut at = self.start as i64;
        for &(count, step) in outer.iter().rev() {
            at += (index % count) as i64 * step;
            index /= count;
        }
        at as u64
    }
}

impl Cursor {
    /// One of the operation's pieces is done.
    fn step(&mut self, pieces: u64) {
        self.piece += 1;
        if self.piece == pieces {
            *self = Cursor { table: self.table, op: self.op + 1, piece: 0 };
        }
    }
}
