//! The header of NumPy's `.npy` files, versions 1, 2 and 3: parsed and printed.
//!
//! | bytes | content |
//! |---|---|
//! | 6 | `\x93NUMPY` |
//! | 2 | version: major 1, 2 or 3; minor 0 |
//! | 2 (version 1) or 4 | length of the rest of the header, little-endian |
//! | that many | a Python dictionary: `descr`, `fortran_order`, `shape`; spaces; a line feed |
//!
//! NumPy has no bfloat16. An array of it is written with the type `|V2`, two bytes that NumPy carries and
//! does not interpret (`a.view(ml_dtypes.bfloat16)` does), and is read back as bfloat16 where the reader says
//! that it is.

mod descr;
mod literal;

pub use descr::{Descr, MAX_DESCR_BYTES};

use crate::{order, steps};
use literal::Value;
use polyduct_layout::{Dataset, ElemType, LayoutError};

/// The longest header that is read, in bytes.
pub const MAX_HEADER_BYTES: usize = 1 << 20;
/// The most dimensions that a header may have: a dataset's eight and the steps.
pub const MAX_HEADER_DIMS: usize = polyduct_layout::MAX_DIMS + 1;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Data begin at a multiple of this many bytes.
const ALIGN: usize = 64;

/// What the header of a `.npy` file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The element type. NumPy's `S` and `V`, and structures, are all [`ElemType::Bytes`].
    pub elem: ElemType,
    /// What NumPy takes those bytes for, where that is not plain `V`. Of as many bytes as `elem`.
    pub descr: Option<Descr>,
    /// Whether the elements' most significant bytes come first in the file.
    pub big_endian: bool,
    /// Whether the first dimension is the fastest in the file.
    pub fortran: bool,
    /// The sizes; none for a scalar.
    pub shape: Vec<u64>,
}

/// Why a header was refused. `position` counts bytes from the start of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// The file does not begin as a `.npy` file does.
    #[error("expected the bytes \\x93NUMPY at the start, found {found:?}")]
    Magic {
        /// The first bytes, escaped.
        found: String,
    },
    /// A version of the format that is not known.
    #[error("format version {major}.{minor}; expected 1.0, 2.0 or 3.0")]
    Version {
        /// Its first number.
        major: u8,
        /// Its second number.
        minor: u8,
    },
    /// The header ends before it is complete.
    #[error("the header is cut short: expected {expected} bytes, found {found}")]
    Short {
        /// Bytes that there should be.
        expected: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// The header says that it is longer than [`MAX_HEADER_BYTES`].
    #[error("a header of {len} bytes; the limit is {limit}")]
    TooLong {
        /// Its length as it says.
        len: u64,
        /// The limit.
        limit: usize,
    },
    /// The dictionary does not parse.
    #[error("byte {position}: expected {expected}")]
    Syntax {
        /// Where.
        position: usize,
        /// What would have been right there.
        expected: &'static str,
    },
    /// A key is missing, comes twice, is not one of the three, or has a value of another type.
    #[error("key {key:?}: {problem}")]
    Key {
        /// The key, shortened.
        key: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// An element type that polyduct does not move: text, objects.
    #[error("descr: {0}")]
    Elem(#[from] LayoutError),
    /// A structure of more bytes than an element may have.
    #[error("descr: a structure of more than 4294967295 bytes")]
    Structured,
    /// More dimensions than polyduct moves.
    #[error("shape: {dims} dimensions; the limit is {limit}")]
    Dims {
        /// Dimensions in the header.
        dims: usize,
        /// The limit.
        limit: usize,
    },
}

/// Where the dictionary lies: reads the fixed part of the header, which is the first 12 bytes at most.
/// Returns the offset of the dictionary and the offset of the data.
///
/// # Errors
/// [`NpyError::Magic`], [`NpyError::Version`], [`NpyError::Short`], [`NpyError::TooLong`].
pub fn extent(start: &[u8]) -> Result<(usize, usize), NpyError> {
    if !start.starts_with(MAGIC) {
        let found =
            start.iter().take(MAGIC.len()).flat_map(|&b| std::ascii::escape_default(b)).map(char::from);
        return Err(NpyError::Magic { found: found.collect() });
    }
    let short = |expected| NpyError::Short { expected, found: start.len() };
    let &[major, minor] = start.get(6..8).and_then(|v| v.first_chunk()).ok_or(short(8))?;
    let (at, len) = match (major, minor) {
        (1, 0) => {
            let len = start.get(8..).and_then(|l| l.first_chunk()).ok_or(short(10))?;
            (10, u64::from(u16::from_le_bytes(*len)))
        }
        (2 | 3, 0) => {
            let len = start.get(8..).and_then(|l| l.first_chunk()).ok_or(short(12))?;
            (12, u64::from(u32::from_le_bytes(*len)))
        }
        _ => return Err(NpyError::Version { major, minor }),
    };
    match usize::try_from(len) {
        Ok(n) if n <= MAX_HEADER_BYTES => Ok((at, at + n)),
        _ => Err(NpyError::TooLong { len, limit: MAX_HEADER_BYTES }),
    }
}

impl Header {
    /// Bytes of what stands in the file with the most significant one first; 1 where nothing does.
    pub(crate) fn component(&self) -> usize {
        if self.big_endian {
            order::component_len(self.elem)
        } else {
            1
        }
    }

    /// Bytes of all elements; the largest number where they cannot be counted.
    pub(crate) fn data_len(&self) -> u64 {
        self.shape.iter().fold(self.elem.len_bytes(), |len, &n| len.saturating_mul(n))
    }

    /// Of so many steps of an array, native and row-major: they are its first dimension, but for a single one
    /// that is not `stepped`.
    pub fn of_steps(dataset: &Dataset, descr: Option<Descr>, steps: u64, stepped: bool) -> Header {
        let shape = steps::shape_of(dataset.shape(), steps, stepped);
        Header { elem: dataset.elem(), descr, big_endian: false, fortran: false, shape }
    }

    /// Parses the start of a file. Returns the header and where the data begin.
    ///
    /// # Errors
    /// See [`NpyError`].
    pub fn parse(file: &[u8]) -> Result<(Header, usize), NpyError> {
        let (at, end) = extent(file)?;
        let text = file.get(at..end).ok_or(NpyError::Short { expected: end, found: file.len() })?;
        let entries = literal::dictionary(text)
            .map_err(|s| NpyError::Syntax { position: at + s.position, expected: s.expected })?;
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        let mut descr_at = 0..0;
        for (key, value, span) in entries {
            let place = match key.as_str() {
                "descr" => {
                    descr_at = span;
                    &mut descr
                }
                "fortran_order" => &mut fortran,
                "shape" => &mut shape,
                _ => return Err(key_error(&key, "not a key of this format")),
            };
            if place.replace(value).is_some() {
                return Err(key_error(&key, "comes twice"));
            }
        }
        let value = descr.ok_or_else(|| key_error("descr", "missing"))?;
        let (elem, big_endian, descr) = match &value {
            Value::Str(code) => {
                let (elem, big_endian) = elem(code)?;
                (elem, big_endian, Descr::of_code(code, elem))
            }
            Value::Items(_) => {
                let utf8 = file.get(MAGIC.len()) == Some(&3);
                let descr = Descr::of_fields(text.get(descr_at).unwrap_or_default(), &value, utf8)?;
                (descr.elem().ok_or(NpyError::Structured)?, false, Some(descr))
            }
            _ => return Err(key_error("descr", "neither a string nor fields")),
        };
        let fortran = match fortran.ok_or_else(|| key_error("fortran_order", "missing"))? {
            Value::Bool(f) => f,
            _ => return Err(key_error("fortran_order", "neither True nor False")),
        };
        let not_sizes = || key_error("shape", "not a tuple of numbers");
        let Value::Items(items) = shape.ok_or_else(|| key_error("shape", "missing"))? else {
            return Err(not_sizes());
        };
        if items.len() > MAX_HEADER_DIMS {
            return Err(NpyError::Dims { dims: items.len(), limit: MAX_HEADER_DIMS });
        }
        let size = |v: &Value| if let Value::Int(n) = v { Ok(*n) } else { Err(not_sizes()) };
        let shape = items.iter().map(size).collect::<Result<Vec<u64>, NpyError>>()?;
        Ok((Header { elem, descr, big_endian, fortran, shape }, end))
    }

    /// The dictionary, unpadded.
    fn dictionary(&self) -> String {
        let mut shape: String = self.shape.iter().map(|n| format!("{n}, ")).collect();
        // Python writes `()`, `(3,)`, `(3, 4)`.
        let keep = shape.trim_end_matches([' ', if self.shape.len() > 1 { ',' } else { ' ' }]).len();
        shape.truncate(keep);
        let fortran = if self.fortran { "True" } else { "False" };
        let descr = match &self.descr {
            Some(descr) => descr.to_string(),
            None if self.big_endian => format!("'{}'", descr(self.elem).replace('<', ">")),
            None => format!("'{}'", descr(self.elem)),
        };
        format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': ({shape}), }}")
    }

    /// Makes whole elements, as they stand in the file, the machine's own.
    ///
    /// ```
    /// let text = b"\x93NUMPY\x01\0\x37\0{'descr': '>u2', 'fortran_order': False, 'shape': (2,)}";
    /// let (header, _) = polyduct_store::npy::Header::parse(text)?;
    /// let mut elements = [1, 2, 3, 4];
    /// header.make_native(&mut elements);
    /// assert_eq!(elements, [2, 1, 4, 3]);
    /// # Ok::<(), polyduct_store::npy::NpyError>(())
    /// ```
    pub fn make_native(&self, elements: &mut [u8]) {
        if self.big_endian {
            order::swap(elements, order::component_len(self.elem));
        }
    }

    /// The least number of bytes, a multiple of 64, that the header takes in a file.
    pub fn len_bytes(&self) -> usize {
        (10 + self.dictionary().len() + 1).next_multiple_of(ALIGN)
    }

    /// Prints the header, version 1, padded with spaces to `len_bytes` bytes. `None` when it does not fit
    /// there, or in version 1.
    pub fn print(&self, len_bytes: usize) -> Option<Vec<u8>> {
        let dictionary = self.dictionary();
        let rest = u16::try_from(len_bytes.checked_sub(10)?).ok()?;
        if dictionary.len() + 1 > usize::from(rest) {
            return None;
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend(rest.to_le_bytes());
        bytes.extend(dictionary.bytes());
        bytes.resize(len_bytes - 1, b' ');
        bytes.push(b'\n');
        Some(bytes)
    }
}

fn key_error(key: &str, problem: &'static str) -> NpyError {
    NpyError::Key { key: key.chars().take(24).collect(), problem }
}

/// An element type as NumPy writes it in a header, and whether its most significant byte comes first. A code
/// without a byte-order mark is the machine's own, `i8` eight bytes; what then is left are names such as
/// `bfloat16`.
fn elem(text: &str) -> Result<(ElemType, bool), NpyError> {
    if let Some(code) = text.strip_prefix(['>', '!']) {
        let elem = format!("<{code}").parse()?;
        return Ok((elem, order::component_len(elem) > 1));
    }
    if text.starts_with(['<', '|', '=']) {
        return Ok((text.parse()?, false));
    }
    Ok((format!("={text}").parse().or_else(|_| text.parse::<ElemType>())?, false))
}

/// NumPy's code of an element type.
pub fn descr(elem: ElemType) -> String {
    let code = match elem {
        ElemType::Bool => "|b1",
        ElemType::I8 => "|i1",
        ElemType::U8 => "|u1",
        ElemType::I16 => "<i2",
        ElemType::I32 => "<i4",
        ElemType::I64 => "<i8",
        ElemType::U16 => "<u2",
        ElemType::U32 => "<u4",
        ElemType::U64 => "<u8",
        ElemType::F16 => "<f2",
        ElemType::Bf16 => "|V2",
        ElemType::F32 => "<f4",
        ElemType::F64 => "<f8",
        ElemType::C64 => "<c8",
        ElemType::C128 => "<c16",
        ElemType::Bytes(n) => return format!("|V{n}"),
    };
    code.to_owned()
}

#[cfg(test)]
mod tests;
