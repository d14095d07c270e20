//! What a word was, from what its units have.
//!
//! Any unit may have a wrong block, a wrong checksum, or an old pair of both that agree with each other. So sets of units are
//! tried that may be the wrong ones, as many as parity makes up for: the others must agree with each other in everything, and
//! what they give for the doubtful ones must be what they know its checksum to be. Where several sets explain what was found,
//! the one counts with the newest data: a unit that lost a write has an older generation than those that know of it, and a
//! flipped bit cannot make a newer one that anything agrees with.

use super::geometry::{Geometry, BLOCK};
use super::parity::{complete, Block};
use super::sums::Sum;

/// Sets of units that are tried, at most.
const TRIES: usize = 1 << 14;

/// A word as the units have it. What a unit does not have is none.
pub struct Found {
    /// Of each chunk its block.
    pub blocks: Vec<Option<Block>>,
    /// Of each chunk its unit's own entry.
    pub own: Vec<Option<Sum>>,
    /// Of each parity chunk the entries of all data chunks.
    pub copies: Vec<Option<Vec<Sum>>>,
}

/// All blocks of the word, the entries of its data, and which chunks were right.
pub type Decoded = (Vec<Block>, Vec<Sum>, Vec<bool>);

/// Decodes a word. `fits` says whether an entry is of a block of a chunk.
///
/// # Errors
/// How many chunks are in doubt: more than parity makes up for.
pub fn decode(
    geometry: Geometry,
    found: &Found,
    fits: &dyn Fn(usize, Sum, &[u8; BLOCK]) -> bool,
) -> Result<Decoded, usize> {
    let (data, units) = (geometry.data() as usize, geometry.units() as usize);
    let sound = |c: usize| match (&found.blocks[c], found.own[c]) {
        (Some(block), Some(own)) => fits(c, own, block) && (c < data || found.copies[c - data].is_some()),
        _ => false,
    };
    let sound: Vec<bool> = (0..units).map(sound).collect();
    // Those that nothing speaks against need not be doubted.
    let copy = |p: usize, c: usize| found.copies[p].as_ref().map(|copies| copies[c]);
    let agrees = |p: usize, c: usize| copy(p, c) == found.own[c];
    let doubtful: Vec<usize> = (0..units)
        .filter(|&c| match c < data {
            _ if !sound[c] => false,
            true => (0..units - data).any(|p| !agrees(p, c)),
            false => (0..data).any(|d| !agrees(c - data, d)),
        })
        .collect();
    let wrong: Vec<usize> = (0..units).filter(|&c| !sound[c]).collect();
    let Some(more) = (geometry.parity() as usize).checked_sub(wrong.len()) else { return Err(wrong.len()) };
    let mut best: Option<(u64, Decoded)> = None;
    let mut tries = 0;
    let mut set = Vec::new();
    subsets(&doubtful, more, &mut set, &mut |set| {
        tries += 1;
        let good: Vec<bool> = (0..units).map(|c| sound[c] && !set.contains(&c)).collect();
        if let Some((blocks, sums)) = explain(geometry, found, &good, fits) {
            let newest = sums.iter().map(|sum| u64::from(sum.generation)).sum();
            // Smaller sets come first.
            if best.as_ref().is_none_or(|(n, _)| newest > *n) {
                best = Some((newest, (blocks, sums, good)));
            }
        }
        tries < TRIES
    });
    best.map(|(_, decoded)| decoded).ok_or(wrong.len() + doubtful.len())
}

/// All sets of up to `most` of these, smaller ones first, until `each` gives false.
fn subsets(of: &[usize], most: usize, set: &mut Vec<usize>, each: &mut dyn FnMut(&[usize]) -> bool) {
    fn of_size(of: &[usize], n: usize, set: &mut Vec<usize>, each: &mut dyn FnMut(&[usize]) -> bool) -> bool {
        if n == 0 {
            return each(set);
        }
        (0..of.len()).all(|i| {
            set.push(of[i]);
            let go_on = of_size(&of[i + 1..], n - 1, set, each);
            set.pop();
            go_on
        })
    }
    let _ = (0..=most.min(of.len())).all(|n| of_size(of, n, set, each));
}

/// The blocks, and the entries of the data, if these chunks are right and only these.
fn explain(
    geometry: Geometry,
    found: &Found,
    good: &[bool],
    fits: &dyn Fn(usize, Sum, &[u8; BLOCK]) -> bool,
) -> Option<(Vec<Block>, Vec<Sum>)> {
    let (data, units) = (geometry.data() as usize, geometry.units() as usize);
    let mut sums = Vec::with_capacity(data);
    for c in 0..data {
        let own = found.own[c].filter(|_| good[c]);
        let copies =
            (data..units).filter(|&p| good[p]).filter_map(|p| Some(found.copies[p - data].as_ref()?[c]));
        let mut all = own.into_iter().chain(copies);
        let sum = all.next()?;
        if all.any(|other| other != sum) {
            return None;
        }
        sums.push(sum);
    }
    let word: Vec<Option<Block>> =
        found.blocks.iter().zip(good).map(|(block, &good)| block.clone().filter(|_| good)).collect();
    let blocks = complete(geometry, &word)?;
    let right = (0..data).all(|c| good[c] || fits(c, sums[c], &blocks[c]));
    // Parity that is right is what the data give.
    let same = (data..units).all(|p| !good[p] || found.blocks[p].as_ref() == Some(&blocks[p]));
    (right && same).then_some((blocks, sums))
}
