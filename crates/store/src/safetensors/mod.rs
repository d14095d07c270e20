//! The header of `.safetensors` files: parsed, checked and printed.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | length of the rest of the header, little-endian |
//! | that many | a JSON object: for each tensor its `dtype`, `shape` and `data_offsets` (first byte and end, from the end of the header); perhaps `__metadata__`; spaces |
//! | | the elements of the tensors, one after the other without gaps, row-major, little-endian |

use crate::json;
use polyduct_layout::ElemType;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// The longest header that is read, in bytes. (The format allows 100 MB.)
pub const MAX_HEADER_BYTES: usize = 16 << 20;
/// The longest name of a tensor that is written, in bytes.
pub const MAX_NAME_BYTES: usize = 1000;
/// Names that an error lists.
pub const NAMES_LISTED: usize = 20;
/// The name of a tensor that is written without one.
pub const DEFAULT_NAME: &str = "data";

/// Bytes before the object.
const PREFIX: usize = 8;
/// Data begin at a multiple of this many bytes; the format itself asks for 8.
const ALIGN: usize = 64;
/// What is not a tensor.
const METADATA: &str = "__metadata__";

/// Each type that both sides have.
const NAMES: [(ElemType, &str); 13] = [
    (ElemType::Bool, "BOOL"),
    (ElemType::U8, "U8"),
    (ElemType::I8, "I8"),
    (ElemType::U16, "U16"),
    (ElemType::I16, "I16"),
    (ElemType::U32, "U32"),
    (ElemType::I32, "I32"),
    (ElemType::U64, "U64"),
    (ElemType::I64, "I64"),
    (ElemType::F16, "F16"),
    (ElemType::Bf16, "BF16"),
    (ElemType::F32, "F32"),
    (ElemType::F64, "F64"),
];

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// The element type as the file calls it.
    pub dtype: String,
    /// The element type, if polyduct has it.
    pub elem: Option<ElemType>,
    /// The sizes; none for a scalar.
    pub shape: Vec<u64>,
    /// Its first byte, from the start of the file.
    pub begin: u64,
    /// The byte behind its last.
    pub end: u64,
}

/// What the header of a `.safetensors` file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// All tensors, in the order of their data.
    pub tensors: Vec<Tensor>,
    /// What its users wrote down under `__metadata__`.
    pub metadata: BTreeMap<String, String>,
    /// Bytes of the header.
    pub len_bytes: usize,
}

/// Why a header was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SafetensorsError {
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
    /// It is not the JSON that it should be. `position` counts bytes from the start of the file.
    #[error("byte {position}: {problem}")]
    Syntax {
        /// Where.
        position: usize,
        /// What is wrong there.
        problem: String,
    },
    /// A tensor that the index of a set has in a file that lacks it.
    #[error("tensor {name:?} is not in the file {file:?}, where the index has it")]
    NotThere {
        /// The name.
        name: String,
        /// The file.
        file: String,
    },
    /// Two tensors of one name.
    #[error("tensor {name:?} comes twice")]
    Duplicate {
        /// Its name.
        name: String,
    },
    /// A tensor's data do not begin where those before it end, or end before they begin.
    #[error(
        "tensor {name:?}: its data are bytes {begin} to {end}; expected them to begin at {expected}, \
        where those before end"
    )]
    Offsets {
        /// Its name.
        name: String,
        /// Where its data begin, from the end of the header.
        begin: u64,
        /// Where they end.
        end: u64,
        /// Where they should begin.
        expected: u64,
    },
    /// A tensor's data are not as long as its shape says.
    #[error("tensor {name:?}: {found} bytes; its shape and dtype {dtype} make {expected}")]
    Size {
        /// Its name.
        name: String,
        /// Its element type.
        dtype: String,
        /// Bytes by the shape; the largest number where they cannot be counted.
        expected: u64,
        /// Bytes by the offsets.
        found: u64,
    },
    /// The file goes on behind the last tensor.
    #[error("{found} bytes of data; the tensors are {expected}")]
    Trailing {
        /// Bytes of all tensors.
        expected: u64,
        /// Bytes behind the header.
        found: u64,
    },
    /// An element type that polyduct does not move.
    #[error("tensor {name:?}: dtype {dtype}; expected BOOL, U8 to U64, I8 to I64, F16, BF16, F32 or F64")]
    Dtype {
        /// The tensor's name.
        name: String,
        /// Its type.
        dtype: String,
    },
}

/// How many bytes the whole header has: reads the first eight.
///
/// # Errors
/// [`SafetensorsError::Short`], [`SafetensorsError::TooLong`].
pub fn extent(start: &[u8]) -> Result<usize, SafetensorsError> {
    let short = SafetensorsError::Short { expected: PREFIX, found: start.len() };
    let len = u64::from_le_bytes(*start.first_chunk().ok_or(short)?);
    match usize::try_from(len) {
        Ok(n) if n <= MAX_HEADER_BYTES => Ok(PREFIX + n),
        _ => Err(SafetensorsError::TooLong { len, limit: MAX_HEADER_BYTES }),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The object, in the order of the text, and what is no tensor in it.
struct Entries(Vec<(String, Entry)>, BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        let mut metadata = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                if metadata.replace(map.next_value()?).is_some() {
                    return Err(A::Error::custom("__metadata__ comes twice"));
                }
            } else {
                entries.push((name, map.next_value()?));
            }
        }
        Ok(Entries(entries, metadata.unwrap_or_default()))
    }
}

impl Header {
    /// Parses the start of a file, and checks that its tensors lie one behind the other.
    ///
    /// ```
    /// use polyduct_layout::ElemType;
    /// use polyduct_store::safetensors::{print, Header};
    ///
    /// let bytes = print("w", ElemType::Bf16, &[2, 3], 128).expect("it fits");
    /// let header = Header::parse(&bytes)?;
    /// assert_eq!((header.tensors[0].name.as_str(), header.data_len()), ("w", 12));
    /// # Ok::<(), polyduct_store::safetensors::SafetensorsError>(())
    /// ```
    ///
    /// # Errors
    /// See [`SafetensorsError`].
    pub fn parse(file: &[u8]) -> Result<Header, SafetensorsError> {
        let end = extent(file)?;
        let short = SafetensorsError::Short { expected: end, found: file.len() };
        let text = file.get(PREFIX..end).ok_or(short)?;
        // The format wants it so; white space before it would be JSON, too.
        if text.first().is_some_and(|&b| b != b'{') {
            return Err(SafetensorsError::Syntax { position: PREFIX, problem: "expected `{`".into() });
        }
        let Entries(entries, metadata) =
            serde_json::from_slice(text).map_err(|e: serde_json::Error| SafetensorsError::Syntax {
                position: PREFIX + json::position(text, &e),
                problem: json::problem(&e),
            })?;
        let mut names = HashSet::new();
        if let Some((twice, _)) = entries.iter().find(|(name, _)| !names.insert(name.as_str())) {
            return Err(SafetensorsError::Duplicate { name: json::shorten(twice) });
        }
        let data = end as u64;
        let mut tensors = Vec::with_capacity(entries.len());
        let mut entries = entries;
        entries.sort_by_key(|(_, entry)| entry.data_offsets);
        let mut expected = 0;
        for (name, Entry { dtype, shape, data_offsets: (begin, end) }) in entries {
            // What cannot be counted in the file is past any end.
            if begin != expected || end < begin || end.checked_add(data).is_none() {
                return Err(SafetensorsError::Offsets { name: json::shorten(&name), begin, end, expected });
            }
            expected = end;
            let elem = NAMES.iter().find(|n| n.1 == dtype).map(|n| n.0);
            if let Some(elem) = elem {
                let needed = len_bytes(elem, &shape);
                if needed != end - begin {
                    let (name, dtype) = (json::shorten(&name), json::shorten(&dtype));
                    return Err(SafetensorsError::Size { name, dtype, expected: needed, found: end - begin });
                }
            }
            tensors.push(Tensor { name, dtype, elem, shape, begin: data + begin, end: data + end });
        }
        Ok(Header { tensors, metadata, len_bytes: end })
    }

    /// Bytes of all tensors.
    pub fn data_len(&self) -> u64 {
        self.tensors.last().map_or(0, |t| t.end - self.len_bytes as u64)
    }
}

impl Tensor {
    /// The element type.
    ///
    /// # Errors
    /// [`SafetensorsError::Dtype`] for one that polyduct does not move.
    pub fn elem(&self) -> Result<ElemType, SafetensorsError> {
        self.elem.ok_or_else(|| SafetensorsError::Dtype {
            name: json::shorten(&self.name),
            dtype: json::shorten(&self.dtype),
        })
    }
}

/// Bytes by shape; the largest number where they cannot be counted.
fn len_bytes(elem: ElemType, shape: &[u64]) -> u64 {
    let all = shape.iter().try_fold(elem.len_bytes(), |len, &n| len.checked_mul(n));
    // An array of nothing is one, however long its other sides.
    if shape.contains(&0) {
        0
    } else {
        all.unwrap_or(u64::MAX)
    }
}

/// What the format calls an element type; `None` where it has none.
///
/// ```
/// use polyduct_layout::ElemType;
/// use polyduct_store::safetensors::dtype;
/// assert_eq!((dtype(ElemType::Bf16), dtype(ElemType::C64)), (Some("BF16"), None));
/// ```
pub fn dtype(elem: ElemType) -> Option<&'static str> {
    NAMES.iter().find(|n| n.0 == elem).map(|n| n.1)
}

/// What a file has besides the tensor that is written.
///
/// Data lie in falling order of their elements' sizes, as the format's own library writes them: then each
/// tensor begins at a multiple of its element's size. So some of the others stand before the one that is
/// written, and some behind it.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    metadata: BTreeMap<String, String>,
    before: Vec<Tensor>,
    behind: Vec<Tensor>,
}

impl Beside {
    /// What stays of a file in which a tensor of this name and type is written.
    pub fn new(header: Header, name: &str, elem: ElemType) -> Beside {
        // What is not known may have elements of any size, a part of a byte as well.
        let align = |t: &Tensor| t.elem.map_or(1, |e| e.len_bytes());
        let mut others: Vec<Tensor> = header.tensors.into_iter().filter(|t| t.name != name).collect();
        others.sort_by_key(|t| std::cmp::Reverse(align(t)));
        let before = others.iter().take_while(|t| align(t) >= elem.len_bytes()).count();
        let behind = others.split_off(before);
        Beside { metadata: header.metadata, before: others, behind }
    }

    /// The tensors whose data stand before those of the one that is written.
    pub fn before(&self) -> &[Tensor] {
        &self.before
    }

    /// Those whose data stand behind it.
    pub fn behind(&self) -> &[Tensor] {
        &self.behind
    }

    fn object(&self, name: &str, elem: ElemType, shape: &[u64]) -> Option<String> {
        let of = |t: &'_ Tensor| (t.name.clone(), t.dtype.clone(), t.shape.clone(), t.end - t.begin);
        let own = (name.to_owned(), dtype(elem)?.to_owned(), shape.to_vec(), len_bytes(elem, shape));
        let all = self.before.iter().map(of).chain([own]).chain(self.behind.iter().map(of));
        object(&self.metadata, all)
    }

    /// As [`len_bytes_of`], with the others.
    pub fn len_bytes_of(&self, name: &str, elem: ElemType, shape: &[u64]) -> Option<usize> {
        Some((PREFIX + self.object(name, elem, shape)?.len()).next_multiple_of(ALIGN))
    }

    /// As [`print`](fn@print), with the others.
    pub fn print(&self, name: &str, elem: ElemType, shape: &[u64], len_bytes: usize) -> Option<Vec<u8>> {
        padded(&self.object(name, elem, shape)?, len_bytes)
    }
}

/// The JSON object of tensors, name, dtype, shape and bytes, whose data lie in this order. `None` where it cannot
/// be printed.
fn object(
    metadata: &BTreeMap<String, String>,
    tensors: impl Iterator<Item = (String, String, Vec<u64>, u64)>,
) -> Option<String> {
    let mut entries = Vec::new();
    if !metadata.is_empty() {
        entries.push(format!("\"{METADATA}\":{}", serde_json::to_string(metadata).ok()?));
    }
    let mut begin = 0u64;
    for (name, dtype, shape, len) in tensors {
        let (name, dtype) = (serde_json::to_string(&name).ok()?, serde_json::to_string(&dtype).ok()?);
        // More than can be counted only says how much room the digits take.
        let (shape, end) = (serde_json::to_string(&shape).ok()?, begin.saturating_add(len));
        entries
            .push(format!("{name}:{{\"dtype\":{dtype},\"shape\":{shape},\"data_offsets\":[{begin},{end}]}}"));
        begin = end;
    }
    Some(format!("{{{}}}", entries.join(",")))
}

/// A header of this object, padded with spaces to so many bytes; `None` where it does not fit.
fn padded(object: &str, len_bytes: usize) -> Option<Vec<u8>> {
    let rest = len_bytes.checked_sub(PREFIX).filter(|&rest| rest >= object.len())?;
    let mut bytes = (rest as u64).to_le_bytes().to_vec();
    bytes.extend(object.bytes());
    bytes.resize(len_bytes, b' ');
    Some(bytes)
}

/// Prints the header of a file of these tensors, whose data lie in their order, padded with spaces to `len_bytes`
/// bytes, or to the least multiple of 64 that it takes. Their `begin` and `end` only say how long they are.
/// `None` when it does not fit, and for a type that the format does not have.
pub fn print_all(
    tensors: &[Tensor],
    metadata: &BTreeMap<String, String>,
    len_bytes: Option<usize>,
) -> Option<Vec<u8>> {
    let of = |t: &Tensor| (t.name.clone(), t.dtype.clone(), t.shape.clone(), t.end - t.begin);
    let object = object(metadata, tensors.iter().map(of))?;
    padded(&object, len_bytes.unwrap_or((PREFIX + object.len()).next_multiple_of(ALIGN)))
}

/// The least number of bytes, a multiple of 64, that the header of a file of one tensor takes. `None` for an
/// element type that the format does not have.
pub fn len_bytes_of(name: &str, elem: ElemType, shape: &[u64]) -> Option<usize> {
    Beside::default().len_bytes_of(name, elem, shape)
}

/// Prints the header of a file of one tensor, padded with spaces to `len_bytes` bytes. `None` when it does
/// not fit there, and for an element type that the format does not have.
pub fn print(name: &str, elem: ElemType, shape: &[u64], len_bytes: usize) -> Option<Vec<u8>> {
    Beside::default().print(name, elem, shape, len_bytes)
}

#[cfg(test)]
mod tests;
