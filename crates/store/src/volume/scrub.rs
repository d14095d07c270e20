//! All words of all named objects checked, and made good: data, parity, and every entry of the checksums.
//!
//! It goes in steps, between which the store may be used: the caller keeps a [`Scrub`] and says how many
//! words are next. What it writes anew counts as made good when the disk gives it back.

use super::error::VolumeError;
use super::span::{Cursor, Progress};
use super::units::Units;
use super::Volume;
use std::collections::{BTreeMap, BTreeSet};

/// Words that cannot be repaired and are named in a report, at most.
pub const LISTED: usize = 1024;
/// Words of which some was written anew, before that is read back.
const PENDING: usize = 4096;

/// How far a scrub is, and what it has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    at: Cursor,
    report: Report,
}

/// What a scrub has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Words that were checked.
    pub words: u64,
    /// Of each unit, how many blocks were checked: none where it was lost.
    pub checked: BTreeMap<u32, u64>,
    /// Of each unit, how many blocks were damaged and are made good: they were read back.
    pub repaired: BTreeMap<u32, u64>,
    /// Of each unit, how many blocks were damaged and are so still, and what the first of them came to: they
    /// could not be written anew, or the disk does not give back what was written.
    pub unrepaired: BTreeMap<u32, (u64, String)>,
    /// Words that cannot be repaired: too much of them is damaged or lost.
    pub damaged: u64,
    /// The first of them, up to [`LISTED`].
    pub listed: Vec<Cursor>,
}

impl Scrub {
    /// A scrub that begins at the first word.
    pub fn new() -> Scrub {
        Scrub::default()
    }

    /// A scrub that goes on where another was: its report begins anew.
    pub fn from(at: Cursor) -> Scrub {
        Scrub { at, report: Report::default() }
    }

    /// The next word.
    pub fn at(&self) -> Cursor {
        self.at
    }

    /// What was found until now.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl Report {
    fn not_made_good(&mut self, unit: u32, why: &str) {
        self.unrepaired.entry(unit).or_insert((0, why.to_owned())).0 += 1;
    }
}

impl<U: Units> Volume<U> {
    /// Checks the next so many words, and makes good what is damaged. The repairs are durable when this
    /// returns, and were read back. A unit that cannot write a block anew stays in use as it is; one that
    /// fails otherwise is [lost](Volume::lost), and the others are checked on. Objects that get a name
    /// meanwhile are met if the scrub has not passed them.
    ///
    /// # Errors
    /// [`VolumeError::TooManyLost`]; [`VolumeError::Full`] where there is no room to go on without a unit
    /// that was lost: the step may be taken again. What cannot be repaired is no error.
    pub fn scrub(&mut self, scrub: &mut Scrub, words: u64) -> Result<Progress, VolumeError> {
        let extents = self.extents(u64::MAX);
        let mut left = words.max(1);
        let mut pending = Vec::new();
        while let Some((span, after)) = extents.next(scrub.at, left) {
            let checked = self.restore(span, &[])?;
            let report = &mut scrub.report;
            report.words += span.words;
            for unit in (0..self.geometry.units()).filter(|&unit| checked.asked.has(unit)) {
                *report.checked.entry(unit).or_default() += span.words;
            }
            checked.failed.iter().for_each(|error| report.not_made_good(error.unit, &error.reason));
            report.damaged += checked.damaged.len() as u64;
            let room = LISTED.saturating_sub(report.listed.len());
            report.listed.extend(checked.damaged.into_iter().take(room));
            scrub.at = after;
            left -= span.words;
            pending.extend(checked.rewritten);
            if pending.len() >= PENDING {
                self.read_back(&mut scrub.report, std::mem::take(&mut pending))?;
            }
            if left == 0 {
                break;
            }
        }
        self.read_back(&mut scrub.report, pending)?;
        // The next process must know of a unit that was lost.
        self.mend(self.drawn)?;
        Ok(Progress { damaged: scrub.report.damaged, ..extents.progress(scrub.at) })
    }

    /// Makes durable what was written anew, and counts what is there then.
    fn read_back(&mut self, report: &mut Report, words: Vec<(Cursor, Vec<u32>)>) -> Result<(), VolumeError> {
        if words.is_empty() {
            return Ok(());
        }
        self.sync()?;
        for (word, units) in words {
            let bad: BTreeSet<u32> = self.not_made_good(word, &units)?.into_iter().collect();
            let good: Vec<u32> = units.into_iter().filter(|unit| !bad.contains(unit)).collect();
            good.iter().for_each(|&unit| *report.repaired.entry(unit).or_default() += 1);
            bad.iter().for_each(|&unit| report.not_made_good(unit, "the disk does not keep what is written"));
            self.note(word, &good);
        }
        Ok(())
    }
}
