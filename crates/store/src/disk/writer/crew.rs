//! The units of a program that write together, and what they share, however many datasets they write.

use super::commit::End;
use crate::disk::windows::Windows;
use crate::disk::{Store, StoreError};
use crate::staging::Staging;
use crate::team::{Stage, Team};
use polyduct_os::clock;
use polyduct_port::{PortError, PortName};
use std::time::Duration;

/// What one unit has of them.
pub(in crate::disk) struct Crew {
    pub store: Store,
    /// `None` when the port has ended.
    pub team: Option<Team>,
    /// `None` where a unit's part is the step as it lies in the rows.
    pub staging: Option<Staging>,
    /// Rounds so far: they use the halves of the memory in turn.
    pub turn: u64,
    /// How long others were waited for.
    pub waited: Duration,
    failed: Option<StoreError>,
}

impl Crew {
    /// Of a store, before its memory is known.
    pub fn new(store: Store, team: Team) -> Crew {
        Crew { store, team: Some(team), staging: None, turn: 0, waited: Duration::ZERO, failed: None }
    }

    /// Memory for the longest of some windows, of which each unit may have any.
    ///
    /// # Errors
    /// As [`Staging::new`].
    pub fn share_memory(
        &mut self,
        windows: impl Iterator<Item = Windows>,
        units: u32,
    ) -> Result<(), StoreError> {
        let Some(longest) = windows.map(Windows::bytes).max() else { return Ok(()) };
        let team = self.team()?;
        self.staging = Some(Staging::new(&self.store.shown, team, units, longest)?);
        Ok(())
    }

    /// The units, while the port is open.
    ///
    /// # Errors
    /// What ended it; [`PortError::Closed`].
    pub fn team(&self) -> Result<&Team, StoreError> {
        match (&self.failed, &self.team) {
            (Some(e), _) => Err(e.clone()),
            (None, None) => Err(self.closed()),
            (None, Some(team)) => Ok(team),
        }
    }

    /// Whether this unit has a window.
    pub fn is(&self, unit: u32) -> bool {
        self.team.as_ref().is_some_and(|team| team.unit() == unit)
    }

    /// Waits for all.
    ///
    /// # Errors
    /// As [`Team::meet`].
    pub fn meet(&mut self, mine: Result<(), StoreError>) -> Result<(), StoreError> {
        let waiting = clock::now();
        let met = self.team()?.meet(Stage::Step, mine);
        self.waited += clock::now().saturating_sub(waiting);
        met
    }

    /// Whether the port has been closed.
    ///
    /// # Errors
    /// What ended it.
    pub fn is_closed(&self) -> Result<bool, StoreError> {
        self.failed.clone().map_or(Ok(self.team.is_none()), Err)
    }

    /// All units end: unit 0 makes names of what they say of each dataset.
    ///
    /// # Errors
    /// As [`Team::agree`].
    pub fn end(
        &mut self,
        mine: Vec<End>,
        commit: impl FnOnce(&Store, &[Vec<End>]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(team) = self.team.take() else { return Err(self.closed()) };
        let (waiting, store) = (clock::now(), &self.store);
        let ended = team.agree(Stage::Close, Ok(mine), |ends| commit(store, &ends));
        self.waited += clock::now().saturating_sub(waiting);
        ended.map_err(|e| self.fail(e))?;
        self.staging = None;
        Ok(())
    }

    /// That the port has been closed.
    pub fn closed(&self) -> StoreError {
        StoreError::Port(PortError::Closed { port: PortName::Store(self.store.shown.clone()) })
    }

    /// Remembers an error that ends the port. Leaving the team tells the others, and the next who owns the
    /// store removes what was written.
    pub fn fail(&mut self, e: StoreError) -> StoreError {
        self.failed.get_or_insert_with(|| e.clone());
        self.team = None;
        self.staging = None;
        self.store.begin_anew();
        e
    }
}
