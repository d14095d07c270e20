//! Encodes and decodes whole rows of an object that nobody changes, between one memory and the chunks of the
//! units. Computation only, for those who write and read rows themselves, without the
//! [`Volume`](super::Volume).
//!
//! Each byte is taken into the first-level cache once: copied, summed and added to the parity there.

mod bytes;
mod decode;

pub use bytes::{Bytes, BytesMut};
pub use decode::Part;

use super::epochs::Epochs;
use super::geometry::{Geometry, BLOCK};
use super::inverse::Inverse;
use super::parity::xor;
use super::planted::{self, Bug};
use super::sums::{stride, BlockPlace, ObjectId, Stamp, Sum, SUM};
use polyduct_copy::{Dest, Kernels};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use std::ops::Range;
use std::sync::Arc;

/// Blocks of each chunk that are worked on together: those of some chunks fit the second-level cache.
const PIECE: usize = 8;
/// Bytes of a block that are fetched while the one before it is worked on. It lies in another chunk, where
/// the processor does not see it coming; the rest it does.
const AHEAD: usize = 2 << 10;

/// Codes the rows of one object.
pub struct Rows {
    geometry: Geometry,
    of: ObjectId,
    stamp: Stamp,
    /// Of which what is read must be.
    epochs: Arc<Epochs>,
    planted: Option<Bug>,
    kernels: Kernels,
    encoder: Option<ReedSolomonEncoder>,
    /// For the few chunks that are lost at a time; else the decoder.
    inverse: Option<Inverse>,
    decoder: Option<ReedSolomonDecoder>,
}

impl Rows {
    /// For the rows of an object; `stamp` is that of the store's epoch, for rows that are written.
    pub fn new(geometry: Geometry, of: ObjectId, stamp: impl Into<Stamp>) -> Rows {
        Rows {
            geometry,
            of,
            stamp: stamp.into(),
            epochs: Arc::default(),
            planted: planted::of_process(),
            kernels: Kernels::detect(),
            encoder: None,
            inverse: None,
            decoder: None,
        }
    }

    /// The same with a bug in it, which does nothing but with the feature `planted`.
    pub(super) fn plant(self, bug: Option<Bug>) -> Rows {
        Rows { planted: bug, ..self }
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        planted::has(self.planted, bug)
    }

    /// How the store is cut.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The object whose rows these are.
    pub fn object(&self) -> u64 {
        self.of.object
    }

    /// What is read and was written apart from these epochs is damaged.
    pub fn know(&mut self, epochs: Arc<Epochs>) {
        self.epochs = epochs;
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.geometry.chunk_blocks() as usize * BLOCK
    }

    /// Bytes of the entries that a unit has with a chunk.
    pub fn sum_bytes(&self) -> usize {
        self.geometry.chunk_blocks() as usize * stride(self.geometry)
    }

    fn home(&self, row: u64, chunk: usize, at: usize) -> BlockPlace {
        // A process that writes beyond what files can hold is told by the system; here the number only has to
        // be the same each time.
        let block = row.wrapping_mul(self.geometry.chunk_blocks().into()).wrapping_add(at as u64);
        BlockPlace { of: self.of, chunk: chunk as u32, block }.summed(self.planted)
    }

    /// Encodes a row: `data` are its bytes, and zeros where there are fewer than a row has. `parts` are the
    /// chunks in order, data before parity, each with its entries; they are written whole.
    ///
    /// # Panics
    /// With parts of other sizes or numbers than the geometry has.
    pub fn encode(&mut self, row: u64, data: Bytes<'_>, parts: &mut [(&mut [u8], &mut [u8])]) {
        let g = self.geometry;
        let (k, chunk, each) = (g.data() as usize, self.chunk_bytes(), stride(g));
        assert_eq!(parts.len(), g.units() as usize, "parts of a row");
        assert!(parts.iter().all(|(c, s)| c.len() == chunk && s.len() == self.sum_bytes()), "sizes of parts");
        parts.iter_mut().for_each(|(_, sums)| sums.fill(0));
        let blocks = g.chunk_blocks() as usize;
        for first in (0..blocks).step_by(PIECE) {
            let piece = first..(first + PIECE).min(blocks);
            let bytes = piece.start * BLOCK..piece.end * BLOCK;
            for at in piece.clone() {
                let block = at * BLOCK..(at + 1) * BLOCK;
                for c in 0..k {
                    let from = c * chunk + block.start;
                    let (next, start) = if c + 1 < k { (c + 1, block.start) } else { (0, block.end) };
                    data.part(next * chunk + start..next * chunk + start + AHEAD).source().prefetch();
                    if let Some(place) = parts[next].0.get_mut(start..start + AHEAD) {
                        Dest::from(place).prefetch();
                    }
                    let to = &mut parts[c].0[block.clone()];
                    let some = data.part(from..from + BLOCK);
                    if some.len() < BLOCK {
                        to[some.len()..].fill(0);
                    }
                    // A block holds what it is given.
                    let copied = self.kernels.memcpy((&mut *to).into(), some.source());
                    debug_assert!(copied.is_ok());
                    self.enter(row, c, at, each, parts);
                    // While the block is in the first-level cache.
                    if let (data, [(sum, _)]) = parts.split_at_mut(k) {
                        match c {
                            0 => sum[block.clone()].copy_from_slice(&data[c].0[block.clone()]),
                            _ => xor(&mut sum[block.clone()], &data[c].0[block.clone()]),
                        }
                    }
                }
            }
            let (data, parity) = parts.split_at_mut(k);
            if parity.len() > 1 {
                self.reed_solomon(data, parity, bytes);
            }
            for p in k..parts.len() {
                for at in piece.clone() {
                    self.enter(row, p, at, each, parts);
                }
            }
        }
    }

    /// Writes the entry of a block down: in its own part and, if it is of data, with each parity.
    fn enter(&self, row: u64, chunk: usize, at: usize, each: usize, parts: &mut [(&mut [u8], &mut [u8])]) {
        let k = self.geometry.data() as usize;
        let block = parts[chunk].0[at * BLOCK..].first_chunk::<BLOCK>();
        let Some(block) = block else { return };
        let sum = Sum::of(self.home(row, chunk, at), self.stamp, block).to_bytes();
        parts[chunk].1[at * each..at * each + SUM].copy_from_slice(&sum);
        if chunk < k {
            let place = at * each + SUM * (1 + chunk);
            parts[k..].iter_mut().for_each(|(_, sums)| sums[place..place + SUM].copy_from_slice(&sum));
        }
    }

    fn reed_solomon(
        &mut self,
        data: &[(&mut [u8], &mut [u8])],
        parity: &mut [(&mut [u8], &mut [u8])],
        bytes: Range<usize>,
    ) {
        let counts = "counts within 128 and whole blocks are supported";
        let encoder = match &mut self.encoder {
            Some(encoder) => {
                encoder.reset(data.len(), parity.len(), bytes.len()).expect(counts);
                encoder
            }
            none => {
                none.insert(ReedSolomonEncoder::new(data.len(), parity.len(), bytes.len()).expect(counts))
            }
        };
        data.iter().for_each(|(chunk, _)| encoder.add_original_shard(&chunk[bytes.clone()]).expect(counts));
        let out = encoder.encode().expect(counts);
        for ((chunk, _), made) in parity.iter_mut().zip(out.recovery_iter()) {
            chunk[bytes.clone()].copy_from_slice(made);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parity::encode;
    use super::*;

    fn of(object: u64) -> ObjectId {
        ObjectId { store: [7; 16], object }
    }

    fn bytes(n: usize, seed: usize) -> Vec<u8> {
        (0..n).map(|i| ((i * 7 + seed * 31) ^ (i >> 9)) as u8).collect()
    }

    /// What a row becomes: its parts as vectors.
    fn encoded(rows: &mut Rows, row: u64, data: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let n = rows.geometry.units() as usize;
        let mut parts = vec![(vec![9; rows.chunk_bytes()], vec![9; rows.sum_bytes()]); n];
        let mut refs: Vec<_> = parts.iter_mut().map(|(c, s)| (&mut c[..], &mut s[..])).collect();
        rows.encode(row, Bytes::Own(data), &mut refs);
        parts
    }

    const CODES: [(u32, u32, u64); 7] =
        [(1, 0, 1), (3, 0, 2), (1, 1, 1), (2, 1, 9), (4, 1, 3), (4, 2, 10), (3, 3, 1)];

    #[test]
    fn rows_are_encoded_as_words_are() {
        for (k, m, chunk) in CODES {
            let g = Geometry::new(k, m, chunk * BLOCK as u64).unwrap();
            let mut rows = Rows::new(g, of(5), 3);
            let data = bytes((g.row_blocks() as usize - 1) * BLOCK + 100, 1);
            let parts = encoded(&mut rows, 7, &data);
            for at in 0..chunk as usize {
                let block = |c: usize| -> Box<[u8; BLOCK]> {
                    let from = (c * chunk as usize + at) * BLOCK;
                    let mut block = Box::new([0; BLOCK]);
                    let some = data.get(from..).unwrap_or(&[]);
                    let n = some.len().min(BLOCK);
                    block[..n].copy_from_slice(&some[..n]);
                    block
                };
                let mut word: Vec<_> = (0..k as usize).map(block).collect();
                let parity = encode(g, &word.iter().map(|b| &**b).collect::<Vec<_>>());
                word.extend(parity);
                for (c, block) in word.iter().enumerate() {
                    assert!(parts[c].0[at * BLOCK..(at + 1) * BLOCK] == block[..], "{k}+{m} {c} {at}");
                    let home = BlockPlace { of: of(5), chunk: c as u32, block: 7 * chunk + at as u64 };
                    let sum = Sum::of(home, 3.into(), block).to_bytes();
                    assert_eq!(parts[c].1[at * stride(g)..][..SUM], sum);
                    let copies = parts[k as usize..].iter().filter(|_| c < k as usize);
                    copies.for_each(|p| assert_eq!(p.1[at * stride(g) + SUM * (1 + c)..][..SUM], sum));
                }
            }
        }
    }

    #[test]
    fn what_is_lost_is_computed_and_what_is_damaged_is_said() {
        for (k, m, chunk) in CODES {
            let g = Geometry::new(k, m, chunk * BLOCK as u64).unwrap();
            let mut rows = Rows::new(g, of(1), 1);
            let data = bytes((g.row_blocks() as usize - 1) * BLOCK + 77, 2);
            let parts = encoded(&mut rows, 3, &data);
            for lost in 0_u32..1 << g.units() {
                let some: Vec<Option<Part>> = parts
                    .iter()
                    .enumerate()
                    .map(|(i, (chunk, sums))| (lost >> i & 1 == 0).then_some(Part { chunk, sums }))
                    .collect();
                let mut got = vec![1; data.len()];
                let bad = rows.decode(3, &some, BytesMut::Own(&mut got));
                let data_lost = (lost & ((1 << k) - 1)).count_ones() > 0;
                let enough = lost.count_ones() <= m;
                assert_eq!(bad.is_empty(), enough || !data_lost, "{k}+{m} {lost:b} {bad:?}");
                assert!(!bad.is_empty() || got == data, "{k}+{m} {lost:b}");
            }
            // One flipped bit anywhere, with all units there and with one of them lost.
            for i in 0..parts.len() {
                for (at, of_sums) in [(5, false), (rows.chunk_bytes() - 1, false), (2, true)] {
                    let mut parts = parts.clone();
                    let (chunk_of, sums_of) = &mut parts[i];
                    let byte = if of_sums { &mut sums_of[at] } else { &mut chunk_of[at] };
                    *byte ^= 1 << 3;
                    for lost in [None, Some((i + 1) % parts.len())].into_iter().filter(|l| *l != Some(i)) {
                        let some: Vec<Option<Part>> = (0..parts.len())
                            .map(|u| {
                                (Some(u) != lost).then_some(Part { chunk: &parts[u].0, sums: &parts[u].1 })
                            })
                            .collect();
                        let mut got = vec![1; data.len()];
                        let bad = rows.decode(3, &some, BytesMut::Own(&mut got));
                        for (n, block) in data.chunks(BLOCK).enumerate() {
                            let word = (n % chunk as usize) as u32;
                            let same = got[n * BLOCK..][..block.len()] == *block;
                            assert!(
                                same || bad.contains(&word),
                                "{k}+{m}: {i} at {at}, {lost:?} lost, block {n}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_of_another_place_object_or_time_is_not_taken() {
        let g = Geometry::new(2, 1, BLOCK as u64).unwrap();
        let data = bytes(2 * BLOCK, 4);
        let parts = encoded(&mut Rows::new(g, of(1), 1), 0, &data);
        let some: Vec<_> = parts.iter().map(|(chunk, sums)| Some(Part { chunk, sums })).collect();
        let mut got = vec![0; data.len()];
        assert!(Rows::new(g, of(1), 9).decode(0, &some, BytesMut::Own(&mut got)).is_empty());
        assert_eq!(Rows::new(g, of(2), 1).decode(0, &some, BytesMut::Own(&mut got)), [0]);
        assert_eq!(Rows::new(g, of(1), 1).decode(1, &some, BytesMut::Own(&mut got)), [0]);
        let elsewhere = ObjectId { store: [8; 16], ..of(1) };
        assert_eq!(Rows::new(g, elsewhere, 1).decode(0, &some, BytesMut::Own(&mut got)), [0]);
    }
}
