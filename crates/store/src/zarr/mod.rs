//! The metadata of Zarr arrays, version 3 (`zarr.json`) and 2 (`.zarray`, `.zattrs`): parsed, checked and
//! printed; and the codecs of their chunks.
//!
//! An array is a directory with such a file and one for each chunk of a regular grid. All chunks have one
//! shape, also at the edges of the array, where they are padded with the fill value; a chunk without a file
//! holds nothing else. In a sharded array a file holds a grid of chunks and an index of them, or of shards
//! that do again; chunks are then the innermost ones.
//!
//! | what | supported |
//! |---|---|
//! | data types | `bool`, `int8` … `uint64`, `float16`, `bfloat16`, `float32`, `float64`, `complex64`, `complex128`, raw bits (`r8`, `r16`, …, `raw_bytes`) |
//! | codecs | `transpose`, `bytes` (both orders), `sharding_indexed` (also in each other, with no codec around them), `gzip`, `zstd`, `blosc` (all compressors), `crc32c` |
//! | compressors of version 2 | `zlib`, `gzip`, `zstd`, `blosc`, `lz4`; no filters |
//! | names of chunks | `default` and `v2`, with `/` and `.` |
//!
//! Frames of Blosc are taken apart here, with libraries for what they are compressed with. zarrs decodes gzip
//! and zstd without a limit, so that a file of a megabyte may take all memory; and c-blosc is C that would
//! parse what anybody wrote, needs `unsafe` in this crate, and costs a minute of every clean build.

mod blosc;
mod blosclz;
mod codec;
mod encode;
mod fill;
mod style;
mod v2;

use crate::json::shorten;
use codec::{inner_codecs, Chain};
use polyduct_layout::ElemType;
use serde_json::{Map, Value};
use style::Keys;
use v2::object;

pub(crate) use codec::{index_entries, index_len};
pub use encode::{Compression, UnknownCompression};
pub use style::{About, Described, Dims, Style, Surroundings, Version};

/// The longest `zarr.json` that is read, in bytes.
pub const MAX_METADATA_BYTES: usize = 4 << 20;
/// The most dimensions of an array: a dataset's eight and the steps.
pub const MAX_ARRAY_DIMS: usize = polyduct_layout::MAX_DIMS + 1;
/// Raw bits have fewer bytes than this: a fill value of them is kept.
pub const MAX_RAW_BYTES: u32 = 1 << 20;
/// The largest chunk that is decoded, in bytes. Chunks that are not compressed and lie in one piece have no
/// limit.
pub const MAX_CHUNK_BYTES: u64 = 1 << 30;

/// What an array's metadata say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// The element type.
    pub elem: ElemType,
    /// The sizes; none for a scalar.
    pub shape: Vec<u64>,
    /// The sizes of a chunk, each at least 1; in a sharded array those of the inner chunks.
    pub chunk: Vec<u64>,
    /// The bytes of an element of the fill value.
    pub fill: Vec<u8>,
    /// The dimensions of a chunk as they lie in it, the slowest first.
    pub order: Vec<usize>,
    pub(crate) chain: Chain,
    /// What chunks lie in, the outermost first; none where each has a file.
    pub(crate) shards: Vec<Shard>,
    keys: Keys,
    /// What its users wrote down of it.
    pub attributes: Map<String, Value>,
    /// What they call its dimensions.
    pub dims: Option<Dims>,
    /// The file in its directory that makes it an array.
    pub(crate) document: &'static str,
}

/// How inner chunks lie in a file, or in a part of it that is a chunk of another shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Inner chunks of a shard in each dimension.
    pub per: Vec<u64>,
    /// Whether the index has a checksum, and whether it stands at the end.
    pub checked: bool,
    pub at_end: bool,
}

/// Why an array was refused. `key` is a path in `zarr.json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZarrError {
    /// `zarr.json` is longer than [`MAX_METADATA_BYTES`].
    #[error("{file}: {len} bytes; the limit is {limit}")]
    TooLong {
        /// The file in its directory.
        file: &'static str,
        /// Its length.
        len: u64,
        /// The limit.
        limit: usize,
    },
    /// It is not JSON, or has a key twice.
    #[error("{file}: byte {position}: {problem}")]
    Syntax {
        /// The file in its directory.
        file: &'static str,
        /// Where.
        position: usize,
        /// What is wrong there.
        problem: String,
    },
    /// A value is missing or not what it should be.
    #[error("{}{key}: expected {expected}, found {found}", in_file(key))]
    Key {
        /// Where in the document.
        key: String,
        /// What it should be.
        expected: &'static str,
        /// What it is, shortened; `nothing` if it is missing.
        found: String,
    },
    /// It describes a group of arrays.
    #[error("it is a group; expected an array: name one of those in it, PATH.zarr/NAME")]
    Group,
    /// More dimensions than polyduct moves.
    #[error("shape: {dims} dimensions; the limit is {limit}")]
    Dims {
        /// Its dimensions.
        dims: usize,
        /// The limit.
        limit: usize,
    },
    /// A codec that polyduct does not have.
    #[error(
        "codec {name:?} is not supported; expected transpose, bytes, sharding_indexed, gzip, zstd, blosc \
        or crc32c, each at its place, or as compressor of version 2 zlib, gzip, zstd, blosc or lz4"
    )]
    Codec {
        /// The codec, shortened.
        name: String,
    },
    /// Chunks that would have to be decoded are too large.
    #[error("chunks of {len} bytes that have to be decoded; the limit is {limit}")]
    LargeChunk {
        /// Bytes of a chunk; the largest number where they cannot be counted.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// More chunks than can be counted.
    #[error("{chunks} chunks in a step; the limit is {limit}")]
    ManyChunks {
        /// How many; the largest number where they cannot be counted.
        chunks: u64,
        /// The limit.
        limit: u64,
    },
    /// A chunk's file does not hold what it must.
    #[error("chunk {key}: {problem}")]
    Chunk {
        /// The chunk's file, in the array's directory.
        key: String,
        /// What is wrong.
        problem: String,
    },
}

/// Where a key stands: those of version 2 say it.
fn in_file(key: &str) -> &'static str {
    match key.starts_with(".z") || key == "zarr.json" {
        true => "",
        false => "zarr.json: ",
    }
}

/// A wrong value.
fn wrong(key: &str, expected: &'static str, found: Option<&Value>) -> ZarrError {
    let found = found.map_or("nothing".into(), |v| shorten(&v.to_string()));
    ZarrError::Key { key: key.to_owned(), expected, found }
}

/// `shape` under `key`: whole numbers.
fn sizes(key: &str, value: Option<&Value>) -> Result<Vec<u64>, ZarrError> {
    let fail = || wrong(key, "a list of whole numbers", value);
    value.and_then(Value::as_array).ok_or_else(fail)?.iter().map(|n| n.as_u64().ok_or_else(fail)).collect()
}

/// What an extension's name is followed by.
type Configuration<'v> = Option<&'v Map<String, Value>>;

/// An extension: its name and configuration. A name alone has an empty one.
fn named<'v>(key: &str, value: Option<&'v Value>) -> Result<(&'v str, Configuration<'v>), ZarrError> {
    match value {
        Some(Value::String(name)) => Ok((name, None)),
        Some(Value::Object(object)) => match (object.get("name"), object.get("configuration")) {
            (Some(Value::String(name)), None) => Ok((name, None)),
            (Some(Value::String(name)), Some(Value::Object(configuration))) => {
                Ok((name, Some(configuration)))
            }
            _ => Err(wrong(key, "a name and a configuration", value)),
        },
        _ => Err(wrong(key, "a name and a configuration", value)),
    }
}

impl Array {
    /// Parses `zarr.json`.
    ///
    /// ```
    /// use polyduct_layout::ElemType;
    /// use polyduct_store::zarr::{print, Array};
    ///
    /// let text = print(ElemType::F32, &[100, 20], &[64, 20], &Default::default());
    /// let array = Array::parse(text.as_bytes())?;
    /// assert_eq!((array.elem, array.shape.as_slice()), (ElemType::F32, &[100, 20][..]));
    /// assert_eq!(array.key(&[1, 0]), "c.1.0");
    /// # Ok::<(), polyduct_store::zarr::ZarrError>(())
    /// ```
    ///
    /// # Errors
    /// See [`ZarrError`].
    pub fn parse(text: &[u8]) -> Result<Array, ZarrError> {
        let all = &object("zarr.json", text)?;
        let get = |key: &str| all.get(key);
        if get("zarr_format") != Some(&Value::from(3)) {
            return Err(wrong("zarr_format", "3", get("zarr_format")));
        }
        match get("node_type").and_then(Value::as_str) {
            Some("array") => {}
            Some("group") => return Err(ZarrError::Group),
            _ => return Err(wrong("node_type", "\"array\"", get("node_type"))),
        }
        check_extensions(all)?;
        let shape = sizes("shape", get("shape"))?;
        let dims = shape.len();
        if dims > MAX_ARRAY_DIMS {
            return Err(ZarrError::Dims { dims, limit: MAX_ARRAY_DIMS });
        }
        let elem = fill::elem(get("data_type"))?;
        let fill = fill::value(elem, get("fill_value"))?;
        let outer = grid(get("chunk_grid"), dims)?;
        let keys = Keys::parse(get("chunk_key_encoding"))?;
        let codecs = match get("codecs") {
            Some(Value::Array(codecs)) => codecs.as_slice(),
            other => return Err(wrong("codecs", "a list", other)),
        };
        let (chain, chunk, shards) = inner_codecs(codecs, &outer)?;
        let attributes = match get("attributes") {
            None => Map::new(),
            Some(Value::Object(attributes)) => attributes.clone(),
            other => return Err(wrong("attributes", "an object", other)),
        };
        let order = chain.order.clone();
        let dims = style::dims_of(get("dimension_names"))?.filter(|names| names.len() == shape.len());
        let document = "zarr.json";
        Array { elem, shape, chunk, fill, order, chain, shards, keys, attributes, dims, document }.checked()
    }

    /// Parses `.zarray` and `.zattrs`, which version 2 has instead.
    ///
    /// # Errors
    /// See [`ZarrError`].
    pub fn parse_v2(array: &[u8], attributes: Option<&[u8]>) -> Result<Array, ZarrError> {
        v2::parse(array, attributes)
    }

    fn checked(self) -> Result<Array, ZarrError> {
        match !self.chain.is_plain() && self.chunk_len() > MAX_CHUNK_BYTES {
            true => Err(ZarrError::LargeChunk { len: self.chunk_len(), limit: MAX_CHUNK_BYTES }),
            false => Ok(self),
        }
    }

    /// Bytes of a decoded chunk; the largest number where they cannot be counted.
    pub fn chunk_len(&self) -> u64 {
        self.chunk.iter().try_fold(self.elem.len_bytes(), |len, &n| len.checked_mul(n)).unwrap_or(u64::MAX)
    }

    /// Decodes a chunk: its elements, little-endian, in the chunk's own order.
    ///
    /// # Errors
    /// What is wrong with its bytes; chunks of more than [`MAX_CHUNK_BYTES`] are not decoded.
    pub fn decode(&self, encoded: Vec<u8>) -> Result<Vec<u8>, String> {
        let len = self.chunk_len();
        if len > MAX_CHUNK_BYTES {
            return Err(format!("{len} bytes; the limit is {MAX_CHUNK_BYTES}"));
        }
        self.chain.decode(encoded, len, crate::order::component_len(self.elem))
    }

    /// The name of a chunk's file in the directory: made of numbers, `c` and separators and nothing else.
    pub fn key(&self, coords: &[u64]) -> String {
        self.keys.name(coords)
    }
}

/// What is not known must say that it need not be.
fn check_extensions(all: &Map<String, Value>) -> Result<(), ZarrError> {
    const KNOWN: [&str; 10] = [
        "zarr_format",
        "node_type",
        "shape",
        "data_type",
        "chunk_grid",
        "chunk_key_encoding",
        "fill_value",
        "codecs",
        "attributes",
        "dimension_names",
    ];
    for (key, value) in all {
        match value {
            _ if KNOWN.contains(&key.as_str()) => {}
            Value::Array(transformers) if key == "storage_transformers" && transformers.is_empty() => {}
            Value::Object(extension) if extension.get("must_understand") == Some(&Value::Bool(false)) => {}
            other => return Err(wrong(&shorten(key), "no such key", Some(other))),
        }
    }
    Ok(())
}

/// The shape of the chunks of a regular grid.
fn grid(value: Option<&Value>, dims: usize) -> Result<Vec<u64>, ZarrError> {
    let (name, configuration) = named("chunk_grid", value)?;
    if name != "regular" {
        return Err(wrong("chunk_grid", "\"regular\"", Some(&name.into())));
    }
    let found = configuration.and_then(|c| c.get("chunk_shape"));
    chunk_shape("chunk_grid.chunk_shape", found, dims)
}

fn chunk_shape(key: &str, found: Option<&Value>, dims: usize) -> Result<Vec<u64>, ZarrError> {
    let shape = sizes(key, found)?;
    if shape.len() != dims || shape.contains(&0) {
        return Err(wrong(key, "a number above 0 for each dimension", found));
    }
    Ok(shape)
}

/// Prints the `zarr.json` of an array whose chunks are not encoded, all in one directory.
pub fn print(elem: ElemType, shape: &[u64], chunk: &[u64], attributes: &Map<String, Value>) -> String {
    let about = About { attributes: attributes.clone(), ..About::default() };
    let style = Style::new(&Surroundings::default(), &about, elem, shape);
    style.documents(elem, shape, chunk).into_iter().map(|(_, document)| format!("{document:#}\n")).collect()
}

#[cfg(test)]
mod tests;
