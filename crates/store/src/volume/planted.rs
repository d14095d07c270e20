//! Bugs to plant, so that a test can show that the checks find each.

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A commit does not wait for the data.
    DataNotSynced,
    /// A change counts before the logs are synced.
    LogNotSynced,
    /// A block is overwritten in its place before the logs have it.
    PlaceFirst,
    /// Only one log has a change, however much parity there is.
    OneLog,
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
    /// A checksum does not say where its block belongs.
    PlaceNotSummed,
    /// What parity knows of its data's checksums is not looked at.
    CopiesIgnored,
}
