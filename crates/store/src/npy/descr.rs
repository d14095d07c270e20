//! Types of NumPy that polyduct only carries: byte strings and structures.

use super::literal::{self, Value};
use super::NpyError;
use polyduct_layout::ElemType;
use std::fmt;

/// The longest text, in bytes.
pub const MAX_DESCR_BYTES: usize = 1 << 14;

/// NumPy's type of elements that are [`ElemType::Bytes`], as the header of a `.npy` file has it: `'|S12'`, or
/// a list of the fields of a structure, `[('x', '<f4'), ('n', '|u1', (3,))]`. A literal of Python in ASCII,
/// with escapes for what is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descr {
    text: String,
    len_bytes: u64,
}

impl Descr {
    /// Parses a literal.
    ///
    /// # Errors
    /// [`NpyError::Syntax`], whose position counts from the start of the text; [`NpyError::Key`] for a type
    /// that is neither bytes nor a structure of plain fields, and for what is no text in ASCII or longer than
    /// [`MAX_DESCR_BYTES`].
    pub fn parse(text: &str) -> Result<Descr, NpyError> {
        let stopped = |s: literal::Stopped| NpyError::Syntax { position: s.position, expected: s.expected };
        Descr::new(text.trim().to_owned(), &literal::single(text.as_bytes()).map_err(stopped)?)
    }

    /// Of a type's name, `S12`; `None` where its element type says all.
    pub fn of_name(name: &str) -> Option<Descr> {
        Descr::of_code(name, name.parse().ok()?)
    }

    /// Of the code in a header, `S12`, whose element type is this; `None` where that says all.
    pub(super) fn of_code(code: &str, elem: ElemType) -> Option<Descr> {
        let is_text = code.trim_start_matches(['<', '>', '|', '=', '!']).starts_with(['S', 'a']);
        match elem {
            ElemType::Bytes(n) if is_text => Some(Descr { text: format!("'|S{n}'"), len_bytes: n.into() }),
            _ => None,
        }
    }

    /// Of the fields in a header, which are parsed already. `utf8` says how characters that are not ASCII
    /// stand there; in Latin-1 otherwise.
    pub(super) fn of_fields(bytes: &[u8], value: &Value, utf8: bool) -> Result<Descr, NpyError> {
        let escaped = |text: &str| {
            let escape = |c: char| match u32::from(c) {
                0..0x80 => c.to_string(),
                n @ 0x80..0x1_0000 => format!("\\u{n:04x}"),
                n => format!("\\U{n:08x}"),
            };
            text.chars().map(escape).collect::<String>()
        };
        let text = match utf8 {
            true => escaped(std::str::from_utf8(bytes).map_err(|_| bad("not in UTF-8"))?),
            false => escaped(&bytes.iter().map(|&b| char::from(b)).collect::<String>()),
        };
        Descr::new(text, value)
    }

    fn new(text: String, value: &Value) -> Result<Descr, NpyError> {
        if text.len() > MAX_DESCR_BYTES {
            return Err(bad("longer than 16 KiB"));
        }
        if !text.bytes().all(|b| matches!(b, b' '..=b'~')) {
            return Err(bad("not in printable ASCII"));
        }
        let len_bytes = match value {
            Value::Str(code) if code.starts_with("|S") => plain(code),
            Value::Items(fields) => structure(fields),
            _ => return Err(bad("neither bytes (`|S<size>`) nor a structure")),
        };
        match (len_bytes, value) {
            (Some(0), _) => Err(bad("a type of elements without bytes")),
            (Some(len_bytes), _) => Ok(Descr { text, len_bytes }),
            (None, Value::Str(_)) => Err(bad("bytes, and not of how many")),
            (None, _) => Err(bad("not a structure of plain fields")),
        }
    }

    /// The literal.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The element type that carries it; `None` where none is so long.
    pub fn elem(&self) -> Option<ElemType> {
        u32::try_from(self.len_bytes).ok().map(ElemType::Bytes)
    }
}

impl fmt::Display for Descr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn bad(problem: &'static str) -> NpyError {
    super::key_error("descr", problem)
}

/// Bytes of a structure. A field is a name, or a title and a name, with a type and perhaps a shape.
fn structure(fields: &[Value]) -> Option<u64> {
    fields.iter().try_fold(0u64, |sum, field| {
        let Value::Items(parts) = field else { return None };
        let (name, of, shape) = match parts.as_slice() {
            [name, of] => (name, of, None),
            [name, of, shape] => (name, of, Some(shape)),
            _ => return None,
        };
        let is_name = match name {
            Value::Str(_) => true,
            Value::Items(both) => matches!(both.as_slice(), [Value::Str(_), Value::Str(_)]),
            _ => false,
        };
        let one = match of {
            Value::Str(code) => plain(code),
            Value::Items(fields) => structure(fields),
            _ => None,
        };
        let many = match shape {
            None => 1,
            Some(Value::Int(n)) => *n,
            Some(Value::Items(sizes)) => sizes.iter().try_fold(1u64, |product, size| match size {
                Value::Int(n) => product.checked_mul(*n),
                _ => None,
            })?,
            Some(_) => return None,
        };
        sum.checked_add(one?.checked_mul(many)?).filter(|_| is_name)
    })
}

/// Bytes of a plain type: `<f4`, `|S3`, `>M8[ns]`. Objects are none: what would be carried is where they are.
fn plain(code: &str) -> Option<u64> {
    let mut chars = code.strip_prefix(['<', '>', '|', '=']).unwrap_or(code).chars();
    let kind = chars.next()?;
    let rest = chars.as_str();
    let (digits, unit) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    let size: u64 = digits.parse().ok()?;
    match (kind, size) {
        ('S' | 'V', _) | ('b', 1) | ('i' | 'u', 1 | 2 | 4 | 8) if unit.is_empty() => Some(size),
        ('f', 2 | 4 | 8 | 12 | 16) | ('c', 8 | 16 | 24 | 32) if unit.is_empty() => Some(size),
        ('U', _) if unit.is_empty() => size.checked_mul(4),
        ('M' | 'm', 8) if unit.is_empty() || unit.starts_with('[') && unit.ends_with(']') => Some(size),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_numpy_calls_bytes_and_structures() {
        for (text, len) in [
            ("'|S12'", 12),
            ("[('a', '<f4'), ('b', '|S3')]", 7),
            ("[('a', '<f4', (2, 3)), ('', '|V4'), (('title', 'b'), '>u2', 2)]", 32),
            ("[('in', [('t', '<M8[ns]'), ('u', '<U2')]), (\"it's\", '|b1')]", 17),
        ] {
            let descr = Descr::parse(text).unwrap();
            assert_eq!((descr.as_str(), descr.elem()), (text, Some(ElemType::Bytes(len))));
        }
    }

    #[test]
    fn what_cannot_be_carried_or_means_nothing_is_refused() {
        for text in [
            "'<f4'",
            "'|S0'",
            "'<U4'",
            "'|V4'",
            "[]",
            "7",
            "[('a', '|O')]",
            "[('a', '<f3')]",
            "[('a', '<f4', -1)]",
            "[('a',)]",
            "[(3, '<f4')]",
            "('<f4', (2,))",
            "[('a', '|S18446744073709551615', 18446744073709551615)]",
            "[('\u{e9}', '<f4')]",
            "[('a\n', '<f4')]",
            "'|S2' '|S2'",
            "__import__('os')",
            "",
        ] {
            assert!(Descr::parse(text).is_err(), "{text:?}");
        }
        let long = format!("[{}]", "('a', '<f4'), ".repeat(2000));
        assert!(matches!(Descr::parse(&long), Err(NpyError::Key { problem: "longer than 16 KiB", .. })));
        assert!(Descr::parse(&"[".repeat(1000)).is_err());
        let wide = Descr::parse("[('a', '|S4294967295', (2,))]").unwrap();
        assert_eq!(wide.elem(), None);
    }

    #[test]
    fn what_is_refused_is_called_what_it_is() {
        for (text, word) in [
            ("'|S0'", "without bytes"),
            ("[]", "without bytes"),
            ("'|S'", "not of how many"),
            ("'|Sx'", "not of how many"),
            ("[('a', '|O')]", "plain fields"),
            ("'<f4'", "neither bytes"),
        ] {
            let error = Descr::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn names_of_types() {
        assert_eq!(Descr::of_name("S12").unwrap().as_str(), "'|S12'");
        for name in ["V12", "f4", "S0", "S", "float64", ""] {
            assert_eq!(Descr::of_name(name), None, "{name}");
        }
    }

    #[test]
    fn names_that_are_not_ascii_are_escaped() {
        let of = |bytes: &[u8], utf8| {
            let value = literal::single(bytes).unwrap();
            Descr::of_fields(bytes, &value, utf8).map(|d| d.as_str().to_owned())
        };
        assert_eq!(of(b"[('\xe9', '<f4')]", false).unwrap(), "[('\\u00e9', '<f4')]");
        assert_eq!(of("[('é😀', '<f4')]".as_bytes(), true).unwrap(), "[('\\u00e9\\U0001f600', '<f4')]");
        assert!(of(b"[('\xe9', '<f4')]", true).is_err());
    }
}
