//! Describes a dataset: the shape and element type of an array.

use std::fmt;
use std::str::FromStr;

use crate::dims::{Dims, MAX_DIMS};
use crate::error::shorten;
use crate::LayoutError;

/// The type of one element; little-endian where it has a byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElemType {
    /// One byte, 0 or 1.
    Bool,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// IEEE half precision.
    F16,
    /// The upper half of an `f32`.
    Bf16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// Two `f32`: real and imaginary part.
    C64,
    /// Two `f64`: real and imaginary part.
    C128,
    /// So many bytes (at least 1) that are only carried, never interpreted.
    Bytes(u32),
}

/// Canonical name, NumPy's short code, NumPy's long name.
const NAMES: [(ElemType, &str, &str, &str); 15] = [
    (ElemType::Bool, "bool", "b1", "?"),
    (ElemType::I8, "i8", "i1", "int8"),
    (ElemType::I16, "i16", "i2", "int16"),
    (ElemType::I32, "i32", "i4", "int32"),
    (ElemType::I64, "i64", "i8", "int64"),
    (ElemType::U8, "u8", "u1", "uint8"),
    (ElemType::U16, "u16", "u2", "uint16"),
    (ElemType::U32, "u32", "u4", "uint32"),
    (ElemType::U64, "u64", "u8", "uint64"),
    (ElemType::F16, "f16", "f2", "float16"),
    (ElemType::Bf16, "bf16", "", "bfloat16"),
    (ElemType::F32, "f32", "f4", "float32"),
    (ElemType::F64, "f64", "f8", "float64"),
    (ElemType::C64, "c64", "c8", "complex64"),
    (ElemType::C128, "c128", "c16", "complex128"),
];

impl ElemType {
    /// Bytes of one element, at least 1.
    pub fn len_bytes(self) -> u64 {
        match self {
            ElemType::Bool | ElemType::I8 | ElemType::U8 => 1,
            ElemType::I16 | ElemType::U16 | ElemType::F16 | ElemType::Bf16 => 2,
            ElemType::I32 | ElemType::U32 | ElemType::F32 => 4,
            ElemType::I64 | ElemType::U64 | ElemType::F64 | ElemType::C64 => 8,
            ElemType::C128 => 16,
            ElemType::Bytes(n) => u64::from(n).max(1),
        }
    }
}

impl fmt::Display for ElemType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElemType::Bytes(n) => write!(f, "bytes({n})"),
            _ => f.write_str(NAMES.iter().find(|n| n.0 == *self).map_or("", |n| n.1)),
        }
    }
}

/// Reads the canonical names (`f32`, `bytes(12)`) and NumPy's spellings (`float32`, `f4`, `<f4`, `|u1`,
/// `S12`, `V12`, `?`).
///
/// `i8` and `u8` mean different things to the two: here they are the canonical 8-bit types, as everywhere in
/// polyduct, unless a byte-order mark (`<i8`, `=i8`) says that it is NumPy's code for eight bytes.
///
/// # Errors
/// [`LayoutError::BigEndian`] for `>f4` and its like, [`LayoutError::UnknownElem`] for anything else.
impl FromStr for ElemType {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<ElemType, LayoutError> {
        let unknown = || LayoutError::UnknownElem { text: shorten(text) };
        let t = text.trim();
        let (mark, code) = match t.as_bytes().first() {
            Some(b'<' | b'=' | b'|' | b'>' | b'!') => (t.as_bytes()[0], &t[1..]),
            _ => (0, t),
        };
        if let Some(e) = bytes_code(code, mark != 0) {
            return e.map(ElemType::Bytes).ok_or_else(unknown);
        }
        let canonical = || NAMES.iter().find(|n| n.1 == code || n.3 == code);
        let short = || NAMES.iter().find(|n| !n.2.is_empty() && n.2 == code || n.3 == code && code == "?");
        let found = if mark == 0 { canonical().or_else(short) } else { short() };
        let elem = found.ok_or_else(unknown)?.0;
        match mark {
            b'>' | b'!' if elem.len_bytes() > 1 => Err(LayoutError::BigEndian { text: shorten(text) }),
            _ => Ok(elem),
        }
    }
}

/// `S12`, `V12`, `a12`, `bytes(12)`: `Some(None)` when it is one of these but the size is no good.
fn bytes_code(code: &str, marked: bool) -> Option<Option<u32>> {
    let digits = match code.strip_prefix("bytes(").and_then(|c| c.strip_suffix(')')) {
        Some(d) if !marked => d,
        _ => code.strip_prefix(['S', 'V', 'a'])?,
    };
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    Some(digits.parse().ok().filter(|&n: &u32| plain && n > 0))
}

/// An array to be moved: its shape and element type. Small and `Copy`.
///
/// ```
/// use polyduct_layout::{Dataset, ElemType};
/// let d = Dataset::new(&[3, 4], ElemType::F64)?;
/// assert_eq!((d.len_elems(), d.len_bytes()), (12, 96));
/// # Ok::<(), polyduct_layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dataset {
    shape: Dims,
    elem: ElemType,
}

impl Dataset {
    /// A dataset of up to eight dimensions. No dimension at all is a scalar; a size may be 0.
    ///
    /// # Errors
    /// [`LayoutError::TooManyDims`]; [`LayoutError::DatasetTooLarge`] when the bytes, counting empty
    /// dimensions as one so that strides can be counted too, pass 2^63-1; [`LayoutError::UnknownElem`] for
    /// `Bytes(0)`.
    pub fn new(shape: &[u64], elem: ElemType) -> Result<Dataset, LayoutError> {
        if elem == ElemType::Bytes(0) {
            return Err(LayoutError::UnknownElem { text: elem.to_string() });
        }
        let dims =
            Dims::from_slice(shape).ok_or(LayoutError::TooManyDims { dims: shape.len(), limit: MAX_DIMS })?;
        let mut bytes = elem.len_bytes();
        for (dim, &n) in shape.iter().enumerate() {
            bytes = bytes
                .checked_mul(n.max(1))
                .filter(|&b| b <= i64::MAX as u64)
                .ok_or(LayoutError::DatasetTooLarge { dim })?;
        }
        Ok(Dataset { shape: dims, elem })
    }

    /// Sizes, slowest dimension of the standard row-major order first.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The element type.
    pub fn elem(&self) -> ElemType {
        self.elem
    }

    /// Number of elements; 1 for a scalar.
    pub fn len_elems(&self) -> u64 {
        self.shape.product()
    }

    /// Number of bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_elems() * self.elem.len_bytes()
    }

    pub(crate) fn dims(&self) -> Dims {
        self.shape
    }
}
