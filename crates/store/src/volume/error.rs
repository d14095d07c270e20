//! Errors of a volume.

use super::state::Epoch;
use super::units::UnitError;

/// Why something could not be done with a store.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum VolumeError {
    /// A store cannot be cut like that.
    #[error("{what}: {found}; expected {expected}")]
    Geometry {
        /// Of what.
        what: &'static str,
        /// What was given.
        found: u64,
        /// What can be.
        expected: &'static str,
    },
    /// More units are gone than there is parity.
    #[error(
        "{missing} of {units} units cannot be used, and the parity makes up for {parity}: {}",
        each(lost)
    )]
    TooManyLost {
        /// Units that are not to be used.
        missing: u32,
        /// Units in all.
        units: u32,
        /// Units that may be missing.
        parity: u32,
        /// Which, and what is the matter with them.
        lost: Vec<(u32, String)>,
        /// Those of them that are joining: what they lack is with others.
        joining: Vec<u32>,
    },
    /// Other units served later than those that are there: what was written then would be given up.
    #[error(
        "the units that are there were last used in epoch {found}, and epoch {served} was served since, by {}: only they have \
         what was written then. Bring them back; if they are gone for good, `polyduct store rebuild DIR --give-up-newer` goes \
         on without it",
        units(had_part)
    )]
    Outdated {
        /// The newest epoch of the units that are there.
        found: u64,
        /// The one that was served last.
        served: u64,
        /// Units that had part in that.
        had_part: Vec<u32>,
    },
    /// Units were copied, and both have served since. Each has what the other lacks, and they are not taken
    /// for one store.
    #[error(
        "units of this store were changed apart from each other, so that each side has what the other lacks: {} in epoch {}, \
         and {} in epoch {}. Take the directories of one side away, and the other side serves; then `polyduct store \
         replace` makes the first side anew from it",
        units(&.0[0].units),
        .0[0].epoch,
        units(&.0[1].units),
        .0[1].epoch
    )]
    Forked(Box<[Side; 2]>),
    /// What is kept in the store's own directory could not be read or written there, and nothing is read or
    /// acknowledged before that. Whether a change that was to be acknowledged is there tells the next
    /// opening.
    #[error(
        "{what} could not be read or written in the store's directory, and the store does nothing without \
            it: {why}"
    )]
    Home {
        /// What was to be written.
        what: &'static str,
        /// The system's words.
        why: String,
    },
    /// A block is damaged, and so is too much of what would give it back; or what its units have does not
    /// tell what is newest.
    #[error(
        "block {block} of object {object} is damaged: what {} have of its word is damaged, lost or contradicted by others, and parity \
         makes up for {parity}",
        units(doubtful)
    )]
    Damaged {
        /// The object.
        object: u64,
        /// Its block.
        block: u64,
        /// Units whose blocks of its word cannot be read, or that others speak against.
        doubtful: Vec<u32>,
        /// Blocks that may be missing.
        parity: u32,
    },
    /// A unit cannot take part: it failed, or what it holds is in the way.
    #[error("unit {unit} cannot join: {why}")]
    NotJoined {
        /// The unit.
        unit: u32,
        /// What is the matter with it.
        why: String,
    },
    /// Only a lost unit is replaced.
    #[error("unit {unit} cannot join: it is in use, and only a lost unit is replaced")]
    InUse {
        /// The unit.
        unit: u32,
    },
    /// What a unit's directory holds belongs to somebody else, or nobody knows to whom. Nothing was changed.
    #[error("unit {unit} is not written over: {why}")]
    Foreign {
        /// The unit.
        unit: u32,
        /// Whose it is, as far as it says.
        why: String,
    },
    /// There is no such dataset, object, block or unit.
    #[error("there is no {what} {found}")]
    NotThere {
        /// What was asked for.
        what: &'static str,
        /// Its name or number.
        found: String,
    },
    /// More than the store can hold or count.
    #[error("{what}: {found}; at most {limit}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// The most there is.
        limit: u64,
    },
    /// The system refused this process something that it needs of a unit, which is as good as before. Whether
    /// a change that was to be acknowledged is there tells the next opening; this one is of no more use.
    #[error("{0}: this process cannot use the unit, and nothing is wrong with the unit itself")]
    Refused(UnitError),
    /// A unit refused, and nothing was changed: its disk is full.
    #[error("{0}")]
    Full(UnitError),
}

/// Units that have gone on together, apart from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The epoch that they know of: none of those that the other side's follows.
    pub epoch: Epoch,
    /// Which they are, as far as that is known.
    pub units: Vec<u32>,
}

fn units(of: &[u32]) -> String {
    let each: Vec<String> = of.iter().map(|unit| format!("unit {unit}")).collect();
    if each.is_empty() {
        "units that are not known".to_owned()
    } else {
        each.join(", ")
    }
}

fn each(lost: &[(u32, String)]) -> String {
    lost.iter().map(|(unit, why)| format!("unit {unit}: {why}")).collect::<Vec<_>>().join("; ")
}
