//! A transfer from one unit to another, kept factored, and the operation tables made of it.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use crate::comb::Family;
use crate::linear::{LinearCursor, LinearPart};
use crate::op::{Loop, OpTable, MAX_NEST};

/// The most operations of one table that [`Transfer::tables`] makes.
pub const MAX_TABLE_OPS: usize = 4096;

/// The elements that one unit of the source gives to one unit of the destination.
///
/// It is kept as short lists of families whose products make the elements, so its size follows their sum. The
/// flat [`OpTable`]s are made when asked for.
#[derive(Debug)]
pub struct Transfer {
    src_unit: u64,
    dst_unit: u64,
    elem_len: u64,
    elems: u64,
    ops: u64,
    body: Body,
    table: OnceLock<OpTable>,
}

/// How the operations are stored.
#[derive(Debug)]
pub(crate) enum Body {
    Products { families: Arc<Vec<Family>>, products: Vec<Product> },
    Linear(LinearPart),
    Table,
}

/// A Cartesian product of families, one list for each dimension.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    /// Offset in the source part to which the families' places are added.
    pub src: u64,
    pub dst: u64,
    pub factors: Vec<Factor>,
}

/// The families of one dimension (never none), and how places along it count in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factor {
    pub first: u32,
    pub n: u32,
    pub src_stride: u64,
    pub dst_stride: u64,
}

impl Factor {
    fn families<'a>(&self, all: &'a [Family]) -> &'a [Family] {
        &all[self.first as usize..self.first as usize + self.n as usize]
    }
}

impl Product {
    /// A product; a dimension of a single element goes into the offsets. The slowest in the destination comes
    /// first, so that operations come nearly in destination order.
    pub fn new(mut src: u64, mut dst: u64, mut factors: Vec<Factor>, all: &[Family]) -> Product {
        factors.retain(|f| match f.families(all) {
            [one] if one.len == 1 && one.count == 1 => {
                src += one.src * f.src_stride;
                dst += one.dst * f.dst_stride;
                false
            }
            _ => true,
        });
        factors.sort_by_key(|f| std::cmp::Reverse(f.dst_stride));
        Product { src, dst, factors }
    }

    fn elems(&self, all: &[Family]) -> u64 {
        self.factors.iter().map(|f| f.families(all).iter().map(Family::len_elems).sum::<u64>()).product()
    }

    fn ops(&self) -> u64 {
        self.factors.iter().fold(1, |n, f| n.saturating_mul(f.n.into()))
    }

    /// Pushes the operation for one choice of a family in each dimension.
    fn push(&self, choice: &[u32], all: &[Family], table: &mut OpTable) {
        let mut nest = [Loop { count: 1, src_step: 0, dst_step: 0 }; MAX_NEST];
        let (mut src, mut dst, mut n) = (self.src, self.dst, 0);
        for (f, &c) in self.factors.iter().zip(choice) {
            let one = &f.families(all)[c as usize];
            src += one.src * f.src_stride;
            dst += one.dst * f.dst_stride;
            for (count, s, d) in [(one.count, one.src_step, one.dst_step), (one.len, 1, 1)] {
                if count > 1 {
                    let (src_step, dst_step) = ((s * f.src_stride) as i64, (d * f.dst_stride) as i64);
                    nest[n] = Loop { count, src_step, dst_step };
                    n += 1;
                }
            }
        }
        table.push(src, dst, &nest[..n]);
    }
}

impl Transfer {
    pub(crate) fn of_products(
        src_unit: u64,
        dst_unit: u64,
        elem_len: u64,
        families: Arc<Vec<Family>>,
        products: Vec<Product>,
    ) -> Transfer {
        let elems = products.iter().map(|p| p.elems(&families)).sum();
        let ops = products.iter().fold(0u64, |n, p| n.saturating_add(p.ops()));
        let body = Body::Products { families, products };
        Transfer { src_unit, dst_unit, elem_len, elems, ops, body, table: OnceLock::new() }
    }

    /// Bytes of a side that is cut along the linear order.
    pub(crate) fn of_linear(src_unit: u64, dst_unit: u64, part: LinearPart) -> Transfer {
        let (bytes, ops) = (part.bytes(), part.ops());
        let body = Body::Linear(part);
        Transfer { src_unit, dst_unit, elem_len: 1, elems: bytes, ops, body, table: OnceLock::new() }
    }

    pub(crate) fn of_table(src_unit: u64, dst_unit: u64, mut table: OpTable) -> Transfer {
        table.sort();
        let (elem_len, elems, ops) = (table.elem_len(), table.elems(), table.ops().len() as u64);
        Transfer { src_unit, dst_unit, elem_len, elems, ops, body: Body::Table, table: OnceLock::from(table) }
    }

    /// The unit that gives.
    pub fn src_unit(&self) -> u64 {
        self.src_unit
    }

    /// The unit that takes.
    pub fn dst_unit(&self) -> u64 {
        self.dst_unit
    }

    /// Bytes of what the tables count in: a source element, or 1 where stripes make it bytes.
    pub fn elem_len(&self) -> u64 {
        self.elem_len
    }

    /// Elements moved (of [`elem_len`](Transfer::elem_len) bytes).
    pub fn len_elems(&self) -> u64 {
        self.elems
    }

    /// Bytes moved, counted in source elements.
    pub fn bytes(&self) -> u64 {
        self.elems * self.elem_len
    }

    /// Number of operations in all tables together.
    pub fn ops(&self) -> u64 {
        self.ops
    }

    /// The one table of this transfer, made at the first call and kept; `None` when it would have more than
    /// [`MAX_TABLE_OPS`] operations and [`tables`](Transfer::tables) gives it piece by piece.
    pub fn table(&self) -> Option<&OpTable> {
        if let (Body::Table, Some(table)) = (&self.body, self.table.get()) {
            return Some(table);
        }
        if self.ops > MAX_TABLE_OPS as u64 {
            return None;
        }
        Some(self.table.get_or_init(|| self.pieces().next().unwrap_or_else(|| OpTable::new(self.elem_len))))
    }

    /// The operations as tables: the one that is kept when there is just one, else tables of
    /// [`MAX_TABLE_OPS`] operations made one at a time. Each is in destination order.
    pub fn tables(&self) -> Tables<'_> {
        Tables(match self.table() {
            Some(table) => Source::Kept(Some(table)),
            None => Source::Made(Box::new(self.pieces())),
        })
    }

    /// Bytes of memory that the plan holds for this transfer when its table, if there is only one, is made.
    pub fn table_bytes(&self) -> usize {
        let own = match &self.body {
            Body::Products { products, .. } => products
                .iter()
                .map(|p| {
                    size_of::<Product>()
                        + p.factors
                            .iter()
                            .map(|f| size_of::<Factor>() + f.n as usize * size_of::<Family>())
                            .sum::<usize>()
                })
                .sum(),
            Body::Linear(part) => part.memory_bytes(),
            Body::Table => 0,
        };
        own + self.table().map_or(0, OpTable::table_bytes)
    }

    fn pieces(&self) -> Pieces<'_> {
        let cursor = match &self.body {
            Body::Products { families, products } => {
                Cursor::Products { families, products, choice: Vec::new() }
            }
            Body::Linear(part) => Cursor::Linear(Box::new(part.cursor())),
            Body::Table => Cursor::Products { families: &[], products: &[], choice: Vec::new() },
        };
        Pieces { elem_len: self.elem_len, cursor }
    }
}

/// The tables of a [`Transfer`], in order.
pub struct Tables<'a>(Source<'a>);

enum Source<'a> {
    Kept(Option<&'a OpTable>),
    Made(Box<Pieces<'a>>),
}

impl<'a> Iterator for Tables<'a> {
    type Item = Cow<'a, OpTable>;

    fn next(&mut self) -> Option<Cow<'a, OpTable>> {
        match &mut self.0 {
            Source::Kept(table) => table.take().map(Cow::Borrowed),
            Source::Made(pieces) => pieces.next().map(Cow::Owned),
        }
    }
}

/// Makes tables of bounded size.
struct Pieces<'a> {
    elem_len: u64,
    cursor: Cursor<'a>,
}

enum Cursor<'a> {
    /// The products still to do; `choice` is the next of the first, empty before it is begun.
    Products {
        families: &'a [Family],
        products: &'a [Product],
        choice: Vec<u32>,
    },
    Linear(Box<LinearCursor<'a>>),
}

impl Iterator for Pieces<'_> {
    type Item = OpTable;

    fn next(&mut self) -> Option<OpTable> {
        let mut table = OpTable::new(self.elem_len);
        while table.ops().len() < MAX_TABLE_OPS && self.cursor.push_next(&mut table) {}
        table.sort();
        (!table.ops().is_empty()).then_some(table)
    }
}

impl Cursor<'_> {
    /// Pushes the next operation; `false` when there is none left.
    fn push_next(&mut self, table: &mut OpTable) -> bool {
        let (families, products, choice) = match self {
            Cursor::Linear(cursor) => return cursor.push_next(table),
            Cursor::Products { families, products, choice } => (*families, products, choice),
        };
        let Some((product, rest)) = products.split_first() else { return false };
        if choice.len() != product.factors.len() {
            choice.clear();
            choice.resize(product.factors.len(), 0);
        }
        product.push(choice, families, table);
        for (c, f) in choice.iter_mut().zip(&product.factors).rev() {
            *c += 1;
            if *c < f.n {
                return true;
            }
            *c = 0;
        }
        // All choices are done and all counters are back at zero.
        *products = rest;
        true
    }
}
