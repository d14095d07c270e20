//! Bytes in stored values, as one piece: what `Vec<u8>` gives is the same, one byte at a time.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// Bytes to write, or read.
struct Raw<B>(B);

impl<B: AsRef<[u8]>> Serialize for Raw<B> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0.as_ref())
    }
}

impl<'de> Deserialize<'de> for Raw<Vec<u8>> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Raw<Vec<u8>>;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Raw<Vec<u8>>, E> {
                Ok(Raw(bytes.to_vec()))
            }
        }
        from.deserialize_bytes(Bytes)
    }
}

/// For `serde(with)`: plain bytes.
pub mod plain {
    use super::*;

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        Raw(bytes).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Raw::deserialize(from).map(|raw| raw.0)
    }
}

/// For `serde(with)`: bytes and where they belong, if there are any.
pub mod placed {
    use super::*;

    pub fn serialize<S: Serializer>(placed: &Option<(u64, Vec<u8>)>, to: S) -> Result<S::Ok, S::Error> {
        placed.as_ref().map(|(at, bytes)| (at, Raw(bytes))).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<(u64, Vec<u8>)>, D::Error> {
        let placed: Option<(u64, Raw<Vec<u8>>)> = Option::deserialize(from)?;
        Ok(placed.map(|(at, raw)| (at, raw.0)))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Quick {
        #[serde(with = "super::plain")]
        plain: Vec<u8>,
        #[serde(with = "super::placed")]
        placed: Option<(u64, Vec<u8>)>,
    }

    #[derive(Serialize)]
    struct Slow {
        plain: Vec<u8>,
        placed: Option<(u64, Vec<u8>)>,
    }

    #[test]
    fn the_bytes_are_those_of_vectors() {
        for placed in [None, Some((300, vec![9; 5000])), Some((0, Vec::new()))] {
            let (plain, value) = (vec![1, 2, 255], placed.clone());
            let slow = postcard::to_allocvec(&Slow { plain: plain.clone(), placed }).unwrap();
            let quick = Quick { plain, placed: value };
            assert_eq!(postcard::to_allocvec(&quick).unwrap(), slow);
            assert_eq!(postcard::from_bytes::<Quick>(&slow).unwrap(), quick);
            (0..slow.len()).for_each(|len| assert!(postcard::from_bytes::<Quick>(&slow[..len]).is_err()));
        }
    }
}
