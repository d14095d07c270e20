//! Joining the message domain of this program.

use crate::{env, Error};
use polyduct_message::config::Config;
use polyduct_message::domain::{Domain, Interrupt, OnLoss, Options};
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
}

/// The domain of this program: all units that one launcher started, and nobody else.
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
    /// The name of the domain, the same for all its units and no other domain of this user: 1 to 64 letters, digits, `.`,
    /// `_`, `-`. Without it, what tells the launcher's jobs apart.
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

    /// How long other calls wait where they are given no deadline. Default: for ever; the loss of a unit ends them.
    pub fn timeout(mut self, timeout: Duration) -> Join {
        self.timeout = Some(timeout);
        self
    }

    /// What the loss of a unit means for the others (default: an error for everybody who waits).
    pub fn on_loss(mut self, on_loss: OnLoss) -> Join {
        self.on_loss = on_loss;
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
    /// [`Error::Environment`] and [`Error::Misuse`] where unit, units or name cannot be known; then see [`Domain::join`].
    pub fn join(self) -> Result<Domain, Error> {
        let get = |name: &str| std::env::var(name).ok();
        let place = env::domain_place(self.unit, self.units, self.name.as_deref(), get)?;
        let config = Config::load().map_err(polyduct_message::MessageError::from)?;
        let mut options = Options::new(&place.program, place.unit, place.units);
        options.open_timeout = self.open_timeout.unwrap_or(options.open_timeout);
        options.timeout = self.timeout;
        (options.on_loss, options.interrupt, options.config) = (self.on_loss, self.interrupt, config);
        Ok(Domain::join(options)?)
    }
}
