//! What can go wrong for whoever shows something.

use polyduct_layout::ElemType;
use polyduct_os::OsError;
use std::io;
use std::net::SocketAddr;
use thiserror::Error;

/// Why a display does not listen, or does not take what it is given.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DisplayError {
    /// The host's name or address is not understood.
    #[error("no address for the host {host:?}: {source}")]
    Host {
        /// As it was given.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// The system does not let the display listen there: most often another program does.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// A token is not 32 hexadecimal digits. It is not repeated, since it is secret.
    #[error("a token of {found} characters: 32 hexadecimal digits are expected")]
    Token {
        /// Its length.
        found: usize,
    },
    /// A name cannot be part of an address.
    #[error("bad name {name:?}: {reason}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A program that lives shows something under this name.
    #[error("{name:?} is shown by another program")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// So many programs show something at once.
    #[error("{name:?} is one name too many: this display has {limit}")]
    TooManyNames {
        /// The name that found no place.
        name: String,
        /// How many there may be.
        limit: usize,
    },
    /// A view that was announced cannot be shown.
    #[error("view {view:?} of {name:?}: {reason}")]
    View {
        /// The program's name.
        name: String,
        /// The view's.
        view: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A frame has a view that was not announced.
    #[error("a frame of {name:?} has a view {view:?}, which was not announced")]
    UnknownView {
        /// The program's name.
        name: String,
        /// The view's.
        view: String,
    },
    /// A frame's view has another size than its shape says.
    #[error("view {view:?} of {name:?} is {shape:?} of {elem}: {expected} bytes, {found} found")]
    ViewBytes {
        /// The program's name.
        name: String,
        /// The view's.
        view: String,
        /// What is sent, slowest dimension first.
        shape: Vec<u64>,
        /// Its element type.
        elem: ElemType,
        /// Bytes that this needs; `u64::MAX` when they are more than can be counted.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The system refused.
    #[error(transparent)]
    System(#[from] OsError),
}
