//! The address of a pipe across hosts, and the trust among its units.

use crate::error::PipeError;
use crate::join::{check_name, check_patience, ORDER};
use crate::serve::HOST;
use polyduct_message::domain::Network;
use polyduct_message::handshake::VERSION;
use polyduct_message::hash::fnv1a;
use polyduct_message::link::hello::{Carrier, Identity};
use polyduct_message::link::key::Trust;
use polyduct_message::link::net::{socket, LinkFault};
use polyduct_message::link::noise::Terms;
use polyduct_message::meeting::{later, Within, RETRY};
use polyduct_port::{Options, PortError};
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener};
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
    /// Host and port are those of a process that knows where unit 0 listens.
    pub directory: Option<Arc<dyn Directory>>,
}

/// Tells units where the writers' unit 0 of a pipe listens, where no port is agreed on before.
pub trait Directory: Send + Sync {
    /// The address of this host that the others reach.
    ///
    /// # Errors
    /// The process that knows is not reached.
    fn own_ip(&self) -> Result<IpAddr, LinkFault>;

    /// Has others find the pipe at this address until the entry is dropped; `None` while there is another of that name.
    ///
    /// # Errors
    /// As [`own_ip`](Directory::own_ip); the time is over, or the caller gives up.
    fn enter(&self, pipe: &str, at: SocketAddr, within: Within<'_>) -> Result<Option<Entry>, LinkFault>;

    /// Where the pipe is; `None` where it is not yet, of which it may wait a while to be sure.
    ///
    /// # Errors
    /// As [`enter`](Directory::enter).
    fn find(&self, pipe: &str, within: Within<'_>) -> Result<Option<SocketAddr>, LinkFault>;
}

/// A pipe that is found while this is there.
pub type Entry = Box<dyn Send>;

impl fmt::Debug for dyn Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("directory")
    }
}

impl PartialEq for dyn Directory {
    fn eq(&self, other: &dyn Directory) -> bool {
        std::ptr::addr_eq(self, other)
    }
}

impl Eq for dyn Directory {}

impl PipeAddress {
    /// The pipe of this name whose unit 0 listens there.
    pub fn new(host: impl Into<String>, port: u16, name: impl Into<String>) -> PipeAddress {
        PipeAddress { host: host.into(), port, name: name.into(), directory: None }
    }

    /// What a launcher left in the environment for those who meet here.
    ///
    /// # Errors
    /// [`PipeError::Key`], which says how to make one.
    pub fn trust_from_env(&self) -> Result<Trust, PipeError> {
        Trust::from_env().map_err(|source| PipeError::Key { pipe: self.to_string(), source })
    }

    /// Checks the name, and gives the addresses where unit 0 may listen, which may be known only after a while.
    pub(super) fn resolve(&self, options: &Options, start: Duration) -> Result<Vec<SocketAddr>, PipeError> {
        check_name(&self.name)?;
        if let Some(directory) = &self.directory {
            let what = format!(
                "{HOST} to open the pipe{ORDER}; units on several hosts belong to one program where all have one POLYDUCT_PROGRAM"
            );
            let at = self.within(&what, options, start, |within| directory.find(&self.name, within))?;
            return Ok(vec![at]);
        }
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

    /// The addresses where unit 0 may listen itself.
    pub(super) fn own(&self, options: &Options, start: Duration) -> Result<Vec<SocketAddr>, PipeError> {
        match &self.directory {
            Some(directory) => {
                check_name(&self.name)?;
                let ip = directory.own_ip().map_err(|fault| self.unreached(fault))?;
                Ok(vec![SocketAddr::new(ip, 0)])
            }
            None => self.resolve(options, start),
        }
    }

    /// Has others find unit 0, until the entry is dropped.
    pub(super) fn enter(
        &self,
        at: SocketAddr,
        options: &Options,
        start: Duration,
    ) -> Result<Option<Entry>, PipeError> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let what = "another pipe of this name to have opened";
        self.within(what, options, start, |within| directory.enter(&self.name, at, within)).map(Some)
    }

    /// Where unit 0 is by now, where somebody knows.
    pub(super) fn now(&self, options: &Options, start: Duration) -> Result<Option<SocketAddr>, PipeError> {
        let Some(directory) = &self.directory else { return Ok(None) };
        self.once("where the pipe is", options, start, |within| directory.find(&self.name, within))
    }

    /// Asks the directory until it has an answer.
    fn within<T>(
        &self,
        what: &str,
        options: &Options,
        start: Duration,
        ask: impl Fn(Within<'_>) -> Result<Option<T>, LinkFault>,
    ) -> Result<T, PipeError> {
        let mut pause = RETRY.0;
        loop {
            if let Some(answer) = self.once(what, options, start, &ask)? {
                return Ok(answer);
            }
            wait(&self.to_string(), what, options, start, &mut pause)?;
        }
    }

    /// Asks the directory, in the time that is left.
    fn once<T>(
        &self,
        what: &str,
        options: &Options,
        start: Duration,
        ask: impl Fn(Within<'_>) -> Result<Option<T>, LinkFault>,
    ) -> Result<Option<T>, PipeError> {
        let pipe = self.to_string();
        let left = || check_patience(&pipe, options, start, Duration::ZERO, what);
        let answer = ask(Within { most: left()?, gives_up: &|| options.is_interrupted() });
        answer.map_err(|fault| left().err().unwrap_or_else(|| self.unreached(fault)))
    }

    fn unreached(&self, source: LinkFault) -> PipeError {
        PipeError::NoDirectory { pipe: self.to_string(), source: source.into() }
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

/// Lets a while go by.
///
/// # Errors
/// The time to open the pipe is over.
pub(super) fn wait(
    pipe: &str,
    what: &str,
    options: &Options,
    start: Duration,
    pause: &mut Duration,
) -> Result<(), PipeError> {
    check_patience(pipe, options, start, Duration::ZERO, what)?;
    std::thread::sleep(later(pause));
    Ok(())
}

impl fmt::Display for PipeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "//[{}]:{}/{}", self.host, self.port, self.name),
            false => write!(f, "//{}:{}/{}", self.host, self.port, self.name),
        }
    }
}
