//! Runs of words: read at once, checked, made good. What scrubbing and rebuilding go along.
//!
//! The words of an object lie in each unit's file one after the other, over all rows: a run of them is one
//! request to each file.

use super::decode::Found;
use super::error::VolumeError;
use super::geometry::{BlockInRow, BLOCK, MAX_UNIT_BLOCKS};
use super::state::Members;
use super::sums::{stride, Sum, SUM};
use super::units::{Done, File, Request, UnitError, Units};
use super::words::Word;
use super::Volume;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Words that are read at once, at most: 256 KiB of each unit.
const SPAN: u64 = 64;

/// A word: its object, and its block in the file of each unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cursor {
    /// The object.
    pub object: u64,
    /// The block in each unit's file.
    pub block: u64,
}

/// How far it is, in words: each is a block of every unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Words that are done.
    pub done: u64,
    /// Words in all, of what has a name now.
    pub total: u64,
    /// Words that were left as they are: too much of them is damaged.
    pub damaged: u64,
    /// Nothing is left to do.
    pub finished: bool,
}

/// Some words of an object that follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub first: Cursor,
    pub words: u64,
}

/// The named objects, and how many words each has.
#[derive(Debug)]
pub(super) struct Extents(BTreeMap<u64, u64>);

impl Extents {
    /// The words from a cursor on that can be done at once, at most so many, and where to go on.
    pub fn next(&self, from: Cursor, most: u64) -> Option<(Span, Cursor)> {
        let mut rest = self.0.range(from.object..);
        let (first, left) = rest.find_map(|(&object, &words)| {
            let block = if object == from.object { from.block } else { 0 };
            words.checked_sub(block).filter(|&left| left > 0).map(|left| (Cursor { object, block }, left))
        })?;
        let words = left.min(SPAN).min(most.max(1));
        Some((Span { first, words }, Cursor { block: first.block + words, ..first }))
    }

    /// How far a cursor is.
    pub fn progress(&self, at: Cursor) -> Progress {
        let done = |(&object, &words): (&u64, &u64)| match object.cmp(&at.object) {
            std::cmp::Ordering::Less => words,
            std::cmp::Ordering::Equal => words.min(at.block),
            std::cmp::Ordering::Greater => 0,
        };
        let finished = self.next(at, 1).is_none();
        let sum = |words: &mut dyn Iterator<Item = u64>| words.fold(0, u64::saturating_add);
        let (done, total) = (sum(&mut self.0.iter().map(done)), sum(&mut self.0.values().copied()));
        Progress { done, total, damaged: 0, finished }
    }
}

/// What came of a run of words.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// The units whose blocks were read.
    pub asked: Members,
    /// Words of which some was damaged, and is written anew on these units.
    pub rewritten: Vec<(Cursor, Vec<u32>)>,
    /// What was damaged and could not be written anew, and why: the units are used as before.
    pub failed: Vec<UnitError>,
    /// Words of which too much is damaged.
    pub damaged: Vec<Cursor>,
    /// The first of them, as its first block.
    pub beyond: Option<VolumeError>,
}

impl<U: Units> Volume<U> {
    /// The words of all named objects with numbers below `end`.
    pub(super) fn extents(&self, end: u64) -> Extents {
        let mut extents = BTreeMap::new();
        for entry in self.names.values().filter(|entry| entry.object < end) {
            let words = self.words_of(entry.blocks);
            extents
                .entry(entry.object)
                .and_modify(|most: &mut u64| *most = words.max(*most))
                .or_insert(words);
        }
        Extents(extents)
    }

    /// The words of so many blocks of an object, named or not.
    pub(super) fn extent_of(&self, object: u64, blocks: u64) -> Extents {
        Extents(BTreeMap::from([(object, self.words_of(blocks))]))
    }

    /// The words of so many blocks of data: rows are always whole.
    fn words_of(&self, blocks: u64) -> u64 {
        let chunk = u64::from(self.geometry.chunk_blocks());
        blocks.div_ceil(self.geometry.row_blocks()).saturating_mul(chunk).min(MAX_UNIT_BLOCKS)
    }

    /// Reads a run of words, makes good what of it is damaged, and writes the blocks of the units `onto`,
    /// which hold nothing that counts.
    ///
    /// # Errors
    /// [`VolumeError::TooManyLost`], [`VolumeError::Full`]. Words of which too much is damaged are none.
    pub(super) fn restore(&mut self, span: Span, onto: &[u32]) -> Result<Checked, VolumeError> {
        let g = self.geometry;
        let found = self.find_span(span)?;
        if self.lost().count() > g.parity() as usize {
            return Err(self.too_many());
        }
        let asked = Members::of(g.units(), |unit| self.roll.is_read(unit));
        let mut checked = Checked { asked, ..Checked::default() };
        let mut writes: Vec<Run> = onto.iter().map(|&unit| Run::new(unit, span.first)).collect();
        for (block, mut found) in (span.first.block..).zip(found) {
            let (row, at) = self.row_of(block);
            onto.iter().for_each(|&unit| found.forget(g, g.chunk(row, unit) as usize));
            let home = self.home(span.first.object, BlockInRow { row, chunk: 0, at })?;
            let word = match self.check_word(home, &found) {
                Ok((word, good)) => {
                    let repaired = self.repair(row, &found, &good, &word, home, onto)?;
                    checked.failed.extend(repaired.failed);
                    if !repaired.written.is_empty() {
                        checked.rewritten.push((Cursor { block, ..span.first }, repaired.written));
                    }
                    Some(word)
                }
                Err(chunks) => {
                    let first = row * g.row_blocks() + u64::from(at);
                    let beyond = || self.damaged(span.first.object, first, row, &chunks);
                    checked.beyond.get_or_insert_with(beyond);
                    checked.damaged.push(Cursor { block, ..span.first });
                    None
                }
            };
            for run in &mut writes {
                let chunk = g.chunk(row, run.unit);
                match &word {
                    Some(word) => run.push(block, &word.blocks[chunk as usize][..], &self.line(chunk, word)),
                    None => run.push_sums(&self.known(chunk, &found)),
                }
            }
        }
        let mut batch = Vec::new();
        for run in writes {
            for file in [File::Data(span.first.object), File::Sums(span.first.object)] {
                self.dirty.insert((run.unit, file));
            }
            batch.extend(run.requests(stride(g)));
        }
        self.run(batch)?;
        Ok(checked)
    }

    /// Of units that have written a word anew, durably: those that do not have it as it should be.
    pub(super) fn not_made_good(&mut self, word: Cursor, units: &[u32]) -> Result<Vec<u32>, VolumeError> {
        let (row, at) = self.row_of(word.block);
        let home = self.home(word.object, BlockInRow { row, chunk: 0, at })?;
        let found = self.find_word(home, row, true)?;
        let damaged = match self.check_word(home, &found) {
            Ok((word, good)) => self.damaged_of(row, &found, &good, &word),
            Err(_) => units.to_vec(),
        };
        let is_bad = |unit: &u32| damaged.contains(unit) || !self.roll.is_read(*unit);
        Ok(units.iter().copied().filter(is_bad).collect())
    }

    /// The row of a block of a unit's file, and its place in the chunk.
    fn row_of(&self, block: u64) -> (u64, u32) {
        let chunk = u64::from(self.geometry.chunk_blocks());
        (block / chunk, (block % chunk) as u32)
    }

    /// All that a unit has of a word's entries.
    fn line(&self, chunk: u32, word: &Word) -> Vec<u8> {
        let mut line = vec![0; stride(self.geometry)];
        for (to, sum) in self.lines(chunk, &word.sums, &|_| true) {
            line[to..to + SUM].copy_from_slice(&sum.to_bytes());
        }
        line
    }

    /// What a unit can say of a word that cannot be read. Its own block is nothing; but if it is of parity it
    /// must not speak against those data that are right.
    fn known(&self, chunk: u32, found: &Found) -> Vec<u8> {
        let mut line = vec![0; stride(self.geometry)];
        if chunk >= self.geometry.data() {
            for (c, entry) in found.own[..self.geometry.data() as usize].iter().enumerate() {
                let to = SUM * (1 + c);
                line[to..to + SUM].copy_from_slice(&entry.unwrap_or_default().to_bytes());
            }
        }
        line
    }

    /// Asks all units for what they have of a run of words.
    fn find_span(&mut self, span: Span) -> Result<Vec<Found>, VolumeError> {
        let g = self.geometry;
        let (each, words, object) = (stride(g), span.words as usize, span.first.object);
        let both = [(File::Data(object), BLOCK), (File::Sums(object), each)];
        let files: Vec<(u32, File, usize)> =
            (0..g.units()).flat_map(|unit| both.map(|(file, len)| (unit, file, len))).collect();
        let read = |&(unit, file, len): &(u32, File, usize), first: usize, words: usize| {
            let at = (span.first.block + first as u64) * len as u64;
            Request::Read { unit, file, at, len: words * len }
        };
        let answers = self.run_reads(files.iter().map(|of| read(of, 0, words)).collect())?;
        // Of a run that cannot be read as a whole only that is missing which cannot be read alone.
        let mut alone: BTreeMap<usize, Vec<Option<Vec<u8>>>> = BTreeMap::new();
        for (i, of) in files.iter().enumerate() {
            if answers[i].is_none() && self.roll.is_read(of.0) {
                alone.insert(i, self.run_reads((0..words).map(|word| read(of, word, 1)).collect())?);
            }
        }
        let part = |i: usize, word: usize, len: usize| match (&answers[i], alone.get(&i)) {
            (Some(bytes), _) => {
                let from = word * len;
                Some(&bytes[bytes.len().min(from)..bytes.len().min(from + len)])
            }
            (None, Some(words)) => words[word].as_deref(),
            (None, None) => None,
        };
        let word = |i: usize| {
            let (row, _) = self.row_of(span.first.block + i as u64);
            let mut found = Found { blocks: Vec::new(), own: Vec::new(), copies: Vec::new() };
            for chunk in 0..g.units() {
                let unit = g.unit(row, chunk) as usize;
                let block = part(2 * unit, i, BLOCK);
                found.blocks.push(block.and_then(|b| Box::<[u8]>::from(b).try_into().ok()));
                let sums = part(2 * unit + 1, i, each);
                let entry = |i: usize| sums.map(|s| Sum::from_bytes(s.get(i * SUM..).unwrap_or(&[])));
                found.own.push(entry(0));
                if chunk >= g.data() {
                    found.copies.push((1..=g.data() as usize).map(entry).collect());
                }
            }
            self.forget_apart(&mut found);
            found
        };
        Ok((0..words).map(word).collect())
    }

    fn run_reads(&mut self, batch: Vec<Request>) -> Result<Vec<Option<Vec<u8>>>, VolumeError> {
        let bytes = |done| match done {
            Some(Done::Bytes(bytes)) => Some(bytes),
            _ => None,
        };
        Ok(self.run(batch)?.into_iter().map(bytes).collect())
    }
}

/// What a unit is to be given of a run of words: blocks in pieces, with gaps where nothing is known.
struct Run {
    unit: u32,
    first: Cursor,
    blocks: Vec<(u64, Vec<u8>)>,
    sums: Vec<u8>,
}

impl Run {
    fn new(unit: u32, first: Cursor) -> Run {
        Run { unit, first, blocks: Vec::new(), sums: Vec::new() }
    }

    fn push(&mut self, at: u64, block: &[u8], sums: &[u8]) {
        match self.blocks.last_mut() {
            Some((from, bytes)) if *from + (bytes.len() / BLOCK) as u64 == at => bytes.extend(block),
            _ => self.blocks.push((at, block.to_vec())),
        }
        self.push_sums(sums);
    }

    fn push_sums(&mut self, sums: &[u8]) {
        self.sums.extend(sums);
    }

    fn requests(self, each: usize) -> impl Iterator<Item = Request> {
        let Run { unit, first, blocks, sums } = self;
        let data = blocks.into_iter().map(move |(at, bytes)| {
            let (file, at) = (File::Data(first.object), at * BLOCK as u64);
            Request::Write { unit, file, at, bytes }
        });
        let (file, at) = (File::Sums(first.object), first.block * each as u64);
        data.chain([Request::Write { unit, file, at, bytes: sums }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_are_met_once_in_any_steps() {
        let extents = Extents(BTreeMap::from([(0, 3), (2, 0), (5, 150), (9, 1)]));
        for most in [0, 1, 2, 64, 1000] {
            let (mut at, mut seen) = (Cursor::default(), Vec::new());
            while let Some((span, next)) = extents.next(at, most) {
                assert_eq!(extents.progress(at).done, seen.len() as u64);
                assert!(span.words <= SPAN.min(most.max(1)) && next > at);
                seen.extend((0..span.words).map(|i| (span.first.object, span.first.block + i)));
                at = next;
            }
            let want: Vec<(u64, u64)> =
                [(0, 3), (5, 150), (9, 1)].iter().flat_map(|&(o, n)| (0..n).map(move |b| (o, b))).collect();
            assert_eq!(seen, want, "{most}");
            assert_eq!(extents.progress(at), Progress { done: 154, total: 154, damaged: 0, finished: true });
        }
    }
}
