//! Domains: endpoints with addresses 0..N-1, handlers by name, messages, calls, barriers, regions.
//!
//! A program joins a domain with all its units; each unit is one endpoint. What is sent goes by [`Channel`]s,
//! each with one writer and no lock. What comes is handled by whichever thread looks: [`Domain::poll`], and
//! every call that waits, calls the [handlers](Domain::handler) of what has come. Nothing else does: a unit
//! that computes for long and wants to answer meanwhile polls now and then, or leaves it to a thread that
//! [serves](Domain::serve_until).
//!
//! Units of one host share memory, whatever else the domain spans; those of other hosts are reached by the
//! network. It is the same to all calls but those that use memory in place: [`Domain::reach`] says which it
//! is.
//!
//! Every wait ends with what it waits for, with the loss of the unit that it waits for, or at its deadline.

mod ask;
pub mod barrier;
pub mod board;
mod call;
mod channel;
mod collective;
mod connect;
pub mod directory;
mod dispatch;
mod far;
mod handlers;
pub mod host;
pub mod host_map;
pub mod inbox;
mod leave;
mod lent;
mod loss;
mod meet;
mod memory;
mod messages;
mod net;
mod now;
mod options;
mod peer;
pub mod pending;
mod pool;
pub mod process;
mod progress;
mod region;
#[doc(hidden)]
pub mod room;
mod status;
pub mod system;
mod units;
mod wait;

pub use call::{Call, Parcel};
pub use channel::{Channel, ChannelOptions};
pub use collective::{Collective, CollectiveCount};
pub use dispatch::{Context, Message};
pub use far::Put;
pub use host_map::{HostId, Reach};
pub use lent::Lent;
pub use meet::Network;
pub use memory::Notice;
pub use options::{Interrupt, OnLoss, Options};
pub use peer::Gone;
pub use region::Region;
pub use status::Status;

use crate::config::Config;
use crate::link::shm::Bell;
use crate::types::Address;
use crate::MessageError;
use board::Board;
use collective::Together;
use handlers::Handlers;
use host::Joined;
use host_map::{Hosts, Processes};
use inbox::Inbox;
use leave::Part;
use net::Net;
pub(crate) use peer::lock;
use peer::Peer;
use pending::Calls;
use progress::Receiving;
use region::Regions;
use room::Rooms;
use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use units::Units;

/// A unit's place in a domain. Cheap to clone; all clones are the same endpoint. The unit leaves when the
/// last is dropped.
#[derive(Clone)]
pub struct Domain {
    inner: Arc<Inner>,
    part: Arc<Part>,
}

/// A handle that does not keep the unit in the domain: for handlers, which the domain itself keeps.
#[derive(Clone)]
pub struct WeakDomain(Weak<Part>);

impl WeakDomain {
    /// The domain, if the unit is still in it.
    pub fn upgrade(&self) -> Option<Domain> {
        let part = self.0.upgrade()?;
        Some(Domain { inner: part.inner.clone(), part })
    }
}

/// What all handles of an endpoint share.
pub(crate) struct Inner {
    units: Units,
    /// Across hosts: the way to the partners that are far.
    net: Option<Net>,
    receiving: Receiving,
    handlers: Handlers,
    inbox: Inbox,
    calls: Mutex<Calls<Parcel>>,
    together: Together,
    regions: Regions,
}

impl Inner {
    /// The calls under way.
    fn calls(&self) -> MutexGuard<'_, Calls<Parcel>> {
        lock(&self.calls)
    }
}

impl Domain {
    /// Joins a domain, and waits until all its units have.
    ///
    /// # Errors
    /// [`MessageError::BadName`], [`MessageError::NoUnit`], [`MessageError::Limit`] for options that cannot
    /// be; [`MessageError::NameTaken`]; [`MessageError::Refused`] when units disagree or do not come within
    /// [`Options::open_timeout`]; [`MessageError::TurnedAway`] with another key, trust, name or version than
    /// unit 0; [`MessageError::Timeout`] without unit 0; the system's refusals.
    ///
    /// # Examples
    /// ```
    /// use polyduct_message::domain::{Domain, Options};
    /// let alone = Domain::join(Options::new(&format!("doc-{}", std::process::id()), 0, 1))?;
    /// alone.send(0, 7, [0; 2], b"to myself")?;
    /// assert_eq!(alone.recv(Some(0), Some(7))?.payload, b"to myself");
    /// # Ok::<(), polyduct_message::MessageError>(())
    /// ```
    pub fn join(mut options: Options) -> Result<Domain, MessageError> {
        options.check()?;
        let partners = u64::from(options.units - 1);
        options.config.fit(partners, polyduct_os::memory::obtainable_bytes())?;
        // Partners may pull from this process's memory, where there are messages that long; where that cannot
        // be permitted, they go through the rings.
        if options.config.bytes("pull_from") <= options.config.bytes("message") {
            let _ = polyduct_os::remote::permit_readers();
        }
        let bell = Arc::new(Bell::create(options.units)?);
        let (unit, units) = (options.unit, options.units);
        let owner = net::Owner::default();
        let rooms = Arc::new(Rooms::new(options.config.bytes("inbox"), bell.clone()));
        let (net, hosts, place) = match &options.network {
            None => (None, Hosts::one(unit, units), options.name.clone()),
            Some(network) => {
                let (net, hosts, place) = Net::join(&options, network, &bell, &rooms, owner.clone())?;
                (Some(net), hosts, place)
            }
        };
        let hosts = Arc::new(hosts);
        let joined = match (&net, hosts.near()) {
            (Some(_), [_]) => None,
            _ => {
                let seen = Cell::new(0);
                let watch = net.as_ref().map(|net| || net.watch(unit, &hosts, &seen));
                let watch = watch.as_ref().map(|watch| watch as ask::Watch<'_>);
                Some(Joined::join(&options.who(&hosts, &place), watch)?)
            }
        };
        let (board, processes) = match (&joined, &net) {
            (Some(joined), None) => (joined.board.clone(), joined.members.clone()),
            (Some(joined), Some(_)) => (joined.board.clone().among(hosts.clone())?, joined.members.clone()),
            // What the others would write there they say in messages.
            (None, _) => (Board::create(units)?, Processes::default()),
        };
        let inner = Arc::new(Inner {
            receiving: Receiving::new(bell),
            handlers: Handlers::default(),
            inbox: Inbox::new(options.config.bytes("message"), rooms),
            calls: Mutex::default(),
            together: Together::new(unit, units),
            regions: Regions::default(),
            units: Units::new(options, hosts, place, processes, board),
            net,
        });
        let _ = owner.set(Arc::downgrade(&inner));
        let host = joined.map(|joined| joined.serve(unit, connect::HostEvents(inner.clone()))).transpose()?;
        let part = Arc::new(Part { inner: inner.clone(), process: std::process::id(), _host: host });
        Ok(Domain { inner, part })
    }

    /// A handle that does not keep the unit in the domain.
    pub fn downgrade(&self) -> WeakDomain {
        WeakDomain(Arc::downgrade(&self.part))
    }

    /// The domain's name.
    pub fn name(&self) -> &str {
        &self.inner.units.options().name
    }

    /// This unit's address.
    pub fn unit(&self) -> Address {
        self.inner.units.me()
    }

    /// Units of the domain.
    pub fn units(&self) -> u32 {
        self.inner.units.options().units
    }

    /// Whether all units are reached by shared memory.
    pub fn is_on_one_host(&self) -> bool {
        self.inner.units.hosts().far().next().is_none()
    }

    /// How a unit is reached: the same for as long as the domain lives. Regions of shared memory can be
    /// [mapped](Domain::region_of) where it is not [`Reach::Far`].
    ///
    /// # Errors
    /// [`MessageError::NoUnit`].
    pub fn reach(&self, unit: Address) -> Result<Reach, MessageError> {
        self.inner.units.hosts().reach(unit).ok_or(MessageError::NoUnit { to: unit, units: self.units() })
    }

    /// The process that is a unit; `None` where it is on another host or in another process namespace, and so
    /// has no number here.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`].
    pub fn pid(&self, unit: Address) -> Result<Option<u32>, MessageError> {
        self.inner.units.peer(unit)?;
        Ok(self.inner.units.processes().pid(unit))
    }

    /// What has become of a unit; `None` while it takes part.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`].
    pub fn gone(&self, unit: Address) -> Result<Option<Gone>, MessageError> {
        self.inner.units.peer(unit).map(Peer::gone)
    }

    /// Handles what has come: calls the handlers. Returns the number of records handled; zero too while
    /// another thread does.
    pub fn poll(&self) -> usize {
        self.inner.poll().unwrap_or(0)
    }

    /// Handles what comes, asleep in between, until `deadline` (a time of
    /// [`clock::now`](polyduct_os::clock::now)) or until `done` gives true, which is asked after everything
    /// that came. For a thread that answers while others compute.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`].
    pub fn serve_until(
        &self,
        deadline: Option<Duration>,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), MessageError> {
        match self.inner.wait("something to do", deadline, |_| done().then_some(Ok(()))) {
            Ok(()) | Err(MessageError::Timeout { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The sizes in force.
    pub fn config(&self) -> &Config {
        &self.inner.units.options().config
    }

    /// Has everybody who waits in this unit look again at what it waits for: for the conditions of
    /// [`serve_until`](Domain::serve_until) that change without a message.
    pub fn wake(&self) {
        self.inner.receiving.stir();
    }
}
