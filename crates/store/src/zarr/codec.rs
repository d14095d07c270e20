//! Encodes and decodes chunks.

use super::{blosc, chunk_shape, named, wrong, Configuration, Shard, ZarrError};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use ruzstd::decoding::StreamingDecoder;
use serde_json::Value;
use std::io::Read;

/// What is allowed for above the decoded bytes: headers and checksums of codecs.
const SLACK_BYTES: u64 = 64 << 10;

/// The window that a decoder of Zstandard takes, however short the chunk.
const ZSTD_WINDOW_BYTES: u64 = 8 << 20;

/// A codec from bytes to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    Gzip,
    Zstd,
    Crc32c,
    Blosc,
    /// Of version 2.
    Zlib,
    /// Of version 2: four bytes of length, and a block.
    Lz4,
}

/// All codecs of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The dimensions as they lie in the chunk, the slowest first.
    pub order: Vec<usize>,
    pub big_endian: bool,
    /// In the order of encoding.
    pub bytes: Vec<Bytes>,
}

/// The codecs of a chunk, its shape, and the shards that it lies in, the outermost first; `outer` is the
/// shape of the grid's chunks.
pub fn inner_codecs(codecs: &[Value], outer: &[u64]) -> Result<(Chain, Vec<u64>, Vec<Shard>), ZarrError> {
    let (mut codecs, mut chunk) = (codecs, outer.to_vec());
    let mut shards = Vec::new();
    let mut index_bytes = 0u64;
    while let Some((at, configuration)) = find_sharding(codecs)? {
        // What stands around the shard as a whole would have to be undone as a whole.
        if let Some(other) = codecs[..at].first().or(codecs.get(at + 1)) {
            let name = format!("{} around sharding_indexed", named("codecs", Some(other))?.0);
            return Err(ZarrError::Codec { name: crate::json::shorten(&name) });
        }
        let shard;
        (shard, chunk, codecs) = parse_sharding(configuration, &chunk)?;
        // An index of each is kept while chunks are read.
        index_bytes = index_bytes.saturating_add(index_len(&shard));
        if index_bytes > super::MAX_CHUNK_BYTES {
            return Err(ZarrError::LargeChunk { len: index_bytes, limit: super::MAX_CHUNK_BYTES });
        }
        shards.push(shard);
    }
    Ok((Chain::parse(codecs, chunk.len())?, chunk, shards))
}

/// A shard of the shape `outer`, the shape of the chunks in it, and their codecs.
fn parse_sharding<'v>(
    sharding: Configuration<'v>,
    outer: &[u64],
) -> Result<(Shard, Vec<u64>, &'v [Value]), ZarrError> {
    let get = |key: &str| sharding.and_then(|c| c.get(key));
    let inner = chunk_shape("sharding_indexed.chunk_shape", get("chunk_shape"), outer.len())?;
    if outer.iter().zip(&inner).any(|(o, i)| o % i != 0) {
        return Err(wrong(
            "sharding_indexed.chunk_shape",
            "divisors of the shard's sizes",
            get("chunk_shape"),
        ));
    }
    let codecs = match get("codecs") {
        Some(Value::Array(codecs)) => codecs.as_slice(),
        other => return Err(wrong("sharding_indexed.codecs", "a list", other)),
    };
    let index = match get("index_codecs") {
        Some(Value::Array(codecs)) => Chain::parse(codecs, outer.len() + 1)?,
        other => return Err(wrong("sharding_indexed.index_codecs", "a list", other)),
    };
    let checked = match (index.bytes.as_slice(), index.big_endian || !index.is_row_major()) {
        ([], false) => false,
        ([Bytes::Crc32c], false) => true,
        _ => {
            return Err(wrong(
                "sharding_indexed.index_codecs",
                "little-endian bytes, or crc32c of them",
                get("index_codecs"),
            ))
        }
    };
    let at_end = match get("index_location").map(Value::as_str) {
        None | Some(Some("end")) => true,
        Some(Some("start")) => false,
        _ => {
            return Err(wrong(
                "sharding_indexed.index_location",
                "\"start\" or \"end\"",
                get("index_location"),
            ))
        }
    };
    let per: Vec<u64> = outer.iter().zip(&inner).map(|(o, i)| o / i).collect();
    Ok((Shard { per, checked, at_end }, inner, codecs))
}

fn find_sharding(codecs: &[Value]) -> Result<Option<(usize, Configuration<'_>)>, ZarrError> {
    for (at, codec) in codecs.iter().enumerate() {
        if let ("sharding_indexed", configuration) = named("codecs", Some(codec))? {
            return Ok(Some((at, configuration)));
        }
    }
    Ok(None)
}

impl Chain {
    fn parse(codecs: &[Value], dims: usize) -> Result<Chain, ZarrError> {
        let mut order: Vec<usize> = (0..dims).collect();
        let mut big_endian = None;
        let mut bytes = Vec::new();
        for codec in codecs {
            let (name, configuration) = named("codecs", Some(codec))?;
            match (name, big_endian) {
                ("transpose", None) => {
                    let next = transpose(configuration.and_then(|c| c.get("order")), dims)?;
                    // Dimension i of what is encoded is dimension next[i] of what there was.
                    order = next.iter().map(|&i| order[i]).collect();
                }
                ("bytes", None) => {
                    big_endian = Some(match configuration.and_then(|c| c.get("endian")).map(Value::as_str) {
                        None | Some(Some("little")) => false,
                        Some(Some("big")) => true,
                        _ => return Err(wrong("codecs.bytes.endian", "\"little\" or \"big\"", Some(codec))),
                    });
                }
                ("gzip", Some(_)) => bytes.push(Bytes::Gzip),
                ("zstd", Some(_)) => bytes.push(Bytes::Zstd),
                ("crc32c", Some(_)) => bytes.push(Bytes::Crc32c),
                ("blosc", Some(_)) => bytes.push(Bytes::Blosc),
                _ => return Err(ZarrError::Codec { name: crate::json::shorten(name) }),
            }
        }
        match big_endian {
            Some(big_endian) if bytes.len() <= 8 => Ok(Chain { order, big_endian, bytes }),
            Some(_) => Err(wrong("codecs", "at most 8 codecs of bytes", None)),
            None => Err(wrong("codecs", "a codec that makes bytes of arrays", None)),
        }
    }

    fn is_row_major(&self) -> bool {
        self.order.iter().enumerate().all(|(i, &d)| i == d)
    }

    /// Whether the bytes of a chunk are the array's own.
    pub fn is_plain(&self) -> bool {
        self.bytes.is_empty() && !self.big_endian
    }

    /// The most bytes that an encoded chunk of `len` bytes may have.
    pub fn limit(&self, len: u64) -> u64 {
        len.saturating_mul(2).saturating_add(SLACK_BYTES)
    }

    /// The `len` bytes of a chunk of components of `component` bytes each, little-endian.
    pub fn decode(&self, mut encoded: Vec<u8>, len: u64, component: usize) -> Result<Vec<u8>, String> {
        let limit = self.limit(len);
        for codec in self.bytes.iter().rev() {
            encoded = codec.decode(encoded, limit)?;
        }
        if encoded.len() as u64 != len {
            return Err(format!("expected {len} bytes, found {}", encoded.len()));
        }
        if self.big_endian {
            crate::order::swap(&mut encoded, component);
        }
        Ok(encoded)
    }
}

/// A permutation, or what older versions of zarr-python wrote.
fn transpose(value: Option<&Value>, dims: usize) -> Result<Vec<usize>, ZarrError> {
    let fail = || wrong("codecs.transpose.order", "each dimension once", value);
    match value {
        Some(Value::String(order)) if order == "C" => Ok((0..dims).collect()),
        Some(Value::String(order)) if order == "F" => Ok((0..dims).rev().collect()),
        Some(Value::Array(order)) if order.len() == dims => {
            let order: Option<Vec<usize>> =
                order.iter().map(|n| usize::try_from(n.as_u64()?).ok().filter(|&n| n < dims)).collect();
            let order = order.ok_or_else(fail)?;
            let mut seen = vec![false; dims];
            match order.iter().all(|&n| !std::mem::replace(&mut seen[n], true)) {
                true => Ok(order),
                false => Err(fail()),
            }
        }
        _ => Err(fail()),
    }
}

impl Bytes {
    /// Undoes the codec; at most `limit` bytes come of it.
    pub fn decode(self, mut encoded: Vec<u8>, limit: u64) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        match self {
            Bytes::Crc32c => {
                let at = encoded.len().checked_sub(4).ok_or("crc32c: no checksum")?;
                let expected =
                    u32::from_le_bytes([encoded[at], encoded[at + 1], encoded[at + 2], encoded[at + 3]]);
                encoded.truncate(at);
                let found = crate::crc::crc32c(&[&encoded]);
                return match found == expected {
                    true => Ok(encoded),
                    false => Err(format!("crc32c: expected {expected:08x}, found {found:08x}")),
                };
            }
            Bytes::Blosc => return blosc::decode(&encoded, limit).map_err(|e| format!("blosc: {e}")),
            Bytes::Lz4 => {
                let (len, block) = encoded.split_first_chunk().ok_or("lz4: no length")?;
                let len = u32::from_le_bytes(*len);
                if u64::from(len) > limit {
                    return Err(format!("lz4: {len} bytes; the limit is {limit}"));
                }
                bytes = zeros(len as usize)?;
                let found = lz4_flex::block::decompress_into(block, &mut bytes);
                return match found.map_err(|e| format!("lz4: {e}"))? == bytes.len() {
                    true => Ok(bytes),
                    false => Err(format!("lz4: expected {len} bytes")),
                };
            }
            Bytes::Zlib => ZlibDecoder::new(encoded.as_slice())
                .take(limit.saturating_add(1))
                .read_to_end(&mut bytes)
                .map_err(|e| format!("zlib: {e}"))?,
            Bytes::Gzip => MultiGzDecoder::new(encoded.as_slice())
                .take(limit.saturating_add(1))
                .read_to_end(&mut bytes)
                .map_err(|e| format!("gzip: {e}"))?,
            Bytes::Zstd => {
                // A window is decoded before any of it is read. One that is larger than the chunk is only
                // asked for by who did not know how long it would be, and RFC 8878 bids all decoders take so
                // much.
                let window = limit.max(ZSTD_WINDOW_BYTES);
                let mut zstd = StreamingDecoder::new_with_max_window_size(encoded.as_slice(), window)
                    .map_err(|e| format!("zstd: {e}"))?;
                let n = (&mut zstd)
                    .take(limit.saturating_add(1))
                    .read_to_end(&mut bytes)
                    .map_err(|e| format!("zstd: {e}"))?;
                let frame = zstd.into_frame_decoder();
                match (frame.get_checksum_from_data(), frame.get_calculated_checksum()) {
                    (Some(expected), found) if n as u64 <= limit && found != Some(expected) => {
                        return Err("zstd: the checksum is that of other bytes".into())
                    }
                    _ => n,
                }
            }
        };
        match bytes.len() as u64 > limit {
            true => Err(format!("{self:?}: more than {limit} bytes")),
            false => Ok(bytes),
        }
    }
}

/// So many zeros.
pub fn zeros(len: usize) -> Result<Vec<u8>, String> {
    polyduct_os::aligned::zeros(len, "a chunk").map_err(|e| e.to_string())
}

/// Bytes of a shard's index, its checksum included; the largest number where they cannot be counted.
pub fn index_len(shard: &Shard) -> u64 {
    let chunks = shard.per.iter().try_fold(1u64, |all, &n| all.checked_mul(n));
    let bytes = chunks.and_then(|n| n.checked_mul(16));
    bytes.and_then(|n| n.checked_add(if shard.checked { 4 } else { 0 })).unwrap_or(u64::MAX)
}

/// Where each inner chunk of a shard lies, row-major: offset and length; `None` for one that is not there.
pub fn index_entries(shard: &Shard, index: Vec<u8>) -> Result<Vec<Option<(u64, u64)>>, String> {
    let index = if shard.checked { Bytes::Crc32c.decode(index, u64::MAX)? } else { index };
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
    Ok(index
        .chunks_exact(16)
        .map(|entry| match (word(&entry[..8]), word(&entry[8..])) {
            (u64::MAX, u64::MAX) => None,
            place => Some(place),
        })
        .collect())
}
