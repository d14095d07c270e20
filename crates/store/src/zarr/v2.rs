//! Version 2 of the format: `.zarray` and `.zattrs`.

use super::codec::{Bytes, Chain};
use super::style::{Dims, Keys};
use super::{fill, sizes, wrong, Array, ZarrError, MAX_ARRAY_DIMS};
use crate::json::{self, shorten};
use crate::npy;
use polyduct_layout::ElemType;
use serde_json::{Map, Value};

/// The attribute in which xarray keeps the names of the dimensions.
pub const DIMS: &str = "_ARRAY_DIMENSIONS";
/// The names of chunks where nothing else is said.
pub const KEYS: Keys = Keys { v2: true, separator: '.' };

/// The names of the dimensions, if they are all there; they are no attribute then.
pub fn take_dims(attributes: &mut Map<String, Value>, count: usize) -> Option<Dims> {
    let names = attributes.get(DIMS)?.as_array()?;
    let dims = names.iter().map(|name| Some(Some(name.as_str()?.to_owned()))).collect::<Option<Dims>>()?;
    (dims.len() == count).then(|| attributes.remove(DIMS))?;
    Some(dims)
}

/// The element type, and whether its bytes are swapped.
pub fn elem(value: Option<&Value>) -> Result<(ElemType, bool), ZarrError> {
    let fail = || wrong(".zarray: dtype", "a type of numbers or of bytes", value);
    let code = value.and_then(Value::as_str).ok_or_else(fail)?;
    let (code, big_endian) = match code.strip_prefix('>') {
        Some(code) => (format!("<{code}"), true),
        None => (code.to_owned(), false),
    };
    let elem: ElemType = code.parse().map_err(|_| fail())?;
    let swapped = big_endian && !matches!(elem, ElemType::Bytes(_));
    Ok((elem, swapped))
}

/// How chunks are called.
pub fn keys(value: Option<&Value>) -> Result<Keys, ZarrError> {
    match value.map(Value::as_str) {
        None | Some(Some(".")) => Ok(KEYS),
        Some(Some("/")) => Ok(Keys { separator: '/', ..KEYS }),
        _ => Err(wrong(".zarray: dimension_separator", "\"/\" or \".\"", value)),
    }
}

/// `.zarray` of an array.
pub fn document(
    elem: ElemType,
    shape: &[u64],
    chunk: &[u64],
    fill: Value,
    separator: char,
    compressor: Value,
) -> Value {
    serde_json::json!({
        "zarr_format": 2,
        "shape": shape,
        "chunks": chunk,
        "dtype": npy::descr(elem),
        "compressor": compressor,
        "fill_value": fill,
        "order": "C",
        "filters": null,
        "dimension_separator": separator,
    })
}

/// Parses `.zarray` and `.zattrs`.
///
/// # Errors
/// See [`ZarrError`].
pub fn parse(array: &[u8], attributes: Option<&[u8]>) -> Result<Array, ZarrError> {
    let document = super::object(".zarray", array)?;
    let get = |key: &str| document.get(key);
    if get("zarr_format") != Some(&Value::from(2)) {
        return Err(wrong(".zarray: zarr_format", "2", get("zarr_format")));
    }
    let shape = sizes(".zarray: shape", get("shape"))?;
    let dims = shape.len();
    if dims > MAX_ARRAY_DIMS {
        return Err(ZarrError::Dims { dims, limit: MAX_ARRAY_DIMS });
    }
    let mut chunk = sizes(".zarray: chunks", get("chunks"))?;
    if chunk.len() != dims {
        return Err(wrong(".zarray: chunks", "a number for each dimension", get("chunks")));
    }
    // Of an array of nothing.
    chunk.iter_mut().for_each(|size| *size = (*size).max(1));
    let (elem, big_endian) = elem(get("dtype"))?;
    let order: Vec<usize> = match get("order").map(Value::as_str) {
        Some(Some("C")) => (0..dims).collect(),
        Some(Some("F")) => (0..dims).rev().collect(),
        _ => return Err(wrong(".zarray: order", "\"C\" or \"F\"", get("order"))),
    };
    match get("filters") {
        None | Some(Value::Null) => {}
        Some(Value::Array(filters)) if filters.is_empty() => {}
        Some(Value::Array(filters)) => return Err(unknown(filters.first())),
        other => return Err(wrong(".zarray: filters", "a list, or null", other)),
    }
    let mut bytes = Vec::new();
    match get("compressor") {
        None | Some(Value::Null) => {}
        Some(compressor) => bytes.push(match compressor.get("id").and_then(Value::as_str) {
            Some("zlib") => Bytes::Zlib,
            Some("gzip") => Bytes::Gzip,
            Some("zstd") => Bytes::Zstd,
            Some("blosc") => Bytes::Blosc,
            Some("lz4") => Bytes::Lz4,
            _ => return Err(unknown(Some(compressor))),
        }),
    }
    let mut attributes = match attributes {
        Some(text) => super::object(".zattrs", text)?,
        None => Map::new(),
    };
    let array = Array {
        elem,
        fill: fill_bytes(elem, get("fill_value"))?,
        chunk,
        chain: Chain { order: order.clone(), big_endian, bytes },
        order,
        shards: Vec::new(),
        keys: keys(get("dimension_separator"))?,
        dims: take_dims(&mut attributes, dims),
        shape,
        attributes,
        document: ".zarray",
    };
    array.checked()
}

fn unknown(codec: Option<&Value>) -> ZarrError {
    let id = codec.and_then(|c| c.get("id")).and_then(Value::as_str).unwrap_or("without an id");
    ZarrError::Codec { name: shorten(id) }
}

/// What is not there. Without a fill value that is anything: zero, as with other readers.
fn fill_bytes(elem: ElemType, value: Option<&Value>) -> Result<Vec<u8>, ZarrError> {
    let len = elem.len_bytes() as usize;
    let zeros = |found: &Value| found.is_null() || found == 0 || found == "";
    match (value, elem) {
        (None, _) => Ok(vec![0; len]),
        (Some(found), _) if zeros(found) => Ok(vec![0; len]),
        (found, _) => fill::value(elem, found).map_err(|e| match e {
            ZarrError::Key { expected, found, .. } => {
                ZarrError::Key { key: ".zarray: fill_value".into(), expected, found }
            }
            e => e,
        }),
    }
}

/// A document of an array that must be an object.
pub(super) fn object(file: &'static str, text: &[u8]) -> Result<Map<String, Value>, ZarrError> {
    if text.len() > super::MAX_METADATA_BYTES {
        let (len, limit) = (text.len() as u64, super::MAX_METADATA_BYTES);
        return Err(ZarrError::TooLong { file, len, limit });
    }
    let document = json::parse(text).map_err(|e| ZarrError::Syntax {
        file,
        position: json::position(text, &e),
        problem: json::problem(&e),
    })?;
    match document {
        Value::Object(all) => Ok(all),
        other => Err(wrong(file, "an object", Some(&other))),
    }
}
