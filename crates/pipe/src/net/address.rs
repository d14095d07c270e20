//! The address of a pipe across hosts, and the trust among its units.

use crate::error::PipeError;
use crate::join::{check_name, check_patience};
use polyduct_message::domain::Network;
use polyduct_message::handshake::VERSION;
use polyduct_message::hash::fnv1a;
use polyduct_message::link::hello::{Carrier, Identity};
use polyduct_message::link::key::Trust;
use polyduct_message::link::net::socket;
use polyduct_message::link::noise::Terms;
use polyduct_port::{Options, PortError};
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// The address of a pipe: where its writers' unit 0 listens, and the pipe's name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipeAddress {
    /// A host's name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The pipe's name.
    pub name: String,
}

impl PipeAddress {
    /// What a launcher left in the environment for those who meet here.
    ///
    /// # Errors
    /// [`PipeError::Key`], which says how to make one.
    pub fn trust_from_env(&self) -> Result<Trust, PipeError> {
        Trust::from_env().map_err(|source| PipeError::Key { pipe: self.to_string(), source })
    }

    /// Checks the name, and finds the host's addresses, which may be known only after a while.
    pub(super) fn resolve(&self, options: &Options, start: Duration) -> Result<Vec<SocketAddr>, PipeError> {
        check_name(&self.name)?;
        let host: String = self.host.chars().take(100).collect();
        // What never can be one is not waited for.
        if !self.host.chars().all(|c| c.is_alphanumeric() || ".-_:%".contains(c)) || self.host.is_empty() {
            return Err(PipeError::Port(PortError::BadOption {
                port: None,
                option: "host",
                found: format!("{host:?}"),
                expected: "a name or an address of a host".into(),
            }));
        }
        let (pipe, what) =
            (self.to_string(), format!("an address of host {host:?}, whose name does not resolve"));
        socket::resolve_while(&self.host, self.port, || {
            check_patience(&pipe, options, start, Duration::ZERO, &what).map(drop)
        })
    }

    /// How the units of this pipe reach each other in its domain: unit 0 at `root`, where it listens at
    /// `bound`.
    pub(super) fn network(trust: &Trust, root: SocketAddr, bound: Option<TcpListener>) -> Network {
        let (trusted, bound) = (trust.trusted_network, bound.map(Arc::new));
        Network { trusted, bound, ..Network::new(root, trust.key.clone()) }
    }

    /// What a unit stands for in every handshake of this pipe. Pipes of one job at one address have different
    /// names, and so their units do not meet.
    pub(super) fn terms(&self, trust: &Trust, unit: u32) -> Terms {
        // It need not be secret, the key is.
        let domain = fnv1a(VERSION.to_le_bytes().into_iter().chain(self.name.bytes()));
        let incarnation = u64::from(std::process::id());
        let me = Identity { domain, unit, incarnation, features: 0, frame_limit: 0, index: 0 };
        Terms { key: trust.key.clone(), me, trusted: trust.trusted_network, carrier: Carrier::Stream }
    }
}

impl fmt::Display for PipeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "//[{}]:{}/{}", self.host, self.port, self.name),
            false => write!(f, "//{}:{}/{}", self.host, self.port, self.name),
        }
    }
}
