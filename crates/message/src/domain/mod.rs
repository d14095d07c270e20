//! Domains: endpoints with addresses 0..N-1, handlers by name, messages, calls, barriers, regions.
//!
//! A program joins a domain with all its units; each unit is one endpoint. What is sent goes by [`Channel`]s, each with one
//! writer and no lock. What comes is handled by whichever thread looks: [`Domain::poll`], and every call that waits, calls
//! the [handlers](Domain::handler) of what has come. Nothing else does: a unit that computes for long and wants to answer
//! meanwhile polls now and then, or leaves it to a thread that [serves](Domain::serve_until).
//!
//! Every wait ends with what it waits for, with the loss of the unit that it waits for, or at its deadline.

pub mod barrier;
pub mod board;
mod call;
pub mod calls;
mod channel;
pub mod directory;
mod dispatch;
pub mod gather;
pub mod host;
pub mod mail;
mod peer;
mod pool;
mod progress;
mod region;
pub mod system;

pub use call::Call;
pub use channel::Channel;
pub use dispatch::{Context, Message};
pub use peer::Gone;
pub use region::Region;

use crate::config::Config;
use crate::link::shm::{Bell, Link, Receiver, Sizes};
use crate::types::{Address, Head, Priority};
use crate::{LinkError, MessageError};
use barrier::Barrier;
use board::Board;
use calls::Calls;
use channel::RawChannel;
use directory::{Directory, HandlerError, Installed};
use host::{ask_for_link, Events, Handed, Host, Joined, Who};
use mail::{Mail, Mailbox};
use peer::{lock, Peer};
use polyduct_os::{
    clock,
    process::{PidFd, ProcessId},
};
use pool::Pool;
use progress::Progress;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, TryLockError, Weak};
use std::time::Duration;

/// How long a wait spins before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How long a unit that leaves waits for room for its last words.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long a process may take to die once its memory is gone.
const LAST_GASP: Duration = Duration::from_millis(100);
/// How often a sleeper looks for an interrupt.
const SLICE: Duration = Duration::from_millis(100);

/// Asked now and then by whoever waits: whether to stop waiting.
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a wait asks again and again.
type Ready<'a, T> = dyn FnMut(&Inner) -> Option<Result<T, MessageError>> + 'a;

/// The handlers of a unit, as those who deliver see them.
type Table = Arc<Installed<dispatch::Handler>>;

/// What the loss of a unit means for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// Whoever waits, for whatever, learns of it at once: [`MessageError::PeerLost`], in all units the same.
    #[default]
    Raise,
    /// Only calls that need the lost unit fail.
    Continue,
}

/// How to join a domain.
#[derive(Clone)]
pub struct Options {
    /// Its name, the same for all its units and no other domain of this user: 1 to 64 letters, digits, `.`, `_`, `-`.
    pub name: String,
    /// This unit's address.
    pub unit: Address,
    /// Units of the domain: 1 to 4096.
    pub units: u32,
    /// How long joining, and connecting to a partner, may take. Default: 60 s.
    pub open_timeout: Duration,
    /// How long other calls wait where they are given no deadline: for ever if `None`, the default.
    pub timeout: Option<Duration>,
    /// What the loss of a unit means for the others.
    pub on_loss: OnLoss,
    /// Asked now and then by calls that wait.
    pub interrupt: Option<Interrupt>,
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
            config: Config::default(),
        }
    }

    fn check(&self) -> Result<(), MessageError> {
        let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !(1..=64).contains(&self.name.len()) || !self.name.chars().all(good) {
            let found = self.name.chars().take(80).collect();
            return Err(MessageError::BadName { found });
        }
        if self.units == 0 || self.units > gather::MAX_UNITS {
            let (limit, found) = (gather::MAX_UNITS.into(), self.units.into());
            return Err(MessageError::Limit { what: "units of a domain", limit, found });
        }
        if self.unit >= self.units {
            return Err(MessageError::NoUnit { to: self.unit, units: self.units });
        }
        Ok(())
    }
}

/// A unit's place in a domain. Cheap to clone; all clones are the same endpoint. The unit leaves when the last is dropped.
#[derive(Clone)]
pub struct Domain {
    inner: Arc<Inner>,
    // Before `inner` goes, so that nobody tells it anything.
    host: Arc<Host>,
}

/// A handle that does not keep the unit in the domain: for handlers, which the domain itself keeps.
#[derive(Clone)]
pub struct WeakDomain {
    inner: Weak<Inner>,
    host: Weak<Host>,
}

impl WeakDomain {
    /// The domain, if the unit is still in it.
    pub fn upgrade(&self) -> Option<Domain> {
        Some(Domain { inner: self.inner.upgrade()?, host: self.host.upgrade()? })
    }
}

/// What all handles of an endpoint share.
pub(crate) struct Inner {
    options: Options,
    sizes: Sizes,
    board: Board,
    members: gather::Members,
    bell: Arc<Bell>,
    peers: Vec<Peer>,
    progress: Mutex<Progress>,
    /// Links that progress does not know yet.
    fresh: Mutex<Vec<(Address, Receiver<Vec<u8>>)>>,
    installed: Mutex<Installed<dispatch::Handler>>,
    table: Mutex<Table>,
    /// Rises with every new link and every new table.
    epoch: AtomicU32,
    directory: Mutex<Arc<Directory>>,
    agreement: Mutex<Agreement>,
    calls: Mutex<Calls<Vec<u8>>>,
    barrier: Mutex<Barrier>,
    mailbox: Mutex<Mailbox>,
    regions: region::Regions,
    pool: Pool,
    /// Something waits for room on a library channel.
    backlog: AtomicBool,
    /// Those who wait while another thread looks: rung after it has handled something, and when it stops looking.
    turn: (Mutex<()>, Condvar),
    waiters: AtomicUsize,
    left: AtomicBool,
    /// The first unit that was lost, and one; zero while there is none.
    first_lost: AtomicU32,
}

/// A synchronise under way.
#[derive(Default)]
struct Agreement {
    /// At unit 0: what each unit offers.
    offers: Vec<Option<Vec<directory::Offered>>>,
    outcome: Option<Result<Directory, HandlerError>>,
}

impl Domain {
    /// Joins a domain, and waits until all its units have.
    ///
    /// # Errors
    /// [`MessageError::BadName`], [`MessageError::NoUnit`], [`MessageError::Limit`] for options that cannot be;
    /// [`MessageError::NameTaken`]; [`MessageError::Refused`] when units disagree or do not come within
    /// [`Options::open_timeout`]; [`MessageError::Timeout`] without unit 0; the system's refusals.
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
        // Partners may pull from this process's memory; where that cannot be permitted, messages go through the rings.
        let _ = polyduct_os::remote::permit_readers();
        let bell = Arc::new(Bell::create(options.units)?);
        let joined = Joined::join(&options.who())?;
        let (unit, units) = (options.unit, options.units);
        let inbox = options.config.bytes("inbox");
        let inner = Arc::new(Inner {
            sizes: sizes(&options.config),
            board: joined.board.clone(),
            members: joined.members.clone(),
            bell,
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
            mailbox: Mutex::new(Mailbox::new(inbox)),
            regions: region::Regions::default(),
            pool: Pool::default(),
            backlog: AtomicBool::new(false),
            turn: Default::default(),
            waiters: AtomicUsize::new(0),
            left: AtomicBool::new(false),
            first_lost: AtomicU32::new(0),
            options,
        });
        let host = joined.serve(unit, Told(inner.clone()))?;
        Ok(Domain { inner, host: Arc::new(host) })
    }

    /// A handle that does not keep the unit in the domain.
    pub fn downgrade(&self) -> WeakDomain {
        WeakDomain { inner: Arc::downgrade(&self.inner), host: Arc::downgrade(&self.host) }
    }

    /// This unit's address.
    pub fn unit(&self) -> Address {
        self.inner.options.unit
    }

    /// Units of the domain.
    pub fn units(&self) -> u32 {
        self.inner.options.units
    }

    /// What has become of a unit; `None` while it takes part.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`].
    pub fn gone(&self, unit: Address) -> Result<Option<Gone>, MessageError> {
        self.inner.peer(unit).map(Peer::gone)
    }

    /// Handles what has come: calls the handlers. Returns the number of records handled; zero too while another thread does.
    pub fn poll(&self) -> usize {
        self.inner.poll().unwrap_or(0)
    }

    /// Handles what comes, asleep in between, until `deadline` (a time of [`clock::now`]) or until `done` gives true, which
    /// is asked after everything that came. For a thread that answers while others compute.
    ///
    /// # Errors
    /// [`MessageError::Interrupted`].
    pub fn serve_until(
        &self,
        deadline: Option<Duration>,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), MessageError> {
        match self.inner.wait("something to do", deadline, |_| done().then_some(Ok(()))) {
            Err(MessageError::Timeout { .. }) => Ok(()),
            other => other,
        }
    }

    /// Installs a handler for messages. The others know it after the next [`synchronise`](Domain::synchronise).
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
        Ok(lock(&self.inner.installed).install(name, version, handler)?)
    }

    /// Installs a function that others can [`call`](Domain::call): it gets the argument and gives the result, or says in
    /// words why there is none.
    ///
    /// # Errors
    /// As [`handler`](Domain::handler).
    pub fn function(
        &self,
        name: &str,
        version: u32,
        function: impl Fn(&Context<'_>, &[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Result<(), MessageError> {
        let handler = dispatch::Handler::Call(Arc::new(function));
        Ok(lock(&self.inner.installed).install(name, version, handler)?)
    }

    /// Makes all handlers that were installed so far known in the whole domain. Collective: returns when all units have
    /// called it.
    ///
    /// # Errors
    /// [`MessageError::Handler`] when two units disagree about a version: the same in all units, which go on with what they
    /// agreed on before. [`MessageError::PeerLost`], [`MessageError::PeerLeft`], [`MessageError::Timeout`].
    pub fn synchronise(&self) -> Result<(), MessageError> {
        self.inner.synchronise()
    }

    /// The number of a handler at a unit, for [`Channel::short`] and its like.
    ///
    /// # Errors
    /// [`MessageError::Handler`]: nobody has it, or that unit does not.
    pub fn lookup(&self, name: &str, unit: Address) -> Result<crate::HandlerId, MessageError> {
        let directory = lock(&self.inner.directory).clone();
        Ok(directory.lookup(name, unit)?)
    }

    /// Waits until all units have come to it.
    ///
    /// # Errors
    /// [`MessageError::PeerLost`] and [`MessageError::PeerLeft`] naming a unit that will not come;
    /// [`MessageError::Timeout`], after which this unit has still come to it: the next call waits for the same barrier.
    pub fn barrier(&self) -> Result<(), MessageError> {
        self.inner.barrier()
    }

    /// Sends a message for [`recv`](Domain::recv) at the other end, waiting for room.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`]; [`MessageError::PeerLost`], [`MessageError::PeerLeft`]; [`MessageError::Timeout`].
    pub fn send(&self, to: Address, tag: u32, words: [u32; 2], payload: &[u8]) -> Result<(), MessageError> {
        if to == self.unit() {
            let mail = Mail { from: to, tag, words, payload: payload.to_vec() };
            lock(&self.inner.mailbox).put(mail);
            return Ok(());
        }
        // A channel for each call would not keep the order between calls; one for all keeps it.
        let mut mail = lock(&self.inner.peer(to)?.mail);
        let channel = match &mut *mail {
            Some(channel) => channel,
            none => none.insert(RawChannel::new(&self.inner, to, Priority::Low)?),
        };
        let head = Head { handler: system::MAIL, args: [tag, words[0], words[1], 0] };
        channel.send(&self.inner, head, payload)
    }

    /// Takes the first message from a unit (any if `None`) with a tag (any if `None`), waiting for it.
    ///
    /// # Errors
    /// [`MessageError::PeerLost`] and [`MessageError::PeerLeft`] when the unit is gone and nothing more of it waits;
    /// [`MessageError::Timeout`], [`MessageError::Interrupted`].
    pub fn recv(&self, from: Option<Address>, tag: Option<u32>) -> Result<Mail, MessageError> {
        if let Some(from) = from {
            self.inner.peer(from)?;
        }
        self.inner.wait("a message", None, |inner| {
            if let Some(mail) = lock(&inner.mailbox).take(from, tag) {
                return Some(Ok(mail));
            }
            match from {
                Some(from) => inner.gone_error(from).map(Err),
                // Somebody may still send, if it be this unit itself in another thread.
                None => inner.all_gone().map(Err),
            }
        })
    }

    /// The first message that waits and fits, if there is one.
    pub fn try_recv(&self, from: Option<Address>, tag: Option<u32>) -> Option<Mail> {
        self.poll();
        lock(&self.inner.mailbox).take(from, tag)
    }

    /// Takes back the payload of a message, so that its memory is used again.
    pub fn give_back(&self, payload: Vec<u8>) {
        self.inner.pool.give_back(payload);
    }

    /// A new channel to a unit; connects to it if it is the first.
    ///
    /// # Errors
    /// [`MessageError::NoUnit`] (this unit itself, too: call the handler instead); [`MessageError::Limit`];
    /// [`MessageError::PeerLost`], [`MessageError::PeerLeft`], [`MessageError::Timeout`] when connecting.
    pub fn channel(&self, to: Address, priority: Priority) -> Result<Channel, MessageError> {
        Channel::new(self.inner.clone(), to, priority)
    }

    /// Calls a function of another unit; does not wait. Any number of threads may have calls under way.
    ///
    /// # Errors
    /// [`MessageError::Handler`]: there is no such function there; [`MessageError::Limit`]: too many calls under way; loss of
    /// the unit.
    pub fn call(
        &self,
        to: Address,
        name: &str,
        argument: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Call, MessageError> {
        Call::ask(self.inner.clone(), to, name, argument, timeout)
    }

    /// What waits and what may be sent, exactly.
    pub fn status(&self) -> Status {
        let [high, low] = lock(&self.inner.progress).waiting();
        Status {
            waiting_high: high,
            waiting_low: low,
            mails: lock(&self.inner.mailbox).len() as u64,
            calls: lock(&self.inner.calls).len() as u64,
        }
    }

    /// The sizes in force.
    pub fn config(&self) -> &Config {
        &self.inner.options.config
    }

    /// A region of `len` bytes that the other units can put to and get from, by its number `id`.
    ///
    /// # Errors
    /// [`MessageError::Limit`]: the number is taken, or too many regions; no memory.
    pub fn region(&self, id: u32, len: usize) -> Result<Region, MessageError> {
        self.inner.regions.create(id, len)
    }

    /// Writes into a region of a unit, directly: its processor takes no part. What was put is there when this returns.
    ///
    /// # Errors
    /// [`MessageError::Region`]: there is no such region, or the bytes lie beyond its end; loss of the unit.
    pub fn put(&self, to: Address, id: u32, offset: usize, bytes: &[u8]) -> Result<(), MessageError> {
        self.inner.region_of(to, id)?.write(offset, bytes)
    }

    /// Reads from a region of a unit, directly.
    ///
    /// # Errors
    /// As [`put`](Domain::put).
    pub fn get(&self, from: Address, id: u32, offset: usize, bytes: &mut [u8]) -> Result<(), MessageError> {
        self.inner.region_of(from, id)?.read(offset, bytes)
    }

    /// Leaves the domain in order: the others may wait for this unit no more. What it sent can still be received. Further
    /// calls of any kind are refused at the others' ends.
    pub fn leave(&self) {
        self.inner.leave();
    }
}

/// What waits at an endpoint: exact at the time of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Messages of high priority that have come and were not handled.
    pub waiting_high: u64,
    /// Messages of low priority that have come and were not handled.
    pub waiting_low: u64,
    /// Messages for `recv` that were not taken.
    pub mails: u64,
    /// Calls under way, and answers that nobody has fetched.
    pub calls: u64,
}

fn sizes(config: &Config) -> Sizes {
    let bytes = |name| u32::try_from(config.bytes(name)).unwrap_or(u32::MAX);
    let power = |n: u32| 1 << (31 - n.clamp(1024, 1 << 30).leading_zeros());
    // Lines that fit into a processor's own cache are the faster ones for short messages.
    let lines = |bytes: u32| (bytes / 512).min(1024).max(bytes / 2048).next_power_of_two().clamp(8, 1 << 20);
    let (high_bytes, low_bytes) = (power(bytes("express_ring")), power(bytes("ring")));
    Sizes {
        high_lines: lines(high_bytes),
        low_lines: lines(low_bytes),
        high_bytes,
        low_bytes,
        first_fragment: bytes("first_fragment"),
        max_fragment: bytes("max_fragment"),
        ..Sizes::default()
    }
}

impl Options {
    fn who(&self) -> Who<'_> {
        Who {
            name: &self.name,
            unit: self.unit,
            units: self.units,
            timeout: self.open_timeout,
            interrupt: self.interrupt.clone(),
        }
    }
}

impl Inner {
    fn peer(&self, unit: Address) -> Result<&Peer, MessageError> {
        self.peers.get(unit as usize).ok_or(MessageError::NoUnit { to: unit, units: self.options.units })
    }

    /// What there is to say of a unit that takes no part any more.
    fn gone_error(&self, unit: Address) -> Option<MessageError> {
        if unit == self.options.unit {
            return None;
        }
        let peer = self.peers.get(unit as usize)?;
        // A unit of this very process is not watched, but it says when it leaves.
        let left = || self.board.has_left(unit).then_some(Gone::Left);
        let gone = peer.gone().or_else(left)?;
        // Who leaves because of a loss is not the one to be named.
        let lost = || {
            // It may have heard before this unit.
            let because = self.board.because(unit).filter(|_| self.options.on_loss == OnLoss::Raise);
            self.lost().or(because.map(|lost| self.lost_error(lost)))
        };
        let lost = Some(gone).filter(|&g| g == Gone::Left).and_then(|_| lost());
        Some(lost.unwrap_or_else(|| match gone {
            Gone::Left => MessageError::PeerLeft { unit },
            Gone::Lost => self.lost_error(unit),
        }))
    }

    fn lost_error(&self, unit: Address) -> MessageError {
        let pid = self.members.get(unit as usize).map_or(0, |m| m.0);
        match self.peers[unit as usize].broken.get() {
            Some(error) => MessageError::BadPeer { unit, error: error.clone() },
            None => MessageError::PeerLost { unit, reason: format!("its process (pid {pid}) died") },
        }
    }

    /// The loss that all who wait are told of, if there is one.
    fn lost(&self) -> Option<MessageError> {
        let first = self.first_lost.load(Ordering::Acquire).checked_sub(1)?;
        (self.options.on_loss == OnLoss::Raise).then(|| self.lost_error(first))
    }

    /// The link to a unit, made now if it is the first time.
    fn link(&self, to: Address) -> Result<&Link, MessageError> {
        let peer = self.peer(to)?;
        if let Some(link) = peer.link.get() {
            return match self.gone_error(to) {
                None => Ok(link),
                Some(e) => Err(e),
            };
        }
        if to == self.options.unit {
            return Err(MessageError::ToSelf { unit: to });
        }
        if let Some(e) = self.gone_error(to) {
            return Err(e);
        }
        let mine = self.hand(to).map_err(|error| MessageError::PeerLost { unit: to, reason: error })?;
        let gone = || self.gone_error(to).is_some();
        let theirs = ask_for_link(&self.options.who(), to, &mine, &gone).map_err(|e| self.why(to, e))?;
        self.take_link(to, theirs).map_err(|reason| MessageError::PeerLost { unit: to, reason })?;
        peer.link.get().ok_or(MessageError::PeerLeft { unit: to })
    }

    /// What this unit hands to a partner. The unit with the lower address makes the segment, once.
    fn hand(&self, to: Address) -> Result<Handed, String> {
        let owned = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map_err(|e| e.to_string());
        let bell = owned(self.bell.fd())?;
        if self.options.unit > to {
            return Ok(Handed { bell, segment: None });
        }
        let peer = &self.peers[to as usize];
        // Under the lock: the other thread may just have made it stand.
        let mut making = lock(&peer.connecting);
        if let Some(link) = peer.link.get() {
            return Ok(Handed { bell, segment: Some(owned(link.fd())?) });
        }
        let link = match &*making {
            Some(link) => link,
            None => making.insert(Link::create(&self.sizes).map_err(|e| e.to_string())?),
        };
        Ok(Handed { bell, segment: Some(owned(link.fd())?) })
    }

    /// Takes what a partner handed over. The second time, when both asked at once, does nothing.
    fn take_link(&self, unit: Address, theirs: Handed) -> Result<(), String> {
        let peer = &self.peers[unit as usize];
        let mut making = lock(&peer.connecting);
        if peer.link.get().is_some() {
            return Ok(());
        }
        let link = match (theirs.segment, making.take()) {
            (Some(fd), _) => Link::attach(fd, 1 << 30, &self.sizes).map_err(|e| e.to_string())?,
            (None, Some(link)) => link,
            (None, None) => Link::create(&self.sizes).map_err(|e| e.to_string())?,
        };
        let bell = Bell::attach(theirs.bell).map_err(|e| e.to_string())?;
        // The number of a link at a bell is the unit that rings.
        link.ring_at(Arc::new(bell), self.options.unit);
        let (pid, start_time) = self.members[unit as usize];
        if let Ok(process) = PidFd::of(ProcessId { pid, start_time }) {
            // Where this process may not read the partner's memory, all goes through the rings.
            let _ = link.pull_from(process);
        }
        let receiver = link.receiver().ok_or("the link has a receiver already")?;
        lock(&self.fresh).push((unit, receiver));
        if peer.link.set(link).is_err() {
            return Err("the link was made twice".into());
        }
        self.epoch.fetch_add(1, Ordering::Release);
        self.bell.calls().ring();
        Ok(())
    }

    /// Sends on the library's channel; does not wait, but for the first connection.
    fn push(&self, to: Address, head: Head, payload: Vec<u8>) -> Result<(), MessageError> {
        self.link(to)?;
        self.peers[to as usize].push(head, payload)?;
        if self.peers[to as usize].flush() {
            self.backlog.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn flush_backlog(&self) {
        self.backlog.store(false, Ordering::Release);
        let mut waits = false;
        for (unit, peer) in (0..).zip(&self.peers) {
            if peer.gone().is_none() && self.board.has_left(unit) {
                peer.set_gone(Gone::Left);
            }
            waits |= peer.flush();
        }
        if waits {
            self.backlog.store(true, Ordering::Release);
        }
    }

    /// A partner broke the protocol: its link is of no further use.
    fn broke(&self, unit: Address, error: LinkError) {
        let dead = self.is_dying(unit);
        if !dead {
            tracing::warn!(unit, %error, "broke the protocol");
            let _ = self.peers[unit as usize].broken.set(error);
        }
        self.set_gone(unit, Gone::Lost);
    }

    /// Whether a unit's process is dead, or dies in a moment: its memory and its sockets go before that is known.
    fn is_dying(&self, unit: Address) -> bool {
        let (pid, start_time) = self.members[unit as usize];
        match PidFd::of(ProcessId { pid, start_time }) {
            Ok(process) => process.exited_within(LAST_GASP).unwrap_or(false),
            Err(e) => e.is_peer_gone(),
        }
    }

    /// The better reason for an error in talking to a unit: that it is gone.
    fn why(&self, unit: Address, error: MessageError) -> MessageError {
        if matches!(error, MessageError::PeerLost { .. })
            && self.gone_error(unit).is_none()
            && self.is_dying(unit)
        {
            self.set_gone(unit, if self.board.has_left(unit) { Gone::Left } else { Gone::Lost });
        }
        self.gone_error(unit).unwrap_or(error)
    }

    fn set_gone(&self, unit: Address, how: Gone) {
        if let Some(peer) = self.peers.get(unit as usize) {
            if how == Gone::Lost {
                let _ = self.first_lost.compare_exchange(0, unit + 1, Ordering::AcqRel, Ordering::Relaxed);
            }
            peer.set_gone(how);
            lock(&self.calls).handle_gone(unit);
            self.bell.calls().ring();
            self.wake_waiters();
        }
    }

    fn poll(&self) -> Option<usize> {
        let mut progress = match self.progress.try_lock() {
            Ok(progress) => progress,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let records = progress.poll(self);
        drop(progress);
        if records > 0 {
            self.wake_waiters();
        }
        Some(records)
    }

    fn wake_waiters(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.turn.0));
            self.turn.1.notify_all();
        }
    }

    /// Waits until `ready` gives something, handling what comes meanwhile. `deadline` is a time of [`clock::now`]; without
    /// one, the timeout of the options holds.
    fn wait<T>(
        &self,
        what: &str,
        deadline: Option<Duration>,
        mut ready: impl FnMut(&Inner) -> Option<Result<T, MessageError>>,
    ) -> Result<T, MessageError> {
        let ready: &mut Ready<'_, T> = &mut ready;
        if dispatch::in_handler() {
            // The thread that would have to receive is this one.
            return ready(self).unwrap_or(Err(MessageError::InHandler));
        }
        let start = clock::now();
        let deadline = deadline.or(self.options.timeout.map(|t| start + t)).unwrap_or(Duration::MAX);
        for round in 0u32.. {
            // Answered without a look at the clock where what is waited for is there.
            let polled = self.poll();
            if let Some(done) = self.settled(ready, None) {
                return done;
            }
            if round > 0 && self.options.interrupt.as_ref().is_some_and(|ask| ask()) {
                return Err(MessageError::Interrupted);
            }
            let now = clock::now();
            if self.late_calls(now) {
                continue;
            }
            if now >= deadline {
                return Err(MessageError::Timeout { what: what.to_owned(), waited: now - start });
            }
            let until =
                deadline.min(now + SLICE).min(lock(&self.calls).next_deadline().unwrap_or(Duration::MAX));
            let done = match polled {
                Some(0) => self.receive_until(until, ready),
                Some(_) => None,
                None => self.wait_turn(until.saturating_sub(now), ready),
            };
            if let Some(done) = done {
                return done;
            }
        }
        unreachable!("2^32 rounds of waiting")
    }

    /// Receives until `ready` gives something, asleep in between.
    fn receive_until<T>(&self, until: Duration, ready: &mut Ready<'_, T>) -> Option<Result<T, MessageError>> {
        let mut progress = match self.progress.try_lock() {
            Ok(progress) => progress,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        // One look takes a part of what is there, and no peer calls for the rest: who finds something looks again, since
        // it may be about to sleep.
        let look = |progress: &mut Progress| loop {
            let records = progress.poll(self);
            if records > 0 {
                self.wake_waiters();
            }
            let done = self.settled(ready, Some(progress));
            if records == 0 || done.is_some() || clock::now() >= until {
                return done;
            }
        };
        let found = self.bell.wait(&mut *progress, SPIN, until, look, Progress::arm);
        drop(progress);
        // Another thread takes over.
        self.wake_waiters();
        found
    }

    /// Waits while another thread receives for all.
    fn wait_turn<T>(&self, time: Duration, ready: &mut Ready<'_, T>) -> Option<Result<T, MessageError>> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let guard = lock(&self.turn.0);
        let done = self.settled(ready, None);
        let taken = || matches!(self.progress.try_lock(), Err(TryLockError::WouldBlock));
        if done.is_none() && taken() {
            drop(self.turn.1.wait_timeout(guard, time));
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        done
    }

    /// What `ready` gives. That a unit is gone counts only when nothing is left of what it sent before.
    fn settled<T>(
        &self,
        ready: &mut Ready<'_, T>,
        progress: Option<&mut Progress>,
    ) -> Option<Result<T, MessageError>> {
        let mut ready = |inner: &Inner| ready(inner).or_else(|| inner.lost().map(Err));
        let first = ready(self)?;
        if !matches!(first, Err(MessageError::PeerLost { .. } | MessageError::PeerLeft { .. })) {
            return Some(first);
        }
        match progress {
            Some(progress) => while progress.poll(self) > 0 {},
            None => while lock(&self.progress).poll(self) > 0 {},
        }
        // If it is still gone, and nothing came, then that is it.
        Some(ready(self).unwrap_or(first))
    }

    /// Ends calls that came to their deadline, and tells their callees.
    /// Returns whether there were such.
    fn late_calls(&self, now: Duration) -> bool {
        let late = lock(&self.calls).handle_time(now);
        let any = !late.is_empty();
        for (unit, number) in late {
            // A callee that cannot be told answers for nothing.
            let _ = self.push(unit, Head { handler: system::CANCEL, args: [number, 0, 0, 0] }, Vec::new());
        }
        any
    }

    fn barrier(&self) -> Result<(), MessageError> {
        if lock(&self.barrier).is_over() {
            self.board.come(self.options.unit);
            let mut tells = Vec::new();
            lock(&self.barrier).begin(&mut |t| tells.push(t));
            self.tell(tells)?;
        }
        self.wait("all units to come to the barrier", None, |inner| {
            let over = lock(&inner.barrier).is_over();
            if over {
                Some(Ok(()))
            } else {
                inner.who_never_comes().map(Err)
            }
        })
    }

    /// Calls a function of this unit itself.
    fn call_self(&self, head: Head, argument: &[u8]) {
        let table = lock(&self.table).clone();
        dispatch::call_self(self, head, argument, &table);
    }

    fn tell(&self, tells: Vec<barrier::Tell>) -> Result<(), MessageError> {
        for (to, number, round) in tells {
            let head = Head { handler: system::BARRIER, args: [number, round, 0, 0] };
            self.push(to, head, Vec::new())?;
        }
        Ok(())
    }

    /// The first of all others, when there are others and none takes part any more.
    fn all_gone(&self) -> Option<MessageError> {
        let mut others = (0..self.options.units).filter(|&unit| unit != self.options.unit);
        let first = self.gone_error(others.next()?)?;
        others.all(|unit| self.gone_error(unit).is_some()).then_some(first)
    }

    /// A unit that will not come to the collective operation that this one has come to: the lowest, so that all who wait
    /// name the same. Who does not come keeps all others, directly or not.
    fn who_never_comes(&self) -> Option<MessageError> {
        let mine = self.board.collectives(self.options.unit);
        (0..self.options.units).find_map(|unit| match self.gone_error(unit)? {
            MessageError::PeerLeft { .. } if self.board.collectives(unit) >= mine => None,
            error => Some(error),
        })
    }

    fn synchronise(&self) -> Result<(), MessageError> {
        let offer = lock(&self.installed).offer();
        self.board.come(self.options.unit);
        if self.options.unit == 0 {
            self.wait("all units to synchronise", None, |inner| {
                let units = inner.options.units as usize;
                let mut agreement = lock(&inner.agreement);
                agreement.offers.resize(units, None);
                agreement.offers[0].get_or_insert_with(|| offer.clone());
                if agreement.offers.iter().any(Option::is_none) {
                    return inner.who_never_comes().map(Err);
                }
                let offers: Vec<_> = agreement.offers.drain(..).map(Option::unwrap_or_default).collect();
                agreement.outcome = Some(lock(&inner.directory).merge(&offers));
                Some(Ok(()))
            })?;
            let outcome = lock(&self.agreement).outcome.clone();
            let failed = u32::from(matches!(outcome, Some(Err(_))));
            let payload = match &outcome {
                Some(Ok(directory)) => postcard::to_stdvec(directory),
                Some(Err(e)) => postcard::to_stdvec(e),
                None => Ok(Vec::new()),
            };
            let payload = payload.unwrap_or_default();
            for to in 1..self.options.units {
                let head = Head { handler: system::AGREED, args: [failed, 0, 0, 0] };
                self.push(to, head, payload.clone())?;
            }
        } else {
            let payload = postcard::to_stdvec(&offer).unwrap_or_default();
            self.push(0, Head { handler: system::OFFER, args: [0; 4] }, payload)?;
        }
        let agreed = self.wait("all units to synchronise", None, |inner| {
            match lock(&inner.agreement).outcome.take() {
                Some(outcome) => Some(Ok(outcome)),
                None => inner.who_never_comes().map(Err),
            }
        })?;
        if let Ok(directory) = &agreed {
            let mut installed = lock(&self.installed);
            installed.number(directory);
            *lock(&self.table) = Arc::new(installed.clone());
            *lock(&self.directory) = Arc::new(directory.clone());
            self.epoch.fetch_add(1, Ordering::Release);
        }
        // Nobody uses a new number before all know it.
        self.barrier()?;
        Ok(agreed.map(drop)?)
    }

    fn leave(&self) {
        if self.left.swap(true, Ordering::AcqRel) {
            return;
        }
        // What waits for room goes before, if those who are to take it do so in good time. After a loss nobody waits.
        if self.backlog.load(Ordering::Acquire) && self.lost().is_none() {
            let deadline = clock::now() + self.options.open_timeout.min(LAST_WORDS);
            let sent = |_: &mut ()| {
                self.poll();
                (self.leave_flushed() || self.lost().is_some()).then_some(())
            };
            self.bell.wait(&mut (), SPIN, deadline, sent, |_| ());
        }
        let because = self.first_lost.load(Ordering::Acquire).checked_sub(1);
        self.board.leave(self.options.unit, because);
        for peer in &self.peers {
            if let Some(link) = peer.link.get() {
                link.close();
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.leave();
        }
    }
}

/// What the host's thread tells the domain.
struct Told(Arc<Inner>);

impl Events for Told {
    fn linked(&mut self, unit: Address, theirs: Handed) -> Result<Handed, String> {
        let mine = self.0.hand(unit)?;
        self.0.take_link(unit, theirs)?;
        Ok(mine)
    }

    fn region(&mut self, id: u32) -> Result<OwnedFd, String> {
        self.0.regions.fd(id)
    }

    fn gone(&mut self, unit: Address, left: bool) {
        self.0.set_gone(unit, if left { Gone::Left } else { Gone::Lost });
    }
}
