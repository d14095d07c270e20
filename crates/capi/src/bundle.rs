//! Bundles: the arrays that a writer says, and the rules of a reader.

use crate::args::{dims, maybe_text, natural, numbers, several, shape, text};
use crate::attributes;
use crate::border::call;
use crate::error::Failure;
use crate::guard::Guard;
use crate::handle::Handle;
use crate::memory::Memory;
use crate::options::{self, layout_of, maybe_shape, Options};
use crate::port::{give, real_url, State};
use crate::types;
use polyduct::{Array, Assembly, Changes, Expect, Index, JobUnit, JoinPieces, Mode, Piece, Rule};
use std::ffi::{c_char, c_int};

/// An array of a writer, as the header has it.
#[repr(C)]
pub struct ArraySpec {
    struct_size: usize,
    name: *const c_char,
    elem: i32,
    ndim: i32,
    shape: *const i64,
    layout: *const c_char,
    changes: i32,
    open_dim: i32,
    attributes: *const c_char,
    dims: *const c_char,
}

/// A box of an array, as the header has it.
#[repr(C)]
pub struct PieceSpec {
    struct_size: usize,
    array: *const c_char,
    ndim: i32,
    at_ndim: i32,
    lo: *const i64,
    hi: *const i64,
    at_lo: *const i64,
    at_hi: *const i64,
}

/// What a reader says of arrays, as the header has it.
#[repr(C)]
pub struct RuleSpec {
    struct_size: usize,
    pattern: *const c_char,
    layout: *const c_char,
    elem: i32,
    convert: i32,
    ndim: i32,
    join: i32,
    axis: i32,
    piece_count: i32,
    shape: *const i64,
    pieces: *const PieceSpec,
}

impl ArraySpec {
    unsafe fn read(&self, place: &JobUnit) -> Result<Array, Failure> {
        // SAFETY: text and numbers of the caller's.
        let (name, layout, sizes) = unsafe {
            (
                text("name", self.name)?,
                maybe_text("layout", self.layout)?,
                shape("shape", self.ndim, self.shape)?,
            )
        };
        let open = match self.changes {
            0 => None,
            1 => Some(Changes::Dim(crate::args::unit("open_dim", self.open_dim)?)),
            2 => Some(Changes::Whole),
            3 => Some(Changes::Never),
            other => {
                let text = format!("changes is {other}; expected one of enum polyduct_changes");
                return Err(Failure::option("changes", text));
            }
        };
        let layout = match open {
            // Units bring their pieces in their order.
            Some(Changes::Dim(_)) => layout.unwrap_or_default(),
            _ => layout_of(layout, place)?,
        };
        let dataset = types::dataset(&sizes, self.elem)?;
        Ok(Array { name: name.to_owned(), dataset, layout: layout.to_owned(), open })
    }
}

unsafe fn index(ndim: i32, lo: *const i64, hi: *const i64) -> Result<Vec<Index>, Failure> {
    let count = dims("a piece", ndim)?;
    // SAFETY: as many numbers as the caller says.
    let (lo, hi) = unsafe { (numbers("lo", lo, count)?, numbers("hi", hi, count)?) };
    let one = |(&lo, &hi): (&i64, &i64)| {
        let from = natural("lo", lo)?;
        Ok(match hi {
            -2 => Index::One(from),
            -1 => Index::Span(from, None),
            hi => Index::Span(from, Some(natural("hi", hi)?)),
        })
    };
    lo.iter().zip(hi).map(one).collect()
}

impl PieceSpec {
    unsafe fn read(&self) -> Result<Piece, Failure> {
        // SAFETY: text and numbers of the caller's.
        unsafe {
            let at = match self.at_ndim {
                0 => None,
                ndim => Some(index(ndim, self.at_lo, self.at_hi)?),
            };
            let of = index(self.ndim, self.lo, self.hi)?;
            Ok(Piece { array: text("array", self.array)?.to_owned(), of, at })
        }
    }
}

impl RuleSpec {
    unsafe fn read(&self, place: &JobUnit) -> Result<Rule, Failure> {
        // SAFETY: text, numbers and structures of the caller's.
        let (pattern, layout, sizes, pieces) = unsafe {
            let count = natural("piece_count", self.piece_count.into())? as usize;
            let pieces = several("pieces", self.pieces, count)?;
            let pieces = pieces.iter().map(|piece| piece.read()).collect::<Result<Vec<_>, _>>()?;
            let sizes = maybe_shape(self.ndim, self.shape)?;
            (text("pattern", self.pattern)?, maybe_text("layout", self.layout)?, sizes, pieces)
        };
        let axis = crate::args::unit("axis", self.axis)?;
        let join = match self.join {
            0 => JoinPieces::Along(axis),
            1 => JoinPieces::Stacked(axis),
            other => {
                let text = format!("join is {other}; expected one of enum polyduct_join");
                return Err(Failure::option("join", text));
            }
        };
        let elem = types::maybe(self.elem)?;
        // Of those that no type is said of none is converted.
        let expect = Expect { shape: sizes, elem, convert: self.convert != 0 && elem.is_some() };
        let of = (!pieces.is_empty()).then_some(Assembly { pieces, join });
        Ok(Rule { pattern: pattern.to_owned(), layout: layout_of(layout, place)?.to_owned(), expect, of })
    }
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_open_write_arrays(
    port: *mut Handle,
    url: *const c_char,
    count: usize,
    arrays: *const ArraySpec,
    given: *const Options,
) -> c_int {
    call(|| {
        let guard = Guard::new("port");
        // SAFETY: what the header asks of callers, here and below.
        unsafe {
            let url = text("url", url)?;
            let arrays = several("arrays", arrays, count)?;
            let (mut open, place, _) = options::open(url, given, &guard)?;
            for array in &arrays {
                if let Some(notes) = attributes::notes(array.attributes, array.dims)? {
                    open = open.note_array(text("name", array.name)?, notes);
                }
            }
            let arrays: Vec<Array> =
                arrays.iter().map(|array| array.read(&place)).collect::<Result<_, _>>()?;
            let url = real_url(url, Mode::Write.variable());
            give(port, &url, guard, place, || Ok(State::Idle(Box::new(open.write_arrays(&arrays)?))))
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn polyduct_open_read_arrays(
    port: *mut Handle,
    url: *const c_char,
    count: usize,
    rules: *const RuleSpec,
    given: *const Options,
) -> c_int {
    call(|| {
        let guard = Guard::new("port");
        // SAFETY: what the header asks of callers, here and below.
        unsafe {
            let url = text("url", url)?;
            let rules = several("rules", rules, count)?;
            let (open, place, _) = options::open(url, given, &guard)?;
            let rules: Vec<Rule> = rules.iter().map(|rule| rule.read(&place)).collect::<Result<_, _>>()?;
            let url = real_url(url, Mode::Read.variable());
            let read = || Ok(State::Reading(Box::new(open.read_arrays(&rules)?), Memory::default()));
            give(port, &url, guard, place, read)
        }
    })
}
