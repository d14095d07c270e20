//! Single blocks of an object that others may be changing: read past the system's cache, all units at once,
//! and checked.
//!
//! A block is taken when its unit's entry is of it and every unit that has a copy of the entry has the same
//! one. So what lacks a change that was agreed, is being changed, or is damaged, is never taken: whoever
//! reads goes by way of the protocol then.

use super::disks::{read_up_to, Disks};
use super::requests::Files;
use crate::volume::epochs::Epochs;
use crate::volume::sums::{agreed, stride, BlockPlace, ObjectId, Sum, SUM};
use crate::volume::units::{Cause, UnitError};
use crate::volume::{Geometry, BLOCK};
use polyduct_os::aligned::Aligned;
use polyduct_os::threads;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Blocks between two that are wanted which are read rather than left out: a request more costs as much.
const GAP: u64 = 3;
/// The same for entries, which are small and come out of the system's cache.
const SUM_GAP: u64 = 64;
/// Units are asked one after the other for fewer blocks than these.
const FEW: usize = 32;

/// The blocks of an object on the disks.
pub struct Blocks {
    geometry: Geometry,
    of: ObjectId,
    epochs: Arc<Epochs>,
    files: Vec<Option<Files>>,
    /// Units that the protocol does not use.
    lost: Vec<AtomicBool>,
}

/// Stretches of words of a unit's files, and where each lies in memory.
#[derive(Default)]
struct Stretches {
    /// First word, how many, and how many lie before them.
    list: Vec<(u64, u64, u64)>,
}

impl Stretches {
    fn of(words: &[u64], gap: u64, list: &mut Vec<(u64, u64, u64)>) {
        list.clear();
        for &word in words {
            match list.last_mut() {
                Some((first, n, _)) if word <= *first + *n + gap => *n = (*n).max(word + 1 - *first),
                last => {
                    let before = last.map_or(0, |(_, n, before)| *n + *before);
                    list.push((word, 1, before));
                }
            }
        }
    }

    fn len(&self) -> usize {
        self.list.last().map_or(0, |(_, n, before)| n + before) as usize
    }

    /// Where a word lies that is in one of them.
    fn place(&self, word: u64) -> usize {
        let at = self.list.partition_point(|(first, ..)| *first <= word).saturating_sub(1);
        self.list.get(at).map_or(0, |(first, _, before)| before + word.saturating_sub(*first)) as usize
    }
}

/// What is wanted of a unit, and what it has.
#[derive(Default)]
struct OfUnit {
    /// Of which words a block is wanted: the word, the chunk, and which of the blocks it is.
    wanted: Vec<(u64, u32, usize)>,
    /// Of which words entries are wanted.
    words: Vec<u64>,
    data: Stretches,
    sums: Stretches,
    blocks: Aligned,
    entries: Vec<u8>,
    /// Whether each of `wanted` is the block that its entry is of.
    right: Vec<bool>,
    failed: bool,
}

/// Memory of one call, for the next one.
#[derive(Default)]
pub struct Memory {
    units: Vec<OfUnit>,
    /// Of each block: its unit, and which it is there.
    places: Vec<Option<(u32, usize)>>,
}

impl Memory {
    /// One of the blocks that were read last; none where it could not be had.
    pub fn block(&self, index: usize) -> Option<&[u8; BLOCK]> {
        let (unit, n) = (*self.places.get(index)?)?;
        let of = self.units.get(unit as usize)?;
        of.block(of.wanted.get(n)?.0)
    }
}

impl OfUnit {
    fn clear(&mut self) {
        self.wanted.clear();
        self.words.clear();
        self.right.clear();
        self.failed = false;
    }

    fn block(&self, word: u64) -> Option<&[u8; BLOCK]> {
        self.blocks.as_slice().get(self.data.place(word) * BLOCK..)?.first_chunk()
    }

    /// The entry of a word at a place in what the unit has of it.
    fn entry(&self, word: u64, each: usize, place: usize) -> Sum {
        Sum::from_bytes(self.entries.get(self.sums.place(word) * each + place..).unwrap_or_default())
    }

    /// Reads what is wanted, and checks the blocks.
    fn fetch(&mut self, files: &Files, object: ObjectId, each: usize) {
        self.words.sort_unstable();
        self.words.dedup();
        let data: Vec<u64> = self.wanted.iter().map(|&(word, ..)| word).collect();
        Stretches::of(&data, GAP, &mut self.data.list);
        Stretches::of(&self.words, SUM_GAP, &mut self.sums.list);
        // Where there is no memory, whoever wants a block reads it by itself, and is told if that cannot be
        // either.
        if !self.make_room(each) || self.read(files, each).is_err() {
            self.failed = true;
            return;
        }
        for &(word, chunk, _) in &self.wanted {
            let sum = self.entry(word, each, 0);
            let home = BlockPlace { of: object, chunk, block: word };
            let right = self.block(word).is_some_and(|block| sum.is_of(home, block));
            self.right.push(right);
        }
    }

    fn make_room(&mut self, each: usize) -> bool {
        let entries = self.sums.len() * each;
        let more = entries.saturating_sub(self.entries.len());
        let there =
            self.blocks.resize(self.data.len() * BLOCK).is_ok() && self.entries.try_reserve(more).is_ok();
        if there {
            self.entries.resize(entries, 0);
        }
        there
    }

    fn read(&mut self, files: &Files, each: usize) -> std::io::Result<()> {
        let memories = [
            (&files.data, &self.data, self.blocks.as_mut_slice(), BLOCK),
            (&files.sums, &self.sums, &mut self.entries[..], each),
        ];
        for (file, stretches, bytes, size) in memories {
            for &(first, n, before) in &stretches.list {
                let place = &mut bytes[before as usize * size..][..n as usize * size];
                let read = read_up_to(file, place, first * size as u64)?;
                // What is not there was never written.
                place[read..].fill(0);
            }
        }
        Ok(())
    }
}

impl Blocks {
    /// For an object, on the units that are not `lost`. What was written apart from these epochs is not
    /// taken.
    ///
    /// # Errors
    /// What the system refuses this process.
    pub fn open(
        disks: &Disks,
        geometry: Geometry,
        object: ObjectId,
        lost: &[u32],
        epochs: Arc<Epochs>,
    ) -> Result<Blocks, UnitError> {
        let files = |unit| match lost.contains(&unit) {
            true => Ok(None),
            false => match Files::open(disks, unit, object.object, false) {
                Err(e) if matches!(e.cause, Cause::Caller(_)) => Err(e),
                // One that fails here is asked by way of the protocol, which finds out what is the matter
                // with it.
                opened => Ok(opened.ok()),
            },
        };
        Ok(Blocks {
            geometry,
            of: object,
            epochs,
            files: (0..geometry.units()).map(files).collect::<Result<_, _>>()?,
            lost: (0..geometry.units()).map(|unit| AtomicBool::new(lost.contains(&unit))).collect(),
        })
    }

    /// These units are not to be used any more.
    pub fn lose(&self, units: impl Iterator<Item = u32>) {
        units.for_each(|unit| self.lost[unit as usize].store(true, Ordering::Relaxed));
    }

    /// Whether a unit is not to be used.
    pub fn is_lost(&self, unit: u32) -> bool {
        self.lost[unit as usize].load(Ordering::Relaxed)
    }

    /// Units that are not to be used.
    pub fn lost(&self) -> Vec<u32> {
        (0..self.geometry.units()).filter(|&unit| self.is_lost(unit)).collect()
    }

    /// The epochs of the store, as far as they were known.
    pub fn epochs(&self) -> Arc<Epochs> {
        Arc::clone(&self.epochs)
    }

    /// The object.
    pub fn object(&self) -> u64 {
        self.of.object
    }

    fn files(&self, unit: u32) -> Option<&Files> {
        self.files[unit as usize].as_ref().filter(|_| !self.is_lost(unit))
    }

    /// Reads blocks, whose numbers rise, into memory.
    pub fn read(&self, blocks: &[u64], memory: &mut Memory) {
        let g = self.geometry;
        let each = stride(g);
        memory.units.resize_with(g.units() as usize, OfUnit::default);
        memory.units.iter_mut().for_each(OfUnit::clear);
        memory.places.clear();
        for (index, &block) in blocks.iter().enumerate() {
            let place = g.place(block);
            let unit = g.unit(place.row, place.chunk);
            let word = g.unit_block(place.row, place.at).filter(|_| self.files(unit).is_some());
            memory.places.push(word.map(|_| (unit, memory.units[unit as usize].wanted.len())));
            let Some(word) = word else { continue };
            memory.units[unit as usize].wanted.push((word, place.chunk, index));
            memory.units[unit as usize].words.push(word);
            for unit in self.witnesses(place.row) {
                memory.units[unit as usize].words.push(word);
            }
        }
        let asked = memory.units.iter().filter(|of| !of.words.is_empty()).count();
        let most = if blocks.len() > FEW { asked } else { 1 };
        threads::each(most, memory.units.iter_mut().zip(&self.files), |(of, files)| match files {
            _ if of.words.is_empty() => {}
            Some(files) => of.fetch(files, self.of, each),
            None => of.failed = true,
        });
        let units = &memory.units;
        for (place, &block) in memory.places.iter_mut().zip(blocks) {
            let Some((unit, n)) = *place else { continue };
            let (of, row) = (&units[unit as usize], g.place(block).row);
            let good = of.right.get(n).zip(of.wanted.get(n)).is_some_and(|(&right, &(word, chunk, _))| {
                // What failed has no entry.
                let copy = |unit: u32| match &units[unit as usize] {
                    of if of.failed => Sum::default(),
                    of => of.entry(word, each, SUM * (1 + chunk as usize)),
                };
                let all = std::iter::once(of.entry(word, each, 0)).chain(self.witnesses(row).map(copy));
                right && agreed(all, |sum| !self.epochs.is_apart(sum.stamp())).is_some()
            });
            if !good {
                *place = None;
            }
        }
    }

    /// The units that have copies of the entries of a row's data.
    fn witnesses(&self, row: u64) -> impl Iterator<Item = u32> + '_ {
        let g = self.geometry;
        (g.data()..g.units()).map(move |chunk| g.unit(row, chunk)).filter(|&unit| !self.is_lost(unit))
    }
}
