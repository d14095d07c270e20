//! Decides which incarnations of other units may come in.

use crate::error::LinkError;
use crate::link::hello::Identity;
use crate::types::Address;
use std::collections::{HashMap, HashSet};

/// What the door knows of units that have come before.
#[derive(Debug, Default)]
pub struct Incarnations {
    /// Lost, or replaced: they do not come back.
    buried: HashMap<Address, u64>,
    /// Connected, and not to be replaced.
    held: HashMap<Address, u64>,
    /// A new life of a unit replaces the one that is connected.
    replaces: bool,
    /// Units of which a life has left or was lost, and whether another may not come any more.
    over: HashSet<Address>,
    complete: bool,
}

impl Incarnations {
    /// Nobody has come yet. Whether a new life of a unit `replaces` one that is connected.
    pub fn new(replaces: bool) -> Incarnations {
        Incarnations { replaces, ..Incarnations::default() }
    }

    /// Whether one may come in.
    ///
    /// # Errors
    /// [`LinkError::Dead`], [`LinkError::Taken`], [`LinkError::Earlier`].
    pub fn check(&self, who: &Identity) -> Result<(), LinkError> {
        let Identity { unit, incarnation, .. } = *who;
        if self.buried.get(&unit) == Some(&incarnation) {
            return Err(LinkError::Dead { unit });
        }
        // The same life may come twice, where both sides began at once.
        match self.held.get(&unit) {
            Some(there) if *there != incarnation => Err(LinkError::Taken { unit }),
            None if self.complete && self.over.contains(&unit) => Err(LinkError::Earlier { unit }),
            _ => Ok(()),
        }
    }

    /// All have come: another life of a unit that has left, or was lost, wants the next domain, and this one
    /// is of no use to it.
    pub fn complete(&mut self) {
        self.complete = true;
    }

    /// That life of a unit was lost, or is replaced: it is turned away from now on.
    pub fn bury(&mut self, unit: Address, incarnation: u64) {
        self.buried.insert(unit, incarnation);
        self.free(unit);
    }

    /// While this life of a unit is connected, no other takes its place, unless the user wants that.
    pub fn hold(&mut self, unit: Address, incarnation: u64) {
        if !self.replaces {
            self.held.insert(unit, incarnation);
        }
    }

    /// A unit left in order: another life of it may come, unless all [had come](Incarnations::complete).
    pub fn free(&mut self, unit: Address) {
        self.held.remove(&unit);
        self.over.insert(unit);
    }
}
