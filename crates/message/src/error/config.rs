//! Errors of settings.

use std::path::PathBuf;

/// What is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read, or is not TOML.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// A name that is no setting.
    #[error("{place}: there is no setting {name:?}; there are {known}")]
    Unknown {
        /// The file or variable.
        place: String,
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A value that is no number of bytes, or out of its bounds.
    #[error("{place}: {name} is {found:?}; expected {min} to {max}")]
    BadValue {
        /// The file or variable.
        place: String,
        /// The setting.
        name: String,
        /// What it was given.
        found: String,
        /// The smallest value.
        min: String,
        /// The largest value.
        max: String,
    },
    /// Even the smallest rings do not fit into memory.
    #[error("rings with {partners} partners take {needed} bytes at least; {allowed} may be used")]
    TooBig {
        /// Partners.
        partners: u64,
        /// Bytes for the smallest rings.
        needed: u64,
        /// A quarter of what the machine gives.
        allowed: u64,
    },
}
