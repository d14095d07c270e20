//! A window of a step at a time, in the memory of the unit that moves it.
//!
//! A step is cut into windows, and these are dealt round to the units: one each, and then the next round. Units
//! that have elements of a window copy them there, or from there, directly. There are two halves, used in turn:
//! while one is moved the other is filled. So the memory is small, and stays in the caches, however large the
//! step is.

use crate::disk::StoreError;
use crate::team::{Stage, Team};
use polyduct_copy::as_shared;
use polyduct_layout::{Loop, OpTable};
use polyduct_message::domain::Region;
use polyduct_os::aligned::zeros;
use polyduct_port::{PortError, PortName};
use std::sync::atomic::AtomicU8;

/// So many bytes as they are.
pub fn bytes(len: u64) -> OpTable {
    let mut table = OpTable::new(1);
    table.push(0, 0, &[Loop { count: len, src_step: 1, dst_step: 1 }]);
    table
}

/// The memory.
pub struct Staging {
    unit: u32,
    half: usize,
    mine: Mine,
    /// Of each other unit.
    theirs: Vec<Option<Region>>,
}

enum Mine {
    Alone(Vec<u8>),
    Shared(Region),
}

impl Staging {
    /// Memory for windows of so many bytes, of which each unit may have any; `name` is of what is moved.
    ///
    /// # Errors
    /// [`StoreError::Message`], [`PortError::PeerAborted`], [`StoreError::Bad`] for more than memory can be.
    pub fn new(name: &str, team: &Team, units: u32, window_bytes: u64) -> Result<Staging, StoreError> {
        let unit = team.unit();
        let both = usize::try_from(window_bytes)
            .ok()
            .and_then(|n| n.checked_mul(2))
            .filter(|&n| n <= isize::MAX as usize);
        let Some(both) = both else {
            return Err(StoreError::Bad {
                store: name.to_owned(),
                what: "a window".into(),
                found: format!("{window_bytes} bytes"),
                expected: "what memory can hold twice".into(),
            });
        };
        let mine = team.share(both).map(|region| match region {
            Some(region) => Mine::Shared(region),
            None => Mine::Alone(Vec::new()),
        });
        let mine = mine.and_then(|mine| match mine {
            Mine::Alone(_) => zeros(both, "windows").map(Mine::Alone).map_err(StoreError::os(name)),
            shared => Ok(shared),
        });
        team.meet(Stage::Memory, mine.as_ref().map(|_| ()).map_err(Clone::clone))?;
        let mut theirs: Vec<Option<Region>> = (0..units).map(|_| None).collect();
        let mut found = Ok(());
        for other in (0..units).filter(|&other| other != unit) {
            let region = team.shared(other).and_then(|region| match region {
                Some(region) if region.len() >= both => Ok(region),
                _ => Err(StoreError::Port(PortError::PeerAborted {
                    port: PortName::Store(name.to_owned()),
                    peer: other.into(),
                    reason: "its memory is not as long as it must be".into(),
                })),
            });
            match region {
                Ok(region) => theirs[other as usize] = Some(region),
                Err(e) => found = Err(e),
            }
        }
        team.meet(Stage::Memory, found)?;
        Ok(Staging { unit, half: both / 2, mine: mine?, theirs })
    }

    /// A half of a unit's memory; nothing of one that this unit has nothing to do with.
    pub fn of(&mut self, unit: u32, half: u64) -> &[AtomicU8] {
        let range = (half % 2) as usize * self.half..(half % 2 + 1) as usize * self.half;
        let all = match (&mut self.mine, self.theirs.get(unit as usize)) {
            (Mine::Alone(bytes), _) if unit == self.unit => as_shared(bytes),
            (Mine::Shared(region), _) if unit == self.unit => region.bytes(),
            (_, Some(Some(region))) => region.bytes(),
            _ => &[],
        };
        all.get(range).unwrap_or(&[])
    }

    /// A half of this unit's memory.
    pub fn mine(&mut self, half: u64) -> &[AtomicU8] {
        self.of(self.unit, half)
    }
}
