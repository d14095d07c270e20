//! The error of the façade: whose fault it is, and everything from below.

use crate::class::{classify, Class};
use polyduct_pipe::PipeError;
use polyduct_port::{PortError, PortName};
use polyduct_store::{disk::StoreError, FileError};

/// What can go wrong with a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that cannot be.
    #[error("{what}")]
    Misuse {
        /// What, and what would have been right.
        what: String,
    },
    /// A launcher's environment variable makes no sense.
    #[error("environment variable {variable}: expected a number, found {found}")]
    Environment {
        /// The variable.
        variable: String,
        /// What it holds.
        found: String,
    },
    /// A URL that is not understood.
    #[error("cannot open {url:?}: {why}")]
    Url {
        /// The URL.
        url: String,
        /// What would have been understood.
        why: String,
    },
    /// A domain, a gateway or a stream across hosts has no key by which those who meet there know each other.
    #[error(
        "{what}: {source}; those who meet across hosts need one secret: make it with `openssl rand -hex 32` and put it \
        into POLYDUCT_JOB_KEY everywhere"
    )]
    Key {
        /// What has none.
        what: String,
        /// What is wrong with the key.
        source: polyduct_message::link::key::KeyError,
    },
    /// A layout or a dataset.
    #[error(transparent)]
    Layout(#[from] polyduct_layout::LayoutError),
    /// What can go wrong with any port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// What only pipes meet.
    #[error(transparent)]
    Pipe(PipeError),
    /// What only files meet.
    #[error(transparent)]
    File(Box<FileError>),
    /// What only stores over many disks meet.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// What only streams meet.
    #[error(transparent)]
    Stream(std::sync::Arc<polyduct_stream::StreamError>),
    /// Messages.
    #[error(transparent)]
    Message(Box<polyduct_message::MessageError>),
    /// Parts and layouts given to [`redistribute`](crate::redistribute()) do not fit each other.
    #[error("{side} part {unit} has {found} bytes; its layout gives it {expected}")]
    PartSize {
        /// `source` or `destination`.
        side: &'static str,
        /// The unit.
        unit: u64,
        /// Bytes by the layout.
        expected: u64,
        /// Bytes given.
        found: u64,
    },
}

impl Error {
    /// What the surfaces call it: the name of its class, and its attributes.
    pub fn class(&self) -> Class {
        classify(self)
    }

    /// What a port at `url` says when it is used after it was closed, or while another thread closes it.
    pub fn closed(url: &str) -> Error {
        let port = match url.split_once(':') {
            Some(("pipe", pipe)) => PortName::Pipe(pipe.to_owned()),
            Some(("store", path)) => PortName::Store(path.to_owned()),
            _ => PortName::File(url.to_owned()),
        };
        PortError::Closed { port }.into()
    }
}

impl From<polyduct_message::MessageError> for Error {
    fn from(e: polyduct_message::MessageError) -> Error {
        Error::Message(Box::new(e))
    }
}

// What all ports have in common is found in one place, whatever port it was.

impl From<polyduct_stream::StreamError> for Error {
    fn from(e: polyduct_stream::StreamError) -> Error {
        Error::Stream(std::sync::Arc::new(e))
    }
}

impl From<PipeError> for Error {
    fn from(e: PipeError) -> Error {
        match e {
            PipeError::Port(e) => Error::Port(e),
            e => Error::Pipe(e),
        }
    }
}

impl From<FileError> for Error {
    fn from(e: FileError) -> Error {
        match e {
            FileError::Port(e) => Error::Port(e),
            FileError::Store(e) => Error::Store(e),
            e => Error::File(Box::new(e)),
        }
    }
}

impl From<StoreError> for Error {
    fn from(e: StoreError) -> Error {
        match e {
            StoreError::Port(e) => Error::Port(e),
            e => Error::Store(Box::new(e)),
        }
    }
}
