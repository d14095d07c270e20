//! Errors of a measurement.

use polyduct_message::link::shm::{AttachError, SendError};
use polyduct_message::{ConfigError, LinkError, MessageError};
use polyduct_os::OsError;
use std::path::PathBuf;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// What came is not what was sent.
    #[error("{what}: {count} messages were wrong, doubled or out of order")]
    Wrong {
        /// The scene.
        what: &'static str,
        /// How many.
        count: u64,
    },
    /// The other process does not answer.
    #[error("{what}: nothing came for {seconds} s")]
    Silent {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        seconds: u64,
    },
    /// The two processes do not understand each other.
    #[error("the processes of a measurement disagree: {what}")]
    Disagree {
        /// About what.
        what: &'static str,
    },
    /// The command could not be started again.
    #[error("cannot start {}: {error}", program.display())]
    Start {
        /// The command.
        program: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// One of the processes failed; it has said why.
    #[error("a process of the measurement ended with {status}: {said}")]
    Ended {
        /// Its status.
        status: std::process::ExitStatus,
        /// Its last words.
        said: String,
    },
    /// A scene that a link does not have.
    #[error("{link} has no {scene}")]
    NoScene {
        /// The link.
        link: &'static str,
        /// The scene.
        scene: &'static str,
    },
    /// What a process was told or reported cannot be read.
    #[error("unreadable: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The domain or the network link.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The shared-memory link, in sending.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The shared-memory link, in receiving.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The shared-memory link, in starting.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The system, through the standard library.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
