//! The bytes of one writer unit for one reader unit as a sequence: both sides walk the same operations in the
//! same order, outermost loop first, and so no byte needs an address.
//!
//! Each side sees the sequence as [pieces](Piece): runs that lie together in its own memory, or frames that
//! kernels gather or scatter while they stay in the cache.

use crate::work::{Leg, Supply};
use polyduct_copy::{CopyError, Dest, Kernels, Source};
use polyduct_layout::{Loop, Op, OpTable};
use std::ops::Range;

/// Runs from this length on (bytes) go between memory and socket by themselves.
const DIRECT_FROM: u64 = 1 << 10;
/// Bytes of a frame, at most.
pub const FRAME: u64 = 256 << 10;

/// Which side walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// From the writer's slot into the sequence.
    Gather,
    /// From the sequence into the reader's parts. Where elements change on the way no run goes by itself.
    Scatter,
}

/// The next bytes of the sequence.
#[derive(Debug)]
pub enum Piece {
    /// They lie together in this side's memory.
    Run {
        /// The reader's array.
        array: usize,
        /// Where, in bytes: in the writer's slot, or in the reader's part of the array.
        at: Range<usize>,
    },
    /// They are gathered into a frame, or scattered from it.
    Frame {
        /// What, one behind the other.
        parts: Vec<FramePart>,
        /// Bytes of the frame.
        len: usize,
    },
}

/// A part of a frame.
#[derive(Debug)]
pub struct FramePart {
    leg: usize,
    /// From memory to frame, or from frame to memory.
    table: OpTable,
    /// Where it lies in the frame, in bytes.
    at: Range<usize>,
}

/// All operations from one unit to another.
#[derive(Debug)]
pub struct Route {
    stretches: Vec<Stretch>,
    bytes: u64,
    end: End,
}

/// Those of one array.
#[derive(Debug)]
struct Stretch {
    leg: Leg,
    /// The tables, where they are not the one that is kept with the plan.
    made: Vec<OpTable>,
}

impl Stretch {
    fn tables(&self) -> &[OpTable] {
        self.leg.transfer().table().map_or(&self.made[..], std::slice::from_ref)
    }
}

/// How far a walk has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    leg: usize,
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
    /// What a writer unit has for a reader unit. Both sides ask the reader's plans, so that they agree on the
    /// order.
    pub fn new(supply: &Supply, end: End) -> Route {
        let stretch = |leg: &Leg| {
            let made = match leg.transfer().table() {
                Some(_) => Vec::new(),
                None => leg.transfer().tables().map(|table| table.into_owned()).collect(),
            };
            Stretch { leg: leg.clone(), made }
        };
        Route { stretches: supply.legs.iter().map(stretch).collect(), bytes: supply.bytes, end }
    }

    /// A route on which nothing goes.
    pub fn nothing(end: End) -> Route {
        Route { stretches: Vec::new(), bytes: 0, end }
    }

    /// Bytes of the whole sequence.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gathers a frame from the writer's slot.
    ///
    /// # Errors
    /// The slot is shorter than the plan.
    pub fn gather(
        &self,
        kernels: Kernels,
        parts: &[FramePart],
        slot: &[u8],
        frame: &mut [u8],
    ) -> Result<(), CopyError> {
        parts.iter().try_for_each(|part| {
            let from = slot.get(self.stretches[part.leg].leg.slot.clone()).unwrap_or_default();
            let to = frame.get_mut(part.at.clone()).unwrap_or_default();
            kernels.execute(&part.table, Source::from(from), Dest::from(to))
        })
    }

    /// Scatters a frame into the reader's parts.
    ///
    /// # Errors
    /// A part is shorter than the plan.
    pub fn scatter(
        &self,
        kernels: Kernels,
        parts: &[FramePart],
        frame: &[u8],
        memory: &mut [&mut [u8]],
    ) -> Result<(), CopyError> {
        parts.iter().try_for_each(|part| {
            let leg = &self.stretches[part.leg].leg;
            let to = memory.get_mut(leg.array).map(|part| &mut **part).unwrap_or_default();
            let (src, dst) = (Source::from(&frame[part.at.clone()]), Dest::from(to));
            match leg.conversion {
                None => kernels.execute(&part.table, src, dst),
                Some(conversion) => kernels.execute_convert(&part.table, conversion, src, dst),
            }
        })
    }

    /// The next piece, and moves the cursor behind it.
    pub fn next(&self, cursor: &mut Cursor) -> Option<Piece> {
        let (mut frame, mut filled) = (Vec::<FramePart>::new(), 0);
        while let Some(stretch) = self.stretches.get(cursor.leg) {
            let Some(table) = stretch.tables().get(cursor.table) else {
                *cursor = Cursor { leg: cursor.leg + 1, ..Cursor::default() };
                continue;
            };
            let Some(op) = table.ops().get(cursor.op) else {
                *cursor = Cursor { leg: cursor.leg, table: cursor.table + 1, ..Cursor::default() };
                continue;
            };
            let (leg, elem_len) = (&stretch.leg, table.elem_len());
            let view = self.view(table, op);
            let direct = self.end == End::Gather || leg.conversion.is_none();
            if direct && view.run * elem_len >= DIRECT_FROM {
                if filled > 0 {
                    break;
                }
                let pieces = view.outer.iter().map(|l| l.0).product();
                let base = if self.end == End::Gather { leg.slot.start } else { 0 };
                let at = base + (view.place(&view.outer, cursor.piece) * elem_len) as usize;
                cursor.step(pieces);
                return Some(Piece::Run { array: leg.array, at: at..at + (view.run * elem_len) as usize });
            }
            let (nest, block, depth, at_once) = split(&view, elem_len);
            let around = nest[..depth].iter().map(|l| l.0).product::<u64>();
            let (count, step) = nest[depth];
            let slices = count.div_ceil(at_once);
            let first = cursor.piece % slices * at_once;
            let len = (count - first).min(at_once) * block * elem_len;
            if filled > 0 && filled + len > FRAME {
                break;
            }
            let at = view.place(&nest[..depth], cursor.piece / slices) as i64 + first as i64 * step;
            let mut inner = nest[depth..].to_vec();
            inner[0].0 = (count - first).min(at_once);
            let is_same = |part: &FramePart| part.leg == cursor.leg && part.table.elem_len() == elem_len;
            if !frame.last().is_some_and(is_same) {
                let at = filled as usize..filled as usize;
                frame.push(FramePart { leg: cursor.leg, table: OpTable::new(elem_len), at });
            }
            if let Some(part) = frame.last_mut() {
                let packed = (filled - part.at.start as u64) / elem_len;
                self.push(&mut part.table, at as u64, packed, &inner);
                filled += len;
                part.at.end = filled as usize;
            }
            cursor.step(around * slices);
        }
        (filled > 0).then_some(Piece::Frame { parts: frame, len: filled as usize })
    }

    fn view(&self, table: &OpTable, op: &Op) -> View {
        let (start, gather) = match self.end {
            End::Gather => (op.src, true),
            End::Scatter => (op.dst, false),
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
                    End::Scatter => Loop { count, src_step: packed_step, dst_step: own_step },
                }
            })
            .collect();
        loops.retain(|l| l.count > 1);
        match self.end {
            End::Gather => frame.push(own, packed, &loops),
            End::Scatter => frame.push(packed, own, &loops),
        }
    }
}

/// Cuts an operation into frames: its loops (the run is the last), the elements of what lies within loop
/// `depth`, that loop, and how many of its turns go into a frame.
fn split(view: &View, elem_len: u64) -> (Vec<(u64, i64)>, u64, usize, u64) {
    let mut nest = view.outer.clone();
    nest.push((view.run, 1));
    let (mut depth, mut block) = (nest.len() - 1, 1);
    while depth > 0 && block * nest[depth].0 * elem_len <= FRAME {
        block *= nest[depth].0;
        depth -= 1;
    }
    let at_once = (FRAME / (block * elem_len)).clamp(1, nest[depth].0);
    (nest, block, depth, at_once)
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
            *self = Cursor { op: self.op + 1, piece: 0, ..*self };
        }
    }
}
