//! The parser of layout texts: one pass over the bytes, no recursion, no look-back.

use std::sync::Arc;

use crate::dims::{Dims, IndexBox, MAX_DIMS};
use crate::error::shorten;
use crate::text::*;
use crate::LayoutError;

type Result<T> = std::result::Result<T, LayoutError>;

/// Every number in a text fits an `i64`, so that sums of two cannot overflow.
const MAX_NUMBER: u64 = i64::MAX as u64;

pub(crate) fn layout(text: &str) -> Result<Kind> {
    let boxes = text.trim_start().starts_with("boxes");
    let limit = if boxes { MAX_BOXES_TEXT_BYTES } else { MAX_TEXT_BYTES };
    if text.len() > limit {
        return Err(LayoutError::TextTooLong { len: text.len(), limit });
    }
    let mut c = Cursor { text, at: 0 };
    let start = c.skip_space();
    let kind = match c.word() {
        "boxes" => Kind::Boxes(explicit(&mut c)?),
        "digits" => Kind::Digits(digits(&mut c)?),
        "stripe" => Kind::Stripes(stripe(&mut c)?),
        _ => {
            c.at = start;
            Kind::Regular(regular(&mut c)?)
        }
    };
    match c.peek() {
        None => Ok(kind),
        Some(_) => Err(c.error(match kind {
            Kind::Regular(_) => "`,`, `@`, `;` or the end of the text",
            Kind::Boxes(_) => "`;order=` or the end of the text",
            _ => "the end of the text",
        })),
    }
}

/// A place in the text. All methods but `error` skip white space first.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn skip_space(&mut self) -> usize {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.at
    }

    fn peek(&mut self) -> Option<u8> {
        let at = self.skip_space();
        self.text.as_bytes().get(at).copied()
    }

    /// Takes one ASCII byte when it comes next.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<()> {
        if self.take(byte) {
            return Ok(());
        }
        Err(self.error(expected))
    }

    /// A run of ASCII letters, perhaps empty.
    fn word(&mut self) -> &'a str {
        let start = self.skip_space();
        let rest = &self.text.as_bytes()[start..];
        self.at += rest.iter().take_while(|b| b.is_ascii_alphabetic()).count();
        &self.text[start..self.at]
    }

    fn number(&mut self, expected: &'static str) -> Result<u64> {
        let start = self.skip_space();
        let mut value = 0u64;
        while let Some(&b) = self.text.as_bytes().get(self.at).filter(|b| b.is_ascii_digit()) {
            value = value.saturating_mul(10).saturating_add(u64::from(b - b'0'));
            self.at += 1;
        }
        let empty = self.at == start;
        if empty || value > MAX_NUMBER {
            self.at = start;
            return Err(self.error(if empty { expected } else { "a number below 2^63" }));
        }
        Ok(value)
    }

    fn positive(&mut self, expected: &'static str) -> Result<u64> {
        let start = self.skip_space();
        match self.number(expected)? {
            0 => Err(self.error_at(start, expected)),
            n => Ok(n),
        }
    }

    /// An error at the next token.
    fn error(&mut self, expected: &'static str) -> LayoutError {
        let at = self.skip_space();
        self.error_at(at, expected)
    }

    fn error_at(&self, position: usize, expected: &'static str) -> LayoutError {
        // Positions are at token starts, which are character boundaries; `get` keeps even a bug from
        // panicking.
        let found = match self.text.get(position..).unwrap_or_default() {
            "" => "the end of the text".to_owned(),
            rest => shorten(rest),
        };
        LayoutError::Text { position, expected, found }
    }

    /// Numbers below `limit`, each once, with commas between.
    fn distinct(&mut self, limit: usize, expected: &'static str) -> Result<Vec<u8>> {
        let mut list: Vec<u8> = Vec::new();
        loop {
            let start = self.skip_space();
            let n = self.number(expected)?;
            if n >= limit as u64 || list.contains(&(n as u8)) {
                return Err(self.error_at(start, expected));
            }
            list.push(n as u8);
            if !self.take(b',') {
                return Ok(list);
            }
        }
    }
}

fn regular(c: &mut Cursor) -> Result<RegularText> {
    let mut dims: Vec<DimText> = Vec::new();
    loop {
        if dims.len() == MAX_DIMS {
            return Err(c.error("at most 8 dimensions"));
        }
        let start = c.skip_space();
        let next = dim(c)?;
        if next.dist == Dist::Rest && dims.iter().any(|d| d.dist == Dist::Rest) {
            return Err(c.error_at(start, "`...` only once"));
        }
        dims.push(next);
        if !c.take(b',') {
            break;
        }
    }
    let grid = if c.take(b'@') { Some(grid(c)?) } else { None };
    let (mut order, mut halo) = (None, None);
    while c.take(b';') {
        let start = c.skip_space();
        match c.word() {
            "order" if order.is_none() => {
                c.expect(b'=', "`=`")?;
                order = Some(self::order(c, dims.len(), dims.iter().any(|d| d.dist == Dist::Rest))?);
            }
            "halo" if halo.is_none() => {
                c.expect(b'=', "`=`")?;
                halo = Some(self::halo(c, &dims)?);
            }
            _ => return Err(c.error_at(start, "`order=` or `halo=`, each once")),
        }
    }
    Ok(RegularText { dims, grid, order: order.unwrap_or(Order::C), halo: halo.unwrap_or_default() })
}

fn dim(c: &mut Cursor) -> Result<DimText> {
    if c.take(b'*') {
        return Ok(DimText { dist: Dist::Whole, axes: None });
    }
    if c.take(b'.') {
        c.expect(b'.', "`...`")?;
        c.expect(b'.', "`...`")?;
        return Ok(DimText { dist: Dist::Rest, axes: None });
    }
    let start = c.skip_space();
    let dist = match c.word() {
        "block" => Dist::Block,
        "balanced" => Dist::Balanced,
        "cyclic" => Dist::Cyclic(if c.take(b'(') {
            let b = c.positive("a block size of at least 1")?;
            c.expect(b')', "`)`")?;
            b
        } else {
            1
        }),
        "cut" => Dist::Cut(cuts(c)?),
        _ => {
            return Err(
                c.error_at(start, "`*`, `block`, `balanced`, `cyclic`, `cut`, `boxes`, `digits` or `stripe`")
            )
        }
    };
    let axes = if c.take(b'[') {
        let axes = c.distinct(MAX_DIMS, "the number of a grid axis (0 to 7), each once")?;
        c.expect(b']', "`,` or `]`")?;
        Some(axes)
    } else {
        None
    };
    Ok(DimText { dist, axes })
}

fn cuts(c: &mut Cursor) -> Result<Arc<[u64]>> {
    c.expect(b'(', "`(`")?;
    let mut starts = Vec::new();
    loop {
        let at = c.skip_space();
        let n = c.number("an index")?;
        match starts.last() {
            None if n != 0 => return Err(c.error_at(at, "0, where the first piece starts")),
            Some(&last) if n < last => return Err(c.error_at(at, "an index not below the one before")),
            _ => starts.push(n),
        }
        if !c.take(b',') {
            c.expect(b')', "`,` or `)`")?;
            return Ok(starts.into());
        }
    }
}

fn grid(c: &mut Cursor) -> Result<Vec<u64>> {
    let mut sizes = vec![c.positive("a grid size of at least 1")?];
    while c.take(b'x') {
        if sizes.len() == MAX_DIMS {
            return Err(c.error("at most 8 grid axes"));
        }
        sizes.push(c.positive("a grid size of at least 1")?);
    }
    Ok(sizes)
}

/// `rest`: some of the dimensions have no numbers yet, as `...` stands for them.
fn order(c: &mut Cursor, dims: usize, rest: bool) -> Result<Order> {
    let start = c.skip_space();
    match c.word() {
        "C" => return Ok(Order::C),
        "F" if rest => return Ok(Order::F),
        _ if rest => return Err(c.error_at(start, "`C` or `F`, as `...` numbers no dimensions")),
        "F" => return Ok(Order::from_perm((0..dims as u8).rev().collect())),
        "" => {}
        _ => return Err(c.error_at(start, "`C`, `F` or a list of dimensions")),
    }
    let perm = c.distinct(dims, "`C`, `F`, or each dimension once, counted from 0")?;
    if perm.len() < dims {
        return Err(c.error("`,` and the remaining dimensions"));
    }
    Ok(Order::from_perm(perm))
}

fn halo(c: &mut Cursor, dims: &[DimText]) -> Result<Vec<Halo>> {
    let mut list = Vec::new();
    for (k, dim) in dims.iter().enumerate() {
        if k > 0 {
            c.expect(b',', "`,` and a halo width for each dimension")?;
        }
        let at = c.skip_space();
        let before = c.number("a halo width `n`, `before:after`, or one with `~`")?;
        let after = if c.take(b':') { c.number("a halo width")? } else { before };
        let periodic = c.take(b'~') && (before, after) != (0, 0);
        if matches!(dim.dist, Dist::Cyclic(_)) && (before, after) != (0, 0) {
            return Err(c.error_at(at, "0, as a cyclic dimension has no halo"));
        }
        list.push(Halo { before, after, periodic });
    }
    Ok(if list.iter().all(|&h| h == Halo::NONE) { Vec::new() } else { list })
}

fn explicit(c: &mut Cursor) -> Result<BoxesText> {
    c.expect(b'(', "`(`")?;
    let mut units = vec![Vec::new()];
    let mut ndim = 0;
    loop {
        let boxes = units.last_mut().expect("starts with one unit");
        if !(boxes.is_empty() && c.take(b'-')) {
            boxes.push(index_box(c, &mut ndim)?);
            if c.take(b'+') {
                continue;
            }
        }
        if !c.take(b'|') {
            break;
        }
        units.push(Vec::new());
    }
    c.expect(b')', "`,`, `+`, `|` or `)`")?;
    let mut order = Order::C;
    if c.take(b';') {
        let at = c.skip_space();
        if c.word() != "order" {
            return Err(c.error_at(at, "`order=`"));
        }
        if ndim == 0 || units.iter().any(|u| u.len() > 1) {
            return Err(c.error_at(at, "no `order=`, which is for units of one box"));
        }
        c.expect(b'=', "`=`")?;
        order = self::order(c, ndim, false)?;
    }
    Ok(BoxesText { units, order })
}

/// One box; `ndim` is the number of dimensions of all boxes, 0 before the first.
fn index_box(c: &mut Cursor, ndim: &mut usize) -> Result<IndexBox> {
    let (mut lo, mut hi) = ([0; MAX_DIMS], [0; MAX_DIMS]);
    let mut n = 0;
    loop {
        if n == MAX_DIMS {
            return Err(c.error("at most 8 dimensions"));
        }
        lo[n] = c.number("a box `lo:hi,…`, or `-` for a unit with nothing")?;
        c.expect(b':', "`:`")?;
        let at = c.skip_space();
        hi[n] = c.number("the end of a range")?;
        if hi[n] < lo[n] {
            return Err(c.error_at(at, "an end not below the start"));
        }
        n += 1;
        if *ndim == n && c.peek() == Some(b',') {
            return Err(c.error("a box with as many dimensions as the first"));
        }
        if !c.take(b',') {
            break;
        }
    }
    if *ndim == 0 {
        *ndim = n;
    } else if n < *ndim {
        return Err(c.error("`,`, as the first box has more dimensions"));
    }
    Ok(IndexBox { lo: Dims::from_fn(n, |k| lo[k]), hi: Dims::from_fn(n, |k| hi[k]) })
}

fn digits(c: &mut Cursor) -> Result<DigitsText> {
    c.expect(b'(', "`(`")?;
    let mut radices = vec![c.positive("a radix of at least 1")?];
    while c.take(b'x') {
        if radices.len() == MAX_DIGITS {
            return Err(c.error("at most 64 digits"));
        }
        radices.push(c.positive("a radix of at least 1")?);
    }
    let n = radices.len();
    let (mut unit, mut offset) = (None, None);
    while c.take(b';') {
        let start = c.skip_space();
        let list = match c.word() {
            "unit" if unit.is_none() && offset.is_none() => &mut unit,
            "offset" if offset.is_none() => &mut offset,
            _ => return Err(c.error_at(start, "`unit=` and then `offset=`, each once")),
        };
        c.expect(b'=', "`=`")?;
        *list = Some((c.skip_space(), c.distinct(n, "the number of a digit, counted from 0, each once")?));
    }
    let unit = unit.map_or(Vec::new(), |(_, u)| u);
    let remaining = DigitsText::remaining(n, &unit);
    let offset = match offset {
        None => remaining,
        Some((at, list)) => {
            let all = list.len() == remaining.len() && list.iter().all(|d| remaining.contains(d));
            if !all {
                return Err(c.error_at(at, "all digits that `unit=` does not name"));
            }
            list
        }
    };
    c.expect(b')', "`x`, `;` or `)`")?;
    Ok(DigitsText { radices, unit, offset })
}

fn stripe(c: &mut Cursor) -> Result<u64> {
    c.expect(b'(', "`(`")?;
    let start = c.skip_space();
    let n = c.positive("a stripe unit of at least 1 byte")?;
    let at = c.skip_space();
    let scale = match c.word() {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return Err(c.error_at(at, "`KiB`, `MiB` or `)`")),
    };
    let bytes = n.checked_mul(scale).filter(|&b| b <= MAX_NUMBER);
    let bytes = bytes.ok_or_else(|| c.error_at(start, "a stripe unit below 2^63 bytes"))?;
    c.expect(b')', "`KiB`, `MiB` or `)`")?;
    Ok(bytes)
}
