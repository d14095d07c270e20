//! Lost data blocks of a word out of its parity, for the few that are lost at a time.
//!
//! The decoder of `reed-solomon-simd` first evaluates polynomials over its whole field, 65536 elements,
//! whatever the length: for a block that is hundreds of times what the arithmetic on it takes. But the code
//! is linear: each 16 bits of a parity block are a sum of linear maps of the 16 bits at the same place in the
//! data blocks. The encoder itself tells the maps: it is given each single bit. What is left is a small
//! system of equations in bits.

use super::geometry::Geometry;
use super::parity::{encode_shards, zeros, Block};

/// Lost blocks that are found this way, at most.
const MOST: usize = 4;
/// Bits of a symbol.
const BITS: usize = 16;
/// Symbols lie in pieces of 64 bytes: their lower bytes, then their upper ones.
const PIECE: usize = 64;
const HALF: usize = PIECE / 2;

/// How these data blocks follow from what they have put into as many parity blocks.
pub struct Inverse {
    lost: Vec<usize>,
    with: Vec<usize>,
    /// Of each lost block, for each of the parity blocks: what bytes of its symbols put into the lost one's.
    tables: Vec<[[u16; 256]; 2]>,
}

impl Inverse {
    /// For these lost data blocks, and the first that there are of the parity blocks. `None`: not this way.
    pub fn new(geometry: Geometry, lost: &[usize], there: impl Iterator<Item = usize>) -> Option<Inverse> {
        let with: Vec<usize> = there.take(lost.len()).collect();
        if lost.len() > MOST || with.len() < lost.len() {
            return None;
        }
        let inverse = invert(&equations(geometry, lost, &with))?;
        let mut tables = Vec::with_capacity(lost.len() * lost.len());
        for (i, j) in (0..lost.len()).flat_map(|i| (0..lost.len()).map(move |j| (i, j))) {
            let bit = |to: usize, bit: usize| (inverse[i * BITS + to] >> (j * BITS + bit) & 1) as u16;
            let image = |from: usize| (0..BITS).fold(0, |image, to| image | bit(to, from) << to);
            tables.push(mapped(&std::array::from_fn(image)));
        }
        Some(Inverse { lost: lost.to_vec(), with, tables })
    }

    /// Whether it is for these, with parity blocks that are all there.
    pub fn is_for(&self, lost: &[usize], is_there: impl Fn(usize) -> bool) -> bool {
        self.lost == lost && self.with.iter().all(|&p| is_there(p))
    }

    /// Computes lost data from the others, all of one length, a multiple of 64 bytes: `data` has zeros for
    /// what is lost, `parity` gives those that are there. `made` takes each lost one, by its place among
    /// them.
    pub fn solve<'a>(
        &self,
        geometry: Geometry,
        data: impl Iterator<Item = &'a [u8]>,
        parity: impl Fn(usize) -> &'a [u8],
        mut made: impl FnMut(usize, &[u8]),
    ) {
        // What the lost ones have put into each parity block.
        let mut theirs = encode_shards(geometry, data);
        for &p in &self.with {
            theirs[p].iter_mut().zip(parity(p)).for_each(|(a, b)| *a ^= b);
        }
        let len = self.with.first().map_or(0, |&p| theirs[p].len());
        for i in 0..self.lost.len() {
            let mut block = vec![0; len];
            let of = &self.tables[i * self.with.len()..][..self.with.len()];
            of.iter().zip(&self.with).for_each(|(tables, &p)| add_mapped(&mut block, &theirs[p], tables));
            made(i, &block);
        }
    }
}

/// The lost data blocks of a word, in order, from the others and as many parity blocks as it takes. `None`:
/// not this way.
pub fn find(
    geometry: Geometry,
    data: &[Option<Block>],
    parity: &[Option<Block>],
    lost: &[usize],
) -> Option<Vec<Block>> {
    let there = |&p: &usize| parity[p].is_some();
    let inverse = Inverse::new(geometry, lost, (0..parity.len()).filter(there))?;
    let nothing = zeros();
    let data = data.iter().map(|b| b.as_ref().map_or(&nothing[..], |b| &b[..]));
    let mut found = Vec::with_capacity(lost.len());
    let parity = |p: usize| parity[p].as_ref().map_or(&nothing[..], |b| &b[..]);
    inverse.solve(geometry, data, parity, |_, bytes| {
        let mut block = zeros();
        block.copy_from_slice(bytes);
        found.push(block);
    });
    Some(found)
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

/// What a linear map makes of each byte of a symbol, by the image of each bit.
fn mapped(images: &[u16; BITS]) -> [[u16; 256]; 2] {
    let mut tables = [[0_u16; 256]; 2];
    for (i, table) in tables.iter_mut().enumerate() {
        for v in 1..256_usize {
            table[v] = table[v & (v - 1)] ^ images[8 * i + v.trailing_zeros() as usize];
        }
    }
    tables
}

/// Adds to a block what a linear map makes of another's symbols.
fn add_mapped(block: &mut [u8], from: &[u8], [low, high]: &[[u16; 256]; 2]) {
    for (into, from) in block.chunks_exact_mut(PIECE).zip(from.chunks_exact(PIECE)) {
        let ((a, b), (from_a, from_b)) = (into.split_at_mut(HALF), from.split_at(HALF));
        for i in 0..HALF {
            let symbol = low[usize::from(from_a[i])] ^ high[usize::from(from_b[i])];
            a[i] ^= symbol as u8;
            b[i] ^= (symbol >> 8) as u8;
        }
    }
}
