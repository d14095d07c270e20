//! Parity of a word: XOR for one parity block, Reed-Solomon for more.

use super::geometry::{Geometry, BLOCK};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// A block in memory.
pub type Block = Box<[u8; BLOCK]>;

/// A block of zeros.
pub fn zeros() -> Block {
    Box::new([0; BLOCK])
}

/// Adds bytes to as many others.
pub(super) fn xor(into: &mut [u8], from: &[u8]) {
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
            data.iter().for_each(|block| xor(&mut sum[..], &block[..]));
            vec![sum]
        }
        _ => {
            let shards = encode_shards(geometry, data.iter().map(|block| &block[..]));
            let block = |bytes: Vec<u8>| bytes.into_boxed_slice().try_into().expect("as long as the data");
            shards.into_iter().map(block).collect()
        }
    }
}

/// The parity blocks of a word of which only one data block is not zeros: what a change of that block adds to
/// each parity block.
pub fn encode_one(geometry: Geometry, chunk: u32, block: Block) -> Vec<Block> {
    if geometry.parity() == 1 {
        return vec![block];
    }
    let zeros = zeros();
    let data: Vec<&[u8; BLOCK]> =
        (0..geometry.data()).map(|c| if c == chunk { &*block } else { &*zeros }).collect();
    encode(geometry, &data)
}

/// Reed-Solomon parity of pieces of one length, a multiple of 64 bytes.
pub(super) fn encode_shards<'a>(geometry: Geometry, data: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let counts = "counts within 128 and blocks of 4 KiB are supported";
    let mut data = data.peekable();
    let len = data.peek().map_or(BLOCK, |shard| shard.len());
    let (count, parity) = (geometry.data() as usize, geometry.parity() as usize);
    let mut encoder = ReedSolomonEncoder::new(count, parity, len).expect(counts);
    data.for_each(|shard| encoder.add_original_shard(shard).expect(counts));
    let out = encoder.encode().expect(counts);
    out.recovery_iter().map(<[u8]>::to_vec).collect()
}

/// All blocks of a word, data and parity, from those that are there. `None` where more are missing than there
/// is parity.
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
        data.iter().flatten().for_each(|block| xor(&mut found[..], &block[..]));
        whole[*lost] = found;
    }
    if !missing.is_empty() && parity.len() > 1 {
        match super::inverse::find(geometry, data, parity, &missing) {
            Some(found) => missing.iter().zip(found).for_each(|(&i, block)| whole[i] = block),
            None => restore(data, parity, &mut whole),
        }
    }
    let parity = encode(geometry, &whole.iter().map(|b| &**b).collect::<Vec<_>>());
    whole.extend(parity);
    Some(whole)
}

/// Puts the lost data blocks of a word into their places.
fn restore(data: &[Option<Block>], parity: &[Option<Block>], whole: &mut [Block]) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn some_word(g: Geometry) -> Vec<Block> {
        let block =
            |i: u32| Box::new(std::array::from_fn(|j| (j as u32 * 7 + i * 31 + (j as u32 >> 8)) as u8));
        let blocks: Vec<Block> = (0..g.data()).map(block).collect();
        let parity = encode(g, &blocks.iter().map(|b| &**b).collect::<Vec<_>>());
        blocks.into_iter().chain(parity).collect()
    }

    /// What the few equations give is what the decoder gives.
    #[test]
    fn both_ways_agree() {
        for (data, parity) in [(2, 2), (4, 2), (5, 4), (16, 3), (100, 28), (1, 4), (3, 9)] {
            let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
            let word = some_word(g);
            let mut random = 1_u64;
            for _ in 0..20 {
                let mut some: Vec<Option<Block>> = word.iter().cloned().map(Some).collect();
                for _ in 0..parity {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    some[(random >> 33) as usize % word.len()] = None;
                }
                let (d, p) = some.split_at(data as usize);
                let lost: Vec<usize> = (0..d.len()).filter(|&i| d[i].is_none()).collect();
                let mut whole: Vec<Block> = d.iter().map(|b| b.clone().unwrap_or_else(zeros)).collect();
                if !lost.is_empty() {
                    restore(d, p, &mut whole);
                }
                let found = super::super::inverse::find(g, d, p, &lost);
                assert_eq!(found.is_none(), lost.len() > 4, "{data}+{parity}");
                if let Some(found) = found {
                    let want: Vec<Block> = lost.iter().map(|&i| whole[i].clone()).collect();
                    assert!(found == want && whole == word[..data as usize], "{data}+{parity}, {lost:?}");
                }
            }
        }
    }

    /// Every set of lost blocks of a word, of codes that tests use.
    #[test]
    fn what_is_lost_comes_back() {
        for (data, parity) in [(1, 0), (1, 1), (2, 1), (4, 1), (4, 2), (3, 3), (8, 2)] {
            let g = Geometry::new(data, parity, BLOCK as u64).unwrap();
            let word = some_word(g);
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
