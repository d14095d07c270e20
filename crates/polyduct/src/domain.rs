//! Joining the message domain of this program.

use crate::{env, url, Error};
use polyduct_message::config::Config;
use polyduct_message::domain::{Domain, Interrupt, Network, OnLoss, Options};
use polyduct_message::link::key::Trust;
use polyduct_message::link::net::socket::resolve_while;
use polyduct_os::clock;
use polyduct_pipe::DomainOptions;
use std::time::Duration;

/// A domain about to be joined: says what is not usual, then [`join`](Join::join).
#[derive(Clone, Default)]
pub struct Join {
    name: Option<String>,
    unit: Option<u32>,
    units: Option<u32>,
    open_timeout: Option<Duration>,
    timeout: Option<Duration>,
    on_loss: OnLoss,
    interrupt: Option<Interrupt>,
    trust: Option<Trust>,
}

/// The domain of this program: all units that one launcher started, and nobody else.
///
/// With `tcp://HOST:PORT` or `udp://HOST:PORT` for its [name](Join::name), or in `POLYDUCT_DOMAIN`, the units
/// may be on several hosts. Unit 0 listens at HOST:PORT; the others connect there, and to each other when
/// they first need to, at ports that the system picks. Every unit needs the job's key in `POLYDUCT_JOB_KEY`
/// (64 hexadecimal digits), or from [`trust`](Join::trust). All that goes over the network is encrypted,
/// unless every unit has `POLYDUCT_TRUSTED_NETWORK=1`.
///
/// ```
/// let alone = polyduct::domain().join()?;
/// assert_eq!((alone.unit(), alone.units()), (0, 1));
/// # Ok::<(), polyduct::Error>(())
/// ```
pub fn domain() -> Join {
    Join::default()
}

impl Join {
    /// The name of the domain, the same for all its units and no other domain of this user: 1 to 64 letters,
    /// digits, `.`, `_`, `-`. Or where its units on several hosts meet: `tcp://HOST:PORT`, `udp://HOST:PORT`.
    /// Without it, what `POLYDUCT_DOMAIN` says, or what tells the launcher's jobs apart.
    pub fn name(mut self, name: &str) -> Join {
        self.name = Some(name.to_owned());
        self
    }

    /// Number of this unit, instead of the launcher's.
    pub fn unit(mut self, unit: u32) -> Join {
        self.unit = Some(unit);
        self
    }

    /// Units of the domain, instead of the launcher's.
    pub fn units(mut self, units: u32) -> Join {
        self.units = Some(units);
        self
    }

    /// How long joining, and connecting to a partner, may take. Default: 60 s.
    pub fn open_timeout(mut self, timeout: Duration) -> Join {
        self.open_timeout = Some(timeout);
        self
    }

    /// How long other calls wait where they are given no deadline. Default: for ever; the loss of a unit ends
    /// them.
    pub fn timeout(mut self, timeout: Duration) -> Join {
        self.timeout = Some(timeout);
        self
    }

    /// What the loss of a unit means for the others (default: an error for everybody who waits).
    pub fn on_loss(mut self, on_loss: OnLoss) -> Join {
        self.on_loss = on_loss;
        self
    }

    /// The job's key, and whether the network is trusted, instead of what the environment says: for domains
    /// across hosts.
    pub fn trust(mut self, trust: Trust) -> Join {
        self.trust = Some(trust);
        self
    }

    /// A question asked during calls that wait: give up?
    pub fn interrupt(mut self, ask: Interrupt) -> Join {
        self.interrupt = Some(ask);
        self
    }

    /// What is said here, for the domain of a port, whose units have their numbers and a name already.
    pub(crate) fn of_port(self) -> Result<DomainOptions, Error> {
        if self.name.is_some() || self.unit.is_some() || self.units.is_some() {
            let what = "the domain of a port takes name, unit and units from the port";
            return Err(Error::Misuse { what: what.into() });
        }
        let config = Config::load().map_err(polyduct_message::MessageError::from)?;
        let Join { open_timeout, timeout, on_loss, interrupt, .. } = self;
        Ok(DomainOptions { open_timeout, timeout, on_loss, interrupt, config })
    }

    /// Joins, and waits until all units have. Sizes are those of [`Config::load`].
    ///
    /// # Errors
    /// [`Error::Environment`] and [`Error::Misuse`] where unit, units or name cannot be known; [`Error::Url`]
    /// for a URL that is none, or a host that nobody knows within the open timeout; [`Error::Key`]; then see
    /// [`Domain::join`].
    pub fn join(self) -> Result<Domain, Error> {
        let get = |name: &str| std::env::var(name).ok();
        let place = env::domain_place(self.unit, self.units, self.name.as_deref(), get)?;
        let config = Config::load().map_err(polyduct_message::MessageError::from)?;
        let network = network(&place.program, &self)?;
        // The name tells domains apart that meet at one place: there, one port has one domain.
        let name = match &network {
            Some(network) => format!("port-{}", network.root.port()),
            None => place.program,
        };
        let mut options = Options::new(&name, place.unit, place.units);
        options.network = network;
        options.open_timeout = self.open_timeout.unwrap_or(options.open_timeout);
        options.timeout = self.timeout;
        (options.on_loss, options.interrupt, options.config) = (self.on_loss, self.interrupt, config);
        Ok(Domain::join(options)?)
    }
}

/// How units reach each other, where `name` says that they meet on a network.
fn network(name: &str, join: &Join) -> Result<Option<Network>, Error> {
    let Some(url::Meeting { transport, host, port }) = url::meeting(name)? else { return Ok(None) };
    let trust = join.trust.clone().map_or_else(Trust::from_env, Ok);
    let Trust { key, trusted_network } =
        trust.map_err(|source| Error::Key { what: format!("domain {name}"), source })?;
    let (start, limit) = (clock::now(), join.open_timeout.unwrap_or(Options::new("", 0, 1).open_timeout));
    let found = resolve_while(&host, port, || {
        if join.interrupt.as_ref().is_some_and(|ask| ask()) {
            return Err(polyduct_message::MessageError::Interrupted.into());
        }
        let over = clock::now().saturating_sub(start) >= limit;
        let unknown = || format!("no host is known as {host:?}: its name did not resolve within {limit:.1?}");
        if over {
            Err(Error::Url { url: name.to_owned(), why: unknown() })
        } else {
            Ok(())
        }
    })?;
    // Hosts may list the addresses of one name in different orders. Where there are both kinds, all take the
    // first of one.
    let root = *found.iter().find(|at| at.is_ipv4()).unwrap_or(&found[0]);
    let network = Network::new(root, key);
    Ok(Some(Network { transport, trusted: trusted_network, ..network }))
}
