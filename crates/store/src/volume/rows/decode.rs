//! Checks what was read of a row, and computes what is lost of it.

use super::{BytesMut, Rows, PIECE};
use crate::volume::geometry::BLOCK;
use crate::volume::inverse::Inverse;
use crate::volume::parity::xor;
use crate::volume::sums::{agreed, stride, Stamp, Sum, SUM};
use reed_solomon_simd::ReedSolomonDecoder;
use std::ops::Range;
use std::sync::Arc;

/// What one unit has of a row, as it was read: its chunk and the entries of it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Of [`Rows::chunk_bytes`].
    pub chunk: &'a [u8],
    /// Of [`Rows::sum_bytes`].
    pub sums: &'a [u8],
}

impl Rows {
    /// Checks what was read of a row and copies its data, as many as fit, to `to`. `parts` are the chunks in
    /// order; none are those of units that are lost. Gives the places in the chunk of the words for which
    /// this was not enough: something is damaged, lost twice, or being changed. Their bytes in `to` mean
    /// nothing.
    ///
    /// # Panics
    /// With parts of other sizes or numbers than the geometry has.
    pub fn decode(&mut self, row: u64, parts: &[Option<Part<'_>>], mut to: BytesMut<'_>) -> Vec<u32> {
        let g = self.geometry;
        let (k, chunk, blocks) = (g.data() as usize, self.chunk_bytes(), g.chunk_blocks() as usize);
        assert_eq!(parts.len(), g.units() as usize, "parts of a row");
        let sizes = |p: &Part<'_>| p.chunk.len() == chunk && p.sums.len() == self.sum_bytes();
        assert!(parts.iter().flatten().all(sizes), "sizes of parts");
        let end = to.len();
        let wanted = |c: usize, at: usize| c * chunk + at * BLOCK < end;
        let lost: Vec<usize> = (0..k).filter(|&c| parts[c].is_none() && wanted(c, 0)).collect();
        let (mut bad, epochs) = (Vec::new(), Arc::clone(&self.epochs));
        // Mostly all of a row was written at once.
        let mut ours = Stamp::default();
        let mut is_ours = |sum: Sum| {
            let is = sum.stamp() == ours || !epochs.is_apart(sum.stamp());
            ours = if is { sum.stamp() } else { ours };
            is
        };
        // A word is good when every block that is used has the entry that all who know it agree on.
        for at in 0..blocks {
            let used = |c: usize| c < k && wanted(c, at) || !lost.is_empty();
            let mut good = || {
                (0..k).filter(|&c| wanted(c, at)).all(|c| self.entry(parts, c, at, &mut is_ours).is_some())
                    && (0..parts.len()).filter(|&c| used(c)).all(|c| self.is_right(row, parts, c, at))
            };
            if !good() {
                bad.push(at as u32);
                continue;
            }
            for (c, part) in parts[..k].iter().enumerate() {
                if let Some(part) = part.filter(|_| wanted(c, at)) {
                    let from = c * chunk + at * BLOCK;
                    let mut place = to.part(from..from + BLOCK);
                    let n = place.len();
                    let copied =
                        self.kernels.memcpy(place.dest(), part.chunk[at * BLOCK..at * BLOCK + n].into());
                    debug_assert!(copied.is_ok());
                }
            }
        }
        if !lost.is_empty() {
            self.restore(row, parts, &lost, &mut to, &mut bad);
        }
        bad
    }

    /// The entry of a data block.
    fn entry(
        &self,
        parts: &[Option<Part<'_>>],
        c: usize,
        at: usize,
        counts: impl FnOnce(Sum) -> bool,
    ) -> Option<Sum> {
        let (k, each) = (self.geometry.data() as usize, stride(self.geometry));
        let entry = |part: &Part<'_>, place: usize| Sum::from_bytes(&part.sums[at * each + place..][..SUM]);
        let own = parts[c].as_ref().map(|part| entry(part, 0));
        agreed(
            own.into_iter().chain(parts[k..].iter().flatten().map(|part| entry(part, SUM * (1 + c)))),
            counts,
        )
    }

    /// Whether the block of a part, if there is one, is that of its own entry.
    fn is_right(&self, row: u64, parts: &[Option<Part<'_>>], c: usize, at: usize) -> bool {
        let Some(part) = parts[c] else { return true };
        let sum = Sum::from_bytes(&part.sums[at * stride(self.geometry)..][..SUM]);
        let block = part.chunk[at * BLOCK..].first_chunk::<BLOCK>();
        block.is_some_and(|block| sum.is_of(self.home(row, c, at), block))
    }

    /// Computes the chunks that are lost from the others.
    fn restore(
        &mut self,
        row: u64,
        parts: &[Option<Part<'_>>],
        lost: &[usize],
        to: &mut BytesMut<'_>,
        bad: &mut Vec<u32>,
    ) {
        let g = self.geometry;
        let (k, chunk, blocks) = (g.data() as usize, self.chunk_bytes(), g.chunk_blocks() as usize);
        let all_bad = |bad: &mut Vec<u32>| *bad = (0..blocks as u32).collect();
        // Also those of the row's end, which nobody wants.
        let missing: Vec<usize> = (0..k).filter(|&c| parts[c].is_none()).collect();
        if missing.len() > parts[k..].iter().flatten().count() {
            return all_bad(bad);
        }
        let mut made = vec![0; lost.len() * PIECE * BLOCK];
        for first in (0..blocks).step_by(PIECE) {
            let piece = first..(first + PIECE).min(blocks);
            let bytes = piece.start * BLOCK..piece.end * BLOCK;
            let len = bytes.len();
            match (&missing[..], &parts[k..]) {
                ([_], [Some(sum)]) => {
                    let made = &mut made[..len];
                    made.copy_from_slice(&sum.chunk[bytes.clone()]);
                    parts[..k].iter().flatten().for_each(|p| xor(made, &p.chunk[bytes.clone()]));
                }
                _ => {
                    if self.solve(parts, (&missing, lost), bytes, &mut made).is_none() {
                        return all_bad(bad);
                    }
                }
            }
            for (i, &c) in lost.iter().enumerate() {
                for at in piece.clone() {
                    let block = made[i * len + (at - first) * BLOCK..].first_chunk::<BLOCK>();
                    let right = |block: &[u8; BLOCK]| {
                        // Whether it counts was asked with the rest of the word.
                        let entry = self.entry(parts, c, at, |_| true);
                        entry.is_some_and(|sum| sum.is_of(self.home(row, c, at), block))
                    };
                    let from = c * chunk + at * BLOCK;
                    let mut place = to.part(from..from + BLOCK);
                    let n = place.len();
                    match block.filter(|block| n == 0 || right(block)) {
                        Some(block) => drop(self.kernels.memcpy(place.dest(), block[..n].into())),
                        None if !bad.contains(&(at as u32)) => bad.push(at as u32),
                        None => {}
                    }
                }
            }
        }
    }

    /// Reed-Solomon: the pieces of the lost chunks, one after the other.
    fn solve(
        &mut self,
        parts: &[Option<Part<'_>>],
        (missing, lost): (&[usize], &[usize]),
        bytes: Range<usize>,
        made: &mut [u8],
    ) -> Option<()> {
        let (g, k) = (self.geometry, self.geometry.data() as usize);
        let (m, len) = (parts.len() - k, bytes.len());
        let is_there = |p: usize| parts[k + p].is_some();
        if !self.inverse.as_ref().is_some_and(|inverse| inverse.is_for(missing, is_there)) {
            self.inverse = Inverse::new(g, missing, (0..m).filter(|&p| is_there(p)));
        }
        if let Some(inverse) = &self.inverse {
            static NOTHING: [u8; PIECE * BLOCK] = [0; PIECE * BLOCK];
            let shard = |i: usize| parts[i].map_or(&NOTHING[..len], |part| &part.chunk[bytes.clone()]);
            inverse.solve(
                g,
                (0..k).map(shard),
                |p| shard(k + p),
                |i, found| {
                    if let Some(at) = lost.iter().position(|&c| c == missing[i]) {
                        made[at * len..(at + 1) * len].copy_from_slice(found);
                    }
                },
            );
            return Some(());
        }
        let decoder = match &mut self.decoder {
            Some(decoder) => {
                decoder.reset(k, m, len).ok()?;
                decoder
            }
            none => none.insert(ReedSolomonDecoder::new(k, m, len).ok()?),
        };
        for (i, part) in parts.iter().enumerate().filter_map(|(i, p)| Some((i, p.as_ref()?))) {
            let shard = &part.chunk[bytes.clone()];
            match i < k {
                true => decoder.add_original_shard(i, shard).ok()?,
                false => decoder.add_recovery_shard(i - k, shard).ok()?,
            }
        }
        let out = decoder.decode().ok()?;
        for (i, &c) in lost.iter().enumerate() {
            made[i * len..(i + 1) * len].copy_from_slice(out.restored_original(c)?);
        }
        Some(())
    }
}
