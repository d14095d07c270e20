//! Locks that a turn holds on the units.

use super::{cause_of, errno_of, is_full, Disks, Unit, Unopened};
use crate::disk::turn::Share;
use crate::volume::units::Cause;
use std::fmt::Display;

impl Disks {
    /// What a turn is to hold: the first of the units that can be opened, so many that whoever else has a
    /// turn has one of them. Of two turns each may lack as many units as there is parity, or come to other
    /// directories in their place: 2 m + 1 of one without those, which are m at most, are more than the m
    /// that the other lacks. Mirrors have not so many units: each may be used alone.
    pub(in crate::disk) fn share(&mut self, parity: u32) {
        let enough = 2 * parity as usize + 1;
        for unit in 0..self.units.len() {
            let has_one = |of: &Unit| of.share.is_some();
            if self.shares().count() < enough && !self.units[unit].as_ref().is_ok_and(has_one) {
                self.share_of(unit);
            }
        }
    }

    fn share_of(&mut self, unit: usize) {
        let Some(Ok(of)) = self.units.get_mut(unit) else { return };
        let Some(first) = of.first() else { return };
        match Share::of(first, of.read_only) {
            Ok(share) => of.share = Some(share),
            // Nobody can have changed it, or nobody can be told.
            Err(_) if of.read_only => {}
            // What is to be removed to make room needs a turn.
            Err(e) if e.errno().is_some_and(is_full) => {}
            Err(e) => self.units[unit] = Err(Unopened::of(&e, cause_of(errno_of(&e)))),
        }
    }

    fn shares(&mut self) -> impl Iterator<Item = &mut Share> {
        self.units.iter_mut().flatten().filter_map(|of| of.share.as_mut())
    }

    /// Whether somebody waits for any of the units.
    pub(in crate::disk) fn are_wanted(&mut self) -> bool {
        self.shares().any(|share| share.is_wanted())
    }

    /// The process that has what is to be taken, as far as the units tell.
    pub(in crate::disk) fn holder(&mut self) -> Option<u32> {
        self.shares().find_map(|share| share.holder())
    }

    /// Takes what a turn is to hold, or nothing where another has some of it: then that one is told that
    /// somebody waits. A unit of which that cannot be said is not used.
    pub(in crate::disk) fn take(&mut self) -> bool {
        let all = (0..self.units.len()).all(|unit| self.with(unit, Share::take) != Some(false));
        if !all {
            for share in self.shares() {
                // Of the one that another has nothing is held.
                share.let_go();
                share.wait(true);
            }
        }
        all
    }

    /// The turn has begun: nobody waits any more.
    pub(in crate::disk) fn taken(&mut self) {
        self.shares().for_each(|share| share.wait(false));
    }

    /// The turn is over.
    pub(in crate::disk) fn let_go(&mut self) {
        self.shares().for_each(Share::let_go);
    }

    /// Whether the one with this number had the last turn, as far as this side would have to know.
    pub(in crate::disk) fn are_of(&self, number: [u8; 16]) -> bool {
        self.units.iter().flatten().filter_map(|of| of.share.as_ref()).all(|share| share.is_of(number))
    }

    /// The one with this number has a turn. A unit that cannot keep that is not used.
    pub(in crate::disk) fn mark(&mut self, number: [u8; 16]) {
        for unit in 0..self.units.len() {
            self.with(unit, |share| share.mark(number));
        }
    }

    /// A unit that has other directories now takes part in the turn of the one with this number. Says whether
    /// it can: nobody waits.
    pub(in crate::disk) fn take_also(&mut self, unit: u32, number: [u8; 16]) -> bool {
        self.share_of(unit as usize);
        let is_free = self.with(unit as usize, Share::take) != Some(false);
        if is_free {
            self.with(unit as usize, |share| share.mark(number));
        }
        is_free
    }

    /// Does something with what there is of a unit. One with which that cannot be done is not used.
    fn with<T, E: Display>(
        &mut self,
        unit: usize,
        does: impl FnOnce(&mut Share) -> Result<T, E>,
    ) -> Option<T> {
        match does(self.units.get_mut(unit)?.as_mut().ok()?.share.as_mut()?) {
            Ok(done) => Some(done),
            Err(e) => {
                self.units[unit] = Err(Unopened::of(&e, Cause::Disk));
                None
            }
        }
    }
}
