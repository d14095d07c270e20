//! Lost data blocks of a word out of its parity, for the few that are lost at a time.
//!
//! The decoder of `reed-solomon-simd` first evaluates polynomials over its whole field, 65536 elements,
//! whatever the length: for a block that is hundreds of times what the arithmetic on it takes. But the code
//! is linear: each 16 bits of a parity block are a sum of linear maps of the 16 bits at the same place in the
//! data blocks. The encoder itself tells the maps: it is given each single bit. What is left is a small
//! system of equations in bits.

use super::geometry::{Geometry, BLOCK};
use super::parity::{encode_shards, xor, zeros, Block};

/// Lost blocks that are found this way, at most.
const MOST: usize = 4;
/// Bits of a symbol.
const BITS: usize = 16;
/// Symbols lie in pieces of 64 bytes: their lower bytes, then their upper ones.
const PIECE: usize = 64;
const HALF: usize = PIECE / 2;

/// The lost data blocks of a word, in order, from the others and as many parity blocks as it takes. `None`:
/// not this way.
pub fn find(
    geometry: Geometry,
    data: &[Option<Block>],
    parity: &[Option<Block>],
    lost: &[usize],
) -> Option<Vec<Block>> {
    let with: Vec<usize> = (0..parity.len()).filter(|&p| parity[p].is_some()).take(lost.len()).collect();
    if lost.len() > MOST || with.len() < lost.len() {
        return None;
    }
    let inverse = invert(&equations(geometry, lost, &with))?;
    // What the lost blocks have put into each parity block.
    let nothing = zeros();
    let rest = encode_shards(geometry, data.iter().map(|b| b.as_ref().map_or(&nothing[..], |b| &b[..])));
    let theirs = |&p: &usize| -> Option<Block> {
        let mut sum: Block = rest[p][..].to_vec().into_boxed_slice().try_into().ok()?;
        xor(&mut sum, parity[p].as_ref()?);
        Some(sum)
    };
    let theirs: Vec<Block> = with.iter().map(theirs).collect::<Option<_>>()?;
    let block = |i: usize| {
        let mut block = zeros();
        for (j, from) in theirs.iter().enumerate() {
            let bit = |to: usize, bit: usize| (inverse[i * BITS + to] >> (j * BITS + bit) & 1) as u16;
            let image = |from: usize| (0..BITS).fold(0, |image, to| image | bit(to, from) << to);
            add_mapped(&mut block, from, &std::array::from_fn(image));
        }
        block
    };
    Some((0..lost.len()).map(block).collect())
}

/// Of each bit of these parity blocks' symbols: the bits of the lost blocks' symbols that it is the sum of.
fn equations(geometry: Geometry, lost: &[usize], with: &[usize]) -> Vec<u64> {
    let mut rows = vec![0_u64; lost.len() * BITS];
    for (i, &lost) in lost.iter().enumerate() {
        // Symbol `bit` has this bit alone.
        let mut probe = [0; PIECE];
        (0..BITS).for_each(|bit| probe[bit + bit / 8 * HALF] = 1 << (bit % 8));
        let nothing = [0; PIECE];
        let shards = (0..geometry.data() as usize).map(|c| if c == lost { &probe[..] } else { &nothing[..] });
        let parity = encode_shards(geometry, shards);
        for (j, &p) in with.iter().enumerate() {
            for bit in 0..BITS {
                let symbol = u16::from(parity[p][bit]) | u16::from(parity[p][bit + HALF]) << 8;
                for to in (0..BITS).filter(|to| symbol >> to & 1 != 0) {
                    rows[j * BITS + to] |= 1 << (i * BITS + bit);
                }
            }
        }
    }
    rows
}

/// The inverse of a square matrix of bits.
fn invert(matrix: &[u64]) -> Option<Vec<u64>> {
    let mut rows: Vec<(u64, u64)> = matrix.iter().enumerate().map(|(i, &row)| (row, 1 << i)).collect();
    for column in 0..rows.len() {
        let pivot = (column..rows.len()).find(|&i| rows[i].0 >> column & 1 != 0)?;
        rows.swap(column, pivot);
        let (row, unit) = rows[column];
        for (i, other) in rows.iter_mut().enumerate() {
            if i != column && other.0 >> column & 1 != 0 {
                *other = (other.0 ^ row, other.1 ^ unit);
            }
        }
    }
    Some(rows.into_iter().map(|(_, inverse)| inverse).collect())
}

/// Adds to a block what a linear map makes of another's symbols: of each bit, its image.
fn add_mapped(block: &mut [u8; BLOCK], from: &[u8; BLOCK], images: &[u16; BITS]) {
    let mut tables = [[0_u16; 256]; 2];
    for (i, table) in tables.iter_mut().enumerate() {
        for v in 1..256_usize {
            table[v] = table[v & (v - 1)] ^ images[8 * i + v.trailing_zeros() as usize];
        }
    }
    let [low, high] = &tables;
    for (into, from) in block.chunks_exact_mut(PIECE).zip(from.chunks_exact(PIECE)) {
        let ((a, b), (from_a, from_b)) = (into.split_at_mut(HALF), from.split_at(HALF));
        for i in 0..HALF {
            let symbol = low[usize::from(from_a[i])] ^ high[usize::from(from_b[i])];
            a[i] ^= symbol as u8;
            b[i] ^= (symbol >> 8) as u8;
        }
    }
}
