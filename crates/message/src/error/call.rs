//! Errors of calls: how they end without an answer.

use crate::types::Address;
use std::time::Duration;

/// How a call ended that did not give an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The handler at the other end failed.
    #[error("unit {unit}: handler {name:?} failed: {error}")]
    Failed {
        /// The unit that was called.
        unit: Address,
        /// What was called.
        name: String,
        /// What it said.
        error: String,
    },
    /// No answer before the deadline; the callee has been told to stop.
    #[error("unit {unit}: handler {name:?} gave no answer within {waited:.1?}")]
    Deadline {
        /// The unit that was called.
        unit: Address,
        /// What was called.
        name: String,
        /// How long the call was under way.
        waited: Duration,
    },
    /// The caller cancelled it.
    #[error("unit {unit}: the call of {name:?} was cancelled")]
    Cancelled {
        /// The unit that was called.
        unit: Address,
        /// What was called.
        name: String,
    },
    /// The unit was lost, or left, before it answered.
    #[error("unit {unit} is gone; the call of {name:?} has no answer")]
    PeerGone {
        /// The unit that was called.
        unit: Address,
        /// What was called.
        name: String,
    },
}
