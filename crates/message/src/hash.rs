//! FNV-1a, 64 bits: the same in every build and version, and no secret.

/// Spreads bytes over numbers.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the reference of its authors (Fowler, Noll, Vo).
    #[test]
    fn the_numbers_are_those_of_all_others() {
        let known =
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)];
        known.iter().for_each(|(text, hash)| assert_eq!(fnv1a(text.bytes()), *hash, "{text}"));
    }
}
