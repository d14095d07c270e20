//! Bugs to plant, so that a test can show that the checks find each.

use std::sync::OnceLock;

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A commit does not wait for rows that are still being written.
    NotFinished,
    /// A commit does not wait for the data.
    DataNotSynced,
    /// A commit's record is in the logs before the data are synced.
    CommitFirst,
    /// What others wrote of an object's blocks is not synced.
    BlocksNotSettled,
    /// What others wrote of an object's checksums is not synced.
    SumsNotSettled,
    /// The logs begin anew before the catalog that has what they said is durable.
    CatalogNotSynced,
    /// The logs begin anew before the catalog that has what they said is written.
    EpochFirst,
    /// An epoch is served before those that take part know of it durably.
    EpochNotSynced,
    /// A change counts before the logs are synced.
    LogNotSynced,
    /// A block is overwritten in its place before the logs have it.
    PlaceFirst,
    /// Only one log has a change, however much parity there is.
    OneLog,
    /// What only one log tells, since a cut came, is done again without coming into others first.
    OneLogAgain,
    /// Logs are not done again.
    NothingReplayed,
    /// Logs are dropped before what they say is durable in its place.
    TrimmedEarly,
    /// The newest catalog is written over.
    OneCatalog,
    /// A store is opened without a new epoch.
    NoEpoch,
    /// A unit that missed an epoch is read.
    StaleRead,
    /// A checksum is not looked at.
    ChecksumIgnored,
    /// A checksum does not say where its block belongs, and nobody asks which epoch it is of.
    PlaceNotSummed,
    /// What parity knows of its data's checksums is not looked at.
    CopiesIgnored,
    /// Parity and checksums are made anew of data that rotted.
    RottenParity,
    /// A unit that is joining counts as a full one when the store is opened.
    JoiningRead,
    /// What is written to objects in use does not go to a unit that is joining.
    JoiningSkipped,
    /// How far a unit is rebuilt is written before what was rebuilt is durable.
    MarkFirst,
    /// A unit that is joining and missed an epoch goes on where it was.
    StaleJoins,
    /// An object that was begun before a unit came to join is not completed on it.
    LateObjects,
    /// A unit joins over whatever its directory holds.
    TakenBlindly,
    /// A unit that fails counts as one that has done what it was asked.
    FailureIgnored,
    /// Nothing is kept of the epochs that were served.
    NothingRemembered,
    /// An epoch counts as served before any unit knows of it.
    RememberedFirst,
    /// An epoch follows one that nobody came to serve, and of which not all know.
    BeforeUnserved,
    /// The name of a unit's new file is not synced.
    NameNotSynced,
    /// New directories of a store that is made are not synced.
    DirsNotSynced,
    /// A manifest has its name before it is synced.
    ManifestFirst,
    /// The name of a manifest is not synced.
    ManifestNotNamed,
    /// A store that is made has its manifest before it has its units.
    StoreFirst,
    /// A file that is written has its name before it is synced.
    FileFirst,
    /// The name of a file that is written is not synced.
    FileNotNamed,
    /// Nobody who reads without the protocol is told that a unit is lost.
    Untold,
    /// What a stale unit says of its transactions counts.
    StaleCounts,
    /// What a copy of the store wrote that has gone on apart counts.
    ForkTrusted,
}

static PLANTED: OnceLock<Bug> = OnceLock::new();

/// Plants a bug in all that this process does from here on; the first one counts. Without the feature
/// `planted` it does nothing.
pub fn plant(bug: Bug) {
    let _ = PLANTED.set(bug);
}

/// The bug that is planted in this process.
#[inline]
pub(crate) fn of_process() -> Option<Bug> {
    if cfg!(feature = "planted") {
        PLANTED.get().copied()
    } else {
        None
    }
}

/// Whether this bug is planted in this process.
#[inline]
pub(crate) fn is_planted(bug: Bug) -> bool {
    has(of_process(), bug)
}

/// Whether this bug is the one that is planted: never outside tests, where the compiler leaves the question
/// out.
#[inline]
pub(crate) fn has(planted: Option<Bug>, bug: Bug) -> bool {
    cfg!(feature = "planted") && planted == Some(bug)
}
