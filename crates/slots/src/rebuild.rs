//! The control state made anew out of what the units know of themselves: where it lies in one unit's own
//! memory, it is gone with that unit. A writer knows what it has published and what lies in its slots, a
//! reader what it has released and which step it is at.
//!
//! The lost unit's part of the steps is gone with it, as that of every unit whose position is not known.
//! Those that some reader lacks count as published by it, and are written again.

use super::geometry::{ring_len, Sizes};
use super::lossy::{Word, FILLING, FREE, VISIBLE};
use super::{Begin, Next, Slots, Turn, MAX_STEP, NEXT};
use polyduct_os::sync::Ordering;
use polyduct_port::{Side, UnitName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// What is known of a unit.
#[derive(Clone, Debug)]
pub struct Position {
    /// The unit.
    pub unit: UnitName,
    /// Its process: see [`Slots::process`]. A start time of zero says that it never joined.
    pub process: (u32, u64),
    /// Where it stands; of one that is gone nobody may know.
    pub stands: Option<Stands>,
}

/// Where a unit stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stands {
    /// The step at which its process began: not 0 where it replaced another.
    pub from: u64,
    /// Steps that it has published, skipped or released, with those before that one.
    pub done: u64,
    /// What it was told of the next, where it is at it: a writer fills a slot or drops the step, a reader
    /// reads, or knows that there is none.
    pub granted: Option<Granted>,
    /// Where steps are dropped. Of a writer: what it published last in each slot. Of a reader: the steps that
    /// it took last, as many as there are slots, the newest last, up to the one that it is at.
    pub turns: Vec<Turn>,
    /// Of a writer: what it said of its last steps in [numbers](Slots::bring), one for each slot.
    pub brought: Vec<(Turn, Vec<u64>)>,
    /// It has closed.
    pub closed: bool,
}

/// What a unit was told of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Granted {
    /// A writer.
    Begin(Begin),
    /// A reader.
    Next(Next),
}

impl Stands {
    /// Steps that it has done or is at.
    fn begun(&self) -> u64 {
        self.done.saturating_add(u64::from(self.granted.is_some() && !self.has_all()))
    }

    /// A reader took a step of a queue of so many slots.
    pub fn takes(&mut self, turn: Turn, depth: usize) {
        self.turns.push(turn);
        let old = self.turns.len().saturating_sub(depth);
        self.turns.drain(..old);
    }

    /// A writer said these numbers of a step that it is about to publish.
    pub fn brings(&mut self, turn: Turn, said: &[u64]) {
        self.brought.retain(|(before, _)| before.slot != turn.slot);
        self.brought.push((turn, said.to_vec()));
    }

    /// A writer published a step.
    pub fn publishes(&mut self, turn: Turn) {
        self.turns.retain(|before| before.slot != turn.slot);
        self.turns.push(turn);
    }

    /// Whether it is a reader that has read every step.
    pub fn has_all(&self) -> bool {
        self.granted == Some(Granted::Next(Next::End))
    }
}

type Units<'a> = Vec<(UnitName, Option<&'a Stands>)>;

impl Slots {
    /// The control state of a pipe whose units are `positions`, each of them once. Gives also the step before
    /// which every writer that is not there has published, though nobody has what it published: such a one
    /// begins with the [first that is needed](Slots::first_needed) of them.
    ///
    /// Where steps are dropped, a writer that fills a slot again may find that step dropped meanwhile.
    ///
    /// `None`: these cannot be positions in one stream.
    pub fn rebuild(sizes: Sizes, positions: &[Position]) -> Option<(Slots, u64)> {
        let slots = Slots::on_heap(sizes);
        let stands = positions.iter().filter_map(|p| p.stands.as_ref());
        let steps = stands.map(|stands| stands.begun().max(stands.from));
        if slots.sizes().are_open() || steps.max().unwrap_or(0) > MAX_STEP {
            return None;
        }
        for p in positions {
            slots.join(p.unit, p.process, 0);
        }
        let side = |is_writer: bool| -> Units<'_> {
            let its = positions.iter().filter(|p| (p.unit.side == Side::Writer) == is_writer);
            its.map(|p| (p.unit, p.stands.as_ref())).collect()
        };
        let (writers, readers) = (side(true), side(false));
        let published = match slots.is_lossy() {
            false => slots.rebuild_block(&writers, &readers),
            true => slots.rebuild_lossy(&writers, &readers),
        }?;
        for (unit, stands) in readers.into_iter().chain(writers) {
            match (stands.filter(|stands| stands.has_all()), unit.side) {
                (Some(stands), Side::Reader(program)) if slots.is_lossy() => slots.end(program, stands.done),
                _ => {}
            }
            match (stands.filter(|stands| stands.closed), unit.side) {
                (None, _) => {}
                // The others of its program may have yet to hear of the end, though a writer has to close
                // anew.
                (Some(stands), Side::Reader(_)) if stands.has_all() => slots.leave(unit),
                (Some(stands), Side::Reader(program)) => slots.close_reader(program, unit.unit, stands.done),
                (Some(stands), Side::Writer) => drop(slots.close_writer(unit.unit, stands.done)),
            }
        }
        Some((slots, published))
    }

    fn set_next(&self, unit: UnitName, next: u64) {
        self.unit_line(unit).w[NEXT].store(next, Ordering::Relaxed);
    }

    /// Plays the last rounds again, from one on in which all sets are empty.
    fn rebuild_block(&self, writers: &Units<'_>, readers: &Units<'_>) -> Option<u64> {
        let depth = u64::from(self.sizes().depth);
        // A step is begun with when all readers have the one before it in its slot.
        let begun = writers.iter().chain(readers).filter_map(|unit| Some(unit.1?.begun())).max().unwrap_or(0);
        // Nor does a writer begin with one behind what they have.
        let from = writers.iter().filter_map(|w| Some(w.1?.from)).max().unwrap_or(0);
        let floor = begun.saturating_sub(depth).max(from);
        let has_left = |stands: &Option<&Stands>| stands.is_some_and(|s| s.closed && !s.has_all());
        let stays: HashSet<Side> = readers.iter().filter(|r| !has_left(&r.1)).map(|r| r.0.side).collect();
        let there: Vec<(UnitName, u64)> = readers
            .iter()
            .filter(|r| stays.contains(&r.0.side))
            .map(|(unit, stands)| (*unit, stands.map_or(floor, |s| s.done)))
            .collect();
        let shown = readers.iter().filter_map(|r| Some(r.1?.begun())).chain([floor]).max()?;
        let slowest = there.iter().map(|r| r.1).min().unwrap_or(shown);
        let reached = |stands: Option<&Stands>| stands.map_or(shown, |s| s.done.max(shown));
        let end = writers.iter().map(|w| reached(w.1)).max()?;
        if begun.max(end) > slowest + depth {
            return None;
        }
        let base = slowest / (2 * depth) * (2 * depth);
        for slot in 0..self.sizes().depth {
            let shown = (base + u64::from(slot) + 1).saturating_sub(depth);
            let shown = if base == 0 { 0 } else { shown };
            self.line(self.geometry.slot(slot)).w[0].store(shown, Ordering::Relaxed);
            for program in 0..self.sizes().programs() {
                let uses = &self.line(self.geometry.released(program, slot)).w[0];
                uses.store(base / depth, Ordering::Relaxed);
            }
        }
        writers.iter().for_each(|w| self.set_next(w.0, base));
        readers.iter().for_each(|r| self.set_next(r.0, r.1.map_or(base, |s| s.done)));
        there.iter().for_each(|r| self.set_next(r.0, base));
        for step in base..end {
            let turn = self.block_turn(step);
            for (unit, _) in writers.iter().filter(|w| reached(w.1) > step) {
                self.publish(unit.unit, turn);
            }
            for (unit, _) in there.iter().filter(|r| r.1 > step) {
                let Side::Reader(program) = unit.side else { continue };
                self.release(program, unit.unit, step, turn);
            }
        }
        Some(shown)
    }

    /// What some reader unit holds is there for all of its program; of the rest, which lies in the slots of
    /// the writers, each program may have what is newer than what it took last.
    fn rebuild_lossy(&self, writers: &Units<'_>, readers: &Units<'_>) -> Option<u64> {
        let depth = self.sizes().depth;
        let fits = |turn: &Turn| turn.slot < depth && turn.step < MAX_STEP;
        let mut words = vec![Word::new(FREE, false, 0, 0, 0); depth as usize];
        let mut newest = vec![None; self.sizes().programs() as usize];
        let mut takes = Vec::new();
        for program in 0..self.sizes().programs() {
            let its = readers.iter().filter(|r| r.0.side == Side::Reader(program));
            let its: Vec<(UnitName, &Stands)> = its.filter_map(|(unit, s)| Some((*unit, (*s)?))).collect();
            // Others of its program may have yet to take what one that has read all has taken.
            let takes_part = || its.iter().filter(|(_, s)| !s.closed || s.has_all());
            let mut taken = BTreeMap::new();
            for (_, stands) in takes_part() {
                for (k, turn) in (0..stands.begun()).rev().zip(stands.turns.iter().rev()) {
                    let same = |other: &Turn| (other.step, other.slot) == (turn.step, turn.slot);
                    if !fits(turn) || !same(taken.entry(k).or_insert(*turn)) {
                        return None;
                    }
                }
            }
            newest[program as usize] = taken.values().map(|turn: &Turn| turn.step).max();
            let last = takes_part().map(|(_, s)| s.begun()).max().unwrap_or(0);
            let first = its.iter().filter(|(_, s)| !s.closed).map(|(_, s)| s.done).min().unwrap_or(last);
            let all = readers.iter().filter(|r| r.0.side == Side::Reader(program));
            all.for_each(|(unit, stands)| self.set_next(*unit, stands.map_or(first, |s| s.done)));
            if last - first > ring_len(depth) {
                return None;
            }
            for k in first..last {
                let turn = taken.get(&k)?;
                let (word, bit) = (&mut words[turn.slot as usize], 1 << program);
                let is_free = word.state() == FREE;
                if !is_free && word.step() != turn.step || word.pins() & bit != 0 {
                    return None;
                }
                *word = Word::new(VISIBLE, false, word.pending() | bit, word.pins() | bit, turn.step);
                takes.push((program, k, turn.slot));
            }
        }
        let known: Vec<(&UnitName, &Stands)> = writers.iter().filter_map(|(u, s)| Some((u, (*s)?))).collect();
        let shown = newest.iter().flatten().max().map_or(0, |newest| newest + 1);
        let end = known.iter().map(|(_, s)| s.begun()).max().unwrap_or(0).max(shown);
        // A unit that is farther behind fills again what was published before.
        let behind = known.iter().map(|(_, s)| s.done).min().unwrap_or(0);
        let published = behind.max(shown).max(end.saturating_sub(ring_len(depth)));
        let filling = |s: &Stands| match s.granted {
            Some(Granted::Begin(Begin::Fill(turn))) => Some(Turn { step: s.done, ..turn }),
            _ => None,
        };
        for turn in known.iter().flat_map(|(_, s)| s.turns.iter().copied().chain(filling(s))) {
            if !fits(&turn) || turn.step >= end {
                return None;
            }
            let word = &mut words[turn.slot as usize];
            let lies = |t: &Turn| (t.step, t.slot) == (turn.step, turn.slot);
            let drops = |s: &Stands| s.done == turn.step && s.granted == Some(Granted::Begin(Begin::Drop));
            let has = |s: &Stands| s.done <= turn.step && !drops(s) || s.turns.iter().any(lies);
            let is_newer = word.state() == FREE || word.step() < turn.step;
            if word.pins() != 0 || !is_newer || !known.iter().all(|(_, s)| has(s)) {
                continue;
            }
            let lacks = |p: &usize| newest[*p].is_none_or(|newest| newest < turn.step);
            let pending = (0..newest.len()).filter(lacks).fold(0, |bits, p| bits | 1 << p);
            *word = match turn.step < published {
                true if pending == 0 => continue,
                true => Word::new(VISIBLE, false, pending, 0, turn.step),
                false => Word::new(FILLING, true, 0, 0, turn.step),
            };
        }
        for (slot, word) in (0..).zip(&mut words) {
            if word.pins() != 0 {
                let lacks = |p: &usize| newest[*p].is_none_or(|newest| newest < word.step());
                let pending = (0..newest.len()).filter(lacks).fold(word.pending(), |bits, p| bits | 1 << p);
                *word = Word::new(VISIBLE, false, pending, word.pins(), word.step());
            }
            self.line(self.geometry.slot(slot)).w[0].store(word.0, Ordering::Relaxed);
        }
        for step in end.saturating_sub(ring_len(depth))..end {
            let slot = (0..).zip(&words).find(|(_, w)| w.state() == FILLING && w.step() == step);
            let fill = |(slot, _)| Begin::Fill(Turn { step, slot, sense: true, uses: 0 });
            self.decide(step, slot.map_or(Begin::Drop, fill));
        }
        for (unit, stands) in writers {
            let done = stands.map_or(published, |s| s.done.max(published));
            self.set_next(*unit, done);
            for (slot, _) in (0..).zip(&words).filter(|(_, w)| w.state() == FILLING && w.step() < done) {
                self.geometry.arrivals(slot).arrive(self.lines(), unit.unit, true);
            }
        }
        for (program, k, slot) in takes {
            self.take(program, k, slot, words[slot as usize]);
        }
        for (unit, stands) in readers {
            let (Side::Reader(program), Some(stands)) = (unit.side, stands) else { continue };
            for k in 0..stands.done.min(ring_len(depth)) {
                let k = stands.done - 1 - k;
                if let Some(turn) = self.taken(program, k) {
                    self.done(program, turn.slot, unit.unit).arrive(self.lines(), unit.unit, turn.sense);
                }
            }
        }
        Some(published)
    }
}

#[cfg(test)]
mod tests;
