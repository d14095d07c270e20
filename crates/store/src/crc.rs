//! CRC32C, as of iSCSI (RFC 3720, appendix B.4).

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of some pieces, one after the other.
pub(crate) fn crc32c(pieces: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
    }

    proptest! {
        /// By long division, bit by bit.
        #[test]
        fn any_pieces(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6)) {
            let mut rest = !0_u32;
            for byte in pieces.concat() {
                rest ^= u32::from(byte);
                for _ in 0..8 {
                    rest = if rest & 1 == 1 { rest >> 1 ^ 0x82f6_3b78 } else { rest >> 1 };
                }
            }
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(crc32c(&pieces), !rest);
        }
    }
}
