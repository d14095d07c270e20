//! A unit that comes back, or a new one in its place.
//!
//! A unit that missed something is not read again as it is. It *joins*: [`replace`](Volume::replace) gives it
//! a superblock of the running epoch that says so, and from then on all that is written goes to it as to any
//! other, and what stands in the logs of the others at an opening is done again on it, too. But it keeps no
//! log, counts as lost, and nothing of it is read. [`rebuild`](Volume::rebuild) goes through the words of all
//! named objects and writes its blocks from what the others have. How far that is stands in its superblock,
//! and is written when what lies behind is durable: so it goes on from there after a cut. At the end all
//! begin an epoch of which the unit is a member.
//!
//! 1. A unit in an epoch as a joiner has all that was written to objects in this epoch and is behind its
//!    mark; a joiner that misses anything is left behind by a new epoch, like a member, and begins again.
//! 2. Objects that were begun after it came to join are written to it by all writers, and are not gone
//!    through. One that was begun before, and has no name yet, is completed on it before it gets one.
//! 3. Both of its catalogs are written anew before it is a member: one when it comes to join or the store is
//!    opened, the other when it is whole. So it does not bring back names that the others have discarded.

use super::error::VolumeError;
use super::planted::Bug;
use super::sealed::{seal, unseal};
use super::span::{Cursor, Progress};
use super::state::{Entry, Mark, Members, Superblock, SLOT, SUPERBLOCK};
use super::units::{Cause, Done, File, Request, UnitError, Units};
use super::Volume;
use std::collections::BTreeSet;
use std::ops::Range;

/// Words after which what was rebuilt is made durable, at the latest.
const AT_ONCE: u64 = 1 << 14;

/// How far a unit is rebuilt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Join {
    /// As its superblock says.
    pub mark: Mark,
    /// Nothing is missing: it is a member in the next epoch.
    pub whole: bool,
}

/// The units that begin an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Team {
    pub members: Members,
    pub joiners: Members,
}

impl Team {
    pub fn all(self) -> impl Iterator<Item = u32> {
        let both = Members(self.members.0 | self.joiners.0);
        (0..super::geometry::MAX_UNITS).filter(move |&unit| both.has(unit))
    }
}

/// What a unit's directory holds.
struct Held {
    superblock: Option<Superblock>,
    objects: Vec<u64>,
}

impl<U: Units> Volume<U> {
    /// Takes a lost unit back: it joins, and [`rebuild`](Volume::rebuild) brings it to what the others have.
    /// Its directory may be the one that it had, or an empty one. What it holds of objects is removed. A unit
    /// that is joining goes on where it was.
    ///
    /// A directory that is another unit's, of this store or of another, is not touched unless `force` is
    /// given; then what it holds is lost. `nonce` is a number drawn at random.
    ///
    /// # Errors
    /// [`VolumeError::Foreign`], with whose the directory is; [`VolumeError::InUse`];
    /// [`VolumeError::NotJoined`] for a unit that does not work; [`VolumeError::NotThere`]; and as
    /// [`commit`](Volume::commit).
    pub fn replace(&mut self, unit: u32, force: bool, nonce: u64) -> Result<Progress, VolumeError> {
        if unit >= self.geometry.units() {
            return Err(VolumeError::NotThere { what: "unit", found: unit.to_string() });
        }
        if self.roll.is_read(unit) {
            return Err(VolumeError::InUse { unit });
        }
        if self.is_joining(unit) {
            return Ok(self.progress(unit));
        }
        // What it still says of itself must be of an epoch that is over before it is changed.
        self.mend(nonce)?;
        let held = self.look_into(unit)?;
        if !force && !self.has(Bug::TakenBlindly) {
            self.may_take(unit, &held)?;
        }
        self.ask(unit, held.objects.iter().map(|&object| Request::Remove { unit, object }).collect())?;
        self.roll[unit].seq = held.superblock.map_or(0, |block| block.seq);
        self.roll[unit].whole_from = self.next_object;
        self.joins(unit, Mark { born: self.next_object, ..Mark::default() });
        if let Err(error) = self.begin_epoch(nonce) {
            let reason = "it did not come to join".to_owned();
            self.fail(UnitError { unit, reason, cause: Cause::Disk });
            return Err(error);
        }
        self.joined(unit)?;
        Ok(self.progress(unit))
    }

    /// Whether these units' directory of a unit may become that unit's: [`replace`](Volume::replace) would
    /// take it. With `force` only whether it can be read. Nothing is changed.
    ///
    /// # Errors
    /// [`VolumeError::Foreign`], [`VolumeError::NotJoined`].
    pub fn check_place(&mut self, units: &mut U, unit: u32, force: bool) -> Result<(), VolumeError> {
        std::mem::swap(&mut self.units, units);
        let held = self.look_into(unit);
        std::mem::swap(&mut self.units, units);
        let held = held?;
        if force {
            return Ok(());
        }
        self.may_take(unit, &held)
    }

    /// Rebuilds the next so many words of a unit that is joining: up to 16,384, which are 64 MiB of it. What
    /// was rebuilt is durable when this returns; a call that was cut short is gone through again. When
    /// nothing is left the unit is a member. `nonce` is a number drawn at random.
    ///
    /// Words of which too much is damaged on the other units are left out and counted.
    ///
    /// # Errors
    /// [`VolumeError::NotThere`]: the unit is not joining; [`VolumeError::NotJoined`]: it failed, and has to
    /// be [replaced](Volume::replace); [`VolumeError::TooManyLost`]: others are lost, and the unit is as far
    /// as it was; [`VolumeError::Full`].
    pub fn rebuild(&mut self, unit: u32, words: u64, nonce: u64) -> Result<Progress, VolumeError> {
        let Some(mut next) = self.mark(unit) else {
            return Err(VolumeError::NotThere { what: "unit that is joining", found: unit.to_string() });
        };
        let extents = self.extents(next.born);
        let mut left = words.clamp(1, AT_ONCE);
        while let Some((span, after)) = extents.next(next.at, left) {
            let checked = self.restore(span, &[unit])?;
            checked.rewritten.iter().try_for_each(|(word, units)| self.note_kept(*word, units))?;
            self.joined(unit)?;
            next = Mark {
                at: after,
                damaged: next.damaged.saturating_add(checked.damaged.len() as u64),
                ..next
            };
            left -= span.words;
            if left == 0 {
                break;
            }
        }
        self.keep(unit, next)?;
        let progress = Progress { damaged: next.damaged, ..extents.progress(next.at) };
        if progress.finished {
            self.joined(unit)?.whole = true;
            self.begin_epoch(nonce)?;
            if !self.roll.is_read(unit) {
                self.joined(unit)?;
            }
        }
        Ok(progress)
    }

    /// Units that are joining, and how far each is rebuilt.
    pub fn joining(&self) -> impl Iterator<Item = (u32, Progress)> + '_ {
        self.roll.joining().into_iter().map(|unit| (unit, self.progress(unit)))
    }

    fn progress(&self, unit: u32) -> Progress {
        let mark = self.mark(unit).unwrap_or_default();
        Progress { finished: false, damaged: mark.damaged, ..self.extents(mark.born).progress(mark.at) }
    }

    /// The unit, if it is still joining.
    fn joined(&mut self, unit: u32) -> Result<&mut Join, VolumeError> {
        self.roll[unit].join().map_err(|why| VolumeError::NotJoined { unit, why })
    }

    /// A unit that is joining, as far as the mark says.
    pub(super) fn joins(&mut self, unit: u32, mark: Mark) {
        self.roll[unit].joins(Join { mark, whole: false });
    }

    /// Asks a unit that is not used. It remains so.
    fn ask(&mut self, unit: u32, batch: Vec<Request>) -> Result<Vec<Done>, VolumeError> {
        let answers: Result<Vec<Done>, UnitError> = self.units.run(batch).into_iter().collect();
        answers.map_err(|error| match error.cause {
            Cause::Caller(_) => VolumeError::Refused(error),
            _ => VolumeError::NotJoined { unit, why: error.reason },
        })
    }

    fn look_into(&mut self, unit: u32) -> Result<Held, VolumeError> {
        let read = Request::Read { unit, file: File::Superblock, at: 0, len: 2 * SLOT };
        let mut held = Held { superblock: None, objects: Vec::new() };
        for done in self.ask(unit, vec![read, Request::List { unit }])? {
            match done {
                Done::Bytes(bytes) => {
                    let slots = bytes.chunks(SLOT).filter_map(|slot| unseal(SUPERBLOCK, slot));
                    let possible = slots.map(|(block, _)| block).filter(Superblock::is_possible);
                    held.superblock = possible.max_by_key(|block| block.seq);
                }
                Done::Objects(objects) => held.objects = objects,
                Done::Yes => {}
            }
        }
        Ok(held)
    }

    /// Whether a directory is this unit's, or nobody's.
    fn may_take(&self, unit: u32, held: &Held) -> Result<(), VolumeError> {
        let why = match &held.superblock {
            None if held.objects.is_empty() => return Ok(()),
            None => format!("it has no readable superblock, and {} objects", held.objects.len()),
            Some(block) if block.volume != self.id => "it belongs to another store".to_owned(),
            Some(block) if block.unit != unit => format!("it is unit {} of this store", block.unit),
            Some(block) if block.geometry != self.geometry => {
                "it was made for another number of units, or another stripe unit".to_owned()
            }
            Some(_) => return Ok(()),
        };
        Err(VolumeError::Foreign { unit, why })
    }

    /// What was rebuilt is made durable, and then the mark moved.
    fn keep(&mut self, unit: u32, next: Mark) -> Result<(), VolumeError> {
        if self.has(Bug::MarkFirst) {
            self.write_mark(unit, next)?;
        }
        let (theirs, others): (BTreeSet<_>, _) =
            std::mem::take(&mut self.dirty).into_iter().partition(|&(of, _)| of == unit);
        self.dirty = others;
        self.run(theirs.into_iter().map(|(unit, file)| Request::Sync { unit, file }).collect())?;
        self.write_mark(unit, next)
    }

    /// Writes the superblock of a unit that is joining in the epoch that there is.
    fn write_mark(&mut self, unit: u32, mark: Mark) -> Result<(), VolumeError> {
        let Team { members, joiners } = self.team();
        self.joined(unit)?.mark = mark;
        let seq = self.roll[unit].next_seq();
        let block = Superblock {
            volume: self.id,
            unit,
            geometry: self.geometry,
            seq,
            epoch: self.epoch,
            line: self.line.clone(),
            members,
            joiners,
            joining: Some(mark),
            serving: true,
            generation: self.generation,
            // The others know.
            trimmed: 0,
        };
        let (file, at) = (File::Superblock, seq % 2 * SLOT as u64);
        self.run(vec![Request::Write { unit, file, at, bytes: seal(SUPERBLOCK, &block) }])?;
        self.run(vec![Request::Sync { unit, file }])?;
        self.joined(unit).map(drop)
    }

    /// What a joiner's superblock says of how far it is.
    pub(super) fn mark(&self, unit: u32) -> Option<Mark> {
        self.roll.join(unit).map(|join| join.mark)
    }

    /// The units that begin the next epoch, and as what.
    pub(super) fn team(&self) -> Team {
        let whole = |unit: u32| self.roll.join(unit).map(|join| join.whole);
        let used = |unit: u32| self.roll.is_read(unit) || whole(unit) == Some(true);
        let n = self.geometry.units();
        Team { members: Members::of(n, used), joiners: Members::of(n, |unit| whole(unit) == Some(false)) }
    }

    /// Removes from units that are joining what was written to objects that came to no name.
    pub(super) fn forget_of_joiners(&mut self, in_use: &dyn Fn(u64) -> bool) -> Result<(), VolumeError> {
        let named: BTreeSet<u64> = self.names.values().map(|entry| entry.object).collect();
        for unit in self.roll.joining() {
            let listed = self.run(vec![Request::List { unit }])?;
            let Some(Some(Done::Objects(objects))) = listed.into_iter().next() else { continue };
            let unnamed = objects.into_iter().filter(|&object| !named.contains(&object) && !in_use(object));
            self.run(unnamed.map(|object| Request::Remove { unit, object }).collect())?;
        }
        Ok(())
    }

    /// Objects that get a name, and were begun before some unit came to join, lack rows on that unit: it gets
    /// them now.
    pub(super) fn catch_up(&mut self, changes: &[(String, Option<Entry>)]) -> Result<(), VolumeError> {
        for entry in changes.iter().filter_map(|(_, entry)| entry.as_ref()) {
            let late = |unit: u32| self.roll[unit].whole_from > entry.object;
            let late: Vec<u32> = self.team().all().filter(|&unit| late(unit)).collect();
            let named = || self.names.values().any(|other| other.object == entry.object);
            if late.is_empty() || named() || self.has(Bug::LateObjects) {
                continue;
            }
            let rows = 0..entry.blocks.div_ceil(self.geometry.row_blocks());
            // Members may have what was written since, and are given the rest like any block that is damaged.
            let onto: Vec<u32> = late.into_iter().filter(|&unit| self.is_joining(unit)).collect();
            self.go_through(entry.object, rows, &onto)?;
        }
        Ok(())
    }

    /// Rows of an object that get a name with the next [commit](Volume::commit), and were not written to
    /// these units, though they are used now: they were lost, or replaced, while others wrote. They get them
    /// from what the others have.
    pub(super) fn complete(
        &mut self,
        object: u64,
        rows: Range<u64>,
        late: &[u32],
    ) -> Result<(), VolumeError> {
        match late.iter().any(|&unit| self.uses(unit)) {
            true => self.go_through(object, rows, late),
            false => Ok(()),
        }
    }

    /// Makes good rows of an object that must be whole, and gives those of these units that are used their
    /// part of them.
    fn go_through(&mut self, object: u64, rows: Range<u64>, onto: &[u32]) -> Result<(), VolumeError> {
        let row_blocks = self.geometry.row_blocks();
        let first = rows.start.saturating_mul(self.geometry.chunk_blocks().into());
        let extents = self.extent_of(object, rows.end.saturating_mul(row_blocks));
        let mut at = Cursor { object, block: first };
        while let Some((span, next)) = extents.next(at, u64::MAX) {
            let onto: Vec<u32> = onto.iter().copied().filter(|&unit| self.uses(unit)).collect();
            let checked = self.restore(span, &onto)?;
            checked.rewritten.iter().try_for_each(|(word, units)| self.note_kept(*word, units))?;
            for error in checked.failed {
                match error.cause {
                    Cause::Full => return Err(VolumeError::Full(error)),
                    _ => self.fail(error),
                }
            }
            if let Some(beyond) = checked.beyond {
                return Err(beyond);
            }
            at = next;
        }
        Ok(())
    }
}
