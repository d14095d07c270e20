//! Errors of a store on disks.

use crate::volume::units::{Cause, UnitError};
use crate::volume::VolumeError;
use polyduct_copy::CopyError;
use polyduct_layout::{ElemType, LayoutError};
use polyduct_message::MessageError;
use polyduct_os::{Errno, OsError};
use polyduct_port::{PortError, PortName};
use std::time::Duration;

/// Why something could not be done with a store. `store` is its directory as the caller named it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// What can go wrong with any port.
    #[error(transparent)]
    Port(#[from] PortError),

    // -- the caller's misuse --
    /// A name that no dataset can have.
    #[error("{store}: {name:?} cannot name a dataset: {problem}")]
    BadName {
        /// The store.
        store: String,
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There is no such dataset.
    #[error("{store}: there is no dataset {name:?}{hint}")]
    NotThere {
        /// The store.
        store: String,
        /// The name.
        name: String,
        /// What there is.
        hint: String,
    },
    /// Something is there that must not be.
    #[error("{store}: {what} is there already")]
    Exists {
        /// The store.
        store: String,
        /// What.
        what: String,
    },
    /// A value that cannot be.
    #[error("{store}: {what} is {found}; expected {expected}")]
    Bad {
        /// The store.
        store: String,
        /// Of what.
        what: String,
        /// What was given.
        found: String,
        /// What may be.
        expected: String,
    },
    /// The dataset has another shape than was expected.
    #[error("{store}: expected shape {expected:?}; {name:?} has {found:?}")]
    ShapeDiffers {
        /// The store.
        store: String,
        /// The dataset.
        name: String,
        /// What the caller expects.
        expected: Vec<u64>,
        /// What it is.
        found: Vec<u64>,
    },
    /// The dataset has elements of another type.
    #[error("{store}: expected elements {expected}; {name:?} has {found}")]
    ElemDiffers {
        /// The store.
        store: String,
        /// The dataset.
        name: String,
        /// What the caller expects.
        expected: ElemType,
        /// What it has.
        found: ElemType,
    },

    // -- the store --
    /// There is no store.
    #[error("{store}: {problem}; `polyduct store create` makes one")]
    NoStore {
        /// Where it was looked for.
        store: String,
        /// What is missing there.
        problem: String,
    },
    /// A manifest that is none, or not of this version.
    #[error("{store}: {problem}")]
    Manifest {
        /// The manifest's path.
        store: String,
        /// What is wrong, and where.
        problem: String,
    },
    /// What the protocol says: lost units, damage, a full disk.
    #[error("{store}: {source}")]
    Volume {
        /// The store.
        store: String,
        /// What it is.
        source: VolumeError,
    },

    // -- the other units of the program --
    /// Units do not meet, or one was lost.
    #[error("{store}: {source}")]
    Message {
        /// The store.
        store: String,
        /// What became of it.
        source: MessageError,
    },

    // -- time and the system --
    /// Another process changes the store and does not come to an end.
    #[error("{store}: timed out after {waited:.1?}: {by} is changing it")]
    Busy {
        /// The store.
        store: String,
        /// How long.
        waited: Duration,
        /// The process, as far as it is known.
        by: String,
    },
    /// The system refused something.
    #[error("{store}: {operation}: {errno}")]
    System {
        /// The store, or a file of it.
        store: String,
        /// What was to be done.
        operation: String,
        /// The system's answer.
        errno: Errno,
    },
    /// The system refused something, as `polyduct-os` tells it.
    #[error("{store}: {source}")]
    Os {
        /// The store.
        store: String,
        /// What it said.
        source: OsError,
    },
    /// A plan does not fit the memories: a fault of this library.
    #[error("{store}: {source}")]
    Plan {
        /// The store.
        store: String,
        /// What does not fit.
        source: CopyError,
    },
}

impl StoreError {
    pub(super) fn sys(store: &str, operation: impl Into<String>, errno: Errno) -> StoreError {
        StoreError::System { store: store.to_owned(), operation: operation.into(), errno }
    }

    pub(crate) fn os(store: &str) -> impl Fn(OsError) -> StoreError + '_ {
        move |source| StoreError::Os { store: store.to_owned(), source }
    }

    pub(super) fn layout(store: &str) -> impl Fn(LayoutError) -> StoreError + '_ {
        move |source| PortError::Layout { port: PortName::Store(store.to_owned()), source }.into()
    }

    pub(super) fn volume(store: &str) -> impl Fn(VolumeError) -> StoreError + '_ {
        move |source| StoreError::Volume { store: store.to_owned(), source }
    }

    /// The system refused this process something of a unit, or a unit had no room for it.
    pub(super) fn refused(store: &str) -> impl Fn(UnitError) -> StoreError + '_ {
        move |error| {
            let source = match error.cause {
                Cause::Full => VolumeError::Full(error),
                _ => VolumeError::Refused(error),
            };
            StoreError::Volume { store: store.to_owned(), source }
        }
    }

    pub(crate) fn message(store: &str) -> impl Fn(MessageError) -> StoreError + '_ {
        move |source| StoreError::Message { store: store.to_owned(), source }
    }

    pub(crate) fn plan(store: &str) -> impl Fn(CopyError) -> StoreError + '_ {
        move |source| StoreError::Plan { store: store.to_owned(), source }
    }
}
