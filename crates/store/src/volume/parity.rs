//! Parity of a word: XOR for one parity block, Reed-Solomon for more.

use super::geometry::{Geometry, BLOCK};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// A block in memory.
pub type Block = Box<[u8; BLOCK]>;

/// A block of zeros.
pub fn zeros() -> Block {
    Box::new([0; BLOCK])
}

fn xor(into: &mut [u8; BLOCK], from: &[u8; BLOCK]) {
    for (a, b) in into.iter_mut().zip(from) {
        *a ^= b;
    }
}

/// The parity blocks of a word's data blocks, in order.
///
/// # Panics
/// Never with as many blocks as the geometry has data units.
pub fn encode(geometry: Geometry, data: &[&[u8; BLOCK]]) -> Vec<Block> {
    assert_eq!(data.len(), geometry.data() as usize, "blocks of a word");
    match geometry.parity() {
        0 => Vec::new(),
        1 => {
            let mut sum = zeros();
            data.iter().for_each(|block| xor(&mut sum, block));
            vec![sum]
        }
        parity => {
            let counts = "counts within 128 and blocks of 4 KiB are supported";
            let mut encoder = ReedSolomonEncoder::new(data.len(), parity as usize, BLOCK).expect(counts);
            data.iter().for_each(|block| encoder.add_original_shard(block).expect(counts));
            let out = encoder.encode().expect(counts);
            out.recovery_iter().map(|block| Box::new(block.try_into().expect(counts))).collect()
        }
    }
}

/// All blocks of a word, data and parity, from those that are there. `None` where more are missing than there is parity.
///
/// # Panics
/// Never with as many places as the geometry has units.
pub fn complete(geometry: Geometry, word: &[Option<Block>]) -> Option<Vec<Block>> {
    assert_eq!(word.len(), geometry.units() as usize, "blocks of a word");
    let (data, parity) = word.split_at(geometry.data() as usize);
    if word.iter().filter(|block| block.is_none()).count() > parity.len() {
        return None;
    }
    let mut whole: Vec<Block> = data.iter().map(|b| b.clone().unwrap_or_else(zeros)).collect();
    let missing: Vec<usize> = (0..data.len()).filter(|&i| data[i].is_none()).collect();
    if let ([lost], [Some(sum)]) = (&missing[..], parity) {
        let mut found = sum.clone();
        data.iter().flatten().for_each(|block| xor(&mut found, block));
        whole[*lost] = found;
    }
    if !missing.is_empty() && parity.len() > 1 {
        let counts = "counts within 128 and blocks of 4 KiB are supported";
        let mut decoder = ReedSolomonDecoder::new(data.len(), parity.len(), BLOCK).expect(counts);
        for (i, block) in data.iter().enumerate() {
            if let Some(block) = block {
                decoder.add_original_shard(i, &block[..]).expect(counts);
            }
        }
        for (i, block) in parity.iter().enumerate() {
            if let Some(block) = block {
                decoder.add_recovery_shard(i, &block[..]).expect(counts);
            }
        }
        let out = decoder.decode().expect("as many blocks as there are data");
        for (i, block) in out.restored_original_iter() {
            whole[i].copy_from_slice(block);
        }
    }
    let parity = encode(geometry, &whole.iter().map(|b| &**b).collect::<Vec<_>>());
    whole.extend(parity);
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every set of lost blocks of a word, of codes that tests use.
    #[test]
    fn what_is_lost_comes_back() {
        for (data, parity) in [(1, 0), (1, 1), (2, 1), (4, 1), (4, 2), (3, 3), (8, 2)] {
            let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
            let blocks: Vec<Block> = (0..data)
                .map(|i| Box::new(std::array::from_fn(|j| (j as u32 * 7 + i * 31 + (j as u32 >> 8)) as u8)))
                .collect();
            let mut word = blocks.clone();
            word.extend(encode(g, &blocks.iter().map(|b| &**b).collect::<Vec<_>>()));
            for lost in 0_u32..1 << g.units() {
                let some: Vec<Option<Block>> =
                    word.iter().enumerate().map(|(i, b)| (lost >> i & 1 == 0).then(|| b.clone())).collect();
                let found = complete(g, &some);
                assert_eq!(found.is_some(), lost.count_ones() <= parity, "{data}+{parity}, {lost:b}");
                assert!(found.is_none_or(|found| found == word), "{data}+{parity}, {lost:b}");
            }
        }
    }
}
