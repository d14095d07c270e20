//! All words of all named objects checked, and made good: data, parity, and every entry of the checksums.
//!
//! It goes in steps, between which the store may be used: the caller keeps a [`Scrub`] and says how many words are next.

use super::error::VolumeError;
use super::span::{Cursor, Progress};
use super::units::Units;
use super::Volume;
use std::collections::BTreeMap;

/// Words that cannot be repaired and are named in a report, at most.
pub const LISTED: usize = 1024;

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
    /// Of each unit, how many blocks were damaged and are made good.
    pub repaired: BTreeMap<u32, u64>,
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

impl<U: Units> Volume<U> {
    /// Checks the next so many words, and makes good what is damaged. The repairs are durable when this returns. Objects that get a
    /// name meanwhile are met if the scrub has not passed them.
    ///
    /// # Errors
    /// [`VolumeError::TooManyLost`], [`VolumeError::Full`]: the step may be taken again. What cannot be repaired is no error.
    pub fn scrub(&mut self, scrub: &mut Scrub, words: u64) -> Result<Progress, VolumeError> {
        let extents = self.extents(u64::MAX);
        let (mut left, mut repaired) = (words.max(1), false);
        while let Some((span, after)) = extents.next(scrub.at, left) {
            let checked = self.restore(span, &[])?;
            let report = &mut scrub.report;
            report.words += span.words;
            for unit in (0..self.geometry.units()).filter(|&unit| checked.asked.has(unit)) {
                *report.checked.entry(unit).or_default() += span.words;
            }
            for (unit, blocks) in checked.repaired {
                *report.repaired.entry(unit).or_default() += blocks;
                repaired = true;
            }
            report.damaged += checked.damaged.len() as u64;
            let room = LISTED.saturating_sub(report.listed.len());
            report.listed.extend(checked.damaged.into_iter().take(room));
            scrub.at = after;
            left -= span.words;
            if left == 0 {
                break;
            }
        }
        if repaired {
            self.sync()?;
        }
        Ok(Progress { damaged: scrub.report.damaged, ..extents.progress(scrub.at) })
    }
}
