//! Values in files, each with its kind, its length and its checksum: what is read is whole, or it is nothing.

use crate::crc::crc32c;
use serde::de::DeserializeOwned;
use serde::Serialize;

/// Bytes before the value: kind, length, CRC32C of kind, length and value.
pub const HEAD: usize = 16;
/// Bytes of most values, and more: what an overwritten block and its parity take.
const USUAL: usize = 12 << 10;
/// The longest value.
const LIMIT: usize = 256 << 20;

/// What a value is: its first eight bytes. The last of them is the version.
pub type Kind = [u8; 8];

fn crc(kind: Kind, value: &[u8]) -> u32 {
    crc32c(&[&kind, &(value.len() as u32).to_le_bytes(), value])
}

/// A value as bytes.
///
/// # Panics
/// Never with types that postcard can write.
pub fn seal(kind: Kind, value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL);
    bytes.resize(HEAD, 0);
    let mut bytes = postcard::to_extend(value, bytes).expect("plain values can be written");
    let len = ((bytes.len() - HEAD) as u32).to_le_bytes();
    let crc = crc(kind, &bytes[HEAD..]).to_le_bytes();
    bytes[..8].copy_from_slice(&kind);
    bytes[8..12].copy_from_slice(&len);
    bytes[12..HEAD].copy_from_slice(&crc);
    bytes
}

/// The checksum of the value that begins here.
pub fn checksum(bytes: &[u8]) -> u32 {
    bytes.get(12..HEAD).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The bytes of the value that begins here. `None`: there is none of this kind, or it is damaged.
pub fn sealed(kind: Kind, bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let len = word(8) as usize;
    let value = rest.get(..len).filter(|_| head[..8] == kind && len <= LIMIT)?;
    (crc(kind, value) == word(12)).then_some(value)
}

/// The value that begins here, and how many bytes it takes. `None`: there is none of this kind, or it is
/// damaged.
pub fn unseal<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Option<(T, usize)> {
    let value = sealed(kind, bytes)?;
    match postcard::take_from_bytes(value) {
        Ok((read, [])) => Some((read, HEAD + value.len())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_found() {
        let kind = *b"testing\x01";
        let bytes = seal(kind, &(7_u32, "seven".to_owned()));
        assert_eq!(unseal(kind, &bytes), Some(((7_u32, "seven".to_owned()), bytes.len())));
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal::<(u32, String)>(kind, &bytes), None, "{bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(unseal::<(u32, String)>(kind, &bytes[..len]), None, "{len}");
        }
    }
}
