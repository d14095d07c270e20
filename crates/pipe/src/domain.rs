//! The message domain of an open port: one more for each pipe, with the units of both sides in it.
//!
//! It is made when it is first asked for, which all units of all programs have to do. Steps and messages go
//! on independently: they share nothing but the list of who takes part, and the name of the domain, which
//! comes from the number that the pipe drew when it opened. So two pipes, or one that was opened again, never
//! meet.

use crate::error::PipeError;
use crate::programs::Programs;
use crate::wire::Welcome;
use polyduct_message::config::Config;
use polyduct_message::domain::{self, Domain, Network, OnLoss};
use polyduct_message::types::Address;
use polyduct_message::MessageError;
use polyduct_port::{Interrupt, Options, PortError, Side, UnitName};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Where in the domain of a pipe its units are: first those of the writer program, then those of each reader
/// program, in the order in which the programs have their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Where each program begins, and the end of the last.
    bounds: Vec<Address>,
}

impl Addresses {
    pub(crate) fn new(welcome: &Welcome) -> Addresses {
        let mut bounds: Vec<Address> = vec![0];
        for &units in [welcome.writers].iter().chain(&welcome.readers) {
            // What is more than a domain can have is refused when it is joined.
            bounds.push(bounds[bounds.len() - 1].saturating_add(units));
        }
        Addresses { bounds }
    }

    /// The writer program's.
    pub fn writers(&self) -> Range<Address> {
        0..self.bounds[1]
    }

    /// Those of each reader program.
    pub fn readers(&self) -> impl ExactSizeIterator<Item = Range<Address>> + '_ {
        self.bounds[1..].windows(2).map(|w| w[0]..w[1])
    }

    /// Units of the whole domain.
    pub fn units(&self) -> u32 {
        self.bounds[self.bounds.len() - 1]
    }

    /// The address of a unit; `None` where there is no such unit.
    pub fn address_of(&self, unit: UnitName) -> Option<Address> {
        let range = match unit.side {
            Side::Writer => Some(self.writers()),
            Side::Reader(program) => self.readers().nth(program as usize),
        };
        range.filter(|r| unit.unit < r.end - r.start).map(|r| r.start + unit.unit)
    }

    /// The unit at an address; `None` beyond the last.
    pub fn unit_at(&self, address: Address) -> Option<UnitName> {
        let program = self.bounds.windows(2).position(|w| (w[0]..w[1]).contains(&address))?;
        let side = program.checked_sub(1).map_or(Side::Writer, |p| Side::Reader(p as u32));
        Some(UnitName { side, unit: address - self.bounds[program] })
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writers 0..{}", self.bounds[1])?;
        self.readers().enumerate().try_for_each(|(p, r)| write!(f, ", readers {p} {}..{}", r.start, r.end))
    }
}

/// What a unit may say when it asks for the domain of its port.
#[derive(Clone, Default)]
pub struct DomainOptions {
    /// How long to wait for the others to ask, and to connect to one of them. `None`: as long as the port did
    /// when it opened.
    pub open_timeout: Option<Duration>,
    /// How long other calls wait where they are given no deadline. `None`: as long as the port's.
    pub timeout: Option<Duration>,
    /// What the loss of a unit means for the others.
    pub on_loss: OnLoss,
    /// Asked now and then by calls that wait. `None`: what the port asks.
    pub interrupt: Option<Interrupt>,
    /// Sizes and thresholds.
    pub config: Config,
}

/// A port's way to its domain.
pub(crate) struct PortDomain {
    pipe: String,
    name: String,
    unit: Address,
    addresses: Addresses,
    open_timeout: Duration,
    timeout: Option<Duration>,
    interrupt: Option<Interrupt>,
    network: Option<Network>,
    joined: Option<Domain>,
    /// Whether reader programs come and go, and nobody can say who would be in it.
    open: bool,
    programs: Programs,
}

impl PortDomain {
    /// For the unit `me` of the pipe that the welcome is to. `network`: where the writers' unit 0 is, across
    /// hosts.
    pub fn new(
        pipe: &str,
        me: UnitName,
        welcome: &Welcome,
        options: &Options,
        network: Option<Network>,
    ) -> PortDomain {
        let addresses = Addresses::new(welcome);
        PortDomain {
            pipe: pipe.to_owned(),
            name: format!("port.{:032x}", u128::from_be_bytes(welcome.id)),
            // Nobody has the greatest number, which is refused when the domain is joined.
            unit: addresses.address_of(me).unwrap_or(Address::MAX),
            addresses,
            open_timeout: options.open_timeout,
            timeout: options.timeout,
            interrupt: options.interrupt.clone(),
            network,
            joined: None,
            open: welcome.readers.is_empty(),
            programs: Programs::new(welcome, me, &options.program),
        }
    }

    /// Where each unit is.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// What its programs are called.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The domain, if this unit has joined it.
    pub fn joined(&self) -> Option<Domain> {
        self.joined.clone()
    }

    /// Joins, and waits until all others have. `ended` is asked meanwhile: whether the pipe is over, and
    /// somebody will never come.
    pub fn join(
        &mut self,
        wishes: &DomainOptions,
        ended: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Domain, PipeError> {
        if self.open {
            let expected =
                "a number in a pipe whose units have a domain: all of them join it when it is made";
            return Err(PipeError::Port(PortError::BadOption {
                port: None,
                option: "readers",
                found: "any".into(),
                expected: expected.into(),
            }));
        }
        let mut options = domain::Options::new(&self.name, self.unit, self.addresses.units());
        options.open_timeout = wishes.open_timeout.unwrap_or(self.open_timeout);
        options.timeout = wishes.timeout.or(self.timeout);
        options.on_loss = wishes.on_loss;
        options.config = wishes.config.clone();
        options.network = self.network.clone();
        // The domain may outlive the port, and then has its own ways to learn of an end: the port's count
        // until it is joined.
        let port = self.interrupt.clone();
        let opening: Arc<dyn Fn() -> bool + Send + Sync> =
            Arc::new(move || ended() || port.as_ref().is_some_and(|ask| ask()));
        let (until_joined, later) = (Arc::downgrade(&opening), wishes.interrupt.clone());
        let later = later.or_else(|| self.interrupt.clone());
        options.interrupt = Some(Arc::new(move || {
            until_joined.upgrade().is_some_and(|ask| ask()) || later.as_ref().is_some_and(|ask| ask())
        }));
        let joined = Domain::join(options);
        drop(opening);
        let domain = joined.map_err(|source| self.error(source))?;
        // A unit that connects now comes to the domain, not to a listener that nobody looks at.
        self.network = None;
        Ok(self.joined.insert(domain).clone())
    }

    fn error(&self, source: MessageError) -> PipeError {
        let (pipe, addresses) = (self.pipe.clone(), self.addresses.clone());
        match source {
            MessageError::Interrupted => PipeError::interrupted(&pipe, None),
            source => PipeError::Domain { pipe, addresses, source: Box::new(source) },
        }
    }

    /// The port closes. The unit leaves the domain, unless somebody else has it, too.
    ///
    /// # Errors
    /// Some other unit did not take what this one had sent to it; this one has left all the same.
    pub fn leave(&mut self) -> Result<(), PipeError> {
        self.network = None;
        let left = self.joined.take().map_or(Ok(()), Domain::close);
        left.map_err(|source| self.error(source))
    }

    /// This unit gives up, whoever else has the domain.
    pub fn give_up(&mut self) {
        if let Some(domain) = self.joined.take() {
            domain.give_up();
        }
        self.network = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyduct_port::Policy;

    fn addresses(writers: u32, readers: &[u32]) -> Addresses {
        Addresses::new(&Welcome {
            id: [0; 16],
            program: 0,
            writers,
            readers: readers.to_vec(),
            depth: 2,
            policy: Policy::Block,
            arrays: Vec::new(),
            writers_wait: false,
            readers_wait: vec![],
            reader_programs: vec![],
            reader_takes: Vec::new(),
        })
    }

    #[test]
    fn addresses_and_units_are_each_others_inverse() {
        let all = addresses(2, &[3, 1]);
        assert_eq!((all.units(), all.writers()), (6, 0..2));
        assert_eq!(all.readers().collect::<Vec<_>>(), [2..5, 5..6]);
        assert_eq!(all.to_string(), "writers 0..2, readers 0 2..5, readers 1 5..6");
        for address in 0..6 {
            assert_eq!(all.unit_at(address).and_then(|unit| all.address_of(unit)), Some(address));
        }
        assert_eq!(all.unit_at(4), Some(UnitName { side: Side::Reader(0), unit: 2 }));
        assert_eq!(all.unit_at(6), None);
        for (side, unit) in [(Side::Writer, 2), (Side::Reader(0), 3), (Side::Reader(2), 0)] {
            assert_eq!(all.address_of(UnitName { side, unit }), None, "{side:?} {unit}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_do_not_overflow() {
        let all = addresses(u32::MAX, &[u32::MAX, 7]);
        assert_eq!(all.units(), u32::MAX);
        assert_eq!(all.address_of(UnitName { side: Side::Reader(1), unit: 0 }), None);
    }
}
