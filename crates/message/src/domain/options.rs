//! Options of a unit that joins a domain.

use super::host::Who;
use super::host_map::Hosts;
use super::meet::Network;
use crate::config::Config;
use crate::link::shm::Sizes;
use crate::types::{Address, MAX_UNITS};
use crate::MessageError;
use std::sync::Arc;
use std::time::Duration;

/// Asked now and then by whoever waits: whether to stop waiting.
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// What the loss of a unit means for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// All that wait, for whatever, learn of it at once: [`MessageError::PeerLost`], in all units the same.
    #[default]
    Raise,
    /// Only calls that need the lost unit fail.
    Continue,
}

/// How to join a domain.
#[derive(Clone)]
pub struct Options {
    /// Its name, the same for all its units and no other domain of this user: 1 to 64 letters, digits, `.`,
    /// `_`, `-`.
    pub name: String,
    /// This unit's address.
    pub unit: Address,
    /// Units of the domain: 1 to 4096.
    pub units: u32,
    /// How long joining, and connecting to a partner, may take. Default: 60 s. Across hosts units of one host
    /// get as long again to find each other once all have met.
    pub open_timeout: Duration,
    /// How long other calls wait where they are given no deadline: for ever if `None`, the default.
    pub timeout: Option<Duration>,
    /// What the loss of a unit means for the others.
    pub on_loss: OnLoss,
    /// Asked now and then by calls that wait.
    pub interrupt: Option<Interrupt>,
    /// How units on several hosts reach each other; those of one host share memory all the same. `None`: all
    /// are on this host.
    pub network: Option<Network>,
    /// Sizes and thresholds.
    pub config: Config,
}

impl Options {
    /// Unit `unit` of `units` in the domain `name`; all else by default.
    pub fn new(name: &str, unit: Address, units: u32) -> Options {
        Options {
            name: name.to_owned(),
            unit,
            units,
            open_timeout: Duration::from_secs(60),
            timeout: None,
            on_loss: OnLoss::default(),
            interrupt: None,
            network: None,
            config: Config::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), MessageError> {
        let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !(1..=64).contains(&self.name.len()) || !self.name.chars().all(good) {
            let found = self.name.chars().take(80).collect();
            return Err(MessageError::BadName { found });
        }
        if self.units == 0 || self.units > MAX_UNITS {
            let (limit, found) = (MAX_UNITS.into(), self.units.into());
            let what = if found == 0 { "units of a domain, at least 1" } else { "units of a domain" };
            return Err(MessageError::Limit { what, limit, found });
        }
        if self.unit >= self.units {
            return Err(MessageError::NoUnit { to: self.unit, units: self.units });
        }
        Ok(())
    }

    /// Whether the caller wants what waits to stop.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|ask| ask())
    }

    /// Sizes of a link to a unit of the same host.
    pub(super) fn link_sizes(&self) -> Sizes {
        self.config.link_sizes(u64::from(self.units - 1))
    }

    /// What this unit says to those of its host; `place` stands for the domain in the names of their sockets.
    pub(super) fn who<'a>(&'a self, hosts: &'a Hosts, place: &'a str) -> Who<'a> {
        Who {
            name: &self.name,
            place,
            unit: self.unit,
            units: self.units,
            near: hosts.near(),
            timeout: self.open_timeout,
            interrupt: self.interrupt.clone(),
        }
    }
}
