//! Which lives of other units may come in.

use crate::error::LinkError;
use crate::link::hello::Identity;
use crate::types::Address;
use std::collections::HashMap;

/// What the door knows of units that have come before.
#[derive(Debug, Default)]
pub struct Lives {
    /// Lost, or replaced: they do not come back.
    buried: HashMap<Address, u64>,
    /// Connected, and not to be replaced.
    held: HashMap<Address, u64>,
}

impl Lives {
    /// Whether one may come in.
    ///
    /// # Errors
    /// [`LinkError::Dead`], [`LinkError::Taken`].
    pub fn check(&self, who: &Identity) -> Result<(), LinkError> {
        let Identity { unit, incarnation, .. } = *who;
        if self.buried.get(&unit) == Some(&incarnation) {
            return Err(LinkError::Dead { unit });
        }
        // The same life may come twice, where both sides began at once.
        match self.held.get(&unit) {
            Some(there) if *there != incarnation => Err(LinkError::Taken { unit }),
            _ => Ok(()),
        }
    }

    pub fn bury(&mut self, unit: Address, incarnation: u64) {
        self.buried.insert(unit, incarnation);
        self.held.remove(&unit);
    }

    pub fn hold(&mut self, unit: Address, incarnation: u64) {
        self.held.insert(unit, incarnation);
    }

    pub fn free(&mut self, unit: Address) {
        self.held.remove(&unit);
    }
}
