//! Compression of the chunks of an array that is written: what users say, what metadata say of it, and the
//! bytes.
//!
//! All encoders are in Rust and were in the tree for reading. That of Zstandard has one level; frames of
//! Blosc hold blocks of LZ4, which has none either, with shuffled bytes.

use super::blosc;
use flate2::{write::GzEncoder, Compression as Level};
use polyduct_layout::ElemType;
use ruzstd::encoding::{compress_to_vec, CompressionLevel};
use serde_json::{json, Value};
use std::fmt;
use std::io::Write;
use std::str::FromStr;

/// The level of gzip where none is said.
const GZIP_LEVEL: u32 = 5;

/// What the chunks of an array that is written are compressed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Nothing.
    #[default]
    None,
    /// gzip, of a level from 0 to 9.
    Gzip(u32),
    /// Zstandard, of its first level.
    Zstd,
    /// Blosc: shuffled bytes, with LZ4.
    Blosc,
}

/// A compression that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "compression: expected none, zstd, gzip, gzip:0 to gzip:9 or blosc (zstd and blosc have one level, \
    :1), found {found:?}"
)]
pub struct UnknownCompression {
    /// What was said, shortened.
    pub found: String,
}

impl FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(text: &str) -> Result<Compression, UnknownCompression> {
        let level = |text: &str| text.parse().ok().filter(|&level: &u32| level <= 9 && text.len() == 1);
        Ok(match (text, text.strip_prefix("gzip:").and_then(level)) {
            ("none", _) => Compression::None,
            ("zstd" | "zstd:1", _) => Compression::Zstd,
            ("blosc" | "blosc:1", _) => Compression::Blosc,
            ("gzip", _) => Compression::Gzip(GZIP_LEVEL),
            (_, Some(level)) => Compression::Gzip(level),
            _ => return Err(UnknownCompression { found: crate::json::shorten(text) }),
        })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::Gzip(level) => write!(f, "gzip:{level}"),
            Compression::Zstd => f.write_str("zstd"),
            Compression::Blosc => f.write_str("blosc"),
        }
    }
}

impl Compression {
    /// The codecs of version 3: from arrays to bytes, and of bytes.
    pub(super) fn codecs(self, elem: ElemType) -> Value {
        let mut codecs = vec![json!({"name": "bytes", "configuration": {"endian": "little"}})];
        codecs.extend(match self {
            Compression::None => None,
            Compression::Gzip(level) => Some(json!({"name": "gzip", "configuration": {"level": level}})),
            Compression::Zstd => {
                Some(json!({"name": "zstd", "configuration": {"level": 1, "checksum": true}}))
            }
            Compression::Blosc => Some(json!({"name": "blosc", "configuration": {
                "cname": "lz4", "clevel": 1, "shuffle": "shuffle", "typesize": shuffled(elem), "blocksize": 0,
            }})),
        });
        Value::from(codecs)
    }

    /// The compressor of version 2.
    pub(super) fn compressor(self) -> Value {
        match self {
            Compression::None => Value::Null,
            Compression::Gzip(level) => json!({"id": "gzip", "level": level}),
            Compression::Zstd => json!({"id": "zstd", "level": 1}),
            Compression::Blosc => {
                json!({"id": "blosc", "cname": "lz4", "clevel": 1, "shuffle": 1, "blocksize": 0})
            }
        }
    }

    /// The file of a chunk of these bytes.
    ///
    /// # Errors
    /// None that is expected: what the encoder says.
    pub fn encode(self, chunk: &[u8], elem: ElemType) -> std::io::Result<Vec<u8>> {
        match self {
            Compression::None => Ok(chunk.to_vec()),
            Compression::Gzip(level) => {
                let mut gzip = GzEncoder::new(Vec::new(), Level::new(level));
                gzip.write_all(chunk)?;
                gzip.finish()
            }
            Compression::Zstd => Ok(zstd(chunk)),
            Compression::Blosc => Ok(blosc::encode(chunk, shuffled(elem))),
        }
    }
}

/// Bytes of what is shuffled; longer elements have no place in a header.
fn shuffled(elem: ElemType) -> u8 {
    u8::try_from(elem.len_bytes()).unwrap_or(1)
}

/// A frame of Zstandard that says how long its content is: some decoders take no other.
fn zstd(chunk: &[u8]) -> Vec<u8> {
    /// Magic number, descriptor, window: what the encoder begins a frame with.
    const HEADER_BYTES: usize = 6;
    /// In the descriptor: eight bytes of length follow the window.
    const HAS_LENGTH: u8 = 0xC0;
    let mut frame = compress_to_vec(chunk, CompressionLevel::Fastest);
    if let Some(descriptor) = frame.get_mut(4).filter(|d| **d & (HAS_LENGTH | 0x23) == 0) {
        *descriptor |= HAS_LENGTH;
        frame.splice(HEADER_BYTES..HEADER_BYTES, (chunk.len() as u64).to_le_bytes());
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::super::codec::Bytes;
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut state = 1u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(300_001)
        .collect();
        let steps: Vec<u8> = (0..200_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for chunk in [&[][..], &[7], &noise, &steps, &[0; 1 << 20]] {
            for (compression, codec) in [
                (Compression::Gzip(0), Bytes::Gzip),
                (Compression::Gzip(9), Bytes::Gzip),
                (Compression::Zstd, Bytes::Zstd),
                (Compression::Blosc, Bytes::Blosc),
            ] {
                for elem in [ElemType::U8, ElemType::F32, ElemType::C128, ElemType::Bytes(300)] {
                    let encoded = compression.encode(chunk, elem).unwrap();
                    let len = encoded.len();
                    let decoded = codec.decode(encoded, chunk.len() as u64);
                    assert!(decoded.as_deref() == Ok(chunk), "{compression} {elem} {}", chunk.len());
                    assert!(len < chunk.len() + chunk.len() / 100 + 100, "{compression} {len}");
                    if chunk.len() > 500_000 && compression != Compression::Gzip(0) {
                        assert!(len < chunk.len() / 2, "{compression} {elem} {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn names_are_understood() {
        for text in ["none", "gzip:0", "gzip:9", "zstd", "blosc"] {
            assert_eq!(text.parse::<Compression>().unwrap().to_string(), text);
        }
        assert_eq!("gzip".parse(), Ok(Compression::Gzip(5)));
        for text in ["", "gzip:10", "gzip:", "gzip:+1", "zstd:5", "zstd:", "lz4", "blosc:x", "None"] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
    }
}
