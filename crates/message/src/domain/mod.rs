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
pub mod gather;
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
mod progress;
mod region;
#[doc(hidden)]
pub mod room;
mod status;
pub mod system;
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
use crate::link::shm::{Bell, Receiver, Sizes};
use crate::types::{Address, Head, Priority};
use crate::MessageError;
use barrier::Barrier;
use board::Board;
use collective::Agreement;
use directory::{Directory, Installed, Kind};
use host::{Joined, Who};
use host_map::{Hosts, Processes};
use inbox::Mailbox;
use leave::Part;
use peer::{lock, Peer};
use pending::Calls;
use polyduct_os::spin::Spin;
use pool::Pool;
use progress::Progress;
use room::{Buffer, Rooms};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::Duration;

/// The handlers of a unit, as those who deliver see them.
type Table = Arc<Installed<dispatch::Handler>>;

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
    options: Options,
    /// Bytes of a message, at most: settings are found by name, and this one is needed for each message.
    longest: u64,
    sizes: Sizes,
    board: Board,
    /// Who is near, and who is far: for good.
    hosts: Arc<Hosts>,
    /// What stands for the domain in the names of this host's sockets.
    place: String,
    /// The processes of those who are near.
    members: Arc<Processes>,
    bell: Arc<Bell>,
    /// How long who receives spins before it sleeps there.
    spin: Spin,
    /// Across hosts: the way to the partners that are far.
    net: Option<net::Net>,
    peers: Vec<Peer>,
    progress: Mutex<Progress>,
    /// Links that progress does not know yet.
    fresh: Mutex<Vec<(Address, Receiver<Buffer>)>>,
    installed: Mutex<Installed<dispatch::Handler>>,
    table: Mutex<Table>,
    /// Rises with every new link and every new table.
    epoch: AtomicU32,
    directory: Mutex<Arc<Directory>>,
    agreement: Mutex<Agreement>,
    calls: Mutex<Calls<Parcel>>,
    barrier: Mutex<Barrier>,
    /// Whose turn a collective operation is: they are counted, so there is one at a time.
    collective: Mutex<()>,
    /// Threads that wait for it.
    in_line: AtomicUsize,
    /// Another unit has come to another collective operation than this one: there can be no more of them.
    at_odds: OnceLock<MessageError>,
    /// This unit takes no part any more: waits of other threads end.
    away: AtomicBool,
    /// Words of collective operations that could not be sent.
    unsaid: Mutex<Vec<collective::Word>>,
    /// Of all messages that come.
    rooms: Arc<Rooms>,
    mailbox: Mutex<Mailbox>,
    regions: region::Regions,
    pool: Pool,
    /// Something waits for room on a library channel.
    backlog: AtomicBool,
    /// Those who wait while another thread looks: rung, and counted, after it has handled something and when
    /// it stops looking.
    turn: (Mutex<u64>, Condvar),
    waiters: AtomicUsize,
    /// Threads that ask whoever receives to let them.
    wanted: AtomicUsize,
    left: AtomicBool,
    /// The first unit that was lost, and one; zero while there is none.
    first_lost: AtomicU32,
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
                let (net, hosts, place) = net::Net::join(&options, network, &bell, &rooms, owner.clone())?;
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
        let (board, members) = match (&joined, &net) {
            (Some(joined), None) => (joined.board.clone(), joined.members.clone()),
            (Some(joined), Some(_)) => (joined.board.clone().among(hosts.clone())?, joined.members.clone()),
            // What the others would write there they say in messages.
            (None, _) => (Board::create(units)?, Processes::default()),
        };
        let inner = Arc::new(Inner {
            longest: options.config.bytes("message"),
            sizes: options.config.link_sizes(partners),
            board,
            hosts,
            place,
            members: Arc::new(members),
            bell,
            spin: Spin::new(wait::SPIN),
            net,
            peers: (0..units).map(|_| Peer::default()).collect(),
            progress: Mutex::default(),
            fresh: Mutex::default(),
            installed: Mutex::default(),
            table: Mutex::default(),
            epoch: AtomicU32::new(0),
            directory: Mutex::default(),
            agreement: Mutex::default(),
            calls: Mutex::default(),
            barrier: Mutex::new(Barrier::new(unit, units)),
            collective: Mutex::default(),
            in_line: AtomicUsize::new(0),
            at_odds: OnceLock::new(),
            away: AtomicBool::new(false),
            unsaid: Mutex::default(),
            mailbox: Mutex::new(Mailbox::new(rooms.clone())),
            rooms,
            regions: region::Regions::default(),
            pool: Pool::default(),
            backlog: AtomicBool::new(false),
            turn: Default::default(),
            waiters: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            left: AtomicBool::new(false),
            first_lost: AtomicU32::new(0),
            options,
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
        &self.inner.options.name
    }

    /// This unit's address.
    pub fn unit(&self) -> Address {
        self.inner.options.unit
    }

    /// Units of the domain.
    pub fn units(&self) -> u32 {
        self.inner.options.units
    }

    /// Whether all units are reached by shared memory.
    pub fn is_on_one_host(&self) -> bool {
        self.inner.hosts.far().next().is_none()
    }

    /// How a unit is reached: the same for as long as the domain lives. Regions of shared memory can be
    /// [mapped](Domain::region_of) where it is not [`Reach::Far`].
    ///
    /// # Errors
    /// [`MessageError::NoUnit`].
    pub fn reach(&self, unit: Address) -> Result<Reach, MessageError> {
        self.inner.hosts.reach(unit).ok_or(MessageError::NoUnit { to: unit, units: self.units() })
    }

    /// The process that is a unit; `None` where it is on another host or in another process namespace, and so
    /// has no number here.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`].
    pub fn pid(&self, unit: Address) -> Result<Option<u32>, MessageError> {
        self.inner.peer(unit)?;
        Ok(self.inner.members.pid(unit))
    }

    /// What has become of a unit; `None` while it takes part.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`].
    pub fn gone(&self, unit: Address) -> Result<Option<Gone>, MessageError> {
        self.inner.peer(unit).map(Peer::gone)
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

    /// Installs a handler for messages. The others know it after the next
    /// [`synchronise`](Domain::synchronise).
    ///
    /// It runs in the thread that polls, and must not wait: [`Context`] sends without waiting.
    ///
    /// # Errors
    /// [`MessageError::Handler`]: the name is taken, or cannot be one.
    pub fn handler(
        &self,
        name: &str,
        version: u32,
        handler: impl Fn(&Context<'_>, Message<'_>) + Send + Sync + 'static,
    ) -> Result<(), MessageError> {
        let handler = dispatch::Handler::Message(Arc::new(handler));
        Ok(lock(&self.inner.installed).install(name, version, Kind::Messages, handler)?)
    }

    /// Installs a function that others can [`call`](Domain::call): it gets the argument and gives the result,
    /// or says in words why there is none.
    ///
    /// # Errors
    /// As [`handler`](Domain::handler).
    pub fn function(
        &self,
        name: &str,
        version: u32,
        function: impl Fn(&Context<'_>, &[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Result<(), MessageError> {
        self.function_of_parcels(name, version, move |context, _, argument| {
            function(context, argument).map(Parcel::from)
        })
    }

    /// The same for a function that also gets the two words that came with the argument, and gives two with
    /// the result.
    ///
    /// # Errors
    /// As [`handler`](Domain::handler).
    pub fn function_of_parcels(
        &self,
        name: &str,
        version: u32,
        function: impl Fn(&Context<'_>, [u32; 2], &[u8]) -> Result<Parcel, String> + Send + Sync + 'static,
    ) -> Result<(), MessageError> {
        let handler = dispatch::Handler::Call(Arc::new(function));
        Ok(lock(&self.inner.installed).install(name, version, Kind::Calls, handler)?)
    }

    /// Makes all handlers that were installed so far known in the whole domain. Collective: returns when all
    /// units have called it.
    ///
    /// # Errors
    /// [`MessageError::Handler`] when two units disagree about a version, or about whether a name is a
    /// function: the same in all units, which go on with what they agreed on before.
    /// [`MessageError::PeerLost`], [`MessageError::PeerLeft`]; [`MessageError::AtOdds`] naming a unit that
    /// has come to a barrier instead, after which there are no more of either; [`MessageError::Timeout`],
    /// after which the next call goes on with what this one brought.
    pub fn synchronise(&self) -> Result<(), MessageError> {
        self.inner.synchronise()
    }

    /// The number of a handler at a unit, for [`Channel::short`] and its like.
    ///
    /// # Errors
    /// [`MessageError::Handler`]: nobody has it, or that unit does not, or it is a function, to be [called](Domain::call).
    pub fn lookup(&self, name: &str, unit: Address) -> Result<crate::HandlerId, MessageError> {
        let directory = lock(&self.inner.directory).clone();
        Ok(directory.lookup(name, unit, Kind::Messages)?)
    }

    /// Waits until all units have come to it. Threads of a unit that call this or
    /// [`synchronise`](Domain::synchronise) at once do so one after the other, so each call is a barrier of
    /// its own, which all units have to come to.
    ///
    /// # Errors
    /// [`MessageError::PeerLost`] and [`MessageError::PeerLeft`] naming a unit that will not come;
    /// [`MessageError::AtOdds`] naming one that has come to a synchronise instead, after which there are no
    /// more of either; [`MessageError::Timeout`], after which this unit has still come to it: the next call
    /// waits for the same barrier.
    pub fn barrier(&self) -> Result<(), MessageError> {
        self.inner.barrier()
    }

    /// A new channel to a unit, in order; connects to it if it is the first.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`] (this unit itself, too: call the handler instead); [`MessageError::Limit`];
    /// [`MessageError::PeerLost`], [`MessageError::PeerLeft`], [`MessageError::Timeout`] when connecting.
    pub fn channel(&self, to: Address, priority: Priority) -> Result<Channel, MessageError> {
        self.channel_with(to, ChannelOptions { priority, ..ChannelOptions::default() })
    }

    /// The same for a channel whose messages may come in [any order](crate::Order::Any).
    ///
    /// # Errors
    /// As [`channel`](Domain::channel).
    pub fn channel_with(&self, to: Address, options: ChannelOptions) -> Result<Channel, MessageError> {
        Channel::new(self.inner.clone(), to, options)
    }

    /// Calls a function of another unit; does not wait. Any number of threads may have calls under way.
    ///
    /// # Errors
    /// [`MessageError::Handler`]: there is no such function there, or it is a handler of messages; [`MessageError::Limit`]: too
    /// many calls under way; loss of the unit.
    pub fn call(
        &self,
        to: Address,
        name: &str,
        argument: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Call, MessageError> {
        self.call_with(to, name, argument.to_vec().into(), timeout)
    }

    /// The same with two words beside the argument, which is not copied.
    ///
    /// # Errors
    /// As [`call`](Domain::call).
    pub fn call_with(
        &self,
        to: Address,
        name: &str,
        argument: Parcel,
        timeout: Option<Duration>,
    ) -> Result<Call, MessageError> {
        Call::ask(self.inner.clone(), to, name, argument, timeout)
    }

    /// The sizes in force.
    pub fn config(&self) -> &Config {
        &self.inner.options.config
    }

    /// Leaves the domain in order: the others may wait for this unit no more, and calls of any kind are
    /// refused at their ends. Waits until what was sent, handlers' answers included, is with the others or
    /// lies where they will find it, as long as they live. Messages that wait here to be taken are dropped.
    /// The first call counts, whichever handle it is made with. Waits of other threads end then with
    /// [`MessageError::PeerLeft`] of this very unit.
    ///
    /// # Errors
    /// [`MessageError::Timeout`] after the domain's timeout (without one it waits for as long as it takes)
    /// and
    /// [`MessageError::Interrupted`]: something was not taken; to who misses it this unit is lost. [`MessageError::InHandler`]:
    /// nothing was done.
    pub fn leave(&self) -> Result<(), MessageError> {
        self.inner.leave()
    }

    /// The same unless somebody else has a handle, too: the unit leaves when that is dropped, which cannot
    /// say how it went.
    ///
    /// # Errors
    /// As [`leave`](Domain::leave).
    pub fn close(self) -> Result<(), MessageError> {
        Arc::into_inner(self.part).map_or(Ok(()), |part| part.inner.leave())
    }

    /// Gives up: for the others this unit is lost from now on, as if its process had died. For those who
    /// cannot go on, and whose process lives.
    pub fn give_up(&self) {
        self.inner.give_up();
    }

    /// Has everybody who waits in this unit look again at what it waits for: for the conditions of
    /// [`serve_until`](Domain::serve_until) that change without a message.
    pub fn wake(&self) {
        self.inner.stir();
    }

    /// Whether the caller is a handler, or was called by one.
    pub fn in_handler() -> bool {
        dispatch::in_handler()
    }
}

impl Inner {
    pub(super) fn who(&self) -> Who<'_> {
        self.options.who(&self.hosts, &self.place)
    }

    pub(super) fn peer(&self, unit: Address) -> Result<&Peer, MessageError> {
        self.peers.get(unit as usize).ok_or(MessageError::NoUnit { to: unit, units: self.options.units })
    }

    /// Calls a function of this unit itself.
    pub(super) fn call_self(&self, head: Head, argument: &[u8]) {
        let table = lock(&self.table).clone();
        dispatch::call_self(self, head, argument, &table);
    }
}
