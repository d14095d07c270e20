//! Places of everything in the control segment: a pure function of the pipe's sizes, computed alike by every
//! unit.
//!
//! Each entry has cache lines of its own, so that units which do not wait for each other do not share one.

use super::bits::Bits;
use polyduct_os::sync::IS_MODEL;
use polyduct_port::{Policy, MAX_DEPTH, MAX_PROGRAMS, MAX_UNITS};
use std::ops::Range;

/// Places of reader programs that come and go, and the units that each has room for. Models of the protocol
/// look at every word.
const PLACES: (u32, u32) = if IS_MODEL { (1, 1) } else { (MAX_PROGRAMS, MAX_UNITS) };

/// Lines for why a unit gave up.
pub(super) const REASON_LINES: usize = if IS_MODEL { 1 } else { 10 };

/// The sizes of one pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Units of the writer program, 1 to [`MAX_UNITS`].
    pub writers: u32,
    /// Units of each reader program, each 1 to [`MAX_UNITS`]; 1 to [`MAX_PROGRAMS`] programs. None: so many
    /// programs of so many units [come and go](super::places), under [`Policy::Latest`].
    pub readers: Vec<u32>,
    /// Slots of each writer unit, 1 to [`MAX_DEPTH`].
    pub depth: u32,
    /// What happens when all slots are full.
    pub policy: Policy,
    /// Numbers that each writer unit says of each step, at most [`MAX_WORDS`] of all units together: see
    /// [`Slots::bring`](super::Slots::bring).
    pub words: u32,
}

/// The most numbers that all writer units say of a step.
pub const MAX_WORDS: u64 = 1 << 16;

impl Sizes {
    /// Whether every size lies within its limit.
    pub fn in_limits(&self) -> bool {
        let units = |n: u32| (1..=MAX_UNITS).contains(&n);
        units(self.writers)
            && (1..=MAX_DEPTH).contains(&self.depth)
            && self.readers.len() <= MAX_PROGRAMS as usize
            && self.readers.iter().all(|&n| units(n))
            && (self.policy == Policy::Latest || !self.are_open())
            && u64::from(self.words) * u64::from(self.writers) <= MAX_WORDS
    }

    /// Whether reader programs come and go.
    pub fn are_open(&self) -> bool {
        self.readers.is_empty()
    }

    /// The reader programs that there are, or places for them.
    pub fn programs(&self) -> u32 {
        if self.are_open() {
            PLACES.0
        } else {
            self.readers.len() as u32
        }
    }

    /// The units that a reader program has, or that its place has room for.
    fn room(&self, program: u32) -> u32 {
        self.readers.get(program as usize).copied().unwrap_or(PLACES.1)
    }
}

/// Line indices of everything in the control segment.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// The sizes that the rest follows from.
    pub sizes: Sizes,
    slots: usize,
    writer_units: usize,
    arrivals: usize,
    writer_ring: usize,
    brought: usize,
    reasons: usize,
    programs: Vec<Program>,
    total: usize,
}

#[derive(Clone, Debug)]
struct Program {
    line: usize,
    released: usize,
    units: usize,
    done: usize,
    closed: usize,
    ring: usize,
}

/// Lines 0 to 2: faults and the end; the bell that readers sleep at; the bell that writers sleep at.
pub const GLOBAL: usize = 0;
/// See [`GLOBAL`].
pub const PUBLISHED: usize = 1;
/// See [`GLOBAL`].
pub const FREED: usize = 2;

impl Geometry {
    /// Lays out the control segment for sizes that are [in their limits](Sizes::in_limits).
    pub fn new(sizes: Sizes) -> Geometry {
        debug_assert!(sizes.in_limits());
        let depth = sizes.depth as usize;
        let mut next = FREED + 1;
        let mut take = |lines: usize| {
            let at = next;
            next += lines;
            at
        };
        let ring_len = if sizes.policy == Policy::Block { 0 } else { ring_len(sizes.depth) as usize };
        let slots = take(depth);
        let writer_units = take(sizes.writers as usize);
        let arrivals = take(depth * Bits::lines(sizes.writers));
        let writer_ring = take(ring_len);
        let brought = take(depth * brought_lines(&sizes));
        let reasons = take(REASON_LINES * if sizes.are_open() { 1 + PLACES.0 as usize } else { 1 });
        let programs = (0..sizes.programs())
            .map(|program| sizes.room(program))
            .map(|n| Program {
                line: take(1),
                released: take(depth),
                units: take(n as usize),
                done: take(depth * Bits::lines(n)),
                closed: take(Bits::lines(n)),
                ring: take(ring_len),
            })
            .collect();
        let total = next;
        Geometry { slots, writer_units, arrivals, writer_ring, brought, reasons, programs, total, sizes }
    }

    /// Lines of the whole control segment.
    pub fn lines(&self) -> usize {
        self.total
    }

    /// The line of a slot.
    pub fn slot(&self, slot: u32) -> usize {
        self.slots + slot as usize
    }

    /// The line of a writer unit.
    pub fn writer(&self, unit: u32) -> usize {
        self.writer_units + unit as usize
    }

    /// The arrival set of the writers in a slot.
    pub fn arrivals(&self, slot: u32) -> Bits {
        let n = self.sizes.writers;
        Bits::new(self.arrivals + slot as usize * Bits::lines(n), n)
    }

    /// The line that says what became of the writers' attempt `step` (lossy policies).
    pub fn decision(&self, step: u64) -> usize {
        self.writer_ring + (step % ring_len(self.sizes.depth)) as usize
    }

    /// Line and word of the `word`-th number that a writer unit says of the step in a slot.
    pub fn brought(&self, slot: u32, unit: u32, word: u32) -> (usize, usize) {
        let index = unit as usize * self.sizes.words as usize + word as usize;
        let line = self.brought + slot as usize * brought_lines(&self.sizes) + index / WORDS;
        (line, index % WORDS)
    }

    /// The line with the faults of the whole pipe, or of a reader program that comes and goes.
    pub fn fault(&self, place: Option<u32>) -> usize {
        place.map_or(GLOBAL, |program| self.program(program))
    }

    /// The lines that say why the unit of such a fault gave up.
    pub fn reason(&self, place: Option<u32>) -> Range<usize> {
        let first = self.reasons + REASON_LINES * place.map_or(0, |program| 1 + program as usize);
        first..first + REASON_LINES
    }

    /// The line of a reader program.
    pub fn program(&self, program: u32) -> usize {
        self.programs[program as usize].line
    }

    /// The line that counts how often a program has released a slot.
    pub fn released(&self, program: u32, slot: u32) -> usize {
        self.programs[program as usize].released + slot as usize
    }

    /// The line of a reader unit.
    pub fn reader(&self, program: u32, unit: u32) -> usize {
        self.programs[program as usize].units + unit as usize
    }

    /// The set of those of a program's `units` that have finished with a slot.
    pub fn done(&self, program: u32, slot: u32, units: u32) -> Bits {
        let room = Bits::lines(self.sizes.room(program));
        Bits::new(self.programs[program as usize].done + slot as usize * room, units)
    }

    /// The set of those of a program's `units` that have closed.
    pub fn closed(&self, program: u32, units: u32) -> Bits {
        Bits::new(self.programs[program as usize].closed, units)
    }

    /// All lines of a reader program that speak of it alone.
    pub fn place(&self, program: u32) -> Range<usize> {
        let next = self.programs.get(program as usize + 1).map_or(self.total, |next| next.line);
        self.programs[program as usize].line..next
    }

    /// The line that says which slot a program takes as its step number `take` (lossy policies).
    pub fn take(&self, program: u32, take: u64) -> usize {
        self.programs[program as usize].ring + (take % ring_len(self.sizes.depth)) as usize
    }
}

/// Words of a line that are used for numbers.
pub(super) const WORDS: usize = 7;

/// Lines for the numbers that all writer units say of a step.
fn brought_lines(sizes: &Sizes) -> usize {
    (sizes.words as usize * sizes.writers as usize).div_ceil(WORDS)
}

/// Entries of a decision ring: how far the first unit of a program may run ahead of its last.
pub fn ring_len(depth: u32) -> u64 {
    2 * u64::from(depth) + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_entries_share_a_line() {
        for policy in [Policy::Block, Policy::Latest] {
            let sizes = Sizes { writers: 65, readers: vec![1, 3, 200], depth: 3, policy, words: 2 };
            let g = Geometry::new(sizes);
            let mut seen = vec![GLOBAL, PUBLISHED, FREED];
            seen.extend((0..3).map(|s| g.slot(s)).chain((0..65).map(|u| g.writer(u))));
            seen.extend(g.reason(None));
            let mut words: Vec<_> = (0..3 * 65 * 2).map(|i| g.brought(i / 130, i / 2 % 65, i % 2)).collect();
            words.dedup();
            assert_eq!(words.len(), 3 * 65 * 2);
            seen.extend(words.into_iter().map(|(line, _)| line).collect::<std::collections::BTreeSet<_>>());
            for p in 0..3 {
                seen.push(g.program(p));
                seen.extend((0..3).map(|s| g.released(p, s)));
                seen.extend((0..g.sizes.readers[p as usize]).map(|u| g.reader(p, u)));
                if policy == Policy::Latest {
                    seen.extend((0..ring_len(3)).map(|k| g.take(p, k)));
                }
            }
            if policy == Policy::Latest {
                seen.extend((0..ring_len(3)).map(|k| g.decision(k)));
            }
            assert!(seen.iter().all(|&l| l < g.lines()));
            let n = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), n);
        }
    }
}
