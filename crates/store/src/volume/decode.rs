//! Decodes a word from what its units have.
//!
//! Any unit may have a wrong block, a wrong checksum, or an old pair of both that agree with each other: as
//! many units as parity makes up for, and all of them the same old word, so that the newest is what fewer
//! have. Where that is so, either a parity unit is right, and its copies are the entries of the word's data;
//! or none is, and all data are right. So there is one explanation for each parity unit, and one more. It
//! counts if the units that agree with it in everything give blocks of which all entries are, and if nothing
//! that any unit has is newer: what says that something newer was written is never given up for what is
//! older. A flipped bit cannot make anything newer, since neither a block nor a parity is of it.

use super::geometry::{Geometry, BLOCK};
use super::parity::{complete, Block};
use super::sums::Sum;

/// Sets of parity blocks from which the missing data of one explanation are computed, at most.
const TRIES: usize = 1 << 10;

/// A word as the units have it. What a unit does not have is none.
pub struct Found {
    /// Of each chunk its block.
    pub blocks: Vec<Option<Block>>,
    /// Of each chunk its unit's own entry.
    pub own: Vec<Option<Sum>>,
    /// Of each parity chunk the entries of all data chunks.
    pub copies: Vec<Option<Vec<Sum>>>,
}

impl Found {
    /// What a chunk's unit has does not count.
    pub fn forget(&mut self, geometry: Geometry, chunk: usize) {
        (self.blocks[chunk], self.own[chunk]) = (None, None);
        if let Some(copies) = chunk.checked_sub(geometry.data() as usize).and_then(|p| self.copies.get_mut(p))
        {
            *copies = None;
        }
    }
}

/// All blocks of the word, the entries of its data, and which chunks were right.
pub type Decoded = (Vec<Block>, Vec<Sum>, Vec<bool>);

/// Whether an entry is of a block of a chunk.
type Fits<'a> = &'a dyn Fn(usize, Sum, &[u8; BLOCK]) -> bool;

/// Whether it is certain that this store has written what an entry is of.
type Known<'a> = &'a dyn Fn(Sum) -> bool;

/// A word, and which of its chunks are right in themselves.
struct Word<'a> {
    geometry: Geometry,
    found: &'a Found,
    sound: Vec<bool>,
    fits: Fits<'a>,
}

/// Decodes a word. `fits` says whether an entry is of a block of a chunk; `known`, whether it is certain that
/// this store has written that: where units speak against each other, what is newest has to be.
///
/// # Errors
/// The chunks that are in doubt: more than parity makes up for.
pub fn decode(
    geometry: Geometry,
    found: &Found,
    fits: Fits<'_>,
    known: Known<'_>,
) -> Result<Decoded, Vec<usize>> {
    let (data, units) = (geometry.data() as usize, geometry.units() as usize);
    let sound = |c: usize| match (&found.blocks[c], found.own[c]) {
        (Some(block), Some(own)) => fits(c, own, block) && (c < data || found.copies[c - data].is_some()),
        _ => false,
    };
    let word = Word { geometry, found, sound: (0..units).map(sound).collect(), fits };
    let all_own: Option<Vec<Sum>> = (0..data).map(|c| word.own(c)).collect();
    let mut tried: Vec<Vec<Sum>> = Vec::new();
    let mut best: Option<(u64, Decoded)> = None;
    for entries in
        all_own.into_iter().chain((data..units).filter_map(|p| word.copies(p)).map(<[Sum]>::to_vec))
    {
        if tried.contains(&entries) {
            continue;
        }
        if let Some((blocks, good)) = word.explain(&entries) {
            let newest = entries.iter().map(|sum| u64::from(sum.generation)).sum();
            if best.as_ref().is_none_or(|(n, _)| newest > *n) {
                best = Some((newest, (blocks, entries.clone(), good)));
            }
        }
        tried.push(entries);
    }
    let newest = best
        .map(|(_, decoded)| decoded)
        .filter(|decoded| word.is_newest(decoded) && word.is_certain(decoded, known));
    newest.ok_or_else(|| word.doubtful())
}

impl<'a> Word<'a> {
    fn units(&self) -> usize {
        self.sound.len()
    }

    fn data(&self) -> usize {
        self.geometry.data() as usize
    }

    /// The entry of a data chunk that is right in itself.
    fn own(&self, c: usize) -> Option<Sum> {
        self.found.own[c].filter(|_| self.sound[c])
    }

    /// What a parity chunk that is right in itself has of the data's entries.
    fn copies(&self, p: usize) -> Option<&'a [Sum]> {
        self.found.copies[p - self.data()].as_deref().filter(|_| self.sound[p])
    }

    /// All blocks, and which chunks are right, if these are the entries of the data.
    fn explain(&self, entries: &[Sum]) -> Option<(Vec<Block>, Vec<bool>)> {
        let data = self.data();
        let agrees = |c: usize| match c < data {
            true => self.own(c) == Some(entries[c]),
            false => self.copies(c) == Some(entries),
        };
        let mut good: Vec<bool> = (0..self.units()).map(agrees).collect();
        let missing: Vec<usize> = (0..data).filter(|&c| !good[c]).collect();
        let parity: Vec<usize> = (data..self.units()).filter(|&p| good[p]).collect();
        let mut tries = 0;
        let mut made = None;
        // The first set gives them, but where a parity unit has a write of its entries and not that of its
        // block.
        subsets(&parity, missing.len(), &mut Vec::new(), &mut |with| {
            tries += 1;
            let used = |c: usize| good[c] && (c < data || with.contains(&c));
            let some = (0..self.units()).map(|c| self.found.blocks[c].clone().filter(|_| used(c)));
            made = complete(self.geometry, &some.collect::<Vec<_>>())
                .filter(|blocks| missing.iter().all(|&c| (self.fits)(c, entries[c], &blocks[c])));
            made.is_none() && tries < TRIES
        });
        let blocks = made?;
        // Parity that is right is what the data give.
        for p in parity {
            good[p] = self.found.blocks[p].as_ref() == Some(&blocks[p]);
        }
        Some((blocks, good))
    }

    /// Whether no unit knows of anything newer, or of something else that is as new. Of a parity unit whose
    /// block is what these data give, only entries are not as they were.
    fn is_newest(&self, (blocks, entries, _): &Decoded) -> bool {
        let newer = |found: Sum, c: usize| found != entries[c] && found.generation >= entries[c].generation;
        (0..self.units()).all(|c| match c < self.data() {
            true => self.own(c).is_none_or(|own| !newer(own, c)),
            false => {
                let same = self.found.blocks[c].as_ref() == Some(&blocks[c]);
                same || self.copies(c).is_none_or(|copies| !(0..).zip(copies).any(|(d, &sum)| newer(sum, d)))
            }
        })
    }

    /// Whether all units say the same of each chunk, or what is taken for the newest of it is certainly this
    /// store's.
    fn is_certain(&self, (_, entries, _): &Decoded, known: Known<'_>) -> bool {
        let same = |c: usize| {
            let parity = (self.data()..self.units()).filter_map(|p| self.copies(p));
            self.own(c).is_none_or(|own| own == entries[c])
                && parity.into_iter().all(|of| of[c] == entries[c])
        };
        (0..self.data()).all(|c| same(c) || known(entries[c]))
    }

    /// The chunks that are not right in themselves, or that others speak against.
    fn doubtful(&self) -> Vec<usize> {
        let parity = || (self.data()..self.units()).filter_map(|p| self.copies(p));
        let doubted = |c: usize| match c < self.data() {
            true => self.own(c).is_none_or(|own| parity().any(|copies| copies[c] != own)),
            false => self.copies(c).is_none_or(|copies| {
                let by_data = (0..self.data()).any(|d| self.own(d).is_some_and(|own| own != copies[d]));
                by_data || parity().any(|others| others != copies)
            }),
        };
        (0..self.units()).filter(|&c| doubted(c)).collect()
    }
}

/// All sets of so many of these, until `each` gives false.
fn subsets(of: &[usize], n: usize, set: &mut Vec<usize>, each: &mut dyn FnMut(&[usize]) -> bool) -> bool {
    if n == 0 {
        return each(set);
    }
    (0..of.len()).all(|i| {
        set.push(of[i]);
        let go_on = subsets(&of[i + 1..], n - 1, set, each);
        set.pop();
        go_on
    })
}
