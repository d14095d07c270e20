//! Batches of requests to the units, and what the answers mean: a unit is lost, is full, or cannot read.

use super::error::VolumeError;
use super::planted::Bug;
use super::state::SLOT;
use super::units::{Cause, Done, File, Request, UnitError, Units};
use super::Volume;
use std::collections::BTreeMap;

/// What a batch came to, and what was in its way for want of room.
type Answers = (Vec<Option<Done>>, Option<UnitError>);

impl<U: Units> Volume<U> {
    /// Whether a request goes to its unit: of those that are joining nothing is read.
    fn reaches(&self, request: &Request) -> bool {
        let unit = request.unit();
        self.roll.is_read(unit) || self.is_joining(unit) && !request.reads()
    }

    /// A unit that failed is not used any more, and does not join any more.
    pub(super) fn fail(&mut self, error: UnitError) {
        self.roll[error.unit].fail(error.reason);
        self.tell();
    }

    /// Does a batch, without what is for lost units. Units that fail are lost from here on; their answers are
    /// `None`, and so is what cannot be read of an object. A unit that is joining does not hold up the
    /// others: if it has no room it joins no more.
    ///
    /// # Errors
    /// [`VolumeError::Full`], [`VolumeError::Refused`].
    pub(super) fn run(&mut self, batch: Vec<Request>) -> Result<Vec<Option<Done>>, VolumeError> {
        let (done, full) = self.attempt(batch, true)?;
        full.map_or(Ok(done), |error| Err(VolumeError::Full(error)))
    }

    /// Does a batch; a unit that has no room for it is lost, too.
    pub(super) fn run_or_lose(&mut self, batch: Vec<Request>) -> Result<(), VolumeError> {
        self.attempt(batch, false).map(drop)
    }

    /// Nothing is done any more once the system has refused this process something.
    pub(super) fn goes_on(&self) -> Result<(), VolumeError> {
        self.ended.clone().map_or(Ok(()), |error| Err(VolumeError::Refused(error)))
    }

    /// Does a batch, and says whether a unit that is used had no room for what it may refuse.
    pub(super) fn attempt(&mut self, batch: Vec<Request>, refusals: bool) -> Result<Answers, VolumeError> {
        self.goes_on()?;
        let refuses = |r: &Request| {
            let writes = matches!(r, Request::Write { .. } | Request::Log { .. });
            refusals && writes && self.roll.is_read(r.unit())
        };
        let of_object = |r: &Request| match r {
            Request::Read { file, .. } | Request::ReadBack { file, .. } => {
                matches!(file, File::Data(_) | File::Sums(_))
            }
            _ => false,
        };
        let may: Vec<(bool, bool)> = batch.iter().map(|r| (refuses(r), of_object(r))).collect();
        let there: Vec<bool> = batch.iter().map(|r| self.reaches(r)).collect();
        let batch = batch.into_iter().zip(&there).filter(|(_, &there)| there).map(|(r, _)| r).collect();
        let mut answers = self.units.run(batch).into_iter();
        let (mut full, mut unread): (Option<UnitError>, BTreeMap<u32, UnitError>) = Default::default();
        let done = there.into_iter().zip(may).map(|(there, (may_refuse, may_lack))| {
            match there.then(|| answers.next()).flatten()? {
                Ok(done) => Some(done),
                Err(error) if matches!(error.cause, Cause::Caller(_)) => {
                    self.ended.get_or_insert(error);
                    None
                }
                Err(error) if error.cause == Cause::Full && may_refuse => {
                    full.get_or_insert(error);
                    None
                }
                Err(_) if self.has(Bug::FailureIgnored) => Some(Done::Yes),
                Err(error) if may_lack => {
                    unread.entry(error.unit).or_insert(error);
                    None
                }
                Err(error) => {
                    self.fail(error);
                    None
                }
            }
        });
        let done = done.collect();
        unread.into_values().for_each(|error| self.doubt(error));
        self.goes_on().map(|()| (done, full))
    }

    /// A unit could not read something of an object. Where it can still say who it is, that is like rot: it
    /// is made good, and who writes a sector anew can mostly read it again. Else the unit failed.
    fn doubt(&mut self, error: UnitError) {
        let unit = error.unit;
        let read = Request::Read { unit, file: File::Superblock, at: 0, len: 2 * SLOT };
        if !self.roll.is_read(unit) {
            return;
        }
        match self.units.run(vec![read]).pop() {
            Some(Err(refused)) if matches!(refused.cause, Cause::Caller(_)) => {
                self.ended.get_or_insert(refused);
            }
            Some(Err(_)) => self.fail(error),
            _ => {}
        }
    }
}
