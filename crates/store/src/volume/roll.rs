//! The state of each unit of a store: whether it is read, joins or is lost, and where the next of what is
//! written to it in turn goes.

use super::rebuild::Join;

/// Why a unit that is joining is not read.
const JOINING: &str = "it is joining: it is not rebuilt yet";

#[derive(Debug)]
enum State {
    /// A member of the epoch: it is read and written.
    Read,
    /// It is rebuilt: it is written, counts as lost, and nothing of it is read.
    Joins {
        join: Join,
        /// No epoch has begun with it since one did without it.
        left: bool,
    },
    /// It is not used.
    Lost {
        why: String,
        /// An epoch has begun without it. Until then it may come back with a log that counts.
        left: bool,
    },
}

#[derive(Debug)]
pub(super) struct Unit {
    state: State,
    /// Objects from this number on have all of their rows on it, those before only if they have a name.
    pub whole_from: u64,
    /// The number of its last superblock.
    pub seq: u64,
    /// The bytes of its log, if it is read.
    pub log: u64,
    /// The slot of its next catalog.
    pub catalog: u8,
    /// Its newest catalog, if more can be added to it.
    pub written: Option<Written>,
}

/// A catalog of a unit, as it lies there with what was added to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// Its checksum.
    pub sum: u32,
    /// Its bytes, and where the next addition goes.
    pub len: u64,
    pub end: u64,
    /// The last transaction that is in it.
    pub tx: u64,
    /// The last generation of its history.
    pub generation: u32,
}

/// All units of a store, in order. Of a number that is none of theirs it says that it is neither read nor
/// joining; to use such a one is a panic.
#[derive(Debug)]
pub(super) struct Roll(Vec<Unit>);

impl Unit {
    /// The number of its next superblock.
    pub fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// It is not read any more; whoever was not before is so for the reason that there was.
    pub fn lose(&mut self, why: String) {
        if matches!(self.state, State::Read) {
            self.state = State::Lost { why, left: false };
        }
    }

    /// It is not used any more, and does not join any more.
    pub fn fail(&mut self, why: String) {
        let left = match self.state {
            State::Lost { .. } => return,
            State::Joins { left, .. } => left,
            State::Read => false,
        };
        self.state = State::Lost { why, left };
    }

    /// It joins from now on.
    pub fn joins(&mut self, join: Join) {
        let left = matches!(self.state, State::Lost { left: true, .. });
        self.state = State::Joins { join, left };
    }

    /// How far it is rebuilt, or why it does not join.
    pub fn join(&mut self) -> Result<&mut Join, String> {
        match &mut self.state {
            State::Joins { join, .. } => Ok(join),
            State::Lost { why, .. } => Err(why.clone()),
            State::Read => Err(String::new()),
        }
    }
}

impl Roll {
    /// Of so many units, none of which is lost.
    pub fn new(units: u32) -> Roll {
        let unit = || Unit { state: State::Read, whole_from: 0, seq: 0, log: 0, catalog: 0, written: None };
        Roll((0..units).map(|_| unit()).collect())
    }

    fn state(&self, unit: u32) -> Option<&State> {
        self.0.get(unit as usize).map(|of| &of.state)
    }

    pub fn is_read(&self, unit: u32) -> bool {
        matches!(self.state(unit), Some(State::Read))
    }

    pub fn is_joining(&self, unit: u32) -> bool {
        self.join(unit).is_some()
    }

    /// How far a unit is rebuilt, if it is joining.
    pub fn join(&self, unit: u32) -> Option<&Join> {
        match self.state(unit)? {
            State::Joins { join, .. } => Some(join),
            _ => None,
        }
    }

    /// Whether a unit is lost and nobody has left it behind yet.
    pub fn is_missed(&self) -> bool {
        self.0.iter().any(|of| matches!(of.state, State::Lost { left: false, .. }))
    }

    /// Units that are read.
    pub fn read(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.0).filter(|(_, of)| matches!(of.state, State::Read)).map(|(unit, _)| unit)
    }

    /// Units that are joining.
    pub fn joining(&self) -> Vec<u32> {
        (0..self.0.len() as u32).filter(|&unit| self.is_joining(unit)).collect()
    }

    /// Units that are not read, and why. Those that are joining are among them.
    pub fn lost(&self) -> impl Iterator<Item = (u32, &str)> {
        (0..).zip(&self.0).filter_map(|(unit, of)| match &of.state {
            State::Read => None,
            State::Joins { .. } => Some((unit, JOINING)),
            State::Lost { why, .. } => Some((unit, &why[..])),
        })
    }

    /// The longest log.
    pub fn longest_log(&self) -> u64 {
        self.read().map(|unit| self[unit].log).max().unwrap_or(0)
    }

    /// An epoch has begun: units that are whole are members, the lost ones are left behind, and all logs
    /// begin anew.
    pub fn begin(&mut self) {
        for of in &mut self.0 {
            of.log = 0;
            match &mut of.state {
                State::Joins { join, .. } if join.whole => of.state = State::Read,
                State::Joins { left, .. } => *left = false,
                State::Lost { left, .. } => *left = true,
                _ => {}
            }
        }
    }
}

impl std::ops::Index<u32> for Roll {
    type Output = Unit;

    fn index(&self, unit: u32) -> &Unit {
        &self.0[unit as usize]
    }
}

impl std::ops::IndexMut<u32> for Roll {
    fn index_mut(&mut self, unit: u32) -> &mut Unit {
        &mut self.0[unit as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_left_behind_is_missed_no_more_until_it_has_joined() {
        let mut roll = Roll::new(2);
        roll[1].fail("gone".into());
        assert!(roll.is_missed());
        roll.begin();
        assert!(!roll.is_missed());
        // It came to join, and no epoch began with it.
        roll[1].joins(Join::default());
        roll[1].fail("gone again".into());
        assert!(!roll.is_missed());
        assert!(roll.lost().eq([(1, "gone again")]));
        roll[1].joins(Join::default());
        roll.begin();
        assert!(roll.is_joining(1) && !roll.is_read(1));
        roll[1].fail("lost".into());
        assert!(roll.is_missed(), "what it has of this epoch does not count");
        roll[1].joins(Join { whole: true, ..Join::default() });
        roll.begin();
        assert!(roll.is_read(1) && roll.lost().next().is_none());
        roll[1].lose("first".into());
        roll[1].fail("second".into());
        assert!(roll.lost().eq([(1, "first")]));
        assert!(!roll.is_read(2) && !roll.is_joining(2));
    }
}
